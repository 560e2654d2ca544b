//! Actions of graphs on items: fetch, execute, sign (R8–R10).

use std::sync::Arc;

use graph_model::name::ItemId;
use graph_model::program::{ItemType, Verb};
use graph_model::value::{AsView, describe};
use serde_json::{Map, Value, json};

use super::header::PageHeader;
use super::spaces::{SignedItem, Space, Spaces};
use super::yaml::mapping;
use graph_directive::{Directive, DirectiveError, insert_inputs};
use graph_engine::{ActionError, BoxFuture, PerformItems};

/// How many results a search returns by default.
const RESULTS: usize = 10;

/// Carries out actions on items. All failures are permanent, because a second attempt finds the same files.
///
/// | verb | item | |
/// |---|---|---|
/// | fetch, with `query` | any | finds items: `{ results, total, skipped }` |
/// | fetch, execute | knowledge | its text and metadata |
/// | fetch | tool, directive | its text and metadata |
/// | execute | directive | the directive with its inputs, as data (R10) |
/// | sign | any | signs it in place |
///
/// Tools are not executed here but by the engine.
///
/// ```
/// # mod graph_runtime { pub use graph_engine::*; pub mod items { pub use graph_items::*; } pub use items::Spaces; }
/// # async fn example(spaces: graph_runtime::Spaces) -> Result<(), graph_runtime::ActionError> {
/// use graph_runtime::items::Operations;
/// use graph_runtime::machine::{ItemType, Verb};
/// use graph_runtime::Map;
///
/// let query = Map::from_iter([("query".to_owned(), "returns".into())]);
/// let found = Operations::new(spaces).perform(Verb::Fetch, ItemType::Knowledge, None, query).await?;
/// println!("{} pages", found["total"]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Operations {
    spaces: Arc<Spaces>,
}

impl Operations {
    /// Returns the operations on the items of `spaces`.
    pub fn new(spaces: impl Into<Arc<Spaces>>) -> Self {
        Self { spaces: spaces.into() }
    }

    /// Returns the spaces.
    pub fn spaces(&self) -> &Spaces {
        &self.spaces
    }

    /// Carries out an action, on a thread where waiting for files blocks nothing else.
    ///
    /// The caller must first check that the run may do this.
    ///
    /// # Errors
    ///
    /// If the item cannot be found, used or signed, or if the verb does not accept the parameters.
    pub async fn perform(
        &self,
        verb: Verb,
        item: ItemType,
        id: Option<&ItemId>,
        params: Map<String, Value>,
    ) -> Result<Value, ActionError> {
        let (spaces, id) = (Arc::clone(&self.spaces), id.cloned());
        tokio::task::spawn_blocking(move || perform(&spaces, verb, item, id.as_ref(), params)).await?
    }
}

impl PerformItems for Operations {
    fn perform<'a>(
        &'a self,
        verb: Verb,
        item: ItemType,
        id: Option<&'a ItemId>,
        params: Map<String, Value>,
    ) -> BoxFuture<'a, Result<Value, ActionError>> {
        Box::pin(Self::perform(self, verb, item, id, params))
    }
}

impl From<Spaces> for Arc<dyn PerformItems> {
    fn from(spaces: Spaces) -> Self {
        Arc::new(Operations::new(spaces))
    }
}

