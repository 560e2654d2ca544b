//! `graph attest`: attest to what a run did, for those who do not have its journal; and `graph verify-attestation`.

use std::path::PathBuf;

use clap::Args;
use graph_runtime::{Attestation, RunId, Store, attest};

use super::stored::{self, Access};
use super::stored_run::{OpenedStore, StoredRunArguments, verifying_key};
use super::verify_run::{ProofProblem, prove};
use super::{read, replace, signing_key};
use crate::outcome::{CommandOutcome, CommandResult};

#[derive(Args)]
pub(crate) struct AttestArguments {
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
    /// The secret key that signs the attestation [default: your own]
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Write the attestation to this file, which is replaced as a whole [default: stdout]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(crate) fn run(arguments: &AttestArguments) -> CommandResult {
    let by = signing_key(arguments.key.as_ref())?;
    let AttestArguments { run, graph, stored_run, files_key, .. } = arguments;
    let opened = stored_run.open()?;
    let machine = match prove(stored_run, &opened, run, graph, files_key.as_deref())? {
        Ok(proof) => proof.machine,
        Err(problems) => {
            for ProofProblem { run, what } in problems {
                err!("error: run {run} in {stored_run}: {what}; only a proven run is attested");
            }
            return Ok(CommandOutcome::Problems);
        }
    };
    let OpenedStore { tokio, store, key, encryption_key, .. } = &opened;
    let envelope = tokio.block_on(attest(machine, run, &**store, key, encryption_key.as_ref(), &by))?;
    match &arguments.output {
        Some(path) => replace(path, &format!("{envelope}\n"))?,
        None => out_text!("{envelope}"),
    }
    Ok(CommandOutcome::Well)
}

#[derive(Args)]
pub(crate) struct VerifyAttestationArguments {
    /// The attestation's file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The public key that verifies the attestation, a PEM file [default: your own]
    #[arg(long, value_name = "FILE")]
    public_key: Option<PathBuf>,
    /// Compare it with the run's journal in this SQLite file
    #[arg(long, value_name = "FILE")]
    store: Option<PathBuf>,
    /// Print the statement that was signed, as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn verify(arguments: &VerifyAttestationArguments) -> CommandResult {
    let shown = arguments.file.display();
    let key = verifying_key(arguments.public_key.as_deref())?;
    let refused = |error: &dyn std::fmt::Display| {
        err!("error: {shown}: {error}");
        Ok(CommandOutcome::Problems)
    };
    let attestation = match Attestation::verify(&read(&arguments.file)?, &key) {
        Ok(attestation) => attestation,
        Err(error) => return refused(&error),
    };
    let mut since = None;
    if let Some(path) = &arguments.store {
        let tokio = stored::tokio()?;
        let store = tokio.block_on(stored::open(path, Access::Read))?;
        let records = tokio.block_on(store.load(&attestation.run))?;
        match attestation.covers(&records) {
            Ok(more) => since = Some(more),
            Err(error) => return refused(&error),
        }
    }
    if arguments.json {
        out_json_line!(attestation.statement);
        return Ok(CommandOutcome::Well);
    }
    let Attestation { run, status, steps, graph, digest, by, records, .. } = &attestation;
    let since = match since {
        None => String::new(),
        Some(0) => "; the journal in the store is that one".to_owned(),
        Some(more) => format!("; the journal in the store is that one with {more} records more"),
    };
    out!(
        "{run}: {} after {steps} steps, as `{graph}` ({digest:.12}) allows; {records} records; {by} attests to it{since}",
        status.name()
    );
    Ok(CommandOutcome::Well)
}
