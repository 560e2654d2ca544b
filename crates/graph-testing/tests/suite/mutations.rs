//! Mutations: a changed edge of a graph makes one of its cases fail. So the tests of the repository's graphs test something.

use std::ops::Range;

use graph_compiler::definition::{self, RouteDefinition};
use graph_compiler::diagnostic::Diagnostics;
use graph_compiler::source::SourceFile;
use graph_compiler::tree;

use crate::{Tree, said};

/// Returns the places of the targets of all edges, and the names of the nodes.
fn targets(text: &str) -> (Vec<Range<usize>>, Vec<String>) {
    let source = SourceFile::new("graphs/g.yaml", "graphs/g.yaml", text);
    let yaml = tree::parse(&source, &mut Diagnostics::new()).unwrap();
    let definition = definition::parse_unfinished(&source, &yaml).unwrap();
    let mut places = Vec::new();
    for node in &definition.nodes {
        match node.next() {
            RouteDefinition::First(list) | RouteDefinition::All(list) => {
                places.extend(list.edges.iter().filter_map(|edge| Some(edge.to.as_ref()?.span.clone())));
            }
            RouteDefinition::By(by) => {
                places.extend(by.to.iter().filter_map(|(_, to)| Some(to.as_ref()?.span.clone())));
            }
            RouteDefinition::To(to) => places.push(to.span.clone()),
            RouteDefinition::Each(_) | RouteDefinition::End => {}
        }
        places.extend(node.on_error().into_iter().chain(node.on_timeout()).map(|to| to.span.clone()));
    }
    (places, definition.nodes.iter().map(|node| node.name.value.to_string()).collect())
}

fn every_mutation_is_noticed(directory: &str, graph: &str) {
    let tree = Tree::copy(directory);
    let text = std::fs::read_to_string(tree.path("graphs").join(graph)).unwrap();
    assert_eq!(said(&tree.test(graph)), [""; 0]);
    let (places, names) = targets(&text);
    let (mut ran, mut refused) = (0, 0);
    // Crashes find no other edges, and take time.
    let tests = graph.replace(".yaml", ".test.yaml");
    let cases = std::fs::read_to_string(tree.path("graphs").join(&tests)).unwrap();
    tree.write(&tests, &cases.replace("    crash: each_commit\n", ""));
    // A large graph has too many mutations: each edge leads to some of the other nodes, and the next edge to others.
    let every = names.len().div_ceil(5);
    for (at, place) in places.iter().enumerate() {
        let others = names.iter().filter(|name| **name != text[place.clone()]);
        for name in others.skip(at % every).step_by(every) {
            let mut mutated = text.clone();
            mutated.replace_range(place.clone(), name);
            tree.write(graph, &mutated);
            let report = tree.test(graph);
            assert!(
                !report.is_passed(),
                "`{}` at {place:?} became `{name}`, and every case passes",
                &text[place.clone()]
            );
            match report.cases {
                Ok(_) => ran += 1,
                Err(_) => refused += 1,
            }
        }
    }
    // The checker finds many of them itself: a key that is not set, a node that is not reached.
    assert!(ran + refused >= places.len(), "{graph}: {ran} mutated graphs were run, and {refused} have mistakes");
}

#[test]
fn a_changed_edge_of_the_tool_router_fails_a_case() {
    every_mutation_is_noticed("graphs", "tool_router.yaml");
}

#[test]
fn a_changed_edge_of_the_selective_feedback_fails_a_case() {
    every_mutation_is_noticed("graphs", "selective_feedback.yaml");
}

#[test]
fn a_changed_edge_of_the_negotiation_fails_a_case() {
    every_mutation_is_noticed("graphs", "negotiation.yaml");
}

#[test]
fn a_changed_edge_of_the_order_fails_a_case() {
    every_mutation_is_noticed("examples/service/graphs", "fulfil.yaml");
}

#[test]
fn a_changed_edge_of_the_invoice_fails_a_case() {
    every_mutation_is_noticed("examples/service/graphs", "invoice.yaml");
}

#[test]
fn a_changed_condition_time_or_value_fails_a_case() {
    for (directory, graph, from, to) in [
        ("examples/service/graphs", "fulfil.yaml", "op: eq, value: true", "op: eq, value: false"),
        ("examples/service/graphs", "fulfil.yaml", "retry: { attempts: 3 }", "retry: { attempts: 2 }"),
        ("examples/service/graphs", "fulfil.yaml", "amount_cents: \"${state.amount_cents}\"", "amount_cents: 1"),
        ("examples/service/graphs", "fulfil.yaml", "parcel: \"${state.parcel}\"", "parcel: \"${state.receipt}\""),
        ("examples/service/graphs", "fulfil.yaml", "minimum: 1, ", ""),
        ("examples/service/graphs", "invoice.yaml", "timeout: 2d", "timeout: 20h"),
        ("examples/service/graphs", "invoice.yaml", "timeout: 14d", "timeout: 16d"),
        ("examples/service/graphs", "invoice.yaml", "op: gte, value: 3", "op: gte, value: 2"),
        ("examples/service/graphs", "invoice.yaml", "decision: nobody decided in time", "decision: nobody"),
        ("graphs", "negotiation.yaml", "rounds: \"${visit.number}\"", "rounds: 1"),
        ("graphs", "negotiation.yaml", "on_no_match: fail", "on_no_match: end"),
        ("graphs", "selective_feedback.yaml", "max_steps: 7", "max_steps: 9"),
        ("graphs", "tool_router.yaml", "${state.notes}${result.text}", "${result.text}"),
    ] {
        let tree = Tree::copy(directory);
        let text = std::fs::read_to_string(tree.path("graphs").join(graph)).unwrap();
        assert!(text.contains(from), "{graph}: {from}");
        tree.write(graph, &text.replace(from, to));
        let found = said(&tree.test(graph));
        assert!(!found.is_empty(), "{graph}: `{from}` became `{to}`, and every case passes");
    }
}
