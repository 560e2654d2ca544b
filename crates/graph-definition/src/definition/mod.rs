//! Parsing: from a verified source to the graph as its author wrote it, each part with its place.
//!
//! The parser checks the shape, and reads each text that has a grammar of its own: names, templates, conditions,
//! patterns. Later stages check whether the parts fit together.

pub(crate) mod action;
pub mod agent;
pub(crate) mod channel;
pub(crate) mod condition;
pub(crate) mod conduct;
mod duration;
mod env;
pub(crate) mod hook;
mod mcp;
pub(crate) mod node;
mod patterns;
pub mod program;
mod reader;
pub(crate) mod rules;
pub(crate) mod schema;
pub(crate) mod settings;
mod signal;
mod single_call;
mod start;
mod subprocess;
mod template;
mod tool_loop;

use std::collections::BTreeSet;
use std::sync::Arc;

use graph_model::capability::Pattern;
use graph_model::mcp::McpTool;
use graph_model::name::{GraphId, ItemId, NodeName, StateKey};
use graph_model::program::Settings;
use graph_model::subprocess::Subprocess;
use graph_model::value::Value;

pub use action::{CallDefinition, CalledItem};
pub use agent::{AgentContract, AgentLimits};
pub use channel::ChannelDefinition;
pub use condition::{TestDefinition, program_condition};
pub use conduct::Conduct;
pub use hook::{HookDefinition, Reaction};
pub use node::{
    Action, AskDefinition, Assignment, ByDefinition, CountDefinition, EachDefinition, EdgeDefinition, EdgeList,
    ForeachDefinition, GateDefinition, InterruptsDefinition, NodeDefinition, NodeKind, QuorumDefinition, Return,
    RouteDefinition, WaitDefinition,
};
pub use patterns::{FoundIn, compiled, found_in};
pub use program::ProgramContract;
pub use reader::{Repeated, Spanned};
pub use rules::SchemaRule;
pub use schema::{Property, SchemaKind, Sink, ValueSchema};
pub use settings::UsageLimits;
pub use signal::{MOST_SIGNALS, SIGNAL, SignalDefinition};
pub use single_call::as_graph as single_call;
pub use start::{ENTRY, EntryDefinition, EntryElement, START};
pub use template::{TermDefinition, TermKind, locate};
pub use tool_loop::{Approvals, ListedTool, YIELD, is_contract, means_graph};

use crate::diagnostic::{Diagnostic, DiagnosticCode, Diagnostics, SourcePlace, code};
use crate::hash::HashMap;
use crate::source::{SourceFile, Span};
use crate::tree::{self, TreeKey, TreeNode, YamlFile, YamlTree};
use crate::verify::{DefinitionOrigin, VerifiedSource};
use env::RequiredEnv;
use reader::{DefinitionReader, Fields};
use schema::{GUARDED, SchemaOwner};

