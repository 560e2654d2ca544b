//! The facts about each node that the compiler passes to the runtime, so that the runtime need not compute them.

use graph_definition::definition::{Conduct, NodeDefinition, RouteDefinition};
use graph_model::path::Root;
use graph_model::program::{Executor, NodeFacts, THREAD_DIRECTIVE};

use super::model::Model;
use super::reads::Site;

/// Returns the facts of each node.
pub(crate) fn of_nodes(model: &Model<'_>) -> Vec<NodeFacts> {
    let nodes = &model.definition.nodes;
    let mut all = vec![NodeFacts::default(); nodes.len()];
    model.reads(&mut |read| {
        if read.site == Site::Hook {
            return;
        }
        let facts = &mut all[read.node];
        match read.path.root {
            Root::Visit => {
                let part = read.path.segments.first().map(String::as_str);
                facts.visits |= part != Some("branch");
                facts.previous |= part == Some("previous") && model.previous_at(read.node).is_ok();
            }
            Root::Now | Root::Timestamp => facts.time = true,
            Root::Result => facts.failure |= read.site == Site::Next && model.may_skip_assign(read.node),
            Root::State | Root::Inputs | Root::Local => {}
        }
    });
    for (facts, node) in all.iter_mut().zip(nodes) {
        let is_list = matches!(node.next(), RouteDefinition::End | RouteDefinition::To(_) | RouteDefinition::First(_));
        facts.fast = !facts.visits && is_list && node.waits_for.is_empty() && is_plain(model, node);
    }
    all
}

/// Whether a node at most calls a tool of the program once, computes, and follows an edge.
fn is_plain(model: &Model<'_>, node: &NodeDefinition) -> bool {
    if node.each().is_some() || node.wait().is_some() || node.interrupts().is_some() || node.ends_run() {
        return false;
    }
    let Some(call) = node.call() else { return true };
    let is_ordinary = |conduct: &Conduct| conduct.timeout_ms.is_none() && conduct.remote.is_none() && !conduct.caches();
    let tool = model.tool(call);
    node.conduct().is_none_or(is_ordinary)
        && tool.by == Executor::Program
        && tool.contract.is_some_and(|contract| contract.result.is_some())
        && call.id().is_some_and(|id| id.as_str() != THREAD_DIRECTIVE)
}
