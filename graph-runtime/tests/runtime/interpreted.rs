//! A machine that is made from a program at run time, with closures as tools.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use graph_model::value::{AsView, View};
use graph_runtime::__private::{CompiledGraph, Executor, ItemType, Program, Tool, Verb};
use graph_runtime::machine::{ReducerError, no_such_signal};
use graph_runtime::{
    ActionError, Arguments, Call, CallFuture, FromValue, Graph, Machine, Map, Mismatch, StateFields, ToolCaller, Value,
};

/// The future of a tool's result.
pub(crate) type ToolFuture = Pin<Box<dyn Future<Output = Result<Value, ActionError>> + Send>>;
/// The implementation of a tool.
pub(crate) type Perform = dyn Fn(&Call, Value) -> ToolFuture + Send + Sync;

/// The implementation of every reducer that is a function of the program.
pub(crate) type Reduce = fn(Value, &Value) -> Result<Value, ReducerError>;

/// A graph with one tool, `test/tool`, whose inputs and output have any type.
#[derive(Clone)]
pub(crate) struct Interpreted {
    code: Arc<CompiledGraph>,
    nested: Option<Arc<Interpreted>>,
    tool: Arc<Perform>,
    reduce: Option<Reduce>,
}

/// A program with default values that tests override.
pub(crate) const PROGRAM: Program<'static> = Program {
    id: "test/graph",
    version: "1.0.0",
    source: "graphs/graph.yaml",
    digest: "00000000000000000000000000000000000000000000000000000000000000aa",
    signer: "00000000000000aa",
    start: 0,
    settings: "{}",
    permissions: &["rye.execute.tool.test.tool"],
    env: &[],
    keys: &[],
    tools: &[Tool {
        id: "test/tool",
        verb: Verb::Execute,
        item: ItemType::Tool,
        by: Executor::Program,
        params: None,
        typed: true,
        nests: true,
    }],
    nodes: &[],
};

impl Interpreted {
    pub(crate) fn new(
        program: &Program<'_>,
        tool: impl Fn(&Call, Value) -> Result<Value, ActionError> + Send + Sync + 'static,
    ) -> Self {
        let tool = Arc::new(tool);
        Self::waiting(program, move |call, params| {
            let (call, tool) = (call.clone(), Arc::clone(&tool));
            Box::pin(async move {
                // A real tool waits for something.
                tokio::task::yield_now().await;
                tool(&call, params)
            })
        })
    }

    pub(crate) fn waiting(
        program: &Program<'_>,
        tool: impl Fn(&Call, Value) -> ToolFuture + Send + Sync + 'static,
    ) -> Self {
        let code = Arc::new(CompiledGraph::load(program).unwrap());
        Self { code, nested: None, tool: Arc::new(tool), reduce: None }
    }

    pub(crate) fn reducing(self, reduce: Reduce) -> Self {
        Self { reduce: Some(reduce), ..self }
    }

    /// Returns the graph that it runs.
    pub(crate) fn inside(&self) -> Self {
        (**self.nested.as_ref().unwrap()).clone()
    }

    pub(crate) fn nesting(mut self, graph: Self) -> Self {
        self.nested = Some(Arc::new(graph));
        self
    }
}

impl Graph for Interpreted {
    type Inputs = Map<String, Value>;
    type Output = Value;

    fn output(&self, _: &str, value: Value) -> Result<Value, Mismatch> {
        Ok(value)
    }
}

impl Machine for Interpreted {
    fn graph(&self) -> &CompiledGraph {
        &self.code
    }

    fn open(&self, inputs: Value) -> Result<Box<dyn StateFields>, Mismatch> {
        Map::from_value(inputs.clone())?;
        Ok(Box::new(JsonCells { inputs, values: Vec::new(), reduce: self.reduce }))
    }

    fn signal(&self, name: &str, value: Value) -> Result<Value, Mismatch> {
        match self.code.signals().any(|signal| signal == name) {
            true => Ok(value),
            false => no_such_signal(name),
        }
    }

    fn answer(&self, _: &str, value: Value) -> Result<Value, Mismatch> {
        // As generated code, it reads a word of an enumeration.
        match value.get("decision").and_then(Value::as_str) {
            Some("approve" | "refuse") => Ok(value),
            _ => Err(Mismatch::new("a decision", value.view())),
        }
    }

    fn nested(&self, _: u16) -> Option<Arc<dyn Machine>> {
        self.nested.clone().map(|nested| nested as Arc<dyn Machine>)
    }

    fn tool_caller(&self) -> Box<dyn ToolCaller> {
        Box::new(JsonLane { tool: Arc::clone(&self.tool), outcome: Value::Null })
    }
}

struct JsonCells {
    inputs: Value,
    values: Vec<Value>,
    reduce: Option<Reduce>,
}

impl StateFields for JsonCells {
    fn inputs(&self) -> View<'_> {
        self.inputs.view()
    }

    fn get(&self, key: usize) -> View<'_> {
        self.values.get(key).map_or(View::Null, AsView::view)
    }

    fn check(&self, _: usize, _: &Value) -> Result<(), Mismatch> {
        Ok(())
    }

    fn set(&mut self, key: usize, value: Value) -> Result<(), Mismatch> {
        self.values.resize(self.values.len().max(key + 1), Value::Null);
        self.values[key] = value;
        Ok(())
    }

    fn reduce(&self, _: usize, value: View<'_>, write: &Value) -> Option<Result<Value, ReducerError>> {
        Some(self.reduce?(value.to_plain_value(), write))
    }
}

struct JsonLane {
    tool: Arc<Perform>,
    outcome: Value,
}

impl ToolCaller for JsonLane {
    fn call<'a>(&'a mut self, _: u16, arguments: &mut Arguments, call: &'a Call) -> Result<CallFuture<'a>, Mismatch> {
        let params: Value = arguments.take("");
        Ok(Box::pin(async move {
            self.outcome = (self.tool)(call, params).await?;
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
