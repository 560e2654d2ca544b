//! The conditions for a run to start: capabilities, environment variables, tools and inputs.

use crate::error::StartError;
use crate::graph::{GraphTables, tables};
use crate::machine::Machine;
use crate::schema::{Invalid, validate};
use crate::state::StateFields;
use graph_model::capability::{Capability, Grants};
use graph_model::name::GraphId;
use graph_model::program::Executor;
use graph_model::value::{Mismatch, Value};

/// Returns the patterns of the capabilities that a run may use: those that the whole ceiling grants. Where patterns cannot
/// express that, the capabilities that the graph or a graph inside it needs are listed one by one.
pub fn granted(machine: &dyn Machine, ceiling: &[Grants]) -> Vec<String> {
    let all = ceiling.iter().cloned().reduce(|all, one| all.narrowed(&one)).unwrap_or_default();
    let mut patterns: Vec<String> = all.patterns().iter().map(ToString::to_string).collect();
    if ceiling.len() > 1 {
        name_needed(machine, ceiling, &all, &mut Vec::new(), &mut patterns);
    }
    patterns
}

/// Adds the capabilities that a graph and those inside it need and the whole ceiling grants, if the patterns do not cover
/// them.
fn name_needed(
    machine: &dyn Machine,
    ceiling: &[Grants],
    said: &Grants,
    seen: &mut Vec<GraphId>,
    patterns: &mut Vec<String>,
) {
    let code = tables(machine.graph());
    if seen.contains(&code.id) {
        return;
    }
    seen.push(code.id.clone());
    for needed in code.tools.iter().filter_map(|tool| tool.capability.as_ref()) {
        let name = needed.to_string();
        if ceiling.iter().all(|grants| grants.allow(needed)) && !said.allow(needed) && !patterns.contains(&name) {
            patterns.push(name);
        }
    }
    let graphs = (0..).zip(&code.tools).filter(|(_, tool)| tool.by == Executor::Graph);
    for inner in graphs.filter_map(|(tool, _)| machine.nested(tool)) {
        name_needed(&*inner, ceiling, said, seen, patterns);
    }
}

/// Checks the capabilities, the environment and the tools of a graph before its first step (R41, R279). Returns for each
/// tool whether a run may call it. A tool whose id is known only at each call is checked at that call.
pub fn allowed(machine: &dyn Machine, ceiling: &[Grants]) -> Result<Vec<bool>, StartError> {
    let code = tables(machine.graph());
    let graph = || code.id.to_string();
    let missing = not_granted(machine, ceiling);
    if !missing.is_empty() {
        return Err(StartError::NotGranted { graph: graph(), missing });
    }
    let is_unset = |name: &String| std::env::var_os(name.as_str()).is_none();
    let mut unset: Vec<String> =
        code.env.iter().filter(|name| is_unset(name)).map(|name| required(code, name)).collect();
    inside_require(machine, &mut vec![code.id.clone()], &is_unset, &mut unset);
    if !unset.is_empty() {
        return Err(StartError::MissingEnvironment(unset));
    }
    let missing = machine.missing_tools();
    if !missing.is_empty() {
        let tools = missing.iter().map(|id| format!("`{id}`")).collect();
        return Err(StartError::MissingTools { graph: graph(), tools });
    }
    let missing = machine.missing_reducers();
    if !missing.is_empty() {
        let reducers = missing.iter().map(|id| format!("`{id}`")).collect();
        return Err(StartError::MissingReducers { graph: graph(), reducers });
    }
    Ok(code.tools.iter().map(|tool| tool.id.is_some()).collect())
}

/// Returns the capabilities that a run of a graph needs but may not use, each with backticks.
pub fn not_granted(machine: &dyn Machine, ceiling: &[Grants]) -> Vec<String> {
    let code = tables(machine.graph());
    // The compiler has checked that the graph permits itself these capabilities. They are checked again for graphs that were
    // interpreted or written by hand.
    let is_allowed = |capability: &Capability| {
        ceiling.iter().all(|grants| grants.allow(capability)) && code.permissions.allow(capability)
    };
    let needed = code.tools.iter().filter_map(|tool| tool.capability.as_ref());
    let mut missing = needed.filter(|needed| !is_allowed(needed)).map(|needed| format!("`{needed}`")).collect();
    missing_inside(machine, ceiling, &mut Vec::new(), &mut missing);
    missing
}

/// Fails if an input that a graph requires is missing (R49).
pub(crate) fn require_inputs(code: &GraphTables, inputs: &Value) -> Result<(), StartError> {
    let given = |name: &&String| !inputs.get(name.as_str()).unwrap_or(&Value::Null).is_null();
    let missing: Vec<String> = code.settings.required.iter().filter(|name| !given(name)).cloned().collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(StartError::MissingInputs { graph: code.id.to_string(), missing })
}

