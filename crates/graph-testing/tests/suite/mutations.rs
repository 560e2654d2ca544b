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
    for place in &places {
        for name in names.iter().filter(|name| **name != text[place.clone()]) {
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
