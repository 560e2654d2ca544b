//! Signals: the messages that others send to a run.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use base64ct::{Base64UrlUnpadded, Encoding};
use graph_model::capability::Capability;
use graph_model::digest::Digest;
use graph_model::name::RunId;
use graph_model::secret::Mask;
use graph_model::value::{AsView, Mismatch, Value};
use graph_signing::{PublicKey, SecretKey};
use serde::Serialize;

use crate::address::{self, Address, answered};
use crate::encryption_key::EncryptionKey;
use crate::error::{StartError, StoredRunError};
use crate::graph::{GraphTables, tables};
use crate::kind::{ErrorKind, HasKind};
use crate::machine::Machine;
use crate::payload::EncryptedValue;
use crate::record::TakenSignal;
use crate::run_secrets::NotOpened;
use crate::schema::{self, Invalid};
use crate::step::find_inside;
use crate::store::{ReceivedSignal, SealSignal, Signal, SignalPlace, Store, StoreError};

/// A signal by its name, with its value. The enum `Signal` of a compiled graph becomes one.
///
/// ```
/// # use graph_engine as graph_runtime;
/// use graph_runtime::{NamedSignal, Value};
///
/// let paid = NamedSignal::new("paid", Value::from(4200));
/// assert_eq!(paid.name, "paid");
/// ```
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub struct NamedSignal {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: Value,
}

impl fmt::Debug for NamedSignal {
    /// Shows its name. The value may have secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NamedSignal").field("name", &self.name).finish_non_exhaustive()
    }
}

impl NamedSignal {
    /// The signal with a name.
    pub fn new(name: impl Into<String>, value: Value) -> Self {
        Self { name: name.into(), value }
    }

    /// Whether the values of such a signal have secrets, in a graph or, if its name has a path, in one of those inside it.
    pub fn may_have_secrets(&self, machine: &dyn Machine) -> bool {
        let (path, own) = address::split(&self.name);
        let has_secrets = |code: &GraphTables| code.settings.secrets.signals.contains_key(own);
        match path {
            "" => has_secrets(tables(machine.graph())),
            _ => find_inside(machine, has_secrets).is_some(),
        }
    }
}

/// Why a run did not receive a signal.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SignalError {
    /// The run cannot be read, is another graph's or inside another one, or the store did not receive the signal.
    #[error(transparent)]
    Stored(StoredRunError),
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
    /// There is no such run, and it cannot be started.
    #[error(transparent)]
    Start(Box<StartError>),
}

impl<E: Into<StoredRunError>> From<E> for SignalError {
    fn from(error: E) -> Self {
        Self::Stored(error.into())
    }
}

impl HasKind for SignalError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Stored(error) => error.kind(),
            Self::Unknown { .. } | Self::Id { .. } | Self::Value { .. } => ErrorKind::Invalid,
            Self::NotInside { .. } => ErrorKind::NotFound,
            Self::Denied { .. } => ErrorKind::Denied,
            Self::Schema { .. } => ErrorKind::Internal,
            Self::Start(error) => error.kind(),
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