/// A graph as its file has it: each part with its place, and nothing checked beyond its shape.
#[derive(Debug)]
pub struct Definition {
    /// The file.
    pub origin: DefinitionOrigin,
    /// Category and file name: `workflows/test/project_stats`.
    pub id: GraphId,
    /// The author's version.
    pub version: String,
    /// The purpose of the graph.
    pub description: Option<String>,
    /// The capability patterns it declares, each with its place; `None` where the field is missing.
    pub permissions: Option<Spanned<Vec<Spanned<Pattern>>>>,
    /// The environment variables that must be set, each once, the graph's own first (R280).
    pub env: Vec<String>,
    /// The values that its lists name more than once.
    pub repeated: Vec<Repeated>,
    /// The schema of its inputs.
    pub inputs: Option<ValueSchema>,
    /// The place where the file says that it is a graph. Messages about missing parts of the file point to it.
    pub head: Span,
    /// The first node's name; [`START`] if the run begins in several nodes.
    pub start: Option<Spanned<NodeName>>,
    /// Other places where a run can begin.
    pub entries: Vec<EntryDefinition>,
    /// The settings of a run, without its hooks.
    pub settings: Settings,
    /// The place of `max_steps`.
    pub max_steps: Option<Span>,
    /// The place of `on_max_steps`.
    pub on_max_steps: Option<Span>,
    /// The place of `limits.visits`.
    pub visits: Option<Span>,
    /// The place of `limits.steps`.
    pub steps: Option<Span>,
    /// The place of `limits.deadline`.
    pub deadline: Option<Span>,
    /// The limits of the agents that a run calls.
    pub usage: UsageLimits,
    /// The hooks, in the order of the file.
    pub hooks: Vec<HookDefinition>,
    /// The first values of state keys.
    pub state: Vec<(Spanned<StateKey>, Spanned<Value>)>,
    /// The keys of the state whose writes are combined.
    pub channels: Vec<ChannelDefinition>,
    /// The signals that a run can receive, in the order of the file.
    pub signals: Vec<SignalDefinition>,
    /// The nodes, in the order of the file. If a run begins in several nodes, the last one begins their branches.
    pub nodes: Vec<NodeDefinition>,
    /// The names of nodes that could not be read; edges to them are not reported.
    pub unreadable: Vec<String>,
    /// Whether every node and every target could be read, so that rules about the whole graph can be checked.
    pub is_complete: bool,
    /// Whether, besides, all fields of `config` and of the nodes could be read, so that a name that nothing declares or writes is a
    /// mistake.
    pub is_well_formed: bool,
    /// The nodes, channels and hooks with a field that could not be read. Other mistakes there may follow from that.
    pub broken: Vec<Span>,
    /// The index of each input among the properties of `inputs`.
    inputs_by_name: HashMap<String, usize>,
}

/// The contract of a tool.
#[derive(Debug)]
pub struct Contract {
    /// The file.
    pub source: Arc<SourceFile>,
    /// The executor of the tool.
    pub by: ContractKind,
    /// The purpose of the tool.
    pub description: Option<String>,
    /// Its parameters: an object. Those of a reducer may be any value.
    pub params: ValueSchema,
    /// The schema of its parameters, as the file has it.
    pub written: Value,
    /// Its result.
    pub result: Option<ValueSchema>,
    /// Whether a call of it needs the approval of a person: `x-guarded`.
    pub guarded: bool,
}

/// The executor of a tool: `tool_type` of its contract.
#[derive(Debug, Clone, PartialEq)]
pub enum ContractKind {
    /// The program that embeds the graph.
    Rust,
    /// The runtime.
    Builtin,
    /// A program of its own, which the runtime starts.
    Subprocess(Subprocess),
    /// A server that speaks the Model Context Protocol, which the runtime asks.
    Mcp(McpTool),
    /// An agent: a model, which calls tools.
    Agent(Box<AgentContract>),
    /// A program that calls tools while it runs.
    Program(Box<ProgramContract>),
    /// None: it is no tool, but a function of the program that combines the writes to channels. The parameters are one write,
    /// and the result is the value of a channel.
    Reducer,
}

impl Contract {
    /// Whether the runtime itself executes the tool.
    pub fn builtin(&self) -> bool {
        matches!(self.by, ContractKind::Builtin)
    }

    /// Whether it is that of a reducer, and of no tool.
    pub fn is_reducer(&self) -> bool {
        matches!(self.by, ContractKind::Reducer)
    }

    /// Returns how to start the tool, if it is a program of its own.
    pub fn subprocess(&self) -> Option<&Subprocess> {
        match &self.by {
            ContractKind::Subprocess(spec) => Some(spec),
            _ => None,
        }
    }

    /// Returns how it works, if it is a program that calls tools.
    pub fn program(&self) -> Option<&ProgramContract> {
        match &self.by {
            ContractKind::Program(program) => Some(program),
            _ => None,
        }
    }

    /// Returns the server's tool that it is, if it is one.
    pub fn mcp(&self) -> Option<&McpTool> {
        match &self.by {
            ContractKind::Mcp(tool) => Some(tool),
            _ => None,
        }
    }

    /// Whether it means a graph: it is that of an agent or of a program that calls tools.
    pub fn means_graph(&self) -> bool {
        matches!(self.by, ContractKind::Agent(_) | ContractKind::Program(_))
    }

