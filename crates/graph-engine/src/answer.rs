//! Answers: what people say to the interrupts of a run, signed with their keys.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use graph_model::digest::Digest;
use graph_model::name::RunId;
use graph_model::secret::Mask;
use graph_model::timestamp;
use graph_model::value::{AsView, Value, canonical_json};
use graph_signing::{Fingerprint, PublicKey, SecretKey};
#[cfg(feature = "keyring")]
use graph_signing::{KeyRing, SignatureError};
use serde::{Deserialize, Serialize};

use crate::address::{self, Address};
use crate::dsse::{Envelope, EnvelopeError};
use crate::encryption_key::EncryptionKey;
use crate::error::StoredRunError;
use crate::graph::{CompiledAsk, GraphTables, tables};
use crate::kind::{ErrorKind, HasKind};
use crate::machine::Machine;
use crate::payload::EncryptedValue;
use crate::record::TakenSignal;
use crate::schema;
use crate::signal;
use crate::signed_answer::{decoded, encoded};
use crate::step::{CONTINUE, Escalation, OpenWait, Position, graph_inside};
use crate::store::{Inbox, ReceivedSignal, Wait};
use crate::versions::{older_that, version};

pub use crate::signed_answer::{Answerer, ShownAnswer, SignedAnswer};

/// The media type of the statement that people sign.
pub const ANSWER_TYPE: &str = "application/vnd.state-graphs.answer+json";

/// The maximum length of a statement, in bytes: those of all people who sign an answer fit into the inbox of a run.
const MOST_BYTES: usize = 1 << 14;

/// The maximum number of signatures of an answer.
const MOST_SIGNATURES: usize = 20;

/// The maximum number of answers to one question that one key signs before enough have signed the same.
pub(crate) const MOST_PROPOSALS: u32 = 4;

/// An answer with the name of the interrupt. The enum `Answer` of a compiled graph becomes one.
///
/// ```
/// # use graph_engine as graph_runtime;
/// use graph_runtime::{NamedAnswer, Value};
///
/// let refused = NamedAnswer::new("approve", Value::from("refuse"));
/// assert_eq!(refused.node, "approve");
/// ```
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub struct NamedAnswer {
    /// The node that asks.
    pub node: String,
    /// The answer.
    pub value: Value,
}

impl fmt::Debug for NamedAnswer {
    /// Shows the name of the node. The answer may have secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NamedAnswer").field("node", &self.node).finish_non_exhaustive()
    }
}

impl NamedAnswer {
    /// The answer to the interrupt of a node.
    pub fn new(node: impl Into<String>, value: Value) -> Self {
        Self { node: node.into(), value }
    }
}

/// The keys of the people who answer. With the feature `answers` of `graph-runtime`, a `KeyRing` has them.
pub trait AnswerKeys: Send + Sync {
    /// Returns the key with a fingerprint, and who owns it, if its holder may answer: it is trusted and not revoked, and has the
    /// role, if one is asked for.
    ///
    /// # Errors
    ///
    /// The reason why its holder may not answer, as a part of a sentence: `the key is not trusted`.
    fn holder(&self, key: &Fingerprint, role: Option<&str>) -> Result<KeyHolder, String>;
}

/// Returns the keys of the people who answer, as they are now.
pub(crate) type ReadAnswerKeys = Arc<dyn Fn() -> Box<dyn AnswerKeys> + Send + Sync>;

#[cfg(feature = "keyring")]
impl AnswerKeys for KeyRing {
    fn holder(&self, key: &Fingerprint, role: Option<&str>) -> Result<KeyHolder, String> {
        let file = self.signer(key).map_err(|error| match error {
            SignatureError::Untrusted(_) => "it is not trusted".to_owned(),
            SignatureError::Revoked { revoked_at, .. } => format!("it was revoked on {revoked_at}"),
            other => other.to_string(),
        })?;
        match role.filter(|role| !self.has_role(key, role)) {
            None => Ok(KeyHolder::new(file.key.clone(), &file.owner)),
            Some(role) if file.roles.iter().any(|own| own == role) => Err(format!(
                "the role `{role}` in its file does not count: another trusted key gives it, which role roots vouch for if there \
                 are some"
            )),
            Some(role) => Err(format!("its file does not give it the role `{role}`")),
        }
    }
}

