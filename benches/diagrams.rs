//! The time that an image of a graph with 200 nodes takes, with conditions on its edges and loops; and the other formats.
//!
//! Run with `cargo bench --bench diagrams`. Prints the least time of each, and fails if the image takes more than 200 ms.

#[path = "../tests/support/random.rs"]
mod random;

use std::fmt::Write as _;
use std::hint::black_box;
use std::time::{Duration, Instant};

use graph_diagram::Diagram;
use graph_engine::machine::{CompiledGraph, Key, Program};
use random::Random;

/// Writes a diagram.
type Format = fn(&Diagram) -> String;

const NODES: u64 = 200;
const MOST: Duration = Duration::from_millis(200);

/// Returns the nodes of a chain with jumps ahead and back.
fn nodes() -> Vec<(String, String)> {
    let mut random = Random::new(4);
    let node = |at: u64| {
        if at + 1 == NODES {
            return (format!("node_{at}"), r#"{"line":1,"does":"return"}"#.to_owned());
        }
        let next = at + 1;
        let jump = match random.below(10) {
            0..=3 => Some((at + 2 + random.below(6)).min(NODES - 1)),
            4 => Some(at.saturating_sub(1 + random.below(8))),
            _ => None,
        };
        let mut edges = String::new();
        if let Some(jump) = jump {
            let when = format!(r#"{{"path":"state.count","op":"lt","value":{at}}}"#);
            write!(edges, r#"{{"to":"node_{jump}","when":{when}}},"#).expect("writing into a string cannot fail");
        }
        (format!("node_{at}"), format!(r#"{{"line":1,"does":"gate","next":[{edges}{{"to":"node_{next}"}}]}}"#))
    };
    (0..NODES).map(node).collect()
}

fn main() {
    let nodes = nodes();
    let nodes: Vec<(&str, &str)> = nodes.iter().map(|(name, body)| (name.as_str(), body.as_str())).collect();
    let program = Program {
        id: "bench/large",
        version: "1.0.0",
        source: "large.yaml",
        digest: "00000000000000000000000000000000000000000000000000000000000000aa",
        signer: "00000000000000aa",
        start: 0,
        settings: "{}",
        permissions: &[],
        env: &[],
        keys: &[Key { name: "count", initial: Some("0") }],
        tools: &[],
        nodes: &nodes,
    };
    let graph = CompiledGraph::load(&program).expect("the program is one");
    let diagram = Diagram::of(graph.topology());
    let formats: [(&str, Format); 4] =
        [("svg", Diagram::svg), ("mermaid", Diagram::mermaid), ("dot", Diagram::dot), ("text", Diagram::text)];
    for (name, write) in formats {
        let times = (0..10).map(|_| {
            let began = Instant::now();
            black_box(write(&diagram));
            began.elapsed()
        });
        let least = times.min().expect("there are some");
        println!("{name}: {:.1} ms for {NODES} nodes", least.as_secs_f64() * 1000.0);
        assert!(name != "svg" || least <= MOST, "an image takes {least:?}");
    }
}
