//! The parts of a diagram, in the order in which every format writes them.

use std::time::Duration;

use graph_engine::machine::{Topology, TopologyKind, TopologyNode, TopologyRoute, TopologyWait};
use graph_model::character::out_of_place;
use graph_model::duration::shown;
use graph_proof::history::{NodeTraversal, Traversal, TraversedWay};

/// A diagram: boxes, and arrows between them.
pub(crate) struct Drawing {
    /// The graph's id and version.
    pub(crate) title: String,
    /// The run and its status, if one is shown.
    pub(crate) run: Option<String>,
    pub(crate) boxes: Vec<DrawnBox>,
    pub(crate) arrows: Vec<Arrow>,
}

/// Returns a text with a mark in place of each character that a viewer would not show, or that would change how others are shown: control
/// characters, and [invisible ones](out_of_place) without a use. Lines end with a newline.
pub(crate) fn visible(text: &str) -> String {
    let mut hidden = out_of_place(text).peekable();
    let show = |(at, character): (usize, char)| {
        let is_hidden = hidden.next_if(|&(place, _)| place == at).is_some();
        if is_hidden || (character.is_control() && character != '\n') { '\u{FFFD}' } else { character }
    };
    text.char_indices().map(show).collect()
}

/// The shape and colour of a box.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BoxShape {
    Start,
    End,
    Node(TopologyKind),
}

impl BoxShape {
    /// Returns the word that classes of formats have.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::End => "end",
            Self::Node(kind) => kind.name(),
        }
    }
}

/// The part of a box or an arrow in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunMark {
    /// No run is shown.
    Unknown,
    No,
    Yes,
    /// The last visit failed.
    Failed,
    /// A visit waits, or is next.
    Open,
}

impl RunMark {
    pub(crate) fn word(self) -> Option<&'static str> {
        match self {
            Self::Unknown => None,
            Self::No => Some("unfired"),
            Self::Yes => Some("fired"),
            Self::Failed => Some("failed"),
            Self::Open => Some("open"),
        }
    }
}

/// A box of a diagram.
pub(crate) struct DrawnBox {
    /// Its name in the formats: `n3`, `start` or `ended`.
    pub(crate) id: String,
    /// The name of the node, or what it is.
    pub(crate) name: String,
    /// The lines below the name.
    pub(crate) lines: Vec<String>,
    /// Its badges: `START`, `INTERRUPT`, `NESTED` …
    pub(crate) badges: Vec<String>,
    pub(crate) shape: BoxShape,
    pub(crate) mark: RunMark,
}

/// How an arrow is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stroke {
    /// An edge with a condition, or one of several.
    Solid,
    /// An edge that is taken whenever it comes to it.
    Unconditional,
    /// A way that a failure or a time leads along.
    Otherwise,
}

/// An arrow of a diagram, by the places of its boxes.
pub(crate) struct Arrow {
    pub(crate) from: usize,
    pub(crate) to: usize,
    /// The condition, or why it is taken; empty if it always is.
    pub(crate) label: String,
    pub(crate) stroke: Stroke,
    pub(crate) mark: RunMark,
    /// How often a run took it.
    pub(crate) times: u64,
}

impl Arrow {
    /// Returns the label, with how often the arrow was taken.
    pub(crate) fn said(&self) -> String {
        match (self.times, self.label.is_empty()) {
            (0, _) => self.label.clone(),
            (times, true) => format!("{times}×"),
            (times, false) => format!("{} · {times}×", self.label),
        }
    }
}

impl Drawing {
    pub(crate) fn of(topology: &Topology, traversal: Option<&Traversal>) -> Self {
        let mut made = Maker { topology, traversal, boxes: Vec::new(), arrows: Vec::new() };
        made.boxes.push(DrawnBox {
            id: "start".to_owned(),
            name: "start".to_owned(),
            lines: Vec::new(),
            badges: Vec::new(),
            shape: BoxShape::Start,
            mark: if traversal.is_some() { RunMark::Yes } else { RunMark::Unknown },
        });
        for (at, place) in topology.nodes.iter().enumerate() {
            made.node(at, place);
        }
        made.edges();
        let run = traversal.map(|traversal| format!("run {}: {}", traversal.run, traversal.status.name()));
        Self { title: format!("{} {}", topology.id, topology.version), run, boxes: made.boxes, arrows: made.arrows }
    }
}

