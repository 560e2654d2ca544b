//! The part of XML that directives use: elements with attributes and text, bounded in depth and number.

use std::ops::Range;

use quick_xml::XmlVersion;
use quick_xml::events::{BytesRef, BytesStart, Event};
use quick_xml::reader::Reader;
use serde_json::{Map, Value};

use super::directive::{DirectiveError, DirectiveProblem};

const DEEPEST: usize = 32;
const MOST_ELEMENTS: usize = 10_000;

/// An element.
#[derive(Debug)]
pub(super) struct Element {
    pub(super) name: String,
    /// In the order of the text, without duplicate names.
    pub(super) attributes: Vec<(String, String)>,
    pub(super) children: Vec<Self>,
    /// All text directly in it, with entities resolved.
    text: String,
    /// The bytes between its tags, as a range of the source.
    pub(super) inside: Range<usize>,
    /// Its line, from 1.
    pub(super) line: usize,
}

impl Element {
    /// Returns its text without the surrounding blanks and the common indentation.
    pub(super) fn text(&self) -> String {
        tidy(&self.text)
    }

    pub(super) fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    pub(super) fn child(&self, name: &str) -> Option<&Self> {
        self.children.iter().find(|child| child.name == name)
    }

    /// Converts any element to JSON: to a string if it is only text, else to an object of its attributes, its children and
    /// its `text`. Several children of one name become a list.
    pub(super) fn to_json(&self) -> Value {
        let text = self.text();
        if self.attributes.is_empty() && self.children.is_empty() {
            return Value::String(text);
        }
        let mut object: Map<String, Value> =
            self.attributes.iter().map(|(name, value)| (name.clone(), Value::from(value.as_str()))).collect();
        for child in &self.children {
            let value = child.to_json();
            match object.get_mut(&child.name) {
                None => {
                    object.insert(child.name.clone(), value);
                }
                Some(Value::Array(list)) => list.push(value),
                Some(one) => *one = Value::Array(vec![one.take(), value]),
            }
        }
        if !text.is_empty() {
            object.insert("text".to_owned(), Value::String(text));
        }
        Value::Object(object)
    }
}

/// Reads `source`, which is one element that begins at `line` of its file.
///
/// # Errors
///
/// If it is not well-formed, declares a document type, uses entities that XML does not define, or is too deep or too large.
pub(super) fn parse(source: &str, line: usize) -> Result<Element, DirectiveError> {
    let mut reader = Reader::from_str(source);
    reader.config_mut().enable_all_checks(true);
    let mut open: Vec<Element> = Vec::new();
    let mut root = None;
    let mut count = 0;
    let first = line;
    let (mut line, mut end) = (first, 0);
    loop {
        let begin = end;
        let wrong = |problem| DirectiveError { line, problem };
        let event = reader.read_event().map_err(|error| DirectiveError {
            line: first + lines(source.get(..offset(reader.error_position())).unwrap_or(source)),
            problem: DirectiveProblem::Xml(error.to_string()),
        })?;
        end = offset(reader.buffer_position());
        match event {
            Event::Start(_) | Event::Empty(_) if root.is_some() => {
                return Err(wrong(DirectiveProblem::SeveralElements));
            }
            Event::Start(tag) => {
                count += 1;
                if open.len() == DEEPEST || count > MOST_ELEMENTS {
                    return Err(wrong(DirectiveProblem::TooLarge { deepest: DEEPEST, most: MOST_ELEMENTS }));
                }
                open.push(element(&tag, end..end, line)?);
            }
            Event::Empty(tag) => {
                count += 1;
                if count > MOST_ELEMENTS {
                    return Err(wrong(DirectiveProblem::TooLarge { deepest: DEEPEST, most: MOST_ELEMENTS }));
                }
                close(element(&tag, end..end, line)?, &mut open, &mut root);
            }
            Event::End(_) => {
                // The reader checks that the names of the tags match.
                if let Some(mut element) = open.pop() {
                    element.inside.end = begin;
                    close(element, &mut open, &mut root);
                }
            }
            Event::Text(text) => write(&mut open, &text.xml10_content()),
            Event::CData(text) => write(&mut open, &text.xml10_content()),
            Event::GeneralRef(reference) => {
                let character = character(&reference)
                    .ok_or_else(|| wrong(DirectiveProblem::Entity(reference.xml10_content().to_string())))?;
                write(&mut open, character.encode_utf8(&mut [0; 4]));
            }
            Event::DocType(_) => return Err(wrong(DirectiveProblem::DocumentType)),
            Event::Comment(_) | Event::PI(_) | Event::Decl(_) => {}
            Event::Eof => {
                return match (open.pop(), root) {
                    (Some(Element { name, line, .. }), _) => {
                        Err(DirectiveError { line, problem: DirectiveProblem::NotClosed(name) })
                    }
                    (None, Some(root)) => Ok(root),
                    (None, None) => Err(wrong(DirectiveProblem::NoElement)),
                };
            }
        }
        line += lines(source.get(begin..end).unwrap_or_default());
    }
}

