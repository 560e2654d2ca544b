//! The YAML gate: text to a tree of values with spans, read in one way only.
//!
//! One pass over the parser's events, without recursion and within limits. Every problem is reported, not only the first.
//! Text on which readers of YAML disagree is refused: a signed file must have one meaning. Then `reading` compares the
//! tree's value with the one that `serde_yaml` reads from the same text.

mod plain;
mod reading;

use std::sync::Arc;

use graph_model::character::out_of_place;
use graph_model::grammar::{self, Shape};
use graph_model::value::{Map, Value};
use saphyr_parser::{Event, Parser, ScalarStyle, ScanError};
use serde_json::Number;

use crate::diagnostic::{Diagnostic, DiagnosticCode, Diagnostics, SourcePlace, code};
use crate::hash::HashMap;
use crate::source::{SourceFile, Span};
use plain::{Plain, is_word, plain};

/// The maximum nesting depth of values.
pub const MOST_LEVELS: usize = 64;

/// The maximum number of values in a file.
pub const MOST_VALUES: usize = 500_000;

/// A value of the file, with its place.
#[derive(Debug, Clone, PartialEq)]
pub struct YamlTree {
    /// The bytes it was read from; an absent value has an empty span where it would be.
    pub span: Span,
    /// The value.
    pub node: TreeNode,
}

/// A value of the file.
#[derive(Debug, Clone, PartialEq)]
pub enum TreeNode {
    /// `null`, `~` or nothing.
    Null,
    /// `true` or `false`.
    Boolean(bool),
    /// A number; finite.
    Number(Number),
    /// A text.
    String(String),
    /// A list.
    List(Vec<YamlTree>),
    /// A mapping, in the order of the file; no name occurs twice.
    Map(Vec<(TreeKey, YamlTree)>),
}

/// The name of a field, with its place.
#[derive(Debug, Clone, PartialEq)]
pub struct TreeKey {
    /// The name.
    pub name: String,
    /// The bytes it was read from.
    pub span: Span,
}

impl AsRef<str> for TreeKey {
    fn as_ref(&self) -> &str {
        &self.name
    }
}

impl grammar::Tree for YamlTree {
    type Key = TreeKey;

    fn shape(&self) -> Shape<'_, Self> {
        match &self.node {
            TreeNode::Null | TreeNode::Boolean(_) | TreeNode::Number(_) => Shape::Scalar,
            TreeNode::String(text) => Shape::Text(text),
            TreeNode::List(list) => Shape::List(list),
            TreeNode::Map(_) => Shape::Map,
        }
    }

    fn fields(&self) -> impl Iterator<Item = (&TreeKey, &Self)> {
        let fields = if let TreeNode::Map(fields) = &self.node { fields.as_slice() } else { &[] };
        fields.iter().map(|(key, tree)| (key, tree))
    }
}

/// The contents of a file.
#[derive(Debug)]
pub struct YamlFile {
    /// The value.
    pub root: YamlTree,
    /// Whether everything that the file says is in the value: no alias, no merge key, no second key of the same name.
    pub is_whole: bool,
    /// Whether the first reading found no mistake.
    clean: bool,
}

impl YamlFile {
    /// The same file with another value: what it means.
    pub(crate) fn with_root(&self, root: YamlTree) -> Self {
        Self { root, is_whole: self.is_whole, clean: self.clean }
    }
}

impl YamlTree {
    /// Whether it is a text with a template in it.
    pub(crate) fn has_template(&self) -> bool {
        matches!(&self.node, TreeNode::String(text) if text.contains("${"))
    }

    /// Returns the value without places.
    pub fn to_value(&self) -> Value {
        match &self.node {
            TreeNode::Null => Value::Null,
            TreeNode::Boolean(value) => Value::Bool(*value),
            TreeNode::Number(value) => Value::Number(value.clone()),
            TreeNode::String(value) => Value::String(value.clone()),
            TreeNode::List(list) => list.iter().map(Self::to_value).collect(),
            TreeNode::Map(map) => {
                let fields: Map<String, Value> =
                    map.iter().map(|(key, value)| (key.name.clone(), value.to_value())).collect();
                Value::Object(fields)
            }
        }
    }

