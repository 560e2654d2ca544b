//! Templates: text with `${path}` in it, and values made of such texts.

use std::fmt;
use std::ops::Range;

use crate::input::{self, Otherwise};
use crate::path::{Path, PathError, PathNames, Root};

/// A text with `${path || path}` expressions and `{input:name}` references in it.
///
/// `$${` stands for the two characters `${`. Text that an expression yields is never searched for expressions again (R70).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Template {
    /// No expression: a plain text.
    Text(String),
    /// One expression and nothing else: the value keeps its type (R65).
    Whole(Expression),
    /// Expressions inside a text: the result is a text (R66).
    Mixed(Vec<Piece>),
}

/// A part of a mixed template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// Text as it is.
    Text(String),
    /// An expression, rendered as text.
    Expression(Expression),
}

/// An expression, written between `${` and `}`: paths, of which the first that is not null counts (R64).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expression {
    /// The paths, in order; at least one.
    pub paths: Vec<Path>,
    /// The range of each path in the template's text, in bytes.
    pub ranges: Vec<Range<usize>>,
    /// The replacement for a missing value, if this is written `{input:name}`. Such an expression is always a text (R71).
    pub input: Option<InputReference>,
}

/// The value of a reference `{input:name}` if there is no such input (R71).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InputReference {
    /// The reference, as it is written.
    AsWritten(String),
    /// This text; empty for `{input:name?}`.
    Text(String),
}

/// Why a text is not a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateError {
    /// The mistake.
    pub reason: TemplateErrorReason,
    /// Its range, in bytes of the template's text.
    pub range: Range<usize>,
}

/// A mistake in a template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateErrorReason {
    /// `${` without its `}`.
    #[error("`${{` is never closed")]
    Unclosed,
    /// Nothing between `${` and `}`, or beside `||`.
    #[error("the expression is empty")]
    Empty,
    /// `${` in the default of a reference to an input.
    #[error("the default of `{{input:…}}` is a plain text and must not contain an expression")]
    DefaultWithExpression,
    /// One of the paths is wrong.
    #[error("{0}")]
    Path(PathError),
}

impl fmt::Display for TemplateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason.fmt(f)
    }
}

impl std::error::Error for TemplateError {}

impl Template {
    /// Reads a template.
    ///
    /// # Errors
    ///
    /// The first mistake, with its place.
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        Self::parse_in(text, &[])
    }

    /// As [`Template::parse`], where there are names besides the namespaces.
    ///
    /// # Errors
    ///
    /// The first mistake, with its place.
    pub fn parse_in(text: &str, locals: &[&str]) -> Result<Self, TemplateError> {
        Self::parse_among(text, PathNames::Known(locals))
    }

    /// As [`Template::parse`], where there are names besides the namespaces.
    ///
    /// # Errors
    ///
    /// The first mistake, with its place.
    pub fn parse_among(text: &str, names: PathNames<'_>) -> Result<Self, TemplateError> {
        let mut pieces = Vec::new();
        let mut literal = String::new();
        let mut at = 0;
        while let Some(found) = find(&text[at..], "${") {
            let open = at + found;
            if text[at..open].ends_with('$') {
                push_plain(text, at..open - 1, &mut literal, &mut pieces);
                literal.push_str("${");
                at = open + 2;
                continue;
            }
            if let Some(range) = unfinished_reference(text, at..open) {
                return Err(TemplateError { reason: TemplateErrorReason::DefaultWithExpression, range });
            }
            push_plain(text, at..open, &mut literal, &mut pieces);
            let inside = open + 2;
            let Some(length) = text[inside..].find('}') else {
                return Err(TemplateError { reason: TemplateErrorReason::Unclosed, range: open..text.len() });
            };
            if !literal.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut literal)));
            }
            pieces.push(Piece::Expression(Expression::parse(text, inside..inside + length, names)?));
            at = inside + length + 1;
        }
        push_plain(text, at..text.len(), &mut literal, &mut pieces);
        // A block scalar ends in a newline that its author did not mean (R65).
        let end = if literal == "\n" { "" } else { literal.as_str() };
        match (pieces.pop(), end) {
            (None, _) => Ok(Self::Text(literal)),
            (Some(Piece::Expression(only)), "") if pieces.is_empty() && only.input.is_none() => Ok(Self::Whole(only)),
            (Some(last), _) => {
                pieces.push(last);
                if !literal.is_empty() {
                    pieces.push(Piece::Text(literal));
                }
                Ok(Self::Mixed(pieces))
            }
        }
    }

    /// Returns the expressions, in order.
    pub fn expressions(&self) -> impl Iterator<Item = &Expression> {
        let (whole, pieces) = match self {
            Self::Text(_) => (None, [].as_slice()),
            Self::Whole(expression) => (Some(expression), [].as_slice()),
            Self::Mixed(pieces) => (None, pieces.as_slice()),
        };
        whole.into_iter().chain(pieces.iter().filter_map(|piece| match piece {
            Piece::Text(_) => None,
            Piece::Expression(expression) => Some(expression),
        }))
    }
}

