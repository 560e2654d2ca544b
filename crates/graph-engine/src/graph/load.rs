//! Loading: resolves the names of a graph, so that it can be executed.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use graph_model::capability::{Capability, Grants, Pattern};
use graph_model::condition::{self, Condition, When};
use graph_model::ir::{GraphIr, KeyIr, ToolIr};
use graph_model::name::{GraphId, ItemId};
use graph_model::operator::Operator;
use graph_model::path::{Path, PathError, Root};
use graph_model::program::{
    self, EntryBranch, EntryPoint, INTERNAL, LAST_ERROR, NodeBody, NodeFacts, OnBranchError, OnNoMatch, RETRIES,
    Settings, ToolRules,
};
use graph_model::template::{self, Template};
use graph_model::term;
use graph_model::untrusted::Untrusted;
use graph_model::value::Value;
use regex::Regex;

use crate::call::GraphFacts;
use crate::graph::GraphTables;
use crate::graph::channels::find_channels;
use crate::graph::fan_out::{Member, fan_outs};
use crate::graph::node::{
    ArgumentTerms, CallTerm, Comparison, CompiledAsk, CompiledEdge, CompiledForeach, CompiledHook, CompiledKey,
    CompiledKind, CompiledNode, CompiledRoute, CompiledTerm, CompiledTool, CompiledWait, Does, EdgeCondition,
    ListRoute, PathBase, ResolvedPath, TextPiece, ValueRoute,
};
use crate::schema::SchemaRules;

/// Resolves a graph.
pub(super) fn load(graph: GraphIr) -> Result<GraphTables, String> {
    let say = |error: &dyn std::fmt::Display| error.to_string();
    let GraphIr { settings, keys, tools, .. } = graph;
    let (names, bodies): (Vec<_>, Vec<_>) = graph.nodes.into_iter().map(|node| (node.name, node.body)).unzip();
    let loader = Loader {
        tools: &tools,
        nodes: names.iter().map(String::as_str).zip(0..).collect(),
        keys: keys.iter().map(|key| key.name.as_str()).zip(0..).collect(),
        arguments: arguments(&bodies)?,
    };
    let (mut nodes, mut untrusted) = (Vec::new(), Vec::new());
    for (name, body) in names.iter().zip(bodies) {
        let (node, of_node) = loader.node(name, body, &settings)?;
        nodes.push(node);
        untrusted.push(of_node);
    }
    let hooks = settings.hooks.iter().zip(1..).map(|(hook, at)| loader.hook(hook, at)).collect::<Result<_, _>>()?;
    let patterns: Result<Vec<_>, _> = graph.permissions.iter().map(Pattern::new).collect();
    let permissions = Grants::new(patterns.map_err(|error| say(&error))?);
    let id = GraphId::new(graph.id).map_err(|error| say(&error))?;
    let load_tool = |(at, tool)| load_tool(tool, settings.rules.get(&at).cloned().unwrap_or_default());
    let tools: Vec<CompiledTool> = (0..).zip(tools).map(load_tool).collect::<Result<_, _>>()?;
    let facts = GraphFacts {
        id: id.clone(),
        nodes: nodes.iter().map(|node| node.name.clone()).collect(),
        tools: tools.iter().map(|tool| tool.id.clone()).collect(),
        env: graph.env.clone(),
        untrusted,
        permissions: permissions.clone(),
    };
    let key = |key: &KeyIr| CompiledKey {
        name: key.name.clone(),
        initial: key.initial.clone(),
        reducer: settings.channels.get(&key.name).cloned(),
        by_branch: settings.by_branch.contains(&key.name),
        keep: settings.keep.get(&key.name).copied(),
    };
    let waits = |node: &CompiledNode| node.wait().is_some();
    let can_park = nodes.iter().any(waits) || tools.iter().any(CompiledTool::may_begin_runs);
    let mut loaded = GraphTables {
        id,
        version: graph.version,
        digest: graph.digest.parse().map_err(|error| say(&error))?,
        signer: graph.signer.parse().map_err(|error| say(&error))?,
        start: graph.start,
        permissions,
        env: graph.env,
        keys: keys.iter().map(key).collect(),
        tools,
        combines_writes: false,
        has_functions: settings.channels.values().any(|reducer| reducer.function().is_some()),
        kept_for_a_step: Vec::new(),
        has_ordered: !settings.by_branch.is_empty(),
        has_cancelling: nodes.iter().any(|node: &CompiledNode| node.cancels),
        can_wait: nodes.iter().any(waits),
        can_park,
        counts_visits: nodes.iter().any(|node: &CompiledNode| node.facts.visits),
        fan_outs: HashMap::new(),
        hooks,
        facts: Arc::new(facts),
        nodes,
        settings,
    };
    check_indices(&loaded)?;
    check_start(&loaded)?;
    find_channels(&mut loaded)?;
    join(&mut loaded)?;
    check_entries(&loaded)?;
    Ok(loaded)
}