fn perform(
    spaces: &Spaces,
    verb: Verb,
    item: ItemType,
    id: Option<&ItemId>,
    params: Map<String, Value>,
) -> Result<Value, ActionError> {
    let needed = || {
        let or = if verb == Verb::Fetch { ", or a parameter `query`" } else { "" };
        id.ok_or_else(|| ActionError::permanent(format!("to {} a {} needs an `item_id`{or}", verb.name(), item.name())))
    };
    match (verb, item) {
        (Verb::Fetch, _) if params.get("query").is_some_and(is_truthy) => search(spaces, item, &params),
        (Verb::Fetch, _) | (Verb::Execute, ItemType::Knowledge) => {
            let only = scope(&params, &["source"])?;
            Ok(fetched(&spaces.find_in(item, needed()?, only)?))
        }
        (Verb::Execute, ItemType::Directive) => execute(&spaces.find(item, needed()?)?, params),
        (Verb::Execute, ItemType::Tool) => {
            Err(ActionError::permanent("a tool is not executed from its file: the program or the engine performs it"))
        }
        (Verb::Sign, _) => {
            let space = match text(&params, "source")? {
                None => Space::Project,
                Some(name) => Space::named(name).ok_or_else(|| no_space("source", name, ""))?,
            };
            let item = spaces.sign(item, needed()?, space)?;
            Ok(Value::Object(identity(&item)))
        }
    }
}

