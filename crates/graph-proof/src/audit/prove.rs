//! Proves one run, without the runs inside it.

use std::time::SystemTime;

use graph_engine::address::Address;
use graph_engine::call::{Parent, TaskOrigin};
use graph_engine::engine::Ended;
use graph_engine::graph::{GraphTables, tables};
use graph_engine::machine::Machine;
use graph_engine::record::TakenSignal;
use graph_engine::record::{Entry, JournalError, Origin, Record, SignedRecord, Start, VerifiedJournal};
use graph_engine::run_secrets::{RunSecrets, hidden};
use graph_engine::step::is_nested_id;
use graph_engine::{EncryptionKey, Status};
use graph_model::digest::{Digest, hex};
use graph_model::name::{GraphId, RunId};
use graph_model::timestamp;
use graph_model::value::canonical_json;
use graph_signing::{Fingerprint, PublicKey};

use crate::audit::receipts::{Approval, Receipts, SignalSummary};
use crate::audit::replayer::{CallInside, Lost, Replayer, Session, misfit, same};
use crate::edits::EditSummary;

/// The facts that a journal proves about a run.
///
/// [`audit`] has an example.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Audit {
    /// The run.
    pub run: RunId,
    /// The graph's id.
    pub graph: String,
    /// The digest of the graph that the run began under, as its journal says.
    pub digest: Digest,
    /// The digest of the graph's meaning, as the journal says.
    pub meaning: Option<Digest>,
    /// The digest of the graph that the run was proven under. If it is another one, both graphs have the same meaning, and nothing
    /// is known of the version and the signer that the journal names.
    pub under: Digest,
    /// The fingerprint of the key that signed the graph.
    pub signer: Fingerprint,
    /// The run's status.
    pub status: Status,
    /// How many nodes were visited.
    pub steps: u64,
    /// How often it was resumed.
    pub resumes: u64,
    /// The changes that people made to its state while it was not in progress.
    pub edits: Vec<EditSummary>,
    /// The answers of people that it took, in the order of the records.
    pub approvals: Vec<Approval>,
    /// The signals that it took, in the order of the records.
    pub signals: Vec<SignalSummary>,
    /// The number of records.
    pub records: u64,
    /// The link of the last record, which covers the whole journal.
    pub link: Digest,
    /// The fingerprint of the key that signed the journal.
    pub key: Fingerprint,
    /// The version that the graph's author gave it.
    pub version: String,
    /// The visit of another run that it belongs to.
    pub parent: Option<Parent>,
    /// The point in another run where it began.
    pub from: Option<Origin>,
    /// Whether it was proven that the other run had the same state there, except for the keys that were changed. Only
    /// [`audit_tree`](crate::audit_tree) checks this, and only if the store has the other run.
    pub is_origin_proven: bool,
    /// The grants at the start and at each resume; each pattern once.
    pub grants: Vec<String>,
    /// The ids of the tools that committed visits called, in alphabetical order. `*` stands for an id that is computed for
    /// each call, which no journal records.
    pub tools: Vec<String>,
    /// When it began: RFC 3339 in UTC with milliseconds.
    pub started: String,
    /// When it ended, if it has.
    pub ended: Option<String>,
    /// The SHA-256 of its output as canonical JSON with `[secret]` for secrets, if it ended with a result (R203).
    pub output: Option<Digest>,
    /// Whether the audit recomputed the values that nodes wrote and the edges that they took. It does not for a graph with
    /// secrets, unless it has the key that they were encrypted with.
    pub is_recomputed: bool,
    /// The ids of the reducers that were not called again, because they are functions of a program and the graph was brought
    /// without it. The values that they yielded are those that the journal has.
    pub unproven_reducers: Vec<String>,
}

/// Proves a run.
///
/// `machine` is the graph, which may have older versions, `key` the public key of the runtime that wrote the journal, and `encryption_key` the key that its secrets
/// were encrypted with.
///
/// Only the signature of the last record is verified. It covers the links of all other records, and with them their texts
/// and signatures. A change to one of them that keeps the chain needs a new signature, and so the key.
///
/// It accepts exactly the journals that the engine can write. `docs/journal.md` describes what that means for each member
/// of a record.
///
/// ```
/// # mod graph_runtime { pub use graph_engine::*; pub use graph_proof::*; }
/// # use graph_runtime::{Machine, PublicKey, RunId, Store};
/// # async fn example(graph: &dyn Machine, store: &dyn Store, key: &PublicKey) -> Result<(), Box<dyn std::error::Error>> {
/// use graph_runtime::audit;
///
/// let run = RunId::new("order-17")?;
/// let proven = audit(graph, &run, &store.load(&run).await?, key, None)?;
/// println!("{} steps, which called {}", proven.steps, proven.tools.join(", "));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// The first mistake and its record: the journal was changed, or records something that the graph does not allow.
pub fn audit(
    machine: &dyn Machine,
    run: &RunId,
    records: &[SignedRecord],
    key: &PublicKey,
    encryption_key: Option<&EncryptionKey>,
) -> Result<Audit, JournalError> {
    prove(machine, run, records, key, encryption_key, false).map(|proven| proven.audit)
}

