//! Waits of a run as its position and its records have them: when they were opened, and when they were over.

use std::fmt;

use graph_model::value::{Map, Value};
use serde::{Deserialize, Serialize};

use crate::address::{self, answered};
use crate::cipher::NotOpened;
use crate::encryption_key::EncryptionKey;
use crate::failure::is_zero;
use crate::graph::CompiledWait;
use crate::payload::{EncryptedValue, payload};
use crate::signed_answer::{Answerer, ShownAnswer, SignedAnswer};
use crate::step::paused::{Escalation, Pause, Suspension};
use crate::wait::{Wait, wait_id};

/// The opening of a wait. Its times are those of the store, in milliseconds since the Unix epoch.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Opened {
    /// When it was opened.
    pub at: i64,
    /// When it is over, if nothing else ends it before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due: Option<i64>,
    /// The value that people are shown, if it asks them, or the reason of a hook that suspends the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<Value>,
    /// How many other waits of the visit are over: it was paused, or people answered its tool.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub before: u64,
    /// Why the visit is left before it is made, if it neither waits nor asks by itself. It is made when it is released.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause: Option<Pause>,
    /// The people who release it, if a hook left it to them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub escalated: Option<Escalation>,
    /// The number of the call of a graph with which the visit continues then, if it is not the first.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub call: u64,
    /// The waits of the nested runs that the visit waits for; empty if the node itself waits. Their own journals prove them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inside: Vec<Wait>,
}

/// The values that a node computes before it waits.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Opening {
    /// The time until which it waits, if it computes one, in milliseconds since the Unix epoch.
    pub until: Option<i64>,
    /// The value that people are shown, if it asks them, or the reason of a hook that suspends the run.
    pub payload: Option<Value>,
    /// Why the visit is left before it is made, if it is.
    pub pause: Option<Pause>,
    /// The people who release it, if a hook left it to them.
    pub escalated: Option<Escalation>,
    /// The number of the call of a graph with which the visit continues then, if it is not the first.
    pub call: u64,
}

/// A visit that waits. Its activation is parked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct OpenWait {
    /// The number of the visit.
    pub step: u64,
    /// When it was opened, and when it is due.
    #[serde(flatten)]
    pub opened: Opened,
}

impl OpenWait {
    /// Returns the id of the wait. The answer to a question has it as its name.
    pub fn id(&self) -> String {
        wait_id(self.step, self.opened.before)
    }
}

/// A wait that is over. Its activation is visited in the next step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TakenWait {
    /// The number of the visit.
    pub step: u64,
    /// The time of the store at which the run continued, in milliseconds since the Unix epoch. In a nested run that shares signals, the
    /// time at which the run around it saw that it could.
    pub at: i64,
    /// The signal that ended it; `None` if its time had come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<TakenSignal>,
    /// The number of the call whose run receives the signal, if the visit shares it with the graph that it runs.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub call: u64,
}

impl TakenWait {
    /// The visit continues at a time.
    pub fn new(step: u64, at: i64) -> Self {
        Self { step, at, signal: None, call: 0 }
    }

    /// The visit continues with a signal.
    #[must_use]
    pub fn with(self, signal: TakenSignal) -> Self {
        Self { signal: Some(signal), ..self }
    }
}

/// The waits of a visit that is not made yet.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Waited {
    /// How many waits of it are over.
    pub waits: u64,
    /// Whether it was paused by whoever began the run, and was released.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub released: bool,
    /// The answers that people gave its tool, in the order of the questions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub answers: Vec<TakenSignal>,
}

/// A signal that ended a wait, as the store received it. An answer to an interrupt is a signal with the id of the wait as its name
/// and its id, and a [`SignedAnswer`](crate::answer::SignedAnswer) as its value.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(from = "SignalForm", into = "SignalForm")]
#[non_exhaustive]
pub struct TakenSignal {
    /// Its name in the inbox: see [`Address`](crate::address::Address).
    pub name: String,
    /// The id that its sender gave it, once in the run.
    pub id: String,
    /// Its place among the signals of the run, from 1.
    pub order: u64,
    /// The time of the store at which it was received, in milliseconds since the Unix epoch.
    pub at: i64,
    /// Its value; without the key of its secrets, the part that is not secret.
    pub value: Value,
    /// Its value as it was received, if it has secrets.
    pub encrypted: Option<EncryptedValue>,
    /// The signature of the runtime that received it, in base64url: see `docs/journal.md`.
    pub receipt: String,
}

impl fmt::Debug for TakenSignal {
    /// Shows it as a journal has it, without its secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&SignalForm::from(self.clone()), f)
    }
}

/// The JSON form of a signal that ended a wait.
#[derive(Debug, Serialize, Deserialize)]
struct SignalForm {
    name: String,
    id: String,
    order: u64,
    at: i64,
    value: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sealed: Option<String>,
    receipt: String,
}

impl From<SignalForm> for TakenSignal {
    fn from(form: SignalForm) -> Self {
        let SignalForm { name, id, order, at, value, sealed, receipt } = form;
        let encrypted = sealed.map(|text| EncryptedValue::recorded(value.clone(), text));
        Self { name, id, order, at, value, encrypted, receipt }
    }
}

