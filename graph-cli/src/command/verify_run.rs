//! `graph verify-run`: prove from its journal what a run did.

use std::sync::Arc;

use clap::Args;
use graph_runtime::{Audit, AuditError, RunId, Store, audit_tree};
use serde_json::json;

use super::kept::{Kept, Opened};
use crate::outcome::{Done, Outcome};

#[derive(Args)]
pub(crate) struct VerifyRun {
    /// The run
    #[arg(value_name = "RUN", value_parser = |text: &str| RunId::new(text))]
    run: RunId,
    #[command(flatten)]
    kept: Kept,
    /// Print what is proven as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &VerifyRun) -> Done {
    let Opened { tokio, store, key, seal } = arguments.kept.open()?;
    let records = tokio.block_on(store.load(&arguments.run))?;
    let machine = match arguments.kept.graph(&records)? {
        Ok(machine) => machine,
        Err(message) => {
            anstream::eprintln!("error: run {}: {message}", arguments.run);
            return Ok(Outcome::Problems);
        }
    };
    let tree = audit_tree(Arc::new(machine), &arguments.run, &store, &key, seal.as_ref());
    let proven = match tokio.block_on(tree) {
        Ok(proven) => proven,
        Err(AuditError::Journal { run, reason }) => {
            anstream::eprintln!("error: run {run} in {}: {reason}", arguments.kept.store.display());
            return Ok(Outcome::Problems);
        }
        Err(error) => return Err(error.into()),
    };
    if arguments.json {
        anstream::println!("{:#}", json!({ "runs": proven.iter().map(as_json).collect::<Vec<_>>() }));
    } else {
        proven.iter().for_each(say);
    }
    Ok(Outcome::Well)
}

fn say(audit: &Audit) {
    let Audit { run, graph, digest, signer, steps, records, link, resumes, .. } = audit;
    let again = match resumes {
        0 => String::new(),
        1 => ", taken up once".to_owned(),
        times => format!(", taken up {times} times"),
    };
    let secrets = if audit.is_recomputed { "" } else { "; what it wrote is sealed, and was not computed again" };
    anstream::println!(
        "{run}: {} after {steps} steps{again}, as `{graph}` ({digest:.12}, signed by {signer}) allows; {records} records, the last \
         link is {link}{secrets}",
        audit.status.name()
    );
}

fn as_json(audit: &Audit) -> serde_json::Value {
    json!({
        "run": audit.run,
        "graph": audit.graph,
        "digest": audit.digest.to_hex(),
        "signer": audit.signer.to_string(),
        "status": audit.status.name(),
        "steps": audit.steps,
        "resumes": audit.resumes,
        "records": audit.records,
        "link": audit.link.to_hex(),
        "recomputed": audit.is_recomputed,
    })
}
