//! An event as a row of the timeline, and as the lines of a page of its own. Their texts are safe for a terminal.

use std::io;
use std::time::Duration;

use graph_model::timestamp;
use graph_runtime::events::{EventKind, RunEvent};
use graph_runtime::record::{Edit, End, Opened, TakenWait, Visit};
use serde_json::{Value, json};

use super::model::{KeyChange, KeyRow, RunModel};
use super::text::{MOST_BRIEF_BYTES, brief, lines, one_line};
use crate::output::counted;

/// The meaning of an event at a glance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    /// The run began or continues.
    Begins,
    Done,
    Failed,
    Cancelled,
    Waits,
    Continues,
    Edited,
    /// Work in progress.
    Live,
}

impl Mark {
    pub(super) fn symbol(self) -> &'static str {
        match self {
            Self::Begins | Self::Continues => "▸",
            Self::Done => "✓",
            Self::Failed => "✗",
            Self::Cancelled => "⊘",
            Self::Waits => "‖",
            Self::Edited => "±",
            Self::Live => "·",
        }
    }
}

/// A row of the timeline.
#[derive(Debug)]
pub(super) struct TimelineRow {
    pub(super) step: Option<u64>,
    /// The node; empty for an event of the run.
    pub(super) node: String,
    pub(super) mark: Mark,
    pub(super) detail: String,
}

impl TimelineRow {
    pub(super) fn of(event: &RunEvent) -> Self {
        let row = |step, node: &str, mark, detail: String| Self { step, node: brief(node), mark, detail };
        match &event.kind {
            EventKind::Started { inputs, entry, .. } => {
                let entry =
                    entry.as_ref().map_or_else(String::new, |entry| format!(" from the entry {}", brief(entry)));
                row(None, "", Mark::Begins, format!("started{entry} with {}", compact(inputs)))
            }
            EventKind::Resumed { steps, .. } => row(None, "", Mark::Begins, format!("resumed after {steps} visits")),
            EventKind::Visited { node, visit, .. } => row(Some(visit.step), node, mark_of(visit), summary(visit)),
            EventKind::WaitOpened { step, node, wait, .. } => row(Some(*step), node, Mark::Waits, waits(wait)),
            EventKind::WaitOver { wait, .. } => row(Some(wait.step), "", Mark::Continues, over(wait)),
            EventKind::Edited { edit, .. } => {
                let keys: Vec<&str> = edit.set.keys().chain(edit.write.keys()).map(String::as_str).collect();
                let detail = format!("{} edited {}: {}", edit.by, keys.join(", "), edit.why);
                row(None, "", Mark::Edited, brief(&detail))
            }
            EventKind::Ended { end, .. } => {
                let mark = if end.status.has_result() { Mark::Done } else { Mark::Failed };
                let why = end.error.as_ref().filter(|error| *error != end.status.name());
                let why = why.map_or_else(String::new, |error| format!(": {}", brief(error)));
                row(None, "", mark, format!("ended {}{why}", end.status.name()))
            }
            EventKind::VisitStarted { step, node, .. } => row(Some(*step), node, Mark::Live, "visit".to_owned()),
            EventKind::CallStarted { call, .. } => {
                row(Some(call.step), &call.node, Mark::Live, format!("calls {}", brief(&call.tool)))
            }
            EventKind::CallEnded { call, error, .. } => {
                let end =
                    error.as_ref().map_or_else(|| "ended".to_owned(), |error| format!("failed: {}", brief(error)));
                row(Some(call.step), &call.node, Mark::Live, format!("{} {end}", brief(&call.tool)))
            }
            EventKind::Text { call, text, .. } => row(Some(call.step), &call.node, Mark::Live, brief(text)),
            EventKind::Custom { call, name, data, .. } => {
                row(Some(call.step), &call.node, Mark::Live, format!("{} {}", brief(name), compact(data)))
            }
            EventKind::Values { steps, .. } => row(None, "", Mark::Live, format!("state after {steps} visits")),
            _ => row(None, "", Mark::Live, "an event that this version does not know".to_owned()),
        }
    }

