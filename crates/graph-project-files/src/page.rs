//! The run page, for people: the outcome of each node, the graph with the edges that were taken, and the history.

use std::collections::{HashMap, VecDeque};
use std::fmt::Write;
use std::time::Duration;

use graph_model::name::{GraphId, RunId};
use graph_model::value::Value;
use graph_signing::Signer;

use crate::facts::{RunProjection, is_cancelled};
use crate::item::{scalar, sign};
use crate::transcript::RunMoment;
use graph_engine::machine::{Topology, TopologyKind, TopologyNode};
use graph_engine::record::Status;

/// The maximum number of history lines in a page. The page is written again at each step, and the transcript has all lines.
const LINES: usize = 300;

/// Returns the path of a run's page (R232).
pub(crate) fn file(graph: &GraphId, run: &RunId) -> String {
    format!(".ai/knowledge/agent/threads/{graph}/{run}.md")
}

/// The contents of a page that are not in the projection of the run.
#[derive(Debug, Default)]
pub(crate) struct PageContents {
    rows: Vec<NodeRow>,
    /// The entry at which the run began.
    entry: Option<String>,
    history: VecDeque<String>,
    /// The number of lines for which there was no room.
    dropped: u64,
    /// How often each edge was taken, by its nodes; an edge to `None` leads to the end.
    fired: HashMap<(usize, Option<usize>), u64>,
}

/// The outcome of a node's last visit.
#[derive(Debug, Clone, Default)]
struct NodeRow {
    mark: NodeMark,
    step: u64,
    /// How often it was visited.
    times: u64,
    elapsed: f64,
    details: Vec<String>,
}