/// A proven run, with the facts that tie it to the runs around and inside it.
pub(super) struct Proven {
    pub(super) audit: Audit,
    pub(super) start: Start,
    /// The calls of graphs that its visits made.
    pub(super) inside: Vec<CallInside>,
    /// How many steps it made, with those that its committed visits count of the runs inside them.
    pub(super) nested_steps: u64,
    /// How many visits its next step has.
    pub(super) due: u64,
    /// Its result, if it has ended with one that could be computed.
    pub(super) ended: Option<Ended>,
    /// How it ended without a result.
    pub(super) failed: Option<Lost>,
    /// The sessions of the run: one from its start and one from each resume.
    pub(super) sessions: Vec<Session>,
    /// The signals that it took and that a run around it received, which shares them.
    pub(super) handed: Vec<TakenSignal>,
}

pub(super) fn prove(
    machine: &dyn Machine,
    run: &RunId,
    records: &[SignedRecord],
    key: &PublicKey,
    encryption_key: Option<&EncryptionKey>,
    looks_inside: bool,
) -> Result<Proven, JournalError> {
    let verified = VerifiedJournal::new(run, records, key)?;
    let (started, mut start) = verified.start()?;
    let machine = start.version_of(machine);
    let code = tables(machine.graph());
    misfit(0, same("graph", start.graph.as_str(), code.id.as_str()))?;
    if !start.is_under(machine.graph()) {
        misfit(0, same("digest of the graph", start.digest, code.digest))?;
        misfit(0, same("meaning of the graph", shown_meaning(start.meaning), shown_meaning(code.settings.meaning)))?;
    }
    // If the secrets cannot be opened, they stay encrypted, and nothing is computed from them.
    let run_secrets = encryption_key
        .and_then(|encryption_key| RunSecrets::open(code, run, Some(encryption_key), true).ok().flatten());
    misfit(0, begins(code, run, &start, key, run_secrets.as_deref()))?;
    if let Some(run_secrets) = &run_secrets {
        run_secrets.decrypt_start(code, &mut start)?;
    }
    let is_recomputed = code.settings.secrets.is_empty() || run_secrets.is_some();
    let first = verified.chain().start().ok_or(JournalError::Empty)?;
    let address = match &start.parent {
        Some(_) => start.address.clone(),
        None => Some(Address::of_run(run.clone(), first)),
    };
    let receipts = Receipts::new(run, address, start.digest, key);
    let mut walk = Replayer::begin(machine, receipts, &start, is_recomputed, looks_inside)?;
    let (mut last, mut time) = (None, SystemTime::UNIX_EPOCH);
    let mut edits = Vec::new();
    // One record is in memory at a time: a journal is many times larger when it is parsed.
    for at in 1..verified.count() {
        let Some(record) = verified.record(at) else { break };
        let mut record = record?;
        if let Some(run_secrets) = &run_secrets {
            run_secrets.decrypt_record(code, &mut record)?;
        }
        let Record { seq, at, entry, .. } = record;
        if let Entry::Edit(edit) = &entry {
            edits.push(EditSummary::of(seq, &at, edit));
        }
        let parsed = timestamp::parse(&at).ok_or_else(|| "its time cannot be read".to_owned());
        time = misfit(seq, parsed)?;
        misfit(seq, walk.take(seq, &entry, time))?;
        last = match entry {
            Entry::End(end) => Some((end, at)),
            Entry::Edit(_) => last,
            _ => None,
        };
    }
    let seq = verified.count() as u64 - 1;
    misfit(seq, walk.can_stop())?;
    if looks_inside {
        let end = last.as_ref().map(|(end, _)| end);
        let open = walk.open_calls(seq, time, end);
        walk.inside.get_or_insert_default().extend(open);
    }
    let ended = last.as_ref().and_then(|(end, _)| walk.ended(end));
    let failed = last.as_ref().and_then(|(end, _)| walk.lost(end));
    let output = last.as_ref().filter(|(end, _)| end.status.has_result()).map(|(end, _)| {
        let shown = hidden(code.settings.secrets.output.as_ref(), end.output.clone());
        Digest::of(canonical_json(&shown))
    });
    let audit = Audit {
        run: run.clone(),
        graph: start.graph.clone(),
        digest: start.digest,
        meaning: start.meaning,
        under: code.digest,
        signer: start.signer.clone(),
        status: walk.status,
        steps: walk.position.steps,
        resumes: walk.sessions.len() as u64 - 1,
        edits,
        approvals: std::mem::take(&mut walk.receipts.approvals),
        signals: std::mem::take(&mut walk.receipts.signals),
        records: records.len() as u64,
        link: records.last().map_or_else(|| Digest::of([]), SignedRecord::link),
        key: key.fingerprint(),
        version: start.version.clone(),
        parent: start.parent.clone(),
        from: start.from.clone(),
        is_origin_proven: false,
        grants: walk.all_grants(),
        tools: walk.tools(),
        started,
        ended: last.map(|(_, at)| at),
        output,
        is_recomputed,
        unproven_reducers: walk.unproven_reducers(),
    };
    let (nested_steps, due) = (walk.nested_steps(), walk.position.frontier.len() as u64);
    let inside = walk.inside.unwrap_or_default();
    Ok(Proven {
        audit,
        start,
        inside,
        nested_steps,
        due,
        ended,
        failed,
        sessions: walk.sessions,
        handed: walk.receipts.handed,
    })
}