struct Maker<'t> {
    topology: &'t Topology,
    traversal: Option<&'t Traversal>,
    boxes: Vec<DrawnBox>,
    arrows: Vec<Arrow>,
}

impl Maker<'_> {
    fn node(&mut self, at: usize, place: &TopologyNode) {
        let known = self.traversal.and_then(|traversal| traversal.nodes.get(at));
        let mark = match (self.traversal, known) {
            (None, _) => RunMark::Unknown,
            (_, Some(node)) if node.open > 0 => RunMark::Open,
            (_, Some(node)) if node.failed => RunMark::Failed,
            (_, Some(node)) if node.visits > 0 => RunMark::Yes,
            _ => RunMark::No,
        };
        let mut lines = about(place);
        lines.extend(known.and_then(visits));
        self.boxes.push(DrawnBox {
            id: format!("n{at}"),
            name: place.name.clone(),
            lines,
            badges: self.badges(at, place),
            shape: BoxShape::Node(place.kind),
            mark,
        });
    }

    fn badges(&self, at: usize, place: &TopologyNode) -> Vec<String> {
        let mut badges = Vec::new();
        if self.topology.start.contains(&at) {
            badges.push("START".to_owned());
        }
        let entries = self.topology.entries.iter().filter(|entry| entry.node == at);
        badges.extend(entries.map(|entry| format!("ENTRY {}", entry.name)));
        match place.kind {
            TopologyKind::Return if place.cancels => badges.push("END, CANCELS".to_owned()),
            TopologyKind::Return => badges.push("END".to_owned()),
            TopologyKind::Interrupt => badges.push("INTERRUPT".to_owned()),
            TopologyKind::Wait => badges.push("WAIT".to_owned()),
            TopologyKind::Foreach => badges.push("FOREACH".to_owned()),
            _ if place.wait.is_some() => badges.push("ASKS".to_owned()),
            _ => {}
        }
        if place.tool.as_ref().is_some_and(|tool| tool.is_graph) {
            badges.push("NESTED".to_owned());
        }
        if let Some(join) = &place.join {
            let need = join.need.map_or_else(String::new, |need| format!(" {need} OF {}", join.waits_for.len()));
            badges.push(format!("JOIN{need}"));
        }
        badges
    }

    /// Returns the box of the end, which is drawn if anything leads there.
    fn end(&mut self) -> usize {
        if let Some(at) = self.boxes.iter().position(|one| one.shape == BoxShape::End) {
            return at;
        }
        let has_ended = self.traversal.map(|traversal| traversal.status.has_result());
        self.boxes.push(DrawnBox {
            id: "ended".to_owned(),
            name: "end".to_owned(),
            lines: Vec::new(),
            badges: Vec::new(),
            shape: BoxShape::End,
            mark: has_ended.map_or(RunMark::Unknown, |ended| if ended { RunMark::Yes } else { RunMark::No }),
        });
        self.boxes.len() - 1
    }

    fn arrow(&mut self, from: usize, to: Option<usize>, label: String, stroke: Stroke, times: Option<u64>) {
        // The first box is the start.
        let to = to.map_or_else(|| self.end(), |to| to + 1);
        let mark = times.map_or(RunMark::Unknown, |times| if times > 0 { RunMark::Yes } else { RunMark::No });
        self.arrows.push(Arrow { from, to, label, stroke, mark, times: times.unwrap_or_default() });
    }

    fn edges(&mut self) {
        let topology = self.topology;
        let begun = self.traversal.map(|traversal| u64::from(traversal.entry.is_none()));
        for &to in &topology.start {
            self.arrow(0, Some(to), String::new(), Stroke::Unconditional, begun);
        }
        for entry in &topology.entries {
            let begun = self.traversal.map(|traversal| u64::from(traversal.entry.as_ref() == Some(&entry.name)));
            self.arrow(0, Some(entry.node), format!("entry {}", entry.name), Stroke::Solid, begun);
        }
        for (at, place) in topology.nodes.iter().enumerate() {
            let times = |way: TraversedWay| Some(self.traversal?.ways.get(&(at, way)).copied().unwrap_or_default());
            let mut arrows: Vec<(Option<usize>, String, Stroke, Option<u64>)> = Vec::new();
            let is_first = matches!(place.route, TopologyRoute::First);
            for (edge, one) in place.edges.iter().enumerate() {
                let label = match (place.route, &one.when, &place.over) {
                    (TopologyRoute::Each, _, Some(over)) => format!("each of {over}"),
                    (TopologyRoute::By, Some(word), Some(by)) => format!("{by} = {word}"),
                    (_, Some(when), _) => when.clone(),
                    (_, None, _) if is_first && edge > 0 => "otherwise".to_owned(),
                    (_, None, _) => String::new(),
                };
                let stroke = if one.when.is_some() { Stroke::Solid } else { Stroke::Unconditional };
                arrows.push((one.to, label, stroke, times(TraversedWay::Edge(edge))));
            }
            // A path that no edge of leads on ends here.
            if place.edges.is_empty() && place.kind != TopologyKind::Return {
                arrows.push((None, String::new(), Stroke::Unconditional, times(TraversedWay::Out)));
            }
            let fewer = place.join.as_ref().and_then(|join| join.fewer);
            let otherwise = [
                (place.on_error, "on error", TraversedWay::OnError),
                (place.on_timeout, "on timeout", TraversedWay::OnTimeout),
                (fewer, "fewer", TraversedWay::Fewer),
            ];
            for (to, why, way) in otherwise {
                let Some(to) = to else { continue };
                arrows.push((Some(to), why.to_owned(), Stroke::Otherwise, times(way)));
            }
            for (to, label, stroke, times) in arrows {
                self.arrow(at + 1, to, label, stroke, times);
            }
        }
    }
}

