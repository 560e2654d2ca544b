//! Paths: `state.order.items.0.price`, the way from a namespace to a value.

use std::fmt;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::value::View;

/// The maximum number of parts of a path, including its namespace. Longer paths lead nowhere, and would only be slow to follow.
pub const MOST_PARTS: usize = 100;

/// Where a path begins (R55, R56).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Root {
    /// The run's state; the first segment is the key.
    State,
    /// The run's original inputs, everywhere and also after a resume (R59).
    Inputs,
    /// The result of the node's action; only in its `assign` and `next`.
    Result,
    /// The time of the step as RFC 3339 text.
    Now,
    /// The time of the step in milliseconds since the Unix epoch.
    Timestamp,
    /// The visit: its `number` at this node, from 1, and the result of the node's `previous` visit.
    Visit,
    /// A name that exists only at its place, such as a foreach's variable; it is the first segment.
    Local,
}

impl Root {
    /// Every namespace that has one spelling, with it.
    pub const TABLE: [(Self, &'static str); 6] = [
        (Self::State, "state"),
        (Self::Inputs, "inputs"),
        (Self::Result, "result"),
        (Self::Now, "_now"),
        (Self::Timestamp, "_timestamp"),
        (Self::Visit, "visit"),
    ];

    /// Finds the namespace that is written `name`.
    pub fn named(name: &str) -> Option<Self> {
        Self::TABLE.iter().find(|(_, spelling)| *spelling == name).map(|(root, _)| *root)
    }

    /// Returns the spelling; empty for a local name.
    pub fn name(self) -> &'static str {
        Self::TABLE.iter().find(|(root, _)| *root == self).map_or("", |(_, spelling)| spelling)
    }
}

/// A path from a namespace to a value.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Path {
    /// Where it begins.
    pub root: Root,
    /// The fields and indices to follow, in order.
    pub segments: Vec<String>,
}

/// The names that a path can begin with besides the namespaces.
#[derive(Debug, Clone, Copy)]
pub enum PathNames<'n> {
    /// These names. They hide namespaces of the same name.
    Known(&'n [&'n str]),
    /// All names that are no namespaces: a later check decides which exist.
    Open,
}

impl PathNames<'_> {
    fn has(self, name: &str) -> bool {
        match self {
            Self::Known(names) => names.contains(&name),
            Self::Open => Root::named(name).is_none() && !name.is_empty(),
        }
    }
}

/// Why a text is not a path. Offsets are bytes from the start of the text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// There is nothing.
    #[error("the path is empty")]
    Empty,
    /// Two dots in a row, or one at either end.
    #[error("the path has an empty part")]
    EmptySegment {
        /// The offset where the part would be.
        offset: usize,
    },
    /// A character that a part of a path cannot hold, as in an attempt at an expression (R63).
    #[error("a path cannot contain {character:?}")]
    Character {
        /// The character.
        character: char,
        /// Its offset.
        offset: usize,
    },
    /// More than [`MOST_PARTS`] parts.
    #[error("a path has at most {MOST_PARTS} parts")]
    TooLong,
    /// The first part is not a namespace.
    #[error("`{name}` is not a namespace")]
    UnknownRoot {
        /// The first part.
        name: String,
    },
    /// `_now` and `_timestamp` have no parts.
    #[error("`{name}` has no parts")]
    NoParts {
        /// The built-in's name.
        name: &'static str,
        /// The offset of the first part.
        offset: usize,
    },
}

impl Path {
    /// Reads a path: parts with dots between them, indices also in brackets (R60, R62).
    ///
    /// # Errors
    ///
    /// If the text is no path; see [`PathError`].
    pub fn parse(text: &str) -> Result<Self, PathError> {
        Self::parse_in(text, &[])
    }

    /// As [`Path::parse`], where there are names besides the namespaces; they hide namespaces of the same name.
    ///
    /// # Errors
    ///
    /// If the text is no path; see [`PathError`].
    pub fn parse_in(text: &str, locals: &[&str]) -> Result<Self, PathError> {
        Self::parse_among(text, PathNames::Known(locals))
    }

    /// As [`Path::parse`], where there are names besides the namespaces.
    ///
    /// # Errors
    ///
    /// If the text is no path; see [`PathError`].
    pub fn parse_among(text: &str, names: PathNames<'_>) -> Result<Self, PathError> {
        if text.is_empty() {
            return Err(PathError::Empty);
        }
        let parts = split(text)?;
        if parts.len() > MOST_PARTS {
            return Err(PathError::TooLong);
        }
        let mut parts = parts.into_iter();
        let (_, name) = parts.next().ok_or(PathError::Empty)?;
        if names.has(&name) {
            let segments = std::iter::once(name).chain(parts.map(|(_, part)| part)).collect();
            return Ok(Self { root: Root::Local, segments });
        }
        let root = Root::named(&name).ok_or(PathError::UnknownRoot { name })?;
        let parts: Vec<(usize, String)> = parts.collect();
        match (root, parts.first()) {
            (Root::Now | Root::Timestamp, Some(&(offset, _))) => Err(PathError::NoParts { name: root.name(), offset }),
            _ => Ok(Self { root, segments: parts.into_iter().map(|(_, part)| part).collect() }),
        }
    }

    /// Follows the path from the value of its namespace.
    pub fn follow<'a>(&self, root: View<'a>) -> View<'a> {
        follow(root, &self.segments)
    }
}