/// Returns the names that routes over lists give to elements, each once.
fn arguments(bodies: &[NodeBody]) -> Result<Vec<String>, String> {
    let mut arguments: Vec<String> = Vec::new();
    for body in bodies {
        if let program::Route::Each { name, .. } = &body.next
            && !arguments.contains(name)
        {
            not_a_namespace(name)?;
            arguments.push(name.clone());
        }
    }
    Ok(arguments)
}

/// Resolves names.
struct Loader<'p> {
    tools: &'p [ToolIr],
    nodes: HashMap<&'p str, u16>,
    keys: HashMap<&'p str, usize>,
    /// The names of the list elements that branches are begun for. Every node may use all of them; the compiler checks which
    /// are known where.
    arguments: Vec<String>,
}

impl Loader<'_> {
    fn ask(&self, ask: &program::Ask) -> Result<CompiledAsk, String> {
        let program::Ask { payload, schema, role, count, by_word } = ask.clone();
        let payload = payload.map(|payload| self.term(&payload)).transpose()?;
        Ok(CompiledAsk { payload, schema, role, count: count.max(1), by_word })
    }

    /// Resolves what a node waits for, or an action whose tool asks people.
    fn wait(&self, name: &str, wait: &program::Wait, settings: &Settings) -> Result<CompiledWait, String> {
        check_wait(name, wait, settings)?;
        Ok(CompiledWait {
            until: wait.until.as_ref().map(|until| self.term(until)).transpose()?,
            timeout_ms: wait.timeout_ms,
            signals: wait.signals.clone(),
            on_timeout: wait.on_timeout,
            ask: wait.ask.as_ref().map(|ask| self.ask(ask)).transpose()?,
        })
    }

    /// Resolves what the tool of a node may ask people.
    fn interrupts(
        &self,
        name: &str,
        body: &NodeBody,
        settings: &Settings,
    ) -> Result<Option<Box<CompiledWait>>, String> {
        let Some(wait) =
            body.wait.as_ref().filter(|_| !matches!(body.does, program::Kind::Wait | program::Kind::Interrupt))
        else {
            return Ok(None);
        };
        let program::Kind::Action(tool) = body.does else {
            return Err(format!("node `{name}` calls no tool that can ask"));
        };
        let is_named = self.tools.get(usize::from(tool)).is_some_and(|tool| tool.by == program::Executor::Program);
        if !is_named || body.item.is_some() || body.cached {
            return Err(format!("node `{name}` calls something else than one tool of the program, and cannot ask"));
        }
        let asks = wait.ask.as_ref().is_some_and(|ask| ask.payload.is_none());
        if !asks || wait.until.is_some() {
            return Err(format!("the questions of node `{name}` come from its tool"));
        }
        Ok(Some(Box::new(self.wait(name, wait, settings)?)))
    }

    fn node(&self, name: &str, body: NodeBody, settings: &Settings) -> Result<(CompiledNode, Untrusted), String> {
        let facts = self.facts(name, &body, settings)?;
        let interrupts = self.interrupts(name, &body, settings)?;
        let runs_graph = match body.does {
            program::Kind::Action(tool) => {
                self.tools.get(usize::from(tool)).is_some_and(|tool| tool.by == program::Executor::Graph)
            }
            _ => false,
        };
        let kind = match body.does {
            program::Kind::Gate => CompiledKind::Gate,
            program::Kind::Start => CompiledKind::Start,
            program::Kind::Wait | program::Kind::Interrupt => {
                let wait = body.wait.as_ref().ok_or_else(|| format!("node `{name}` waits for nothing"))?;
                if wait.ask.is_some() != (body.does == program::Kind::Interrupt) {
                    return Err(format!("node `{name}` asks people exactly if it is an interrupt"));
                }
                if wait.ask.as_ref().is_some_and(|ask| ask.payload.is_none()) {
                    return Err(format!("node `{name}` shows people nothing"));
                }
                CompiledKind::Wait(self.wait(name, wait, settings)?)
            }
            program::Kind::Return => {
                CompiledKind::Return(body.output.as_ref().map(|output| self.term(output)).transpose()?)
            }
            program::Kind::Action(tool) => {
                CompiledKind::Action(self.call(tool, body.item.as_ref(), body.params.as_ref(), &[])?)
            }
            program::Kind::Foreach(tool) => {
                let each = body.each.ok_or_else(|| format!("node `{name}` goes over nothing"))?;
                not_a_namespace(&each.name)?;
                let call = self.call(tool, body.item.as_ref(), body.params.as_ref(), &[&each.name])?;
                CompiledKind::Foreach(CompiledForeach {
                    call,
                    over: self.term(&each.over)?,
                    collect: each.collect.map(|key| self.key(&key)).transpose()?,
                    name: each.name,
                    width: width(each.width, settings),
                })
            }
        };
        let assign = body.assign.iter().map(|(key, value)| Ok((self.key(key)?, self.term(value)?)));
        let timeout = body.timeout_ms.map(Duration::from_millis);
        let assign = assign.collect::<Result<_, String>>()?;
        let shows = settings.on_no_match == OnNoMatch::Fail;
        let next = self.route(&body.next, shows)?;
        let (of_branches, on_branch_error) = match body.next {
            program::Route::All { width, on_branch_error, .. }
            | program::Route::Each { width, on_branch_error, .. } => (width, on_branch_error),
            program::Route::First(_) | program::Route::By { .. } => (None, None),
        };
        let node = CompiledNode {
            name: name.to_owned(),
            kind,
            interrupts,
            assign,
            reset: body.reset.iter().map(|key| self.key(key)).collect::<Result<_, _>>()?,
            share_signals: shared_signals(name, &body.share_signals, runs_graph, settings)?,
            share: body.share.iter().map(|key| self.key(key)).collect::<Result<_, _>>()?,
            combines_writes: false,
            asks_memory: false,
            seen: Vec::new(),
            next,
            width: of_branches.map(|width| usize::try_from(width).unwrap_or(usize::MAX).max(1)),
            on_branch_error,
            join: body.join,
            cancels: body.cancels && body.does == program::Kind::Return,
            on_error: body.on_error,
            retry: body.retry,
            timeout,
            limits: body.limits,
            remote: body.remote.map(Arc::from),
            cached: body.cached,
            env: body.env,
            facts,
        };
        Ok((node, body.untrusted))
    }

    /// Returns the facts about a node, from the compiler if it states any. Facts that promise more than the node does are
    /// refused.
    fn facts(&self, name: &str, body: &NodeBody, settings: &Settings) -> Result<NodeFacts, String> {
        let answers = |tool| self.tools.get(usize::from(tool)).is_some_and(ToolIr::answers);
        let found = NodeFacts::of(body, answers, settings.on_error);
        // The fast path checks no rules.
        let is_ruled = body.does.tool().is_some_and(|tool| settings.rules.contains_key(&tool));
        let slow = |facts: NodeFacts| NodeFacts { fast: facts.fast && !is_ruled, ..facts };
        match body.facts {
            None => Ok(slow(found)),
            Some(said) if said.cover(found) => Ok(slow(said)),
            Some(said) => Err(format!("node `{name}` is said to be {said:?}, and is {found:?}")),
        }
    }

    fn call(
        &self,
        tool: u16,
        id: Option<&term::Term>,
        given: Option<&term::Term>,
        locals: &[&str],
    ) -> Result<CallTerm, String> {
        let row = self.tools.get(usize::from(tool)).ok_or_else(|| format!("there is no tool {tool}"))?;
        let params = match &row.params {
            None => ArgumentTerms::Object(match given {
                Some(given) => self.term_in(given, locals)?,
                None => CompiledTerm::Object(Vec::new()),
            }),
            Some(params) => {
                let listed = params.iter().map(|param| {
                    let term = given.and_then(|given| given.get(&param.name));
                    let term = term.map(|term| self.term_in(term, locals)).transpose()?;
                    Ok((term, param.default.clone().unwrap_or_default()))
                });
                ArgumentTerms::Listed(listed.collect::<Result<_, String>>()?)
            }
        };
        let id = id.map(|id| self.term_in(id, locals)).transpose()?;
        Ok(CallTerm { tool, id, params })
    }

    fn hook(&self, hook: &program::Hook, number: usize) -> Result<CompiledHook, String> {
        let locals = hook.event.names();
        let when = self.condition(hook.condition.as_ref(), locals)?;
        let does = match hook.tool {
            Some(tool) => Does::Call(self.call(tool, None, Some(&hook.params), locals)?),
            None => Does::Steer(self.term_in(&hook.params, locals)?),
        };
        let name = hook.id.clone().unwrap_or_else(|| format!("{number} ({})", hook.event.name()));
        Ok(CompiledHook { name, event: hook.event, when: when.into(), does, untrusted: hook.untrusted.clone() })
    }

    fn route(&self, route: &program::Route, shows: bool) -> Result<CompiledRoute, String> {
        let edge = |edge: &program::Edge| self.edge(edge, shows);
        Ok(match route {
            program::Route::First(list) => CompiledRoute::First(list.iter().map(edge).collect::<Result<_, _>>()?),
            program::Route::All { all, .. } => CompiledRoute::All(all.iter().map(edge).collect::<Result<_, _>>()?),
            program::Route::Each { over, name, to, most, .. } => CompiledRoute::Each(ListRoute {
                over: self.term(over)?,
                argument: self.argument(name).ok_or_else(|| format!("there is no argument `{name}`"))?,
                to: self.target(to)?,
                most: most.map(|most| usize::try_from(most).unwrap_or(usize::MAX)),
            }),
            program::Route::By { by, to } => {
                let target = |(word, to): (&String, &Option<String>)| {
                    Ok((word.clone(), to.as_ref().map(|name| self.target(name)).transpose()?))
                };
                CompiledRoute::By(ValueRoute {
                    by: self.reference(by, &[])?,
                    to: to.iter().map(target).collect::<Result<_, String>>()?,
                })
            }
        })
    }

    fn target(&self, name: &str) -> Result<u16, String> {
        self.nodes.get(name).copied().ok_or_else(|| format!("there is no node `{name}`"))
    }

    /// Returns the index of the name of a list element.
    fn argument(&self, name: &str) -> Option<u16> {
        u16::try_from(self.arguments.iter().position(|argument| argument == name)?).ok()
    }

    fn edge(&self, edge: &program::Edge, shows: bool) -> Result<CompiledEdge, String> {
        let to = edge.to.as_ref().map(|name| self.target(name));
        let when = self.condition(edge.when.as_ref(), &[])?;
        let shown = if shows { edge.to_string() } else { String::new() };
        Ok(CompiledEdge { to: to.transpose()?, when: when.into(), shown })
    }

    fn condition(&self, when: Option<&When>, locals: &[&str]) -> Result<Condition<Comparison>, String> {
        let Some(when) = when else { return Ok(Condition::Always) };
        when.condition().try_map(&mut |test| self.test(test, locals))
    }

    fn test(&self, test: &condition::Test, locals: &[&str]) -> Result<Comparison, String> {
        let condition::Test { path, operator, right } = test;
        let pattern = match (operator, right) {
            (Operator::Regex, Value::String(pattern)) => Some(Regex::new(pattern).map_err(|error| error.to_string())?),
            _ => None,
        };
        let (left, whole) = (self.reference(path, locals)?, right.as_i64());
        Ok(Comparison { left, operator: *operator, right: right.clone(), whole, pattern })
    }

    fn term(&self, term: &term::Term) -> Result<CompiledTerm, String> {
        self.term_in(term, &[])
    }

    fn term_in(&self, term: &term::Term, locals: &[&str]) -> Result<CompiledTerm, String> {
        Ok(match term {
            term::Term::Literal(value) => CompiledTerm::Literal(value.clone()),
            term::Term::List(list) => {
                CompiledTerm::List(list.iter().map(|term| self.term_in(term, locals)).collect::<Result<_, _>>()?)
            }
            term::Term::Object(fields) => {
                let field = |(name, term): &(String, term::Term)| Ok((name.clone(), self.term_in(term, locals)?));
                CompiledTerm::Object(fields.iter().map(field).collect::<Result<_, String>>()?)
            }
            term::Term::Template { template, .. } => match template {
                Template::Text(text) => CompiledTerm::Literal(Value::String(text.clone())),
                Template::Whole(expression) => CompiledTerm::First(self.references(expression, locals)?),
                Template::Mixed(pieces) => {
                    CompiledTerm::Text(pieces.iter().map(|piece| self.piece(piece, locals)).collect::<Result<_, _>>()?)
                }
            },
        })
    }

    fn piece(&self, piece: &template::Piece, locals: &[&str]) -> Result<TextPiece, String> {
        match piece {
            template::Piece::Text(text) => Ok(TextPiece::Text(text.clone())),
            template::Piece::Expression(expression) => match (&expression.input, expression.paths.first()) {
                (Some(otherwise), Some(path)) => Ok(TextPiece::Input(self.reference(path, locals)?, otherwise.clone())),
                _ => Ok(TextPiece::First(self.references(expression, locals)?)),
            },
        }
    }

    fn references(&self, expression: &template::Expression, locals: &[&str]) -> Result<Vec<ResolvedPath>, String> {
        expression.paths.iter().map(|path| self.reference(path, locals)).collect()
    }

    fn reference(&self, path: &Path, locals: &[&str]) -> Result<ResolvedPath, String> {
        let mut segments = path.segments.clone();
        let root = match path.root {
            Root::Inputs => PathBase::Inputs,
            Root::Result => PathBase::Result,
            Root::Now => PathBase::Now,
            Root::Timestamp => PathBase::Timestamp,
            Root::Local => match segments.first() {
                Some(name) if !locals.contains(&name.as_str()) => {
                    let unknown = || PathError::UnknownRoot { name: name.clone() }.to_string();
                    let argument = self.argument(name).ok_or_else(unknown)?;
                    segments.remove(0);
                    PathBase::Argument(argument)
                }
                _ => PathBase::Local,
            },
            Root::Visit => match segments.first().map(String::as_str) {
                Some("number") => PathBase::Visit,
                Some("previous") => PathBase::Previous,
                Some("branch") => PathBase::Branch,
                _ => return Err(format!("`{path}` is not `visit.number`, `visit.previous` or `visit.branch`")),
            },
            Root::State if segments.is_empty() => PathBase::State,
            Root::State => match segments.remove(0).as_str() {
                LAST_ERROR => PathBase::LastError,
                RETRIES => PathBase::Retries,
                key => PathBase::Key(self.key(key)?),
            },
        };
        if path.root == Root::Visit {
            segments.remove(0);
        }
        Ok(ResolvedPath { root, segments, written: path.to_string() })
    }

    fn key(&self, name: &str) -> Result<usize, String> {
        self.keys.get(name).copied().ok_or_else(|| format!("there is no state key `{name}`"))
    }
}