    /// Whether the row has a text, which is in lower case.
    pub(super) fn has(&self, text: &str) -> bool {
        self.node.to_lowercase().contains(text) || self.detail.to_lowercase().contains(text)
    }
}

fn mark_of(visit: &Visit) -> Mark {
    match (&visit.error, visit.cancelled) {
        (_, true) => Mark::Cancelled,
        (Some(_), false) => Mark::Failed,
        (None, false) => Mark::Done,
    }
}

fn summary(visit: &Visit) -> String {
    let mut parts = Vec::new();
    if visit.ms > 0 {
        parts.push(took(visit.ms));
    }
    if visit.cached {
        parts.push("cached".to_owned());
    }
    if visit.calls > 1 {
        parts.push(counted(visit.calls - 1, "retry", "retries"));
    }
    if visit.timed_out {
        parts.push("timed out".to_owned());
    }
    if visit.suppressed {
        parts.push("continued".to_owned());
    }
    if let Some(run) = &visit.run {
        parts.push(format!("run {}", brief(run.as_str())));
    }
    if let Some(error) = &visit.error {
        parts.push(brief(error.lines().next().unwrap_or_default()));
    }
    if !visit.changes.is_empty() {
        let keys: Vec<&str> = visit.changes.keys().map(String::as_str).collect();
        parts.push(format!("→ {}", brief(&keys.join(", "))));
    }
    if !visit.warnings.is_empty() {
        parts.push(format!("⚠ {}", brief(&visit.warnings.join("; "))));
    }
    parts.join("  ")
}

/// Says what a wait is for.
pub(super) fn waits(opened: &Opened) -> String {
    let due = opened.next_due().map_or_else(String::new, |due| {
        format!(" until {}", timestamp::seconds(timestamp::from_unix_milliseconds(due)))
    });
    let inside = match opened.inside.len() {
        0 => String::new(),
        1 => " for a wait of a nested run".to_owned(),
        count => format!(" for {count} waits of nested runs"),
    };
    let payload = opened.payload.as_ref().map_or_else(String::new, |payload| format!(": {}", compact(payload)));
    let pause = if opened.pause.is_some() { "paused" } else { "waits" };
    format!("{pause}{inside}{due}{payload}")
}

fn over(taken: &TakenWait) -> String {
    match &taken.signal {
        Some(signal) => format!("{} came: {}", brief(&signal.name), compact(&signal.value)),
        None => "its time has come".to_owned(),
    }
}

/// Writes the beginning of a value as JSON in one line. A row shows no more, and the whole may be large.
pub(super) fn compact(value: &Value) -> String {
    let mut beginning = ValuePrefix(Vec::new());
    // It fails where the beginning is full.
    drop(serde_json::to_writer(&mut beginning, value));
    brief(&String::from_utf8_lossy(&beginning.0))
}

/// The first bytes of a text that is written.
struct ValuePrefix(Vec<u8>);

impl io::Write for ValuePrefix {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = bytes.len().min(MOST_BRIEF_BYTES - self.0.len());
        self.0.extend(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes milliseconds for a reader.
pub(super) fn took(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms}ms"),
        1_000..60_000 => format!("{:.1}s", Duration::from_millis(ms).as_secs_f64()),
        _ => {
            let (hours, minutes, seconds) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1_000 % 60);
            if hours > 0 { format!("{hours}h{minutes:02}m") } else { format!("{minutes}m{seconds:02}s") }
        }
    }
}

fn time(unix_milliseconds: i64) -> String {
    timestamp::milliseconds(timestamp::from_unix_milliseconds(unix_milliseconds))
}

/// A line of a page about an event or a value.
#[derive(Debug, PartialEq)]
pub(super) enum PageLine {
    Heading(String),
    Text(String),
    Error(String),
}

/// A page about an event or a value.
#[derive(Debug, Default)]
pub(super) struct EventPage {
    pub(super) title: String,
    pub(super) lines: Vec<PageLine>,
}

