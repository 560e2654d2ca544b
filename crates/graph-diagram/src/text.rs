//! Diagrams as text, for a terminal.

use crate::drawing::{Arrow, BoxShape, Drawing, RunMark};

pub(crate) fn write(drawing: &Drawing) -> String {
    let mut lines = vec![drawing.title.clone()];
    lines.extend(drawing.run.clone());
    for (at, one) in drawing.boxes.iter().enumerate().filter(|(_, one)| one.shape != BoxShape::End) {
        let badges = one.badges.iter().map(|badge| format!(" [{badge}]")).collect::<String>();
        let mark = match one.mark {
            RunMark::Unknown => "",
            RunMark::No => "· ",
            RunMark::Yes => "✓ ",
            RunMark::Failed => "✗ ",
            RunMark::Open => "… ",
        };
        let kind = match one.shape {
            BoxShape::Node(kind) => format!(" ({})", kind.name()),
            BoxShape::Start | BoxShape::End => String::new(),
        };
        lines.push(format!("\n{mark}{}{kind}{badges}", one.name));
        lines.extend(one.lines.iter().map(|line| format!("    {line}")));
        lines.extend(drawing.arrows.iter().filter(|arrow| arrow.from == at).map(|arrow| arrowed(drawing, arrow)));
    }
    lines.join("\n") + "\n"
}

fn arrowed(drawing: &Drawing, arrow: &Arrow) -> String {
    let to = match &drawing.boxes[arrow.to] {
        one if one.shape == BoxShape::End => "(end)",
        one => one.name.as_str(),
    };
    let said = arrow.said();
    let said = if said.is_empty() { String::new() } else { format!("   {said}") };
    let head = if arrow.times > 0 { "=>" } else { "->" };
    format!("    {head} {to}{said}")
}
