//! Failures of calls, and what a run remembers of them.

use std::fmt;
use std::time::Duration;

use graph_model::value::{AsView, NamedFields, Value, View};
use serde::{Deserialize, Serialize};

/// How a failure is to be treated.
///
/// The example of [`ActionError`] distinguishes two categories.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Category {
    /// Trying again changes nothing.
    Permanent,
    /// It may go away by itself: a connection was refused, something took too long.
    Transient,
    /// Too much was asked for in too short a time.
    RateLimited,
    /// Somebody stopped it.
    Cancelled,
}

impl Category {
    /// Every category.
    pub const ALL: [Self; 4] = [Self::Permanent, Self::Transient, Self::RateLimited, Self::Cancelled];

    /// Returns the category that is written `name`. The name is case-sensitive.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|category| category.name() == name)
    }

    /// Returns the word that journals and hooks use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Permanent => "permanent",
            Self::Transient => "transient",
            Self::RateLimited => "rate_limited",
            Self::Cancelled => "cancelled",
        }
    }

    /// Whether trying again may help.
    pub const fn is_retryable(self) -> bool {
        matches!(self, Self::Transient | Self::RateLimited)
    }
}

/// Why a tool failed.
///
/// Any error converts to one by `?`, with the error's text and those of its causes; its category is then derived from what
/// it says (R160). It does not implement [`Error`](std::error::Error) itself, for the same reason that `anyhow::Error` does
/// not.
///
/// ```
/// # use graph_engine as graph_runtime;
/// use graph_runtime::ActionError;
///
/// /// Says how the payment service's answer is to be treated.
/// fn refused(status: u16, answer: &str) -> ActionError {
///     match status {
///         500.. => ActionError::transient(answer).with_status(status),
///         _ => ActionError::permanent(answer).with_status(status),
///     }
/// }
/// assert!(refused(503, "busy").category().is_retryable());
///
/// fn cents(text: &str) -> Result<u64, ActionError> {
///     Ok(text.parse()?)
/// }
/// assert_eq!(cents("ten").unwrap_err().to_string(), "invalid digit found in string");
/// ```
pub struct ActionError {
    category: Category,
    typed: bool,
    message: String,
    rare: Option<Box<Rare>>,
}

/// The fields that few errors have; boxed, because every tool's result reserves space for an error.
#[derive(Default)]
struct Rare {
    data: Option<Value>,
    code: Option<String>,
    status: Option<u16>,
    retry_after: Option<Duration>,
    question: Option<Box<Value>>,
}

impl ActionError {
    /// Not a failure: the tool asks people something before it is done. The node says who answers, with `interrupts`.
    ///
    /// The run shows `payload` to people and waits, in no process. When they have answered, the tool is called again with the same
    /// parameters, except those that hold the time, and the same [idempotency key](crate::Call::idempotency_key), and the call has the
    /// [answers](crate::Call::answers) of all its questions so far. Nothing else of the first call is kept, so the tool asks before it
    /// changes anything. On a node without `interrupts`, the call fails.
    ///
    /// ```
    /// # use graph_engine as graph_runtime;
    /// # async fn pay_out(_: u64, _: String) -> Result<String, std::io::Error> { Ok(String::new()) }
    /// use graph_runtime::{ActionError, Call};
    /// use serde_json::json;
    ///
    /// async fn refund(call: &Call, cents: u64) -> Result<String, ActionError> {
    ///     if cents > 10_000 {
    ///         match call.answers() {
    ///             [] => return Err(ActionError::interrupt(json!({ "refund": cents }))),
    ///             [decided, ..] if decided.answer == json!("refuse") => return Ok("refused".to_owned()),
    ///             _ => {}
    ///         }
    ///     }
    ///     Ok(pay_out(cents, call.idempotency_key()).await?)
    /// }
    /// ```
    pub fn interrupt(payload: Value) -> Self {
        let mut error = Self::new(Category::Permanent, "the tool asks people, and the node does not say who answers");
        error.rare().question = Some(Box::new(payload));
        error
    }

    /// A failure that a retry does not fix.
    pub fn permanent(message: impl Into<String>) -> Self {
        Self::new(Category::Permanent, message)
    }

    /// A failure that may go away by itself.
    pub fn transient(message: impl Into<String>) -> Self {
        Self::new(Category::Transient, message)
    }

    /// A failure of the given category, whatever its text says (R142).
    pub fn new(category: Category, message: impl Into<String>) -> Self {
        Self { category, typed: true, message: message.into(), rare: None }
    }

