//! A program that is written into generated code and read back equals the program that the interpreter receives.

use std::path::Path;

use graph_compiler::graph_files;
use graph_compiler::project::Project;
use graph_model::ir::GraphIr;
use graph_model::program::{Key, NodeFacts, Param, Program, Tool};

use crate::corpus::Corpus;

/// Writes a graph as generated code does, and reads it back.
fn read_back(graph: &GraphIr) -> GraphIr {
    let texts = |list: &[String]| list.iter().map(|text| &*text.clone().leak()).collect::<Vec<&str>>();
    let json = |value: &serde_json::Value| &*value.to_string().leak();
    let keys: Vec<_> =
        graph.keys.iter().map(|key| Key { name: &key.name, initial: key.initial.as_ref().map(json) }).collect();
    let params: Vec<Option<Vec<Param<'_>>>> = graph
        .tools
        .iter()
        .map(|tool| {
            let params = tool.params.as_ref()?.iter();
            Some(params.map(|param| Param { name: &param.name, default: param.default.as_ref().map(json) }).collect())
        })
        .collect();
    let tools = graph.tools.iter().zip(&params).map(|(tool, params)| Tool {
        id: &tool.id,
        verb: tool.verb,
        item: tool.item,
        by: tool.by,
        params: params.as_deref(),
        typed: tool.typed,
        nests: tool.nests,
    });
    let bodies: Vec<String> = graph.nodes.iter().map(|node| serde_json::to_string(&node.body).unwrap()).collect();
    let nodes: Vec<_> = graph.nodes.iter().zip(&bodies).map(|(node, body)| (node.name.as_str(), &**body)).collect();
    let program = Program {
        id: &graph.id,
        version: &graph.version,
        source: &graph.source,
        digest: &graph.digest,
        signer: &graph.signer,
        start: graph.start,
        settings: &serde_json::to_string(&graph.settings).unwrap(),
        permissions: &texts(&graph.permissions),
        env: &texts(&graph.env),
        keys: &keys,
        tools: &tools.collect::<Vec<_>>(),
        nodes: &nodes,
    };
    GraphIr::read(&program).unwrap()
}

/// Compiles every graph of a directory of the repository.
fn compiled(directory: &str) -> Vec<GraphIr> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let project = Project::open(root, &root.join(directory));
    let compile = |file| {
        let compilation = project.compile(file);
        Some(compilation.graph?.ir(&compilation.source))
    };
    graph_files(&root.join(directory)).unwrap().iter().filter_map(|file| compile(file)).collect()
}

fn corpus_graphs() -> Vec<GraphIr> {
    let corpus = Corpus::read();
    let tree = corpus.tree();
    let project = tree.project();
    let compile = |name| {
        let compilation = project.compile(&tree.path(name));
        compilation.graph.unwrap().ir(&compilation.source)
    };
    corpus.graphs().map(compile).collect()
}

#[test]
fn a_program_is_read_back_as_it_was_written() {
    let graphs = [corpus_graphs(), compiled("graphs"), compiled("tests/engines/graphs")].concat();
    assert!(graphs.len() >= 140, "{} graphs", graphs.len());
    for graph in graphs {
        assert_eq!(read_back(&graph), graph, "{}", graph.id);
    }
}

#[test]
fn the_compiler_says_of_each_node_what_its_references_say() {
    let mut seen = NodeFacts::default();
    for graph in [corpus_graphs(), compiled("graphs"), compiled("tests/engines/graphs")].concat() {
        let answers = |tool: u16| graph.tools[usize::from(tool)].answers();
        for node in &graph.nodes {
            let found = NodeFacts::of(&node.body, answers, graph.settings.on_error);
            assert_eq!(node.body.facts, Some(found), "node `{}` of {}", node.name, graph.id);
            seen.visits |= found.visits;
            seen.previous |= found.previous;
            seen.time |= found.time;
            seen.failure |= found.failure;
            seen.fast |= found.fast;
        }
    }
    assert_eq!(seen, NodeFacts { visits: true, previous: true, time: true, failure: true, fast: true });
}

#[test]
fn generated_code_holds_what_the_interpreter_is_given() {
    let programs = [
        &state_graphs::approved_refund::PROGRAM,
        &state_graphs::awaited_payment::PROGRAM,
        &state_graphs::carrier_quotes::PROGRAM,
        &state_graphs::checked_order::PROGRAM,
        &state_graphs::countdown::PROGRAM,
        &state_graphs::file_report::PROGRAM,
        &state_graphs::negotiation::PROGRAM,
        &state_graphs::order::PROGRAM,
        &state_graphs::order_batch::PROGRAM,
        &state_graphs::payout::PROGRAM,
        &state_graphs::price_check::PROGRAM,
        &state_graphs::project_stats::PROGRAM,
        &state_graphs::parcel::PROGRAM,
        &state_graphs::released_transfer::PROGRAM,
        &state_graphs::reservation::PROGRAM,
        &state_graphs::selective_feedback::PROGRAM,
        &state_graphs::rounds::PROGRAM,
        &state_graphs::spread::PROGRAM,
        &state_graphs::sweep::PROGRAM,
        &state_graphs::tally::PROGRAM,
        &state_graphs::tool_router::PROGRAM,
    ];
    let graphs = compiled("graphs");
    assert_eq!(graphs.len(), programs.len());
    for program in programs {
        let graph = graphs.iter().find(|graph| graph.id == program.id).unwrap();
        assert_eq!(&GraphIr::read(program).unwrap(), graph, "{}", program.id);
    }
}
