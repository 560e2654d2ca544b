//! Finds the names that a graph's file declares and uses, and their places, even if the graph has mistakes.
//!
//! This reads the tree of values, not the parser's result, so that a node that cannot be used yet still has its names.

use std::sync::Arc;

use graph_compiler::Site;
use graph_compiler::definition::locate;
use graph_compiler::source::{SourceFile, Span};
use graph_compiler::tree::{TreeKey, TreeNode, YamlTree};
use graph_compiler::vocabulary::ITEM;
use graph_model::name::ItemId;
use graph_model::path::{Path, Root};
use graph_model::program::{Event, ItemType, Verb};
use graph_model::template::Template;

use crate::fields::{field, fields};
use crate::json_schema::argument;
use crate::symbol::{Symbol, SymbolKind};
use crate::texts;

/// The thing that a name refers to.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Thing {
    /// A node.
    Node(String),
    /// A key of the state.
    Key(String),
    /// An input.
    Input(String),
    /// A tool or graph that is executed.
    Item(String),
    /// Another kind of item, or an item with another action.
    Other {
        /// The kind of the item.
        kind: &'static str,
        /// The id of the item.
        id: String,
    },
    /// The item of a foreach.
    Variable {
        /// The foreach.
        node: String,
        /// The name of the item.
        name: String,
    },
    /// A parameter of a tool or graph.
    Parameter {
        /// The tool or graph.
        item: String,
        /// The parameter.
        name: String,
    },
    /// A path whose root has no name in the file.
    Path,
    /// A field of the format, with its description.
    Word(&'static str),
}

/// A name at its place in the file.
#[derive(Debug)]
pub(crate) struct NameMark {
    pub(crate) span: Span,
    pub(crate) thing: Thing,
    /// Whether this place declares the thing or gives it a value.
    pub(crate) declares: bool,
    /// The path that reads the thing, if there is one.
    pub(crate) path: Option<Path>,
    pub(crate) place: EditorPlace,
}

impl NameMark {
    /// Returns the id of the item that is named.
    pub(crate) fn item(&self) -> Option<ItemId> {
        match &self.thing {
            Thing::Item(id) => ItemId::new(id.as_str()).ok(),
            _ => None,
        }
    }
}

/// A place in the graph.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct EditorPlace {
    /// The node.
    pub(crate) node: Option<String>,
    /// The part of the node, which decides the names that can be read there.
    pub(crate) site: Option<Site>,
    /// The names that are known only at this place.
    pub(crate) locals: Vec<String>,
}

/// A part of the file in which the same names can be read, except in smaller regions inside it.
#[derive(Debug)]
pub(crate) struct Region {
    pub(crate) span: Span,
    pub(crate) place: EditorPlace,
}

/// The names in a file.
#[derive(Debug, Default)]
pub(crate) struct FileReading {
    pub(crate) symbols: Vec<Symbol>,
    pub(crate) marks: Vec<NameMark>,
    pub(crate) regions: Vec<Region>,
    /// The nodes, and the byte at which each begins.
    pub(crate) nodes: Vec<(String, usize)>,
}

impl FileReading {
    /// Reads the values of a file.
    pub(crate) fn of(source: &Arc<SourceFile>, root: &YamlTree) -> Self {
        let mut reader = SymbolReader { source, reading: Self::default(), arguments: Vec::new() };
        reader.file(root);
        reader.reading
    }

    /// Returns the name of the node at `offset`: the last node that begins before it.
    pub(crate) fn node_at(&self, offset: usize) -> Option<&str> {
        self.nodes.iter().take_while(|(_, start)| *start <= offset).last().map(|(name, _)| name.as_str())
    }
}

struct SymbolReader<'s> {
    source: &'s Arc<SourceFile>,
    reading: FileReading,
    /// The names of the elements of lists in branches, each with the node that fans out.
    arguments: Vec<(String, String)>,
}

/// Returns the span of a field: its name and its value.
fn whole(key: &TreeKey, value: &YamlTree) -> Span {
    key.span.start..value.span.end.max(key.span.end)
}

fn text(tree: &YamlTree) -> Option<&str> {
    match &tree.node {
        TreeNode::String(text) => Some(text),
        _ => None,
    }
}

fn key_of<'t>(tree: &'t YamlTree, name: &str) -> Option<&'t (TreeKey, YamlTree)> {
    fields(tree).iter().find(|(key, _)| key.name == name)
}

