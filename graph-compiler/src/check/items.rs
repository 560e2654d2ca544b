//! Each id of a tool or graph is unique, hooks run no graphs, and nested graphs can coexist as modules.

use std::collections::BTreeMap;

use graph_definition::definition::CallDefinition;
use graph_definition::diagnostic::{Diagnostics, Fix, code};
use graph_model::program::{Executor, INTERNAL, ItemType, Verb};

use crate::analysis::Analysis;
use crate::analysis::calls::Caller;
use crate::expand::module_name;

pub(super) fn check(analysis: &Analysis<'_>, diagnostics: &mut Diagnostics) {
    let own = analysis.model.definition.source();
    let stem = own.path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    let mut modules: BTreeMap<String, &str> = BTreeMap::from([(module_name(stem), own.name.as_str())]);
    let executed =
        |(_, call): (Caller<'_>, &CallDefinition)| (call.verb, call.item_type) == (Verb::Execute, ItemType::Tool);
    for (_, call) in analysis.model.calls().filter(|call| executed(*call)) {
        if let Some(files) = call.id().and_then(|id| analysis.model.items.ambiguous.get(id)) {
            let files: Vec<String> = files.iter().map(|file| format!("`{file}`")).collect();
            diagnostics
                .error(
                    code::AMBIGUOUS_ITEM,
                    analysis.model.place(&call.item.span),
                    format!("{} is ambiguous", call.shown()),
                )
                .note(format!("they are {}", files.join(" and ")))
                .help("rename all but one of them");
        }
    }
    for (caller, call) in analysis.model.calls().filter(|call| executed(*call)) {
        let contract = call.id().and_then(|id| analysis.model.items.contracts.get(id));
        if let Some(contract) = contract.filter(|contract| contract.is_reducer()) {
            let message = format!("{caller} executes {}, which is a reducer", call.shown());
            diagnostics
                .error(code::BAD_REDUCER, analysis.model.place(&call.item.span), message)
                .note(format!("the contract is `{}`", contract.source.name))
                .help("a reducer combines the writes to a channel: `channels: { key: { reduce: { item_id: … } } }`");
        }
    }
    for (caller, call) in analysis.model.calls() {
        if let (Caller::Hook(..), Some(graph)) = (caller, analysis.model.tool(call).graph) {
            diagnostics
                .error(
                    code::NOT_SUPPORTED,
                    analysis.model.place(&call.item.span),
                    format!("{caller} runs the graph `{}`, which is not supported by this version", graph.file),
                )
                .help("call a tool of the program");
        }
    }
    if !analysis.model.items.ambiguous.is_empty() {
        // It is not clear which of the graphs runs inside.
        return;
    }
    for inner in &analysis.model.items.inner {
        let file = *modules.entry(inner.module.clone()).or_insert(&inner.file);
        if file == inner.file {
            continue;
        }
        // The call that nests the graph; else the first call of a graph, which may lead to it.
        let calls =
            || analysis.model.calls().map(|(_, call)| call).filter(|call| analysis.model.tool(call).graph.is_some());
        let its = calls().find(|call| call.id().is_some_and(|id| id.as_str() == inner.id));
        let Some(call) = its.or_else(|| calls().next()) else { continue };
        diagnostics
            .error(
                code::AMBIGUOUS_ITEM,
                analysis.model.place(&call.item.span),
                format!("`{file}` and `{}` would both become the module `{}`", inner.file, inner.module),
            )
            .help("rename one of the files");
    }
}

/// Reports tools without a contract, whose parameters and results are not known.
pub(super) fn check_contracts(analysis: &Analysis<'_>, diagnostics: &mut Diagnostics) {
    for (caller, call) in analysis.model.calls() {
        let tool = analysis.model.tool(call);
        let is_similar = call.id().is_some_and(|id| analysis.model.items.similar.contains_key(id));
        if tool.by != Executor::Program || tool.contract.is_some() || is_similar {
            continue;
        }
        let what = match call.id() {
            Some(id) if id.as_str().starts_with(INTERNAL) => continue,
            Some(id) => format!("{caller} executes `{id}`, which has no contract"),
            None => format!("{caller} executes a tool whose id is computed, so no contract applies to the call"),
        };
        diagnostics
            .lint(code::NO_CONTRACT, analysis.model.place(&call.item.span), what)
            .label("its parameters and its result are not known")
            .help("write a contract in the tree's `tools` directory, and call the tool by its id");
    }
}

/// Reports tools without a contract whose id is similar to that of a tool with one.
pub(super) fn check_similar(analysis: &Analysis<'_>, diagnostics: &mut Diagnostics) {
    for (caller, call) in analysis.model.calls() {
        let Some(similar) = call.id().and_then(|id| analysis.model.items.similar.get(id)) else { continue };
        let message = format!("{caller} calls {}, which has no contract", call.shown());
        let diagnostic = diagnostics.lint(code::UNKNOWN_TOOL, analysis.model.place(&call.item.span), message);
        diagnostic.label("neither a contract nor a graph").help(format!("did you mean `{similar}`?")).fix =
            Some(Fix { span: call.item.span.clone(), text: similar.clone(), is_certain: false });
    }
}
