//! The names to offer where a name is written: those in the graphs of a tree.

use graph_compiler::tree::{TreeNode, YamlTree};
use graph_compiler::vocabulary::ITEM;
use graph_model::path::Path;

use crate::fields::{field, fields};

/// The names that graphs give to their parts, each once, in the order of the files.
#[derive(Debug, Default)]
pub(crate) struct KnownNames {
    pub(crate) nodes: Vec<String>,
    pub(crate) keys: Vec<String>,
    pub(crate) inputs: Vec<String>,
    pub(crate) permissions: Vec<String>,
    /// The names of the elements of lists in branches.
    pub(crate) arguments: Vec<String>,
}

impl KnownNames {
    /// Adds the names in a graph's file, even if the graph has mistakes.
    pub(crate) fn add(&mut self, root: &YamlTree) {
        let config = field(root, "config");
        add_keys(&mut self.inputs, field(root, "config_schema").and_then(|schema| field(schema, "properties")));
        if let Some(YamlTree { node: TreeNode::List(list), .. }) = field(root, "permissions") {
            list.iter().for_each(|item| add_text(&mut self.permissions, item));
        }
        let Some(config) = config else { return };
        add_keys(&mut self.keys, field(config, "state"));
        add_keys(&mut self.keys, field(config, "channels"));
        let nodes = field(config, "nodes");
        add_keys(&mut self.nodes, nodes);
        for (_, node) in nodes.map_or(&[][..], fields) {
            add_keys(&mut self.keys, field(node, "assign"));
            if let Some((_, name)) = argument(node) {
                add(&mut self.arguments, name);
            }
            if let Some(collect) = field(node, "collect") {
                add_text(&mut self.keys, collect);
            }
        }
    }

    /// Returns the paths to offer in conditions.
    pub(crate) fn paths(&self) -> Vec<String> {
        let keys = self.keys.iter().map(|key| format!("state.{key}"));
        let inputs = self.inputs.iter().map(|input| format!("inputs.{input}"));
        let others = ["result", "visit.number", "visit.previous", "visit.branch"].map(str::to_owned);
        // A path cannot read a name with a dot in it.
        let is_read = |text: &String| Path::parse(text).is_ok_and(|path| path.segments.len() == 1);
        keys.chain(inputs).filter(is_read).chain(others).collect()
    }
}

/// Returns the name that a node's route over a list gives to an element, with the tree that has it.
pub(crate) fn argument(node: &YamlTree) -> Option<(Option<&YamlTree>, &str)> {
    let next = field(node, "next").filter(|next| field(next, "over").is_some())?;
    match field(next, "as") {
        Some(tree @ YamlTree { node: TreeNode::String(name), .. }) => Path::parse_in(name, &[name])
            .is_ok_and(|path| path.segments.len() == 1)
            .then_some((Some(tree), name.as_str())),
        Some(_) => None,
        None => Some((None, ITEM)),
    }
}

fn add_keys(names: &mut Vec<String>, tree: Option<&YamlTree>) {
    for (key, _) in tree.map_or(&[][..], fields) {
        add(names, &key.name);
    }
}

fn add_text(names: &mut Vec<String>, tree: &YamlTree) {
    if let TreeNode::String(text) = &tree.node {
        add(names, text);
    }
}

fn add(names: &mut Vec<String>, name: &str) {
    if !names.iter().any(|known| known == name) {
        names.push(name.to_owned());
    }
}
