//! Neither nodes nor first values write the engine's keys.

use graph_definition::definition::NodeDefinition;
use graph_definition::diagnostic::{Diagnostics, code};

use crate::analysis::Analysis;

pub(super) fn check(analysis: &Analysis<'_>, diagnostics: &mut Diagnostics) {
    let written = analysis.model.definition.nodes.iter().flat_map(NodeDefinition::written_or_shared);
    let initial = analysis.model.definition.state.iter().map(|(key, _)| key);
    let channels = analysis.model.definition.channels.iter().map(|channel| &channel.key);
    for key in initial.chain(channels).chain(written) {
        let name = key.value.as_str();
        if name == "inputs" || name.starts_with('_') {
            diagnostics
                .error(
                    code::RESERVED_KEY,
                    analysis.model.place(&key.span),
                    format!("the state key `{name}` belongs to the engine"),
                )
                .help(if name == "inputs" {
                    "the inputs of a run do not change; write to a key of your own"
                } else {
                    "choose a name that does not begin with `_`"
                });
        }
    }
}
