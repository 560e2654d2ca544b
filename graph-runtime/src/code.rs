//! Code: a program with its names resolved and its texts read, ready to be followed.
//!
//! This is where a graph's parts get their meaning, once for compiled and interpreted graphs: what a template yields, which
//! edge is taken, what is assigned.

use std::collections::HashMap;

use graph_model::capability::{Capability, Grants, Pattern};
use graph_model::condition::Condition;
use graph_model::digest::Digest;
use graph_model::name::{GraphId, ItemId};
use graph_model::operator::Operator;
use graph_model::path::{self, Path, Root};
use graph_model::program::{self, Body, LAST_ERROR, Program, Settings};
use graph_model::signature::Fingerprint;
use graph_model::template::{self, Template};
use graph_model::value::{AsView, Map, Value, View};
use regex::Regex;

use crate::error::Failure;
use crate::machine::{Activation, Arguments, Change, Next, Notes, Outcome, Plan, Sight};

/// A graph that can be followed.
#[derive(Debug)]
pub struct Code {
    pub(crate) id: GraphId,
    pub(crate) version: String,
    pub(crate) digest: Digest,
    pub(crate) signer: Fingerprint,
    pub(crate) start: u16,
    pub(crate) settings: Settings,
    pub(crate) permissions: Grants,
    pub(crate) env: Vec<String>,
    pub(crate) keys: Vec<Key>,
    pub(crate) tools: Vec<Tool>,
    pub(crate) nodes: Vec<Node>,
}

/// A key of the state.
#[derive(Debug)]
pub(crate) struct Key {
    pub(crate) name: String,
    pub(crate) initial: Option<Value>,
}

/// A tool that nodes call.
#[derive(Debug)]
pub(crate) struct Tool {
    pub(crate) id: ItemId,
    pub(crate) capability: Capability,
}

/// A node.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    assign: Vec<(usize, Term)>,
    next: Vec<Edge>,
    pub(crate) on_error: Option<u16>,
}

/// What a node does.
#[derive(Debug)]
pub(crate) enum Kind {
    Action { tool: u16, params: Params },
    Gate,
    Return(Option<Term>),
}

impl Kind {
    /// Returns what a node does, as a program says it.
    pub(crate) fn kind(&self) -> program::Kind {
        match self {
            Self::Action { tool, .. } => program::Kind::Action(*tool),
            Self::Gate => program::Kind::Gate,
            Self::Return(_) => program::Kind::Return,
        }
    }
}

/// How a tool's arguments are made.
#[derive(Debug)]
pub(crate) enum Params {
    /// One argument a parameter of the contract, in its order: the term that the node gives, and the default.
    Listed(Vec<(Option<Term>, Value)>),
    /// One argument, an object of all that the node gives.
    Object(Term),
}

/// A value with expressions in it.
#[derive(Debug)]
pub(crate) enum Term {
    Literal(Value),
    /// The first of these that is not null.
    First(Vec<Reference>),
    Text(Vec<Piece>),
    List(Vec<Term>),
    Object(Vec<(String, Term)>),
}

/// A part of a text.
#[derive(Debug)]
pub(crate) enum Piece {
    Text(String),
    First(Vec<Reference>),
}

/// A path whose beginning is resolved.
#[derive(Debug)]
pub(crate) struct Reference {
    root: Base,
    segments: Vec<String>,
    /// The path as it is written, for messages.
    written: String,
}

/// Where a reference begins.
#[derive(Debug)]
enum Base {
    Inputs,
    /// All of the state.
    State,
    Key(usize),
    LastError,
    Result,
    Now,
    Timestamp,
}

/// An edge.
#[derive(Debug)]
struct Edge {
    to: Option<u16>,
    when: When,
}

/// When an edge is taken. Most conditions are one comparison or a few that must all hold, and need no tree.
#[derive(Debug)]
enum When {
    Always,
    All(Box<[Test]>),
    Tree(Condition<Test>),
}

impl From<Condition<Test>> for When {
    fn from(condition: Condition<Test>) -> Self {
        match condition {
            Condition::Always => Self::Always,
            Condition::Test(test) => Self::All(Box::new([test])),
            Condition::All(list) if list.iter().all(|one| matches!(one, Condition::Test(_))) => {
                let test = |one| if let Condition::Test(test) = one { Some(test) } else { None };
                Self::All(list.into_iter().filter_map(test).collect())
            }
            tree => Self::Tree(tree),
        }
    }
}

