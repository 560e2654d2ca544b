//! Judging the run of a case: what it expects, and what happened.

use graph_compiler::source::{SourceFile, Span};
use graph_compiler::tree::YamlTree;
use graph_runtime::{Status, Value};
use serde_json::json;

use crate::check::TestNames;
use crate::file::{ExpectedCalls, ExpectedError, PlacedValue, TestCase, TestFile};
use crate::run::CaseRun;
use crate::script::{ScriptedCall, ScriptedTools, UnusedAnswer};
use crate::subset::{first_difference, is_same, is_subset};

/// A way in which a case failed.
#[derive(Debug, Clone, PartialEq)]
pub struct CaseFailure {
    /// The part of the case that was not met, as a path in its file: `expect.path`, `tools`.
    pub what: String,
    /// The expectation and what happened, in words.
    pub message: String,
    /// The line in the file of tests, from 1.
    pub line: usize,
    /// The column, from 1.
    pub column: usize,
    /// The values, if the failure is a difference between two.
    pub difference: Option<CaseDifference>,
    /// A reason that may explain it.
    pub note: Option<String>,
    /// How to mend it.
    pub help: Option<String>,
}

/// Two values that should be the same.
#[derive(Debug, Clone, PartialEq)]
pub enum CaseDifference {
    /// Names in their order, such as a path.
    Names {
        /// The expected names.
        expected: Vec<String>,
        /// The names that were found.
        found: Vec<String>,
    },
    /// Values.
    Values {
        /// The expected value.
        expected: Value,
        /// The value that was found; of a state, only the keys that are expected.
        found: Value,
    },
}

impl CaseFailure {
    /// A failure without values, at a place in a file.
    pub(crate) fn new(source: &SourceFile, span: &Span, what: &str, message: impl Into<String>) -> Self {
        let (line, column) = source.position(span.start);
        Self { what: what.to_owned(), message: message.into(), line, column, difference: None, note: None, help: None }
    }

    fn with(self, difference: CaseDifference) -> Self {
        Self { difference: Some(difference), ..self }
    }

    fn help(self, help: impl Into<String>) -> Self {
        Self { help: Some(help.into()), ..self }
    }

    /// Returns it as JSON: `what`, `message`, `line`, `column`, `expected` and `found` if it is a difference, and `note` and `help`.
    pub fn to_value(&self) -> Value {
        let mut value = json!({ "what": self.what, "message": self.message, "line": self.line, "column": self.column });
        match &self.difference {
            Some(CaseDifference::Names { expected, found }) => {
                (value["expected"], value["found"]) = (json!(expected), json!(found));
            }
            Some(CaseDifference::Values { expected, found }) => {
                (value["expected"], value["found"]) = (expected.clone(), found.clone());
            }
            None => {}
        }
        if let Some(note) = &self.note {
            value["note"] = json!(note);
        }
        if let Some(help) = &self.help {
            value["help"] = json!(help);
        }
        value
    }
}

/// Compares the run of a case with what the case expects. Returns the differences, in the order of the fields; empty if the case passed.
pub(crate) fn judge(
    file: &TestFile,
    case: &TestCase,
    run: &CaseRun,
    tools: &ScriptedTools,
    names: &TestNames,
) -> Vec<CaseFailure> {
    let mut judge = CaseJudge { source: &file.source, case, run, failures: Vec::new() };
    judge.unscripted(names);
    // All else is a consequence of a call that had no answer.
    if !judge.failures.is_empty() {
        return judge.failures;
    }
    judge.status();
    judge.path();
    judge.output();
    judge.state();
    judge.error();
    judge.calls();
    judge.numbers();
    judge.warnings();
    judge.unused(&tools.unused());
    for problem in &run.problems {
        judge.fail(&case.name.span, "events", problem.clone());
    }
    judge.failures
}

struct CaseJudge<'a> {
    source: &'a SourceFile,
    case: &'a TestCase,
    run: &'a CaseRun,
    failures: Vec<CaseFailure>,
}