/// Follows `segments` from `view`, one after the other.
#[inline]
pub fn follow<'a>(view: View<'a>, segments: &[impl AsRef<str>]) -> View<'a> {
    let mut view = view;
    for segment in segments {
        view = view.step(segment.as_ref());
    }
    view
}

/// Splits at dots and brackets; each part with its offset.
fn split(text: &str) -> Result<Vec<(usize, String)>, PathError> {
    let mut parts = vec![(0, String::new())];
    let mut in_brackets = false;
    for (offset, character) in text.char_indices() {
        let part = parts.last_mut().expect("there is always a part");
        match character {
            '.' if !in_brackets => {
                if part.1.is_empty() {
                    return Err(PathError::EmptySegment { offset });
                }
                parts.push((offset + 1, String::new()));
            }
            '[' if !in_brackets && !part.1.is_empty() => {
                in_brackets = true;
                parts.push((offset + 1, String::new()));
            }
            ']' if in_brackets && part.1.parse::<i64>().is_ok() => {
                in_brackets = false;
                match text[offset + 1..].chars().next() {
                    None | Some('.' | '[') => {}
                    Some(character) => return Err(PathError::Character { character, offset: offset + 1 }),
                }
            }
            '-' | '0'..='9' if in_brackets => part.1.push(character),
            _ if in_brackets || !is_part(character) => return Err(PathError::Character { character, offset }),
            _ => part.1.push(character),
        }
    }
    let (offset, last) = parts.last().expect("there is always a part");
    if in_brackets || last.is_empty() {
        return Err(PathError::EmptySegment { offset: *offset });
    }
    Ok(parts)
}

/// Letters and digits of any script, `_`, `-`, and what JSON keys commonly hold without making a path ambiguous.
fn is_part(character: char) -> bool {
    character.is_alphanumeric() || matches!(character, '_' | '-' | '@' | '$' | ':' | '/' | '#')
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.root.name())?;
        let dot = if self.root == Root::Local { "" } else { "." };
        for (at, segment) in self.segments.iter().enumerate() {
            write!(f, "{}{segment}", if at == 0 { dot } else { "." })?;
        }
        Ok(())
    }
}

impl Serialize for Path {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Path {
    /// Reads a path of a node: one that begins with no namespace begins with the name of an item or an argument.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse_among(&String::deserialize(deserializer)?, PathNames::Open).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str) -> Result<(Root, Vec<String>), PathError> {
        Path::parse(text).map(|path| (path.root, path.segments))
    }

    #[test]
    fn a_path_with_too_many_parts_is_refused() {
        assert!(Path::parse(&("state".to_owned() + &".a".repeat(MOST_PARTS - 1))).is_ok());
        assert_eq!(Path::parse(&("state".to_owned() + &".a".repeat(MOST_PARTS))), Err(PathError::TooLong));
    }

    #[test]
    fn dots_and_brackets_separate_the_parts() {
        let expected = Ok((Root::State, vec!["items".into(), "0".into(), "price".into()]));
        assert_eq!(parts("state.items.0.price"), expected);
        assert_eq!(parts("state.items[0].price"), expected);
        assert_eq!(parts("state.m[0][-1]"), Ok((Root::State, vec!["m".into(), "0".into(), "-1".into()])));
        assert_eq!(parts("inputs"), Ok((Root::Inputs, vec![])));
        assert_eq!(parts("_now"), Ok((Root::Now, vec![])));
    }

    #[test]
    fn an_invalid_path_is_reported_with_its_place() {
        assert_eq!(parts(""), Err(PathError::Empty));
        assert_eq!(parts("state..x"), Err(PathError::EmptySegment { offset: 6 }));
        assert_eq!(parts("state.x."), Err(PathError::EmptySegment { offset: 8 }));
        assert_eq!(parts(".state"), Err(PathError::EmptySegment { offset: 0 }));
        assert_eq!(parts("state.x[]"), Err(PathError::Character { character: ']', offset: 8 }));
        assert_eq!(parts("state.x[0"), Err(PathError::EmptySegment { offset: 8 }));
        assert_eq!(parts("state.x[0]y"), Err(PathError::Character { character: 'y', offset: 10 }));
        assert_eq!(parts("state.a + 1"), Err(PathError::Character { character: ' ', offset: 7 }));
        assert_eq!(parts("HOME"), Err(PathError::UnknownRoot { name: "HOME".into() }));
        assert_eq!(parts("_now.x"), Err(PathError::NoParts { name: "_now", offset: 5 }));
    }

    #[test]
    fn a_place_may_have_local_names() {
        let path = Path::parse_in("task.items[0]", &["task"]).unwrap();
        assert_eq!((path.root, path.segments.join(" ").as_str()), (Root::Local, "task items 0"));
        assert_eq!(path.to_string(), "task.items.0");
        assert_eq!(Path::parse_in("state.x", &["state"]).unwrap().root, Root::Local);
        assert_eq!(Path::parse_in("state.x", &["task"]).unwrap().root, Root::State);
        assert!(Path::parse("task.x").is_err());
    }

    #[test]
    fn a_path_is_written_as_it_is_read() {
        for text in ["state.items.0.price", "inputs", "_timestamp", "result.a-b.-1"] {
            assert_eq!(Path::parse(text).unwrap().to_string(), text);
        }
    }
}
