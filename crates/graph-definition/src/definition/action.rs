//! Actions: the operation, its item and the parameters.

use std::fmt::{self, Display};

use graph_model::input::references;
use graph_model::name::ItemId;
use graph_model::program::{ItemType, Verb};
use graph_model::template::{Piece, Template};
use graph_model::value::Value;

use super::reader::{DefinitionReader, Fields, Spanned};
use super::template::{self, NamesInScope, TermDefinition, TermKind};
use crate::diagnostic::{SourcePlace, code};
use crate::source::Span;
use crate::tree::{TreeNode, YamlTree};

/// A call of a tool, or another operation on an item (R7).
#[derive(Debug)]
pub struct CallDefinition {
    /// Its place in the file.
    pub span: Span,
    /// The operation.
    pub verb: Verb,
    /// The kind of the item.
    pub item_type: ItemType,
    /// The item.
    pub item: Spanned<CalledItem>,
    /// The parameters: an object.
    pub params: TermDefinition,
}

/// The item of a [`CallDefinition`].
#[derive(Debug)]
pub enum CalledItem {
    /// The one with this id.
    Named(ItemId),
    /// The one whose id this template yields.
    Computed(TermDefinition),
    /// Those that a query finds (R9).
    Found,
}

impl CallDefinition {
    /// Returns the item's id, where it is known.
    pub fn id(&self) -> Option<&ItemId> {
        match &self.item.value {
            CalledItem::Named(id) => Some(id),
            CalledItem::Computed(_) | CalledItem::Found => None,
        }
    }

    /// Whether it runs a tool or a graph.
    pub fn executes_tool(&self) -> bool {
        (self.verb, self.item_type) == (Verb::Execute, ItemType::Tool)
    }

    /// Returns the template of the item's id and its text, if the id is a template.
    pub fn computed(&self) -> Option<(&TermDefinition, &str)> {
        match &self.item.value {
            CalledItem::Computed(term) => match &term.kind {
                TermKind::Template { text, .. } => Some((term, text)),
                _ => None,
            },
            CalledItem::Named(_) | CalledItem::Found => None,
        }
    }

    /// Returns the text before the first expression of the item id's template: every id that it yields begins with it.
    pub fn beginning(&self) -> &str {
        match &self.item.value {
            CalledItem::Computed(TermDefinition {
                kind: TermKind::Template { template: Template::Mixed(pieces), .. },
                ..
            }) => match pieces.first() {
                Some(Piece::Text(text)) => text,
                _ => "",
            },
            _ => "",
        }
    }

    /// Returns the call as messages show it: `shop/pay`, or the operation and the kind of the item.
    pub fn shown(&self) -> impl Display {
        ShownCall(self)
    }
}

struct ShownCall<'c>(&'c CallDefinition);

impl Display for ShownCall<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.0.item.value, self.0.computed()) {
            (CalledItem::Named(id), _) => write!(f, "`{id}`"),
            (_, Some((_, text))) => write!(f, "`{text}`"),
            _ => write!(f, "{} {}", self.0.verb.name(), self.0.item_type.name()),
        }
    }
}

/// The fields of an action.
pub const FIELDS: [&str; 4] = ["primary", "item_type", "item_id", "params"];

/// Reads `action`.
pub(super) fn parse(
    reader: &mut DefinitionReader<'_>,
    tree: &YamlTree,
    names: NamesInScope<'_>,
) -> Option<CallDefinition> {
    let fields = reader.map(tree, "`action`")?;
    let reported: &[&str] = if let NamesInScope::Item(_) = names { &["async"] } else { &[] };
    reader.only(&fields, "an action", &FIELDS, reported);
    if let NamesInScope::Item(_) = names {
        no_async(reader, &fields);
    }
    let verb = verb(reader, &fields);
    let item_type = match fields.get("item_type") {
        Some(tree) => reader.word(tree, "`item_type`", &ItemType::TABLE.map(|(item, name)| (name, item))),
        None => Some(ItemType::Tool),
    };
    let params = match fields.get("params") {
        Some(tree) => {
            reader.map(tree, "`params`")?;
            template::parse(reader, tree, names)
        }
        None => {
            let span = fields.get("item_id").map_or(&tree.span, |tree| &tree.span).clone();
            TermDefinition { span, kind: TermKind::Object(Vec::new()) }
        }
    };
    let verb = verb?;
    let item = item(reader, &fields, verb, names)?;
    Some(CallDefinition { span: tree.span.clone(), verb, item_type: item_type?, item, params })
}