    /// Says what kind of value this is, as in "a list".
    pub fn describe(&self) -> &'static str {
        match &self.node {
            TreeNode::Null => "nothing",
            TreeNode::Boolean(_) => "a boolean",
            TreeNode::Number(number) if number.is_f64() => "a number",
            TreeNode::Number(_) => "an integer",
            TreeNode::String(_) => "a string",
            TreeNode::List(_) => "a list",
            TreeNode::Map(_) => "a mapping",
        }
    }
}

/// Reads a source as YAML.
///
/// Returns `None` if it could not be read; the mistakes are in `diagnostics`. A tree may be returned although there are
/// errors: it has the parts that could be read, so that further mistakes can be reported. A tree without errors is valid
/// only if [`read_again`] reports nothing either.
pub fn parse(source: &Arc<SourceFile>, diagnostics: &mut Diagnostics) -> Option<YamlFile> {
    if forbidden_characters(source, diagnostics) || directives(source, diagnostics) {
        return None;
    }
    let before = diagnostics.len();
    let mut builder = TreeBuilder::new(source, diagnostics);
    for event in Parser::new_from_str(&source.text) {
        match event {
            Ok((event, span)) => {
                let span = builder.bytes.span(span.start.index(), span.end.index());
                builder.event(event, span)?;
            }
            Err(error) => {
                builder.syntax_error(&error);
                return None;
            }
        }
    }
    let (root, is_whole) = (builder.root, !builder.lost);
    let clean = diagnostics.len() == before;
    let Some(root) = root else {
        let message = format!("`{}` contains only comments", source.name);
        diagnostics.error(code::EMPTY, SourcePlace::file(source), message).help("write it, then sign it");
        return None;
    };
    Some(YamlFile { root, is_whole, clean })
}

/// Reads as much of a source as can be read, for an author who is still writing it. Mistakes are not reported.
///
/// Where the reader stops, that line or the one before it is left out and the source is read again, a few times; after
/// that, the part before the stop is the result. The returned source has blanks in place of the lines that were left out,
/// so that the rest keeps its place.
pub fn parse_unfinished(source: &Arc<SourceFile>) -> Option<(Arc<SourceFile>, YamlFile)> {
    const LINES: usize = 8;
    let (mut attempt, mut last) = (Arc::clone(source), None);
    let mut stopped = match stops_at(&attempt) {
        Ok(file) => return Some((attempt, file)),
        Err(stopped) => stopped,
    };
    for _ in 0..LINES {
        if let Some(file) = read_until_it_stops(&attempt) {
            last = Some((Arc::clone(&attempt), file));
        }
        let here = stopped.and_then(|at| written_line(&attempt.text, at));
        let before = here.as_ref().and_then(|line| written_line(&attempt.text, line.start.checked_sub(1)?));
        let mut furthest = None;
        for line in [here, before].into_iter().flatten() {
            let mut text = attempt.text.clone();
            text.replace_range(line.clone(), &" ".repeat(line.len()));
            let without = SourceFile::new(source.path.clone(), source.name.clone(), &text);
            match stops_at(&without) {
                Ok(file) => return Some((without, file)),
                Err(at) if furthest.as_ref().is_none_or(|(furthest, _)| at > *furthest) => {
                    furthest = Some((at, without));
                }
                Err(_) => {}
            }
        }
        let Some((at, without)) = furthest else { break };
        (stopped, attempt) = (at, without);
    }
    last
}

/// Reads a source.
///
/// # Errors
///
/// The place where the reading stopped, if that is known.
fn stops_at(source: &Arc<SourceFile>) -> Result<YamlFile, Option<usize>> {
    let mut problems = Diagnostics::new();
    let file = parse(source, &mut problems);
    file.ok_or_else(|| problems.last().and_then(|problem| problem.place.span.as_ref()).map(|span| span.start))
}

/// Returns the line at `at`, or the next one before it that is not blank.
fn written_line(text: &str, at: usize) -> Option<Span> {
    let at = text.floor_char_boundary(at.min(text.len()));
    let starts = text[..at].rmatch_indices('\n').map(|(newline, _)| newline + 1).chain([0]);
    let mut lines = starts.map(|start| start..start + text[start..].find('\n').unwrap_or(text.len() - start));
    lines.find(|line| !text[line.clone()].trim().is_empty())
}

