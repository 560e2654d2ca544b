//! Signals: the messages that others send to a run.

use std::collections::BTreeMap;

use base64ct::{Base64UrlUnpadded, Encoding};
use graph_model::capability::Capability;
use graph_model::digest::Digest;
use graph_model::name::RunId;
use graph_model::value::{AsView, Mismatch, Value};
use graph_signing::{PublicKey, SecretKey};
use serde::Serialize;

use crate::address::{self, Address};
use crate::error::{ResumeError, StartError};
use crate::graph::{GraphTables, tables};
use crate::machine::Machine;
use crate::record::{JournalError, TakenSignal};
use crate::schema::{self, Invalid};
use crate::store::{ReceivedSignal, Signal, SignalPlace, Store, StoreError};

/// A signal by its name, with its value. The enum `Signal` of a compiled graph becomes one.
///
/// ```
/// # use graph_engine as graph_runtime;
/// use graph_runtime::{NamedSignal, Value};
///
/// let paid = NamedSignal::new("paid", Value::from(4200));
/// assert_eq!(paid.name, "paid");
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct NamedSignal {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: Value,
}

impl NamedSignal {
    /// The signal with a name.
    pub fn new(name: impl Into<String>, value: Value) -> Self {
        Self { name: name.into(), value }
    }
}

/// Why a run did not receive a signal.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SignalError {
    /// The runtime has no store.
    #[error("a runtime without a store keeps no runs, and no signals for them")]
    NoStore,
    /// The id is not one: it is empty, too long, or has characters that cannot be seen.
    #[error(
        "{id:?} cannot be the id of a signal: it is a text of 1 to 200 visible characters, which its sender gives no other, and \
         not the id of an answer, as `3#1`"
    )]
    Id {
        /// The id.
        id: String,
    },
    /// The graph has no such signal.
    #[error("the graph `{graph}` has no signal `{name}`: {}", known(signals))]
    Unknown {
        /// The graph.
        graph: String,
        /// The signal's name.
        name: String,
        /// The signals that it has.
        signals: Vec<String>,
    },
    /// The run is nested, and the outermost run around it receives its signals and answers.
    #[error(
        "run `{run}` is inside run `{outer}`: send to the outermost run, with the path of the wait, as `graph inbox` shows it"
    )]
    Nested {
        /// The run.
        run: RunId,
        /// The run around it.
        outer: RunId,
    },
    /// The run has begun no nested run at the path of the signal.
    #[error(
        "run `{run}` has no run inside it at `{path}`: the path is that of a wait of the nested run, as `graph inbox` and `graph show` name it"
    )]
    NotInside {
        /// The run.
        run: RunId,
        /// The path.
        path: String,
    },
    /// The runtime is not granted to send it.
    #[error(
        "Permission denied: '{capability}' not covered by capabilities: grant it to the runtime that sends the signal"
    )]
    Denied {
        /// The capability that it needs.
        capability: Capability,
    },
    /// The value does not fit the graph.
    #[error("the signal `{name}` does not fit the graph `{graph}`: {mismatch}")]
    Value {
        /// The graph.
        graph: String,
        /// The signal's name.
        name: String,
        /// The first mismatch.
        mismatch: Mismatch,
    },
    /// The schema of the signal cannot be used, or this build cannot check it.
    #[error("cannot check the signal `{name}` of the graph `{graph}`: {reason}")]
    Schema {
        /// The graph.
        graph: String,
        /// The signal's name.
        name: String,
        /// Why.
        reason: String,
    },
    /// The run is another graph's, or the graph was changed since the run began.
    #[error("run `{run}` is a run of {found}, and not of {expected}")]
    AnotherGraph {
        /// The run.
        run: RunId,
        /// The graph that the caller passed.
        expected: String,
        /// The graph of the run.
        found: String,
    },
    /// The journal of the run is not one that this runtime's key signed.
    #[error("the journal of run `{run}` cannot be verified: {reason}")]
    Journal {
        /// The run.
        run: RunId,
        /// The mistake in it.
        reason: JournalError,
    },
    /// There is no such run, and it cannot be started.
    #[error(transparent)]
    Start(Box<StartError>),
    /// The run cannot be read.
    #[error("run `{run}` cannot be read: {reason}")]
    Unreadable {
        /// The run.
        run: RunId,
        /// Why.
        reason: String,
    },
    /// The store did not receive it.
    #[error("run `{run}` did not receive the signal")]
    Store {
        /// The run.
        run: RunId,
        /// Why.
        #[source]
        source: StoreError,
    },
}

