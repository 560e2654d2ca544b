//! Channels: keys of the state whose writes are combined.

use graph_model::name::{ItemId, StateKey};
use graph_model::reducer::{Keep, REDUCERS, Reducer};

use super::reader::{DefinitionReader, Fields, Spanned};
use crate::diagnostic::{SourcePlace, code};
use crate::source::Span;
use crate::tree::{TreeNode, YamlTree};

/// A key of the state whose writes are combined.
#[derive(Debug)]
pub struct ChannelDefinition {
    /// The key.
    pub key: Spanned<StateKey>,
    /// How its writes are combined.
    pub reducer: Spanned<Reducer>,
    /// Where the file says that its elements are put in the order of the branches when these meet.
    pub by_branch: Option<Span>,
    /// How long it has its value, if not for the rest of the run.
    pub keep: Option<Spanned<Keep>>,
}

/// The fields of a channel that is written as a mapping.
pub const CHANNEL: [&str; 5] = ["reduce", "id", "order", "keep", "comment"];

/// The fields of a reducer that is a function of the program.
pub const FUNCTION: [&str; 2] = ["item_id", "comment"];

/// The orders that a channel's elements may be put in.
pub const ORDERS: [&str; 1] = ["branch"];

/// Reads `channels`.
pub(super) fn parse_all(reader: &mut DefinitionReader<'_>, tree: &YamlTree) -> Vec<ChannelDefinition> {
    if let TreeNode::List(list) = &tree.node {
        let names = list.iter().filter_map(|one| match &one.node {
            TreeNode::String(name) => Some(format!("{name}: append")),
            _ => None,
        });
        let help = format!(
            "say how the writes to each are combined: `channels: {{ {} }}`",
            names.collect::<Vec<_>>().join(", ")
        );
        reader.wrong_shape(tree, "`channels`", "a mapping").help(help);
        return Vec::new();
    }
    let Some(fields) = reader.map(tree, "`channels`") else { return Vec::new() };
    let mut channels = Vec::new();
    for (key, tree) in fields.entries {
        let text = Spanned { value: key.name.clone(), span: key.span.clone() };
        let key = reader.name(text, StateKey::new);
        let options = parse_reducer(reader, tree);
        let Some(key) = key else { continue };
        let (reducer, by_branch, keep) = options.unwrap_or_else(|| (unknown(&key), None, None));
        channels.push(ChannelDefinition { key, reducer, by_branch, keep });
    }
    channels
}

/// A reducer, where its elements are said to be put in order, and how long the channel has its value.
type ReducerOptions = (Spanned<Reducer>, Option<Span>, Option<Spanned<Keep>>);

/// Returns what stands for the reducer of a channel that cannot be read: a function of the program of which nothing is known.
fn unknown(key: &Spanned<StateKey>) -> Spanned<Reducer> {
    let item_id = ItemId::new("unknown").expect("this is an id");
    Spanned { value: Reducer::Program { item_id }, span: key.span.clone() }
}

/// Reads a reducer: its name, or a mapping with its name and options.
fn parse_reducer(reader: &mut DefinitionReader<'_>, tree: &YamlTree) -> Option<ReducerOptions> {
    if !matches!(tree.node, TreeNode::Map(_)) {
        return Some((Spanned { value: named(reader, tree)?, span: tree.span.clone() }, None, None));
    }
    let fields = reader.map(tree, "a channel")?;
    reader.only(&fields, "a channel", &CHANNEL, &[]);
    let name = reader.required(&fields, "a channel", "reduce")?;
    let Spanned { mut value, span } = match name.node {
        TreeNode::Map(_) => function(reader, name)?,
        _ => Spanned { value: named(reader, name)?, span: name.span.clone() },
    };
    if let Some(tree) = fields.get("id") {
        reader.has_template(tree, "`id` of a channel", "write the name of the field that tells messages apart");
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
                let message = format!("`id` does nothing for `{other}`");
                let place = SourcePlace::new(reader.source, field.span);
                reader
                    .diagnostics
                    .error(code::INERT_FIELD, place, message)
                    .help("only `messages` replaces elements by their `id`: remove it");
            }
        }
    }
    let by_branch = fields.get("order").and_then(|tree| parse_order(reader, tree, &value));
    let keep = fields.get("keep").and_then(|tree| {
        let value = reader.word(tree, "`keep` of a channel", &Keep::TABLE)?;
        Some(Spanned { value, span: tree.span.clone() })
    });
    if let (Some(order), Some(keep)) = (&by_branch, &keep) {
        let (place, kept) =
            (SourcePlace::new(reader.source, order.clone()), SourcePlace::new(reader.source, keep.span.clone()));
        reader
            .diagnostics
            .error(code::INERT_FIELD, place, "`order` does nothing beside `keep`")
            .related(kept, "the channel has no value when branches meet")
            .help("remove one of them");
    }
    Some((Spanned { value, span }, by_branch, keep))
}

/// Reads a reducer that is a function of the program: the id of its contract.
fn function(reader: &mut DefinitionReader<'_>, tree: &YamlTree) -> Option<Spanned<Reducer>> {
    let fields = reader.map(tree, "a reducer")?;
    reader.only(&fields, "a reducer", &FUNCTION, &[]);
    let item_id = reader.required_text(&fields, "a reducer", "item_id")?;
    let span = item_id.span.clone();
    let item_id = reader.name(item_id, ItemId::new)?.value;
    Some(Spanned { value: Reducer::Program { item_id }, span })
}

/// Reads the order of a channel's elements, and returns its place.
fn parse_order(reader: &mut DefinitionReader<'_>, tree: &YamlTree, reducer: &Reducer) -> Option<Span> {
    let words = ORDERS.map(|order| (order, ()));
    reader.word(tree, "`order` of a channel", &words)?;
    if matches!(reducer, Reducer::Append | Reducer::Extend) {
        return Some(tree.span.clone());
    }
    let place = SourcePlace::new(reader.source, tree.span.clone());
    reader
        .diagnostics
        .error(code::INERT_FIELD, place, format!("`order` does nothing for `{}`", reducer.name()))
        .help("only the elements of `append` and `extend` are put in order: remove it");
    None
}

fn named(reader: &mut DefinitionReader<'_>, tree: &YamlTree) -> Option<Reducer> {
    let words = REDUCERS.map(|name| (name, name));
    Reducer::named(reader.word(tree, "the reducer of a channel", &words)?)
}

/// Reads `reset` of a node.
pub(super) fn parse_reset(reader: &mut DefinitionReader<'_>, fields: &Fields<'_>) -> Vec<Spanned<StateKey>> {
    let keys = |tree| parse_keys(reader, tree, "`reset`", "the name of a key or a list of names");
    fields.get("reset").map(keys).unwrap_or_default()
}

/// Reads the value of a field that names a key of the state or lists several; `whose` is the field in backticks.
pub(super) fn parse_keys(
    reader: &mut DefinitionReader<'_>,
    tree: &YamlTree,
    whose: &'static str,
    expected: &'static str,
) -> Vec<Spanned<StateKey>> {
    let list = reader.one_or_list(tree, whose, expected);
    let name = |reader: &mut DefinitionReader<'_>, tree| {
        reader.text(tree, &format!("a name in {whose}")).and_then(|text| reader.name(text, StateKey::new))
    };
    let names = list.iter().filter_map(|tree| name(reader, tree)).collect();
    reader.note_repeated(whose, list);
    names
}
