//! Classification: the category of an error, and how long to wait before its call is made again (R160–R165).
//!
//! A tool that knows the category states it, with [`ActionError::transient`](crate::ActionError::transient) and similar
//! functions, and is believed. All other errors are looked up in a list of [`ErrorPattern`]s: the first that matches
//! decides, and an error that none matches is permanent. Texts are compared without regard to upper and lower case (R163).

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use graph_model::condition::{Condition, Test, When};
use graph_model::operator::Operator;
use graph_model::path::PathNames;
use graph_model::value::{AsView, Map, Value, View};
use regex::{Regex, RegexBuilder};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use crate::failure::{Category, Failure};

/// The longest pause that a [`Policy`] asks for, whatever its numbers and the server's header say.
pub const LONGEST_PAUSE: Duration = Duration::from_secs(3600);

/// How many levels a configuration may have.
const DEEPEST: usize = 50;

/// The information about a failure that patterns test.
///
/// [`Classifier`] has an example.
#[derive(Debug, Clone, Copy)]
pub struct Evidence<'a> {
    /// The kind of error; `ToolExecutionError` for every error of a tool.
    pub kind: &'a str,
    /// The error message.
    pub message: &'a str,
    /// The error code of whatever the tool called.
    pub code: Option<&'a str>,
    /// The HTTP status; 0 if there was no answer.
    pub status: Option<u16>,
    /// The category that the tool or the engine stated; it wins over every pattern (R142).
    pub category: Option<Category>,
    /// Whether somebody stopped the call.
    pub cancelled: bool,
}

impl<'a> Evidence<'a> {
    /// The information about a failure that has only a text.
    pub fn of_message(message: &'a str) -> Self {
        Self { kind: TOOL_ERROR, message, code: None, status: None, category: None, cancelled: false }
    }
}

/// The kind of every error that a tool returns (R160).
const TOOL_ERROR: &str = "ToolExecutionError";

impl<'a> From<&'a Failure> for Evidence<'a> {
    fn from(failure: &'a Failure) -> Self {
        Self {
            kind: TOOL_ERROR,
            message: &failure.message,
            code: failure.code.as_deref(),
            status: failure.status,
            category: failure.typed.then_some(failure.category),
            cancelled: failure.category == Category::Cancelled,
        }
    }
}

/// The classification of a failure.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Classification {
    /// How it is to be treated.
    pub category: Category,
    /// Whether a retry may help.
    pub retryable: bool,
    /// The id of the pattern that matched; `None` if no pattern did.
    pub code: Option<String>,
    /// How long to wait before the next call.
    pub policy: Policy,
}

impl Classification {
    /// Returns what hooks see as `classification` (R147, R161).
    pub fn to_value(&self) -> Value {
        let mut map = Map::new();
        map.insert("category".into(), self.category.name().into());
        map.insert("retryable".into(), self.retryable.into());
        map.insert("code".into(), self.code.clone().into());
        map.insert("retry_policy".into(), self.policy.to_value());
        Value::Object(map)
    }
}

/// How long to wait before a call is made again; numbers are seconds (R164).
///
/// ```
/// # use graph_engine as graph_runtime;
/// use std::time::Duration;
///
/// use graph_runtime::classify::Policy;
///
/// let doubled = Policy::Exponential { base: 2.0, max: 60.0 };
/// assert_eq!(doubled.delay(3, None), Duration::from_secs(16));
/// ```
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Policy {
    /// Not at all.
    #[default]
    None,
    /// `min(base * 2^attempt, max)`.
    Exponential {
        /// The pause of attempt 0.
        #[serde(default = "base", deserialize_with = "seconds")]
        base: f64,
        /// The longest pause.
        #[serde(default = "max", deserialize_with = "seconds")]
        max: f64,
    },
    /// Always the same time.
    Fixed {
        /// The pause.
        #[serde(default = "delay", deserialize_with = "seconds")]
        delay: f64,
    },
    /// As long as whatever the tool called asks for, or else as the fallback says.
    UseHeader {
        /// The header's name; its value reaches the engine as [`with_retry_after`](crate::ActionError::with_retry_after).
        #[serde(default = "header")]
        header: String,
        /// The policy that applies if nothing was asked for.
        #[serde(default = "fallback")]
        fallback: Box<Self>,
    },
}