/// Checks that paths can begin with the name of an element.
fn not_a_namespace(name: &str) -> Result<(), String> {
    match Root::named(name) {
        Some(_) => Err(format!("`{name}` is a namespace, and cannot be the name of an element")),
        None => Ok(()),
    }
}

/// Returns how many calls are made at a time, if a node says `width`.
fn width(width: Option<u32>, settings: &Settings) -> usize {
    usize::try_from(width.unwrap_or(settings.max_concurrency).max(1)).unwrap_or(usize::MAX)
}

/// Links joins to the fan-outs whose branches come to them.
fn join(graph: &mut GraphTables) -> Result<(), String> {
    let mut members = Vec::new();
    for (node, of_node) in (0..).zip(&graph.nodes) {
        let Some(join) = &of_node.join else { continue };
        let name = &of_node.name;
        let fan = join.fan.ok_or_else(|| format!("node `{name}` joins no branches"))?;
        if !graph.fans_out(fan) {
            return Err(format!("node `{name}` joins node `{}`, which begins no branches", graph.node(fan).name));
        }
        if join.quorum.is_some_and(|quorum| !join.closes || quorum.need == 0) {
            return Err(format!("node `{name}` has a quorum that it cannot have"));
        }
        members.push(Member { node, fan, closes: join.closes, quorum: join.quorum });
    }
    if members.is_empty() {
        return Ok(());
    }
    let leads: Vec<Vec<u16>> = graph.nodes.iter().map(|node| node.onward().collect()).collect();
    for one in members.iter().filter(|one| one.quorum.is_some()) {
        // A quorum does not need every branch.
        graph.nodes[usize::from(one.fan)].on_branch_error.get_or_insert(OnBranchError::Collect);
    }
    let nodes = (0..).zip(&graph.nodes);
    let begun = nodes.map(|(at, node)| node.targets().flatten().filter(|_| graph.fans_out(at)).collect());
    let begun: Vec<Vec<u16>> = begun.collect();
    graph.fan_outs = fan_outs(&members, &leads, &begun);
    let finishes = members.iter().any(|one| graph.finishes(one.fan));
    for (node, leads) in graph.nodes.iter_mut().zip(&leads) {
        // Whether a branch comes to a join is decided where the whole step is known, and so is whether it is late.
        node.facts.fast &= !finishes && !leads.iter().any(|to| members.iter().any(|member| member.node == *to));
    }
    Ok(())
}

