//! The untrusted values that a call passes to its tool: those that somebody else chose.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The parts of a value that may hold data which neither the graph nor the program around it chose.
///
/// The compiler computes them for the parameters of tools that start programs, from the types of the values that the
/// graph reads. The runtime applies them to the actual value.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Untrusted {
    /// No part.
    #[default]
    Nothing,
    /// Everything behind this text, with which the value begins. If the value is no text, all of it.
    Behind(String),
    /// These parts: fields by their names, elements of a list by their numbers from 0.
    Parts(BTreeMap<String, Untrusted>),
}

static NOTHING: Untrusted = Untrusted::Nothing;
static EVERYTHING: Untrusted = Untrusted::Behind(String::new());

impl Untrusted {
    /// Whether no part is untrusted.
    pub fn is_nothing(&self) -> bool {
        match self {
            Self::Nothing => true,
            Self::Behind(_) => false,
            Self::Parts(parts) => parts.values().all(Self::is_nothing),
        }
    }

    /// Combines parts; returns [`Untrusted::Nothing`] if no part is untrusted.
    pub fn of_parts(parts: impl IntoIterator<Item = (String, Self)>) -> Self {
        let parts: BTreeMap<String, Self> = parts.into_iter().filter(|(_, part)| !part.is_nothing()).collect();
        if parts.is_empty() { Self::Nothing } else { Self::Parts(parts) }
    }

    /// All of a value.
    pub fn everything() -> Self {
        EVERYTHING.clone()
    }

    /// Returns the untrusted parts of a field or an element.
    pub fn part(&self, name: &str) -> &Self {
        match self {
            Self::Nothing => &NOTHING,
            Self::Behind(_) => &EVERYTHING,
            Self::Parts(parts) => parts.get(name).unwrap_or(&NOTHING),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_values_are_read_back_unchanged() {
        let parts = [("stdin".to_owned(), Untrusted::everything()), ("cwd".to_owned(), Untrusted::Nothing)];
        let args = Untrusted::of_parts([("1".to_owned(), Untrusted::Behind("--x=".to_owned()))]);
        let untrusted = Untrusted::of_parts(parts.into_iter().chain([("args".to_owned(), args)]));
        let text = serde_json::to_string(&untrusted).unwrap();
        assert_eq!(text, r#"{"args":{"1":"--x="},"stdin":""}"#);
        assert_eq!(serde_json::from_str::<Untrusted>(&text).unwrap(), untrusted);
        assert!(!untrusted.part("stdin").is_nothing() && untrusted.part("cwd").is_nothing());
        assert!(!untrusted.part("stdin").part("inside").is_nothing());
        assert_eq!(serde_json::from_str::<Untrusted>("null").unwrap(), Untrusted::Nothing);
        assert!(Untrusted::of_parts([("a".to_owned(), Untrusted::Nothing)]).is_nothing());
    }
}
