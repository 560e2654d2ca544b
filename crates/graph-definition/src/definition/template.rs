//! Values with templates in their texts, and the place of each path in the file.

use std::convert::Infallible;
use std::sync::Arc;

use graph_model::grammar::{self, Terms};
use graph_model::path::{Path, PathError, Root};
use graph_model::program::Event;
use graph_model::template::{Template, TemplateError, TemplateErrorReason};
use graph_model::term;
use graph_model::value::{Map, Value};

use super::reader::{DefinitionReader, Spanned};
use crate::diagnostic::{SourcePlace, code, nearest};
use crate::source::{SourceFile, Span};
use crate::tree::{TreeKey, YamlTree};

/// A value of the file with templates in its texts.
#[derive(Debug, Clone)]
pub struct TermDefinition {
    /// Its place in the file.
    pub span: Span,
    /// Its kind.
    pub kind: TermKind,
}

/// The kind of a [`TermDefinition`].
#[derive(Debug, Clone)]
pub enum TermKind {
    /// A text that could not be read. It was reported, and later rules ignore it.
    Unreadable,
    /// A value without expressions.
    Literal(Value),
    /// A text with expressions.
    Template {
        /// The text as the author wrote it.
        text: String,
        /// The same, read.
        template: Template,
    },
    /// A list of terms.
    List(Vec<TermDefinition>),
    /// An object of terms, in order.
    Object(Vec<(Spanned<String>, TermDefinition)>),
}

impl TermDefinition {
    /// Returns the value, if no text in it has templates.
    pub fn literal(&self) -> Option<Value> {
        match &self.kind {
            TermKind::Unreadable | TermKind::Template { .. } => None,
            TermKind::Literal(value) => Some(value.clone()),
            TermKind::List(list) => list.iter().map(Self::literal).collect::<Option<Vec<_>>>().map(Value::Array),
            TermKind::Object(fields) => {
                let field = |(key, term): &(Spanned<String>, Self)| Some((key.value.clone(), term.literal()?));
                fields.iter().map(field).collect::<Option<Map<_, _>>>().map(Value::Object)
            }
        }
    }

    /// Returns the value as the author wrote it, templates as texts; the runtime reads it again.
    pub fn to_value(&self) -> Value {
        match &self.kind {
            TermKind::Unreadable => Value::Null,
            TermKind::Literal(Value::String(text)) => Value::String(text.replace("${", "$${")),
            TermKind::Literal(value) => value.clone(),
            TermKind::Template { text, .. } => Value::String(text.clone()),
            TermKind::List(list) => list.iter().map(Self::to_value).collect(),
            TermKind::Object(fields) => {
                let fields: Map<String, Value> =
                    fields.iter().map(|(key, term)| (key.value.clone(), term.to_value())).collect();
                Value::Object(fields)
            }
        }
    }

    /// Returns the value as programs hold it.
    pub fn to_program(&self) -> term::Term {
        match &self.kind {
            TermKind::Unreadable => term::Term::default(),
            TermKind::Literal(value) => term::Term::Literal(value.clone()),
            TermKind::Template { text, template } => {
                term::Term::Template { text: text.clone(), template: template.clone() }
            }
            TermKind::List(list) => term::Term::List(list.iter().map(Self::to_program).collect()),
            TermKind::Object(fields) => {
                term::Term::Object(fields.iter().map(|(key, term)| (key.value.clone(), term.to_program())).collect())
            }
        }
    }

    /// Calls `visit` with each template of the term and the text it was read from.
    pub fn templates<'a>(&'a self, visit: &mut impl FnMut(&'a TermDefinition, &'a Template, &'a str)) {
        match &self.kind {
            TermKind::Unreadable | TermKind::Literal(_) => {}
            TermKind::Template { text, template } => visit(self, template, text),
            TermKind::List(list) => list.iter().for_each(|term| term.templates(visit)),
            TermKind::Object(fields) => fields.iter().for_each(|(_, term)| term.templates(visit)),
        }
    }
}

/// The names with which a path may begin at a place.
#[derive(Debug, Clone, Copy)]
pub(super) enum NamesInScope<'a> {
    /// The namespaces.
    Node,
    /// The namespaces, and the item of a foreach.
    Item(&'a str),
    /// The data of an event, the inputs and the time (R147).
    Hook(Event),
}