    /// Whether the runtime executes the tool, asks a server to, or starts the program that does.
    pub fn by_runtime(&self) -> bool {
        matches!(self.by, ContractKind::Builtin | ContractKind::Subprocess(_) | ContractKind::Mcp(_))
    }

    /// Returns how it works, if it is an agent.
    pub fn agent(&self) -> Option<&AgentContract> {
        match &self.by {
            ContractKind::Agent(agent) => Some(agent),
            _ => None,
        }
    }
}

impl Definition {
    /// Returns the schema of a property of an object's schema, if it has the property. There may be many inputs, so they
    /// are looked up by name.
    pub fn property<'s>(&'s self, schema: &'s ValueSchema, name: &str) -> Option<&'s ValueSchema> {
        let SchemaKind::Object(properties) = &schema.kind else { return None };
        let property = match &self.inputs {
            Some(inputs) if std::ptr::eq(inputs, schema) => properties.get(*self.inputs_by_name.get(name)?),
            _ => properties.iter().find(|property| property.name.value == name),
        };
        property.map(|property| &property.schema)
    }

    /// Returns the file.
    pub fn source(&self) -> &Arc<SourceFile> {
        self.origin.source()
    }

    /// Returns the calls of its nodes and hooks, in the order of the file.
    pub fn calls(&self) -> impl Iterator<Item = &CallDefinition> {
        let hooks = self.hooks.iter().filter_map(|hook| match &hook.reaction {
            Reaction::Call(call) => Some(call),
            Reaction::Steer(_) => None,
        });
        self.nodes.iter().filter_map(NodeDefinition::call).chain(hooks)
    }

    /// Returns the ids of the tools and graphs that it executes, as far as they are known.
    pub fn executed(&self) -> BTreeSet<&ItemId> {
        self.calls().filter(|call| call.executes_tool()).filter_map(CallDefinition::id).collect()
    }

    /// Returns the ids of the reducers that are functions of the program.
    pub fn functions(&self) -> impl Iterator<Item = &ItemId> {
        self.channels.iter().filter_map(|channel| channel.reducer.value.function())
    }

    /// Returns the beginnings of the computed ids of the tools and graphs that it executes.
    pub fn computed(&self) -> Vec<&str> {
        self.calls()
            .filter(|call| call.executes_tool() && call.computed().is_some())
            .map(CallDefinition::beginning)
            .collect()
    }

    /// Returns a place in the file.
    pub fn place(&self, span: &Span) -> SourcePlace {
        SourcePlace::new(self.source(), span.clone())
    }
}

/// Values of `executor_id` that mean a state graph; the second is an older spelling (R1).
pub const EXECUTORS: [&str; 2] = ["rye/core/runtimes/state-graph/runtime", "rye/core/runtimes/state_graph_runtime"];

/// Reads a graph from `file`, its YAML.
///
/// Returns `None` if there is no usable definition. Mistakes are in `diagnostics`, also if a definition is returned.
pub fn parse(
    origin: impl Into<DefinitionOrigin>,
    file: &YamlFile,
    diagnostics: &mut Diagnostics,
) -> Option<Definition> {
    let mut reading = GraphReading::default();
    let definition = read(origin.into(), file, diagnostics, &mut reading)?;
    reading.is_named.then_some(definition)
}

/// Reads as much of a graph as can be read, for an author who is still writing it. Mistakes are not reported.
pub fn parse_unfinished(source: &Arc<SourceFile>, file: &YamlFile) -> Option<Definition> {
    let mut reading = GraphReading { is_unfinished: true, ..GraphReading::default() };
    read(DefinitionOrigin::Draft(Arc::clone(source)), file, &mut Diagnostics::new(), &mut reading)
}

/// How a graph is read.
#[derive(Default)]
struct GraphReading {
    /// Whether the fields that make it a graph, and give it an id, may still be missing.
    is_unfinished: bool,
    /// Whether it has an id and a version.
    is_named: bool,
}

