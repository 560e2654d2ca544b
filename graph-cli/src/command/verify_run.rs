//! `graph verify-run`: prove from its journal what a run did.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use graph_runtime::{Audit, AuditError, RunId, Store, audit_tree};
use serde_json::json;

use super::kept::{Kept, Opened, own_graph};
use crate::outcome::{Done, Outcome};

#[derive(Args)]
pub(crate) struct VerifyRun {
    /// The run
    #[arg(value_name = "RUN", value_parser = |text: &str| RunId::new(text))]
    run: RunId,
    /// The graph's file [default: the one of the run's graph in the tree `graphs`]
    #[arg(long, value_name = "FILE")]
    graph: Option<PathBuf>,
    #[command(flatten)]
    kept: Kept,
    /// Print what is proven as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &VerifyRun) -> Done {
    let Opened { tokio, store, key, seal } = arguments.kept.open()?;
    let records = tokio.block_on(store.load(&arguments.run))?;
    let machine = own_graph(&records, arguments.graph.as_deref(), "--graph")?;
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
    let origin = match &audit.from {
        Some(from) if audit.is_origin_proven => {
            format!("; it began as run {} stood behind record {}", from.run, from.seq)
        }
        Some(from) => format!("; it says that it began in run {}, which is not in the store", from.run),
        None => String::new(),
    };
    let secrets = if audit.is_recomputed { "" } else { "; what it wrote is sealed, and was not computed again" };
    anstream::println!(
        "{run}: {} after {steps} steps{again}, as `{graph}` ({digest:.12}, signed by {signer}) allows; {records} records, the last \
         link is {link}{origin}{secrets}",
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
        "from": audit.from,
        "origin_proven": audit.is_origin_proven,
        "recomputed": audit.is_recomputed,
    })
}