impl From<TakenSignal> for SignalForm {
    fn from(signal: TakenSignal) -> Self {
        let TakenSignal { name, id, order, at, value, encrypted, receipt } = signal;
        let (value, sealed) = match encrypted {
            Some(EncryptedValue { shown, text, .. }) => (shown, Some(text)),
            None => (value, None),
        };
        Self { name, id, order, at, value, sealed, receipt }
    }
}

impl TakenSignal {
    /// Returns its value as the store received it.
    pub(crate) fn payload(&self) -> String {
        self.encrypted.as_ref().map_or_else(|| payload(&self.value), EncryptedValue::payload)
    }

    /// Whether its value has secrets, and is not known.
    pub fn is_closed(&self) -> bool {
        self.encrypted.as_ref().is_some_and(|encrypted| !encrypted.is_open)
    }

    /// Decrypts its value, if it is encrypted.
    pub(crate) fn decrypt(&mut self, key: &EncryptionKey) -> Result<(), NotOpened> {
        if let Some(encrypted) = self.encrypted.as_mut().filter(|encrypted| !encrypted.is_open) {
            self.value = encrypted.decrypt(key, (&self.name, &self.id))?;
            encrypted.is_open = true;
        }
        Ok(())
    }

    /// Returns those who signed it, if it is an answer.
    pub fn answerers(&self) -> Option<Vec<Answerer>> {
        answered(self.own_name())?;
        match &self.encrypted {
            Some(encrypted) => ShownAnswer::read(&encrypted.shown).map(|shown| shown.by),
            None => SignedAnswer::read(&self.value).map(|signed| signed.by),
        }
    }

    /// Returns its name as the run knows it that took it: without the path to a nested run.
    pub fn own_name(&self) -> &str {
        address::split(&self.name).1
    }

    /// Whether it is for one wait: an answer, or the release of a visit.
    pub fn is_of_wait(&self) -> bool {
        answered(self.own_name()).is_some()
    }

    /// Whether it is what releases a visit that is paused: it says nothing but the name of the wait.
    pub fn is_release(&self) -> bool {
        self.id == self.name && self.value.is_null()
    }

    /// Returns the `result` of the visit that received it: the answer of an interrupt; else its name, and its value in the field
    /// of that name.
    pub fn result(&self, wait: &CompiledWait) -> Value {
        if wait.ask.is_some() {
            return self.value.get(ANSWER).cloned().unwrap_or_default();
        }
        let own = self.own_name();
        let name = ("signal".to_owned(), Value::from(own));
        Value::Object(Map::from_iter([name, (own.to_owned(), self.value.clone())]))
    }
}

/// The field of an answer in what ended an interrupt.
pub const ANSWER: &str = "answer";

impl Opened {
    /// Returns the opening of a wait at a time of the store.
    pub fn new(wait: &CompiledWait, opening: Opening, at: i64) -> Self {
        let Opening { until, payload, .. } = opening;
        let timeout = wait.timeout_ms.map(|timeout| at.saturating_add(i64::try_from(timeout).unwrap_or(i64::MAX)));
        Self { due: until.or(timeout), payload, ..Self::of_inside(Vec::new(), at) }
    }

    /// The opening after so many other waits of the same visit.
    #[must_use]
    pub fn behind(self, before: u64) -> Self {
        Self { before, ..self }
    }

    /// The opening, at a time of the store, of a visit that is paused.
    pub fn of_pause(opening: Opening, at: i64) -> Self {
        let Opening { payload, pause, escalated, call, .. } = opening;
        Self { payload, pause, escalated, call, ..Self::of_inside(Vec::new(), at) }
    }

    /// The opening, at a time of the store, of a visit that waits for nested runs.
    pub fn of_inside(inside: Vec<Wait>, at: i64) -> Self {
        Self { at, due: None, payload: None, before: 0, pause: None, escalated: None, call: 0, inside }
    }

    /// Returns the earliest time at which the wait, or one of the nested runs, is over.
    pub fn next_due(&self) -> Option<i64> {
        self.due.or_else(|| self.inside.iter().filter_map(|wait| wait.due).min())
    }

    /// Returns how a hook suspended the visit, if it did.
    pub fn suspension(&self) -> Option<Suspension> {
        let Self { payload, pause, escalated, call, .. } = self;
        let by_hook = || Suspension { reason: payload.clone(), escalated: escalated.clone(), call: *call };
        (*pause == Some(Pause::Hook)).then(by_hook)
    }

    /// Whether calls of the visit may have been made before it was left: nested runs wait, or it is paused.
    pub fn may_have_called(&self) -> bool {
        self.is_inside() || self.pause.is_some()
    }

    /// Whether the deadline of the nested run that waits, or of one around it, is over at a time.
    pub(super) fn is_overdue(&self, inner: &Wait, at: i64) -> bool {
        let is_around = |one: &&Wait| inner.id.as_str().starts_with(address::split(one.id.as_str()).0);
        let mut deadlines = self.inside.iter().filter(|one| one.is_deadline()).filter(is_around);
        deadlines.any(|deadline| deadline.due.is_some_and(|due| due <= at))
    }

    /// Whether nested runs wait, and not the node itself.
    pub fn is_inside(&self) -> bool {
        !self.inside.is_empty()
    }
}
