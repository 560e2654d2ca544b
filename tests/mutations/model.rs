//! The judge's model of a graph: its tree, and access to its parts. It shares only the YAML tree with the compiler, so
//! that the compiler does not judge itself.

use std::collections::BTreeMap;
use std::ops::Range;

use graph_compiler::diagnostic::Diagnostics;
use graph_compiler::source::SourceFile;
use graph_compiler::tree::{self, TreeKey, TreeNode as Value, YamlTree};

/// The known type of a value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Type {
    pub(crate) kind: Kind,
    pub(crate) nullable: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Kind {
    Any,
    /// No value but null.
    Never,
    Boolean,
    Integer,
    Number,
    Text,
    Enum(Vec<String>),
    List(Box<Type>),
    Map(Box<Type>),
    Object(Vec<Field>),
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Field {
    pub(crate) name: String,
    pub(crate) ty: Type,
    /// Whether it must be given: it is required and has no default.
    pub(crate) needed: bool,
}

impl Type {
    pub(crate) fn of(kind: Kind) -> Self {
        Self { nullable: kind == Kind::Never, kind }
    }

    pub(crate) fn any() -> Self {
        Self::of(Kind::Any)
    }

    pub(crate) fn or_null(mut self) -> Self {
        self.nullable = true;
        self
    }

    /// Reads a valid schema.
    pub(crate) fn from_schema(schema: &YamlTree) -> Self {
        let names: Vec<String> = match get(schema, "type").map(|tree| &tree.node) {
            Some(Value::String(name)) => vec![name.clone()],
            Some(Value::List(list)) => list.iter().filter_map(|tree| text_of(tree).map(str::to_owned)).collect(),
            _ => Vec::new(),
        };
        let name = names.iter().find(|name| *name != "null").map(String::as_str);
        let kind = match (get(schema, "enum"), name) {
            (Some(members), _) => Kind::Enum(items(members).iter().filter_map(text_of).map(str::to_owned).collect()),
            (None, Some("string")) => Kind::Text,
            (None, Some("integer")) => Kind::Integer,
            (None, Some("number")) => Kind::Number,
            (None, Some("boolean")) => Kind::Boolean,
            (None, Some("array")) => {
                Kind::List(Box::new(get(schema, "items").map_or_else(Self::any, Self::from_schema)))
            }
            (None, Some("object")) => match (get(schema, "properties"), get(schema, "additionalProperties")) {
                (Some(properties), _) => Self::object(schema, properties),
                (None, Some(values)) => Kind::Map(Box::new(Self::from_schema(values))),
                (None, None) => Kind::Map(Box::new(Self::any())),
            },
            _ => Kind::Any,
        };
        Self { kind, nullable: names.len() > 1 }
    }

    fn object(schema: &YamlTree, properties: &YamlTree) -> Kind {
        let required: Vec<&str> =
            get(schema, "required").map(items).unwrap_or_default().iter().filter_map(text_of).collect();
        let field = |(key, tree): &(TreeKey, YamlTree)| {
            let (is_required, has_default) = (required.contains(&key.name.as_str()), get(tree, "default").is_some());
            let mut ty = Self::from_schema(tree);
            ty.nullable |= !is_required && !has_default;
            Field { name: key.name.clone(), needed: is_required && !has_default && !ty.nullable, ty }
        };
        Kind::Object(fields(properties).iter().map(field).collect())
    }

    /// Returns the type of a literal.
    pub(crate) fn from_literal(tree: &YamlTree) -> Self {
        Self::of(match &tree.node {
            Value::Null => Kind::Never,
            Value::Boolean(_) => Kind::Boolean,
            Value::Number(number) if number.is_f64() => Kind::Number,
            Value::Number(_) => Kind::Integer,
            Value::String(_) => Kind::Text,
            Value::List(list) => Kind::List(Box::new(
                list.iter().map(Self::from_literal).fold(Self { kind: Kind::Never, nullable: false }, Self::join),
            )),
            Value::Map(map) => Kind::Object(
                map.iter()
                    .map(|(key, value)| Field { name: key.name.clone(), ty: Self::from_literal(value), needed: true })
                    .collect(),
            ),
        })
    }

    pub(crate) fn join(self, other: Self) -> Self {
        let nullable = self.nullable || other.nullable;
        let kind = match (self.kind, other.kind) {
            (Kind::Never, kind) | (kind, Kind::Never) => kind,
            (one, two) if one == two => one,
            (Kind::Integer, Kind::Number) | (Kind::Number, Kind::Integer) => Kind::Number,
            (Kind::Text, Kind::Enum(_)) | (Kind::Enum(_), Kind::Text) => Kind::Text,
            (Kind::Enum(mut one), Kind::Enum(two)) => {
                one.extend(two.into_iter().filter(|text| !one.contains(text)).collect::<Vec<_>>());
                Kind::Enum(one)
            }
            (Kind::List(one), Kind::List(two)) => Kind::List(Box::new(one.join(*two))),
            _ => Kind::Any,
        };
        Self { kind, nullable }
    }

    /// Follows one part of a path; `None` if no value has it. An index is assumed to be in range.
    pub(crate) fn step(&self, part: &str) -> Option<Self> {
        let found = match &self.kind {
            Kind::Any => Self::any(),
            Kind::Never => self.clone(),
            Kind::Object(fields) => fields.iter().find(|field| field.name == part)?.ty.clone(),
            Kind::Map(values) => (**values).clone().or_null(),
            Kind::List(elements) if part.parse::<i64>().is_ok() => (**elements).clone(),
            _ => return None,
        };
        Some(if self.nullable { found.or_null() } else { found })
    }

    /// Whether a value that is not null fits a place of the type `target`, as far as is known.
    pub(crate) fn fits(&self, target: &Self) -> bool {
        match (&self.kind, &target.kind) {
            (Kind::Any | Kind::Never, _)
            | (_, Kind::Any)
            | (Kind::Integer, Kind::Number)
            | (Kind::Enum(_), Kind::Text) => true,
            (Kind::Enum(one), Kind::Enum(two)) => one.iter().all(|text| two.contains(text)),
            (Kind::List(one), Kind::List(two)) | (Kind::Map(one), Kind::Map(two)) => one.fits(two),
            (Kind::Object(fields), Kind::Map(values)) => fields.iter().all(|field| field.ty.fits(values)),
            (Kind::Map(_), Kind::Object(_)) => true,
            (Kind::Object(given), Kind::Object(asked)) => {
                asked.iter().all(|field| match given.iter().find(|one| one.name == field.name) {
                    Some(one) => one.ty.fits(&field.ty),
                    None => !field.needed,
                })
            }
            (one, two) => one == two,
        }
    }
}

/// Returns a field of a mapping. A field without a value counts as missing.
pub(crate) fn get<'t>(tree: &'t YamlTree, name: &str) -> Option<&'t YamlTree> {
    fields(tree).iter().find(|(key, value)| key.name == name && value.node != Value::Null).map(|(_, value)| value)
}

