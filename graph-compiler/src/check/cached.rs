//! A result is cached only if it depends on nothing except the call (R295).

use std::collections::BTreeMap;

use graph_definition::definition::{CallDefinition, NodeDefinition};
use graph_definition::diagnostic::{Diagnostics, code};
use graph_model::digest::Digest;
use graph_model::program::{Executor, INTERNAL, THREAD_DIRECTIVE};

use super::index;
use crate::analysis::Analysis;
use crate::analysis::calls::waits_for_thread;

pub(super) fn check(analysis: &Analysis<'_>, diagnostics: &mut Diagnostics) {
    for (node, call) in cached(analysis) {
        let Some(cache_result) = node.conduct().and_then(|conduct| conduct.cache_result.as_ref()) else { continue };
        let tool = analysis.model.tool(call);
        let id = call.id().map_or("", |id| id.as_str());
        let (reason, help) = match tool.by {
            Executor::Graph => {
                let reason = format!("it runs the graph {}, whose run would be missing", call.shown());
                (reason, "write `cache_result: true` on the nodes of that graph whose results may be stored")
            }
            Executor::Items => {
                let reason = format!("it does something with {}, which may have changed by then", call.shown());
                (reason, "remove it")
            }
            Executor::Program if id == THREAD_DIRECTIVE && waits_for_thread(call) != Some(false) => continue,
            Executor::Program if id == THREAD_DIRECTIVE => {
                let reason = format!("{} does not wait for the thread that it begins", call.shown());
                (reason, "remove it, or `async_exec`")
            }
            Executor::Program if id.starts_with(INTERNAL) => {
                (format!("{} begins or asks for work that is done elsewhere", call.shown()), "remove it")
            }
            Executor::Program if tool.result.mask().is_some() => {
                (format!("the result of {} has secrets in it, which are not stored", call.shown()), "remove it")
            }
            Executor::Program => continue,
        };
        diagnostics
            .error(
                code::NOT_CACHED,
                analysis.model.place(&cache_result.span),
                format!("the result of `{}` cannot be cached: {reason}", node.name),
            )
            .help(help);
    }
}

/// Returns the digests of the contracts of the tools whose results are cached, by the tools' indices.
pub(super) fn contracts(analysis: &Analysis<'_>) -> BTreeMap<u16, String> {
    let contract = |(_, call): (&NodeDefinition, &CallDefinition)| {
        let contract = analysis.model.tool(call).contract?;
        Some((index(analysis.model.tool_index(call)), Digest::of(&contract.source.text).to_hex()))
    };
    cached(analysis).filter_map(contract).collect()
}

/// Returns the nodes whose results are cached, with their calls.
fn cached<'d>(analysis: &Analysis<'d>) -> impl Iterator<Item = (&'d NodeDefinition, &'d CallDefinition)> {
    let caches = |node: &&NodeDefinition| node.conduct().is_some_and(|conduct| conduct.caches());
    analysis.model.definition.nodes.iter().filter(caches).filter_map(|node| Some((node, node.call()?)))
}