/// A key, and who owns it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct KeyHolder {
    /// The key.
    pub key: PublicKey,
    /// Its owner. Several people who sign one answer are several owners.
    pub owner: String,
}

impl KeyHolder {
    /// A key of an owner.
    pub fn new(key: PublicKey, owner: impl Into<String>) -> Self {
        Self { key, owner: owner.into() }
    }
}

/// A question of a run to people, as its journal has it.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Question {
    /// The run.
    pub run: RunId,
    /// The id of the wait in the run: `3#1`.
    pub wait: String,
    /// The node that asks.
    pub node: String,
    /// The value that people are shown.
    pub payload: Value,
    /// The role that whoever answers has; `None` for any trusted key.
    pub role: Option<String>,
    /// How many people sign the answer, each with a key of their own. If that depends on the answer, it is the greatest number, and
    /// [`count_of`](Self::count_of) says how many sign one of them.
    pub count: u32,
    /// When it was asked, by the time of the store, in milliseconds since the Unix epoch.
    pub opened: i64,
    /// When it is too late to answer; `None` if it never is.
    pub due: Option<i64>,
    /// The link of the run's first record.
    start: Digest,
    graph: String,
    digest: Digest,
    /// The digest of the graph under which the run is read, or under which the nested run is that asks.
    under: Digest,
    /// Whether a hook asks to release the visit, so that the only answer is [`CONTINUE`].
    is_escalation: bool,
}

/// The statement that people sign.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct AnswerStatement {
    answer: Value,
    /// The digest of the graph's file.
    digest: Digest,
    graph: String,
    node: String,
    /// The digest of the payload as canonical JSON.
    payload: Digest,
    run: RunId,
    start: Digest,
    v: u32,
    wait: String,
}

/// An answer that too few people have signed, as the inbox of a run has it.
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub struct Proposal {
    /// The answer. Whether it fits the graph was checked when it was sent. If it has secrets, they are shown with the key that they
    /// are encrypted with only.
    pub answer: Value,
    /// The fingerprints of the keys of those who have signed it.
    pub keys: Vec<String>,
    /// The statement with the signatures of all those who have signed it; `None` if the answer has secrets and their key is not there.
    /// Another person signs it with [`Envelope::signed_by`], after [`Question::check`].
    pub envelope: Option<Envelope>,
}

impl fmt::Debug for Proposal {
    /// Shows who has signed. The answer may have secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proposal").field("keys", &self.keys).finish_non_exhaustive()
    }
}

/// The part of an answer with secrets that one person has signed that is not secret, beside the encrypted whole.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ShownProposal {
    /// The answer, with `[secret]` in the places of secrets.
    pub(crate) answer: Value,
    /// The fingerprint of the key.
    pub(crate) key: String,
    /// Equal for equal statements; only whoever has the key of the secrets can compute it.
    pub(crate) same: String,
}

