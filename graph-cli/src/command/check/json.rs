//! Findings as one JSON document, whose format `docs/cli.md` describes.

use graph_compiler::code::Level;
use graph_compiler::diagnostic::{Fix, SourcePlace};
use graph_compiler::source::Span;
use serde_json::{Value, json};

use super::CheckExtras;
use super::budget;
use super::findings::{CheckFinding, Findings};
use super::fix::Fixed;

/// The version of the format. It changes when a field is removed or changes its meaning; a new field does not change it.
const VERSION: u32 = 1;

pub(super) fn document(findings: &Findings, fixed: &Fixed, extras: CheckExtras) -> Value {
    let (errors, warnings) = findings.counts();
    let mut document = json!({
        "version": VERSION,
        "graphs": findings.graphs,
        "diagnostics": findings.found.iter().map(diagnostic).collect::<Vec<_>>(),
        "fixed": fixed.changes().map(|(place, fix)| json!({
            "file": place.source.name,
            "span": span(&place, &fix.span),
            "text": fix.text,
        })).collect::<Vec<_>>(),
        "summary": { "graphs": findings.graphs.len(), "errors": errors, "warnings": warnings },
    });
    if extras.budget {
        document["budgets"] = budget::document(findings);
    }
    if extras.meaning {
        let meanings = findings.meanings.iter();
        let meanings = meanings
            .map(|(graph, meaning)| json!({"graph": graph, "meaning": meaning.map(|meaning| meaning.to_hex())}));
        document["meanings"] = meanings.collect();
    }
    document
}

fn diagnostic(finding: &CheckFinding) -> Value {
    let it = &finding.diagnostic;
    let label = Some(&it.label).filter(|label| !label.is_empty());
    let related = it.related.iter().map(|(place, label)| {
        json!({
            "file": place.source.name,
            "span": whole(place),
            "label": label,
        })
    });
    json!({
        "code": it.code.id,
        "title": it.code.title,
        "severity": it.severity.name(),
        "default_level": it.code.lint.map(Level::name),
        "message": it.message,
        "file": it.place.source.name,
        "span": whole(&it.place),
        "label": label,
        "related": related.collect::<Vec<_>>(),
        "notes": it.notes,
        "help": it.help,
        "fix": it.fix.as_ref().map(|fix| self::fix(&it.place, fix)),
        "graphs": finding.graphs,
        "stands_for": it.stands_for,
    })
}

fn fix(place: &SourcePlace, fix: &Fix) -> Value {
    json!({ "span": span(place, &fix.span), "text": fix.text, "certain": fix.is_certain })
}

/// Returns the span of a place; null for a whole file.
fn whole(place: &SourcePlace) -> Value {
    place.span.as_ref().map_or(Value::Null, |bytes| span(place, bytes))
}

fn span(place: &SourcePlace, bytes: &Span) -> Value {
    let position = |at| {
        let (line, column) = place.source.position(at);
        json!({ "line": line, "column": column })
    };
    json!({ "start": position(bytes.start), "end": position(bytes.end) })
}