fn read(
    origin: DefinitionOrigin,
    file: &YamlFile,
    diagnostics: &mut Diagnostics,
    reading: &mut GraphReading,
) -> Option<Definition> {
    let source = Arc::clone(origin.source());
    let mut reader = DefinitionReader::new(&source, diagnostics);
    let fields = reader.map(&file.root, "a graph")?;
    let head = match is_graph(&mut reader, &fields) {
        None if reading.is_unfinished => 0..0,
        head => head?,
    };
    // Other tools keep fields of their own at the top level (R2), so only a field that looks like a slip is reported.
    reader.slips(&fields, "a graph", &TOP_LEVEL);
    let has_misplaced = misplaced(&mut reader, &fields);
    if let Some(key) = fields.key(GUARDED) {
        // It would protect nothing here.
        let place = SourcePlace::new(reader.source, key.span.clone());
        let message = "`x-guarded` is a mark of a tool's contract, or of an input of a graph";
        let help = "mark the inputs that the caller must vouch for, in `config_schema`";
        reader.diagnostics.error(code::UNKNOWN_FIELD, place, message).help(help);
    }
    let version = reader.required_text(&fields, "a graph", "version");
    if let Some(version) = &version {
        reader.is_template(&version.value, &version.span, "`version`", "write the version of this text");
    }
    let category = reader.optional_text(&fields, "category");
    let description = reader.optional_text(&fields, "description");
    let id = graph_id(&mut reader, category.as_ref());
    let permissions = match fields.get("permissions") {
        Some(tree) => Some(permissions(&mut reader, tree)),
        // A misspelt field was reported, so it does not count as missing.
        None => reader
            .misspelt(&fields, "a graph", &["permissions"])
            .then(|| Spanned { value: Vec::new(), span: fields.span.clone() }),
    };
    let mut env = RequiredEnv::default();
    if let Some(tree) = fields.get("env_requires") {
        env.read(&mut reader, tree);
    }
    let inputs = fields
        .get("config_schema")
        .and_then(|tree| schema::parse_object(&mut reader, tree, "config_schema", SchemaOwner::Inputs));
    let config = reader.required(&fields, "a graph", "config")?;
    let config_fields = reader.map(config, "`config`")?;
    reader.only(&config_fields, "`config`", &[CONFIG.as_slice(), &settings::FIELDS].concat(), &[]);
    let start = reader.required(&config_fields, "`config`", "start").and_then(|tree| start::parse(&mut reader, tree));
    let entries = config_fields.get("entries").map(|tree| start::parse_entries(&mut reader, tree)).unwrap_or_default();
    let settings = settings::parse(&mut reader, &config_fields, fields.get("limits"));
    let usage = settings::usage(&mut reader, fields.get("limits"));
    let hooks = config_fields.get("hooks").map(|tree| hook::parse_all(&mut reader, tree)).unwrap_or_default();
    let state = config_fields.get("state").map(|tree| initial_state(&mut reader, tree)).unwrap_or_default();
    let channels = config_fields.get("channels").map(|tree| channel::parse_all(&mut reader, tree)).unwrap_or_default();
    let signals = config_fields.get("signals").map(|tree| signal::parse_all(&mut reader, tree)).unwrap_or_default();
    let nodes = reader
        .required(&config_fields, "`config`", "nodes")
        .and_then(|tree| node::parse_all(&mut reader, tree, &mut env));
    // Without nodes, no start is valid.
    let start = start.filter(|_| nodes.is_some());
    let (start, first) = start.map_or((None, None), |(name, node)| (Some(name), node));
    let is_complete = file.is_whole
        && nodes.as_ref().is_some_and(|nodes: &node::Nodes| nodes.unreadable.is_empty() && !nodes.lost_target);
    let (broken, is_broken) = broken_parts(&reader, config, &config_fields);
    let mut nodes = nodes.unwrap_or_default();
    nodes.nodes.extend(first);
    reading.is_named = id.is_some() && version.is_some();
    let id = id.or_else(|| GraphId::new("unnamed").ok())?;
    let inputs_by_name = inputs.iter().flat_map(ValueSchema::properties).enumerate();
    let inputs_by_name = inputs_by_name.map(|(at, property)| (property.name.value.clone(), at)).collect();
    Some(Definition {
        id,
        inputs_by_name,
        version: version.map(|version| version.value).unwrap_or_default(),
        description: description.map(|text| text.value),
        permissions,
        env: env.names,
        repeated: reader.repeated,
        inputs,
        head,
        start,
        entries,
        settings,
        max_steps: config_fields.get("max_steps").map(|tree| tree.span.clone()),
        on_max_steps: config_fields.get("on_max_steps").map(|tree| tree.span.clone()),
        visits: settings::limit_at(fields.get("limits"), "visits"),
        steps: settings::limit_at(fields.get("limits"), "steps"),
        deadline: settings::limit_at(fields.get("limits"), "deadline"),
        usage,
        hooks,
        state,
        channels,
        signals,
        is_complete,
        is_well_formed: is_complete && !is_broken && !has_misplaced,
        broken,
        nodes: nodes.nodes,
        unreadable: nodes.unreadable,
        origin,
    })
}

