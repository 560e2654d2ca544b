//! Loading: from a program's names and texts to what can be followed.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use graph_model::capability::{Capability, Grants, Pattern};
use graph_model::condition::Condition;
use graph_model::name::{GraphId, ItemId};
use graph_model::operator::Operator;
use graph_model::path::{Path, Root};
use graph_model::program::{
    self, Body, INTERNAL, LAST_ERROR, OnNoMatch, Performer, Program, RETRIES, Settings, THREAD_DIRECTIVE,
};
use graph_model::template::{self, Template};
use graph_model::untrusted::Untrusted;
use graph_model::value::{Map, Value};
use regex::Regex;

use crate::call::GraphFacts;

use super::{
    Base, CallTerm, CompiledGraph, Does, Edge, Foreach, Hook, Key, Kind, Node, Params, Piece, Reference, Term, Test,
    Tool,
};

/// Why a program cannot be followed. A compiled one always can: the compiler checked what is checked here.
#[derive(Debug, thiserror::Error)]
#[error("the program of `{graph}` is not one: {reason}")]
pub struct LoadError {
    graph: String,
    reason: String,
}

impl CompiledGraph {
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
            asks: Cell::default(),
        };
        loader.load().map_err(|reason| LoadError { graph: program.id.to_owned(), reason })
    }

    /// Resolves a program that the compiler wrote.
    pub fn compiled(program: &Program<'_>) -> Self {
        Self::load(program).expect("the compiler writes only programs that can be loaded")
    }
}

/// Reads a program's texts.
struct Loader<'p> {
    program: &'p Program<'p>,
    nodes: HashMap<&'p str, u16>,
    keys: HashMap<&'p str, usize>,
    /// What the references of the node asked for that were resolved since its beginning.
    asks: Cell<Asks>,
}

/// What a node asks for of its own visits.
#[derive(Debug, Clone, Copy, Default)]
struct Asks {
    /// How often it was visited, or what its last visit returned.
    visits: bool,
    /// What its last visit returned.
    previous: bool,
}

