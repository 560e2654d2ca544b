//! Scripts: what a tool answers, call by call.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use graph_engine::{ActionError, Call};
use graph_model::value::{AsView, FromValue, Mismatch, Value};

/// The future of a result.
type FakeFuture<R> = Pin<Box<dyn Future<Output = Result<R, ActionError>> + Send>>;

/// A function that answers a call, or whose parameters are of another type.
pub(crate) type FakeReply = Arc<dyn Fn(&Call, Value) -> Result<FakeFuture<Value>, Mismatch> + Send + Sync>;

/// A function that answers a call, with the types of the tool.
type TypedFakeReply<P, R> = Arc<dyn Fn(&Call, P) -> FakeFuture<R> + Send + Sync>;

/// One answer of a tool whose parameters are `P` and whose result is `R`.
pub struct FakeAnswer<P, R> {
    reply: TypedFakeReply<P, R>,
    delay: Duration,
}

impl<P, R> FakeAnswer<P, R> {
    /// The tool returns a value.
    pub fn returns(value: R) -> Self
    where
        R: Clone + Send + Sync + 'static,
    {
        Self::with(move |_, _| Ok(value.clone()))
    }

    /// The tool fails, and the failure is permanent.
    pub fn fails(message: impl Into<String>) -> Self
    where
        R: Send + 'static,
    {
        let message = message.into();
        Self::with(move |_, _| Err(ActionError::permanent(message.clone())))
    }

    /// The tool fails, and may succeed if it is called again.
    pub fn fails_once_more(message: impl Into<String>) -> Self
    where
        R: Send + 'static,
    {
        let message = message.into();
        Self::with(move |_, _| Err(ActionError::transient(message.clone())))
    }

    /// The tool asks people, and shows them a value. The call that follows their answer gets the next answer of the script.
    pub fn asks(payload: impl Into<Value>) -> Self
    where
        R: Send + 'static,
    {
        let payload = payload.into();
        Self::with(move |_, _| Err(ActionError::interrupt(payload.clone())))
    }

    /// The tool answers as a function says. A panic in it fails the node, and not the test.
    pub fn with(reply: impl Fn(&Call, P) -> Result<R, ActionError> + Send + Sync + 'static) -> Self
    where
        R: Send + 'static,
    {
        Self::with_async(move |call, params| std::future::ready(reply(call, params)))
    }

    /// The tool answers as an `async` function says, which can wait for anything. A panic in it fails the node, and not the test.
    ///
    /// ```
    /// use graph_engine::ActionError;
    /// use graph_testkit::FakeAnswer;
    ///
    /// // A tool that does not return, and is told when nobody waits for it any more.
    /// let hangs: FakeAnswer<String, i64> = FakeAnswer::with_async(|call, _| {
    ///     let call = call.clone();
    ///     async move {
    ///         call.cancelled().await;
    ///         Err(ActionError::permanent("nobody waits for it"))
    ///     }
    /// });
    /// # drop(hangs);
    /// ```
    pub fn with_async<F>(reply: impl Fn(&Call, P) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<R, ActionError>> + Send + 'static,
    {
        Self { reply: Arc::new(move |call, params| Box::pin(reply(call, params))), delay: Duration::ZERO }
    }

    /// Lets the tool take some time, by tokio's clock.
    #[must_use]
    pub fn after(self, delay: Duration) -> Self {
        Self { delay, ..self }
    }
}

impl<P, R> Clone for FakeAnswer<P, R> {
    fn clone(&self) -> Self {
        Self { reply: Arc::clone(&self.reply), delay: self.delay }
    }
}

impl<P, R> fmt::Debug for FakeAnswer<P, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FakeAnswer").field("delay", &self.delay).finish_non_exhaustive()
    }
}

/// The answers of a tool, call by call.
///
/// ```
/// use std::time::Duration;
///
/// use graph_testkit::{FakeAnswer, FakeScript};
///
/// // Two calls fail, each after ten seconds. The third one succeeds, and there is no fourth.
/// let busy: FakeAnswer<String, i64> = FakeAnswer::fails_once_more("busy").after(Duration::from_secs(10));
/// let script = FakeScript::of([busy.clone(), busy, FakeAnswer::returns(900)]);
/// // Each call succeeds.
/// let always: FakeScript<String, i64> = FakeScript::always(FakeAnswer::returns(900));
/// # drop((script, always));
/// ```
pub struct FakeScript<P, R> {
    answers: Vec<FakeAnswer<P, R>>,
    repeats: bool,
}

impl<P, R> FakeScript<P, R> {
    /// The first call gets the first answer, and so on. A call after the last one fails, and so does the test that asserts about the
    /// run.
    pub fn of(answers: impl IntoIterator<Item = FakeAnswer<P, R>>) -> Self {
        Self { answers: answers.into_iter().collect(), repeats: false }
    }

    /// Every call gets this answer.
    pub fn always(answer: FakeAnswer<P, R>) -> Self {
        Self { answers: vec![answer], repeats: true }
    }

    /// Every call returns this value.
    pub fn returns(value: R) -> Self
    where
        R: Clone + Send + Sync + 'static,
    {
        Self::always(FakeAnswer::returns(value))
    }

    /// The tool must not be called.
    pub fn never() -> Self {
        Self::of([])
    }
}

impl<P, R> fmt::Debug for FakeScript<P, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FakeScript").field("answers", &self.answers).field("repeats", &self.repeats).finish()
    }
}

/// A script for values: modules of different graphs have types of their own for the same tool.
pub(crate) struct ErasedScript {
    answers: Vec<(FakeReply, Duration)>,
    repeats: bool,
    /// How many calls it has answered.
    pub(crate) used: usize,
}

impl ErasedScript {
    pub(crate) fn of<P: FromValue + 'static, R: AsView + 'static>(script: FakeScript<P, R>) -> Self {
        let answers = script.answers.into_iter().map(|answer| {
            let reply: FakeReply = Arc::new(move |call, params| {
                let answered = (answer.reply)(call, P::from_value(params)?);
                Ok(Box::pin(async move { answered.await.map(|result| result.view().to_plain_value()) }))
            });
            (reply, answer.delay)
        });
        Self { answers: answers.collect(), repeats: script.repeats, used: 0 }
    }

    /// Returns the answer for the next call; `None` if there is no more.
    pub(crate) fn next(&mut self) -> Option<(FakeReply, Duration)> {
        let at = if self.repeats { 0 } else { self.used };
        let (reply, delay) = self.answers.get(at)?;
        self.used += 1;
        Some((Arc::clone(reply), *delay))
    }

    /// Returns how many answers no call got.
    pub(crate) fn left(&self) -> usize {
        if self.repeats { 0 } else { self.answers.len().saturating_sub(self.used) }
    }
}