/// A comparison.
#[derive(Debug)]
struct Test {
    left: Reference,
    operator: Operator,
    right: Value,
    /// The same as a whole number, if it is one.
    whole: Option<i64>,
    pattern: Option<Regex>,
}

/// Why a program cannot be followed. A compiled one always can: the compiler checked what is checked here.
#[derive(Debug, thiserror::Error)]
#[error("the program of `{graph}` is not one: {reason}")]
pub struct LoadError {
    graph: String,
    reason: String,
}

impl Code {
    /// Resolves a program.
    ///
    /// # Errors
    ///
    /// If a name in it leads nowhere, or a text cannot be read.
    pub fn load(program: &Program<'_>) -> Result<Self, LoadError> {
        let loader = Loader {
            program,
            nodes: program.nodes.iter().map(|(name, _)| *name).zip(0..).collect(),
            keys: program.keys.iter().map(|key| key.name).zip(0..).collect(),
        };
        loader.load().map_err(|reason| LoadError { graph: program.id.to_owned(), reason })
    }

    /// Resolves a program that the compiler wrote.
    pub fn compiled(program: &Program<'_>) -> Self {
        Self::load(program).expect("the compiler writes only programs that can be loaded")
    }

    pub(crate) fn node(&self, at: u16) -> &Node {
        &self.nodes[usize::from(at)]
    }

    /// Decides what to do at a node: the default of [`Machine::plan`](crate::Machine::plan).
    pub fn plan(&self, at: &Activation, sight: &Sight<'_>, notes: &mut Notes) -> Plan {
        match &self.node(at.node).kind {
            Kind::Gate => Plan::Compute,
            Kind::Return(_) => Plan::Finish,
            Kind::Action { tool, params } => {
                let look = Look { sight, changes: &[], result: View::Null, code: self };
                let mut arguments = Arguments::default();
                match params {
                    Params::Object(term) => arguments.push(without_nulls(look.evaluate(term, notes))),
                    Params::Listed(list) => {
                        for (term, default) in list {
                            let value =
                                term.as_ref().map_or(Value::Null, |term| without_nulls(look.evaluate(term, notes)));
                            arguments.push(if value.is_null() { default.clone() } else { value });
                        }
                    }
                }
                Plan::Call { tool: *tool, arguments }
            }
        }
    }

    /// Computes assignments and route: the default of [`Machine::advance`](crate::Machine::advance).
    pub fn advance(
        &self,
        at: &Activation,
        sight: &Sight<'_>,
        outcome: Outcome<'_>,
        notes: &mut Notes,
        changes: &mut Vec<Change>,
    ) -> Result<Next, Box<Failure>> {
        let node = self.node(at.node);
        let (result, failed) = match outcome {
            Outcome::None => (View::Null, false),
            Outcome::Done(view) => (view, false),
            Outcome::Failed(failure) => (View::Object(failure), true),
        };
        if !failed {
            for (key, term) in &node.assign {
                let look = Look { sight, changes, result, code: self };
                let value = look.evaluate(term, notes);
                changes.push(Change { key: *key, value });
            }
        }
        Look { sight, changes, result, code: self }.route(node)
    }

    /// Returns what the run returns when it ends at a node.
    pub(crate) fn output(&self, at: u16, sight: &Sight<'_>, notes: &mut Notes) -> Value {
        let look = Look { sight, changes: &[], result: View::Null, code: self };
        match &self.node(at).kind {
            Kind::Return(Some(term)) => look.evaluate(term, notes),
            _ => look.keys(),
        }
    }
}

/// What expressions look at.
struct Look<'a> {
    sight: &'a Sight<'a>,
    /// What the node assigned so far; it shows before the state does (R94, R95).
    changes: &'a [Change],
    result: View<'a>,
    code: &'a Code,
}