impl CaseJudge<'_> {
    fn fail(&mut self, span: &Span, what: &str, message: impl Into<String>) {
        self.failures.push(CaseFailure::new(self.source, span, what, message));
    }

    fn differ(&mut self, span: &Span, what: &str, message: impl Into<String>, difference: CaseDifference) {
        self.failures.push(CaseFailure::new(self.source, span, what, message).with(difference));
    }

    /// Reports the calls that the script does not answer; of several calls of a tool at a node, the first.
    fn unscripted(&mut self, names: &TestNames) {
        let mut known: Vec<(&str, &str)> = Vec::new();
        for call in self.run.calls.iter().filter(|call| call.is_unscripted) {
            if known.contains(&(&call.tool, &call.node)) {
                continue;
            }
            known.push((&call.tool, &call.node));
            let script = self.case.tools.iter().find(|script| script.tool.value == call.tool);
            let place = script.map_or(&self.case.name.span, |script| &script.tool.span);
            let by = match (&call.hook, call.node.as_str()) {
                (Some(hook), node) => format!("hook `{hook}` at node `{node}` (step {})", call.step),
                (None, "") => "the graph".to_owned(),
                (None, node) => format!("node `{node}` (step {})", call.step),
            };
            let left = match script {
                None => "which has no script",
                Some(script) if script.answers.is_empty() => "which must not be called, as its script has no answer",
                Some(_) => "and no answer of its script is left for these parameters",
            };
            let message = format!("{by} called `{}`, {left}: {}", call.tool, call.shown_params());
            let help = match script {
                None => format!("add to `tools`: `{}`", names.sample_of(&call.tool)),
                Some(_) => "add an answer to its script, or `times: any` to its last one".to_owned(),
            };
            self.failures.push(CaseFailure::new(self.source, place, "tools", message).help(help));
        }
    }

    fn status(&mut self) {
        let (run, expect) = (self.run, &self.case.expect);
        if let Some(status) = &expect.status {
            if status.value != run.status {
                let message = format!("the run should be `{}`, and is {}", status.value.name(), self.ended());
                self.fail(&status.span, "expect.status", message);
            }
        } else if expect.error.is_none() && !run.status.has_result() {
            let help = match run.status {
                Status::Waiting => "script what it waits for in `answers` or `signals`, or expect `status: waiting`",
                _ => "if that is right, expect `error`",
            };
            let message = format!("the run should end with a result, and is {}", self.ended());
            let failure = CaseFailure::new(self.source, &self.case.name.span, "expect", message).help(help);
            self.failures.push(failure);
        }
    }

    /// Says how the run ended, with the reason.
    fn ended(&self) -> String {
        let run = self.run;
        let word = format!("`{}`", run.status.name());
        match (&run.error, &run.failed_node) {
            (Some(error), Some(node)) => format!("{word}: node `{node}` failed: {error}"),
            (Some(error), None) => format!("{word}: {error}"),
            (None, _) if !run.waits.is_empty() => {
                let waits: Vec<String> = run.waits.iter().map(|wait| format!("`{}`", wait.node)).collect();
                format!("{word} at {}", waits.join(", "))
            }
            (None, _) => word,
        }
    }

    fn path(&mut self) {
        let Some(path) = &self.case.expect.path else { return };
        let expected: Vec<String> = path.value.iter().map(|node| node.value.clone()).collect();
        if expected == self.run.path {
            return;
        }
        let found = self.run.path.clone();
        let same = expected.iter().zip(&found).take_while(|(one, other)| one == other).count();
        let message = match (expected.get(same), found.get(same)) {
            (Some(expected), Some(found)) => {
                format!("the run went another way at visit {}: to `{found}` and not to `{expected}`", same + 1)
            }
            (Some(expected), None) => format!("the run ended after {}, and should go to `{expected}`", visits(same)),
            (None, Some(found)) => format!("the run should end after {}, and went to `{found}`", visits(same)),
            (None, None) => "the run went another way".to_owned(),
        };
        let span = path.value.get(same).map_or_else(|| path.span.clone(), |node| node.span.clone());
        self.differ(&span, "expect.path", message, CaseDifference::Names { expected, found });
        self.explain();
    }

    fn output(&mut self) {
        let Some(PlacedValue { value: expected, span }) = &self.case.expect.output else { return };
        match &self.run.output {
            Some(found) if is_same(expected, found) => {}
            Some(found) => {
                let difference = CaseDifference::Values { expected: expected.clone(), found: found.clone() };
                self.differ(span, "expect.output", "the output is another one", difference);
                self.explain();
            }
            None => self.fail(span, "expect.output", format!("there is no output: the run is {}", self.ended())),
        }
    }

    /// Adds to the last failure what may explain it, if no failure before has it.
    fn explain(&mut self) {
        let reasons = self.run.reasons.join("; ");
        if reasons.is_empty() || self.failures.iter().any(|failure| failure.note.as_ref() == Some(&reasons)) {
            return;
        }
        if let Some(last) = self.failures.last_mut() {
            last.note = Some(reasons);
        }
    }

    fn state(&mut self) {
        let Some(PlacedValue { value: tree, span }) = &self.case.expect.state else { return };
        let expected = tree.to_value();
        let Some(path) = first_difference(&expected, &self.run.state) else { return };
        // Only what is expected is shown.
        let names = expected.as_object().into_iter().flat_map(|object| object.keys());
        let found = names.map(|name| (name.clone(), self.run.state.get(name).cloned().unwrap_or_default())).collect();
        let message = format!("the state is another one at `{}`", path.join("."));
        let place = place_of(tree, &path).unwrap_or_else(|| span.clone());
        self.differ(&place, "expect.state", message, CaseDifference::Values { expected, found });
    }

    fn error(&mut self) {
        let Some(PlacedValue { value: ExpectedError { contains, node }, span }) = &self.case.expect.error else {
            return;
        };
        let Some(error) = &self.run.error else {
            let message = format!("the run should fail, and is {}", self.ended());
            return self.fail(span, "expect.error", message);
        };
        if let Some(text) = contains.as_ref().filter(|text| !error.contains(&text.value)) {
            let message = format!("the error should contain `{}`, and is: {error}", text.value);
            self.fail(&text.span, "expect.error", message);
        }
        if let Some(node) = node.as_ref().filter(|node| self.run.failed_node.as_ref() != Some(&node.value)) {
            let found = self.run.failed_node.as_ref().map_or("no node".to_owned(), |node| format!("`{node}`"));
            self.fail(&node.span, "expect.error.node", format!("node `{}` should fail, and {found} did", node.value));
        }
    }

    fn calls(&mut self) {
        for (tool, expected) in &self.case.expect.calls {
            let is_first = |call: &&ScriptedCall| call.tool == tool.value && !call.is_repeated;
            let found: Vec<&ScriptedCall> = self.run.calls.iter().filter(is_first).collect();
            match expected {
                ExpectedCalls::Count(count) if count.value == found.len() as u64 => {}
                ExpectedCalls::Count(count) => {
                    let expected = usize::try_from(count.value).unwrap_or(usize::MAX);
                    let message = format!(
                        "`{}` should be called {}, and was called {}",
                        tool.value,
                        times(expected),
                        times(found.len())
                    );
                    self.fail(&count.span, "expect.calls", message);
                }
                ExpectedCalls::List(list) => {
                    for (at, (expected, found)) in list.value.iter().zip(&found).enumerate() {
                        let params = Value::Object(found.params.clone());
                        if !is_subset(&expected.value, &params) {
                            let message = format!(
                                "call {} of `{}`, by node `{}` (step {}), has other parameters",
                                at + 1,
                                tool.value,
                                found.node,
                                found.step
                            );
                            let difference = CaseDifference::Values { expected: expected.value.clone(), found: params };
                            self.differ(&expected.span, "expect.calls", message, difference);
                        }
                    }
                    if list.value.len() != found.len() {
                        let message = format!(
                            "`{}` should be called {}, and was called {}",
                            tool.value,
                            times(list.value.len()),
                            times(found.len())
                        );
                        self.fail(&list.span, "expect.calls", message);
                    }
                }
            }
        }
    }

    fn numbers(&mut self) {
        if let Some(steps) = self.case.expect.steps.as_ref().filter(|steps| steps.value != self.run.steps) {
            let message = format!("the run should visit {} nodes, and visited {}", steps.value, self.run.steps);
            self.fail(&steps.span, "expect.steps", message);
        }
    }

    fn warnings(&mut self) {
        let Some(expected) = &self.case.expect.warnings else { return };
        let found = &self.run.warnings;
        let is_same = expected.value.len() == found.len()
            && expected.value.iter().zip(found).all(|(expected, found)| found.contains(&expected.value));
        if !is_same {
            let names = expected.value.iter().map(|text| text.value.clone()).collect();
            let difference = CaseDifference::Names { expected: names, found: found.clone() };
            self.differ(&expected.span, "expect.warnings", "the run has other warnings", difference);
        }
    }

    /// Reports what is scripted and was not used.
    fn unused(&mut self, answers: &[UnusedAnswer]) {
        let case = self.case;
        if case.allows_unused {
            return;
        }
        for UnusedAnswer { tool, answer, used, expected } in answers {
            let Some(script) = case.tools.iter().find(|script| script.tool.value == *tool && !script.is_shared) else {
                continue;
            };
            let Some(placed) = script.answers.get(*answer) else { continue };
            let message = match (used, expected) {
                (0, _) => format!("answer {} of `{tool}` was not used", answer + 1),
                _ => format!(
                    "answer {} of `{tool}` was used {}, and not {expected} times",
                    answer + 1,
                    times(*used as usize)
                ),
            };
            self.unused_part(&placed.span, "tools", message);
        }
        for (at, answer) in case.answers.iter().enumerate().filter(|(at, _)| !self.run.used.answers.contains(at)) {
            let (node, used) = (&answer.to.value, &self.run.used);
            let message = match used.asked.get(node) {
                _ if used.late_answers.contains(&at) => {
                    format!("answer {} of people came too late: the question of `{node}` was over before", at + 1)
                }
                None => format!("answer {} of people was not used: `{node}` did not ask", at + 1),
                Some(asked) => format!("answer {} of people was not used: `{node}` asked {}", at + 1, times(*asked)),
            };
            self.unused_part(&answer.span, "answers", message);
        }
        for (at, signal) in case.signals.iter().enumerate().filter(|(at, _)| !self.run.used.signals.contains(at)) {
            let message = format!("signal {}, `{}`, was not sent: nothing waited for it", at + 1, signal.name.value);
            self.unused_part(&signal.span, "signals", message);
        }
    }

    fn unused_part(&mut self, span: &Span, what: &str, message: String) {
        let failure = CaseFailure::new(self.source, span, what, message);
        self.failures.push(failure.help("remove it, or say `unused: allowed` in the case"));
    }
}

