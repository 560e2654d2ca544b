//! Reads the parts of a tree, and reports mistakes in its shape.

use std::sync::Arc;
use std::time::Duration;

use graph_compiler::diagnostic::{Diagnostic, DiagnosticCode, Diagnostics, SourcePlace, code, nearest};
use graph_compiler::source::{SourceFile, Span};
use graph_compiler::tree::{TreeKey, TreeNode, YamlTree};
use graph_model::duration;

/// A value with its place in a file.
#[derive(Debug, Clone, PartialEq)]
pub struct PlacedValue<T> {
    /// The value.
    pub value: T,
    /// Its bytes in the text.
    pub span: Span,
}

impl<T> PlacedValue<T> {
    /// A value at a place.
    pub fn new(value: T, span: Span) -> Self {
        Self { value, span }
    }
}

/// The fields of a mapping.
#[derive(Clone, Copy)]
pub(super) struct MappingFields<'t> {
    entries: &'t [(TreeKey, YamlTree)],
    /// The mapping itself.
    tree: &'t YamlTree,
}

impl<'t> MappingFields<'t> {
    /// Returns the value of a field; a field without a value counts as absent.
    pub(super) fn get(&self, name: &str) -> Option<&'t YamlTree> {
        self.entries
            .iter()
            .find(|(key, _)| key.name == name)
            .map(|(_, value)| value)
            .filter(|value| value.node != TreeNode::Null)
    }

    /// Returns a field whose value may be null.
    pub(super) fn entry(&self, name: &str) -> Option<&'t (TreeKey, YamlTree)> {
        self.entries.iter().find(|(key, _)| key.name == name)
    }

    pub(super) fn entries(&self) -> &'t [(TreeKey, YamlTree)] {
        self.entries
    }

    pub(super) fn span(&self) -> Span {
        self.tree.span.clone()
    }
}

/// Reads trees and collects their mistakes.
pub(super) struct TestReader<'a> {
    pub(super) source: &'a Arc<SourceFile>,
    pub(super) diagnostics: &'a mut Diagnostics,
}

impl TestReader<'_> {
    pub(super) fn error(&mut self, code: DiagnosticCode, span: Span, message: impl Into<String>) -> &mut Diagnostic {
        self.diagnostics.error(code, SourcePlace::new(self.source, first_line(self.source, span)), message)
    }

    fn wrong_shape(&mut self, tree: &YamlTree, what: &str, needed: &str) {
        let found = tree.describe();
        let message = format!("{what} is {needed}, not {found}");
        self.error(code::SHAPE, tree.span.clone(), message).label(format!("this is {found}"));
    }

    pub(super) fn map<'t>(&mut self, tree: &'t YamlTree, what: &str, known: &[&str]) -> Option<MappingFields<'t>> {
        let TreeNode::Map(entries) = &tree.node else {
            self.wrong_shape(tree, what, "a mapping");
            return None;
        };
        for (key, _) in entries.iter().filter(|(key, _)| !known.is_empty() && !known.contains(&key.name.as_str())) {
            let message = format!("{what} has no field `{}`", key.name);
            let is_near = nearest(&key.name, known.iter().copied()).is_some();
            let diagnostic = self.error(code::UNKNOWN_FIELD, key.span.clone(), message);
            diagnostic.label("unknown field").suggest(&key.name, known.iter().copied());
            if !is_near {
                let list: Vec<String> = known.iter().map(|name| format!("`{name}`")).collect();
                diagnostic.note(format!("its fields are {}", list.join(", ")));
            }
        }
        Some(MappingFields { entries, tree })
    }

    pub(super) fn list<'t>(&mut self, tree: &'t YamlTree, what: &str) -> Option<&'t [YamlTree]> {
        match &tree.node {
            TreeNode::List(list) => Some(list),
            _ => {
                self.wrong_shape(tree, what, "a list");
                None
            }
        }
    }

    pub(super) fn text(&mut self, tree: &YamlTree, what: &str) -> Option<PlacedValue<String>> {
        match &tree.node {
            TreeNode::String(text) => Some(PlacedValue::new(text.clone(), tree.span.clone())),
            _ => {
                self.wrong_shape(tree, what, "a string");
                None
            }
        }
    }

    /// Reads a list of strings.
    pub(super) fn texts(&mut self, tree: &YamlTree, what: &str) -> Option<Vec<PlacedValue<String>>> {
        let list = self.list(tree, what)?;
        let texts: Vec<_> = list.iter().filter_map(|one| self.text(one, &format!("each element of {what}"))).collect();
        (texts.len() == list.len()).then_some(texts)
    }

    /// Reads a whole number from `least` to `most`.
    pub(super) fn number(&mut self, tree: &YamlTree, what: &str, least: u64, most: u64) -> Option<u64> {
        let TreeNode::Number(number) = &tree.node else {
            self.wrong_shape(tree, what, "a whole number");
            return None;
        };
        let found = number.as_u64().filter(|number| (least..=most).contains(number));
        if found.is_none() {
            let message = format!("{what} is a whole number from {least} to {most}, not {number}");
            self.error(code::SHAPE, tree.span.clone(), message);
        }
        found
    }

    /// Reads a text that is one of a few words, each for a value.
    pub(super) fn word<T: Copy>(&mut self, tree: &YamlTree, what: &str, words: &[(&str, T)]) -> Option<T> {
        let text = self.text(tree, what)?;
        let place = SourcePlace::new(self.source, first_line(self.source, text.span));
        self.diagnostics.word(place, what, &text.value, words)
    }

    /// Reads a length of time, which may be 0.
    pub(super) fn duration(&mut self, tree: &YamlTree, what: &str) -> Option<Duration> {
        let (read, written) = match &tree.node {
            TreeNode::String(text) => (duration::parse(text), text.clone()),
            TreeNode::Number(number) => {
                (duration::seconds(number.as_f64().unwrap_or(f64::INFINITY)), number.to_string())
            }
            _ => {
                self.wrong_shape(tree, what, "a duration");
                return None;
            }
        };
        // A clock of the computer does not reach further, and neither does a stopped one.
        const LONGEST: Duration = Duration::from_secs(1000 * 366 * 24 * 60 * 60);
        let problem = match read {
            Ok(read) if read <= LONGEST => return Some(read),
            Ok(_) => "it is longer than a thousand years".to_owned(),
            Err(error) => error.to_string(),
        };
        self.error(code::BAD_DURATION, tree.span.clone(), format!("{what} is a duration, not `{written}`"))
            .note(problem)
            .help("write a number of seconds, or a text as `250ms`, `30s`, `2m`, `1h30m` or `14d`");
        None
    }

    /// Returns a field that is required, and reports its absence.
    pub(super) fn required<'t>(&mut self, fields: MappingFields<'t>, whose: &str, name: &str) -> Option<&'t YamlTree> {
        let found = fields.get(name);
        if found.is_none() {
            self.error(code::MISSING_FIELD, fields.span(), format!("{whose} needs `{name}`"));
        }
        found
    }
}

/// Returns the part of a place on its first line: a whole mapping is too much to point at.
pub(crate) fn first_line(source: &SourceFile, span: Span) -> Span {
    let text = source.text.get(span.clone()).unwrap_or_default();
    span.start..span.start + text.find('\n').unwrap_or(text.len())
}
