//! Hooks: the certain outcomes of the graph's own hooks, which come before the possible outcomes of the program's hooks.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use graph_engine::activation::Activation;
use graph_engine::graph::{Notes, Now, Steering};
use graph_engine::hooks::{CANNOT_ESCALATE, CANNOT_WAIT, Control};
use graph_engine::record::Visit;
use graph_engine::run_secrets::{hidden, result_mask};
use graph_engine::step::{Env, Overvisited, at_limit, hook_values, most_extended};
use graph_model::program::{Event, LimitCode};
use graph_model::value::{AsView, Value};

use crate::audit::replayer::{HookOutcome, Replayer};

impl HookOutcome {
    /// Returns the error with which a run certainly ends.
    fn error(&self) -> Option<&str> {
        match self {
            Self::Sure(Control::Fail { error }) => Some(error),
            Self::Sure(Control::Abort) => Some("aborted by a hook"),
            _ => None,
        }
    }

    /// Whether a run can end with an error because of it.
    pub(super) fn may_end(&self, error: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Sure(Control::Suspend { escalated, .. }) => {
                error == CANNOT_WAIT || (escalated.is_some() && error == CANNOT_ESCALATE)
            }
            Self::Sure(_) => self.error() == Some(error),
        }
    }

    /// Fails if a run certainly ends because of it.
    pub(super) fn goes_on(&self) -> Result<(), String> {
        match self.error() {
            None => Ok(()),
            Some(error) => Err(format!("a hook of the graph ends the run before it: {error}")),
        }
    }
}

impl Replayer<'_> {
    /// Returns the outcome of the hooks at the start of the run.
    pub(super) fn outcome_at_start(&self) -> HookOutcome {
        self.hook_outcome(Event::GraphStarted, self.position.next_node(self.code), [])
    }

    /// Returns the outcome of the hooks when the run has reached its step limit.
    pub(super) fn outcome_at_limit(&self) -> HookOutcome {
        let node = self.position.next_node(self.code);
        let values = at_limit(LimitCode::MaxSteps, self.position.steps, self.most_steps(), None);
        self.hook_outcome(Event::Limit, node, values)
    }

    /// Returns the outcome of the hooks when the run would visit a node more often than it may.
    pub(super) fn outcome_at_visits(&self, over: Overvisited) -> HookOutcome {
        let name = &self.code.node(over.node).name;
        let values = at_limit(LimitCode::Visits, over.visits, u64::from(over.most), Some(name));
        self.hook_outcome(Event::Limit, over.node, values)
    }

    /// Returns the outcome of the hooks when the run would take more steps than it may with those of the runs inside it and around
    /// it. Hooks see how many were taken, which is known only if no other run counts, and none had begun before a resume.
    pub(super) fn outcome_at_nested_steps(&self) -> HookOutcome {
        let own = self.code.settings.steps.filter(|_| self.steps_around.is_none() && self.sessions.len() == 1);
        let Some(most) = own else { return HookOutcome::Any };
        let node = self.position.next_node(self.code);
        self.hook_outcome(Event::Limit, node, at_limit(LimitCode::Steps, self.nested_steps(), u64::from(most), None))
    }

    /// Whether hooks can have raised the run's step limit to `limit` (R131).
    pub(super) fn is_extension(&self, limit: u64) -> bool {
        let most = self.most_steps();
        if !self.is_exhausted() || limit <= most || limit > most_extended(self.code) {
            return false;
        }
        match self.outcome_at_limit() {
            HookOutcome::Any => limit - most <= u64::from(u32::MAX),
            HookOutcome::Sure(control) => control
                .additional_steps()
                .is_some_and(|additional| self.position.extended(self.code, additional) == Some(limit)),
        }
    }

    /// Returns the outcome of the hooks after a committed visit, which leads to `next`.
    pub(super) fn outcome_after(&self, visit: &Visit, next: Option<&str>) -> HookOutcome {
        // The data of a failure besides its text is not always recorded.
        if visit.error.is_some() || self.code.hooks(Event::AfterStep).next().is_none() {
            return HookOutcome::Any;
        }
        let Some(node) = self.code.node_named(&visit.node) else { return HookOutcome::Any };
        let mask = result_mask(self.code, node);
        // Hooks receive no results of a foreach's calls, and a node without a call has no result.
        let result = hidden(mask, visit.result.clone());
        let values = [
            ("node", Value::from(visit.node.as_str())),
            ("next_node", next.map_or(Value::Null, Value::from)),
            ("result", result),
        ];
        self.hook_outcome(Event::AfterStep, node, values)
    }

    fn hook_outcome<const N: usize>(&self, event: Event, node: u16, values: [(&'static str, Value); N]) -> HookOutcome {
        if self.code.hooks(event).next().is_none() {
            return HookOutcome::Any;
        }
        let Some(state) = self.state.as_deref() else { return HookOutcome::Any };
        let hook_values = hook_values(self.code, state, &self.position, values);
        for hook in self.code.hooks(event) {
            let asked = AtomicBool::new(false);
            let clock = || {
                asked.store(true, Ordering::Relaxed);
                SystemTime::UNIX_EPOCH
            };
            let now = Now::new(&clock);
            let at = Activation::of(node);
            let env = Env::new(self.code, &self.position, state, &at, &now);
            let steering = self.code.hook(hook, &env.context, &hook_values, &mut Notes::default());
            if asked.load(Ordering::Relaxed) {
                return HookOutcome::Any;
            }
            match steering {
                // A hook that fails has no effect (R154).
                Err(_) | Ok(None) => {}
                Ok(Some(Steering::Call(_))) => return HookOutcome::Any,
                Ok(Some(Steering::Answer(answer))) => {
                    if let Some(control) = Control::read(answer.view()) {
                        return HookOutcome::Sure(control);
                    }
                }
            }
        }
        HookOutcome::Any
    }
}
