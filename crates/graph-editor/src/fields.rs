//! The fields of mappings in a file.

use graph_compiler::tree::{Key, Node, Tree};

/// Returns the fields of a mapping; none of anything else.
pub(crate) fn fields(tree: &Tree) -> &[(Key, Tree)] {
    match &tree.node {
        Node::Map(fields) => fields,
        _ => &[],
    }
}

/// Returns the value of a field, if the value is a mapping and has it.
pub(crate) fn field<'t>(tree: &'t Tree, name: &str) -> Option<&'t Tree> {
    fields(tree).iter().find(|(key, _)| key.name == name).map(|(_, value)| value)
}
