//! SVG images, laid out by the algorithm of dagre.

use std::fmt::Write as _;
use std::slice::from_ref;

use dagre::graph::{Graph, GraphOptions};
use dagre::layout::types::LabelPos;
use dagre::{EdgeLabel, LayoutOptions, NodeLabel, RankDir, layout};
use graph_engine::machine::TopologyKind;

use crate::drawing::{Arrow, BoxShape, Drawing, DrawnBox, RunMark, Stroke, visible};

/// The width of a letter and the height of a line, in pixels, for the font and size of boxes.
const LETTER: (f64, f64) = (7.3, 17.0);
/// The same for the labels of arrows.
const SMALL: (f64, f64) = (6.1, 14.0);
/// The space between a box and the text in it.
const PADDING: (f64, f64) = (12.0, 8.0);
/// The space around everything.
const MARGIN: f64 = 16.0;
/// The most letters in a line of a label of an arrow, and the most lines.
const MOST: (usize, usize) = (34, 4);

/// A point of an image.
#[derive(Clone, Copy)]
struct Point {
    x: f64,
    y: f64,
}

/// A box with its place.
struct PlacedBox {
    centre: Point,
    width: f64,
    height: f64,
}

/// An arrow with its way, and the place of its label.
struct PlacedArrow {
    points: Vec<Point>,
    label: Option<Point>,
}

/// A drawing with the places of its parts.
struct Placed {
    boxes: Vec<PlacedBox>,
    arrows: Vec<PlacedArrow>,
}

pub(crate) fn write(drawing: &Drawing) -> String {
    let labels: Vec<Vec<String>> = drawing.arrows.iter().map(|arrow| wrapped(&arrow.said())).collect();
    let placed = place(drawing, &labels);
    let (least, most) = bounds(&placed, &labels);
    let head = if drawing.run.is_some() { 46.0 } else { 28.0 };
    let title = letters(&drawing.title) * LETTER.0 * 1.15;
    let run = drawing.run.as_ref().map_or(0.0, |run| letters(run) * LETTER.0);
    let width = (most.x - least.x).max(title).max(run) + 2.0 * MARGIN;
    let height = most.y - least.y + 2.0 * MARGIN + head;
    let (left, top) = (least.x - MARGIN, least.y - MARGIN - head);
    let mut image = Image::default();
    image.line(&format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"{} {} {} {}\" width=\"{}\" height=\"{}\" role=\"img\" \
         font-family=\"ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace\" font-size=\"12\">",
        number(left),
        number(top),
        number(width),
        number(height),
        number(width),
        number(height)
    ));
    image.line(&format!("<title>{}</title>", escaped(&drawing.title)));
    image.line(STYLE);
    image.line(&format!(
        "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" class=\"page\"/>",
        number(left),
        number(top),
        number(width),
        number(height)
    ));
    let line = |text: &str, at: f64, class: &str| {
        format!(
            "<text x=\"{}\" y=\"{}\" class=\"{class}\">{}</text>",
            number(left + MARGIN),
            number(top + MARGIN + at),
            escaped(text)
        )
    };
    image.line(&line(&drawing.title, 8.0, "title"));
    if let Some(run) = &drawing.run {
        image.line(&line(run, 26.0, "run"));
    }
    for (arrow, placed) in drawing.arrows.iter().zip(&placed.arrows) {
        image.arrow(arrow, placed);
    }
    for (one, placed) in drawing.boxes.iter().zip(&placed.boxes) {
        image.drawn_box(one, placed);
    }
    // Labels are above the lines that they may cross.
    for ((arrow, placed), label) in drawing.arrows.iter().zip(&placed.arrows).zip(&labels) {
        image.label(arrow, placed, label);
    }
    image.line("</svg>");
    image.text
}

