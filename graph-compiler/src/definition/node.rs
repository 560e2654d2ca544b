//! Nodes, edges and conditions.

use graph_model::condition::Condition;
use graph_model::name::{ItemId, NodeName, StateKey};
use graph_model::operator::Operator;
use graph_model::path::{Path, PathError, Root};
use graph_model::value::Value;

use super::reader::{Fields, Reader, Spanned};
use super::template::{self, Term};
use super::{Env, template::locate};
use crate::diagnostic::{Place, code};
use crate::source::Span;
use crate::tree::{Key, Node, Tree};

/// A node as its author wrote it.
#[derive(Debug)]
pub struct NodeDefinition {
    /// Its name.
    pub name: Spanned<NodeName>,
    /// What it does.
    pub kind: NodeKind,
}

/// What a node does; each kind has its own fields.
#[derive(Debug)]
pub enum NodeKind {
    /// Calls a tool, assigns, routes.
    Action(Action),
    /// Assigns and routes.
    Gate(Gate),
    /// Ends the run.
    Return(Return),
}

/// A node that calls a tool.
#[derive(Debug)]
pub struct Action {
    /// Where `action` stands.
    pub span: Span,
    /// The tool's id.
    pub item_id: Spanned<ItemId>,
    /// The parameters: an object.
    pub params: Term,
    /// What is written into the state when the tool has returned.
    pub assign: Vec<Assignment>,
    /// Where the run goes on.
    pub next: Next,
    /// Where it goes on when the node fails.
    pub on_error: Option<Spanned<NodeName>>,
}

/// A node that computes and routes.
#[derive(Debug)]
pub struct Gate {
    /// What is written into the state.
    pub assign: Vec<Assignment>,
    /// Where the run goes on.
    pub next: Next,
}

/// A node that ends the run.
#[derive(Debug)]
pub struct Return {
    /// What the run returns, where it is not its state.
    pub output: Option<Term>,
}

/// A key and what is written to it.
#[derive(Debug)]
pub struct Assignment {
    /// The key of the state.
    pub key: Spanned<StateKey>,
    /// The value.
    pub value: Term,
}

/// Where a node leads.
#[derive(Debug)]
pub enum Next {
    /// Nowhere: the run ends (R89).
    End,
    /// To one node, always.
    To(Spanned<NodeName>),
    /// To the target of the first edge whose condition holds; nowhere if none does.
    List(EdgeList),
}

/// Edges, tried in order.
#[derive(Debug)]
pub struct EdgeList {
    /// Where the list stands.
    pub span: Span,
    /// The edges.
    pub edges: Vec<Edge>,
}

/// An edge.
#[derive(Debug)]
pub struct Edge {
    /// Where it stands.
    pub span: Span,
    /// The target; without one the run ends (R91).
    pub to: Option<Spanned<NodeName>>,
    /// The condition.
    pub when: Condition<Test>,
    /// The condition as it was written, for the runtime to read.
    pub written: Option<Value>,
}

/// A comparison.
#[derive(Debug, Clone)]
pub struct Test {
    /// Where it stands.
    pub span: Span,
    /// What is looked at.
    pub path: Spanned<Path>,
    /// How.
    pub operator: Operator,
    /// What it is compared with.
    pub value: Spanned<Value>,
}

impl NodeDefinition {
    /// Returns where the node leads; a return node leads nowhere.
    pub fn next(&self) -> &Next {
        match &self.kind {
            NodeKind::Action(action) => &action.next,
            NodeKind::Gate(gate) => &gate.next,
            NodeKind::Return(_) => &Next::End,
        }
    }

    /// Returns what the node writes.
    pub fn assign(&self) -> &[Assignment] {
        match &self.kind {
            NodeKind::Action(action) => &action.assign,
            NodeKind::Gate(gate) => &gate.assign,
            NodeKind::Return(_) => &[],
        }
    }

    /// Returns where a failure leads.
    pub fn on_error(&self) -> Option<&Spanned<NodeName>> {
        match &self.kind {
            NodeKind::Action(action) => action.on_error.as_ref(),
            NodeKind::Gate(_) | NodeKind::Return(_) => None,
        }
    }
}

const ACTION: [&str; 8] = ["type", "description", "comment", "action", "assign", "next", "on_error", "env_requires"];
const GATE: [&str; 5] = ["type", "description", "comment", "assign", "next"];
const RETURN: [&str; 4] = ["type", "description", "comment", "output"];
const NOT_SUPPORTED: [&str; 11] = [
    "over",
    "as",
    "collect",
    "parallel",
    "max_concurrency",
    "cache_result",
    "remote",
    "retry",
    "timeout",
    "hooks",
    "feedback",
];

