//! The result of a call is cached, and is used by a compiled graph and by the same graph interpreted.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use graph_runtime::cache::{MemoryCache, NodeCache};
use graph_runtime::dynamic::{Library, ToolFuture, Tools};
use graph_runtime::{ActionError, Call, FromValue, Graph, Map, Runtime, SecretKey, Value};
use serde_json::json;

graph_runtime::graph!("tests/engines/graphs/results_may_be_kept.yaml");

use results_may_be_kept::Inputs;
use results_may_be_kept::tools::{test_row, test_typed};

/// Tools that count their calls.
#[derive(Clone, Default)]
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn calls(&self) -> usize {
        self.0.swap(0, Ordering::Relaxed)
    }

    fn row(&self, row: &Value) -> Value {
        self.0.fetch_add(1, Ordering::Relaxed);
        json!({"status": "success", "data": {"z": row, "b": [1.0, null]}})
    }
}

impl test_typed::Tool for Counted {
    async fn test_typed(&self, _: &Call, params: test_typed::Params) -> Result<test_typed::Output, ActionError> {
        self.0.fetch_add(1, Ordering::Relaxed);
        let answer = json!({"count": params.count, "ratio": 3.0});
        FromValue::from_value(answer).map_err(ActionError::from)
    }
}

impl test_row::Tool for Counted {
    async fn test_row(&self, _: &Call, params: Map<String, Value>) -> Result<Value, ActionError> {
        Ok(self.row(&params["row"]))
    }
}

impl Tools for Counted {
    fn perform<'a>(
        &'a self,
        _: &'a Call,
        tool: &'a graph_compiler::graph::TypedTool,
        params: Map<String, Value>,
    ) -> ToolFuture<'a> {
        let answer = if tool.id == "test/row" {
            self.row(&params["row"])
        } else {
            self.0.fetch_add(1, Ordering::Relaxed);
            json!({"count": params["count"], "ratio": 3})
        };
        Box::pin(async { Ok(answer) })
    }
}

fn runtime(cache: &MemoryCache) -> Runtime {
    let key = SecretKey::from_seed(&[1; 32]);
    Runtime::builder().sign_with(key).grant("*").unwrap().cache(NodeCache::new(cache.clone())).build().unwrap()
}

async fn state<G: Graph<Output: Send + 'static>>(runtime: &Runtime, graph: G, inputs: G::Inputs) -> String {
    runtime.start(graph, inputs).await.unwrap().await.unwrap().state.to_string()
}

#[tokio::test]
async fn engines_share_cached_results_and_reach_the_same_state() {
    let (cache, tools) = (MemoryCache::new(), Counted::default());
    let runtime = runtime(&cache);
    let library = Library::open(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/engines/graphs"), tools.clone());
    let graph = library.graph(&library.root().join("results_may_be_kept.yaml")).unwrap();
    let rows = || ["a", "b"].map(str::to_owned).to_vec();
    let compiled = || state(&runtime, ResultsMayBeKept::new(tools.clone()), Inputs { count: 1, rows: rows() });
    let interpreted = || {
        let inputs = json!({"count": 1, "rows": rows()}).as_object().unwrap().clone();
        state(&runtime, graph.clone(), inputs)
    };
    let first = compiled().await;
    assert_eq!((tools.calls(), cache.entries().len()), (3, 3), "{first}");
    assert_eq!((compiled().await, tools.calls()), (first.clone(), 0));
    assert_eq!((interpreted().await, tools.calls()), (first, 0));
}