fn items(tree: &YamlTree) -> &[YamlTree] {
    match &tree.node {
        TreeNode::List(list) => list,
        _ => &[],
    }
}

impl SymbolReader<'_> {
    fn mark(&mut self, span: &Span, thing: Thing, declares: bool, place: &EditorPlace) {
        self.reading.marks.push(NameMark { span: span.clone(), thing, declares, path: None, place: place.clone() });
    }

    fn region(&mut self, span: &Span, place: &EditorPlace) {
        self.reading.regions.push(Region { span: span.clone(), place: place.clone() });
    }

    /// Marks the fields of a mapping that the format describes.
    fn words(&mut self, tree: &YamlTree, of: impl Fn(&str) -> Option<&'static str>, place: &EditorPlace) {
        for (key, _) in fields(tree) {
            if let Some(text) = of(&key.name) {
                self.mark(&key.span, Thing::Word(text), false, place);
            }
        }
    }

    fn file(&mut self, root: &YamlTree) {
        let nowhere = EditorPlace::default();
        self.words(root, |field| texts::of("Top level", field), &nowhere);
        let inputs = field(root, "config_schema").and_then(|schema| field(schema, "properties"));
        for (key, schema) in inputs.map_or(&[][..], fields) {
            self.mark(&key.span, Thing::Input(key.name.clone()), true, &nowhere);
            let detail = field(schema, "type").and_then(text).map(str::to_owned);
            self.reading.symbols.push(Symbol::new(SymbolKind::Input, &key.name, detail, whole(key, schema), &key.span));
        }
        let Some(config) = field(root, "config") else { return };
        self.words(config, |field| texts::of("`config`", field), &nowhere);
        if let Some(start) = field(config, "start") {
            self.target(start, &nowhere);
            items(start).iter().for_each(|one| self.target(one, &nowhere));
        }
        for (_, entry) in field(config, "entries").map_or(&[][..], fields) {
            self.words(entry, |field| texts::of("entry", field), &nowhere);
            self.target(field(entry, "node").unwrap_or(entry), &nowhere);
            let element = field(entry, "element");
            let named = element.map_or(&[][..], fields).iter().map(|(_, tree)| tree);
            for tree in element.into_iter().chain(named) {
                if let Some(written) = text(tree)
                    && let Ok(read) = Path::parse_in(written, &[])
                {
                    self.path(locate(self.source, &tree.span, written, &(0..written.len())), read, &nowhere);
                }
            }
        }
        for (key, value) in field(config, "state").map_or(&[][..], fields) {
            self.mark(&key.span, Thing::Key(key.name.clone()), true, &nowhere);
            self.reading.symbols.push(Symbol::new(SymbolKind::Key, &key.name, None, whole(key, value), &key.span));
        }
        for (key, value) in field(config, "channels").map_or(&[][..], fields) {
            self.mark(&key.span, Thing::Key(key.name.clone()), true, &nowhere);
            self.words(value, |field| texts::of("channel", field), &nowhere);
            let reduce = field(value, "reduce").unwrap_or(value);
            self.words(reduce, |field| texts::of("reducer", field), &nowhere);
            let function = field(reduce, "item_id");
            if let Some((tree, id)) = function.and_then(|tree| Some((tree, text(tree)?))) {
                self.mark(&tree.span, Thing::Item(id.to_owned()), false, &nowhere);
            }
            let reducer = text(function.unwrap_or(reduce)).map(str::to_owned);
            self.reading.symbols.push(Symbol::new(SymbolKind::Key, &key.name, reducer, whole(key, value), &key.span));
        }
        for tree in field(config, "hooks").map_or(&[][..], items) {
            self.hook(tree);
        }
        for (key, node) in field(config, "nodes").map_or(&[][..], fields) {
            self.arguments.extend(argument(node).map(|(_, name)| (name.to_owned(), key.name.clone())));
        }
        for (key, node) in field(config, "nodes").map_or(&[][..], fields) {
            self.reading.nodes.push((key.name.clone(), key.span.start));
            let symbol = self.node(key, node);
            self.reading.symbols.push(symbol);
        }
        self.reading.symbols.sort_by_key(|symbol| symbol.span.start);
        self.reading.nodes.sort_by_key(|(_, start)| *start);
    }

    /// Marks the name of a node as the target of an edge.
    fn target(&mut self, tree: &YamlTree, place: &EditorPlace) {
        if let Some(name) = text(tree) {
            self.mark(&tree.span, Thing::Node(name.to_owned()), false, place);
        }
    }

    fn hook(&mut self, tree: &YamlTree) {
        let event = field(tree, "event").and_then(text);
        let names = event.and_then(Event::named).map_or(&[][..], Event::names);
        let place = EditorPlace {
            node: None,
            site: Some(Site::Hook),
            locals: names.iter().map(|name| (*name).to_owned()).collect(),
        };
        self.words(tree, |field| texts::of("Hooks", field), &place);
        self.region(&tree.span, &place);
        let id = key_of(tree, "id").filter(|(_, id)| text(id).is_some_and(|text| !text.is_empty()));
        let named = id.or_else(|| key_of(tree, "event"));
        let name = named.and_then(|(_, value)| text(value)).unwrap_or("hook");
        let span = named.map_or(tree.span.start..tree.span.start, |(_, value)| value.span.clone());
        let detail = event.map(str::to_owned);
        self.reading.symbols.push(Symbol::new(SymbolKind::Hook, name, detail, tree.span.clone(), &span));
        if let Some(condition) = field(tree, "condition") {
            self.condition(condition, &place);
        }
        match field(tree, "action") {
            Some(action) if field(action, "item_id").is_some() => self.call(action, &place),
            // The hook steers the run itself.
            Some(action) => self.values(action, &place),
            None => {}
        }
    }

    fn node(&mut self, key: &TreeKey, tree: &YamlTree) -> Symbol {
        let arguments: Vec<String> = self.arguments.iter().map(|(name, _)| name.clone()).collect();
        let place = |site| EditorPlace { node: Some(key.name.clone()), site: Some(site), locals: arguments.clone() };
        let nowhere = EditorPlace { node: Some(key.name.clone()), ..EditorPlace::default() };
        self.mark(&key.span, Thing::Node(key.name.clone()), true, &nowhere);
        let kind = field(tree, "type").and_then(text).unwrap_or("action");
        self.words(tree, |field| texts::of_node(kind, field), &nowhere);
        let item = field(tree, "action").and_then(|action| field(action, "item_id")).and_then(text);
        let detail = item.map_or_else(|| kind.to_owned(), |item| format!("{kind}: {item}"));
        let mut symbol = Symbol::new(SymbolKind::Node, &key.name, Some(detail), whole(key, tree), &key.span);
        let is_each = kind == "foreach";
        let mut inside = place(if is_each { Site::Item } else { Site::Params });
        if let Some((key, over)) = key_of(tree, "over") {
            self.region(&whole(key, over), &place(Site::Over));
            self.values(over, &place(Site::Over));
        }
        if is_each {
            let named = key_of(tree, "as").and_then(|(key, name)| Some((key, name, text(name)?)));
            let name = named.map_or(ITEM, |(.., name)| name);
            if let Some((key, value, name)) = named {
                let thing = Thing::Variable { node: symbol.name.clone(), name: name.to_owned() };
                self.mark(&value.span, thing, true, &nowhere);
                let child = Symbol::new(SymbolKind::Variable, name, None, whole(key, value), &value.span);
                symbol.children.push(child);
            }
            inside.locals.push(name.to_owned());
        }
        if let Some(action) = field(tree, "action") {
            self.call(action, &inside);
        }
        for (at, (key, value)) in field(tree, "assign").map_or(&[][..], fields).iter().enumerate() {
            self.mark(&key.span, Thing::Key(key.name.clone()), true, &place(Site::Assign(at)));
            self.region(&whole(key, value), &place(Site::Assign(at)));
            self.values(value, &place(Site::Assign(at)));
            symbol.children.push(Symbol::new(SymbolKind::Key, &key.name, None, whole(key, value), &key.span));
        }
        if let Some((key, collect)) = key_of(tree, "collect")
            && let Some(name) = text(collect)
        {
            self.mark(&collect.span, Thing::Key(name.to_owned()), true, &nowhere);
            symbol.children.push(Symbol::new(SymbolKind::Key, name, None, whole(key, collect), &collect.span));
        }
        if let Some((key, until)) = key_of(tree, "until") {
            self.region(&whole(key, until), &place(Site::Until));
            self.values(until, &place(Site::Until));
        }
        if let Some((key, payload)) = key_of(tree, "payload") {
            self.region(&whole(key, payload), &place(Site::Payload));
            self.values(payload, &place(Site::Payload));
        }
        if let Some((key, output)) = key_of(tree, "output") {
            self.region(&whole(key, output), &place(Site::Output));
            self.values(output, &place(Site::Output));
        }
        let shared = field(tree, "share").and_then(|share| field(share, "keys"));
        for names in ["reset", "share"].into_iter().filter_map(|name| field(tree, name)).chain(shared) {
            for key in std::iter::once(names).chain(items(names)) {
                if let Some(name) = text(key) {
                    self.mark(&key.span, Thing::Key(name.to_owned()), false, &nowhere);
                }
            }
        }
        if let Some(share) = field(tree, "share").filter(|share| !fields(share).is_empty()) {
            self.words(share, |field| texts::of("`share`", field), &nowhere);
        }
        if let Some(waits) = field(tree, "waits_for") {
            let of = field(waits, "of").unwrap_or(waits);
            let names = std::iter::once(of).chain(items(of)).chain(field(waits, "fewer"));
            names.for_each(|name| self.target(name, &nowhere));
            if !fields(waits).is_empty() {
                self.words(waits, |field| texts::of("`waits_for`", field), &nowhere);
            }
        }
        field(tree, "on_timeout").into_iter().for_each(|name| self.target(name, &nowhere));
        symbol.children.extend(self.edges(tree, &place(Site::Next)));
        symbol.children.extend(self.route(tree, &key.name, &place(Site::Next)));
        symbol.children.sort_by_key(|child| child.span.start);
        symbol
    }

    /// Reads the edges of a node.
    fn edges(&mut self, node: &YamlTree, place: &EditorPlace) -> Vec<Symbol> {
        let mut edges = Vec::new();
        for name in ["next", "on_error"] {
            let Some((key, value)) = key_of(node, name) else { continue };
            if let Some(to) = text(value) {
                self.target(value, place);
                let detail = Some(name.to_owned());
                edges.push(Symbol::new(SymbolKind::Edge, to, detail, whole(key, value), &value.span));
            }
            for edge in items(field(value, "all").unwrap_or(value)) {
                self.words(edge, |field| texts::of("edge", field), place);
                let to = field(edge, "to").filter(|to| text(to).is_some());
                if let Some(to) = to {
                    self.target(to, place);
                }
                if let Some(when) = field(edge, "when") {
                    self.condition(when, place);
                }
                let (name, span) = match to {
                    Some(to) => (text(to).unwrap_or_default(), to.span.clone()),
                    None => ("end", edge.span.start..edge.span.start),
                };
                let detail = field(edge, "description").and_then(text).map(str::to_owned);
                edges.push(Symbol::new(SymbolKind::Edge, name, detail, edge.span.clone(), &span));
            }
        }
        edges
    }

    /// Reads a `next` that is a mapping; `edges` reads the list in `all`.
    fn route(&mut self, node: &YamlTree, name: &str, place: &EditorPlace) -> Vec<Symbol> {
        let Some(next) = field(node, "next").filter(|next| !fields(next).is_empty()) else { return Vec::new() };
        let form = ["all", "over", "by"].into_iter().find(|form| field(next, form).is_some());
        let Some(form) = form else { return Vec::new() };
        self.words(next, |field| texts::of(&format!("`next` with `{form}`"), field), place);
        let mut symbols = Vec::new();
        if let Some((key, over)) = key_of(next, "over") {
            self.region(&whole(key, over), place);
            self.values(over, place);
        }
        if let Some((Some(tree), argument)) = argument(node) {
            let thing = Thing::Variable { node: name.to_owned(), name: argument.to_owned() };
            self.mark(&tree.span, thing, true, place);
            symbols.push(Symbol::new(SymbolKind::Variable, argument, None, tree.span.clone(), &tree.span));
        }
        if let Some((key, by)) = key_of(next, "by")
            && let Some(written) = text(by)
        {
            self.region(&whole(key, by), place);
            let locals: Vec<&str> = place.locals.iter().map(String::as_str).collect();
            if let Ok(read) = Path::parse_in(written, &locals) {
                self.path(locate(self.source, &by.span, written, &(0..written.len())), read, place);
            }
        }
        let to = field(next, "to");
        let words = to.map_or(&[][..], fields).iter().map(|(word, to)| (to, Some(word.name.clone())));
        for (to, word) in to.map(|to| (to, None)).into_iter().chain(words) {
            if let Some(target) = text(to) {
                self.target(to, place);
                symbols.push(Symbol::new(SymbolKind::Edge, target, word, to.span.clone(), &to.span));
            }
        }
        symbols
    }

    fn call(&mut self, action: &YamlTree, place: &EditorPlace) {
        self.words(action, |field| texts::of("action", field), place);
        self.region(&action.span, place);
        let id = field(action, "item_id").and_then(|tree| Some((tree, text(tree)?)));
        let named = id.filter(|(_, id)| !id.contains("${"));
        let verb = field(action, "primary").and_then(text).map_or(Some(Verb::Execute), Verb::named);
        let kind = field(action, "item_type").and_then(text).map_or(Some(ItemType::Tool), ItemType::named);
        // An unfinished word counts as the default.
        let (verb, kind) = (verb.unwrap_or(Verb::Execute), kind.unwrap_or(ItemType::Tool));
        let is_executed = (verb, kind) == (Verb::Execute, ItemType::Tool);
        match (id, named) {
            (_, Some((tree, id))) if is_executed => self.mark(&tree.span, Thing::Item(id.to_owned()), false, place),
            (_, Some((tree, id))) => {
                let thing = Thing::Other { kind: kind.name(), id: id.to_owned() };
                self.mark(&tree.span, thing, false, place);
            }
            (Some((tree, _)), None) => self.values(tree, place),
            _ => {}
        }
        let params = field(action, "params");
        for (key, value) in params.map_or(&[][..], fields) {
            if let Some((_, item)) = named.filter(|_| is_executed) {
                let thing = Thing::Parameter { item: item.to_owned(), name: key.name.clone() };
                self.mark(&key.span, thing, false, place);
            }
            self.values(value, place);
        }
    }

    fn condition(&mut self, tree: &YamlTree, place: &EditorPlace) {
        self.words(tree, |field| texts::of("condition", field), place);
        self.region(&tree.span, place);
        if let Some(path) = field(tree, "path")
            && let Some(written) = text(path)
        {
            let locals: Vec<&str> = place.locals.iter().map(String::as_str).collect();
            if let Ok(read) = Path::parse_in(written, &locals) {
                self.path(locate(self.source, &path.span, written, &(0..written.len())), read, place);
            }
        }
        for name in ["any", "all"] {
            for inner in field(tree, name).map_or(&[][..], items) {
                self.condition(inner, place);
            }
        }
        if let Some(inner) = field(tree, "not") {
            self.condition(inner, place);
        }
    }

    /// Reads values with templates in them.
    fn values(&mut self, tree: &YamlTree, place: &EditorPlace) {
        match &tree.node {
            TreeNode::List(list) => list.iter().for_each(|item| self.values(item, place)),
            TreeNode::Map(fields) => fields.iter().for_each(|(_, value)| self.values(value, place)),
            TreeNode::String(text) => {
                let locals: Vec<&str> = place.locals.iter().map(String::as_str).collect();
                let Ok(template) = Template::parse_in(text, &locals) else { return };
                for expression in template.expressions() {
                    for (path, range) in expression.paths.iter().zip(&expression.ranges) {
                        self.path(locate(self.source, &tree.span, text, range), path.clone(), place);
                    }
                }
            }
            _ => {}
        }
    }

    /// Marks a path by its root.
    fn path(&mut self, span: Span, path: Path, place: &EditorPlace) {
        let first = || path.segments.first().cloned();
        let thing = match path.root {
            Root::State => first().map(Thing::Key),
            Root::Inputs => first().map(Thing::Input),
            // A hook receives the state like other data.
            Root::Local if place.site == Some(Site::Hook) => {
                let is_state = first().is_some_and(|name| name == Root::State.name());
                path.segments.get(1).filter(|_| is_state).cloned().map(Thing::Key)
            }
            Root::Local => place.node.clone().zip(first()).map(|(node, name)| {
                // In a foreach, the last of the names here is that of its own item.
                let is_item = place.site == Some(Site::Item) && place.locals.last() == Some(&name);
                let fan = self.arguments.iter().find(|(argument, _)| !is_item && *argument == name);
                Thing::Variable { node: fan.map_or(node, |(_, fan)| fan.clone()), name }
            }),
            Root::Result | Root::Now | Root::Timestamp | Root::Visit => None,
        };
        let (thing, place) = (thing.unwrap_or(Thing::Path), place.clone());
        self.reading.marks.push(NameMark { span, thing, declares: false, path: Some(path), place });
    }
}