/// Reads a source up to where its reader stops, as if all open collections were closed there.
fn read_until_it_stops(source: &Arc<SourceFile>) -> Option<YamlFile> {
    let mut ignored = Diagnostics::new();
    let mut builder = TreeBuilder::new(source, &mut ignored);
    for event in Parser::new_from_str(&source.text) {
        let Ok((event, span)) = event else { break };
        let span = builder.bytes.span(span.start.index(), span.end.index());
        if builder.event(event, span).is_none() {
            break;
        }
    }
    builder.close();
    builder.root.take().map(|root| YamlFile { root, is_whole: false, clean: false })
}

/// Reads the text a second time, with `serde_yaml`, and reports where that reads another value.
///
/// A file in which [`parse`] found a mistake is not read again: the first reading keeps hostile files away.
pub fn read_again(source: &Arc<SourceFile>, file: &YamlFile) -> Option<Diagnostic> {
    if file.clean { reading::compare(source, &file.root) } else { None }
}

/// Reports characters that can make a file look other than it is (Unicode Technical Report 36).
fn forbidden_characters(source: &Arc<SourceFile>, diagnostics: &mut Diagnostics) -> bool {
    const SHOWN: usize = 10;
    let is_control =
        |character: char| matches!(character, '\u{0}'..='\u{8}' | '\u{b}'..='\u{1f}' | '\u{7f}'..='\u{9f}');
    let text = &source.text;
    // Nearly all files have only such bytes, and this loop checks many of them at a time.
    let is_plain = text.bytes().fold(true, |all, byte| all & ((b' '..0x7f).contains(&byte) | (byte == b'\n')));
    if is_plain {
        return false;
    }
    let mut found: Vec<(usize, char)> =
        text.char_indices().filter(|&(_, character)| is_control(character)).take(SHOWN).collect();
    if !text.is_ascii() {
        // A byte order mark may come first.
        let is_mark = |(at, character): &(usize, char)| *at == 0 && *character == '\u{feff}';
        found.extend(out_of_place(text).filter(|one| !is_mark(one)).take(SHOWN));
        found.sort_unstable();
    }
    for &(at, character) in found.iter().take(SHOWN) {
        let place = SourcePlace::new(source, at..at + character.len_utf8());
        let message = format!("the character U+{:04X} must not be in a graph", u32::from(character));
        diagnostics
            .error(code::FORBIDDEN_CHARACTER, place, message)
            .label(format!("U+{:04X} is here", u32::from(character)))
            .help("remove it; if it is meant, write it as an escape in a double-quoted text");
    }
    !found.is_empty()
}

/// Reports directives, which change how a reader reads the rest.
fn directives(source: &Arc<SourceFile>, diagnostics: &mut Diagnostics) -> bool {
    let text = &source.text;
    let mut at = if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
    for line in text[at..].split_inclusive('\n') {
        if line.starts_with('%') {
            let place = SourcePlace::new(source, at..at + line.trim_end().len());
            diagnostics
                .error(code::YAML_FEATURE, place, "a directive changes how the file is read, which graphs do not use")
                .label("directive")
                .help("remove the line; graphs are YAML 1.2");
            return true;
        }
        if !line.trim().is_empty() && !line.starts_with('#') {
            return false;
        }
        at += line.len();
    }
    false
}

/// Finds a text without quotes, between two places or on the line of the second, that YAML reads as something else: a template, or
/// one that begins with a sign.
fn unquoted(text: &str, from: usize, to: usize) -> Option<&str> {
    let end = text[to..].find('\n').map_or(text.len(), |newline| to + newline);
    // The parser may stop at the beginning of the next line.
    let part = &text[from.min(to)..end];
    let mut last = None;
    for (at, sign) in part.match_indices(['$', '*', '@', '`', '%', '#']) {
        let before = part[..at].trim_end_matches(' ');
        let begins = before.is_empty() || before.ends_with([':', ',', '[', '{', '-']);
        let rest = &part[at..];
        let (is_text, length) = match sign {
            "$" => (rest.starts_with("${"), rest.find('}').map(|end| end + 1)),
            // A `#` that a letter or digit follows was probably meant as text.
            "#" => (rest[1..].starts_with(|c: char| c.is_alphanumeric()), None),
            _ => (true, None),
        };
        let length = length.or_else(|| rest.find([',', ']', '}', ' ', '\n'])).unwrap_or(rest.len());
        if begins && is_text && last.is_none() {
            last = Some(&rest[..length]);
        }
    }
    last
}

