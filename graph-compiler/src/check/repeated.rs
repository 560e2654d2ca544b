//! Lists of which each entry counts once name nothing twice.

use crate::analysis::model::Facts;
use crate::diagnostic::{Diagnostics, code};

pub(super) fn check(facts: &Facts<'_>, diagnostics: &mut Diagnostics) {
    let text = &facts.definition.source().text;
    for repeated in &facts.definition.repeated {
        let written = text.get(repeated.again.clone()).unwrap_or_default();
        diagnostics
            .lint(code::REPEATED, facts.place(&repeated.again), format!("{} lists `{written}` twice", repeated.whose))
            .related(facts.place(&repeated.first), "the first")
            .help("remove it, or write what was meant in its place");
    }
}
