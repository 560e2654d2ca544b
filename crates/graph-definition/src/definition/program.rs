//! Programs that call tools: contracts that say `tool_type: program`, and the graphs that they mean.
//!
//! A run of a program is a run of a graph, as that of an [agent](super::agent) is. The graph lets the program run until it wants calls,
//! makes them, each in a branch of its own, and lets it continue with their results until it ends. So each call has a record. A crash
//! repeats only those in progress. Every rule for graphs holds for programs.

use graph_model::name::ItemId;
use graph_model::subprocess::Subprocess;
use graph_model::value::Value;

use super::reader::{DefinitionReader, Spanned};
use super::tool_loop::{self, Approvals, ListWords, ListedTool, PlacedTrees, ToolLoop};
use super::{duration, subprocess};
use crate::diagnostic::{SourcePlace, code};
use crate::tree::{YamlFile, YamlTree};

/// The id of the tool by which the graph of a program lets it run until it wants calls or ends. Its result has the program's own type.
pub const TURN: &str = "rye/program/turn";

/// How many calls a program may want at once.
const MOST_CALLS: u64 = 256;

/// How many calls a program makes if its contract does not say it.
const CALLS: u32 = 1_000;

/// How many calls a contract may allow: a run has at most 100,000 visits, and each call may take seven.
const MOST_CALLS_OF_RUN: u32 = 14_000;

/// The `config` of a contract that says `tool_type: program`.
#[derive(Debug, Clone, PartialEq)]
pub struct ProgramContract {
    /// How to start the program. Its timeout is that of a run.
    pub start: Subprocess,
    /// The tools and graphs that it may call.
    pub calls: Vec<Spanned<ItemId>>,
    /// How many calls a run may make.
    pub most_calls: u32,
    /// The people who approve its guarded calls and answer its questions, and the time that they have.
    pub approvals: Option<Approvals>,
    /// The schema of its result, as the contract has it.
    pub result: Value,
}

const KNOWN: [&str; 8] = ["command", "calls", "limits", "approvals", "env", "cwd", "output_limit", "sha256"];
const WHAT: &str = "`config` of a program";
const LISTED: ListWords = ListWords {
    field: "`calls`",
    entry: "a tool that a program calls",
    asked: TURN,
    asked_is: "a program does not call the tool that runs it",
};

/// Reads `config`. `None` if something in it is wrong.
pub(super) fn parse(reader: &mut DefinitionReader<'_>, tree: &YamlTree, result: Value) -> Option<ProgramContract> {
    let fields = reader.map(tree, "`config`")?;
    let unknown = reader.only(&fields, WHAT, &KNOWN, &[]);
    let start = subprocess::start(reader, &fields, WHAT);
    let limits = fields.get("limits").map_or(Some((CALLS, None)), |tree| limits(reader, tree));
    let calls = reader.required(&fields, WHAT, "calls").and_then(|tree| {
        let calls = tool_loop::listed(reader, tree, &LISTED)?;
        if calls.is_empty() {
            let place = SourcePlace::new(reader.source, tree.span.clone());
            reader
                .diagnostics
                .error(code::BAD_CONTRACT, place, "`calls` lists no tool")
                .help("write `tool_type: subprocess` for a program that calls none");
            return None;
        }
        Some(calls)
    });
    let approvals = fields.get("approvals").map(|tree| tool_loop::approvals(reader, tree, "`approvals` of a program"));
    let (mut start, calls, (most_calls, timeout)) = (start?, calls?, limits?);
    let approvals = approvals.map_or(Some(None), |approvals| approvals.map(Some))?;
    start.timeout_ms = timeout.unwrap_or(start.timeout_ms);
    (!unknown).then_some(ProgramContract { start, calls, most_calls, approvals, result })
}

/// Reads the number of calls, and the milliseconds, that a run may have.
fn limits(reader: &mut DefinitionReader<'_>, tree: &YamlTree) -> Option<(u32, Option<u64>)> {
    let fields = reader.map(tree, "`limits`")?;
    let unknown = reader.only(&fields, "`limits` of a program", &["calls", "timeout"], &[]);
    let calls = match fields.get("calls") {
        None => Some(CALLS),
        Some(tree) => reader.integer_in(tree, "`calls`", 1, MOST_CALLS_OF_RUN),
    };
    let timeout = match fields.get("timeout") {
        None => Some(None),
        Some(tree) => duration::of_contract(reader, tree, "`timeout`").map(Some),
    };
    let limits = (calls?, timeout?);
    (!unknown).then_some(limits)
}

/// Returns the graph that the contract of a program means, with its id, and with the tools that its contract lists. Each part has the
/// place in the contract that it comes from.
pub fn as_graph(file: &YamlFile, id: &ItemId, program: &ProgramContract, tools: &[ListedTool]) -> YamlFile {
    let config = tool_loop::place_of_config(file);
    let at = PlacedTrees { span: &config };
    let described = tools.iter().map(|tool| {
        let properties = tool.schema.get("properties").and_then(Value::as_object);
        let names: Vec<Value> = properties.into_iter().flat_map(|all| all.keys().cloned().map(Value::from)).collect();
        at.value(&serde_json::json!({ "id": tool.id.as_str(), "parameters": names }))
    });
    let start = serde_json::to_value(&program.start).unwrap_or_default();
    let params = vec![
        ("program", at.value(&start)),
        ("tools", at.list(described.collect())),
        ("limits", at.map(vec![("calls", at.number(u64::from(program.most_calls)))])),
        ("inputs", at.text("${inputs}")),
        ("talk", at.text("${state.talk}")),
    ];
    let assign = vec![("talk", at.text("${result.said}")), ("outcome", at.text("${result.outcome}"))];
    // Each call may be wanted alone: `run`, `use`, `pick`, perhaps a question, the call, perhaps `failed`, `gather`.
    let of_call = if tools.iter().any(|tool| tool.is_guarded) { 7 } else { 6 };
    let steps = u64::from(program.most_calls) * of_call + 2;
    let means = ToolLoop {
        asks: "run",
        asked: TURN,
        params,
        attempts: 1,
        assign,
        answer: "outcome",
        output: "${state.outcome.value}",
        sums: &[],
        listed: &program.calls,
        tools,
        most_calls: MOST_CALLS,
        steps,
        timeout: Some(program.start.timeout_ms),
        approvals: program.approvals.as_ref(),
        copied: &["version", "description", "env_requires"],
    };
    means.to_graph(file, id, &at)
}

/// Returns the schema of the result of a program's turn, as JSON: an entry of the talk, and the calls that it wants
/// or the value that it ended with.
pub fn turn_result(program: &ProgramContract) -> Value {
    let tools: Vec<Value> = program.calls.iter().map(|tool| Value::from(tool.value.as_str())).collect();
    serde_json::json!({
        "type": "object",
        "properties": {
            "said": { "type": "array", "items": { "type": "object" } },
            "calls": { "type": "array", "items": tool_loop::wanted_call(tools) },
            "outcome": { "type": "object", "properties": { "value": program.result }, "required": ["value"] },
        },
        "required": ["said", "calls"],
    })
}