/// Turns the parser's character indices into byte offsets, in one forward pass.
struct Bytes<'t> {
    text: &'t str,
    ascii: bool,
    characters: usize,
    bytes: usize,
}

impl<'t> Bytes<'t> {
    fn new(text: &'t str) -> Self {
        Self { text, ascii: text.is_ascii(), characters: 0, bytes: 0 }
    }

    fn at(&mut self, character: usize) -> usize {
        if self.ascii {
            return character.min(self.text.len());
        }
        if character < self.characters {
            // Events come in order except for a token or two, so going back is short.
            let back = self.characters - character;
            let from = self.text[..self.bytes].char_indices().rev().nth(back - 1).map_or(0, |(at, _)| at);
            (self.characters, self.bytes) = (character, from);
        }
        let forward = character - self.characters;
        let rest = &self.text[self.bytes..];
        let step = rest.char_indices().nth(forward).map_or(rest.len(), |(at, _)| at);
        (self.characters, self.bytes) = (character, self.bytes + step);
        self.bytes
    }

    fn span(&mut self, start: usize, end: usize) -> Span {
        let start = self.at(start);
        start..self.at(end).max(start)
    }
}

/// A collection that is being read.
enum Open {
    List {
        items: Vec<YamlTree>,
        start: usize,
    },
    /// The key is the one whose value comes next, with a flag whether the mapping stores it.
    Map {
        fields: Vec<(TreeKey, YamlTree)>,
        key: Option<(TreeKey, bool)>,
        names: FieldNames,
        start: usize,
    },
}

impl Open {
    /// Returns where it begins.
    fn start(&self) -> usize {
        match self {
            Self::List { start, .. } | Self::Map { start, .. } => *start,
        }
    }
}

/// The names of a mapping's fields, to find one that occurs twice. The first few are searched in order; the places of the
/// others are in a map.
#[derive(Default)]
struct FieldNames(HashMap<String, Span>);

impl FieldNames {
    /// The number of names that are searched in order.
    const FEW: usize = 16;

    /// Returns the place where a name occurred before, if it did.
    fn first(&self, fields: &[(TreeKey, YamlTree)], name: &str) -> Option<Span> {
        match self.0.get(name) {
            Some(span) => Some(span.clone()),
            None => {
                let mut few = fields.iter().take(Self::FEW);
                few.find(|(key, _)| key.name == name).map(|(key, _)| key.span.clone())
            }
        }
    }

    /// Adds the name of one more field, behind `fields`.
    fn add(&mut self, fields: &[(TreeKey, YamlTree)], key: &TreeKey) {
        if fields.len() >= Self::FEW {
            self.0.insert(key.name.clone(), key.span.clone());
        }
    }
}

struct TreeBuilder<'s, 'd> {
    source: &'s Arc<SourceFile>,
    diagnostics: &'d mut Diagnostics,
    bytes: Bytes<'s>,
    open: Vec<Open>,
    root: Option<YamlTree>,
    values: usize,
    documents: usize,
    /// Whether something was left out of the tree.
    lost: bool,
}

impl<'s, 'd> TreeBuilder<'s, 'd> {
    fn new(source: &'s Arc<SourceFile>, diagnostics: &'d mut Diagnostics) -> Self {
        let bytes = Bytes::new(&source.text);
        Self { source, diagnostics, bytes, open: Vec::new(), root: None, values: 0, documents: 0, lost: false }
    }

    fn error(&mut self, code: DiagnosticCode, message: impl Into<String>, span: Span) -> &mut Diagnostic {
        self.diagnostics.error(code, SourcePlace::new(self.source, span), message)
    }

    fn syntax_error(&mut self, error: &ScanError) {
        let at = self.bytes.at(error.marker().index()).min(self.source.text.len());
        // The parser often stops at the end of the line before, or of the file: point at a character that is there.
        let length = self.source.text[at..].chars().next().map_or(0, char::len_utf8);
        // The parser reads ahead, so that its own limit may come before ours.
        if error.info().contains("recursion limit") {
            self.too_deep(at..at + length);
            return;
        }
        let message = format!("this is not YAML: {}", error.info());
        let tabs = self.source.text.lines().any(|line| line.trim_start_matches(' ').starts_with('\t'));
        // The parser notices a missing bracket only far behind the place where it belongs.
        let open = self.open.iter().rev().map(Open::start);
        let bracket = open.into_iter().find(|&start| self.source.text[start..].starts_with(['{', '[']));
        let opened = bracket.map(|start| SourcePlace::new(self.source, start..start + 1));
        let from = bracket.unwrap_or_else(|| self.source.text[..at].rfind('\n').map_or(0, |newline| newline + 1));
        let unquoted = unquoted(&self.source.text, from, at);
        let diagnostic = self.error(code::YAML, message, at..at + length).label("the parser stopped here");
        if let Some(opened) = opened {
            diagnostic.related(opened, "opened here, and not closed yet");
        }
        if tabs {
            diagnostic.help("tabs cannot indent in YAML: use spaces");
        } else if let Some(text) = unquoted {
            diagnostic.help(format!("put the text in quotes: `\"{text}\"`"));
        } else if error.info().contains("mapping values are not allowed") {
            diagnostic.help("a text with `: ` in it needs quotes");
        }
    }

