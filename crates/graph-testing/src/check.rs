//! Checking the cases of a graph against the graph: names, inputs, scripted results, answers, signals.

use std::collections::BTreeMap;
use std::sync::Arc;

use graph_compiler::diagnostic::{Diagnostic, DiagnosticCode, Diagnostics, SourcePlace, code, nearest};
use graph_compiler::graph::{TypedSignal, TypedTool};
use graph_compiler::source::{SourceFile, Span};
use graph_compiler::tree::{TreeNode, YamlTree};
use graph_compiler::types::{Type, TypeKind, TypedField};
use graph_model::program::Executor;
use graph_runtime::dynamic::{Interpreted, conform};
use graph_runtime::machine::Topology;
use graph_runtime::{Machine, Mismatch, Value};

use crate::file::{
    CaseAnswer, CaseSignal, Expectations, ExpectedCalls, PeopleSay, PlacedAnswer, PlacedValue, TestCase, TestFile,
    ToolScript, first_line,
};
use crate::script::item_key;

/// The longest value that a note shows, in bytes.
const MOST_SHOWN: usize = 200;

/// The names that the cases of a graph may use: those of the graph, and of the graphs that run inside it.
pub struct TestNames {
    topology: Topology,
    inputs: Option<Vec<TypedField>>,
    keys: Vec<String>,
    entries: Vec<String>,
    tools: BTreeMap<String, KnownTool>,
    /// Whether the ids of some calls are known only when they are made.
    is_open: bool,
    /// The nodes that ask people, with the types of the answers.
    questions: Vec<TypedSignal>,
    signals: Vec<TypedSignal>,
    /// The nodes that wait for signals.
    waits: Vec<String>,
    /// The nodes of the graph and of those inside it.
    all_nodes: Vec<String>,
    has_hooks: bool,
}

/// A tool that a graph calls.
struct KnownTool {
    params: Option<Vec<TypedField>>,
    /// The type of the value that a script returns.
    result: Type,
    /// Whether it asks people: its node says who answers.
    may_ask: bool,
    is_reducer: bool,
    /// Whether the runtime performs it, with the items of its spaces.
    is_item: bool,
}

impl TestNames {
    /// Gathers the names of a graph and of the graphs inside it.
    pub fn of(graph: &Interpreted, inner: &[Interpreted]) -> Self {
        let interface = graph.interface();
        let topology = graph.graph().topology();
        let mut names = Self {
            inputs: interface.inputs.clone(),
            keys: interface.keys.iter().map(|key| key.name.clone()).collect(),
            entries: topology.entries.iter().map(|entry| entry.name.clone()).collect(),
            topology,
            tools: BTreeMap::new(),
            is_open: false,
            questions: Vec::new(),
            signals: Vec::new(),
            waits: Vec::new(),
            all_nodes: Vec::new(),
            has_hooks: false,
        };
        std::iter::once(graph).chain(inner).for_each(|graph| names.add(graph));
        names
    }

    fn add(&mut self, graph: &Interpreted) {
        let interface = graph.interface();
        let topology = graph.graph().topology();
        for tool in &interface.tools {
            if tool.id.is_empty() && tool.by == Executor::Program {
                self.is_open = true;
                continue;
            }
            let key = match tool.by {
                Executor::Items => item_key(tool.verb, tool.item, Some(tool.id.as_str()).filter(|id| !id.is_empty())),
                Executor::Program | Executor::Graph => tool.id.clone(),
            };
            let asks = topology.nodes.iter().any(|node| {
                node.action() == tool.id && node.kind.calls() && node.wait.as_ref().is_some_and(|wait| wait.asks)
            });
            let known = KnownTool {
                params: tool.params.clone(),
                result: scripted_result(tool),
                may_ask: asks,
                is_reducer: false,
                is_item: tool.by == Executor::Items,
            };
            let may_ask = known.may_ask || self.tools.get(&key).is_some_and(|known| known.may_ask);
            self.tools.insert(key, KnownTool { may_ask, ..known });
        }
        for reducer in &interface.reducers {
            let known = KnownTool {
                params: None,
                result: reducer.value.clone(),
                may_ask: false,
                is_reducer: true,
                is_item: false,
            };
            self.tools.insert(reducer.id.clone(), known);
        }
        self.questions.extend(interface.answers.iter().cloned());
        self.signals.extend(interface.signals.iter().cloned());
        let waits =
            topology.nodes.iter().filter(|node| node.wait.as_ref().is_some_and(|wait| !wait.signals.is_empty()));
        self.waits.extend(waits.map(|node| node.name.clone()));
        self.all_nodes.extend(topology.nodes.iter().map(|node| node.name.clone()));
        self.has_hooks |= !topology.hooks.is_empty();
    }

