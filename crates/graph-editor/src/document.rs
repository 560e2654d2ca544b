//! A file that is open in an editor.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use graph_compiler::TypesAt;
use graph_compiler::definition::{self, Definition, SchemaKind};
use graph_compiler::diagnostic::{Diagnostic, Diagnostics};
use graph_compiler::items::Items;
use graph_compiler::project::{Project, Unfinished};
use graph_compiler::source::{SourceFile, Span};
use graph_compiler::tree;
use graph_compiler::types::Type;
use graph_model::name::ItemId;
use graph_model::path::Root;

use crate::fields::{field, fields};
use crate::reading::{FileReading, NameMark, Thing};
use crate::symbol::Symbol;

/// A graph's file, or a tool's contract, that is open in an editor.
///
/// Everything is about the text with which it was opened. A changed text is opened again.
#[derive(Debug)]
pub struct Document {
    pub(crate) source: Arc<SourceFile>,
    diagnostics: Vec<Diagnostic>,
    pub(crate) reading: FileReading,
    pub(crate) definition: Option<Definition>,
    pub(crate) items: Items,
    graphs: BTreeMap<ItemId, PathBuf>,
}

/// What is known of what stands at a place.
#[derive(Debug, Clone, PartialEq)]
pub struct Hover {
    /// What it is about.
    pub span: Span,
    /// What there is to say of it.
    pub markdown: String,
    /// Its type, where it is a value whose type is known.
    pub ty: Option<Type>,
}

/// A place in a file.
#[derive(Debug, Clone, PartialEq)]
pub struct Location {
    /// The file.
    pub source: Arc<SourceFile>,
    /// The bytes of its text; the beginning where the file as a whole is meant.
    pub span: Span,
}

impl Document {
    /// Opens a text of a tree: a graph, or a contract in the tree's `tools`.
    ///
    /// A text that is not signed is read as well as one that is; so are contracts, and, in a project that is
    /// [for review](Project::for_review), other graphs.
    pub fn open(project: &Project, source: Arc<SourceFile>) -> Self {
        let Unfinished { diagnostics, read, definition: known } = project.review_unfinished(&source);
        let mut document = Self {
            diagnostics,
            reading: FileReading::default(),
            definition: None,
            items: Items::default(),
            graphs: BTreeMap::new(),
            source,
        };
        let Some((read, file)) = read else { return document };
        document.reading = FileReading::of(&read, &file.root);
        let ids: Vec<ItemId> = document.reading.marks.iter().filter_map(NameMark::item).collect();
        let ids: BTreeSet<&ItemId> = ids.iter().collect();
        document.graphs = project.graphs_of(&ids);
        match known {
            // A node that cannot be used yet may name what no other does.
            Some((definition, items)) if ids == definition.executed() => {
                (document.definition, document.items) = (Some(definition), items);
            }
            _ => {
                document.definition = definition::parse_unfinished(&read, &file);
                document.items = project.called(&ids, &document.source.path);
            }
        }
        document.settle();
        document
    }

    /// Moves places that were found in a text with blanks to the characters of the text itself.
    fn settle(&mut self) {
        fn of_symbol(symbol: &mut Symbol, settle: &impl Fn(&mut Span)) {
            settle(&mut symbol.span);
            settle(&mut symbol.name_span);
            symbol.children.iter_mut().for_each(|child| of_symbol(child, settle));
        }
        let text = self.source.text.as_str();
        let settle = |span: &mut Span| {
            let (start, end) = (span.start.min(text.len()), span.end.min(text.len()));
            *span = text.floor_char_boundary(start)..text.ceil_char_boundary(end.max(start));
        };
        self.reading.symbols.iter_mut().for_each(|symbol| of_symbol(symbol, &settle));
        self.reading.marks.iter_mut().for_each(|mark| settle(&mut mark.span));
        self.reading.regions.iter_mut().for_each(|region| settle(&mut region.span));
    }

    /// Returns the text.
    pub fn source(&self) -> &Arc<SourceFile> {
        &self.source
    }

    /// Returns what the compiler says of it, in the order of the file. Some of it may be about other files.
    pub fn diagnostics(&self) -> &[Diagnostic] {
        &self.diagnostics
    }

    /// Returns its inputs, first values, hooks and nodes, in the order of the file.
    pub fn symbols(&self) -> &[Symbol] {
        &self.reading.symbols
    }

