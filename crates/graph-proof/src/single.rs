//! Single steps: executes one node of a graph by itself, with a given state.

use std::sync::Arc;

use graph_engine::failure::{Failure, LastError};
use graph_engine::graph::{GraphTables, tables};
use graph_engine::machine::Machine;
use graph_engine::past::{Past, Seen, opened};
use graph_engine::runtime::services;
use graph_engine::single::visit_once;
use graph_engine::state::StateFields;
use graph_engine::step::Position;
use graph_engine::store::Wait;
use graph_engine::versions::kept_version;
use graph_engine::{BoxFuture, ErrorKind, HasKind, Options, RunError, Runtime, StartError, Status, StoredRunError};
use graph_model::capability::Grants;
use graph_model::digest::Digest;
use graph_model::name::RunId;
use graph_model::program::{LAST_ERROR, RETRIES};
use graph_model::value::{AsView, Map, Mismatch, Value};

use crate::history::{PastError, go_to};

/// The node to execute, with its overlay and options.
///
/// [`StepOnce`] has an example.
#[derive(Debug, Clone, Default)]
pub struct Single {
    /// The node.
    pub node: String,
    /// The values that overlay the state, by key: keys of the graph, `inputs`, `_last_error` and `_retries` (R264).
    pub inject: Map<String, Value>,
    /// The options of this step. Its own id is made of `options.run`; `options.durability` has no effect.
    pub options: Options,
}

/// The result of a single step (R265).
///
/// [`StepOnce`] has an example.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Stepped {
    /// The step's own run id: the id of the run whose state it had, or of a new run, followed by `-step` (R266).
    pub run: RunId,
    /// Whether the node succeeded. It has not if it waits.
    pub success: bool,
    /// The status that the run would have: `running` if it would continue, also after a failure.
    pub status: Status,
    /// The state after the step. Secrets are replaced by `[secret]`.
    pub state: Value,
    /// The node.
    pub executed_node: String,
    /// The node that would be visited next: after a failure, the one that handles it. `None` if the run would end (R267).
    pub next_node: Option<String>,
    /// The number of visited nodes, including this one: 1 for a fresh run.
    pub step_count: u64,
    /// The run's output, if the node ends the run. Secrets are replaced by `[secret]`.
    pub output: Option<Value>,
    /// Why the node failed.
    pub failure: Option<Box<Failure>>,
    /// The waits of the node, if it waits for a time, signals, or the answers of people. The step leaves nothing behind that could
    /// receive them.
    pub waits: Vec<Wait>,
}

impl Stepped {
    /// Returns the result as one object: `success`, `status`, `graph_run_id`, `steps`, `state`, `executed_node`, `next_node`,
    /// `step_count`, and `output`, `error` and `open`, a list of waits, where there are any (R265, R313).
    pub fn to_value(&self) -> Value {
        let mut result = Map::new();
        result.insert("success".into(), self.success.into());
        result.insert("status".into(), self.status.name().into());
        result.insert("graph_run_id".into(), self.run.as_str().into());
        result.insert("steps".into(), self.step_count.into());
        result.insert("executed_node".into(), self.executed_node.as_str().into());
        result.insert("next_node".into(), self.next_node.as_deref().map_or(Value::Null, Value::from));
        result.insert("step_count".into(), self.step_count.into());
        if let Some(failure) = &self.failure {
            result.insert("error".into(), failure.message.as_str().into());
            result.insert("node".into(), self.executed_node.as_str().into());
        }
        if let Some(output) = &self.output {
            result.insert("output".into(), output.clone());
        }
        if !self.waits.is_empty() {
            result.insert("open".into(), self.waits.iter().map(Wait::to_value).collect());
        }
        result.insert("state".into(), self.state.clone());
        Value::Object(result)
    }
}