/// How many nodes a graph may have: their indices are 16 bits wide.
const MOST_NODES: usize = 60_000;

/// The nodes that could be read, and the names of those that could not.
#[derive(Default)]
pub(super) struct Nodes {
    pub(super) nodes: Vec<NodeDefinition>,
    pub(super) unreadable: Vec<String>,
    pub(super) lost_target: bool,
}

/// Reads `config.nodes`.
pub(super) fn parse_all(reader: &mut Reader<'_>, tree: &Tree, env: &mut Env) -> Option<Nodes> {
    let mut all = Nodes::default();
    let fields = reader.map(tree, "`nodes`")?;
    if fields.entries.len() > MOST_NODES {
        let place = Place::new(reader.source, fields.entries[MOST_NODES].0.span.clone());
        reader.diagnostics.error(code::TOO_DEEP, place, format!("a graph has at most {MOST_NODES} nodes"));
        return None;
    }
    for (key, tree) in fields.entries {
        match parse(reader, key, tree, env, &mut all.lost_target) {
            Some(node) => all.nodes.push(node),
            None => all.unreadable.push(key.name.clone()),
        }
    }
    Some(all)
}

fn parse(reader: &mut Reader<'_>, key: &Key, tree: &Tree, env: &mut Env, lost: &mut bool) -> Option<NodeDefinition> {
    let text = Spanned { value: key.name.clone(), span: key.span.clone() };
    let name = reader.name(text, NodeName::new)?;
    let fields = reader.map(tree, &format!("node `{name}`"))?;
    let kind = match reader.optional_text(&fields, "type") {
        None if fields.get("type").is_some() => return None,
        None if fields.get("action").is_none() => {
            let place = Place::new(reader.source, key.span.clone());
            reader
                .diagnostics
                .error(code::MISSING_FIELD, place, format!("node `{name}` needs `action` or `type`"))
                .help("a node calls a tool with `action`, or is `type: gate` or `type: return`");
            return None;
        }
        None => NodeKind::Action(parse_action(reader, &name, &fields, env, lost)?),
        Some(kind) => match kind.value.as_str() {
            "action" => NodeKind::Action(parse_action(reader, &name, &fields, env, lost)?),
            "gate" => NodeKind::Gate(parse_gate(reader, &name, &fields, lost)),
            "return" => NodeKind::Return(parse_return(reader, &name, &fields)),
            "foreach" => {
                let place = Place::new(reader.source, kind.span);
                reader.diagnostics.error(
                    code::NOT_SUPPORTED,
                    place,
                    "`type: foreach` is not supported by this version",
                );
                return None;
            }
            other => {
                let place = Place::new(reader.source, kind.span);
                reader
                    .diagnostics
                    .error(code::SHAPE, place, format!("`{other}` is not a type of node"))
                    .note("a node is an `action`, a `gate` or a `return`")
                    .suggest(other, ["action", "gate", "return"]);
                return None;
            }
        },
    };
    Some(NodeDefinition { name, kind })
}

fn parse_action(
    reader: &mut Reader<'_>,
    name: &Spanned<NodeName>,
    fields: &Fields<'_>,
    env: &mut Env,
    lost: &mut bool,
) -> Option<Action> {
    *lost |= only(reader, fields, &format!("node `{name}`"), &ACTION, &[]);
    if let Some(tree) = fields.get("env_requires") {
        env.read(reader, tree);
    }
    let assign = parse_assign(reader, fields);
    let next = parse_next(reader, fields, lost);
    let on_error = reader.optional_text(fields, "on_error").and_then(|text| reader.name(text, NodeName::new));
    *lost |= on_error.is_none() && fields.get("on_error").is_some();
    let tree = reader.required(fields, &format!("node `{name}`"), "action")?;
    let action = reader.map(tree, "`action`")?;
    reader.only(&action, "an action", &["primary", "item_type", "item_id", "params"], &[]);
    only_value(reader, &action, "primary", "execute", &["fetch", "search", "load", "sign"]);
    only_value(reader, &action, "item_type", "tool", &["directive", "knowledge"]);
    let item_id = reader.required_text(&action, "an action", "item_id")?;
    if item_id.value.contains("${") {
        let place = Place::new(reader.source, item_id.span);
        reader.diagnostics.error(
            code::NOT_SUPPORTED,
            place,
            "an `item_id` with a template is not supported by this version",
        );
        return None;
    }
    let item_id = reader.name(item_id, ItemId::new)?;
    let params = match action.get("params") {
        Some(tree) => {
            reader.map(tree, "`params`")?;
            template::parse(reader, tree)
        }
        None => Term { span: item_id.span.clone(), kind: template::TermKind::Object(Vec::new()) },
    };
    Some(Action { span: tree.span.clone(), item_id, params, assign, next, on_error })
}