const STYLE: &str = "<style>\
.page{fill:#fff}.title{font-size:14px;font-weight:bold}.run{fill:#495057}\
.box{fill:#f8f9fa;stroke:#495057}.of_foreach{fill:#f3f0ff;stroke:#6741d9}.of_gate{fill:#fff9db;stroke:#e67700}\
.of_interrupt{fill:#fff0f6;stroke:#c2255c}.of_wait{fill:#e6fcf5;stroke:#087f5b}\
.of_return,.of_start,.of_end{fill:#e7f5ff;stroke:#1971c2}\
.box.unfired{fill:#f8f9fa;stroke:#ced4da}.box.fired{stroke-width:2.5}\
.box.failed{fill:#ffe3e3;stroke:#c92a2a;stroke-width:2.5}.box.open{fill:#fff3bf;stroke:#f08c00;stroke-width:2.5}\
text{fill:#212529}text.unfired{fill:#868e96}.name{font-weight:bold}.badge{font-size:9px;fill:#1971c2;letter-spacing:.5px}\
.arrow{fill:none;stroke:#495057;stroke-width:1.3}.dashed{stroke-dasharray:6 3}.dotted{stroke-dasharray:2 3}\
.arrow.unfired{stroke:#ced4da}.arrow.mark{stroke:#1864ab;stroke-width:2.5}\
.head{fill:#495057}.head.unfired{fill:#ced4da}.head.fired{fill:#1864ab}\
.label{font-size:10px}.behind{fill:#fff;fill-opacity:.85}\
</style>";

/// Computes the places of the parts of a drawing.
fn place(drawing: &Drawing, labels: &[Vec<String>]) -> Placed {
    let mut graph: Graph<NodeLabel, EdgeLabel> =
        Graph::with_options(GraphOptions { directed: true, multigraph: true, compound: false });
    for one in &drawing.boxes {
        let (width, height) = size(one);
        graph.set_node(one.id.clone(), Some(NodeLabel { width, height, ..NodeLabel::default() }));
    }
    for (at, (arrow, label)) in drawing.arrows.iter().zip(labels).enumerate() {
        let (from, to) = (&drawing.boxes[arrow.from].id, &drawing.boxes[arrow.to].id);
        let (width, height) = label_size(label);
        let edge = EdgeLabel { width, height, labelpos: LabelPos::Center, ..EdgeLabel::default() };
        graph.set_edge(from.clone(), to.clone(), Some(edge), Some(&at.to_string()));
    }
    let options =
        LayoutOptions { rankdir: RankDir::TB, nodesep: 36.0, edgesep: 18.0, ranksep: 34.0, ..LayoutOptions::default() };
    layout(&mut graph, Some(options));
    let boxes = drawing.boxes.iter().map(|one| {
        let label = graph.node(&one.id);
        let centre = label.and_then(|label| Some(Point { x: label.x?, y: label.y? }));
        let (width, height) = size(one);
        PlacedBox { centre: centre.unwrap_or(Point { x: 0.0, y: 0.0 }), width, height }
    });
    let arrows = drawing.arrows.iter().enumerate().map(|(at, arrow)| {
        let (from, to) = (&drawing.boxes[arrow.from].id, &drawing.boxes[arrow.to].id);
        let edge = graph.edge(from, to, Some(&at.to_string()));
        let points = edge.map(|edge| edge.points.iter().map(|point| Point { x: point.x, y: point.y }).collect());
        let label = edge.and_then(|edge| Some(Point { x: edge.x?, y: edge.y? }));
        PlacedArrow { points: points.unwrap_or_default(), label }
    });
    Placed { boxes: boxes.collect(), arrows: arrows.collect() }
}

/// Returns the corners of a rectangle around everything. An edge may lie beside all boxes.
fn bounds(placed: &Placed, labels: &[Vec<String>]) -> (Point, Point) {
    let (mut least, mut most) = (Point { x: f64::MAX, y: f64::MAX }, Point { x: f64::MIN, y: f64::MIN });
    let mut add = |at: Point, width: f64, height: f64| {
        least = Point { x: least.x.min(at.x - width / 2.0), y: least.y.min(at.y - height / 2.0) };
        most = Point { x: most.x.max(at.x + width / 2.0), y: most.y.max(at.y + height / 2.0) };
    };
    placed.boxes.iter().for_each(|one| add(one.centre, one.width, one.height));
    for (arrow, label) in placed.arrows.iter().zip(labels) {
        arrow.points.iter().for_each(|point| add(*point, 4.0, 4.0));
        let (width, height) = label_size(label);
        arrow.label.into_iter().filter(|_| !label.is_empty()).for_each(|at| add(at, width, height));
    }
    (least, most)
}

fn size(one: &DrawnBox) -> (f64, f64) {
    if matches!(one.shape, BoxShape::Start | BoxShape::End) {
        return (46.0, 46.0);
    }
    let badges = badges(one);
    let longest = one.lines.iter().map(|line| letters(line)).fold(letters(&one.name), f64::max);
    let width = (longest * LETTER.0).max(letters(&badges) * SMALL.0);
    let rows = 1.0 + one.lines.len() as f64 + if badges.is_empty() { 0.0 } else { 0.75 };
    // A gate is a hexagon, whose corners need room.
    let corners = if one.shape == BoxShape::Node(TopologyKind::Gate) { 18.0 } else { 0.0 };
    (width + 2.0 * PADDING.0 + corners, rows * LETTER.1 + 2.0 * PADDING.1)
}

