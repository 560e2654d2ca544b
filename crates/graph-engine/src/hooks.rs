//! Hooks in Rust: a program's reactions to the events of its runs.
//!
//! A graph has hooks of its own, in YAML. They come first. Then come the hooks of the program, in the order in which they
//! were given to the runtime, and then the only built-in hook, which retries a transient failure three times. All hooks are
//! asked, and the first of them that wants to steer the run does.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use graph_model::name::RunId;
use graph_model::program::{Event, UNSUPPORTED_CONTROLS};
use graph_model::value::{AsView, Value, View};

use crate::status::Status;
use crate::step::Escalation;

/// The error of a nested run that a hook leaves to people.
pub const CANNOT_ESCALATE: &str =
    "a hook asked to escalate the run, which is nested: ask people in a node of `type: interrupt`";

/// The error of a run that a hook suspends, and that cannot wait.
pub const CANNOT_WAIT: &str =
    "a hook asked to suspend the run, which cannot wait: it has no store, or is nested in a node that does not wait";

/// How a hook steers a run.
///
/// The example of [`Hooks`] ends a run.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Control {
    /// The call is made again, unless hooks have already had it made again `max_retries` times. Only after an error.
    Retry {
        /// How many times hooks may have the call of one visit made again.
        max_retries: u32,
    },
    /// The run ends with this error, whatever the graph says to do after an error.
    Fail {
        /// Why.
        error: String,
    },
    /// The run ends.
    Abort,
    /// The run waits until somebody [releases](crate::Runtime::release) it: after an error, with the call to be made again; else before its
    /// next visits. It cannot be suspended when it has ended.
    Suspend {
        /// Why, for the people who look at it; empty if the hook does not say.
        reason: String,
        /// The people who release it, if not anybody who can: the hook escalates. They sign the answer `continue` to the
        /// [question](crate::Runtime::questions) of each visit. A nested run does not ask so.
        escalated: Option<Escalation>,
        /// How many more steps it may take then. Only at its limit.
        additional_steps: u32,
    },
    /// The run may take more steps. Only at its limit.
    Continue {
        /// How many.
        additional_steps: u32,
    },
}

/// How many times a hook has a call made again if it does not say (R134).
const MAX_RETRIES: u32 = 3;
/// How many people at most release a run that a hook escalates: an answer has no more signatures.
const MOST_SIGNERS: u32 = 20;
/// How many more steps a hook allows if it does not say (R131).
const ADDITIONAL_STEPS: u32 = 50;

impl Control {
    /// Reads the answer of a hook's tool, or the answer that the graph gives in its place.
    ///
    /// Returns `None` unless the answer asks for control: an object whose `action` is `retry`, `fail`, `abort` or `continue`
    /// (R150, R151), `suspend` or `escalate`, or one in which a field of such a name is `true` (R137). `skip` is not
    /// supported. The run ends with an error then, because continuing could do what the hook wanted to prevent.
    pub fn read(answer: View<'_>) -> Option<Self> {
        let action = match answer.step("action") {
            View::Text(action) => action,
            _ => ["retry", "fail", "abort", "continue", "suspend", "escalate"]
                .into_iter()
                .chain(UNSUPPORTED_CONTROLS)
                .find(|name| matches!(answer.step(name), View::Boolean(true)))?,
        };
        let number = |name: &str, default: u32| match answer.step(name) {
            View::Integer(number) => u32::try_from(number.max(0)).unwrap_or(u32::MAX),
            _ => default,
        };
        match action {
            "retry" => Some(Self::Retry { max_retries: number("max_retries", MAX_RETRIES) }),
            "fail" => {
                let mut error = String::new();
                answer.step("error").write_text(&mut error);
                if error.is_empty() {
                    error.push_str("a hook ended the run");
                }
                Some(Self::Fail { error })
            }
            "abort" => Some(Self::Abort),
            "suspend" | "escalate" => {
                let mut reason = String::new();
                answer.step("reason").write_text(&mut reason);
                let role = match answer.step("role") {
                    View::Text(role) => Some(role.to_owned()),
                    _ => None,
                };
                let escalated =
                    (action == "escalate").then(|| Escalation::new(role, number("count", 1).min(MOST_SIGNERS)));
                Some(Self::Suspend {
                    reason,
                    escalated,
                    additional_steps: number("additional_steps", ADDITIONAL_STEPS),
                })
            }
            "continue" => Some(Self::Continue { additional_steps: number("additional_steps", ADDITIONAL_STEPS) }),
            _ if UNSUPPORTED_CONTROLS.contains(&action) => {
                Some(Self::Fail { error: format!("a hook asked to `{action}` the run, which is not supported") })
            }
            _ => None,
        }
    }

    /// Returns how many more steps the run may take at its limit, if the control lets it take some.
    pub fn additional_steps(&self) -> Option<u32> {
        match self {
            Self::Continue { additional_steps } | Self::Suspend { additional_steps, .. } => Some(*additional_steps),
            Self::Retry { .. } | Self::Fail { .. } | Self::Abort => None,
        }
    }
}

/// The information that a hook receives.
///
/// The example of [`Hooks`] reads the code of an error.
#[derive(Debug)]
#[non_exhaustive]
pub struct HookContext<'a> {
    /// The run.
    pub run: &'a RunId,
    /// The event.
    pub event: Event,
    /// The names that the graph's own hooks see for the event, and their values (R147), as an object.
    pub values: &'a Value,
}

