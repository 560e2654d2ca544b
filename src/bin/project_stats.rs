//! Counts the files and lines of a directory with the graph `graphs/project_stats.yaml`.
//!
//! `cargo run -- DIRECTORY [PATTERN]`

use std::path::Path;

use graph_runtime::{Builtins, MainError, Progress, Runtime, SecretKey, SqliteStore};
use state_graphs::{ProjectStats, project_stats};

#[tokio::main]
async fn main() -> Result<(), MainError> {
    let mut arguments = std::env::args().skip(1);
    let mut inputs = project_stats::Inputs::default();
    if let Some(directory) = arguments.next() {
        inputs.directory = directory;
    }
    if let Some(pattern) = arguments.next() {
        inputs.pattern = pattern;
    }

    let data = Path::new("target/project_stats");
    std::fs::create_dir_all(data)?;
    let runtime = Runtime::builder()
        .store(SqliteStore::open(data.join("runs.db")).await?)
        .sign_with(SecretKey::load_or_generate(&data.join("keys"))?)
        .grant("rye.execute.tool.rye.bash")?
        .observer(Progress::stderr())
        .build()?;
    let run = runtime.start(ProjectStats::new(Builtins), inputs).await?;
    let stats: project_stats::Output = run.await?.output;

    println!("{}", serde_json::to_string_pretty(&stats)?);
    Ok(())
}