/// Returns the byte index of the first match of `other`, as `str::find`. In short texts, this is faster: `str::find`
/// prepares a table for each search.
pub fn find(text: &str, other: &str) -> Option<usize> {
    let Some(first) = other.chars().next() else { return Some(0) };
    text.match_indices(first).map(|(at, _)| at).find(|at| text[*at..].starts_with(other))
}

/// Adds a part of a text that has no `${…}` in it: plain text, and references to inputs (R71).
fn push_plain(text: &str, range: Range<usize>, literal: &mut String, pieces: &mut Vec<Piece>) {
    let part = &text[range.clone()];
    let mut at = 0;
    for reference in input::references(part) {
        literal.push_str(&part[at..reference.range.start]);
        at = reference.range.end;
        if !literal.is_empty() {
            pieces.push(Piece::Text(std::mem::take(literal)));
        }
        let start = range.start + reference.range.start + input::OPEN.len();
        let name = start..start + reference.name.len();
        let input = match reference.otherwise {
            Otherwise::AsWritten => InputReference::AsWritten(part[reference.range].to_owned()),
            Otherwise::Text(text) => InputReference::Text(text.to_owned()),
        };
        pieces.push(Piece::Expression(Expression {
            paths: vec![Path { root: Root::Inputs, segments: vec![reference.name.to_owned()] }],
            ranges: Vec::from([name]),
            input: Some(input),
        }));
    }
    literal.push_str(&part[at..]);
}

/// Returns the range of a reference whose default continues into the expression behind `range`.
fn unfinished_reference(text: &str, range: Range<usize>) -> Option<Range<usize>> {
    let part = &text[range.clone()];
    if !part.contains('{') {
        return None;
    }
    let start = part.rfind(input::OPEN)?;
    let inside = &part[start + input::OPEN.len()..];
    let name = inside.find(|character: char| !(character.is_alphanumeric() || character == '_'))?;
    let is_open = name > 0 && inside[name..].starts_with([':', '|']) && !inside.contains('}');
    is_open.then(|| range.start + start..range.end + 2)
}

impl Expression {
    fn parse(text: &str, range: Range<usize>, names: PathNames<'_>) -> Result<Self, TemplateError> {
        let mut expression = Self { paths: Vec::new(), ranges: Vec::new(), input: None };
        let mut at = range.start;
        for operand in text[range].split("||") {
            let trimmed = operand.trim();
            let start = at + (operand.len() - operand.trim_start().len());
            let range = start..start + trimmed.len();
            if trimmed.is_empty() {
                // Point at the operator or the braces: there is nothing else to point at.
                let range = at.saturating_sub(2)..at + operand.len() + 1;
                return Err(TemplateError { reason: TemplateErrorReason::Empty, range });
            }
            let path = Path::parse_among(trimmed, names)
                .map_err(|error| TemplateError { reason: TemplateErrorReason::Path(error), range: range.clone() })?;
            expression.paths.push(path);
            expression.ranges.push(range);
            at += operand.len() + 2;
        }
        Ok(expression)
    }
}

