//! Nested runs: their ids, and the data that the outer run receives (R188).

use crate::address::{self, CallOnPath};
use crate::graph::{CompiledTool, GraphTables, tables};
use crate::machine::Machine;
use std::collections::{BTreeSet, VecDeque};
use std::ops::RangeInclusive;
use std::sync::Arc;

use graph_model::digest::Digest;
use graph_model::name::{ItemId, RunId};
use graph_model::program::Executor;
use graph_model::secret::Mask;

/// The message of a call that would nest graphs too deeply.
pub const TOO_DEEP: &str = "graphs are nested deeper than `limits.depth` allows";

/// Whether the id of the item that a tool's calls execute is known only at each call, so that it may be a graph's.
pub fn is_computed(tool: &CompiledTool) -> bool {
    tool.is_computed()
}

/// Whether the calls of a tool may begin runs.
pub fn may_begin_runs(tool: &CompiledTool) -> bool {
    tool.may_begin_runs()
}

/// Returns the graph that a call of a tool runs, if it runs one; `id` is the id that the call computed.
pub fn graph_of(machine: &dyn Machine, tool: u16, id: Option<&ItemId>) -> Option<Arc<dyn Machine>> {
    match tables(machine.graph()).tool(tool)? {
        row if row.by == Executor::Graph => machine.nested(tool),
        // A graph that cannot run begins no run.
        row if is_computed(row) => machine.nested_called(id?).ok().flatten(),
        _ => None,
    }
}

/// Returns the graph of this id among those that a graph names, and those inside them.
pub fn graph_inside(machine: &dyn Machine, id: &str) -> Option<Arc<dyn Machine>> {
    find_inside(machine, |code| code.id.as_str() == id)
}

/// Returns the first graph with this property among those that a graph names, and those inside them.
pub(crate) fn find_inside(machine: &dyn Machine, is_wanted: impl Fn(&GraphTables) -> bool) -> Option<Arc<dyn Machine>> {
    let named = |machine: &dyn Machine| {
        let rows = (0_u16..).zip(&tables(machine.graph()).tools);
        let graphs = rows.filter(|(_, tool)| tool.by == Executor::Graph).filter_map(|(at, _)| machine.nested(at));
        graphs.collect::<VecDeque<_>>()
    };
    let (mut seen, mut left) = (BTreeSet::new(), named(machine));
    while let Some(inner) = left.pop_front() {
        let code = tables(inner.graph());
        if is_wanted(code) {
            return Some(inner);
        }
        if seen.insert(code.id.to_string()) {
            left.extend(named(&*inner));
        }
    }
    None
}

/// Returns the id of the run that a call begins; it is the `call`th of its visit or item. The id is the same each time the
/// call is made after a crash.
pub fn nested_id(run: &RunId, step: u64, item: Option<u64>, call: u64) -> RunId {
    let mut id = format!("{run}-{step}");
    if let Some(item) = item {
        id.push_str(&format!("_{item}"));
    }
    if call > 1 {
        id.push_str(&format!("-again{}", call - 1));
    }
    RunId::new(id.clone()).unwrap_or_else(|_| {
        let digest = Digest::of(&id).to_hex();
        RunId::new(format!("nested-{}", &digest[..32])).expect("hex digits are letters of a run id")
    })
}

/// Returns the run at a path from the outermost run; `None` if the path is not one.
pub fn nested_at(run: &RunId, path: &str) -> Option<RunId> {
    let into = |run: RunId, at: CallOnPath| nested_id(&run, at.step, at.item, at.call);
    Some(address::calls(path)?.into_iter().fold(run.clone(), into))
}

/// How many calls are tried where a run's id does not say which of them began it.
pub const MOST_CALLS: u64 = 1000;

/// Whether one of these calls, of a visit or item of `outer`, begins a run that is called `run`.
pub fn is_nested_id(run: &str, outer: &RunId, step: u64, item: Option<u64>, calls: RangeInclusive<u64>) -> bool {
    let is = |call: u64| nested_id(outer, step, item, call).as_str() == run;
    let again = run.rsplit_once("-again").and_then(|(_, again)| again.parse::<u64>().ok());
    let call = again.map_or(1, |again| again.saturating_add(1));
    // An id that would be too long is replaced by its digest.
    (calls.contains(&call) && is(call)) || (run.starts_with("nested-") && calls.take(MOST_CALLS as usize).any(is))
}

/// Whether a graph receives the secrets in the output of a graph nested in it. It does if its own types mark the same values
/// as secret, and they do unless the two graphs nest each other.
pub fn receives_secrets(outer: &GraphTables, tool: u16, inner: &GraphTables) -> bool {
    let known = match outer.settings.secrets.tools.get(&tool) {
        Some(Mask::Fields(fields)) => fields.get("output"),
        _ => None,
    };
    known == inner.settings.secrets.output.as_ref()
}

/// Returns the error message that a node receives when its nested run failed.
pub fn failure_inside(error: &str, node: Option<&str>, run: &RunId) -> String {
    match node {
        Some(node) => format!("{error} (node `{node}` of run `{run}`)"),
        None => error.to_owned(),
    }
}
