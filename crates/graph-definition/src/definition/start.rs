//! Where a run begins: `config.start`, and `config.entries`.

use graph_model::condition::Condition;
use graph_model::name::NodeName;
use graph_model::path::Path;

use super::condition::{self, PathField};
use super::node::{EdgeDefinition, EdgeList, MOST_EDGES, NodeDefinition, NodeKind, RouteDefinition};
use super::reader::{DefinitionReader, Spanned};
use crate::diagnostic::{SourcePlace, code};
use crate::source::Span;
use crate::tree::{TreeKey, TreeNode, YamlTree};

/// The name of the node that begins the branches of a run that begins in several nodes. No edge can lead to it.
pub const START: &str = "config.start";

/// Another place where a run can begin.
#[derive(Debug)]
pub struct EntryDefinition {
    /// Its name.
    pub name: Spanned<NodeName>,
    /// The node.
    pub node: Spanned<NodeName>,
    /// The inputs that are the elements of the branches of lists that the node is in.
    pub elements: Vec<EntryElement>,
    /// Whether all of them could be read.
    pub is_readable: bool,
}

/// The input that is the element of a branch of a list.
#[derive(Debug)]
pub struct EntryElement {
    /// The name of the element, as the list gives it; `None` if the entry has only one, without a name.
    pub name: Option<Spanned<String>>,
    /// The input.
    pub path: Spanned<Path>,
}

/// The fields of an entry.
pub const ENTRY: [&str; 3] = ["node", "element", "comment"];

/// Reads `entries`: nodes by the names of the entries.
pub(super) fn parse_entries(reader: &mut DefinitionReader<'_>, tree: &YamlTree) -> Vec<EntryDefinition> {
    let Some(fields) = reader.map(tree, "`entries`") else { return Vec::new() };
    if let Some((beyond, _)) = fields.entries.get(MOST_EDGES) {
        let place = SourcePlace::new(reader.source, beyond.span.clone());
        reader.diagnostics.error(code::TOO_DEEP, place, format!("a graph has at most {MOST_EDGES} entries"));
        return Vec::new();
    }
    let entries = fields.entries.iter().filter_map(|(key, tree)| {
        let name = Spanned { value: key.name.clone(), span: key.span.clone() };
        parse_entry(reader, name, tree)
    });
    entries.collect()
}

fn parse_entry(reader: &mut DefinitionReader<'_>, name: Spanned<String>, tree: &YamlTree) -> Option<EntryDefinition> {
    let name = reader.name(name, NodeName::new)?;
    if !matches!(tree.node, TreeNode::Map(_)) {
        let node = reader.text(tree, "an entry")?;
        return Some(EntryDefinition {
            name,
            node: reader.name(node, NodeName::new)?,
            elements: Vec::new(),
            is_readable: true,
        });
    }
    let fields = reader.map(tree, "an entry")?;
    reader.only(&fields, "an entry", &ENTRY, &[]);
    let node = reader.required_text(&fields, "an entry", "node")?;
    let node = reader.name(node, NodeName::new)?;
    let elements = fields.get("element").map_or(Some(Vec::new()), |tree| parse_elements(reader, tree));
    Some(EntryDefinition { name, node, is_readable: elements.is_some(), elements: elements.unwrap_or_default() })
}

/// Reads `element`: a path, or paths by the names of elements. `None` if one of them could not be read.
fn parse_elements(reader: &mut DefinitionReader<'_>, tree: &YamlTree) -> Option<Vec<EntryElement>> {
    match &tree.node {
        TreeNode::String(_) => {
            let path = condition::parse_path(reader, tree, PathField::ELEMENT)?;
            Some(vec![EntryElement { name: None, path }])
        }
        TreeNode::Map(_) => {
            let fields = reader.map(tree, "`element`")?;
            if fields.entries.is_empty() {
                let place = SourcePlace::new(reader.source, tree.span.clone());
                reader
                    .diagnostics
                    .error(code::SHAPE, place, "`element` has no elements")
                    .help("write `element: inputs.name`");
                return None;
            }
            let element = |(key, tree): &(TreeKey, YamlTree)| {
                let name = Spanned { value: key.name.clone(), span: key.span.clone() };
                let path = condition::parse_path(reader, tree, PathField::IN_ELEMENT)?;
                Some(EntryElement { name: Some(name), path })
            };
            // Each of them is read, also behind one that cannot be.
            let elements: Vec<Option<EntryElement>> = fields.entries.iter().map(element).collect();
            elements.into_iter().collect()
        }
        _ => {
            reader.wrong_shape(tree, "`element`", "a path, or a mapping from the names of elements to paths");
            None
        }
    }
}

/// Reads `start`: the name of a node, or a list of names. For several names, it also returns the node that begins their
/// branches, which is not one of `config.nodes`.
pub(super) fn parse(
    reader: &mut DefinitionReader<'_>,
    tree: &YamlTree,
) -> Option<(Spanned<NodeName>, Option<NodeDefinition>)> {
    let TreeNode::List(list) = &tree.node else {
        let TreeNode::String(text) = &tree.node else {
            reader.wrong_shape(tree, "`start`", "a string or a list");
            return None;
        };
        let text = Spanned { value: text.clone(), span: tree.span.clone() };
        return Some((reader.name(text, NodeName::new)?, None));
    };
    let refused = |reader: &mut DefinitionReader<'_>, code, span: &Span, message: &str| {
        let place = SourcePlace::new(reader.source, span.clone());
        reader.diagnostics.error(code, place, message).help("name the nodes where a run begins: `start: [one, other]`");
    };
    if let Some(beyond) = list.get(MOST_EDGES) {
        refused(reader, code::TOO_DEEP, &beyond.span, &format!("a run begins in at most {MOST_EDGES} nodes"));
        return None;
    }
    let names = list.iter().map(|tree| {
        let text = reader.text(tree, "a name in `start`")?;
        reader.name(text, NodeName::new)
    });
    let names = names.collect::<Option<Vec<_>>>()?;
    if let [name] = names.as_slice() {
        return Some((name.clone(), None));
    }
    if names.is_empty() {
        refused(reader, code::SHAPE, &tree.span, "`start` names no node");
        return None;
    }
    let edge = |to: Spanned<NodeName>| EdgeDefinition {
        span: to.span.clone(),
        to: Some(to),
        when: Condition::Always,
        written: None,
        description: None,
    };
    let edges = names.into_iter().map(edge).collect();
    let edges = EdgeList { span: tree.span.clone(), edges, width: None, on_branch_error: None };
    let name = Spanned { value: NodeName::new(START).ok()?, span: tree.span.clone() };
    let kind = NodeKind::Start(RouteDefinition::All(edges));
    Some((name.clone(), Some(NodeDefinition { name, kind, waits_for: Vec::new(), quorum: None })))
}
