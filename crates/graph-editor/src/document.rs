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
/// All answers are about the text that it was opened with. After a change, open the new text as a new document.
#[derive(Debug)]
pub struct Document {
    pub(crate) source: Arc<SourceFile>,
    diagnostics: Vec<Diagnostic>,
    pub(crate) reading: FileReading,
    pub(crate) definition: Option<Definition>,
    pub(crate) items: Items,
    graphs: BTreeMap<ItemId, PathBuf>,
}

/// The information about the thing at a place.
#[derive(Debug, Clone, PartialEq)]
pub struct Hover {
    /// The place of the thing.
    pub span: Span,
    /// The information, as Markdown.
    pub markdown: String,
    /// Its type, if it is a value whose type is known.
    pub ty: Option<Type>,
}

/// A place in a file.
#[derive(Debug, Clone, PartialEq)]
pub struct Location {
    /// The file.
    pub source: Arc<SourceFile>,
    /// The bytes of its text; the start of the text if the whole file is meant.
    pub span: Span,
}

impl Document {
    /// Opens a text of a tree: a graph, or a contract in the tree's `tools`.
    ///
    /// The text need not be signed, and neither need contracts. In a project that is [for review](Project::for_review), other
    /// graphs need not be signed either.
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
            // A node that cannot be used yet may name items that no other node names.
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

    /// Moves spans to character boundaries of the text: they were found in a copy in which blanks replace some characters.
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

    /// Returns the file with its text.
    pub fn source(&self) -> &Arc<SourceFile> {
        &self.source
    }

    /// Returns the compiler's diagnostics, in the order of the file. Some of them may be about other files.
    pub fn diagnostics(&self) -> &[Diagnostic] {
        &self.diagnostics
    }

    /// Returns the inputs, initial values, hooks and nodes, in the order of the file.
    pub fn symbols(&self) -> &[Symbol] {
        &self.reading.symbols
    }

    /// Returns the information about the thing at a byte of the text: for a path, its type there and where its key is set;
    /// for an id, the description in the contract; for a parameter, a node, a key or an input, what is known about it; for a
    /// field of the format, its purpose.
    pub fn type_at(&self, offset: usize) -> Option<Hover> {
        let mark = self.mark_at(offset)?;
        let types = self.definition.as_ref().map(|definition| TypesAt::gather(definition, &self.items));
        let (markdown, ty) = self.shown(mark, types.as_ref())?;
        Some(Hover { span: mark.span.clone(), markdown, ty })
    }

    /// Returns the places that define the thing whose name is at a byte of the text.
    ///
    /// The target of an edge is defined by its node; a key by every place that sets it; an input by `config_schema`; the item
    /// of a foreach by `as`; a tool by its contract; a parameter by its entry in the contract or the graph; a graph by its
    /// file; `result` by the id in the call. Built-in things have no place.
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

    /// Returns all places in the document that name the thing at a byte of the text, in the order of the file. This includes
    /// the places that declare it.
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

    /// Returns the smallest thing at a byte of the text; the byte after a name still belongs to it.
    fn mark_at(&self, offset: usize) -> Option<&NameMark> {
        let holds = |mark: &&NameMark| mark.span.start <= offset && offset <= mark.span.end;
        self.reading.marks.iter().filter(holds).min_by_key(|mark| mark.span.len())
    }

    fn here(&self, mark: &NameMark) -> Location {
        Location { source: Arc::clone(&self.source), span: mark.span.clone() }
    }

    /// Returns the file of a tool or graph, if it has one.
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
