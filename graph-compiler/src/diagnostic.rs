//! Diagnostics: what is wrong, where exactly, how to mend it; one type, one rendering.

use std::sync::Arc;

use annotate_snippets::{AnnotationKind, Group, Level, Origin, Renderer, Snippet};

pub use crate::code::{self, Code};
pub use crate::fix::Fix;
use crate::fix::is_certain;
use crate::source::{Source, Span};

/// How serious a diagnostic is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The graph does not compile.
    Error,
    /// The graph compiles; something about it is probably not meant.
    Warning,
}

impl Severity {
    /// Returns the word: `error` or `warning`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
        }
    }
}

/// A place in a file, or a file as a whole.
#[derive(Debug, Clone)]
pub struct Place {
    /// The file.
    pub source: Arc<Source>,
    /// The bytes of its text, or the whole file.
    pub span: Option<Span>,
}

impl Place {
    /// Some bytes of a file.
    pub fn new(source: &Arc<Source>, span: Span) -> Self {
        Self { source: Arc::clone(source), span: Some(span) }
    }

    /// A file as a whole.
    pub fn file(source: &Arc<Source>) -> Self {
        Self { source: Arc::clone(source), span: None }
    }

    /// Returns the line and column where the place begins, both from 1; a whole file has none.
    pub fn position(&self) -> Option<(usize, usize)> {
        self.span.as_ref().map(|span| self.source.position(span.start))
    }
}

/// Something wrong with a graph.
///
/// The message is lower case, without a full stop, the author's words in backticks.
#[derive(Debug, Clone)]
pub struct Diagnostic {
    /// Which kind of mistake it is.
    pub code: Code,
    /// How serious it is.
    pub severity: Severity,
    /// What is wrong.
    pub message: String,
    /// Where.
    pub place: Place,
    /// What the caret points at, in a few words; may be empty.
    pub label: String,
    /// Other places that matter.
    pub related: Vec<(Place, String)>,
    /// Facts that explain it.
    pub notes: Vec<String>,
    /// How to mend it.
    pub help: Option<String>,
    /// The change of the text that does what `help` says, where it can be told.
    pub fix: Option<Fix>,
}

impl Diagnostic {
    /// An error of kind `code` at `place`.
    pub fn new(code: Code, message: impl Into<String>, place: Place) -> Self {
        Self {
            code,
            severity: Severity::Error,
            message: message.into(),
            place,
            label: String::new(),
            related: Vec::new(),
            notes: Vec::new(),
            help: None,
            fix: None,
        }
    }

    /// Says what the caret points at.
    pub fn label(&mut self, label: impl Into<String>) -> &mut Self {
        self.label = label.into();
        self
    }

    /// Shows another place that matters.
    pub fn related(&mut self, place: Place, label: impl Into<String>) -> &mut Self {
        self.related.push((place, label.into()));
        self
    }

    /// Adds a fact that explains it.
    pub fn note(&mut self, note: impl Into<String>) -> &mut Self {
        self.notes.push(note.into());
        self
    }

    /// Says how to mend it, in place of what was said of that before.
    pub fn help(&mut self, help: impl Into<String>) -> &mut Self {
        self.help = Some(help.into());
        self.fix = None;
        self
    }

    /// Does what the help says: `text` stands in place of what the caret points at.
    ///
    /// `is_certain` means that nothing else can have been meant; `graph check --fix` makes such changes by itself.
    pub fn fix(&mut self, text: impl Into<String>, is_certain: bool) -> &mut Self {
        self.fix = self.place.span.clone().map(|span| Fix { span, text: text.into(), is_certain });
        self
    }

    /// Does what the help says: `right` stands in place of `wrong`, if that stands once in what the caret points at.
    pub fn replace(&mut self, wrong: &str, right: &str, is_certain: bool) -> &mut Self {
        self.fix = Fix::of_name(&self.place, wrong, right, is_certain);
        self
    }

