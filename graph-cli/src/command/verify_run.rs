//! `graph verify-run`: prove from its journal what a run did.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use graph_runtime::files::{FilesAudit, FilesAuditError};
use graph_runtime::store::StoreError;
use graph_runtime::{Approval, Audit, AuditError, Machine, RunId, SignalSummary, audit_tree};
use serde_json::json;

use super::show::{edit_json, edit_text};
use super::stored_run::{OpenedStore, StoredRunArguments, not_filed, own_graph, public_key};
use crate::outcome::{CommandOutcome, CommandResult, Error};

#[derive(Args)]
pub(crate) struct VerifyRunArguments {
    /// The run
    #[arg(value_name = "RUN", value_parser = |text: &str| RunId::new(text))]
    run: RunId,
    /// The file of the run's graph; given several times, of its versions, of which the run's own is taken [default: found by its id in
    /// the tree `graphs`]
    #[arg(long, value_name = "FILE")]
    graph: Vec<PathBuf>,
    #[command(flatten)]
    stored_run: StoredRunArguments,
    /// The public key that verifies the files, a PEM file [default: the one that verifies the journal]
    #[arg(long, value_name = "FILE", requires = "files")]
    files_key: Option<PathBuf>,
    /// Print the proof as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &VerifyRunArguments) -> CommandResult {
    let VerifyRunArguments { run, graph, stored_run, files_key, .. } = arguments;
    let proven = match prove(stored_run, &stored_run.open()?, run, graph, files_key.as_deref())? {
        Ok(proof) => proof.audits,
        Err(problems) => {
            problems.iter().for_each(|ProofProblem { run, what }| err!("error: run {run} in {stored_run}: {what}"));
            return Ok(CommandOutcome::Problems);
        }
    };
    if arguments.json {
        out_json!(json!({ "runs": proven.iter().map(as_json).collect::<Vec<_>>() }));
    } else {
        proven.iter().for_each(say);
    }
    Ok(CommandOutcome::Well)
}

/// A proven run.
pub(super) struct Proof {
    /// Its graph.
    pub(super) machine: Arc<dyn Machine>,
    /// The audits: that of the run first, then those of the runs inside it.
    pub(super) audits: Vec<Audit>,
}

/// A reason that a run is not proven.
pub(super) struct ProofProblem {
    /// The run, or one inside it.
    pub(super) run: RunId,
    pub(super) what: String,
}

/// Proves a run and the runs inside it. For the files of a project, also proves that they all match the journals. Returns the
/// proof, or the problems.
///
/// # Errors
///
/// If something cannot be read.
pub(super) fn prove(
    stored_run: &StoredRunArguments,
    opened: &OpenedStore,
    run: &RunId,
    graph: &[PathBuf],
    files_key: Option<&Path>,
) -> Result<Result<Proof, Vec<ProofProblem>>, Error> {
    let OpenedStore { tokio, store, files, key, encryption_key } = opened;
    let problem = |run: RunId, what: String| Ok(Err(vec![ProofProblem { run, what }]));
    let records = match tokio.block_on(store.load(run)) {
        Err(error @ StoreError::Unreadable { .. }) if files.is_some() => return problem(run.clone(), damaged(&error)),
        Err(StoreError::NotFound(run)) if files.is_some() => return Err(not_filed(&run, stored_run)),
        loaded => loaded?,
    };
    let machine: Arc<dyn Machine> = Arc::new(own_graph(&records, graph, "--graph")?);
    // The audit reads the journal itself, and a long journal must not be in memory twice.
    drop(records);
    let graph = Arc::clone(&machine);
    let audit = match files {
        Some(files) => {
            let files_key = files_key.map(public_key).transpose()?;
            let audit = files.audit(graph, run, key, files_key.as_ref().unwrap_or(key), encryption_key.as_ref());
            tokio.block_on(audit).map(|FilesAudit { audits, differing, .. }| (audits, differing))
        }
        None => match tokio.block_on(audit_tree(graph, run, &**store, key, encryption_key.as_ref())) {
            Ok(audits) => Ok((audits, Vec::new())),
            Err(error) => Err(error.into()),
        },
    };
    match audit {
        Ok((audits, differing)) if differing.is_empty() => Ok(Ok(Proof { machine, audits })),
        Ok((_, differing)) => {
            let what = |path: PathBuf| format!("{} is not what its journal says", path.display());
            Ok(Err(differing.into_iter().map(|(run, path)| ProofProblem { run, what: what(path) }).collect()))
        }
        Err(FilesAuditError::Audit(AuditError::Journal { run, reason })) => problem(run, reason.to_string()),
        Err(FilesAuditError::Audit(AuditError::Store { run, source: source @ StoreError::Unreadable { .. } }))
            if files.is_some() =>
        {
            problem(run, damaged(&source))
        }
        Err(error) => Err(error.into()),
    }
}

