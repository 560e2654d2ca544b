//! One mistake has one message. A diagnostic that only follows from another one is left out.
//!
//! Most rules say nothing of a value that is unknown because of a mistake. This file knows the other consequences:
//!
//! - A node, channel or hook with a field that could not be read may lack something only because of that field: see [`OF_BROKEN`].
//! - Some mistakes make others: see [`FOLLOWS`].
//! - Nothing is proven about the whole of a graph whose parts do not fit together: see [`PROOFS`].

use graph_definition::definition::Definition;
use graph_definition::diagnostic::{Diagnostic, DiagnosticCode, Diagnostics, Severity, code};

/// The part of a graph in which a mistake has consequences.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// The node with the mistake.
    Node,
    /// The whole graph.
    Graph,
}

/// Mistakes, each with the codes of its consequences.
const FOLLOWS: &[(DiagnosticCode, Reach, &[DiagnosticCode])] = &[
    // A setting may have an effect with the field that was meant.
    (code::UNKNOWN_FIELD, Reach::Graph, &[code::INERT_FIELD]),
    // An edge that is never followed leads nowhere.
    (code::SHADOWED_EDGE, Reach::Graph, &[code::NO_END, code::OUTSIDE_JOIN, code::BAD_JOIN]),
    (code::NO_START, Reach::Graph, &[code::UNREACHABLE, code::OUTSIDE_JOIN, code::NO_END]),
    // A value without a target may be the way to the nodes that nothing else leads to.
    (code::BAD_ROUTE_BY, Reach::Graph, &[code::UNREACHABLE, code::NO_END]),
    // Without its signals or its time, a wait has no result.
    (code::BAD_WAIT, Reach::Node, &[code::NO_RESULT, code::BAD_ROUTE_BY, code::UNKNOWN_FIELD_OF_VALUE]),
];

/// The codes of proofs about a whole graph.
const PROOFS: [DiagnosticCode; 4] = [code::UNAPPROVED, code::REWRITTEN, code::OVER_USAGE, code::TOO_LOW_LIMIT];

/// The codes of mistakes that may follow from a field that could not be read, where it is.
const OF_BROKEN: [DiagnosticCode; 12] = [
    code::MISSING_PARAMETER,
    code::MISSING_FIELD,
    code::NO_RESULT,
    code::UNKNOWN_FIELD_OF_VALUE,
    code::BAD_ROUTE_BY,
    code::RACING_WRITE,
    code::BAD_REDUCER,
    code::BAD_WAIT,
    code::BAD_ENTRY,
    code::BAD_SHARE,
    code::BAD_JOIN,
    code::UNREACHABLE,
];

/// The codes of mistakes that may follow where a part of `config` could not be read that declares names.
const OF_DECLARATIONS: [DiagnosticCode; 6] =
    [code::RACING_WRITE, code::BAD_SHARE, code::BAD_WRITE, code::BAD_RESET, code::BAD_KEEP, code::WRONG_TYPE];

/// Leaves out diagnostics that follow from other mistakes. The first `of_reading` diagnostics are those of reading the file.
pub(super) fn leave_out(definition: &Definition, of_reading: usize, diagnostics: &mut Diagnostics) {
    let mistakes = Mistakes::new(definition, diagnostics);
    diagnostics.retain_since(of_reading, |one| !mistakes.explain(one));
}

/// The mistakes in a graph that others may follow from.
struct Mistakes<'d> {
    definition: &'d Definition,
    /// Each with the index of its node.
    errors: Vec<(DiagnosticCode, Option<usize>)>,
    /// Whether its parts do not fit together.
    is_torn: bool,
    /// Whether a part of `config` that declares names could not be read.
    is_unclear: bool,
}

impl<'d> Mistakes<'d> {
    fn new(definition: &'d Definition, diagnostics: &Diagnostics) -> Self {
        let mut errors = Vec::new();
        for one in diagnostics.iter().filter(|one| is_own(definition, one)) {
            // A lint may be allowed: then nothing else would refuse the graph.
            if one.severity == Severity::Error && one.code.lint.is_none() {
                errors.push((one.code, node_at(definition, one)));
            }
        }
        let is_torn = errors.iter().any(|(code, _)| code.is_of_parts());
        let is_unclear = definition.is_complete && !definition.is_well_formed && definition.broken.is_empty();
        Self { definition, errors, is_torn, is_unclear }
    }

    /// Whether a diagnostic follows from one of these mistakes.
    fn explain(&self, one: &Diagnostic) -> bool {
        let Some(span) = one.place.span.as_ref().filter(|_| is_own(self.definition, one)) else { return false };
        if self.is_torn && PROOFS.contains(&one.code) || self.is_unclear && OF_DECLARATIONS.contains(&one.code) {
            return true;
        }
        if OF_BROKEN.contains(&one.code) && self.definition.broken.iter().any(|part| part.contains(&span.start)) {
            return true;
        }
        let node = node_at(self.definition, one);
        for (cause, reach, effects) in FOLLOWS {
            let mut causes = self.errors.iter().filter(|(code, _)| code == cause);
            if effects.contains(&one.code)
                && causes.any(|(_, at)| *reach == Reach::Graph || node.is_some() && *at == node)
            {
                return true;
            }
        }
        false
    }
}

fn is_own(definition: &Definition, one: &Diagnostic) -> bool {
    one.place.source.path == definition.source().path
}

/// Returns the index of the node that a diagnostic is about: the last one that begins before its place.
fn node_at(definition: &Definition, one: &Diagnostic) -> Option<usize> {
    let at = one.place.span.as_ref()?.start;
    // The start of several nodes is the last one, and has no place among them.
    let nodes = match definition.nodes.split_last() {
        Some((last, others)) if last.is_start() => others,
        _ => &definition.nodes,
    };
    nodes.partition_point(|node| node.name.span.start <= at).checked_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Otherwise a graph could allow a lint, and nothing would say what follows from it.
    #[test]
    fn no_cause_is_a_lint() {
        assert!(FOLLOWS.iter().all(|(cause, ..)| cause.lint.is_none()));
    }
}
