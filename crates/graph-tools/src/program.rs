//! Programs that call tools while they run: `rye/program/turn`.
//!
//! A turn lets a program run until it wants calls, which its graph makes, or until it ends. Between two turns the program waits for the
//! results, and its process stays: the run in progress holds it. If it is gone, because the run continues in another process,
//! the program is started again, and gets the results of its earlier calls from the state of the graph.
//!
//! Nothing that a program sends is trusted.

mod process;
mod rpc;

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use graph_engine::{ActionError, Call, Category};
use graph_model::subprocess::Subprocess;
use graph_model::value::Value;
use serde::Deserialize;
use serde_json::json;

use process::{LiveProgram, TurnEnd};
use rpc::{CallAnswer, PastCall, ProgramTool, WantedCall};

/// The request of a turn, as the graph of a program makes it, without the talk in its state.
#[derive(Debug, Deserialize)]
struct ProgramTurn {
    program: Subprocess,
    tools: Vec<ProgramTool>,
    limits: ProgramLimits,
    inputs: Value,
}

#[derive(Debug, Deserialize)]
struct ProgramLimits {
    calls: usize,
}

/// An entry of the talk in the state of the graph.
#[derive(Debug, Deserialize)]
#[serde(tag = "role", rename_all = "snake_case")]
enum TalkEntry {
    /// The program wanted calls.
    Program { calls: Vec<PastCall> },
    /// A call was made.
    Tool {
        id: String,
        #[serde(default)]
        result: Value,
        #[serde(default)]
        error: Option<String>,
    },
}

/// A turn that is over: its calls, each with its answer.
struct PastTurn(Vec<(PastCall, CallAnswer)>);

/// The talk in the state of the graph. It is long after many turns, and most turns need only the end of it.
struct Talk(Vec<Value>);

impl Talk {
    fn of(talk: Value) -> Result<Self, ActionError> {
        let wrong = || ActionError::permanent("the talk of the program is no list of its turns and calls");
        match talk {
            Value::Null => Ok(Self(Vec::new())),
            Value::Array(lists) => {
                let entries =
                    lists.into_iter().map(|list| if let Value::Array(list) = list { Ok(list) } else { Err(wrong()) });
                Ok(Self(entries.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect()))
            }
            _ => Err(wrong()),
        }
    }

    /// Returns the calls of each turn.
    fn turns(&self) -> impl Iterator<Item = &Value> {
        self.0.iter().filter(|entry| entry["role"] == "program").map(|entry| &entry["calls"])
    }

    /// Puts the last turn, or all of them, together: their calls with their answers.
    fn into_turns(mut self, last: bool) -> Result<Vec<PastTurn>, ActionError> {
        if last {
            let begin = self.0.iter().rposition(|entry| entry["role"] == "program").unwrap_or_default();
            self.0.drain(..begin);
        }
        let (mut turns, mut answers) = (Vec::new(), BTreeMap::new());
        for entry in self.0 {
            let said = serde_json::from_value(entry)
                .map_err(|error| ActionError::permanent(format!("the talk of the program cannot be read: {error}")))?;
            match said {
                TalkEntry::Program { calls } => turns.push(calls),
                TalkEntry::Tool { id, result, error } => drop(answers.insert(id, error.map_or(Ok(result), Err))),
            }
        }
        let mut answered = |call: PastCall| {
            let answer = answers.remove(&call.id).ok_or_else(|| {
                ActionError::permanent(format!(
                    "the state of the program's graph has no result of its call `{}`",
                    call.id
                ))
            })?;
            Ok((call, answer))
        };
        turns
            .into_iter()
            .map(|calls| calls.into_iter().map(&mut answered).collect::<Result<_, _>>().map(PastTurn))
            .collect()
    }
}

/// The process of a run's program between two turns.
#[derive(Default)]
struct WaitingProgram(Mutex<Option<LiveProgram>>);

impl WaitingProgram {
    fn replace(&self, live: Option<LiveProgram>) -> Option<LiveProgram> {
        std::mem::replace(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), live)
    }
}

