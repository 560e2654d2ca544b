//! The outputs of a graph's ends can be written as types.

use graph_definition::diagnostic::{Diagnostics, SourcePlace, code};

use crate::analysis::Analysis;
use crate::analysis::output::{MOST_RETURNED, returned_keys};

pub(super) fn check(analysis: &Analysis<'_>, diagnostics: &mut Diagnostics) {
    if analysis.model.is_whole() && returned_keys(&analysis.model, &analysis.control_flow) > MOST_RETURNED {
        diagnostics
            .error(
                code::TOO_DEEP,
                SourcePlace::file(analysis.model.definition.source()),
                format!(
                    "the ends of the graph return more than {MOST_RETURNED} keys together: each returns the whole state"
                ),
            )
            .help("lead to return nodes with an `output`");
    }
}