/// The mistakes after which a field counts as absent.
const MISREAD: [DiagnosticCode; 8] = [
    code::SHAPE,
    code::UNKNOWN_FIELD,
    code::MISSING_FIELD,
    code::BAD_NAME,
    code::BAD_SCHEMA,
    code::NOT_SUPPORTED,
    code::INERT_FIELD,
    code::BAD_DURATION,
];

/// Returns the nodes, channels and hooks with a field that was not read, and whether names may be unknown because of one: of a node,
/// or of a part of `config` besides these.
fn broken_parts(reader: &DefinitionReader<'_>, config: &YamlTree, fields: &Fields<'_>) -> (Vec<Span>, bool) {
    let is_here = |one: &&Diagnostic| MISREAD.contains(&one.code) && Arc::ptr_eq(&one.place.source, reader.source);
    let at = |one: &Diagnostic| one.place.span.as_ref().map(|span| span.start);
    let mut misread: Vec<usize> = reader.diagnostics.iter().filter(is_here).filter_map(at).collect();
    misread.retain(|at| config.span.contains(at));
    misread.sort_unstable();
    let has_misread =
        |part: &Span| misread.get(misread.partition_point(|at| *at < part.start)).is_some_and(|at| *at < part.end);
    let broken = |name: &str| -> Vec<Span> {
        let parts: Vec<Span> = match fields.get(name).map(|tree| &tree.node) {
            Some(TreeNode::Map(parts)) => {
                parts.iter().map(|(key, tree)| key.span.start..tree.span.end.max(key.span.end)).collect()
            }
            Some(TreeNode::List(parts)) => parts.iter().map(|tree| tree.span.clone()).collect(),
            _ => Vec::new(),
        };
        parts.into_iter().filter(has_misread).collect()
    };
    let nodes = broken("nodes");
    let has_broken_nodes = !nodes.is_empty();
    let broken = [nodes, broken("channels"), broken("hooks")].concat();
    let is_outside = misread.iter().any(|at| !broken.iter().any(|part| part.contains(at)));
    (broken, has_broken_nodes || is_outside)
}

/// The fields of `config` besides its settings.
pub const CONFIG: [&str; 9] =
    ["start", "entries", "nodes", "state", "channels", "signals", "hooks", "description", "comment"];

/// The fields of a graph besides those of other tools.
pub const TOP_LEVEL: [&str; 10] = [
    "version",
    "tool_type",
    "executor_id",
    "category",
    "description",
    "permissions",
    "limits",
    "env_requires",
    "config_schema",
    "config",
];

/// Returns where a field belongs that has been written in another part of a graph, which messages call `whose`.
fn home_of(whose: &str, field: &str) -> Option<&'static str> {
    let is_of_node = || node::TYPES.iter().any(|kind| node::fields_of(kind).contains(&field));
    let is_of_config = || CONFIG.contains(&field) || settings::FIELDS.contains(&field);
    let is_in_node = ["node `", "the gate `", "the wait `", "the interrupt `", "the foreach `", "the return node `"]
        .iter()
        .any(|start| whose.starts_with(start));
    match whose {
        "`config`" if TOP_LEVEL.contains(&field) => Some("at the top level of the graph, beside `config`"),
        "a graph" if is_of_config() => Some("in `config`"),
        "an action" if is_of_node() => Some("to the node, beside its `action`"),
        "an edge" if is_of_node() => Some("to the node, beside its `next`"),
        _ if is_in_node && matches!(field, "need" | "rest" | "fewer") => {
            Some("in `waits_for`: `waits_for: { of: [one, other], need: 1, rest: cancel }`")
        }
        _ if is_in_node && action::FIELDS.contains(&field) => Some("in the node's `action`"),
        _ if is_in_node && is_of_config() => Some("in `config`"),
        _ => None,
    }
}

