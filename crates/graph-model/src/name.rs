//! Names and ids, each a type of its own.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::character::is_plain_in_names;

/// Why a text cannot be a name of its kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The name is empty.
    #[error("{0} cannot be empty")]
    Empty(&'static str),
    /// The name is longer than its kind allows.
    #[error("{kind} has at most {most} bytes, this one has {length}")]
    TooLong {
        /// The kind of name, for messages.
        kind: &'static str,
        /// The most bytes it may have.
        most: usize,
        /// The bytes it has.
        length: usize,
    },
    /// The name holds a character that its kind does not allow.
    #[error("{kind} cannot contain {character:?}; it is made of {allowed}")]
    Character {
        /// The kind of name, for messages.
        kind: &'static str,
        /// The first character that is not allowed.
        character: char,
        /// The allowed characters, in words.
        allowed: &'static str,
    },
    /// The id has an empty segment, or one made of dots, which as a path would lead elsewhere.
    #[error("{0} cannot have an empty segment, `.` or `..` between its slashes")]
    Segment(&'static str),
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $kind:literal, $check:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            #[doc = concat!("Takes `text` as a ", $kind, ".\n\n# Errors\n\nIf it is empty, too long, or holds a character that is not allowed.")]
            pub fn new(text: impl Into<String>) -> Result<Self, NameError> {
                let text = text.into();
                $check($kind, &text)?;
                Ok(Self(text))
            }

            /// Returns the text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = NameError;

            fn try_from(text: String) -> Result<Self, NameError> {
                Self::new(text)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0
            }
        }
    };
}

name! {
    /// The name of a node: any text of up to 200 bytes whose characters can be seen, with plain spaces.
    NodeName, "a node name", free_text
}
name! {
    /// A key of the run's state: any text of up to 200 bytes whose characters can be seen, with plain spaces.
    ///
    /// A key that holds a dot cannot be read by a template, since dots separate the parts of a path.
    StateKey, "a state key", free_text
}
name! {
    /// The id of a tool or another item: `rye/bash`, segments of letters, digits, `_` and `-`, with slashes between them.
    ///
    /// Dots are not allowed: a capability writes the slashes as dots, so `a.b` and `a/b` would need the same one (R176).
    ///
    /// ```
    /// # use graph_model::name as graph_runtime;
    /// use graph_runtime::ItemId;
    ///
    /// assert_eq!(ItemId::new("shop/charge")?.dotted(), "shop.charge");
    /// assert!(ItemId::new("shop.charge").is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ItemId, "an item id", item_id
}
name! {
    /// The id of a graph: `workflows/test/project_stats`, written like an item id.
    ///
    /// ```
    /// # use graph_model::name as graph_runtime;
    /// use graph_runtime::GraphId;
    ///
    /// assert_eq!(GraphId::new("shop/order")?.stem(), "order");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    GraphId, "a graph id", item_id
}
name! {
    /// The id of a run: letters, digits, `_` and `-`; safe as a file name (R16).
    ///
    /// ```
    /// # use graph_model::name as graph_runtime;
    /// use graph_runtime::RunId;
    ///
    /// assert_eq!(RunId::new("order-17")?.as_str(), "order-17");
    /// assert!(RunId::new("orders/17").is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    RunId, "a run id", file_name
}
name! {
    /// The id of a schedule: letters, digits, `_` and `-`, at most 183 bytes. The ids of its runs begin with it.
    ScheduleId, "a schedule id", schedule_id
}

impl ItemId {
    /// Returns the id with dots in place of slashes, as capabilities write it (R169).
    pub fn dotted(&self) -> String {
        self.0.replace('/', ".")
    }
}

impl GraphId {
    /// Returns the id with dots in place of slashes, as capabilities write it.
    pub fn dotted(&self) -> String {
        self.0.replace('/', ".")
    }

    /// Returns the last segment: `project_stats` of `workflows/test/project_stats`.
    pub fn stem(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or(&self.0)
    }
}

const MOST: usize = 200;

fn free_text(kind: &'static str, text: &str) -> Result<(), NameError> {
    characters(kind, text, "characters that can be seen and plain spaces", is_plain_in_names)
}

fn item_id(kind: &'static str, text: &str) -> Result<(), NameError> {
    let allowed = "letters, digits, `_` and `-`, with `/` between its segments";
    characters(kind, text, allowed, |c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '/'))?;
    if text.split('/').any(str::is_empty) {
        return Err(NameError::Segment(kind));
    }
    Ok(())
}

fn file_name(kind: &'static str, text: &str) -> Result<(), NameError> {
    let allowed = "letters, digits, `_` and `-`";
    characters(kind, text, allowed, |c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
}

fn schedule_id(kind: &'static str, text: &str) -> Result<(), NameError> {
    file_name(kind, text)?;
    // The id of a run has the time of the tick after it, as in `-20261123T020000Z`.
    let most = MOST - 17;
    if text.len() > most {
        return Err(NameError::TooLong { kind, most, length: text.len() });
    }
    Ok(())
}

fn characters(
    kind: &'static str,
    text: &str,
    allowed: &'static str,
    is_allowed: impl Fn(char) -> bool,
) -> Result<(), NameError> {
    if text.is_empty() {
        return Err(NameError::Empty(kind));
    }
    if text.len() > MOST {
        return Err(NameError::TooLong { kind, most: MOST, length: text.len() });
    }
    match text.chars().find(|&c| !is_allowed(c)) {
        Some(character) => Err(NameError::Character { kind, character, allowed }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_id_cannot_leave_its_directory() {
        assert!(ItemId::new("rye/bash").is_ok());
        for wrong in ["", "/etc/passwd", "a//b", "a/", "../b", "a/../b", "a.b", "a\\b", "a b"] {
            assert!(ItemId::new(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_run_id_is_a_file_name() {
        assert!(RunId::new("project_stats-1772452800-9f86d0").is_ok());
        for wrong in ["", ".", "..", "a/b", "a.b", "ü", &"x".repeat(201)] {
            assert!(RunId::new(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_bad_name_cannot_be_deserialised() {
        assert!(serde_json::from_str::<RunId>("\"../x\"").is_err());
        assert_eq!(serde_json::from_str::<NodeName>("\"yes\"").unwrap().as_str(), "yes");
    }
}
