//! Journals of tests as files, from which `graph coverage` counts what the tests reached.

use std::cell::Cell;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use graph_engine::record::{Entry, Record, SignedRecord};
use graph_engine::{MemoryStore, RunId, Store};
use graph_model::digest::{hex, unhex};
use graph_model::value::Value;
use serde_json::json;

/// The environment variable with the directory that gets the journals of tests.
pub const COVERAGE_VARIABLE: &str = "GRAPH_COVERAGE";

/// The last part of the names of their files.
const EXTENSION: &str = "journal";

/// A journal of a test, in a file: the first line has the run and the graph, each other one a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptJournal {
    /// The run.
    pub run: RunId,
    /// The graph's id.
    pub graph: String,
    /// The records.
    pub records: Vec<SignedRecord>,
}

impl KeptJournal {
    /// Returns the files of journals in a directory, sorted. Other files are left out.
    ///
    /// # Errors
    ///
    /// If the directory cannot be read.
    pub fn files(directory: &Path) -> io::Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == EXTENSION) {
                files.push(path);
            }
        }
        files.sort();
        Ok(files)
    }

    /// Reads a file.
    ///
    /// # Errors
    ///
    /// Says in which line something is wrong.
    pub fn read(path: &Path) -> Result<Self, String> {
        // A pipe would be waited for.
        if !fs::metadata(path).is_ok_and(|metadata| metadata.is_file()) {
            return Err("it is no file".to_owned());
        }
        let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
        let mut lines = text.lines().enumerate().map(|(at, line)| (at + 1, line));
        let first = lines.next().and_then(|(_, line)| serde_json::from_str::<Value>(line).ok()).unwrap_or_default();
        let member = |name: &str| first.get(name).and_then(Value::as_str);
        let (run, graph) = member("run").zip(member("graph")).ok_or("line 1 does not name the run and its graph")?;
        let run = RunId::new(run).map_err(|error| format!("line 1: {error}"))?;
        let records = lines.map(|(at, line)| record(line).ok_or_else(|| format!("line {at} is no record")));
        Ok(Self { run, graph: graph.to_owned(), records: records.collect::<Result<_, _>>()? })
    }

    /// Writes the journals of all runs of a store into files of a directory, which is made if it is not there. The names of the files
    /// begin with `test`.
    ///
    /// # Errors
    ///
    /// If a file cannot be written.
    pub async fn keep(store: &impl Store, directory: &Path, test: &str) -> io::Result<()> {
        fs::create_dir_all(directory)?;
        // The last one that was made comes first. Ids of runs may be random, and the same test shall write the same files.
        for (at, summary) in store.list().await.map_err(io::Error::other)?.into_iter().rev().enumerate() {
            let records = store.load(&summary.run).await.map_err(io::Error::other)?;
            let Some(graph) = records.first().and_then(graph_of) else { continue };
            let journal = Self { run: summary.run, graph, records };
            let name = format!("{test}-{at}").replace(|one: char| !one.is_alphanumeric() && one != '_', "-");
            fs::write(directory.join(name).with_extension(EXTENSION), journal.text())?;
        }
        Ok(())
    }

    fn text(&self) -> String {
        let mut text = format!("{}\n", json!({ "run": self.run.as_str(), "graph": self.graph }));
        for record in &self.records {
            let (signature, end) = (hex(&record.signature), record.end.map(|end| hex(&end)));
            let line = json!({ "seq": record.seq, "body": record.body, "signature": signature, "end": end });
            writeln!(text, "{line}").expect("a string takes any text");
        }
        text
    }
}

/// Writes the journals of a store to the directory that the environment names, if it names one. A test that runs again writes the same
/// files.
pub(crate) async fn keep_journals(store: &MemoryStore) {
    thread_local! {
        static KEPT: Cell<u32> = const { Cell::new(0) };
    }
    let Some(directory) = std::env::var_os(COVERAGE_VARIABLE).filter(|value| !value.is_empty()) else { return };
    let number = KEPT.replace(KEPT.get() + 1);
    let program = std::env::current_exe().ok().and_then(|path| Some(path.file_stem()?.to_string_lossy().into_owned()));
    let program = program.unwrap_or_default();
    // Cargo adds a hash to the name.
    let program = program.rsplit_once('-').map_or(program.as_str(), |(name, _)| name);
    let thread = std::thread::current();
    let test = format!("{program}-{}-{number}", thread.name().unwrap_or_default());
    let directory = PathBuf::from(directory);
    // Cargo runs the tests of each package in its own directory.
    assert!(
        directory.is_absolute(),
        "{COVERAGE_VARIABLE} is `{}`, which is no absolute path: use $PWD",
        directory.display()
    );
    if let Err(error) = KeptJournal::keep(store, &directory, &test).await {
        panic!(
            "the journals of the test cannot be written to {}, as {COVERAGE_VARIABLE} says: {error}",
            directory.display()
        );
    }
}

/// Returns the graph that a first record names.
fn graph_of(record: &SignedRecord) -> Option<String> {
    match serde_json::from_str::<Record>(&record.body).ok()?.entry {
        Entry::Start(start) => Some(start.graph),
        _ => None,
    }
}

fn record(line: &str) -> Option<SignedRecord> {
    let value: Value = serde_json::from_str(line).ok()?;
    let end = match value.get("end")? {
        Value::Null => None,
        end => Some(unhex(end.as_str()?)?),
    };
    let (body, signature) = (value.get("body")?.as_str()?.to_owned(), unhex(value.get("signature")?.as_str()?)?);
    Some(SignedRecord { seq: value.get("seq")?.as_u64()?, body, signature, end })
}
