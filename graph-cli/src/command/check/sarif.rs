//! Findings as a SARIF 2.1.0 log, for code scanning and editors.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use graph_compiler::code::{DiagnosticCode, Level};
use graph_compiler::diagnostic::{Diagnostic, SourcePlace};
use graph_compiler::source::Span;
use graph_model::digest::Digest;
use serde_json::{Map, Value, json};

use super::findings::Findings;

/// The schema of the format.
const SCHEMA: &str = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json";

/// The name of our fingerprint; its number changes when the fingerprint is computed in another way.
const FINGERPRINT: &str = "graphDiagnostic/v1";

pub(super) fn document(findings: &Findings) -> Value {
    let codes = findings.found.iter().map(|finding| (finding.diagnostic.code.id, finding.diagnostic.code));
    let rules: BTreeMap<&str, DiagnosticCode> = codes.collect();
    let index = |id: &str| rules.keys().position(|known| *known == id);
    let mut seen = BTreeMap::new();
    let results = findings.found.iter().map(|finding| {
        let it = &finding.diagnostic;
        let mut result = result(it);
        result.insert("ruleIndex".into(), json!(index(it.code.id)));
        result.insert("partialFingerprints".into(), json!({ FINGERPRINT: fingerprint(it, &mut seen) }));
        Value::Object(result)
    });
    json!({
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": {
                "name": "graph",
                "semanticVersion": env!("CARGO_PKG_VERSION"),
                "rules": rules.values().map(rule).collect::<Vec<_>>(),
            } },
            "columnKind": "unicodeCodePoints",
            "results": results.collect::<Vec<_>>(),
        }],
    })
}

fn rule(code: &DiagnosticCode) -> Value {
    let level = match code.lint {
        Some(Level::Allow) => "none",
        Some(Level::Warn) => "warning",
        Some(Level::Deny) | None => "error",
    };
    json!({
        "id": code.id,
        "shortDescription": { "text": code.title },
        "fullDescription": { "text": code.explanation },
        "help": { "text": code.explanation, "markdown": code.explanation },
        "defaultConfiguration": { "level": level },
    })
}

fn result(it: &Diagnostic) -> Map<String, Value> {
    let mut message = it.message.clone();
    let notes = it.notes.iter().map(|note| ("note", note)).chain(it.help.iter().map(|help| ("help", help)));
    for (kind, text) in notes {
        write!(message, "\n{kind}: {text}").expect("writing to a text cannot fail");
    }
    let mut location = json!({ "physicalLocation": physical(&it.place) });
    if !it.label.is_empty() {
        location["message"] = json!({ "text": it.label });
    }
    let mut result = Map::new();
    result.insert("ruleId".into(), json!(it.code.id));
    result.insert("level".into(), json!(it.severity.name()));
    result.insert("message".into(), json!({ "text": message }));
    result.insert("locations".into(), json!([location]));
    if !it.related.is_empty() {
        let related = it.related.iter().enumerate().map(|(id, (place, label))| {
            json!({ "id": id, "physicalLocation": physical(place), "message": { "text": label } })
        });
        result.insert("relatedLocations".into(), related.collect());
    }
    if it.stands_for > 1 {
        result.insert("occurrenceCount".into(), json!(it.stands_for));
    }
    if let Some(fix) = &it.fix {
        let replacement =
            json!({ "deletedRegion": region(&it.place, &fix.span), "insertedContent": { "text": fix.text } });
        let description = it.help.as_deref().unwrap_or("change the text");
        result.insert(
            "fixes".into(),
            json!([{
                "description": { "text": description },
                "artifactChanges": [{ "artifactLocation": { "uri": uri(&it.place) }, "replacements": [replacement] }],
            }]),
        );
    }
    result
}

fn physical(place: &SourcePlace) -> Value {
    let mut physical = json!({ "artifactLocation": { "uri": uri(place) } });
    if let Some(span) = &place.span {
        physical["region"] = region(place, span);
    }
    physical
}

fn region(place: &SourcePlace, span: &Span) -> Value {
    let (start, end) = (place.source.position(span.start), place.source.position(span.end));
    json!({ "startLine": start.0, "startColumn": start.1, "endLine": end.0, "endColumn": end.1 })
}

/// Writes a file's name as a URI reference, relative to the working directory of the command.
fn uri(place: &SourcePlace) -> String {
    let mut uri = String::new();
    for byte in place.source.name.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => uri.push(char::from(byte)),
            other => write!(uri, "%{other:02X}").expect("writing to a text cannot fail"),
        }
    }
    uri
}

/// Returns a fingerprint of a finding that does not change when lines above it are added or removed. It covers the code, the
/// file, the message, the text of the line, and a number that tells equal findings apart.
fn fingerprint(it: &Diagnostic, seen: &mut BTreeMap<String, usize>) -> String {
    let line = it.place.position().map_or("", |(line, _)| {
        it.place
            .source
            .text
            .get(it.place.source.line_start(line)..)
            .and_then(|rest| rest.lines().next())
            .unwrap_or_default()
    });
    let alike = [it.code.id, &it.place.source.name, &it.message, line.trim()].join("\n");
    let nth = seen.entry(alike.clone()).or_default();
    let fingerprint = Digest::of(format!("{alike}\n{nth}").as_bytes()).to_hex();
    *nth += 1;
    fingerprint
}
