//! Regular expressions of a file. Their cost is bounded before any of them is compiled.
//!
//! A short pattern can be a large program: `\pL{1,170}` takes megabytes and tens of milliseconds. A file may have many
//! patterns, and its author may want to stall the build.

use std::sync::{LazyLock, Mutex, PoisonError};

use regex::Regex;
use regex_syntax::hir::{Class, Hir, HirKind, Look, LookSet};

use crate::hash::{HashMap, HashSet};

/// The maximum size of all different patterns of a file together, in states of their programs. One class of letters,
/// `\pL`, has about 700.
pub(crate) const MOST_STATES: u64 = 400_000;

/// The patterns of a file that were checked so far.
#[derive(Debug, Default)]
pub(super) struct Patterns {
    states: u64,
    known: HashSet<String>,
}

/// Why a pattern cannot be used.
pub(super) enum PatternProblem {
    /// It is no pattern; the reason in the words of the `regex` crate.
    Syntax(String),
    /// Its own program is too large.
    TooLarge,
    /// It is too large together with those before it.
    TooLargeTogether,
}

impl Patterns {
    /// Checks a pattern.
    pub(super) fn check(&mut self, pattern: &str) -> Result<(), PatternProblem> {
        if self.known.contains(pattern) {
            return Ok(());
        }
        // The crate draws a frame of its own; its last line has the reason.
        let reason = |text: String| text.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
        let hir = regex_syntax::parse(pattern).map_err(|error| PatternProblem::Syntax(reason(error.to_string())))?;
        let states = states(&hir);
        if states > MOST_STATES {
            return Err(PatternProblem::TooLarge);
        }
        self.states = self.states.saturating_add(states);
        if self.states > MOST_STATES {
            return Err(PatternProblem::TooLargeTogether);
        }
        match Regex::new(pattern) {
            Ok(regex) => {
                remember(pattern, regex, states);
                self.known.insert(pattern.to_owned());
                Ok(())
            }
            Err(regex::Error::CompiledTooBig(_)) => Err(PatternProblem::TooLarge),
            Err(error) => Err(PatternProblem::Syntax(reason(error.to_string()))),
        }
    }
}

/// Returns the approximate number of states of a pattern's program.
fn states(hir: &Hir) -> u64 {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => 1,
        HirKind::Literal(literal) => literal.0.len() as u64,
        HirKind::Class(Class::Unicode(class)) => class.ranges().len() as u64,
        HirKind::Class(Class::Bytes(_)) => 1,
        HirKind::Repetition(repetition) => {
            let times = repetition.max.unwrap_or(repetition.min.saturating_add(1)).max(1);
            u64::from(times).saturating_mul(states(&repetition.sub))
        }
        HirKind::Capture(capture) => states(&capture.sub),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => {
            parts.iter().fold(0, |sum: u64, part| sum.saturating_add(states(part)))
        }
    }
}

/// The compiled patterns, and the total number of their states.
static COMPILED: LazyLock<Mutex<(HashMap<String, Regex>, u64)>> = LazyLock::new(Mutex::default);

fn remember(pattern: &str, regex: Regex, states: u64) {
    let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    if compiled.1.saturating_add(states) > 2 * MOST_STATES {
        *compiled = Default::default();
    }
    // Short ones take memory too.
    compiled.1 += states.max(100);
    compiled.0.insert(pattern.to_owned(), regex);
}

/// Returns the compiled form of a checked pattern; each is compiled once, however often it is used.
pub fn compiled(pattern: &str) -> Option<Regex> {
    if let Some(regex) = COMPILED.lock().unwrap_or_else(PoisonError::into_inner).0.get(pattern) {
        return Some(regex.clone());
    }
    let states = states(&regex_syntax::parse(pattern).ok()?);
    if states > MOST_STATES {
        return None;
    }
    let regex = Regex::new(pattern).ok()?;
    remember(pattern, regex.clone(), states);
    Some(regex)
}

/// The texts in which a pattern is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FoundIn {
    /// Every text.
    Every,
    /// No text.
    None,
    /// Some texts, as far as is known.
    Some,
}

/// Returns the texts in which a checked pattern is found.
///
/// [`FoundIn::Every`] and [`FoundIn::None`] are certain. A pattern that is found in every text, or in no text, for a
/// reason that is harder to see counts as [`FoundIn::Some`].
pub fn found_in(pattern: &str) -> FoundIn {
    let Ok(hir) = regex_syntax::parse(pattern) else { return FoundIn::Some };
    // Every text has a beginning and an end.
    let beginning = [Look::Start, Look::StartLF, Look::StartCRLF];
    let end = [Look::End, Look::EndLF, Look::EndCRLF];
    if is_empty_at(&hir, &beginning) || is_empty_at(&hir, &end) {
        FoundIn::Every
    } else if is_impossible(&hir) {
        FoundIn::None
    } else {
        FoundIn::Some
    }
}

/// Whether a pattern matches the empty string at each place where these assertions hold.
fn is_empty_at(hir: &Hir, holding: &[Look]) -> bool {
    match hir.kind() {
        HirKind::Empty => true,
        HirKind::Literal(_) | HirKind::Class(_) => false,
        HirKind::Look(look) => holding.contains(look),
        HirKind::Repetition(repetition) => repetition.min == 0 || is_empty_at(&repetition.sub, holding),
        HirKind::Capture(capture) => is_empty_at(&capture.sub, holding),
        HirKind::Concat(parts) => parts.iter().all(|part| is_empty_at(part, holding)),
        HirKind::Alternation(parts) => parts.iter().any(|part| is_empty_at(part, holding)),
    }
}

