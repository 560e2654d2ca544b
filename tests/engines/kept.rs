//! Stored journals: known answers of the current version, and journals that older versions wrote.
//!
//! `tests/engines/kept` holds graphs, their scripts, and in `version-N` the journals that the engine wrote of them when
//! `N` was the version of the journal. Each journal is proven, replayed, shown, and continued from any record. Only the
//! journals of the current version are ever written again: `KEEP=1 cargo test --test engines kept` does that.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use graph_model::digest::hex;
use graph_model::name::RunId;
use graph_runtime::dynamic::Library;
use graph_runtime::history::{checkpoints, entry_at};
use graph_runtime::record::{SignedRecord, VERSION};
use graph_runtime::{EncryptionKey, Status, Store, Value};
use serde::{Deserialize, Serialize};

use super::case::{Entered, Log, comparable, key, resume, run, run_id, unproven, within};
use super::script::{Case, Script, Stage};
use super::{Erased, erased, interpreted};

/// A stored journal, with those of the nested runs.
#[derive(Serialize, Deserialize)]
struct Kept {
    /// The case's name.
    case: String,
    /// The end of the run.
    end: Value,
    /// The records in the order in which they were written.
    records: Vec<KeptRecord>,
}

/// A stored record.
#[derive(Serialize, Deserialize)]
struct KeptRecord {
    run: RunId,
    /// The graph, if the run began with this record.
    graph: Option<String>,
    status: Status,
    /// Whether it is the last of the records that were written together.
    is_last: bool,
    /// The elapsed time of the runs in milliseconds.
    elapsed: u64,
    seq: u64,
    body: String,
    /// In hexadecimal, like the token.
    signature: String,
    end: String,
}

impl KeptRecord {
    fn of(entered: &Entered) -> Self {
        let SignedRecord { seq, body, signature, end } = entered.signed.clone();
        Self {
            run: entered.run.clone(),
            graph: entered.graph.clone(),
            status: entered.status,
            is_last: entered.is_last,
            elapsed: u64::try_from(entered.elapsed.as_millis()).expect("a moment"),
            seq,
            body,
            signature: hex(&signature),
            end: end.map(|end| hex(&end)).expect("a store is given the token of what it takes"),
        }
    }

    fn entered(&self) -> Entered {
        let signature = bytes(&self.signature).try_into().expect("64 bytes");
        let end = Some(bytes(&self.end).try_into().expect("32 bytes"));
        Entered {
            run: self.run.clone(),
            graph: self.graph.clone(),
            status: self.status,
            signed: SignedRecord { seq: self.seq, body: self.body.clone(), signature, end },
            is_last: self.is_last,
            elapsed: Duration::from_millis(self.elapsed),
        }
    }
}

fn bytes(hex: &str) -> Vec<u8> {
    let pairs = (0..hex.len()).step_by(2);
    pairs.map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("digits of hex")).collect()
}

fn stored_directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/engines/kept")
}

/// Whether the case leaves the same journal each time.
fn is_reproducible(case: &Case) -> bool {
    let is_other = case.real || case.threads.is_some() || case.space.is_some() || case.files.is_some();
    !is_other && case.expect.status != "not_started"
}

/// Calls `check` with each case of the kept graphs, its graph, and the graph's name.
fn each(mut check: impl FnMut(&Stage, &Erased, &Case, &str) -> Vec<String>) {
    let (stage, directory) = (Stage::default(), stored_directory());
    let library = Library::open(&directory.join("graphs"), stage.clone());
    let mut said = Vec::new();
    for file in graph_compiler::graph_files(&directory.join("graphs")).expect("a tree of graphs") {
        let name = file.file_stem().and_then(|name| name.to_str()).expect("a name");
        let script = Script::read(&directory.join(format!("scripts/{name}.yaml"))).expect("a script");
        let machine = erased(interpreted(name, &library));
        for case in script.cases.iter().filter(|case| is_reproducible(case)) {
            let found = check(&stage, &machine, case, name);
            said.extend(found.into_iter().map(|found| format!("{name}: {}: {found}", case.name)));
        }
    }
    assert!(said.is_empty(), "{} found:\n{}", said.len(), said.join("\n"));
}

/// Reads the stored journals of a graph.
fn read(directory: &Path, graph: &str) -> Vec<Kept> {
    let Ok(text) = fs::read_to_string(directory.join(format!("journals/{graph}.jsonl"))) else { return Vec::new() };
    text.lines().map(|line| serde_json::from_str(line).expect("a journal that was kept")).collect()
}

/// Returns the directories of the versions, at least one.
fn versions() -> Vec<PathBuf> {
    let all = fs::read_dir(stored_directory()).expect("there are kept journals");
    let paths = all.map(|entry| entry.expect("an entry").path());
    let mut all: Vec<PathBuf> = paths.filter(|path| path.join("journals").is_dir()).collect();
    all.sort();
    assert!(!all.is_empty(), "no journal was kept");
    all
}