    fn too_deep(&mut self, span: Span) {
        self.error(code::TOO_DEEP, format!("values nest deeper than {MOST_LEVELS} levels"), span)
            .label("too deep")
            .help("do not put data of this depth into a graph: let a tool read it from a file");
    }

    /// Handles one event; `None` if reading further makes no sense.
    fn event(&mut self, event: Event<'_>, span: Span) -> Option<()> {
        match event {
            Event::DocumentStart(_) => {
                self.documents += 1;
                if self.documents > 1 {
                    self.error(code::YAML_FEATURE, "a graph is one YAML document, and a second one begins here", span)
                        .label("second document")
                        .help("put it into a file of its own");
                    return None;
                }
            }
            Event::Scalar(text, style, anchor, tag) => {
                self.refuse(anchor, tag.is_some(), &span);
                if self.expects_key() {
                    self.key(text.into_owned(), style, span);
                } else {
                    let node = self.scalar(text.into_owned(), style, &span);
                    self.complete(YamlTree { span, node })?;
                }
            }
            Event::Alias(_) => {
                self.error(
                    code::YAML_FEATURE,
                    "an alias repeats a value from elsewhere, which graphs do not use",
                    span.clone(),
                )
                .label("alias")
                .help("write the value out");
                self.lost = true;
                if self.expects_key() {
                    return None;
                }
                self.complete(YamlTree { span, node: TreeNode::Null })?;
            }
            Event::SequenceStart(anchor, tag) => {
                self.refuse(anchor, tag.is_some(), &span);
                self.descend(Open::List { items: Vec::new(), start: span.start }, &span)?;
            }
            Event::MappingStart(anchor, tag) => {
                self.refuse(anchor, tag.is_some(), &span);
                let map = Open::Map { fields: Vec::new(), key: None, names: FieldNames::default(), start: span.start };
                self.descend(map, &span)?;
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let tree = match self.open.pop()? {
                    Open::List { items, start } => {
                        let end = self.end(items.last().map(|item| item.span.end), &span, b']');
                        YamlTree { span: start..end.max(start), node: TreeNode::List(items) }
                    }
                    Open::Map { fields, start, .. } => {
                        let end = self.end(fields.last().map(|(_, value)| value.span.end), &span, b'}');
                        YamlTree { span: start..end.max(start), node: TreeNode::Map(fields) }
                    }
                };
                self.complete(tree)?;
            }
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => {}
        }
        Some(())
    }

    /// Completes all open collections, each with the values that it has so far.
    fn close(&mut self) {
        while let Some(open) = self.open.pop() {
            let tree = match open {
                Open::List { items, start } => {
                    let end = items.last().map_or(start, |item| item.span.end);
                    YamlTree { span: start..end.max(start), node: TreeNode::List(items) }
                }
                Open::Map { mut fields, key, start, .. } => {
                    if let Some((key, _)) = key {
                        let end = key.span.end;
                        fields.push((key, YamlTree { span: end..end, node: TreeNode::Null }));
                    }
                    let end = fields.last().map_or(start, |(_, value)| value.span.end);
                    YamlTree { span: start..end.max(start), node: TreeNode::Map(fields) }
                }
            };
            if self.complete(tree).is_none() {
                return;
            }
        }
    }

    /// Returns the end of a collection: behind its bracket, or, in block style, the end of its last element.
    ///
    /// The parser includes spaces behind a bracket in the collection.
    fn end(&self, last: Option<usize>, span: &Span, bracket: u8) -> usize {
        let closes = !span.is_empty() && self.source.text.as_bytes().get(span.start) == Some(&bracket);
        match last {
            _ if closes => span.start + 1,
            Some(last) => last,
            None => span.end,
        }
    }