/// Reports a field whose value is not the one that is supported.
fn only_value(reader: &mut Reader<'_>, fields: &Fields<'_>, name: &str, only: &str, coming: &[&str]) {
    let Some(text) = reader.optional_text(fields, name) else { return };
    if text.value == only {
        return;
    }
    let place = Place::new(reader.source, text.span);
    if coming.contains(&text.value.as_str()) {
        let message = format!("`{name}: {}` is not supported by this version", text.value);
        reader.diagnostics.error(code::NOT_SUPPORTED, place, message);
    } else {
        let known = std::iter::once(only).chain(coming.iter().copied());
        let message = format!("`{name}` is `{only}`, not `{}`", text.value);
        reader.diagnostics.error(code::SHAPE, place, message).suggest(&text.value, known);
    }
}

fn parse_gate(reader: &mut Reader<'_>, name: &Spanned<NodeName>, fields: &Fields<'_>, lost: &mut bool) -> Gate {
    *lost |= only(reader, fields, &format!("the gate `{name}`"), &GATE, &["action", "on_error", "env_requires"]);
    Gate { assign: parse_assign(reader, fields), next: parse_next(reader, fields, lost) }
}

fn parse_return(reader: &mut Reader<'_>, name: &Spanned<NodeName>, fields: &Fields<'_>) -> Return {
    let inert = ["action", "assign", "next", "on_error", "env_requires"];
    only(reader, fields, &format!("the return node `{name}`"), &RETURN, &inert);
    Return { output: fields.get("output").map(|tree| template::parse(reader, tree)) }
}

/// Reports fields that a node of this kind does not have; those that are `inert` belong to other kinds (R102).
///
/// Says whether one is unknown: it may have been meant to lead somewhere.
fn only(reader: &mut Reader<'_>, fields: &Fields<'_>, whose: &str, known: &[&str], inert: &[&str]) -> bool {
    for (key, _) in fields.entries {
        if inert.contains(&key.name.as_str()) {
            let place = Place::new(reader.source, key.span.clone());
            reader
                .diagnostics
                .error(code::INERT_FIELD, place, format!("`{}` does nothing on {whose}", key.name))
                .help("remove it, or move it to a node that has an `action`");
        }
    }
    reader.unsupported(fields, &NOT_SUPPORTED);
    reader.only(fields, whose, known, &[inert, &NOT_SUPPORTED].concat())
}

fn parse_assign(reader: &mut Reader<'_>, fields: &Fields<'_>) -> Vec<Assignment> {
    let Some(tree) = fields.get("assign") else { return Vec::new() };
    let Some(fields) = reader.map(tree, "`assign`") else { return Vec::new() };
    let mut assign = Vec::new();
    for (key, tree) in fields.entries {
        let text = Spanned { value: key.name.clone(), span: key.span.clone() };
        let value = template::parse(reader, tree);
        if let Some(key) = reader.name(text, StateKey::new) {
            assign.push(Assignment { key, value });
        }
    }
    assign
}

/// Reads `next`; `lost` is set where a target was given and cannot be read.
fn parse_next(reader: &mut Reader<'_>, fields: &Fields<'_>, lost: &mut bool) -> Next {
    let Some(tree) = fields.get("next") else { return Next::End };
    match &tree.node {
        Node::String(_) => match reader.text(tree, "`next`").and_then(|text| reader.name(text, NodeName::new)) {
            Some(name) => Next::To(name),
            None => {
                *lost = true;
                Next::End
            }
        },
        Node::List(list) => {
            let edges: Vec<_> = list.iter().filter_map(|tree| parse_edge(reader, tree, lost)).collect();
            *lost |= edges.len() < list.len();
            Next::List(EdgeList { span: tree.span.clone(), edges })
        }
        _ => {
            *lost = true;
            let place = Place::new(reader.source, tree.span.clone());
            let message = format!("`next` is a node's name or a list of edges, not {}", tree.describe());
            reader
                .diagnostics
                .error(code::SHAPE, place, message)
                .help("write `next: name`, or a list of `{ to: name, when: … }`");
            Next::End
        }
    }
}