/// Reports fields of `config` at the top level, where they would have no effect, and returns whether there are any.
fn misplaced(reader: &mut DefinitionReader<'_>, fields: &Fields<'_>) -> bool {
    // A comment means nothing anywhere.
    let is_misplaced = |name: &str| {
        (CONFIG.contains(&name) || settings::FIELDS.contains(&name)) && !TOP_LEVEL.contains(&name) && name != "comment"
    };
    let misplaced: Vec<&TreeKey> =
        fields.entries.iter().map(|(key, _)| key).filter(|key| is_misplaced(&key.name)).collect();
    misplaced.iter().for_each(|key| reader.unknown_field(key, "a graph", &[], fields));
    !misplaced.is_empty()
}

/// Checks that the file is a graph, and returns where it says so.
fn is_graph(reader: &mut DefinitionReader<'_>, fields: &Fields<'_>) -> Option<Span> {
    let tool_type = reader.required_text(fields, "a graph", "tool_type")?;
    if tool_type.value != "graph" {
        let place = SourcePlace::new(reader.source, tool_type.span);
        reader
            .diagnostics
            .error(code::NOT_A_GRAPH, place, format!("this is a `{}`, not a graph", tool_type.value))
            .help("a graph has `tool_type: graph`; contracts of tools belong in the tree's `tools` directory");
        return None;
    }
    if let Some(executor) = reader.required_text(fields, "a graph", "executor_id")
        && !EXECUTORS.contains(&executor.value.as_str())
    {
        let place = SourcePlace::new(reader.source, executor.span);
        reader
            .diagnostics
            .error(code::NOT_A_GRAPH, place, format!("`{}` does not run graphs", executor.value))
            .help(format!("a graph has `executor_id: {}`", EXECUTORS[0]))
            .fix(EXECUTORS[0], false);
    }
    Some(tool_type.span)
}

/// Returns the id that a graph's file gives itself, whether it is signed or not; `None` if the file is no graph. The id
/// itself is not checked.
pub fn id_of(source: &SourceFile, file: &YamlFile) -> Option<String> {
    let TreeNode::Map(entries) = &file.root.node else { return None };
    let text = |name: &str| match entries.iter().find(|(key, _)| key.name == name).map(|(_, tree)| &tree.node) {
        Some(TreeNode::String(text)) => Some(text.as_str()),
        _ => None,
    };
    (text("tool_type") == Some("graph")).then(|| id_text(source, text("category")))
}

/// Returns a graph's id: its category and its file name.
fn id_text(source: &SourceFile, category: Option<&str>) -> String {
    let stem = source.path.file_stem().and_then(|stem| stem.to_str()).unwrap_or("unknown");
    match category.map(|category| category.trim_matches('/')) {
        Some(category) if !category.is_empty() => format!("{category}/{stem}"),
        _ => stem.to_owned(),
    }
}

fn graph_id(reader: &mut DefinitionReader<'_>, category: Option<&Spanned<String>>) -> Option<GraphId> {
    let text = id_text(reader.source, category.map(|category| category.value.as_str()));
    let is_made_of_it = text.contains('/');
    let span = category.filter(|_| is_made_of_it).map_or(0..0, |category| category.span.clone());
    match GraphId::new(text.clone()) {
        Ok(id) => Some(id),
        Err(error) => {
            let place = SourcePlace::new(reader.source, span);
            reader
                .diagnostics
                .error(code::BAD_NAME, place, format!("`{text}` cannot be the graph's id: {error}"))
                .help("the id is made of `category` and the file's name");
            None
        }
    }
}

/// The maximum number of permissions with wildcards: each of them is tried for each call.
const MOST_WILDCARDS: usize = 1_000;

