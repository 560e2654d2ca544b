//! The items of a tree that actions can refer to, for tools that offer them to an author.

use std::path::{Path, PathBuf};

use graph_definition::definition;
use graph_definition::diagnostic::Diagnostics;
use graph_definition::source::SourceFile;
use graph_definition::tree;
use graph_definition::verify::verify;
use graph_model::name::ItemId;

use super::{Project, TOOLS, display_name, id_of_contract};
use crate::builtin;
use crate::types::Type;

/// A tool or graph that an action may execute, or a reducer that a channel may have.
#[derive(Debug, Clone)]
pub struct Offered {
    /// Its id.
    pub id: ItemId,
    /// The kind of item.
    pub kind: OfferedKind,
    /// The author's description.
    pub description: Option<String>,
    /// The type of its parameters; any value where that is not known.
    pub params: Type,
    /// The file, where there is one.
    pub file: Option<PathBuf>,
}

/// The kind of an [`Offered`] item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OfferedKind {
    /// A tool with a contract in the tree.
    Tool,
    /// A built-in tool of the runtime without a contract in the tree.
    Builtin,
    /// A graph.
    Graph,
    /// A reducer with a contract in the tree, which channels may name and actions may not.
    Reducer,
}

impl Project {
    /// Returns the tools and graphs that the actions of the tree's graphs may execute, and the reducers that their channels may
    /// have, in the order of their ids.
    ///
    /// A contract or graph without a trusted signature is offered too, but with its id only.
    pub fn offered(&self) -> Vec<Offered> {
        let mut offered: Vec<Offered> = self.contracts_offered();
        for id in builtin::ids() {
            if !offered.iter().any(|known| known.id == id) {
                let contract = builtin::contract(&id);
                let params = contract.as_ref().map_or_else(Type::any, |contract| Type::of_schema(&contract.params));
                let description = contract.and_then(|contract| contract.description);
                offered.push(Offered { id, kind: OfferedKind::Builtin, description, params, file: None });
            }
        }
        for file in crate::graph_files(&self.root).unwrap_or_default() {
            offered.extend(self.graph_offered(&file));
        }
        offered.sort_by(|one, two| one.id.as_str().cmp(two.id.as_str()));
        offered
    }

    fn contracts_offered(&self) -> Vec<Offered> {
        let tools = self.root.join(TOOLS);
        let mut offered = Vec::new();
        for file in crate::graph_files(&tools).unwrap_or_default() {
            let Some(id) = id_of_contract(&tools, &file) else { continue };
            let found = self.found_contract(&id, false);
            let contract = found.contract.as_deref();
            let params = contract.map_or_else(Type::any, |contract| Type::of_schema(&contract.params));
            let description = contract.and_then(|contract| contract.description.clone());
            let kind = match contract {
                Some(contract) if contract.is_reducer() => OfferedKind::Reducer,
                _ => OfferedKind::Tool,
            };
            offered.push(Offered { id, kind, description, params, file: Some(file) });
        }
        offered
    }

    fn graph_offered(&self, file: &Path) -> Option<Offered> {
        let mut ignored = Diagnostics::new();
        let source = SourceFile::read(file, &display_name(&self.package, file)).ok()?;
        let yaml = tree::parse(&source, &mut ignored)?;
        let id = ItemId::new(definition::id_of(&source, &yaml)?).ok()?;
        let definition =
            verify(&source, &self.ring).ok().and_then(|verified| definition::parse(verified, &yaml, &mut ignored));
        let definition = definition.filter(|_| !ignored.has_errors());
        let inputs = definition.as_ref().and_then(|definition| definition.inputs.as_ref());
        let params = inputs.map_or_else(Type::any, Type::of_schema).not_null();
        let description = definition.and_then(|definition| definition.description);
        Some(Offered { id, kind: OfferedKind::Graph, description, params, file: Some(file.to_owned()) })
    }
}
