//! A client for programs that call the tools of a state graph while they run.
//!
//! A contract with `tool_type: program` names a program and the tools that it may call. The runtime starts the program with a socket as
//! its stdin. The program reads its inputs there, calls tools by JSON-RPC, and prints its result to stdout. Each call is one of the
//! graph: its types and capabilities are checked, and it has a record.
//!
//! ```no_run
//! use graph_program::run;
//! use serde_json::json;
//!
//! fn main() -> std::process::ExitCode {
//!     run(|program| {
//!         let items = program.inputs()["items"].as_array().cloned().unwrap_or_default();
//!         // One request for all: the graph makes the calls concurrently.
//!         let results = program.call_all(items.iter().map(|item| ("shop/process", json!({ "item": item }))))?;
//!         let done = results.iter().filter(|result| result.is_ok()).count();
//!         Ok(json!({ "processed": results.len(), "successes": done }))
//!     })
//! }
//! ```
//!
//! | item | |
//! |---|---|
//! | [`run`] | the whole of a program: its inputs, its calls, its result and its exit code |
//! | [`ProgramConnection`] | the connection to the graph |
//! | [`ProgramError`] | why a call has no result |
//! | [`PYTHON`] | the same client in Python, a module without dependencies |
//!
//! After a crash of the runtime, the program is started again and its earlier calls get the results that they had. So its calls must
//! follow from its inputs and from the results of its calls, and from nothing else: no time, no random numbers, no files that change.

use std::error::Error;
use std::fmt;
use std::io::{self, BufRead, BufReader, Write};
use std::process::ExitCode;

use serde_json::{Value, json};

/// The client in Python: the text of the module `graph_program`, for Python 3.9 or later. Write it beside the program.
///
/// ```
/// std::fs::write(std::env::temp_dir().join("graph_program.py"), graph_program::PYTHON)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub const PYTHON: &str = include_str!("../python/graph_program.py");

/// The most calls of one request.
const MOST_CALLS: usize = 256;

/// Runs a program that a graph started: prints the value that it returns, or its error.
///
/// The error is the last line of stderr, so it becomes the message of the failed node. Nothing else may print to stdout.
///
/// The page of the crate has an example.
pub fn run(main: impl FnOnce(&mut ProgramConnection) -> Result<Value, Box<dyn Error>>) -> ExitCode {
    let ended = ProgramConnection::start().map_err(Box::from).and_then(|mut program| main(&mut program));
    let printed = ended.and_then(|result| Ok(writeln!(io::stdout(), "{result}")?));
    match printed {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // If stderr is gone, there is nobody to tell.
            writeln!(io::stderr(), "{error}").ok();
            ExitCode::FAILURE
        }
    }
}

/// The connection of a program to the graph that started it.
pub struct ProgramConnection {
    inputs: Value,
    received: Box<dyn BufRead>,
    sent: Box<dyn Write>,
    /// The id of the last request.
    last: u64,
}

