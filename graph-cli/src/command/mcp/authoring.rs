//! The tools for assistants that write graphs: `check` and `explain`. They execute and write nothing.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use graph_compiler::project::Project;
use graph_mcp::SideTool;
use graph_model::name::ItemId;
use graph_runtime::{Map, Value};
use serde_json::json;

use crate::command::{check, explain};
use crate::outcome::Error;

/// The most bytes of a graph's text.
const MOST_BYTES: usize = 256 * 1024;

/// Returns the tools. The contracts and graphs that a text names are those of the tree of the first path.
pub(super) fn tools(paths: &[PathBuf]) -> Result<[SideTool; 2], Error> {
    let working = std::env::current_dir()?;
    let first = paths.first().map_or_else(|| working.join("graphs"), |path| working.join(path));
    let root = if first.is_file() { Project::around(&working, &first).root().to_owned() } else { first };
    Ok([check_tool(root), explain_tool()])
}

fn check_tool(root: PathBuf) -> SideTool {
    let input = json!({
        "type": "object",
        "properties": {
            "yaml": { "type": "string", "description": "The text of a graph." },
            "id": {
                "type": "string",
                "description": "The id of the graph, as `shop/order`: its category and its name.",
            },
        },
        "required": ["yaml", "id"],
        "additionalProperties": false,
    });
    let output = json!({
        "type": "object",
        "properties": {
            "summary": { "type": "object" },
            "diagnostics": { "type": "array", "items": { "type": "object" } },
        },
        "required": ["summary", "diagnostics"],
    });
    SideTool {
        name: "check",
        description: "Checks the text of a state graph as the compiler does, and returns its mistakes with their places and fixes. \
                      Nothing is executed or written. A draft is not signed yet, which G0010 reports.",
        input: object(input),
        output: object(output),
        call: Arc::new(move |arguments| check(&root, &arguments)),
    }
}

fn check(root: &Path, arguments: &Map<String, Value>) -> Result<Value, String> {
    let text = |name: &str| arguments.get(name).and_then(Value::as_str).ok_or_else(|| format!("`{name}` is a text"));
    let (yaml, id) = (text("yaml")?, text("id")?);
    if yaml.len() > MOST_BYTES {
        return Err(format!("the text has more than {MOST_BYTES} bytes"));
    }
    // An id has no `..` and no root, so the file would be in the tree.
    let id = ItemId::new(id).map_err(|error| format!("`id`: {error}"))?;
    check::document_of_text(root, &root.join(format!("{id}.yaml")), yaml).map_err(|error| error.to_string())
}

fn explain_tool() -> SideTool {
    let code = json!({ "type": "string", "description": "A code of a diagnostic, as `G0102`." });
    let input = json!({
        "type": "object",
        "properties": { "code": code },
        "required": ["code"],
        "additionalProperties": false,
    });
    let output = json!({
        "type": "object",
        "properties": {
            "code": { "type": "string" },
            "title": { "type": "string" },
            "text": { "type": "string" },
        },
        "required": ["code", "title", "text"],
    });
    SideTool {
        name: "explain",
        description: "Explains a code of a diagnostic of state graphs, and how to correct the mistake.",
        input: object(input),
        output: object(output),
        call: Arc::new(|arguments| {
            let code = arguments.get("code").and_then(Value::as_str).ok_or("`code` is a text")?;
            let code = explain::named(code)?;
            Ok(json!({ "code": code.id, "title": code.title, "text": explain::text(code) }))
        }),
    }
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}