/// Returns the signals that a node shares with the run of its graph.
fn shared_signals(
    name: &str,
    signals: &[String],
    runs_graph: bool,
    settings: &Settings,
) -> Result<Vec<String>, String> {
    if !signals.is_empty() && !runs_graph {
        return Err(format!("node `{name}` runs no graph that could share signals"));
    }
    match signals.iter().find(|signal| !settings.signals.contains_key(*signal)) {
        Some(signal) => Err(format!("node `{name}` shares `{signal}`, which is no signal of the graph")),
        None => Ok(signals.to_vec()),
    }
}

/// Checks that a wait has an end, and that it leads somewhere however it ends.
fn check_wait(name: &str, wait: &program::Wait, settings: &Settings) -> Result<(), String> {
    if wait.ask.is_some() && !wait.signals.is_empty() {
        return Err(format!("node `{name}` waits for an answer, and not for signals"));
    }
    let has_time = wait.until.is_some() || wait.timeout_ms.is_some();
    let listens = wait.ask.is_some() || !wait.signals.is_empty();
    if wait.until.is_some() && wait.timeout_ms.is_some() || !has_time && !listens {
        return Err(format!("node `{name}` waits until a time, or for one, or for signals"));
    }
    if wait.on_timeout.is_some() != (has_time && listens) {
        return Err(format!("node `{name}` has a node for its time exactly if it waits for signals and has a time"));
    }
    if let Some(signal) = settings.signals.keys().find(|signal| signal.contains('#')) {
        return Err(format!("`{signal}` cannot be the name of a signal"));
    }
    match wait.signals.iter().find(|signal| !settings.signals.contains_key(*signal)) {
        Some(signal) => Err(format!("node `{name}` receives `{signal}`, which is no signal of the graph")),
        None => Ok(()),
    }
}