impl Look<'_> {
    /// Follows a reference. All of the state is no view of anything, and is seen through [`Look::value`].
    #[inline]
    fn view(&self, reference: &Reference) -> View<'_> {
        let base = match reference.root {
            Base::Key(key) => self.key(key),
            Base::Result => self.result,
            Base::Inputs => self.sight.state.inputs(),
            Base::LastError => self.sight.last_error.map_or(View::Null, |error| View::Object(error)),
            Base::Now => return View::Text(self.sight.now.text()),
            Base::Timestamp => return View::Integer(self.sight.now.milliseconds()),
            Base::State => View::Null,
        };
        if reference.segments.is_empty() { base } else { path::follow(base, &reference.segments) }
    }

    #[inline]
    fn key(&self, key: usize) -> View<'_> {
        if !self.changes.is_empty()
            && let Some(change) = self.changes.iter().find(|change| change.key == key)
        {
            return change.value.view();
        }
        self.sight.state.get(key)
    }

    #[inline]
    fn value(&self, reference: &Reference) -> Value {
        match reference.root {
            Base::State => self.keys(),
            _ => self.view(reference).to_value(),
        }
    }

    /// Returns all keys that are set.
    fn keys(&self) -> Value {
        let mut map = Map::new();
        for (key, Key { name, .. }) in self.code.keys.iter().enumerate() {
            let view = self.key(key);
            if !view.is_null() {
                map.insert(name.clone(), view.to_value());
            }
        }
        Value::Object(map)
    }

    /// Returns the first value that is not null, and notes if there is none (R64, R68).
    fn first(&self, references: &[Reference], notes: &mut Notes) -> Value {
        for reference in references {
            let value = self.value(reference);
            if !value.is_null() {
                return value;
            }
        }
        notes.resolved_to_nothing(references.iter().map(|reference| reference.written.as_str()));
        Value::Null
    }

    #[inline]
    fn evaluate(&self, term: &Term, notes: &mut Notes) -> Value {
        match term {
            Term::Literal(value) => value.clone(),
            Term::First(references) => self.first(references, notes),
            Term::List(terms) => terms.iter().map(|term| self.evaluate(term, notes)).collect(),
            Term::Object(fields) => {
                Value::Object(fields.iter().map(|(name, term)| (name.clone(), self.evaluate(term, notes))).collect())
            }
            Term::Text(pieces) => {
                let mut text = String::new();
                for piece in pieces {
                    match piece {
                        Piece::Text(literal) => text.push_str(literal),
                        Piece::First(references) => self.write(references, &mut text, notes),
                    }
                }
                Value::String(text)
            }
        }
    }

    fn write(&self, references: &[Reference], text: &mut String, notes: &mut Notes) {
        for reference in references {
            if let Base::State = reference.root {
                return self.keys().view().write_text(text);
            }
            let view = self.view(reference);
            if !view.is_null() {
                return view.write_text(text);
            }
        }
        notes.resolved_to_nothing(references.iter().map(|reference| reference.written.as_str()));
    }

    /// Returns where the first edge leads whose condition holds (R89).
    #[inline]
    fn route(&self, node: &Node) -> Result<Next, Box<Failure>> {
        for edge in &node.next {
            if self.holds(&edge.when)? {
                return Ok(edge.to.map_or(Next::End, Next::To));
            }
        }
        Ok(Next::End)
    }

    #[inline]
    fn holds(&self, when: &When) -> Result<bool, Box<Failure>> {
        match when {
            When::Always => Ok(true),
            When::All(tests) => {
                for test in tests {
                    if !self.test(test)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            When::Tree(condition) => condition.holds(&mut |test| self.test(test)),
        }
    }

    #[inline(always)]
    fn test(&self, test: &Test) -> Result<bool, Box<Failure>> {
        // What most conditions are: a key of the state, or a field of the result, against a whole number.
        let left = match (&test.left.root, test.left.segments.as_slice()) {
            (Base::Key(key), []) if self.changes.is_empty() => self.sight.state.get(*key),
            (Base::Result, [field]) => self.result.step(field),
            _ => return self.test_any(test),
        };
        if let (View::Integer(left), Some(right)) = (left, test.whole)
            && let Some(holds) = test.operator.holds_of_integers(left, right)
        {
            return Ok(holds);
        }
        self.test_any(test)
    }

    /// As [`Look::test`], for all values and operators.
    #[inline(never)]
    fn test_any(&self, test: &Test) -> Result<bool, Box<Failure>> {
        let whole;
        let left = match test.left.root {
            Base::State => {
                whole = self.keys();
                whole.view()
            }
            _ => self.view(&test.left),
        };
        if let (View::Integer(left), Some(right)) = (left, test.whole)
            && let Some(holds) = test.operator.holds_of_integers(left, right)
        {
            return Ok(holds);
        }
        let pattern = |text: &str| test.pattern.as_ref().is_some_and(|pattern| pattern.is_match(text));
        test.operator
            .holds(left, &test.right, pattern)
            .map_err(|error| Box::new(Failure::permanent(format!("{error}, at `{}`", test.left.written))))
    }
}

/// Drops the fields of an object that are null, so that the tool's defaults apply; lists keep their nulls (R74).
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(map) => Value::Object(
            map.into_iter()
                .filter(|(_, field)| !field.is_null())
                .map(|(name, field)| (name, without_nulls(field)))
                .collect(),
        ),
        Value::Array(list) => list.into_iter().map(without_nulls).collect(),
        other => other,
    }
}

