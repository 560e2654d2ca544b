//! Durations: `30s`, `250ms`, `1h30m`, or a number of seconds.

use graph_model::duration;

use super::reader::DefinitionReader;
use crate::diagnostic::{SourcePlace, code};
use crate::tree::{TreeNode, YamlTree};

/// Reads a duration of at least a millisecond, in milliseconds; `None` if a mistake was reported.
pub(super) fn parse(reader: &mut DefinitionReader<'_>, tree: &YamlTree, what: &str) -> Option<u64> {
    milliseconds(&tree.node)
        .map_err(|reason| {
            let written = match &tree.node {
                TreeNode::String(text) => text.clone(),
                TreeNode::Number(number) => number.to_string(),
                _ => tree.describe().to_owned(),
            };
            let place = SourcePlace::new(reader.source, tree.span.clone());
            let help = match tree.has_template() {
                true => {
                    "write the time, which is the same for each run; a wait may last until a time that a value says: \
                     `until: \"${state.due}\"`"
                }
                false => "write a number of seconds, or a text as `250ms`, `30s`, `2m` or `1h30m`",
            };
            let message = format!("{what} is a duration, not `{written}`");
            reader.diagnostics.error(code::BAD_DURATION, place, message).note(reason).help(help);
        })
        .ok()
}

/// Reads a duration in the contract of a tool, in milliseconds; `None` if a mistake was reported.
pub(super) fn of_contract(reader: &mut DefinitionReader<'_>, tree: &YamlTree, what: &str) -> Option<u64> {
    let milliseconds = milliseconds(&tree.node).ok();
    if milliseconds.is_none() {
        let place = SourcePlace::new(reader.source, tree.span.clone());
        let message = format!("{what} is a number of seconds above 0, or a text such as `30s` or `2m`");
        reader.diagnostics.error(code::BAD_CONTRACT, place, message);
    }
    milliseconds
}

/// Returns the milliseconds of a text, or of a number of seconds.
///
/// # Errors
///
/// Returns the reason, in words, if it is not a valid duration.
pub(super) fn milliseconds(node: &TreeNode) -> Result<u64, String> {
    let duration = match node {
        TreeNode::String(text) => duration::parse(text),
        TreeNode::Number(number) => duration::seconds(number.as_f64().unwrap_or(f64::INFINITY)),
        _ => return Err("a duration is a number or a text".to_owned()),
    };
    match u64::try_from(duration.map_err(|error| error.to_string())?.as_millis()) {
        Ok(0) => Err("a millisecond is the shortest there is".to_owned()),
        Ok(milliseconds) => Ok(milliseconds),
        Err(error) => Err(error.to_string()),
    }
}