    fn refuse(&mut self, anchor: usize, tag: bool, span: &Span) {
        if anchor != 0 {
            self.error(
                code::YAML_FEATURE,
                "an anchor names a value for aliases, which graphs do not use",
                span.clone(),
            )
            .label("anchored value")
            .help("remove the `&name`");
        }
        if tag {
            self.error(code::YAML_FEATURE, "a tag changes how a value is read, which graphs do not use", span.clone())
                .label("tagged value")
                .help("remove the `!tag`");
        }
    }

    fn descend(&mut self, collection: Open, span: &Span) -> Option<()> {
        let span = span.start..span.start + usize::from(span.start < self.source.text.len());
        let span = span.start..self.source.text.ceil_char_boundary(span.end);
        if self.expects_key() {
            self.error(code::YAML_FEATURE, "a key must be a text, and this one is a list or a mapping", span)
                .label("key")
                .help("write a text");
            return None;
        }
        if self.open.len() >= MOST_LEVELS {
            self.too_deep(span);
            return None;
        }
        self.open.push(collection);
        Some(())
    }

    fn expects_key(&self) -> bool {
        matches!(self.open.last(), Some(Open::Map { key: None, .. }))
    }

    fn key(&mut self, name: String, style: ScalarStyle, span: Span) {
        let is_merge = style == ScalarStyle::Plain && name == "<<";
        if style == ScalarStyle::Plain {
            if is_merge {
                self.error(
                    code::YAML_FEATURE,
                    "a merge key copies fields from elsewhere, which graphs do not use",
                    span.clone(),
                )
                .label("merge key")
                .help("write the fields out");
            } else if !matches!(plain(&name), Some(Plain::Text)) && !is_word(&name) {
                let message = format!("the key `{name}` is not a text to every YAML reader");
                let place = SourcePlace::new(self.source, span.clone());
                if let Some(diagnostic) = self.diagnostics.error_once(code::AMBIGUOUS_SCALAR, place, message) {
                    diagnostic
                        .help(format!("put it in quotes: `\"{name}\"`"))
                        // The name of a field is a text, so it can mean nothing else.
                        .fix(format!("\"{name}\""), true);
                }
            }
        }
        let Some(Open::Map { key, names, fields, .. }) = self.open.last_mut() else { return };
        let first = names.first(fields, &name).filter(|_| !is_merge);
        let is_kept = !is_merge && first.is_none();
        self.lost |= !is_kept;
        let new = TreeKey { name, span };
        if let Some(first) = first {
            let place = SourcePlace::new(self.source, first);
            let message = format!("the key `{}` occurs twice", new.name);
            let again = SourcePlace::new(self.source, new.span.clone());
            self.diagnostics
                .error(code::DUPLICATE_KEY, again, message)
                .label("again here")
                .related(place, "first here")
                .help("remove or rename one");
        }
        *key = Some((new, is_kept));
    }

    fn scalar(&mut self, text: String, style: ScalarStyle, span: &Span) -> TreeNode {
        if style != ScalarStyle::Plain {
            return TreeNode::String(text);
        }
        match plain(&text) {
            Some(Plain::Value(node)) => return node,
            Some(Plain::Text) => return TreeNode::String(text),
            None => {}
        }
        let digits = text.strip_prefix('-').unwrap_or(&text);
        let is_too_large = digits.bytes().all(|byte| byte.is_ascii_digit()) && !digits.starts_with('0');
        let (message, label) = if is_too_large {
            (
                format!("the whole number `{text}` is beyond 64 bits"),
                "some YAML readers round it, others take it as a text",
            )
        } else {
            let message = format!("`{text}` is read differently by different YAML readers");
            (message, "a text to some, something else to others")
        };
        let place = SourcePlace::new(self.source, span.clone());
        if let Some(diagnostic) = self.diagnostics.error_once(code::AMBIGUOUS_SCALAR, place, message) {
            diagnostic
                .label(label)
                .help(format!("put it in quotes if it is a text: `\"{text}\"`"))
                .fix(format!("\"{text}\""), false);
        }
        if is_too_large {
            // It was meant as a number: no further mistake is reported for it.
            let near = if text.starts_with('-') { i64::MIN } else { i64::MAX };
            return TreeNode::Number(Number::from(near));
        }
        TreeNode::String(text)
    }

