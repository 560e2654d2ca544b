//! Diagnostics: a mistake, its exact place, and how to correct it; one type, one rendering.

use std::sync::Arc;

use annotate_snippets::{AnnotationKind, Group, Level, Origin, Renderer, Snippet};

use crate::characters::describe_difference;
pub use crate::code::{self, DiagnosticCode};
pub use crate::fix::Fix;
use crate::fix::is_certain;
use crate::hash::{HashMap, HashSet};
use crate::source::{SourceFile, Span};

/// How serious a diagnostic is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// The graph does not compile.
    Error,
    /// The graph compiles; a part of it is probably not intended.
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
pub struct SourcePlace {
    /// The file.
    pub source: Arc<SourceFile>,
    /// The bytes of its text, or the whole file.
    pub span: Option<Span>,
}

impl SourcePlace {
    /// Some bytes of a file.
    pub fn new(source: &Arc<SourceFile>, span: Span) -> Self {
        Self { source: Arc::clone(source), span: Some(span) }
    }

    /// A file as a whole.
    pub fn file(source: &Arc<SourceFile>) -> Self {
        Self { source: Arc::clone(source), span: None }
    }

    /// Returns the line and column where the place begins, both from 1; `None` for a whole file.
    pub fn position(&self) -> Option<(usize, usize)> {
        self.span.as_ref().map(|span| self.source.position(span.start))
    }
}

/// A mistake in a graph.
///
/// The message is lower case, without a full stop, the author's words in backticks.
#[derive(Debug, Clone)]
pub struct Diagnostic {
    /// The kind of mistake.
    pub code: DiagnosticCode,
    /// How serious it is.
    pub severity: Severity,
    /// The mistake, in words.
    pub message: String,
    /// Its place.
    pub place: SourcePlace,
    /// A few words about the text that the caret points at; may be empty.
    pub label: String,
    /// Other places that matter.
    pub related: Vec<(SourcePlace, String)>,
    /// Facts that explain it.
    pub notes: Vec<String>,
    /// How to correct it.
    pub help: Option<String>,
    /// The change of the text that `help` describes, if it is known.
    pub fix: Option<Fix>,
    /// How many mistakes it reports: 1, or more if it counts those of a file that are not shown.
    pub stands_for: usize,
    /// Whether it will not be shown, so that its details need not be computed.
    is_spare: bool,
}

/// The identity of a diagnostic: two with the same identity say the same.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DiagnosticIdentity(&'static str, Severity, String, Option<Span>, String);