impl Proposal {
    /// Returns the answers to a question that too few have signed, in the order in which they were first sent. `wait` is the id of the
    /// question, and `key` the one that the secrets of the run are encrypted with. The list shows what a store has;
    /// [`Runtime::answer`](crate::Runtime::answer) verifies every signature again.
    ///
    /// ```
    /// # use graph_engine as graph_runtime;
    /// use graph_runtime::answer::Proposal;
    /// use graph_runtime::{RunId, Store};
    ///
    /// # async fn example(store: impl Store) -> Result<(), Box<dyn std::error::Error>> {
    /// for proposal in Proposal::all(&store.inbox(&RunId::new("refund-17")?).await?, "3#1", None) {
    ///     println!("{} people have signed {}", proposal.keys.len(), proposal.answer);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn all(inbox: &Inbox, wait: &str, key: Option<&EncryptionKey>) -> Vec<Self> {
        let mut all: Vec<(String, Self)> = Vec::new();
        for one in inbox.signals.iter().filter(|one| address::proposal_of(&one.name) == Some(wait)) {
            let Some((same, proposal)) = Self::read(one, key) else { continue };
            match all.iter_mut().find(|(known, _)| *known == same) {
                Some((_, known)) => known.join(proposal),
                None => all.push((same, proposal)),
            }
        }
        all.into_iter().map(|(_, proposal)| proposal).collect()
    }

    /// Reads the answer that one person has signed, and a text that is equal for equal statements.
    fn read(one: &ReceivedSignal, key: Option<&EncryptionKey>) -> Option<(String, Self)> {
        let Some(encrypted) = EncryptedValue::read(&one.payload) else {
            return Self::of_envelope(one.payload.parse().ok()?);
        };
        let ShownProposal { answer, key: by, same } = serde_json::from_value(encrypted.shown.clone()).ok()?;
        let envelope = key.and_then(|key| envelope_in(one, key));
        let answer = envelope.as_ref().and_then(|one| AnswerStatement::of(one).ok()).map_or(answer, |said| said.answer);
        Some((same, Self { answer, keys: vec![by], envelope }))
    }

    fn of_envelope(envelope: Envelope) -> Option<(String, Self)> {
        let said = AnswerStatement::of(&envelope).ok()?;
        let keys = envelope.signatures().iter().filter_map(|signature| signature.keyid.clone()).collect();
        Some((said.canonical(), Self { answer: said.answer, keys, envelope: Some(envelope) }))
    }

    /// Adds the signatures of another person.
    fn join(&mut self, other: Self) {
        self.keys.extend(other.keys);
        self.envelope = self.envelope.take().zip(other.envelope).map(|(known, other)| {
            let signatures = known.signatures().iter().chain(other.signatures()).cloned().collect();
            known.with(signatures)
        });
    }
}

/// Returns the encrypted envelope that one person has signed.
pub(crate) fn envelope_in(one: &ReceivedSignal, key: &EncryptionKey) -> Option<Envelope> {
    let value = EncryptedValue::read(&one.payload)?.decrypt(key, (&one.name, &one.id)).ok()?;
    value.as_str()?.parse().ok()
}

/// The outcome of an answer that was not refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Answered {
    /// The question is answered. The run continues when a worker notices, or when it is resumed.
    Accepted,
    /// More people must sign the same answer. Their signatures are kept.
    Proposed {
        /// How many have signed it.
        have: u32,
        /// How many must.
        need: u32,
    },
    /// The same answer was accepted before.
    Already {
        /// Whether the run has continued with it.
        taken: bool,
    },
}

/// Why an answer was refused. Nothing was changed then.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AnswerError {
    /// The run cannot be read, is another graph's or inside another one, or the store did not keep the answer.
    #[error(transparent)]
    Stored(StoredRunError),
    /// The runtime knows no keys.
    #[error("the runtime knows no keys of people who answer: give it some with `Builder::answer_keys`")]
    NoKeys,
    /// The function that returns the keys panicked.
    #[error("the keys of people who answer cannot be read: the function that returns them panicked")]
    Keys,
    /// The envelope cannot be read.
    #[error("the answer cannot be read: {0}")]
    Envelope(#[from] EnvelopeError),
    /// The envelope is not one of an answer.
    #[error("the envelope has no answer: {0}")]
    Statement(String),
    /// Its statement is about something else.
    #[error("the answer is one to another question: its {what} is {found}, and not {expected}")]
    AnotherQuestion {
        /// The field of the statement.
        what: &'static str,
        /// Its value.
        found: String,
        /// The value that the question has.
        expected: String,
    },
    /// The run does not ask this.
    #[error("run `{run}` does not wait for an answer to `{wait}`{}", asked(open))]
    NotOpen {
        /// The run.
        run: RunId,
        /// The id of the wait.
        wait: String,
        /// The questions that are open.
        open: Vec<String>,
    },
    /// It came too late.
    #[error("the answer to `{wait}` came too late: the run waited until {}", timestamp::milliseconds(timestamp::from_unix_milliseconds(*due)))]
    Expired {
        /// The id of the wait.
        wait: String,
        /// When the run no longer waited, in milliseconds since the Unix epoch.
        due: i64,
    },
    /// Another answer was accepted before.
    #[error("`{wait}` was answered before, and otherwise")]
    Answered {
        /// The id of the wait.
        wait: String,
    },
    /// The answer does not fit the graph.
    #[error("the answer to `{node}` does not fit: {reason}")]
    Value {
        /// The node.
        node: String,
        /// The first mismatch.
        reason: String,
    },
    /// The key has signed too many other answers to the question.
    #[error(
        "the key {key} has signed {MOST_PROPOSALS} other answers to `{wait}`: its holder can sign one of those again"
    )]
    TooManyProposals {
        /// The fingerprint.
        key: String,
        /// The id of the wait.
        wait: String,
    },
    /// It has no signatures, too many, or some that do not count as those of several people.
    #[error("{0}")]
    Signatures(String),
    /// The holder of a key may not answer.
    #[error("the key {key} may not answer: {reason}")]
    Key {
        /// The fingerprint.
        key: String,
        /// Why.
        reason: String,
    },
    /// A signature is not one of the key that it names, or the statement was changed.
    #[error("the key {key} did not sign this answer")]
    Forged {
        /// The fingerprint.
        key: String,
    },
}