impl<'a> NamesInScope<'a> {
    /// Returns the names that are known only here; `arguments` are the names of list elements in branches.
    fn locals(&self, arguments: &'a [String]) -> Vec<&'a str> {
        let arguments = arguments.iter().map(String::as_str);
        match self {
            Self::Node => arguments.collect(),
            Self::Item(name) => std::iter::once(*name).chain(arguments).collect(),
            Self::Hook(event) => event.names().to_vec(),
        }
    }

    /// Whether a namespace is called `name`.
    pub(super) fn are_namespaces(self, name: &str) -> bool {
        Root::named(name).is_some()
    }

    /// Reads a path that is not in a template.
    pub(super) fn parse_path(self, text: &str, arguments: &[String]) -> Result<Path, PathError> {
        let path = Path::parse_in(text, &NamesInScope::locals(&self, arguments))?;
        if self.take(&path) { Ok(path) } else { Err(PathError::UnknownRoot { name: path.root.name().to_owned() }) }
    }

    fn take(self, path: &Path) -> bool {
        match self {
            Self::Node | Self::Item(_) => true,
            Self::Hook(_) => matches!(path.root, Root::Local | Root::Inputs | Root::Now | Root::Timestamp),
        }
    }

    fn parse_template(self, text: &str, arguments: &[String]) -> Result<Template, TemplateError> {
        let template = Template::parse_in(text, &NamesInScope::locals(&self, arguments))?;
        for expression in template.expressions() {
            for (path, range) in expression.paths.iter().zip(&expression.ranges) {
                if !self.take(path) {
                    let reason =
                        TemplateErrorReason::Path(PathError::UnknownRoot { name: path.root.name().to_owned() });
                    return Err(TemplateError { reason, range: range.clone() });
                }
            }
        }
        Ok(template)
    }

    /// Returns all names, as candidates for a suggestion.
    fn all(&self, arguments: &'a [String]) -> Vec<&'a str> {
        let namespaces: &[&str] = match self {
            Self::Node | Self::Item(_) => &["state", "inputs", "result", "visit", "_now", "_timestamp"],
            Self::Hook(_) => &["inputs", "_now", "_timestamp"],
        };
        self.locals(arguments).into_iter().chain(namespaces.iter().copied()).collect()
    }

    /// Lists the names for messages.
    pub(super) fn listed(self) -> String {
        match self {
            Self::Node => {
                "a path begins with `state`, `inputs`, `result` or `visit`, or is `_now` or `_timestamp`".into()
            }
            Self::Item(name) => format!(
                "a path begins with `{name}`, `state`, `inputs`, `result` or `visit`, or is `_now` or `_timestamp`"
            ),
            Self::Hook(event) => {
                let names: Vec<String> = self.all(&[]).iter().map(|name| format!("`{name}`")).collect();
                format!("a hook of `{}` looks at {}", event.name(), names.join(", "))
            }
        }
    }
}

/// Reads a value with templates.
pub(super) fn parse(reader: &mut DefinitionReader<'_>, tree: &YamlTree, names: NamesInScope<'_>) -> TermDefinition {
    let Ok(term) = grammar::term(tree, &mut TermsInFile { reader, names });
    term
}

/// Builds terms from a file, and reports mistakes.
struct TermsInFile<'r, 'a> {
    reader: &'r mut DefinitionReader<'a>,
    names: NamesInScope<'r>,
}

impl Terms<YamlTree> for TermsInFile<'_, '_> {
    type Term = TermDefinition;
    type Error = Infallible;

    fn scalar(&mut self, tree: &YamlTree) -> TermDefinition {
        TermDefinition { span: tree.span.clone(), kind: TermKind::Literal(tree.to_value()) }
    }

    fn text(&mut self, tree: &YamlTree, text: &str) -> Result<TermDefinition, Infallible> {
        let kind = match self.names.parse_template(text, &self.reader.arguments) {
            Ok(Template::Text(text)) => TermKind::Literal(Value::String(text)),
            Ok(template) => TermKind::Template { text: text.to_owned(), template },
            Err(error) => {
                report(self.reader, text, &tree.span, &error, self.names);
                TermKind::Unreadable
            }
        };
        Ok(TermDefinition { span: tree.span.clone(), kind })
    }

    fn list(&mut self, tree: &YamlTree, list: Vec<TermDefinition>) -> TermDefinition {
        TermDefinition { span: tree.span.clone(), kind: TermKind::List(list) }
    }

    fn object(&mut self, tree: &YamlTree, fields: Vec<(&TreeKey, TermDefinition)>) -> TermDefinition {
        let field = |(key, term): (&TreeKey, TermDefinition)| {
            (Spanned { value: key.name.clone(), span: key.span.clone() }, term)
        };
        TermDefinition { span: tree.span.clone(), kind: TermKind::Object(fields.into_iter().map(field).collect()) }
    }
}

fn report(reader: &mut DefinitionReader<'_>, text: &str, span: &Span, error: &TemplateError, names: NamesInScope<'_>) {
    let place = SourcePlace::new(reader.source, locate(reader.source, span, text, &error.range));
    let shell =
        "in a command, a shell variable is written `$NAME`; to write `${` itself, double the dollar: `$${NAME}`";
    let operand = operand(text, &error.range);
    if is_constant(operand) {
        let message = format!("`{operand}` is a constant, and an expression is made of paths");
        reader
            .diagnostics
            .error(code::BAD_TEMPLATE, place, message)
            .label("no path")
            .help(format!("put it into `config.state`, as `otherwise: {operand}`, and write `state.otherwise` here"));
        return;
    }
    match &error.reason {
        TemplateErrorReason::Path(path) => report_path(reader, place, path, shell, names),
        reason => {
            reader
                .diagnostics
                .error(code::BAD_TEMPLATE, place, reason.to_string())
                .help("write a path between `${` and `}`; to write `${` itself, double the dollar: `$${`");
        }
    }
}

/// Returns the operand of an expression that has the mistake: the text between `${`, `||` and `}`.
fn operand<'t>(text: &'t str, wrong: &Span) -> &'t str {
    let before = text.get(..wrong.start).unwrap_or_default();
    let start = ["${", "||"].iter().filter_map(|mark| before.rfind(mark)).max().map_or(0, |at| at + 2);
    let rest = &text[start..];
    let end = ["||", "}"].iter().filter_map(|mark| rest.find(mark)).min().unwrap_or(rest.len());
    rest[..end].trim()
}

