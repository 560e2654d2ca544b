//! Diagrams of every graph of the repository: the same text each time, and text that the readers of its format accept.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use graph_compiler::graph_files;
use graph_diagram::{Dag, Diagram, ReportEntry, TopologyDocument, ValidationReport};
use graph_model::character::is_invisible;
use graph_runtime::Machine;
use graph_runtime::dynamic::{Interpreted, Library, Toolbox};
use graph_runtime::machine::Topology;
use quick_xml::Reader;
use quick_xml::events::Event;

use crate::corpus::Corpus;
use crate::support::sign;
use crate::tree::Tree;

/// Loads the graphs of a tree, in the order of their files.
fn loaded(root: &Path) -> Vec<Interpreted> {
    let library = Library::open(root, Toolbox::new());
    graph_files(root).unwrap().iter().map(|file| library.graph(file).unwrap()).collect()
}

/// The sets of graphs: those of the corpus, of the repository, and those with branches and all else that the engines run.
fn sets() -> Vec<(&'static str, Vec<Interpreted>)> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let corpus = Corpus::read().tree();
    vec![
        ("corpus", loaded(&corpus.path(""))),
        ("graphs", loaded(&here.join("graphs"))),
        ("engines", loaded(&here.join("tests/engines/graphs"))),
    ]
}

#[test]
fn each_graph_has_its_diagram() {
    let mut count = 0;
    for (set, graphs) in sets() {
        let (mut mermaid, mut dot, mut text) = (String::new(), String::new(), String::new());
        let mut flowcharts = Vec::new();
        count += graphs.len();
        for graph in &graphs {
            let diagram = Diagram::of(graph.graph().topology());
            flowcharts.push(diagram.mermaid());
            writeln!(mermaid, "{}", diagram.mermaid()).unwrap();
            writeln!(dot, "{}", diagram.dot()).unwrap();
            writeln!(text, "{}", diagram.text()).unwrap();
        }
        accepted_by_graphviz(&dot);
        accepted_by_mermaid(&flowcharts);
        insta::with_settings!({prepend_module_to_snapshot => false, snapshot_path => "../diagrams"}, {
            insta::assert_snapshot!(format!("{set}.mermaid"), mermaid);
            insta::assert_snapshot!(format!("{set}.dot"), dot);
            insta::assert_snapshot!(format!("{set}.text"), text);
        });
    }
    assert!(count > 100, "{count} graphs");
}

/// An image is the same in each process, and contains nothing that a browser executes or loads.
#[test]
fn each_image_is_well_formed() {
    for (set, graphs) in sets() {
        for graph in &graphs {
            let diagram = Diagram::of(graph.graph().topology());
            let image = diagram.svg();
            assert_eq!(image, diagram.svg());
            let (elements, texts) = parts(&image);
            assert!(elements.iter().all(|name| ELEMENTS.contains(&name.as_str())), "{}: {elements:?}", graph.id());
            for place in graph.graph().topology().nodes {
                assert!(texts.contains(&place.name), "{}: `{}` is in the image", graph.id(), place.name);
            }
            if set == "graphs" {
                let name = format!("{}.svg", graph.id().replace('/', "."));
                insta::with_settings!({prepend_module_to_snapshot => false, snapshot_path => "../diagrams"}, {
                    insta::assert_snapshot!(name, image);
                });
            }
        }
    }
}

const ELEMENTS: [&str; 9] = ["svg", "title", "style", "rect", "text", "path", "polygon", "circle", "g"];

/// Returns the names of the elements of an image, and its texts.
fn parts(image: &str) -> (Vec<String>, Vec<String>) {
    let (mut reader, mut elements, mut texts) = (Reader::from_str(image), Vec::new(), Vec::new());
    let mut text = String::new();
    loop {
        match reader.read_event().unwrap() {
            Event::Start(start) | Event::Empty(start) => {
                let name = start.name().as_ref().to_owned();
                for attribute in start.attributes() {
                    let key = attribute.unwrap().key;
                    let key = key.as_ref().to_owned();
                    assert!(!key.starts_with("on") && !key.contains("href"), "{name} has `{key}`");
                }
                elements.push(name);
                text.clear();
            }
            Event::Text(part) => text.push_str(&part),
            Event::GeneralRef(part) => {
                let name: &str = &part;
                let known = part.resolve_char_ref().unwrap();
                let known = known.or_else(|| {
                    Some(match name {
                        "amp" => '&',
                        "lt" => '<',
                        "gt" => '>',
                        "quot" => '"',
                        _ => return None,
                    })
                });
                text.push(known.unwrap());
            }
            Event::End(_) => texts.push(std::mem::take(&mut text)),
            Event::Eof => return (elements, texts),
            other => unreachable!("{other:?}"),
        }
    }
}