impl Loader<'_> {
    fn load(&self) -> Result<CompiledGraph, String> {
        let Program { id, version, digest, signer, start, settings, permissions, env, keys, tools, nodes, .. } =
            *self.program;
        let say = |error: &dyn std::fmt::Display| error.to_string();
        let settings: Settings = serde_json::from_str(settings).map_err(|error| say(&error))?;
        let (mut loaded, mut untrusted, mut counts_visits) = (Vec::new(), Vec::new(), false);
        for (name, body) in nodes {
            let (node, of_node) = self.node(name, body, &settings)?;
            counts_visits |= self.asks.take().visits;
            loaded.push(node);
            untrusted.push(of_node);
        }
        let patterns: Result<Vec<_>, _> = permissions.iter().map(|pattern| Pattern::new(*pattern)).collect();
        let id = GraphId::new(id).map_err(|error| say(&error))?;
        let tools: Vec<Tool> = tools.iter().map(load_tool).collect::<Result<_, _>>()?;
        let facts = GraphFacts {
            id: id.clone(),
            nodes: loaded.iter().map(|node| node.name.clone()).collect(),
            tools: tools.iter().map(|tool| tool.id.clone()).collect(),
            env: env.iter().map(|&name| name.to_owned()).collect(),
            untrusted,
        };
        let code = CompiledGraph {
            id,
            version: version.to_owned(),
            digest: digest.parse().map_err(|error| say(&error))?,
            signer: signer.parse().map_err(|error| say(&error))?,
            start,
            permissions: Grants::new(patterns.map_err(|error| say(&error))?),
            env: env.iter().map(|&name| name.to_owned()).collect(),
            keys: keys.iter().map(load_key).collect::<Result<_, _>>()?,
            tools,
            counts_visits,
            hooks: settings.hooks.iter().zip(1..).map(|(hook, at)| self.hook(hook, at)).collect::<Result<_, _>>()?,
            facts: Arc::new(facts),
            nodes: loaded,
            settings,
        };
        let targets =
            code.nodes.iter().flat_map(|node| node.next.iter().filter_map(|edge| edge.to).chain(node.on_error));
        match targets.chain([start]).find(|&to| usize::from(to) >= code.nodes.len()) {
            Some(to) => Err(format!("there is no node {to}")),
            None => Ok(code),
        }
    }

    fn node(&self, name: &str, body: &str, settings: &Settings) -> Result<(Node, Untrusted), String> {
        let body: Body = serde_json::from_str(body).map_err(|error| format!("node `{name}`: {error}"))?;
        let kind = match body.does {
            program::Kind::Gate => Kind::Gate,
            program::Kind::Return => Kind::Return(body.output.as_ref().map(|output| self.term(output)).transpose()?),
            program::Kind::Action(tool) => Kind::Action(self.call(tool, body.item.as_deref(), body.params, &[])?),
            program::Kind::Foreach(tool) => {
                let each = body.each.ok_or_else(|| format!("node `{name}` goes over nothing"))?;
                let call = self.call(tool, body.item.as_deref(), body.params, &[&each.name])?;
                let width = each.width.unwrap_or(settings.max_concurrency).max(1);
                Kind::Foreach(Foreach {
                    call,
                    over: self.term(&each.over)?,
                    collect: each.collect.map(|key| self.key(&key)).transpose()?,
                    name: each.name,
                    width: usize::try_from(width).unwrap_or(usize::MAX),
                })
            }
        };
        let assign = body.assign.iter().map(|(key, value)| Ok((self.key(key)?, self.term(value)?)));
        let timeout = body.timeout_ms.map(Duration::from_millis);
        let assign = assign.collect::<Result<_, String>>()?;
        let shows = settings.on_no_match == OnNoMatch::Fail;
        let next = body.next.edges().iter().map(|edge| self.edge(edge, shows)).collect::<Result<_, _>>()?;
        let asks = self.asks.get();
        let is_plain = !asks.visits
            && !body.next.takes_all()
            && timeout.is_none()
            && body.remote.is_none()
            && !body.cached
            && self.is_plain(&kind);
        let node = Node {
            name: name.to_owned(),
            kind,
            assign,
            next,
            takes_all: body.next.takes_all(),
            on_error: body.on_error,
            retry: body.retry,
            timeout,
            remote: body.remote.map(Arc::from),
            cached: body.cached,
            env: body.env,
            looks_back: asks.previous && body.feedback,
            is_plain,
        };
        Ok((node, body.untrusted))
    }

    /// Whether a node of that kind makes at most one call, of a tool of the program that answers without an envelope.
    fn is_plain(&self, kind: &Kind) -> bool {
        match kind {
            Kind::Gate => true,
            Kind::Action(call) => self.program.tools.get(usize::from(call.tool)).is_some_and(|tool| {
                tool.by == Performer::Program && tool.typed && !matches!(tool.id, "" | THREAD_DIRECTIVE)
            }),
            Kind::Foreach(_) | Kind::Return(_) => false,
        }
    }

    fn call(&self, tool: u16, id: Option<&str>, given: Option<Value>, locals: &[&str]) -> Result<CallTerm, String> {
        let row = self.program.tools.get(usize::from(tool)).ok_or_else(|| format!("there is no tool {tool}"))?;
        let given = given.unwrap_or_else(|| Value::Object(Map::new()));
        let params = match row.params {
            None => Params::Object(self.term_in(&given, locals)?),
            Some(params) => {
                let listed = params.iter().map(|param| {
                    let term = given.get(param.name).map(|term| self.term_in(term, locals)).transpose()?;
                    Ok((term, param.default.map(read_json).transpose()?.unwrap_or_default()))
                });
                Params::Listed(listed.collect::<Result<_, String>>()?)
            }
        };
        let id = id.map(|text| self.term_in(&Value::String(text.to_owned()), locals)).transpose()?;
        Ok(CallTerm { tool, id, params })
    }

    fn hook(&self, hook: &program::Hook, number: usize) -> Result<Hook, String> {
        let locals = hook.event.names();
        let condition = hook.condition.as_ref();
        let when = condition.map_or(Ok(Condition::Always), |condition| self.condition(condition, locals))?;
        let does = match hook.tool {
            Some(tool) => Does::Call(self.call(tool, None, Some(hook.params.clone()), locals)?),
            None => Does::Steer(self.term_in(&hook.params, locals)?),
        };
        let name = hook.id.clone().unwrap_or_else(|| format!("{number} ({})", hook.event.name()));
        Ok(Hook { name, event: hook.event, when: when.into(), does, untrusted: hook.untrusted.clone() })
    }

    fn edge(&self, edge: &program::Edge, shows: bool) -> Result<Edge, String> {
        let to = edge
            .to
            .as_ref()
            .map(|name| self.nodes.get(name.as_str()).copied().ok_or_else(|| format!("there is no node `{name}`")));
        let when = edge.when.as_ref().map_or(Ok(Condition::Always), |when| self.condition(when, &[]))?;
        let shown = if shows { edge.to_string() } else { String::new() };
        Ok(Edge { to: to.transpose()?, when: when.into(), shown })
    }

    fn condition(&self, value: &Value, locals: &[&str]) -> Result<Condition<Test>, String> {
        let Value::Object(map) = value else { return Err(format!("`{value}` is no condition")) };
        let list = |value: &Value| match value {
            Value::Array(list) => list.iter().map(|value| self.condition(value, locals)).collect::<Result<Vec<_>, _>>(),
            _ => Err(format!("`{value}` is no list of conditions")),
        };
        if let Some(any) = map.get("any") {
            Ok(Condition::Any(list(any)?))
        } else if let Some(all) = map.get("all") {
            Ok(Condition::All(list(all)?))
        } else if let Some(not) = map.get("not") {
            Ok(Condition::Not(Box::new(self.condition(not, locals)?)))
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
            let path = Path::parse_in(path.as_str().unwrap_or_default(), locals).map_err(|error| error.to_string())?;
            let (left, whole) = (self.reference(&path)?, right.as_i64());
            Ok(Condition::Test(Test { left, operator, right, whole, pattern }))
        } else {
            Ok(Condition::Always)
        }
    }

    fn term(&self, value: &Value) -> Result<Term, String> {
        self.term_in(value, &[])
    }

    fn term_in(&self, value: &Value, locals: &[&str]) -> Result<Term, String> {
        Ok(match value {
            Value::Array(list) => {
                Term::List(list.iter().map(|value| self.term_in(value, locals)).collect::<Result<_, _>>()?)
            }
            Value::Object(map) => {
                let field = |(name, value): (&String, &Value)| Ok((name.clone(), self.term_in(value, locals)?));
                Term::Object(map.iter().map(field).collect::<Result<_, String>>()?)
            }
            Value::String(text) => match Template::parse_in(text, locals).map_err(|error| error.to_string())? {
                Template::Text(text) => Term::Literal(Value::String(text)),
                Template::Whole(expression) => Term::First(self.references(&expression)?),
                Template::Mixed(pieces) => {
                    let piece = |piece| match piece {
                        template::Piece::Text(text) => Ok(Piece::Text(text)),
                        template::Piece::Expression(expression) => {
                            match (&expression.input, expression.paths.first()) {
                                (Some(otherwise), Some(path)) => {
                                    Ok(Piece::Input(self.reference(path)?, otherwise.clone()))
                                }
                                _ => Ok(Piece::First(self.references(&expression)?)),
                            }
                        }
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
            Root::Local => Base::Local,
            Root::Visit => match segments.first().map(String::as_str) {
                Some("number") => {
                    self.asks.set(Asks { visits: true, ..self.asks.get() });
                    Base::Visit
                }
                Some("previous") => {
                    self.asks.set(Asks { visits: true, previous: true });
                    Base::Previous
                }
                _ => return Err(format!("`{path}` is neither `visit.number` nor `visit.previous`")),
            },
            Root::State if segments.is_empty() => Base::State,
            Root::State => match segments.remove(0).as_str() {
                LAST_ERROR => Base::LastError,
                RETRIES => Base::Retries,
                key => Base::Key(self.key(key)?),
            },
        };
        if path.root == Root::Visit {
            segments.remove(0);
        }
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
    let id = (!tool.id.is_empty()).then(|| ItemId::new(tool.id)).transpose().map_err(|error| error.to_string())?;
    let free = tool.id.starts_with(INTERNAL);
    let capability = id.as_ref().filter(|_| !free).map(|id| Capability::new(tool.verb, tool.item, Some(id)));
    let params = tool.params.map(|params| params.iter().map(|param| param.name.to_owned()).collect());
    Ok(Tool {
        id,
        verb: tool.verb,
        item: tool.item,
        by: tool.by,
        capability,
        params,
        typed: tool.typed,
        nests: tool.nests,
    })
}

fn read_json(text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|error| format!("`{text}` is not JSON: {error}"))
}
