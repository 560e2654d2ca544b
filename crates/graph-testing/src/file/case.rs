//! Cases: their fields, read from a tree.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use graph_compiler::diagnostic::{Diagnostics, SourcePlace, code};
use graph_compiler::source::{SourceFile, Span};
use graph_compiler::tree::{TreeKey, TreeNode, YamlTree};
use graph_model::timestamp;
use graph_runtime::{Category, Map, Pattern, Status, Value};

use super::reader::{MappingFields, PlacedValue, TestReader};
use super::{
    CaseAnswer, CaseSignal, Expectations, ExpectedCalls, ExpectedError, PeopleSay, PlacedAnswer, SentAt, TestCase,
    ToolScript,
};
use crate::script::{Reply, ScriptedAnswer, ScriptedFailure, Times};

/// The fields of a file of tests.
pub(crate) const FILE: [&str; 3] = ["inputs", "tools", "cases"];
/// The fields of a case.
pub(crate) const CASE: [&str; 11] =
    ["name", "inputs", "entry", "begins", "tools", "answers", "signals", "grants", "crash", "unused", "expect"];
/// The fields of an answer of a tool.
pub(crate) const ANSWER: [&str; 6] = ["returns", "fails", "interrupts", "with", "times", "delay"];
/// The fields of a failure.
pub(crate) const FAILURE: [&str; 6] = ["message", "category", "code", "status", "retry_after", "data"];
/// The fields of an answer of people.
pub(crate) const PEOPLE: [&str; 5] = ["to", "after", "answer", "expires", "release"];
/// The fields of a signal.
pub(crate) const SIGNAL: [&str; 5] = ["name", "value", "after", "at", "to"];
/// The fields of `expect`.
pub(crate) const EXPECT: [&str; 8] = ["path", "status", "output", "state", "error", "calls", "steps", "warnings"];
/// The fields of an expected error.
pub(crate) const ERROR: [&str; 2] = ["contains", "node"];

/// The ends of a run, as `status` names them.
pub(crate) const STATUSES: [(&str, Status); 5] = [
    (Status::Completed.name(), Status::Completed),
    (Status::CompletedWithErrors.name(), Status::CompletedWithErrors),
    (Status::Error.name(), Status::Error),
    (Status::Cancelled.name(), Status::Cancelled),
    (Status::Waiting.name(), Status::Waiting),
];

/// Returns the categories of failures with their words; `None` if the category is derived.
pub(crate) fn category_words() -> impl Iterator<Item = (&'static str, Option<Category>)> {
    Category::ALL.into_iter().map(|category| (category.name(), Some(category))).chain([("derived", None)])
}

/// The time at which a run begins, if its case does not say it: the first second of 2026, in milliseconds since the Unix epoch.
const BEGINS: i64 = 1_767_225_600_000;

/// Reads the cases of a file. Mistakes are reported.
pub(super) fn cases(source: &Arc<SourceFile>, tree: &YamlTree, diagnostics: &mut Diagnostics) -> Vec<TestCase> {
    let mut reader = TestReader { source, diagnostics };
    let Some(fields) = reader.map(tree, "a file of tests", &FILE) else { return Vec::new() };
    let shared = SharedParts {
        inputs: fields.get("inputs").map(|tree| reader.inputs(tree)).unwrap_or_default(),
        tools: fields.get("tools").map(|tree| reader.tools(tree, true)).unwrap_or_default(),
    };
    let Some(list) = reader.required(fields, "a file of tests", "cases") else { return Vec::new() };
    let Some(list) = reader.list(list, "`cases`") else { return Vec::new() };
    if list.is_empty() {
        let place = fields.entry("cases").map_or_else(|| fields.span(), |(key, _)| key.span.clone());
        reader.error(code::BAD_TEST, place, "there is no case, so nothing is tested").help("write a case");
    }
    let cases: Vec<TestCase> = list.iter().filter_map(|tree| reader.case(tree, &shared)).collect();
    let mut names: BTreeMap<&str, &Span> = BTreeMap::new();
    for TestCase { name, .. } in &cases {
        match names.get(name.value.as_str()) {
            None => drop(names.insert(&name.value, &name.span)),
            Some(first) => {
                let first = SourcePlace::new(source, (*first).clone());
                let message = format!("two cases are called `{}`", name.value);
                let problem = reader.error(code::BAD_TEST, name.span.clone(), message);
                problem.label("again here").related(first, "first here").help("say in the name what differs");
            }
        }
    }
    cases
}