impl NodeRow {
    /// Marks that the node is not running any more. If it was visited before, the outcome of that visit counts.
    fn rest(&mut self) {
        if self.mark == NodeMark::Running {
            self.mark = if self.times > 0 { NodeMark::Completed } else { NodeMark::Pending };
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum NodeMark {
    #[default]
    Pending,
    Running,
    Completed,
    Failed,
    Cancelled,
}

impl NodeMark {
    fn icon(self) -> &'static str {
        match self {
            Self::Pending => "⏳",
            Self::Running => "🔄",
            Self::Completed => "✅",
            Self::Failed => "❌",
            Self::Cancelled => "⊘",
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

impl PageContents {
    /// Applies an event.
    pub(crate) fn add(&mut self, topology: &Topology, moment: &RunMoment) {
        self.rows.resize(topology.nodes.len(), NodeRow::default());
        let payload = &moment.payload;
        let node = text(payload, "node");
        let at = topology.nodes.iter().position(|place| place.name == node);
        let line = match moment.kind {
            "graph_started" => {
                let first = match payload["start_nodes"].as_array() {
                    Some(several) => several.iter().filter_map(Value::as_str).map(code).collect::<Vec<_>>().join(", "),
                    None => code(text(payload, "start_node")),
                };
                self.entry = payload["entry"].as_str().map(str::to_owned);
                let entry = self.entry.as_deref().map_or_else(String::new, |name| format!(" ({})", code(name)));
                format!("**Started** {} — entry: {first}{entry}", moment.at)
            }
            "graph_resumed" => {
                self.settle(None);
                format!("**Resumed** {} — after {} steps", moment.at, payload["steps"])
            }
            "state_edited" => {
                let names = |name: &str| payload[name].as_array().into_iter().flatten().filter_map(Value::as_str);
                let keys: Vec<String> = names("set").chain(names("written")).map(code).collect();
                let (by, why) = (plain(text(payload, "by")), plain(text(payload, "why")));
                format!("**Edited** {} — {} by {by}: {why}", moment.at, keys.join(", "))
            }
            "step_started" => {
                if let Some(row) = at.and_then(|at| self.rows.get_mut(at)) {
                    (row.mark, row.step) = (NodeMark::Running, number(payload, "step"));
                }
                let what = match (text(payload, "action_id"), text(payload, "node_type")) {
                    ("", "") => "action",
                    ("", kind) => kind,
                    (action, _) => action,
                };
                format!("### Step {} — {} → {}", payload["step"], code(node), plain(what))
            }
            "step_completed" | "foreach_completed" => self.completed(topology, moment, at),
            "graph_error" | "graph_cancelled" | "graph_completed" => {
                self.settle(at.filter(|_| moment.kind == "graph_error"));
                match (moment.kind, text(payload, "error")) {
                    ("graph_error", error) => format!("❌ error: {}", plain(error)),
                    ("graph_cancelled", _) => "⏹ cancelled".to_owned(),
                    _ => return,
                }
            }
            _ => return,
        };
        self.history.push_back(line);
        if self.history.len() > LINES {
            self.history.pop_front();
            self.dropped += 1;
        }
    }

    /// Marks that no node is running any more, and that the node at fault failed (R237).
    fn settle(&mut self, failed: Option<usize>) {
        self.rows.iter_mut().for_each(NodeRow::rest);
        if let Some(row) = failed.and_then(|at| self.rows.get_mut(at)) {
            row.mark = NodeMark::Failed;
        }
    }

    fn completed(&mut self, topology: &Topology, moment: &RunMoment, at: Option<usize>) -> String {
        let payload = &moment.payload;
        let error = payload.get("error").and_then(Value::as_str);
        let next = payload.get("next_node").and_then(Value::as_str);
        let elapsed = payload["elapsed_s"].as_f64().unwrap_or_default();
        if is_cancelled(payload) {
            if let Some(row) = at.and_then(|at| self.rows.get_mut(at)) {
                row.mark = NodeMark::Cancelled;
            }
            return format!("⊘ cancelled ({})", duration(elapsed));
        }
        if let Some(at) = at {
            let to = next.and_then(|next| topology.nodes.iter().position(|place| place.name == next));
            *self.fired.entry((at, to)).or_default() += 1;
            let short = |name: &str| text(payload, name).get(..16).map(str::to_owned);
            let mut details = Vec::new();
            if !text(payload, "thread_id").is_empty() {
                details.push(format!("thread: {}", code(text(payload, "thread_id")).replace('|', "\\|")));
            }
            details.extend(short("node_input_hash").map(|hash| format!("in: `{hash}`")));
            details.extend(short("node_result_hash").map(|hash| format!("out: `{hash}`")));
            details.extend(error.map(plain));
            let mark = if error.is_some() { NodeMark::Failed } else { NodeMark::Completed };
            let times = self.rows[at].times + 1;
            if times > 1 {
                details.push(format!("{times} visits"));
            }
            self.rows[at] = NodeRow { mark, step: number(payload, "step"), times, elapsed, details };
        }
        let next = next.map_or_else(String::new, |next| format!(" → {}", code(next)));
        let kind = at.map(|at| topology.nodes[at].kind);
        match (error, kind) {
            (Some(error), _) => format!("❌ error ({}): {}{next}", duration(elapsed), plain(error)),
            (None, Some(TopologyKind::Foreach)) => format!("🔁 iteration complete ({}){next}", duration(elapsed)),
            (None, Some(TopologyKind::Return)) => "⏹ return".to_owned(),
            (None, _) => format!("✅ completed ({}){next}", duration(elapsed)),
        }
    }

    /// Writes the page (R236), signed with `key`.
    pub(crate) fn text(&self, facts: &RunProjection, key: &dyn Signer) -> String {
        let RunProjection { topology, run, started_at, at, status, steps, version, .. } = facts;
        let (graph, status, elapsed) = (&topology.id, status.name(), duration(facts.elapsed().as_secs_f64()));
        let (graph_id, run_id) = (scalar(graph.as_str()), scalar(run.as_str()));
        let rows: String = topology.nodes.iter().enumerate().map(|(at, place)| self.row(at, place)).collect();
        let history: Vec<&str> = self.history.iter().map(String::as_str).collect();
        let dropped = match self.dropped {
            0 => String::new(),
            dropped => format!("*{dropped} earlier lines are left out; the transcript has all of them.*\n\n"),
        };
        let text = format!(
            "```yaml\n\
             id: {run_id}\n\
             title: \"Graph: {graph}\"\n\
             entry_type: graph_transcript\n\
             category: agent/threads/{graph}\n\
             version: \"1.0.0\"\n\
             author: rye\n\
             created_at: {started_at}\n\
             graph_id: {graph_id}\n\
             graph_run_id: {run_id}\n\
             status: {status}\n\
             step_count: {steps}\n\
             duration: {elapsed}\n\
             tags: [graph, {status}]\n\
             ```\n\n\
             # {graph}\n\n\
             **Status:** {status} | **Step:** {steps} | **Elapsed:** {elapsed}\n\n\
             | # | Node | Status | Duration | Action | Details |\n\
             |---|------|--------|----------|--------|---------|\n\
             {rows}\n\
             ```mermaid\n{}```\n\n\
             ---\n\n\
             {dropped}{}\n\n\
             ---\n\n\
             **{}** — {steps} steps, {elapsed}, {at}\n\n\
             system_version: {version} | receipts: {}\n",
            self.drawing(topology),
            history.join("\n\n"),
            label(facts.status),
            facts.receipts(),
        );
        sign(&text, at, key)
    }

    fn row(&self, at: usize, place: &TopologyNode) -> String {
        let row = self.rows.get(at).cloned().unwrap_or_default();
        let step = if row.mark == NodeMark::Pending { "—".to_owned() } else { row.step.to_string() };
        let (node, icon, action) = (plain(&place.name), row.mark.icon(), plain(place.action()));
        match row.mark {
            NodeMark::Completed | NodeMark::Failed => {
                let (elapsed, details) = (duration(row.elapsed), row.details.join(" "));
                format!("| {step} | {node} | {icon} | {elapsed} | {action} | {details} |\n")
            }
            NodeMark::Pending | NodeMark::Running | NodeMark::Cancelled => {
                format!("| {step} | {node} | {icon} | — | {action} | |\n")
            }
        }
    }

    /// Draws the graph in Mermaid: each node with its outcome, and each edge that was taken with its count.
    fn drawing(&self, topology: &Topology) -> String {
        let mut drawing = "flowchart TD\n".to_owned();
        let mut line = |line: std::fmt::Arguments<'_>| {
            writeln!(drawing, "    {line}").expect("writing into a string cannot fail");
        };
        for (at, place) in topology.nodes.iter().enumerate() {
            let (open, close) = match place.kind {
                TopologyKind::Action => ("[", "]"),
                TopologyKind::Foreach => ("[[", "]]"),
                TopologyKind::Return => ("([", "])"),
                _ => ("{", "}"),
            };
            let mark = self.rows.get(at).map_or(NodeMark::Pending, |row| row.mark).word();
            line(format_args!("n{at}{open}\"{}\"{close}:::{mark}", drawn(&place.name)));
        }
        if topology.start.len() > 1 && self.entry.is_none() {
            // A run that has a page has begun.
            line(format_args!("start([\"start\"]):::completed"));
            topology.start.iter().for_each(|to| line(format_args!("start ==>|\"1×\"| n{to}")));
        }
        let mut ends = false;
        for (at, place) in topology.nodes.iter().enumerate() {
            let mut ways: Vec<(Option<usize>, Option<&str>)> = Vec::new();
            let edges = place.edges.iter().map(|edge| (edge.to, None));
            let fewer = place.join.as_ref().and_then(|join| join.fewer);
            let otherwise = [(place.on_error, "on error"), (place.on_timeout, "on timeout"), (fewer, "fewer")];
            let otherwise = otherwise.into_iter().filter_map(|(to, why)| Some((Some(to?), Some(why))));
            for way in edges.chain(otherwise) {
                if !ways.iter().any(|(to, _)| *to == way.0) {
                    ways.push(way);
                }
            }
            // If nothing follows the node, the run ends without an edge.
            if place.kind != TopologyKind::Return
                && !ways.iter().any(|(to, _)| to.is_none())
                && self.fired.contains_key(&(at, None))
            {
                ways.push((None, None));
            }
            for (to, why) in ways {
                ends |= to.is_none();
                let target = to.map_or_else(|| "ended".to_owned(), |to| format!("n{to}"));
                match (self.fired.get(&(at, to)), why) {
                    (Some(times), _) => line(format_args!("n{at} ==>|\"{times}×\"| {target}")),
                    (None, Some(why)) => line(format_args!("n{at} -.->|\"{why}\"| {target}")),
                    (None, None) => line(format_args!("n{at} -.-> {target}")),
                }
            }
        }
        if ends {
            line(format_args!("ended((\" \"))"));
        }
        line(format_args!("classDef completed fill:#d4edda,stroke:#28a745"));
        line(format_args!("classDef running fill:#cce5ff,stroke:#0d6efd"));
        line(format_args!("classDef pending fill:#f8f9fa,stroke:#adb5bd"));
        line(format_args!("classDef failed fill:#f8d7da,stroke:#dc3545"));
        if self.rows.iter().any(|row| row.mark == NodeMark::Cancelled) {
            line(format_args!("classDef cancelled fill:#f8f9fa,stroke:#adb5bd,stroke-dasharray:4"));
        }
        drawing
    }
}

fn label(status: Status) -> &'static str {
    match status {
        Status::Running => "🔄 Running",
        Status::Completed => "✅ Completed",
        Status::CompletedWithErrors => "⚠️ Completed with errors",
        Status::Error => "❌ Error",
        Status::Cancelled => "⏹ Cancelled",
        other => other.name(),
    }
}

fn text<'v>(payload: &'v Value, name: &str) -> &'v str {
    payload.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn number(payload: &Value, name: &str) -> u64 {
    payload.get(name).and_then(Value::as_u64).unwrap_or_default()
}

/// Formats a length of time for a page: `0.2s`, or from a minute on `1.5m`.
fn duration(seconds: f64) -> String {
    if Duration::try_from_secs_f64(seconds).is_ok_and(|time| time >= Duration::from_mins(1)) {
        format!("{:.1}m", seconds / 60.0)
    } else {
        format!("{seconds:.1}s")
    }
}

/// Escapes a text so that it is plain text on one line of Markdown, also in a table.
fn plain(text: &str) -> String {
    /// The maximum number of characters. The beginning of a long error suffices; the transcript has all of it.
    const MOST: usize = 300;
    let mut plain = String::new();
    for (count, character) in text.chars().enumerate() {
        match character {
            _ if count == MOST => {
                plain.push('…');
                break;
            }
            '<' => plain.push_str("&lt;"),
            '&' => plain.push_str("&amp;"),
            '|' | '`' | '*' | '[' | ']' | '\\' | '#' | '~' | '!' => {
                plain.push('\\');
                plain.push(character);
            }
            c if c.is_control() => plain.push(' '),
            other => plain.push(other),
        }
    }
    plain
}

/// Writes a text as inline code.
fn code(text: &str) -> String {
    let text: String = text
        .chars()
        .map(|c| {
            if c == '`' {
                '\''
            } else if c.is_control() {
                ' '
            } else {
                c
            }
        })
        .collect();
    format!("`{text}`")
}

/// Escapes a name for the quotation marks in a drawing.
fn drawn(name: &str) -> String {
    let mut drawn = String::new();
    for character in name.chars() {
        match character {
            c if c.is_alphanumeric() || matches!(c, ' ' | '_' | '-' | '.' | ',' | '/' | ':') => drawn.push(c),
            c => write!(drawn, "#{};", u32::from(c)).expect("writing into a string cannot fail"),
        }
    }
    drawn
}