/// Returns the function that signs the receipt of a signal, in base64url. `start` is the link of the run's first record.
pub(crate) fn sealing(key: &SecretKey, run: &RunId, start: Digest, signal: &Signal) -> SealSignal {
    let (key, run, signal) = (key.clone(), run.clone(), signal.clone());
    Arc::new(move |place| {
        let signature = key.sign(&statement(&run, &start, place, &signal.name, &signal.id, &signal.payload));
        Ok(Base64UrlUnpadded::encode_string(&signature))
    })
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
    keys: &JournalKeys<'_>,
    received: ReceivedSignal,
    of: Receives<'_>,
) -> Result<TakenSignal, String> {
    const FOREIGN: &str = "no runtime with this key received it";
    let own = address::split(&received.name).1;
    let mask = match of {
        Receives::Signal => tables(machine.graph()).settings.secrets.signals.get(own),
        Receives::Answer { secrets } => secrets,
        Receives::Release => None,
    };
    let ReceivedSignal { place: SignalPlace { order, at }, name, id, payload: text, receipt, .. } = received;
    let (value, encrypted) = match mask {
        Some(_) => {
            let encrypted = EncryptedValue::read(&text).ok_or("it has secrets, and is not encrypted")?;
            (encrypted.shown.clone(), Some(encrypted))
        }
        None => (serde_json::from_str(&text).map_err(|_| FOREIGN)?, None),
    };
    let mut signal = TakenSignal { name, id, order, at, value, encrypted, receipt };
    if signal.payload() != text || !is_received(address, &keys.public, &signal) {
        return Err(FOREIGN.to_owned());
    }
    if signal.is_closed() {
        let opened = keys.encryption.ok_or(NotOpened).and_then(|key| signal.decrypt(key));
        opened.map_err(|_| "it was encrypted with another key than this runtime's".to_owned())?;
    }
    if !matches!(of, Receives::Signal) {
        return Ok(signal);
    }
    fits(machine, &signal).map(|()| signal)
}

/// Fails unless the value of a signal fits the graph, and the part of it that is shown is right.
///
/// # Errors
///
/// If it does not, without its secrets.
pub fn fits(machine: &dyn Machine, signal: &TakenSignal) -> Result<(), String> {
    let name = &signal.name;
    let mask = tables(machine.graph()).settings.secrets.signals.get(signal.own_name());
    if mask.is_some() != signal.encrypted.is_some() {
        return Err(format!("`{name}` is encrypted exactly if it has secrets"));
    }
    if let (Some(mask), Some(encrypted)) = (mask, &signal.encrypted) {
        if mask.hide(encrypted.shown.clone()) != encrypted.shown {
            return Err(format!("`{name}` shows a secret"));
        }
        if signal.is_closed() {
            return Ok(());
        }
        if mask.hide(signal.value.clone()) != encrypted.shown {
            return Err(format!("`{name}` shows something else than it has"));
        }
    }
    match conforming(machine, signal.own_name(), signal.value.clone()) {
        Ok(value) if value == signal.value => Ok(()),
        Ok(_) => Err(format!("`{name}` has another value in this graph")),
        // A program without the feature cannot check values against a schema.
        Err(SignalError::Schema { .. }) if !schema::IS_THERE => Ok(()),
        Err(_) if mask.is_some() => Err(format!("`{name}` does not fit the graph")),
        Err(error) => Err(error.to_string()),
    }
}

/// The keys of a runtime that reads what was received.
pub(crate) struct JournalKeys<'k> {
    /// The one that receipts are signed with.
    pub(crate) public: PublicKey,
    /// The one that secrets are encrypted with.
    pub(crate) encryption: Option<&'k EncryptionKey>,
}

/// The kind of a signal, by its name.
#[derive(Clone, Copy)]
pub(crate) enum Receives<'m> {
    /// A signal of the graph.
    Signal,
    /// An answer, with these secrets in its envelope.
    Answer {
        /// Where the secrets are in the answer.
        secrets: Option<&'m Mask>,
    },
    /// The release of a visit that is paused.
    Release,
}

/// Whether a key signed the receipt of a signal that a journal has, for the run with an address or one around it.
pub fn is_received(address: &Address, key: &PublicKey, signal: &TakenSignal) -> bool {
    let place = SignalPlace { order: signal.order, at: signal.at };
    // A run around it may share a signal.
    let is_for_it = address.path.starts_with(address::split(&signal.name).0);
    let said = statement(&address.run, &address.start, place, &signal.name, &signal.id, &signal.payload());
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
        // Another version may have it.
        let graph = format!("{graph} {}", code.version);
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
        Some(Err(Invalid::Inputs(mismatch, _))) => Err(SignalError::Value { graph, name, mismatch }),
    }
}

/// Returns the rules for the value of a signal beyond its type.
fn rules<'g>(code: &'g GraphTables, name: &str) -> Option<&'g Value> {
    code.settings.signals.get(name)?.schema.as_ref()
}