impl EventPage {
    /// Says all that the journal has of an event.
    pub(super) fn of_event(model: &RunModel, at: usize) -> Option<Self> {
        let event = model.events().get(at)?;
        let row = TimelineRow::of(event);
        let title = match (row.step, row.node.as_str()) {
            (Some(step), "") => format!("step {step}"),
            (Some(step), node) => format!("step {step} {node}"),
            _ => row.detail.clone(),
        };
        let mut page = Self { title, lines: Vec::new() };
        page.say("at", &timestamp::milliseconds(event.at));
        if let Some(cursor) = &event.cursor {
            page.say("cursor", &cursor.to_string());
        }
        match &event.kind {
            EventKind::Started { inputs, entry, .. } => {
                if let Some(parent) = &event.parent {
                    page.say("inside", &format!("step {} {} of {}", parent.step, parent.node, parent.run));
                }
                if let Some(entry) = entry {
                    page.say("entry", entry);
                }
                page.value("inputs", inputs);
            }
            EventKind::Visited { node, visit, .. } => page.visit(model, at, node, visit),
            EventKind::WaitOpened { wait, .. } => page.wait(wait),
            EventKind::WaitOver { wait, .. } => page.over(wait),
            EventKind::Edited { edit, .. } => page.edit(model, at, edit),
            EventKind::Ended { end, .. } => page.end(end),
            _ => page.value("event", &json!(event)),
        }
        Some(page)
    }

    /// Shows the whole value of a key.
    pub(super) fn of_key(row: &KeyRow<'_>) -> Self {
        let mut page = Self { title: one_line(row.key), lines: Vec::new() };
        page.key(row);
        page
    }

    /// Shows the inputs.
    pub(super) fn of_inputs(inputs: &Value) -> Self {
        let mut page = Self { title: "inputs".to_owned(), lines: Vec::new() };
        page.value("inputs", inputs);
        page
    }

    fn say(&mut self, name: &str, text: &str) {
        let mut lines = lines(text).into_iter();
        let first = lines.next().unwrap_or_default();
        self.lines.push(PageLine::Text(format!("{name:<9} {first}")));
        self.lines.extend(lines.map(|line| PageLine::Text(format!("{:<9} {line}", ""))));
    }

    fn heading(&mut self, text: &str) {
        self.lines.push(PageLine::Text(String::new()));
        self.lines.push(PageLine::Heading(one_line(text)));
    }

    fn error(&mut self, heading: &str, text: &str) {
        self.heading(heading);
        self.lines.extend(lines(text).into_iter().map(PageLine::Error));
    }

    fn value(&mut self, heading: &str, value: &Value) {
        self.heading(heading);
        self.lines.extend(value_lines(value));
    }

    fn key(&mut self, row: &KeyRow<'_>) {
        let of = if row.is_channel { " (a channel: the last write)" } else { "" };
        match row.value {
            Some(value) => self.value(&format!("{}{of}", row.key), value),
            None => self.heading(&format!("{}: unset", row.key)),
        }
        if let KeyChange::From(before) = row.change {
            self.value(&format!("{}, before", row.key), before);
        }
    }

