//! Guarded calls use no value that somebody else chose and nobody approved.
//!
//! A contract with `x-guarded: true` says that a call of its tool needs the approval of a person if its arguments are untrusted. The
//! rule follows each argument back along every path, through the keys of the state and the elements of lists, to where its value comes
//! from. A path is fine if it comes by an interrupt that shows the value, or if the author of the graph wrote the value.

mod answers;
mod paths;
mod shown;
mod sources;

use graph_definition::definition::{CallDefinition, SchemaKind, TermDefinition, TermKind, ValueSchema, locate};
use graph_definition::diagnostic::{Diagnostics, code};
use graph_definition::source::Span;
use graph_model::path::{Path, Root};
use graph_model::template::Template;
use graph_model::value::Value;

use super::sinks::may_be;
use crate::analysis::Analysis;
use crate::analysis::calls::Caller;
use crate::analysis::reads::Site;
use crate::graph::ApprovingAnswers;
use paths::GraphPaths;
use sources::{Objection, Provenance, Sources, Weakness};

/// A call whose values must be trusted or approved.
struct GuardedTerms<'d> {
    caller: Caller<'d>,
    terms: Vec<&'d TermDefinition>,
    /// The name of its tool.
    tool: String,
}

/// A value of a call that nobody approves: where it comes from, the interrupt that does not count with the reason, its path and place.
type Unapproved<'d> = (Provenance, Option<(Option<usize>, Weakness)>, &'d Path, Span);

pub(super) fn check(analysis: &Analysis<'_>, diagnostics: &mut Diagnostics) {
    let calls = guarded_calls(analysis);
    if calls.is_empty() {
        return;
    }
    let paths = GraphPaths::new(analysis);
    let sources = Sources::new(&paths);
    find_approvals(&sources, &calls);
    let approvals = calls.iter().flat_map(|call| approvals(&sources, call)).collect();
    analysis.approvals.get_or_init(|| approvals);
    for call in &calls {
        let (node, site) = call.caller.site();
        let mut unapproved = Vec::new();
        for term in &call.terms {
            term.templates(&mut |term, template, text| {
                for expression in template.expressions() {
                    for (at, objection) in sources.untrusted(node, site, expression) {
                        let span = locate(analysis.model.definition.source(), &term.span, text, &expression.ranges[at]);
                        let path = &expression.paths[at];
                        match objection {
                            Objection::Unapproved { source, weak } => unapproved.push((source, weak, path, span)),
                            Objection::Rewritten { writer, interrupt } => {
                                report_rewritten(analysis, (writer, interrupt), (path, span), call, diagnostics);
                            }
                        }
                    }
                }
            });
        }
        report_unapproved(analysis, &unapproved, call, diagnostics);
    }
}

/// Returns the guarded calls of a graph; none if its paths are not known.
fn guarded_calls<'d>(analysis: &Analysis<'d>) -> Vec<GuardedTerms<'d>> {
    if !analysis.model.is_whole() || !analysis.flow.branches().faults().is_empty() {
        return Vec::new();
    }
    let calls = analysis.model.calls().map(|(caller, call)| {
        let (terms, tool) = guarded_terms(analysis, call);
        GuardedTerms { caller, terms, tool }
    });
    calls.filter(|call| !call.terms.is_empty()).collect()
}

