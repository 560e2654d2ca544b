//! Edits of runs: their summary, and when they fit a run.

use graph_engine::graph::GraphTables;
use graph_engine::past::Past;
use graph_engine::record::{ChangeError, CompletedCalls, Edit, StateChanges};
use graph_engine::step::Position;
use graph_model::character::is_invisible;
use graph_model::secret::Mask;
use graph_model::value::Value;

/// A change that a person made to the state of a run while it was not in progress.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct EditSummary {
    /// The record.
    pub record: u64,
    /// When it was made: RFC 3339 in UTC with milliseconds.
    pub at: String,
    /// How many nodes had been visited.
    pub step: u64,
    /// The name of the person who made it, as the holder of the journal's key gave it.
    pub by: String,
    /// Why.
    pub why: String,
    /// The keys that were overwritten.
    pub set: Vec<String>,
    /// The keys that were written as a node writes them: a channel combined the write with its value.
    pub written: Vec<String>,
}

impl EditSummary {
    pub(crate) fn of(record: u64, at: &str, edit: &Edit) -> Self {
        Self {
            record,
            at: at.to_owned(),
            step: edit.steps,
            by: edit.by.clone(),
            why: edit.why.clone(),
            set: edit.set.keys().cloned().collect(),
            written: edit.write.keys().cloned().collect(),
        }
    }
}

/// The maximum number of characters in a name and in a reason.
const MOST_CHARACTERS: usize = 1000;

/// The reason why a run cannot be edited as asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EditMisfit {
    /// The change does not fit the graph.
    #[error(transparent)]
    Change(#[from] ChangeError),
    /// It changes nothing.
    #[error("it changes no state key")]
    Nothing,
    /// It does not say who makes it, or why, in one line.
    #[error("it does not say {what} in one line of at most {MOST_CHARACTERS} visible characters")]
    Unsaid {
        /// The missing or unfit member: `who makes it` or `why it is made`.
        what: &'static str,
    },
    /// A value contains a secret, and the key does not keep secrets.
    #[error("the value for the state key `{key}` contains a secret of the run, and the key does not keep secrets")]
    Secret {
        /// The key.
        key: String,
    },
    /// A key cannot be unset.
    #[error("the state key `{key}` cannot be unset: {why}")]
    Unset {
        /// The key.
        key: String,
        /// Why not.
        why: String,
    },
    /// A call of the next step depends on the key, and has begun.
    #[error(
        "the state key `{key}` cannot be changed: a call of node `{node}` (visit {step}) was made with its value and is not \
         begun again; fork the run instead"
    )]
    CallMade {
        /// The key.
        key: String,
        /// The node.
        node: String,
        /// The number of the visit.
        step: u64,
    },
}

/// Fails unless the edit can be made at a position of a run, whatever the run's state is. `done` are the finished calls
/// of the next step: a key that the parameters of one of them depend on keeps its value, so that a result never belongs
/// to other parameters.
///
/// # Errors
///
/// The first reason why not.
pub(crate) fn check(
    edit: &Edit,
    graph: &GraphTables,
    position: &Position,
    done: &CompletedCalls,
) -> Result<(), EditMisfit> {
    for (text, what) in [(&edit.by, "who makes it"), (&edit.why, "why it is made")] {
        let is_seen = |character: char| !character.is_control() && !is_invisible(character);
        if text.trim().is_empty() || text.chars().count() > MOST_CHARACTERS || !text.chars().all(is_seen) {
            return Err(EditMisfit::Unsaid { what });
        }
    }
    let changes = edit.changes();
    changes.check_keys(graph)?;
    if changes.keys().next().is_none() {
        return Err(EditMisfit::Nothing);
    }
    let nulls = edit.set.iter().chain(&edit.write).filter(|(_, value)| value.is_null());
    for (name, _) in nulls {
        let unset = |why| Err(EditMisfit::Unset { key: name.clone(), why });
        let Some(key) = graph.key_named(name) else { continue };
        if graph.keys[key].reducer.is_some() {
            return unset("it is a channel; set it to a value".to_owned());
        }
        if let Some(node) = graph.reads_without_fallback(key) {
            return unset(format!("`{node}` reads it without a fallback"));
        }
    }
    // The call of a visit that a hook suspended is made again.
    let is_done = |step| done.values().any(|done| done.step == step && done.suspended.is_none());
    keeps_calls(edit, graph, position, |step| is_done(step) || position.has_asked(graph, step))
}

/// Fails if it changes a key that the parameters of a call of the next step depend on, for the visits whose calls
/// `have_begun`.
///
/// # Errors
///
/// [`EditMisfit::CallMade`].
pub(crate) fn keeps_calls(
    edit: &Edit,
    graph: &GraphTables,
    position: &Position,
    have_begun: impl Fn(u64) -> bool,
) -> Result<(), EditMisfit> {
    for at in position.open().filter(|at| have_begun(at.number)) {
        let read = |name: &&String| graph.key_named(name).is_some_and(|key| graph.call_reads(at.node, key));
        if let Some(key) = edit.changes().keys().find(read) {
            let node = graph.node(at.node).name.clone();
            return Err(EditMisfit::CallMade { key: key.clone(), node, step: at.number });
        }
    }
    Ok(())
}

/// Returns the first key whose new value has a secret of the run where the key keeps none.
pub(crate) fn leaks(past: &Past<'_>, changes: StateChanges<'_>) -> Option<String> {
    let (run_secrets, code) = (past.run_secrets()?, past.graph());
    let set = changes.set.iter().map(|(key, value)| (key, value, code.settings.secrets.keys.get(key)));
    let written = changes.write.iter().map(|(key, value)| (key, value, code.mask_of_write(key, value)));
    let leaks = |(_, value, mask): &(_, &Value, Option<&Mask>)| run_secrets.scrub_value(&mut (*value).clone(), *mask);
    set.chain(written).find(leaks).map(|(key, ..)| key.clone())
}
