//! Waits: visits that are opened in one step and completed in a later one.

use std::collections::{BTreeMap, BTreeSet};

use graph_model::timestamp;
use graph_model::value::{AsView, Value, describe};

use crate::activation::Activation;
use crate::address;
use crate::failure::Failure;
use crate::graph::{CompiledWait, GraphTables, Notes};
use crate::step::context::Env;
use crate::step::opened::{OpenWait, Opening, TakenSignal, TakenWait};
use crate::step::paused::{Pause, Suspension};
use crate::step::position::Position;
use crate::wait::Wait;

/// The most levels of what people are shown, so that their answer can hold it.
const MOST_LEVELS_OF_PAYLOADS: usize = 50;

/// Returns what a node computes before it waits.
///
/// # Errors
///
/// If a time is not one, or a payload has too many levels: a failure of the node.
pub(super) fn opening(env: &Env<'_>, wait: &CompiledWait, notes: &mut Notes) -> Result<Opening, Box<Failure>> {
    let until = until(env, wait, notes)?;
    let payload = wait.ask.as_ref().and_then(|ask| ask.payload.as_ref());
    let payload = payload.map(|payload| env.graph.evaluate(payload, &env.context, notes));
    payload.as_ref().map_or(Ok(()), check_payload)?;
    Ok(Opening { until, payload, ..Opening::default() })
}

/// Fails if a value has too many levels to be shown to people.
pub(crate) fn check_payload(payload: &Value) -> Result<(), Box<Failure>> {
    if payload.view().is_within(MOST_LEVELS_OF_PAYLOADS) {
        return Ok(());
    }
    Err(Failure::permanent(format!("`payload` has more than {MOST_LEVELS_OF_PAYLOADS} levels")).into())
}

fn until(env: &Env<'_>, wait: &CompiledWait, notes: &mut Notes) -> Result<Option<i64>, Box<Failure>> {
    let Some(until) = &wait.until else { return Ok(None) };
    let value = env.graph.evaluate(until, &env.context, notes);
    let time = value.as_str().and_then(timestamp::with_offset);
    let time = time.map(timestamp::unix_milliseconds).ok_or_else(|| {
        let found = match &value {
            Value::String(text) => format!("`{text}`"),
            other => describe(other.view()),
        };
        Failure::permanent(format!(
            "`until` is a date and a time with an offset, as `2026-11-21T20:00:00+01:00`, and found {found}"
        ))
    })?;
    Ok(Some(time))
}

/// The visits whose nested runs can continue, as far as they wait.
#[derive(Debug, Default)]
pub struct ReadyInside {
    /// All of them.
    pub steps: BTreeSet<u64>,
    /// The waits that signals of the nested runs themselves reach, by their ids, with the order of the first of these: they receive no
    /// shared signal behind it.
    pub reached: BTreeMap<String, u64>,
    /// The order of the first of these signals, and when it came, by the numbers of the visits.
    pub first: BTreeMap<u64, (u64, i64)>,
}

impl Position {
    /// Returns the waits that are over at a time of the store, in the order of the visits. `signals` are those that no wait has
    /// taken, in the order of their receipt: each ends the wait with the lowest number that receives it and was not due before. A
    /// nested run receives those that its visit shares. `resumed` are the visits whose nested runs can continue otherwise.
    pub fn over(
        &self,
        graph: &GraphTables,
        at: i64,
        signals: impl IntoIterator<Item = TakenSignal>,
        resumed: &ReadyInside,
    ) -> Vec<TakenWait> {
        let mut over: BTreeMap<u64, TakenWait> = BTreeMap::new();
        for signal in signals {
            if self.received.contains(&signal.order) {
                continue;
            }
            let mut open = self.waits.iter().filter(|wait| !over.contains_key(&wait.step));
            let received =
                open.find_map(|wait| Some((wait.step, self.receiver(graph, wait, &signal, at, &resumed.reached)?)));
            if let Some((step, call)) = received {
                over.insert(step, TakenWait { call, ..TakenWait::new(step, at).with(signal) });
            }
        }
        let is_over = |wait: &&OpenWait| match wait.opened.is_inside() {
            true => resumed.steps.contains(&wait.step),
            false => wait.opened.due.is_some_and(|due| due <= at),
        };
        for wait in self.waits.iter().filter(is_over) {
            over.entry(wait.step).or_insert_with(|| TakenWait::new(wait.step, at));
        }
        over.into_values().collect()
    }