/// Reads `primary`; without it, the item is executed (R8).
fn verb(reader: &mut DefinitionReader<'_>, fields: &Fields<'_>) -> Option<Verb> {
    let Some(tree) = fields.get("primary") else { return Some(Verb::Execute) };
    let text = reader.text(tree, "`primary`")?;
    let verb = Verb::named(&text.value);
    if verb.is_none() {
        let place = SourcePlace::new(reader.source, text.span);
        let names = Verb::TABLE.iter().flat_map(|(_, names)| names.iter().copied());
        reader
            .diagnostics
            .error(code::SHAPE, place, format!("`primary` is `execute`, `fetch` or `sign`, not `{}`", text.value))
            .note("`search` and `load` are other spellings of `fetch`")
            .suggest(&text.value, names);
    }
    verb
}

/// Reads the item.
fn item(
    reader: &mut DefinitionReader<'_>,
    fields: &Fields<'_>,
    verb: Verb,
    names: NamesInScope<'_>,
) -> Option<Spanned<CalledItem>> {
    let query = match fields.get("params").map(|tree| &tree.node) {
        Some(TreeNode::Map(params)) if verb == Verb::Fetch => {
            params.iter().find(|(key, value)| key.name == "query" && value.node != TreeNode::Null)
        }
        _ => None,
    };
    let Some(tree) = fields.get("item_id") else {
        if let Some((key, _)) = query {
            return Some(Spanned { value: CalledItem::Found, span: key.span.clone() });
        }
        reader.required(fields, "an action", "item_id");
        if let (Verb::Fetch, Some(last)) = (verb, reader.diagnostics.last()) {
            last.help("name the item with `item_id`, or look for items with `query` in `params`");
        }
        return None;
    };
    let text = reader.text(tree, "`item_id`")?;
    if let Some((key, _)) = query {
        let place = SourcePlace::new(reader.source, key.span.clone());
        let other = SourcePlace::new(reader.source, text.span.clone());
        reader
            .diagnostics
            .error(
                code::INERT_FIELD,
                place,
                "an action fetches the item of an `item_id` or what a `query` finds, not both",
            )
            .related(other, "the item")
            .help("remove one of them");
        return None;
    }
    if text.value.contains("${") || references(&text.value).next().is_some() {
        return computed(reader, tree, &text, names);
    }
    let name = reader.name(text, ItemId::new)?;
    Some(Spanned { value: CalledItem::Named(name.value), span: name.span })
}

/// Reads an id that is a template.
fn computed(
    reader: &mut DefinitionReader<'_>,
    tree: &YamlTree,
    text: &Spanned<String>,
    names: NamesInScope<'_>,
) -> Option<Spanned<CalledItem>> {
    let term = template::parse(reader, tree, names);
    let place = SourcePlace::new(reader.source, text.span.clone());
    match &term.kind {
        TermKind::Template { template, .. } => {
            let allowed = |character: char| character.is_ascii_alphanumeric() || matches!(character, '_' | '-' | '/');
            let pieces = if let Template::Mixed(pieces) = template { pieces.as_slice() } else { &[] };
            let wrong = pieces.iter().find_map(|piece| match piece {
                Piece::Text(text) => text.chars().find(|&character| !allowed(character)),
                Piece::Expression(_) => None,
            });
            if let Some(character) = wrong {
                reader.diagnostics.error(code::BAD_NAME, place, format!("an item id cannot contain {character:?}"));
                return None;
            }
        }
        TermKind::Unreadable => return None,
        TermKind::Literal(_) | TermKind::List(_) | TermKind::Object(_) => {
            reader.diagnostics.error(code::BAD_NAME, place, "an item id cannot contain '$'");
            return None;
        }
    }
    Some(Spanned { value: CalledItem::Computed(term), span: text.span.clone() })
}

/// Reports `async` in a foreach's action: the node says whether calls are made concurrently (R110).
fn no_async(reader: &mut DefinitionReader<'_>, fields: &Fields<'_>) {
    let params = match fields.get("params").map(|tree| &tree.node) {
        Some(TreeNode::Map(params)) => params.as_slice(),
        _ => &[],
    };
    for (key, _) in fields.entries.iter().chain(params).filter(|(key, _)| key.name == "async") {
        let place = SourcePlace::new(reader.source, key.span.clone());
        reader
            .diagnostics
            .error(
                code::INERT_FIELD,
                place,
                "`async` does nothing in the action of a foreach, which waits for its calls",
            )
            .help("to make calls concurrently, write `parallel: true` on the node");
    }
}

/// Makes a term of plain values.
pub(super) fn literal(span: &Span, value: impl Into<Value>) -> TermDefinition {
    TermDefinition { span: span.clone(), kind: TermKind::Literal(value.into()) }
}