/// Returns the fields of a mapping.
pub(crate) fn fields(tree: &YamlTree) -> &[(TreeKey, YamlTree)] {
    if let Value::Map(fields) = &tree.node { fields } else { &[] }
}

/// Returns the elements of a list.
pub(crate) fn items(tree: &YamlTree) -> &[YamlTree] {
    if let Value::List(items) = &tree.node { items } else { &[] }
}

/// Returns the text, if the value is one.
pub(crate) fn text_of(tree: &YamlTree) -> Option<&str> {
    if let Value::String(text) = &tree.node { Some(text) } else { None }
}

/// A graph or tool that can be called by an id.
#[derive(Debug, Clone)]
pub(crate) struct Callee {
    pub(crate) params: Type,
    pub(crate) result: Type,
    /// The capabilities that the graph needs when it is nested.
    pub(crate) needs: Vec<String>,
}

impl Callee {
    /// Reads a contract.
    pub(crate) fn from_contract(contract: &YamlTree) -> Self {
        let of = |name: &str| get(contract, name).map(Type::from_schema);
        Self {
            params: of("config_schema").unwrap_or_else(|| Type::of(Kind::Object(Vec::new()))),
            result: of("result_schema").unwrap_or_else(Type::any),
            needs: Vec::new(),
        }
    }

