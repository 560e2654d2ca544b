//! Running hooks: those of the graph, those of the program, and the order in which they are asked.

use std::borrow::Cow;
use std::pin::Pin;
use std::time::Duration;

use graph_model::program::{self, Executor, LimitCode};
use graph_model::value::{AsView, Value, View};

use crate::activation::Activation;
use crate::call::More;
use crate::classify::Classification;
use crate::engine::call_result::PendingCall;
use crate::engine::run_state::StepContext;
use crate::failure::Failure;
use crate::future::catch_panic;
use crate::graph::{CompiledHook, Notes, Now, Steering};
use crate::hooks::{CANNOT_ESCALATE, CANNOT_WAIT, Control, HookContext, Layer};
use crate::status::Status;
use crate::step::{Escalation, Suspension, at_limit, failed, hook_values};
use crate::tool_caller::{GuardedCall, Request, panic_text};

/// Returns the `error` of a failure as hooks see it: all that the tool said (R147), and the message under each of its names.
fn error_for_hooks(failure: &Failure) -> Value {
    let Value::Object(mut shown) = View::Object(failure).to_value() else { return Value::Null };
    shown.insert("type".to_owned(), Value::from("ToolExecutionError"));
    shown.insert("message".to_owned(), Value::from(failure.message.as_str()));
    if let Some(code) = &failure.code {
        shown.insert("code".to_owned(), Value::from(code.as_str()));
    }
    if let Some(status) = failure.status {
        shown.insert("status".to_owned(), Value::from(status));
    }
    Value::Object(shown)
}

