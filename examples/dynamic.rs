//! Loads graphs while it runs: a new version replaces the old one, unless it has mistakes.
//!
//! `cargo run --example dynamic` makes a tree of graphs in a temporary directory, changes it, and prints how the program
//! follows. `docs/dynamic.md` explains it.

use std::collections::HashMap;
use std::error::Error;
use std::fmt::Display;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use graph_runtime::dynamic::{Interpreted, Library, Toolbox};
use graph_runtime::store::RunSummary;
use graph_runtime::{
    ActionError, Call, Digest, ItemId, Machine, Map, MemoryStore, PublicKey, ResumeAll, Runtime, SecretKey, Value,
};
use graph_signing::{ItemKind, KeyFile};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::Semaphore;

/// The graphs that the program starts.
const IDS: [&str; 1] = ["shop/quote"];

/// The loaded graphs.
struct Graphs {
    tools: Toolbox,
    /// The authors whose graphs are loaded.
    authors: Vec<PublicKey>,
    /// The newest version of each graph, by its id.
    newest: HashMap<String, Interpreted>,
    /// Every version that was loaded, by its meaning.
    versions: HashMap<Digest, Interpreted>,
}

impl Graphs {
    fn new(tools: Toolbox, authors: Vec<PublicKey>) -> Self {
        Self { tools, authors, newest: HashMap::new(), versions: HashMap::new() }
    }

    /// Loads the graphs in a directory, and returns what changed. On an error, the graphs stay as they were.
    fn load(&mut self, directory: &Path) -> Result<Vec<String>, Box<dyn Error>> {
        // A library reads each file once, so only a new one sees changes.
        let library = Library::open(directory, self.tools.clone());
        // The tree names the keys that it trusts, so somebody who can write there could add one.
        if let Some(file) = library.ring().keys().find(|file| !self.authors.contains(&file.key)) {
            return Err(format!("the key {} of {} is not an author's", file.fingerprint, file.owner).into());
        }
        let mut loaded = Vec::new();
        for id in IDS {
            let file = library.find(&ItemId::new(id)?).ok_or_else(|| format!("there is no file of `{id}`"))?;
            let graph = library.graph(&file)?;
            let missing = graph.missing_tools();
            if !missing.is_empty() {
                return Err(format!("`{id}` calls `{}`, which nothing performs", missing.join("`, `")).into());
            }
            loaded.push(graph);
        }
        // From here on nothing fails: all graphs are replaced, or none.
        let mut changes = Vec::new();
        for graph in loaded {
            let name = format!("{} {}", graph.id(), graph.interface().version);
            match self.newest.get(graph.id()) {
                None => changes.push(name),
                Some(before) if before.graph().meaning() == graph.graph().meaning() => {}
                Some(before) => changes.push(format!("{name}; {}", graph.changes_since(before))),
            }
            self.versions.extend(graph.graph().meaning().map(|meaning| (meaning, graph.clone())));
            self.newest.insert(graph.id().to_owned(), graph);
        }
        Ok(changes)
    }

    /// Returns the newest version of a graph.
    fn newest(&self, id: &str) -> Result<Interpreted, String> {
        self.newest.get(id).cloned().ok_or_else(|| format!("there is no graph `{id}`"))
    }

    /// Returns the version that a run began under.
    fn version_of(&self, run: &RunSummary) -> Option<Interpreted> {
        self.versions.get(&run.meaning?).cloned()
    }
}

/// Runs a graph with inputs in JSON, and returns its output.
async fn run(runtime: &Runtime, graphs: &Graphs, id: &str, inputs: &str) -> Result<Value, Box<dyn Error>> {
    let inputs: Map<String, Value> = serde_json::from_str(inputs)?;
    Ok(runtime.start(graphs.newest(id)?, inputs).await?.await?.output)
}

/// Resumes the runs that were stopped, each under the version that it began with, and returns their outputs.
async fn resume(runtime: &Runtime, graphs: &Graphs) -> Result<Vec<Value>, Box<dyn Error>> {
    let mut outputs = Vec::new();
    for resumed in runtime.resume_all(ResumeAll::default(), |run| graphs.version_of(run)).await? {
        outputs.push(resumed.run?.await?.output);
    }
    Ok(outputs)
}

/// The parameters of `shop/price`. They fit: the runtime compares them with the tool's contract before the call.
#[derive(Deserialize)]
struct Price {
    article: String,
    quantity: i64,
}

