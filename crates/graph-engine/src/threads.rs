//! Threads: running agents, whose registry belongs to the program.
//!
//! A graph hands work to an agent with the tool `rye/agent/threads/thread_directive`. An agent whose context is full
//! continues in another thread; the result of the last thread counts (R185, R186).

use std::fmt;
use std::time::Duration;

use graph_model::number::read_json;
use graph_model::value::{Map, Value};

use crate::clock::Clock;
use crate::failure::{ActionError, Failure};
use crate::future::BoxFuture;

/// How long to wait between two checks of a thread that is still running (R117).
const POLL: Duration = Duration::from_millis(500);

/// A thread as a registry knows it.
///
/// [`Threads`] has an example.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Thread {
    /// Its status: `running`, `completed`, `continued`, `error`, `cancelled` …
    pub status: String,
    /// The thread in which it continues, if it is `continued`.
    pub continuation: Option<String>,
    /// Its result: an object such as `{cost, outputs}`, or the JSON text of one.
    pub result: Option<Value>,
}

/// The future that [`Threads::thread`] returns.
pub type ThreadFuture<'a> = BoxFuture<'a, Result<Option<Thread>, ActionError>>;

/// The registry of a program's threads.
///
/// ```
/// # use graph_engine as graph_runtime;
/// use std::collections::HashMap;
///
/// use graph_runtime::threads::ThreadFuture;
/// use graph_runtime::{Runtime, Thread, Threads};
///
/// #[derive(Debug, Default)]
/// struct Agents(HashMap<String, Thread>);
///
/// impl Threads for Agents {
///     fn thread<'a>(&'a self, id: &'a str) -> ThreadFuture<'a> {
///         Box::pin(async move { Ok(self.0.get(id).cloned()) })
///     }
/// }
///
/// let completed = Thread { status: "completed".to_owned(), ..Thread::default() };
/// let agents = Agents(HashMap::from([("support-17".to_owned(), completed)]));
/// let runtime = Runtime::builder().threads(agents).build()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Threads: Send + Sync + fmt::Debug + 'static {
    /// Returns the thread with that id, if there is one.
    fn thread<'a>(&'a self, id: &'a str) -> ThreadFuture<'a>;
}

/// Returns the result of the last thread, if `result` says that its thread continues in another; otherwise `result`.
pub(crate) async fn follow(
    threads: Option<&dyn Threads>,
    clock: &dyn Clock,
    result: Value,
) -> Result<Value, Box<Failure>> {
    let text = |name: &str| result.get(name).and_then(Value::as_str).map(str::to_owned);
    let (Some("continued"), Some(first)) = (text("status").as_deref(), text("continuation_thread_id")) else {
        return Ok(result);
    };
    let Some(threads) = threads else {
        let message = "a thread goes on in another, and there is no registry of threads to follow it with: a program names one with \
                       `Builder::threads`, and `graph run` has none";
        return Err(Box::new(Failure::permanent(message)));
    };
    let mut seen = vec![first.clone()];
    let mut id = first;
    loop {
        let found = threads.thread(&id).await.map_err(|error| Box::new(Failure::from(error)))?;
        let Some(thread) = found else {
            return Err(Box::new(Failure::permanent(format!("Terminal thread not found: {id}"))));
        };
        match (thread.status.as_str(), thread.continuation) {
            ("continued", Some(next)) if seen.contains(&next) => {
                return Err(Box::new(Failure::permanent(format!(
                    "the threads go round: {} → {next}",
                    seen.join(" → ")
                ))));
            }
            ("continued", Some(next)) => {
                seen.push(next.clone());
                id = next;
            }
            ("running" | "created" | "pending", _) => clock.sleep(POLL).await,
            (status, _) => return Ok(ended(&id, status, thread.result)),
        }
    }
}

/// Returns the result of a thread that ended.
fn ended(id: &str, status: &str, result: Option<Value>) -> Value {
    let result = match result {
        Some(Value::String(text)) => match read_json(&text) {
            Ok(parsed) => parsed,
            Err(_) => Value::String(text),
        },
        Some(other) => other,
        None => Value::Null,
    };
    let mut map = match result {
        Value::Object(map) => map,
        Value::Null => Map::new(),
        other => Map::from_iter([("result".to_owned(), other)]),
    };
    map.insert("status".to_owned(), Value::from(status));
    map.insert("thread_id".to_owned(), Value::from(id));
    Value::Object(map)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::time::SystemTime;

    use serde_json::json;

    use super::*;
    use crate::clock::ManualClock;

    #[derive(Debug)]
    struct Registry(HashMap<&'static str, Thread>);

    impl Threads for Registry {
        fn thread<'a>(&'a self, id: &'a str) -> ThreadFuture<'a> {
            Box::pin(async move { Ok(self.0.get(id).cloned()) })
        }
    }

    fn thread(status: &str, continuation: Option<&str>, result: Option<Value>) -> Thread {
        Thread { status: status.to_owned(), continuation: continuation.map(str::to_owned), result }
    }

    async fn followed(threads: &[(&'static str, Thread)], result: Value) -> Result<Value, String> {
        let registry = Registry(threads.iter().cloned().collect());
        let clock = ManualClock::at(SystemTime::UNIX_EPOCH);
        follow(Some(&registry), &clock, result).await.map_err(|failure| failure.message)
    }

    #[tokio::test]
    async fn a_continued_result_is_that_of_the_last_thread() {
        let continued = json!({"status": "continued", "continuation_thread_id": "b", "thread_id": "a"});
        let threads = [
            ("b", thread("continued", Some("c"), None)),
            ("c", thread("completed", None, Some(json!(r#"{"cost": 1, "outputs": {"x": 2}}"#)))),
        ];
        let expected = json!({"cost": 1, "outputs": {"x": 2}, "status": "completed", "thread_id": "c"});
        assert_eq!(followed(&threads, continued.clone()).await, Ok(expected));
        let unreadable = [("b", thread("completed", None, Some(json!("not json"))))];
        let expected = json!({"result": "not json", "status": "completed", "thread_id": "b"});
        assert_eq!(followed(&unreadable, continued.clone()).await, Ok(expected));
        let missing = followed(&[], continued.clone()).await;
        assert_eq!(missing, Err("Terminal thread not found: b".to_owned()));
        let round = [("b", thread("continued", Some("b"), None))];
        assert!(followed(&round, continued).await.unwrap_err().contains("go round"));
        let done = json!({"status": "completed", "outputs": {}});
        assert_eq!(followed(&[], done.clone()).await, Ok(done));
    }
}
