//! No two names of a graph look the same.

use graph_definition::characters::{bare, has_marks, shown, skeleton};
use graph_definition::definition::NodeDefinition;
use graph_definition::diagnostic::{Diagnostics, code};
use graph_definition::hash::HashMap;
use graph_definition::source::Span;

use crate::analysis::Analysis;
use crate::types::TypeKind;

pub(super) fn check(analysis: &Analysis<'_>, diagnostics: &mut Diagnostics) {
    let definition = analysis.model.definition;
    let nodes = definition.nodes.iter().map(|node| (node.name.value.as_str(), node.name.span.clone()));
    check_names(analysis, "node", nodes.collect(), diagnostics);
    let initial = definition.state.iter().map(|(key, _)| key);
    let written = definition.nodes.iter().flat_map(NodeDefinition::written_or_shared);
    let channels = definition.channels.iter().map(|channel| &channel.key);
    let keys = initial.chain(channels).chain(written).map(|key| (key.value.as_str(), key.span.clone()));
    check_names(analysis, "state key", keys.collect(), diagnostics);
    if let (Some(schema), TypeKind::Object(_)) = (&definition.inputs, &analysis.model.inputs.kind) {
        let inputs = schema.properties().map(|property| (property.name.value.as_str(), property.name.span.clone()));
        check_names(analysis, "input", inputs.collect(), diagnostics);
    }
}

/// Reports names that look like another name. Each is compared with the first that looks like it.
fn check_names(analysis: &Analysis<'_>, what: &str, names: Vec<(&str, Span)>, diagnostics: &mut Diagnostics) {
    // ASCII names count as distinct.
    if names.iter().all(|(name, _)| name.is_ascii()) {
        return;
    }
    let mut by_look: HashMap<String, (&str, Span)> = HashMap::default();
    let mut by_letters: HashMap<String, (&str, Span)> = HashMap::default();
    for (name, span) in names {
        let first = by_look.entry(skeleton(name)).or_insert((name, span.clone())).clone();
        let alike = by_letters.entry(bare(name)).or_insert((name, span.clone())).clone();
        let other = if first.0 != name {
            first
        } else if alike.0 != name && (has_marks(name) || has_marks(alike.0)) {
            alike
        } else {
            continue;
        };
        diagnostics
            .lint(
                code::LOOK_ALIKE,
                analysis.model.place(&span),
                format!("the {what} `{name}` looks like the {what} `{}`, and is a different one", other.0),
            )
            .label(shown(name))
            .related(analysis.model.place(&other.1), shown(other.0))
            .help("rename one of them");
    }
}