impl SignalError {
    /// Returns the reason why a run receives nothing whose journal cannot be read.
    pub(crate) fn from_resuming(run: &RunId, error: ResumeError) -> Self {
        match error {
            ResumeError::AnotherGraph { run, expected, found, .. } => Self::AnotherGraph { run, expected, found },
            ResumeError::Journal { run, reason } => Self::Journal { run, reason },
            ResumeError::Store { run, source } => Self::Store { run, source },
            ResumeError::NoStore => Self::NoStore,
            other => Self::Unreadable { run: run.clone(), reason: other.to_string() },
        }
    }
}

/// Names the signals of a graph.
fn known(signals: &[String]) -> String {
    match signals {
        [] => "it receives none".to_owned(),
        signals => format!("it has `{}`", signals.join("`, `")),
    }
}

/// The statement that a receipt signs.
#[derive(Serialize)]
struct Statement<'a> {
    run: &'a RunId,
    /// The link of the run's first record.
    start: &'a Digest,
    order: u64,
    at: i64,
    name: &'a str,
    id: &'a str,
    value: Digest,
}

/// The most levels of a value, so that a node can put it into another one.
pub(crate) const MOST_LEVELS: usize = 50;

/// The line before the statement, so that no other signature of the key is one of a receipt.
const KIND: &str = "receipt of a signal, version 1\n";

/// Returns the digest that a receipt signs. `payload` is the value as JSON.
fn statement(run: &RunId, start: &Digest, place: SignalPlace, name: &str, id: &str, payload: &str) -> Digest {
    let SignalPlace { order, at } = place;
    let statement = Statement { run, start, order, at, name, id, value: Digest::of(payload) };
    let text = serde_json::to_string(&statement).expect("a statement has only texts and numbers");
    Digest::of_parts(&[KIND.as_bytes(), text.as_bytes()])
}

/// Signs the receipt of a signal. Returns the signature in base64url.
pub(crate) fn seal(key: &SecretKey, run: &RunId, start: &Digest, place: SignalPlace, signal: &Signal) -> String {
    let signature = key.sign(&statement(run, start, place, &signal.name, &signal.id, &signal.payload));
    Base64UrlUnpadded::encode_string(&signature)
}

/// Returns the payload of a signal as a store keeps it: its value as JSON.
pub(crate) fn payload(value: &Value) -> String {
    serde_json::to_string(value).expect("a value has only texts as keys and finite numbers")
}

/// Returns the name of the answers to a wait that too few have signed.
pub(crate) fn proposals(wait: &str) -> String {
    format!("{wait}?")
}

/// Returns the wait to which an answer is that too few have signed.
pub(crate) fn proposal_of(name: &str) -> Option<&str> {
    name.strip_suffix('?')
}

/// Returns the wait to which a signal is an answer, or an answer that too few have signed, by its name or its id. Other signals have
/// other names and ids.
pub(crate) fn answered(name: &str) -> Option<&str> {
    let wait = name.split_once('?').map_or(name, |(wait, _)| wait);
    let (path, own) = address::split(wait);
    let (step, ordinal) = own.split_once('#')?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    (is_number(step) && is_number(ordinal) && address::calls(path).is_some()).then_some(wait)
}

