//! How long an editor waits: opens a graph of 1,000 nodes after each keystroke, then asks about a place in it.
//!
//! Run with `cargo bench -p state-graph-editor --bench editor`.

use std::fmt::Write as _;
use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;

use criterion::{Criterion, criterion_group, criterion_main};
use graph_compiler::project::Project;
use graph_compiler::source::SourceFile;
use graph_editor::{Document, json_schema};

/// The number of nodes in the graph.
const NODES: usize = 1000;

/// Returns a chain of nodes that call, assign and branch, with 100 keys.
fn graph() -> String {
    let mut text = String::from(
        "version: \"1.0.0\"\ntool_type: graph\nexecutor_id: rye/core/runtimes/state-graph/runtime\n\
         permissions: [rye.execute.tool.*]\nconfig_schema: { type: object, properties: { at: { type: string } } }\n\
         config:\n  start: node_0\n  nodes:\n",
    );
    for at in 0..NODES {
        let (key, before, next) = (at % 100, (at + 99) % 100, at + 1);
        write!(
            text,
            "    node_{at}:\n      action:\n        item_id: rye/bash\n        params:\n          command: date\n          \
             env: {{ AT: \"${{inputs.at}}\", BEFORE: \"${{state.key_{before}}}\" }}\n      assign:\n        \
             key_{key}: \"${{result.stdout}}\"\n      next:\n        - {{ to: node_{next}, when: {{ path: result.exit_code, value: 0 }} }}\n        \
             - to: done\n"
        )
        .expect("writing into a text cannot fail");
    }
    write!(text, "    node_{NODES}: {{ type: return }}\n    done: {{ type: return }}\n")
        .expect("writing into a text cannot fail");
    text
}

fn editor(criterion: &mut Criterion) {
    let project = Project::open(Path::new("/nonexistent"), Path::new("/nonexistent/graphs"));
    let text = graph();
    let open = |text: &str| Document::open(&project, SourceFile::new("graphs/large.yaml", "graphs/large.yaml", text));
    let read = text.rfind("state.key_").expect("the last node reads a key");
    criterion.bench_function("open a graph of 1,000 nodes and ask for a type", |bencher| {
        bencher.iter(|| black_box(open(&text).type_at(read)));
    });
    let broken = format!("{}\"{}", &text[..read], &text[read..]);
    criterion.bench_function("the same with a quote too many", |bencher| {
        bencher.iter(|| black_box(open(&broken).type_at(100)));
    });
    let document = open(&text);
    criterion.bench_function("ask for a type", |bencher| bencher.iter(|| black_box(document.type_at(read))));
    criterion.bench_function("ask for all places of a name", |bencher| {
        bencher.iter(|| black_box(document.references_of(read)));
    });
    criterion.bench_function("complete a path", |bencher| {
        bencher.iter(|| black_box(document.completions(&project, read + "state.".len())));
    });
    let source: &Arc<SourceFile> = document.source();
    criterion.bench_function("make the schema of a graph", |bencher| {
        bencher.iter(|| black_box(json_schema::of_graph(&project, source)));
    });
}

criterion_group!(benches, editor);
criterion_main!(benches);
