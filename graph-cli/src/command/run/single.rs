//! `graph run --node`: execute one node, and no other.

use std::sync::Arc;

use graph_model::number::read_json;
use graph_runtime::dynamic::Interpreted;
use graph_runtime::{Map, Options, Runtime, Single, SingleError, StepOnce, Value};

use super::authority::Authority;
use super::failure::{PROBLEMS, RunCommandFailure, USAGE};
use super::{Beginning, RunArguments, RunReport, UNDONE, WAITS, unstarted};

/// Executes a node, with the state of a new run or of one in the store, and returns its result (R265).
pub(super) async fn perform(
    arguments: &RunArguments,
    runtime: &Runtime,
    graph: Interpreted,
    begun: Beginning,
    node: &str,
    options: Options,
    authority: &Authority,
) -> Result<RunReport, RunCommandFailure> {
    let inject = injected(arguments, &graph)?;
    let single = Single { node: node.to_owned(), inject, options };
    let machine = Arc::new(graph);
    let stepped = match begun {
        Beginning::Resume(run) => runtime.step_once_in(machine, &run, single).await,
        Beginning::Start(inputs) => runtime.step_once(machine, Value::Object(inputs), single).await,
    };
    let stepped = stepped.map_err(|error| match error {
        SingleError::Start(error) => authority.explain(unstarted(error)),
        SingleError::NoSuchNode(_)
        | SingleError::InBranches { .. }
        | SingleError::Inject { .. }
        | SingleError::UnknownKey { .. } => RunCommandFailure::of(USAGE, error),
        error => RunCommandFailure::of(UNDONE, error),
    })?;
    let code = match stepped.success {
        true => 0,
        false if !stepped.waits.is_empty() => WAITS,
        false => PROBLEMS,
    };
    Ok(RunReport { result: stepped.to_value(), code })
}

fn injected(arguments: &RunArguments, graph: &Interpreted) -> Result<Map<String, Value>, RunCommandFailure> {
    let Some(text) = &arguments.inject_state else { return Ok(Map::new()) };
    let inject = match read_json(text) {
        Ok(Value::Object(inject)) => inject,
        Ok(_) => return Err(RunCommandFailure::usage("`--inject-state` must be a JSON object")),
        Err(error) => return Err(RunCommandFailure::usage(format_args!("`--inject-state` cannot be read: {error}"))),
    };
    let interface = graph.interface();
    let is_secret = |name: &str| {
        let key = interface.keys.iter().find(|key| key.name == name);
        let fields = interface.inputs.as_deref().filter(|_| name == "inputs").unwrap_or_default();
        key.is_some_and(|key| key.ty.has_secret()) || fields.iter().any(|field| field.ty.has_secret())
    };
    match inject.keys().find(|name| is_secret(name)) {
        Some(name) => Err(RunCommandFailure::usage(format_args!(
            "`{name}` is or contains a secret, and others see command lines: `--inject-state` does not take it"
        ))),
        None => Ok(inject),
    }
}