    /// Whether a visit that waits for nested runs shares a signal with them.
    fn shares(&self, graph: &GraphTables, step: u64, name: &str) -> bool {
        let at = self.parked.iter().find(|at| at.number == step);
        at.is_some_and(|at| graph.node(at.node).share_signals.iter().any(|shared| shared == name))
    }

    /// Returns the number of the call whose run receives a signal, which came before its wait was over; 0 if the visit itself receives
    /// it. A run whose deadline is over receives nothing.
    fn receiver(
        &self,
        graph: &GraphTables,
        wait: &OpenWait,
        signal: &TakenSignal,
        at: i64,
        reached: &BTreeMap<String, u64>,
    ) -> Option<u64> {
        let name = signal.own_name();
        if wait.opened.is_inside() {
            let shares = self.shares(graph, wait.step, name);
            let is_free = |inner: &Wait| reached.get(inner.id.as_str()).is_none_or(|first| signal.order < *first);
            let accepts =
                |inner: &&Wait| inner.accepts(name, signal.at) && !wait.opened.is_overdue(inner, at) && is_free(inner);
            let id = wait.opened.inside.iter().filter(|_| shares).find(accepts)?.id.as_str();
            return address::calls(address::split(id).0)?.first().map(|call| call.call);
        }
        let is_named = self.awaited(graph, wait).iter().any(|awaited| awaited == name);
        (is_named && wait.opened.due.is_none_or(|due| signal.at < due)).then_some(0)
    }

    /// Returns the names of the signals that can end the wait of a visit. A question has the id of its wait for its answer.
    pub fn awaited(&self, graph: &GraphTables, wait: &OpenWait) -> Vec<String> {
        match self.wait_of(graph, wait.step) {
            _ if wait.opened.pause.is_some() => vec![wait.id()],
            Some(CompiledWait { ask: Some(_), .. }) => vec![wait.id()],
            Some(wait) => wait.signals.clone(),
            None => Vec::new(),
        }
    }