#[test]
fn the_engine_writes_the_stored_journals() {
    let directory = stored_directory().join(format!("version-{VERSION}"));
    let is_kept_now = std::env::var_os("KEEP").is_some();
    let mut journals = std::collections::BTreeMap::<String, String>::new();
    each(|stage, machine, case, name| {
        if case.former {
            return Vec::new();
        }
        let log = Log::default();
        stage.set(case);
        let end = run(case, stage, machine, Some(&log)).end;
        let records: Vec<KeptRecord> = log.entered().iter().map(KeptRecord::of).collect();
        if is_kept_now {
            let now = Kept { case: case.name.clone(), end, records };
            let line = serde_json::to_string(&now).expect("it is JSON");
            writeln!(journals.entry(name.to_owned()).or_default(), "{line}").expect("a text takes all");
            return Vec::new();
        }
        let all = read(&directory, name);
        let Some(before) = all.iter().find(|stored| stored.case == case.name) else {
            return vec!["its journal is not kept: KEEP=1 keeps it".to_owned()];
        };
        let bodies = |records: &[KeptRecord]| {
            let bodies: Vec<String> = records.iter().map(|record| record.body.clone()).collect();
            comparable(&bodies)
        };
        let (was, is) = (bodies(&before.records), bodies(&records));
        // Concurrent calls are recorded in any order.
        if was.iter().any(|body| body.contains(r#","kind":"calls","#)) {
            return Vec::new();
        }
        let differs = was.iter().zip(&is).find(|(was, is)| was != is);
        match differs {
            None if was.len() == is.len() && before.end == end => Vec::new(),
            Some((was, is)) => vec![format!("the record was\n  {was}\nand is\n  {is}")],
            None => vec![format!(
                "it had {} records and ended with {}, and now {} and {end}",
                was.len(),
                before.end,
                is.len()
            )],
        }
    });
    if is_kept_now {
        fs::create_dir_all(directory.join("journals")).expect("there is room for a directory");
        for (name, text) in journals {
            fs::write(directory.join(format!("journals/{name}.jsonl")), text).expect("there is room for a file");
        }
    }
}

#[test]
fn a_stored_journal_is_proven_replayed_and_shown() {
    for directory in versions() {
        each(|_, machine, case, name| {
            let all = read(&directory, name);
            let Some(stored) = all.into_iter().find(|stored| stored.case == case.name) else {
                return Vec::new();
            };
            let records: Vec<Entered> = stored.records.iter().map(KeptRecord::entered).collect();
            let (log, _) = within(false, Log::holding(&records));
            let mut said: Vec<String> = unproven(machine, &log).into_iter().collect();
            let signed = within(false, log.load(&run_id())).expect("it is in memory");
            let (public, encryption_key) = (key().public(), EncryptionKey::from_bytes([5; 32]));
            match checkpoints(&run_id(), &signed, &public) {
                Err(error) => said.push(error.to_string()),
                Ok(all) => match entry_at(machine, &run_id(), &signed, &public, Some(&encryption_key), None) {
                    Ok(entry) if all.iter().map(|one| one.visits.len() as u64).sum::<u64>() == entry.step => {}
                    Ok(entry) => {
                        said.push(format!("it stands at step {}, and has another number of visits", entry.step));
                    }
                    Err(error) => said.push(error.to_string()),
                },
            }
            said
        });
    }
}

#[test]
fn a_stored_journal_resumes_from_any_cut() {
    for directory in versions() {
        each(|stage, machine, case, name| {
            let all = read(&directory, name);
            let continues = case.resumes && !case.former;
            let Some(stored) = all.into_iter().find(|stored| stored.case == case.name && continues) else {
                return Vec::new();
            };
            stage.set(case);
            drop(run(case, stage, machine, Some(&Log::default())));
            let given = stage.given();
            let records: Vec<Entered> = stored.records.iter().map(KeptRecord::entered).collect();
            let (log, _) = within(false, Log::holding(&records));
            let ends: Vec<usize> = (1..records.len()).filter(|at| records[at - 1].is_last).collect();
            let mut said = Vec::new();
            // The first, one in the middle, and the last.
            for at in [ends.first(), ends.get(ends.len() / 2), ends.last()].into_iter().flatten() {
                let without_kind = |end: &Value| {
                    let mut end = end.clone();
                    // A resume does not notify hooks again of what they received before it.
                    end.as_object_mut().map(|end| end.shift_remove("kind"));
                    end
                };
                match resume(case, stage, machine, &log, *at, &given) {
                    Ok((end, again)) if without_kind(&end) == without_kind(&stored.end) => {
                        said.extend(unproven(machine, &again).map(|why| format!("behind record {at}: {why}")));
                    }
                    Ok((end, _)) => {
                        said.push(format!("behind record {at} it came to {end}, and not to {}", stored.end));
                    }
                    Err(error) => said.push(format!("behind record {at}: {error}")),
                }
            }
            said
        });
    }
}