/// Whether a pattern can never match: it has a class without characters, or asks for a character before the beginning of
/// the text or behind its end.
fn is_impossible(hir: &Hir) -> bool {
    // A pattern that cannot match, such as an empty class, has no shortest match.
    let Some(_) = hir.properties().minimum_len() else { return true };
    let takes_one = |part: &Hir| part.properties().minimum_len().is_some_and(|shortest| shortest > 0);
    let asks = |looks: LookSet, look: Look| looks.contains(look);
    match hir.kind() {
        HirKind::Concat(parts) => {
            let is_behind_end = |at: usize| {
                asks(parts[at].properties().look_set_suffix(), Look::End) && parts[at + 1..].iter().any(takes_one)
            };
            let is_before_beginning = |at: usize| {
                asks(parts[at].properties().look_set_prefix(), Look::Start) && parts[..at].iter().any(takes_one)
            };
            let is_misplaced = |at: usize| is_behind_end(at) || is_before_beginning(at);
            (0..parts.len()).any(is_misplaced) || parts.iter().any(is_impossible)
        }
        HirKind::Alternation(parts) => parts.iter().all(is_impossible),
        HirKind::Capture(capture) => is_impossible(&capture.sub),
        HirKind::Repetition(repetition) => repetition.min > 0 && is_impossible(&repetition.sub),
        HirKind::Empty | HirKind::Literal(_) | HirKind::Class(_) | HirKind::Look(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(patterns: &mut Patterns, pattern: &str) -> &'static str {
        match patterns.check(pattern) {
            Ok(()) => "good",
            Err(PatternProblem::Syntax(_)) => "syntax",
            Err(PatternProblem::TooLarge) => "too large",
            Err(PatternProblem::TooLargeTogether) => "too large together",
        }
    }

    #[test]
    fn the_patterns_of_a_file_are_bounded_together() {
        let mut patterns = Patterns::default();
        let large = |at: usize| format!(r"\pL{{1,170}}{at}");
        assert_eq!(said(&mut patterns, "(a"), "syntax");
        assert_eq!(said(&mut patterns, r"a(?=b)"), "syntax");
        assert_eq!(said(&mut patterns, r"((\pL{100}){100}){100}"), "too large");
        let found: Vec<_> = (0..1000).map(|at| said(&mut patterns, &large(at))).collect();
        assert_eq!(found[0], "good");
        assert_eq!(found[999], "too large together");
        assert!(found.iter().filter(|one| **one == "good").count() < 10);
        assert_eq!(said(&mut patterns, &large(0)), "good", "the same again costs nothing");
    }

    #[test]
    fn patterns_that_match_every_text_or_none_are_reported() {
        for (found, patterns) in [
            (
                FoundIn::Every,
                &[
                    "",
                    "^",
                    "$",
                    ".*",
                    "^.*",
                    "a?",
                    "(a|)",
                    "(?m)^",
                    "(?:x*)(?:y*)$",
                    "(?i)a*",
                    "\\A",
                    "()",
                    "(?:$x)?",
                    "a*^",
                ][..],
            ),
            (
                FoundIn::None,
                &[
                    "$^x",
                    "a^b",
                    "a$b",
                    "x(^a)",
                    "(a$)b",
                    "(^a|^b)?c^d",
                    "[^\\s\\S]",
                    "$.",
                    ".^",
                    "a[^\\d\\D]+",
                    "$^x|a^",
                    "\\z\\d",
                ],
            ),
            (
                FoundIn::Some,
                &[
                    "a",
                    "^$",
                    "$^",
                    "^.*$",
                    ".",
                    ".+",
                    "\\b",
                    "\\B",
                    "^a*$",
                    "x*^a",
                    "a$(b?)",
                    "(?m)a$\nb",
                    "(?m)a\n^b",
                    "a|$^x",
                    "(a|^)b",
                    "(a(b$|c))d",
                ],
            ),
        ] {
            for pattern in patterns {
                assert_eq!(found_in(pattern), found, "{pattern:?}");
            }
        }
    }

    #[test]
    fn the_regex_crate_agrees_on_where_patterns_are_found() {
        let texts = ["", "a", "b", "ab", "a\nb", "\n", "xa", "cd", "1", " ", "ä", "abc abc", "x\r\ny"];
        let parts = ["", "a", "^", "$", ".", "(a|)", r"[^\s\S]", "(?:^|x)", "(?m:^)"];
        for one in parts {
            for two in parts {
                for three in parts {
                    let pattern = format!("{one}{two}{three}");
                    let regex = Regex::new(&pattern).unwrap();
                    let count = texts.iter().filter(|text| regex.is_match(text)).count();
                    match found_in(&pattern) {
                        FoundIn::Every => assert_eq!(count, texts.len(), "{pattern:?}"),
                        FoundIn::None => assert_eq!(count, 0, "{pattern:?}"),
                        FoundIn::Some => {}
                    }
                }
            }
        }
    }

    #[test]
    fn a_thousand_patterns_of_common_size_are_accepted() {
        let mut patterns = Patterns::default();
        for at in 0..1000 {
            assert_eq!(said(&mut patterns, &format!(r"^[a-z0-9_-]{{1,64}}\.{at}\d$")), "good");
        }
    }
}
