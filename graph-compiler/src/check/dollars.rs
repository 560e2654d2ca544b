//! Texts hold no templates whose dollar sign is missing.

use graph_model::path::Path;

use super::facts::{Facts, Site, hook_terms, terms};
use crate::definition::{Term, TermKind, locate};
use crate::diagnostic::{Diagnostics, Fix, code};

pub(super) fn check(facts: &Facts<'_>, diagnostics: &mut Diagnostics) {
    for node in &facts.definition.nodes {
        let name = match &node.kind {
            crate::definition::NodeKind::Foreach(each) => Some(each.name.value.as_str()),
            _ => None,
        };
        for (site, term) in terms(node) {
            inside(facts, term, name.filter(|_| site == Site::Item), diagnostics);
        }
    }
    facts.definition.hooks.iter().flat_map(hook_terms).for_each(|term| inside(facts, term, None, diagnostics));
}

fn inside(facts: &Facts<'_>, term: &Term, local: Option<&str>, diagnostics: &mut Diagnostics) {
    let text = match &term.kind {
        TermKind::Literal(value) => value.as_str().unwrap_or_default(),
        TermKind::Template { text, .. } => text.as_str(),
        TermKind::List(list) => return list.iter().for_each(|term| inside(facts, term, local, diagnostics)),
        TermKind::Object(fields) => {
            return fields.iter().for_each(|(_, term)| inside(facts, term, local, diagnostics));
        }
        TermKind::Unreadable => return,
    };
    for (at, _) in text.match_indices('{').filter(|(at, _)| !text[..*at].ends_with('$')) {
        let Some(length) = text[at..].find('}') else { return };
        let path = &text[at + 1..at + length];
        // One word alone may be anything; a path with parts is not there by chance.
        let locals: Vec<&str> = local.into_iter().collect();
        let is_path = path.contains('.') && Path::parse_in(path, &locals).is_ok();
        if is_path {
            let span = locate(facts.definition.source(), &term.span, text, &(at..at + length + 1));
            let message = format!("`{{{path}}}` is no template but a text");
            diagnostics
                .lint(code::MISSING_DOLLAR, facts.place(&span), message)
                .label("stands there as it is")
                .help(format!("write `${{{path}}}`"))
                .fix = Some(Fix { span: span.clone(), text: format!("${{{path}}}"), is_certain: false });
        }
    }
}
