//! Channels: keys of the state whose writes are combined.

use graph_model::name::StateKey;
use graph_model::reducer::{REDUCERS, Reducer};

use super::reader::{DefinitionReader, Fields, Spanned};
use crate::diagnostic::{SourcePlace, code};
use crate::tree::{TreeNode, YamlTree};

/// A key of the state whose writes are combined.
#[derive(Debug)]
pub struct ChannelDefinition {
    /// The key.
    pub key: Spanned<StateKey>,
    /// How its writes are combined.
    pub reducer: Spanned<Reducer>,
}

/// The fields of a channel that is written as a mapping.
pub const CHANNEL: [&str; 3] = ["reduce", "id", "comment"];

/// Reads `channels`.
pub(super) fn parse_all(reader: &mut DefinitionReader<'_>, tree: &YamlTree) -> Vec<ChannelDefinition> {
    let Some(fields) = reader.map(tree, "`channels`") else { return Vec::new() };
    let mut channels = Vec::new();
    for (key, tree) in fields.entries {
        let text = Spanned { value: key.name.clone(), span: key.span.clone() };
        let key = reader.name(text, StateKey::new);
        if let (Some(key), Some(reducer)) = (key, parse_reducer(reader, tree)) {
            channels.push(ChannelDefinition { key, reducer });
        }
    }
    channels
}

/// Reads a reducer: its name, or a mapping with its name and options.
fn parse_reducer(reader: &mut DefinitionReader<'_>, tree: &YamlTree) -> Option<Spanned<Reducer>> {
    if !matches!(tree.node, TreeNode::Map(_)) {
        return Some(Spanned { value: named(reader, tree)?, span: tree.span.clone() });
    }
    let fields = reader.map(tree, "a channel")?;
    reader.only(&fields, "a channel", &CHANNEL, &[]);
    let name = reader.required(&fields, "a channel", "reduce")?;
    let mut value = named(reader, name)?;
    if let Some(tree) = fields.get("id") {
        let field = reader.text(tree, "`id` of a channel")?;
        if field.value.is_empty() {
            let place = SourcePlace::new(reader.source, field.span);
            reader
                .diagnostics
                .error(code::SHAPE, place, "`id` of a channel names no field")
                .help("write the field that identifies an object: `id: id`");
            return None;
        }
        match &mut value {
            Reducer::Messages { id } => *id = field.value,
            other => {
                let name = other.name();
                let place = SourcePlace::new(reader.source, field.span);
                reader
                    .diagnostics
                    .error(code::INERT_FIELD, place, format!("`id` does nothing for `{name}`"))
                    .help("only `messages` replaces elements by their `id`: remove it");
            }
        }
    }
    Some(Spanned { value, span: name.span.clone() })
}

fn named(reader: &mut DefinitionReader<'_>, tree: &YamlTree) -> Option<Reducer> {
    let words = REDUCERS.map(|name| (name, name));
    Reducer::named(reader.word(tree, "the reducer of a channel", &words)?)
}

/// Reads `reset` of a node: the name of a channel, or a list of names.
pub(super) fn parse_reset(reader: &mut DefinitionReader<'_>, fields: &Fields<'_>) -> Vec<Spanned<StateKey>> {
    let Some(tree) = fields.get("reset") else { return Vec::new() };
    let list = match &tree.node {
        TreeNode::String(_) => std::slice::from_ref(tree),
        _ => reader.list(tree, "`reset`"),
    };
    let name = |reader: &mut DefinitionReader<'_>, tree| {
        reader.text(tree, "a name in `reset`").and_then(|text| reader.name(text, StateKey::new))
    };
    let names = list.iter().filter_map(|tree| name(reader, tree)).collect();
    reader.note_repeated("`reset`", list);
    names
}
