//! Labels 50 parcels with a program that calls a tool for each of them, first one in Python, then one in Rust.
//!
//! `graphs/tools/parcels/label_batch.yaml` is the contract of the program in Python, `graphs/programs/label_batch.py`. That in Rust is in
//! this file.
//!
//! `cargo run --example batch_processor`

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

use graph_program::ProgramConnection;
use graph_runtime::{ActionError, Call, MemoryStore, Runtime, RuntimeTools, SecretKey, ToolConfig};
use serde_json::{Value, json};
use state_graphs::parcels::{label_batch, label_batch_rust};
use state_graphs::tools::parcels_label;

/// A post office, which delivers to few addresses.
struct Post;

/// The runtime starts the program of the contract.
impl RuntimeTools for Post {}

// Both graphs call the tool.
impl parcels_label::Tool for Post {
    async fn parcels_label(
        &self,
        call: &Call,
        params: parcels_label::Params,
    ) -> Result<parcels_label::Output, ActionError> {
        if params.address.starts_with("nowhere") {
            return Err(ActionError::permanent("the address is unknown"));
        }
        // A post office that gets the key again sells no second label.
        let number = format!("L-{:.8}", call.idempotency_key());
        Ok(parcels_label::Output { number, cents: 250 + params.grams / 100 * 5 })
    }
}

/// The program that the graph starts: it calls a tool for each parcel, and returns a summary.
fn label_all(program: &mut ProgramConnection) -> Result<Value, Box<dyn Error>> {
    let parcels = program.inputs()["parcels"].as_array().cloned().unwrap_or_default();
    let labels = program.call_all(parcels.iter().map(|parcel| ("parcels/label", parcel.clone())))?;
    let (mut labelled, mut cents, mut failed) = (0, 0, Vec::new());
    for (parcel, label) in parcels.iter().zip(labels) {
        match label {
            Ok(label) => {
                labelled += 1;
                cents += label["cents"].as_i64().unwrap_or_default();
            }
            Err(error) => failed.push(json!({ "address": parcel["address"], "reason": error.to_string() })),
        }
    }
    Ok(json!({ "labelled": labelled, "cents": cents, "failed": failed }))
}

/// Returns a runtime that may start programs below a directory.
fn runtime(programs: &Path) -> Result<Runtime, Box<dyn Error>> {
    let runtime = Runtime::builder()
        .tools(ToolConfig::new().programs(programs)?)
        .store(MemoryStore::new())
        .sign_with(SecretKey::from_seed(&[7; 32]))
        .grants(["rye.execute.tool.rye.program.turn", "rye.execute.tool.parcels.label"])?;
    Ok(runtime.build()?)
}

async fn label_batches() -> Result<(), Box<dyn Error>> {
    let addresses = (1..=50).map(|number| match number % 20 {
        0 => format!("nowhere {number}"),
        _ => format!("street {number}"),
    });

    let parcel = |(grams, address)| label_batch::InputsParcelsItem { address, grams };
    let inputs = label_batch::Inputs { parcels: (100..).step_by(50).zip(addresses.clone()).map(parcel).collect() };
    let runtime_of_tree = runtime(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/graphs")))?;
    let finished = runtime_of_tree.start(label_batch::LabelBatch::new(Post), inputs).await?.await?;
    let summary = &finished.output;
    println!("Python: {} labels for {} cents, {} failed", summary.labelled, summary.cents, summary.failed.len());

    let parcel = |(grams, address)| label_batch_rust::InputsParcelsItem { address, grams };
    let inputs = label_batch_rust::Inputs { parcels: (100..).step_by(50).zip(addresses).map(parcel).collect() };
    let own = std::env::current_exe()?;
    let runtime_of_own = runtime(own.parent().ok_or("the example is in no directory")?)?;
    let finished = runtime_of_own.start(label_batch_rust::LabelBatchRust::new(Post), inputs).await?.await?;
    let summary = &finished.output;
    println!("Rust: {} labels for {} cents, {} failed", summary.labelled, summary.cents, summary.failed.len());
    for failed in &summary.failed {
        println!("  {}: {}", failed.address, failed.reason);
    }
    Ok(())
}

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some("program") {
        return graph_program::run(label_all);
    }
    let ended = tokio::runtime::Runtime::new().map_err(Box::from).and_then(|tokio| tokio.block_on(label_batches()));
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
