//! Two runs compared: their visits side by side, and what differs between their inputs, their outputs and their last states.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

use graph_runtime::history::entry_at;
use graph_runtime::record::{Entry, Record, Status, Visit, hide_encrypted};
use graph_runtime::{PublicKey, RunId};
use serde_json::{Value, json};
use similar::{Algorithm, DiffOp, capture_diff_slices_deadline};

use crate::FindGraph;
use crate::index::{RunIndex, ShownRun, blocking};
use crate::problem::ViewProblem;
use crate::views::{changes, graph_of};

/// How long the visits of two runs are matched at most; after that, the match is a coarser one.
const MOST_TIME: Duration = Duration::from_millis(1500);

/// The most differences that are shown of two values.
const MOST_DIFFERENCES: usize = 500;

/// A run that is compared.
#[derive(Clone)]
pub(crate) struct ComparedRun {
    pub(crate) run: RunId,
    pub(crate) shown: Arc<ShownRun>,
}

/// A run as far as two are compared.
struct RunContent {
    graph: Option<String>,
    digest: Option<String>,
    inputs: Value,
    /// The node of each visit with its branch, as a number.
    nodes: Vec<u32>,
    /// A number for the content of each visit.
    content: Vec<u64>,
    status: Option<Status>,
    output: Value,
    error: Option<String>,
    steps: u64,
}

/// Compares two runs.
pub(crate) async fn compare(
    runs: [ComparedRun; 2],
    graphs: &Arc<FindGraph>,
    key: &PublicKey,
) -> Result<Value, ViewProblem> {
    let (graphs, key) = (Arc::clone(graphs), key.clone());
    blocking(move || {
        let mut names = HashMap::new();
        let [a, b] = runs.each_ref().map(|run| run.shown.with(|index| RunContent::of(index, &mut names)));
        let deadline = Instant::now() + MOST_TIME;
        let ops = capture_diff_slices_deadline(Algorithm::Myers, &a.nodes, &b.nodes, Some(deadline));
        let (states, state_problem) = match last_states(&runs, &*graphs, &key) {
            Ok([before, after]) => (changes(&before, &after), None),
            Err(problem) => (Vec::new(), Some(problem.text)),
        };
        let first = ops.iter().find_map(|op| match *op {
            DiffOp::Equal { .. } => None,
            DiffOp::Delete { old_index, new_index, .. }
            | DiffOp::Insert { old_index, new_index, .. }
            | DiffOp::Replace { old_index, new_index, .. } => Some([old_index, new_index]),
        });
        Ok(json!({
            "a": about(&runs[0], &a), "b": about(&runs[1], &b),
            "ops": shown_ops(&ops, &a.content, &b.content),
            "parts_at": first,
            "inputs": limited(changes(&a.inputs, &b.inputs)),
            "outputs": limited(changes(&json!({"output": a.output}), &json!({"output": b.output}))),
            "states": limited(states),
            "state_problem": state_problem,
        }))
    })
    .await
}

fn about(run: &ComparedRun, compared: &RunContent) -> Value {
    json!({
        "run": run.run, "graph": compared.graph, "digest": compared.digest, "visits": compared.nodes.len(),
        "status": run.shown.summary().status.name(), "ended": compared.status.map(Status::name), "steps": compared.steps,
        "error": compared.error, "records": run.shown.with(|index| index.records.len()),
    })
}

fn limited(mut found: Vec<Value>) -> Value {
    let all = found.len();
    found.truncate(MOST_DIFFERENCES);
    json!({"shown": found, "count": all})
}

