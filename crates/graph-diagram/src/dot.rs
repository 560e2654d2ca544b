//! The DOT language of Graphviz.

use graph_engine::machine::TopologyKind;

use crate::drawing::{Arrow, BoxShape, Drawing, DrawnBox, RunMark, Stroke, visible};

pub(crate) fn write(drawing: &Drawing) -> String {
    let mut lines = vec![format!("digraph {} {{", quoted(&drawing.title))];
    let title = drawing.run.as_ref().map_or_else(|| drawing.title.clone(), |run| format!("{}\n{run}", drawing.title));
    lines.push(format!("  graph [rankdir=TB, labelloc=t, fontname=\"Helvetica\", label={}]", quoted(&title)));
    lines
        .push("  node [shape=box, style=\"rounded,filled\", fillcolor=\"#f8f9fa\", fontname=\"Helvetica\"]".to_owned());
    lines.push("  edge [fontname=\"Helvetica\", fontsize=10]".to_owned());
    lines.extend(drawing.boxes.iter().map(boxed));
    lines.extend(drawing.arrows.iter().map(|arrow| arrowed(drawing, arrow)));
    lines.push("}\n".to_owned());
    lines.join("\n")
}

fn boxed(one: &DrawnBox) -> String {
    let label: Vec<&str> = one.badges.iter().map(String::as_str).chain([one.name.as_str()]).collect();
    let label: Vec<&str> = label.into_iter().chain(one.lines.iter().map(String::as_str)).collect();
    let (shape, colour) = match one.shape {
        BoxShape::Start | BoxShape::End => ("circle", "#e7f5ff"),
        BoxShape::Node(TopologyKind::Return) => ("ellipse", "#e7f5ff"),
        BoxShape::Node(TopologyKind::Gate) => ("diamond", "#fff9db"),
        BoxShape::Node(TopologyKind::Foreach) => ("box3d", "#f3f0ff"),
        BoxShape::Node(TopologyKind::Interrupt) => ("octagon", "#fff0f6"),
        BoxShape::Node(TopologyKind::Wait) => ("hexagon", "#e6fcf5"),
        BoxShape::Node(_) => ("box", "#f8f9fa"),
    };
    let colour = match one.mark {
        RunMark::Failed => "#ffe3e3",
        RunMark::Open => "#fff3bf",
        _ => colour,
    };
    let more = match one.mark {
        RunMark::No => ", color=\"#adb5bd\", fontcolor=\"#868e96\"",
        RunMark::Unknown => "",
        RunMark::Yes | RunMark::Failed | RunMark::Open => ", penwidth=2",
    };
    format!("  {} [shape={shape}, fillcolor=\"{colour}\", label={}{more}]", one.id, quoted(&label.join("\n")))
}

fn arrowed(drawing: &Drawing, arrow: &Arrow) -> String {
    let (from, to) = (&drawing.boxes[arrow.from].id, &drawing.boxes[arrow.to].id);
    let mut attributes = Vec::new();
    let said = arrow.said();
    if !said.is_empty() {
        attributes.push(format!("label={}", quoted(&said)));
    }
    match arrow.stroke {
        Stroke::Solid => {}
        Stroke::Unconditional => attributes.push("style=dashed".to_owned()),
        Stroke::Otherwise => attributes.push("style=dotted".to_owned()),
    }
    match arrow.mark {
        RunMark::No => attributes.push("color=\"#adb5bd\", fontcolor=\"#868e96\"".to_owned()),
        RunMark::Yes => attributes.push("penwidth=2".to_owned()),
        _ => {}
    }
    let attributes = if attributes.is_empty() { String::new() } else { format!(" [{}]", attributes.join(", ")) };
    format!("  {from} -> {to}{attributes}")
}

/// Writes a text as a quoted string. A line ends with `\n`.
fn quoted(text: &str) -> String {
    let text = visible(text).replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("\"{text}\"")
}
