//! Completions for a place in a file.

use graph_compiler::project::{OfferedKind, Project};
use graph_compiler::source::Span;
use graph_compiler::types::{Type, TypeKind, TypedField};
use graph_compiler::vocabulary::{NODE_TYPES, REST, SCHEMA_TYPES};
use graph_compiler::{Site, TypesAt};
use graph_model::operator::Operator;
use graph_model::path::{Path, Root};
use graph_model::program::{Event, ItemType, Verb};

use crate::document::Document;
use crate::reading::{EditorPlace, Thing};
use crate::symbol::SymbolKind;

/// A completion for a place in a file.
#[derive(Debug, Clone, PartialEq)]
pub struct Completion {
    /// The text to insert.
    pub label: String,
    /// The kind of thing that it names.
    pub kind: CompletionKind,
    /// A short description, such as its type.
    pub detail: Option<String>,
    /// The text that it replaces: the part that is already written.
    pub span: Span,
}

/// The kind of a [`Completion`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompletionKind {
    /// A node.
    Node,
    /// A tool or graph.
    Item,
    /// A part of a path: a namespace, a key, a field.
    Part,
    /// A parameter of a tool or graph.
    Parameter,
    /// A word of the format.
    Word,
}

type CompletionCandidate = (String, CompletionKind, Option<String>);

impl Document {
    /// Returns the completions at a byte of the text: paths in templates and conditions, nodes that an edge may lead to, ids
    /// of tools and graphs, parameters, and words of the format. They are not filtered by the part that is already written.
    pub fn completions(&self, project: &Project, offset: usize) -> Vec<Completion> {
        let text = self.source.text.as_str();
        let offset = text.floor_char_boundary(offset.min(text.len()));
        let start = text[..offset].rfind('\n').map_or(0, |newline| newline + 1);
        let before = &text[start..offset];
        let (candidates, written) =
            match self.in_template(before, offset).or_else(|| self.of_field(project, before, offset)) {
                Some(found) => found,
                None => return Vec::new(),
            };
        let span = offset - written..offset;
        let completion = |(label, kind, detail)| Completion { label, kind, detail, span: span.clone() };
        candidates.into_iter().map(completion).collect()
    }

    /// Completes a path inside `${…}`. Also returns the number of bytes that are already written.
    fn in_template(&self, before: &str, offset: usize) -> Option<(Vec<CompletionCandidate>, usize)> {
        let open = before.rfind("${").filter(|open| !before[*open..].contains('}'))?;
        if before[..open].ends_with('$') {
            return None;
        }
        let operand = before[open + 2..].rsplit("||").next().unwrap_or_default().trim_start();
        Some(self.path(operand, &self.place(offset), true))
    }

    /// Returns the names that can be read at a place. For an unknown place, these are the names after the node's call.
    fn place(&self, offset: usize) -> EditorPlace {
        let holds = |span: &Span| span.start <= offset && offset <= span.end;
        let regions = self.reading.regions.iter().filter(|region| holds(&region.span));
        match regions.min_by_key(|region| region.span.len()) {
            Some(region) => region.place.clone(),
            None => EditorPlace {
                node: self.reading.node_at(offset).map(str::to_owned),
                site: Some(Site::Next),
                locals: Vec::new(),
            },
        }
    }

    fn path(&self, written: &str, place: &EditorPlace, is_template: bool) -> (Vec<CompletionCandidate>, usize) {
        let part = |name: &str, ty: Option<&Type>| (name.to_owned(), CompletionKind::Part, ty.map(ToString::to_string));
        let Some((way, last)) = written.rsplit_once('.') else {
            let hook = place.site == Some(Site::Hook);
            let own = place.locals.iter().map(String::as_str);
            let roots = Root::TABLE.iter().filter(|(root, _)| match root {
                Root::Now | Root::Timestamp => is_template,
                Root::Inputs => true,
                Root::State | Root::Result | Root::Visit | Root::Local => !hook,
            });
            let roots = own.chain(roots.map(|(_, name)| *name)).map(|name| part(name, None)).collect();
            return (roots, written.len());
        };
        let locals: Vec<&str> = place.locals.iter().map(String::as_str).collect();
        let candidates = Path::parse_in(way, &locals).ok().and_then(|path| {
            let definition = self.definition.as_ref()?;
            let types = TypesAt::gather(definition, &self.items);
            if path.root == Root::State && path.segments.is_empty() {
                return Some(types.keys().iter().map(|key| part(&key.name, Some(&key.ty))).collect());
            }
            if path.root == Root::Visit && path.segments.is_empty() {
                return Some(vec![part("number", None), part("previous", None), part("branch", None)]);
            }
            match types.of_path(place.node.as_deref(), place.site?, &path)?.kind {
                TypeKind::Object(fields) => {
                    Some(fields.iter().map(|field| part(&field.name, Some(&field.ty))).collect::<Vec<_>>())
                }
                _ => None,
            }
        });
        (candidates.unwrap_or_default(), last.len())
    }