/// Describes what is wrong with a journal among the files of a project.
fn damaged(error: &StoreError) -> String {
    format!("{error}; if a process was killed while it wrote, `graph files rebuild` makes it again from the store")
}

fn say(audit: &Audit) {
    let Audit { run, graph, digest, signer, steps, records, link, resumes, .. } = audit;
    let again = match resumes {
        0 => String::new(),
        1 => ", resumed once".to_owned(),
        times => format!(", resumed {times} times"),
    };
    let origin = match &audit.from {
        Some(from) if audit.is_origin_proven => {
            format!("; it began in the position of run {} after record {}", from.run, from.seq)
        }
        Some(from) => format!("; it says that it began in run {}, which is not in the store", from.run),
        None => String::new(),
    };
    let text = if audit.under == *digest {
        String::new()
    } else {
        format!("; proven under another text of the same meaning ({:.12})", audit.under)
    };
    let secrets = if audit.is_recomputed { "" } else { "; encrypted values were not computed again" };
    let reducers = match audit.unproven_reducers.as_slice() {
        [] => String::new(),
        ids => format!("; reducer not proven: `{}`, a function of the program", ids.join("`, `")),
    };
    out!(
        "{run}: {} after {steps} steps{again}, as `{graph}` ({digest:.12}, signed by {signer}) allows; {records} records, the last \
         link is {link}{text}{origin}{secrets}{reducers}",
        audit.status.name()
    );
    audit.edits.iter().for_each(|edit| out!("  {}", edit_text(edit)));
    for Approval { wait, node, at, by, is_verified, .. } in &audit.approvals {
        let by: Vec<String> = by.iter().map(|by| format!("{} ({})", super::plain(&by.owner), by.key)).collect();
        let sealed = if *is_verified { "" } else { "; not verified: sealed" };
        out!("  `{node}` ({wait}) was answered on {at} by {}{sealed}", by.join(" and "));
    }
}

fn as_json(audit: &Audit) -> serde_json::Value {
    json!({
        "run": audit.run,
        "graph": audit.graph,
        "digest": audit.digest.to_hex(),
        "meaning": audit.meaning.map(|meaning| meaning.to_hex()),
        "proven_under": audit.under.to_hex(),
        "signer": audit.signer.to_string(),
        "status": audit.status.name(),
        "steps": audit.steps,
        "resumes": audit.resumes,
        "edits": audit.edits.iter().map(edit_json).collect::<Vec<_>>(),
        "approvals": audit.approvals.iter().map(approval_json).collect::<Vec<_>>(),
        "signals": audit.signals.iter().map(signal_json).collect::<Vec<_>>(),
        "records": audit.records,
        "link": audit.link.to_hex(),
        "from": audit.from,
        "origin_proven": audit.is_origin_proven,
        "recomputed": audit.is_recomputed,
        "unproven_reducers": audit.unproven_reducers,
    })
}

fn approval_json(approval: &Approval) -> serde_json::Value {
    let Approval { wait, node, at, statement, envelope, is_verified, payload, by, .. } = approval;
    let [statement, envelope] = [statement, envelope].map(|digest| digest.map(|digest| digest.to_hex()));
    let by = by.iter().map(|by| json!({"key": by.key.to_string(), "owner": by.owner, "role": by.role}));
    let by: Vec<_> = by.collect();
    let mut shown = json!({
        "wait": wait, "node": node, "at": at, "statement": statement, "payload": payload.to_hex(), "by": by,
    });
    // The answer has secrets.
    if let Some(envelope) = envelope {
        (shown["envelope"], shown["verified"]) = (envelope.into(), (*is_verified).into());
    }
    shown
}

fn signal_json(signal: &SignalSummary) -> serde_json::Value {
    let SignalSummary { name, id, at, value, .. } = signal;
    json!({"name": name, "id": id, "at": at, "value": value.to_hex()})
}
