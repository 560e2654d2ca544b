//! The state of a run as its callers and hooks see it.

use graph_model::program::{LAST_ERROR, LimitCode, RETRIES};
use graph_model::value::{Map, Value, View};

use crate::graph::{CompiledKey, GraphTables};
use crate::run_secrets::hidden;
use crate::state::StateFields;
use crate::step::position::Position;

/// Returns the state as JSON: inputs, keys that are set, and the engine's own entries (R121, R136). Secrets are hidden.
pub fn state_value(code: &GraphTables, state: &dyn StateFields, position: &Position) -> Value {
    let mut map = Map::new();
    let secrets = &code.settings.secrets;
    map.insert("inputs".to_owned(), hidden(secrets.inputs.as_ref(), state.inputs().to_value()));
    map.extend(set(code, state).filter(|(key, _)| !key.is_in_memory()).map(|(key, view)| {
        let name = key.name.clone();
        let value = hidden(secrets.keys.get(&name), view.to_value());
        (name, value)
    }));
    if let Some(error) = &position.root.last_error {
        map.insert(LAST_ERROR.to_owned(), View::Object(error).to_value());
    }
    if !position.root.retries.is_empty() {
        map.insert(RETRIES.to_owned(), Value::Object(position.root.retries.clone()));
    }
    Value::Object(map)
}

/// Returns the keys that are set and have their values for the rest of the run, in the order of the graph.
pub fn keys<'s>(code: &'s GraphTables, state: &'s dyn StateFields) -> impl Iterator<Item = (String, View<'s>)> {
    set(code, state).filter(|(key, _)| key.keep.is_none()).map(|(key, view)| (key.name.clone(), view))
}

/// Returns the keys that are set, in the order of the graph.
fn set<'s>(code: &'s GraphTables, state: &'s dyn StateFields) -> impl Iterator<Item = (&'s CompiledKey, View<'s>)> {
    code.keys.iter().enumerate().map(|(index, key)| (key, state.get(index))).filter(|(_, view)| !view.is_null())
}

/// Returns the values that the hooks of an event see.
pub fn hook_values<const N: usize>(
    code: &GraphTables,
    state: &dyn StateFields,
    position: &Position,
    values: [(&'static str, Value); N],
) -> Value {
    let mut hook_values = Map::new();
    hook_values.insert("graph_id".to_owned(), Value::from(code.id.as_str()));
    for (name, value) in values {
        hook_values.insert(name.to_owned(), value);
    }
    let mut state = state_value(code, state, position);
    if let Value::Object(state) = &mut state {
        state.insert("step_count".to_owned(), Value::from(position.steps));
    }
    hook_values.insert("step_count".to_owned(), Value::from(position.steps));
    hook_values.insert("state".to_owned(), state);
    Value::Object(hook_values)
}

/// Returns the values that hooks see of a run at a limit; `node` is the node that it limits, if it is one of a node.
pub fn at_limit(code: LimitCode, taken: u64, most: u64, node: Option<&str>) -> [(&'static str, Value); 4] {
    [
        ("limit_code", Value::from(code.name())),
        ("current_value", Value::from(taken)),
        ("current_max", Value::from(most)),
        ("node", Value::from(node)),
    ]
}
