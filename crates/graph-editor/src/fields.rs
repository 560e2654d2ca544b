//! The fields of mappings in a file.

use graph_compiler::tree::{TreeKey, TreeNode, YamlTree};

/// Returns the fields of a mapping; empty for any other tree.
pub(crate) fn fields(tree: &YamlTree) -> &[(TreeKey, YamlTree)] {
    match &tree.node {
        TreeNode::Map(fields) => fields,
        _ => &[],
    }
}

/// Returns the value of a field, if the tree is a mapping that has the field.
pub(crate) fn field<'t>(tree: &'t YamlTree, name: &str) -> Option<&'t YamlTree> {
    fields(tree).iter().find(|(key, _)| key.name == name).map(|(_, value)| value)
}
