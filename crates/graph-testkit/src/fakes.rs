//! Tools that answer as a test says.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use graph_engine::{ActionError, Call, RunId};
use graph_model::value::{AsView, FromValue, Map, Value};

use crate::script::{ErasedScript, FakeReply, FakeScript};

/// A tool, with the types of its parameters and its result. The module of its contract has it, as `FAKE`.
pub struct FakeTool<P, R> {
    id: &'static str,
    types: PhantomData<fn(P) -> R>,
}

impl<P, R> FakeTool<P, R> {
    /// The tool with this id.
    pub const fn new(id: &'static str) -> Self {
        Self { id, types: PhantomData }
    }

    /// Returns the tool's id.
    pub const fn id(self) -> &'static str {
        self.id
    }
}

impl<P, R> Clone for FakeTool<P, R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P, R> Copy for FakeTool<P, R> {}

impl<P, R> fmt::Debug for FakeTool<P, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id)
    }
}

/// A call that was made of a fake tool.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct FakeCall {
    /// The tool's id.
    pub tool: String,
    /// The run.
    pub run: RunId,
    /// The node.
    pub node: String,
    /// The number of the visit.
    pub step: u64,
    /// The item's index, if the node is a foreach.
    pub item: Option<u64>,
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// The key that is the same for each attempt, also after a crash.
    pub idempotency_key: String,
    /// The parameters. Secrets are replaced by `[secret]`.
    pub params: Value,
}

/// The tools of every graph, for tests: each answers as its [`FakeScript`] says, and keeps its calls. Clones share all.
///
/// The module of each contract implements its trait for it, if the feature `testing` is on. A tool without a script fails, and so
/// does one whose script has no answer left. No built-in tool runs.
///
/// `R` has the reducers of the graph, if it has some: see [`Fakes::reducing`].
pub struct Fakes<R = ()> {
    shared: Arc<Mutex<FakeState>>,
    reducers: PhantomData<fn() -> R>,
}

#[derive(Default)]
struct FakeState {
    scripts: BTreeMap<String, ErasedScript>,
    calls: Vec<(FakeCall, Value)>,
    /// The answers by the idempotency key of the call, the number of the attempt, and how many answers of people it has: a call that a
    /// crash repeats gets the same.
    answered: HashMap<(String, u32, usize), (FakeReply, Duration)>,
    /// Whether a call that is made again gets the answer that it got before.
    repeats_answers: bool,
    /// The calls without an answer that fits, as texts.
    unscripted: Vec<String>,
}

impl Fakes {
    /// Tools without scripts.
    pub fn new() -> Self {
        Self { shared: Arc::default(), reducers: PhantomData }
    }
}

impl Default for Fakes {
    fn default() -> Self {
        Self::new()
    }
}

impl<R> Fakes<R> {
    /// Sets the script of a tool.
    #[must_use]
    pub fn on<P: FromValue + 'static, V: AsView + 'static>(
        self,
        tool: FakeTool<P, V>,
        script: FakeScript<P, V>,
    ) -> Self {
        self.state().scripts.insert(tool.id.to_owned(), ErasedScript::of(script));
        self
    }

    /// Sets the script of a tool whose id the graph computes.
    #[must_use]
    pub fn on_computed(self, id: &str, script: FakeScript<Map<String, Value>, Value>) -> Self {
        self.state().scripts.insert(id.to_owned(), ErasedScript::of(script));
        self
    }

    /// Takes the reducers of a type, for graphs whose channels have functions of the program: `Fakes::new().reducing::<Shop>()`.
    #[must_use]
    pub fn reducing<O>(self) -> Fakes<O> {
        Fakes { shared: self.shared, reducers: PhantomData }
    }

    /// Returns all calls, in the order in which they began.
    pub fn calls(&self) -> Vec<FakeCall> {
        self.state().calls.iter().map(|(call, _)| call.clone()).collect()
    }

    /// Returns the parameters of the calls of a tool, in the order in which they began.
    pub fn calls_of<P: FromValue, V>(&self, tool: FakeTool<P, V>) -> Vec<P> {
        let state = self.state();
        let own = state.calls.iter().filter(|(call, _)| call.tool == tool.id);
        own.filter_map(|(_, params)| P::from_value(params.clone()).ok()).collect()
    }

    /// Returns what does not fit between the scripts and the calls: calls without an answer, values of another type, and answers that no
    /// call got.
    pub fn problems(&self) -> Vec<String> {
        let state = self.state();
        let unused = state.scripts.iter().filter(|(_, script)| script.left() > 0);
        let unused = unused.map(|(tool, script)| match script.left() {
            1 => format!("an answer of `{tool}` was not used"),
            left => format!("{left} answers of `{tool}` were not used"),
        });
        state.unscripted.iter().cloned().chain(unused).collect()
    }

    /// Gives a call that a crash repeats the answer that it got before.
    pub(crate) fn repeat_answers(&self) {
        self.state().repeats_answers = true;
    }

    fn state(&self) -> MutexGuard<'_, FakeState> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<R> Clone for Fakes<R> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), reducers: PhantomData }
    }
}

impl<R> fmt::Debug for Fakes<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        f.debug_struct("Fakes").field("tools", &state.scripts.keys()).field("calls", &state.calls.len()).finish()
    }
}

/// Answers a call as its script says. Generated code calls it.
pub fn fake<R, P: AsView, V: FromValue>(
    fakes: &Fakes<R>,
    call: &Call,
    params: P,
) -> impl Future<Output = Result<V, ActionError>> + Send + use<R, P, V> {
    let (shown, plain) = (params.view().to_value(), params.view().to_plain_value());
    let (call, tool) = (call.clone(), call.tool().to_owned());
    let mut state = fakes.state();
    state.calls.push((
        FakeCall {
            tool: tool.clone(),
            run: call.run_id().clone(),
            node: call.node().to_owned(),
            step: call.step(),
            item: call.item(),
            attempt: call.attempt(),
            idempotency_key: call.idempotency_key(),
            params: shown.clone(),
        },
        plain.clone(),
    ));
    let repeated = (call.idempotency_key(), call.attempt(), call.answers().len());
    let before = state.answered.get(&repeated).filter(|_| state.repeats_answers).cloned();
    let answer = match (before, state.scripts.get_mut(&tool)) {
        (Some(answer), _) => Ok(answer),
        (None, Some(script)) => {
            let number = script.used + 1;
            script.next().ok_or_else(|| format!("its script has no answer number {number}"))
        }
        (None, None) => Err("it has no script: `Fakes::on` gives it one".to_owned()),
    };
    if let Ok(answer) = &answer {
        state.answered.insert(repeated, answer.clone());
    }
    let answer = answer.map_err(|why| {
        let text = format!("node `{}` called `{tool}` with {shown}, and {why}", call.node());
        state.unscripted.push(text.clone());
        text
    });
    drop(state);
    let shared = Arc::clone(&fakes.shared);
    let misfit = move |text: String| {
        shared.lock().unwrap_or_else(PoisonError::into_inner).unscripted.push(text.clone());
        ActionError::permanent(text)
    };
    async move {
        let (reply, delay) = answer.map_err(ActionError::permanent)?;
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        match reply(&call, plain) {
            Ok(answer) => {
                let value = answer.await?;
                V::from_value(value)
                    .map_err(|error| misfit(format!("the scripted result of `{tool}` does not fit: {error}")))
            }
            Err(error) => Err(misfit(format!("the parameters of `{tool}` do not fit its script: {error}"))),
        }
    }
}