impl ProgramConnection {
    /// Connects to the graph that started this process: its stdin is the socket.
    ///
    /// # Errors
    ///
    /// If no graph started it.
    #[cfg(unix)]
    pub fn start() -> Result<Self, ProgramError> {
        use std::os::fd::AsFd;
        use std::os::unix::net::UnixStream;

        let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned().map_err(ProgramError::Connection)?);
        socket.peer_addr().map_err(|_| {
            ProgramError::Protocol(
                "stdin is no socket: a contract with `tool_type: program` starts this program".to_owned(),
            )
        })?;
        let received = socket.try_clone().map_err(ProgramError::Connection)?;
        Self::over(BufReader::new(received), socket)
    }

    /// Fails, because graphs start such programs on Unix only.
    ///
    /// # Errors
    ///
    /// Always, on this system.
    #[cfg(not(unix))]
    pub fn start() -> Result<Self, ProgramError> {
        Err(ProgramError::Protocol("programs that call tools are started on Unix only".to_owned()))
    }

    /// Connects over any streams, to test a program without a graph.
    ///
    /// ```
    /// use graph_program::ProgramConnection;
    /// use serde_json::json;
    ///
    /// let lines = concat!(
    ///     r#"{"article": "tea"}"#, "\n",
    ///     r#"{"jsonrpc": "2.0", "id": 1, "result": 450}"#, "\n",
    /// );
    /// let mut program = ProgramConnection::over(lines.as_bytes(), Vec::new())?;
    /// let article = program.inputs()["article"].clone();
    /// assert_eq!(program.call("shop/price", json!({ "article": article }))?, 450);
    /// # Ok::<(), graph_program::ProgramError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If the first line is not the inputs.
    pub fn over(received: impl BufRead + 'static, sent: impl Write + 'static) -> Result<Self, ProgramError> {
        let mut program = Self { inputs: Value::Null, received: Box::new(received), sent: Box::new(sent), last: 0 };
        program.inputs = program.receive()?;
        Ok(program)
    }

    /// Returns the inputs.
    pub fn inputs(&self) -> &Value {
        &self.inputs
    }

    /// Calls a tool that the contract lists, with an object of arguments, and waits for its result.
    ///
    /// # Errors
    ///
    /// [`ProgramError::Call`] if the call failed or was refused; the program may continue. Otherwise the connection is of no
    /// more use.
    pub fn call(&mut self, tool: &str, arguments: Value) -> Result<Value, ProgramError> {
        self.last += 1;
        let id = self.last;
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": tool, "params": arguments }))?;
        let response = self.receive()?;
        answer(response, id)
    }

    /// Calls tools concurrently, and returns their results in the order of the calls. 256 of them are made at once.
    ///
    /// ```
    /// # use graph_program::{ProgramConnection, ProgramError};
    /// # use serde_json::json;
    /// # let lines = "{}\n[{\"jsonrpc\":\"2.0\",\"id\":2,\"error\":{\"code\":-32000,\"message\":\"sold out\"}},\
    /// # {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":450}]\n";
    /// # let mut program = ProgramConnection::over(lines.as_bytes(), Vec::new())?;
    /// let articles = ["tea", "coffee"];
    /// let prices = program.call_all(articles.map(|article| ("shop/price", json!({ "article": article }))))?;
    /// assert_eq!(prices[0].as_ref().ok(), Some(&json!(450)));
    /// assert!(matches!(&prices[1], Err(ProgramError::Call { message, .. }) if message == "sold out"));
    /// # Ok::<(), ProgramError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If the connection is of no more use. The results have the failures of calls.
    pub fn call_all<T: Into<String>>(
        &mut self,
        calls: impl IntoIterator<Item = (T, Value)>,
    ) -> Result<Vec<Result<Value, ProgramError>>, ProgramError> {
        let calls: Vec<(String, Value)> = calls.into_iter().map(|(tool, arguments)| (tool.into(), arguments)).collect();
        let mut results = Vec::with_capacity(calls.len());
        for calls in calls.chunks(MOST_CALLS) {
            let first = self.last + 1;
            let request = |(id, (tool, arguments)): (u64, &(String, Value))| json!({ "jsonrpc": "2.0", "id": id, "method": tool, "params": arguments });
            let batch: Vec<Value> = (first..).zip(calls).map(request).collect();
            self.last += batch.len() as u64;
            self.send(&Value::Array(batch))?;
            let Value::Array(responses) = self.receive()? else {
                return Err(ProgramError::Protocol("the response to a batch is no batch".to_owned()));
            };
            // JSON-RPC allows any order.
            let mut responses: Vec<Option<Value>> = responses.into_iter().map(Some).collect();
            for id in first..=self.last {
                let of_id = |response: &&mut Option<Value>| response.as_ref().is_some_and(|one| one["id"] == id);
                let response = responses.iter_mut().find(of_id).and_then(Option::take);
                let response =
                    response.ok_or_else(|| ProgramError::Protocol(format!("the response to call {id} is missing")))?;
                results.push(answer(response, id));
            }
        }
        Ok(results)
    }

    fn send(&mut self, message: &Value) -> Result<(), ProgramError> {
        // A message is one line, written at once.
        self.sent.write_all(format!("{message}\n").as_bytes()).map_err(ProgramError::Connection)?;
        self.sent.flush().map_err(ProgramError::Connection)
    }

    fn receive(&mut self) -> Result<Value, ProgramError> {
        let mut line = String::new();
        match self.received.read_line(&mut line) {
            Ok(0) => Err(ProgramError::Connection(io::ErrorKind::UnexpectedEof.into())),
            Ok(_) => serde_json::from_str(&line).map_err(|error| ProgramError::Protocol(error.to_string())),
            Err(error) => Err(ProgramError::Connection(error)),
        }
    }
}

impl fmt::Debug for ProgramConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProgramConnection").field("calls", &self.last).finish_non_exhaustive()
    }
}

/// Returns the result in a response to a call.
fn answer(mut response: Value, id: u64) -> Result<Value, ProgramError> {
    if let Some(error) = response.get("error") {
        let message = error["message"].as_str().unwrap_or("the call failed").to_owned();
        return Err(ProgramError::Call { code: error["code"].as_i64().unwrap_or_default(), message });
    }
    let is_its_own = response["id"] == id;
    match response.get_mut("result") {
        Some(result) if is_its_own => Ok(result.take()),
        _ => Err(ProgramError::Protocol(format!("a response is not that of call {id}"))),
    }
}

/// Why a call has no result.
#[derive(Debug)]
#[non_exhaustive]
pub enum ProgramError {
    /// The call failed, or was refused and not made. The program may continue.
    #[non_exhaustive]
    Call {
        /// The code of JSON-RPC: -32000 if the call was made and failed, -32601 if the contract does not list the tool, -32602 if the
        /// tool has no such parameter.
        code: i64,
        /// The reason.
        message: String,
    },
    /// The connection is broken.
    Connection(io::Error),
    /// A message is not what the protocol says.
    Protocol(String),
}

impl fmt::Display for ProgramError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Call { message, .. } => f.write_str(message),
            Self::Connection(_) => f.write_str("the connection to the graph is broken"),
            Self::Protocol(reason) => f.write_str(reason),
        }
    }
}

impl Error for ProgramError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Connection(error) => Some(error),
            Self::Call { .. } | Self::Protocol(_) => None,
        }
    }
}
