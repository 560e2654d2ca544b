//! References to inputs in texts: `{input:name}` (R71–R73).
//!
//! | written | the input is there | it is not |
//! |---|---|---|
//! | `{input:name}` | its value | stays as it is written |
//! | `{input:name?}` | its value | nothing |
//! | `{input:name:text}`, `{input:name\|text}` | its value | `text`, which may be empty and may hold spaces |
//!
//! A name is made of letters, digits and `_`. Any other text is no reference, and stays: `{input:a-b}`, `{input: a}`. A
//! value that is null is written as nothing. Text that comes from a value or a default is never searched again, so no
//! value can introduce references (R70).

use std::ops::Range;

use crate::template::find;
use crate::value::View;

/// How a reference begins.
pub(crate) const OPEN: &str = "{input:";

/// A reference to an input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference<'t> {
    /// The input's name.
    pub name: &'t str,
    /// The replacement if there is no such input.
    pub otherwise: Otherwise<'t>,
    /// Its range, in bytes of the text.
    pub range: Range<usize>,
}

/// The replacement for an input that is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Otherwise<'t> {
    /// The reference, as it is written.
    AsWritten,
    /// This text; empty for `{input:name?}`.
    Text(&'t str),
}

/// Finds the references in `text`, in order.
pub fn references(text: &str) -> impl Iterator<Item = Reference<'_>> {
    let mut at = 0;
    // No reference ends behind the last `}`, and a search for an end there from each beginning would take a long time.
    let begins = find(text, OPEN).is_some();
    let text = &text[..text.rfind('}').filter(|_| begins).map_or(0, |last| last + 1)];
    std::iter::from_fn(move || {
        while let Some(found) = find(&text[at..], OPEN) {
            let start = at + found;
            let inside = start + OPEN.len();
            at = inside;
            if let Some((name, otherwise, length)) = read(&text[inside..]) {
                at = inside + length;
                return Some(Reference { name, otherwise, range: start..at });
            }
        }
        None
    })
}

/// Reads a reference behind its `{input:`, and returns how long it is, its `}` included.
fn read(text: &str) -> Option<(&str, Otherwise<'_>, usize)> {
    let length = text.find(|character: char| !(character.is_alphanumeric() || character == '_'))?;
    let (name, rest) = text.split_at(length);
    if name.is_empty() {
        return None;
    }
    if rest.starts_with('}') {
        return Some((name, Otherwise::AsWritten, length + 1));
    }
    if rest.starts_with("?}") {
        return Some((name, Otherwise::Text(""), length + 2));
    }
    let (default, _) = rest.strip_prefix([':', '|'])?.split_once('}')?;
    Some((name, Otherwise::Text(default), length + 1 + default.len() + 1))
}

/// Writes `text` with the values of its references; `input` looks one up by its name.
///
/// Texts are written as they are, other values as JSON, null as nothing.
pub fn substitute<'v>(text: &str, input: impl Fn(&str) -> Option<View<'v>>) -> String {
    let mut written = String::with_capacity(text.len());
    let mut at = 0;
    for Reference { name, otherwise, range } in references(text) {
        written.push_str(&text[at..range.start]);
        match (input(name), otherwise) {
            (Some(value), _) => value.write_text(&mut written),
            (None, Otherwise::Text(default)) => written.push_str(default),
            (None, Otherwise::AsWritten) => written.push_str(&text[range.clone()]),
        }
        at = range.end;
    }
    written.push_str(&text[at..]);
    written
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::value::AsView;

    fn written(text: &str, inputs: &Value) -> String {
        substitute(text, |name| inputs.get(name).map(AsView::view))
    }

    #[test]
    fn every_reference_form_gives_its_value_or_replacement() {
        let inputs = json!({"a": "x", "größe_1": 2});
        for (text, expected) in [
            ("{input:a}", "x"),
            ("<{input:a}|{input:größe_1}>", "<x|2>"),
            ("{input:a?}{input:a:d}{input:a|d}", "xxx"),
            ("{input:b}", "{input:b}"),
            ("[{input:b?}]", "[]"),
            ("{input:b:two words}", "two words"),
            ("{input:b|two:words}", "two:words"),
            ("[{input:b:}{input:b|}]", "[]"),
        ] {
            assert_eq!(written(text, &inputs), expected, "{text}");
        }
    }

    #[test]
    fn optional_references_and_defaults_apply_without_any_inputs() {
        assert_eq!(written("{input:a?}{input:b:c}", &json!({})), "c");
    }

    #[test]
    fn look_alikes_of_references_stay_unchanged() {
        let inputs = json!({"a": "x"});
        for text in [
            "{input:a-b}",
            "{input: a}",
            "{input:}",
            "{input:?}",
            "{input:a",
            "{input:a:b",
            "{input:a??}",
            "{inputs:a}",
        ] {
            assert_eq!(written(text, &inputs), text);
        }
        assert_eq!(written("{input:{input:a}}", &inputs), "{input:x}");
    }

    #[test]
    fn other_values_are_written_as_json_and_null_as_nothing() {
        let inputs = json!({"n": null, "t": true, "i": 3, "f": 2.0, "l": [1, "a"], "o": {"k": null}});
        let text = "{input:n}{input:n:default} {input:t} {input:i} {input:f} {input:l} {input:o}";
        assert_eq!(written(text, &inputs), r#" true 3 2.0 [1,"a"] {"k":null}"#);
    }

    #[test]
    fn values_and_defaults_are_never_read_again() {
        let inputs = json!({"a": "{input:b}", "b": "secret", "half": "{input:"});
        assert_eq!(written("{input:a}", &inputs), "{input:b}");
        assert_eq!(written("{input:half}b}", &inputs), "{input:b}");
        assert_eq!(written("{input:c:{input:b}}", &inputs), "{input:b}");
    }

    #[test]
    fn references_report_their_places() {
        let text = "é {input:a} {input:b|c}";
        let found: Vec<_> = references(text).map(|found| &text[found.range]).collect();
        assert_eq!(found, ["{input:a}", "{input:b|c}"]);
    }

    proptest! {
        #[test]
        fn any_text_has_ordered_references_or_stays_unchanged(text in r"(\{input:|[ab?:|}é ]|\{){0,20}") {
            let inputs = json!({"a": "1"});
            let pieces: Vec<_> = references(&text).map(|found| found.range).collect();
            prop_assert!(pieces.windows(2).all(|pair| pair[0].end <= pair[1].start));
            if pieces.is_empty() {
                prop_assert_eq!(written(&text, &inputs), text);
            }
        }
    }
}