impl RunContent {
    /// Reads a run. A record that cannot be read is left out.
    fn of(index: &RunIndex, names: &mut HashMap<(String, Vec<u32>), u32>) -> Self {
        let start = index.start.as_ref();
        let mut inputs = start.map_or(Value::Null, |start| start.inputs.clone());
        hide_encrypted(&mut inputs);
        let mut compared = Self {
            graph: start.map(|start| start.graph.clone()),
            digest: start.map(|start| start.digest.to_hex()),
            inputs,
            nodes: Vec::new(),
            content: Vec::new(),
            status: None,
            output: Value::Null,
            error: None,
            steps: index.visited(),
        };
        for signed in &index.records {
            let Ok(Record { entry, .. }) = serde_json::from_str::<Record>(&signed.body) else { continue };
            match entry {
                Entry::Step(step) => {
                    compared.status = None;
                    for visit in step.visits {
                        compared.content.push(content(&visit));
                        let new = u32::try_from(names.len()).unwrap_or(u32::MAX);
                        compared.nodes.push(*names.entry((visit.node, visit.branch)).or_insert(new));
                    }
                }
                Entry::End(mut end) => {
                    hide_encrypted(&mut end.output);
                    (compared.status, compared.output, compared.error) = (Some(end.status), end.output, end.error);
                }
                Entry::Resume(_) => (compared.status, compared.output, compared.error) = (None, Value::Null, None),
                _ => {}
            }
        }
        compared
    }
}

/// Returns a number for what a visit came to: its result, its writes, its edges and its failure. When it was made and how long it
/// took, and the ids of nested runs, do not count.
fn content(visit: &Visit) -> u64 {
    let mut hasher = DefaultHasher::new();
    visit.result.to_string().hash(&mut hasher);
    for (key, value) in &visit.changes {
        (key, value.to_string()).hash(&mut hasher);
    }
    (&visit.edges, visit.over, &visit.error, visit.suppressed, visit.ends_branch, visit.held).hash(&mut hasher);
    (visit.timed_out, visit.cancelled, visit.late, visit.opened.is_some()).hash(&mut hasher);
    hasher.finish()
}

/// Returns the parts of the match: `same`, `changed` for visits of the same node that came to something else, `only_a`, `only_b`, each
/// with where it begins in both runs and how long it is there.
fn shown_ops(ops: &[DiffOp], a: &[u64], b: &[u64]) -> Vec<Value> {
    let mut shown: Vec<Value> = Vec::new();
    let mut add = |tag: &str, a: usize, many: usize, b: usize, others: usize| {
        if many + others > 0 {
            shown.push(json!([tag, a, many, b, others]));
        }
    };
    for op in ops {
        match *op {
            DiffOp::Equal { old_index, new_index, len } => {
                let is_same = |at: usize| a.get(old_index + at) == b.get(new_index + at);
                let mut from = 0;
                while from < len {
                    let same = is_same(from);
                    let to = (from..len).find(|at| is_same(*at) != same).unwrap_or(len);
                    let tag = if same { "same" } else { "changed" };
                    add(tag, old_index + from, to - from, new_index + from, to - from);
                    from = to;
                }
            }
            DiffOp::Delete { old_index, old_len, new_index } => add("only_a", old_index, old_len, new_index, 0),
            DiffOp::Insert { old_index, new_index, new_len } => add("only_b", old_index, 0, new_index, new_len),
            DiffOp::Replace { old_index, old_len, new_index, new_len } => {
                add("only_a", old_index, old_len, new_index, 0);
                add("only_b", old_index + old_len, 0, new_index, new_len);
            }
        }
    }
    shown
}

fn last_states(runs: &[ComparedRun; 2], graphs: &FindGraph, key: &PublicKey) -> Result<[Value; 2], ViewProblem> {
    let state = |run: &ComparedRun| {
        let graph = run.shown.with(|index| graph_of(graphs, index))?;
        let records = run.shown.with(|index| index.records.clone());
        let entry = entry_at(&graph, &run.run, &records, key, None, None);
        Ok::<_, ViewProblem>(entry.map_err(|error| ViewProblem::unfit(format!("run {}: {error}", run.run)))?.state)
    };
    Ok([state(&runs[0])?, state(&runs[1])?])
}
