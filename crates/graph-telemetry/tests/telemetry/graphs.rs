//! A graph with retries, a loop, a list, a nested graph, waits, branches and failures.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use graph_runtime::__private::{Executor, Key, Program, Tool};
use graph_runtime::{ActionError, Value};

use crate::interpreted::{Interpreted, PROGRAM};
use crate::random::Random;

const GRAPH: Tool = Tool { by: Executor::Graph, ..PROGRAM.tools[0] };

/// The nested graph: a call, a wait and another call.
const INNER: Program<'static> = Program {
    id: "test/inner",
    nodes: &[
        (
            "first",
            r#"{"line":1,"does":{"action":0},"params":{"n":1},"retry":{"attempts":2,"delay_ms":5,"on":["transient"]},"next":[{"to":"rest"}]}"#,
        ),
        ("rest", r#"{"line":2,"does":"wait","wait":{"timeout_ms":30000},"next":[{"to":"second"}]}"#),
        ("second", r#"{"line":3,"does":{"action":0},"params":{"n":2},"next":[{"to":"done"}]}"#),
        ("done", r#"{"line":4,"does":"return"}"#),
    ],
    ..PROGRAM
};

const OUTER: Program<'static> = Program {
    id: "test/outer",
    keys: &[Key { name: "all", initial: None }],
    tools: &[PROGRAM.tools[0], GRAPH],
    nodes: &[
        (
            "work",
            r#"{"line":1,"does":{"action":0},"params":{"n":3},"retry":{"attempts":3,"delay_ms":5,"on":["transient"]},"next":[{"to":"work","when":{"path":"result","op":"eq","value":"again"}},{"to":"rest"}],"on_error":1}"#,
        ),
        ("mend", r#"{"line":2,"does":"gate","next":[{"to":"rest"}]}"#),
        ("rest", r#"{"line":3,"does":"wait","wait":{"timeout_ms":60000},"next":[{"to":"split"}]}"#),
        (
            "split",
            r#"{"line":4,"does":"gate","next":{"all":[{"to":"nest"},{"to":"each"},{"to":"pause"}],"on_branch_error":"finish"}}"#,
        ),
        ("nest", r#"{"line":5,"does":{"action":1},"params":{},"next":[{"to":"met"}]}"#),
        (
            "each",
            r#"{"line":6,"does":{"foreach":0},"params":{"n":"${n}"},"each":{"over":[4,5,6],"as":"n","collect":"all","width":2},"retry":{"attempts":2,"delay_ms":5,"on":["transient"]},"next":[{"to":"met"}]}"#,
        ),
        ("pause", r#"{"line":7,"does":"wait","wait":{"timeout_ms":1000},"next":[{"to":"met"}]}"#),
        ("met", r#"{"line":8,"does":"gate","join":{"of":[4,5,6],"fan":3,"closes":true},"next":[{"to":"last"}]}"#),
        ("last", r#"{"line":9,"does":{"action":0},"params":{"n":7},"next":[{"to":"done"}]}"#),
        ("done", r#"{"line":10,"does":"return","output":"${state.all}"}"#),
    ],
    ..PROGRAM
};

/// Returns the graph, with a tool whose answers depend on the seed. The nested graph waits only where there is a store.
pub(crate) fn random_graph(seed: u64) -> Interpreted {
    let answers = Arc::new(Mutex::new(Random::new(seed)));
    let tool = move |program: &Program<'_>| {
        let answers = Arc::clone(&answers);
        Interpreted::waiting(program, move |_, params| {
            let mut random = answers.lock().unwrap();
            let (time, fate, again) = (random.below(40), random.below(100), random.below(2) == 0);
            let is_transient = params["n"].as_i64().is_some_and(|n| n != 2 && n != 7) && fate % 2 == 0;
            Box::pin(async move {
                tokio::time::sleep(Duration::from_millis(time)).await;
                match fate {
                    ..25 if is_transient => Err(ActionError::transient("not yet")),
                    ..20 => Err(ActionError::permanent("it fails")),
                    _ => Ok(Value::from(if again { "again" } else { "on" })),
                }
            })
        })
    };
    tool(&OUTER).nesting(tool(&INNER))
}
