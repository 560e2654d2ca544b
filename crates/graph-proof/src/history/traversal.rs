//! How often a run visited each node, and took each way out of it.

use std::collections::{BTreeMap, BTreeSet};

use graph_engine::Status;
use graph_engine::activation::TakenEdges;
use graph_engine::machine::Machine;
use graph_engine::past::Past;
use graph_engine::record::{JournalError, SignedRecord, Visit, said_edges};
use graph_engine::step::Position;
use graph_model::name::RunId;
use graph_signing::PublicKey;
use serde::{Deserialize, Serialize};

/// The ways that a run took through its graph. Nodes are named by their places in
/// [`Topology::nodes`](graph_engine::machine::Topology::nodes).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Traversal {
    /// The run.
    pub run: RunId,
    /// Its status according to its journal.
    pub status: Status,
    /// How many nodes were visited.
    pub steps: u64,
    /// The entry at which it began, if not at the start.
    pub entry: Option<String>,
    /// The nodes, in the order of the file.
    pub nodes: Vec<NodeTraversal>,
    /// How often each way out of a node was taken. A way that was never taken is absent.
    pub ways: BTreeMap<(usize, TraversedWay), u64>,
}

/// The visits of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct NodeTraversal {
    /// How often it was visited, also in vain.
    pub visits: u64,
    /// How many of its visits were cancelled.
    pub cancelled: u64,
    /// How many visits of it are next, or wait.
    pub open: u64,
    /// Whether its last visit failed.
    pub failed: bool,
}

/// A way out of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum TraversedWay {
    /// The edge with that index.
    Edge(usize),
    /// Out of the graph or the branch, without an edge.
    Out,
    /// To the node that its failures lead to.
    OnError,
    /// To the node that follows when its time is over.
    OnTimeout,
    /// To the node that is visited instead of a join, because too few branches can arrive.
    Fewer,
}

/// Returns the ways that a run took through its graph. `key` is the public key of the runtime that wrote the journal.
///
/// The journal is verified, and not recomputed: [`audit`](crate::audit) proves that the run took these ways.
///
/// ```
/// # mod graph_runtime { pub use graph_engine::*; pub use graph_proof::*; }
/// # use graph_runtime::{Machine, PublicKey, RunId, Store};
/// # async fn example(
/// #     graph: &dyn Machine,
/// #     store: &dyn Store,
/// #     key: &PublicKey,
/// # ) -> Result<(), Box<dyn std::error::Error>> {
/// use graph_runtime::history::traversal;
///
/// let run = RunId::new("order-17")?;
/// let traversal = traversal(graph, &run, &store.load(&run).await?, key)?;
/// for (place, node) in graph.graph().topology().nodes.iter().zip(&traversal.nodes) {
///     println!("{}: {} visits", place.name, node.visits);
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// If the journal was changed, or is that of another graph.
pub fn traversal(
    machine: &dyn Machine,
    run: &RunId,
    records: &[SignedRecord],
    key: &PublicKey,
) -> Result<Traversal, JournalError> {
    let mut past = Past::open(machine, run, records, key, None)?;
    let code = past.graph();
    let mut nodes = vec![NodeTraversal::default(); code.visited().count()];
    let mut ways: BTreeMap<(usize, TraversedWay), u64> = BTreeMap::new();
    let mut waiting = undecided(&past.position);
    while let Some((_, step, _)) = past.next_step()? {
        for visit in &step.visits {
            // A visit that waits, or whose failure is held, is recorded again when it is made.
            if visit.opened.is_some() || visit.held {
                continue;
            }
            let Some(at) = code.node_named(&visit.node) else { continue };
            let Some(node) = nodes.get_mut(usize::from(at)) else { continue };
            if visit.cancelled {
                node.cancelled += 1;
                continue;
            }
            (node.visits, node.failed) = (node.visits + 1, visit.error.is_some());
            for (way, times) in taken(visit, said_edges(code, at, visit), code.node(at).on_error.is_some()) {
                *ways.entry((usize::from(at), way)).or_default() += times;
            }
        }
        let next: BTreeSet<u16> = step.next.iter().filter_map(|target| code.node_named(&target.node)).collect();
        past.go_on()?;
        // A join that waits no more, and is not visited.
        let still = undecided(&past.position);
        for (at, _) in waiting.difference(&still).filter(|(at, _)| !next.contains(at)) {
            if code.node(*at).quorum().and_then(|quorum| quorum.fewer).is_some_and(|fewer| next.contains(&fewer)) {
                *ways.entry((usize::from(*at), TraversedWay::Fewer)).or_default() += 1;
            }
        }
        waiting = still;
    }
    let entry = past.start.entry.clone();
    let status = match &past.end {
        Some(end) => {
            // The visit that ended the run is in no step.
            let failed = end.node.as_ref().filter(|_| end.status == Status::Error);
            let failed = failed.and_then(|name| code.node_named(name)).and_then(|at| nodes.get_mut(usize::from(at)));
            failed.into_iter().for_each(|node| (node.visits, node.failed) = (node.visits + 1, true));
            end.status
        }
        None => {
            for at in past.position.open() {
                nodes.get_mut(usize::from(at.node)).into_iter().for_each(|node| node.open += 1);
            }
            if past.position.is_waiting() { Status::Waiting } else { Status::Running }
        }
    };
    Ok(Traversal { run: run.clone(), status, steps: past.position.steps, entry, nodes, ways })
}

/// Returns the joins that wait for branches, each with the visit that fanned out.
fn undecided(position: &Position) -> BTreeSet<(u16, u64)> {
    let waits = position.joins.iter().filter(|join| !join.is_over);
    waits.map(|join| (join.node, join.fan.visit)).collect()
}

/// Returns the ways that a visit took, each with how often.
fn taken(visit: &Visit, edges: TakenEdges, has_target: bool) -> Vec<(TraversedWay, u64)> {
    if visit.timed_out {
        return vec![(TraversedWay::OnTimeout, 1)];
    }
    if visit.error.is_some() && !visit.suppressed && has_target && !visit.ends_in_failure() {
        return vec![(TraversedWay::OnError, 1)];
    }
    match edges {
        TakenEdges::None => vec![(TraversedWay::Out, 1)],
        TakenEdges::One(edge) => vec![(TraversedWay::Edge(usize::from(edge)), 1)],
        TakenEdges::Many(edges) => edges.iter().map(|edge| (TraversedWay::Edge(usize::from(*edge)), 1)).collect(),
        TakenEdges::Over(list) => vec![(TraversedWay::Edge(0), list.len() as u64)],
    }
}
