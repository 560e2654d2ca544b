//! A machine written by hand, against the public items of `graph-runtime` only.
//!
//! It adds numbers up: a node calls a tool with the numbers that are left and the sum, stores the tool's result, and
//! leads back to itself until nothing is left. There is no YAML, no compiler and no signature: the program is a table
//! in Rust, and the engine cannot tell.

use std::sync::{Arc, LazyLock};

use graph_runtime::machine::{AsView, CompiledGraph, ItemType, Key, Param, Executor, Program, Tool, Verb, View};
use graph_runtime::{
    ActionError, Arguments, Call, CallFuture, StateFields, FromValue, Graph, ToolCaller, Machine, Map, Mismatch, Value,
};
use serde_json::json;

/// The graph as the runtime reads it: `add` repeats until nothing is left, then `done` returns the sum.
pub static PROGRAM: Program<'static> = Program {
    id: "numbers/sum",
    version: "1.0.0",
    source: "src/lib.rs",
    // Nobody signed a file: the digest names this version of the table.
    digest: "0000000000000000000000000000000000000000000000000000000000000001",
    signer: "0000000000000000",
    start: 0,
    settings: r#"{"max_steps":1000}"#,
    permissions: &["rye.execute.tool.numbers.add"],
    env: &[],
    keys: &[Key { name: "left", initial: None }, Key { name: "sum", initial: Some("0") }],
    tools: &[Tool {
        id: "numbers/add",
        verb: Verb::Execute,
        item: ItemType::Tool,
        by: Executor::Program,
        params: Some(&[Param { name: "left", default: None }, Param { name: "sum", default: Some("0") }]),
        typed: true,
        nests: false,
    }],
    nodes: &[
        (
            "add",
            r#"{"line":1,"does":{"action":0},
                "params":{"left":"${state.left || inputs.numbers}","sum":"${state.sum}"},
                "assign":{"left":"${result.left}","sum":"${result.sum}"},
                "next":[{"to":"done","when":{"path":"result.left","op":"eq","value":[]}},{"to":"add"}]}"#,
        ),
        ("done", r#"{"line":2,"does":"return","output":{"sum":"${state.sum}"}}"#),
    ],
};

static GRAPH: LazyLock<CompiledGraph> =
    LazyLock::new(|| CompiledGraph::load(&PROGRAM).unwrap_or_else(|error| unreachable!("{error}")));

/// Adds a number to a sum. The call may fail, and is repeated when the run is resumed.
pub type Add = dyn Fn(i64, i64) -> Result<i64, String> + Send + Sync;

/// The machine, with the tool that it calls.
#[derive(Clone)]
pub struct Sum {
    add: Arc<Add>,
}

impl Sum {
    /// Adds numbers up with `add`.
    pub fn new(add: impl Fn(i64, i64) -> Result<i64, String> + Send + Sync + 'static) -> Self {
        Self { add: Arc::new(add) }
    }
}

/// The inputs of a run.
pub struct Numbers(Value);

impl Numbers {
    /// Makes the inputs from the numbers that are added up.
    pub fn new(numbers: &[i64]) -> Self {
        Self(json!({"numbers": numbers}))
    }
}

impl AsView for Numbers {
    fn view(&self) -> View<'_> {
        self.0.view()
    }
}

impl Graph for Sum {
    type Inputs = Numbers;
    type Output = i64;

    fn output(&self, _: &str, value: Value) -> Result<i64, Mismatch> {
        let mut output = Map::from_value(value)?;
        i64::from_value(output.remove("sum").unwrap_or_default()).map_err(|error| error.inside("sum"))
    }
}

impl Machine for Sum {
    fn graph(&self) -> &CompiledGraph {
        &GRAPH
    }

    fn open(&self, inputs: Value) -> Result<Box<dyn StateFields>, Mismatch> {
        Map::from_value(inputs.clone())?;
        Ok(Box::new(State { inputs, left: Value::Null, sum: None }))
    }

    fn tool_caller(&self) -> Box<dyn ToolCaller> {
        Box::new(Adding { add: Arc::clone(&self.add), outcome: Value::Null })
    }
}

/// The state of a run, with the positions of the keys in [`PROGRAM`].
struct State {
    inputs: Value,
    left: Value,
    sum: Option<i64>,
}

impl StateFields for State {
    fn inputs(&self) -> View<'_> {
        self.inputs.view()
    }

    fn get(&self, key: usize) -> View<'_> {
        match key {
            0 => self.left.view(),
            1 => self.sum.view(),
            _ => View::Null,
        }
    }

    fn check(&self, key: usize, value: &Value) -> Result<(), Mismatch> {
        match key {
            1 => Option::<i64>::from_value(value.clone()).map(drop),
            _ => Ok(()),
        }
    }

    fn set(&mut self, key: usize, value: Value) -> Result<(), Mismatch> {
        match key {
            0 => self.left = value,
            1 => self.sum = Option::from_value(value)?,
            _ => {}
        }
        Ok(())
    }
}

/// Calls the tool, and holds its result.
struct Adding {
    add: Arc<Add>,
    outcome: Value,
}

impl ToolCaller for Adding {
    fn call<'a>(&'a mut self, _: u16, arguments: &mut Arguments, _: &'a Call) -> Result<CallFuture<'a>, Mismatch> {
        let (left, sum): (Vec<i64>, i64) = (arguments.take("left"), arguments.take("sum"));
        if let Some(wrong) = arguments.wrong() {
            return Err(wrong);
        }
        Ok(Box::pin(async move {
            // A real tool waits for something.
            tokio::task::yield_now().await;
            let Some((first, left)) = left.split_first() else { return Err(ActionError::permanent("nothing is left")) };
            let sum = (self.add)(sum, *first).map_err(ActionError::permanent)?;
            self.outcome = json!({"left": left, "sum": sum});
            Ok(())
        }))
    }

    fn outcome(&self) -> View<'_> {
        self.outcome.view()
    }

    fn restore(&mut self, _: u16, value: Value) -> Result<(), Mismatch> {
        self.outcome = value;
        Ok(())
    }
}
