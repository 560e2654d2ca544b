//! Graphs as the compiler hands them over: a [`Program`] whose texts were parsed.
//!
//! A [`GraphIr`] owns its data, and its conditions and templates are types. The interpreter uses it as it is. Generated
//! code has it as a [`Program`], which [`GraphIr::read`] reads back.

use serde_json::Value;

use crate::program::{Executor, ItemType, NodeBody, Program, Settings, THREAD_DIRECTIVE, Verb};

/// A checked graph. Its fields are those of a [`Program`].
#[derive(Debug, Clone, PartialEq)]
pub struct GraphIr {
    /// The graph's id.
    pub id: String,
    /// The version that its author gave it.
    pub version: String,
    /// The file it was compiled from, relative to the package.
    pub source: String,
    /// The SHA-256 that its signature covers, in hex.
    pub digest: String,
    /// The fingerprint of the key that signed it.
    pub signer: String,
    /// The first node.
    pub start: u16,
    /// The settings of a run.
    pub settings: Settings,
    /// The capability patterns that the graph declares.
    pub permissions: Vec<String>,
    /// The environment variables that must be set.
    pub env: Vec<String>,
    /// The keys of the state.
    pub keys: Vec<KeyIr>,
    /// The tools and items that its nodes and hooks call, each once.
    pub tools: Vec<ToolIr>,
    /// The nodes, in the order of the file.
    pub nodes: Vec<NodeIr>,
}

/// A key of the state.
#[derive(Debug, Clone, PartialEq)]
pub struct KeyIr {
    /// Its name.
    pub name: String,
    /// Its first value, where `config.state` gives one.
    pub initial: Option<Value>,
}

/// A tool or another item that nodes and hooks call. Its fields are those of a [`Tool`](crate::program::Tool).
#[derive(Debug, Clone, PartialEq)]
pub struct ToolIr {
    /// Its id. Empty if the id is a template, which is known only at each call.
    pub id: String,
    /// The operation on the item.
    pub verb: Verb,
    /// The kind of the item.
    pub item: ItemType,
    /// The executor of its calls.
    pub by: Executor,
    /// Its parameters in order; `None` if no contract names them: then all of them are one object.
    pub params: Option<Vec<ParamIr>>,
    /// Whether a contract describes its result.
    pub typed: bool,
    /// Whether a part of its result is of no known type, and may be nested to any depth.
    pub nests: bool,
}

/// A parameter of a tool.
#[derive(Debug, Clone, PartialEq)]
pub struct ParamIr {
    /// Its name.
    pub name: String,
    /// The value that the tool receives if nothing, or null, is given.
    pub default: Option<Value>,
}

/// A node.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeIr {
    /// Its name.
    pub name: String,
    /// Its contents.
    pub body: NodeBody,
}

impl GraphIr {
    /// Reads the texts of a program.
    ///
    /// # Errors
    ///
    /// The mistake in the first text that cannot be read.
    pub fn read(program: &Program<'_>) -> Result<Self, String> {
        let Program { id, version, source, digest, signer, start, settings, permissions, env, keys, tools, nodes } =
            *program;
        let texts = |list: &[&str]| list.iter().map(|&text| text.to_owned()).collect();
        let key = |key: &crate::program::Key<'_>| {
            Ok(KeyIr { name: key.name.to_owned(), initial: key.initial.map(json).transpose()? })
        };
        let node = |(name, body): &(&str, &str)| {
            let body = serde_json::from_str(body).map_err(|error| format!("node `{name}`: {error}"))?;
            Ok(NodeIr { name: (*name).to_owned(), body })
        };
        Ok(Self {
            id: id.to_owned(),
            version: version.to_owned(),
            source: source.to_owned(),
            digest: digest.to_owned(),
            signer: signer.to_owned(),
            start,
            settings: serde_json::from_str(settings).map_err(|error| error.to_string())?,
            permissions: texts(permissions),
            env: texts(env),
            keys: keys.iter().map(key).collect::<Result<_, String>>()?,
            tools: tools.iter().map(ToolIr::read).collect::<Result<_, _>>()?,
            nodes: nodes.iter().map(node).collect::<Result<_, String>>()?,
        })
    }
}

impl ToolIr {
    /// Whether the program answers its calls, with the result that a contract describes and no envelope around it.
    pub fn answers(&self) -> bool {
        self.by == Executor::Program && self.typed && !matches!(self.id.as_str(), "" | THREAD_DIRECTIVE)
    }

    fn read(tool: &crate::program::Tool<'_>) -> Result<Self, String> {
        let param = |param: &crate::program::Param<'_>| {
            Ok(ParamIr { name: param.name.to_owned(), default: param.default.map(json).transpose()? })
        };
        let params = tool.params.map(|params| params.iter().map(param).collect::<Result<_, String>>());
        Ok(Self {
            id: tool.id.to_owned(),
            verb: tool.verb,
            item: tool.item,
            by: tool.by,
            params: params.transpose()?,
            typed: tool.typed,
            nests: tool.nests,
        })
    }
}

fn json(text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|error| format!("`{text}` is not JSON: {error}"))
}