/// Finds out which approvals each call may use, until none may use another one.
fn find_approvals(sources: &Sources<'_, '_>, calls: &[GuardedTerms<'_>]) {
    let mut is_new = true;
    while is_new {
        is_new = false;
        for call in calls {
            let (Caller::Node(..), (node, site)) = (&call.caller, call.caller.site()) else { continue };
            for term in &call.terms {
                term.templates(&mut |_, template, _| {
                    for expression in template.expressions() {
                        is_new |= sources.use_approvals(node, site, expression);
                    }
                });
            }
        }
    }
}

/// Returns the interrupts that may approve a call, with the answers that do.
fn approvals(sources: &Sources<'_, '_>, call: &GuardedTerms<'_>) -> Vec<ApprovingAnswers> {
    let (Caller::Node(..), (node, _)) = (&call.caller, call.caller.site()) else { return Vec::new() };
    let name = |at: usize| sources.paths.node(at).name.to_string();
    let approval = |interrupt: usize| {
        let ask = sources.paths.node(interrupt).ask()?;
        let answers = sources.answers(interrupt);
        let words: Vec<&str> = answers.approving(node).flat_map(texts_in).collect();
        let of_word = ask.count.words.iter().filter(|(word, _)| words.contains(&word.value.as_str()));
        Some(ApprovingAnswers {
            node: name(node),
            tool: call.tool.clone(),
            interrupt: name(interrupt),
            answers: answers.shown(node),
            role: ask.role.as_ref().map(|role| role.value.clone()),
            count: of_word.map(|(_, count)| *count).min().unwrap_or(ask.count.most),
        })
    };
    sources.used_by(node).into_iter().filter_map(approval).collect()
}

/// Returns the texts in an answer that may be words of `count`.
fn texts_in(answer: &Value) -> Vec<&str> {
    match answer {
        Value::String(text) => vec![text],
        Value::Object(fields) => fields.values().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

/// Returns the terms of a call whose values must be trusted or approved, none if the call is not guarded; and the name of its tool.
fn guarded_terms<'d>(analysis: &Analysis<'d>, call: &'d CallDefinition) -> (Vec<&'d TermDefinition>, String) {
    let shown = call.shown().to_string();
    let tool = analysis.model.tool(call);
    if let Some(contract) = tool.contract.filter(|contract| contract.guarded) {
        return (guarded_parts(Some(&contract.params), &call.params, true), shown);
    }
    if let Some(graph) = tool.graph.filter(|graph| graph.is_guarded) {
        return (guarded_parts(graph.schema.as_ref(), &call.params, true), shown);
    }
    let mut reachable = analysis.model.items.reachable.iter().filter(|one| one.is_guarded || one.schema.has_guarded());
    if let Some((id, _)) = call.computed()
        && let Some(one) = reachable.find(|one| may_be(analysis, call, one.id.as_str()))
    {
        return (vec![id, &call.params], format!("`{}`, which {shown} may be", one.id));
    }
    let schema = tool.graph.and_then(|graph| graph.schema.as_ref());
    (schema.map_or_else(Vec::new, |schema| guarded_parts(Some(schema), &call.params, false)), shown)
}

/// Returns the parts of a call's parameters that must be trusted or approved, given the schema of these parameters.
fn guarded_parts<'d>(
    schema: Option<&ValueSchema>,
    term: &'d TermDefinition,
    is_guarded: bool,
) -> Vec<&'d TermDefinition> {
    let Some(schema) = schema else { return if is_guarded { vec![term] } else { Vec::new() } };
    let is_guarded = (is_guarded || schema.guarded) && schema.unguarded.is_none();
    if !is_guarded && !schema.has_guarded() {
        return Vec::new();
    }
    match (&schema.kind, &term.kind) {
        (SchemaKind::Object(properties), TermKind::Object(given)) => {
            let of = |name: &str| properties.iter().find(|property| property.name.value == name);
            let parts = given.iter().flat_map(|(key, term)| {
                guarded_parts(of(&key.value).map(|property| &property.schema), term, is_guarded)
            });
            parts.collect()
        }
        (SchemaKind::List(items), TermKind::List(terms)) => {
            terms.iter().flat_map(|term| guarded_parts(Some(items), term, is_guarded)).collect()
        }
        _ => vec![term],
    }
}

/// Reports a value that may change after its approval.
fn report_rewritten(
    analysis: &Analysis<'_>,
    (writer, interrupt): (usize, usize),
    (path, span): (&Path, Span),
    call: &GuardedTerms<'_>,
    diagnostics: &mut Diagnostics,
) {
    let (model, caller, tool) = (&analysis.model, &call.caller, &call.tool);
    let (writer, interrupt) = (&model.definition.nodes[writer].name, &model.definition.nodes[interrupt].name);
    let message = format!(
        "{caller} gives `{path}` to the guarded call of {tool}, but node `{writer}` may write the value after the \
         interrupt `{interrupt}` has shown it"
    );
    diagnostics
        .error(code::REWRITTEN, model.place(&span), message)
        .label("may differ from what was approved")
        .related(model.place(&writer.span), "it is written here")
        .related(model.place(&interrupt.span), "it is shown here")
        .help("write the value before the interrupt, or keep another value in a key of its own");
}

