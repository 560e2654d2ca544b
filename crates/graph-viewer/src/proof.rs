//! The proof of a run: its raw journal, which the page verifies itself, and the audit, which follows its graph again.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use graph_model::digest::hex;
use graph_runtime::files::{FilesAudit, FilesAuditError};
use graph_runtime::record::SignedRecord;
use graph_runtime::{Audit, AuditError, Machine, RunId, audit_tree};
use serde_json::{Value, json};

use crate::index::{ShownRun, blocking};
use crate::problem::ViewProblem;
use crate::state::ViewerState;
use crate::views::graph_of;

/// Returns the journal of a run as a file has it: a line for each record, and one for the token. That of a project is the file, byte
/// for byte; that of a store is what the store has, without the last line if the store has no token.
pub(crate) async fn journal(viewer: &ViewerState, run: &RunId) -> Result<Vec<u8>, ViewProblem> {
    if let Some(file) = viewer.source.journal_file(run)? {
        let read = move || {
            fs::read(&file).map_err(|error| ViewProblem::unreadable(format!("cannot read {}: {error}", file.display())))
        };
        return blocking(read).await;
    }
    let records = viewer.source.open().await?.store.load(run).await?;
    blocking(move || Ok(lines(&records))).await
}

fn lines(records: &[SignedRecord]) -> Vec<u8> {
    let mut lines = Vec::with_capacity(records.iter().map(|record| record.body.len() + 200).sum());
    let mut add = |line: Value| {
        lines.extend_from_slice(line.to_string().as_bytes());
        lines.push(b'\n');
    };
    for record in records {
        add(json!({"body": record.body, "signature": hex(&record.signature)}));
    }
    if let Some(end) = records.last().and_then(|record| record.end) {
        add(json!({"end": hex(&end)}));
    }
    lines
}

/// Proves a run and those inside it, as `graph verify-run` does.
pub(crate) async fn audit(viewer: &ViewerState, run: &RunId, shown: &Arc<ShownRun>) -> Result<Value, ViewProblem> {
    let (graphs, found) = (Arc::clone(&viewer.graphs), Arc::clone(shown));
    let machine: Arc<dyn Machine> = blocking(move || {
        let machine: Arc<dyn Machine> = Arc::new(found.with(|index| graph_of(&*graphs, index))?);
        Ok(machine)
    })
    .await?;
    let opened = viewer.source.open().await?;
    let (run, key) = (run.clone(), viewer.key.clone());
    let files_key = viewer.files_key.clone().unwrap_or_else(|| key.clone());
    // It computes for a long time, and reads between.
    let handle = tokio::runtime::Handle::current();
    blocking(move || {
        let audit = match &opened.files {
            Some(files) => {
                let audit = handle.block_on(files.audit(machine, &run, &key, &files_key, None));
                audit.map(|FilesAudit { audits, differing, .. }| (audits, differing))
            }
            None => match handle.block_on(audit_tree(machine, &run, &*opened.store, &key, None)) {
                Ok(audits) => Ok((audits, Vec::new())),
                Err(error) => Err(error.into()),
            },
        };
        audited(audit, &run)
    })
    .await
}

/// The audits of a run and of those inside it, and the files that differ from the journals, each with its run.
type Audited = (Vec<Audit>, Vec<(RunId, PathBuf)>);

fn audited(audit: Result<Audited, FilesAuditError>, run: &RunId) -> Result<Value, ViewProblem> {
    let problem = |run: &RunId, what: String| Ok(json!({"proven": false, "problems": [{"run": run, "what": what}]}));
    match audit {
        Ok((audits, differing)) if differing.is_empty() => {
            Ok(json!({"proven": true, "audits": audits.iter().map(audit_json).collect::<Vec<_>>()}))
        }
        Ok((_, differing)) => {
            let problems: Vec<Value> = differing
                .iter()
                .map(|(run, path)| json!({"run": run, "what": format!("{} is not what its journal says", path.display())}))
                .collect();
            Ok(json!({"proven": false, "problems": problems}))
        }
        Err(FilesAuditError::Audit(AuditError::Journal { run, reason })) => problem(&run, reason.to_string()),
        Err(FilesAuditError::Audit(AuditError::Store { run, source })) => problem(&run, source.to_string()),
        Err(error) => problem(run, ViewProblem::chain(&error)),
    }
}

fn audit_json(audit: &Audit) -> Value {
    let approvals = audit.approvals.iter().map(|approval| {
        let by = approval.by.iter().map(|by| json!({"key": by.key.to_string(), "owner": by.owner, "role": by.role}));
        json!({
            "wait": approval.wait, "node": approval.node, "at": approval.at, "verified": approval.is_verified,
            "by": by.collect::<Vec<_>>(),
        })
    });
    let edits =
        audit.edits.iter().map(|edit| json!({"step": edit.step, "at": edit.at, "by": edit.by, "why": edit.why}));
    json!({
        "run": audit.run,
        "graph": audit.graph,
        "digest": audit.digest.to_hex(),
        "under": audit.under.to_hex(),
        "signer": audit.signer.to_string(),
        "key": audit.key.to_string(),
        "status": audit.status.name(),
        "steps": audit.steps,
        "records": audit.records,
        "resumes": audit.resumes,
        "link": audit.link.to_hex(),
        "recomputed": audit.is_recomputed,
        "unproven_reducers": audit.unproven_reducers,
        "from": audit.from,
        "origin_proven": audit.is_origin_proven,
        "approvals": approvals.collect::<Vec<_>>(),
        "edits": edits.collect::<Vec<_>>(),
    })
}