impl<E: Into<StoredRunError>> From<E> for AnswerError {
    fn from(error: E) -> Self {
        Self::Stored(error.into())
    }
}

impl HasKind for AnswerError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Stored(error) => error.kind(),
            Self::NoKeys | Self::Keys => ErrorKind::Internal,
            Self::Envelope(_) | Self::Statement(_) | Self::Value { .. } | Self::TooManyProposals { .. } => {
                ErrorKind::Invalid
            }
            Self::NotOpen { .. } => ErrorKind::NotFound,
            Self::Expired { .. } => ErrorKind::Late,
            Self::AnotherQuestion { .. } | Self::Answered { .. } => ErrorKind::Conflict,
            Self::Signatures(_) | Self::Key { .. } | Self::Forged { .. } => ErrorKind::Denied,
        }
    }
}

/// Names the questions that are open.
fn asked(open: &[String]) -> String {
    match open {
        [] => ": it asks nothing".to_owned(),
        open => format!(": it asks `{}`", open.join("`, `")),
    }
}

impl Question {
    /// Returns what an open interrupt of a run asks, by the id of its wait.
    pub fn open(
        code: &GraphTables,
        position: &Position,
        address: &Address,
        digest: Digest,
        wait: &str,
    ) -> Option<Self> {
        let open = position.waits.iter().find(|open| open.id() == wait)?;
        let (role, count) = match (&open.opened.pause, &open.opened.escalated) {
            (Some(_), None) => return None,
            (_, Some(Escalation { role, count })) => (role, count),
            (None, None) => {
                let CompiledAsk { role, count, .. } = position.wait_of(code, open.step)?.ask.as_ref()?;
                (role, count)
            }
        };
        let at = position.parked.iter().find(|at| at.number == open.step)?;
        Some(Self {
            run: address.run.clone(),
            wait: address.whole(wait),
            node: code.node(at.node).name.clone(),
            payload: open.opened.payload.clone().unwrap_or_default(),
            role: role.clone(),
            count: *count,
            opened: open.opened.at,
            due: open.opened.due,
            start: address.start,
            graph: code.id.to_string(),
            digest,
            under: code.digest,
            is_escalation: open.opened.escalated.is_some(),
        })
    }

    /// Returns a question of a nested run, which is a wait of a run that is not nested.
    fn of_inner(wait: &Wait, run: &RunId, start: Digest, under: Digest) -> Option<Self> {
        let (ask, graph) = (wait.ask.as_ref()?, wait.graph.as_ref()?);
        Some(Self {
            run: run.clone(),
            wait: wait.id.to_string(),
            node: wait.node.clone(),
            payload: ask.payload.parse().ok()?,
            role: ask.role.clone(),
            count: ask.count,
            opened: wait.opened,
            due: wait.due,
            start,
            graph: graph.id.clone(),
            digest: graph.digest,
            under,
            is_escalation: false,
        })
    }

    /// Returns the id of the graph that asks: that of the run, or of a run inside it.
    pub fn graph(&self) -> &str {
        &self.graph
    }

