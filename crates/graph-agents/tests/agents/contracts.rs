//! Contracts of agents: their mistakes, and the graphs that they mean.

use graph_runtime::Machine;
use graph_runtime::testing::{TestBed, graph_test};
use serde_json::json;

use crate::loops::{run, run_of};
use crate::tree::{DIRECTIVE, Scripted, Tree, answer, calls};

#[test]
fn the_mistakes_of_a_contract_are_named_at_their_places() {
    for (from, to, at, expected) in [
        ("turns: 4", "turns: 0", "9:20", "`turns` is from 1 to 10000, not 0"),
        ("tokens: 1000", "tokens: many", "9:31", "`tokens` is an integer, not a string"),
        ("0.10 USD", "0.10 EUR", "9:44", "`spend` is an amount of US dollars with at most six decimals"),
        ("0.10 USD", "0.0000001 USD", "9:44", "`spend` is an amount of US dollars with at most six decimals"),
        ("0.10 USD", "0 USD", "9:44", "`spend` is an amount of US dollars with at most six decimals"),
        ("timeout: 2m", "timeout: soon", "9:65", "`timeout` is a number of seconds above 0"),
        ("limits: {", "limits: { calls: 3,", "9:13", "`limits` of an agent has no field `calls`"),
        (
            "files/list]",
            "files/lisd]",
            "8:23",
            "`files/lisd` has no contract, which would tell the model how to call it",
        ),
        ("files/list]", "\"files/*\"]", "8:23", "a tool of an agent is a literal id"),
        ("files/list]", "rye/agent/model]", "8:23", "the model of an agent is no tool of it"),
        ("tools: [files/read, files/list]", "tools: all", "8:10", "`tools` is a list of ids, not a string"),
        ("directive: workflows/review", "directive: ../review", "6:14", "`directive` is the id of a directive"),
        ("  directive: workflows/review\n", "", "6:3", "`config` of an agent needs `directive`"),
        ("tier: general", "name: large", "7:12", "`model` of an agent has no field `name`"),
        ("result_schema:", "result_schemas:", "14:1", "a contract has no field `result_schemas`"),
        ("files/list]", "rye/bash]", "8:23", "`call.arguments.command` decides what `command` of `rye/bash` is"),
    ] {
        let tree = Tree::new();
        tree.change(from, to);
        let found: Vec<String> =
            tree.mistakes().iter().map(|one| format!("{}: {}", one.location(), one.message)).collect();
        let expected = |one: &String| one.contains(&format!("review.yaml:{at}: {expected}"));
        assert!(found.iter().any(expected), "{from} → {to}: {found:#?}");
    }
}

#[test]
fn permissions_around_an_agent_cover_its_tools() {
    let tree = Tree::new();
    tree.write(
        "graphs/shop/merge.yaml",
        &tree.read("graphs/shop/merge.yaml").replace(", \"rye.execute.tool.files.*\"", ""),
    );
    let found: Vec<String> = tree.mistakes().iter().map(|one| one.message.clone()).collect();
    assert!(found.iter().any(|one| one.contains("needs more than the graph's permissions cover")), "{found:?}");
}

#[test]
fn an_agent_is_a_graph_with_a_node_for_each_tool() {
    let tree = Tree::new();
    let graph = tree.agent();
    let topology = graph.graph().topology();
    let names: Vec<&str> = topology.nodes.iter().map(|node| node.name.as_str()).collect();
    assert_eq!(names, ["think", "use", "pick", "call_read", "call_list", "failed", "gather", "done"]);
    assert_eq!(topology.id.as_str(), "shop/review");
    tree.change("tools: [files/read, files/list]", "tools: []");
    let graph = tree.agent();
    let names: Vec<String> = graph.graph().topology().nodes.into_iter().map(|node| node.name).collect();
    assert_eq!(names, ["think", "done"]);
}

/// Texts of contracts that look like templates reach the model as they are, and nothing is inserted.
#[graph_test]
async fn texts_of_contracts_are_no_templates(bed: TestBed) {
    let tree = Tree::new();
    let read = tree.read("graphs/tools/files/read.yaml");
    tree.write(
        "graphs/tools/files/read.yaml",
        &read.replace("Reads a file.", "'${inputs.fixes} $${x} {input:fixes} ${'"),
    );
    let model = Scripted::new(|_, request| {
        assert_eq!(request.tools[0].description, "${inputs.fixes} $${x} { input:fixes} ${");
        Ok(answer(json!({ "verdict": "merge", "confidence": 0.5 })))
    });
    run(&bed, &tree, &model).await.unwrap();
}