fn parse_edge(reader: &mut Reader<'_>, tree: &Tree, lost: &mut bool) -> Option<Edge> {
    let fields = reader.map(tree, "an edge")?;
    let slipped = reader.only(&fields, "an edge", &["to", "when", "description", "comment"], &[]);
    let to = reader.optional_text(&fields, "to").and_then(|text| reader.name(text, NodeName::new));
    *lost |= slipped || (to.is_none() && fields.get("to").is_some());
    let (when, written) = match fields.get("when") {
        // A condition that cannot be read is no reason to object to the nodes behind it.
        Some(when) => (parse_condition(reader, when).unwrap_or(Condition::Any(Vec::new())), Some(when.to_value())),
        // A misspelt `when` neither.
        None if slipped => (Condition::Any(Vec::new()), None),
        None => (Condition::Always, None),
    };
    Some(Edge { span: tree.span.clone(), to, when, written })
}

/// Reads a condition; an empty one holds always (R77).
fn parse_condition(reader: &mut Reader<'_>, tree: &Tree) -> Option<Condition<Test>> {
    let fields = reader.map(tree, "a condition")?;
    if fields.entries.is_empty() {
        return Some(Condition::Always);
    }
    reader.only(&fields, "a condition", &["path", "op", "operator", "value", "any", "all", "not"], &[]);
    let kinds: Vec<_> =
        fields.entries.iter().filter(|(key, _)| matches!(key.name.as_str(), "path" | "any" | "all" | "not")).collect();
    let list = |reader: &mut Reader<'_>, tree: &Tree, what: &str| -> Option<Vec<_>> {
        let conditions: Vec<_> = reader.list(tree, what).iter().map(|tree| parse_condition(reader, tree)).collect();
        conditions.into_iter().collect()
    };
    if let [(kind, _)] = kinds.as_slice()
        && kind.name != "path"
    {
        // What belongs to a comparison does nothing beside `any`, `all` and `not`.
        for (key, _) in
            fields.entries.iter().filter(|(key, _)| matches!(key.name.as_str(), "op" | "operator" | "value"))
        {
            let place = Place::new(reader.source, key.span.clone());
            reader
                .diagnostics
                .error(code::INERT_FIELD, place, format!("`{}` does nothing beside `{}`", key.name, kind.name))
                .help("remove it, or make it part of a comparison with a `path`");
        }
    }
    match kinds.as_slice() {
        [(key, inner)] => match key.name.as_str() {
            "any" => Some(Condition::Any(list(reader, inner, "`any`")?)),
            "all" => Some(Condition::All(list(reader, inner, "`all`")?)),
            "not" => Some(Condition::Not(Box::new(parse_condition(reader, inner)?))),
            _ => parse_test(reader, &fields, inner).map(Condition::Test),
        },
        [] => {
            let place = Place::new(reader.source, fields.span.clone());
            reader
                .diagnostics
                .error(code::BAD_CONDITION, place, "a condition needs `path`, or one of `any`, `all` and `not`")
                .help("write `when: { path: state.key, op: eq, value: … }`");
            None
        }
        [(first, _), (second, _), ..] => {
            let place = Place::new(reader.source, second.span.clone());
            let first_place = Place::new(reader.source, first.span.clone());
            reader
                .diagnostics
                .error(
                    code::BAD_CONDITION,
                    place,
                    format!("a condition has `{}` or `{}`, not both", first.name, second.name),
                )
                .related(first_place, "the other")
                .help("combine conditions in the list of an `all` or `any`");
            None
        }
    }
}

fn parse_test(reader: &mut Reader<'_>, fields: &Fields<'_>, path: &Tree) -> Option<Test> {
    let path = parse_path(reader, path);
    let operator = parse_operator(reader, fields);
    let given = fields.entries.iter().find(|(key, _)| key.name == "value");
    let value = match given {
        Some((_, tree)) => Spanned { value: tree.to_value(), span: tree.span.clone() },
        None => Spanned { value: Value::Null, span: fields.span.clone() },
    };
    let (path, operator) = (path?, operator?);
    if given.is_none() && operator != Operator::Exists {
        let place = Place::new(reader.source, fields.span.clone());
        reader
            .diagnostics
            .error(code::MISSING_FIELD, place, format!("a comparison with `{operator}` needs `value`"))
            .help("to compare with nothing, write `value: null`");
        return None;
    }
    if operator == Operator::Regex && !check_pattern(reader, &value) {
        return None;
    }
    Some(Test { span: fields.span.clone(), path, operator, value })
}

