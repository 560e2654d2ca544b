//! Texts contain no templates in the syntax of other languages, and no templates whose dollar sign is missing.

use std::ops::Range;

use graph_definition::definition::{NodeKind, TermDefinition, TermKind, locate};
use graph_definition::diagnostic::{Diagnostics, Fix, code};
use graph_model::path::{Path, Root};
use graph_model::template::find;

use crate::analysis::Analysis;
use crate::analysis::reads::{Site, hook_terms, terms};
use crate::types::TypeKind;

/// The brackets of templates in other languages.
const BRACKETS: [(&str, &str); 3] = [("{{", "}}"), ("<%=", "%>"), ("<%", "%>")];

pub(super) fn check(analysis: &Analysis<'_>, diagnostics: &mut Diagnostics) {
    for (at, node) in analysis.model.definition.nodes.iter().enumerate() {
        let item = match &node.kind {
            NodeKind::Foreach(each) => Some(each.name.value.as_str()),
            _ => None,
        };
        for (site, term) in terms(node) {
            let item = item.filter(|_| site == Site::Item);
            TextPlace { analysis, node: at, site, item }.inside(term, diagnostics);
        }
    }
    for (at, hook) in analysis.model.definition.hooks.iter().enumerate() {
        let looked_at = TextPlace { analysis, node: at, site: Site::Hook, item: None };
        hook_terms(hook).into_iter().for_each(|term| looked_at.inside(term, diagnostics));
    }
}

/// The place of a text.
struct TextPlace<'f, 'd> {
    analysis: &'f Analysis<'d>,
    node: usize,
    site: Site,
    /// The item of a foreach.
    item: Option<&'d str>,
}

/// A part of a text that is meant to be a template.
struct MeantTemplate {
    range: Range<usize>,
    /// The path to write instead.
    path: String,
}

impl TextPlace<'_, '_> {
    fn inside(&self, term: &TermDefinition, diagnostics: &mut Diagnostics) {
        let text = match &term.kind {
            TermKind::Literal(value) => value.as_str().unwrap_or_default(),
            TermKind::Template { text, .. } => text.as_str(),
            TermKind::List(list) => return list.iter().for_each(|term| self.inside(term, diagnostics)),
            TermKind::Object(fields) => return fields.iter().for_each(|(_, term)| self.inside(term, diagnostics)),
            TermKind::Unreadable => return,
        };
        let mut found = self.in_brackets(text);
        found.extend(self.with_dollar(text));
        if matches!(term.kind, TermKind::Literal(_)) {
            found.extend(self.bare(text));
        }
        found.sort_by_key(|one| (one.range.start, std::cmp::Reverse(one.range.end)));
        let mut end = 0;
        for MeantTemplate { range, path } in found {
            if range.start < end {
                continue;
            }
            end = range.end;
            let span = locate(self.analysis.model.definition.source(), &term.span, text, &range);
            let message = format!("`{}` is a text, not a template", &text[range]);
            diagnostics
                .lint(code::MISSING_DOLLAR, self.analysis.model.place(&span), message)
                .label("used as it is written")
                .help(format!("write `${{{path}}}`"))
                .fix = Some(Fix { span: span.clone(), text: format!("${{{path}}}"), is_certain: false });
        }
    }

