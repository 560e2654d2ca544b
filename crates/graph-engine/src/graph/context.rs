//! The values that expressions can read besides a tool's result.

use std::cell::OnceCell;
use std::sync::Arc;
use std::time::SystemTime;

use graph_model::timestamp;
use graph_model::value::{AsView, Map, NamedFields, Value, View};

use crate::activation::{Change, Frame};
use crate::failure::LastError;
use crate::state::StateFields;

/// The values that expressions can read besides a tool's result.
pub struct EvalContext<'a> {
    /// The state as the last step left it.
    pub state: &'a dyn StateFields,
    /// The last failure of a node.
    pub last_error: Option<&'a LastError>,
    /// How many times the call of each node was made again at its last visit, by the nodes' names (R136).
    pub retries: RetriesSeen<'a>,
    /// How many times the node has been visited, including this time; 0 if no node of the graph asks for it.
    pub visit: u64,
    /// The result of its last visit.
    pub previous: Option<&'a Value>,
    /// The branch that the node is visited in.
    pub frame: Option<&'a Arc<Frame>>,
    /// The time of the step.
    pub now: &'a Now<'a>,
}

/// How many times calls were made again, as a visit sees it: the position's counts, except that of the visit's own node.
#[derive(Clone, Copy)]
pub struct RetriesSeen<'a> {
    /// The counts of the position, by the names of nodes.
    pub all: &'a Retries,
    /// The visit's own node, and how many times its call was made again in this visit; `None` if no call was made again
    /// anywhere.
    pub own: Option<(&'a str, i64)>,
}

impl NamedFields for RetriesSeen<'_> {
    fn get(&self, name: &str) -> View<'_> {
        match self.own {
            Some((own, 0)) if own == name => View::Null,
            Some((own, again)) if own == name => View::Integer(again),
            _ => NamedFields::get(self.all, name),
        }
    }

    fn each(&self, visit: &mut dyn FnMut(&str, View<'_>)) {
        let is_own = |name: &str| self.own.is_some_and(|(own, _)| own == name);
        self.all.iter().filter(|(name, _)| !is_own(name)).for_each(|(name, again)| visit(name, again.view()));
        if let Some((own, again)) = self.own.filter(|(_, again)| *again > 0) {
            visit(own, View::Integer(again));
        }
    }
}

/// How many times the calls of nodes were made again, by the nodes' names.
pub type Retries = Map<String, Value>;

/// The time of a step: read from the clock once, and only if it is asked for.
pub struct Now<'c> {
    clock: &'c (dyn Fn() -> SystemTime + Sync),
    at: OnceCell<SystemTime>,
    text: OnceCell<String>,
}

impl<'c> Now<'c> {
    /// A time that is read from `clock` when it is first asked for.
    #[inline]
    pub fn new(clock: &'c (dyn Fn() -> SystemTime + Sync)) -> Self {
        Self { clock, at: OnceCell::new(), text: OnceCell::new() }
    }

    /// The time `at`, if there is one; otherwise a time that is read from `clock`.
    pub fn known_at(clock: &'c (dyn Fn() -> SystemTime + Sync), at: Option<SystemTime>) -> Self {
        let now = Self::new(clock);
        if let Some(at) = at {
            now.at.get_or_init(|| at);
        }
        now
    }

    /// Returns the time, if it was asked for.
    #[inline]
    pub fn known(&self) -> Option<SystemTime> {
        self.at.get().copied()
    }

    /// Returns the time.
    pub fn at(&self) -> SystemTime {
        *self.at.get_or_init(self.clock)
    }

    /// Returns the time as RFC 3339 text in UTC with whole seconds (R56).
    pub fn text(&self) -> &str {
        self.text.get_or_init(|| timestamp::seconds(self.at()))
    }

    /// Returns the milliseconds since the Unix epoch (R56).
    pub fn milliseconds(&self) -> i64 {
        timestamp::unix_milliseconds(self.at())
    }
}

/// The results of an evaluation besides its value.
#[derive(Debug, Default)]
pub struct Notes {
    warnings: Vec<String>,
    /// The values of channels as a node sees them after its own writes, if a function of the program combined them.
    reduced: Vec<Change>,
}

impl Notes {
    /// Notes that an expression found nothing (R68).
    pub fn resolved_to_nothing<'a>(&mut self, paths: impl IntoIterator<Item = &'a str>) {
        let paths: Vec<&str> = paths.into_iter().collect();
        self.warnings.push(format!("`${{{}}}` found nothing", paths.join(" || ")));
    }

    /// Notes the value of a channel that a function of the program combined with a node's own write, and that the node
    /// reads afterwards.
    pub(super) fn reduced(&mut self, key: usize, value: Value) {
        self.reduced.retain(|change| change.key != key);
        self.reduced.push(Change { key, value });
    }

    /// Forgets the values of channels: the writes of the node are computed again.
    pub(super) fn forget_reduced(&mut self) {
        self.reduced.clear();
    }

    /// Takes the values of channels as the node saw them after its own writes.
    pub fn take_reduced(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.reduced)
    }

    /// Whether there are no warnings.
    pub fn is_empty(&self) -> bool {
        self.warnings.is_empty()
    }

    /// Takes the warnings.
    pub fn take(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }
}