    /// Whether a script may replace a tool in a real run.
    ///
    /// # Errors
    ///
    /// The reason that it may not, in words: nothing calls it, or it is an operation on items.
    pub fn may_be_mocked(&self, tool: &str) -> Result<(), String> {
        match self.tools.get(tool) {
            Some(known) if known.is_item => Err(format!(
                "`{tool}` is an item, which only `graph test` can script: name a directory with another one"
            )),
            Some(_) => Ok(()),
            None if self.is_open => Ok(()),
            None => {
                let near = nearest(tool, self.tools.keys().map(String::as_str));
                let near = near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
                Err(format!("the graph calls no tool `{tool}`{near}"))
            }
        }
    }

    fn nodes(&self) -> impl Iterator<Item = &str> {
        self.topology.nodes.iter().map(|node| node.name.as_str())
    }
}

/// Returns the type of the value that a script returns for a tool: its result, or the output of a graph.
fn scripted_result(tool: &TypedTool) -> Type {
    let output = || match &tool.result.kind {
        TypeKind::Object(fields) => fields.iter().find(|field| field.name == "output").map(|field| field.ty.clone()),
        _ => None,
    };
    // A run without an output has null, and every run may fail.
    if tool.module.is_some() { output().map_or_else(Type::any, Type::or_null) } else { tool.result.clone() }
}

/// Checks all cases of a file against the names of its graph.
///
/// # Errors
///
/// All mistakes, in the order of the file.
pub fn check(file: &TestFile, names: &TestNames) -> Result<(), Vec<Diagnostic>> {
    let mut checker = CaseChecker { source: &file.source, names, diagnostics: Diagnostics::new() };
    file.cases.iter().for_each(|case| checker.case(case));
    let found = checker.diagnostics.in_order(&file.source.name);
    if found.is_empty() { Ok(()) } else { Err(found) }
}

/// Checks the script of one tool.
///
/// # Errors
///
/// All mistakes, in the order of the file.
pub(crate) fn check_script(
    source: &Arc<SourceFile>,
    script: &ToolScript,
    names: &TestNames,
) -> Result<(), Vec<Diagnostic>> {
    let mut checker = CaseChecker { source, names, diagnostics: Diagnostics::new() };
    checker.script(script);
    let found = checker.diagnostics.in_order(&source.name);
    if found.is_empty() { Ok(()) } else { Err(found) }
}

struct CaseChecker<'a> {
    source: &'a Arc<SourceFile>,
    names: &'a TestNames,
    diagnostics: Diagnostics,
}