/// Values that hooks receive for visits: the node, and names with their values (R147).
pub(super) type HookValues = Vec<(u16, [(&'static str, Value); 3])>;

/// The error of a run that a hook aborts.
pub(super) const ABORTED: &str = "aborted by a hook";

/// The time limit of a hook, so that a run does not wait forever for one.
const HOOK_TIME: Duration = Duration::from_secs(60);

/// How a hook steers a run at an event without a decision of its own.
pub(super) enum Steered {
    /// The run ends with this error.
    Ends(String),
    /// The run waits until somebody releases it.
    Suspends(Suspension),
}

impl StepContext {
    /// Whether an event has hooks.
    pub(super) fn has_hooks(&self, event: program::Event) -> bool {
        !self.runtime.hooks.is_empty() || self.graph().hooks(event).next().is_some()
    }

    /// Asks the hooks how to handle a call that failed.
    pub(super) async fn error_hooks(
        &self,
        job: &PendingCall<'_>,
        failure: &Failure,
        class: &Classification,
        attempt: u32,
    ) -> Option<Control> {
        if !self.has_hooks(program::Event::Error) {
            return None;
        }
        let values = [
            ("error", error_for_hooks(failure)),
            ("classification", class.to_value()),
            ("node", Value::from(self.graph().node(job.at.node).name.as_str())),
            ("attempt", Value::from(attempt)),
            ("item", job.item.map_or(Value::Null, |(index, _)| Value::from(index))),
        ];
        let control = self.ask(program::Event::Error, job.at.node, job.at.number, values, Status::Running).await;
        self.heeded(control, program::Event::Error)
    }

    /// Asks the hooks whether the run may take more steps than it has taken (R131).
    pub(super) async fn limit_hooks(&self, node: u16, taken: u64, most: u64) -> Option<Control> {
        self.ask_at_limit(node, at_limit(LimitCode::MaxSteps, taken, most, None)).await
    }

    /// Asks the hooks how a run fails at a limit that nobody raises. Returns the error that they give.
    pub(super) async fn hooks_at_bound<const N: usize>(
        &self,
        node: u16,
        values: [(&'static str, Value); N],
    ) -> Option<String> {
        match self.ask_at_limit(node, values).await? {
            Control::Fail { error } => Some(error),
            Control::Abort => Some(ABORTED.to_owned()),
            control => {
                tracing::warn!(run = %self.facts.id, ?control, "a hook asked for more than `limits` allow");
                None
            }
        }
    }

    async fn ask_at_limit<const N: usize>(&self, node: u16, values: [(&'static str, Value); N]) -> Option<Control> {
        if !self.has_hooks(program::Event::Limit) {
            return None;
        }
        let taken = self.run_state.position.steps;
        let control = self.ask(program::Event::Limit, node, taken, values, Status::Running).await;
        self.heeded(control, program::Event::Limit)
    }

    /// Notifies the hooks that the run began or ended, or that a node is done. Returns how a hook steers the run.
    pub(super) async fn tell<const N: usize>(
        &self,
        event: program::Event,
        node: u16,
        values: [(&'static str, Value); N],
        status: Status,
    ) -> Option<Steered> {
        if !self.has_hooks(event) {
            return None;
        }
        let control = self.ask(event, node, self.run_state.position.steps, values, status).await;
        match self.heeded(control, event)? {
            Control::Fail { error } => Some(Steered::Ends(error)),
            Control::Abort => Some(Steered::Ends(ABORTED.to_owned())),
            Control::Suspend { reason, escalated, .. } => Some(self.suspended(&reason, escalated)),
            Control::Retry { .. } | Control::Continue { .. } => None,
        }
    }

    /// Returns how a hook that suspends the run steers it. A run that cannot wait ends.
    pub(super) fn suspended(&self, reason: &str, escalated: Option<Escalation>) -> Steered {
        if self.runtime.store.is_none() || !self.is_kept || self.facts.address().is_none() {
            return Steered::Ends(CANNOT_WAIT.to_owned());
        }
        if escalated.is_some() && self.facts.parent.is_some() {
            return Steered::Ends(CANNOT_ESCALATE.to_owned());
        }
        Steered::Suspends(Suspension::new(reason, escalated))
    }

    /// Returns a control that has an effect at an event; any other control is reported and dropped.
    fn heeded(&self, control: Option<Control>, event: program::Event) -> Option<Control> {
        let heeded = match control.as_ref()? {
            Control::Retry { .. } => event == program::Event::Error,
            Control::Continue { .. } => event == program::Event::Limit,
            Control::Fail { .. } | Control::Abort | Control::Suspend { .. } => event != program::Event::GraphCompleted,
        };
        if !heeded {
            tracing::warn!(run = %self.facts.id, event = event.name(), ?control, "a hook asked for what this event does not allow");
        }
        control.filter(|_| heeded)
    }

    /// Reads the answer of a hook's tool. An `action` that is not a control is reported: its author may have meant one.
    fn control(&self, hook: &CompiledHook, answer: &Value) -> Option<Control> {
        let control = Control::read(answer.view());
        if control.is_none()
            && let View::Text(word) = answer.view().step("action")
        {
            let mut word = word.to_owned();
            if let Some(secrets) = &self.run_secrets {
                secrets.scrub(&mut word);
            }
            let (hook, word) = (&hook.name, word.chars().take(40).collect::<String>());
            tracing::warn!(run = %self.facts.id, %hook, action = %word, "a hook answered with an `action` that is not a control");
        }
        control
    }

    /// Asks all hooks of an event, and returns the first control among their answers.
    async fn ask<const N: usize>(
        &self,
        event: program::Event,
        node: u16,
        step: u64,
        values: [(&'static str, Value); N],
        status: Status,
    ) -> Option<Control> {
        // When a call failed, its visit counts its calls from the start (R136).
        let position = match event {
            program::Event::Error => self.run_state.position.visiting(&self.graph().node(node).name),
            _ => Cow::Borrowed(&self.run_state.position),
        };
        let hook_values = hook_values(self.graph(), &*self.run_state.state, &position, values);
        let mut control = None;
        for hook in self.graph().hooks(event) {
            let answer = self.ask_own(hook, node, step, &hook_values).await;
            control = control.or(answer);
        }
        for (layer, hooks) in &self.runtime.hooks {
            let context = HookContext { run: &self.facts.id, event, values: &hook_values };
            let answer = self.ask_programs(hooks.answer(&context, status)).await;
            if *layer == Layer::Builtin {
                control = control.or(answer);
            }
        }
        if let (Some(Control::Fail { error: text } | Control::Suspend { reason: text, .. }), Some(run_secrets)) =
            (&mut control, &self.run_secrets)
        {
            run_secrets.scrub(text);
        }
        control
    }

    /// Asks one of the graph's own hooks. A failure of the hook is reported and has no other effect (R154).
    async fn ask_own(&self, hook: &CompiledHook, node: u16, step: u64, hook_values: &Value) -> Option<Control> {
        match self.run_own(hook, node, step, hook_values).await {
            Ok(control) => control,
            Err(failure) => {
                let failure = self.scrubbed(failure, None);
                let (hook, error) = (&hook.name, &failure.message);
                tracing::warn!(run = %self.facts.id, %hook, %error, "a hook failed");
                None
            }
        }
    }

    async fn run_own(
        &self,
        hook: &CompiledHook,
        node: u16,
        step: u64,
        hook_values: &Value,
    ) -> Result<Option<Control>, Box<Failure>> {
        let steering = {
            let clock = || self.runtime.clock.now();
            let now = Now::new(&clock);
            let at = Activation::of(node);
            self.graph().hook(hook, &self.env(&at, &now).context, hook_values, &mut Notes::default())?
        };
        match steering {
            None => Ok(None),
            Some(Steering::Answer(answer)) => Ok(self.control(hook, &answer)),
            Some(Steering::Call(request)) => {
                let answer = self.call_for_hook(hook, node, step, request).await?;
                Ok(self.control(hook, &answer))
            }
        }
    }

    async fn call_for_hook(
        &self,
        hook: &CompiledHook,
        node: u16,
        step: u64,
        mut request: Request,
    ) -> Result<Value, Box<Failure>> {
        let tool = self.graph().tool(request.tool).ok_or_else(|| Failure::permanent("there is no such tool"))?;
        self.permit(tool, &request)?;
        if tool.by != Executor::Program {
            return self.bounded(Some(HOOK_TIME), self.run_items(tool, request)).await?;
        }
        let mut slot = self.slot();
        slot.call.begin(node, request.tool, step, 1);
        let (hook, untrusted) = (Some(hook.name.clone()), hook.untrusted.clone());
        slot.call.more = Some(Box::new(More { hook, untrusted, ..More::default() }));
        let unfit = |reason: &dyn std::fmt::Display| Failure::permanent(format!("its parameters do not fit: {reason}"));
        tool.accepts(&mut request.arguments).map_err(|invalid| unfit(&invalid))?;
        let calling = slot
            .tool_caller
            .call(request.tool, &mut request.arguments, &slot.call)
            .map_err(|mismatch| unfit(&mismatch))?;
        self.bounded(Some(HOOK_TIME), GuardedCall(calling)).await??;
        let answer = slot.tool_caller.outcome();
        if let Some(run_secrets) = &self.run_secrets {
            run_secrets.learn(self.graph().settings.secrets.tools.get(&request.tool), &answer.to_plain_value());
        }
        match failed(true, answer) {
            Some(failure) if Control::read(answer).is_none() => Err(failure),
            _ => tool.returns(answer).map(|()| answer.to_plain_value()),
        }
    }

    /// Asks one of the program's hooks. A hook that panics or takes too long gives no answer.
    async fn ask_programs(
        &self,
        answering: Pin<Box<dyn Future<Output = Option<Control>> + Send + '_>>,
    ) -> Option<Control> {
        match self.bounded(Some(HOOK_TIME), catch_panic(answering)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(panic)) => {
                let error = panic_text(&*panic);
                tracing::warn!(run = %self.facts.id, %error, "a hook of the program panicked");
                None
            }
            Err(failure) => {
                tracing::warn!(run = %self.facts.id, error = %failure.message, "a hook of the program was given up");
                None
            }
        }
    }
}