/// Returns the state of a new run: its inputs with their defaults, and the first values of its keys.
pub(crate) fn open_inputs(machine: &dyn Machine, inputs: Value) -> Result<Box<dyn StateFields>, StartError> {
    let code = tables(machine.graph());
    let misfit = |mismatch| StartError::Inputs { graph: code.id.to_string(), mismatch, others: Vec::new() };
    let mut state = machine.open(inputs).map_err(misfit)?;
    if let Some(schema) = &code.settings.schema {
        let graph = || code.id.to_string();
        validate(schema, &state.inputs().to_plain_value()).map_err(|invalid| match invalid {
            Invalid::Schema(reason) => StartError::Schema { graph: graph(), reason },
            Invalid::Inputs(mismatch, others) => StartError::Inputs { graph: graph(), mismatch, others },
        })?;
    }
    initialise(code, &mut *state).map_err(misfit)?;
    Ok(state)
}

/// Fails if a runtime would refuse to start the graph with these inputs. It starts no run.
pub fn accepts_inputs(machine: &dyn Machine, inputs: &Value) -> Result<(), StartError> {
    require_inputs(tables(machine.graph()), inputs)?;
    open_inputs(machine, inputs.clone()).map(drop)
}

/// Returns, for each environment variable that a graph and those inside it require, the message that it is not set.
pub fn required_environment(machine: &dyn Machine) -> Vec<String> {
    let code = tables(machine.graph());
    let mut all = code.env.iter().map(|name| required(code, name)).collect();
    inside_require(machine, &mut vec![code.id.clone()], &|_| true, &mut all);
    all
}

/// Returns the message that an environment variable is not set. It names the graph, or the first node that asks for the
/// variable (R280).
fn required(code: &GraphTables, name: &String) -> String {
    let Some(node) = code.nodes.iter().find(|node| node.env.contains(name)) else {
        return format!("graph requires '{name}'");
    };
    let tool = node.kind.calls().and_then(|tool| code.tool(tool)).map_or("", |tool| tool.name());
    let shown = if tool.is_empty() { String::new() } else { format!(" ({tool})") };
    format!("node '{}'{shown} requires '{name}'", node.name)
}

/// Adds the capabilities that the graphs inside a graph need and the caller does not grant. A capability that an enclosing
/// graph does not permit is left out: the caller cannot grant it, and the call fails its node.
fn missing_inside(machine: &dyn Machine, ceiling: &[Grants], around: &mut Vec<Around>, missing: &mut Vec<String>) {
    let code = tables(machine.graph());
    // Graphs can nest each other in a cycle, so each is visited once.
    if !code.tools.iter().any(|tool| tool.by == Executor::Graph) || around.iter().any(|graph| graph.id == code.id) {
        return;
    }
    around.push(Around { id: code.id.clone(), permissions: code.permissions.clone(), is_open: true });
    let at = around.len() - 1;
    let graphs = (0..).zip(&code.tools).filter(|(_, tool)| tool.by == Executor::Graph);
    for inner in graphs.filter_map(|(tool, _)| machine.nested(tool)) {
        let code = tables(inner.graph());
        let outer = around.iter().filter(|graph| graph.is_open).map(|graph| &graph.permissions);
        let permissions: Vec<&Grants> = outer.chain([&code.permissions]).collect();
        for needed in code.tools.iter().filter_map(|tool| tool.capability.as_ref()) {
            let is_permitted = permissions.iter().all(|grants| grants.allow(needed));
            let shown = format!("`{needed}`");
            if is_permitted && !ceiling.iter().all(|grants| grants.allow(needed)) && !missing.contains(&shown) {
                missing.push(shown);
            }
        }
        missing_inside(&*inner, ceiling, around, missing);
    }
    around[at].is_open = false;
}

/// Adds the environment variables that the graphs inside a graph require, if `counts` accepts them.
fn inside_require(
    machine: &dyn Machine,
    seen: &mut Vec<GraphId>,
    counts: &dyn Fn(&String) -> bool,
    all: &mut Vec<String>,
) {
    let graphs = (0..).zip(&tables(machine.graph()).tools).filter(|(_, tool)| tool.by == Executor::Graph);
    for inner in graphs.filter_map(|(tool, _)| machine.nested(tool)) {
        let code = tables(inner.graph());
        // Graphs can nest each other in a cycle, so each is visited once.
        if seen.contains(&code.id) {
            continue;
        }
        seen.push(code.id.clone());
        let names = code.env.iter().filter(|name| counts(name));
        all.extend(names.map(|name| format!("graph '{}' requires '{name}'", code.id)));
        inside_require(&*inner, seen, counts, all);
    }
}

/// A graph that was visited.
struct Around {
    id: GraphId,
    permissions: Grants,
    /// Whether the graphs that are being visited run inside it.
    is_open: bool,
}

/// Sets the first values that the graph gives to state keys.
pub fn initialise(code: &GraphTables, state: &mut dyn StateFields) -> Result<(), Mismatch> {
    for (index, key) in code.keys.iter().enumerate() {
        if let Some(initial) = &key.initial {
            state.set(index, initial.clone()).map_err(|error| error.inside(key.name.clone()))?;
        }
    }
    Ok(())
}