/// Performs `rye/program/turn`.
pub(crate) async fn perform(call: &Call, mut params: Value) -> Result<Value, ActionError> {
    if call.is_tool_computed() {
        // Its parameters name a program, which only a signed contract may do.
        return Err(ActionError::permanent(
            "a program that calls tools is started by its contract, and by no computed id",
        ));
    }
    let talk = Talk::of(params.as_object_mut().and_then(|params| params.remove("talk")).unwrap_or_default())?;
    let request: ProgramTurn = serde_json::from_value(params).map_err(|error| {
        ActionError::permanent(format!("the graph of the program asks for its turn wrongly: {error}"))
    })?;
    tokio::select! {
        biased;
        () = call.cancelled() => Err(ActionError::new(Category::Cancelled, "the program was stopped: its run was cancelled")),
        turn = turn(call, request, talk) => turn,
    }
}

async fn turn(call: &Call, request: ProgramTurn, talk: Talk) -> Result<Value, ActionError> {
    let ProgramTurn { program, tools, limits, inputs } = request;
    let waiting = call.run_local::<WaitingProgram>();
    let turns = talk.turns().count();
    let made: usize = talk.turns().map(|calls| calls.as_array().map_or(0, Vec::len)).sum();
    let live = waiting.as_ref().and_then(|waiting| waiting.replace(None));
    // A process that is somewhere else than the state is of no use.
    let mut live = match live.filter(|live| live.turns() == turns) {
        Some(mut live) => {
            live.answer(talk.into_turns(true)?.into_iter().flat_map(answers).collect());
            live
        }
        None => {
            let mut live = LiveProgram::start(&program, call, tools, &inputs).await?;
            for past in talk.into_turns(false)? {
                repeat(&mut live, past).await?;
            }
            live
        }
    };
    match live.next().await? {
        TurnEnd::Calls(calls) if made + calls.len() > limits.calls => {
            let message = format!("the program wants more than the {} calls that its contract allows", limits.calls);
            Err(ActionError::permanent(message).with_code("program_limit"))
        }
        TurnEnd::Calls(calls) => {
            if let Some(waiting) = waiting {
                waiting.replace(Some(live));
            }
            let past: Vec<PastCall> = calls.iter().map(WantedCall::to_past).collect();
            Ok(json!({ "said": [{ "role": "program", "calls": past }], "calls": calls }))
        }
        TurnEnd::Ended => Ok(json!({ "said": [], "calls": [], "outcome": { "value": live.result()? } })),
    }
}

/// Lets a program that was started again take a turn that it had taken before.
async fn repeat(live: &mut LiveProgram, past: PastTurn) -> Result<(), ActionError> {
    let differs = |call: &PastCall, found: String| {
        let PastCall { id, tool, .. } = call;
        Err(ActionError::permanent(format!(
            "the program does not repeat its calls: call `{id}` was one of `{tool}`, and after a restart {found}; its calls must follow from \
             its inputs and the results of its calls"
        )))
    };
    let calls: Vec<PastCall> = match live.next().await? {
        TurnEnd::Calls(calls) => calls.iter().map(WantedCall::to_past).collect(),
        TurnEnd::Ended => Vec::new(),
    };
    for (at, (call, _)) in past.0.iter().enumerate() {
        match calls.get(at) {
            None => return differs(call, "it does not want this call".to_owned()),
            Some(found) if found.tool != call.tool => return differs(call, format!("it calls `{}`", found.tool)),
            Some(found) if found.digest != call.digest => {
                return differs(call, "it has other arguments".to_owned());
            }
            Some(_) => {}
        }
    }
    if let (Some(found), Some((last, _))) = (calls.get(past.0.len()), past.0.last()) {
        return differs(last, format!("it calls `{}` together with it", found.tool));
    }
    live.answer(answers(past));
    Ok(())
}

fn answers(past: PastTurn) -> Vec<CallAnswer> {
    past.0.into_iter().map(|(_, answer)| answer).collect()
}