impl Policy {
    /// Returns the pause before the call that follows `attempt` others, at most [`LONGEST_PAUSE`].
    pub fn delay(&self, attempt: u32, retry_after: Option<Duration>) -> Duration {
        let pause = match self {
            Self::None => Duration::ZERO,
            Self::Exponential { base, max } => {
                let doublings = i32::try_from(attempt).unwrap_or(i32::MAX);
                // Zero times infinity is NaN, and must be zero.
                let grown = if *base > 0.0 { base * 2_f64.powi(doublings) } else { 0.0 };
                length(grown.min(*max))
            }
            Self::Fixed { delay } => length(*delay),
            Self::UseHeader { fallback, .. } => retry_after.unwrap_or_else(|| fallback.delay(attempt, None)),
        };
        pause.min(LONGEST_PAUSE)
    }

    /// The policy of a category that a tool stated itself, if no pattern has another.
    fn of(category: Category) -> Self {
        match category {
            Category::Transient => Self::Exponential { base: base(), max: max() },
            Category::RateLimited => Self::UseHeader { header: header(), fallback: fallback() },
            Category::Permanent | Category::Cancelled => Self::None,
        }
    }

    fn to_value(&self) -> Value {
        let mut map = Map::new();
        let kind = match self {
            Self::None => return Value::Null,
            Self::Exponential { base, max } => {
                map.insert("base".into(), (*base).into());
                map.insert("max".into(), (*max).into());
                "exponential"
            }
            Self::Fixed { delay } => {
                map.insert("delay".into(), (*delay).into());
                "fixed"
            }
            Self::UseHeader { header, fallback } => {
                map.insert("header".into(), header.clone().into());
                map.insert("fallback".into(), fallback.to_value());
                "use_header"
            }
        };
        map.insert("type".into(), kind.into());
        Value::Object(map)
    }
}

// The defaults of the fields of policies (R164).

fn base() -> f64 {
    2.0
}

fn max() -> f64 {
    120.0
}

fn delay() -> f64 {
    60.0
}

fn header() -> String {
    "retry-after".to_owned()
}

fn fallback() -> Box<Policy> {
    Box::new(Policy::Exponential { base: base(), max: 60.0 })
}

/// Reads a number of seconds.
fn seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    let seconds = f64::deserialize(deserializer)?;
    if seconds >= 0.0 { Ok(seconds) } else { Err(D::Error::custom("a pause is a number of seconds, from 0")) }
}

/// Returns a number of seconds as a pause. A number that is not a length of time gives no pause, and one that is too large
/// gives the longest.
fn length(seconds: f64) -> Duration {
    if seconds.is_nan() || seconds <= 0.0 {
        return Duration::ZERO;
    }
    Duration::try_from_secs_f64(seconds).unwrap_or(LONGEST_PAUSE)
}

/// A kind of failure, and how it is recognised.
///
/// Its tests are alternatives: one that matches is enough. Tests that must match together are written as a `match` with
/// `all`, which [`Classifier::overlay`] reads.
///
/// ```
/// # use graph_engine as graph_runtime;
/// use graph_runtime::Category;
/// use graph_runtime::classify::{ErrorPattern, Policy};
///
/// let busy = ErrorPattern::new("till_busy", Category::Transient)
///     .with_codes(["till_busy"])
///     .with_statuses([423])
///     .with_policy(Policy::Fixed { delay: 5.0 });
/// assert_eq!(busy.id(), "till_busy");
/// ```
///
/// The example of [`Classifier`] uses a pattern.
#[derive(Debug, Clone)]
pub struct ErrorPattern {
    id: String,
    category: Category,
    retryable: bool,
    when: Condition<TextTest>,
    policy: Policy,
}

impl ErrorPattern {
    /// A pattern that matches nothing yet. Its category determines whether a failure is tried again, and the pause before
    /// that.
    pub fn new(id: impl Into<String>, category: Category) -> Self {
        Self {
            id: id.into(),
            category,
            retryable: category.is_retryable(),
            when: Condition::Any(Vec::new()),
            policy: Policy::of(category),
        }
    }