    /// Returns all questions of a run that are open, and those of the runs inside it, in the order of its visits. `digest` is that of the
    /// graph that the run began under.
    pub(crate) fn all(code: &GraphTables, position: &Position, address: &Address, digest: Digest) -> Vec<Self> {
        let own = |open: &OpenWait| Self::open(code, position, address, digest, &open.id());
        let inner = |wait: &Wait| Self::of_inner(wait, &address.run, address.start, code.digest);
        let inside = |open: &OpenWait| open.opened.inside.iter().filter_map(inner).collect::<Vec<_>>();
        position.waits.iter().flat_map(|open| own(open).into_iter().chain(inside(open))).collect()
    }

    /// Returns the id of the wait that the answer in an envelope names, if it is one to a question of this run.
    ///
    /// # Errors
    ///
    /// If the envelope has no answer, or one to a question of another run.
    pub fn wait_in(envelope: &Envelope, run: &RunId) -> Result<String, AnswerError> {
        let said = AnswerStatement::of(envelope)?;
        match said.run == *run {
            true => Ok(said.wait),
            false => Err(another("run", said.run.as_str(), run.as_str())),
        }
    }

    /// Returns the answer in an envelope as the run would see it, for somebody who is about to sign it. The signatures are not
    /// verified. `machine` is the graph of the run, also if a nested run asks.
    ///
    /// # Errors
    ///
    /// If it is one to another question, or does not fit.
    pub fn check(&self, machine: &dyn Machine, envelope: &Envelope) -> Result<Value, AnswerError> {
        self.in_asking(machine, |asking| self.conforming(asking, self.answer_in(envelope)?, true))
    }

    /// Calls a function with the graph that asks: that of the run, or of a run inside it.
    fn in_asking<T>(&self, machine: &dyn Machine, read: impl FnOnce(&dyn Machine) -> T) -> T {
        let machine = version(machine, older_that(machine, |graph| graph.digest() == self.under));
        let inner = (self.graph != tables(machine.graph()).id.as_str()).then(|| graph_inside(machine, &self.graph));
        read(inner.as_ref().and_then(Option::as_deref).unwrap_or(machine))
    }

    /// Returns where the secrets are in the answer; `None` if it has none. `machine` is the graph of the run, also if a nested run
    /// asks.
    pub fn secrets(&self, machine: &dyn Machine) -> Option<Mask> {
        if self.is_escalation {
            return None;
        }
        self.in_asking(machine, |asking| tables(asking.graph()).settings.secrets.answers.get(&self.node).cloned())
    }

    /// Returns the payload as canonical JSON: the text of which people sign the digest. A program that shows it to a person compares
    /// this digest with the field `payload` of the statement first.
    ///
    /// ```
    /// # use graph_engine as graph_runtime;
    /// use graph_runtime::Digest;
    /// # fn example(question: &graph_runtime::answer::Question) -> Result<(), Box<dyn std::error::Error>> {
    ///
    /// let signed = String::from_utf8(question.answer(&"approve".into()).payload()?)?;
    /// assert!(signed.contains(&Digest::of(question.payload_text()).to_string()));
    /// # Ok(())
    /// # }
    /// ```
    pub fn payload_text(&self) -> String {
        canonical_json(&self.payload)
    }

    /// Puts an answer into an envelope. Nobody has signed it yet. Whether the answer fits is seen when it is sent.
    pub fn answer(&self, value: &Value) -> Envelope {
        let statement = AnswerStatement { answer: value.clone(), ..self.statement() };
        Envelope::new(ANSWER_TYPE, statement.canonical().as_bytes())
    }

    /// Signs an answer. Another person signs the same envelope with [`Envelope::signed_by`].
    ///
    /// # Errors
    ///
    /// If the answer is to another node.
    pub fn sign(&self, answer: impl Into<NamedAnswer>, key: &SecretKey) -> Result<Envelope, AnswerError> {
        let NamedAnswer { node, value } = answer.into();
        if node != self.node {
            return Err(another("node", &node, &self.node));
        }
        Ok(self.answer(&value).signed_by(key)?)
    }