fn label_size(label: &[String]) -> (f64, f64) {
    let longest = label.iter().map(|line| letters(line)).fold(0.0, f64::max);
    match label.is_empty() {
        true => (0.0, 0.0),
        false => (longest * SMALL.0 + 8.0, label.len() as f64 * SMALL.1 + 4.0),
    }
}

fn badges(one: &DrawnBox) -> String {
    one.badges.join(" · ")
}

/// Returns how wide a text is, in letters. Most letters of East Asia are as wide as two.
fn letters(text: &str) -> f64 {
    text.chars().map(|letter| if u32::from(letter) >= 0x1100 && !is_narrow(letter) { 2.0 } else { 1.0 }).sum()
}

/// Punctuation, arrows and mathematical operators are as wide as a Latin letter.
fn is_narrow(letter: char) -> bool {
    (0x1E00..0x2E80).contains(&u32::from(letter))
}

/// Breaks a label into lines at spaces, and shortens it if it has too many.
fn wrapped(text: &str) -> Vec<String> {
    let (most_letters, most_lines) = MOST;
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_inclusive(' ') {
        let mut rest: String = word.to_owned();
        if let Some(last) = lines.last_mut()
            && last.chars().count() + rest.trim_end().chars().count() <= most_letters
        {
            last.push_str(&rest);
            continue;
        }
        while rest.chars().count() > most_letters {
            lines.push(rest.chars().take(most_letters).collect());
            rest = rest.chars().skip(most_letters).collect();
        }
        lines.push(rest);
    }
    if lines.len() > most_lines {
        lines.truncate(most_lines);
        let last = lines.pop().unwrap_or_default();
        lines.push(format!("{}…", last.trim_end()));
    }
    lines.iter_mut().for_each(|line| *line = line.trim_end().to_owned());
    lines
}

#[derive(Default)]
struct Image {
    text: String,
}

impl Image {
    fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    fn arrow(&mut self, arrow: &Arrow, placed: &PlacedArrow) {
        let Some((last, before)) = placed.points.split_last() else { return };
        let Some(first) = before.first() else { return };
        let classes = classes("arrow", arrow.mark);
        let dashes = match arrow.stroke {
            Stroke::Solid => "",
            Stroke::Unconditional => " dashed",
            Stroke::Otherwise => " dotted",
        };
        let mut path = format!("M{} {}", number(first.x), number(first.y));
        // A curve through the middles of the segments, whose corners draw it.
        for pair in placed.points.windows(2).skip(1) {
            let (corner, next) = (pair[0], pair[1]);
            let middle = Point { x: f64::midpoint(corner.x, next.x), y: f64::midpoint(corner.y, next.y) };
            write!(path, " Q{} {} {} {}", number(corner.x), number(corner.y), number(middle.x), number(middle.y))
                .expect("writing into a string cannot fail");
        }
        write!(path, " L{} {}", number(last.x), number(last.y)).expect("writing into a string cannot fail");
        self.line(&format!("<path d=\"{path}\" class=\"{classes}{dashes}\"/>"));
        let from = before.last().copied().unwrap_or(*first);
        self.head(from, *last, &self::classes("head", arrow.mark));
    }

    /// Draws the head of an arrow that comes from a point.
    fn head(&mut self, from: Point, at: Point, class: &str) {
        let (x, y) = (at.x - from.x, at.y - from.y);
        let length = x.hypot(y).max(0.001);
        let (x, y) = (x / length, y / length);
        let back = Point { x: at.x - 8.0 * x, y: at.y - 8.0 * y };
        let corner = |side: f64| format!("{},{}", number(back.x - side * 4.0 * y), number(back.y + side * 4.0 * x));
        let points = format!("{},{} {} {}", number(at.x), number(at.y), corner(1.0), corner(-1.0));
        self.line(&format!("<polygon points=\"{points}\" class=\"{class}\"/>"));
    }