impl Diagnostic {
    /// An error of kind `code` at `place`.
    pub fn new(code: DiagnosticCode, message: impl Into<String>, place: SourcePlace) -> Self {
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
            stands_for: 1,
            is_spare: false,
        }
    }

    /// Labels the text that the caret points at.
    pub fn label(&mut self, label: impl Into<String>) -> &mut Self {
        self.label = label.into();
        self
    }

    /// Shows another place that matters.
    pub fn related(&mut self, place: SourcePlace, label: impl Into<String>) -> &mut Self {
        self.related.push((place, label.into()));
        self
    }

    /// Adds a fact that explains it.
    pub fn note(&mut self, note: impl Into<String>) -> &mut Self {
        self.notes.push(note.into());
        self
    }

    /// Says how to correct it, in place of an earlier help and its fix.
    pub fn help(&mut self, help: impl Into<String>) -> &mut Self {
        self.help = Some(help.into());
        self.fix = None;
        self
    }

    /// Adds the change that the help describes: `text` replaces the text that the caret points at.
    ///
    /// `is_certain` means that nothing else can have been meant; `graph check --fix` makes such changes by itself.
    pub fn fix(&mut self, text: impl Into<String>, is_certain: bool) -> &mut Self {
        self.fix = self.place.span.clone().map(|span| Fix { span, text: text.into(), is_certain });
        self
    }

    /// Adds the change that the help describes: `right` replaces `wrong`, if that occurs once in the text that the caret
    /// points at.
    pub fn replace(&mut self, wrong: &str, right: &str, is_certain: bool) -> &mut Self {
        self.fix = Fix::of_name(&self.place, wrong, right, is_certain);
        self
    }

    /// Offers the candidate that is nearest to `wrong`, if one is near, with the change that inserts it.
    pub fn suggest<'a>(&mut self, wrong: &str, candidates: impl IntoIterator<Item = &'a str>) -> &mut Self {
        if self.is_spare {
            return self;
        }
        let candidates = similar(wrong, candidates);
        let Some(near) = nearest(wrong, candidates.iter().copied()) else { return self };
        let apart = describe_difference(wrong, near).map(|apart| format!("; the two look the same: {apart}"));
        self.help(format!("did you mean `{near}`?{}", apart.unwrap_or_default()));
        self.replace(wrong, near, is_certain(wrong, near, &candidates))
    }

    /// Returns its identity.
    pub fn identity(&self) -> DiagnosticIdentity {
        let place = &self.place;
        DiagnosticIdentity(
            self.code.id,
            self.severity,
            place.source.name.clone(),
            place.span.clone(),
            self.message.clone(),
        )
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

type ShownPlace<'a> = (&'a SourcePlace, &'a str, AnnotationKind);

/// Groups places by file, the first file first.
fn by_file(places: Vec<ShownPlace<'_>>) -> Vec<Vec<ShownPlace<'_>>> {
    let mut files: Vec<Vec<ShownPlace<'_>>> = Vec::new();
    for place in places {
        match files.iter_mut().find(|file| Arc::ptr_eq(&file[0].0.source, &place.0.source)) {
            Some(file) => file.push(place),
            None => files.push(vec![place]),
        }
    }
    files
}

/// Adds a file's frame: its lines from the first that is pointed at to the last.
fn add_frame<'a>(group: Group<'a>, places: &[ShownPlace<'a>]) -> Group<'a> {
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

/// Returns the maximum number of typos between a name and the one that was meant.
fn most_slips(wrong: &str) -> usize {
    wrong.chars().count().max(3) / 3
}

/// Returns the candidates whose length is near to that of `wrong`, and no more than can be compared with it closely while
/// an author waits.
fn similar<'a>(wrong: &str, candidates: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    const MOST_COMPARED: usize = 2_000;
    let (length, most) = (wrong.chars().count(), most_slips(wrong));
    let is_similar = |candidate: &&str| {
        // A character has at most four bytes, so the cheap test comes first.
        candidate.len() <= 4 * (length + most) && candidate.chars().count().abs_diff(length) <= most
    };
    candidates.into_iter().filter(is_similar).take(MOST_COMPARED).collect()
}

/// Returns the candidate that is nearest to `wrong`, if typos could turn one into the other.
pub fn nearest<'a>(wrong: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let most = most_slips(wrong);
    similar(wrong, candidates)
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(wrong, candidate), candidate))
        .filter(|&(distance, candidate)| distance <= most || candidate.eq_ignore_ascii_case(wrong))
        .min_by_key(|&(distance, _)| distance)
        .map(|(_, candidate)| candidate)
}

/// The maximum number of further places of one mistake that are shown.
const MOST_AGAIN: usize = 20;

/// The maximum number of diagnostics of one file that are shown. The others are counted.
pub const MOST_SHOWN: usize = 100;

/// The diagnostics of a compilation, in the order of the file once the compilation is done.
///
/// For each kind, [`MOST_SHOWN`] of a file are stored; further ones are counted, so that a file with many mistakes costs
/// little more than one with few.
#[derive(Debug, Default)]
pub struct Diagnostics {
    kept: Vec<Diagnostic>,
    counts: HashMap<DiagnosticKind, Count>,
    /// The places for which [`Diagnostics::error_once`] was called.
    said: HashSet<(DiagnosticKind, Option<Span>)>,
    /// The last one that is only counted: its caller may still add to it.
    spare: Option<Box<Diagnostic>>,
}