/// An agent may call graphs and other agents, each with a journal of its own.
#[graph_test]
async fn an_agent_calls_agents_and_graphs(bed: TestBed) {
    let tree = Tree::new();
    let inner =
        tree.read("graphs/tools/shop/review.yaml").replace("tools: [files/read, files/list]", "tools: [files/list]");
    tree.write("graphs/tools/shop/second.yaml", &inner);
    // The permissions of what is inside are not tools of the agent around it.
    tree.write(
        "graphs/tools/shop/review.yaml",
        &tree
            .read("graphs/tools/shop/review.yaml")
            .replace("  tools: [files/read, files/list]\n", "  tools: [shop/second]\n")
            .replace("config_schema:", "permissions: [rye.execute.tool.files.list]\nconfig_schema:"),
    );
    let merge = tree.read("graphs/shop/merge.yaml");
    tree.write(
        "graphs/shop/merge.yaml",
        &merge.replace("rye.execute.tool.shop.review", "rye.execute.tool.shop.review, rye.execute.tool.shop.second"),
    );
    let model = Scripted::new(|turn, request| {
        Ok(match (request.tools[0].name.as_str(), turn) {
            ("shop_second", 0) => calls(&[("shop_second", json!({ "fixes": ["b.rs"] }))]),
            ("files_list", 0) => calls(&[("files_list", json!({}))]),
            _ => answer(json!({ "verdict": "merge", "confidence": 0.5 })),
        })
    });
    assert!(run(&bed, &tree, &model).await.is_ok());
    assert_eq!((model.asked(), tree.made.lock().unwrap().len()), (4, 1));
}

#[graph_test]
async fn a_directive_that_cannot_be_trusted_is_not_followed(bed: TestBed) {
    let model = Scripted::new(|_, _| Ok(answer(json!({ "verdict": "merge", "confidence": 0.5 }))));
    type Change = fn(&str) -> Option<String>;
    let changes: [(Change, &str); 4] = [
        (|text| Some(text.replace("Read each file", "Merge each file")), "cannot be followed"),
        (|text| Some(text.lines().skip(1).map(|line| format!("{line}\n")).collect()), "cannot be followed"),
        (|_| None, "cannot be followed"),
        (|text| Some(text.replace("name=\"fixes\"", "name=\"other\"")), "cannot be followed"),
    ];
    for (change, expected) in changes {
        let tree = Tree::new();
        // The compiler sees the directive as it was signed.
        let graph = tree.graph();
        let path = tree.path(".ai/directives/workflows/review.md");
        match change(&std::fs::read_to_string(&path).unwrap()) {
            Some(text) => std::fs::write(&path, text).unwrap(),
            None => std::fs::remove_file(&path).unwrap(),
        }
        assert!(!tree.mistakes().is_empty(), "the compiler finds the same");
        let failed = run_of(&bed, &tree, graph, &model).await.unwrap_err();
        assert!(failed.contains(expected), "{failed}");
    }
    let tree = Tree::new();
    let graph = tree.graph();
    tree.directive(
        &DIRECTIVE.replace("<process>", "</directive>\n<process>").replace("</process>\n</directive>", "</process>"),
    );
    let failed = run_of(&bed, &tree, graph, &model).await.unwrap_err();
    assert!(failed.contains("its signature does not cover its process"), "{failed}");
    assert_eq!(model.asked(), 0);
}

/// Returns the codes and messages about a directive.
fn about_the_directive(tree: &Tree) -> Vec<String> {
    let found = tree.mistakes();
    let found = found.iter().filter(|one| ["G0191", "G0192"].contains(&one.code.id));
    found.map(|one| format!("{} {}: {}", one.code.id, one.location(), one.message)).collect()
}

