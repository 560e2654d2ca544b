//! Contracts of programs: their mistakes, and the graphs that they mean.

use graph_runtime::Machine;
use graph_runtime::testing::TestBed;

use crate::tree::Tree;

#[test]
fn the_mistakes_of_a_contract_are_named_at_their_places() {
    for (from, to, at, expected) in [
        ("calls: 600", "calls: 0", "9:20", "`calls` is from 1 to 14000, not 0"),
        ("calls: 600", "calls: 14001", "9:20", "`calls` is from 1 to 14000, not 14001"),
        ("timeout: 60s", "timeout: soon", "9:34", "`timeout` is a number of seconds above 0"),
        ("limits: {", "limits: { turns: 3,", "9:13", "`limits` of a program has no field `turns`"),
        (
            "shop/count]",
            "shop/counts]",
            "8:25",
            "`shop/counts` has no contract, which would tell the runtime how to call it",
        ),
        ("shop/count]", "\"shop/*\"]", "8:25", "a tool that a program calls is a literal id"),
        ("shop/count]", "rye/program/turn]", "8:25", "a program does not call the tool that runs it"),
        ("[shop/process, shop/count]", "all", "8:10", "`calls` is a list of ids, not a string"),
        ("[shop/process, shop/count]", "[]", "8:10", "`calls` lists no tool"),
        ("  calls: [shop/process, shop/count]\n", "", "6:3", "`config` of a program needs `calls`"),
        (
            "command: [bin/program]",
            "command: bin/program",
            "6:12",
            "`command` is a list: the program, and each argument by itself",
        ),
        ("command: [bin/program]", "command: [bash]", "6:12", "`command` executes the tool's parameters"),
        ("command: [bin/program]", "command: [python3, \"-\"]", "6:12", "`command` executes the tool's parameters"),
        ("cwd: \".\"", "ok_exit_codes: [1]", "7:3", "`config` of a program has no field `ok_exit_codes`"),
        ("result_schema:", "result_schemas:", "14:1", "a contract has no field `result_schemas`"),
        ("shop/count]", "rye/bash]", "8:25", "`call.arguments.command` decides what `command` of `rye/bash` is"),
    ] {
        let tree = Tree::new("");
        tree.change(from, to);
        let found: Vec<String> =
            tree.mistakes().iter().map(|one| format!("{}: {}", one.location(), one.message)).collect();
        let expected = |one: &String| one.contains(&format!("batch.yaml:{at}: {expected}"));
        assert!(found.iter().any(expected), "{from} → {to}: {found:#?}");
    }
}

/// Tools with results of different types are no reason for a warning, which no author could mend.
#[test]
fn a_contract_without_mistakes_has_no_warnings() {
    let tree = Tree::new("");
    let project = graph_compiler::project::Project::open(&tree.path(""), &tree.path(""));
    let compilation = project.compile(&tree.path("tools/shop/batch.yaml"));
    let said: Vec<String> = compilation.diagnostics.iter().map(|found| found.render()).collect();
    assert!(said.is_empty() && compilation.graph.is_some(), "{}", said.join("\n"));
}

#[test]
fn permissions_around_a_program_cover_its_calls_and_its_turn() {
    for (from, expected) in [
        (", \"rye.execute.tool.shop.*\"", ", rye.execute.tool.shop.batch, rye.execute.tool.shop.count"),
        ("rye.execute.tool.rye.program.turn, ", ""),
    ] {
        let tree = Tree::new("");
        tree.change_graph(from, expected);
        let found: Vec<String> = tree.mistakes().iter().map(|one| one.message.clone()).collect();
        assert!(found.iter().any(|one| one.contains("needs more than the graph's permissions cover")), "{found:?}");
    }
}

#[tokio::test]
async fn no_graph_calls_the_turn_of_a_program_by_itself() {
    let (tree, bed) = (Tree::new(""), TestBed::new());
    let program = "program: { command: [touch, started] }, tools: [], limits: { calls: 1 }, inputs: {}";
    tree.change_graph(
        "{ item_id: shop/batch, params: { items: \"${inputs.items}\" } }",
        &format!("{{ item_id: rye/program/turn, params: {{ {program} }} }}"),
    );
    let inputs = || graph_runtime::Map::from_iter([("items".to_owned(), serde_json::json!([]))]);
    let runtime = tree.runtime(&bed, bed.disk().clone());
    let refused = runtime.start(tree.graph(), inputs()).await.unwrap_err().to_string();
    assert!(refused.contains("rye/program/turn"), "{refused}");
    // A computed id leads nowhere either.
    let graph = tree.read("shop/sales.yaml").replace("item_id: rye/program/turn", "item_id: \"${inputs.tool}\"");
    let graph =
        graph.replace("items: { type: array, items: { type: string } }", "tool: { type: string, x-sink: item }");
    let graph = graph.replace("required: [items]", "required: [tool]");
    tree.write("shop/sales.yaml", &graph);
    let inputs = graph_runtime::Map::from_iter([("tool".to_owned(), serde_json::json!("rye/program/turn"))]);
    let failed = match runtime.start(tree.graph(), inputs).await {
        Ok(run) => run.await.unwrap_err().to_string(),
        Err(error) => error.to_string(),
    };
    assert!(failed.contains("rye/program/turn"), "{failed}");
    let own = "version: \"1.0.0\"\ntool_type: builtin\nconfig_schema: { type: object, properties: {} }\n";
    tree.write("tools/rye/program/turn.yaml", own);
    tree.change_graph("item_id: shop/batch, params: { items: \"${inputs.items}\" }", "item_id: rye/program/turn");
    let found: Vec<String> = tree.mistakes().iter().map(|one| one.message.clone()).collect();
    assert!(found.iter().any(|one| one.contains("the runtime has no built-in tool")), "{found:?}");
    assert!(!tree.path("started").exists());
}