    /// Matches these error codes.
    #[must_use]
    pub fn with_codes<'a>(self, codes: impl IntoIterator<Item = &'a str>) -> Self {
        self.or(TextTest::among(ErrorField::Code, codes.into_iter().map(Value::from).collect()))
    }

    /// Matches these HTTP statuses.
    #[must_use]
    pub fn with_statuses(self, statuses: impl IntoIterator<Item = u16>) -> Self {
        self.or(TextTest::among(ErrorField::Status, statuses.into_iter().map(Value::from).collect()))
    }

    /// Matches these kinds of errors.
    #[must_use]
    pub fn with_kinds<'a>(self, kinds: impl IntoIterator<Item = &'a str>) -> Self {
        self.or(TextTest::among(ErrorField::Kind, kinds.into_iter().map(Value::from).collect()))
    }

    /// Matches messages in which the regular expression is found.
    ///
    /// # Errors
    ///
    /// If the `regex` crate rejects the expression.
    pub fn with_message(self, expression: &str) -> Result<Self, ClassifierError> {
        let test = TextTest::new(ErrorField::Message, Operator::Regex, &expression.into());
        let test = test.map_err(|reason| ClassifierError { place: self.id.clone(), reason })?;
        Ok(self.or(test))
    }

    /// Waits as `policy` says before another call.
    #[must_use]
    pub fn with_policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Says whether a retry may help, instead of the category.
    #[must_use]
    pub fn with_retryable(mut self, retryable: bool) -> Self {
        self.retryable = retryable;
        self
    }

    /// Returns its id, which is the `code` of the failures that it matches.
    pub fn id(&self) -> &str {
        &self.id
    }

    fn or(mut self, test: TextTest) -> Self {
        match &mut self.when {
            Condition::Any(tests) => tests.push(Condition::Test(test)),
            other => {
                let read = std::mem::replace(other, Condition::Always);
                *other = Condition::Any(vec![read, Condition::Test(test)]);
            }
        }
        self
    }

    fn matches(&self, evidence: &Evidence<'_>) -> bool {
        let Ok(holds) = self.when.holds(&mut |test| Ok::<_, std::convert::Infallible>(test.holds(evidence)));
        holds
    }

    fn classification(&self) -> Classification {
        Classification {
            category: self.category,
            retryable: self.retryable,
            code: Some(self.id.clone()),
            policy: self.policy.clone(),
        }
    }

    /// Reads an element of `patterns`.
    fn read(map: Map<String, Value>) -> Result<Self, String> {
        let read: PatternFile = serde_json::from_value(Value::Object(map)).map_err(|error| error.to_string())?;
        let PatternFile { id, category, retryable, when, policy, .. } = read;
        let when = When::read(when, PathNames::Known(&ErrorField::ROOTS))?;
        let when = when.condition().try_map(&mut TextTest::of)?;
        if matches!(when, Condition::Always) {
            return Err("an empty `match` would match every failure".to_owned());
        }
        let retryable = retryable.unwrap_or_else(|| category.is_retryable());
        Ok(Self { id, category, retryable, when, policy })
    }
}

/// A pattern as its file has it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PatternFile {
    id: String,
    #[serde(rename = "name")]
    _name: Option<Value>,
    #[serde(rename = "description")]
    _description: Option<Value>,
    category: Category,
    retryable: Option<bool>,
    /// The failures that it is about: a condition of the graph format (R76).
    #[serde(rename = "match")]
    when: Value,
    #[serde(rename = "retry_policy", default)]
    policy: Policy,
}

/// The classification of other failures, as its file has it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DefaultFile {
    category: Category,
    retryable: Option<bool>,
    #[serde(rename = "retry_policy", default)]
    policy: Policy,
}

/// A configuration. It has other fields for the use of its file.
#[derive(Deserialize)]
struct ClassifierFile {
    #[serde(default)]
    patterns: Vec<Map<String, Value>>,
    default: Option<DefaultFile>,
}

/// The field that a test reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ErrorField {
    Kind,
    Message,
    Code,
    Status,
    Cancelled,
}

