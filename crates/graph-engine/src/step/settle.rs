//! What a visit comes to behind its calls: what it writes, and where it leads.

use graph_model::value::{Value, View};

use crate::activation::{Change, TakenEdges};
use crate::failure::Failure;
use crate::graph::{Asks, EvalContext, Notes};
use crate::step::context::Env;
use crate::step::visited::Way;

/// What came of what a node asked for.
pub enum Outcome<'a> {
    /// Nothing was called.
    None,
    /// The tool returned.
    Returned(View<'a>),
    /// The calls of a foreach returned: one result an item, in their order, for the node to take.
    Each(&'a mut Vec<Value>),
    /// The calls failed. What those of a foreach returned comes with it, with failures in their places; nothing where there was no
    /// list to go over.
    Failed(&'a Failure, &'a mut Vec<Value>),
}

impl<'a> Outcome<'a> {
    /// What came of what a node asks for: `result` of one call, `results` of those for a list, or the failure of them.
    pub fn of(asks: Asks, failure: Option<&'a Failure>, result: View<'a>, results: &'a mut Vec<Value>) -> Self {
        match (failure, asks) {
            (Some(failure), _) => Self::Failed(failure, results),
            (None, Asks::Each { .. }) => Self::Each(results),
            (None, Asks::Once { .. }) => Self::Returned(result),
            (None, Asks::Nothing) => Self::None,
        }
    }
}

/// What is known of the calls of a visit besides their outcome.
pub struct CallFacts<'a> {
    /// How often the tool was called.
    pub calls: u64,
    /// Whether a hook ended the run after the failure.
    pub is_ended: bool,
    /// Cuts secrets out of a failure that the node comes to by itself.
    pub scrub: &'a dyn Fn(&mut Failure),
}

impl CallFacts<'static> {
    /// The facts of a visit without secrets that made so many calls.
    pub fn of(calls: u64) -> Self {
        Self { calls, is_ended: false, scrub: &|_| {} }
    }
}

/// What a visit comes to. What it writes is in the list of changes that is given to [`settle()`].
#[derive(Debug)]
pub struct Settled {
    /// Where the visit leads.
    pub way: Way,
    /// The failure of a node that could not use what its calls returned.
    pub unfit: Option<Box<Failure>>,
}

/// Computes what a visit writes, into `changes`, and where it leads.
///
/// A node that cannot use what its calls returned fails, and that failure is routed as any other: nothing of what the node would
/// have written is left, and what a foreach collected is as it was.
#[inline]
pub fn settle(
    env: &Env<'_>,
    outcome: Outcome<'_>,
    facts: &CallFacts<'_>,
    notes: &mut Notes,
    changes: &mut Vec<Change>,
) -> Settled {
    // Most visits make at most one call, which succeeds.
    let result = match outcome {
        Outcome::None if facts.calls <= 1 => View::Null,
        Outcome::Returned(result) if facts.calls <= 1 => result,
        other => return settle_otherwise(env, other, facts, notes, changes),
    };
    env.graph.assign(env.at.node, &env.context, result, notes, changes);
    if let Some(edge) = env.graph.first_edge(env.at.node, &env.context, result, changes) {
        return Settled { way: Way::Along { edges: TakenEdges::One(edge), suppressed: false }, unfit: None };
    }
    match env.graph.edges(env.at.node, &env.context, result, notes, changes) {
        Ok(edges) => Settled { way: Way::Along { edges, suppressed: false }, unfit: None },
        Err(failure) => fail(env, failure, None, facts, notes, changes),
    }
}

/// As [`settle()`], for visits that made several calls, or whose calls failed.
#[inline(never)]
fn settle_otherwise(
    env: &Env<'_>,
    outcome: Outcome<'_>,
    facts: &CallFacts<'_>,
    notes: &mut Notes,
    changes: &mut Vec<Change>,
) -> Settled {
    let several;
    let context = if facts.calls <= 1 {
        &env.context
    } else {
        several = env.behind(facts.calls);
        &several
    };
    let (computed, results) = match outcome {
        Outcome::None => (compute(env, context, View::Null, notes, changes), None),
        Outcome::Returned(result) => (compute(env, context, result, notes, changes), None),
        Outcome::Each(results) => (collect(env, context, results, notes, changes), Some(results)),
        Outcome::Failed(failure, results) => {
            return Settled { way: route_failure(env, failure, results, facts, notes, changes), unfit: None };
        }
    };
    match computed {
        Ok(edges) => Settled { way: Way::Along { edges, suppressed: false }, unfit: None },
        Err(failure) => fail(env, failure, results, facts, notes, changes),
    }
}

