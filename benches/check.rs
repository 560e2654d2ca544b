//! How long `graph check` takes as a new process: for one graph of 1,000 nodes, and for 100 graphs of 20 nodes each; and how
//! much longer it takes if the nodes of a graph are in branches and not in a row.
//!
//! Run with `cargo bench --bench check`. The output also shows how long the machine takes to start any process, and to start
//! this one, so that figures of different machines can be compared.

#[path = "support/large.rs"]
mod large;

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use large::{Shape, command_line, head, median, run, write_graphs, write_tree};

/// How often each command is timed; the median counts.
const ROUNDS: usize = 21;

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let graph = command_line(root);
    let trees = root.join("target/check_bench");
    write_tree(&trees.join("one"), &[Shape { nodes: 1000, tools: 10, keys: 100 }]);
    write_tree(&trees.join("many"), &[Shape { nodes: 20, tools: 10, keys: 100 }; 100]);
    let check = |tree: &str| {
        let mut command = Command::new(&graph);
        command.current_dir(trees.join(tree)).args(["check", "graphs"]);
        command
    };
    let any = median(ROUNDS, || run(&mut Command::new("true")));
    let own = median(ROUNDS, || run(Command::new(&graph).arg("--version")));
    println!("  {:<32} {any:>8.2?}", "true");
    println!("  {:<32} {own:>8.2?}", "graph --version");
    for (name, tree) in [("1 graph of 1,000 nodes", "one"), ("100 graphs of 20 nodes", "many")] {
        let took = median(ROUNDS, || run(&mut check(tree)));
        let times = took.as_secs_f64() / own.as_secs_f64();
        println!("  {:<32} {took:>8.2?}, {times:.0} times `graph --version`", format!("graph check, {name}"));
    }
    for nodes in [100, 1_000] {
        for (name, order) in [("branches", Order::Branches), ("branches of branches", Order::Nested)] {
            let trees = [Order::Row, order].map(|order| trees.join(format!("{order:?}{nodes}")));
            write_graphs(&trees[0], TOOLS, std::iter::once(blocks(nodes, Order::Row)));
            write_graphs(&trees[1], TOOLS, std::iter::once(blocks(nodes, order)));
            // In turn, so that both have the same machine.
            let mut took = [Vec::new(), Vec::new()];
            for _ in 0..ROUNDS {
                for (tree, took) in trees.iter().zip(&mut took) {
                    let began = Instant::now();
                    run(Command::new(&graph).current_dir(tree).args(["check", "graphs"]));
                    took.push(began.elapsed());
                }
            }
            let [row, branched] = took.map(|mut took| {
                took.sort();
                took[ROUNDS / 2]
            });
            let beyond = branched.saturating_sub(row);
            let name = format!("{nodes} nodes in {name}");
            println!("  {name:<32} {branched:>8.2?}, {beyond:.2?} more than in a row ({row:.2?})");
        }
    }
}

const TOOLS: usize = 10;

/// How the nodes of a block follow each other.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Order {
    /// One after the other.
    Row,
    /// Four branches of two nodes, which meet.
    Branches,
    /// Two branches, each with two branches of two nodes that meet, which meet.
    Nested,
}

/// Returns a graph of blocks of ten nodes, one after the other. Eight nodes of a block call a tool and write to a channel, and
/// half of them to a key, too.
fn blocks(nodes: usize, order: Order) -> String {
    let mut text = head(TOOLS, "start: f0\n  state: { last: none }\n  channels: { notes: append }");
    let mut add = |line: String| writeln!(text, "    {line}").expect("a string takes all");
    let count = nodes / 10;
    for block in 0..count {
        let next = if block + 1 == count { "done".to_owned() } else { format!("f{}", block + 1) };
        let to = |names: &[String]| names.iter().map(|name| format!("{{ to: {name} }}")).collect::<Vec<_>>().join(", ");
        let a: Vec<String> = (0..4).map(|at| format!("a{at}_{block}")).collect();
        let b: Vec<String> = (0..4).map(|at| format!("b{at}_{block}")).collect();
        let (first, waits) = match order {
            Order::Row => (a[0].clone(), String::new()),
            Order::Branches => (format!("{{ all: [{}] }}", to(&a)), format!("waits_for: [{}], ", b.join(", "))),
            Order::Nested => {
                let inner = [format!("g0_{block}"), format!("g1_{block}")];
                (format!("{{ all: [{}] }}", to(&inner)), format!("waits_for: [h0_{block}, h1_{block}], "))
            }
        };
        add(format!("f{block}: {{ type: gate, next: {first} }}"));
        if order == Order::Nested {
            for half in 0..2 {
                let (first, last) = (&a[2 * half..2 * half + 2], &b[2 * half..2 * half + 2]);
                add(format!("g{half}_{block}: {{ type: gate, next: {{ all: [{}] }} }}", to(first)));
                add(format!("h{half}_{block}: {{ type: gate, waits_for: [{}], next: j{block} }}", last.join(", ")));
            }
        }
        for at in 0..4 {
            let behind = match order {
                Order::Row if at < 3 => a[at + 1].clone(),
                Order::Nested => format!("h{}_{block}", at / 2),
                _ => format!("j{block}"),
            };
            for (name, reads, next) in [(&a[at], "last", &b[at]), (&b[at], &*format!("k{at}"), &behind)] {
                let tool = (block + at) % TOOLS;
                let call =
                    format!("item_id: own/tool{tool}, params: {{ alpha: \"do ${{state.{reads}}}\", gamma: low }}");
                let writes = if reads == "last" { format!("k{at}: \"${{result.alpha}}\", ") } else { String::new() };
                add(format!(
                    "{name}: {{ action: {{ {call} }}, assign: {{ {writes}notes: \"${{result.beta}}\" }}, next: {next} }}"
                ));
            }
        }
        add(format!(
            "j{block}: {{ type: gate, {waits}assign: {{ last: \"${{state.k0}} ${{state.k3}}\" }}, next: {next} }}"
        ));
    }
    text + "    done: { type: return, output: { name: \"${inputs.name}\", last: \"${state.last}\", notes: \"${state.notes}\" } }\n"
}
