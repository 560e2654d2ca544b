//! Values with templates in their texts, as programs hold them.

use std::fmt;

use serde::de::Error as _;
use serde::ser::{SerializeMap, SerializeSeq};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::grammar::{self, Terms};
use crate::path::{Path, PathNames};
use crate::template::{Template, TemplateError};

/// A value with templates in its texts. It is serialized as in a file: a template as its text.
#[derive(Debug, Clone, PartialEq)]
pub enum Term {
    /// A value without expressions. A text in it is the text that it stands for: `${HOME}` where `$${HOME}` is written.
    Literal(Value),
    /// A text with expressions.
    Template {
        /// The text as it is written.
        text: String,
        /// The same, read.
        template: Template,
    },
    /// A list.
    List(Vec<Self>),
    /// An object, in order.
    Object(Vec<(String, Self)>),
}

impl Term {
    /// Reads a value whose paths may begin with `names`.
    ///
    /// # Errors
    ///
    /// The mistake in the first text that is no template.
    pub fn read(value: &Value, names: PathNames<'_>) -> Result<Self, TemplateError> {
        grammar::term(value, &mut TermFromJson { names })
    }

    /// Reads a text with templates in it.
    ///
    /// # Errors
    ///
    /// The mistake in it.
    pub fn text(text: &str, names: PathNames<'_>) -> Result<Self, TemplateError> {
        Ok(match Template::parse_among(text, names)? {
            Template::Text(text) => Self::Literal(Value::String(text)),
            template => Self::Template { text: text.to_owned(), template },
        })
    }

    /// Returns the value of a field of an object.
    pub fn get(&self, name: &str) -> Option<&Self> {
        match self {
            Self::Object(fields) => fields.iter().find(|(field, _)| field == name).map(|(_, value)| value),
            _ => None,
        }
    }

    /// Whether it is null, and no expression.
    pub fn is_null(&self) -> bool {
        matches!(self, Self::Literal(Value::Null))
    }

    /// Calls `visit` with each path in it, in order.
    pub fn paths<'a>(&'a self, visit: &mut impl FnMut(&'a Path)) {
        match self {
            Self::Literal(_) => {}
            Self::Template { template, .. } => {
                template.expressions().flat_map(|expression| &expression.paths).for_each(visit);
            }
            Self::List(list) => list.iter().for_each(|term| term.paths(visit)),
            Self::Object(fields) => fields.iter().for_each(|(_, term)| term.paths(visit)),
        }
    }
}

impl Default for Term {
    fn default() -> Self {
        Self::Literal(Value::Null)
    }
}

impl fmt::Display for Term {
    /// Writes a text as in a file, and anything else as JSON.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Template { text, .. } | Self::Literal(Value::String(text)) => f.write_str(text),
            other => f.write_str(&serde_json::to_string(other).map_err(|_| fmt::Error)?),
        }
    }
}

impl Serialize for Term {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Literal(Value::String(text)) => serializer.serialize_str(&text.replace("${", "$${")),
            Self::Literal(value) => value.serialize(serializer),
            Self::Template { text, .. } => serializer.serialize_str(text),
            Self::List(list) => {
                let mut sequence = serializer.serialize_seq(Some(list.len()))?;
                list.iter().try_for_each(|term| sequence.serialize_element(term))?;
                sequence.end()
            }
            Self::Object(fields) => {
                let mut map = serializer.serialize_map(Some(fields.len()))?;
                fields.iter().try_for_each(|(name, term)| map.serialize_entry(name, term))?;
                map.end()
            }
        }
    }
}

impl<'de> Deserialize<'de> for Term {
    /// Reads a term of a node: a path that begins with no namespace begins with the name of an item or an argument.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::read(&Value::deserialize(deserializer)?, PathNames::Open).map_err(D::Error::custom)
    }
}

/// Builds terms from JSON.
struct TermFromJson<'n> {
    names: PathNames<'n>,
}

impl Terms<Value> for TermFromJson<'_> {
    type Term = Term;
    type Error = TemplateError;

    fn scalar(&mut self, value: &Value) -> Term {
        Term::Literal(value.clone())
    }

    fn text(&mut self, _: &Value, text: &str) -> Result<Term, TemplateError> {
        Term::text(text, self.names)
    }

    fn list(&mut self, _: &Value, list: Vec<Term>) -> Term {
        Term::List(list)
    }

    fn object(&mut self, _: &Value, fields: Vec<(&String, Term)>) -> Term {
        Term::Object(fields.into_iter().map(|(name, term)| (name.clone(), term)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::Root;

    fn read(text: &str) -> Term {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn a_term_is_written_as_it_is_read() {
        for text in [
            "null",
            r#""plain""#,
            r#""$${HOME} is no template""#,
            r#""${state.a || inputs.b}""#,
            r#""a ${ item.x } {input:name} $${y}""#,
            r#"{"b":[1,2.5,true,"${visit.number}"],"a":{"${no}":"{}"}}"#,
        ] {
            assert_eq!(serde_json::to_string(&read(text)).unwrap(), text);
        }
    }

    #[test]
    fn the_paths_of_a_term_are_found_in_order() {
        let term = read(r#"{"b":["${state.a || part.x}"],"a":"{input:n} ${_now}"}"#);
        let mut found = Vec::new();
        term.paths(&mut |path| found.push((path.root, path.to_string())));
        let expected =
            [(Root::State, "state.a"), (Root::Local, "part.x"), (Root::Inputs, "inputs.n"), (Root::Now, "_now")];
        assert_eq!(found, expected.map(|(root, path)| (root, path.to_owned())));
    }

    #[test]
    fn a_text_that_is_no_template_is_refused() {
        assert!(serde_json::from_str::<Term>(r#"["${state.x"]"#).is_err());
        assert!(Term::read(&serde_json::json!("${part}"), PathNames::Known(&[])).is_err());
    }
}