/// Whether an operand is a literal of other languages: a number, a boolean, a text in quotes, an empty list.
fn is_constant(operand: &str) -> bool {
    let is_quoted = |quote: char| operand.len() >= 2 && operand.starts_with(quote) && operand.ends_with(quote);
    let is_number = operand.starts_with(|c: char| c.is_ascii_digit() || c == '-') && operand.parse::<f64>().is_ok();
    is_number || is_quoted('\'') || is_quoted('"') || matches!(operand, "true" | "false" | "null" | "[]" | "{")
}

/// Reports a path that cannot be read, in a template or a condition.
pub(super) fn report_path(
    reader: &mut DefinitionReader<'_>,
    place: SourcePlace,
    error: &PathError,
    otherwise: &str,
    names: NamesInScope<'_>,
) {
    match error {
        PathError::UnknownRoot { .. } if reader.has_lost_names => {}
        PathError::UnknownRoot { name } => {
            let message = match names {
                NamesInScope::Hook(event) => format!("hooks of `{}` receive no `{name}`", event.name()),
                NamesInScope::Node | NamesInScope::Item(_) => error.to_string(),
            };
            // The name of an element that is not given anywhere is one mistake, wherever it is read.
            let diagnostic = match nearest(name, names.all(&[])) {
                Some(_) => Some(reader.diagnostics.error(code::UNKNOWN_NAMESPACE, place, message)),
                None => reader.diagnostics.error_again(code::UNKNOWN_NAMESPACE, place, message),
            };
            let Some(diagnostic) = diagnostic else { return };
            diagnostic.note(names.listed()).suggest(name, names.all(&reader.arguments));
            if diagnostic.help.is_none() && !otherwise.is_empty() {
                diagnostic.help(format!("did you mean `state.{name}` or `inputs.{name}`? {otherwise}"));
            }
        }
        _ => {
            reader.diagnostics.error(code::BAD_TEMPLATE, place, error.to_string()).note(
                "an expression is a path, or several with `||` between them; there are no calculations and functions",
            );
        }
    }
}

/// The longest text in which a part is looked up by its words: the time for that grows with the number of parts.
const LONGEST_SEARCHED: usize = 16 * 1024;

/// Finds the place in the file of a part of a scalar's text.
///
/// Escapes and folded lines make the text shorter than the scalar in the file. The part is then looked up by its words.
/// If they are not found, or the text is long, the place is the whole scalar.
pub fn locate(source: &Arc<SourceFile>, scalar: &Span, text: &str, part: &Span) -> Span {
    let quotes = match scalar.len().checked_sub(text.len()) {
        Some(0) => Some(0),
        Some(2) if source.text[scalar.clone()].starts_with(['"', '\'']) => Some(1),
        _ => None,
    };
    if let Some(quote) = quotes {
        let start = scalar.start + quote;
        return start + part.start..start + part.end;
    }
    if text.len() > LONGEST_SEARCHED {
        return scalar.clone();
    }
    let words = &text[part.clone()];
    let nth = text[..part.start].matches(words).count();
    let raw = &source.text[scalar.clone()];
    match raw.match_indices(words).nth(nth) {
        Some((at, _)) if !words.is_empty() => scalar.start + at..scalar.start + at + words.len(),
        _ => scalar.clone(),
    }
}
