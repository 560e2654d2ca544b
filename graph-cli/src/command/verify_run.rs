//! `graph verify-run`: prove from its journal what a run did.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use graph_compiler::diagnostic::Diagnostic;
use graph_model::name::ItemId;
use graph_model::signature::PublicKey;
use graph_runtime::dynamic::{Interpreted, Library, Toolbox};
use graph_runtime::record::{Entry, Record, Sealed};
use graph_runtime::{Audit, AuditError, RunId, SealKey, SqliteStore, Store, audit_tree};
use serde_json::json;

use super::{read, signing_key};
use crate::outcome::{Done, Error, Outcome};

#[derive(Args)]
pub(crate) struct VerifyRun {
    /// The run
    #[arg(value_name = "RUN", value_parser = |text: &str| RunId::new(text))]
    run: RunId,
    /// The SQLite file that keeps it
    #[arg(long, value_name = "FILE")]
    store: PathBuf,
    /// The graph's file [default: the one of the run's graph in the tree `graphs`]
    #[arg(long, value_name = "FILE")]
    graph: Option<PathBuf>,
    /// The public key of who ran it, a PEM file [default: your own]
    #[arg(long, value_name = "FILE")]
    public_key: Option<PathBuf>,
    /// The key that seals its secrets; without it, what a graph with secrets computes is not computed again
    #[arg(long, value_name = "FILE")]
    seal_key: Option<PathBuf>,
    /// Print what is proven as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &VerifyRun) -> Done {
    if !arguments.store.is_file() {
        return Err(Error::new(format!("there is no store at {}", arguments.store.display())));
    }
    let key = match &arguments.public_key {
        Some(pem) => {
            PublicKey::from_pem(&read(pem)?).map_err(|error| Error::new(format!("{}: {error}", pem.display())))?
        }
        None => signing_key(None)?.public(),
    };
    let seal = arguments.seal_key.as_ref().map(|path| SealKey::load(path)).transpose()?;
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let store = tokio.block_on(SqliteStore::open(&arguments.store))?;
    let records = tokio.block_on(store.load(&arguments.run))?;
    // Where the graph is looked for is no proof: that it is the run's graph is proven with the rest.
    let Some(machine) = graph_of(&records, arguments.graph.as_deref())? else {
        let message = match graph_name(&records) {
            Some(name) => format!("there is no graph `{name}` in the tree `graphs`; name its file with `--graph`"),
            None => "its journal does not begin with the start of a run".to_owned(),
        };
        anstream::eprintln!("error: run {}: {message}", arguments.run);
        return Ok(Outcome::Problems);
    };
    let tree = audit_tree(Arc::new(machine), &arguments.run, &store, &key, seal.as_ref());
    let proven = match tokio.block_on(tree) {
        Ok(proven) => proven,
        Err(AuditError::Journal { run, reason }) => {
            anstream::eprintln!("error: run {run} in {}: {reason}", arguments.store.display());
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

fn graph_name(records: &[Sealed]) -> Option<String> {
    match serde_json::from_str::<Record>(&records.first()?.body).ok()?.entry {
        Entry::Start(start) => Some(start.graph),
        _ => None,
    }
}

/// Loads the graph of a run; none if its file is not named and the tree has none of that name.
fn graph_of(records: &[Sealed], file: Option<&Path>) -> Result<Option<Interpreted>, Error> {
    let working = std::env::current_dir()?;
    let (library, file) = match file {
        Some(file) => {
            let file = working.join(file);
            let file = file.canonicalize().map_err(|error| Error::file("read", &file, &error))?;
            (Library::around(&working, &file, Toolbox::new()), file)
        }
        None => {
            let library = Library::open(&working.join("graphs"), Toolbox::new());
            let id = graph_name(records).and_then(|name| ItemId::new(name).ok());
            let Some(file) = id.and_then(|id| library.find(&id)) else { return Ok(None) };
            (library, file)
        }
    };
    library.graph(&file).map(Some).map_err(|error| {
        let all: Vec<String> = error.diagnostics.iter().map(Diagnostic::render_coloured).collect();
        Error::new(format!("the graph {} cannot be used:\n{}", file.display(), all.join("\n\n")))
    })
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
