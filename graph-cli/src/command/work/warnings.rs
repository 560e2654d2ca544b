//! The warnings of workers on stderr: the runs that they cannot continue, and the failures of their store.

use std::fmt;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{Interest, set_global_default};
use tracing::{Event, Level, Metadata, Subscriber};

/// The module that workers are in.
const WORKERS: &str = "graph_engine::worker";

/// The warning that a run ended without a result, which its line says too.
const ENDED: &str = "a run that a worker continued has no result";

/// Shows the warnings from now on.
pub(super) fn show() {
    // It fails only if there is such a subscriber already.
    drop(set_global_default(Warnings));
}

/// Writes the warnings of workers, and nothing else.
struct Warnings;

fn is_shown(metadata: &Metadata<'_>) -> bool {
    metadata.is_event() && *metadata.level() <= Level::WARN && metadata.target() == WORKERS
}

impl Subscriber for Warnings {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if is_shown(metadata) { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        is_shown(metadata)
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text::default();
        event.record(&mut text);
        let Text { message, run, error } = text;
        if message != ENDED {
            err!("warning: {message}{run}{error}");
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// The parts of a warning.
#[derive(Default)]
struct Text {
    message: String,
    run: String,
    error: String,
}

impl Visit for Text {
    fn record_error(&mut self, _: &Field, value: &(dyn std::error::Error + 'static)) {
        self.error = format!(": {}", crate::outcome::Error::of(value));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            "run" => self.run = format!(" (run `{value:?}`)"),
            "error" => self.error = format!(": {value:?}"),
            _ => {}
        }
    }
}
