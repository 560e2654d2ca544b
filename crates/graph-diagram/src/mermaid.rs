//! Mermaid flowcharts.

use std::fmt::Write as _;

use graph_engine::machine::TopologyKind;

use crate::drawing::{BoxShape, Drawing, DrawnBox, Stroke};

/// The colours of a class of boxes or arrows: its name, and its style.
const CLASSES: [(&str, &str); 12] = [
    ("start", "fill:#e7f5ff,stroke:#1971c2"),
    ("end", "fill:#e7f5ff,stroke:#1971c2"),
    ("action", "fill:#f8f9fa,stroke:#495057"),
    ("foreach", "fill:#f3f0ff,stroke:#6741d9"),
    ("gate", "fill:#fff9db,stroke:#e67700"),
    ("interrupt", "fill:#fff0f6,stroke:#c2255c"),
    ("wait", "fill:#e6fcf5,stroke:#087f5b"),
    ("return", "fill:#e7f5ff,stroke:#1971c2"),
    ("unfired", "fill:#f8f9fa,stroke:#ced4da,color:#868e96"),
    ("fired", "stroke-width:3px"),
    ("failed", "fill:#ffe3e3,stroke:#c92a2a,stroke-width:3px"),
    ("open", "fill:#fff3bf,stroke:#f08c00,stroke-width:3px"),
];

pub(crate) fn write(drawing: &Drawing) -> String {
    let mut text = format!("---\ntitle: {}\n---\nflowchart TD\n", quoted(&title(drawing)));
    let mut line = |line: &str| {
        text.push_str("    ");
        text.push_str(line);
        text.push('\n');
    };
    for one in &drawing.boxes {
        line(&boxed(one));
    }
    for arrow in &drawing.arrows {
        let (from, to) = (&drawing.boxes[arrow.from].id, &drawing.boxes[arrow.to].id);
        let stroke = match arrow.stroke {
            _ if arrow.times > 0 => "==>",
            Stroke::Solid => "-->",
            Stroke::Unconditional | Stroke::Otherwise => "-.->",
        };
        let said = arrow.said();
        let label = if said.is_empty() { String::new() } else { format!("|\"{}\"|", escaped(&said)) };
        line(&format!("{from} {stroke}{label} {to}"));
    }
    let is_used =
        |class: &str| drawing.boxes.iter().any(|one| one.shape.word() == class || one.mark.word() == Some(class));
    for (class, style) in CLASSES.iter().filter(|(class, _)| is_used(class)) {
        line(&format!("classDef {} {style}", class_name(class)));
    }
    text
}

fn title(drawing: &Drawing) -> String {
    drawing.run.as_ref().map_or_else(|| drawing.title.clone(), |run| format!("{} · {run}", drawing.title))
}

/// `end` is a word of Mermaid.
fn class_name(class: &str) -> String {
    format!("of_{class}")
}

fn boxed(one: &DrawnBox) -> String {
    let (open, close) = match one.shape {
        BoxShape::Start | BoxShape::End => ("((", "))"),
        BoxShape::Node(TopologyKind::Return) => ("([", "])"),
        BoxShape::Node(TopologyKind::Foreach) => ("[[", "]]"),
        BoxShape::Node(TopologyKind::Gate) => ("{", "}"),
        BoxShape::Node(TopologyKind::Interrupt | TopologyKind::Wait) => ("{{", "}}"),
        BoxShape::Node(_) => ("[", "]"),
    };
    let badges = one.badges.iter().map(|badge| format!("<small>{}</small>", escaped(badge)));
    let name = format!("<b>{}</b>", escaped(&one.name));
    let lines = one.lines.iter().map(|line| escaped(line));
    let label: Vec<String> = badges.chain([name]).chain(lines).collect();
    let mut text = format!("{}{open}\"{}\"{close}:::{}", one.id, label.join("<br/>"), class_name(one.shape.word()));
    if let Some(word) = one.mark.word() {
        write!(text, "\n    class {} {}", one.id, class_name(word)).expect("writing into a string cannot fail");
    }
    text
}

/// Writes a text so that it means nothing in Mermaid or HTML.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for character in text.chars() {
        match character {
            c if c.is_alphanumeric() || matches!(c, ' ' | '_' | '.' | ',' | '/' | '·' | '×' | '≠' | '≤' | '≥') =>
            {
                escaped.push(c);
            }
            c => write!(escaped, "#{};", u32::from(c)).expect("writing into a string cannot fail"),
        }
    }
    escaped
}

/// Writes a text as a string of YAML.
fn quoted(text: &str) -> String {
    serde_json::to_string(text).expect("a text can be written")
}
