//! Threads: agents that a graph starts by the directive that they follow.

use std::path::PathBuf;

use graph_agents::{ModelError, ModelRequest};
use graph_runtime::cache::{MemoryCache, NodeCache};
use graph_runtime::files::{GraphId, KeyRing};
use graph_runtime::testing::{FaultyStore, TestBed, graph_test};
use graph_runtime::{Durability, Machine as _, Map, Options, ProjectFiles, RunId, Runtime, Value};
use graph_signing::{KeyFile, verify_json};
use serde_json::json;

use graph_runtime::Store as _;
use graph_runtime::store::{Page, RunFilter};

use crate::tree::{DIRECTIVE, Scripted, Tree, answer, calls};

/// Returns a graph whose nodes call the tools of threads.
fn graph(nodes: &str) -> String {
    format!(
        "version: \"1.0.0\"\ntool_type: graph\nexecutor_id: rye/core/runtimes/state-graph/runtime\ncategory: shop
permissions: [\"rye.execute.tool.*\"]\nconfig:\n  start: first\n  state: {{ {LATER} }}\n  nodes:\n{nodes}"
    )
}

/// Values that the compiler does not look at where they are parameters.
const LATER: &str = "review: workflows/review, none: workflows/none, publish: publish, zero: 0, many: 100, \
    resume_thread: resume_thread, get_chain: get_chain, chain_search: chain_search";

fn scripted() -> Scripted {
    Scripted::new(|turn, _| {
        Ok(match turn {
            0 => calls(&[("files_list", json!({}))]),
            _ => answer(json!({ "verdict": "merge", "confidence": 0.5 })),
        })
    })
}

/// Runs the graph, and returns its output or its error.
async fn run(bed: &TestBed, tree: &Tree, model: &Scripted, nodes: &str) -> Result<Value, String> {
    run_with_cache(bed, tree, model, nodes, &MemoryCache::new()).await
}

/// The same with a cache for the results of nodes.
async fn run_with_cache(
    bed: &TestBed,
    tree: &Tree,
    model: &Scripted,
    nodes: &str,
    cache: &MemoryCache,
) -> Result<Value, String> {
    run_text(bed, tree, model, &graph(nodes), cache).await
}

async fn run_text(
    bed: &TestBed,
    tree: &Tree,
    model: &Scripted,
    text: &str,
    cache: &MemoryCache,
) -> Result<Value, String> {
    tree.write("graphs/shop/lead.yaml", text);
    let library = tree.library();
    let tasks = library.tasks();
    let process = bed.process(bed.disk().clone()).cache(NodeCache::new(cache.clone()));
    let runtime: Runtime = process.tools(tree.agents(model).tasks(tasks.clone())).build().unwrap();
    tasks.serve(&runtime);
    let lead = library.graph(&tree.path("graphs/shop/lead.yaml")).unwrap_or_else(|error| panic!("{error}"));
    let ended = runtime.start(lead, Map::new()).await.unwrap().await;
    ended.map(|finished| finished.output).map_err(|error| error.to_string())
}

#[graph_test]
async fn a_thread_is_waited_for_and_its_outputs_are_the_answer(bed: TestBed) {
    let nodes = r#"    first:
      action:
        primary: execute
        item_type: tool
        item_id: rye/agent/threads/thread_directive
        params: { directive_name: workflows/review, inputs: { fixes: [a.rs] } }
      assign: { verdict: "${result.outputs.verdict}", cost: "${result.cost}", id: "${result.thread_id}" }
      next: read
    read:
      action: { item_id: rye/agent/threads/orchestrator, params: { operation: read_transcript, thread_id: "${state.id}", tail_lines: 1 } }
      assign: { transcript: "${result.transcript}" }
      next: end
    end: { type: return, output: { verdict: "${state.verdict}", cost: "${state.cost}", transcript: "${state.transcript}" } }
"#;
    let output = run(&bed, &Tree::new(), &scripted(), nodes).await.unwrap();
    assert_eq!(output["verdict"], "merge");
    assert_eq!(output["cost"], json!({ "turns": 2, "tokens": 30, "micros": 40 }));
    let transcript = output["transcript"].as_array().unwrap();
    assert!(transcript.len() == 1 && transcript[0]["role"] == "assistant", "{transcript:?}");
}

#[graph_test]
async fn threads_are_started_in_parallel_and_waited_for(bed: TestBed) {
    let nodes = r#"    first:
      action:
        item_id: rye/agent/threads/thread_directive
        params: { directive_name: workflows/review, inputs: { fixes: [a.rs] }, async_exec: true }
      assign: { a: "${result.thread_id}", status: "${result.status}" }
      next: second
    second:
      action: { item_id: rye/agent/threads/thread_directive, params: { directive: workflows/review, fixes: [b.rs], async_exec: true } }
      assign: { b: "${result.thread_id}" }
      next: wait
    wait:
      action:
        item_id: rye/agent/threads/orchestrator
        params: { operation: wait_threads, thread_ids: ["${state.a}", "${state.b}"], timeout: 300 }
      assign: { results: "${result.results}" }
      next: children
    children:
      action: { item_id: rye/agent/threads/orchestrator, params: { operation: list_children } }
      assign: { children: "${result.threads}" }
      next: active
    active:
      action: { item_id: rye/agent/threads/orchestrator, params: { operation: list_active } }
      assign: { active: "${result.threads}" }
      next: status
    status:
      action: { item_id: rye/agent/threads/orchestrator, params: { operation: get_status, thread_id: "${state.a}" } }
      assign: { thread: "${result.thread}" }
      next: kill
    kill:
      action: { item_id: rye/agent/threads/orchestrator, params: { operation: kill_thread, thread_id: "${state.a}" } }
      assign: { stopped: "${result.stopped}" }
      next: end
    end:
      type: return
      output: { status: "${state.status}", results: "${state.results}", children: "${state.children}", active: "${state.active}",
                thread: "${state.thread}", stopped: "${state.stopped}" }
"#;
    let output = run(&bed, &Tree::new(), &scripted(), nodes).await.unwrap();
    assert_eq!(
        (&output["status"], &output["active"], &output["stopped"]),
        (&json!("running"), &json!([]), &json!(false))
    );
    for result in output["results"].as_array().unwrap().iter().chain([&output["thread"]]) {
        assert_eq!((&result["status"], &result["outputs"]["verdict"]), (&json!("completed"), &json!("merge")));
    }
    assert_eq!(output["results"].as_array().map(Vec::len), Some(2));
    assert_eq!(output["children"].as_array().map(Vec::len), Some(2));
}

#[graph_test]
async fn a_thread_that_cannot_be_started_says_why(bed: TestBed) {
    for (params, expected) in [
        ("directive_name: \"${state.none}\"", "no agent follows the directive `workflows/none`"),
        ("directive_name: \"${state.review}\", inputs: {}", "the inputs do not fit the graph `shop/review`"),
        ("directive_name: \"${state.review}\", async_exec: 1", "`async_exec` is true or false"),
        (
            "directive_name: \"${state.review}\", limit_overrides: { turns: \"${state.zero}\" }",
            "the limit `turns` is a whole number above 0",
        ),
        (
            "directive_name: \"${state.review}\", inputs: { fixes: [] }, limit_overrides: { turns: 1, spend: 0.10 }",
            "the agent has no answer, and has taken its 1 turns",
        ),
        (
            "directive_name: \"${state.review}\", inputs: { fixes: [] }, limit_overrides: { turns: \"${state.many}\", spend: 0.00001 }",
            "has spent 20 of 10 millionths of a dollar",
        ),
    ] {
        let nodes = format!(
            "    first: {{ action: {{ item_id: rye/agent/threads/thread_directive, params: {{ {params} }} }}, next: end }}\n    end: {{ type: return }}\n"
        );
        let error = run(&bed, &Tree::new(), &scripted(), &nodes).await.unwrap_err();
        assert!(error.contains(expected), "{params}: {error}");
    }
    // Without a directive, it is refused before a run.
    let tree = Tree::new();
    let nodes = "    first: { action: { item_id: rye/agent/threads/thread_directive, params: { inputs: {} } }, next: end }\n    end: { type: return }\n";
    tree.write("graphs/shop/lead.yaml", &graph(nodes));
    let error = tree.library().graph(&tree.path("graphs/shop/lead.yaml")).err().unwrap().to_string();
    assert!(error.contains("needs the parameter `directive_name`"), "{error}");
    // Two agents follow one directive.
    let review = tree.read("graphs/tools/shop/review.yaml");
    tree.write("graphs/tools/shop/second.yaml", &review);
    let nodes = "    first: { action: { item_id: rye/agent/threads/thread_directive, params: { directive_name: \"${state.review}\", inputs: { fixes: [] } } }, next: end }\n    end: { type: return }\n";
    let error = run(&bed, &tree, &scripted(), nodes).await.unwrap_err();
    assert!(
        error.contains("several agents follow the directive `workflows/review`: `shop/review`, `shop/second`"),
        "{error}"
    );
    // An agent that fails fails the node.
    let model = Scripted::new(|_, _| Ok(calls(&[("files_list", json!({}))])));
    let error = run(&bed, &Tree::new(), &model, nodes).await.unwrap_err();
    assert!(error.contains("the agent has no answer, and has taken its 4 turns"), "{error}");
    let nodes = "    first: { action: { item_id: rye/agent/threads/orchestrator, params: { operation: \"${state.publish}\" } }, next: end }\n    end: { type: return }\n";
    let error = run(&bed, &Tree::new(), &model, nodes).await.unwrap_err();
    assert!(error.contains("`publish` is no operation: there are `wait_threads`"), "{error}");
}

/// Returns the text of a request that a model gets.
fn talk_of(request: &ModelRequest) -> String {
    format!("{:?}", request.messages)
}

/// Continues a thread twice, and looks at the chain.
const CHAIN: &str = r#"    first:
      action: { item_id: rye/agent/threads/thread_directive, params: { directive_name: workflows/review, inputs: { fixes: [a.rs] } } }
      assign: { first: "${result.thread_id}" }
      next: again
    again:
      action: { item_id: rye/agent/threads/orchestrator, params: { operation: resume_thread, thread_id: "${state.first}", message: "And b.rs?" } }
      assign: { second: "${result.thread_id}", before: "${result.continuation_of}" }
      next: wait
    wait:
      action: { item_id: rye/agent/threads/orchestrator, params: { operation: wait_threads, thread_ids: ["${state.second}"] } }
      assign: { results: "${result.results}" }
      next: third
    third:
      action:
        item_id: rye/agent/threads/orchestrator
        params: { operation: resume_thread, thread_id: "${state.second}", message: "Are you sure?", limit_overrides: { turns: 1 } }
      assign: { third: "${result.thread_id}" }
      next: wait_again
    wait_again:
      action: { item_id: rye/agent/threads/orchestrator, params: { operation: wait_threads, thread_ids: ["${state.third}"] } }
      on_error: status
      next: status
    status:
      action: { item_id: rye/agent/threads/orchestrator, params: { operation: get_status, thread_id: "${state.third}" } }
      assign: { last: "${result.thread}", failure: "${state._last_error.error || state.third}" }
      next: chain
    chain:
      action: { item_id: rye/agent/threads/orchestrator, params: { operation: get_chain, thread_id: "${state.second}" } }
      assign: { chain: "${result.chain}" }
      next: search
    search:
      action: { item_id: rye/agent/threads/orchestrator, params: { operation: chain_search, thread_id: "${state.third}", query: "TEXT OF" } }
      assign: { found: "${result.matches}" }
      next: pattern
    pattern:
      action:
        item_id: rye/agent/threads/orchestrator
        params: { operation: chain_search, thread_id: "${state.first}", query: "And .\\.rs", search_type: regex, case_sensitive: true }
      assign: { asked: "${result.matches}" }
      next: read
    read:
      action: { item_id: rye/agent/threads/orchestrator, params: { operation: read_transcript, thread_id: "${state.second}" } }
      assign: { transcript: "${result.transcript}" }
      next: end
    end:
      type: return
      output: { first: "${state.first}", second: "${state.second}", third: "${state.third}", before: "${state.before}", results: "${state.results}",
                last: "${state.last}", failure: "${state.failure}", chain: "${state.chain}", found: "${state.found}", asked: "${state.asked}", transcript: "${state.transcript}" }
"#;

#[graph_test]
async fn a_thread_that_has_ended_is_continued_with_its_talk_and_a_message(bed: TestBed) {
    let model = Scripted::new(|turn, request| {
        let talk = talk_of(request);
        Ok(match turn {
            0 => calls(&[("files_read", json!({ "path": "a.rs" }))]),
            1 => answer(json!({ "verdict": "merge", "confidence": 0.5 })),
            // The second thread has the talk of the first.
            2 => {
                assert!(talk.contains("the text of a.rs") && talk.contains("it was taken"), "{talk}");
                assert!(talk.contains("A message for you:\\nAnd b.rs?"), "{talk}");
                calls(&[("files_read", json!({ "path": "b.rs" }))])
            }
            3 => answer(json!({ "verdict": "reject", "confidence": 1 })),
            _ => {
                assert!(talk.contains("the text of a.rs") && talk.contains("the text of b.rs"), "{talk}");
                assert!(talk.ends_with("Are you sure?\" }]"), "{talk}");
                crate::contexts::assert_whole(request);
                calls(&[("files_list", json!({}))])
            }
        })
    });
    let output = run(&bed, &Tree::new(), &model, CHAIN).await.unwrap();
    let text = |name: &str| output[name].as_str().unwrap();
    assert_eq!(output["before"], output["first"]);
    assert_eq!(output["results"][0]["outputs"]["verdict"], "reject");
    assert_eq!(output["results"][0]["continuation_of"], output["first"]);
    // The limits are those of the thread that continues.
    assert_eq!(output["last"]["status"], "error");
    let failure = text("failure");
    assert!(failure.contains(text("third")) && failure.contains("has taken its 1 turns"), "{failure}");
    let chain: Vec<&str> =
        output["chain"].as_array().unwrap().iter().map(|thread| thread["thread_id"].as_str().unwrap()).collect();
    assert_eq!(chain, [text("first"), text("second"), text("third")]);
    // Each message is found once, in the thread that it is of.
    let found: Vec<(&str, &str)> = output["found"]
        .as_array()
        .unwrap()
        .iter()
        .map(|found| (found["thread_id"].as_str().unwrap(), found["text"].as_str().unwrap()))
        .collect();
    assert_eq!(found, [(text("first"), "the text of a.rs"), (text("second"), "the text of b.rs")]);
    assert_eq!(output["asked"].as_array().map(Vec::len), Some(1));
    assert_eq!(output["asked"][0]["text"], "And b.rs?");
    let roles: Vec<&str> =
        output["transcript"].as_array().unwrap().iter().map(|line| line["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["earlier", "steer", "assistant", "tool", "assistant"]);
    assert_eq!(output["transcript"][0]["thread"], output["first"]);
    // The continued threads are proven as all runs.
    for thread in ["first", "second", "third"] {
        let (tree, id) = (Tree::new(), RunId::new(text(thread)).unwrap());
        let agent = std::sync::Arc::new(tree.agent());
        let key = bed.key().public();
        graph_runtime::audit_tree(agent, &id, bed.disk(), &key, Some(&bed.encryption_key())).await.unwrap();
    }
}

#[graph_test]
async fn an_operation_on_a_chain_that_cannot_be_done_says_why(bed: TestBed) {
    for (params, expected) in [
        ("operation: \"${state.resume_thread}\", thread_id: none-1, message: Hi", "the run has no task `none-1`"),
        ("operation: \"${state.resume_thread}\", thread_id: none-1", "`resume_thread` needs `message`"),
        ("operation: \"${state.get_chain}\"", "`get_chain` needs `thread_id`"),
        ("operation: \"${state.get_chain}\", thread_id: none-1", "the run has no task `none-1`"),
        ("operation: \"${state.chain_search}\", thread_id: none-1", "`chain_search` needs `query`"),
        (
            "operation: \"${state.chain_search}\", thread_id: none-1, query: \"(\", search_type: regex",
            "`query` cannot be looked for",
        ),
        (
            "operation: \"${state.chain_search}\", thread_id: none-1, query: a, search_type: glob",
            "`text` or `regex`, not `glob`",
        ),
    ] {
        let nodes = format!(
            "    first: {{ action: {{ item_id: rye/agent/threads/orchestrator, params: {{ {params} }} }}, next: end }}\n    end: {{ type: return }}\n"
        );
        let error = run(&bed, &Tree::new(), &scripted(), &nodes).await.unwrap_err();
        assert!(error.contains(expected), "{params}: {error}");
    }
}

#[graph_test]
async fn the_result_of_a_thread_is_kept_as_long_as_all_that_it_depends_on_is_the_same(bed: TestBed) {
    let (tree, cache) = (Tree::new(), MemoryCache::new());
    let nodes = |params: &str| {
        format!(
            "    first:\n      cache_result: true\n      action: {{ primary: execute, item_type: tool, item_id: rye/agent/threads/thread_directive, params: {{ directive: workflows/review, {params} }} }}
      assign: {{ summary: \"${{result.output || result.status}}\" }}\n      next: end\n    end: {{ type: return, output: {{ summary: \"${{state.summary}}\" }} }}\n"
        )
    };
    let a = nodes("fixes: [a.rs]");
    let model = scripted();
    // How often the model is asked: twice for each thread.
    let asked = async |tree: &Tree, model: &Scripted, nodes: &str| {
        let before = model.asked();
        let output = run_with_cache(&bed, tree, model, nodes, &cache).await.unwrap();
        assert_eq!(output["summary"], json!({ "verdict": "merge", "confidence": 0.5 }));
        model.asked() - before
    };
    assert_eq!(asked(&tree, &model, &a).await, 2);
    assert_eq!(asked(&tree, &model, &a).await, 0, "the result is kept");
    assert_eq!(asked(&tree, &model, &nodes("fixes: [b.rs]")).await, 2, "other inputs");
    tree.directive(&DIRECTIVE.replace("Read each file", "Read every file"));
    assert_eq!(asked(&tree, &model, &a).await, 2, "another directive");
    assert_eq!(asked(&tree, &model, &a).await, 0);
    tree.change("turns: 4", "turns: 5");
    assert_eq!(asked(&tree, &model, &a).await, 2, "another contract of the agent");
    let other = scripted().with_context(100_000);
    assert_eq!(asked(&tree, &other, &a).await, 2, "another model");
    assert_eq!(asked(&tree, &other, &a).await, 0);
    // A thread that is not waited for is begun each time.
    let process = nodes("fixes: [a.rs], async_exec: \"${inputs.is_async}\"");
    let begun =
        || async { bed.disk().runs(&RunFilter::default(), &Page { size: 100, after: None }).await.unwrap().runs.len() };
    let before = begun().await;
    for _ in 0..2 {
        let mut given = graph(&process);
        given.insert_str(
            given.find("permissions").unwrap(),
            "config_schema: { type: object, properties: { is_async: { type: boolean, default: true } } }\n",
        );
        run_text(&bed, &tree, &model, &given, &cache).await.unwrap();
    }
    assert_eq!(begun().await - before, 4, "two runs and two threads");
}

#[graph_test]
async fn the_files_of_a_thread_are_signed_and_say_what_it_is(bed: TestBed) {
    let (tree, project) = (Tree::new(), tempfile::tempdir().unwrap());
    let text = graph(
        r#"    first:
      action:
        item_id: rye/agent/threads/thread_directive
        params: { directive_name: workflows/review, inputs: { fixes: [a.rs] } }
      assign: { first: "${result.thread_id}" }
      next: again
    again:
      action: { item_id: rye/agent/threads/orchestrator, params: { operation: resume_thread, thread_id: "${state.first}", message: "Again." } }
      assign: { second: "${result.thread_id}" }
      next: wait
    wait:
      action: { item_id: rye/agent/threads/orchestrator, params: { operation: wait_threads, thread_ids: ["${state.second}"] } }
      next: end
    end: { type: return, output: { first: "${state.first}", second: "${state.second}" } }
"#,
    );
    tree.write("graphs/shop/lead.yaml", &text);
    let (library, files) = (tree.library(), ProjectFiles::in_directory(project.path(), bed.key()).unwrap());
    let tasks = library.tasks();
    let process = bed.process(bed.disk().clone()).observer(files.clone());
    let runtime: Runtime = process.tools(tree.agents(&scripted()).tasks(tasks.clone())).build().unwrap();
    tasks.serve(&runtime);
    let lead = library.graph(&tree.path("graphs/shop/lead.yaml")).unwrap();
    let ended = runtime.start_as(RunId::new("lead").unwrap(), lead, Map::new()).await.unwrap().await.unwrap();
    let threads = ["first", "second"].map(|name| ended.output[name].as_str().unwrap().to_owned());
    assert!(files.problems().is_empty(), "{:?}", files.problems());
    let ring = KeyRing::from_files([KeyFile::new(bed.key().public(), "self")]);
    let store = files.store();
    for (thread, turns) in threads.iter().zip([2, 1]) {
        let id = RunId::new(thread.as_str()).unwrap();
        // The transcript and the state item, with the talk in it, are signed, and agree with the journal.
        let (item, _) = store.verify(&GraphId::new("shop/review").unwrap(), &id, &ring).unwrap();
        assert!(item.state["talk"].is_array(), "{}", item.state);
        let key = bed.key().public();
        let differing = store.compare(bed.disk(), &key, &key, &id, tree.agent().graph()).await.unwrap();
        assert_eq!(differing, Vec::<PathBuf>::new());
        let text =
            std::fs::read_to_string(project.path().join(format!(".ai/state/threads/{thread}/thread.json"))).unwrap();
        let Value::Object(fields) = serde_json::from_str(&text).unwrap() else { panic!("{text}") };
        verify_json(&fields, &ring).unwrap();
        assert_eq!(fields["parent_thread_id"], "lead");
        let capabilities: Vec<&str> =
            fields["capabilities"].as_array().unwrap().iter().map(|one| one.as_str().unwrap()).collect();
        assert_eq!(
            capabilities,
            ["rye.execute.tool.rye.agent.model", "rye.execute.tool.files.read", "rye.execute.tool.files.list"]
        );
        let row = files.registry().unwrap().get(thread).unwrap().unwrap();
        assert_eq!((row.parent.as_deref(), row.turns), (Some("lead"), turns), "{row:?}");
        assert!(row.spend > 0.0, "{row:?}");
    }
    let registry = files.registry().unwrap();
    for thread in &threads {
        let chain: Vec<String> = registry.chain(thread).unwrap().into_iter().map(|row| row.thread).collect();
        assert_eq!(chain, threads);
    }
    // The rows can be rebuilt in any order.
    for order in [[0, 1], [1, 0]] {
        let elsewhere = tempfile::tempdir().unwrap();
        let files = ProjectFiles::in_directory(elsewhere.path(), bed.key()).unwrap();
        for at in order {
            let id = RunId::new(threads[at].as_str()).unwrap();
            files.rebuild(bed.disk(), &bed.key().public(), &id, tree.agent().graph()).await.unwrap();
        }
        let registry = files.registry().unwrap();
        let chain: Vec<String> = registry.chain(&threads[1]).unwrap().into_iter().map(|row| row.thread).collect();
        assert_eq!(chain, threads);
        let row = registry.get(&threads[1]).unwrap().unwrap();
        assert_eq!(row.chain_root.as_ref(), Some(&threads[0]));
    }
    assert_eq!(registry.children("lead").unwrap().len(), 2);
    assert_eq!(registry.get("lead").unwrap().unwrap().spawned, 2);
}

#[graph_test]
async fn a_message_that_a_thread_does_not_live_to_read_is_read_by_the_one_that_continues_it(bed: TestBed) {
    let nodes = r#"    first:
      action: { item_id: rye/agent/threads/thread_directive, params: { directive_name: workflows/review, inputs: { fixes: [a.rs] }, async_exec: true } }
      assign: { first: "${result.thread_id}" }
      next: late
    late:
      action: { item_id: rye/orchestrate/steer, params: { task: "${state.first}", message: Too late. } }
      next: wait
    wait:
      action: { item_id: rye/agent/threads/orchestrator, params: { operation: wait_threads, thread_ids: ["${state.first}"] } }
      next: again
    again:
      action: { item_id: rye/agent/threads/orchestrator, params: { operation: resume_thread, thread_id: "${state.first}", message: "And now?" } }
      assign: { second: "${result.thread_id}" }
      next: wait_again
    wait_again:
      action: { item_id: rye/agent/threads/orchestrator, params: { operation: wait_threads, thread_ids: ["${state.second}"] } }
      next: end
    end: { type: return, output: { first: "${state.first}", second: "${state.second}" } }
"#;
    // The first turn is in progress when the message comes, and it is the last one.
    let model = Scripted::new(|_, _| Ok(answer(json!({ "verdict": "merge", "confidence": 0.5 })))).slow();
    let output = run(&bed, &Tree::new(), &model, nodes).await.unwrap();
    assert_ne!(output["first"], output["second"]);
    let requests = model.requests.lock().unwrap();
    let [first, second] = requests.as_slice() else { panic!("{requests:?}") };
    assert!(!talk_of(first).contains("Too late."), "{first:?}");
    let talk = talk_of(second);
    let places = ["Too late.", "And now?"].map(|text| talk.matches(text).count());
    assert_eq!(places, [1, 1], "{talk}");
    assert!(talk.find("Too late.") < talk.find("And now?"), "{talk}");
}

#[graph_test]
async fn a_result_is_not_kept_if_the_directive_changed_while_the_thread_ran(bed: TestBed) {
    let (tree, cache) = (std::sync::Arc::new(Tree::new()), MemoryCache::new());
    let nodes = "    first:\n      cache_result: true\n      action: { item_id: rye/agent/threads/thread_directive, params: { directive: workflows/review, fixes: [a.rs] } }
      assign: { summary: \"${result.output}\" }\n      next: end\n    end: { type: return, output: { summary: \"${state.summary}\" } }\n";
    let other = std::sync::Arc::clone(&tree);
    let model = Scripted::new(move |turn, _| {
        // Between the two turns, somebody signs another directive.
        other.directive(&DIRECTIVE.replace("Read each file", "Read every file"));
        Ok(match turn {
            0 => calls(&[("files_list", json!({}))]),
            _ => answer(json!({ "verdict": "merge", "confidence": 0.5 })),
        })
    });
    run_with_cache(&bed, &tree, &model, nodes, &cache).await.unwrap();
    tree.directive(DIRECTIVE);
    run_with_cache(&bed, &tree, &model, nodes, &cache).await.unwrap();
    assert_eq!(model.asked(), 4, "the first result is of neither directive");
}

#[graph_test]
async fn a_message_that_was_read_is_not_sent_again_by_the_call_that_is_repeated(bed: TestBed) {
    let nodes = r#"    first:
      action: { item_id: rye/agent/threads/thread_directive, params: { directive_name: workflows/review, inputs: { fixes: [a.rs] }, async_exec: true } }
      assign: { first: "${result.thread_id}" }
      next: send
    send:
      action: { item_id: rye/agent/threads/orchestrator, params: { operation: resume_thread, thread_id: "${state.first}", message: Pay. } }
      assign: { second: "${result.thread_id}" }
      next: wait
    wait:
      action: { item_id: rye/agent/threads/orchestrator, params: { operation: wait_threads, thread_ids: ["${state.second}"] } }
      next: end
    end: { type: return, output: { first: "${state.first}", second: "${state.second}" } }
"#;
    let tree = Tree::new();
    tree.write("graphs/shop/lead.yaml", &graph(nodes));
    let library = tree.library();
    let lead = || library.graph(&tree.path("graphs/shop/lead.yaml")).unwrap();
    let model = Scripted::new(|_, request| {
        Ok(match talk_of(request).contains("Pay.") {
            true => answer(json!({ "verdict": "merge", "confidence": 0.5 })),
            false => calls(&[("files_list", json!({}))]),
        })
    })
    .slow();
    let process = |store: FaultyStore| {
        let tasks = library.tasks();
        let tools = tree.agents(&model).tasks(tasks.clone());
        let runtime: Runtime = bed.process(store).tools(tools).build().unwrap();
        tasks.serve(&runtime);
        (runtime, tasks)
    };
    let whole = || FaultyStore::new(bed.disk().clone(), |_| None);
    let (store, id) = (whole(), RunId::new("lead").unwrap());
    let (runtime, tasks) = process(store.clone());
    let options = Options { run: Some(id.clone()), durability: Durability::Exit, ..Options::default() };
    let run = runtime.start_with(options, lead(), Map::new()).await.unwrap();
    // The process dies when the thread has ended, before the run has written that it sent the message.
    loop {
        let runs = bed.disk().list().await.unwrap();
        if runs.iter().any(|run| run.owner.is_some() && run.status.has_ended()) {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    store.kill();
    drop(run);
    runtime.shutdown(std::time::Duration::ZERO).await;
    drop((runtime, tasks));
    assert_eq!(bed.disk().load(&id).await.unwrap().len(), 1, "the run has only its beginning");
    let (runtime, _tasks) = process(whole());
    let output = runtime.resume(lead(), &id).await.unwrap().await.unwrap().output;
    assert_eq!(output["first"], output["second"]);
    assert_eq!(bed.disk().list().await.unwrap().len(), 2, "the thread was not continued");
}

/// Begins a thread, continues it, and continues that one.
const TWICE: &str = r#"    first:
      action: { item_id: rye/agent/threads/thread_directive, params: { directive_name: workflows/review, inputs: { fixes: [a.rs] } } }
      assign: { first: "${result.thread_id}" }
      next: again
    again:
      action: { item_id: rye/agent/threads/orchestrator, params: { operation: resume_thread, thread_id: "${state.first}", message: "Invoice 4711." } }
      assign: { second: "${result.thread_id}" }
      next: wait
    wait:
      action: { item_id: rye/agent/threads/orchestrator, params: { operation: wait_threads, thread_ids: ["${state.second}"] } }
      on_error: third
      next: third
    third:
      action: { item_id: rye/agent/threads/orchestrator, params: { operation: resume_thread, thread_id: "${state.second}", message: "Go on." } }
      assign: { third: "${result.thread_id}" }
      next: wait_again
    wait_again:
      action: { item_id: rye/agent/threads/orchestrator, params: { operation: wait_threads, thread_ids: ["${state.third}"] } }
      next: end
    end: { type: return, output: { first: "${state.first}", third: "${state.third}" } }
"#;

#[graph_test]
async fn a_thread_that_had_no_turn_is_continued_with_all_that_it_would_have_read(bed: TestBed) {
    let model = Scripted::new(|turn, request| {
        let talk = talk_of(request);
        match turn {
            0 => Ok(calls(&[("files_list", json!({}))])),
            _ if talk.contains("Invoice 4711.") && !talk.contains("Go on.") => {
                Err(ModelError::Refused { reason: "not now".to_owned() })
            }
            _ => Ok(answer(json!({ "verdict": "merge", "confidence": 0.5 }))),
        }
    });
    run(&bed, &Tree::new(), &model, TWICE).await.unwrap();
    let requests = model.requests.lock().unwrap();
    let last = requests.last().unwrap();
    crate::contexts::assert_whole(last);
    let talk = talk_of(last);
    let places: Vec<Option<usize>> =
        ["a.rs", "it was taken", "Invoice 4711.", "Go on."].iter().map(|text| talk.find(text)).collect();
    assert!(places.is_sorted() && places[0].is_some(), "{places:?} in {talk}");
}

#[graph_test]
async fn each_thread_is_asked_again_for_an_answer_that_does_not_fit(bed: TestBed) {
    let bad = || answer(json!({ "verdict": "perhaps" }));
    let model = Scripted::new(move |_, request| {
        let talk = talk_of(request);
        // The message of the agent itself is the last one.
        Ok(match talk.rsplit("User {").next().is_some_and(|last| last.contains("This is no answer")) {
            true => answer(json!({ "verdict": "merge", "confidence": 0.5 })),
            false => bad(),
        })
    });
    run(&bed, &Tree::new(), &model, TWICE).await.unwrap();
    assert_eq!(model.asked(), 6, "twice for each of three threads");
}

/// As the older documents of the format print it: a thread for each element of a list, and a node that waits for all of them.
#[graph_test]
async fn a_list_is_reviewed_by_a_thread_for_each_element(bed: TestBed) {
    let nodes = r#"    first:
      type: foreach
      over: [a.rs, b.rs, c.rs]
      as: current_file
      action:
        primary: execute
        item_type: tool
        item_id: rye/agent/threads/thread_directive
        params:
          directive_name: workflows/review
          inputs: { fixes: ["${current_file}"] }
          async_exec: true
          limit_overrides: { turns: 3, spend: 0.05 }
      collect: thread_ids
      next: wait_for_reviews
    wait_for_reviews:
      action:
        primary: execute
        item_type: tool
        item_id: rye/agent/threads/orchestrator
        params: { operation: wait_threads, thread_ids: "${state.thread_ids}", timeout: 300 }
      assign: { review_results: "${result.results}" }
      next: end
    end: { type: return, output: { ids: "${state.thread_ids}", results: "${state.review_results}" } }
"#;
    let output = run(&bed, &Tree::new(), &scripted(), nodes).await.unwrap();
    let results = output["results"].as_array().unwrap();
    let ids: Vec<Value> = results.iter().map(|result| result["thread_id"].clone()).collect();
    assert_eq!((ids.len(), &output["ids"]), (3, &Value::Array(ids)));
    assert!(results.iter().all(|result| result["outputs"]["verdict"] == "merge"), "{output}");
}