impl HookContext<'_> {
    /// Returns the value that has this name.
    pub fn get(&self, name: &str) -> View<'_> {
        self.values.view().step(name)
    }
}

/// A program's reactions to the events of its runs. Each method does nothing by default.
///
/// A hook that panics, or takes longer than a minute, is treated as absent: it cannot fail the run.
///
/// Each method may be an `async fn`:
///
/// ```
/// # use graph_engine as graph_runtime;
/// use graph_runtime::machine::View;
/// use graph_runtime::{Control, HookContext, Hooks, Layer, Runtime};
///
/// /// Ends a run when a card is refused, whatever its graph does about errors.
/// struct RefusedCards;
///
/// impl Hooks for RefusedCards {
///     async fn error(&self, context: &HookContext<'_>) -> Option<Control> {
///         match context.get("error").step("code") {
///             View::Text("card_declined") => Some(Control::Fail { error: "the card was refused".to_owned() }),
///             _ => None,
///         }
///     }
/// }
///
/// let runtime = Runtime::builder().hooks(Layer::Builtin, RefusedCards).build()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Hooks: Send + Sync + 'static {
    /// A run began. Not called when one is resumed.
    fn graph_started(&self, _context: &HookContext<'_>) -> impl Future<Output = Option<Control>> + Send {
        async { None }
    }

    /// A node is done, and its step is committed.
    fn after_step(&self, _context: &HookContext<'_>) -> impl Future<Output = Option<Control>> + Send {
        async { None }
    }

    /// The call of a node failed.
    fn error(&self, _context: &HookContext<'_>) -> impl Future<Output = Option<Control>> + Send {
        async { None }
    }

    /// The run has taken all the steps it may.
    fn limit(&self, _context: &HookContext<'_>) -> impl Future<Output = Option<Control>> + Send {
        async { None }
    }

    /// The run ended, other than with an error of a node (R155).
    fn graph_completed(&self, _context: &HookContext<'_>, _status: Status) -> impl Future<Output = ()> + Send {
        async {}
    }
}

/// An answer that is being awaited.
type Answering<'a> = Pin<Box<dyn Future<Output = Option<Control>> + Send + 'a>>;

/// Hooks of any type.
pub(crate) trait AnyHooks: Send + Sync {
    fn answer<'a>(&'a self, context: &'a HookContext<'a>, status: Status) -> Answering<'a>;
}

impl<H: Hooks> AnyHooks for H {
    fn answer<'a>(&'a self, context: &'a HookContext<'a>, status: Status) -> Answering<'a> {
        Box::pin(async move {
            match context.event {
                Event::GraphStarted => self.graph_started(context).await,
                Event::AfterStep => self.after_step(context).await,
                Event::Error => self.error(context).await,
                Event::Limit => self.limit(context).await,
                Event::GraphCompleted => {
                    self.graph_completed(context, status).await;
                    None
                }
            }
        })
    }
}

impl fmt::Debug for dyn AnyHooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hooks")
    }
}

/// The place of a program's hooks among the others.
///
/// The example of [`Hooks`] names one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Layer {
    /// After the graph's own hooks: they may steer a run (R144).
    Builtin,
    /// After all others: they see everything and steer nothing.
    Infra,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_a_recognised_action_steers() {
        let read = |value: Value| Control::read(value.view());
        assert_eq!(read(json!({"action": "retry"})), Some(Control::Retry { max_retries: 3 }));
        assert_eq!(read(json!({"action": "retry", "max_retries": 5})), Some(Control::Retry { max_retries: 5 }));
        assert_eq!(read(json!({"retry": true, "max_retries": 2})), Some(Control::Retry { max_retries: 2 }));
        assert_eq!(read(json!({"action": "fail", "error": "no"})), Some(Control::Fail { error: "no".into() }));
        assert_eq!(read(json!({"abort": true})), Some(Control::Abort));
        assert_eq!(read(json!({"continue": true})), Some(Control::Continue { additional_steps: 50 }));
        let suspended = |reason: &str, escalated| {
            Some(Control::Suspend { reason: reason.to_owned(), escalated, additional_steps: 50 })
        };
        assert_eq!(read(json!({"suspend": true})), suspended("", None));
        assert_eq!(read(json!({"action": "suspend", "reason": "late"})), suspended("late", None));
        let ops = Escalation::new(Some("ops".to_owned()), 2);
        assert_eq!(read(json!({"escalate": true, "role": "ops", "count": 2})), suspended("", Some(ops)));
        assert_eq!(read(json!({"action": "escalate"})), suspended("", Some(Escalation::new(None, 1))));
        for word in UNSUPPORTED_CONTROLS {
            let fails =
                Some(Control::Fail { error: format!("a hook asked to `{word}` the run, which is not supported") });
            assert_eq!(read(json!({ "action": word })), fails);
            assert_eq!(read(json!({ word: true })), fails);
        }
        for other in
            [json!({"logged": true}), json!({"success": true}), json!(null), json!("retry"), json!({"action": 1})]
        {
            assert_eq!(read(other), None);
        }
    }
}
