//! Durations: `30s`, `250ms`, `1h30m`, or a number of seconds.

use graph_model::duration;

use super::reader::Reader;
use crate::diagnostic::{Place, code};
use crate::tree::{Node, Tree};

/// Reads a duration of at least a millisecond; `None` where it was reported. In milliseconds.
pub(super) fn parse(reader: &mut Reader<'_>, tree: &Tree, what: &str) -> Option<u64> {
    let (written, duration) = match &tree.node {
        Node::String(text) => (text.clone(), duration::parse(text).map_err(|error| error.to_string())),
        Node::Number(number) => {
            let seconds = duration::seconds(number.as_f64().unwrap_or(f64::INFINITY));
            (number.to_string(), seconds.map_err(|error| error.to_string()))
        }
        _ => (tree.describe().to_owned(), Err(String::new())),
    };
    let milliseconds = duration.and_then(|duration| match u64::try_from(duration.as_millis()) {
        Ok(0) => Err("a millisecond is the shortest there is".to_owned()),
        Ok(milliseconds) => Ok(milliseconds),
        Err(error) => Err(error.to_string()),
    });
    milliseconds
        .map_err(|reason| {
            let place = Place::new(reader.source, tree.span.clone());
            let diagnostic =
                reader.diagnostics.error(code::BAD_DURATION, place, format!("{what} is a duration, not `{written}`"));
            diagnostic.help("write a number of seconds, or a text as `250ms`, `30s`, `2m` or `1h30m`");
            if !reason.is_empty() {
                diagnostic.note(reason);
            }
        })
        .ok()
}