fn shown_meaning(meaning: Option<Digest>) -> String {
    meaning.map_or_else(|| "unknown".to_owned(), |meaning| meaning.to_string())
}

/// Fails unless a run of the graph can begin with this record, regardless of its inputs.
pub(super) fn begins(
    code: &GraphTables,
    run: &RunId,
    start: &Start,
    key: &PublicKey,
    run_secrets: Option<&RunSecrets>,
) -> Result<(), String> {
    // Another text of the same meaning says nothing about these.
    if start.digest == code.digest {
        same("version of the graph", start.version.as_str(), &code.version)?;
        same("signer of the graph", &start.signer, &code.signer)?;
    }
    same("key of the journal", start.key.as_str(), &hex(key.as_bytes()))?;
    if let Some(parent) = &start.parent {
        is_inside(run, parent, start)?;
    } else if start.steps.is_some() {
        return Err("runs around it limit its steps, and it is in none".to_owned());
    } else if !start.shared.is_empty() {
        return Err("it shares keys with a run around it, and is in none".to_owned());
    }
    if let Some(task) = &start.task {
        is_task(run, &code.id, task, start)?;
    }
    if start.address.is_some() && (start.parent.is_none() || !code.can_park) {
        return Err("it names where it receives signals, which only a nested run that can wait does".to_owned());
    }
    if start.deadline.is_some() != code.settings.deadline_ms.is_some() {
        return Err("it has a deadline exactly if its graph has one".to_owned());
    }
    if start.encryption_key.is_some() == code.settings.secrets.is_empty() {
        return Err(
            "the key that secrets are encrypted with is named where the graph has secrets, and only there".to_owned()
        );
    }
    match run_secrets.map(RunSecrets::fingerprint) {
        Some(fingerprint) if start.encryption_key != fingerprint => {
            Err("its secrets are encrypted with another key".to_owned())
        }
        _ => Ok(()),
    }
}

/// Fails unless a call of another run can spawn this run.
fn is_task(run: &RunId, graph: &GraphId, task: &TaskOrigin, start: &Start) -> Result<(), String> {
    if task.task_id(graph) != *run {
        return Err(format!("visit {} of run `{}` spawns no task of this id", task.by.step, task.by.run));
    }
    if start.parent.is_some() || start.from.is_some() || start.limit.is_some() {
        return Err("it is a task, which is in no run, began at no position of another one, and has no limit of steps"
            .to_owned());
    }
    if start.depth.is_none() || start.capabilities.is_none() {
        return Err("what a task may use is left to it by the run that spawned it, and not written down".to_owned());
    }
    Ok(())
}

/// Fails unless a visit of another run can begin this run.
pub(super) fn is_inside(run: &RunId, parent: &Parent, start: &Start) -> Result<(), String> {
    if !is_nested_id(run.as_str(), &parent.run, parent.step, parent.item, 1..=u64::MAX) {
        return Err(format!("visit {} of run `{}` begins no run of this id", parent.step, parent.run));
    }
    if start.depth.is_none() {
        return Err("how deep it may nest is left to it by the run around it, and not written down".to_owned());
    }
    if start.limit.is_some() || start.capabilities.is_some() || start.from.is_some() {
        return Err("it was given options, which a run inside another is not".to_owned());
    }
    Ok(())
}
