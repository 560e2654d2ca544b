//! A tree with an agent, its directive, and a model that replies as a test says.

use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use graph_agents::{Agents, Model, ModelError, ModelFuture, ModelReply, ModelRequest, Price, Usage};
use graph_compiler::diagnostic::Diagnostic;
use graph_runtime::Value;
use graph_runtime::dynamic::{Interpreted, Library, Toolbox};
use graph_runtime::items::Spaces;
use graph_runtime::{ActionError, ToolConfig};
use graph_signing::{ItemKind, KeyFile, KeyRing, SecretKey, sign};
use serde_json::json;

const REVIEW: &str = r#"version: "1.0.0"
tool_type: agent
description: Reviews fixes and says whether they may be merged.
config:
  directive: workflows/review
  model: { tier: general }
  tools: [files/read, files/list]
  limits: { turns: 4, tokens: 1000, spend: "0.10 USD", timeout: 2m }
config_schema:
  type: object
  properties: { fixes: { type: array, items: { type: string } } }
  required: [fixes]
result_schema:
  type: object
  properties: { verdict: { enum: [merge, reject] }, confidence: { type: number } }
  required: [verdict, confidence]
"#;

const READ: &str = "version: \"1.0.0\"\ntool_type: rust\ndescription: Reads a file.
config_schema: { type: object, properties: { path: { type: string }, lines: { type: integer } }, required: [path] }
result_schema: { type: object, properties: { text: { type: string } }, required: [text] }\n";

const LIST: &str = "version: \"1.0.0\"\ntool_type: rust\nconfig_schema: { type: object, properties: {} }
result_schema: { type: object, properties: { files: { type: array, items: { type: string } } }, required: [files] }\n";

const MERGE: &str = r#"version: "1.0.0"
tool_type: graph
executor_id: rye/core/runtimes/state-graph/runtime
category: shop
permissions: [rye.execute.tool.rye.agent.model, "rye.execute.tool.files.*", rye.execute.tool.shop.review]
config_schema:
  type: object
  properties: { fixes: { type: array, items: { type: string } } }
  required: [fixes]
config:
  start: review
  nodes:
    review:
      action: { item_id: shop/review, params: { fixes: "${inputs.fixes}" } }
      assign: { confidence: "${result.output.confidence}" }
      next: { by: result.output.verdict, to: { merge: merged, reject: rejected } }
    merged: { type: return, output: { end: merged, confidence: "${state.confidence}" } }
    rejected: { type: return, output: { end: rejected, confidence: "${state.confidence}" } }
"#;

pub(crate) const DIRECTIVE: &str = r#"# Review

<directive name="review" version="1.0.0">
  <metadata><description>Review the fixes.</description></metadata>
  <inputs><input name="fixes" type="array" required="true">The fixes</input></inputs>
  <process><step name="look">Read each file that one of {input:fixes} changes.</step></process>
</directive>
"#;

/// A reply of the model, for a request.
type Reply = dyn Fn(usize, &ModelRequest) -> Result<ModelReply, ModelError> + Send + Sync;

/// A model that replies as a function says: it gets the number of the request, from 0. Clones share what they saw.
#[derive(Clone)]
pub(crate) struct Scripted {
    reply: Arc<Reply>,
    pub(crate) requests: Arc<Mutex<Vec<ModelRequest>>>,
    price: Option<Price>,
    context: Option<u64>,
    is_slow: bool,
}

impl Scripted {
    pub(crate) fn new(
        reply: impl Fn(usize, &ModelRequest) -> Result<ModelReply, ModelError> + Send + Sync + 'static,
    ) -> Self {
        let price = Some(Price { input: 1_000_000, output: 2_000_000 });
        Self { reply: Arc::new(reply), requests: Arc::default(), price, context: None, is_slow: false }
    }

    /// The same with replies that take ten seconds.
    pub(crate) fn slow(self) -> Self {
        Self { is_slow: true, ..self }
    }

    /// The same with a context of some tokens.
    pub(crate) fn with_context(self, tokens: u64) -> Self {
        Self { context: Some(tokens), ..self }
    }

    pub(crate) fn free(self) -> Self {
        Self { price: None, ..self }
    }

    pub(crate) fn asked(&self) -> usize {
        self.requests.lock().unwrap().len()
    }
}

impl std::fmt::Debug for Scripted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scripted").field("context", &self.context).finish_non_exhaustive()
    }
}

impl Model for Scripted {
    fn reply<'a>(&'a self, request: ModelRequest, delta: &'a (dyn Fn(&str) + Send + Sync)) -> ModelFuture<'a> {
        // The number of turns that are in the talk, so that a repeated request gets the same reply.
        let turn = request.messages.iter().filter(|one| matches!(one, graph_agents::ModelMessage::Assistant { .. }));
        let reply = (self.reply)(turn.count(), &request);
        self.requests.lock().unwrap().push(request);
        Box::pin(async move {
            tokio::task::yield_now().await;
            if self.is_slow {
                tokio::time::sleep(std::time::Duration::from_secs(10)).await;
            }
            if let Ok(reply) = &reply {
                delta(&reply.text);
            }
            reply
        })
    }

    fn price(&self) -> Option<Price> {
        self.price
    }

    fn context(&self) -> Option<u64> {
        self.context
    }
}

/// A reply with calls: names and arguments.
pub(crate) fn calls(calls: &[(&str, Value)]) -> ModelReply {
    let call = |(name, arguments): &(&str, Value)| graph_agents::ModelCall {
        id: "same".to_owned(),
        name: (*name).to_owned(),
        arguments: arguments.clone(),
    };
    ModelReply {
        text: "I look.".to_owned(),
        calls: calls.iter().map(call).collect(),
        usage: Usage { input: 10, output: 5 },
        is_cut: false,
    }
}