    /// Says what stands at a byte of the text: of a path its type there and where its key is set, of an id what the contract says,
    /// of a parameter, a node, a key, an input what is known of it, of a field of the format what it is for.
    pub fn type_at(&self, offset: usize) -> Option<Hover> {
        let mark = self.mark_at(offset)?;
        let types = self.definition.as_ref().map(|definition| TypesAt::gather(definition, &self.items));
        let (markdown, ty) = self.shown(mark, types.as_ref())?;
        Some(Hover { span: mark.span.clone(), markdown, ty })
    }

    /// Returns where the thing whose name stands at a byte of the text comes from.
    ///
    /// The target of an edge comes from its node; a key from every place that sets it; an input from `config_schema`; the item of
    /// a foreach from `as`; a tool from its contract, a parameter from its place there; a graph from its file; `result` from
    /// the id of what was called. What is built in is nowhere.
    pub fn definition_of(&self, offset: usize) -> Vec<Location> {
        let Some(mark) = self.mark_at(offset) else { return Vec::new() };
        match &mark.thing {
            Thing::Item(id) => self.item_file(id).map(|source| Location { source, span: 0..0 }).into_iter().collect(),
            Thing::Parameter { item, name } => self.parameter(item, name).into_iter().collect(),
            Thing::Path if mark.path.as_ref().is_some_and(|path| path.root == Root::Result) => {
                let is_call =
                    |other: &&NameMark| matches!(other.thing, Thing::Item(_)) && other.place.node == mark.place.node;
                self.reading.marks.iter().find(is_call).map(|call| self.here(call)).into_iter().collect()
            }
            Thing::Path | Thing::Word(_) | Thing::Other { .. } => Vec::new(),
            thing => {
                let declares = |other: &&NameMark| other.declares && other.thing == *thing;
                self.reading.marks.iter().filter(declares).map(|mark| self.here(mark)).collect()
            }
        }
    }

    /// Returns all places in the document that name what is named at a byte of the text, those that declare it among them, in
    /// the order of the file.
    pub fn references_of(&self, offset: usize) -> Vec<Location> {
        let Some(mark) = self.mark_at(offset) else { return Vec::new() };
        if matches!(mark.thing, Thing::Path | Thing::Word(_)) {
            return Vec::new();
        }
        let mut places: Vec<Location> =
            self.reading.marks.iter().filter(|other| other.thing == mark.thing).map(|mark| self.here(mark)).collect();
        places.sort_by_key(|place| place.span.start);
        places
    }

    /// Returns the smallest thing at a byte of the text; the end of a name still belongs to it.
    fn mark_at(&self, offset: usize) -> Option<&NameMark> {
        let holds = |mark: &&NameMark| mark.span.start <= offset && offset <= mark.span.end;
        self.reading.marks.iter().filter(holds).min_by_key(|mark| mark.span.len())
    }

    fn here(&self, mark: &NameMark) -> Location {
        Location { source: Arc::clone(&self.source), span: mark.span.clone() }
    }

    /// Returns the file of a tool or graph, where it has one.
    fn item_file(&self, id: &str) -> Option<Arc<SourceFile>> {
        let id = ItemId::new(id).ok()?;
        if let Some(path) = self.graphs.get(&id) {
            return SourceFile::read(path, &self.items.graphs.get(&id)?.file).ok();
        }
        let contract = self.items.contracts.get(&id)?;
        contract.source.path.is_file().then(|| Arc::clone(&contract.source))
    }

    fn parameter(&self, item: &str, name: &str) -> Option<Location> {
        let source = self.item_file(item)?;
        let contract = ItemId::new(item).ok().and_then(|id| self.items.contracts.get(&id));
        if let Some(SchemaKind::Object(properties)) = contract.map(|contract| &contract.params.kind) {
            let property = properties.iter().find(|property| property.name.value == name)?;
            return Some(Location { source, span: property.name.span.clone() });
        }
        let file = tree::parse(&source, &mut Diagnostics::new())?;
        let inputs = field(&file.root, "config_schema").and_then(|schema| field(schema, "properties"))?;
        let (key, _) = fields(inputs).iter().find(|(key, _)| key.name == name)?;
        Some(Location { span: key.span.clone(), source })
    }
}