/// Returns how many signals of each name the inbox of a run has; an answer, also one that too few have signed, is no signal. `is_left`
/// says whether nothing has taken the one at a place.
///
/// # Errors
///
/// If the store fails. One that keeps no signals has none.
pub(crate) async fn unread(
    store: &dyn Store,
    run: &RunId,
    is_left: impl Fn(u64) -> bool,
) -> Result<BTreeMap<String, u64>, StoreError> {
    let mut unread: BTreeMap<String, u64> = BTreeMap::new();
    let inbox = match store.inbox(run).await {
        Err(StoreError::Unsupported(_)) => return Ok(unread),
        inbox => inbox?,
    };
    let is_signal = |one: &&ReceivedSignal| answered(&one.name).is_none() && is_left(one.place.order);
    for one in inbox.signals.iter().filter(is_signal) {
        *unread.entry(one.name.clone()).or_default() += 1;
    }
    Ok(unread)
}

/// Returns a received signal as a journal has it. An answer is still to be verified.
///
/// # Errors
///
/// If a runtime with this key did not receive it, which means that somebody else wrote to the store, or if it does not fit the
/// graph.
pub(crate) fn read(
    machine: &dyn Machine,
    address: &Address,
    key: &PublicKey,
    received: ReceivedSignal,
    is_answer: bool,
) -> Result<TakenSignal, String> {
    const FOREIGN: &str = "no runtime with this key received it";
    let ReceivedSignal { place: SignalPlace { order, at }, name, id, payload: text, receipt, .. } = received;
    let value: Value = serde_json::from_str(&text).map_err(|_| FOREIGN)?;
    let signal = TakenSignal { name, id, order, at, value, receipt };
    if payload(&signal.value) != text || !is_received(address, key, &signal) {
        return Err(FOREIGN.to_owned());
    }
    if is_answer {
        return Ok(signal);
    }
    match conforming(machine, signal.own_name(), signal.value.clone()) {
        Ok(value) if value == signal.value => Ok(signal),
        Ok(_) => Err(format!("`{}` has another value in this graph", signal.name)),
        Err(error) => Err(error.to_string()),
    }
}

/// Whether a key signed the receipt of a signal that a journal has, for the run with an address.
pub fn is_received(address: &Address, key: &PublicKey, signal: &TakenSignal) -> bool {
    let place = SignalPlace { order: signal.order, at: signal.at };
    let is_for_it = address::split(&signal.name).0 == address.path;
    let said = statement(&address.run, &address.start, place, &signal.name, &signal.id, &payload(&signal.value));
    let mut signature = [0; 64];
    let decoded = Base64UrlUnpadded::decode(&signal.receipt, &mut signature);
    is_for_it && decoded.is_ok_and(|bytes| bytes.len() == 64) && key.verifies(&said, &signature)
}

/// Returns the value of a signal as visits see it.
///
/// # Errors
///
/// If the graph has no such signal, or the value does not fit.
pub fn conforming(machine: &dyn Machine, name: &str, value: Value) -> Result<Value, SignalError> {
    let code = tables(machine.graph());
    let (graph, name) = (code.id.to_string(), name.to_owned());
    if !code.settings.signals.contains_key(&name) {
        return Err(SignalError::Unknown { graph, name, signals: code.settings.signals.keys().cloned().collect() });
    }
    if !value.view().is_within(MOST_LEVELS) {
        let expected = format!("a value of at most {MOST_LEVELS} levels");
        let mismatch = Mismatch::new(expected, value.view());
        return Err(SignalError::Value { graph, name, mismatch });
    }
    let value = match machine.signal(&name, value) {
        Ok(value) => value,
        Err(mismatch) => return Err(SignalError::Value { graph, name, mismatch }),
    };
    match rules(code, &name).map(|rules| schema::validate(rules, &value)) {
        None | Some(Ok(())) => Ok(value),
        Some(Err(Invalid::Schema(reason))) => Err(SignalError::Schema { graph, name, reason }),
        Some(Err(Invalid::Inputs(broken))) => match broken.into_iter().next() {
            Some(mismatch) => Err(SignalError::Value { graph, name, mismatch }),
            None => {
                Err(SignalError::Schema { graph, name, reason: "the schema refuses it without a reason".to_owned() })
            }
        },
    }
}

/// Returns the rules for the value of a signal beyond its type.
fn rules<'g>(code: &'g GraphTables, name: &str) -> Option<&'g Value> {
    code.settings.signals.get(name)?.schema.as_ref()
}