    /// A failure of a category that the tool does not know: it is derived from what the failure says (R160).
    pub fn unclassified(message: impl Into<String>) -> Self {
        Self { category: Category::Permanent, typed: false, message: message.into(), rare: None }
    }

    /// Adds the data that the tool would have returned, for edges that read `result` after a failure.
    #[must_use]
    pub fn with_data(mut self, data: Value) -> Self {
        self.rare().data = Some(data);
        self
    }

    /// Adds the error code of whatever the tool called, such as `insufficient_quota`.
    #[must_use]
    pub fn with_code(mut self, code: impl Into<String>) -> Self {
        self.rare().code = Some(code.into());
        self
    }

    /// Adds the HTTP status that the tool received; 0 stands for no answer.
    #[must_use]
    pub fn with_status(mut self, status: u16) -> Self {
        self.rare().status = Some(status);
        self
    }

    /// Adds the time for which whatever the tool called asks to be left alone: the header `retry-after`.
    #[must_use]
    pub fn with_retry_after(mut self, pause: Duration) -> Self {
        self.rare().retry_after = Some(pause);
        self
    }

    /// Returns how the failure is to be treated. For a failure that is not [typed](Self::is_typed), this holds until it is
    /// classified.
    pub fn category(&self) -> Category {
        self.category
    }

    /// Whether the tool itself named the category.
    pub fn is_typed(&self) -> bool {
        self.typed
    }

    /// Returns the error code.
    pub fn code(&self) -> Option<&str> {
        self.rare.as_ref()?.code.as_deref()
    }

    /// Returns the HTTP status.
    pub fn status(&self) -> Option<u16> {
        self.rare.as_ref()?.status
    }

    /// Returns the minimum time to wait before another call.
    pub fn retry_after(&self) -> Option<Duration> {
        self.rare.as_ref()?.retry_after
    }

    fn rare(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }
}

/// Any error converts to one by `?`, also those of `anyhow` and `eyre`; so does a text.
impl<E: Into<Box<dyn std::error::Error + Send + Sync>>> From<E> for ActionError {
    fn from(error: E) -> Self {
        let error = error.into();
        let mut message = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            let text = error.to_string();
            // Many errors repeat their cause in their own text.
            if !message.contains(&text) {
                message = format!("{message}: {text}");
            }
            cause = error.source();
        }
        Self::unclassified(message)
    }
}

impl fmt::Display for ActionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl fmt::Debug for ActionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message, self.category.name())
    }
}

/// Why a node failed.
///
/// The engine makes it from the [`ActionError`] of a tool.
#[derive(Debug, Clone, PartialEq)]
pub struct Failure {
    /// The error message.
    pub message: String,
    /// How it is to be treated.
    pub category: Category,
    /// Whether the tool or the engine named the category, so that it is not an assumption. Only an assumed category is
    /// [classified](crate::classify) by what the failure says (R142).
    pub typed: bool,
    /// The data that the tool would have returned, as far as it got.
    pub data: Option<Value>,
    /// The error code of whatever the tool called.
    pub code: Option<String>,
    /// The HTTP status that the tool received.
    pub status: Option<u16>,
    /// The time for which whatever the tool called asks to be left alone.
    pub retry_after: Option<Duration>,
    /// The value that the tool asks people to see before it is done, if it has not failed but asks them.
    pub question: Option<Box<Value>>,
}

impl Failure {
    /// A failure that a retry does not fix, whatever its text says.
    pub fn permanent(message: impl Into<String>) -> Self {
        Self::from(ActionError::permanent(message))
    }

    /// A failure of the given category.
    pub fn of(category: Category, message: impl Into<String>) -> Self {
        Self::from(ActionError::new(category, message))
    }

    /// A failure that a tool reports in its result. Its category is derived from its text.
    pub(crate) fn reported(message: String, data: Value) -> Self {
        Self::from(ActionError::unclassified(message).with_data(data))
    }
}

impl From<ActionError> for Failure {
    fn from(error: ActionError) -> Self {
        let ActionError { category, typed, message, rare } = error;
        let Rare { data, code, status, retry_after, question } = rare.map_or_else(Rare::default, |rare| *rare);
        Self { message, category, typed, data, code, status, retry_after, question }
    }
}

impl NamedFields for Failure {
    /// Returns a field of `result` as the edges of a failed node see it: `status`, `error`, or data that the tool got
    /// (R125).
    fn get(&self, name: &str) -> View<'_> {
        match name {
            "status" => View::Text("error"),
            "error" => View::Text(&self.message),
            other => self.data.as_ref().map_or(View::Null, |data| data.view().step(other)),
        }
    }

    fn each(&self, visit: &mut dyn FnMut(&str, View<'_>)) {
        visit("status", View::Text("error"));
        visit("error", View::Text(&self.message));
        if let Some(View::Object(data)) = self.data.as_ref().map(AsView::view) {
            data.each(&mut |name, field| {
                if !matches!(name, "status" | "error") {
                    visit(name, field);
                }
            });
        }
    }
}

