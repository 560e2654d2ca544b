//! `graph view`: show the runs of a store in a local web page.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use graph_model::character::is_invisible;
use graph_runtime::record::Start;
use graph_runtime::{Fingerprint, Machine as _, Runtime};
use graph_signing::SecretKey;
use graph_viewer::{AnswerRights, BoundViewer, FindGraph, ViewedPlace, ViewerOptions};

use super::answer::ring;
use super::signing_key;
use super::stored::{self, Access};
use super::stored_run::{called, load, public_key, verifying_key};
use crate::outcome::{CommandOutcome, CommandResult, Error};
use crate::output::is_lost;

#[derive(Args)]
pub(crate) struct ViewArguments {
    /// The SQLite file that holds the runs
    #[arg(long, value_name = "FILE", required_unless_present = "files", conflicts_with = "files")]
    store: Option<PathBuf>,
    /// The directory of a project whose .ai holds the files of runs, in place of a store
    #[arg(long, value_name = "DIR")]
    files: Option<PathBuf>,
    /// A graph's file, for runs of that graph; may be given several times [default: found by its id in the tree `graphs`]
    #[arg(long, value_name = "FILE")]
    graph: Vec<PathBuf>,
    /// The public key that verifies runs, a PEM file [default: your own]
    #[arg(long, value_name = "FILE", conflicts_with = "journal_key")]
    public_key: Option<PathBuf>,
    /// The public key that verifies the files, a PEM file [default: the one that verifies the journals]
    #[arg(long, value_name = "FILE", requires = "files")]
    files_key: Option<PathBuf>,
    /// The port of 127.0.0.1 to listen on; 0 for a free one
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    port: u16,
    /// Let the page answer the questions of runs; without it, the page changes nothing
    #[arg(long, conflicts_with = "files")]
    answer: bool,
    /// The secret key that signs answers [default: your own]
    #[arg(long, value_name = "FILE", requires = "answer")]
    key: Option<PathBuf>,
    /// The secret key that signs the store's journals [default: your own]
    #[arg(long, value_name = "FILE", requires = "answer")]
    journal_key: Option<PathBuf>,
    /// The directory of trusted keys, whose files give roles
    #[arg(long, value_name = "DIR", default_value = "graphs/keys", requires = "answer")]
    keys: PathBuf,
    /// A key from which roles come: only files that it signed, or whose signers it vouches for, give roles [default: every trusted
    /// key]
    #[arg(long, value_name = "FINGERPRINT", requires = "answer")]
    role_root: Vec<Fingerprint>,
}

pub(crate) fn run(arguments: &ViewArguments) -> CommandResult {
    let ViewArguments { store, files, port, .. } = arguments;
    let key = match &arguments.journal_key {
        Some(path) => SecretKey::load(path)?.public(),
        None => verifying_key(arguments.public_key.as_deref())?,
    };
    let files_key = arguments.files_key.as_deref().map(public_key).transpose()?;
    let place = match (store, files) {
        (Some(path), _) if path.is_file() => ViewedPlace::Store(path.clone()),
        (Some(path), _) => return Err(Error::new(format!("there is no store at {}", path.display()))),
        (None, Some(directory)) if directory.is_dir() => ViewedPlace::Files(directory.clone()),
        (None, Some(directory)) => {
            return Err(Error::new(format!("there is no directory {}", directory.display())));
        }
        (None, None) => {
            return Err(Error::new("name a store with `--store FILE`, or a project with `--files DIR`"));
        }
    };
    for graph in &arguments.graph {
        load(graph)?;
    }
    if arguments.answer && !arguments.keys.is_dir() {
        return Err(Error::new(format!(
            "there is no directory of keys at {}: name it with `--keys`",
            arguments.keys.display()
        )));
    }
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    tokio.block_on(async {
        if let ViewedPlace::Store(path) = &place {
            // A store that cannot be read is no place to look at.
            drop(stored::open(path, Access::Read).await?);
        }
        let answers = arguments.rights().await?;
        let options = ViewerOptions { place, key, files_key, graphs: graphs(arguments.graph.clone()), answers };
        let bound = BoundViewer::bind(options, *port).await;
        let viewer = bound.map_err(|error| Error::new(format!("cannot listen on 127.0.0.1:{port}: {error}")))?;
        out!("{}", viewer.url());
        if is_lost() {
            // Nobody knows the address.
            return Ok(());
        }
        err!("note: whoever knows this address sees all runs; press Ctrl-C to stop");
        viewer.serve(stopped()).await;
        Ok::<_, Error>(())
    })?;
    // A request that computes for a long time does not keep the command from ending.
    tokio.shutdown_background();
    Ok(CommandOutcome::Well)
}

/// Waits until the command is asked to stop.
async fn stopped() {
    let interrupted = tokio::signal::ctrl_c();
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let (Ok(mut terminated), Ok(mut hung_up)) = (signal(SignalKind::terminate()), signal(SignalKind::hangup())) {
            tokio::select! {
                _ = interrupted => {}
                _ = terminated.recv() => {}
                _ = hung_up.recv() => {}
            }
            return;
        }
    }
    drop(interrupted.await);
}

impl ViewArguments {
    /// Returns the rights to answer, if the page is to have them.
    async fn rights(&self) -> Result<Option<AnswerRights>, Error> {
        let Some(path) = self.store.as_ref().filter(|_| self.answer) else { return Ok(None) };
        let (journal_key, key) = (signing_key(self.journal_key.as_ref())?, signing_key(self.key.as_ref())?);
        let (keys, roots) = (self.keys.clone(), self.role_root.clone());
        let store = stored::open(path, Access::Write).await?;
        let trusted = move || ring(&keys, &roots);
        let runtime = Runtime::builder().store(store).sign_with(journal_key).answer_keys(trusted).build()?;
        Ok(Some(AnswerRights { runtime, key }))
    }
}

/// Finds the graphs of runs: among the files that are named, or by their ids in the tree `graphs`.
fn graphs(files: Vec<PathBuf>) -> Arc<FindGraph> {
    Arc::new(move |id: &str, start: Option<&Start>| {
        find(&files, id, start).map_err(|error| readable(&error.to_string()))
    })
}

/// Several files may have graphs of one id: the text that a run began under, or one of its meaning, is better than another one.
fn find(files: &[PathBuf], id: &str, start: Option<&Start>) -> Result<graph_runtime::dynamic::Interpreted, Error> {
    let mut found = None;
    for file in files {
        let graph = load(file)?;
        if graph.id() != id {
            continue;
        }
        let fits = start.is_none_or(|start| {
            start.digest == graph.graph().digest()
                || start.meaning.is_some() && start.meaning == graph.graph().meaning()
        });
        if fits {
            return Ok(graph);
        }
        found.get_or_insert(graph);
    }
    found.map_or_else(|| called(id, "--graph"), Ok)
}

/// Takes the colours out of a message.
fn readable(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("\u{1b}[") {
        plain.push_str(before);
        rest = after.split_once('m').map_or("", |(_, rest)| rest);
    }
    plain.push_str(rest);
    plain.chars().filter(|letter| *letter == '\n' || !letter.is_control() && !is_invisible(*letter)).collect()
}