    /// Returns the statement without an answer.
    fn statement(&self) -> AnswerStatement {
        AnswerStatement {
            answer: Value::Null,
            digest: self.digest,
            graph: self.graph.clone(),
            node: self.node.clone(),
            payload: Digest::of(self.payload_text()),
            run: self.run.clone(),
            start: self.start,
            v: 1,
            wait: self.wait.clone(),
        }
    }

    /// Returns the answer in an envelope, if it is one to this question. The signatures are not verified.
    fn answer_in(&self, envelope: &Envelope) -> Result<Value, AnswerError> {
        let said = AnswerStatement::of(envelope)?;
        let own = self.statement();
        let fields = [
            ("version", said.v.to_string(), own.v.to_string()),
            ("run", said.run.to_string(), own.run.to_string()),
            ("wait", said.wait, own.wait),
            ("start of the run", said.start.to_string(), own.start.to_string()),
            ("node", said.node, own.node),
            ("graph", said.graph, own.graph),
            ("digest of the graph", said.digest.to_string(), own.digest.to_string()),
            ("digest of the payload", said.payload.to_string(), own.payload.to_string()),
        ];
        match fields.into_iter().find(|(_, found, expected)| found != expected) {
            Some((what, found, expected)) => Err(another(what, &found, &expected)),
            None => Ok(said.answer),
        }
    }

    /// Returns an answer as the run sees it.
    fn conforming(&self, machine: &dyn Machine, answer: Value, checks: bool) -> Result<Value, AnswerError> {
        if !self.is_escalation {
            return conforming(machine, &self.node, answer, checks);
        }
        match answer.as_str() == Some(CONTINUE) {
            true => Ok(answer),
            false => Err(AnswerError::Value {
                node: self.node.clone(),
                reason: format!("a hook suspended the run: sign `{CONTINUE}`, or cancel the run"),
            }),
        }
    }

    /// Verifies the signatures of an answer with the keys of people.
    ///
    /// # Errors
    ///
    /// If it is one to another question, does not fit, or a signature is not one of somebody who may answer. One bad signature
    /// refuses the answer.
    pub(crate) fn verify(
        &self,
        machine: &dyn Machine,
        envelope: &Envelope,
        keys: &dyn AnswerKeys,
    ) -> Result<SignedAnswer, AnswerError> {
        let answer = self.check(machine, envelope)?;
        let (mut by, mut signatures) = (Vec::new(), envelope.signatures().to_vec());
        if signatures.len() > MOST_SIGNATURES {
            let count = signatures.len();
            let reason = format!("an answer has at most {MOST_SIGNATURES} signatures, and this one has {count}");
            return Err(AnswerError::Signatures(reason));
        }
        signatures.sort_by(|one, other| one.keyid.cmp(&other.keyid));
        if signatures.windows(2).any(|two| two[0].keyid == two[1].keyid) {
            return Err(twice("one key"));
        }
        for signature in &signatures {
            let keyid = signature.keyid.clone().ok_or_else(|| AnswerError::Signatures(NO_KEY_ID.to_owned()))?;
            let refused = |reason| AnswerError::Key { key: keyid.clone(), reason };
            let fingerprint: Fingerprint =
                keyid.parse().map_err(|_| refused("its `keyid` is no fingerprint".to_owned()))?;
            let KeyHolder { key, owner } = keys.holder(&fingerprint, self.role.as_deref()).map_err(refused)?;
            if key.fingerprint() != fingerprint || !envelope.is_signed(signature, &key) {
                return Err(AnswerError::Forged { key: keyid });
            }
            by.push(Answerer { key: encoded(&key), owner, role: self.role.clone() });
        }
        let envelope = envelope.clone().with(signatures).normalised()?;
        let signed = SignedAnswer { answer, envelope, by };
        signed.distinct(self.count_of(machine, &signed.answer))?;
        Ok(signed)
    }

    /// Returns how many people sign an answer. `machine` is the graph of the run, also if a nested run asks.
    pub fn count_of(&self, machine: &dyn Machine, answer: &Value) -> u32 {
        if self.is_escalation {
            return self.count;
        }
        self.in_asking(machine, |asking| {
            let node = tables(asking.graph()).nodes.iter().find(|node| node.name == self.node);
            let ask = node.and_then(|node| node.wait()?.ask.as_ref());
            ask.map_or(self.count, |ask| ask.count_of(answer))
        })
    }