#[test]
fn the_compiler_compares_a_directive_with_the_contract() {
    let input = |of: &str| (r#"type="array" required="true""#.to_owned(), of.to_owned());
    let output = |text: &str| ("<process>".to_owned(), format!("<outputs>{text}</outputs><process>"));
    let metadata = |text: &str| ("</metadata>".to_owned(), format!("{text}</metadata>"));
    for ((from, to), expected) in [
        (input(r#"type="array""#), ""),
        (input(r#"type="any" required="true""#), ""),
        (
            input(r#"required="true""#),
            "its input `fixes` is of the type string, and by `config_schema` it is a list of strings",
        ),
        (input(r#"type="object""#), "its input `fixes` is of the type object"),
        (
            ("<inputs>".to_owned(), r#"<inputs><input name="who" required="true">Who</input>"#.to_owned()),
            "it needs the input `who`, which `config_schema` does not have",
        ),
        (
            ("<inputs>".to_owned(), r#"<inputs><input name="who" required="true" default="me">Who</input>"#.to_owned()),
            "",
        ),
        (("<inputs>".to_owned(), r#"<inputs><input name="who">Who</input>"#.to_owned()), ""),
        (output(r#"<output name="verdict">It</output><output name="confidence" type="number">It</output>"#), ""),
        (
            output(r#"<output name="reasons">Why</output>"#),
            "it has the output `reasons`, which `result_schema` does not have",
        ),
        (
            output(r#"<output name="confidence" type="integer">It</output>"#),
            "its output `confidence` is of the type integer, and by `result_schema` it is a number",
        ),
        (metadata(r#"<limits turns="4" tokens="1000" spend="0.1"/>"#), ""),
        (metadata(r#"<limits turns="9"/><model tier="fast"/>"#), ""),
        (metadata(r#"<limits turns="2"/>"#), "its limit `turns` is 2, and the contract allows 4"),
        (metadata(r#"<limits tokens="50"/>"#), "its limit `tokens` is 50, and the contract allows 1000"),
        (metadata(r#"<limits spend="0.05"/>"#), "its limit `spend` is 0.05, and the contract allows 0.1"),
        (metadata("<permissions><execute><tool>files/*</tool></execute></permissions>"), ""),
        (
            metadata("<permissions><execute><tool>files/read</tool></execute></permissions>"),
            "it does not permit `files/list`, which the contract lists",
        ),
        (("<process>".to_owned(), "</directive>\n<process>".to_owned()), ""),
        (("version=\"1.0.0\"".to_owned(), String::new()), "`<directive>` has no `version`"),
    ] {
        let tree = Tree::new();
        let text = DIRECTIVE.replace(&from, &to);
        assert_ne!(text, DIRECTIVE, "{from}");
        let is_outside = to.starts_with("</directive>");
        tree.directive(&if is_outside { text.replace("</process>\n</directive>", "</process>") } else { text });
        let expected = if is_outside { "its signature does not cover its process" } else { expected };
        let found = about_the_directive(&tree);
        match expected {
            "" => assert_eq!(found, [""; 0], "{to}"),
            _ => assert!(
                matches!(found.as_slice(), [one] if one.starts_with("G0192") && one.contains(expected) && one.contains("review.yaml:6:14")),
                "{to}: {found:#?}"
            ),
        }
    }
}

/// An input that may be missing, and a result that is no object.
#[test]
fn a_directive_needs_what_the_contract_is_sure_to_have() {
    for (from, to, expected) in [
        ("  required: [fixes]\n", "", "it needs the input `fixes`, which may be missing by `config_schema`"),
        ("type: array, items", "type: [array, \"null\"], items", "it needs the input `fixes`, which may be missing"),
    ] {
        let tree = Tree::new();
        tree.change(from, to);
        let found = about_the_directive(&tree);
        assert!(found.iter().any(|one| one.contains(expected)), "{to}: {found:#?}");
    }
}

#[test]
fn a_directive_that_the_project_lacks_is_said_and_without_a_project_nothing_is() {
    let tree = Tree::new();
    let path = tree.path(".ai/directives/workflows/review.md");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let found = about_the_directive(&tree);
    assert!(matches!(found.as_slice(), [one] if one.starts_with("G0191")), "{found:#?}");
    // It may be in another space.
    tree.settings("[lints]\nG0191 = \"allow\"\n");
    assert_eq!(about_the_directive(&tree), [""; 0]);
    tree.settings("");
    std::fs::remove_dir_all(tree.path(".ai")).unwrap();
    assert_eq!(about_the_directive(&tree), [""; 0], "the runtime checks it");
    // A key that only the project trusts, and one that it revokes.
    let stranger = graph_signing::SecretKey::from_seed(&[77; 32]);
    let signed = |key| {
        graph_signing::sign(graph_signing::ItemKind::Directive, DIRECTIVE, key, std::time::SystemTime::UNIX_EPOCH)
    };
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, signed(&stranger).unwrap()).unwrap();
    let found = about_the_directive(&tree);
    assert!(matches!(found.as_slice(), [one] if one.contains("is not trusted")), "{found:#?}");
    let trusted = graph_signing::KeyFile::new(stranger.public(), "a colleague");
    let keys = tree.path(".ai/config/keys/trusted");
    std::fs::create_dir_all(&keys).unwrap();
    let file = keys.join(format!("{}.toml", trusted.fingerprint));
    std::fs::write(&file, trusted.to_signed_toml(&stranger, std::time::SystemTime::UNIX_EPOCH)).unwrap();
    assert_eq!(about_the_directive(&tree), [""; 0]);
    std::fs::write(&file, "damaged").unwrap();
    assert_eq!(about_the_directive(&tree).len(), 1, "it may have been a revocation");
    std::fs::write(&path, text).unwrap();
    assert_eq!(about_the_directive(&tree), [""; 0]);
}
