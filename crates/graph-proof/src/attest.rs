//! Attestations: the facts that an audit proves about a run, in a format that other tools read.
//!
//! An attestation is an in-toto statement, version 1, in a DSSE envelope, version 1, signed with Ed25519. A reader who
//! trusts the key needs neither the journal nor the means to verify one. `docs/attestation.md` describes the format.

use std::collections::BTreeSet;
use std::sync::Arc;

use graph_engine::dsse::{Envelope, EnvelopeError};
use graph_engine::machine::Machine;
use graph_engine::record::{Entry, Journal, JournalError, Record, SignedRecord};
use graph_engine::store::Store;
use graph_engine::{EncryptionKey, ErrorKind, HasKind, Status};
use graph_model::digest::Digest;
use graph_model::name::RunId;
use graph_signing::{Fingerprint, PublicKey, SecretKey};
use serde::{Deserialize, Serialize};

use crate::audit::{Approval, Approver, Audit, AuditError, SignalSummary, audit_tree};
use crate::edits::EditSummary;

/// The payload type of the envelope.
const PAYLOAD: &str = "application/vnd.in-toto+json";
const STATEMENT: &str = "https://in-toto.io/Statement/v1";
/// The predicate type of the statement, documented in `docs/attestation.md`.
const PREDICATE: &str = "https://state-graphs.dev/attestation/run/v1";