    /// Describes a graph for a graph that nests it. The type of its output is left open.
    pub(crate) fn from_graph(graph: &Graph) -> Self {
        let known = [
            ("success", Kind::Boolean, false),
            ("status", Kind::Text, false),
            ("graph_run_id", Kind::Text, false),
            ("steps", Kind::Integer, false),
            ("state", Kind::Map(Box::new(Type::any())), false),
            ("output", Kind::Any, true),
            ("error", Kind::Text, true),
            ("node", Kind::Text, true),
            ("errors", Kind::List(Box::new(Type::any())), true),
        ];
        let field = |(name, kind, nullable): (&str, Kind, bool)| Field {
            name: name.to_owned(),
            ty: Type { kind, nullable },
            needed: false,
        };
        let permissions = get(&graph.root, "permissions").map(items).unwrap_or_default();
        Self {
            params: graph.inputs(),
            result: Type::of(Kind::Object(known.map(field).into())),
            needs: permissions.iter().filter_map(text_of).map(str::to_owned).collect(),
        }
    }
}

/// The graphs and tools that can be called, by id.
pub(crate) type Callees = BTreeMap<String, Callee>;

/// Reads a text as YAML.
pub(crate) fn parse(text: &str) -> Option<YamlTree> {
    let mut diagnostics = Diagnostics::new();
    let file = tree::parse(&SourceFile::new("mutant", "mutant", text), &mut diagnostics)?;
    diagnostics.is_empty().then_some(file.root)
}

/// A graph's text and its tree.
#[derive(Debug)]
pub(crate) struct Graph {
    pub(crate) text: String,
    pub(crate) root: YamlTree,
}

impl Graph {
    pub(crate) fn read(text: &str) -> Option<Self> {
        Some(Self { text: text.to_owned(), root: parse(text)? })
    }

    /// Returns the id of a graph in a file with this name.
    pub(crate) fn id(&self, stem: &str) -> String {
        let category = get(&self.root, "category").and_then(text_of);
        category.map_or_else(|| stem.to_owned(), |category| format!("{category}/{stem}"))
    }

    pub(crate) fn inputs(&self) -> Type {
        get(&self.root, "config_schema").map_or_else(Type::any, Type::from_schema)
    }

    /// Returns a setting of `config`.
    pub(crate) fn config(&self, name: &str) -> Option<&YamlTree> {
        get(&self.root, "config").and_then(|config| get(config, name))
    }

    /// Whether `config` sets a field to this word.
    pub(crate) fn says(&self, name: &str, word: &str) -> bool {
        self.config(name).and_then(text_of) == Some(word)
    }