/// Returns the character of an entity that XML itself defines; `None` for any other.
fn character(reference: &BytesRef<'_>) -> Option<char> {
    match (reference.resolve_char_ref(), reference.xml10_content().as_ref()) {
        (Ok(Some(character)), _) => Some(character),
        (_, "lt") => Some('<'),
        (_, "gt") => Some('>'),
        (_, "amp") => Some('&'),
        (_, "apos") => Some('\''),
        (_, "quot") => Some('"'),
        _ => None,
    }
}

/// Reads the attributes of the tag `<name …>`, given without its brackets.
///
/// # Errors
///
/// If they are not well-formed.
pub(super) fn attributes(tag: &BytesStart<'_>, line: usize) -> Result<Vec<(String, String)>, DirectiveError> {
    let wrong = |reason: String| DirectiveError { line, problem: DirectiveProblem::Xml(reason) };
    tag.attributes()
        .map(|attribute| {
            let attribute = attribute.map_err(|error| wrong(error.to_string()))?;
            let value = attribute.normalized_value(XmlVersion::Implicit1_0);
            let value = value.map_err(|error| wrong(error.to_string()))?;
            Ok((attribute.key.as_ref().to_owned(), value.into_owned()))
        })
        .collect()
}

fn element(tag: &BytesStart<'_>, inside: Range<usize>, line: usize) -> Result<Element, DirectiveError> {
    Ok(Element {
        name: tag.name().as_ref().to_owned(),
        attributes: attributes(tag, line)?,
        children: Vec::new(),
        text: String::new(),
        inside,
        line,
    })
}

fn close(element: Element, open: &mut [Element], root: &mut Option<Element>) {
    match open.last_mut() {
        Some(parent) => parent.children.push(element),
        None => *root = Some(element),
    }
}

/// Adds text to the innermost open element. Text outside of the root element is layout, and is ignored.
fn write(open: &mut [Element], text: &str) {
    if let Some(element) = open.last_mut() {
        element.text.push_str(text);
    }
}

fn offset(position: u64) -> usize {
    usize::try_from(position).unwrap_or(usize::MAX)
}

pub(super) fn lines(text: &str) -> usize {
    text.bytes().filter(|&byte| byte == b'\n').count()
}

/// Removes the blank space around `text`, and the indentation that all its lines share.
pub(super) fn tidy(text: &str) -> String {
    let text = text.trim_end();
    let first = text.find(|character: char| !character.is_whitespace()).unwrap_or(text.len());
    let start = text[..first].rfind('\n').map_or(first, |newline| newline + 1);
    let text = &text[start..];
    let depth = |line: &&str| line.len() - line.trim_start().len();
    let common = text.lines().filter(|line| !line.trim().is_empty()).map(|line| depth(&line)).min().unwrap_or(0);
    let lines: Vec<&str> = text.lines().map(|line| line.get(common..).unwrap_or_default().trim_end()).collect();
    lines.join("\n")
}
