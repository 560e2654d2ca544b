//! `graph attest`: attest to what a run did, for those who do not have its journal; and `graph verify-attestation`.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use graph_runtime::{Attestation, AuditError, RunId, SqliteStore, Store, attest};

use super::kept::{Kept, Opened, own_graph, public_key};
use super::{read, replace, signing_key};
use crate::outcome::{Done, Error, Outcome};

#[derive(Args)]
pub(crate) struct Attest {
    /// The run
    #[arg(value_name = "RUN", value_parser = |text: &str| RunId::new(text))]
    run: RunId,
    /// The graph's file [default: the one of the run's graph in the tree `graphs`]
    #[arg(long, value_name = "FILE")]
    graph: Option<PathBuf>,
    #[command(flatten)]
    kept: Kept,
    /// The secret key that attests [default: your own]
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Write the attestation to this file, which is replaced as a whole [default: stdout]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Attest) -> Done {
    let by = signing_key(arguments.key.as_ref())?;
    let Opened { tokio, store, key, seal } = arguments.kept.open()?;
    let records = tokio.block_on(store.load(&arguments.run))?;
    let machine = own_graph(&records, arguments.graph.as_deref(), "--graph")?;
    let attested = attest(Arc::new(machine), &arguments.run, &store, &key, seal.as_ref(), &by);
    let envelope = match tokio.block_on(attested) {
        Ok(envelope) => envelope,
        Err(AuditError::Journal { run, reason }) => {
            let store = arguments.kept.store.display();
            anstream::eprintln!("error: run {run} in {store}: {reason}; what is not proven is not attested");
            return Ok(Outcome::Problems);
        }
        Err(error) => return Err(error.into()),
    };
    match &arguments.output {
        Some(path) => replace(path, &format!("{envelope}\n"))?,
        None => anstream::println!("{envelope}"),
    }
    Ok(Outcome::Well)
}

#[derive(Args)]
pub(crate) struct VerifyAttestation {
    /// The attestation's file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The public key of who attests, a PEM file [default: your own]
    #[arg(long, value_name = "FILE")]
    public_key: Option<PathBuf>,
    /// Compare it with the run's journal in this SQLite file
    #[arg(long, value_name = "FILE")]
    store: Option<PathBuf>,
    /// Print the statement that was signed, as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn verify(arguments: &VerifyAttestation) -> Done {
    let shown = arguments.file.display();
    let key = match &arguments.public_key {
        Some(pem) => public_key(pem)?,
        None => signing_key(None)?.public(),
    };
    let refused = |error: &dyn std::fmt::Display| {
        anstream::eprintln!("error: {shown}: {error}");
        Ok(Outcome::Problems)
    };
    let attestation = match Attestation::verify(&read(&arguments.file)?, &key) {
        Ok(attestation) => attestation,
        Err(error) => return refused(&error),
    };
    let mut since = None;
    if let Some(path) = &arguments.store {
        if !path.is_file() {
            return Err(Error::new(format!("there is no store at {}", path.display())));
        }
        let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let store = tokio.block_on(SqliteStore::open_read_only(path))?;
        let records = tokio.block_on(store.load(&attestation.run))?;
        match attestation.covers(&records) {
            Ok(more) => since = Some(more),
            Err(error) => return refused(&error),
        }
    }
    if arguments.json {
        anstream::println!("{}", attestation.statement);
        return Ok(Outcome::Well);
    }
    let Attestation { run, status, steps, graph, digest, by, records, .. } = &attestation;
    let since = match since {
        None => String::new(),
        Some(0) => "; the journal in the store is that one".to_owned(),
        Some(more) => format!("; the journal in the store is that one with {more} records more"),
    };
    anstream::println!(
        "{run}: {} after {steps} steps, as `{graph}` ({digest:.12}) allows; {records} records; {by} attests to it{since}",
        status.name()
    );
    Ok(Outcome::Well)
}