/// A reply with an answer.
pub(crate) fn answer(value: Value) -> ModelReply {
    calls(&[("answer", value)])
}

/// The calls of tools that were made: ids and parameters.
pub(crate) type Made = Arc<Mutex<Vec<(String, Value)>>>;

/// A tree whose files are signed.
pub(crate) struct Tree {
    directory: tempfile::TempDir,
    key: SecretKey,
    pub(crate) made: Made,
}

impl Tree {
    pub(crate) fn new() -> Self {
        let tree =
            Self { directory: tempfile::tempdir().unwrap(), key: SecretKey::from_seed(&[9; 32]), made: Arc::default() };
        let trusted = KeyFile::new(tree.key.public(), "self");
        let keys = tree.path("graphs/keys");
        fs::create_dir_all(&keys).unwrap();
        let text = trusted.to_signed_toml(&tree.key, SystemTime::UNIX_EPOCH);
        fs::write(keys.join(format!("{}.toml", trusted.fingerprint)), text).unwrap();
        tree.write("graphs/tools/shop/review.yaml", REVIEW);
        tree.write("graphs/tools/files/read.yaml", READ);
        tree.write("graphs/tools/files/list.yaml", LIST);
        tree.write("graphs/shop/merge.yaml", MERGE);
        tree.directive(DIRECTIVE);
        tree
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes a file in YAML, signed.
    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, sign(ItemKind::YAML, text, &self.key, SystemTime::UNIX_EPOCH).unwrap()).unwrap();
    }

    /// Writes the settings of the tree, signed.
    pub(crate) fn settings(&self, text: &str) {
        self.write("graphs/graphs.toml", text);
    }

    /// Writes the directive, signed.
    pub(crate) fn directive(&self, text: &str) {
        self.directive_at("workflows/review", text);
    }

    /// Writes a directive with an id, signed.
    pub(crate) fn directive_at(&self, id: &str, text: &str) {
        let directive = sign(ItemKind::Directive, text, &self.key, SystemTime::UNIX_EPOCH).unwrap();
        let path = self.path(&format!(".ai/directives/{id}.md"));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, directive).unwrap();
    }

    /// Returns the text of a signed file, without its signature.
    pub(crate) fn read(&self, name: &str) -> String {
        let text = fs::read_to_string(self.path(name)).unwrap();
        text.lines().skip(1).map(|line| format!("{line}\n")).collect()
    }

    /// Changes the agent's contract.
    pub(crate) fn change(&self, from: &str, to: &str) {
        assert!(REVIEW.contains(from), "{from}");
        self.write("graphs/tools/shop/review.yaml", &REVIEW.replace(from, to));
    }

    pub(crate) fn library(&self) -> Library {
        let [read, list, delete, ruled] = [0; 4].map(|_| Arc::clone(&self.made));
        let tools = Toolbox::new()
            .with("files/read", move |_, params| {
                let path = params["path"].as_str().unwrap_or_default().to_owned();
                read.lock().unwrap().push(("files/read".to_owned(), Value::Object(params)));
                async move {
                    match path.as_str() {
                        "gone" => Err(ActionError::permanent("there is no such file")),
                        path => {
                            Ok(json!({ "text": match path.strip_prefix("big-").and_then(|size| size.parse().ok()) {
                            Some(size) => "b".repeat(size),
                            None => format!("the text of {path}"),
                        } }))
                        }
                    }
                }
            })
            .with("files/delete", move |_, params| {
                delete.lock().unwrap().push(("files/delete".to_owned(), Value::Object(params)));
                async { Ok(json!({})) }
            })
            .with("files/ruled", move |_, params| {
                ruled.lock().unwrap().push(("files/ruled".to_owned(), Value::Object(params)));
                async { Ok(json!({})) }
            })
            .with("files/list", move |_, params| {
                list.lock().unwrap().push(("files/list".to_owned(), Value::Object(params)));
                async { Ok(json!({ "files": ["a.rs"] })) }
            });
        Library::open(&self.path("graphs"), tools)
    }

    /// Returns the graph around the agent.
    pub(crate) fn graph(&self) -> Interpreted {
        let file = self.path("graphs/shop/merge.yaml");
        self.library().graph(&file).unwrap_or_else(|error| panic!("{error:?}"))
    }

    /// Returns the graph of the agent.
    pub(crate) fn agent(&self) -> Interpreted {
        let file = self.path("graphs/tools/shop/review.yaml");
        self.library().graph(&file).unwrap_or_else(|error| panic!("{error:?}"))
    }

    /// Returns why the graph around the agent cannot be loaded.
    pub(crate) fn mistakes(&self) -> Vec<Diagnostic> {
        match self.library().graph(&self.path("graphs/shop/merge.yaml")) {
            Ok(_) => Vec::new(),
            Err(error) => error.diagnostics,
        }
    }

    /// Returns the settings with the model of the agent.
    pub(crate) fn agents(&self, model: &Scripted) -> ToolConfig {
        self.agents_with(model.clone())
    }

    /// Returns the settings with some model of the agent.
    pub(crate) fn agents_with(&self, model: impl Model) -> ToolConfig {
        let ring = KeyRing::from_files([KeyFile::new(self.key.public(), "self")]);
        let spaces = Spaces::at(self.directory.path()).trusting(ring);
        ToolConfig::new().agents(Agents::new(spaces).tier("general", model))
    }
}

pub(crate) fn inputs() -> graph_runtime::Map<String, Value> {
    graph_runtime::Map::from_iter([("fixes".to_owned(), json!(["a.rs"]))])
}
