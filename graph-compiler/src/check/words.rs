//! Values that can only be words of the engine, or names of nodes, are compared only with those.

use graph_definition::definition::TestDefinition;
use graph_definition::diagnostic::{Diagnostics, code};
use graph_model::operator::Operator;
use graph_model::path::{Path, Root};
use graph_model::program::{Event, Executor, LAST_ERROR, LimitCode, RETRIES};
use graph_model::value::Value;

use crate::analysis::Analysis;
use crate::analysis::reads::{Site, tests};

/// The statuses with which a run can end.
const ENDS: [&str; 4] = ["completed", "completed_with_errors", "error", "cancelled"];
/// The categories of failures.
const CATEGORIES: [&str; 4] = ["permanent", "transient", "rate_limited", "cancelled"];
/// The limits that a run can reach.
const LIMITS: [&str; LimitCode::TABLE.len()] = [LimitCode::TABLE[0].1, LimitCode::TABLE[1].1, LimitCode::TABLE[2].1];

/// A kind of words that a value can be.
enum Words {
    Ends,
    Categories,
    Limits,
    Nodes,
}

pub(super) fn check(analysis: &Analysis<'_>, diagnostics: &mut Diagnostics) {
    for (at, node) in analysis.model.definition.nodes.iter().enumerate() {
        for test in tests(node) {
            if let Some(words) = words_of_node(analysis, at, &test.path.value) {
                check_test(analysis, test, &words, diagnostics);
            }
        }
    }
    for hook in &analysis.model.definition.hooks {
        hook.condition.tests(&mut |test| {
            if let Some(words) = words_of_hook(hook.event, &test.path.value) {
                check_test(analysis, test, &words, diagnostics);
            }
        });
    }
    analysis.model.reads(&mut |read| {
        let segments: Vec<&str> = read.path.segments.iter().map(String::as_str).collect();
        let name = match (read.path.root, read.site, segments.as_slice()) {
            (Root::State, _, [RETRIES, name, ..]) => *name,
            (Root::Local, Site::Hook, ["state", RETRIES, name, ..]) => *name,
            _ => return,
        };
        if analysis.model.definition.is_well_formed && !analysis.model.is_node(name) {
            let message = format!("no node is called `{name}`, so nothing is counted under that name");
            diagnostics
                .lint(code::UNKNOWN_WORD, read.place(analysis.model.definition), message)
                .label("no node with this name")
                .suggest(name, analysis.model.node_names());
        }
    });
}

/// Returns the words that the value at a path in the edges of a node can be.
fn words_of_node(analysis: &Analysis<'_>, node: usize, path: &Path) -> Option<Words> {
    let segments: Vec<&str> = path.segments.iter().map(String::as_str).collect();
    match (path.root, segments.as_slice()) {
        (Root::State, [LAST_ERROR, "node"]) => Some(Words::Nodes),
        (Root::Result, ["status"]) => {
            let call = analysis.model.definition.nodes[node].call()?;
            (analysis.model.tool(call).by == Executor::Graph).then_some(Words::Ends)
        }
        _ => None,
    }
}

/// Returns the words that the value at a path in the condition of a hook can be.
fn words_of_hook(event: Event, path: &Path) -> Option<Words> {
    let segments: Vec<&str> = path.segments.iter().map(String::as_str).collect();
    match (path.root, event, segments.as_slice()) {
        (Root::Local, Event::Error, ["classification", "category"]) => Some(Words::Categories),
        (Root::Local, Event::GraphCompleted, ["status"]) => Some(Words::Ends),
        (Root::Local, Event::Limit, ["limit_code"]) => Some(Words::Limits),
        (Root::Local, _, ["node" | "next_node"] | ["state", LAST_ERROR, "node"]) => Some(Words::Nodes),
        _ => None,
    }
}

fn check_test(analysis: &Analysis<'_>, test: &TestDefinition, words: &Words, diagnostics: &mut Diagnostics) {
    let compared: Vec<&Value> = match (test.operator, &test.value.value) {
        (Operator::Eq | Operator::Ne, value) => vec![value],
        (Operator::In, Value::Array(list)) => list.iter().collect(),
        _ => return,
    };
    let known: &[&str] = match words {
        Words::Ends => &ENDS,
        Words::Categories => &CATEGORIES,
        Words::Limits => &LIMITS,
        Words::Nodes if !analysis.model.definition.is_well_formed => return,
        Words::Nodes => &[],
    };
    let is_known = |value: &Value| match value {
        Value::Null => true,
        Value::String(text) => match words {
            Words::Nodes => analysis.model.is_node(text),
            _ => known.contains(&text.as_str()),
        },
        _ => false,
    };
    let Some(wrong) = compared.into_iter().find(|value| !is_known(value)) else { return };
    let path = &test.path.value;
    let diagnostic = diagnostics.lint(
        code::UNKNOWN_WORD,
        analysis.model.place(&test.value.span),
        format!(
            "`{path}` is never {}",
            wrong.as_str().map_or_else(|| format!("`{wrong}`"), |text| format!("`{text}`"))
        ),
    );
    let wrong = wrong.as_str().unwrap_or_default();
    match words {
        Words::Nodes => {
            diagnostic.label("no node with this name").suggest(wrong, analysis.model.node_names());
        }
        _ => {
            let listed: Vec<String> = known.iter().map(|word| format!("`{word}`")).collect();
            diagnostic.label("not one of its words").note(format!("it is {}", listed.join(", ")));
            diagnostic.suggest(wrong, known.iter().copied());
        }
    }
}
