//! The signals that the waits of a run took.

use std::collections::{BTreeMap, BTreeSet};

use graph_engine::address::Address;
use graph_engine::answer::{Answerer, Question, ShownAnswer, SignedAnswer};
use graph_engine::graph::tables;
use graph_engine::machine::Machine;
use graph_engine::record::TakenSignal;
use graph_engine::signal::{fits, is_received};
use graph_engine::step::Position;
use graph_model::digest::Digest;
use graph_model::name::RunId;
use graph_model::timestamp;
use graph_model::value::{Value, canonical_json};
use graph_signing::{Fingerprint, PublicKey};

/// An answer of people that a run took.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Approval {
    /// The id of the wait that the answer ended.
    pub wait: String,
    /// The node that asked.
    pub node: String,
    /// The time of the store at which the answer was complete: RFC 3339 in UTC with milliseconds.
    pub at: String,
    /// The SHA-256 of the statement that they signed; `None` if the answer has secrets, which others could guess from it.
    pub statement: Option<Digest>,
    /// The SHA-256 of the envelope with their signatures as JSON, if the answer has secrets.
    pub envelope: Option<Digest>,
    /// Whether the signatures were verified. Those of an answer with secrets are only with the key that these are encrypted with.
    pub is_verified: bool,
    /// The SHA-256 of the payload that they were shown, as canonical JSON.
    pub payload: Digest,
    /// Those who signed it.
    pub by: Vec<Approver>,
}

/// One of those who signed an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Approver {
    /// The fingerprint of the key, which the audit verified.
    pub key: Fingerprint,
    /// The owner of the key, as the runtime that received the answer knew it.
    pub owner: String,
    /// The role that the runtime found the key to have.
    pub role: Option<String>,
}

/// A signal that a run took.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SignalSummary {
    /// The signal.
    pub name: String,
    /// The id that its sender gave it.
    pub id: String,
    /// The time of the store at which it was received: RFC 3339 in UTC with milliseconds.
    pub at: String,
    /// The SHA-256 of its value as canonical JSON, with `[secret]` for secrets.
    pub value: Digest,
}

/// The receipts of the signals that a run took, each once.
pub(super) struct Receipts {
    run: RunId,
    /// Where the run received them; `None` if it is nested and cannot wait.
    address: Option<Address>,
    /// The digest of the graph that the run began under.
    digest: Digest,
    key: PublicKey,
    /// The times of receipt, by the order of the signals.
    times: BTreeMap<u64, i64>,
    ids: BTreeSet<String>,
    /// The signals that a run around this one received, which shares them.
    pub(super) handed: Vec<TakenSignal>,
    /// The answers among them.
    pub(super) approvals: Vec<Approval>,
    /// The others.
    pub(super) signals: Vec<SignalSummary>,
}

impl Receipts {
    pub(super) fn new(run: &RunId, address: Option<Address>, digest: Digest, key: &PublicKey) -> Self {
        Self {
            run: run.clone(),
            address,
            digest,
            key: key.clone(),
            times: BTreeMap::new(),
            ids: BTreeSet::new(),
            handed: Vec::new(),
            approvals: Vec::new(),
            signals: Vec::new(),
        }
    }

    pub(super) fn run(&self) -> &RunId {
        &self.run
    }

    pub(super) fn address(&self) -> Option<&Address> {
        self.address.as_ref()
    }

    /// Takes a signal. Fails unless a runtime with the journal's key received it for this run, it fits the graph, it is an answer
    /// that people signed if the wait asks for one, and it was not taken before.
    pub(super) fn take(
        &mut self,
        machine: &dyn Machine,
        position: &Position,
        signal: &TakenSignal,
    ) -> Result<(), String> {
        let TakenSignal { name, order, at, .. } = signal;
        let received = self.address.as_ref().filter(|address| is_received(address, &self.key, signal));
        let Some(address) = received else {
            return Err(format!("no runtime with the key of the journal received the signal `{name}` so"));
        };
        if address.own(name) == Some(signal.own_name()) {
            let address = address.clone();
            self.take_own(machine, position, signal, &address)?;
        } else if signal.is_of_wait() {
            // Answers and releases are for the run itself.
            return Err(format!("`{name}` is for another run"));
        } else {
            fits(machine, signal)?;
            self.handed.push(signal.clone());
        }
        if !self.ids.insert(signal.id.clone()) || self.times.insert(*order, *at).is_some() {
            return Err(format!("the signal `{name}` was taken before"));
        }
        let before = self.times.range(..order).next_back().is_none_or(|(_, before)| before <= at);
        let behind = self.times.range(order + 1..).next().is_none_or(|(_, behind)| at <= behind);
        if before && behind { Ok(()) } else { Err(format!("the signal `{name}` was received at another time")) }
    }

    /// Takes a signal that was sent to the run itself.
    fn take_own(
        &mut self,
        machine: &dyn Machine,
        position: &Position,
        signal: &TakenSignal,
        address: &Address,
    ) -> Result<(), String> {
        let TakenSignal { name, at, .. } = signal;
        let own = signal.own_name();
        match Question::open(tables(machine.graph()), position, address, self.digest, own) {
            Some(question) if signal.is_closed() => {
                let shown = question.shown(machine, signal);
                let shown = shown.map_err(|reason| format!("the answer to `{name}` is not one: {reason}"))?;
                self.approvals.push(Approval::of_encrypted(&question, &shown, *at));
            }
            Some(question) => {
                let proven = question.proves(machine, signal);
                let signed = proven.map_err(|reason| format!("the answer to `{name}` is not proven: {reason}"))?;
                self.approvals.push(Approval::of(&question, &signed, signal.encrypted.is_some(), *at));
            }
            // The release of a visit has no value.
            None if position.waits.iter().any(|wait| wait.opened.pause.is_some() && wait.id() == own) => {
                if !signal.is_release() {
                    return Err(format!("the release of `{name}` says something"));
                }
            }
            None => {
                fits(machine, signal)?;
                let shown = signal.encrypted.as_ref().map_or(&signal.value, |encrypted| &encrypted.shown);
                let (name, id, value) = (name.clone(), signal.id.clone(), digest_of(shown));
                self.signals.push(SignalSummary { name, id, at: shown_time(*at), value });
            }
        }
        Ok(())
    }
}

impl Approval {
    fn of(question: &Question, signed: &SignedAnswer, has_secrets: bool, at: i64) -> Self {
        let statement = || Digest::of(signed.envelope.payload().unwrap_or_default());
        Self {
            statement: (!has_secrets).then(statement),
            envelope: has_secrets.then(|| Digest::of(signed.envelope.to_string())),
            is_verified: true,
            ..Self::by(question, &signed.by, at)
        }
    }

    /// The approval in an answer that cannot be decrypted.
    fn of_encrypted(question: &Question, shown: &ShownAnswer, at: i64) -> Self {
        Self { envelope: Some(shown.envelope), ..Self::by(question, &shown.by, at) }
    }

    fn by(question: &Question, by: &[Answerer], at: i64) -> Self {
        let by = by
            .iter()
            .filter_map(|by| Some(Approver { key: by.fingerprint()?, owner: by.owner.clone(), role: by.role.clone() }));
        Self {
            wait: question.wait.clone(),
            node: question.node.clone(),
            at: shown_time(at),
            statement: None,
            envelope: None,
            is_verified: false,
            payload: digest_of(&question.payload),
            by: by.collect(),
        }
    }
}

fn digest_of(value: &Value) -> Digest {
    Digest::of(canonical_json(value))
}

fn shown_time(at: i64) -> String {
    timestamp::milliseconds(timestamp::from_unix_milliseconds(at))
}
