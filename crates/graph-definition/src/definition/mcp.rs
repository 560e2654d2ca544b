//! The `config` of a contract that says `tool_type: mcp`: the server, the tool, and the digest of its declaration.

use graph_model::mcp::McpTool;
use graph_model::name::ItemId;

use super::reader::{DefinitionReader, Spanned};
use crate::diagnostic::{SourcePlace, code};
use crate::tree::YamlTree;

const WHAT: &str = "`config` of a tool of a server";

/// Reads `config`. `None` if something in it is wrong.
pub(super) fn parse(reader: &mut DefinitionReader<'_>, tree: &YamlTree, id: &ItemId) -> Option<McpTool> {
    let fields = reader.map(tree, "`config`")?;
    let unknown = reader.only(&fields, WHAT, &["server", "tool", "schema", "idempotent"], &[]);
    let [server, tool, schema] = ["server", "tool", "schema"].map(|name| reader.required_text(&fields, WHAT, name));
    let idempotent = match fields.get("idempotent") {
        Some(tree) => reader.boolean(tree, "`idempotent`"),
        None => Some(false),
    };
    let (server, tool, schema, idempotent) = (server?, tool?, schema?, idempotent?);
    let mut wrong = |text: &Spanned<String>, message: String| {
        let place = SourcePlace::new(reader.source, text.span.clone());
        reader.diagnostics.error(code::BAD_CONTRACT, place, message);
    };
    let digest = schema.value.parse();
    if digest.is_err() {
        wrong(&schema, "`schema` is 64 lower-case hex digits, as `graph mcp import` writes them".to_owned());
    }
    // The permissions of graphs name the server by the id.
    let is_of_server = id.as_str().strip_prefix("mcp/").and_then(|id| id.strip_prefix(server.value.as_str()));
    if !is_of_server.is_some_and(|id| id.starts_with('/')) {
        wrong(&server, format!("`{id}` is no tool of the server `{0}`, whose ids begin with `mcp/{0}/`", server.value));
        return None;
    }
    let schema = digest.ok()?;
    (!unknown).then_some(McpTool { server: server.value, tool: tool.value, schema, idempotent })
}
