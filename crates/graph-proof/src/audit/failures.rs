//! Failures of calls: the failures that the engine itself makes, with their texts and categories.
//!
//! A tool may fail with any text. The engine uses fixed texts for a call that it refuses, and for a graph that it could not
//! begin or that failed. So if no tool is called, a record can have only one of a few texts.

use std::borrow::Cow;
use std::ops::RangeInclusive;
use std::sync::Arc;

use graph_engine::admission::{accepts_inputs, not_granted, required_environment};
use graph_engine::failure::Category;
use graph_engine::graph::{Asks, CompiledNode, CompiledTool, tables};
use graph_engine::machine::{Machine, unfit_parameters};
use graph_engine::schema;
use graph_engine::step::{
    NO_GRAPH, OVERDUE, TOO_DEEP, check_shared, exceeded, is_computed, is_nested_id, most_extended, no_spaces,
    timed_out, too_many_visits,
};
use graph_engine::tool_caller::Request;
use graph_engine::{SecretsError, StartError};
use graph_model::name::RunId;
use graph_model::program::Executor;
use graph_model::secret::HIDDEN;
use graph_model::value::Value;

use crate::audit::ends::nested_limit;
use crate::audit::replayer::Replayer;

/// The beginning of the error of a run that has reached its step limit.
const EXCEEDED: &str = "Max steps exceeded (";

/// The possible outcomes of a call.
pub(super) struct Prospects {
    /// The failures that the engine itself makes.
    own: Vec<OwnFailures>,
    /// Whether something outside the engine is called, which may fail in any other way.
    asks: bool,
    /// Whether it can succeed.
    pub(super) succeeds: bool,
}

/// A failure that the engine itself makes.
struct OwnFailures {
    says: SaidOf,
    /// Its category; `None` if the failure began with a tool, whose category it keeps.
    category: Option<Category>,
    holds: Holds,
}

/// The text of a failure.
enum SaidOf {
    Exactly(String),
    /// Any text between these two.
    Between(String, String),
    /// The prefix, then some of these in this order.
    Listed(&'static str, Vec<String>),
    /// The error of a graph that reached its step limit.
    Exceeded(Arc<dyn Machine>),
    /// The error of a graph whose run took too many steps, with those around it and inside it: the lowest limit.
    NestedSteps(u64),
    /// The error of a graph that would visit a node more often than it may.
    Overvisited(Arc<dyn Machine>),
    /// The error of a graph in which a node failed.
    Inside(Arc<dyn Machine>, RunsInside),
}

/// The data of a failure that edges see besides its text.
enum Holds {
    Nothing,
    /// The description of a run that ended without a result.
    Run(RunsInside),
}

/// The runs that the calls of a visit, or of an item of it, begin.
#[derive(Clone)]
struct RunsInside {
    outer: RunId,
    step: u64,
    item: Option<u64>,
    /// The calls that may have been the last.
    calls: RangeInclusive<u64>,
}

impl RunsInside {
    /// Whether one of them has this id.
    fn has(&self, run: &str) -> bool {
        is_nested_id(run, &self.outer, self.step, self.item, self.calls.clone())
    }
}

/// A failure, as a record states it.
pub(super) struct SaidFailure<'a> {
    pub(super) error: &'a str,
    /// Its category, if recorded.
    pub(super) category: Option<&'a str>,
    /// The data that the edges saw of it, if recorded.
    pub(super) data: Option<Option<Cow<'a, Value>>>,
}

/// A call that a record mentions.
pub(super) struct Called<'a> {
    pub(super) node: &'a CompiledNode,
    pub(super) step: u64,
    pub(super) item: Option<u64>,
    /// How often it may have been made.
    pub(super) calls: RangeInclusive<u64>,
}

impl OwnFailures {
    fn of(category: Category, says: SaidOf) -> Self {
        Self { says, category: Some(category), holds: Holds::Nothing }
    }

    fn permanent(says: SaidOf) -> Self {
        Self::of(Category::Permanent, says)
    }