/// Checks that every index of a node names one.
fn check_indices(graph: &GraphTables) -> Result<(), String> {
    let joined = |node: &CompiledNode| {
        node.join.as_ref().map_or_else(Vec::new, |join| [&join.of[..], join.fan.as_slice()].concat())
    };
    let named = graph.nodes.iter().flat_map(|node| node.onward().chain(joined(node)));
    match named.chain([graph.start]).find(|&node| usize::from(node) >= graph.nodes.len()) {
        Some(node) => Err(format!("there is no node {node}")),
        None => Ok(()),
    }
}

/// Checks that a run can begin at each entry: its node waits for nothing, and its elements are those of branches of lists.
fn check_entries(graph: &GraphTables) -> Result<(), String> {
    let may_begin = |node: &CompiledNode| !matches!(node.kind, CompiledKind::Start) && node.join.is_none();
    let is_branch = |EntryBranch { fan, behind, element }: &EntryBranch| {
        usize::from(*fan) < graph.nodes.len()
            && graph.fans_out(*fan)
            && behind.is_none_or(|join| graph.partial(*fan).contains(&join))
            && element.is_some() == (graph.goes_over(*fan) && behind.is_none())
            && element.as_ref().is_none_or(|path| path.root == Root::Inputs)
    };
    let fits = |entry: &EntryPoint| {
        graph.nodes.get(usize::from(entry.node)).is_some_and(may_begin) && entry.branches.iter().all(is_branch)
    };
    let wrong = graph.settings.entries.iter().find(|(_, entry)| !fits(entry));
    wrong.map_or(Ok(()), |(name, _)| Err(format!("no run can begin at the entry `{name}`")))
}