/// Returns the fields that every result about an item has.
fn identity(item: &SignedItem) -> Map<String, Value> {
    [
        ("id", json!(item.id())),
        ("type", json!(item.item_type().name())),
        ("space", json!(item.space().name())),
        ("path", json!(item.relative_path())),
        ("signer", json!(item.signer())),
        ("digest", json!(item.digest())),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into_iter()
    .collect()
}

/// Returns an item's text and metadata. A text whose metadata cannot be read is still returned.
fn fetched(item: &SignedItem) -> Value {
    let mut result = identity(item);
    let (metadata, signed) = metadata(item);
    result.insert("content".to_owned(), json!(content(item)));
    result.insert("content_signed".to_owned(), json!(content(item) == item.covered()));
    match metadata {
        Ok(metadata) => result.insert("metadata".to_owned(), Value::Object(metadata)),
        Err(reason) => {
            result.insert("metadata".to_owned(), json!({}));
            result.insert("metadata_error".to_owned(), Value::String(reason))
        }
    };
    result.insert("metadata_signed".to_owned(), json!(signed));
    Value::Object(result)
}

/// Returns the text for a result: all of a directive, and the signed part of any other item.
fn content(item: &SignedItem) -> &str {
    match item.item_type() {
        ItemType::Directive => item.content(),
        ItemType::Tool | ItemType::Knowledge => item.covered(),
    }
}

/// Returns the item's metadata or the reason that it cannot be read, and whether all of it is signed.
fn metadata(item: &SignedItem) -> (Result<Map<String, Value>, String>, bool) {
    match item.item_type() {
        ItemType::Knowledge => {
            let header = PageHeader::of(item.content());
            (header.read().map_err(|error| error.to_string()), header.signed)
        }
        ItemType::Directive => match read(item) {
            Ok(directive) => (Ok(directive.to_json()), directive.process_signed),
            Err(error) => (Err(error.to_string()), true),
        },
        ItemType::Tool => (tool(item), true),
    }
}

/// Returns the descriptive fields at the top of a tool's file; empty if the file is not YAML.
fn tool(item: &SignedItem) -> Result<Map<String, Value>, String> {
    const FIELDS: [&str; 6] = ["version", "tool_type", "executor_id", "category", "name", "description"];
    let is_yaml = item.path().extension().is_some_and(|extension| extension == "yaml" || extension == "yml");
    if !is_yaml {
        return Ok(Map::new());
    }
    let fields = mapping(item.content()).map_err(|error| error.to_string())?;
    Ok(fields.into_iter().filter(|(name, _)| FIELDS.contains(&name.as_str())).collect())
}

/// Reads a directive. Line numbers are those of its file, where the signature is line 1.
fn read(item: &SignedItem) -> Result<Directive, DirectiveError> {
    Directive::parse(item.content()).map_err(|error| DirectiveError { line: error.line + 1, ..error })
}

/// Returns a directive with its inputs as data (R10); nothing is executed.
fn execute(item: &SignedItem, mut params: Map<String, Value>) -> Result<Value, ActionError> {
    let path = item.path().display();
    let mut directive = read(item).map_err(|error| ActionError::permanent(format!("`{path}`: {error}")))?;
    // A signature does not cover the file name. The check that the two agree keeps a directive from replacing another one.
    let stem = item.id().as_str().rsplit('/').next().unwrap_or_default();
    if directive.name != stem {
        let name = &directive.name;
        return Err(ActionError::permanent(format!(
            "`{path}` holds the directive `{name}`, and must be called `{name}.md`"
        )));
    }
    // The parameter `inputs` may hold the inputs, unless the directive has an input of that name.
    let given = match params.get_mut("inputs") {
        Some(Value::Object(inputs)) if directive.inputs.iter().all(|input| input.name != "inputs") => {
            std::mem::take(inputs)
        }
        _ => params,
    };
    let given = directive.apply(given)?;
    let mut result = directive.to_json();
    for input in result.get_mut("inputs").and_then(Value::as_array_mut).into_iter().flatten() {
        let value = input.get("name").and_then(Value::as_str).and_then(|name| given.get(name)).cloned();
        if let (Some(value), Some(input)) = (value, input.as_object_mut()) {
            input.insert("value".to_owned(), value);
        }
    }
    result.insert("content".to_owned(), Value::String(insert_inputs(item.content(), &given)));
    result.insert("content_signed".to_owned(), json!(item.content() == item.covered()));
    result.extend(identity(item));
    Ok(Value::Object(result))
}

/// Finds items that contain all words of `query` in the id, the title, the description or the text. The best match comes first.
fn search(spaces: &Spaces, item: ItemType, params: &Map<String, Value>) -> Result<Value, ActionError> {
    let query = text(params, "query")?.unwrap_or_default().to_lowercase();
    let words: Vec<&str> = query.split_whitespace().collect();
    let limit = match params.get("limit").filter(|limit| is_truthy(limit)) {
        None => RESULTS,
        Some(limit) => limit.as_u64().and_then(|limit| usize::try_from(limit).ok()).ok_or_else(|| {
            ActionError::permanent(format!("`limit` must be a whole number, and is {}", describe(limit.view())))
        })?,
    };
    let (items, skipped) = spaces.list(item, scope(params, &["scope", "source"])?)?;
    let mut results: Vec<(usize, Value)> = items.iter().filter_map(|item| matched(item, &words)).collect();
    // The sort is stable: equally good results keep the order of spaces and ids.
    results.sort_by(|(a, _), (b, _)| b.cmp(a));
    let total = results.len();
    let results: Vec<Value> = results.into_iter().take(limit).map(|(_, result)| result).collect();
    Ok(json!({ "results": results, "total": total, "skipped": skipped }))
}

/// Returns the score of an item and its entry in the results; `None` if a word does not occur in it.
fn matched(item: &SignedItem, words: &[&str]) -> Option<(usize, Value)> {
    let (metadata, _) = metadata(item);
    let metadata = metadata.unwrap_or_default();
    let said = |names: &[&str]| names.iter().find_map(|name| metadata.get(*name)?.as_str());
    let (title, description) = (said(&["title", "name"]), said(&["description"]));
    let lower = |text: Option<&str>| text.unwrap_or_default().to_lowercase();
    let places = [lower(Some(item.id().as_str())), lower(title), lower(description), lower(Some(content(item)))];
    let mut score = 0;
    for word in words {
        let place = places.iter().position(|place| place.contains(word))?;
        score += places.len() - place;
    }
    let mut result = Map::new();
    result.insert("id".to_owned(), json!(item.id()));
    result.insert("type".to_owned(), json!(item.item_type().name()));
    result.insert("space".to_owned(), json!(item.space().name()));
    result.extend(title.map(|title| ("title".to_owned(), json!(title))));
    result.extend(description.map(|description| ("description".to_owned(), json!(description))));
    result.insert("path".to_owned(), json!(item.relative_path()));
    Some((score, Value::Object(result)))
}

/// Returns the space that the parameters `names` select; `None` for all spaces.
fn scope(params: &Map<String, Value>, names: &[&'static str]) -> Result<Option<Space>, ActionError> {
    let mut named: Option<(&str, &str)> = None;
    for name in names.iter().copied() {
        let Some(value) = text(params, name)? else { continue };
        match named {
            Some((other, before)) if before != value => {
                return Err(ActionError::permanent(format!("`{other}` is `{before}`, and `{name}` is `{value}`")));
            }
            _ => named = Some((name, value)),
        }
    }
    match named {
        None | Some((_, "all")) => Ok(None),
        Some((name, value)) => Space::named(value).map(Some).ok_or_else(|| no_space(name, value, " or `all`")),
    }
}

fn no_space(name: &str, value: &str, or: &str) -> ActionError {
    ActionError::permanent(format!("`{name}` is `{value}`, and must be `project`, `user`, `system`{or}"))
}

/// Returns the string parameter `name`, if it is given.
fn text<'p>(params: &'p Map<String, Value>, name: &str) -> Result<Option<&'p str>, ActionError> {
    match params.get(name).filter(|value| is_truthy(value)) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => {
            Err(ActionError::permanent(format!("`{name}` must be a text, and is {}", describe(other.view()))))
        }
    }
}