    /// Returns the part of an answer to this question that can be read without the key of its secrets. The signatures are not
    /// verified.
    ///
    /// # Errors
    ///
    /// If it is no such answer, as a part of a sentence.
    pub fn shown(&self, machine: &dyn Machine, signal: &TakenSignal) -> Result<ShownAnswer, String> {
        let secrets = self.secrets(machine).filter(|_| signal.encrypted.is_some());
        let secrets = secrets.ok_or("it is encrypted exactly if it has secrets")?;
        let shown = ShownAnswer::read(&signal.value).ok_or("it does not say who signed it")?;
        if signal.name != self.wait || signal.id != self.wait {
            return Err("it is one to another question".to_owned());
        }
        if secrets.hide(shown.answer.clone()) != shown.answer {
            return Err("it shows a secret".to_owned());
        }
        let count = self.count_of(machine, &shown.answer);
        if shown.by.len() < count as usize {
            return Err(format!("{} signed it, and {count} must", shown.by.len()));
        }
        if shown.by.iter().any(|by| decoded(&by.key).is_none() || by.role != self.role) {
            return Err("it names something else than a key with the role".to_owned());
        }
        Ok(shown)
    }

    /// Verifies that a signal is the answer to this question, with the keys that it names.
    ///
    /// # Errors
    ///
    /// If it is not, as a part of a sentence.
    pub fn proves(&self, machine: &dyn Machine, signal: &TakenSignal) -> Result<SignedAnswer, String> {
        let secrets = self.secrets(machine);
        let signed = SignedAnswer::of_signal(signal, secrets.as_ref())?;
        if signal.name != self.wait || signal.id != self.wait {
            return Err("it is one to another question".to_owned());
        }
        let said = self.answer_in(&signed.envelope).map_err(|error| error.to_string())?;
        // A program without the feature cannot check values against a schema.
        let answer = self.conforming(machine, said, schema::IS_THERE).map_err(|error| error.to_string())?;
        if answer != signed.answer {
            return Err("those who signed it said something else".to_owned());
        }
        let signatures = signed.envelope.signatures();
        let count = self.count_of(machine, &answer);
        if signatures.len() != signed.by.len() || signed.by.len() < count as usize {
            return Err(format!("{} signed it, and {count} must", signed.by.len()));
        }
        for (signature, by) in signatures.iter().zip(&signed.by) {
            let key = decoded(&by.key).ok_or("it names something else than a key")?;
            let is_named = signature.keyid.as_deref() == Some(key.fingerprint().as_str());
            if !is_named || by.role != self.role || !signed.envelope.is_signed(signature, &key) {
                return Err(format!("the key {} did not sign it so", key.fingerprint()));
            }
        }
        signed.distinct(count).map_err(|error| error.to_string())?;
        Ok(signed)
    }
}

/// Why a signature without a key does not count.
const NO_KEY_ID: &str = "a signature of the answer names no key: its `keyid` is the fingerprint of a trusted key";

/// Why a key without an owner does not count where several people sign.
const NO_OWNER: &str = "several people sign the answer, and nobody knows who owns the key: its file names no owner";

/// Makes the error of an answer that one person signed twice.
fn twice(who: &str) -> AnswerError {
    let reason = format!("two signatures of the answer are of {who}: each is of another key, and of another owner");
    AnswerError::Signatures(reason)
}

fn another(what: &'static str, found: &str, expected: &str) -> AnswerError {
    AnswerError::AnotherQuestion { what, found: format!("`{found}`"), expected: format!("`{expected}`") }
}

