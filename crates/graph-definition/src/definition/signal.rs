//! Signals: the messages that a run can receive while it runs.

use graph_model::name::StateKey;

use super::reader::{DefinitionReader, Spanned};
use super::schema::{self, SchemaOwner, ValueSchema};
use crate::diagnostic::{SourcePlace, code};
use crate::tree::YamlTree;

/// A signal that a run can receive.
#[derive(Debug)]
pub struct SignalDefinition {
    /// Its name.
    pub name: Spanned<StateKey>,
    /// The values that it can have.
    pub schema: ValueSchema,
}

/// The maximum number of signals of a graph.
pub const MOST_SIGNALS: usize = 100;

/// The field of `result` that has the name of the signal. No signal has this name.
pub const SIGNAL: &str = "signal";

/// Reads `signals`: schemas by the names of the signals.
pub(super) fn parse_all(reader: &mut DefinitionReader<'_>, tree: &YamlTree) -> Vec<SignalDefinition> {
    let Some(fields) = reader.map(tree, "`signals`") else { return Vec::new() };
    if let Some((beyond, _)) = fields.entries.get(MOST_SIGNALS) {
        let place = SourcePlace::new(reader.source, beyond.span.clone());
        reader.diagnostics.error(code::TOO_DEEP, place, format!("a graph has at most {MOST_SIGNALS} signals"));
        return Vec::new();
    }
    let mut signals = Vec::new();
    for (key, tree) in fields.entries {
        let place = SourcePlace::new(reader.source, key.span.clone());
        let name = reader.name(Spanned { value: key.name.clone(), span: key.span.clone() }, StateKey::new);
        // A schema that could not be read was reported. The waits for the signal are not.
        let schema = schema::parse(reader, tree, SchemaOwner::Inputs);
        let schema = schema.unwrap_or_else(|| ValueSchema::any(tree.span.clone()));
        let Some(name) = name else { continue };
        let text = name.value.as_str();
        if text == SIGNAL || text.contains(['.', '#']) {
            let help = match text.contains('#') {
                true => "`#` is in the names of the answers to interrupts",
                false => "`result.signal` is the name of the signal that ended a wait, and `result.NAME` is its value",
            };
            let message = format!("`{name}` cannot be the name of a signal");
            reader.diagnostics.error(code::BAD_NAME, place, message).help(help);
            continue;
        }
        signals.push(SignalDefinition { name, schema });
    }
    signals
}
