//! Adds up the lines and words of the files of a directory, with the graph `graphs/file_report.yaml`.
//!
//! `cargo run --example file_report -- DIRECTORY`, or without a directory for `graphs`. Each file is counted in a branch of
//! its own, eight at a time.

use std::error::Error;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use graph_runtime::{ActionError, Call, Progress, Runtime};
use state_graphs::tools::{files_count, files_list};
use state_graphs::{FileReport, file_report};

/// Reads the files of this machine.
struct Disk;

impl files_list::Tool for Disk {
    async fn files_list(&self, _: &Call, params: files_list::Params) -> Result<files_list::Output, ActionError> {
        let files = blocking(move || listed(Path::new(&params.directory))).await?;
        let files = files.iter().map(|path| path.display().to_string()).collect();
        Ok(files_list::Output { files })
    }
}

impl files_count::Tool for Disk {
    async fn files_count(&self, _: &Call, params: files_count::Params) -> Result<files_count::Output, ActionError> {
        let path = PathBuf::from(params.path);
        let kind = path.extension().map_or_else(String::new, |extension| extension.display().to_string());
        let text = blocking(move || fs::read_to_string(path)).await?;
        let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        let (lines, words) = (count(text.lines().count()), count(text.split_whitespace().count()));
        Ok(files_count::Output { kind, lines, words })
    }
}

/// Reads from the disk without holding a thread of the runtime.
async fn blocking<T: Send + 'static>(
    read: impl FnOnce() -> Result<T, io::Error> + Send + 'static,
) -> Result<T, ActionError> {
    let read = tokio::task::spawn_blocking(read).await.map_err(|error| ActionError::permanent(error.to_string()))?;
    read.map_err(|error| ActionError::permanent(error.to_string()))
}

/// Returns the files below a directory, sorted. Hidden ones and links are left out.
fn listed(directory: &Path) -> Result<Vec<PathBuf>, io::Error> {
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", directory.display()));
    let entries = fs::read_dir(directory).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let mut entries = entries.map_err(named)?;
    entries.retain(|entry| !entry.file_name().as_encoded_bytes().starts_with(b"."));
    entries.sort_by_key(fs::DirEntry::file_name);
    let mut files = Vec::new();
    for entry in entries {
        let kind = entry.file_type().map_err(named)?;
        if kind.is_dir() {
            files.extend(listed(&entry.path())?);
        } else if kind.is_file() {
            files.push(entry.path());
        }
    }
    Ok(files)
}

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), Box<dyn Error>> {
    let inputs = file_report::Inputs { directory: std::env::args().nth(1).unwrap_or_else(|| "graphs".to_owned()) };
    let runtime = Runtime::builder().grant("rye.execute.tool.files.*")?.observer(Progress::stderr()).build()?;
    let report = runtime.start(FileReport::new(Disk), inputs).await?.await?.output;
    for file in &report.files {
        println!("{:>8} {:>8}  {}", file.lines, file.words, file.path);
    }
    for file in &report.unreadable {
        println!("                 {}: {}", file.path, file.error);
    }
    println!(
        "{:>8} {:>8}  in {} files of {} kinds, the longest of {} lines",
        report.lines,
        report.words,
        report.files.len(),
        report.kinds.len(),
        report.longest
    );
    Ok(())
}