    /// Offers the candidate that is nearest to `wrong`, if one is near, with the change that puts it there.
    pub fn suggest<'a>(&mut self, wrong: &str, candidates: impl IntoIterator<Item = &'a str>) -> &mut Self {
        let candidates: Vec<&str> = candidates.into_iter().collect();
        let Some(near) = nearest(wrong, candidates.iter().copied()) else { return self };
        self.help(format!("did you mean `{near}`?")).replace(wrong, near, is_certain(wrong, near, &candidates))
    }

    /// Returns `file:line:column`, or the file's name where the whole file is meant.
    pub fn location(&self) -> String {
        let name = &self.place.source.name;
        self.place.position().map_or_else(|| name.clone(), |(line, column)| format!("{name}:{line}:{column}"))
    }

    /// Renders the whole diagnostic as rustc would, without colour: title, place, frame, notes, help.
    pub fn render(&self) -> String {
        let renderer = Renderer::plain();
        self.render_with(&renderer)
    }

    /// Renders the whole diagnostic with colour for a terminal.
    pub fn render_coloured(&self) -> String {
        self.render_with(&Renderer::styled())
    }

    fn render_with(&self, renderer: &Renderer) -> String {
        let level = match self.severity {
            Severity::Error => Level::ERROR,
            Severity::Warning => Level::WARNING,
        };
        let mut group = Group::with_title(level.primary_title(self.message.as_str()).id(self.code.id));
        let mut shown = vec![(&self.place, self.label.as_str(), AnnotationKind::Primary)];
        shown.extend(self.related.iter().map(|(place, label)| (place, label.as_str(), AnnotationKind::Context)));
        for places in by_file(shown) {
            group = add_frame(group, &places);
        }
        for note in &self.notes {
            group = group.element(Level::NOTE.message(note.as_str()));
        }
        if let Some(help) = &self.help {
            group = group.element(Level::HELP.message(help.as_str()));
        }
        renderer.render(&[group])
    }
}

type Shown<'a> = (&'a Place, &'a str, AnnotationKind);

/// Groups places by file, the first file first.
fn by_file(places: Vec<Shown<'_>>) -> Vec<Vec<Shown<'_>>> {
    let mut files: Vec<Vec<Shown<'_>>> = Vec::new();
    for place in places {
        match files.iter_mut().find(|file| Arc::ptr_eq(&file[0].0.source, &place.0.source)) {
            Some(file) => file.push(place),
            None => files.push(vec![place]),
        }
    }
    files
}

/// Adds a file's frame: its lines from the first that is pointed at to the last.
fn add_frame<'a>(group: Group<'a>, places: &[Shown<'a>]) -> Group<'a> {
    let source = &places[0].0.source;
    let spans = || places.iter().filter_map(|(place, ..)| place.span.as_ref());
    let (Some(first), Some(last)) = (spans().map(|span| span.start).min(), spans().map(|span| span.end).max()) else {
        return group.element(Origin::path(source.name.as_str()));
    };
    let (first_line, _) = source.position(first);
    let start = source.line_start(first_line);
    let end = source.text[last.min(source.text.len())..].find('\n').map_or(source.text.len(), |newline| last + newline);
    let mut snippet = Snippet::source(&source.text[start..end]).line_start(first_line).path(source.name.as_str());
    for (place, label, kind) in places {
        if let Some(span) = &place.span {
            let range = span.start - start..span.end.min(end).max(span.start) - start;
            snippet = snippet.annotation(kind.span(range).label((!label.is_empty()).then_some(*label)));
        }
    }
    group.element(snippet)
}

/// Returns the candidate that is nearest to `wrong`, if a slip of the fingers could turn one into the other.
pub fn nearest<'a>(wrong: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let most = (wrong.chars().count().max(3)) / 3;
    candidates
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(wrong, candidate), candidate))
        .filter(|&(distance, candidate)| distance <= most || candidate.eq_ignore_ascii_case(wrong))
        .min_by_key(|&(distance, _)| distance)
        .map(|(_, candidate)| candidate)
}

/// The diagnostics of a compilation, in the order of the file once it is done.
#[derive(Debug, Default)]
pub struct Diagnostics(Vec<Diagnostic>);