/// Reads the path of a condition, which looks into `state`, `inputs` and `result` (R87).
fn parse_path(reader: &mut Reader<'_>, tree: &Tree) -> Option<Spanned<Path>> {
    let text = reader.text(tree, "`path`")?;
    let place = Place::new(reader.source, text.span.clone());
    let otherwise = "a condition looks into `state`, `inputs` and `result`";
    match Path::parse(&text.value) {
        Ok(Path { root: Root::Now | Root::Timestamp, .. }) => {
            reader
                .diagnostics
                .error(code::UNKNOWN_NAMESPACE, place, format!("a condition cannot look at `{}`", text.value))
                .help(format!("{otherwise}; assign the time to a state key first"));
            None
        }
        Ok(path) => Some(Spanned { value: path, span: text.span }),
        Err(error) => {
            if text.value.starts_with("${") {
                reader
                    .diagnostics
                    .error(code::BAD_TEMPLATE, place, "the path of a condition is written without `${…}`")
                    .help(format!(
                        "write `path: {}`",
                        text.value.trim_start_matches("${").trim_end_matches('}').trim()
                    ));
            } else {
                let span = match &error {
                    PathError::Character { offset, character } => *offset..offset + character.len_utf8(),
                    _ => 0..text.value.len(),
                };
                let place = Place::new(reader.source, locate(reader.source, &text.span, &text.value, &span));
                template::report_path(reader, place, &error, otherwise);
            }
            None
        }
    }
}

/// Reads `op`, or `operator` as existing graphs spell it (R79); without either it is `eq` (R77).
fn parse_operator(reader: &mut Reader<'_>, fields: &Fields<'_>) -> Option<Operator> {
    if let (Some(first), Some(second)) = (fields.key("op"), fields.key("operator")) {
        let (place, first) =
            (Place::new(reader.source, second.span.clone()), Place::new(reader.source, first.span.clone()));
        reader
            .diagnostics
            .error(code::BAD_CONDITION, place, "a comparison has `op` or `operator`, not both")
            .related(first, "the other");
        return None;
    }
    let name = if fields.key("op").is_some() { "op" } else { "operator" };
    let Some(text) = reader.optional_text(fields, name) else {
        return fields.get(name).is_none().then_some(Operator::Eq);
    };
    let operator = Operator::named(&text.value);
    if operator.is_none() {
        let place = Place::new(reader.source, text.span);
        let names = Operator::TABLE.map(|row| row.name);
        let diagnostic =
            reader.diagnostics.error(code::UNKNOWN_OPERATOR, place, format!("`{}` is not an operator", text.value));
        diagnostic.note(format!("the operators are {}", names.map(|name| format!("`{name}`")).join(", ")));
        match symbol(&text.value) {
            Some(name) => diagnostic.help(format!("did you mean `{name}`?")),
            None => diagnostic.suggest(&text.value, names),
        };
    }
    operator
}

/// What people write who know other languages.
fn symbol(text: &str) -> Option<&'static str> {
    Some(match text {
        "=" | "==" | "===" | "equals" | "is" => "eq",
        "!=" | "<>" | "!==" | "not_equals" => "ne",
        ">" => "gt",
        ">=" | "ge" => "gte",
        "<" => "lt",
        "<=" | "le" => "lte",
        "=~" | "matches" | "match" => "regex",
        "includes" | "has" => "contains",
        "not_null" | "defined" => "exists",
        _ => return None,
    })
}

fn check_pattern(reader: &mut Reader<'_>, value: &Spanned<Value>) -> bool {
    let place = Place::new(reader.source, value.span.clone());
    let Value::String(pattern) = &value.value else {
        reader.diagnostics.error(code::BAD_REGEX, place, "the value of `regex` is a pattern, a string");
        return false;
    };
    match regex::Regex::new(pattern) {
        Ok(_) => true,
        Err(regex::Error::CompiledTooBig(limit)) => {
            reader
                .diagnostics
                .error(code::BAD_REGEX, place, format!("the pattern needs more than {limit} bytes of memory"))
                .help("use smaller repetitions");
            false
        }
        Err(error) => {
            // The crate draws a frame of its own; its last line says what is wrong.
            let text = error.to_string();
            let reason = text.lines().last().unwrap_or_default().trim_start_matches("error: ");
            reader
                .diagnostics
                .error(code::BAD_REGEX, place, format!("this is not a regular expression: {reason}"))
                .note("patterns are those of the `regex` crate: without look-around and back-references");
            false
        }
    }
}