/// Checks that only `start` begins a run in several nodes, after all nodes that are visited, and that none of them waits.
fn check_start(graph: &GraphTables) -> Result<(), String> {
    let is_start = |node: &CompiledNode| matches!(node.kind, CompiledKind::Start);
    let is_wrong = |(at, node): &(u16, &CompiledNode)| {
        let begins = matches!(node.next, CompiledRoute::All(_)) && !node.next.is_empty();
        let waits =
            || node.targets().any(|to| to.is_none_or(|to| graph.node(to).join.is_some() || graph.node(to).cancels));
        let is_conditional = || node.next.edges().iter().any(|edge| !matches!(edge.when, EdgeCondition::Always));
        let is_last = usize::from(*at) + 1 == graph.nodes.len();
        is_start(node)
            && (*at != graph.start || !is_last || node.join.is_some() || !begins || waits() || is_conditional())
    };
    if let Some((_, node)) = (0..).zip(&graph.nodes).find(is_wrong) {
        return Err(format!("node `{}` cannot begin a run in several nodes", node.name));
    }
    let led = graph.nodes.iter().find(|node| node.onward().any(|to| is_start(graph.node(to))));
    led.map_or(Ok(()), |node| Err(format!("node `{}` leads to the start of several nodes", node.name)))
}

