//! The results of tests for people: a line for each case, and what differs.

use graph_testing::{CaseDifference, CaseFailure, CaseReport, FileReport};
use serde_json::Value;
use similar::{ChangeTag, TextDiff};

use super::show_mistakes;
use crate::command::plain;

pub(super) fn report(report: &FileReport) {
    if !report.drafts.is_empty() {
        err!("note: tested as they are, without a trusted signature: {}", report.drafts.join(", "));
    }
    show_mistakes(report);
    for case in report.cases.iter().flatten() {
        line(&report.name, case);
    }
}

fn line(file: &str, case: &CaseReport) {
    let name = plain(&case.name);
    let crashes = match case.crashes {
        0 => String::new(),
        crashes => format!(" ({crashes} crashes)"),
    };
    if case.failures.is_empty() {
        out!("ok    {file}: {name}{crashes}");
        return;
    }
    out!("FAIL  {file}: {name}{crashes}");
    case.failures.iter().for_each(|failure| show(file, failure));
}

fn show(file: &str, failure: &CaseFailure) {
    let CaseFailure { message, line, column, difference, note, help, .. } = failure;
    out!("      {file}:{line}:{column}: {}", plain(message));
    match difference {
        Some(CaseDifference::Names { expected, found }) => names(expected, found),
        Some(CaseDifference::Values { expected, found }) => values(expected, found),
        None => {}
    }
    if let Some(note) = note {
        out!("        note: {}", plain(note));
    }
    if let Some(help) = help {
        out!("        help: {}", plain(help));
    }
}

/// Shows two lists, with the first difference in brackets.
fn names(expected: &[String], found: &[String]) {
    let same = expected.iter().zip(found).take_while(|(one, other)| one == other).count();
    let marked = |names: &[String]| {
        let mark = |(at, name): (usize, &String)| if at == same { format!("[{}]", plain(name)) } else { plain(name) };
        let text = names.iter().enumerate().map(mark).collect::<Vec<_>>().join(" ");
        if names.len() > same { text } else { format!("{text} []").trim_start().to_owned() }
    };
    out!("        expected  {}", marked(expected));
    out!("        got       {}", marked(found));
}

/// Shows what differs between two values, line by line.
fn values(expected: &Value, found: &Value) {
    let (expected, found) = (format!("{:#}\n", sorted(expected)), format!("{:#}\n", sorted(found)));
    out!("        - expected");
    out!("        + got");
    for change in TextDiff::from_lines(&expected, &found).iter_all_changes() {
        let sign = match change.tag() {
            ChangeTag::Delete => '-',
            ChangeTag::Insert => '+',
            ChangeTag::Equal => ' ',
        };
        out!("        {sign} {}", plain(change.value().trim_end_matches('\n')));
    }
}

/// Returns a value whose fields are in the order of their names, so that only what differs is shown.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<(String, Value)> =
                fields.iter().map(|(name, value)| (name.clone(), sorted(value))).collect();
            fields.sort_by(|one, other| one.0.cmp(&other.0));
            Value::Object(fields.into_iter().collect())
        }
        Value::Array(list) => list.iter().map(sorted).collect(),
        other => other.clone(),
    }
}