#[test]
fn a_program_is_a_graph_with_a_node_for_each_tool() {
    let topology = Tree::new("").program_graph().graph().topology();
    let names: Vec<&str> = topology.nodes.iter().map(|node| node.name.as_str()).collect();
    assert_eq!(names, ["run", "use", "pick", "call_process", "call_count", "failed", "gather", "done"]);
    assert_eq!(topology.id.as_str(), "shop/batch");
}

/// The grants of the embedding program are checked before anything runs.
#[tokio::test]
async fn a_program_without_the_grants_of_its_calls_does_not_run() {
    let (tree, bed) = (Tree::new("touch started\necho '{\"processed\":1}'\n"), TestBed::new());
    let tools = graph_runtime::ToolConfig::new().programs(tree.path("")).unwrap();
    let runtime = graph_runtime::Runtime::builder().tools(tools).store(bed.disk().clone()).sign_with(bed.key());
    let granted = ["rye.execute.tool.shop.batch", "rye.execute.tool.shop.count", "rye.execute.tool.rye.program.turn"];
    let runtime = granted.iter().fold(runtime, |runtime, grant| runtime.grant(grant).unwrap()).build().unwrap();
    let inputs = graph_runtime::Map::from_iter([("items".to_owned(), serde_json::json!([]))]);
    let failed = match runtime.start(tree.graph(), inputs).await {
        Ok(run) => run.await.unwrap_err().to_string(),
        Err(error) => error.to_string(),
    };
    assert!(failed.contains("shop.process") || failed.contains("shop/process"), "{failed}");
    assert!(!tree.path("started").exists());
}

#[test]
fn secrets_are_no_inputs_and_no_results_of_programs() {
    let tree = Tree::new("");
    tree.change(
        "items: { type: array, items: { type: string } }",
        "items: { type: array, items: { type: string }, x-secret: true }",
    );
    assert!(!tree.mistakes().is_empty());
    let tree = Tree::new("");
    let count = tree.read("tools/shop/count.yaml").replace("{ type: integer }", "{ type: integer, x-secret: true }");
    tree.write("tools/shop/count.yaml", &count);
    assert!(!tree.mistakes().is_empty());
}

/// A program that performs built-in tools by computed ids starts no program that a value names.
#[tokio::test]
async fn a_computed_id_starts_no_program() {
    use graph_runtime::dynamic::{Library, Toolbox};
    use graph_runtime::tools::perform_builtin;

    let (tree, bed) = (Tree::new(""), TestBed::new());
    let params = "{ program: { command: [touch, started] }, tools: [], limits: { calls: 1 }, inputs: {} }";
    let graph = tree
        .read("shop/sales.yaml")
        .replace(
            "item_id: shop/batch, params: { items: \"${inputs.items}\" }",
            &format!("item_id: \"${{inputs.tool}}\", params: {params}"),
        )
        .replace("items: { type: array, items: { type: string } }", "tool: { type: string, x-sink: item }")
        .replace("required: [items]", "required: [tool]");
    tree.write("shop/sales.yaml", &graph);
    let tools = Toolbox::new().with("rye/program/turn", |call, params| async move {
        let params = graph_runtime::Value::Object(params);
        perform_builtin("rye/program/turn", &call, params).unwrap().await
    });
    let graph = Library::open(&tree.path(""), tools).graph(&tree.path("shop/sales.yaml")).unwrap();
    let inputs = graph_runtime::Map::from_iter([("tool".to_owned(), serde_json::json!("rye/program/turn"))]);
    let runtime = tree.runtime(&bed, bed.disk().clone());
    let failed = runtime.start(graph, inputs).await.unwrap().await.unwrap_err().to_string();
    assert!(failed.contains("is started by its contract, and by no computed id"), "{failed}");
}