fn load_tool(tool: ToolIr, rules: ToolRules) -> Result<CompiledTool, String> {
    let free = tool.id.starts_with(INTERNAL);
    let id = (!tool.id.is_empty()).then(|| ItemId::new(tool.id)).transpose().map_err(|error| error.to_string())?;
    let capability = id.as_ref().filter(|_| !free).map(|id| Capability::new(tool.verb, tool.item, Some(id)));
    let params = tool.params.map(|params| params.into_iter().map(|param| param.name).collect());
    Ok(CompiledTool {
        id,
        verb: tool.verb,
        item: tool.item,
        by: tool.by,
        capability,
        params,
        typed: tool.typed,
        nests: tool.nests,
        params_rules: rules.params.map(SchemaRules::new),
        result_rules: rules.result.map(SchemaRules::new),
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use graph_model::program::{Executor, ItemType, Join, Verb};

    use super::super::{ArgumentTerms, CompiledKind, CompiledRoute, CompiledTerm, GraphTables, PathBase};
    use super::*;

    pub(crate) fn load(nodes: &[(&str, &str)]) -> Result<GraphTables, String> {
        load_from(0, nodes)
    }

    fn load_from(start: u16, nodes: &[(&str, &str)]) -> Result<GraphTables, String> {
        let tool = program::Tool {
            id: "code/review",
            verb: Verb::Execute,
            item: ItemType::Tool,
            by: Executor::Program,
            params: None,
            typed: true,
            nests: false,
        };
        let program = program::Program {
            id: "test/routes",
            version: "1.0.0",
            source: "routes.yaml",
            digest: "0000000000000000000000000000000000000000000000000000000000000000",
            signer: "0000000000000000",
            start,
            settings: r#"{"max_concurrency":3}"#,
            permissions: &[],
            env: &[],
            keys: &[program::Key { name: "x", initial: None }],
            tools: &[tool],
            nodes,
        };
        super::load(GraphIr::read(&program)?)
    }

    #[test]
    fn a_route_over_a_list_names_its_elements() {
        let graph = load(&[
            ("split", r#"{"line":1,"does":"gate","next":{"over":"${inputs.list}","as":"part","to":"review","most":5}}"#),
            (
                "review",
                r#"{"line":2,"does":{"action":0},"params":{"of":"${part.path}"},"next":[{"to":"merge","when":{"path":"part.is_last","value":true}}]}"#,
            ),
            ("merge", r#"{"line":3,"does":"return","join":{"of":[1],"fan":0,"closes":true}}"#),
        ])
        .unwrap();
        let CompiledRoute::Each(each) = &graph.node(0).next else { panic!("{:?}", graph.node(0).next) };
        assert_eq!((each.argument, each.to, graph.node(0).width, each.most), (0, 1, None, Some(5)));
        assert_eq!((graph.target(0, 0), graph.target(0, 1)), (Some(Some(1)), None));
        let CompiledKind::Action(CallTerm { params: ArgumentTerms::Object(CompiledTerm::Object(fields)), .. }) =
            &graph.node(1).kind
        else {
            panic!("{:?}", graph.node(1).kind)
        };
        let CompiledTerm::First(references) = &fields[0].1 else { panic!("{fields:?}") };
        assert!(matches!(references[0].root, PathBase::Argument(0)), "{references:?}");
        assert_eq!((&references[0].segments[..], &*references[0].written), (&["path".to_owned()][..], "part.path"));
        assert_eq!(graph.node(2).join, Some(Join { of: vec![1], fan: Some(0), closes: true, quorum: None }));
        assert!(!graph.node(0).facts.fast && !graph.node(1).facts.fast && !graph.node(2).facts.fast);
    }

    #[test]
    fn a_route_by_values_has_a_target_for_each() {
        let graph = load(&[(
            "choose",
            r#"{"line":1,"does":"gate","next":{"by":"state.x","to":{"again":"choose","done":null}}}"#,
        )])
        .unwrap();
        let CompiledRoute::By(by) = &graph.node(0).next else { panic!("{:?}", graph.node(0).next) };
        assert!(matches!(by.by.root, PathBase::Key(0)));
        assert_eq!(by.to[..], [("again".to_owned(), Some(0)), ("done".to_owned(), None)]);
        assert_eq!([0, 1, 2].map(|edge| graph.target(0, edge)), [Some(Some(0)), Some(None), None]);
    }

    #[test]
    fn routes_and_joins_that_lead_nowhere_are_refused() {
        let refused = |body: &str| load(&[("a", body)]).unwrap_err();
        assert_eq!(
            refused(r#"{"line":1,"does":"gate","next":{"by":"state.x","to":{"b":"b"}}}"#),
            "there is no node `b`"
        );
        assert_eq!(
            refused(r#"{"line":1,"does":"gate","next":{"over":[],"as":"part","to":"b"}}"#),
            "there is no node `b`"
        );
        assert_eq!(refused(r#"{"line":1,"does":"gate","join":{"of":[1]}}"#), "there is no node 1");
        assert_eq!(refused(r#"{"line":1,"does":"gate","join":{"of":[],"fan":2}}"#), "there is no node 2");
        assert!(refused(r#"{"line":1,"does":"gate","assign":{"x":"${part}"}}"#).contains("`part`"));
    }

    #[test]
    fn a_start_of_several_nodes_is_refused_where_it_cannot_be_one() {
        let refused = |start: &str, other: &str| load_from(1, &[("a", other), ("s", start)]).err();
        let gate = r#"{"line":1,"does":"gate"}"#;
        let begins = "node `s` cannot begin a run in several nodes";
        assert_eq!(refused(r#"{"line":1,"does":"start","next":{"all":[{"to":"a"}]}}"#, gate), None);
        for next in [r#"[{"to":"a"}]"#, r#"{"all":[]}"#, r#"{"all":[{}]}"#, r#"{"over":[],"as":"x","to":"a"}"#] {
            let start = format!(r#"{{"line":1,"does":"start","next":{next}}}"#);
            assert_eq!(refused(&start, gate).as_deref(), Some(begins), "{next}");
        }
        let when = r#"{"all":[{"to":"a","when":{"path":"inputs.x","op":"exists"}}]}"#;
        assert_eq!(refused(&format!(r#"{{"line":1,"does":"start","next":{when}}}"#), gate).as_deref(), Some(begins));
        let start = r#"{"line":1,"does":"start","next":{"all":[{"to":"a"}]}}"#;
        let join = r#"{"line":1,"does":"gate","join":{"of":[],"fan":1,"closes":true}}"#;
        assert_eq!(refused(start, join).as_deref(), Some(begins));
        let back = r#"{"line":1,"does":"gate","next":[{"to":"s"}]}"#;
        assert_eq!(refused(start, back).as_deref(), Some("node `a` leads to the start of several nodes"));
        let returns = r#"{"line":1,"does":"return","cancels":true}"#;
        assert_eq!(refused(start, returns).as_deref(), Some(begins));
        let joins = r#"{"line":1,"does":"start","next":{"all":[{"to":"a"}]},"join":{"of":[],"fan":0,"closes":true}}"#;
        let fans_out = r#"{"line":1,"does":"gate","next":{"all":[]}}"#;
        assert_eq!(refused(joins, fans_out).as_deref(), Some(begins));
        // Only the start of the run is one, and the last node.
        assert_eq!(load_from(0, &[("a", gate), ("s", start)]).unwrap_err(), begins);
        assert_eq!(load_from(0, &[("s", start), ("a", gate)]).unwrap_err(), begins);
    }

    #[test]
    fn facts_that_promise_too_much_are_refused() {
        let load = |facts: &str| {
            let body = format!(
                r#"{{"line":1,"does":"gate","assign":{{"x":"${{visit.previous}} ${{_now}}"}},"facts":{facts}}}"#
            );
            load(&[("a", body.as_str())])
        };
        let graph = load(r#"{"visits":true,"previous":true,"time":true}"#).unwrap();
        assert!(graph.counts_visits && graph.node(0).facts.previous && !graph.node(0).facts.fast);
        for facts in [
            "{}",
            r#"{"previous":true,"time":true}"#,
            r#"{"visits":true,"time":true}"#,
            r#"{"visits":true,"previous":true}"#,
            r#"{"visits":true,"previous":true,"time":true,"fast":true}"#,
        ] {
            assert!(load(facts).unwrap_err().starts_with("node `a` is said to be "), "{facts}");
        }
    }
}
