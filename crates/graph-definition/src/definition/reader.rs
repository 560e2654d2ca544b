//! Reads the parts of a tree, and reports mistakes in its shape.

use std::collections::hash_map::Entry;
use std::fmt;
use std::sync::Arc;

use graph_model::character::is_plain_in_names;
use graph_model::name::NameError;

use super::patterns::{PatternProblem, Patterns};
use crate::diagnostic::{Diagnostic, Diagnostics, SourcePlace, code, nearest};
use crate::hash::HashMap;
use crate::source::{SourceFile, Span};
use crate::tree::{TreeKey, TreeNode, YamlTree};

/// A value with its place.
#[derive(Debug, Clone, PartialEq)]
pub struct Spanned<T> {
    /// The value.
    pub value: T,
    /// Its place in the file.
    pub span: Span,
}

impl<T: fmt::Display> fmt::Display for Spanned<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

/// The fields of a mapping.
pub(super) struct Fields<'t> {
    pub(super) entries: &'t [(TreeKey, YamlTree)],
    pub(super) span: Span,
}

impl<'t> Fields<'t> {
    /// Returns the names among `known` that no field has. A field with another name may be meant for one of them.
    fn absent<'k>(&self, known: &[&'k str]) -> impl Iterator<Item = &'k str> {
        known.iter().copied().filter(|name| !self.entries.iter().any(|(key, _)| key.name == *name))
    }

    /// Returns the value of a field; a field without a value counts as absent.
    pub(super) fn get(&self, name: &str) -> Option<&'t YamlTree> {
        let (_, value) = self.entries.iter().find(|(key, _)| key.name == name)?;
        (value.node != TreeNode::Null).then_some(value)
    }

    /// Returns the name of a field with its place.
    pub(super) fn key(&self, name: &str) -> Option<&'t TreeKey> {
        self.entries.iter().map(|(key, _)| key).find(|key| key.name == name)
    }
}

/// The names of fields in other versions of the format, each with its name here.
const OTHER_NAMES: [(&str, &str); 1] = [("cache", "cache_result")];

/// Reads trees and collects their mistakes.
pub(super) struct DefinitionReader<'a> {
    pub(super) source: &'a Arc<SourceFile>,
    pub(super) diagnostics: &'a mut Diagnostics,
    /// The regular expressions that were read.
    pub(super) patterns: Patterns,
    /// The values that lists name more than once.
    pub(super) repeated: Vec<Repeated>,
    /// The names of list elements in the branches of the graph. Whether a name is known at a place is checked later.
    pub(super) arguments: Vec<String>,
    /// Whether one of these names could not be read, so that an unknown name may be meant for it.
    pub(super) has_lost_names: bool,
}

/// A value that a list names more than once, without effect.
#[derive(Debug, Clone)]
pub struct Repeated {
    /// The list, as messages name it.
    pub whose: &'static str,
    /// The place of the first occurrence.
    pub first: Span,
    /// The place of the repetition.
    pub again: Span,
}

impl<'a> DefinitionReader<'a> {
    pub(super) fn new(source: &'a Arc<SourceFile>, diagnostics: &'a mut Diagnostics) -> Self {
        Self {
            source,
            diagnostics,
            patterns: Patterns::default(),
            repeated: Vec::new(),
            arguments: Vec::new(),
            has_lost_names: false,
        }
    }
}