/// Assigns, and returns the edges that are taken.
#[inline(always)]
fn compute(
    env: &Env<'_>,
    context: &EvalContext<'_>,
    result: View<'_>,
    notes: &mut Notes,
    changes: &mut Vec<Change>,
) -> Result<TakenEdges, Box<Failure>> {
    env.graph.assign(env.at.node, context, result, notes, changes);
    env.graph.edges(env.at.node, context, result, notes, changes)
}

/// As [`compute`], for a foreach: what its calls returned is written first. On an error, `results` is what it was.
fn collect(
    env: &Env<'_>,
    context: &EvalContext<'_>,
    results: &mut Vec<Value>,
    notes: &mut Notes,
    changes: &mut Vec<Change>,
) -> Result<TakenEdges, Box<Failure>> {
    let key = env.graph.node(env.at.node).kind.collects();
    if let Some(key) = key {
        changes.push(Change { key, value: Value::Array(std::mem::take(results)) });
    }
    compute(env, context, View::Null, notes, changes).inspect_err(|_| {
        let collected = changes.drain(..).next().map(|change| change.value);
        if let (Some(_), Some(Value::Array(collected))) = (key, collected) {
            *results = collected;
        }
    })
}

/// Settles a visit that could not use what its calls returned; `results` are those of the calls of a foreach.
#[cold]
fn fail(
    env: &Env<'_>,
    mut failure: Box<Failure>,
    results: Option<&mut Vec<Value>>,
    facts: &CallFacts<'_>,
    notes: &mut Notes,
    changes: &mut Vec<Change>,
) -> Settled {
    if results.is_none() {
        changes.clear();
    }
    (facts.scrub)(&mut failure);
    let way = route_failure(env, &failure, results.unwrap_or(&mut Vec::new()), facts, notes, changes);
    Settled { way, unfit: Some(failure) }
}

/// Decides where a failure leads: to the node's own target, along its edges, or nowhere, which ends the run (R120).
///
/// A foreach that is led along its edges writes what it collected; nothing else is written.
#[cold]
fn route_failure(
    env: &Env<'_>,
    failure: &Failure,
    results: &mut Vec<Value>,
    facts: &CallFacts<'_>,
    notes: &mut Notes,
    changes: &mut Vec<Change>,
) -> Way {
    let node = env.graph.node(env.at.node);
    if facts.is_ended {
        return Way::Fatal;
    }
    if let Some(target) = node.on_error {
        return Way::OnError(target);
    }
    if !env.graph.may_suppress(env.at.node) {
        return Way::Fatal;
    }
    let several;
    let context = if facts.calls <= 1 {
        &env.context
    } else {
        several = env.behind(facts.calls);
        &several
    };
    let edges = if node.kind.goes_over_list() {
        // A foreach collects also where it failed, for what comes after it counts on a list: the items that failed are in their places.
        collect(env, context, results, notes, changes)
    } else {
        // Of a call that failed, the edges see the failure as `result`; assignments are skipped.
        env.graph.edges(env.at.node, context, View::Object(failure), notes, changes)
    };
    match edges {
        Ok(edges) => Way::Along { edges, suppressed: true },
        // If the edges cannot be followed either, the run ends with the failure.
        Err(_) => {
            changes.clear();
            Way::Fatal
        }
    }
}

/// Returns what a foreach says of the items that failed: `message` is why the first did, at `index`, of `count`.
pub fn items_failed(index: u64, message: &str, count: usize) -> String {
    let others = if count > 1 { format!(", and {} more", count - 1) } else { String::new() };
    format!("item {index}: {message}{others}")
}