/// The last failure of a node, as `state._last_error` shows it (R121).
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct LastError {
    /// The node that failed.
    pub node: String,
    /// The error message.
    pub error: String,
}

impl LastError {
    /// A node, and why it failed.
    pub fn new(node: impl Into<String>, error: impl Into<String>) -> Self {
        Self { node: node.into(), error: error.into() }
    }
}

impl NamedFields for LastError {
    fn get(&self, name: &str) -> View<'_> {
        match name {
            "node" => View::Text(&self.node),
            "error" => View::Text(&self.error),
            _ => View::Null,
        }
    }

    fn each(&self, visit: &mut dyn FnMut(&str, View<'_>)) {
        visit("node", View::Text(&self.node));
        visit("error", View::Text(&self.error));
    }
}

/// A failure after which the run continued, because its graph says `on_error: continue` (R126).
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct SuppressedError {
    /// The step in which it happened.
    pub step: u64,
    /// The node that failed.
    pub node: String,
    /// The error message.
    pub error: String,
}

/// A failure with which the run ends when other branches are done, unless nothing needs its branch before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct HeldFailure {
    /// The number of the visit, which is made again if the run is resumed.
    pub step: u64,
    /// The node that failed.
    pub node: String,
    /// The error message.
    pub error: String,
    /// How many steps the runs made that the visit began, if they are counted.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub below: u64,
}

/// Whether a member of a record is left out.
pub(crate) fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// An item of a foreach that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ItemFailure {
    /// The item's index, from 0.
    pub item: u64,
    /// Why.
    pub error: String,
}

impl ItemFailure {
    /// An item, and why it failed.
    pub fn new(item: u64, error: impl Into<String>) -> Self {
        Self { item, error: error.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_category_is_found_by_its_name() {
        for category in Category::ALL {
            assert_eq!(Category::named(category.name()), Some(category));
        }
        assert_eq!(Category::named("any"), None);
        assert_eq!(Category::named("Transient"), None);
    }

    #[test]
    fn a_failure_carries_all_details_from_the_tool() {
        let error = ActionError::unclassified("busy")
            .with_code("rate_limit")
            .with_status(429)
            .with_retry_after(Duration::from_secs(7))
            .with_data(Value::Bool(true));
        assert_eq!(
            (error.code(), error.status(), error.retry_after()),
            (Some("rate_limit"), Some(429), Some(Duration::from_secs(7)))
        );
        let expected = Failure {
            message: "busy".into(),
            category: Category::Permanent,
            typed: false,
            data: Some(Value::Bool(true)),
            code: Some("rate_limit".into()),
            status: Some(429),
            retry_after: Some(Duration::from_secs(7)),
            question: None,
        };
        assert_eq!(Failure::from(error), expected);
    }

    #[test]
    fn any_error_of_an_application_becomes_one_by_question_mark() {
        fn anyhow() -> Result<(), ActionError> {
            use anyhow::Context;
            Err(std::io::Error::other("connection refused")).context("the shop does not answer")?;
            Ok(())
        }
        fn boxed() -> Result<(), ActionError> {
            Err(Box::<dyn std::error::Error + Send + Sync>::from("no"))?;
            Ok(())
        }
        fn text() -> Result<(), ActionError> {
            Err("no")?;
            Ok(())
        }
        fn own() -> Result<(), ActionError> {
            Err(ActionError::transient("no").with_status(503))?;
            Ok(())
        }
        let error = anyhow().unwrap_err();
        assert_eq!(error.to_string(), "the shop does not answer: connection refused");
        assert!(!error.is_typed());
        assert_eq!((boxed().unwrap_err().to_string(), text().unwrap_err().to_string()), ("no".into(), "no".into()));
        assert_eq!((own().unwrap_err().status(), own().unwrap_err().is_typed()), (Some(503), true));
    }

    #[test]
    fn only_an_explicit_category_counts_as_typed() {
        let by_question_mark = ActionError::from(std::io::Error::other("connection refused"));
        assert!(!by_question_mark.is_typed());
        assert!(ActionError::permanent("no").is_typed());
        assert!(ActionError::transient("later").is_typed());
        assert!(Failure::permanent("no").typed);
    }

    #[test]
    fn an_error_is_small_as_long_as_it_carries_nothing_rare() {
        assert!(size_of::<ActionError>() <= 40);
    }
}