    /// Completes the value after the name of a field, or the name itself.
    fn of_field(&self, project: &Project, before: &str, offset: usize) -> Option<(Vec<CompletionCandidate>, usize)> {
        let begins = before.rfind([' ', '\t', '{', ',', '[', '"', '\'', ':']).map_or(0, |at| at + 1);
        let written = &before[begins..];
        let front = before[..begins].trim_end_matches(['"', '\'']).trim_end();
        let field = front.strip_suffix(':').or_else(|| list_of_names(front));
        let Some(front) = field else {
            return Some((self.parameters(before, offset)?, written.len()));
        };
        let name = front.rsplit([' ', '\t', '{', ',', '"', '\'']).next().unwrap_or_default();
        let words = |words: &[&str]| -> Vec<CompletionCandidate> {
            words.iter().map(|word| ((*word).to_owned(), CompletionKind::Word, None)).collect()
        };
        let candidates = match name {
            "start" | "node" | "next" | "to" | "on_error" | "on_timeout" | "fewer" | "waits_for" | "of" => {
                let nodes = self.symbols().iter().filter(|symbol| symbol.kind == SymbolKind::Node);
                nodes.map(|node| (node.name.clone(), CompletionKind::Node, node.detail.clone())).collect()
            }
            "item_id" => {
                let is_reducer = self.is_of_reducer(before, offset);
                let offered = project.offered().into_iter();
                let offered = offered.filter(|item| (item.kind == OfferedKind::Reducer) == is_reducer);
                offered.map(|item| (item.id.to_string(), CompletionKind::Item, item.description)).collect()
            }
            "path" | "element" => return Some(self.path(written, &self.place(offset), false)),
            "op" | "operator" => words(&Operator::TABLE.map(|row| row.name)),
            "event" => words(&Event::TABLE.map(|(_, name, _)| name)),
            "primary" => words(&Verb::TABLE.map(|(verb, _)| verb.name())),
            "item_type" => words(&ItemType::TABLE.map(|(_, name)| name)),
            "type" if self.reading.node_at(offset).is_some() => words(&NODE_TYPES),
            "type" => words(&SCHEMA_TYPES),
            "rest" => words(&REST.map(|(word, _)| word)),
            _ => return None,
        };
        Some((candidates, written.len()))
    }

    /// Whether an `item_id` is that of a reducer: it is in `reduce: { … }`, or on a line below `reduce:`.
    fn is_of_reducer(&self, before: &str, offset: usize) -> bool {
        let above = self.source.text[..offset - before.len()].lines().rev().find(|line| !line.trim().is_empty());
        let is_within = before.rsplit_once("reduce:").is_some_and(|(_, rest)| !rest.contains('}'));
        is_within || (!before.contains('{') && above.is_some_and(|line| line.trim_end().ends_with("reduce:")))
    }

    /// Completes a parameter's name, on a line of its own below `params:`.
    fn parameters(&self, before: &str, offset: usize) -> Option<Vec<CompletionCandidate>> {
        let indent = |line: &str| line.len() - line.trim_start().len();
        if before.trim_start().contains([' ', '{', '[', '"', '\'', '#']) {
            return None;
        }
        let above = &self.source.text[..offset - before.len()];
        let outer = above.lines().rev().find(|line| !line.trim().is_empty() && indent(line) < indent(before))?;
        if outer.trim_end() != outer || !outer.trim_start().trim_start_matches("- ").starts_with("params:") {
            return None;
        }
        let node = self.reading.node_at(offset);
        let item = self.reading.marks.iter().rev().find_map(|mark| match &mark.thing {
            Thing::Item(id) if mark.place.node.as_deref() == node => Some(id.as_str()),
            _ => None,
        })?;
        let TypeKind::Object(fields) = self.params(item)?.kind else { return None };
        let candidate = |field: TypedField| (field.name, CompletionKind::Parameter, Some(field.ty.to_string()));
        Some(fields.into_iter().map(candidate).collect())
    }
}

/// Returns the text up to the name of a field whose value is a list of names on one line, if the text ends in such a list.
fn list_of_names(before: &str) -> Option<&str> {
    let (front, names) = before.rsplit_once('[')?;
    let is_open = !names.contains([']', '{', '}', ':']);
    let front = front.trim_end().strip_suffix(':').filter(|_| is_open)?;
    ["start", "waits_for", "of"].iter().any(|name| front.ends_with(name)).then_some(front)
}