    fn label(&mut self, arrow: &Arrow, placed: &PlacedArrow, label: &[String]) {
        let Some(at) = placed.label.filter(|_| !label.is_empty()) else { return };
        let (width, height) = label_size(label);
        let (left, top) = (at.x - width / 2.0, at.y - height / 2.0);
        self.line("<g>");
        self.line(&format!("<title>{}</title>", escaped(&arrow.said())));
        self.line(&format!(
            "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"3\" class=\"behind\"/>",
            number(left),
            number(top),
            number(width),
            number(height)
        ));
        for (row, line) in label.iter().enumerate() {
            let y = top + 12.0 + row as f64 * SMALL.1;
            let class = classes("label", arrow.mark);
            self.line(&centred(at.x, y, &class, line));
        }
        self.line("</g>");
    }

    fn drawn_box(&mut self, one: &DrawnBox, placed: &PlacedBox) {
        let PlacedBox { centre, width, height } = placed;
        let class = format!("{} of_{}", classes("box", one.mark), one.shape.word());
        let (left, top) = (centre.x - width / 2.0, centre.y - height / 2.0);
        self.line("<g>");
        let about = [from_ref(&one.name), &one.badges[..], &one.lines[..]].concat().join("\n");
        self.line(&format!("<title>{}</title>", escaped(&about)));
        let rect = |round: f64| {
            format!(
                "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"{}\" class=\"{class}\"/>",
                number(left),
                number(top),
                number(*width),
                number(*height),
                number(round)
            )
        };
        let shape = match one.shape {
            BoxShape::Start | BoxShape::End => {
                let radius = number(width / 2.0);
                format!(
                    "<circle cx=\"{}\" cy=\"{}\" r=\"{radius}\" class=\"{class}\"/>",
                    number(centre.x),
                    number(centre.y)
                )
            }
            BoxShape::Node(TopologyKind::Gate) => {
                let (right, bottom) = (left + width, top + height);
                let corners = [
                    (left, centre.y),
                    (left + 12.0, top),
                    (right - 12.0, top),
                    (right, centre.y),
                    (right - 12.0, bottom),
                    (left + 12.0, bottom),
                ];
                let points: Vec<String> =
                    corners.iter().map(|(x, y)| format!("{},{}", number(*x), number(*y))).collect();
                format!("<polygon points=\"{}\" class=\"{class}\"/>", points.join(" "))
            }
            BoxShape::Node(TopologyKind::Return) => rect(height / 2.0),
            BoxShape::Node(_) => rect(6.0),
        };
        self.line(&shape);
        if one.shape == BoxShape::Node(TopologyKind::Foreach) {
            for x in [left + 5.0, left + width - 5.0] {
                let (x, top, bottom) = (number(x), number(top), number(top + height));
                self.line(&format!("<path d=\"M{x} {top} L{x} {bottom}\" class=\"{class}\" fill=\"none\"/>"));
            }
        }
        let faded = if one.mark == RunMark::No { " unfired" } else { "" };
        if matches!(one.shape, BoxShape::Start | BoxShape::End) {
            self.line(&centred(centre.x, centre.y + 4.0, &format!("name{faded}"), &one.name));
        } else {
            let badges = badges(one);
            let mut y = top + PADDING.1;
            if !badges.is_empty() {
                self.line(&centred(centre.x, y + 8.0, "badge", &badges));
                y += LETTER.1 * 0.75;
            }
            self.line(&centred(centre.x, y + 12.5, &format!("name{faded}"), &one.name));
            for line in &one.lines {
                y += LETTER.1;
                self.line(&centred(centre.x, y + 12.5, &format!("about{faded}"), line));
            }
        }
        self.line("</g>");
    }
}

fn classes(class: &str, mark: RunMark) -> String {
    mark.word().map_or_else(|| class.to_owned(), |word| format!("{class} {word}"))
}

fn centred(x: f64, y: f64, class: &str, text: &str) -> String {
    let (x, y) = (number(x), number(y));
    format!("<text x=\"{x}\" y=\"{y}\" text-anchor=\"middle\" class=\"{class}\">{}</text>", escaped(text))
}

/// Writes a number with one digit behind the point, if any.
fn number(number: f64) -> String {
    let tenths = (number * 10.0).round() / 10.0;
    // Not `-0`.
    format!("{}", if tenths == 0.0 { 0.0 } else { tenths })
}

/// Writes a text so that it means nothing in XML.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for character in visible(text).chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            // XML has no half of a character.
            '\u{FFFE}' | '\u{FFFF}' => escaped.push('\u{FFFD}'),
            c => escaped.push(c),
        }
    }
    escaped
}
