//! Configuration in cascade: the system's, over it the user's, over it the project's (R159).

use std::collections::HashSet;

use graph_model::name::ItemId;
use graph_model::signature::ItemKind;
use serde_json::{Map, Value};

use super::error::ItemError;
use super::file;
use super::spaces::{Spaces, Trust};
use super::yaml::{YamlError, mapping};

impl Spaces {
    /// Reads the configuration `path`, as `agent/error_classification`, from `.ai/config/<path>.yaml` of all spaces and lays
    /// the project's over the user's over the system's (R159). Where no space has it, it is empty.
    ///
    /// Mappings are merged key by key. Lists of mappings that all have an `id` are merged by it: an element replaces the
    /// one with its id, in its place, and others are appended. Any other value, an empty list too, replaces. A top-level
    /// `extends` is left out (R20).
    ///
    /// Every file must be signed by a trusted key, as every item.
    ///
    /// # Errors
    ///
    /// If `path` is no path of this form, or a file cannot be used or read.
    pub fn config(&self, path: &str) -> Result<Map<String, Value>, ItemError> {
        let name = ItemId::new(path).map_err(|reason| ItemError::ConfigPath { path: path.to_owned(), reason })?;
        let trust = Trust::of(self);
        let mut merged = Map::new();
        for root in self.from_the_last() {
            let path = root.join(".ai/config").join(format!("{name}.yaml"));
            if file::exists(&path)? {
                let (_, content, ..) = trust.verify(root, &path, |_| ItemKind::YAML)?;
                let refuse = |reason| ItemError::Config { path: path.clone(), reason };
                let mut over = mapping(&content).map_err(refuse)?;
                over.shift_remove("extends");
                merge(&mut merged, over).map_err(refuse)?;
            }
        }
        Ok(merged)
    }
}

/// Lays `over` over `under`. Not deep enough to exhaust the stack: the reader of YAML bounds the depth.
fn merge(under: &mut Map<String, Value>, over: Map<String, Value>) -> Result<(), YamlError> {
    for (key, over) in over {
        match (under.get_mut(&key), over) {
            (Some(Value::Object(under)), Value::Object(over)) => merge(under, over)?,
            (Some(Value::Array(under)), Value::Array(over)) => match (ids(&key, under)?, ids(&key, &over)?) {
                (Some(mut at), Some(ids)) => {
                    for (id, element) in ids.into_iter().zip(over) {
                        match at.iter().position(|other| *other == id) {
                            Some(place) => under[place] = element,
                            None => {
                                under.push(element);
                                at.push(id);
                            }
                        }
                    }
                }
                _ => *under = over,
            },
            (_, over) => {
                if let Value::Array(list) = &over {
                    ids(&key, list)?;
                }
                under.insert(key, over);
            }
        }
    }
    Ok(())
}

/// Returns the ids of the elements of the list `key`, if there are elements and all are mappings with an `id`.
fn ids(key: &str, list: &[Value]) -> Result<Option<Vec<Value>>, YamlError> {
    let Some(ids) = list.iter().map(|element| element.get("id").cloned()).collect::<Option<Vec<_>>>() else {
        return Ok(None);
    };
    let mut seen = HashSet::new();
    match ids.iter().find(|id| !seen.insert(id.to_string())) {
        Some(id) => Err(YamlError::SameId { list: key.to_owned(), id: id.to_string() }),
        None => Ok(Some(ids).filter(|ids| !ids.is_empty())),
    }
}
