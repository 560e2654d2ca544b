//! Durations: `30s`, `250ms`, `1h30m`, or a number of seconds.

use super::reader::Reader;
use crate::diagnostic::{Place, code};
use crate::tree::{Node, Tree};

/// Reads a duration of at least a millisecond; `None` where it was reported. In milliseconds.
pub(super) fn parse(reader: &mut Reader<'_>, tree: &Tree, what: &str) -> Option<u64> {
    let (written, milliseconds) = match &tree.node {
        Node::String(text) => (text.clone(), of_text(text)),
        Node::Number(number) => (number.to_string(), number.as_f64().and_then(of_seconds)),
        _ => (tree.describe().to_owned(), None),
    };
    if milliseconds.is_none() {
        let place = Place::new(reader.source, tree.span.clone());
        reader.diagnostics.error(code::BAD_DURATION, place, format!("{what} is a duration, not `{written}`")).help(
            "write a number of seconds, or a text as `250ms`, `30s`, `2m` or `1h30m`; a millisecond is the shortest",
        );
    }
    milliseconds
}

fn of_text(text: &str) -> Option<u64> {
    let duration = humantime::parse_duration(text).ok()?;
    u64::try_from(duration.as_millis()).ok().filter(|&milliseconds| milliseconds > 0)
}

fn of_seconds(seconds: f64) -> Option<u64> {
    let duration = std::time::Duration::try_from_secs_f64(seconds).ok()?;
    u64::try_from(duration.as_millis()).ok().filter(|&milliseconds| milliseconds > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_seconds_are_durations_of_at_least_a_millisecond() {
        for (text, milliseconds) in [
            ("250ms", Some(250)),
            ("30s", Some(30_000)),
            ("2m", Some(120_000)),
            ("1h30m", Some(5_400_000)),
            ("0s", None),
            ("10us", None),
            ("", None),
            ("30", None),
            ("-3s", None),
            ("soon", None),
        ] {
            assert_eq!(of_text(text), milliseconds, "{text}");
        }
        assert_eq!(of_seconds(0.25), Some(250));
        assert_eq!(of_seconds(90.0), Some(90_000));
        assert_eq!([of_seconds(0.0), of_seconds(-1.0), of_seconds(f64::MAX)], [None; 3]);
    }
}