/// Fails if Graphviz, where it is installed, does not read these graphs.
fn accepted_by_graphviz(dot: &str) {
    let mut command = Command::new("dot");
    command.arg("-Tcanon").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let Ok(mut child) = command.spawn() else {
        println!("skipped: Graphviz does not read the diagrams, since `dot` is not installed");
        return;
    };
    child.stdin.take().unwrap().write_all(dot.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !said.contains("syntax error"), "{said}");
}

/// Fails if Mermaid's own parser does not read these flowcharts. `MERMAID` is a directory in which `npm install mermaid jsdom` was run.
fn accepted_by_mermaid(flowcharts: &[String]) {
    let Some(directory) = std::env::var_os("MERMAID") else {
        println!("skipped: Mermaid does not read the diagrams, since `MERMAID` is not set");
        return;
    };
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/mermaid.mjs");
    let mut command = Command::new("node");
    command.arg(script).arg(directory).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let texts = serde_json::to_vec(flowcharts).unwrap();
    child.stdin.take().unwrap().write_all(&texts).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), flowcharts.len().to_string());
}

#[test]
fn a_topology_is_read_back() {
    for (_, graphs) in sets() {
        for graph in &graphs {
            let topology = graph.graph().named_topology();
            let json = serde_json::to_string(&topology).unwrap();
            let read: Topology<String> = serde_json::from_str(&json).unwrap();
            assert_eq!(read, topology, "{}", graph.id());
            let document = TopologyDocument::new(topology.clone(), []);
            assert!(document.report.ok, "{}: {:?}", graph.id(), document.report);
            let json = serde_json::to_string(&document).unwrap();
            assert_eq!(serde_json::from_str::<TopologyDocument>(&json).unwrap(), document, "{}", graph.id());
            assert_eq!(serde_json::from_str::<Topology<String>>(&json).unwrap(), topology, "{}", graph.id());
            let dag = Diagram::of(graph.graph().topology()).dag();
            let json = serde_json::to_string(&dag).unwrap();
            assert_eq!(serde_json::from_str::<Dag>(&json).unwrap(), dag);
            assert_eq!((dag.schema_version.as_str(), dag.mode.as_str()), ("1.3", "graph"));
            // Every state that an edge names is there.
            let is_there = |id: &String| dag.tasks.iter().any(|task| task.id == *id);
            assert!(dag.graph_edges.iter().all(|edge| is_there(&edge.from_state_id) && is_there(&edge.to_state_id)));
        }
    }
}

/// Returns the messages of a report.
fn messages(entries: &[ReportEntry]) -> Vec<&str> {
    entries.iter().map(|entry| entry.message.as_str()).collect()
}

/// A topology of another program may have mistakes.
#[test]
fn a_report_finds_what_does_not_fit() {
    let (_, graphs) = sets().into_iter().find(|(set, _)| *set == "graphs").unwrap();
    let order = graphs.iter().find(|graph| graph.id() == "shop/order").unwrap();
    let topology = order.graph().named_topology();
    assert_eq!(ValidationReport::of(&topology).warnings, []);
    let mut wrong = topology.clone();
    wrong.nodes[0].edges[0].to = Some("nowhere".to_owned());
    let report = ValidationReport::of(&wrong);
    assert!(!report.ok);
    assert_eq!(messages(&report.errors), ["`look_up` names `nowhere`, which does not exist"]);
    let unreached = ["is_available", "charge_card", "shipped", "back_order", "refused"];
    assert_eq!(messages(&report.warnings), unreached.map(|node| format!("no run reaches `{node}`")));
    let mut wrong = topology.clone();
    wrong.start.clear();
    assert_eq!(messages(&ValidationReport::of(&wrong).errors), ["the graph has no start"]);
    let mut wrong = topology.clone();
    wrong.start = vec!["elsewhere".to_owned()];
    assert_eq!(messages(&ValidationReport::of(&wrong).errors), ["a run begins at `elsewhere`, which does not exist"]);
    let mut wrong = topology.clone();
    let twin = wrong.nodes[0].clone();
    wrong.nodes.push(twin);
    assert_eq!(messages(&ValidationReport::of(&wrong).errors), ["there are two nodes `look_up`"]);
    let mut wrong = topology;
    wrong.nodes[0].edges.clear();
    let report = ValidationReport::of(&wrong);
    assert!(messages(&report.warnings).contains(&"a run ends at `look_up`, which is no `return`"), "{report:?}");
}

