//! The types of paths at a place, for tools that show them to an author.

use graph_definition::definition::Definition;
use graph_model::path::{Path, Root};

use super::flow::Flow;
use super::inference;
use super::model::Model;
use super::reads::Site;
use super::type_env::TypeEnv;
use super::types::StateTypes;
use crate::graph::TypedKey;
use crate::items::Items;
use crate::types::Type;

/// The types in a graph as the rules know them, even if the graph has mistakes.
pub struct TypesAt<'d> {
    model: Model<'d>,
    flow: Flow,
    types: StateTypes,
}

impl<'d> TypesAt<'d> {
    /// Analyses a graph.
    pub fn gather(definition: &'d Definition, items: &'d Items) -> Self {
        let model = Model::new(definition, items);
        let flow = Flow::analyse(&model);
        let types = inference::infer(&model, &flow);
        Self { model, flow, types }
    }

    /// Returns the type of the value that a path reads in a node; `None` if there is no such node, or nothing to read.
    pub fn of_path(&self, node: Option<&str>, site: Site, path: &Path) -> Option<Type> {
        let of_no_node = matches!(path.root, Root::Inputs | Root::Now | Root::Timestamp);
        let at = match node.and_then(|name| self.model.node(name)) {
            Some(at) => at,
            None if of_no_node => 0,
            None => return None,
        };
        let is_there = match path.root {
            Root::Result => self.model.result_at(at, site).is_some(),
            Root::Visit => {
                path.segments.first().is_some_and(|part| part != "previous" || self.model.previous_at(at).is_ok())
            }
            _ => true,
        };
        is_there.then(|| self.env().type_of_path(at, site, path))
    }

    /// Returns the type of the inputs.
    pub fn inputs(&self) -> &Type {
        &self.model.inputs
    }

    /// Returns the keys of the state, those with a first value first.
    pub fn keys(&self) -> &[TypedKey] {
        &self.types.keys
    }

    /// Returns the type of the result of a node's call.
    pub fn result_of(&self, node: &str) -> Option<Type> {
        let call = self.model.definition.nodes[self.model.node(node)?].call()?;
        Some(self.model.tool(call).result.clone())
    }

    fn env(&self) -> TypeEnv<'_, 'd> {
        TypeEnv { model: &self.model, flow: &self.flow, types: &self.types }
    }
}
