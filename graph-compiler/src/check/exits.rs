//! What the ends of a graph return can be written as types.

use crate::analysis::inference::{MOST_RETURNED, returned_keys};
use crate::analysis::model::Facts;
use crate::diagnostic::{Diagnostics, Place, code};

pub(super) fn check(facts: &Facts<'_>, diagnostics: &mut Diagnostics) {
    if facts.is_whole() && returned_keys(facts, facts.web()) > MOST_RETURNED {
        diagnostics
            .error(
                code::TOO_DEEP,
                Place::file(facts.definition.source()),
                format!(
                    "the ends of the graph return more than {MOST_RETURNED} keys together: each returns the whole state"
                ),
            )
            .help("lead to return nodes with an `output`");
    }
}
