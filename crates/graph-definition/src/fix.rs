//! Fixes: changes of a file's text that correct a mistake.

use crate::diagnostic::SourcePlace;
use crate::source::Span;

/// A change of the text that corrects a mistake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fix {
    /// The bytes of the diagnostic's file that are replaced.
    pub span: Span,
    /// The new text.
    pub text: String,
    /// Whether nothing else can have been meant. Other fixes are for a person to choose.
    pub is_certain: bool,
}

impl Fix {
    /// A change of one name into another: of the whole place, inside its quotes if it has any, or of a part of a path.
    ///
    /// `None` if it is not clear which words of the file are meant, or the name could not be written there without quotes.
    pub(crate) fn of_name(place: &SourcePlace, wrong: &str, right: &str, is_certain: bool) -> Option<Self> {
        let span = place.span.clone()?;
        let raw = place.source.text.get(span.clone())?;
        if wrong.is_empty() || raw.contains('\n') || !is_plain_name(right) {
            return None;
        }
        let joins = |character: char| character.is_alphanumeric() || matches!(character, '_' | '-');
        let mut found = raw
            .match_indices(wrong)
            .filter(|(at, words)| !raw[..*at].ends_with(joins) && !raw[at + words.len()..].starts_with(joins));
        let (Some((at, _)), None) = (found.next(), found.next()) else { return None };
        let start = span.start + at;
        Some(Self { span: start..start + wrong.len(), text: right.to_owned(), is_certain })
    }

    /// Whether two fixes change the same text, or begin at the same place.
    fn meets(&self, other: &Self) -> bool {
        self.span.start < other.span.end && other.span.start < self.span.end || self.span.start == other.span.start
    }
}

/// Applies fixes to the text that they were made for. If two meet, only the first is applied.
///
/// Returns the new text, and those of `fixes` that were applied.
pub fn apply<'f>(text: &str, fixes: &[&'f Fix]) -> (String, Vec<&'f Fix>) {
    let mut sorted = fixes.to_vec();
    sorted.sort_by_key(|fix| (fix.span.start, fix.span.end));
    let mut applied: Vec<&Fix> = Vec::new();
    let (mut fixed, mut done) = (String::new(), 0);
    for fix in sorted {
        if applied.last().is_some_and(|last| last.meets(fix)) {
            continue;
        }
        let Some(before) = text.get(done..fix.span.start) else { continue };
        fixed.push_str(before);
        fixed.push_str(&fix.text);
        done = fix.span.end;
        applied.push(fix);
    }
    fixed.push_str(text.get(done..).unwrap_or_default());
    (fixed, applied)
}

/// Whether nothing but `right` can have been meant: it differs from `wrong` by one typo or by case, and no other
/// candidate is as near.
///
/// Names that differ in a digit, such as `step1` and `step2`, are different names, and most short names are near to each other.
pub(crate) fn is_certain(wrong: &str, right: &str, candidates: &[&str]) -> bool {
    let is_near = |name: &str| name.eq_ignore_ascii_case(wrong) || strsim::damerau_levenshtein(wrong, name) <= 1;
    let digits = |name: &str| name.chars().filter(char::is_ascii_digit).collect::<String>();
    let is_long = |name: &str| name.chars().count() >= 3;
    is_near(right)
        && is_long(wrong)
        && is_long(right)
        && digits(wrong) == digits(right)
        && !candidates.iter().any(|other| *other != right && is_near(other))
}

/// Whether a name needs no quotes in YAML, and is a text to every reader.
fn is_plain_name(name: &str) -> bool {
    let words = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"];
    name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && name.chars().all(|character| character.is_ascii_alphanumeric() || matches!(character, '_' | '-' | '.' | '/'))
        && !words.iter().any(|word| word.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::SourceFile;

    #[test]
    fn a_fix_is_certain_only_for_one_slip_with_one_candidate() {
        for (wrong, candidates, expected) in [
            ("delivred", &["delivered", "ship"][..], true),
            ("Done", &["done"], true),
            ("DONE", &["done"], true),
            ("tset", &["test"], true),
            ("delvred", &["delivered"], false),
            ("step3", &["step2"], false),
            ("step3", &["step"], false),
            ("ab", &["abc"], false),
            ("cart", &["card", "carts"], false),
            ("done", &["Done", "DONE"], false),
        ] {
            assert_eq!(is_certain(wrong, candidates[0], candidates), expected, "{wrong} {candidates:?}");
        }
    }

    #[test]
    fn a_name_is_changed_at_its_place() {
        let fixed = |text: &str, part: &str, wrong: &str, right: &str| {
            let source = SourceFile::new("g.yaml", "g.yaml", text);
            let start = text.find(part).unwrap();
            let fix = Fix::of_name(&SourcePlace::new(&source, start..start + part.len()), wrong, right, true)?;
            Some(apply(text, &[&fix]).0)
        };
        assert_eq!(fixed("next: dnoe\n", "dnoe", "dnoe", "done").unwrap(), "next: done\n");
        assert_eq!(fixed("next: 'dnoe'\n", "'dnoe'", "dnoe", "done").unwrap(), "next: 'done'\n");
        assert_eq!(
            fixed("a: \"${state.nmae.x}\"\n", "state.nmae.x", "nmae", "name").unwrap(),
            "a: \"${state.name.x}\"\n"
        );
        assert_eq!(fixed("a: \"${state.a.a}\"\n", "state.a.a", "a", "b"), None, "which of them?");
        assert_eq!(fixed("a: \"${state.nmaes}\"\n", "state.nmaes", "nmae", "name"), None, "part of a word");
        assert_eq!(fixed("next: nul\n", "nul", "nul", "null"), None, "no text without quotes");
        assert_eq!(fixed("next: dnoe\n", "dnoe", "dnoe", "all done: yes"), None);
    }

    #[test]
    fn the_first_of_overlapping_fixes_is_applied() {
        let fix = |span: Span, text: &str| Fix { span, text: text.into(), is_certain: true };
        let (one, same, over, other) = (fix(0..3, "x"), fix(0..3, "x"), fix(2..5, "y"), fix(5..5, "z"));
        let (text, applied) = apply("abcdefg", &[&other, &one, &same, &over]);
        assert_eq!(text, "xdezfg");
        assert_eq!(applied, [&one, &other]);
    }
}
