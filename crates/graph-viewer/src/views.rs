//! The views of a run that need its graph: the diagram with the ways that were taken, the state after a step, the questions.

use std::sync::{Arc, Mutex, PoisonError};

use graph_diagram::Diagram;
use graph_runtime::answer::{Question, questions};
use graph_runtime::dynamic::Interpreted;
use graph_runtime::history::{HistoryEntry, differences, entry_at, traversal};
use graph_runtime::record::SignedRecord;
use graph_runtime::{Machine as _, PublicKey, RunId};
use serde_json::{Value, json};

use crate::FindGraph;
use crate::index::{RunIndex, ShownRun, blocking};
use crate::listing::shown_time;
use crate::problem::ViewProblem;
use crate::recent::Recent;

/// How many states are kept.
const MOST_STATES: usize = 64;

/// The most bytes of all states that are kept.
const MOST_BYTES: usize = 64 << 20;

/// A state of a run: the run, the link of its first record, and the number of visits before it.
type StateId = (RunId, String, u64);

/// The states that were computed last, as JSON texts.
#[derive(Default)]
pub(crate) struct StateCache {
    states: Mutex<Recent<StateId, Arc<String>>>,
}

impl StateCache {
    fn get(&self, id: &StateId) -> Option<Arc<String>> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner).get(id)
    }

    fn insert(&self, id: StateId, state: Arc<String>) {
        let mut states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        states.insert(id, state);
        let is_too_large = |states: &Recent<StateId, Arc<String>>| {
            states.len() > MOST_STATES || states.values().map(|state| state.len()).sum::<usize>() > MOST_BYTES
        };
        while states.len() > 1 && is_too_large(&states) {
            states.forget_one();
        }
    }
}

/// Finds the graph of a run.
pub(crate) fn graph_of(graphs: &FindGraph, index: &RunIndex) -> Result<Interpreted, ViewProblem> {
    let Some(start) = &index.start else {
        return Err(ViewProblem::unfit("its journal does not begin with the start of a run"));
    };
    graphs(&start.graph, Some(start)).map_err(ViewProblem::unfit)
}

/// Draws the graph of a run, with the ways that it took.
pub(crate) async fn diagram(
    shown: &Arc<ShownRun>,
    graphs: &Arc<FindGraph>,
    run: &RunId,
    key: &PublicKey,
) -> Result<String, ViewProblem> {
    let (shown, graphs, run, key) = (Arc::clone(shown), Arc::clone(graphs), run.clone(), key.clone());
    blocking(move || {
        let (graph, records) = taken(&shown, &*graphs)?;
        let traversal = traversal(&graph, &run, &records, &key);
        let traversal = traversal.map_err(|error| ViewProblem::unfit(error.to_string()))?;
        Ok(without_style(&Diagram::of(graph.graph().topology()).with(traversal).svg()))
    })
    .await
}

/// Leaves out the styles of an image: the page has its own for it, and its policy lets no other style in. Texts of the image have no
/// tags, so the first one is that of its styles.
fn without_style(image: &str) -> String {
    match image.split_once("<style>").and_then(|(before, rest)| Some((before, rest.split_once("</style>")?.1))) {
        Some((before, after)) => format!("{before}{after}"),
        None => image.to_owned(),
    }
}

/// Returns the graph of a run, and its records, so that new ones can be added meanwhile.
fn taken(shown: &ShownRun, graphs: &FindGraph) -> Result<(Interpreted, Vec<SignedRecord>), ViewProblem> {
    let graph = shown.with(|index| graph_of(graphs, index))?;
    Ok((graph, shown.with(|index| index.records.clone())))
}