/// Reports the values of a call that nobody approves, as one mistake.
fn report_unapproved(
    analysis: &Analysis<'_>,
    unapproved: &[Unapproved<'_>],
    call: &GuardedTerms<'_>,
    diagnostics: &mut Diagnostics,
) {
    let Some(((source, weak, path, span), others)) = unapproved.split_first() else { return };
    let (model, caller, tool) = (&analysis.model, &call.caller, &call.tool);
    let name = |at: usize| &model.definition.nodes[at].name;
    let message = format!("{caller} gives `{path}` to the guarded call of {tool}, and no person approves the value");
    let diagnostic = diagnostics.error(code::UNAPPROVED, model.place(span), message);
    let (from, at) = origin(analysis, source);
    diagnostic.label(format!("comes from {from}"));
    if let Some(at) = at {
        diagnostic.related(model.place(&name(at).span), "it comes from here");
    }
    for (source, _, _, span) in others {
        let (from, _) = origin(analysis, source);
        diagnostic.related(model.place(span), format!("nobody approves this either: it comes from {from}"));
    }
    let of = |interrupt: &Option<usize>| match interrupt {
        Some(at) => format!("the interrupt `{}`", name(*at)),
        None => "the interrupt before it".to_owned(),
    };
    match weak {
        Some((at, Weakness::EachAnswer)) => {
            let other = "for some of the other values that its edges compare";
            diagnostic.note(format!("each answer to {} leads to the call, {other}", of(at)));
        }
        Some((_, Weakness::Again)) => {
            diagnostic.note("the call may be made again with what was approved once");
        }
        Some((at, Weakness::Used)) => {
            diagnostic.note(format!("another guarded call may use the approval of {} before it", of(at)));
        }
        Some((at, Weakness::List(node))) => {
            let list = format!("the call is made for each element of the list of `{}`", name(*node));
            diagnostic.note(format!("{list}, which {} does not show", of(at)));
        }
        Some((at, Weakness::Replaced)) => {
            diagnostic.note(format!("a failure behind {} replaces what it shows", of(at)));
        }
        None => {}
    }
    if let Some((interrupt, field)) = shown_in_text(analysis, path) {
        diagnostic
            .related(model.place(field), format!("`{interrupt}` shows it inside a longer text, which does not count"));
    }
    diagnostic.help(match weak {
        Some((_, Weakness::Replaced)) => {
            "assign it to a key of its own before the interrupt, and show and use that key".to_owned()
        }
        _ => help(analysis, source, path, call),
    });
}

/// Returns a place in the payload of an interrupt that has a value inside a longer text, with the interrupt's name.
fn shown_in_text<'d>(analysis: &Analysis<'d>, path: &Path) -> Option<(&'d str, &'d Span)> {
    analysis.model.definition.nodes.iter().find_map(|node| {
        let mut found = None;
        node.ask()?.payload.as_ref()?.templates(&mut |term, template, _| {
            let is_mixed = matches!(template, Template::Mixed(_));
            if is_mixed && template.expressions().any(|expression| expression.paths.contains(path)) {
                found = Some((node.name.value.as_str(), &term.span));
            }
        });
        found
    })
}

/// Returns where a value comes from, in words, and the node that it comes from.
fn origin(analysis: &Analysis<'_>, source: &Provenance) -> (String, Option<usize>) {
    let name = |at: usize| &analysis.model.definition.nodes[at].name;
    match source {
        Provenance::Input => ("an input that nobody vouches for".to_owned(), None),
        Provenance::Result(at) => (format!("the result of node `{}`", name(*at)), Some(*at)),
        Provenance::Shared(Some(at)) => (format!("the run that node `{}` shares the key with", name(*at)), Some(*at)),
        Provenance::Shared(None) => ("a graph that shares the key".to_owned(), None),
        Provenance::Failure => ("the text of a failure".to_owned(), None),
        Provenance::Event => ("the event of a hook".to_owned(), None),
    }
}

/// Returns how a value that nobody approves can be approved.
fn help(analysis: &Analysis<'_>, source: &Provenance, path: &Path, call: &GuardedTerms<'_>) -> String {
    let tool = &call.tool;
    let (node, site) = call.caller.site();
    let is_secret = analysis.type_env().type_of_path(node, site, path).has_secret();
    match source {
        // Nobody may be shown a secret.
        Provenance::Input if is_secret => format!(
            "mark the input with `x-guarded: true` if the caller of the graph vouches for it; or the parameter with \
             `x-guarded: false` in the contract of {tool}, if it does not choose what the call does"
        ),
        _ if is_secret => format!(
            "a secret is not shown to people: mark the parameter with `x-guarded: false` in the contract of {tool}, \
             if it does not choose what the call does"
        ),
        _ if path.root == Root::Local && site == Site::Item => {
            "show the list in the payload of an interrupt on each path to the node, and come to the node only where \
             the answer says so"
                .to_owned()
        }
        _ if path.root == Root::Visit => format!(
            "write `${{{path}}}` to a key of the state, show the key in the payload of an interrupt, and use it here"
        ),
        Provenance::Event => "make the call in a node, behind an interrupt that shows its arguments".to_owned(),
        Provenance::Input => format!(
            "show `${{{path}}}` in the payload of an interrupt on each path to the node; or mark the input with \
             `x-guarded: true` if the caller of the graph vouches for it"
        ),
        _ => format!(
            "show `${{{path}}}` in the payload of an interrupt on each path to the node, and come to the node only \
             where the answer says so"
        ),
    }
}

#[cfg(test)]
mod tests;
