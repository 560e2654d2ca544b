//! Rules of schemas, of servers and of graphs: random schemas and values, and a judge that shares no code with the project.

use std::sync::atomic::Ordering;

use graph_mcp::contract;
use graph_runtime::dynamic::{Library, Toolbox};
use graph_runtime::{Map, Runtime, ToolConfig, Value};
use serde_json::json;

use crate::judge::{Random, fits, likely_given, object};
use crate::servers::{LISTED, LONG, Scripted, answer, declared};
use crate::tree::{Client, HEAD, Tree, call, connect, lifecycles};

/// Returns a field of a contract, which has each in a line.
fn field(text: &str, name: &str) -> Value {
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name}: "))).unwrap();
    serde_json::from_str(line).unwrap()
}

/// Removes the rules beside words, constant objects and lists, which an import leaves out, and empty lists of required fields.
fn plain(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            if map.contains_key("enum") {
                map.retain(|keyword, _| matches!(keyword.as_str(), "enum" | "type"));
            }
            map.retain(|keyword, value| match keyword.as_str() {
                "required" => *value != json!([]),
                "const" => !value.is_object() && !value.is_array(),
                _ => true,
            });
            map.values_mut().for_each(plain);
        }
        Value::Array(list) => list.iter_mut().for_each(plain),
        _ => {}
    }
}

#[tokio::test]
async fn an_imported_tool_is_called_exactly_with_what_keeps_the_rules() {
    let (mut random, mut called, mut refused) = (Random::new(3), 0, 0);
    for _ in 0..8 {
        let (input, output) = (object(&mut random, 2), object(&mut random, 1));
        let list = LISTED.replace(
            r#"{"type":"object","properties":{"word":{"type":"string","minLength":2}},"required":["word"]}"#,
            &input.to_string(),
        );
        let said = r#"{"type":"object","properties":{"said":{"type":"string"}},"required":["said"]}"#;
        let list = list.replace(said, &output.to_string());
        let scripted = Scripted::new(&list, "");
        let tool = declared(&scripted.servers(LONG)).await;
        let imported = contract("shop", &tool, false);
        let (params, result) = (field(&imported.text, "config_schema"), field(&imported.text, "result_schema"));
        for (kept, mut of_server) in [(&params, input), (&result, output)] {
            plain(&mut of_server);
            let mut kept = kept.clone();
            plain(&mut kept);
            assert_eq!(kept, of_server, "{:?}", imported.left_out);
        }
        let tree = Tree::new();
        tree.write("tools/mcp/shop/say_it.yaml", &imported.text);
        let passed = ["a", "b", "c", "d"].map(|name| format!("{name}: \"${{inputs.{name}}}\"")).join(", ");
        let head = HEAD.replace("rye.execute.tool.test.*", "rye.execute.tool.mcp.*");
        let graph = format!(
            "{head}config_schema: {{ type: object, properties: {{ a: {{}}, b: {{}}, c: {{}}, d: {{}} }} }}
config:
  start: say
  nodes:
    say: {{ action: {{ item_id: mcp/shop/say_it, params: {{ {passed} }} }} }}
"
        );
        tree.write("shop/say.yaml", &graph);
        let graph = Library::open(&tree.path(""), Toolbox::new()).graph(&tree.path("shop/say.yaml"));
        let graph = graph.unwrap_or_else(|error| panic!("{:?}", error.diagnostics));
        for _ in 0..4 {
            let (given, returned) = (likely_given(&mut random, &params), likely_given(&mut random, &result));
            scripted.write(&list, &answer(&json!({ "content": [], "structuredContent": returned })));
            let before = scripted.log().lines().count();
            let tools = ToolConfig::new().mcp(scripted.servers(LONG));
            let runtime = Runtime::builder().tools(tools).grant("*").unwrap().build().unwrap();
            let inputs: Map<String, Value> = given.as_object().unwrap().clone();
            let ended = runtime.start(graph.clone(), inputs).await.unwrap().await.map(drop);
            let is_called = scripted.log().lines().count() > before;
            assert_eq!(is_called, fits(&params, &given), "{ended:?}: {given} of {params}");
            assert_eq!(ended.is_ok(), is_called && fits(&result, &returned), "{ended:?}: {returned} of {result}");
            *(if is_called { &mut called } else { &mut refused }) += 1;
        }
    }
    assert!(called > 5 && refused > 5, "{called} {refused}");
}

#[tokio::test]
async fn a_client_runs_a_graph_exactly_with_what_keeps_the_rules() {
    let (mut random, mut ran, mut refused) = (Random::new(5), 0, 0);
    for _ in 0..8 {
        let schema = object(&mut random, 2);
        let tree = Tree::new();
        let body = "config:\n  start: call\n  nodes:\n    call: { action: { item_id: test/fail } }\n";
        tree.write("shop/ruled.yaml", &format!("{HEAD}config_schema: {schema}\n{body}"));
        let (server, _) = tree.server_of(&["shop/ruled"], false);
        let session = connect(&server, Client::default(), lifecycles()[1].clone()).await;
        for _ in 0..6 {
            let given = likely_given(&mut random, &schema);
            let before = tree.performed.load(Ordering::Relaxed);
            let (result, is_error) = call(&session, "shop_ruled", given.clone()).await.unwrap();
            let calls = tree.performed.load(Ordering::Relaxed) - before;
            assert!(is_error, "the tool always fails");
            assert_eq!(calls, u64::from(fits(&schema, &given)), "{result}: {given} of {schema}");
            *(if calls == 1 { &mut ran } else { &mut refused }) += 1;
        }
    }
    assert!(ran > 8 && refused > 8, "{ran} {refused}");
}