/// Texts that mean something in the formats, or to a browser.
const HOSTILE: [&str; 26] = [
    "<script>alert(1)</script>",
    "</text><script>alert(1)</script>",
    "\"]; n0 --> n1; x[\"",
    "\" onload=\"alert(1)",
    "'; drop",
    "javascript:alert(1)",
    "]]>",
    "<!--",
    "<![CDATA[x",
    "&lt;b&gt;",
    "&#60;",
    "#quot;",
    "#60;script#62;",
    "\\",
    "\\\"",
    "\\n",
    "\\N \\G \\L",
    "{a|b}",
    "|end|",
    "%%{init: {}}%%",
    "click n0 href \"javascript:alert(1)\"",
    "`**x**`",
    "漢字 text",
    "safe\u{202e}elif",
    "a\u{2028}b\u{200b}",
    "a --> b",
];

/// A node may have the name that the end has in the model.
#[test]
fn the_end_has_a_name_of_its_own() {
    let graph = "version: \"1.0.0\"\ntool_type: graph\nexecutor_id: rye/core/runtimes/state-graph/runtime\ncategory: test\n\
                 permissions: [rye.execute.tool.rye.bash]\nconfig:\n  start: END\n  nodes:\n    END: { type: gate }\n";
    let tree = Tree::new();
    tree.write("ends.yaml", sign(graph));
    let dag = Diagram::of(loaded(&tree.path(""))[0].graph().topology()).dag();
    assert_eq!(dag.tasks.iter().map(|task| task.id.as_str()).collect::<Vec<_>>(), ["END", "END_"]);
    assert_eq!(dag.graph_edges.iter().map(|edge| edge.to_state_id.as_str()).collect::<Vec<_>>(), ["END_"]);
}

#[test]
fn hostile_texts_are_only_texts() {
    for (at, hostile) in HOSTILE.into_iter().enumerate() {
        let value = serde_json::to_string(hostile).unwrap();
        let escaped = |c: char| if is_invisible(c) { format!("\\u{:04x}", u32::from(c)) } else { c.to_string() };
        let in_yaml: String = value.chars().map(escaped).collect();
        let graph = format!(
            "version: \"1.0.0\"\ntool_type: graph\nexecutor_id: rye/core/runtimes/state-graph/runtime\ncategory: test\npermissions: [rye.execute.tool.rye.bash]\n\
             config_schema: {{ type: object, properties: {{ word: {{ type: string }} }}, required: [word] }}\n\
             config:\n  start: first\n  nodes:\n    first:\n      type: gate\n      next:\n        \
             - {{ to: done, when: {{ path: inputs.word, op: eq, value: {in_yaml} }} }}\n        - {{ to: done }}\n    \
             done: {{ type: return }}\n"
        );
        let tree = Tree::new();
        tree.write(&format!("hostile_{at}.yaml"), sign(&graph));
        let loaded = loaded(&tree.path(""));
        let diagram = Diagram::of(loaded[0].graph().topology());
        let (mermaid, dot, image) = (diagram.mermaid(), diagram.dot(), diagram.svg());
        accepted_by_graphviz(&dot);
        let (elements, texts) = parts(&image);
        assert!(elements.iter().all(|name| ELEMENTS.contains(&name.as_str())), "{hostile}: {elements:?}");
        let said = format!("inputs.word = {value}").replace(is_invisible, "\u{fffd}");
        assert!(texts.contains(&said), "{hostile}: the image says the condition: {texts:?}");
        // In Mermaid, each line is still a node, an arrow or a class.
        let labels = mermaid.lines().filter(|line| line.contains("-->"));
        for line in labels {
            let label = line.split('|').nth(1).unwrap();
            let inside = label.trim_matches('"');
            let is_plain = |c: char| c.is_alphanumeric() || "#; _.,/·×≠≤≥".contains(c);
            assert!(inside.chars().all(is_plain), "{hostile}: {line}");
        }
        assert_eq!(mermaid.lines().filter(|line| line.contains("script>")).count(), 0, "{hostile}");
        assert!(dot.chars().chain(image.chars()).all(|c| !is_invisible(c)), "{hostile}");
        assert_eq!(dot.matches(" -> ").count() - hostile.matches(" -> ").count(), 3, "{hostile}: {dot}");
    }
}