impl fmt::Display for Expression {
    /// Writes the paths as the author would: `state.a || inputs.b`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, path) in self.paths.iter().enumerate() {
            if index > 0 {
                f.write_str(" || ")?;
            }
            path.fmt(f)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_text_is_found_where_the_standard_library_finds_it(text in "[${é<]{0,12}", other in "[${é<]{0,3}") {
            prop_assert_eq!(find(&text, &other), text.find(&other));
        }
    }

    fn shape(text: &str) -> String {
        match Template::parse(text) {
            Ok(Template::Text(text)) => format!("text {text:?}"),
            Ok(Template::Whole(expression)) => format!("whole <{expression}>"),
            Ok(Template::Mixed(pieces)) => pieces
                .iter()
                .map(|piece| match piece {
                    Piece::Text(text) => format!("{text:?}"),
                    Piece::Expression(expression) => format!("<{expression}>"),
                })
                .collect::<Vec<_>>()
                .join(" "),
            Err(error) => format!("{error} at {:?}: {:?}", error.range, &text[error.range.clone()]),
        }
    }

    #[test]
    fn a_lone_expression_keeps_its_type_and_a_mixed_one_is_text() {
        assert_eq!(shape("${state.x}"), "whole <state.x>");
        assert_eq!(shape("${state.x}\n"), "whole <state.x>");
        assert_eq!(shape(" ${state.x}"), "\" \" <state.x>");
        assert_eq!(shape("${state.x} "), "<state.x> \" \"");
        assert_eq!(shape("${state.x}\n\n"), "<state.x> \"\\n\\n\"");
        assert_eq!(shape("${state.x}${inputs.y}"), "<state.x> <inputs.y>");
        assert_eq!(
            shape("a ${state.x} b ${ inputs.y || state.z } c"),
            "\"a \" <state.x> \" b \" <inputs.y || state.z> \" c\""
        );
        assert_eq!(shape("plain { } $x"), "text \"plain { } $x\"");
        assert_eq!(shape(""), "text \"\"");
    }

    #[test]
    fn a_doubled_dollar_writes_the_two_characters() {
        assert_eq!(shape("$${HOME}"), "text \"${HOME}\"");
        assert_eq!(shape("$${HOME} ${state.x}"), "\"${HOME} \" <state.x>");
        assert_eq!(shape("$$"), "text \"$$\"");
    }

    #[test]
    fn mistakes_are_reported_with_their_places() {
        assert_eq!(shape("a ${state.x"), "`${` is never closed at 2..11: \"${state.x\"");
        assert_eq!(shape("${}"), "the expression is empty at 0..3: \"${}\"");
        assert_eq!(
            shape("${ state.x || }"),
            "the expression is empty at 12..15: \"|| \"".replace("|| \"", "|| }\"").replace("12..15", "11..15")
        );
        assert_eq!(shape("x ${HOME}"), "`HOME` is not a namespace at 4..8: \"HOME\"");
        assert_eq!(shape("${state.a | upper}"), "a path cannot contain ' ' at 2..17: \"state.a | upper\"");
    }

    #[test]
    fn references_to_inputs_are_expressions_and_texts() {
        assert_eq!(shape("{input:a}"), "<inputs.a>");
        assert_eq!(
            shape("Hello {input:a?}, ${state.b}{input:c|d e}"),
            "\"Hello \" <inputs.a> \", \" <state.b> <inputs.c>"
        );
        assert_eq!(shape("{input: a} {input:a-b} $${input:a}"), "text \"{input: a} {input:a-b} ${input:a}\"");
        let text = "x {input:name:none}";
        let Ok(Template::Mixed(pieces)) = Template::parse(text) else { panic!("it is a text") };
        let Piece::Expression(expression) = &pieces[1] else { panic!("it is a reference") };
        assert_eq!(expression.input, Some(InputReference::Text("none".to_owned())));
        assert_eq!(&text[expression.ranges[0].clone()], "name");
        let error = shape("a {input:b:${state.c}}");
        assert!(error.starts_with("the default of `{input:…}` is a plain text"), "{error}");
        assert_eq!(shape("{input:b ${state.c}}"), "\"{input:b \" <state.c> \"}\"");
    }

    #[test]
    fn ranges_point_at_the_paths() {
        let text = "é ${ state.a || inputs.b }";
        let template = Template::parse(text).unwrap();
        let ranges: Vec<_> = template.expressions().flat_map(|e| &e.ranges).map(|r| &text[r.clone()]).collect();
        assert_eq!(ranges, ["state.a", "inputs.b"]);
    }
}
