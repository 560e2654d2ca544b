//! Failures of calls: which of them the engine makes itself, what each says, and of which kind it is.
//!
//! A tool may say anything of a failure. The engine says always the same of a call that it refuses, and of a graph that it could not
//! begin or that failed. So where no tool is asked, a record can say one of few things.

use std::borrow::Cow;
use std::ops::RangeInclusive;
use std::sync::Arc;

use graph_engine::StartError;
use graph_engine::admission::{accepts_inputs, not_granted, required_environment};
use graph_engine::failure::Category;
use graph_engine::graph::{Asks, CompiledNode, tables};
use graph_engine::machine::Machine;
use graph_engine::schema;
use graph_engine::step::{
    NO_GRAPH, TOO_DEEP, exceeded, is_computed, is_nested_id, most_extended, no_spaces, timed_out,
};
use graph_engine::tool_caller::Request;
use graph_model::name::RunId;
use graph_model::program::Executor;
use graph_model::secret::HIDDEN;
use graph_model::value::Value;

use crate::audit::replayer::Replayer;

/// What a run says begins so that had taken all its steps.
const EXCEEDED: &str = "Max steps exceeded (";

/// What a call can come to.
pub(super) struct Prospects {
    /// The failures that the engine makes itself.
    own: Vec<OwnFailures>,
    /// Whether something outside is asked, which may fail in any other way.
    asks: bool,
    /// Whether it can succeed.
    pub(super) succeeds: bool,
}

/// A failure that the engine makes itself.
struct OwnFailures {
    says: SaidOf,
    /// Its category; `None` if the failure began with a tool, whose category it keeps.
    category: Option<Category>,
    holds: Holds,
}

/// What the text of a failure is.
enum SaidOf {
    Exactly(String),
    /// Something between these two.
    Between(String, String),
    /// Some of these, in this order, behind the first.
    Listed(&'static str, Vec<String>),
    /// That a graph had taken all the steps that it may.
    Exceeded(Arc<dyn Machine>),
    /// How a node of a graph failed.
    Inside(Arc<dyn Machine>, RunsInside),
}

/// What edges see of a failure besides its text.
enum Holds {
    Nothing,
    /// What a run says of itself that ended without a result.
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
    /// Whether one of them is called so.
    fn has(&self, run: &str) -> bool {
        is_nested_id(run, &self.outer, self.step, self.item, self.calls.clone())
    }
}

/// What a record says of a failure.
pub(super) struct SaidFailure<'a> {
    pub(super) error: &'a str,
    /// Its category, where that is written down.
    pub(super) category: Option<&'a str>,
    /// What the edges saw of it, where that is written down.
    pub(super) data: Option<Option<Cow<'a, Value>>>,
}

/// A call that a record tells of.
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

    /// Returns its category if a text says it: `Some(None)` if it is that of a tool.
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

    /// Whether the edges can have seen that of it.
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
            // In the place of an item, the failure itself says these.
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

/// Whether a failure says that a run inside had come to an end.
pub(super) fn says_ended(error: &str) -> bool {
    inside(error).is_some() || error.starts_with(EXCEEDED)
}

/// Returns the run inside in which a node failed, if a failure says that.
pub(super) fn run_inside(error: &str) -> Option<&str> {
    inside(error).map(|(_, _, run)| run)
}

/// Takes apart how a node of a graph failed: what happened, at which node, and in which run.
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

    /// Returns how the call surely fails, if there is but one way.
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

    /// Whether the call can have failed so.
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
        // A text that is the engine's own is nothing that is said outside.
        self.asks && !is_own
    }
}

impl Replayer<'_> {
    /// Returns what a call can come to. Of a request whose id or arguments depend on the time, that is what holds at the time that it
    /// was planned.
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
            _ => match self.tool_caller.borrow().refusal(request.tool, request.id.as_ref(), &mut request.arguments) {
                Some(refusal) => Prospects::only([refusal]),
                // A tool may say what the engine says, and mean something else by it.
                None => Prospects { own: Vec::new(), asks: true, succeeds: true },
            },
        }
    }

    /// Returns what the call of a graph can come to; `timeout` is how it fails that takes too long.
    fn prospects_of_graph(
        &self,
        graph: &Arc<dyn Machine>,
        request: &mut Request,
        called: &Called<'_>,
        timeout: Option<OwnFailures>,
    ) -> Prospects {
        let (inner, id) = (tables(graph.graph()), tables(graph.graph()).id.to_string());
        let Some(session) = self.sessions.last().filter(|session| session.depth > 0) else {
            return Prospects::only([TOO_DEEP.to_owned()]);
        };
        let mut own = Vec::new();
        let missing = not_granted(&**graph, &[session.granted.clone(), self.code.permissions.clone()]);
        if !missing.is_empty() {
            let denied = StartError::NotGranted { graph: id.clone(), missing }.to_string();
            // What the graphs need that are called by name is written down with what was granted.
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
            let no_key = StartError::NoSealKey { graph: id.clone() }.to_string();
            own.push(OwnFailures::permanent(SaidOf::Exactly(no_key)));
            let no_cipher = StartError::NoCipher { graph: id.clone() }.to_string();
            own.push(OwnFailures::permanent(SaidOf::Exactly(no_cipher)));
            own.push(begins_with("the operating system gave no random bytes: "));
        }
        let inputs = request.arguments.values_mut().first().cloned().unwrap_or_default();
        // A program without the feature cannot check the rules of inputs.
        let is_checked = schema::IS_THERE || inner.settings.schema.is_none();
        if !is_checked {
            own.push(begins_with(&format!("the inputs do not fit the graph `{id}`: ")));
            own.push(begins_with(&format!("cannot check the inputs of the graph `{id}`: ")));
        } else if let Err(error) = accepts_inputs(&**graph, &inputs) {
            own.push(OwnFailures::permanent(SaidOf::Exactly(error.to_string())));
            return Prospects { own, asks: false, succeeds: false };
        }
        own.push(begins_with("cannot resume run `"));
        own.extend(timeout);
        let (outer, calls) = (self.run.clone(), called.calls.clone());
        let runs = RunsInside { outer, step: called.step, item: called.item, calls };
        let inside = SaidOf::Inside(Arc::clone(graph), runs.clone());
        own.push(OwnFailures { says: inside, category: None, holds: Holds::Run(runs.clone()) });
        if inner.fails_at_limit() {
            let (says, category) = (SaidOf::Exceeded(Arc::clone(graph)), Some(Category::Permanent));
            own.push(OwnFailures { says, category, holds: Holds::Run(runs) });
        }
        Prospects { own, asks: false, succeeds: true }
    }
}
