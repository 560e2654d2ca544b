//! Regular expressions of a file: what they cost is bounded before any of them is compiled.
//!
//! A short text can be a large program: `\pL{1,170}` takes megabytes and tens of milliseconds. A file has many of them, and may
//! come from somebody who wants the build to stand still.

use std::collections::{HashMap, HashSet};
use std::sync::{LazyLock, Mutex, PoisonError};

use regex::Regex;
use regex_syntax::hir::{Class, Hir, HirKind};

/// How large all different patterns of a file may be together, in states of their programs. One class of letters, `\pL`, has
/// about 700.
pub(crate) const MOST_STATES: u64 = 400_000;

/// The patterns of a file that were looked at.
#[derive(Debug, Default)]
pub(super) struct Patterns {
    states: u64,
    known: HashSet<String>,
}

/// Why a pattern cannot be used.
pub(super) enum Problem {
    /// It is no pattern, in the words of the `regex` crate.
    Syntax(String),
    /// Its own program is too large.
    TooLarge,
    /// It is too large together with those before it.
    TooLargeTogether,
}

impl Patterns {
    /// Checks a pattern.
    pub(super) fn check(&mut self, pattern: &str) -> Result<(), Problem> {
        if self.known.contains(pattern) {
            return Ok(());
        }
        // The crate draws a frame of its own; its last line says what is wrong.
        let reason = |text: String| text.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
        let hir = regex_syntax::parse(pattern).map_err(|error| Problem::Syntax(reason(error.to_string())))?;
        let states = states(&hir);
        if states > MOST_STATES {
            return Err(Problem::TooLarge);
        }
        self.states = self.states.saturating_add(states);
        if self.states > MOST_STATES {
            return Err(Problem::TooLargeTogether);
        }
        match Regex::new(pattern) {
            Ok(regex) => {
                remember(pattern, regex, states);
                self.known.insert(pattern.to_owned());
                Ok(())
            }
            Err(regex::Error::CompiledTooBig(_)) => Err(Problem::TooLarge),
            Err(error) => Err(Problem::Syntax(reason(error.to_string()))),
        }
    }
}

/// Returns about how many states the program of a pattern has.
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

/// Compiled patterns, with the number of their states together.
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

/// Returns a pattern that was checked, compiled; each is compiled once, however often it is used.
pub(crate) fn compiled(pattern: &str) -> Option<Regex> {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn said(patterns: &mut Patterns, pattern: &str) -> &'static str {
        match patterns.check(pattern) {
            Ok(()) => "good",
            Err(Problem::Syntax(_)) => "syntax",
            Err(Problem::TooLarge) => "too large",
            Err(Problem::TooLargeTogether) => "too large together",
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
    fn a_thousand_patterns_of_common_size_are_no_problem() {
        let mut patterns = Patterns::default();
        for at in 0..1000 {
            assert_eq!(said(&mut patterns, &format!(r"^[a-z0-9_-]{{1,64}}\.{at}\d$")), "good");
        }
    }
}