/// Why a node could not be executed by itself.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SingleError {
    /// The graph has no such node.
    #[error("Target node '{0}' not found in graph")]
    NoSuchNode(String),
    /// The node is in branches, and nothing says in which.
    #[error("node `{node}` is in the branches of `{fan}`, and nothing says in which: {reason}")]
    InBranches {
        /// The node.
        node: String,
        /// The node that begins the branches.
        fan: String,
        /// The reason why the branch is not known.
        reason: String,
    },
    /// An injected value does not fit the state.
    #[error("the state cannot be overlaid with `{key}`: {mismatch}")]
    Inject {
        /// The key.
        key: String,
        /// The mismatch between the value and its type.
        mismatch: Mismatch,
    },
    /// An injected key is not a key of the state.
    #[error("the graph has no state key `{key}`; it has `{}`", known.join("`, `"))]
    UnknownKey {
        /// The injected key.
        key: String,
        /// The graph's state keys.
        known: Vec<String>,
    },
    /// The run could not be read.
    #[error(transparent)]
    Stored(#[from] StoredRunError),
    /// The run's journal was changed, or belongs to another graph.
    #[error("cannot take the state of run `{run}`: {reason}")]
    Past {
        /// The run.
        run: RunId,
        /// Why.
        reason: PastError,
    },
    /// The graph cannot run here, or its inputs do not fit (R268).
    #[error(transparent)]
    Start(#[from] StartError),
    /// The step exceeded its time limit.
    #[error(transparent)]
    Run(#[from] RunError),
}

impl HasKind for SingleError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::NoSuchNode(_) => ErrorKind::NotFound,
            Self::InBranches { .. } | Self::Inject { .. } | Self::UnknownKey { .. } => ErrorKind::Invalid,
            Self::Stored(error) => error.kind(),
            Self::Past { reason, .. } => reason.kind(),
            Self::Start(error) => error.kind(),
            Self::Run(error) => error.kind(),
        }
    }
}

/// Executes single nodes.
///
/// ```
/// # mod graph_runtime { pub use graph_engine::*; pub use graph_proof::*; }
/// # use graph_runtime::{Machine, Runtime};
/// # use std::sync::Arc;
/// # async fn example(runtime: Runtime, graph: Arc<dyn Machine>) -> Result<(), Box<dyn std::error::Error>> {
/// use graph_runtime::{Map, Single, StepOnce, Value};
///
/// let inject = Map::from_iter([("total".to_owned(), Value::from(900))]);
/// let charge = Single { node: "charge".to_owned(), inject, ..Single::default() };
/// let inputs = Map::from_iter([("order".to_owned(), Value::from(17))]);
/// let stepped = runtime.step_once(graph, inputs.into(), charge).await?;
/// println!("the next node is {:?}, and the state {}", stepped.next_node, stepped.state);
/// # Ok(())
/// # }
/// ```
pub trait StepOnce {
    /// Executes one node, with the state of a run that begins with `inputs`, and goes no further (R263). This includes the
    /// node's retries and the runs inside it. Nothing is written to a journal, and no hooks are notified that a run began,
    /// continued or ended. A node in branches is executed in those of an entry of the graph that leads to it.
    ///
    /// # Errors
    ///
    /// If there is no such node, it is in branches and no entry leads to it, or the graph cannot run with these inputs.
    fn step_once(
        &self,
        machine: Arc<dyn Machine>,
        inputs: Value,
        single: Single,
    ) -> BoxFuture<'_, Result<Stepped, SingleError>>;

    /// Executes one node as [`step_once`](Self::step_once) does, with the current state of a run in the store. That run is
    /// only read: not a byte of it changes, and its holder is not disturbed (R266). A node in branches is executed in the one in which
    /// the run is about to visit it.
    ///
    /// # Errors
    ///
    /// As for [`step_once`](Self::step_once); also if there is no such run, or it belongs to another graph.
    fn step_once_in<'a>(
        &'a self,
        machine: Arc<dyn Machine>,
        run: &'a RunId,
        single: Single,
    ) -> BoxFuture<'a, Result<Stepped, SingleError>>;
}