/// Reads a program's texts.
struct Loader<'p> {
    program: &'p Program<'p>,
    nodes: HashMap<&'p str, u16>,
    keys: HashMap<&'p str, usize>,
}

impl Loader<'_> {
    fn load(&self) -> Result<Code, String> {
        let Program { id, version, digest, signer, start, settings, permissions, env, keys, tools, nodes, .. } =
            *self.program;
        let say = |error: &dyn std::fmt::Display| error.to_string();
        let patterns: Result<Vec<_>, _> = permissions.iter().map(|pattern| Pattern::new(*pattern)).collect();
        let code = Code {
            id: GraphId::new(id).map_err(|error| say(&error))?,
            version: version.to_owned(),
            digest: digest.parse().map_err(|error| say(&error))?,
            signer: signer.parse().map_err(|error| say(&error))?,
            start,
            settings: serde_json::from_str(settings).map_err(|error| say(&error))?,
            permissions: Grants::new(patterns.map_err(|error| say(&error))?),
            env: env.iter().map(|&name| name.to_owned()).collect(),
            keys: keys.iter().map(load_key).collect::<Result<_, _>>()?,
            tools: tools.iter().map(load_tool).collect::<Result<_, _>>()?,
            nodes: nodes.iter().map(|(name, body)| self.node(name, body)).collect::<Result<_, _>>()?,
        };
        let targets =
            code.nodes.iter().flat_map(|node| node.next.iter().filter_map(|edge| edge.to).chain(node.on_error));
        match targets.chain([start]).find(|&to| usize::from(to) >= code.nodes.len()) {
            Some(to) => Err(format!("there is no node {to}")),
            None => Ok(code),
        }
    }

    fn node(&self, name: &str, body: &str) -> Result<Node, String> {
        let body: Body = serde_json::from_str(body).map_err(|error| format!("node `{name}`: {error}"))?;
        let kind = match body.does {
            program::Kind::Gate => Kind::Gate,
            program::Kind::Return => Kind::Return(body.output.as_ref().map(|output| self.term(output)).transpose()?),
            program::Kind::Action(tool) | program::Kind::Foreach(tool) => {
                Kind::Action { tool, params: self.params(tool, body.params.unwrap_or_default())? }
            }
        };
        let assign = body.assign.iter().map(|(key, value)| Ok((self.key(key)?, self.term(value)?)));
        Ok(Node {
            name: name.to_owned(),
            kind,
            assign: assign.collect::<Result<_, String>>()?,
            next: body.next.iter().map(|edge| self.edge(edge)).collect::<Result<_, _>>()?,
            on_error: body.on_error,
        })
    }

    fn params(&self, tool: u16, given: Value) -> Result<Params, String> {
        let tool = self.program.tools.get(usize::from(tool)).ok_or_else(|| format!("there is no tool {tool}"))?;
        let Some(params) = tool.params else { return Ok(Params::Object(self.term(&given)?)) };
        let listed = params.iter().map(|param| {
            let term = given.get(param.name).map(|term| self.term(term)).transpose()?;
            Ok((term, param.default.map(read_json).transpose()?.unwrap_or_default()))
        });
        Ok(Params::Listed(listed.collect::<Result<_, String>>()?))
    }

    fn edge(&self, edge: &program::Edge) -> Result<Edge, String> {
        let to = edge
            .to
            .as_ref()
            .map(|name| self.nodes.get(name.as_str()).copied().ok_or_else(|| format!("there is no node `{name}`")));
        let when = edge.when.as_ref().map_or(Ok(Condition::Always), |when| self.condition(when))?;
        Ok(Edge { to: to.transpose()?, when: when.into() })
    }

    fn condition(&self, value: &Value) -> Result<Condition<Test>, String> {
        let Value::Object(map) = value else { return Err(format!("`{value}` is no condition")) };
        let list = |value: &Value| match value {
            Value::Array(list) => list.iter().map(|value| self.condition(value)).collect::<Result<Vec<_>, _>>(),
            _ => Err(format!("`{value}` is no list of conditions")),
        };
        if let Some(any) = map.get("any") {
            Ok(Condition::Any(list(any)?))
        } else if let Some(all) = map.get("all") {
            Ok(Condition::All(list(all)?))
        } else if let Some(not) = map.get("not") {
            Ok(Condition::Not(Box::new(self.condition(not)?)))
        } else if let Some(path) = map.get("path") {
            let name = map.get("op").or_else(|| map.get("operator")).and_then(Value::as_str).unwrap_or("eq");
            let operator = Operator::named(name).ok_or_else(|| format!("`{name}` is no operator"))?;
            let right = map.get("value").cloned().unwrap_or_default();
            let pattern = match (operator, &right) {
                (Operator::Regex, Value::String(pattern)) => {
                    Some(Regex::new(pattern).map_err(|error| error.to_string())?)
                }
                _ => None,
            };
            let path = Path::parse(path.as_str().unwrap_or_default()).map_err(|error| error.to_string())?;
            let (left, whole) = (self.reference(&path)?, right.as_i64());
            Ok(Condition::Test(Test { left, operator, right, whole, pattern }))
        } else {
            Ok(Condition::Always)
        }
    }

    fn term(&self, value: &Value) -> Result<Term, String> {
        Ok(match value {
            Value::Array(list) => Term::List(list.iter().map(|value| self.term(value)).collect::<Result<_, _>>()?),
            Value::Object(map) => {
                let field = |(name, value): (&String, &Value)| Ok((name.clone(), self.term(value)?));
                Term::Object(map.iter().map(field).collect::<Result<_, String>>()?)
            }
            Value::String(text) => match Template::parse(text).map_err(|error| error.to_string())? {
                Template::Text(text) => Term::Literal(Value::String(text)),
                Template::Whole(expression) => Term::First(self.references(&expression)?),
                Template::Mixed(pieces) => {
                    let piece = |piece| match piece {
                        template::Piece::Text(text) => Ok(Piece::Text(text)),
                        template::Piece::Expression(expression) => Ok(Piece::First(self.references(&expression)?)),
                    };
                    Term::Text(pieces.into_iter().map(piece).collect::<Result<_, String>>()?)
                }
            },
            other => Term::Literal(other.clone()),
        })
    }

    fn references(&self, expression: &template::Expression) -> Result<Vec<Reference>, String> {
        expression.paths.iter().map(|path| self.reference(path)).collect()
    }

    fn reference(&self, path: &Path) -> Result<Reference, String> {
        let mut segments = path.segments.clone();
        let root = match path.root {
            Root::Inputs => Base::Inputs,
            Root::Result => Base::Result,
            Root::Now => Base::Now,
            Root::Timestamp => Base::Timestamp,
            Root::Visit | Root::Local => return Err(format!("`{path}` is not supported")),
            Root::State if segments.is_empty() => Base::State,
            Root::State => match segments.remove(0).as_str() {
                LAST_ERROR => Base::LastError,
                key => Base::Key(self.key(key)?),
            },
        };
        Ok(Reference { root, segments, written: path.to_string() })
    }

    fn key(&self, name: &str) -> Result<usize, String> {
        self.keys.get(name).copied().ok_or_else(|| format!("there is no state key `{name}`"))
    }
}

fn load_key(key: &program::Key<'_>) -> Result<Key, String> {
    Ok(Key { name: key.name.to_owned(), initial: key.initial.map(read_json).transpose()? })
}

fn load_tool(tool: &program::Tool<'_>) -> Result<Tool, String> {
    let id = ItemId::new(tool.id).map_err(|error| error.to_string())?;
    let capability = Capability::new(tool.verb, tool.item, Some(&id));
    Ok(Tool { id, capability })
}

fn read_json(text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|error| format!("`{text}` is not JSON: {error}"))
}