    fn visit(&mut self, model: &RunModel, at: usize, node: &str, visit: &Visit) {
        self.say("took", &took(visit.ms));
        if visit.calls > 1 {
            self.say("calls", &visit.calls.to_string());
        }
        if !visit.branch.is_empty() {
            let path: Vec<String> = visit.branch.iter().map(u32::to_string).collect();
            self.say("branch", &path.join("."));
        }
        let facts = [
            (visit.cached, "its result came from the cache"),
            (visit.suppressed, "the run continued after the failure"),
            (visit.ends_branch, "the failure ended its branch"),
            (visit.held, "the run ends with the failure when the other branches are done"),
            (visit.timed_out, "no signal came in time"),
            (visit.cancelled, "its branch was cancelled"),
            (visit.late, "the run had continued without its branch"),
        ];
        for (_, fact) in facts.iter().filter(|(holds, _)| *holds) {
            self.say("", fact);
        }
        if let Some(run) = &visit.run {
            self.say("run", &format!("{run}, nested: `graph watch` shows it too"));
        }
        let edges = model.graph_node(node).map_or(&[][..], |node| &node.edges);
        for edge in &visit.edges {
            let text = match edges.get(usize::from(*edge)) {
                Some((to, when)) => {
                    let to = to.as_deref().unwrap_or("the end of the path");
                    when.as_ref().map_or_else(|| to.to_owned(), |when| format!("{to}, since {when}"))
                }
                None => format!("edge {edge}"),
            };
            self.say("to", &text);
        }
        if let Some(over) = visit.over {
            self.say("branches", &over.to_string());
        }
        if let Some(error) = &visit.error {
            let category = visit.category.as_ref().map_or_else(String::new, |category| format!(" ({category})"));
            self.error(&format!("error{category}"), error);
        }
        for item in &visit.items {
            self.error(&format!("item {} failed", item.item), &item.error);
        }
        if !visit.warnings.is_empty() {
            self.error("warnings", &visit.warnings.join("\n"));
        }
        if !visit.result.is_null() {
            self.value("result", &visit.result);
        }
        if let Some(data) = &visit.data {
            self.value("data of the failure", data);
        }
        self.changes(model, at);
    }

    /// Shows the keys that an event wrote, with their values before.
    fn changes(&mut self, model: &RunModel, at: usize) {
        let rows = model.state_after(at);
        let written = rows.iter().filter(|row| row.change != KeyChange::Kept);
        for (place, row) in written.enumerate() {
            if place == 0 {
                self.heading("writes");
            }
            self.key(row);
        }
    }

    fn wait(&mut self, opened: &Opened) {
        self.say("opened", &time(opened.at));
        if let Some(due) = opened.next_due() {
            self.say("until", &time(due));
        }
        if let Some(pause) = &opened.pause {
            self.value("paused", &json!(pause));
        }
        if let Some(escalated) = &opened.escalated {
            self.value("released by", &json!(escalated));
        }
        if let Some(payload) = &opened.payload {
            self.value("asks", payload);
        }
        for wait in &opened.inside {
            self.value("wait of a nested run", &wait.to_value());
        }
    }

    fn over(&mut self, taken: &TakenWait) {
        self.say("over", &time(taken.at));
        match &taken.signal {
            Some(signal) => {
                self.say("signal", &signal.name);
                self.say("id", &signal.id);
                self.say("received", &time(signal.at));
                self.value("value", &signal.value);
            }
            None => self.say("", "its time has come"),
        }
    }

    fn edit(&mut self, model: &RunModel, at: usize, edit: &Edit) {
        self.say("by", &edit.by);
        self.say("why", &edit.why);
        self.changes(model, at);
    }

    fn end(&mut self, end: &End) {
        self.say("status", end.status.name());
        self.say("visits", &end.steps.to_string());
        if let Some(signal) = end.signal {
            self.say("signal", &signal.to_string());
        }
        if let Some(error) = &end.error {
            let at = end.node.as_ref().map_or_else(String::new, |node| format!(" at {node}"));
            self.error(&format!("error{at}"), error);
        }
        for failure in end.failures.iter().skip(1) {
            self.value("another failure", &json!(failure));
        }
        if !end.warnings.is_empty() {
            self.error("warnings", &end.warnings.join("\n"));
        }
        if !end.unread.is_empty() {
            self.value("signals that no wait took", &json!(end.unread));
        }
        self.value("output", &end.output);
    }
}

/// Writes a value as lines: a text as it is, anything else as JSON.
fn value_lines(value: &Value) -> Vec<PageLine> {
    let text = match value {
        Value::String(text) => text.clone(),
        other => format!("{other:#}"),
    };
    lines(&text).into_iter().map(PageLine::Text).collect()
}