impl StepOnce for Runtime {
    fn step_once(
        &self,
        machine: Arc<dyn Machine>,
        inputs: Value,
        single: Single,
    ) -> BoxFuture<'_, Result<Stepped, SingleError>> {
        Box::pin(async move {
            let run = match &single.options.run {
                Some(run) => run.clone(),
                None => services(self).new_id(tables(machine.graph()))?,
            };
            step(self, machine, &run, inputs, None, single).await
        })
    }

    fn step_once_in<'a>(
        &'a self,
        machine: Arc<dyn Machine>,
        run: &'a RunId,
        single: Single,
    ) -> BoxFuture<'a, Result<Stepped, SingleError>> {
        Box::pin(step_in(self, machine, run, single))
    }
}

async fn step_in(
    runtime: &Runtime,
    machine: Arc<dyn Machine>,
    run: &RunId,
    mut single: Single,
) -> Result<Stepped, SingleError> {
    let services = services(runtime);
    let (store, key) = services.stored().map_err(StoredRunError::from)?;
    let past_error = |reason| SingleError::Past { run: run.clone(), reason };
    let older = services.older_of(&*machine, run).await.map_err(StoredRunError::from)?;
    let machine = kept_version(machine, older);
    let records = store.load(run).await.map_err(StoredRunError::from)?;
    let past = Past::open(&*machine, run, &records, &key.public(), services.encryption_key.as_ref());
    let mut past = past.map_err(|error| past_error(error.into()))?;
    go_to(&mut past, None).map_err(past_error)?;
    let Past { position, seen, start, .. } = past;
    let Seen::Plain(state) = seen else { return Err(past_error(PastError::Encrypted(start.encryption_key))) };
    // The step may use only the capabilities that the run's first caller allowed.
    if let Some(capabilities) = start.capabilities {
        let own = Grants::new(capabilities);
        single.options.capabilities =
            Some(single.options.capabilities.map_or_else(|| own.clone(), |given| given.narrowed(&own)));
    }
    single.options.depth = single.options.depth.into_iter().chain(start.depth).min();
    let inputs = state.inputs().to_plain_value();
    step(runtime, Arc::clone(&machine), run, inputs, Some((state, position)), single).await
}

async fn step(
    runtime: &Runtime,
    machine: Arc<dyn Machine>,
    origin: &RunId,
    inputs: Value,
    before: Option<(Box<dyn StateFields>, Position)>,
    single: Single,
) -> Result<Stepped, SingleError> {
    let code = tables(machine.graph());
    let Single { node, mut inject, options } = single;
    // The start of several nodes is not visited.
    let at = code.node_named(&node).filter(|&at| !code.starts_in_branches() || at != code.start);
    let at = at.ok_or(SingleError::NoSuchNode(node))?;
    let run = step_id(origin);
    let inputs = inject.shift_remove("inputs").unwrap_or(inputs);
    let begun = begun_at(code, at, before.as_ref().map(|(_, position)| position), &inputs)?;
    let place = |state: &mut Box<dyn StateFields>, position: &mut Position| {
        if let Some((state_before, at)) = before {
            // Keeps the inputs that were just checked, and takes the keys of the run.
            let misfit = |reason| StartError::Schema { graph: code.id.to_string(), reason };
            *state = opened(&*machine, state.inputs().to_plain_value()).map_err(misfit)?;
            for key in 0..code.keys.len() {
                let value = state_before.get(key).to_plain_value();
                let name = || code.keys[key].name.clone();
                state.set(key, value).map_err(|mismatch| SingleError::Inject { key: name(), mismatch })?;
            }
            *position = at;
        }
        if let Some(begun) = begun {
            *position = begun;
        }
        overlay(code, state, position, inject)?;
        position.stand_at(at);
        Ok::<_, SingleError>(())
    };
    let done = visit_once(runtime, Arc::clone(&machine), (run.clone(), options, inputs), place).await?;
    Ok(Stepped {
        run,
        success: done.failure.is_none() && done.waits.is_empty(),
        status: done.status,
        state: done.state,
        executed_node: done.node,
        next_node: done.next,
        step_count: done.steps,
        output: done.output,
        failure: done.failure,
        waits: done.waits,
    })
}