    pub(crate) fn nodes(&self) -> Vec<Node<'_>> {
        self.config("nodes").map(fields).unwrap_or_default().iter().map(|(key, tree)| Node { key, tree }).collect()
    }

    /// Returns the names of the first nodes.
    pub(crate) fn starts(&self) -> Vec<&YamlTree> {
        match self.config("start") {
            Some(one @ YamlTree { node: Value::String(_), .. }) => vec![one],
            Some(list) => items(list).iter().collect(),
            None => Vec::new(),
        }
    }

    /// Returns the entries: the name, the node, and what is written.
    pub(crate) fn entries(&self) -> Vec<(&TreeKey, Option<&YamlTree>, &YamlTree)> {
        let entries = self.config("entries").map(fields).unwrap_or_default();
        entries
            .iter()
            .map(|(key, tree)| (key, if text_of(tree).is_some() { Some(tree) } else { get(tree, "node") }, tree))
            .collect()
    }

    /// Returns the channels: the key, the name of the reducer, and what is written.
    pub(crate) fn channels(&self) -> Vec<(&TreeKey, &str, &YamlTree)> {
        let channels = self.config("channels").map(fields).unwrap_or_default();
        channels
            .iter()
            .map(|(key, tree)| {
                let word = text_of(tree).or_else(|| get(tree, "reduce").and_then(text_of));
                (key, word.unwrap_or_default(), tree)
            })
            .collect()
    }

    /// Whether runs have branches, or begin at other places than the start.
    pub(crate) fn has_branches(&self) -> bool {
        let fans = |node: &Node<'_>| matches!(node.form(), Form::All | Form::Over) || node.get("waits_for").is_some();
        self.starts().len() > 1 || !self.entries().is_empty() || self.nodes().iter().any(fans)
    }

    pub(crate) fn hooks(&self) -> &[YamlTree] {
        self.config("hooks").map(items).unwrap_or_default()
    }

    /// Returns all expressions below a value.
    pub(crate) fn expressions(&self, tree: &YamlTree) -> Vec<Expression> {
        let mut found = Vec::new();
        self.collect(tree, &mut found);
        found
    }

    fn collect(&self, tree: &YamlTree, found: &mut Vec<Expression>) {
        match &tree.node {
            Value::String(text) => found.extend(self.expressions_of(tree, text)),
            Value::List(list) => list.iter().for_each(|tree| self.collect(tree, found)),
            Value::Map(map) => map.iter().for_each(|(_, tree)| self.collect(tree, found)),
            _ => {}
        }
    }

    /// Finds the expressions of one text. Texts of the corpus have no escapes inside `${…}`, so the places are simple
    /// to compute.
    fn expressions_of(&self, tree: &YamlTree, text: &str) -> Vec<Expression> {
        let raw = &self.text[tree.span.clone()];
        let (mut found, mut from) = (Vec::new(), 0);
        while let Some(at) = raw[from..].find("${").map(|at| from + at) {
            let Some(end) = raw[at..].find('}').map(|end| at + end) else { break };
            from = end + 1;
            if raw[..at].ends_with('$') {
                continue;
            }
            let (mut paths, mut start) = (Vec::new(), at + 2);
            for part in raw[at + 2..end].split("||") {
                let lead = part.len() - part.trim_start().len();
                let place = tree.span.start + start + lead;
                paths.push(Path::new(part.trim(), place..place + part.trim().len()));
                start += part.len() + 2;
            }
            let span = tree.span.start + at..tree.span.start + end + 1;
            let trimmed = text.strip_suffix('\n').unwrap_or(text);
            let is_whole = trimmed.starts_with("${") && trimmed.find('}') == Some(trimmed.len() - 1);
            found.push(Expression { span, paths, is_whole });
        }
        found
    }
}

/// A `${…}`.
#[derive(Debug)]
pub(crate) struct Expression {
    pub(crate) span: Range<usize>,
    pub(crate) paths: Vec<Path>,
    /// Whether the expression is the whole text.
    pub(crate) is_whole: bool,
}

/// A path and its place in the text.
#[derive(Debug, Clone)]
pub(crate) struct Path {
    pub(crate) span: Range<usize>,
    pub(crate) text: String,
    pub(crate) parts: Vec<String>,
}

impl Path {
    pub(crate) fn new(text: &str, span: Range<usize>) -> Self {
        let parts =
            text.replace(['[', ']'], ".").split('.').filter(|part| !part.is_empty()).map(str::to_owned).collect();
        Self { span, text: text.to_owned(), parts }
    }

    pub(crate) fn root(&self) -> &str {
        self.parts.first().map_or("", String::as_str)
    }

    /// Returns the key, if the path leads into the state.
    pub(crate) fn key(&self) -> Option<&str> {
        if self.root() == "state" { self.parts.get(1).map(String::as_str) } else { None }
    }
}

/// A node of a graph.
#[derive(Clone, Copy)]
pub(crate) struct Node<'g> {
    pub(crate) key: &'g TreeKey,
    pub(crate) tree: &'g YamlTree,
}