/// Reads the answers of one tool, as a file of them has them. Mistakes are reported.
pub(crate) fn answers(source: &Arc<SourceFile>, tree: &YamlTree, diagnostics: &mut Diagnostics) -> Vec<PlacedAnswer> {
    TestReader { source, diagnostics }.tool_answers(tree, "the file")
}

/// The parts that the cases of a file share.
struct SharedParts {
    inputs: Vec<(PlacedValue<String>, YamlTree)>,
    tools: Vec<ToolScript>,
}

fn placed(key: &TreeKey) -> PlacedValue<String> {
    PlacedValue::new(key.name.clone(), key.span.clone())
}

impl TestReader<'_> {
    fn case(&mut self, tree: &YamlTree, shared: &SharedParts) -> Option<TestCase> {
        let fields = self.map(tree, "a case", &CASE)?;
        let name = self.required(fields, "a case", "name").and_then(|tree| self.text(tree, "`name`"));
        let name = name.unwrap_or_else(|| PlacedValue::new(String::new(), fields.span()));
        let mut inputs = fields.get("inputs").map(|tree| self.inputs(tree)).unwrap_or_default();
        let own = |list: &[(PlacedValue<String>, YamlTree)], name: &str| list.iter().any(|(own, _)| own.value == name);
        let others: Vec<_> = shared.inputs.iter().filter(|(name, _)| !own(&inputs, &name.value)).cloned().collect();
        inputs.extend(others);
        let mut tools = fields.get("tools").map(|tree| self.tools(tree, false)).unwrap_or_default();
        let others = shared.tools.iter().filter(|other| !tools.iter().any(|own| own.tool.value == other.tool.value));
        let others: Vec<_> = others.cloned().collect();
        tools.extend(others);
        let inputs_span = fields.entry("inputs").map_or_else(|| name.span.clone(), |(key, _)| key.span.clone());
        let crashes = fields.get("crash").and_then(|tree| self.word(tree, "`crash`", &[("each_commit", ())]));
        let unused = fields.get("unused").and_then(|tree| self.word(tree, "`unused`", &[("allowed", ())]));
        Some(TestCase {
            inputs,
            inputs_span,
            entry: fields.get("entry").and_then(|tree| self.text(tree, "`entry`")),
            begins: fields
                .get("begins")
                .and_then(|tree| self.time(tree))
                .unwrap_or_else(|| timestamp::from_unix_milliseconds(BEGINS)),
            tools,
            answers: self.each(fields, "answers", Self::people),
            signals: self.each(fields, "signals", Self::signal),
            grants: fields.get("grants").map(|tree| self.grants(tree)),
            crashes: crashes.is_some(),
            allows_unused: unused.is_some(),
            expect: self.expectations(fields, &name),
            name,
        })
    }

    /// Reads the elements of a list in a field.
    fn each<T>(
        &mut self,
        fields: MappingFields<'_>,
        name: &str,
        read: impl Fn(&mut Self, &YamlTree) -> Option<T>,
    ) -> Vec<T> {
        let list = fields.get(name).and_then(|tree| self.list(tree, &format!("`{name}`"))).unwrap_or_default();
        list.iter().filter_map(|tree| read(self, tree)).collect()
    }

    fn inputs(&mut self, tree: &YamlTree) -> Vec<(PlacedValue<String>, YamlTree)> {
        let Some(fields) = self.map(tree, "`inputs`", &[]) else { return Vec::new() };
        fields.entries().iter().map(|(key, value)| (placed(key), value.clone())).collect()
    }

    fn time(&mut self, tree: &YamlTree) -> Option<SystemTime> {
        let text = self.text(tree, "`begins`")?;
        let latest = timestamp::from_unix_milliseconds(253_402_300_799_000);
        let time = timestamp::with_offset(&text.value).filter(|time| (SystemTime::UNIX_EPOCH..=latest).contains(time));
        if time.is_none() {
            self.error(code::SHAPE, text.span, format!("`begins` is a time, not `{}`", text.value))
                .help("write a date and a time since 1970 with an offset from UTC: `\"2026-11-21T20:00:00+01:00\"`");
        }
        time
    }

    fn grants(&mut self, tree: &YamlTree) -> Vec<PlacedValue<Pattern>> {
        let texts = self.texts(tree, "`grants`").unwrap_or_default();
        let mut patterns = Vec::new();
        for text in texts {
            match Pattern::new(text.value.as_str()) {
                Ok(pattern) => patterns.push(PlacedValue::new(pattern, text.span)),
                Err(error) => drop(self.error(code::SHAPE, text.span, error.to_string())),
            }
        }
        patterns
    }

    fn tools(&mut self, tree: &YamlTree, is_shared: bool) -> Vec<ToolScript> {
        let Some(fields) = self.map(tree, "`tools`", &[]) else { return Vec::new() };
        let script = |(key, tree): &(TreeKey, YamlTree)| {
            let answers = self.tool_answers(tree, &format!("`{}`", key.name));
            ToolScript { tool: placed(key), answers, is_shared }
        };
        fields.entries().iter().map(script).collect()
    }

    /// Reads the answers of a tool: a list of them, or one.
    fn tool_answers(&mut self, tree: &YamlTree, whose: &str) -> Vec<PlacedAnswer> {
        match &tree.node {
            TreeNode::List(list) => list.iter().filter_map(|tree| self.tool_answer(tree)).collect(),
            TreeNode::Map(_) => self.tool_answer(tree).into_iter().collect(),
            _ => {
                self.error(
                    code::SHAPE,
                    tree.span.clone(),
                    format!("{whose} is a list of answers, not {}", tree.describe()),
                )
                .help("write a list as `[{ returns: { … } }]`; an empty list is a tool that is not called");
                Vec::new()
            }
        }
    }

    fn tool_answer(&mut self, tree: &YamlTree) -> Option<PlacedAnswer> {
        let fields = self.map(tree, "an answer", &ANSWER)?;
        // A tool may return null.
        let returns = fields.entry("returns").map(|(_, value)| value);
        let interrupts = fields.entry("interrupts").map(|(_, value)| value);
        let fails = fields.get("fails");
        let replies = [returns, interrupts, fails].into_iter().flatten().count();
        if replies != 1 {
            let message = match replies {
                0 => "an answer says what the tool does: `returns`, `fails` or `interrupts`",
                _ => "an answer says one of `returns`, `fails` and `interrupts`",
            };
            self.error(code::SHAPE, tree.span.clone(), message)
                .help("write what each call gets as an answer of its own, in the order of the calls");
            return None;
        }
        let reply = match (returns, interrupts, fails) {
            (Some(value), ..) => Reply::Returns(value.to_value()),
            (_, Some(payload), _) => Reply::Interrupts(payload.to_value()),
            (.., Some(failure)) => Reply::Fails(self.failure(failure)?),
            (None, None, None) => return None,
        };
        let with = fields.get("with");
        let params = with.map(|tree| self.map(tree, "`with`", &[]).map(|_| tree.to_value()));
        let params: Option<Map<String, Value>> = match params {
            None => None,
            Some(Some(Value::Object(params))) => Some(params),
            Some(_) => return None,
        };
        let delay = fields.get("delay").and_then(|tree| self.duration(tree, "`delay`")).unwrap_or_default();
        let times = fields.get("times").map_or(Some(Times::Exactly(1)), |tree| self.times(tree))?;
        let answer = ScriptedAnswer { reply, with: params, times, delay };
        Some(PlacedAnswer { answer, span: tree.span.clone(), returns: returns.cloned(), with: with.cloned() })
    }

    fn times(&mut self, tree: &YamlTree) -> Option<Times> {
        match &tree.node {
            TreeNode::String(_) => self.word(tree, "`times`", &[("any", Times::Any)]),
            _ => {
                let number = self.number(tree, "`times`", 1, 1_000_000)?;
                u32::try_from(number).ok().map(Times::Exactly)
            }
        }
    }

    fn failure(&mut self, tree: &YamlTree) -> Option<ScriptedFailure> {
        if let TreeNode::String(message) = &tree.node {
            return Some(ScriptedFailure::new(Category::Permanent, message.clone()));
        }
        let fields = self.map(tree, "`fails`", &FAILURE)?;
        let message = self.required(fields, "`fails`", "message").and_then(|tree| self.text(tree, "`message`"))?;
        let words: Vec<(&str, Option<Category>)> = category_words().collect();
        let category = match fields.get("category") {
            Some(tree) => self.word(tree, "`category`", &words)?,
            None => Some(Category::Permanent),
        };
        let status = fields.get("status").and_then(|tree| self.number(tree, "`status`", 0, 999));
        Some(ScriptedFailure {
            message: message.value,
            category,
            code: fields.get("code").and_then(|tree| self.text(tree, "`code`")).map(|text| text.value),
            status: status.and_then(|status| u16::try_from(status).ok()),
            retry_after: fields.get("retry_after").and_then(|tree| self.duration(tree, "`retry_after`")),
            data: fields.get("data").map(YamlTree::to_value),
        })
    }

    fn people(&mut self, tree: &YamlTree) -> Option<CaseAnswer> {
        let fields = self.map(tree, "an answer of people", &PEOPLE)?;
        let to = self.required(fields, "an answer of people", "to").and_then(|tree| self.text(tree, "`to`"));
        let after = fields.get("after").and_then(|tree| self.duration(tree, "`after`")).unwrap_or_default();
        let answer = fields.entry("answer").map(|(_, value)| PeopleSay::Answer(value.clone()));
        let expires = self.is_true(fields, "expires").then_some(PeopleSay::Nothing);
        let release = self.is_true(fields, "release").then_some(PeopleSay::Release);
        let mut said = [answer, expires, release].into_iter().flatten();
        let (Some(says), None) = (said.next(), said.next()) else {
            let message = "an element of `answers` has an `answer`, or `expires: true` for a question that nobody answers, or \
                           `release: true` for a visit that a hook suspended";
            self.error(code::SHAPE, tree.span.clone(), message);
            return None;
        };
        Some(CaseAnswer { to: to?, after, says, span: tree.span.clone() })
    }

    /// Whether a field is given. Its only value is `true`.
    fn is_true(&mut self, fields: MappingFields<'_>, name: &str) -> bool {
        let Some(tree) = fields.get(name) else { return false };
        if tree.node != TreeNode::Boolean(true) {
            self.error(code::SHAPE, tree.span.clone(), format!("`{name}` can only be `true`"));
        }
        true
    }

    fn signal(&mut self, tree: &YamlTree) -> Option<CaseSignal> {
        let fields = self.map(tree, "a signal", &SIGNAL)?;
        let name = self.required(fields, "a signal", "name").and_then(|tree| self.text(tree, "`name`"));
        let after = fields.get("after").map(|tree| self.duration(tree, "`after`"));
        let at = fields.get("at").map(|tree| self.duration(tree, "`at`"));
        let sent = match (after, at) {
            (Some(_), Some(_)) => {
                let message =
                    "a signal is sent some time `after` a wait began, or `at` some time after the start, not both";
                self.error(code::SHAPE, tree.span.clone(), message);
                return None;
            }
            (_, Some(at)) => SentAt::AfterStart(at?),
            (Some(after), None) => SentAt::AfterWait(after?),
            (None, None) => SentAt::AfterWait(Duration::ZERO),
        };
        let value = fields.entry("value").map(|(_, value)| value.clone());
        let to = fields.get("to").and_then(|tree| self.text(tree, "`to`"));
        if let (Some(to), SentAt::AfterStart(_)) = (&to, sent) {
            let message = "a signal that is sent `at` a time is for the run, and not for a node";
            self.error(code::SHAPE, to.span.clone(), message).help("remove `to`, or write `after`");
        }
        Some(CaseSignal { name: name?, value, sent, to, span: tree.span.clone() })
    }

    fn expectations(&mut self, case: MappingFields<'_>, name: &PlacedValue<String>) -> Expectations {
        const NOTHING: &str = "so it could not fail";
        let help =
            format!("write `expect` with at least one of {}", EXPECT.map(|field| format!("`{field}`")).join(", "));
        let Some(tree) = case.get("expect") else {
            let place = case.entry("expect").map_or_else(|| name.span.clone(), |(key, _)| key.span.clone());
            self.error(code::BAD_TEST, place, format!("the case expects nothing, {NOTHING}")).help(help);
            return Expectations::default();
        };
        let Some(fields) = self.map(tree, "`expect`", &EXPECT) else { return Expectations::default() };
        if fields.entries().is_empty() {
            self.error(code::BAD_TEST, fields.span(), format!("the case expects nothing, {NOTHING}")).help(help);
        }
        let span = |name: &str| fields.get(name).map_or(0..0, |tree| tree.span.clone());
        let path = fields.get("path").and_then(|tree| self.texts(tree, "`path`"));
        let warnings = fields.get("warnings").and_then(|tree| self.texts(tree, "`warnings`"));
        let status = fields.get("status").and_then(|tree| self.word(tree, "`status`", &STATUSES));
        let steps = fields.get("steps").and_then(|tree| self.number(tree, "`steps`", 0, u64::MAX));
        let state = fields.get("state").filter(|tree| self.map(tree, "`state`", &[]).is_some());
        for (key, value) in fields.entries() {
            if value.node == TreeNode::Null && key.name != "output" && EXPECT.contains(&key.name.as_str()) {
                self.error(
                    code::SHAPE,
                    key.span.clone(),
                    format!("`{}` has no value, so nothing is checked", key.name),
                );
            }
        }
        Expectations {
            path: path.map(|path| PlacedValue::new(path, span("path"))),
            status: status.map(|status| PlacedValue::new(status, span("status"))),
            // An output may be null.
            output: fields.entry("output").map(|(_, tree)| PlacedValue::new(tree.to_value(), tree.span.clone())),
            state: state.map(|tree| PlacedValue::new(tree.clone(), tree.span.clone())),
            error: fields.get("error").and_then(|tree| self.expected_error(tree)),
            calls: fields.get("calls").map(|tree| self.expected_calls(tree)).unwrap_or_default(),
            steps: steps.map(|steps| PlacedValue::new(steps, span("steps"))),
            warnings: warnings.map(|warnings| PlacedValue::new(warnings, span("warnings"))),
        }
    }

    fn expected_error(&mut self, tree: &YamlTree) -> Option<PlacedValue<ExpectedError>> {
        let error = match &tree.node {
            TreeNode::String(text) => {
                ExpectedError { contains: Some(PlacedValue::new(text.clone(), tree.span.clone())), node: None }
            }
            _ => {
                let fields = self.map(tree, "`error`", &ERROR)?;
                let mut text = |name: &str| fields.get(name).and_then(|tree| self.text(tree, &format!("`{name}`")));
                ExpectedError { contains: text("contains"), node: text("node") }
            }
        };
        Some(PlacedValue::new(error, tree.span.clone()))
    }

    fn expected_calls(&mut self, tree: &YamlTree) -> Vec<(PlacedValue<String>, ExpectedCalls)> {
        let Some(fields) = self.map(tree, "`calls`", &[]) else { return Vec::new() };
        if fields.entries().is_empty() {
            let message = "`calls` names no tool, so it checks nothing";
            self.error(code::BAD_TEST, tree.span.clone(), message)
                .help("write the tool and how often it is called: `calls: { shop/charge: 0 }`");
        }
        let mut calls = Vec::new();
        for (key, tree) in fields.entries() {
            let expected = match &tree.node {
                TreeNode::List(list) => {
                    let params = |tree: &YamlTree| {
                        self.map(tree, "each expected call", &[])?;
                        Some(PlacedValue::new(tree.to_value(), tree.span.clone()))
                    };
                    let list = list.iter().filter_map(params).collect();
                    Some(ExpectedCalls::List(PlacedValue::new(list, tree.span.clone())))
                }
                TreeNode::Number(_) => self
                    .number(tree, &format!("`{}`", key.name), 0, u64::MAX)
                    .map(|number| ExpectedCalls::Count(PlacedValue::new(number, tree.span.clone()))),
                _ => {
                    let message = format!(
                        "`{}` is the number of its calls, or a list of their parameters, not {}",
                        key.name,
                        tree.describe()
                    );
                    self.error(code::SHAPE, tree.span.clone(), message);
                    None
                }
            };
            calls.extend(expected.map(|expected| (placed(key), expected)));
        }
        calls
    }
}