/// Whether a parameter counts as given: an empty, zero or false value does not (R9).
fn is_truthy(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(value) => *value,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(list) => !list.is_empty(),
        Value::Object(map) => !map.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{STATE_GRAPH, Tree, id, key};

    fn params(value: Value) -> Map<String, Value> {
        let Value::Object(map) = value else { unreachable!("tests give objects") };
        map
    }

    async fn done(spaces: &Spaces, verb: Verb, item: ItemType, name: &str, given: Value) -> Result<Value, String> {
        let id = Some(name).filter(|name| !name.is_empty()).map(id);
        let result = Operations::new(spaces.clone()).perform(verb, item, id.as_ref(), params(given)).await;
        result.map_err(|error| {
            assert_eq!(error.category(), graph_engine::Category::Permanent);
            error.to_string()
        })
    }

    #[tokio::test]
    async fn fetch_returns_page_text_and_header_and_marks_what_is_signed() {
        let tree = Tree::new();
        tree.sign("knowledge/a/plain.md", "---\ntitle: A\ntags: [x]\n---\n\nbody\n", 1);
        tree.sign("knowledge/fenced.md", "```yaml\ntitle: B\n```\n\nbody\n", 1);
        tree.sign("knowledge/broken.md", "---\na: 1\na: 2\n---\nbody\n", 1);
        let spaces = Spaces::at(tree.path());
        let fetch = |name| done(&spaces, Verb::Fetch, ItemType::Knowledge, name, json!({}));
        let plain = fetch("a/plain").await.unwrap();
        let expected = json!({
            "id": "a/plain", "type": "knowledge", "space": "project", "path": ".ai/knowledge/a/plain.md",
            "signer": key(1).public().fingerprint().as_str(), "digest": plain["digest"],
            "content": "body", "content_signed": true,
            "metadata": {"title": "A", "tags": ["x"]}, "metadata_signed": false,
        });
        assert_eq!(plain, expected);
        let fenced = fetch("fenced").await.unwrap();
        assert_eq!((&fenced["metadata"], &fenced["metadata_signed"]), (&json!({"title": "B"}), &json!(true)));
        let error = fetch("broken").await.unwrap()["metadata_error"].to_string();
        assert!(error.contains("the key `a` occurs twice in a mapping"), "{error}");
        let executed = done(&spaces, Verb::Execute, ItemType::Knowledge, "fenced", json!({})).await.unwrap();
        assert_eq!(executed, fenced);
    }

    #[tokio::test]
    async fn a_tool_is_fetched_as_text_and_never_executed() {
        let tree = Tree::new();
        tree.sign("tools/t.yaml", "version: '1'\ntool_type: rust\ndescription: Does.\nx: 1\n", 1);
        tree.sign("tools/p.py", "print(1)\n", 1);
        let spaces = Spaces::at(tree.path());
        let tool = done(&spaces, Verb::Fetch, ItemType::Tool, "t", json!({})).await.unwrap();
        assert_eq!(tool["metadata"], json!({"version": "1", "tool_type": "rust", "description": "Does."}));
        let python = done(&spaces, Verb::Fetch, ItemType::Tool, "p", json!({})).await.unwrap();
        assert_eq!((&python["content"], &python["metadata"]), (&json!("print(1)\n"), &json!({})));
        assert!(done(&spaces, Verb::Execute, ItemType::Tool, "t", json!({})).await.is_err());
    }

    #[tokio::test]
    async fn source_names_the_space() {
        let (project, user) = (Tree::new(), Tree::new());
        project.sign("knowledge/a.md", "of the project\n", 1);
        user.sign("knowledge/a.md", "of the user\n", 1);
        let spaces = Spaces::at(project.path()).user(user.path());
        let fetch = |source| done(&spaces, Verb::Fetch, ItemType::Knowledge, "a", json!({ "source": source }));
        assert_eq!(fetch("").await.unwrap()["content"], "of the project\n");
        assert_eq!(fetch("all").await.unwrap()["space"], "project");
        assert_eq!(fetch("user").await.unwrap()["content"], "of the user\n");
        assert!(fetch("system").await.unwrap_err().contains("no system space is set"));
        assert_eq!(
            fetch("local").await.unwrap_err(),
            "`source` is `local`, and must be `project`, `user`, `system` or `all`"
        );
    }

    #[tokio::test]
    async fn a_directive_is_executed_as_data_with_its_inputs() {
        let tree = Tree::new();
        tree.sign("directives/rye/agent/graphs/state_graph.md", STATE_GRAPH, 1);
        let spaces = Spaces::at(tree.path());
        let name = "rye/agent/graphs/state_graph";
        let execute = |given| done(&spaces, Verb::Execute, ItemType::Directive, name, given);
        let result = execute(json!({"inputs": {"graph_id": "shop/order"}})).await.unwrap();
        assert_eq!(result, execute(json!({"graph_id": "shop/order"})).await.unwrap());
        assert_eq!(result["name"], "state_graph");
        assert_eq!(result["metadata"]["permissions"], json!(["rye.execute.tool.*"]));
        assert_eq!(result["inputs"][0]["value"], "shop/order");
        assert_eq!(result["inputs"][1].get("value"), None);
        assert_eq!(result["process"][0]["text"], "Make sure that shop/order is not empty.\nElse stop.");
        assert_eq!(result["success_criteria"][0], "shop/order was run");
        assert_eq!((&result["process_signed"], &result["content_signed"]), (&json!(false), &json!(false)));
        assert!(result["content"].as_str().unwrap().contains("item_id=\"shop/order\""));
        assert_eq!(
            execute(json!({})).await.unwrap_err(),
            "the inputs do not fit the directive `state_graph`: missing required input: 'graph_id'"
        );
        let fetched = done(&spaces, Verb::Fetch, ItemType::Directive, name, json!({})).await.unwrap();
        assert_eq!(fetched["metadata"]["process"][0]["name"], "validate_input");
        assert_eq!(fetched["metadata_signed"], false);
    }

    #[tokio::test]
    async fn a_misplaced_or_invalid_directive_is_refused_with_its_file() {
        let tree = Tree::new();
        tree.sign("directives/other.md", STATE_GRAPH, 1);
        let path = tree.sign("directives/bad.md", "<directive name=\"bad\"></directive>\n", 1);
        let spaces = Spaces::at(tree.path());
        let execute = |name| done(&spaces, Verb::Execute, ItemType::Directive, name, json!({"graph_id": "a"}));
        let error = execute("other").await.unwrap_err();
        assert!(error.ends_with("holds the directive `state_graph`, and must be called `state_graph.md`"), "{error}");
        let expected = format!("`{}`: line 2: `<directive>` has no `version`", path.display());
        assert_eq!(execute("bad").await.unwrap_err(), expected);
    }

    #[tokio::test]
    async fn search_matches_all_words_best_first_and_lists_only_verified() {
        let (project, user) = (Tree::new(), Tree::new());
        project.sign("knowledge/notes/one.md", "---\ntitle: About refunds\n---\nOn money.\n", 1);
        project.sign("knowledge/notes/two.md", "Refunds cost MONEY.\n", 1);
        project.sign("knowledge/refunds/money.md", "x\n", 1);
        project.write("knowledge/notes/unsigned.md", "refunds money\n");
        user.sign("knowledge/notes/three.md", "refunds, money\n", 1);
        user.sign("knowledge/notes/two.md", "shadowed refunds money\n", 1);
        let spaces = Spaces::at(project.path()).user(user.path());
        let search = |given| done(&spaces, Verb::Fetch, ItemType::Knowledge, "", given);
        let found = search(json!({"query": "Money  REFUNDS"})).await.unwrap();
        let ids = |found: &Value| {
            let results = found["results"].as_array().unwrap();
            results.iter().map(|result| result["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(ids(&found), ["refunds/money", "notes/one", "notes/two", "notes/three"]);
        assert_eq!((&found["total"], &found["skipped"]), (&json!(4), &json!(1)));
        let expected = json!({
            "id": "notes/one", "type": "knowledge", "space": "project", "title": "About refunds",
            "path": ".ai/knowledge/notes/one.md",
        });
        assert_eq!(found["results"][1], expected);

        let few = search(json!({"query": "money", "limit": 1, "scope": "user"})).await.unwrap();
        assert_eq!((ids(&few), &few["total"]), (vec!["notes/three".to_owned()], &json!(2)));
        assert_eq!(ids(&search(json!({"query": "nowhere"})).await.unwrap()), [""; 0]);
        for (given, expected) in [
            (json!({"query": "a", "limit": "3"}), "`limit` must be a whole number, and is "),
            (json!({"query": ["a"]}), "`query` must be a text, and is "),
            (json!({"query": "a", "scope": "user", "source": "system"}), "`scope` is `user`, and `source` is `system`"),
        ] {
            let error = search(given).await.unwrap_err();
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[tokio::test]
    async fn an_id_is_needed_unless_something_is_searched() {
        let spaces = Spaces::new();
        let fetch = done(&spaces, Verb::Fetch, ItemType::Tool, "", json!({"query": ""})).await;
        assert_eq!(fetch.unwrap_err(), "to fetch a tool needs an `item_id`, or a parameter `query`");
        let sign = done(&spaces, Verb::Sign, ItemType::Directive, "", json!({})).await;
        assert_eq!(sign.unwrap_err(), "to sign a directive needs an `item_id`");
        let sign = done(&spaces, Verb::Sign, ItemType::Directive, "a", json!({})).await;
        assert!(sign.unwrap_err().starts_with("there is no key to sign with; make one with `graph keys generate`"));
    }

    #[tokio::test]
    async fn a_signed_item_can_be_fetched() {
        let tree = Tree::new();
        tree.write("directives/state_graph.md", STATE_GRAPH);
        let spaces = Spaces::at(tree.path()).sign_with(key(1));
        let run = |verb, given| done(&spaces, verb, ItemType::Directive, "state_graph", given);
        assert!(run(Verb::Fetch, json!({})).await.unwrap_err().contains("it is not signed"));
        let signed = run(Verb::Sign, json!({})).await.unwrap();
        assert_eq!(signed["path"], ".ai/directives/state_graph.md");
        assert_eq!(signed["signer"], key(1).public().fingerprint().as_str());
        let fetched = run(Verb::Fetch, json!({})).await.unwrap();
        assert_eq!(fetched["digest"], signed["digest"]);
        assert!(run(Verb::Sign, json!({"source": "user"})).await.is_err());
    }
}