impl<'g> Node<'g> {
    pub(crate) fn name(&self) -> &'g str {
        &self.key.name
    }

    pub(crate) fn get(&self, name: &str) -> Option<&'g YamlTree> {
        get(self.tree, name)
    }

    pub(crate) fn is(&self, kind: &str) -> bool {
        self.get("type").and_then(text_of).unwrap_or("action") == kind
    }

    /// Returns the edges with their targets and conditions.
    pub(crate) fn edges(&self) -> Vec<Edge<'g>> {
        let list =
            |list| items(list).iter().map(|edge| Edge { to: get(edge, "to"), when: get(edge, "when") }).collect();
        let Some(next) = self.get("next") else { return Vec::new() };
        match self.form() {
            Form::None => Vec::new(),
            Form::One => vec![Edge { to: Some(next), when: None }],
            Form::First => list(next),
            Form::All => get(next, "all").map(list).unwrap_or_default(),
            Form::Over => vec![Edge { to: get(next, "to"), when: None }],
            Form::By => {
                let edge = |(_, to): &'g (TreeKey, YamlTree)| Edge { to: text_of(to).map(|_| to), when: None };
                get(next, "to").map(fields).unwrap_or_default().iter().map(edge).collect()
            }
        }
    }

    /// Returns the form of `next`.
    pub(crate) fn form(&self) -> Form {
        let Some(next) = self.get("next") else { return Form::None };
        let has = |name: &str| get(next, name).is_some();
        match &next.node {
            Value::String(_) => Form::One,
            Value::List(_) => Form::First,
            _ if has("all") => Form::All,
            _ if has("over") => Form::Over,
            _ if has("by") => Form::By,
            _ => Form::None,
        }
    }

    /// Returns a field of the mapping in `next`.
    pub(crate) fn of_next(&self, name: &str) -> Option<&'g YamlTree> {
        self.get("next").and_then(|next| get(next, name))
    }

    /// Returns the nodes that a join waits for.
    pub(crate) fn waits_for(&self) -> Vec<&'g YamlTree> {
        let Some(waits) = self.get("waits_for") else { return Vec::new() };
        let of = if let Value::Map(_) = &waits.node { get(waits, "of") } else { Some(waits) };
        match of {
            Some(one @ YamlTree { node: Value::String(_), .. }) => vec![one],
            Some(list) => items(list).iter().collect(),
            None => Vec::new(),
        }
    }

    /// Returns a field of a quorum.
    pub(crate) fn of_quorum(&self, name: &str) -> Option<&'g YamlTree> {
        self.get("waits_for").and_then(|waits| get(waits, name))
    }

    /// Returns the keys that the node gives their first value.
    pub(crate) fn resets(&self) -> Vec<&'g YamlTree> {
        match self.get("reset") {
            Some(one @ YamlTree { node: Value::String(_), .. }) => vec![one],
            Some(list) => items(list).iter().collect(),
            None => Vec::new(),
        }
    }

    pub(crate) fn assign(&self) -> &'g [(TreeKey, YamlTree)] {
        self.get("assign").map(fields).unwrap_or_default()
    }

    /// Returns the id of the called tool or graph, if it is known.
    pub(crate) fn calls(&self) -> Option<&'g str> {
        self.get("action").and_then(called)
    }

    /// Returns the name of an element in a foreach.
    pub(crate) fn item(&self) -> &'g str {
        self.get("as").and_then(text_of).unwrap_or("item")
    }
}

/// Returns the id of the tool or graph that an action executes, if it is known.
pub(crate) fn called(action: &YamlTree) -> Option<&str> {
    let is = |name: &str, word: &str| get(action, name).and_then(text_of).is_none_or(|text| text == word);
    let id = get(action, "item_id").and_then(text_of)?;
    (is("primary", "execute") && is("item_type", "tool") && !id.contains("${")).then_some(id)
}

/// The form of `next`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    None,
    One,
    First,
    All,
    Over,
    By,
}

/// An edge.
#[derive(Clone, Copy)]
pub(crate) struct Edge<'g> {
    pub(crate) to: Option<&'g YamlTree>,
    pub(crate) when: Option<&'g YamlTree>,
}

impl<'g> Edge<'g> {
    pub(crate) fn target(&self) -> Option<&'g str> {
        self.to.and_then(text_of)
    }
}

/// Calls `visit` with each comparison of a condition.
pub(crate) fn comparisons<'g>(condition: &'g YamlTree, visit: &mut impl FnMut(&'g YamlTree)) {
    if get(condition, "path").is_some() {
        visit(condition);
    }
    for name in ["all", "any"] {
        get(condition, name).map(items).unwrap_or_default().iter().for_each(|inner| comparisons(inner, visit));
    }
    if let Some(inner) = get(condition, "not") {
        comparisons(inner, visit);
    }
}

/// Returns the operator of a comparison.
pub(crate) fn operator(test: &YamlTree) -> &str {
    get(test, "op").or_else(|| get(test, "operator")).and_then(text_of).unwrap_or("eq")
}