impl Diagnostics {
    /// No diagnostics yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds one.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        self.0.push(diagnostic);
    }

    /// Adds an error and returns it for what else is to be said: label, related places, help.
    pub fn error(&mut self, code: Code, place: Place, message: impl Into<String>) -> &mut Diagnostic {
        self.0.push(Diagnostic::new(code, message, place));
        self.0.last_mut().expect("one was just pushed")
    }

    /// Adds what a lint found, as serious as the lint is where nothing else is set, and returns it for what else is to be said.
    ///
    /// What is set takes effect when all is said: a rule need not know of it.
    pub fn lint(&mut self, code: Code, place: Place, message: impl Into<String>) -> &mut Diagnostic {
        let diagnostic = self.error(code, place, message);
        if code.lint.is_some_and(|level| level < code::Level::Deny) {
            diagnostic.severity = Severity::Warning;
        }
        diagnostic
    }

    /// Returns the one that was added last.
    pub(crate) fn last(&mut self) -> Option<&mut Diagnostic> {
        self.0.last_mut()
    }

    /// Keeps those of which `keep` says so; it may change them.
    pub(crate) fn retain_mut(&mut self, keep: impl FnMut(&mut Diagnostic) -> bool) {
        self.0.retain_mut(keep);
    }

    /// Returns how many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether one of them is an error.
    pub fn has_errors(&self) -> bool {
        self.0.iter().any(|diagnostic| diagnostic.severity == Severity::Error)
    }

    /// Returns them in the order in which they were added.
    pub fn iter(&self) -> std::slice::Iter<'_, Diagnostic> {
        self.0.iter()
    }

    /// Returns them, file by file and in file order; those of `first`, the graph itself, before its contracts'.
    pub fn in_order(mut self, first: &str) -> Vec<Diagnostic> {
        self.0.sort_by_key(|diagnostic| {
            let place = &diagnostic.place;
            let start = place.span.as_ref().map_or(0, |span| span.start);
            (place.source.name != first, place.source.name.clone(), start)
        });
        self.0
    }
}

impl From<Diagnostic> for Diagnostics {
    fn from(diagnostic: Diagnostic) -> Self {
        Self(vec![diagnostic])
    }
}

impl IntoIterator for Diagnostics {
    type Item = Diagnostic;
    type IntoIter = std::vec::IntoIter<Diagnostic>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl Extend<Diagnostic> for Diagnostics {
    fn extend<I: IntoIterator<Item = Diagnostic>>(&mut self, diagnostics: I) {
        self.0.extend(diagnostics);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_diagnostic_is_rendered_as_rustc_renders_its_own() {
        let text = "config:\n  nodes:\n    ship:\n      next: delivred\n    delivered:\n      type: return\n";
        let source = Source::new("graphs/order.yaml", "graphs/order.yaml", text);
        let at = |part: &str| Place::new(&source, text.find(part).unwrap()..text.find(part).unwrap() + part.len());
        let mut diagnostic = Diagnostic::new(
            code::UNKNOWN_TARGET,
            "node `ship` sends the run to `delivred`, which does not exist",
            at("delivred"),
        );
        diagnostic
            .label("no node with this name")
            .related(at("delivered"), "a node with a similar name")
            .suggest("delivred", ["ship", "delivered"]);
        assert_eq!(diagnostic.location(), "graphs/order.yaml:4:13");
        assert_eq!(
            diagnostic.render(),
            "\
error[G0102]: node `ship` sends the run to `delivred`, which does not exist
 --> graphs/order.yaml:4:13
  |
4 |       next: delivred
  |             ^^^^^^^^ no node with this name
5 |     delivered:
  |     --------- a node with a similar name
  |
  = help: did you mean `delivered`?"
        );
    }

    #[test]
    fn a_place_without_span_shows_the_file_only() {
        let source = Source::new("g.yaml", "g.yaml", "");
        let mut diagnostic = Diagnostic::new(code::EMPTY, "`g.yaml` is empty", Place::file(&source));
        diagnostic.help("write a graph");
        assert_eq!(diagnostic.render(), "error[G0004]: `g.yaml` is empty\n--> g.yaml\n = help: write a graph");
    }

    #[test]
    fn only_near_names_are_suggested() {
        assert_eq!(nearest("delivred", ["ship", "delivered"]), Some("delivered"));
        assert_eq!(nearest("Done", ["done"]), Some("done"));
        assert_eq!(nearest("ends", ["start"]), None);
        assert_eq!(nearest("ab", ["xy"]), None);
    }
}
