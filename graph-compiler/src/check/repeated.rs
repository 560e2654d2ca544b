//! Lists in which each entry counts only once contain no duplicates.

use graph_definition::diagnostic::{Diagnostics, code};

use crate::analysis::Analysis;

pub(super) fn check(analysis: &Analysis<'_>, diagnostics: &mut Diagnostics) {
    let text = &analysis.model.definition.source().text;
    for repeated in &analysis.model.definition.repeated {
        let written = text.get(repeated.again.clone()).unwrap_or_default();
        diagnostics
            .lint(
                code::REPEATED,
                analysis.model.place(&repeated.again),
                format!("{} lists `{written}` twice", repeated.whose),
            )
            .related(analysis.model.place(&repeated.first), "the first")
            .help("remove it, or write what was meant in its place");
    }
}
