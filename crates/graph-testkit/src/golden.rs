//! Journals as texts that are kept beside tests.

use std::fmt::Write as _;
use std::path::Path;

use graph_engine::record::{SignedRecord, hide_encrypted};
use graph_model::value::{Map, Value};
use similar::TextDiff;

/// Returns a journal as text, a record a line. The members that differ from run to run, or with the text of the
/// graph alone, are left out: links, tokens, durations, digest and signer.
pub(crate) fn journal_text(records: &[SignedRecord]) -> String {
    let mut text = String::new();
    for record in records {
        let mut body: Value = serde_json::from_str(&record.body).expect("the engine writes JSON");
        if let Value::Object(members) = &mut body {
            ["prev", "end", "v", "digest", "signer"].into_iter().for_each(|name| drop(members.shift_remove(name)));
            // Only the members of visits, calls and signals: a value of the graph may have such names too.
            remove_from(members, "visits", "ms", None);
            remove_from(members, "done", "ms", None);
            remove_from(members, "taken", "sealed", Some("signal"));
        }
        hide_encrypted(&mut body);
        writeln!(text, "{body}").expect("a string takes any text");
    }
    text
}

/// Removes a member from each element of a list, or from a part of each.
fn remove_from(members: &mut Map<String, Value>, list: &str, name: &str, part: Option<&str>) {
    let Some(Value::Array(elements)) = members.get_mut(list) else { return };
    for element in elements {
        let place = match part {
            Some(part) => element.get_mut(part),
            None => Some(element),
        };
        if let Some(Value::Object(place)) = place {
            place.shift_remove(name);
        }
    }
}

/// Compares a text with that of a file, or writes the file if `UPDATE_GOLDEN` is set.
#[track_caller]
pub(crate) fn assert_golden(path: &Path, text: &str) {
    if std::env::var_os("UPDATE_GOLDEN").is_some_and(|value| !value.is_empty() && value != "0") {
        if let Err(error) = std::fs::write(path, text) {
            panic!("{} cannot be written: {error}", path.display());
        }
        return;
    }
    let kept = match std::fs::read_to_string(path) {
        Ok(kept) => kept,
        Err(error) => panic!("{} cannot be read: {error}; UPDATE_GOLDEN=1 writes it", path.display()),
    };
    if kept != text {
        let diff = TextDiff::from_lines(kept.as_str(), text);
        let diff = diff.unified_diff().context_radius(1).header("kept", "now").to_string();
        panic!("the journal is not that of {}:\n{diff}UPDATE_GOLDEN=1 accepts it", path.display());
    }
}