    /// Returns the category if `error` is this failure's text: `Some(None)` if the category is that of a tool.
    fn category_of(&self, error: &str) -> Option<Option<Category>> {
        let is_said = match &self.says {
            SaidOf::Exactly(text) => error == text,
            SaidOf::Between(before, behind) => {
                error.strip_prefix(before.as_str()).is_some_and(|rest| rest.ends_with(behind.as_str()))
            }
            SaidOf::Listed(before, all) => error.strip_prefix(before).is_some_and(|rest| is_some_of(rest, all)),
            SaidOf::Exceeded(inner) => {
                let limit = error.strip_prefix(EXCEEDED).and_then(|rest| rest.strip_suffix(')'));
                let limit = limit.and_then(|limit| limit.parse().ok());
                limit.is_some_and(|limit| limit <= most_extended(tables(inner.graph())) && error == exceeded(limit))
            }
            SaidOf::NestedSteps(lowest) => nested_limit(error).is_some_and(|most| most >= *lowest),
            SaidOf::Overvisited(inner) => {
                let (graph, most) = (tables(inner.graph()), tables(inner.graph()).settings.visits);
                most.is_some_and(|most| graph.visited().any(|node| error == too_many_visits(most, &node.name)))
            }
            SaidOf::Inside(inner, runs) => {
                let (_, node, run) = inside(error)?;
                if !runs.has(run) {
                    return None;
                }
                // A node that calls nothing fails by itself, or by a hook.
                let is_own = tables(inner.graph()).asks(tables(inner.graph()).node_named(node)?) == Asks::Nothing;
                return Some(is_own.then_some(Category::Permanent));
            }
        };
        is_said.then_some(self.category)
    }

    /// Whether the edges can have seen this data of the failure.
    fn holds(&self, error: &str, data: Option<&Value>) -> bool {
        let Holds::Run(runs) = &self.holds else { return data.is_none() };
        let Some(Value::Object(data)) = data else { return false };
        let (message, node) = match &self.says {
            SaidOf::Inside(..) => inside(error).map_or((error, None), |(message, node, _)| (message, Some(node))),
            _ => (error, None),
        };
        let text = |name: &str| data.get(name).and_then(Value::as_str);
        let is_text = |name: &str, is: &str| match data.get(name) {
            Some(said) => said.as_str().is_some_and(|said| said == is || said.contains(HIDDEN)),
            // In the place of an item, the failure itself has these members.
            None => runs.item.is_some(),
        };
        let known = ["success", "status", "graph_run_id", "steps", "error", "node", "state"];
        data.keys().all(|name| known.contains(&name.as_str()))
            && data.get("success") == Some(&Value::Bool(false))
            && data.get("steps").is_some_and(Value::is_u64)
            && data.get("state").is_some_and(Value::is_object)
            && text("graph_run_id").is_some_and(|run| runs.has(run))
            && text("node") == node
            && is_text("error", message)
            && is_text("status", "error")
    }
}

/// Whether an error says that a run inside had ended.
pub(super) fn says_ended(error: &str) -> bool {
    inside(error).is_some() || error.starts_with(EXCEEDED)
}

/// Returns the run inside in which a node failed, if an error names one.
pub(super) fn run_inside(error: &str) -> Option<&str> {
    inside(error).map(|(_, _, run)| run)
}

/// Splits the error of a graph in which a node failed into the node's error, the node and the run.
fn inside(error: &str) -> Option<(&str, &str, &str)> {
    let (rest, run) = error.strip_suffix("`)")?.rsplit_once("` of run `")?;
    let (message, node) = rest.rsplit_once(" (node `")?;
    Some((message, node, run))
}

/// Whether a text lists some of these, each once and in this order.
fn is_some_of(text: &str, all: &[String]) -> bool {
    let mut rest = all.iter();
    text.split(", ").all(|one| rest.any(|known| known == one))
}

impl Prospects {
    pub(super) fn only(says: impl IntoIterator<Item = String>) -> Self {
        let own = says.into_iter().map(|text| OwnFailures::permanent(SaidOf::Exactly(text))).collect();
        Self { own, asks: false, succeeds: false }
    }

    /// Returns the error of the call, if it certainly fails and can fail with only this one.
    pub(super) fn sure(&self) -> Option<&str> {
        match self.own.first().map(|own| &own.says) {
            Some(SaidOf::Exactly(text)) if !self.succeeds && !self.asks => Some(text),
            _ => None,
        }
    }

