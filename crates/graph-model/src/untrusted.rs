//! Which of the values that a call gives to its tool somebody else chose.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Which parts of a value may hold what neither the graph nor the program around it chose.
///
/// The compiler says it of the parameters of tools that start programs, from the types of what the graph reads. The runtime looks at
/// it when it knows what the value is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Untrusted {
    /// No part.
    #[default]
    Nothing,
    /// Everything behind this text, with which it begins. If the value is no text: all of it.
    Behind(String),
    /// These parts: fields by their names, elements of a list by their numbers from 0.
    Parts(BTreeMap<String, Untrusted>),
}

static NOTHING: Untrusted = Untrusted::Nothing;
static EVERYTHING: Untrusted = Untrusted::Behind(String::new());

impl Untrusted {
    /// Whether no part is.
    pub fn is_nothing(&self) -> bool {
        match self {
            Self::Nothing => true,
            Self::Behind(_) => false,
            Self::Parts(parts) => parts.values().all(Self::is_nothing),
        }
    }

    /// Makes it of parts; nothing if no part is untrusted.
    pub fn of_parts(parts: impl IntoIterator<Item = (String, Self)>) -> Self {
        let parts: BTreeMap<String, Self> = parts.into_iter().filter(|(_, part)| !part.is_nothing()).collect();
        if parts.is_empty() { Self::Nothing } else { Self::Parts(parts) }
    }

    /// All of a value.
    pub fn everything() -> Self {
        EVERYTHING.clone()
    }

    /// Returns what is untrusted of a field or an element.
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
    fn what_is_written_is_read_again() {
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