/// Proves a run and the runs inside it, and returns an attestation: an envelope as one JSON text without a newline.
///
/// `key` is the public key of the runtime that wrote the journals, `by` the key that attests. The attestation is about the
/// run as it is now. The same journal gives the same text. The text contains no inputs, output or state, only a hash of the
/// output, with secrets hidden.
///
/// ```
/// # mod graph_runtime { pub use graph_engine::*; pub use graph_proof::*; }
/// # use graph_runtime::{Machine, RunId, SecretKey, Store};
/// # use std::sync::Arc;
/// # async fn example(
/// #     graph: Arc<dyn Machine>,
/// #     store: &dyn Store,
/// #     key: SecretKey,
/// #     auditor: SecretKey,
/// # ) -> Result<(), Box<dyn std::error::Error>> {
/// use graph_runtime::attest;
///
/// let envelope = attest(graph, &RunId::new("order-17")?, store, &key.public(), None, &auditor).await?;
/// std::fs::write("order-17.intoto.json", envelope)?;
/// # Ok(())
/// # }
/// ```
///
/// The example of [`Attestation`] verifies it.
///
/// # Errors
///
/// If the run is not proven, as for [`audit_tree`].
pub async fn attest(
    machine: Arc<dyn Machine>,
    run: &RunId,
    store: &dyn Store,
    key: &PublicKey,
    encryption_key: Option<&EncryptionKey>,
    by: &SecretKey,
) -> Result<String, AuditError> {
    let audits = audit_tree(machine, run, store, key, encryption_key).await?;
    let statement = Statement::of(&audits);
    let payload = serde_json::to_string(&statement).expect("a statement has only texts as keys");
    let envelope = Envelope::new(PAYLOAD, payload.as_bytes()).signed_by(by).expect("its payload is Base64");
    Ok(envelope.to_string())
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Statement {
    #[serde(rename = "_type")]
    kind: String,
    subject: Vec<StatementSubject>,
    #[serde(rename = "predicateType")]
    predicate_type: String,
    predicate: Predicate,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct StatementSubject {
    name: String,
    digest: Sha256,
}

/// A digest set of in-toto, with the one algorithm that is used here.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Sha256 {
    sha256: Digest,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Predicate {
    graph: GraphStatement,
    journal: JournalFacts,
    status: Status,
    steps: u64,
    resumes: u64,
    /// The changes that people made to its state.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    edits: Vec<EditFacts>,
    /// The answers of people that it took.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    approvals: Vec<ApprovalFacts>,
    /// The signals that it took.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    signals: Vec<SignalFacts>,
    started_on: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ended_on: Option<String>,
    grants: Vec<String>,
    tools: Vec<String>,
    /// Whether the audit recomputed the values that nodes wrote and the edges that they took.
    recomputed: bool,
    /// The ids of the reducers whose results were not proven, those of the runs inside too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    unproven_reducers: Vec<String>,
    /// The runs inside it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    inside: Vec<InsideFacts>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct GraphStatement {
    id: String,
    version: String,
    digest: Sha256,
    /// The digest of its meaning, if the journal has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    meaning: Option<Sha256>,
    /// The digest of the text that the run was proven under, if that is another one of the same meaning.
    #[serde(default, rename = "provenUnder", skip_serializing_if = "Option::is_none")]
    proven_under: Option<Sha256>,
    signer: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct JournalFacts {
    key: String,
    records: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct EditFacts {
    record: u64,
    edited_on: String,
    step: u64,
    by: String,
    why: String,
    /// The keys that were overwritten.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    set: Vec<String>,
    /// The keys that were written as a node writes them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    written: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ApprovalFacts {
    wait: String,
    node: String,
    received_on: String,
    /// Absent if the answer has secrets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    statement: Option<Sha256>,
    /// Present if the answer has secrets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    envelope: Option<Sha256>,
    /// Why the signatures were not verified: `sealed`, if the key of the secrets was not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    not_verified: Option<String>,
    payload: Sha256,
    by: Vec<ApproverFacts>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct ApproverFacts {
    key: String,
    owner: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    role: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SignalFacts {
    name: String,
    id: String,
    received_on: String,
    value: Sha256,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct InsideFacts {
    run: RunId,
    graph: GraphStatement,
    status: Status,
    steps: u64,
    journal: JournalFacts,
    link: Sha256,
}

/// Says that an answer is encrypted, and its key was not there.
const SEALED: &str = "sealed";

fn graph_facts(audit: &Audit) -> GraphStatement {
    GraphStatement {
        id: audit.graph.clone(),
        version: audit.version.clone(),
        digest: Sha256 { sha256: audit.digest },
        meaning: audit.meaning.map(|sha256| Sha256 { sha256 }),
        proven_under: Some(audit.under).filter(|under| *under != audit.digest).map(|sha256| Sha256 { sha256 }),
        signer: audit.signer.to_string(),
    }
}

fn edit_facts(edit: &EditSummary) -> EditFacts {
    let EditSummary { record, at, step, by, why, set, written } = edit.clone();
    EditFacts { record, edited_on: at, step, by, why, set, written }
}

fn approval_facts(approval: &Approval) -> ApprovalFacts {
    let Approval { wait, node, at, statement, envelope, is_verified, payload, by } = approval.clone();
    let by = by.into_iter().map(|Approver { key, owner, role }| ApproverFacts { key: key.to_string(), owner, role });
    let sha256 = |digest: Option<Digest>| digest.map(|sha256| Sha256 { sha256 });
    let not_verified = (!is_verified).then(|| SEALED.to_owned());
    ApprovalFacts {
        wait,
        node,
        received_on: at,
        statement: sha256(statement),
        envelope: sha256(envelope),
        not_verified,
        payload: Sha256 { sha256: payload },
        by: by.collect(),
    }
}

fn signal_facts(signal: &SignalSummary) -> SignalFacts {
    let SignalSummary { name, id, at, value } = signal.clone();
    SignalFacts { name, id, received_on: at, value: Sha256 { sha256: value } }
}

fn journal_facts(audit: &Audit) -> JournalFacts {
    JournalFacts { key: audit.key.to_string(), records: audit.records }
}

impl Statement {
    /// Builds the statement about the first run and the runs inside it.
    fn of(audits: &[Audit]) -> Self {
        let unproven: BTreeSet<&String> = audits.iter().flat_map(|audit| &audit.unproven_reducers).collect();
        let (audit, inside) = audits.split_first().expect("whoever proves a tree of runs proves its first");
        let mut subject = vec![StatementSubject { name: audit.run.to_string(), digest: Sha256 { sha256: audit.link } }];
        let output = |sha256| StatementSubject { name: format!("{}/output", audit.run), digest: Sha256 { sha256 } };
        subject.extend(audit.output.map(output));
        let inside = inside.iter().map(|audit| InsideFacts {
            run: audit.run.clone(),
            graph: graph_facts(audit),
            status: audit.status,
            steps: audit.steps,
            journal: journal_facts(audit),
            link: Sha256 { sha256: audit.link },
        });
        Self {
            kind: STATEMENT.to_owned(),
            subject,
            predicate_type: PREDICATE.to_owned(),
            predicate: Predicate {
                graph: graph_facts(audit),
                journal: journal_facts(audit),
                status: audit.status,
                steps: audit.steps,
                resumes: audit.resumes,
                edits: audit.edits.iter().map(edit_facts).collect(),
                approvals: audits.iter().flat_map(|audit| &audit.approvals).map(approval_facts).collect(),
                signals: audits.iter().flat_map(|audit| &audit.signals).map(signal_facts).collect(),
                started_on: audit.started.clone(),
                ended_on: audit.ended.clone(),
                grants: audit.grants.clone(),
                tools: audit.tools.clone(),
                recomputed: audits.iter().all(|audit| audit.is_recomputed),
                unproven_reducers: unproven.into_iter().cloned().collect(),
                inside: inside.collect(),
            },
        }
    }
}

/// An attestation with a valid signature.
///
/// ```
/// # mod graph_runtime { pub use graph_engine::*; pub use graph_proof::*; }
/// # use graph_runtime::{PublicKey, Store};
/// # async fn example(store: &dyn Store, auditor: &PublicKey) -> Result<(), Box<dyn std::error::Error>> {
/// use graph_runtime::Attestation;
///
/// let attested = Attestation::verify(&std::fs::read_to_string("order-17.intoto.json")?, auditor)?;
/// println!("run {} of {} was {}", attested.run, attested.graph, attested.status.name());
/// let since = attested.covers(&store.load(&attested.run).await?)?;
/// println!("its journal has {since} records more");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Attestation {
    /// The run.
    pub run: RunId,
    /// The link of the last record in its journal at that time.
    pub link: Digest,
    /// The number of records at that time.
    pub records: u64,
    /// The run's status at that time.
    pub status: Status,
    /// How many nodes were visited.
    pub steps: u64,
    /// The graph's id.
    pub graph: String,
    /// The digest of the graph.
    pub digest: Digest,
    /// The SHA-256 of the run's output, as in [`Audit::output`](crate::Audit::output).
    pub output: Option<Digest>,
    /// The fingerprint of the key that attested.
    pub by: Fingerprint,
    /// The fingerprint of the key that signed the journal.
    pub journal_key: String,
    /// The whole statement as JSON, byte for byte as it was signed.
    pub statement: String,
}

/// Why an attestation proves nothing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AttestationError {
    /// It is not an envelope.
    #[error(transparent)]
    NotAnEnvelope(#[from] EnvelopeError),
    /// The key made none of its signatures, or the payload was changed.
    #[error("it is not signed by {key}, or was changed since")]
    Signature {
        /// The fingerprint of the key that was expected.
        key: Fingerprint,
    },
    /// The signed payload is not a statement about a run.
    #[error("it does not attest to a run: {0}")]
    NotOfARun(String),
    /// The journal was changed.
    #[error("the run's journal is not whole: {0}")]
    Journal(#[from] JournalError),
    /// The journal is not the attested one.
    #[error("it attests to another journal of run `{0}`: the journal was put back or written again")]
    AnotherJournal(RunId),
}

impl HasKind for AttestationError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::NotAnEnvelope(_) | Self::NotOfARun(_) => ErrorKind::Invalid,
            Self::Signature { .. } => ErrorKind::Denied,
            Self::Journal(error) => error.kind(),
            Self::AnotherJournal(_) => ErrorKind::Conflict,
        }
    }
}

impl Attestation {
    /// Reads an envelope that [`attest`] or another tool wrote in this format, if `key` verifies one of its signatures.
    ///
    /// # Errors
    ///
    /// If it is not such an envelope, no signature is valid, or the statement is not about a run.
    pub fn verify(envelope: &str, key: &PublicKey) -> Result<Self, AttestationError> {
        let envelope: Envelope = envelope.parse()?;
        let payload = envelope.payload()?;
        if !envelope.signatures().iter().any(|signature| envelope.is_signed(signature, key)) {
            return Err(AttestationError::Signature { key: key.fingerprint() });
        }
        // From here on, the content is known to be signed by the key's holder.
        let other = |what: String| AttestationError::NotOfARun(what);
        if envelope.payload_type() != PAYLOAD {
            return Err(other(format!("its payload is `{}`", envelope.payload_type())));
        }
        let statement = String::from_utf8(payload).map_err(|_| other("it is not UTF-8".to_owned()))?;
        let said: Kinds = serde_json::from_str(&statement).map_err(|error| other(error.to_string()))?;
        if said.kind != STATEMENT || said.predicate_type != PREDICATE {
            return Err(other(format!("it is a `{}` with a `{}`", said.kind, said.predicate_type)));
        }
        let read: Statement = serde_json::from_str(&statement).map_err(|error| other(error.to_string()))?;
        let Predicate { graph, journal, status, steps, .. } = read.predicate;
        let (run, link, output) = match read.subject.as_slice() {
            [run, rest @ ..] => (&run.name, run.digest.sha256, rest.first().map(|output| output.digest.sha256)),
            [] => return Err(other("it has no subject".to_owned())),
        };
        let run = RunId::new(run.as_str()).map_err(|error| other(error.to_string()))?;
        Ok(Self {
            run,
            link,
            records: journal.records,
            status,
            steps,
            graph: graph.id,
            digest: graph.digest.sha256,
            output,
            by: key.fingerprint(),
            journal_key: journal.key,
            statement,
        })
    }

    /// Compares the attestation with the journal of its run, and returns how many records were added since.
    ///
    /// The journal's own key is in its first record, which the attested link covers.
    ///
    /// # Errors
    ///
    /// If the journal is not whole, or is not the attested one.
    pub fn covers(&self, records: &[SignedRecord]) -> Result<u64, AttestationError> {
        let other = || AttestationError::AnotherJournal(self.run.clone());
        let last = self.records.checked_sub(1).and_then(|last| usize::try_from(last).ok());
        let last = last.and_then(|last| records.get(last)).ok_or_else(other)?;
        if last.link() != self.link {
            return Err(other());
        }
        let first = records.first().and_then(|first| serde_json::from_str::<Record>(&first.body).ok());
        let Some(Entry::Start(start)) = first.map(|first| first.entry) else { return Err(other()) };
        // The key is written as 64 hex digits, like a digest.
        let key = start.key.parse::<Digest>().ok().and_then(|bytes| PublicKey::from_bytes(bytes.as_bytes()).ok());
        let key = key.filter(|key| key.fingerprint().as_str() == self.journal_key).ok_or_else(other)?;
        Journal::verify(&self.run, records, &key)?;
        Ok(records.len() as u64 - self.records)
    }
}

/// The types of a statement, without the rest of it.
#[derive(Deserialize)]
struct Kinds {
    #[serde(rename = "_type")]
    kind: String,
    #[serde(rename = "predicateType")]
    predicate_type: String,
}