/// A file, by its address in memory, and a code. The stored diagnostics of a kind keep the file in memory.
type DiagnosticKind = (usize, &'static str);

/// The diagnostics of one kind.
#[derive(Debug, Clone, Copy, Default)]
struct Count {
    kept: usize,
    all: usize,
}

fn kind(diagnostic: &Diagnostic) -> DiagnosticKind {
    (Arc::as_ptr(&diagnostic.place.source).addr(), diagnostic.code.id)
}

impl Diagnostics {
    /// No diagnostics yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds one.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        self.add(diagnostic);
    }

    fn add(&mut self, mut diagnostic: Diagnostic) -> &mut Diagnostic {
        let count = self.counts.entry(kind(&diagnostic)).or_default();
        count.all += diagnostic.stands_for;
        if count.kept >= MOST_SHOWN {
            diagnostic.is_spare = true;
            return self.spare.insert(Box::new(diagnostic));
        }
        count.kept += 1;
        self.kept.push(diagnostic);
        self.kept.last_mut().expect("one was just pushed")
    }

    /// Adds an error and returns it, so that the caller can add a label, related places and help.
    pub fn error(&mut self, code: DiagnosticCode, place: SourcePlace, message: impl Into<String>) -> &mut Diagnostic {
        self.add(Diagnostic::new(code, message, place))
    }

    /// Adds an error and returns it, if no error of this code was added for this place.
    pub fn error_once(
        &mut self,
        code: DiagnosticCode,
        place: SourcePlace,
        message: impl Into<String>,
    ) -> Option<&mut Diagnostic> {
        let diagnostic = Diagnostic::new(code, message, place);
        let is_new = self.said.insert((kind(&diagnostic), diagnostic.place.span.clone()));
        is_new.then(|| self.add(diagnostic))
    }

    /// Adds an error and returns it; if the file has the same one elsewhere, only adds this place to that one.
    pub fn error_again(
        &mut self,
        code: DiagnosticCode,
        place: SourcePlace,
        message: impl Into<String>,
    ) -> Option<&mut Diagnostic> {
        let diagnostic = Diagnostic::new(code, message, place);
        let is_same = |one: &&mut Diagnostic| {
            one.code == code
                && one.message == diagnostic.message
                && Arc::ptr_eq(&one.place.source, &diagnostic.place.source)
        };
        if let Some(first) = self.kept.iter_mut().find(is_same) {
            if first.related.len() < MOST_AGAIN {
                first.related(diagnostic.place, "and here");
            }
            // A change of one place would not correct the others.
            first.fix = None;
            return None;
        }
        Some(self.add(diagnostic))
    }

    /// Returns the value of the one of a few words that a text is, or adds the error that it is no such word. `what` names the text.
    pub fn word<T: Copy>(&mut self, place: SourcePlace, what: &str, text: &str, words: &[(&str, T)]) -> Option<T> {
        if let Some((_, value)) = words.iter().find(|(word, _)| *word == text) {
            return Some(*value);
        }
        let names: Vec<String> = words.iter().map(|(word, _)| format!("`{word}`")).collect();
        let (last, others) = names.split_last()?;
        let listed = if others.is_empty() { last.clone() } else { format!("{} or {last}", others.join(", ")) };
        self.error(code::SHAPE, place, format!("{what} is {listed}, not `{text}`"))
            .suggest(text, words.iter().map(|(word, _)| *word));
        None
    }

    /// Whether [`Diagnostics::error_once`] added one of this code for this place.
    pub fn is_said(&self, code: DiagnosticCode, place: &SourcePlace) -> bool {
        self.said.contains(&((Arc::as_ptr(&place.source).addr(), code.id), place.span.clone()))
    }

    /// Adds a finding of a lint with the lint's default severity, and returns it, so that the caller can add to it.
    ///
    /// Settings take effect after all rules: a rule need not know them.
    pub fn lint(&mut self, code: DiagnosticCode, place: SourcePlace, message: impl Into<String>) -> &mut Diagnostic {
        let diagnostic = self.error(code, place, message);
        if code.lint.is_some_and(|level| level < code::Level::Deny) {
            diagnostic.severity = Severity::Warning;
        }
        diagnostic
    }

    /// Whether a further diagnostic of this kind would only be counted, so that its details need not be computed.
    pub fn is_full(&self, code: DiagnosticCode, source: &Arc<SourceFile>) -> bool {
        let count = self.counts.get(&(Arc::as_ptr(source).addr(), code.id));
        count.is_some_and(|count| count.kept >= MOST_SHOWN)
    }

    /// Adds those of `others` that are not `known` yet, and their counts.
    pub fn absorb(&mut self, others: &Self, known: &mut HashSet<DiagnosticIdentity>) {
        for diagnostic in others.kept.iter().filter(|one| known.insert(one.identity())) {
            self.add(diagnostic.clone());
        }
        for (kind, count) in &others.counts {
            if let Some(own) = self.counts.get_mut(kind) {
                own.all = own.all.max(count.all);
            }
        }
    }

    /// Adds all of `others`, which are about other files, and their counts.
    pub fn append(&mut self, others: &Self) {
        self.absorb(others, &mut HashSet::default());
    }

    /// Returns the one that was stored last.
    pub(crate) fn last(&mut self) -> Option<&mut Diagnostic> {
        self.kept.last_mut()
    }

    /// Retains the kinds for which `keep` returns true; `keep` may change the diagnostics.
    pub fn retain_kinds(&mut self, mut keep: impl FnMut(&mut Diagnostic) -> bool) {
        let counts = &mut self.counts;
        self.kept.retain_mut(|diagnostic| {
            let is_kept = keep(diagnostic);
            if !is_kept {
                counts.remove(&kind(diagnostic));
            }
            is_kept
        });
    }

    /// Takes those back that were stored behind the first `start`, unless `keep` returns true.
    pub fn retain_since(&mut self, start: usize, keep: impl Fn(&Diagnostic) -> bool) {
        for diagnostic in self.kept.split_off(start.min(self.kept.len())) {
            if keep(&diagnostic) {
                self.kept.push(diagnostic);
            } else if let Some(count) = self.counts.get_mut(&kind(&diagnostic)) {
                count.kept -= 1;
                count.all -= diagnostic.stands_for;
            }
        }
    }

    /// Returns their number, including those that are only counted.
    pub fn len(&self) -> usize {
        self.counts.values().map(|count| count.all).sum()
    }

    /// Whether there are no diagnostics.
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Whether one of them is an error.
    pub fn has_errors(&self) -> bool {
        self.kept.iter().any(|diagnostic| diagnostic.severity == Severity::Error)
    }

    /// Returns the stored ones, in the order in which they were added.
    pub fn iter(&self) -> std::slice::Iter<'_, Diagnostic> {
        self.kept.iter()
    }

    /// Returns them file by file and in file order; those of `first`, the graph itself, come before those of its
    /// contracts. A file with more than [`MOST_SHOWN`] is shown with its first errors, then its first warnings, and at
    /// the end the number of the others.
    pub fn in_order(self, first: &str) -> Vec<Diagnostic> {
        let start = |one: &Diagnostic| one.place.span.as_ref().map_or(0, |span| span.start);
        let mut files: Vec<File> = Vec::new();
        let mut by_file: HashMap<usize, usize> = HashMap::default();
        for diagnostic in self.kept {
            let at = *by_file.entry(kind(&diagnostic).0).or_insert_with(|| {
                files.push(File { source: Arc::clone(&diagnostic.place.source), shown: Vec::new(), more: [0; 2] });
                files.len() - 1
            });
            let file = &mut files[at];
            if let Some(Count { kept, all }) = self.counts.get(&kind(&diagnostic)) {
                // The others of its kind are counted with the first.
                if *all > *kept && !file.shown.iter().any(|one| one.code == diagnostic.code) {
                    file.more[diagnostic.severity as usize] += all - kept;
                }
            }
            file.shown.push(diagnostic);
        }
        let mut ordered = Vec::new();
        files.sort_by_cached_key(|file| (file.source.name != first, file.source.name.clone()));
        for mut file in files {
            if file.shown.len() > MOST_SHOWN || file.more != [0; 2] {
                file.shown.sort_by_key(|one| (one.severity, start(one)));
                for one in file.shown.drain(file.shown.len().min(MOST_SHOWN)..) {
                    file.more[one.severity as usize] += one.stands_for;
                }
            }
            file.shown.sort_by_key(start);
            let more = file.count_more();
            ordered.extend(file.shown);
            ordered.extend(more);
        }
        ordered
    }
}

