//! The words of the glossary: each type that `docs/glossary.md` names is defined, and the names that it replaced are gone.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::layers::{crates, sources};

/// Names that say too little, and their replacements.
const REPLACED: &[(&str, &str)] = &[
    ("Caching", "CacheFuture"),
    ("Calling", "CallFuture"),
    ("Cells", "StateFields"),
    ("Code", "DiagnosticCode"),
    ("Desk", "PendingCalls"),
    ("Finding", "ThreadFuture"),
    ("Form", "StoredEntry"),
    ("Job", "PendingCall"),
    ("Judgement", "Coverage"),
    ("Lane", "ToolCaller"),
    ("Look", "Scope"),
    ("Made", "CallResult"),
    ("Moment", "HistoryEntry"),
    ("Outline", "Interface"),
    ("Pen", "WriteState"),
    ("Performer", "Executor"),
    ("Performing", "ToolFuture"),
    ("Sight", "EvalContext"),
    ("Slot", "CallSlot"),
    ("Standing", "RunState"),
    ("Storing", "StoreFuture"),
    ("To", "Sink"),
    ("Told", "HookContext"),
    ("TravelError", "PastError"),
    ("Web", "ControlFlow"),
    ("Wish", "CancelRequest"),
    ("Writing", "JournalWriter"),
];

/// Returns the names of all types and traits that the published crates define outside their tests.
fn defined() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (_, text) in crates().iter().flat_map(|directory| sources(directory)) {
        for line in text.lines().take_while(|line| !line.ends_with("mod tests {")) {
            let mut words = line.split_whitespace().skip_while(|word| word.starts_with("pub"));
            if let (Some("struct" | "enum" | "trait" | "type"), Some(name)) = (words.next(), words.next()) {
                let end = name.find(|letter: char| !letter.is_alphanumeric()).unwrap_or(name.len());
                names.insert(name[..end].to_owned());
            }
        }
    }
    names
}

/// Returns the types in the last column of the glossary's tables.
fn named() -> Vec<String> {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/glossary.md")).unwrap();
    let rows = page.lines().filter_map(|line| line.strip_suffix(" |")?.rsplit_once("| "));
    rows.flat_map(|(_, cell)| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>()).collect()
}

#[test]
fn each_type_of_the_glossary_is_defined() {
    let (defined, named) = (defined(), named());
    assert!(named.len() > 40, "the tables are read: {named:?}");
    let missing: Vec<&String> = named.iter().filter(|name| !defined.contains(*name)).collect();
    assert!(missing.is_empty(), "docs/glossary.md names types that no crate defines: {missing:?}");
}

#[test]
fn no_type_has_a_name_that_was_replaced() {
    let defined = defined();
    assert!(defined.len() > 500, "the sources are read: {}", defined.len());
    let found: Vec<_> = REPLACED.iter().filter(|(name, _)| defined.contains(*name)).collect();
    assert!(found.is_empty(), "types with replaced names, and the names that are used now: {found:?}");
}