    fn complete(&mut self, tree: YamlTree) -> Option<()> {
        self.values += 1;
        if self.values > MOST_VALUES {
            self.error(code::TOO_DEEP, format!("the file holds more than {MOST_VALUES} values"), tree.span)
                .label("one too many")
                .help("do not put data of this size into a graph: let a tool read it from a file");
            return None;
        }
        match self.open.last_mut() {
            None => self.root = Some(tree),
            Some(Open::List { items, .. }) => items.push(tree),
            Some(Open::Map { fields, key, names, .. }) => {
                let (key, is_kept) = key.take().expect("a value in a mapping follows its key");
                // The second of two equal keys was reported, and so was a merge key. The tree keeps the first key, so
                // that it has one meaning.
                if is_kept {
                    names.add(fields, &key);
                    fields.push((key, tree));
                }
            }
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(text: &str) -> (Option<YamlTree>, Vec<String>) {
        let source = SourceFile::new("g.yaml", "g.yaml", text);
        let mut diagnostics = Diagnostics::new();
        let tree = parse(&source, &mut diagnostics).map(|file| {
            diagnostics.extend(read_again(&source, &file));
            file.root
        });
        let list = diagnostics.in_order("g.yaml");
        (tree, list.iter().map(|d| format!("{} {}: {}", d.code.id, d.location(), d.message)).collect())
    }

    fn value(text: &str) -> Value {
        let (tree, errors) = read(text);
        assert_eq!(errors, [""; 0], "{text}");
        tree.unwrap().to_value()
    }

    fn codes(text: &str) -> Vec<String> {
        read(text).1.iter().map(|line| line[..5].to_owned()).collect()
    }

    #[test]
    fn values_are_read_by_the_core_schema() {
        let text = "a: 1\nb: -2.5\nc: 1.0e+3\nd: [true, null, ~, x y]\ne: {f: 'it''s', \"g h\": \"\\n\"}\ni: |\n  one\n   two\nj: >-\n  a\n  b\nk:\nl: 18446744073709551615\nm: v1.0\nn: 1.2.3\no: -x\np: ${x}\n";
        assert_eq!(
            value(text),
            json!({"a": 1, "b": -2.5, "c": 1000.0, "d": [true, null, null, "x y"], "e": {"f": "it's", "g h": "\n"},
                   "i": "one\n two\n", "j": "a b", "k": null, "l": u64::MAX, "m": "v1.0", "n": "1.2.3", "o": "-x", "p": "${x}"})
        );
    }

    #[test]
    fn ambiguous_plain_scalars_are_refused_and_quoted_are_strings() {
        for scalar in [
            "yes",
            "No",
            "on",
            "y",
            "tRUE",
            "0777",
            "007",
            "1_000",
            "0x1F",
            "0o7",
            "0b1",
            ".inf",
            "-.INF",
            ".nan",
            "12:30",
            "1:2:3",
            "+1",
            "+1.5",
            "1.",
            ".5",
            "1e999",
            "1e3",
            "2026-11-23",
            "=",
            "<<",
            "1.5e-400",
            "1,000",
            "99999999999999999999",
        ] {
            assert_eq!(codes(&format!("a: {scalar}")), ["G0023"], "{scalar}");
            assert_eq!(value(&format!("a: \"{scalar}\"")), json!({"a": scalar}));
        }
        assert_eq!(value("yes: 1\non: 2"), json!({"yes": 1, "on": 2}), "nodes may be called so");
        assert_eq!(codes("1: a\ntrue: b\n: c\n"), ["G0023", "G0023", "G0023"]);
    }

    #[test]
    fn spans_point_at_what_was_read() {
        let text = "é: {b: [1, 'two']}\nc:\n  - x: y\n  - z\nd: |\n  text\ne:\n";
        let (tree, _) = read(text);
        let Some(YamlTree { node: TreeNode::Map(fields), span }) = tree else { panic!() };
        assert_eq!(&text[span], text.trim_end_matches([':', '\n']));
        let spans: Vec<&str> = fields
            .iter()
            .map(|(key, value)| {
                assert_eq!(&text[key.span.clone()], key.name);
                &text[value.span.clone()]
            })
            .collect();
        assert_eq!(spans[0], "{b: [1, 'two']}");
        assert_eq!(spans[1], "- x: y\n  - z");
        assert_eq!(spans[2].trim_end(), "text", "a block scalar begins with its text");
        assert_eq!(spans[3], "");
    }

    #[test]
    fn a_list_or_mapping_in_brackets_ends_behind_its_bracket() {
        let text = "a: { b: [x, y] , c: {d: e} }\nf: [ [1 ] ]\ng: { }\n";
        let (Some(YamlTree { node: TreeNode::Map(fields), .. }), _) = read(text) else { panic!() };
        let spans: Vec<&str> = fields.iter().map(|(_, value)| &text[value.span.clone()]).collect();
        assert_eq!(spans, ["{ b: [x, y] , c: {d: e} }", "[ [1 ] ]", "{ }"]);
        let (TreeNode::Map(inner), TreeNode::List(list)) = (&fields[0].1.node, &fields[1].1.node) else { panic!() };
        assert_eq!(&text[inner[0].1.span.clone()], "[x, y]");
        assert_eq!(&text[list[0].span.clone()], "[1 ]");
    }

    #[test]
    fn features_that_hide_values_are_refused_all_at_once() {
        let text = "a: &x 1\nb: *x\nc: !!str 1\n<<: {d: 1}\ne: 1\ne: 2\n";
        assert_eq!(codes(text), ["G0021", "G0021", "G0021", "G0021", "G0022"]);
        assert_eq!(codes("a: 1\n---\nb: 2\n"), ["G0021"]);
        assert_eq!(codes("? [a]\n: 1\n"), ["G0021"]);
        assert_eq!(codes("{*x : 1}"), ["G0020"]);
    }

    #[test]
    fn invalid_yaml_is_reported_with_its_place() {
        let (_, errors) = read("a: 1\nb: [1, 2\nc: 3\n");
        assert!(errors[0].starts_with("G0020 g.yaml:"), "{errors:?}");
        let (_, errors) = read("a:\n\tb: 1\n");
        assert!(errors[0].starts_with("G0020 g.yaml:2:2: this is not YAML"), "{errors:?}");
        assert_eq!(codes("a: 'x"), ["G0020"]);
        assert_eq!(codes("a: b: c"), ["G0020"]);
    }

    #[test]
    fn yaml_that_readers_read_differently_is_refused() {
        for text in ["a: { ?b: c, d: 1 }", "a: { ?b: c }", "a: { b: { ?c: d, e: [f] }, g: h }\ni: j"] {
            assert_eq!(codes(text), ["G0026"], "{text}");
        }
    }

    #[test]
    fn hostile_files_end_soon_and_in_an_error() {
        let bomb: String = (0..30).map(|i| format!("a{i}: &a{i} [*a{}, *a{}]\n", i - 1, i - 1)).collect();
        for text in [
            "[".repeat(100_000),
            "{a: ".repeat(100_000),
            "- ".repeat(100_000),
            "? ".repeat(100_000),
            "a: ".repeat(100_000),
            "&a ".repeat(100_000),
            "!!a ".repeat(100_000),
            "'".repeat(100_001),
            "\"\\".repeat(50_001),
            "#".repeat(1_000_000),
            "%YAML 9.9\n---\na: 1\n".to_owned(),
            "a: \u{202e}evil".to_owned(),
            "a: \u{7}\u{7}\u{7}\u{7}\u{7}\u{7}\u{7}\u{7}\u{7}\u{7}\u{7}\u{7}".to_owned(),
            "a: b\rc: d".to_owned(),
            "a: \u{85}b".to_owned(),
            bomb,
            "x\u{0}y".to_owned(),
        ] {
            let (tree, errors) = read(&text);
            assert!(!errors.is_empty() || tree.is_some_and(|tree| tree.node == TreeNode::Null), "{text:.40}");
        }
    }

    #[test]
    fn as_deep_as_allowed_is_read_and_one_deeper_is_not() {
        let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        assert!(read(&nested(MOST_LEVELS)).1.is_empty());
        assert_eq!(codes(&nested(MOST_LEVELS + 1)), ["G0025"]);
    }

    #[test]
    fn a_byte_order_mark_crlf_and_comments_do_not_matter() {
        assert_eq!(value("\u{feff}a: 1 # one\r\n# two\r\nb: |\r\n  x\r\n  y\r\n"), json!({"a": 1, "b": "x\ny\n"}));
    }
}
