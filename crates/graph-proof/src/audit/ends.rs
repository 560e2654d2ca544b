//! Ends: checks whether the engine can have ended a run as a record states.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use graph_engine::Status;
use graph_engine::activation::Activation;
use graph_engine::failure::{Failure, HeldFailure, LastError};
use graph_engine::graph::{Asks, Notes, Now};
use graph_engine::hooks::Control;
use graph_engine::record::{End, RecordedState, Visit, VisitFailure};
use graph_engine::step::{
    CANCELLED, CallFacts, Env, GIVEN_UP, NESTED_STEPS, OVERDUE, Outcome, Overvisited, Planned, SettledVisit,
    StateWrites, UNFIT, UNRETURNED, exceeded, is_no_way, most_extended, output, plan, plan_item, settle, state_value,
    too_many_nested_steps,
};
use graph_engine::tool_caller::Request;
use graph_model::secret::HIDDEN;
use graph_model::timestamp;
use graph_model::value::View;

use crate::audit::failures::Called;
use crate::audit::replayer::{HookOutcome, Lost, Replayer, same};

impl Replayer<'_> {
    /// Ends the run, if it can end in this way.
    pub(super) fn end(&mut self, end: &End, at: SystemTime) -> Result<(), String> {
        same("number of visits", end.steps, self.position.steps)?;
        self.unread(end)?;
        match end.status {
            Status::Running | Status::Waiting => return Err("a run that has an end has a status with one".to_owned()),
            _ if end.status.has_result() => self.result(end, at)?,
            _ => self.without_result(end, at)?,
        }
        self.is_visiting = self.may_visit(end, at);
        self.status = end.status;
        self.forget(end);
        Ok(())
    }

    /// Fails if it names signals of a run inside another, which the outermost run receives, or answers. The journal does not have the
    /// signals that nothing took.
    fn unread(&self, end: &End) -> Result<(), String> {
        let is_signal = |(name, count): (&String, &u64)| *count > 0 && !name.contains('#');
        match end.unread.is_empty() || (!self.is_inside && end.unread.iter().all(is_signal)) {
            true => Ok(()),
            false => Err("it names something else than signals that the run had received".to_owned()),
        }
    }

    /// Fails unless the run can have ended with this result.
    fn result(&self, end: &End, at: SystemTime) -> Result<(), String> {
        let failed =
            end.error.is_some() || end.node.is_some() || end.code.is_some() || end.signal.is_some() || end.unfit;
        if failed || !end.failures.is_empty() {
            return Err("it has a result, and says how the run failed".to_owned());
        }
        same("status", end.status.name(), self.position.status_at_end().name())?;
        if !end.exhausted && !self.position.is_over() {
            return Err("nodes were still to be visited".to_owned());
        }
        if end.exhausted && self.code.fails_at_limit() {
            return Err("the graph does not return when the run has taken all the steps it may".to_owned());
        }
        if end.exhausted && (self.position.frontier.is_empty() || !self.is_exhausted() || !self.may_be_over()) {
            return Err("the run had not taken all the steps it may".to_owned());
        }
        if end.exhausted && matches!(self.outcome_at_limit(), HookOutcome::Sure(Control::Suspend { .. })) {
            return Err("a hook of the graph suspends the run at its limit".to_owned());
        }
        if end.exhausted && (end.now.is_some() || !end.warnings.is_empty()) {
            return Err("nothing is computed where a run has taken all the steps it may".to_owned());
        }
        let Some(state) = self.state.as_deref() else { return Ok(()) };
        let asked = AtomicBool::new(false);
        let recorded = end.now.map_or(at, timestamp::from_unix_milliseconds);
        let clock = || {
            asked.store(true, Ordering::Relaxed);
            recorded
        };
        let now = Now::new(&clock);
        let at = self.position.ended_at();
        let env = Env::new(self.code, &self.position, state, &at, &now);
        let mut notes = Notes::default();
        let output = match end.exhausted {
            true => self.code.keys(&env.context),
            false => output(&env, &mut notes),
        };
        if output != end.output {
            return Err("the graph returns something else".to_owned());
        }
        if !end.exhausted {
            let node = &self.code.node(self.position.last).name;
            self.machine.check_output(node, &output).map_err(|mismatch| format!("{UNRETURNED}{mismatch}"))?;
        }
        // The output is computed at the time of the last visit, if that visit received one.
        let is_recorded = match self.recorded.filter(|_| !end.exhausted) {
            Some(recorded) => end.now == Some(recorded),
            None => end.now.is_some() == asked.load(Ordering::Relaxed),
        };
        if !is_recorded {
            return Err("the output was computed with another time".to_owned());
        }
        if notes.take() == end.warnings { Ok(()) } else { Err("the output has other warnings".to_owned()) }
    }

    /// Fails unless the run can have ended without a result in this way.
    fn without_result(&self, end: &End, at: SystemTime) -> Result<(), String> {
        if self.position.is_over() {
            return Err("the run had come to its end".to_owned());
        }
        if !end.output.is_null() || end.now.is_some() || end.exhausted || !end.warnings.is_empty() {
            return Err("it has no result, and says what the result was".to_owned());
        }
        let Some(error) = &end.error else { return Err("it does not say why the run was given up".to_owned()) };
        if end.status == Status::Cancelled {
            let is_recorded =
                error == CANCELLED && end.node.is_none() && end.code.is_none() && !end.unfit && end.failures.is_empty();
            return if is_recorded { Ok(()) } else { Err("a cancelled run has no other error".to_owned()) };
        }
        if end.signal.is_some() {
            return Err("a run that failed was not cancelled by a signal".to_owned());
        }
        let has_failed = self.position.has_failed(self.code);
        if has_failed && self.is_held(end) {
            let index = end.node.as_ref().and_then(|node| self.code.node_named(node));
            index.map_or(Ok(()), |index| self.names_code(index, end, at))?;
            return self.hooks_go_on();
        }
        if !end.failures.is_empty() {
            return self.several_failed(end, at);
        }
        let Some(node) = &end.node else {
            let is_limit = || self.is_exceeded(error) || self.is_overvisited(error) || self.is_nested_exceeded(error);
            let is_known = error == OVERDUE || error == GIVEN_UP || (!has_failed && is_limit());
            return if is_known && !end.unfit && end.code.is_none() {
                Ok(())
            } else {
                Err("a run fails so only at a node".to_owned())
            };
        };
        let Some(index) = self.code.node_named(node) else { return Err(format!("there is no node `{node}`")) };
        if self.code.has_branches() && is_no_way(error) && end.code.is_none() && !end.unfit {
            return self.hooks_let_visit();
        }
        if end.unfit {
            if end.code.is_some() {
                return Err(format!("node `{node}` fails by itself, and no tool names a code"));
            }
            self.hooks_let_visit()?;
            return self.unfit(index, error, at);
        }
        // A hook can end the run when it begins, after a step, and at its limit.
        let is_first = self.is_behind_start()
            && index == self.position.next_node(self.code)
            && self.outcome_at_start().may_end(error);
        let is_behind = self.is_behind_step()
            && self.visited.iter().any(|(node, hook_outcome)| *node == index && hook_outcome.may_end(error));
        let is_next = self.position.frontier.first().is_some_and(|at| at.node == index);
        let is_exhausted = || is_next && self.is_exhausted() && self.outcome_at_limit().may_end(error);
        let is_over = |over: Overvisited| over.node == index && self.outcome_at_visits(over).may_end(error);
        let is_nested =
            || is_next && self.may_be_nested_exhausted(None) && self.outcome_at_nested_steps().may_end(error);
        let is_beyond = || self.may_go_on_at_limit() && (self.overvisited().is_some_and(is_over) || is_nested());
        let is_limit = !has_failed && (is_exhausted() || is_beyond());
        // A hook names no code.
        if (is_first || is_behind || is_limit) && end.code.is_none() {
            return Ok(());
        }
        self.failed_call(index, end, at)
    }

    /// Whether this is the end of a run with the failures that are held.
    fn is_held(&self, end: &End) -> bool {
        let is_same = |failed: &VisitFailure, held: &HeldFailure| {
            (failed.step, &failed.node, &failed.error, failed.unfit) == (held.step, &held.node, &held.error, false)
        };
        let held = &self.position.held;
        let failures = match &end.failures[..] {
            [] => held.len() == 1,
            all => {
                held.len() > 1 && held.len() == all.len() && all.iter().zip(held).all(|(one, held)| is_same(one, held))
            }
        };
        let first = held.first().map(|held| (&held.node, &held.error));
        failures && first == end.node.as_ref().zip(end.error.as_ref()) && !end.unfit
    }

    /// Fails unless several visits of a step can have ended the run in this way.
    fn several_failed(&self, end: &End, at: SystemTime) -> Result<(), String> {
        let first = end.failures.first();
        let is_first = first
            .is_some_and(|first| end.node.as_ref() == Some(&first.node) && end.error.as_ref() == Some(&first.error));
        if end.failures.len() < 2 || !is_first || !end.failures.is_sorted_by(|one, other| one.step < other.step) {
            return Err("the failures of its visits are not in their order, or the first one is missing".to_owned());
        }
        if end.unfit != end.failures.first().is_some_and(|first| first.unfit) {
            return Err("its first failure and that of the run differ".to_owned());
        }
        for (place, VisitFailure { step, node, error, unfit, .. }) in end.failures.iter().enumerate() {
            let visited = self.position.frontier.iter().find(|at| at.number == *step);
            let visited = visited.filter(|at| self.code.node(at.node).name == *node);
            let index = visited.ok_or_else(|| format!("visit {step} is not one of node `{node}`"))?.node;
            // Only the first failure has the other members of the end, such as the error's code.
            let mut one = if place == 0 { end.clone() } else { End::of(end.status, end.steps) };
            (one.error, one.node) = (Some(error.clone()), Some(node.clone()));
            one.failures.clear();
            if *unfit { self.unfit(index, error, at)? } else { self.failed_call(index, &one, at)? }
        }
        self.hooks_let_visit()
    }

    /// Fails unless a call of a node can have ended the run in this way.
    fn failed_call(&self, index: u16, end: &End, at: SystemTime) -> Result<(), String> {
        self.hooks_let_visit()?;
        let node = self.code.node(index);
        if !self.position.frontier.iter().any(|activation| activation.node == index) {
            return Err(format!("node `{}` was not visited", node.name));
        }
        match self.code.asks(index) {
            Asks::Nothing => Err(format!("node `{}` calls nothing that could fail", node.name)),
            Asks::Once { .. } => self.names_code(index, end, at),
            Asks::Each { .. } => {
                self.names_item(index, end.error.as_deref().unwrap_or_default(), at)?;
                self.names_code(index, end, at)
            }
        }
    }

    /// Whether a run that ended in this way can have visited the next nodes. A hook may have ended it before, or it had
    /// reached its step limit.
    fn may_visit(&self, end: &End, at: SystemTime) -> bool {
        match end.node.as_deref().map(|node| self.code.node_named(node)) {
            Some(_) if end.unfit => true,
            Some(node) => node.is_some_and(|node| self.failed_call(node, end, at).is_ok()),
            None => {
                let is_stopped = end.status == Status::Cancelled || end.error.as_deref() == Some(OVERDUE);
                is_stopped && !end.exhausted && self.hooks_let_visit().is_ok()
            }
        }
    }

    /// Returns the end of the run, if it has no result.
    pub(super) fn lost(&self, end: &End) -> Option<Lost> {
        let error = end.error.clone()?;
        let (node, code, steps) = (end.node.clone(), end.code.clone(), self.position.steps);
        // The state also has the values that the step wrote before one did not fit, and those are not recorded.
        let is_known = !end.unfit && self.code.settings.secrets.is_empty();
        let state = self.state.as_deref().filter(|_| is_known).map(|state| {
            let mut position = self.position.clone();
            if let Some(node) = &node {
                position.root.last_error = Some(LastError::new(node.clone(), error.clone()));
            }
            state_value(self.code, state, &position)
        });
        let next = self.position.open().map(|at| self.code.node(at.node).name.clone()).collect();
        Some(Lost { error, node, code, steps, state, next })
    }

    /// Fails if an end has an error code that no call of the node can have named.
    fn names_code(&self, node: u16, end: &End, at: SystemTime) -> Result<(), String> {
        let (Some(_), Some(state)) = (&end.code, self.state.as_deref()) else { return Ok(()) };
        // The run ended after the call: a time that it asked for was not far from this one.
        let clock = || at;
        let now = Now::new(&clock);
        let may_name = |activation: &Activation, item, planned: Result<Request, Box<Failure>>| {
            let (node, step) = (self.code.node(activation.node), activation.number);
            let called = Called { node, step, item, calls: 1..=u64::MAX };
            planned.is_ok_and(|mut request| self.prospects(&mut request, &called).may_have_code())
        };
        let mut is_next = self.position.open().filter(|activation| activation.node == node);
        let names = is_next.any(|activation| {
            let env = Env::new(self.code, &self.position, state, activation, &now);
            match plan(&env, &mut Notes::default()) {
                Ok(Planned::Call(request)) => may_name(activation, None, Ok(request)),
                Ok(Planned::Each { items, .. }) => (0..).zip(&items).any(|(index, item)| {
                    may_name(activation, Some(index), plan_item(&env, item, &mut Notes::default()))
                }),
                _ => false,
            }
        });
        if names {
            return Ok(());
        }
        Err(format!("no call of node `{}` names the code of an error", self.code.node(node).name))
    }

    /// Fails if a hook certainly ended the run, or the run had reached its step limit, before the next nodes were visited.
    fn hooks_let_visit(&self) -> Result<(), String> {
        if self.is_behind_start() {
            self.outcome_at_start().goes_on()?;
        }
        self.hooks_go_on()?;
        self.can_visit()?;
        // A call is made at the limit only if a hook allowed more.
        if !self.may_go_on_at_limit() {
            return Err("the run had taken all the steps it may".to_owned());
        }
        match self.overvisited() {
            Some(over) => Err(self.visits_too_often(over)),
            None if self.is_nested_exhausted() => {
                Err("the run and those inside it had taken all the steps they may".to_owned())
            }
            None => Ok(()),
        }
    }

    /// Whether this is the error of a run that would take more steps than it may with those inside it and around it.
    fn is_nested_exceeded(&self, error: &str) -> bool {
        nested_limit(error).is_some_and(|most| self.may_be_nested_exhausted(Some(most)))
            && self.outcome_at_nested_steps().goes_on().is_ok()
            && self.may_go_on_at_limit()
    }

    /// Whether the run has not taken all the steps it may, or hooks can have allowed it as many as it needs.
    fn may_go_on_at_limit(&self) -> bool {
        !self.is_exhausted() || self.may_extend(self.position.steps_needed())
    }

    /// Whether this is the error of a run that would visit a node more often than it may.
    fn is_overvisited(&self, error: &str) -> bool {
        let Some(over) = self.overvisited() else { return false };
        let is_ended = self.outcome_at_visits(over).goes_on().is_err();
        error == over.message(self.code) && !is_ended && self.may_go_on_at_limit()
    }

    /// Fails if a hook certainly ended the run after the step before.
    fn hooks_go_on(&self) -> Result<(), String> {
        if self.is_behind_step() {
            self.visited.iter().try_for_each(|(_, hook_outcome)| hook_outcome.goes_on())?;
        }
        Ok(())
    }

    /// Whether hooks can allow the run as many steps as it needs.
    fn may_extend(&self, needed: u64) -> bool {
        match self.outcome_at_limit() {
            HookOutcome::Any => self.is_extension(needed),
            HookOutcome::Sure(control) => control.additional_steps().is_some_and(|additional| {
                let limit = self.most_steps().saturating_add(u64::from(additional)).min(most_extended(self.code));
                limit >= needed && self.is_extension(limit)
            }),
        }
    }

    /// Whether a run can reach its limit and end there, although no hook ends it.
    fn may_be_over(&self) -> bool {
        let needed = self.position.steps_needed();
        match self.outcome_at_limit() {
            HookOutcome::Any => true,
            HookOutcome::Sure(Control::Continue { .. } | Control::Suspend { .. }) => !self.may_extend(needed),
            HookOutcome::Sure(Control::Retry { .. }) => true,
            HookOutcome::Sure(_) => false,
        }
    }

    /// Whether this is the error of a run that has reached its step limit.
    fn is_exceeded(&self, error: &str) -> bool {
        let may_suspend = || match self.outcome_at_limit() {
            HookOutcome::Any => true,
            HookOutcome::Sure(control) => matches!(control, Control::Suspend { .. }),
        };
        let fails = self.code.fails_at_limit() || may_suspend();
        if !self.is_exhausted() || !fails || !self.may_be_over() {
            return false;
        }
        let is_raised = |hook_outcome| match hook_outcome {
            HookOutcome::Sure(control) => control.additional_steps().is_some_and(|additional| additional > 0),
            HookOutcome::Any => false,
        };
        let holds = self.most_steps() >= most_extended(self.code) || !is_raised(self.outcome_at_limit());
        if holds && error == exceeded(self.most_steps()) {
            return true;
        }
        // A hook may have allowed more, and not enough.
        let needed = self.position.steps_needed();
        let last = needed.saturating_sub(1).min(most_extended(self.code));
        let said = error.strip_prefix("Max steps exceeded (").and_then(|rest| rest.strip_suffix(')'));
        let limit = said.and_then(|text| text.parse::<u64>().ok()).filter(|limit| error == exceeded(*limit));
        limit.is_some_and(|limit| self.is_extension(limit) && limit <= last)
    }

    /// Fails unless a foreach can fail with this error of its calls, which names the item that failed.
    fn names_item(&self, node: u16, error: &str, at: SystemTime) -> Result<(), String> {
        let Some(state) = self.state.as_deref() else { return Ok(()) };
        let named = error.strip_prefix("item ").and_then(|rest| rest.split_once(": "));
        let named = named.and_then(|(item, _)| item.parse::<usize>().ok());
        let clock = || at;
        let now = Now::new(&clock);
        let is_next = |activation: &&Activation| activation.node == node;
        let possible = self.position.frontier.iter().filter(is_next).any(|activation| {
            let env = Env::new(self.code, &self.position, state, activation, &now);
            match plan(&env, &mut Notes::default()) {
                Ok(Planned::Each { items, .. }) => named.is_some_and(|item| item < items.len()),
                Ok(_) => false,
                // Without a list, it fails by itself, or as a hook says.
                Err(_) => true,
            }
        });
        if possible {
            Ok(())
        } else {
            Err(format!("none of the items of node `{}` failed so", self.code.node(node).name))
        }
    }

    /// Fails unless a node can have failed in this way on the results of its calls, or wrote a value that the state does
    /// not accept.
    fn unfit(&self, index: u16, error: &str, at: SystemTime) -> Result<(), String> {
        let name = &self.code.node(index).name;
        let mut refused = format!("node `{name}` was not visited");
        for activation in self.position.frontier.iter().filter(|activation| activation.node == index) {
            match self.visit_is_unfit(activation, error, at) {
                Ok(()) => return Ok(()),
                Err(reason) => refused = reason,
            }
        }
        Err(refused)
    }

    /// Checks one visit as [`Replayer::unfit`] does.
    fn visit_is_unfit(&self, activation: &Activation, error: &str, at: SystemTime) -> Result<(), String> {
        let (index, node) = (activation.node, self.code.node(activation.node));
        let refuse = || Err(format!("node `{}` does not fail so on what its calls returned", node.name));
        let is_hidden = !self.code.settings.secrets.is_empty() && error.contains(HIDDEN);
        let Some(state) = self.state.as_deref() else { return Ok(()) };
        let asked = AtomicBool::new(false);
        let clock = || {
            asked.store(true, Ordering::Relaxed);
            at
        };
        let now = Now::new(&clock);
        let said = Visit::failed(error);
        let proving = RecordedState::of_visit(self.code, state, index, &said).proving();
        let env = Env::new(self.code, &self.position, &proving, activation, &now);
        let asks = self.code.asks(index);
        if let Some(mismatch) = error.strip_prefix(UNRETURNED) {
            let found = self.machine.check_output(&node.name, &output(&env, &mut Notes::default()));
            let is_same = found.is_err_and(|found| found.to_string() == mismatch);
            // Only a return computes its output from the state as it is. Its branch is over before.
            let is_known = node.kind.ends_run() && activation.frame.is_none() && !asked.load(Ordering::Relaxed);
            let may_end = node.kind.ends_run() || self.code.may_end(index);
            return if is_same || is_hidden || (!is_known && may_end) { Ok(()) } else { refuse() };
        }
        if !self.code.stops_run(activation) && !error.starts_with(UNFIT) && !is_hidden {
            return Err(format!("the failure of node `{}` does not end the run at once", node.name));
        }
        if asks == Asks::Nothing {
            let found = match plan(&env, &mut Notes::default()) {
                Ok(Planned::Wait(_)) => None,
                Ok(_) => self.gate_fails(&env),
                Err(failure) => Some(failure.message),
            };
            let is_time = node.kind.wait().is_some_and(|wait| wait.until.is_some()) && env.taken.is_none();
            let may_fail = || error.starts_with(UNFIT) || self.code.may_fail_to_route(index, error);
            // At another time, or with the values that a function of the program yielded, it may fail elsewhere.
            let is_open = asked.load(Ordering::Relaxed) || !proving.missing().is_empty();
            let is_same = found.as_deref() == Some(error)
                || is_hidden
                || (is_open && (may_fail() || is_time))
                || self.may_be_uncombined(index, error);
            return if is_same { Ok(()) } else { refuse() };
        }
        if error.starts_with(UNFIT) || is_hidden {
            return Ok(());
        }
        if self.code.has_target(index) || !self.code.may_fail_to_route(index, error) {
            return refuse();
        }
        // The values that a foreach collected are not recorded, and its edges may read them.
        if self.code.may_suppress(index) && !asks.is_each() {
            let failure = Failure::permanent(error);
            let is_led = |calls| {
                let (notes, changes) = (&mut Notes::default(), &mut Vec::new());
                let outcome = Outcome::Failed(&failure, &mut Vec::new());
                !settle(&env, outcome, &CallFacts::of(calls), notes, changes).way.is_fatal()
            };
            // The number of calls is not recorded either.
            if (1..=3).all(is_led) && !asked.load(Ordering::Relaxed) {
                return Err(format!("the failure of node `{}` leads along its edges", node.name));
            }
        }
        Ok(())
    }

    /// Returns the failure of a node that calls nothing, if it fails.
    fn gate_fails(&self, env: &Env<'_>) -> Option<String> {
        let mut changes = Vec::new();
        let settled = settle(env, Outcome::None, &CallFacts::of(0), &mut Notes::default(), &mut changes);
        if let Some(failure) = settled.unfit {
            return Some(failure.message);
        }
        let visit = SettledVisit {
            at: env.at,
            calls: 0,
            below: 0,
            error: None,
            items: &[],
            way: &settled.way,
            returned: View::Null,
            changes: &changes,
        };
        let written = StateWrites::combine(self.code, env.context.state, std::iter::once(visit));
        written.err().map(|error| error.message(self.code))
    }

    /// Whether the write of a node to a channel may not combine with those of the other visits of its step, whose results
    /// are not recorded.
    fn may_be_uncombined(&self, node: u16, error: &str) -> bool {
        let message = error.strip_prefix(UNFIT);
        self.position.frontier.len() > 1 && message.is_some_and(|message| self.code.may_be_uncombined(node, message))
    }
}

/// Returns the limit in the error of a run that would take more steps than it may with those inside it and around it.
pub(super) fn nested_limit(error: &str) -> Option<u64> {
    let most = error.strip_prefix(NESTED_STEPS).and_then(|rest| rest.strip_suffix(')'));
    most.and_then(|most| most.parse().ok()).filter(|most| error == too_many_nested_steps(*most))
}