impl ErrorField {
    /// The paths of the document that conditions look at (R160); `error.status_code` is another spelling.
    const TABLE: [(&'static str, Self); 6] = [
        ("error.type", Self::Kind),
        ("error.message", Self::Message),
        ("error.code", Self::Code),
        ("status_code", Self::Status),
        ("error.status_code", Self::Status),
        ("cancelled", Self::Cancelled),
    ];
    /// The beginning of these paths.
    const ROOTS: [&'static str; 3] = ["error", "status_code", "cancelled"];
}

/// A comparison.
#[derive(Debug, Clone)]
struct TextTest {
    field: ErrorField,
    operator: Operator,
    /// In lower case.
    value: Value,
    regex: Option<Regex>,
}

impl TextTest {
    /// Reads a comparison of the graph format.
    fn of(test: &Test) -> Result<Self, String> {
        let path = test.path.to_string();
        let field = ErrorField::TABLE.iter().find(|(name, _)| *name == path).ok_or_else(|| {
            let known = ErrorField::TABLE.map(|(name, _)| format!("`{name}`")).join(", ");
            format!("there is nothing at `{path}`; the paths are {known}")
        })?;
        Self::new(field.1, test.operator, &test.right)
    }

    fn new(field: ErrorField, operator: Operator, value: &Value) -> Result<Self, String> {
        let regex = match (operator, value) {
            (Operator::Regex, Value::String(expression)) => {
                let built = RegexBuilder::new(expression).case_insensitive(true).build();
                // The error's own text shows the expression on several lines.
                Some(built.map_err(|error| one_line(&error.to_string()))?)
            }
            (Operator::In, value) if !value.is_array() => return Err("the value of `in` is a list".to_owned()),
            _ => None,
        };
        Ok(Self { field, operator, value: lower_case(value), regex })
    }

    fn among(field: ErrorField, values: Vec<Value>) -> Self {
        Self { field, operator: Operator::In, value: lower_case(&Value::Array(values)), regex: None }
    }

    fn holds(&self, evidence: &Evidence<'_>) -> bool {
        let of_text = |text: &str| {
            if let Some(regex) = &self.regex {
                return regex.is_match(text);
            }
            self.compare(View::Text(&text.to_lowercase()))
        };
        match self.field {
            ErrorField::Kind => of_text(evidence.kind),
            ErrorField::Message => of_text(evidence.message),
            ErrorField::Code => evidence.code.map_or_else(|| self.compare(View::Null), of_text),
            ErrorField::Status => {
                self.compare(evidence.status.map_or(View::Null, |status| View::Integer(status.into())))
            }
            ErrorField::Cancelled => self.compare(View::Boolean(evidence.cancelled)),
        }
    }

    /// Values that cannot be compared do not match: a failure must not make its own handling fail.
    fn compare(&self, left: View<'_>) -> bool {
        let matches = |text: &str| self.regex.as_ref().is_some_and(|regex| regex.is_match(text));
        self.operator.holds(left, &self.value, matches).unwrap_or(false)
    }
}

fn one_line(text: &str) -> String {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
}

fn lower_case(value: &Value) -> Value {
    match value {
        Value::String(text) => text.to_lowercase().into(),
        Value::Array(list) => list.iter().map(lower_case).collect(),
        other => other.clone(),
    }
}

/// Why a configuration of a classifier is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("failed to read the classification of errors: {reason}{}", if self.place.is_empty() { String::new() } else { format!(", at `{}`", self.place) })]
pub struct ClassifierError {
    place: String,
    reason: String,
}

/// The patterns, in order, and the classification of failures that none of them matches.
///
/// ```
/// # use graph_engine as graph_runtime;
/// use graph_runtime::classify::{ErrorPattern, Evidence};
/// use graph_runtime::{Category, Classifier, Runtime};
///
/// let sold_out = ErrorPattern::new("sold_out", Category::Permanent).with_message("sold out")?;
/// let classifier = Classifier::documented().first(sold_out);
///
/// let failure = classifier.classify(&Evidence::of_message("timeout: the tea is sold out"));
/// assert_eq!((failure.code.as_deref(), failure.retryable), (Some("sold_out"), false));
/// let runtime = Runtime::builder().classifier(classifier).build()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Classifier {
    patterns: Vec<Arc<ErrorPattern>>,
    otherwise: Classification,
}

impl Default for Classifier {
    /// Returns [`Classifier::documented`].
    fn default() -> Self {
        Self::documented()
    }
}

impl Classifier {
    /// Returns the nine patterns of the format's page (R162).
    pub fn documented() -> Self {
        Self::shared().clone()
    }

    /// Returns a shared [`Classifier::documented`], which is made once.
    pub(crate) fn shared() -> &'static Self {
        static DOCUMENTED: LazyLock<Classifier> = LazyLock::new(|| {
            let value =
                serde_json::from_str(include_str!("classify.json")).expect("the file is JSON: the tests read it");
            Classifier::empty().overlay(&value).expect("the file is a classification: the tests read it")
        });
        &DOCUMENTED
    }

    fn empty() -> Self {
        let otherwise =
            Classification { category: Category::Permanent, retryable: false, code: None, policy: Policy::None };
        Self { patterns: Vec::new(), otherwise }
    }

    /// Puts a pattern before all others, and removes the one that has its id.
    #[must_use]
    pub fn first(mut self, pattern: ErrorPattern) -> Self {
        self.patterns.retain(|other| other.id != pattern.id);
        self.patterns.insert(0, Arc::new(pattern));
        self
    }

    /// Puts a pattern in the place of the one that has its id, or after all others (R159).
    #[must_use]
    #[expect(clippy::should_implement_trait, reason = "adding a pattern is no addition")]
    pub fn add(mut self, pattern: ErrorPattern) -> Self {
        let pattern = Arc::new(pattern);
        match self.patterns.iter_mut().find(|other| other.id == pattern.id) {
            Some(other) => *other = pattern,
            None => self.patterns.push(pattern),
        }
        self
    }

