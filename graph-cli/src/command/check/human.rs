//! Findings for people: frames on stderr, the count on stdout.

use graph_compiler::diagnostic::Severity;

use super::CheckExtras;
use super::budget;
use super::findings::Findings;
use super::fix::Fixed;
use crate::output;

pub(super) fn report(findings: &Findings, fixed: &Fixed, extras: CheckExtras) {
    for finding in &findings.found {
        // Colours are left out where stderr is not a terminal.
        err_coloured!(finding.diagnostic);
    }
    if let Some(hint) = hint(findings) {
        err!("{hint}\n");
    }
    for line in fixed.lines() {
        out_text!("{line}");
    }
    if extras.budget {
        output::write_table(&budget::table(findings), usize::MAX);
        let approvals = budget::approvals(findings);
        if !approvals.is_empty() {
            out!("");
        }
        for approval in approvals {
            out!("{approval}");
        }
        out!("");
    }
    if extras.meaning {
        for (graph, meaning) in &findings.meanings {
            out!("{graph}: {}", meaning.map_or_else(|| "-".to_owned(), |meaning| meaning.to_hex()));
        }
        out!("");
    }
    out!("{}", summary(findings));
}

/// Returns a summary of the findings in one line.
fn summary(findings: &Findings) -> String {
    let found = match findings.counts() {
        (0, 0) => "no errors".to_owned(),
        (0, warnings) => format!("no errors, {}", count(warnings, "warning")),
        (errors, 0) => count(errors, "error"),
        (errors, warnings) => format!("{}, {}", count(errors, "error"), count(warnings, "warning")),
    };
    format!("checked {}: {found}", count(findings.graphs.len(), "graph"))
}

/// Returns a hint at the command that explains the first finding.
fn hint(findings: &Findings) -> Option<String> {
    let first = |severity| findings.found.iter().map(|finding| &finding.diagnostic).find(|it| it.severity == severity);
    let (found, what) = match (first(Severity::Error), first(Severity::Warning)) {
        (Some(error), _) => (error, "an error"),
        (None, warning) => (warning?, "a warning"),
    };
    Some(format!("for more about {what}, try `graph explain {}`", found.code.id))
}

pub(super) fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}