    /// Whether a failure of the call can have the code of an error.
    pub(super) fn may_have_code(&self) -> bool {
        self.asks || self.own.iter().any(|own| own.category.is_none())
    }

    /// Whether the call can have failed in this way.
    pub(super) fn may_fail(&self, said: &SaidFailure<'_>, may_hide: bool) -> bool {
        let has_category = |known: Option<Category>| {
            said.category.is_none_or(|category| known.is_none_or(|known| known.name() == category))
        };
        let is_hidden = may_hide && said.error.contains(HIDDEN);
        let mut is_own = false;
        for own in &self.own {
            let known = if is_hidden { Some(own.category) } else { own.category_of(said.error) };
            let Some(known) = known else { continue };
            is_own = true;
            let holds = is_hidden || said.data.as_ref().is_none_or(|data| own.holds(said.error, data.as_deref()));
            if has_category(known) && holds {
                return true;
            }
        }
        // A failure with one of the engine's own texts does not come from outside.
        self.asks && !is_own
    }
}

impl Replayer<'_> {
    /// Returns the possible outcomes of a call. If the request's id or arguments depend on the time, these are the outcomes
    /// at the time when it was planned.
    pub(super) fn prospects(&self, request: &mut Request, called: &Called<'_>) -> Prospects {
        let (denials, is_sure) = self.denials(request);
        if is_sure {
            return Prospects::only(denials);
        }
        let Some(tool) = self.code.tool(request.tool) else { return Prospects::only([]) };
        let graph = match (tool.by, &request.id) {
            (Executor::Graph, _) => match self.machine.nested(request.tool) {
                Some(graph) => Some(graph),
                None => return Prospects::only([NO_GRAPH.to_owned()]),
            },
            (Executor::Program, Some(id)) => match self.machine.nested_called(id) {
                Ok(graph) => graph,
                Err(failure) => return Prospects::only([failure.message]),
            },
            (Executor::Program | Executor::Items, _) => None,
        };
        let timeout =
            called.node.timeout.map(|limit| OwnFailures::of(Category::Transient, SaidOf::Exactly(timed_out(limit))));
        if let Some(graph) = graph {
            let mut prospects = self.prospects_of_graph(&graph, request, called, timeout);
            prospects.own.extend(denials.into_iter().map(|text| OwnFailures::permanent(SaidOf::Exactly(text))));
            return prospects;
        }
        match tool.by {
            Executor::Items => {
                let no_spaces = OwnFailures::permanent(SaidOf::Exactly(no_spaces(tool)));
                Prospects { own: timeout.into_iter().chain([no_spaces]).collect(), asks: true, succeeds: true }
            }
            // It is not known which parameters the call had.
            _ if called.node.asks_memory => Prospects { own: Vec::new(), asks: true, succeeds: true },
            _ => match self.refusal(tool, request) {
                Some(refusal) => Prospects::only([refusal]),
                // A tool may use a text of the engine and mean something else by it.
                None => Prospects { own: Vec::new(), asks: true, succeeds: true },
            },
        }
    }

    /// Returns why a call of a tool is sure to fail before the tool is asked.
    fn refusal(&self, tool: &CompiledTool, request: &mut Request) -> Option<String> {
        if let Err(invalid) = tool.accepts(&mut request.arguments) {
            return Some(unfit_parameters(tool.name(), &invalid));
        }
        self.tool_caller.borrow().refusal(request.tool, request.id.as_ref(), &mut request.arguments)
    }

    /// Returns the possible outcomes of the call of a graph; `timeout` is the failure of a call that takes too long.
    fn prospects_of_graph(
        &self,
        graph: &Arc<dyn Machine>,
        request: &mut Request,
        called: &Called<'_>,
        timeout: Option<OwnFailures>,
    ) -> Prospects {
        let (inner, id) = (tables(graph.graph()), tables(graph.graph()).id.to_string());
        let Some(session) = self.sessions.last().filter(|session| called.node.limits.depth_within(session.depth) > 0)
        else {
            return Prospects::only([TOO_DEEP.to_owned()]);
        };
        if let Err(reason) = check_shared(self.code, called.node, inner) {
            return Prospects::only([reason]);
        }
        let is_named = !self.code.tool(request.tool).is_some_and(is_computed);
        if inner.can_wait && !(is_named && self.receipts.address().is_some()) {
            return Prospects::only([StartError::WaitsInside { graph: id }.to_string()]);
        }
        let mut own = Vec::new();
        let missing = not_granted(&**graph, &[session.granted.clone(), self.code.permissions.clone()]);
        if !missing.is_empty() {
            let denied = StartError::NotGranted { graph: id.clone(), missing }.to_string();
            // The recorded grants include the needs of the graphs that are called by name.
            if self.says_all_grants() || !self.code.tool(request.tool).is_some_and(is_computed) {
                return Prospects::only([denied]);
            }
            let between = SaidOf::Between(format!("the graph `{id}` needs "), ", which was not granted".to_owned());
            own.push(OwnFailures::permanent(between));
        }
        let begins_with = |text: &str| OwnFailures::permanent(SaidOf::Between(text.to_owned(), String::new()));
        let environment = required_environment(&**graph);
        own.push(OwnFailures::permanent(SaidOf::Listed("missing environment variables: ", environment)));
        let unperformed = SaidOf::Between("nothing performs `".to_owned(), format!("`, which the graph `{id}` calls"));
        own.push(OwnFailures::permanent(unperformed));
        if !inner.settings.secrets.is_empty() {
            let no_key = SecretsError::NoKey { graph: id.clone() }.to_string();
            own.push(OwnFailures::permanent(SaidOf::Exactly(no_key)));
            let no_cipher = SecretsError::NoCipher { graph: id.clone() }.to_string();
            own.push(OwnFailures::permanent(SaidOf::Exactly(no_cipher)));
            own.push(begins_with("the operating system gave no random bytes: "));
        }
        let inputs = request.arguments.values_mut().first().cloned().unwrap_or_default();
        // A program without the feature cannot check inputs against a schema.
        let is_checked = schema::IS_THERE || inner.settings.schema.is_none();
        if !is_checked {
            own.push(begins_with(&format!("the inputs do not fit the graph `{id}`: ")));
            own.push(begins_with(&format!("cannot check the inputs of the graph `{id}`: ")));
        } else if let Err(error) = accepts_inputs(&**graph, &inputs) {
            own.push(OwnFailures::permanent(SaidOf::Exactly(error.to_string())));
            return Prospects { own, asks: false, succeeds: false };
        }
        if !called.node.share.is_empty() {
            own.push(begins_with(&format!("the run of the graph `{id}` cannot begin: ")));
        }
        own.push(begins_with("cannot resume run `"));
        own.extend(timeout);
        let (outer, calls) = (self.run.clone(), called.calls.clone());
        let runs = RunsInside { outer, step: called.step, item: called.item, calls };
        let inside = SaidOf::Inside(Arc::clone(graph), runs.clone());
        own.push(OwnFailures { says: inside, category: None, holds: Holds::Run(runs.clone()) });
        if inner.fails_at_limit() {
            let (says, category) = (SaidOf::Exceeded(Arc::clone(graph)), Some(Category::Permanent));
            own.push(OwnFailures { says, category, holds: Holds::Run(runs.clone()) });
        }
        if inner.settings.timeout_ms.is_some() || inner.settings.deadline_ms.is_some() {
            let (says, category) = (SaidOf::Exactly(OVERDUE.to_owned()), Some(Category::Transient));
            own.push(OwnFailures { says, category, holds: Holds::Run(runs.clone()) });
        }
        if inner.settings.visits.is_some() {
            let (says, category) = (SaidOf::Overvisited(Arc::clone(graph)), Some(Category::Permanent));
            own.push(OwnFailures { says, category, holds: Holds::Run(runs.clone()) });
        }
        let lowest = inner.settings.steps.map(u64::from).into_iter().chain(self.most_steps_below(called.node)).min();
        if let Some(lowest) = lowest {
            let (says, category) = (SaidOf::NestedSteps(lowest), Some(Category::Permanent));
            own.push(OwnFailures { says, category, holds: Holds::Run(runs) });
        }
        Prospects { own, asks: false, succeeds: true }
    }
}