    /// Applies a configuration to the [documented](Self::documented) patterns, as [`Classifier::overlay`] does.
    ///
    /// ```
    /// # use graph_engine as graph_runtime;
    /// use graph_runtime::Classifier;
    /// use graph_runtime::classify::Evidence;
    /// use serde_json::json;
    ///
    /// let classifier = Classifier::from_value(&json!({
    ///     "patterns": [{
    ///         "id": "till_busy",
    ///         "category": "transient",
    ///         "match": { "path": "error.message", "op": "regex", "value": "till .* is busy" },
    ///     }],
    /// }))?;
    /// assert!(classifier.classify(&Evidence::of_message("till 3 is busy")).retryable);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Classifier::overlay`].
    pub fn from_value(value: &Value) -> Result<Self, ClassifierError> {
        Self::documented().overlay(value)
    }

    /// Applies a configuration to this classifier. Each of its `patterns` takes the place of the one that has its id, or
    /// comes after all others. Its `default` applies if no pattern matches (R159).
    ///
    /// A pattern has an `id`, a `category`, a `match` and, optionally, `retryable` and `retry_policy`. `match` is a
    /// condition as on edges, with the paths `error.type`, `error.message`, `error.code`, `status_code` and `cancelled`.
    /// Other fields of the configuration are ignored, because its file has some for its own use.
    ///
    /// # Errors
    ///
    /// If the value has another shape, names a category, path or operator that does not exist, or has an invalid
    /// regular expression.
    pub fn overlay(mut self, value: &Value) -> Result<Self, ClassifierError> {
        let wrong = |place: String, reason: String| ClassifierError { place, reason };
        if !value.is_object() || !value.view().is_within(DEEPEST) {
            return Err(wrong(String::new(), format!("it is a mapping of at most {DEEPEST} levels")));
        }
        let read = ClassifierFile::deserialize(value);
        let ClassifierFile { patterns, default } = read.map_err(|error| wrong(String::new(), error.to_string()))?;
        for (at, map) in patterns.into_iter().enumerate() {
            let id = map.get("id").and_then(Value::as_str).map_or_else(|| at.to_string(), str::to_owned);
            self = self.add(ErrorPattern::read(map).map_err(|reason| wrong(format!("patterns.{id}"), reason))?);
        }
        if let Some(DefaultFile { category, retryable, policy }) = default {
            let retryable = retryable.unwrap_or_else(|| category.is_retryable());
            self.otherwise = Classification { category, retryable, code: None, policy };
        }
        Ok(self)
    }

    /// Classifies a failure (R161).
    ///
    /// A category that was stated always holds; the first pattern of that category that matches then gives the code and the
    /// pause.
    pub fn classify(&self, evidence: &Evidence<'_>) -> Classification {
        let category = evidence.category;
        let may_decide = |pattern: &&Arc<ErrorPattern>| category.is_none_or(|category| pattern.category == category);
        let found = self.patterns.iter().filter(may_decide).find(|pattern| pattern.matches(evidence));
        match (found, category) {
            (Some(pattern), _) => pattern.classification(),
            (None, Some(category)) => {
                let retryable = category.is_retryable();
                Classification { category, retryable, code: None, policy: Policy::of(category) }
            }
            (None, None) => self.otherwise.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::failure::ActionError;

    fn exponential(base: f64, max: f64) -> Policy {
        Policy::Exponential { base, max }
    }

    fn code(evidence: Evidence<'_>) -> String {
        Classifier::documented().classify(&evidence).code.unwrap_or_default()
    }

    fn message(message: &str) -> Evidence<'_> {
        Evidence::of_message(message)
    }

    fn kind(kind: &str) -> Evidence<'_> {
        Evidence { kind, ..message("it failed") }
    }