    /// Finds `{path}`, `{{ path }}` and `<%= path %>`.
    fn in_brackets(&self, text: &str) -> Vec<MeantTemplate> {
        let mut found = Vec::new();
        let bytes = text.as_bytes();
        // Most texts have no bracket; one pass finds that, whereas the searches below need one pass for each kind of bracket.
        let may_open = |at: usize| match bytes[at] {
            b'{' => at == 0 || bytes[at - 1] != b'$',
            b'<' => bytes.get(at + 1) == Some(&b'%'),
            _ => false,
        };
        if !(0..bytes.len()).any(may_open) {
            return found;
        }
        let mut add = |open: &str, close: &str, takes: &dyn Fn(&str) -> Option<String>| {
            let mut from = 0;
            while let Some(at) = find(&text[from..], open).map(|at| from + at) {
                // Without a closing bracket in the rest of the text, nothing more is in brackets.
                let Some(length) = text[at + open.len()..].find(close) else { break };
                let range = at..at + open.len() + length + close.len();
                let inside = text[at + open.len()..at + open.len() + length].trim();
                if !text[..at].ends_with('$')
                    && let Some(path) = takes(inside)
                {
                    found.push(MeantTemplate { range, path });
                }
                from = at + open.len();
            }
        };
        for (open, close) in BRACKETS {
            add(open, close, &|inside| self.paths(inside).or_else(|| self.name(inside)));
        }
        // A single word may mean anything, but a path with several parts is not there by chance, nor is a text that is nothing
        // but the name of an element.
        let is_element = |inside: &str| inside.len() + 2 == text.len() && self.is_local(inside);
        add("{", "}", &|inside| self.paths(inside).or_else(|| is_element(inside).then(|| inside.to_owned())));
        found
    }

    /// Finds `$inputs.name`, as shells and other languages write it.
    fn with_dollar(&self, text: &str) -> Vec<MeantTemplate> {
        let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.');
        let at_dollar = text.match_indices('$').filter(|(at, _)| !text[..*at].ends_with(['$', '\\']));
        let found = at_dollar.filter_map(|(at, _)| {
            let words = &text[at + 1..];
            let words = words[..words.find(|c: char| !is_part(c)).unwrap_or(words.len())].trim_end_matches('.');
            let path = self.path(words).filter(|_| self.is_there(words))?;
            Some(MeantTemplate { range: at..at + 1 + words.len(), path })
        });
        found.collect()
    }

    /// Reads a whole text as a path that lost its brackets.
    fn bare(&self, text: &str) -> Option<MeantTemplate> {
        let path = self.path(text).filter(|_| self.is_there(text))?;
        Some(MeantTemplate { range: 0..text.len(), path })
    }

    /// Returns the words as paths with parts, each of which falls back on the next, if they are such.
    fn paths(&self, words: &str) -> Option<String> {
        let paths: Option<Vec<String>> = words.split("||").map(|path| self.path(path.trim())).collect();
        paths.map(|paths| paths.join(" || "))
    }

    /// Whether a name is that of the item, or of the element of a branch that the node is visited in.
    fn is_local(&self, name: &str) -> bool {
        let Analysis { model, flow, .. } = self.analysis;
        let is_element = || flow.branches().argument(model, self.node, name).is_some_and(|fans| !fans.is_empty());
        self.item == Some(name) || (self.site != Site::Hook && is_element())
    }

    fn parse(&self, words: &str) -> Option<Path> {
        let root = words.split('.').next().unwrap_or_default();
        let locals: &[&str] = if self.is_local(root) { &[root] } else { &[] };
        Path::parse_in(words, locals).ok()
    }

    /// Returns the words as a path with parts, if they are one.
    fn path(&self, words: &str) -> Option<String> {
        (words.contains('.') && self.parse(words).is_some()).then(|| words.to_owned())
    }

    /// Returns the path of the input or key with this name.
    fn name(&self, word: &str) -> Option<String> {
        if self.analysis.model.input(word).is_some() {
            Some(format!("inputs.{word}"))
        } else {
            self.analysis.model.key(word).map(|_| format!("state.{word}"))
        }
    }

    /// Whether a path leads to something in the graph, so that the text is not the name of a file.
    fn is_there(&self, words: &str) -> bool {
        let Some(path) = self.parse(words) else { return false };
        match (path.root, path.segments.as_slice()) {
            (Root::Inputs, [name, ..]) => self.analysis.model.input(name).is_some(),
            (Root::State, [key, ..]) => self.analysis.model.key(key).is_some(),
            (Root::Visit, [part, ..]) => matches!(part.as_str(), "number" | "previous" | "branch"),
            (Root::Result, [part, ..]) => self
                .analysis
                .model
                .result_at(self.node, self.site)
                .is_some_and(|result| matches!(result.kind, TypeKind::Object(_)) && result.step(part).is_ok()),
            _ => false,
        }
    }
}