/// Returns the position of a run that begins at an entry which leads to a node in branches; `None` if the node is in none, or the run is
/// about to visit it in one.
fn begun_at(
    code: &GraphTables,
    at: u16,
    before: Option<&Position>,
    inputs: &Value,
) -> Result<Option<Position>, SingleError> {
    let Some(fan) = fan_around(code, at) else { return Ok(None) };
    let name = &code.node(at).name;
    let fan = if code.starts_in_branches() && fan == code.start { "start" } else { &code.node(fan).name };
    let unclear = |reason: String| SingleError::InBranches { node: name.clone(), fan: fan.to_owned(), reason };
    if let Some(position) = before {
        return match position.frontier.iter().filter(|next| next.node == at).count() {
            1 => Ok(None),
            0 => Err(unclear("the run is about to visit it in none".to_owned())),
            count => Err(unclear(format!("the run is about to visit it in {count}"))),
        };
    }
    let entry = code.settings.entries.iter().find(|(_, entry)| entry.node == at);
    let Some((entry, _)) = entry else {
        return Err(unclear(format!(
            "write an entry that leads to it, as `entries: {{ {name}: {{ node: {name} }} }}`"
        )));
    };
    Position::at_entry(code, Some(entry), Some(inputs)).map(Some).map_err(unclear)
}

/// Returns a node in whose branches another one is, if it is in any.
fn fan_around(code: &GraphTables, at: u16) -> Option<u16> {
    (0..).zip(&code.nodes).map(|(fan, _)| fan).filter(|&fan| code.fans_out(fan)).find(|&fan| {
        let closing = code.closing_join(fan);
        let mut waiting: Vec<u16> = code.node(fan).targets().flatten().collect();
        let mut seen = vec![false; code.nodes.len()];
        while let Some(node) = waiting.pop() {
            // Behind the join that closes it, the run is outside of the fan-out.
            if Some(node) != closing && !std::mem::replace(&mut seen[usize::from(node)], true) {
                waiting.extend(code.node(node).onward());
                // All branches of a fan-out inside may end before their join.
                waiting.extend(code.closing_join(node));
            }
        }
        seen[usize::from(at)]
    })
}

/// Overlays a state with the injected values.
fn overlay(
    code: &GraphTables,
    state: &mut Box<dyn StateFields>,
    position: &mut Position,
    inject: Map<String, Value>,
) -> Result<(), SingleError> {
    let wrong = |key: &str, expected: &'static str, value: &Value| SingleError::Inject {
        key: key.to_owned(),
        mismatch: Mismatch::new(expected, value.view()),
    };
    for (name, value) in inject {
        match name.as_str() {
            LAST_ERROR => {
                let error: Option<LastError> = serde_json::from_value(value.clone())
                    .map_err(|_| wrong(&name, "an object with `node` and `error`", &value))?;
                position.root.last_error = error;
            }
            RETRIES => match value {
                Value::Object(retries) => position.root.retries = retries,
                Value::Null => position.root.retries.clear(),
                other => return Err(wrong(&name, "an object", &other)),
            },
            _ => {
                let Some(index) = code.keys.iter().position(|key| key.name == name) else {
                    let known = code.keys.iter().map(|key| key.name.clone()).collect();
                    return Err(SingleError::UnknownKey { key: name, known });
                };
                state.set(index, value).map_err(|mismatch| SingleError::Inject { key: name, mismatch })?;
                position.paths.remove(&index);
            }
        }
    }
    Ok(())
}

/// Returns the id of a single step (R266).
fn step_id(run: &RunId) -> RunId {
    RunId::new(format!("{run}-step")).unwrap_or_else(|_| {
        let digest = Digest::of(run.as_str()).to_hex();
        RunId::new(format!("{}-step", &digest[..32])).expect("hex digits are letters of a run id")
    })
}