    fn coded(code: &str) -> Evidence<'_> {
        Evidence { code: Some(code), ..message("it failed") }
    }

    fn status(status: u16) -> Evidence<'static> {
        Evidence { status: Some(status), ..message("it failed") }
    }

    #[test]
    fn each_row_of_the_documented_table_matches_what_it_names() {
        for (expected, evidence) in [
            ("quota_exhausted", coded("insufficient_quota")),
            ("quota_exhausted", coded("quota_exceeded")),
            ("quota_exhausted", coded("billing_hard_limit_reached")),
            ("quota_exhausted", message("insufficient_quota: top up")),
            ("quota_exhausted", message("insufficient quota")),
            ("quota_exhausted", message("your quota has been exceeded")),
            ("quota_exhausted", message("quota exceeded")),
            ("quota_exhausted", message("billing: the hard limit was reached")),
            ("quota_exhausted", message("you exceeded your current quota")),
            ("http_429", Evidence { status: Some(429), ..message("rate limit reached") }),
            ("http_429", Evidence { status: Some(429), ..message("too many requests") }),
            ("http_429", Evidence { status: Some(429), ..message("throttled") }),
            ("http_429", Evidence { status: Some(429), ..kind("rate_limit_error") }),
            ("http_429", Evidence { status: Some(429), ..kind("RateLimitError") }),
            ("network_timeout", kind("TimeoutError")),
            ("network_timeout", kind("ReadTimeout")),
            ("network_timeout", kind("ConnectTimeout")),
            ("network_timeout", message("timeout after 30s")),
            ("network_timeout", message("the call timed out")),
            ("network_connection", kind("ConnectionError")),
            ("network_connection", kind("ConnectionResetError")),
            ("network_connection", message("connection reset by peer")),
            ("network_connection", message("connection refused")),
            ("network_connection", message("the network is unreachable")),
            ("http_0_connection", status(0)),
            ("http_5xx", status(500)),
            ("http_5xx", status(502)),
            ("http_5xx", status(503)),
            ("http_5xx", status(504)),
            ("auth_failure", status(401)),
            ("auth_failure", status(403)),
            ("auth_failure", coded("authentication_error")),
            ("auth_failure", coded("authorization_error")),
            ("validation_error", status(422)),
            ("validation_error", kind("ValidationError")),
            ("cancelled", kind("CancelledError")),
            ("cancelled", Evidence { cancelled: true, ..message("stopped") }),
            ("", message("it failed")),
            ("", status(429)),
            ("", status(501)),
            ("", message("rate limit")),
        ] {
            assert_eq!(code(evidence), expected, "{evidence:?}");
        }
    }

    #[test]
    fn each_row_of_the_documented_table_says_what_to_do() {
        let header = || Policy::UseHeader { header: "retry-after".into(), fallback: Box::new(exponential(2.0, 60.0)) };
        let rows: Vec<(String, Category, bool, Policy)> = Classifier::documented()
            .patterns
            .iter()
            .map(|row| (row.id.clone(), row.category, row.retryable, row.policy.clone()))
            .collect();
        let expected = [
            ("quota_exhausted", Category::Permanent, false, Policy::None),
            ("http_429", Category::RateLimited, true, header()),
            ("network_timeout", Category::Transient, true, exponential(2.0, 30.0)),
            ("network_connection", Category::Transient, true, exponential(2.0, 60.0)),
            ("http_0_connection", Category::Transient, true, exponential(3.0, 30.0)),
            ("http_5xx", Category::Transient, true, exponential(2.0, 120.0)),
            ("auth_failure", Category::Permanent, false, Policy::None),
            ("validation_error", Category::Permanent, false, Policy::None),
            ("cancelled", Category::Cancelled, false, Policy::None),
        ];
        assert_eq!(rows, expected.map(|(id, category, retryable, policy)| (id.into(), category, retryable, policy)));
    }

    #[test]
    fn the_first_pattern_that_matches_decides() {
        assert_eq!(
            code(Evidence { status: Some(429), ..message("quota exceeded, too many requests") }),
            "quota_exhausted"
        );
        assert_eq!(code(Evidence { status: Some(503), ..message("timed out") }), "network_timeout");
    }

    #[test]
    fn a_failure_without_a_matching_pattern_is_permanent() {
        let found = Classifier::documented().classify(&message("it failed"));
        let expected =
            Classification { category: Category::Permanent, retryable: false, code: None, policy: Policy::None };
        assert_eq!(found, expected);
    }

    #[test]
    fn upper_and_lower_case_are_the_same() {
        for (text, expected) in [
            ("Connection refused", "network_connection"),
            ("TIMED OUT", "network_timeout"),
            ("Quota Exceeded", "quota_exhausted"),
        ] {
            assert_eq!(code(message(text)), expected);
        }
        assert_eq!(code(coded("Insufficient_Quota")), "quota_exhausted");
        assert_eq!(code(kind("timeouterror")), "network_timeout");
    }

    #[test]
    fn an_explicit_category_overrides_the_text() {
        let classifier = Classifier::documented();
        let denied = Failure::permanent("Permission denied: 'rye.execute.tool.timeout' not covered by capabilities");
        let found = classifier.classify(&Evidence::from(&denied));
        assert_eq!((found.category, found.retryable, found.code), (Category::Permanent, false, None));

        let stopped = Failure::from(ActionError::new(Category::Cancelled, "stopped: timeout"));
        assert_eq!(classifier.classify(&Evidence::from(&stopped)).category, Category::Cancelled);

        let assumed = Failure::from(ActionError::from(std::io::Error::other("timed out")));
        assert_eq!(classifier.classify(&Evidence::from(&assumed)).category, Category::Transient);
    }

    #[test]
    fn a_given_category_takes_code_and_policy_from_its_pattern() {
        let classifier = Classifier::documented();
        let failure = Failure::from(ActionError::transient("quota exceeded: timed out"));
        let found = classifier.classify(&Evidence::from(&failure));
        assert_eq!((found.code.as_deref(), found.policy), (Some("network_timeout"), exponential(2.0, 30.0)));

        let failure = Failure::from(ActionError::transient("later"));
        assert_eq!(classifier.classify(&Evidence::from(&failure)).policy, exponential(2.0, 120.0));
    }

    #[test]
    fn pauses_follow_the_formulas() {
        let policy = exponential(2.0, 30.0);
        let pauses: Vec<u64> = (0..6).map(|attempt| policy.delay(attempt, None).as_secs()).collect();
        assert_eq!(pauses, [2, 4, 8, 16, 30, 30]);
        assert_eq!(policy.delay(u32::MAX, None).as_secs(), 30);
        assert_eq!(exponential(3.0, 30.0).delay(2, Some(Duration::from_secs(5))).as_secs(), 12);
        assert_eq!(Policy::Fixed { delay: 60.0 }.delay(9, None).as_secs(), 60);
        assert_eq!(Policy::None.delay(3, Some(Duration::from_secs(5))), Duration::ZERO);
        let header = Policy::of(Category::RateLimited);
        assert_eq!(header.delay(1, Some(Duration::from_secs(7))).as_secs(), 7);
        assert_eq!(header.delay(1, None).as_secs(), 4);
    }

    #[test]
    fn no_policy_or_server_makes_a_run_wait_forever() {
        assert_eq!(Policy::of(Category::RateLimited).delay(0, Some(Duration::MAX)), LONGEST_PAUSE);
        assert_eq!(Policy::Fixed { delay: 1e300 }.delay(0, None), LONGEST_PAUSE);
        assert_eq!(exponential(f64::NAN, f64::NAN).delay(3, None), Duration::ZERO);
        assert_eq!(exponential(0.0, 10.0).delay(u32::MAX, None), Duration::ZERO);
    }

    #[test]
    fn configuration_replaces_patterns_in_place_and_appends_new() {
        let classifier = Classifier::from_value(&json!({
            "category": "rye/agent", "version": "1.0.0",
            "patterns": [
                { "id": "http_5xx", "category": "permanent", "match": { "path": "status_code", "op": "gte", "value": 500 } },
                { "id": "busy", "category": "rate_limited", "match": { "path": "error.message", "op": "contains", "value": "BUSY" },
                  "retry_policy": { "type": "fixed" } },
            ],
            "default": { "category": "transient", "retryable": false },
        }));
        let classifier = classifier.unwrap();
        let ids: Vec<&str> = classifier.patterns.iter().map(|pattern| pattern.id()).collect();
        assert_eq!(ids[5], "http_5xx");
        assert_eq!(ids[9], "busy");
        assert_eq!(ids.len(), 10);
        assert_eq!(classifier.classify(&status(501)).category, Category::Permanent);
        let busy = classifier.classify(&message("The server is busy"));
        assert_eq!((busy.retryable, busy.policy), (true, Policy::Fixed { delay: 60.0 }));
        let other = classifier.classify(&message("it failed"));
        assert_eq!((other.category, other.retryable), (Category::Transient, false));
    }

    #[test]
    fn patterns_can_be_made_in_rust_and_put_before_all_others() {
        let pattern = ErrorPattern::new("shop_closed", Category::RateLimited)
            .with_codes(["CLOSED"])
            .with_statuses([418])
            .with_kinds(["Closed"])
            .with_message("opens at [0-9]+")
            .unwrap()
            .with_policy(Policy::Fixed { delay: 900.0 });
        let classifier = Classifier::documented().first(pattern);
        for evidence in [coded("closed"), status(418), kind("Closed"), message("quota exceeded, opens at 9")] {
            assert_eq!(classifier.classify(&evidence).code.as_deref(), Some("shop_closed"), "{evidence:?}");
        }
        let gone = classifier.clone().add(ErrorPattern::new("shop_closed", Category::Permanent));
        assert_eq!(gone.patterns.len(), 10);
        assert_eq!(gone.classify(&status(418)).code, None);
    }

    #[test]
    fn configuration_mistakes_are_reported_with_their_places() {
        let pattern = |changes: Value| {
            let mut pattern =
                json!({ "id": "a", "category": "transient", "match": { "path": "cancelled", "value": true } });
            for (name, value) in changes.as_object().unwrap() {
                pattern[name] = value.clone();
            }
            json!({ "patterns": [pattern] })
        };
        for (config, expected) in [
            (json!([]), "it is a mapping"),
            (json!({ "patterns": {} }), "expected a sequence"),
            (json!({ "patterns": [{}] }), "missing field `id`, at `patterns.0`"),
            (json!({ "patterns": [{ "id": "a", "category": "permanent" }] }), "missing field `match`, at `patterns.a`"),
            (
                pattern(json!({ "category": "transcient" })),
                "unknown variant `transcient`, expected one of `permanent`, `transient`, `rate_limited`, `cancelled`",
            ),
            (pattern(json!({ "category": "transcient" })), "at `patterns.a`"),
            (pattern(json!({ "retryable": "yes" })), "expected a boolean, at `patterns.a`"),
            (pattern(json!({ "mach": {} })), "unknown field `mach`"),
            (pattern(json!({ "match": { "value": 1 } })), "is not a condition, at `patterns.a`"),
            (pattern(json!({ "match": {} })), "an empty `match` would match every failure"),
            (pattern(json!({ "match": { "any": [], "all": [] } })), "a condition has `any` or `all`, not both"),
            (pattern(json!({ "match": { "path": "error.name", "value": 1 } })), "there is nothing at `error.name`"),
            (
                pattern(json!({ "match": { "path": "cancelled", "op": "is" } })),
                "`is` is not an operator, at `patterns.a`",
            ),
            (
                pattern(json!({ "match": { "any": [{ "path": "error.message", "op": "regex", "value": "(" }] } })),
                "unclosed group, at `patterns.a`",
            ),
            (pattern(json!({ "match": { "path": "error.message", "op": "regex", "value": "(" } })), "unclosed group"),
            (
                pattern(json!({ "match": { "path": "error.code", "op": "in", "value": "x" } })),
                "the value of `in` is a list",
            ),
            (pattern(json!({ "retry_policy": { "type": "linear" } })), "unknown variant `linear`, expected one of"),
            (
                pattern(json!({ "retry_policy": { "type": "fixed", "delay": -1 } })),
                "a pause is a number of seconds, from 0, at `patterns.a`",
            ),
            (json!({ "default": { "category": "none" } }), "unknown variant `none`"),
        ] {
            let error = Classifier::from_value(&config).unwrap_err().to_string();
            assert!(error.contains(expected), "{config}: {error}");
        }
    }

    #[test]
    fn a_configuration_that_is_nested_without_end_is_refused() {
        let mut deep = json!({ "path": "cancelled" });
        for _ in 0..100 {
            deep = json!({ "not": deep });
        }
        let config = json!({ "patterns": [{ "id": "a", "category": "permanent", "match": deep }] });
        assert!(Classifier::from_value(&config).unwrap_err().to_string().contains("of at most 50 levels"));
    }

    #[test]
    fn hooks_see_category_retryable_code_and_retry_policy() {
        let value = Classifier::documented().classify(&message("timed out")).to_value();
        let policy = json!({ "base": 2.0, "max": 30.0, "type": "exponential" });
        let expected =
            json!({ "category": "transient", "retryable": true, "code": "network_timeout", "retry_policy": policy });
        assert_eq!(value, expected);
    }

    proptest! {
        #[test]
        fn no_failure_makes_the_classifier_panic(
            kind in ".*", message in ".{0,200}", code in proptest::option::of(".*"), status: Option<u16>, cancelled: bool,
        ) {
            let evidence =
                Evidence { kind: &kind, message: &message, code: code.as_deref(), status, category: None, cancelled };
            let found = Classifier::documented().classify(&evidence);
            prop_assert_eq!(found.retryable, found.category.is_retryable());
            prop_assert!(found.policy.delay(0, None) <= LONGEST_PAUSE);
        }

        #[test]
        fn pauses_grow_and_are_bounded(base in 0.0..1e6_f64, max in 0.0..1e6_f64, attempt in 0..100_u32) {
            let policy = Policy::Exponential { base, max };
            prop_assert!(policy.delay(attempt, None) <= policy.delay(attempt + 1, None));
            prop_assert!(policy.delay(attempt, None) <= length(max).min(LONGEST_PAUSE));
        }
    }
}