impl CaseChecker<'_> {
    fn error(&mut self, code: DiagnosticCode, span: &Span, message: String) -> Option<&mut Diagnostic> {
        let place = SourcePlace::new(self.source, first_line(self.source, span.clone()));
        // The parts that cases share are checked with each of them.
        self.diagnostics.error_once(code, place, message)
    }

    /// Reports a name that the graph does not have.
    fn unknown(&mut self, name: &PlacedValue<String>, what: &str, known: &[&str]) {
        let names: Vec<String> = known.iter().take(20).map(|name| format!("`{name}`")).collect();
        let is_near = nearest(&name.value, known.iter().copied()).is_some();
        let value = &name.value;
        let Some(problem) = self.error(code::BAD_TEST, &name.span, format!("the graph has no {what} `{value}`")) else {
            return;
        };
        problem.suggest(value, known.iter().copied());
        if !is_near {
            problem.note(match names.is_empty() {
                true => format!("it has no {what} at all"),
                false => format!("it has {}", names.join(", ")),
            });
        }
    }

    fn case(&mut self, case: &TestCase) {
        self.inputs(case);
        let names = self.names;
        if let Some(entry) = case.entry.as_ref().filter(|entry| !names.entries.contains(&entry.value)) {
            let known: Vec<&str> = names.entries.iter().map(String::as_str).collect();
            self.unknown(entry, "entry", &known);
        }
        case.tools.iter().for_each(|script| self.script(script));
        case.answers.iter().for_each(|answer| self.people(answer));
        case.signals.iter().for_each(|signal| self.signal(signal));
        self.expectations(&case.expect);
    }

    fn inputs(&mut self, case: &TestCase) {
        let names = self.names;
        let Some(fields) = &names.inputs else { return };
        for (name, tree) in &case.inputs {
            let Some(field) = fields.iter().find(|field| field.name == name.value) else {
                let known: Vec<&str> = fields.iter().map(|field| field.name.as_str()).collect();
                self.unknown(name, "input", &known);
                continue;
            };
            self.value(&field.ty, tree, &format!("input `{}`", name.value), "the schema of the graph");
        }
        let is_given = |field: &&TypedField| case.inputs.iter().any(|(name, _)| name.value == field.name);
        for field in fields.iter().filter(|field| field.is_required() && !is_given(field)) {
            let message = format!("the case does not give the input `{}`, which the graph needs", field.name);
            if let Some(problem) = self.error(code::BAD_TEST, &case.inputs_span, message) {
                problem.help(format!("write `{}` in `inputs` of the case, or of the file for all cases", field.name));
            }
        }
    }

    fn script(&mut self, script: &ToolScript) {
        let names = self.names;
        let id = &script.tool.value;
        let Some(tool) = names.tools.get(id) else {
            if !names.is_open {
                let known: Vec<&str> = names.tools.keys().map(String::as_str).collect();
                self.unknown(&script.tool, "tool", &known);
            }
            return;
        };
        for PlacedAnswer { answer, span, returns, with } in &script.answers {
            if let Some(returns) = returns {
                self.value(&tool.result, returns, &format!("what `{id}` returns"), "its contract");
            }
            if let Some(TreeNode::Map(fields)) = with.as_ref().map(|tree| &tree.node) {
                let known: Option<Vec<&str>> = match (&tool.params, tool.is_reducer) {
                    (_, true) => Some(vec!["value", "write"]),
                    (params, false) => params.as_ref().map(|fields| fields.iter().map(|one| &*one.name).collect()),
                };
                let known = known.unwrap_or_default();
                for (key, _) in fields.iter().filter(|(key, _)| !known.is_empty() && !known.contains(&&*key.name)) {
                    self.no_parameter(id, &PlacedValue::new(key.name.clone(), key.span.clone()), &known);
                }
            }
            let asks = matches!(answer.reply, crate::script::Reply::Interrupts(_));
            if asks && !tool.may_ask {
                let message = format!("`{id}` asks people, and no node that calls it says who answers");
                if let Some(problem) = self.error(code::BAD_TEST, span, message) {
                    problem.help("give the node `interrupts`");
                }
            }
        }
    }

    fn no_parameter(&mut self, tool: &str, name: &PlacedValue<String>, known: &[&str]) {
        let message = format!("`{tool}` has no parameter `{}`", name.value);
        if let Some(problem) = self.error(code::BAD_TEST, &name.span, message) {
            problem.suggest(&name.value, known.iter().copied());
        }
    }

    fn people(&mut self, CaseAnswer { to, says, span, .. }: &CaseAnswer) {
        let names = self.names;
        let types: Vec<&Type> = names.questions.iter().filter(|one| one.name == to.value).map(|one| &one.ty).collect();
        // A hook may leave any visit to people, who say `continue`.
        let is_continue =
            matches!(says, PeopleSay::Answer(tree) if tree.node == TreeNode::String("continue".to_owned()));
        let is_of_hook = names.has_hooks && (*says == PeopleSay::Release || is_continue);
        if is_of_hook && names.all_nodes.contains(&to.value) {
            return;
        }
        if *says == PeopleSay::Release {
            let message = format!("nothing suspends `{}`: the graph has no hooks, or no such node", to.value);
            if let Some(problem) = self.error(code::BAD_TEST, span, message) {
                problem.help("remove `release`");
            }
            return;
        }
        let Some(first) = types.first() else {
            let known: Vec<&str> = names.questions.iter().map(|one| one.name.as_str()).collect();
            return self.unknown(to, "node that asks people, called", &known);
        };
        // A node of that name may be in several graphs: the answer fits one of them.
        if let PeopleSay::Answer(answer) = says
            && !types.iter().any(|ty| conform(ty, answer.to_value()).is_ok())
        {
            self.value(first, answer, &format!("the answer to `{}`", to.value), "its `result_schema`");
        }
    }

    fn signal(&mut self, CaseSignal { name, value, to, .. }: &CaseSignal) {
        let names = self.names;
        let types: Vec<&Type> = names.signals.iter().filter(|one| one.name == name.value).map(|one| &one.ty).collect();
        let Some(first) = types.first() else {
            let known: Vec<&str> = names.signals.iter().map(|one| one.name.as_str()).collect();
            return self.unknown(name, "signal", &known);
        };
        let (tree, is_given) = match value {
            Some(value) => (value.clone(), true),
            None => (YamlTree { span: name.span.clone(), node: TreeNode::Null }, false),
        };
        if !types.iter().any(|ty| conform(ty, tree.to_value()).is_ok()) {
            let what = if is_given { "the value of the signal" } else { "a signal without a `value`" };
            self.value(first, &tree, &format!("{what} `{}`", name.value), "its schema");
        }
        if let Some(to) = to.as_ref().filter(|to| !names.waits.contains(&to.value)) {
            let known: Vec<&str> = names.waits.iter().map(String::as_str).collect();
            self.unknown(to, "node that waits for signals, called", &known);
        }
    }

    fn expectations(&mut self, expect: &Expectations) {
        let names = self.names;
        let nodes: Vec<&str> = names.nodes().collect();
        let of_path = expect.path.iter().flat_map(|path| &path.value);
        let of_error = expect.error.iter().filter_map(|error| error.value.node.as_ref());
        for node in of_path.chain(of_error).filter(|node| !nodes.contains(&node.value.as_str())) {
            self.unknown(node, "node", &nodes);
        }
        if let Some(TreeNode::Map(fields)) = expect.state.as_ref().map(|state| &state.value.node) {
            let keys: Vec<&str> = names.keys.iter().map(String::as_str).chain(["inputs", "_last_error"]).collect();
            for (key, _) in fields.iter().filter(|(key, _)| !keys.contains(&key.name.as_str())) {
                self.unknown(&PlacedValue::new(key.name.clone(), key.span.clone()), "key of the state", &keys);
            }
        }
        for (tool, calls) in &expect.calls {
            let Some(known) = names.tools.get(&tool.value) else {
                if !names.is_open {
                    let tools: Vec<&str> = names.tools.keys().map(String::as_str).collect();
                    self.unknown(tool, "tool", &tools);
                }
                continue;
            };
            let (ExpectedCalls::List(list), Some(params)) = (calls, &known.params) else { continue };
            let known: Vec<&str> = params.iter().map(|field| field.name.as_str()).collect();
            for call in &list.value {
                let names = call.value.as_object().into_iter().flat_map(|object| object.keys());
                for name in names.filter(|name| !known.contains(&name.as_str())) {
                    self.no_parameter(&tool.value, &PlacedValue::new(name.clone(), call.span.clone()), &known);
                }
            }
        }
    }

    /// Checks a value against a type, with a mistake at the part that does not fit.
    fn value(&mut self, ty: &Type, tree: &YamlTree, what: &str, whose: &str) {
        if let Err(mismatch) = conform(ty, tree.to_value()) {
            let span = misfit_place(tree, &mismatch);
            let fitting = shown_sample(ty);
            if let Some(problem) = self.error(code::BAD_TEST, &span, format!("{what} does not fit {whose}: {mismatch}"))
                && fitting.len() <= MOST_SHOWN
            {
                problem.note(format!("this fits: `{fitting}`"));
            }
            return;
        }
        self.undeclared(ty, tree, what, whose);
    }

    /// Reports the fields of a value that its type does not have, and that would be dropped.
    fn undeclared(&mut self, ty: &Type, tree: &YamlTree, what: &str, whose: &str) {
        match (&ty.kind, &tree.node) {
            (TypeKind::Object(fields), TreeNode::Map(entries)) => {
                let known: Vec<&str> = fields.iter().map(|field| field.name.as_str()).collect();
                for (key, value) in entries {
                    if let Some(field) = fields.iter().find(|field| field.name == key.name) {
                        self.undeclared(&field.ty, value, what, whose);
                        continue;
                    }
                    let message = format!("{what} has no field `{}` in {whose}", key.name);
                    if let Some(problem) = self.error(code::BAD_TEST, &key.span, message) {
                        problem.suggest(&key.name, known.iter().copied());
                    }
                }
            }
            (TypeKind::List(items), TreeNode::List(list)) => {
                list.iter().for_each(|one| self.undeclared(items, one, what, whose));
            }
            (TypeKind::Map(values), TreeNode::Map(entries)) => {
                entries.iter().for_each(|(_, one)| self.undeclared(values, one, what, whose));
            }
            _ => {}
        }
    }
}

