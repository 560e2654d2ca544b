//! Replaying: the state and the position that the records of a journal add up to.

use crate::engine::Ended;
use crate::graph::GraphTables;
use crate::machine::Machine;
use crate::past::opened;
use crate::record::{CompletedCalls, End, Entry, Journal, JournalError, Visit, hide_visit, retake};
use crate::state::StateFields;
use crate::step::{Position, state_value};

/// The sum of the records of a journal.
pub(crate) struct Replayed {
    /// The state after the last step.
    pub(crate) state: Box<dyn StateFields>,
    /// The position of the run.
    pub(crate) position: Position,
    /// The calls of the next step that are done.
    pub(crate) done: CompletedCalls,
}

/// Adds up the records of a journal, whose secrets are open.
pub(crate) fn replay(code: &GraphTables, machine: &dyn Machine, journal: &Journal) -> Result<Replayed, JournalError> {
    let misfit = |reason| JournalError::Misfit { seq: 0, reason };
    let mut state = opened(machine, journal.start.inputs.clone()).map_err(misfit)?;
    let (position, done) = follow(code, journal, Some(&mut *state))?;
    Ok(Replayed { state, position, done })
}

/// Follows the records of a journal, and writes to the state of its run as it begins. Without a state, its secrets may be encrypted.
/// Returns the position, and the calls of the next step that are done.
pub(crate) fn follow(
    code: &GraphTables,
    journal: &Journal,
    mut state: Option<&mut (dyn StateFields + 'static)>,
) -> Result<(Position, CompletedCalls), JournalError> {
    let misfit = |seq, reason: String| JournalError::Misfit { seq, reason };
    let mut position = journal.start.begin(code, state.as_deref_mut()).map_err(|reason| misfit(0, reason))?;
    let mut done = CompletedCalls::new();
    for (at, record) in journal.records.iter().enumerate() {
        let misfit = |reason| misfit(record.seq, reason);
        match &record.entry {
            Entry::Step(step) => {
                step.keep_calls(&mut done);
                retake(code, state.as_deref_mut(), &mut position, step).map_err(misfit)?;
            }
            // A snapshot that follows other records says nothing new.
            Entry::Snapshot(snapshot) if at == 0 => {
                position = snapshot.restore(code, state.as_deref_mut()).map_err(misfit)?;
            }
            Entry::Calls(calls) => {
                done.extend(calls.done.iter().map(|done| ((done.step, done.item), done.clone())));
            }
            Entry::End(end) => done.retain(|_, done| !end.forgets(done)),
            Entry::Take(take) => position.take_waits(code, &take.taken).map_err(misfit)?,
            Entry::Resume(resume) => resume.apply(&mut position),
            Entry::Edit(edit) => {
                let edited = edit.changes().apply(code, &mut position, state.as_deref_mut());
                edited.map_err(|error| misfit(error.to_string()))?;
            }
            Entry::Start(_) | Entry::Snapshot(_) => {}
        }
    }
    Ok((position, done))
}

/// Adds up the records of the journal of a run that has not ended with a result.
pub(crate) fn add_up(code: &GraphTables, machine: &dyn Machine, journal: &Journal) -> Result<Replayed, JournalError> {
    let replayed = replay(code, machine, journal)?;
    if replayed.position.is_over() {
        // A run's last step and its end are written together: somebody removed the end.
        let reason = "the run had ended, and the record of its end is missing".to_owned();
        return Err(JournalError::Misfit { seq: journal.chain.count(), reason });
    }
    Ok(replayed)
}

/// Returns the result of a run that ended with one. It contains the visits if they are kept, and the whole journal was read
/// then.
pub(crate) fn result_of(
    code: &GraphTables,
    machine: &dyn Machine,
    journal: &Journal,
    keeps_history: bool,
) -> Result<Option<Ended>, JournalError> {
    let Some(end) = journal.end() else { return Ok(None) };
    let End { status, steps, output, exhausted, unread, .. } = end;
    if !status.has_result() {
        return Ok(None);
    }
    let Replayed { state, position, .. } = replay(code, machine, journal)?;
    let state = state_value(code, &*state, &position);
    let exhausted = *exhausted && code.flags_limit();
    let history = journal.records.iter().filter(|_| keeps_history).filter_map(|record| match &record.entry {
        Entry::Step(step) => Some(step.visits.clone()),
        _ => None,
    });
    let hide = |mut visit: Visit| {
        hide_visit(code, &mut visit);
        visit
    };
    Ok(Some(Ended {
        status: *status,
        node: code.node(position.last).name.clone(),
        output: output.clone(),
        hidden: code.settings.secrets.output.as_ref().map(|mask| Box::new(mask.hide(output.clone()))),
        state,
        steps: *steps,
        shared: position.shared_writes(code),
        suppressed: position.suppressed,
        exhausted,
        history: history.flatten().map(hide).collect(),
        unread: unread.clone(),
    }))
}

/// Returns the nodes that a run visited or is to visit next and that a graph does not have.
pub(crate) fn gone(code: &GraphTables, journal: &Journal) -> Vec<String> {
    let steps = journal.records.iter().filter_map(|record| match &record.entry {
        Entry::Step(step) => Some(step),
        _ => None,
    });
    let mut gone: Vec<String> = Vec::new();
    for step in steps {
        let visited = step.visits.iter().map(|visit| &visit.node).chain(step.next.iter().map(|target| &target.node));
        for node in visited {
            if code.node_named(node).is_none() && !gone.contains(node) {
                gone.push(node.clone());
            }
        }
    }
    gone
}
