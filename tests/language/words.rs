//! The words of the glossary: each type that `docs/glossary.md` names is defined, and the names that it replaced are gone.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

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
    ("SealKey", "EncryptionKey"),
    ("Sealed", "SignedRecord"),
    ("Sight", "EvalContext"),
    ("Slot", "CallSlot"),
    ("Standing", "RunState"),
    ("Storing", "StoreFuture"),
    ("To", "Sink"),
    ("Told", "HookContext"),
    ("TravelError", "PastError"),
    ("Vault", "RunSecrets"),
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

/// Types of one name in several files: a reader has to look which one is meant.
#[test]
fn few_type_names_are_defined_twice() {
    let mut places: BTreeMap<String, BTreeSet<PathBuf>> = BTreeMap::new();
    for (path, text) in crates().iter().flat_map(|directory| sources(directory)) {
        for line in text.lines().take_while(|line| !line.ends_with("mod tests {")) {
            // An indented line is an associated type: its trait gives it the name.
            let mut words = line.split_whitespace().skip_while(|word| word.starts_with("pub"));
            if line.starts_with(' ') || !matches!(words.next(), Some("struct" | "enum" | "trait" | "type")) {
                continue;
            }
            let name: String = words.next().unwrap_or_default().chars().take_while(|it| it.is_alphanumeric()).collect();
            places.entry(name).or_default().insert(path.clone());
        }
    }
    let twice: Vec<_> = places.iter().filter(|(_, files)| files.len() > 1).collect();
    assert!(places.len() > 400, "the types are found: {}", places.len());
    assert!(twice.len() < 25, "{} names are defined twice: {twice:?}", twice.len());
}