/// The diagnostics of a file.
struct File {
    source: Arc<SourceFile>,
    shown: Vec<Diagnostic>,
    /// The numbers of errors and of warnings that are not shown.
    more: [usize; 2],
}

impl File {
    /// Returns a diagnostic that counts those that are not shown.
    fn count_more(&self) -> Option<Diagnostic> {
        let [errors, warnings] = self.more;
        let many = |number: usize, what: &str| format!("{number} more {what}{}", if number == 1 { "" } else { "s" });
        let what = match (errors, warnings) {
            (0, 0) => return None,
            (0, warnings) => many(warnings, "warning"),
            (errors, 0) => many(errors, "error"),
            (errors, warnings) => format!("{} and {}", many(errors, "error"), many(warnings, "warning")),
        };
        let message = format!("`{}` has {what}, which are not shown", self.source.name);
        let mut diagnostic = Diagnostic::new(code::MORE, message, SourcePlace::file(&self.source));
        diagnostic.stands_for = errors + warnings;
        if errors == 0 {
            diagnostic.severity = Severity::Warning;
        }
        diagnostic.help(format!("correct the first {MOST_SHOWN}, then check again"));
        Some(diagnostic)
    }
}

impl From<Diagnostic> for Diagnostics {
    fn from(diagnostic: Diagnostic) -> Self {
        let mut diagnostics = Self::new();
        diagnostics.push(diagnostic);
        diagnostics
    }
}

impl Extend<Diagnostic> for Diagnostics {
    fn extend<I: IntoIterator<Item = Diagnostic>>(&mut self, diagnostics: I) {
        diagnostics.into_iter().for_each(|diagnostic| self.push(diagnostic));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_diagnostic_is_rendered_as_rustc_renders_its_own() {
        let text = "config:\n  nodes:\n    ship:\n      next: delivred\n    delivered:\n      type: return\n";
        let source = SourceFile::new("graphs/order.yaml", "graphs/order.yaml", text);
        let at =
            |part: &str| SourcePlace::new(&source, text.find(part).unwrap()..text.find(part).unwrap() + part.len());
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
        let source = SourceFile::new("g.yaml", "g.yaml", "");
        let mut diagnostic = Diagnostic::new(code::EMPTY, "`g.yaml` is empty", SourcePlace::file(&source));
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
