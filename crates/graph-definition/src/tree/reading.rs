//! The second reading, by `serde_yaml`.
//!
//! All code that reads with `serde_yaml` is in here, so that a change to another parser is small.

use std::fmt;
use std::sync::Arc;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::{TreeNode, YamlTree};
use crate::diagnostic::{Diagnostic, SourcePlace, code};
use crate::source::{SourceFile, Span};

/// Finds the first place where `serde_yaml` reads another value than the tree has.
pub(super) fn compare(source: &Arc<SourceFile>, tree: &YamlTree) -> Option<Diagnostic> {
    let text = source.text.strip_prefix('\u{feff}').unwrap_or(&source.text);
    let span = match Same(tree).deserialize(serde_yaml::Deserializer::from_str(text)) {
        Ok(None) => return None,
        Ok(Some(span)) => span,
        Err(error) => {
            let at = error.location().map_or(0, |location| location.index().min(source.text.len()));
            let at = source.text.floor_char_boundary(at);
            at..at
        }
    };
    let place = SourcePlace::new(source, span);
    let mut problem = Diagnostic::new(code::TWO_READINGS, "two YAML readers disagree on what this says", place);
    problem.label("read differently").help("put the text in quotes, or write the value in another way");
    Some(problem)
}

/// Compares a value while it is read, without storing it; returns the first place that differs.
struct Same<'t>(&'t YamlTree);

impl Same<'_> {
    fn if_same(&self, same: bool) -> Option<Span> {
        (!same).then(|| self.0.span.clone())
    }
}

/// Compares the name of a field.
struct Named<'t>(&'t str);

impl<'de> DeserializeSeed<'de> for Named<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Named<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<bool, E> {
        Ok(name == self.0)
    }
}

impl<'de> DeserializeSeed<'de> for Same<'_> {
    type Value = Option<Span>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Same<'_> {
    type Value = Option<Span>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(self.if_same(self.0.node == TreeNode::Null))
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Self::Value, E> {
        Ok(self.if_same(self.0.node == TreeNode::Boolean(value)))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Self::Value, E> {
        Ok(self.if_same(matches!(&self.0.node, TreeNode::Number(number) if number.as_i64() == Some(value))))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Self::Value, E> {
        Ok(self.if_same(matches!(&self.0.node, TreeNode::Number(number) if number.as_u64() == Some(value))))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Self::Value, E> {
        let same = |number: &serde_json::Number| number.is_f64() && number.as_f64() == Some(value);
        Ok(self.if_same(matches!(&self.0.node, TreeNode::Number(number) if same(number))))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Self::Value, E> {
        Ok(self.if_same(matches!(&self.0.node, TreeNode::String(text) if text == value)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let TreeNode::List(items) = &self.0.node else {
            while list.next_element::<IgnoredAny>()?.is_some() {}
            return Ok(self.if_same(false));
        };
        let mut different = None;
        for item in items {
            match list.next_element_seed(Same(item))? {
                Some(found) => different = different.or(found),
                None => return Ok(different.or(Some(item.span.clone()))),
            }
        }
        while list.next_element::<IgnoredAny>()?.is_some() {
            different = different.or_else(|| self.if_same(false));
        }
        Ok(different)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let fields = match &self.0.node {
            TreeNode::Map(fields) => fields.as_slice(),
            _ => &[],
        };
        let mut different = self.if_same(matches!(self.0.node, TreeNode::Map(_)));
        for (key, value) in fields {
            match map.next_key_seed(Named(&key.name))? {
                Some(true) => different = different.or(map.next_value_seed(Same(value))?),
                Some(false) => {
                    // After a key, the value must be read too, or the reader panics.
                    map.next_value::<IgnoredAny>()?;
                    different = different.or(Some(key.span.clone()));
                }
                None => return Ok(different.or(Some(key.span.clone()))),
            }
            if different.is_some() {
                break;
            }
        }
        // The reader requires that the rest is read, whatever it is.
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
            different = different.or_else(|| self.if_same(false));
        }
        Ok(different)
    }
}