fn visits(number: usize) -> String {
    format!("{number} visit{}", if number == 1 { "" } else { "s" })
}

fn times(number: usize) -> String {
    if number == 1 { "once".to_owned() } else { format!("{number} times") }
}

/// Returns the place of a part of a value.
fn place_of(tree: &YamlTree, path: &[String]) -> Option<Span> {
    let mut at = tree;
    for name in path {
        let graph_compiler::tree::TreeNode::Map(fields) = &at.node else { return None };
        at = fields.iter().find(|(key, _)| key.name == *name).map(|(_, value)| value)?;
    }
    Some(at.span.clone())
}

/// Compares the run of a case that crashed after a commit with the one that did not. Returns what differs.
pub(crate) fn compare_crashed(
    file: &TestFile,
    case: &TestCase,
    whole: &CaseRun,
    crashed: &CaseRun,
    after: u64,
) -> Vec<CaseFailure> {
    let mut failures = Vec::new();
    let mut fail = |message: String| {
        let message = format!("after a crash behind commit {after} of {}: {message}", whole.commits);
        failures.push(CaseFailure::new(&file.source, &case.name.span, "crash", message));
    };
    if crashed.status != whole.status {
        fail(format!("the run is `{}` and not `{}`", crashed.status.name(), whole.status.name()));
    }
    let same_output = match (&crashed.output, &whole.output) {
        (Some(one), Some(other)) => is_same(one, other),
        (one, other) => one.is_none() && other.is_none(),
    };
    if !same_output {
        let shown = |output: &Option<Value>| output.as_ref().map_or("absent".to_owned(), Value::to_string);
        fail(format!("the output is {} and not {}", shown(&crashed.output), shown(&whole.output)));
    }
    if crashed.path != whole.path {
        fail(format!("the path is {} and not {}", crashed.path.join(" "), whole.path.join(" ")));
    }
    if crashed.error != whole.error {
        let shown = |error: &Option<String>| error.clone().unwrap_or_else(|| "absent".to_owned());
        fail(format!("the error is {} and not {}", shown(&crashed.error), shown(&whole.error)));
    }
    let new = crashed.problems.iter().filter(|problem| !whole.problems.contains(problem));
    new.cloned().for_each(&mut fail);
    if let Some(call) = crashed.calls.iter().find(|call| call.is_unscripted)
        && !whole.calls.iter().any(|call| call.is_unscripted)
    {
        fail(format!("node `{}` called `{}` in another way: {}", call.node, call.tool, call.shown_params()));
    }
    failures
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_comes_to_another_end_after_a_crash_fails_its_case() {
        let text = "cases: [{ name: one, crash: each_commit, expect: { steps: 1 } }]\n";
        let file = TestFile::parse(&SourceFile::new("g.test.yaml", "g.test.yaml", text)).unwrap();
        let whole =
            CaseRun { output: Some(json!({ "cents": 3 })), commits: 4, ..CaseRun::refused("closed".to_owned()) };
        let compared = |crashed: &CaseRun| -> Vec<String> {
            let failures = compare_crashed(&file, &file.cases[0], &whole, crashed, 2);
            failures.into_iter().map(|failure| failure.message).collect()
        };
        assert!(compared(&whole).is_empty());
        assert!(compared(&CaseRun { output: Some(json!({ "cents": 3.0 })), ..whole.clone() }).is_empty());
        let call = ScriptedCall {
            tool: "shop/pay".to_owned(),
            run: None,
            node: "pay".to_owned(),
            hook: None,
            step: 1,
            attempt: 1,
            params: graph_runtime::Map::new(),
            is_repeated: false,
            is_unscripted: true,
        };
        for (crashed, expected) in [
            (CaseRun { status: Status::Waiting, ..whole.clone() }, "the run is `waiting` and not `error`"),
            (
                CaseRun { output: Some(json!({ "cents": 4 })), ..whole.clone() },
                "the output is {\"cents\":4} and not {\"cents\":3}",
            ),
            (CaseRun { output: None, ..whole.clone() }, "the output is absent and not {\"cents\":3}"),
            (CaseRun { path: vec!["pay".to_owned()], ..whole.clone() }, "the path is pay and not "),
            (CaseRun { error: None, ..whole.clone() }, "the error is absent and not closed"),
            (CaseRun { problems: vec!["again".to_owned()], ..whole.clone() }, "again"),
            (CaseRun { calls: vec![call], ..whole.clone() }, "node `pay` called `shop/pay` in another way: {}"),
        ] {
            assert_eq!(compared(&crashed), [format!("after a crash behind commit 2 of 4: {expected}")]);
        }
    }
}