impl DefinitionReader<'_> {
    pub(super) fn wrong_shape(&mut self, tree: &YamlTree, what: &str, needed: &str) -> &mut Diagnostic {
        let place = SourcePlace::new(self.source, tree.span.clone());
        let found = tree.describe();
        self.diagnostics
            .error(code::SHAPE, place, format!("{what} is {needed}, not {found}"))
            .label(format!("this is {found}"))
    }

    pub(super) fn map<'t>(&mut self, tree: &'t YamlTree, what: &str) -> Option<Fields<'t>> {
        match &tree.node {
            TreeNode::Map(entries) => Some(Fields { entries, span: tree.span.clone() }),
            _ => {
                self.wrong_shape(tree, what, "a mapping");
                None
            }
        }
    }

    pub(super) fn list<'t>(&mut self, tree: &'t YamlTree, what: &str) -> &'t [YamlTree] {
        match &tree.node {
            TreeNode::List(list) => list,
            _ => {
                self.wrong_shape(tree, what, "a list");
                &[]
            }
        }
    }

    /// Reads a field that is a string, or a list of strings; returns the trees of the strings. `needed` is the field's form in
    /// words.
    pub(super) fn one_or_list<'t>(&mut self, tree: &'t YamlTree, what: &str, needed: &str) -> &'t [YamlTree] {
        match &tree.node {
            TreeNode::String(_) => std::slice::from_ref(tree),
            TreeNode::List(list) => list,
            _ => {
                self.wrong_shape(tree, what, needed);
                &[]
            }
        }
    }

    pub(super) fn text(&mut self, tree: &YamlTree, what: &str) -> Option<Spanned<String>> {
        match &tree.node {
            TreeNode::String(text) => Some(Spanned { value: text.clone(), span: tree.span.clone() }),
            _ => {
                self.wrong_shape(tree, what, "a string");
                None
            }
        }
    }

    pub(super) fn integer(&mut self, tree: &YamlTree, what: &str) -> Option<i64> {
        match &tree.node {
            TreeNode::Number(number) if number.is_i64() => number.as_i64(),
            _ => {
                let found = self.wrong_shape(tree, what, "an integer");
                if tree.has_template() {
                    found.help(
                        "write the number, which is the same for each run; let a condition decide where a value does",
                    );
                }
                None
            }
        }
    }

    pub(super) fn boolean(&mut self, tree: &YamlTree, what: &str) -> Option<bool> {
        match tree.node {
            TreeNode::Boolean(value) => Some(value),
            _ => {
                self.wrong_shape(tree, what, "a boolean");
                None
            }
        }
    }

    /// Reads an integer that is at least `least` and at most `most`.
    pub(super) fn integer_in(&mut self, tree: &YamlTree, what: &str, least: u32, most: u32) -> Option<u32> {
        let number = self.integer(tree, what)?;
        match u32::try_from(number) {
            Ok(number) if (least..=most).contains(&number) => Some(number),
            _ => {
                let place = SourcePlace::new(self.source, tree.span.clone());
                self.diagnostics.error(code::SHAPE, place, format!("{what} is from {least} to {most}, not {number}"));
                None
            }
        }
    }

    /// Reads one of a few words; each stands for a value.
    pub(super) fn word<T: Copy>(&mut self, tree: &YamlTree, what: &str, words: &[(&str, T)]) -> Option<T> {
        let text = self.text(tree, what)?;
        self.diagnostics.word(SourcePlace::new(self.source, text.span), what, &text.value, words)
    }

    /// Reports invisible characters of a name.
    pub(super) fn visible(&mut self, name: &Spanned<String>, what: &str) {
        if let Some(character) = name.value.chars().find(|&character| !is_plain_in_names(character)) {
            let place = SourcePlace::new(self.source, name.span.clone());
            let message = format!(
                "{what} cannot contain {character:?}; it is made of characters that can be seen and plain spaces"
            );
            self.diagnostics.error(code::BAD_NAME, place, message);
        }
    }

    /// Notes which values a list names more than once, without a check whether they belong in the list.
    pub(super) fn note_repeated(&mut self, whose: &'static str, list: &[YamlTree]) {
        let mut known: HashMap<String, &Span> = HashMap::default();
        for tree in list {
            // The quotes distinguish texts from numbers of the same digits.
            match known.entry(tree.to_value().to_string()) {
                Entry::Occupied(first) => {
                    let (first, again) = ((*first.get()).clone(), tree.span.clone());
                    self.repeated.push(Repeated { whose, first, again });
                }
                Entry::Vacant(place) => {
                    place.insert(&tree.span);
                }
            }
        }
    }

    /// Checks the regular expression at `span`, and reports its mistake.
    pub(super) fn pattern(&mut self, pattern: &str, span: &Span) -> bool {
        let Err(problem) = self.patterns.check(pattern) else { return true };
        let place = SourcePlace::new(self.source, span.clone());
        match problem {
            PatternProblem::Syntax(reason) => self
                .diagnostics
                .error(code::BAD_REGEX, place, format!("this is not a regular expression: {reason}"))
                .note("patterns are those of the `regex` crate: without look-around and back-references"),
            PatternProblem::TooLarge => self
                .diagnostics
                .error(code::BAD_REGEX, place, "the pattern is too large: its repetitions make a program of it that is")
                .help("use smaller repetitions"),
            PatternProblem::TooLargeTogether => self
                .diagnostics
                .error(code::BAD_REGEX, place, "the patterns of this file are too large together")
                .help("use smaller repetitions, or `[a-z]` where not all letters of the world are meant"),
        };
        false
    }

    /// Returns the value of a required field. If it is absent, a field with a similar name is reported instead.
    pub(super) fn required<'t>(&mut self, fields: &Fields<'t>, whose: &str, name: &str) -> Option<&'t YamlTree> {
        let found = fields.get(name);
        if found.is_none() && !self.misspelt(fields, whose, &[name]) {
            let span = fields.key(name).map_or_else(|| first_line(self.source, &fields.span), |key| key.span.clone());
            let place = SourcePlace::new(self.source, span);
            self.diagnostics.error(code::MISSING_FIELD, place, format!("{whose} needs `{name}`"));
        }
        found
    }

    pub(super) fn required_text(&mut self, fields: &Fields<'_>, whose: &str, name: &str) -> Option<Spanned<String>> {
        let tree = self.required(fields, whose, name)?;
        self.text(tree, &format!("`{name}`"))
    }

    pub(super) fn optional_text(&mut self, fields: &Fields<'_>, name: &str) -> Option<Spanned<String>> {
        let tree = fields.get(name)?;
        self.text(tree, &format!("`{name}`"))
    }

    /// Reports templates in a value that is taken as it is written, and returns whether there is one. `what` names the value.
    pub(super) fn has_template(&mut self, tree: &YamlTree, what: &str, help: &str) -> bool {
        match &tree.node {
            TreeNode::String(text) => self.is_template(text, &tree.span, what, help),
            TreeNode::List(list) => list.iter().filter(|tree| self.has_template(tree, what, help)).count() > 0,
            TreeNode::Map(map) => map.iter().filter(|(_, tree)| self.has_template(tree, what, help)).count() > 0,
            _ => false,
        }
    }

    /// Reports a text that is taken as it is written, and that has a template in it. Returns whether it has.
    pub(super) fn is_template(&mut self, text: &str, span: &Span, what: &str, help: &str) -> bool {
        let has = text.contains("${") || text.contains("{input:");
        if has {
            let place = SourcePlace::new(self.source, span.clone());
            let message = format!("{what} is not computed");
            self.diagnostics.error(code::TEMPLATE_AS_TEXT, place, message).label("taken as it is written").help(help);
        }
        has
    }

    /// Makes a name of a text.
    pub(super) fn name<N>(
        &mut self,
        text: Spanned<String>,
        make: impl Fn(String) -> Result<N, NameError>,
    ) -> Option<Spanned<N>> {
        match make(text.value) {
            Ok(value) => Some(Spanned { value, span: text.span }),
            Err(error) => {
                let place = SourcePlace::new(self.source, text.span);
                self.diagnostics.error(code::BAD_NAME, place, error.to_string());
                None
            }
        }
    }

    /// Reports fields that are not `known`, except those that were `reported` already, and returns whether there was one:
    /// the field that was meant is then missing.
    pub(super) fn only(&mut self, fields: &Fields<'_>, whose: &str, known: &[&str], reported: &[&str]) -> bool {
        let is_unknown = |key: &TreeKey| !known.contains(&key.name.as_str()) && !reported.contains(&key.name.as_str());
        let mut found = false;
        for (key, _) in fields.entries.iter().filter(|(key, _)| is_unknown(key)) {
            self.unknown_field(key, whose, known, fields);
            found = true;
        }
        found
    }

    /// Reports fields that are not `known` but have a similar name.
    pub(super) fn slips(&mut self, fields: &Fields<'_>, whose: &str, known: &[&str]) {
        for (key, _) in fields.entries {
            if !known.contains(&key.name.as_str()) && nearest(&key.name, known.iter().copied()).is_some() {
                self.unknown_field(key, whose, known, fields);
            }
        }
    }

    /// Reports a field whose name is similar to that of a `missing` one; returns whether there is such a field.
    pub(super) fn misspelt(&mut self, fields: &Fields<'_>, whose: &str, missing: &[&str]) -> bool {
        let is_slip = |key: &&TreeKey| {
            !missing.contains(&key.name.as_str()) && nearest(&key.name, missing.iter().copied()).is_some()
        };
        let slip = fields.entries.iter().map(|(key, _)| key).find(is_slip);
        slip.iter().for_each(|key| self.unknown_field(key, whose, missing, fields));
        slip.is_some()
    }

    /// Reports an unknown field once: both the search for a missing field and the check for unknown fields may find it.
    pub(super) fn unknown_field(&mut self, key: &TreeKey, whose: &str, known: &[&str], beside: &Fields<'_>) {
        let place = SourcePlace::new(self.source, key.span.clone());
        let message = format!("{whose} has no field `{}`", key.name);
        let Some(diagnostic) = self.diagnostics.error_once(code::UNKNOWN_FIELD, place, message) else { return };
        diagnostic.label("unknown field").suggest(&key.name, beside.absent(known));
        if let (None, Some(name)) = (&diagnostic.help, nearest(&key.name, known.iter().copied())) {
            diagnostic.help(format!("remove it: `{name}` is there already"));
        }
        if let Some((_, name)) = OTHER_NAMES.iter().find(|(other, name)| *other == key.name && known.contains(name)) {
            diagnostic.help(format!("did you mean `{name}`?")).fix(*name, false);
        }
        if let Some(place) = super::home_of(whose, &key.name) {
            diagnostic.help(format!("`{}` belongs {place}", key.name)).fix = None;
        }
        if diagnostic.help.is_none() {
            let list: Vec<String> = known.iter().map(|name| format!("`{name}`")).collect();
            diagnostic.note(format!("its fields are {}", list.join(", ")));
        }
    }
}

/// The part of `span` on its first line: a whole mapping is too much to point at.
fn first_line(source: &SourceFile, span: &Span) -> Span {
    let text = &source.text[span.clone()];
    span.start..span.start + text.find('\n').unwrap_or(text.len())
}