/// Returns the lines that a node has below its name.
fn about(place: &TopologyNode) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(tool) = &place.tool {
        let id = tool.id.as_deref().unwrap_or("(computed)");
        lines.push(match tool.verb.name() {
            "execute" => id.to_owned(),
            verb => format!("{verb} {id}"),
        });
    }
    if place.kind == TopologyKind::Foreach {
        lines.push(format!("over {}", place.over.as_deref().unwrap_or_default()));
    }
    lines.extend(place.wait.as_ref().map(waits));
    if let Some(retry) = place.retry.as_ref().filter(|retry| retry.attempts > 1) {
        lines.push(format!("up to {} attempts", retry.attempts));
    }
    lines
}

/// Says what a node waits for.
fn waits(wait: &TopologyWait) -> String {
    let mut said: Vec<String> = Vec::new();
    if wait.asks {
        let who = wait.role.as_ref().map_or_else(|| "anybody trusted".to_owned(), |role| format!("`{role}`"));
        said.push(if wait.count > 1 { format!("asks {} of {who}", wait.count) } else { format!("asks {who}") });
    }
    if !wait.signals.is_empty() {
        said.push(format!("for {}", wait.signals.join(" or ")));
    }
    said.extend(wait.until.as_ref().map(|until| format!("until {until}")));
    said.extend(wait.timeout_ms.map(|timeout| format!("at most {}", shown(Duration::from_millis(timeout)))));
    said.join(", ")
}

/// Says how often a run visited a node.
fn visits(node: &NodeTraversal) -> Option<String> {
    let counts = [("visited", node.visits), ("open", node.open), ("cancelled", node.cancelled)];
    let said = counts.into_iter().filter(|(_, count)| *count > 0).map(|(word, count)| format!("{word} {count}×"));
    let said: Vec<String> = said.collect();
    (!said.is_empty()).then(|| said.join(", "))
}