    /// Returns what a visit waits for.
    pub fn wait_of<'g>(&self, graph: &'g GraphTables, step: u64) -> Option<&'g CompiledWait> {
        let at = self.parked.iter().find(|at| at.number == step)?;
        graph.node(at.node).wait()
    }

    /// Returns how a hook suspended a visit that waits for its release.
    pub fn suspension_of(&self, step: u64) -> Option<Suspension> {
        self.waits.iter().find(|wait| wait.step == step)?.opened.suspension()
    }

    /// Whether the tool of a visit has asked people, and has not returned.
    pub fn has_asked(&self, graph: &GraphTables, step: u64) -> bool {
        let asks = |at: &&Activation| at.number == step && graph.tool_may_ask(at.node);
        let is_open = |wait: &OpenWait| wait.step == step && wait.opened.pause.is_none();
        let has_asked = || self.waits.iter().any(is_open) || !self.answers(step).is_empty();
        self.open().find(asks).is_some() && has_asked()
    }

    /// Returns the answers that people gave the tool of a visit that has not returned yet, in the order of its questions.
    pub fn answers(&self, step: u64) -> &[TakenSignal] {
        if self.waited.is_empty() { &[] } else { self.waited.get(&step).map_or(&[], |waited| &waited.answers) }
    }

    /// Whether an open wait waits for signals.
    pub fn listens(&self, graph: &GraphTables) -> bool {
        let inside = |wait: &OpenWait| wait.opened.inside.iter().any(|wait| !wait.signals.is_empty());
        let own = |wait: &OpenWait| self.wait_of(graph, wait.step).is_some_and(CompiledWait::listens);
        self.waits.iter().any(|wait| wait.opened.pause.is_some() || inside(wait) || own(wait))
    }

    /// Returns the earliest time at which a wait is due.
    pub fn next_due(&self) -> Option<i64> {
        self.waits.iter().filter_map(|wait| wait.opened.next_due()).min()
    }

    /// Whether nothing is left to do before a wait is over.
    pub fn is_waiting(&self) -> bool {
        self.frontier.is_empty() && !self.waits.is_empty()
    }

    /// Continues the visits whose waits are over, in the next step.
    ///
    /// # Errors
    ///
    /// If a visit does not wait, its time has not come, or it does not receive the signal.
    pub fn take_waits(&mut self, graph: &GraphTables, taken: &[TakenWait]) -> Result<(), String> {
        for taken in taken {
            let place = self.waits.binary_search_by_key(&taken.step, |wait| wait.step);
            let place = place.map_err(|_| format!("visit {} does not wait", taken.step))?;
            let wait = &self.waits[place];
            match &taken.signal {
                // Nested runs may be looked at at any time. Their own journals say why they continued.
                None if wait.opened.is_inside() => {}
                None if wait.opened.due.is_none_or(|due| due > taken.at) => {
                    return Err(format!("the time of visit {} had not come", taken.step));
                }
                Some(signal) if !self.received.insert(signal.order) => {
                    return Err(format!("the signal `{}` was taken before", signal.name));
                }
                Some(signal)
                    if signal.at > taken.at
                        || self.receiver(graph, wait, signal, taken.at, &BTreeMap::new()) != Some(taken.call) =>
                {
                    return Err(format!("visit {} does not receive the signal `{}`", taken.step, signal.name));
                }
                _ => {}
            }
            let OpenWait { step, opened } = self.waits.remove(place);
            let has_waited = !opened.is_inside();
            let is_handed = !has_waited && taken.signal.is_some();
            let paths = opened.inside.iter().map(|wait| address::split(wait.id.as_str()).0);
            let calls = paths.filter_map(address::calls).filter_map(|calls| calls.first().copied());
            let again = calls.filter(|call| call.call > 1 && call.step == step);
            self.calls_left.extend(again.map(|call| ((step, call.item), call.call)));
            let parked = self.parked.iter().position(|at| at.number == taken.step);
            let parked = parked.ok_or_else(|| format!("visit {} is not parked", taken.step))?;
            let parked = self.parked.remove(parked);
            let has_paused = opened.pause.is_some();
            let asks = graph.node(parked.node).interrupts.is_some() && has_waited && !has_paused;
            self.frontier.push(parked);
            if has_waited {
                let waited = self.waited.entry(step).or_default();
                waited.waits = waited.waits.saturating_add(1);
                waited.released |= opened.pause.is_some_and(|pause| pause != Pause::Hook);
                waited.answers.extend(taken.signal.clone().filter(|_| asks));
            }
            if is_handed || (has_waited && !has_paused) {
                self.taken.insert(taken.step, taken.clone());
            }
        }
        self.frontier.sort_by(Activation::by_path);
        Ok(())
    }

    /// Returns the end of the wait of an activation, if it has waited.
    #[inline]
    pub fn taken(&self, at: &Activation) -> Option<&TakenWait> {
        if self.taken.is_empty() { None } else { self.taken.get(&at.number) }
    }
}

impl GraphTables {
    /// Whether a visit of a node waits before it is made.
    #[inline]
    pub fn waits(&self, node: u16) -> bool {
        self.can_wait && self.node(node).kind.wait().is_some()
    }

    /// Whether the tool of a node may ask people before it returns.
    #[inline]
    pub fn tool_may_ask(&self, node: u16) -> bool {
        self.can_wait && self.node(node).interrupts.is_some()
    }
}