fn permissions(reader: &mut DefinitionReader<'_>, tree: &YamlTree) -> Spanned<Vec<Spanned<Pattern>>> {
    let (mut patterns, mut wild) = (Vec::new(), 0);
    let list = reader.list(tree, "`permissions`");
    reader.note_repeated("`permissions`", list);
    for item in list {
        let Some(text) = reader.text(item, "a permission") else { continue };
        wild += usize::from(text.value.contains(['*', '?', '[']));
        if wild > MOST_WILDCARDS {
            let place = SourcePlace::new(reader.source, text.span);
            let message = format!("a graph has at most {MOST_WILDCARDS} permissions with wildcards");
            reader.diagnostics.error(code::TOO_DEEP, place, message).help("name the tools, or use fewer wildcards");
            break;
        }
        match Pattern::new(text.value) {
            Ok(pattern) => patterns.push(Spanned { value: pattern, span: text.span }),
            Err(error) => {
                let place = SourcePlace::new(reader.source, text.span);
                reader.diagnostics.error(code::BAD_PERMISSION, place, error.to_string());
            }
        }
    }
    Spanned { value: patterns, span: tree.span.clone() }
}

fn initial_state(reader: &mut DefinitionReader<'_>, tree: &YamlTree) -> Vec<(Spanned<StateKey>, Spanned<Value>)> {
    let Some(fields) = reader.map(tree, "`state`") else { return Vec::new() };
    let mut state = Vec::new();
    for (key, value) in fields.entries {
        let text = Spanned { value: key.name.clone(), span: key.span.clone() };
        no_templates(reader, value);
        if let Some(name) = reader.name(text, StateKey::new) {
            state.push((name, Spanned { value: value.to_value(), span: value.span.clone() }));
        }
    }
    state
}

/// Reports templates where values are taken literally: a template would be a plain text there.
fn no_templates(reader: &mut DefinitionReader<'_>, tree: &YamlTree) {
    match &tree.node {
        TreeNode::String(text) if text.contains("${") => {
            let place = SourcePlace::new(reader.source, tree.span.clone());
            reader
                .diagnostics
                .error(code::BAD_TEMPLATE, place, "first values of the state are taken as they are, without templates")
                .help("set the key in the `assign` of the first node");
        }
        TreeNode::List(list) => list.iter().for_each(|tree| no_templates(reader, tree)),
        TreeNode::Map(map) => map.iter().for_each(|(_, tree)| no_templates(reader, tree)),
        _ => {}
    }
}

/// The values of `tool_type` in a contract.
pub const CONTRACTS: [&str; 7] = ["rust", "builtin", "subprocess", "program", "mcp", "agent", "reducer"];

/// Reads the contract of a reducer, which has both schemas.
fn reducer_contract(
    reader: &mut DefinitionReader<'_>,
    fields: &Fields<'_>,
    source: &Arc<SourceFile>,
) -> Option<Contract> {
    let what = "a contract of a reducer";
    let description = reader.optional_text(fields, "description").map(|text| text.value);
    let write = reader.required(fields, what, "config_schema");
    let value = reader.required(fields, what, "result_schema");
    // The function receives a write and returns a value: neither has defaults or sinks.
    let params = schema::parse(reader, write?, SchemaOwner::Reducer)?;
    let result = schema::parse(reader, value?, SchemaOwner::Reducer)?;
    let (source, written) = (Arc::clone(source), Value::Null);
    if let Some(key) = fields.key(GUARDED) {
        let place = SourcePlace::new(reader.source, key.span.clone());
        reader.diagnostics.error(
            code::BAD_CONTRACT,
            place,
            "a reducer is no tool, so nobody calls it: `x-guarded` does nothing",
        );
    }
    let by = ContractKind::Reducer;
    Some(Contract { source, by, description, params, written, result: Some(result), guarded: false })
}

/// Reads a verified contract.
pub fn parse_contract(verified: &VerifiedSource, id: &ItemId, diagnostics: &mut Diagnostics) -> Option<Contract> {
    parse_trusted_contract(verified.source(), id, diagnostics)
}