/// The tools that graphs may call. `shop/price` waits until `clerk` has a permit.
fn tools(clerk: Arc<Semaphore>) -> Toolbox {
    let price = move |_: Call, params: Map<String, Value>| {
        let clerk = Arc::clone(&clerk);
        async move {
            let Price { article, quantity } = serde_json::from_value(params.into())?;
            clerk.acquire().await?.forget();
            match article.as_str() {
                "tea" => Ok(json!({ "cents": 450 * quantity })),
                _ => Err(ActionError::permanent(format!("nobody knows the price of {article}"))),
            }
        }
    };
    let discount = |_: Call, params: Map<String, Value>| async move {
        let cents = params.get("cents").and_then(Value::as_i64).ok_or("there is no price")?;
        Ok(json!({ "cents": cents * 9 / 10 }))
    };
    Toolbox::new().with("shop/price", price).with("shop/discount", discount)
}

/// Returns the runtime. Its grants limit the graphs, whatever permissions their files declare.
fn runtime(store: MemoryStore, key: SecretKey) -> Result<Runtime, Box<dyn Error>> {
    Ok(Runtime::builder()
        .store(store)
        .sign_with(key)
        .grants(["rye.execute.tool.shop.price", "rye.execute.tool.shop.discount"])?
        .build()?)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    for line in demonstration(directory.path()).await? {
        println!("{line}");
    }
    Ok(())
}

/// The inputs of a quote.
const TEA: &str = r#"{ "article": "tea", "quantity": 2 }"#;

/// Changes the graphs in a directory while runs are in progress, and returns a line for each result.
async fn demonstration(directory: &Path) -> Result<Vec<String>, Box<dyn Error>> {
    let mut lines = Vec::new();
    let mut show = |what: &str, result: &dyn Display| lines.push(format!("{what}: {result}"));

    let author = Author::of(directory, SecretKey::generate()?)?;
    author.publish("tools/shop/price.yaml", PRICE)?;
    author.publish("quote.yaml", QUOTE)?;
    let clerk = Arc::new(Semaphore::new(1));
    let runtime = runtime(MemoryStore::new(), SecretKey::generate()?)?;
    let mut graphs = Graphs::new(tools(Arc::clone(&clerk)), vec![author.key.public()]);
    show("loaded", &graphs.load(directory)?.join(", "));
    show("a new run", &run(&runtime, &graphs, "shop/quote", TEA).await?);

    // Two runs wait for the clerk. One of them is dropped, as if its process had died.
    let waiting = runtime.start(graphs.newest("shop/quote")?, serde_json::from_str(TEA)?).await?;
    let stopped = runtime.start(graphs.newest("shop/quote")?, serde_json::from_str(TEA)?).await?;
    stopped.abort();
    drop(stopped.await);

    author.publish("tools/shop/discount.yaml", DISCOUNT)?;
    author.publish("quote.yaml", &quote_with_discount())?;
    show("loaded", &graphs.load(directory)?.join(", "));
    clerk.add_permits(3);
    show("the run in progress", &waiting.await?.output);
    for output in resume(&runtime, &graphs).await? {
        show("the resumed run", &output);
    }
    show("a new run", &run(&runtime, &graphs, "shop/quote", TEA).await?);

    // Somebody without the key changes the file.
    let file = directory.join("quote.yaml");
    fs::write(&file, fs::read_to_string(&file)?.replace("maximum: 100", "maximum: 1000"))?;
    if let Err(error) = graphs.load(directory) {
        show("refused", &error.to_string().lines().next().unwrap_or_default());
    }
    clerk.add_permits(1);
    show("a new run", &run(&runtime, &graphs, "shop/quote", TEA).await?);
    Ok(lines)
}

/// The author of the graphs, with a key that the tree trusts.
struct Author<'a> {
    tree: &'a Path,
    key: SecretKey,
}

impl<'a> Author<'a> {
    /// Makes a tree that trusts the author's key.
    fn of(tree: &'a Path, key: SecretKey) -> Result<Self, Box<dyn Error>> {
        let file = KeyFile::new(key.public(), "the author");
        fs::create_dir_all(tree.join("keys"))?;
        fs::create_dir_all(tree.join("tools/shop"))?;
        fs::write(tree.join(format!("keys/{}.toml", file.fingerprint)), file.to_signed_toml(&key, SystemTime::now()))?;
        Ok(Self { tree, key })
    }

    /// Signs a text and writes it into the tree.
    fn publish(&self, name: &str, text: &str) -> Result<(), Box<dyn Error>> {
        let signed = graph_signing::sign(ItemKind::YAML, text, &self.key, SystemTime::now())?;
        Ok(fs::write(self.tree.join(name), signed)?)
    }
}

/// The first version of the graph.
const QUOTE: &str = r#"
version: "1.0.0"
tool_type: graph
executor_id: rye/core/runtimes/state-graph/runtime
category: shop
permissions: [rye.execute.tool.shop.price]
config_schema:
  type: object
  properties:
    article: { type: string }
    quantity: { type: integer, minimum: 1, maximum: 100 }
  required: [article, quantity]
config:
  start: price
  nodes:
    price:
      action:
        item_id: shop/price
        params: { article: "${inputs.article}", quantity: "${inputs.quantity}" }
      assign: { cents: "${result.cents}" }
      next: quoted
    quoted: { type: return, output: { cents: "${state.cents}" } }