/// Returns the state after so many visits, and what differs from the state before the record that committed it.
pub(crate) async fn state(
    cache: &Arc<StateCache>,
    shown: &Arc<ShownRun>,
    graphs: &Arc<FindGraph>,
    run: &RunId,
    key: &PublicKey,
    step: u64,
) -> Result<Arc<String>, ViewProblem> {
    let (cache, shown, graphs) = (Arc::clone(cache), Arc::clone(shown), Arc::clone(graphs));
    let (run, key) = (run.clone(), key.clone());
    blocking(move || {
        let first = shown.with(|index| index.records.first().map(|record| record.link().to_hex())).unwrap_or_default();
        // Edits may follow the last step.
        let is_last = shown.with(|index| index.visited() == step);
        let id = (run.clone(), first, step);
        if let Some(known) = cache.get(&id).filter(|_| !is_last) {
            return Ok(known);
        }
        let before = shown.with(|index| {
            let record = index.steps.partition_point(|steps| *steps < step);
            let before = index.steps_before(record);
            let begins = index.start.as_ref().is_some_and(|start| start.from.is_some()) && record <= 1;
            (step > 0 && before < step && !begins).then_some(before)
        });
        let (graph, records) = taken(&shown, &*graphs)?;
        let at = |step: u64| {
            entry_at(&graph, &run, &records, &key, None, Some(step))
                .map_err(|error| ViewProblem::unfit(error.to_string()))
        };
        // A long run is followed from its beginning for each of the two.
        let (entry, before) = std::thread::scope(|scope| {
            let before = before.map(|before| scope.spawn(move || at(before)));
            let entry = at(step);
            let before = before.map(|thread| {
                thread.join().map_err(|_| ViewProblem::unfit("the state before cannot be computed")).flatten()
            });
            (entry, before)
        });
        let entry = entry?;
        let before = before.transpose()?;
        let differences = before.as_ref().map_or_else(Vec::new, |before| changes(&before.state, &entry.state));
        let state = Arc::new(entry_json(&entry, before.as_ref(), &differences).to_string());
        if !is_last {
            cache.insert(id, Arc::clone(&state));
        }
        Ok(state)
    })
    .await
}

/// Returns what differs between two values.
pub(crate) fn changes(before: &Value, after: &Value) -> Vec<Value> {
    let found = differences(before, after);
    found.iter().map(|one| json!({"path": one.path, "before": one.before, "after": one.after})).collect()
}

fn entry_json(entry: &HistoryEntry, before: Option<&HistoryEntry>, differences: &[Value]) -> Value {
    let HistoryEntry { step, at, state, next, last, errors, .. } = entry;
    json!({
        "step": step, "at": at, "last": last, "next": next, "state": state, "errors": errors,
        "before": before.map(|before| before.step), "differences": differences,
    })
}

/// Returns the questions of a run that are open, as its journal proves them, with the answers that fit.
pub(crate) async fn asked(
    shown: &Arc<ShownRun>,
    graphs: &Arc<FindGraph>,
    run: &RunId,
    key: &PublicKey,
) -> Result<Value, ViewProblem> {
    let (shown, graphs, run, key) = (Arc::clone(shown), Arc::clone(graphs), run.clone(), key.clone());
    blocking(move || {
        let (graph, records) = taken(&shown, &*graphs)?;
        let open = questions(&graph, &run, &records, &key);
        let open = open.map_err(|error| ViewProblem::unfit(ViewProblem::chain(&error)))?;
        let open: Vec<Value> = open.iter().map(|question| question_json(&graph, &*graphs, question)).collect();
        Ok(json!({"open": open}))
    })
    .await
}

fn question_json(graph: &Interpreted, graphs: &FindGraph, question: &Question) -> Value {
    let Question { wait, node, payload, role, count, opened, due, .. } = question;
    // A question of a nested run is that of another graph.
    let inner = if question.graph() == graph.id() { None } else { graphs(question.graph(), None).ok() };
    let asking = inner.as_ref().unwrap_or(graph);
    let answer = asking.interface().answers.iter().find(|answer| answer.name == *node);
    json!({
        "wait": wait, "node": node, "graph": question.graph(), "payload": payload, "role": role, "count": count,
        "opened": shown_time(*opened), "due": due.map(shown_time),
        "secret": question.secrets(graph).is_some(),
        "answer": answer.map(|answer| shape(&answer.ty)),
        "description": answer.and_then(|answer| answer.description.clone()),
    })
}

/// Describes the values of a type: in words, and by the words that it allows.
fn shape(ty: &graph_compiler::types::Type) -> Value {
    use graph_compiler::types::TypeKind;
    let (kind, words): (&str, Vec<String>) = match &ty.kind {
        TypeKind::Enum(words) => ("words", words.clone()),
        TypeKind::Boolean => ("boolean", Vec::new()),
        TypeKind::String => ("text", Vec::new()),
        TypeKind::Integer | TypeKind::Number => ("number", Vec::new()),
        _ => ("json", Vec::new()),
    };
    json!({"text": ty.to_string(), "kind": kind, "words": words, "nullable": ty.nullable})
}
