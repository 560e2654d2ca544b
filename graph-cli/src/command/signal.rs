//! `graph signal`: send a signal to a run.

use std::io::{self, Read};
use std::path::PathBuf;

use clap::Args;
use graph_model::digest::hex;
use graph_runtime::store::{Received, SignalPlace};
use graph_runtime::{Builder, EncryptionKey, NamedSignal, RunId, Runtime, Store, Value};
use serde_json::json;

use super::signing_key;
use super::stored::{self, Access};
use super::stored_run::own_graph;
use crate::outcome::{CommandOutcome, CommandResult, Error};

#[derive(Args)]
pub(crate) struct SignalArguments {
    /// The run
    #[arg(value_name = "RUN", value_parser = |text: &str| RunId::new(text))]
    run: RunId,
    /// The signal, one of `config.signals` of the run's graph; of a nested run, with the path to it: `5/paid`
    #[arg(value_name = "NAME")]
    name: String,
    /// The value of the signal, as JSON; `-` reads it from standard input
    #[arg(value_name = "VALUE", default_value = "null", allow_negative_numbers = true)]
    value: String,
    /// The SQLite file that holds the run
    #[arg(long, value_name = "FILE")]
    store: PathBuf,
    /// An id that you give this signal of the run and no other: sent again with it, the signal is received once [default: a
    /// new one, which is printed]
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    /// The file of the run's graph; given several times, of its versions, of which the run's own is taken [default: found by its id in
    /// the tree `graphs`]
    #[arg(long, value_name = "FILE")]
    graph: Vec<PathBuf>,
    /// The secret key that signs the store's journals [default: your own]
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// The key that encrypts the run's secrets
    #[arg(long, alias = "seal-key", value_name = "FILE")]
    encryption_key: Option<PathBuf>,
    /// Print what was done as JSON
    #[arg(long)]
    json: bool,
}

/// The maximum length of a value that is read from standard input, in bytes: a store keeps no longer one.
const MOST: u64 = 1 << 20;

pub(crate) fn run(arguments: &SignalArguments) -> CommandResult {
    let value = read_value(&arguments.value)?;
    let id = arguments.id.clone().map_or_else(new_id, Ok)?;
    let key = signing_key(arguments.key.as_ref())?;
    let received = stored::tokio()?.block_on(async {
        let store = stored::open(&arguments.store, Access::Write).await?;
        let records = store.load(&arguments.run).await?;
        let graph = own_graph(&records, &arguments.graph, "--graph FILE")?;
        // The caller has the store and the key of its journals.
        let builder = Runtime::builder().store(store).sign_with(key).grant("rye.signal.*")?;
        let encryption_key = arguments.encryption_key.as_ref().map(|path| EncryptionKey::load(path)).transpose()?;
        let runtime = encryption_key.into_iter().fold(builder, Builder::encrypt_with).build()?;
        let signal = NamedSignal::new(&arguments.name, value);
        if arguments.value != STDIN && signal.may_have_secrets(&graph) {
            return Err(exposed(&format!("the signal `{}`", arguments.name), STDIN));
        }
        Ok::<_, Error>(runtime.signal(&graph, &arguments.run, signal, &id).await?)
    })?;
    let SignalArguments { run, name, .. } = arguments;
    let (SignalPlace { order, .. }, already) = match received {
        Received::Accepted(place) => (place, None),
        Received::Already { place, taken } => (place, Some(taken)),
    };
    if arguments.json {
        let (is_already, is_taken) = (already.is_some(), already == Some(true));
        let done = json!({"success": true, "run_id": run, "signal": name, "id": id, "order": order, "already": is_already, "taken": is_taken});
        out_json!(done);
    } else {
        match already {
            None => out!("run `{run}` has the signal `{name}`, with the id `{id}`"),
            Some(false) => out!("run `{run}` had the signal `{name}` with the id `{id}` before, and has not taken it"),
            Some(true) => out!("run `{run}` had the signal `{name}` with the id `{id}` before, and has taken it"),
        }
    }
    Ok(CommandOutcome::Well)
}

/// The argument in place of a value that is read from standard input.
pub(super) const STDIN: &str = "-";

/// Returns the error that a secret must not be on a command line.
pub(super) fn exposed(what: &str, argument: &str) -> Error {
    Error::new(format!(
        "{what} has secrets, and others see command lines: write `{argument}`, and give the value on standard input"
    ))
}

/// Reads a value as JSON, from the command line or from standard input.
pub(super) fn read_value(text: &str) -> Result<Value, Error> {
    let text = match text {
        STDIN => {
            let mut read = Vec::new();
            // A line feed behind the value is no part of it.
            io::stdin().take(MOST + 2).read_to_end(&mut read)?;
            let length = read.trim_ascii().len();
            if length as u64 > MOST || read.len() as u64 > MOST + 1 {
                return Err(Error::new(format!("the value on standard input is longer than {MOST} bytes")));
            }
            String::from_utf8(read).map_err(|_| Error::new("the value on standard input is not UTF-8"))?
        }
        text => text.to_owned(),
    };
    serde_json::from_str(&text)
        .map_err(|error| Error::new(format!("the value is not JSON: {error}; write a text in quotes: '\"text\"'")))
}

/// Makes an id that no other signal has.
fn new_id() -> Result<String, Error> {
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(|error| Error::new(format!("the system gives no random bytes: {error}")))?;
    Ok(format!("cli-{}", hex(&random)))
}