"#;

/// Returns the second version of the graph.
fn quote_with_discount() -> String {
    let discount = r#"
    discount:
      action: { item_id: shop/discount, params: { cents: "${state.cents}" } }
      assign: { cents: "${result.cents}" }
      next: quoted
    quoted:"#;
    QUOTE
        .replace("1.0.0", "2.0.0")
        .replace("[rye.execute.tool.shop.price]", "[rye.execute.tool.shop.price, rye.execute.tool.shop.discount]")
        .replace("next: quoted", "next: discount")
        .replace("\n    quoted:", discount)
}

/// The contract of `shop/price`.
const PRICE: &str = r#"
version: "1.0.0"
tool_type: rust
config_schema:
  type: object
  properties: { article: { type: string }, quantity: { type: integer } }
  required: [article, quantity]
result_schema: { type: object, properties: { cents: { type: integer } }, required: [cents] }
"#;

/// The contract of `shop/discount`.
const DISCOUNT: &str = r#"
version: "1.0.0"
tool_type: rust
config_schema: { type: object, properties: { cents: { type: integer } }, required: [cents] }
result_schema: { type: object, properties: { cents: { type: integer } }, required: [cents] }
"#;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// The lines that the program prints.
    const LINES: &str = r#"
loaded: shop/quote 1.0.0
a new run: {"cents":900}
loaded: shop/quote 2.0.0; added: `discount`; changed: `price`; changed besides nodes: `permissions`
the run in progress: {"cents":900}
the resumed run: {"cents":900}
a new run: {"cents":810}
refused: error[G0011]: `quote.yaml` was changed after it was signed
a new run: {"cents":810}
"#;

    #[tokio::test]
    async fn a_run_keeps_its_version_and_a_refused_one_is_not_used() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(demonstration(directory.path()).await.unwrap().join("\n"), LINES.trim());
    }

    /// Returns no graphs yet, with tools whose clerk has some permits, and with one author.
    fn graphs(permits: usize, author: &SecretKey) -> Graphs {
        Graphs::new(tools(Arc::new(Semaphore::new(permits))), vec![author.public()])
    }

    /// Makes a tree with a graph and the contracts of its tools.
    fn write_tree(directory: &Path, author: &SecretKey, quote: &str) {
        let author = Author::of(directory, author.clone()).unwrap();
        author.publish("tools/shop/price.yaml", PRICE).unwrap();
        author.publish("tools/shop/discount.yaml", DISCOUNT).unwrap();
        author.publish("quote.yaml", quote).unwrap();
    }

    #[test]
    fn a_graph_whose_tool_nothing_performs_is_refused() {
        let (directory, author) = (tempfile::tempdir().unwrap(), SecretKey::generate().unwrap());
        let gift = QUOTE.replace("shop/price", "shop/gift").replace("shop.price", "shop.gift");
        write_tree(directory.path(), &author, &gift);
        let error = graphs(0, &author).load(directory.path()).unwrap_err();
        assert_eq!(error.to_string(), "`shop/quote` calls `shop/gift`, which nothing performs");
    }

    #[test]
    fn a_tree_that_trusts_another_key_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let (author, stranger) = (SecretKey::generate().unwrap(), SecretKey::generate().unwrap());
        write_tree(directory.path(), &stranger, QUOTE);
        let error = graphs(0, &author).load(directory.path()).unwrap_err().to_string();
        assert!(error.ends_with("is not an author's"), "{error}");
    }

    #[tokio::test]
    async fn a_tree_that_was_kept_serves_its_runs_after_a_restart() {
        let (releases, author) = (tempfile::tempdir().unwrap(), SecretKey::generate().unwrap());
        let (first, second) = (releases.path().join("1"), releases.path().join("2"));
        write_tree(&first, &author, QUOTE);
        write_tree(&second, &author, &quote_with_discount());
        let (store, key) = (MemoryStore::new(), SecretKey::generate().unwrap());

        // The first process ends while its run waits for the clerk.
        let process = runtime(store.clone(), key.clone()).unwrap();
        let mut loaded = graphs(0, &author);
        loaded.load(&first).unwrap();
        let quote = loaded.newest("shop/quote").unwrap();
        let run = process.start(quote, serde_json::from_str(TEA).unwrap()).await.unwrap();
        process.shutdown(Duration::ZERO).await;
        assert!(run.await.is_err());

        let process = runtime(store, key).unwrap();
        let mut loaded = graphs(1, &author);
        // The newest release comes last.
        for release in [&first, &second] {
            loaded.load(release).unwrap();
        }
        assert_eq!(resume(&process, &loaded).await.unwrap(), [json!({ "cents": 900 })]);
        assert_eq!(loaded.newest("shop/quote").unwrap().interface().version, "2.0.0");
    }
}