/// Returns the place of the part of a value that a mismatch is about, as far as its path can be followed.
fn misfit_place(tree: &YamlTree, mismatch: &Mismatch) -> Span {
    let text = mismatch.to_string();
    let path = text.rsplit_once(" at `").map_or("", |(_, path)| path.trim_end_matches('`'));
    let mut at = tree;
    for name in path.split('.') {
        let inside = match &at.node {
            TreeNode::Map(fields) => fields.iter().find(|(key, _)| key.name == name).map(|(_, value)| value),
            TreeNode::List(list) => name.parse::<usize>().ok().and_then(|index| list.get(index)),
            _ => None,
        };
        match inside {
            Some(inside) => at = inside,
            None => break,
        }
    }
    at.span.clone()
}

/// Returns a value of a type, for a person who writes the answer of a tool.
pub(crate) fn sample(ty: &Type) -> Value {
    match &ty.kind {
        _ if ty.nullable => Value::Null,
        TypeKind::Boolean => Value::Bool(true),
        TypeKind::Integer | TypeKind::Number => Value::from(0),
        TypeKind::String => Value::from("…"),
        TypeKind::Enum(words) => words.first().map_or(Value::Null, |word| Value::from(word.as_str())),
        TypeKind::List(_) => Value::Array(Vec::new()),
        TypeKind::Map(_) => Value::Object(graph_runtime::Map::new()),
        TypeKind::Object(fields) => {
            let needed = fields.iter().filter(|field| field.is_required());
            needed.map(|field| (field.name.clone(), sample(&field.ty))).collect()
        }
        TypeKind::Any | TypeKind::Never => Value::from("…"),
    }
}

/// Returns a value of a type, as a person writes it.
fn shown_sample(ty: &Type) -> String {
    spaced(&sample(ty))
}

/// Returns a value as JSON, which is YAML too, and reads better with spaces.
fn spaced(value: &Value) -> String {
    value.to_string().replace("\":", "\": ").replace(",\"", ", \"")
}

impl TestNames {
    /// Returns a line of a script that answers a call of a tool.
    pub(crate) fn sample_of(&self, tool: &str) -> String {
        let value = self.tools.get(tool).map_or_else(|| Value::from("…"), |known| sample(&known.result));
        format!("{tool}: [{{ returns: {} }}]", spaced(&value))
    }
}
