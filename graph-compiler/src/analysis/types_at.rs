//! The types of what stands at a place, for who shows them to an author.

use graph_model::path::{Path, Root};

use super::model::{Facts, Site};
use crate::check::Items;
use crate::definition::Definition;
use crate::graph::Key;
use crate::types::Type;

/// What the rules know of the types in a graph, whatever is wrong with it.
pub(crate) struct TypesAt<'d>(Facts<'d>);

impl<'d> TypesAt<'d> {
    /// Finds out what there is to know.
    pub(crate) fn gather(definition: &'d Definition, items: &'d Items) -> Self {
        Self(Facts::gather(definition, items))
    }

    /// Returns the type of what a path reads in a node; `None` where there is no such node, or nothing to read.
    pub(crate) fn of_path(&self, node: Option<&str>, site: Site, path: &Path) -> Option<Type> {
        let of_no_node = matches!(path.root, Root::Inputs | Root::Now | Root::Timestamp);
        let at = match node.and_then(|name| self.0.node(name)) {
            Some(at) => at,
            None if of_no_node => 0,
            None => return None,
        };
        let is_there = match path.root {
            Root::Result => self.0.result_at(at, site).is_some(),
            Root::Visit => {
                path.segments.first().is_some_and(|part| part != "previous" || self.0.previous_at(at).is_ok())
            }
            _ => true,
        };
        is_there.then(|| self.0.type_of_path(at, site, path))
    }

    /// Returns what the inputs are.
    pub(crate) fn inputs(&self) -> &Type {
        &self.0.types.inputs
    }

    /// Returns the keys of the state, those with a first value first.
    pub(crate) fn keys(&self) -> &[Key] {
        &self.0.types.keys
    }

    /// Returns what the call of a node returns.
    pub(crate) fn result_of(&self, node: &str) -> Option<Type> {
        let call = self.0.definition.nodes[self.0.node(node)?].call()?;
        Some(self.0.tool(call).result.clone())
    }
}
