//! The common part of the verbs that change state keys of a stored run.

use std::path::{Path, PathBuf};

use clap::Args;
use graph_model::number::read_json;
use graph_runtime::dynamic::Interpreted;
use graph_runtime::{Builder, EncryptionKey, Map, RunId, Runtime, SecretKey, SqliteStore, Store, Value};

use super::signing_key;
use super::stored_run::own_graph;
use crate::outcome::Error;

/// The options that change state keys of a run.
#[derive(Args)]
pub(crate) struct StateChangeArguments {
    /// Set a state key to another value, in JSON; may be given several times
    #[arg(long = "set", value_name = "KEY=JSON", value_parser = setting)]
    set: Vec<(String, Value)>,
    /// Write a value to a state key as a node does: a channel combines it with its value; may be given several times
    #[arg(long = "write", value_name = "KEY=JSON", value_parser = setting)]
    write: Vec<(String, Value)>,
}

/// Values of state keys.
type KeyValues = Map<String, Value>;

/// Splits `key=json`.
fn setting(text: &str) -> Result<(String, Value), String> {
    let (key, value) = text.split_once('=').filter(|(key, _)| !key.is_empty()).ok_or("write `key=json`")?;
    let value = read_json(value).map_err(|error| {
        format!("the value of `{key}` is not JSON ({error}); write a text in quotes: `{key}='\"text\"'`")
    })?;
    Ok((key.to_owned(), value))
}

impl StateChangeArguments {
    /// Returns the values to set and those to write, by their keys.
    ///
    /// # Errors
    ///
    /// If a key is given twice, or is or contains a secret.
    pub(crate) fn read(&self, graph: &Interpreted) -> Result<(KeyValues, KeyValues), Error> {
        let (mut set, mut write) = (Map::new(), Map::new());
        for (given, map) in [(&self.set, &mut set), (&self.write, &mut write)] {
            for (key, value) in given {
                if map.insert(key.clone(), value.clone()).is_some() {
                    return Err(Error::new(format!("the state key `{key}` is given twice")));
                }
            }
        }
        let is_secret =
            |name: &&String| graph.interface().keys.iter().any(|key| key.name == **name && key.ty.has_secret());
        match set.keys().chain(write.keys()).find(is_secret) {
            Some(name) => {
                let why = "is or contains a secret, and others see command lines";
                Err(Error::new(format!("the state key `{name}` {why}: it cannot be changed here")))
            }
            None => Ok((set, write)),
        }
    }
}

/// The options with the graph of a stored run and the keys of its store.
#[derive(Args)]
pub(crate) struct RunAccess {
    /// The file of the run's graph; given several times, of its versions, of which the run's own is taken [default: found by its id in
    /// the tree `graphs`]
    #[arg(long, value_name = "FILE")]
    graph: Vec<PathBuf>,
    /// The secret key that signs the store's journals [default: your own]
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// The key that encrypts secrets in the store
    #[arg(long, alias = "seal-key", value_name = "FILE")]
    pub(crate) encryption_key: Option<PathBuf>,
}

/// A stored run whose state is to be changed, and the beginning of a runtime that does it.
pub(crate) struct ChangeableRun {
    pub(crate) tokio: tokio::runtime::Runtime,
    pub(crate) graph: Interpreted,
    pub(crate) key: SecretKey,
    /// A runtime with the store and its keys.
    pub(crate) builder: Builder,
}

impl RunAccess {
    /// Opens the store of a run, which must exist, and loads the run's graph.
    pub(crate) fn open(&self, run: &RunId, store: &Path) -> Result<ChangeableRun, Error> {
        if !store.is_file() {
            return Err(Error::new(format!("there is no store at {}", store.display())));
        }
        let key = signing_key(self.key.as_ref())?;
        let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let store = tokio.block_on(SqliteStore::open(store))?;
        let records = tokio.block_on(store.load(run))?;
        let graph = own_graph(&records, &self.graph, "--graph")?;
        let mut builder = Runtime::builder().store(store).sign_with(key.clone());
        if let Some(path) = &self.encryption_key {
            builder = builder.encrypt_with(EncryptionKey::load(path)?);
        }
        Ok(ChangeableRun { tokio, graph, key, builder })
    }
}