/// Reads a contract that needs no signature, because it comes with the compiler.
pub fn parse_trusted_contract(
    source: &Arc<SourceFile>,
    id: &ItemId,
    diagnostics: &mut Diagnostics,
) -> Option<Contract> {
    let file = tree::parse(source, diagnostics)?;
    diagnostics.extend(tree::read_again(source, &file));
    let tree = &file.root;
    let mut reader = DefinitionReader::new(source, diagnostics);
    let fields = reader.map(tree, "a contract")?;
    reader.slips(
        &fields,
        "a contract",
        &[
            "version",
            "tool_type",
            "executor_id",
            "category",
            "description",
            "config",
            "config_schema",
            "result_schema",
            "permissions",
            GUARDED,
        ],
    );
    let tool_type = reader.required_text(&fields, "a contract", "tool_type")?;
    let by = match tool_type.value.as_str() {
        "rust" => Some(ContractKind::Rust),
        "builtin" => Some(ContractKind::Builtin),
        // The other mistakes of the contract are reported too.
        "subprocess" => reader
            .required(&fields, "a contract of a subprocess", "config")
            .and_then(|tree| subprocess::parse(&mut reader, tree))
            .map(ContractKind::Subprocess),
        "mcp" => reader
            .required(&fields, "a contract of a tool of a server", "config")
            .and_then(|tree| mcp::parse(&mut reader, tree, id))
            .map(ContractKind::Mcp),
        "program" => {
            let result = reader.required(&fields, "a contract of a program", "result_schema").map(YamlTree::to_value);
            reader
                .required(&fields, "a contract of a program", "config")
                .and_then(|tree| program::parse(&mut reader, tree, result.unwrap_or_default()))
                .map(|program| ContractKind::Program(Box::new(program)))
        }
        "agent" => {
            let answer = reader.required(&fields, "a contract of an agent", "result_schema").map(YamlTree::to_value);
            reader
                .required(&fields, "a contract of an agent", "config")
                .and_then(|tree| agent::parse(&mut reader, tree, answer.unwrap_or_default()))
                .map(|agent| ContractKind::Agent(Box::new(agent)))
        }
        "reducer" => Some(ContractKind::Reducer),
        other => {
            let place = SourcePlace::new(source, tool_type.span);
            reader
                .diagnostics
                .error(
                    code::BAD_CONTRACT,
                    place,
                    format!("`tool_type` of a contract is `rust`, `builtin`, `subprocess`, `program`, `mcp`, `agent` or `reducer`, not `{other}`"),
                )
                .note(format!("this file is the contract of `{id}`"))
                .suggest(other, CONTRACTS);
            return None;
        }
    };
    if by == Some(ContractKind::Reducer) {
        return reducer_contract(&mut reader, &fields, source);
    }
    let description = reader.optional_text(&fields, "description").map(|text| text.value);
    let params = match fields.get("config_schema") {
        Some(tree) => schema::parse_object(&mut reader, tree, "config_schema", SchemaOwner::Params)?,
        None => ValueSchema::empty_object(tree.span.clone()),
    };
    let result = match fields.get("result_schema") {
        Some(tree) => Some(schema::parse(&mut reader, tree, SchemaOwner::Result)?),
        None => None,
    };
    let written = fields.get("config_schema").map(YamlTree::to_value);
    let written = written.unwrap_or_else(|| serde_json::json!({ "type": "object" }));
    // A mark without a value is a mistake, and counts as set.
    let mark = fields.entries.iter().find(|(key, _)| key.name == GUARDED);
    let guarded = mark.is_some_and(|(_, tree)| reader.boolean(tree, "`x-guarded`").unwrap_or(true));
    if let Some(span) = params.first_unguarded().filter(|_| !guarded) {
        let place = SourcePlace::new(source, span.clone());
        reader
            .diagnostics
            .error(code::BAD_SCHEMA, place, "`x-guarded: false` does nothing: the tool is not guarded")
            .help("remove it, or write `x-guarded: true` in the contract, beside `tool_type`");
    }
    Some(Contract { source: Arc::clone(source), by: by?, description, params, written, result, guarded })
}