impl AnswerStatement {
    /// Reads the statement in an envelope.
    fn of(envelope: &Envelope) -> Result<Self, AnswerError> {
        let misfit = |what: &str| AnswerError::Statement(what.to_owned());
        if envelope.payload_type() != ANSWER_TYPE {
            return Err(AnswerError::Statement(format!("its type is `{}`", envelope.payload_type())));
        }
        let bytes = envelope.payload()?;
        if bytes.len() > MOST_BYTES {
            return Err(AnswerError::Statement(format!("it is longer than {MOST_BYTES} bytes")));
        }
        let text = String::from_utf8(bytes).map_err(|_| misfit("it is not UTF-8"))?;
        let said: Self = serde_json::from_str(&text).map_err(|error| AnswerError::Statement(error.to_string()))?;
        // One statement has one form, so that two people sign the same bytes.
        if said.canonical() != text {
            return Err(misfit(
                "it is not canonical: sort the fields, and write neither spaces nor letters beyond ASCII",
            ));
        }
        Ok(said)
    }

    fn canonical(&self) -> String {
        let value = serde_json::to_value(self).expect("a statement has only texts as keys");
        canonical_json(&value)
    }
}

impl SignedAnswer {
    /// Returns the answer in a signal that is open. `secrets` says where the answer has some.
    ///
    /// # Errors
    ///
    /// If there is no answer, or it is encrypted in another way than its secrets need.
    fn of_signal(signal: &TakenSignal, secrets: Option<&Mask>) -> Result<Self, String> {
        let signed = Self::read(&signal.value).ok_or("it has no signed answer")?;
        match (secrets, &signal.encrypted) {
            (None, None) => Ok(signed),
            (Some(secrets), Some(EncryptedValue { shown, .. })) if signed.shown(secrets).to_value() == *shown => {
                Ok(signed)
            }
            (Some(_), Some(_)) => Err("it shows something else than those who signed it said".to_owned()),
            _ => Err("it is encrypted exactly if it has secrets".to_owned()),
        }
    }

    /// Checks that each of those who signed it has a key, and is an owner, of their own. If several must sign, all of them are
    /// known.
    fn distinct(&self, count: u32) -> Result<(), AnswerError> {
        if self.by.is_empty() {
            return Err(AnswerError::Signatures("nobody signed the answer".to_owned()));
        }
        let (mut keys, mut owners) = (BTreeSet::new(), BTreeSet::new());
        for by in &self.by {
            if count > 1 && by.known_owner().is_none() {
                let key = by.fingerprint().map_or_else(|| by.key.clone(), |key| key.to_string());
                return Err(AnswerError::Key { key, reason: NO_OWNER.to_owned() });
            }
            if !keys.insert(by.key.as_str()) {
                return Err(twice("one key"));
            }
            if !owners.insert(by.known_owner().map(str::to_lowercase)) {
                let owner = by.known_owner().map(|owner| format!("the owner `{owner}`"));
                return Err(twice(owner.as_deref().unwrap_or("owners who are not known")));
            }
        }
        Ok(())
    }
}

/// Whether an answer to a question of a graph before a change answers that of a node: as many people with the role signed it, and
/// it fits.
pub fn would_accept(machine: &dyn Machine, node: &str, ask: &CompiledAsk, signed: &SignedAnswer) -> bool {
    let has_role = |by: &&Answerer| ask.role.is_none() || by.role == ask.role;
    let count = ask.count_of(&signed.answer);
    signed.by.iter().filter(has_role).count() >= count as usize
        && signed.distinct(count).is_ok()
        && conforming(machine, node, signed.answer.clone(), schema::IS_THERE).is_ok()
}

/// Returns an answer as the visit sees it.
fn conforming(machine: &dyn Machine, node: &str, answer: Value, checks: bool) -> Result<Value, AnswerError> {
    let misfit = |reason: String| AnswerError::Value { node: node.to_owned(), reason };
    if !answer.view().is_within(signal::MOST_LEVELS) {
        return Err(misfit(format!("a value has at most {} levels", signal::MOST_LEVELS)));
    }
    let answer = machine.answer(node, answer).map_err(|mismatch| misfit(mismatch.to_string()))?;
    let code = tables(machine.graph());
    let asks = code.nodes.iter().find(|one| one.name == node).and_then(|one| one.wait()?.ask.as_ref());
    match asks.and_then(|ask| ask.schema.as_ref()).filter(|_| checks).map(|rules| schema::validate(rules, &answer)) {
        Some(Err(invalid)) => Err(misfit(invalid.to_string())),
        _ => Ok(answer),
    }
}
