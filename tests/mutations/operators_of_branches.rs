//! The kinds of mistakes in branches: joins, fan-outs, routes, quorums, channels, first nodes and entries.

use std::ops::Range;

use graph_compiler::tree::{TreeKey, TreeNode as Value, YamlTree};

use super::mill::Mill;
use super::model::{Form, Node, fields, get, items, text_of};
use super::operators::{Operator, always, judged, other_type};

/// The mistakes that are made in branches.
pub(crate) const OF_BRANCHES: &[Operator] = &[
    judged("join: `waits_for` dropped", 2, waits_for_dropped),
    judged("join: one node dropped", 3, source_dropped),
    always("join: one node misspelt", 2, source_slips),
    judged("join: another node", 2, source_other),
    judged("join: a node too many", 1, source_added),
    judged("branch: led past its join", 3, led_past),
    judged("branch: ends before its join", 2, ends_early),
    judged("branch: led to a return", 3, led_to_return),
    judged("branch: led back to its fan-out", 3, led_back),
    judged("branch: led to another join", 2, led_to_join),
    judged("fan-out: the first edge that matches, not `all`", 2, all_to_first),
    judged("fan-out: `all` for a list of edges", 2, first_to_all),
    judged("fan-out: one edge, not a list of elements", 2, over_to_one),
    always("fan-out: one target twice", 1, target_twice),
    judged("fan-out: `over` is not a list", 1, over_text),
    judged("fan-out: `over` another value", 2, over_other),
    judged("fan-out: `as` dropped", 1, as_dropped),
    judged("fan-out: `as` misspelt", 1, as_slips),
    always("fan-out: `as` a namespace", 1, as_namespace),
    judged("element: read elsewhere", 3, element_elsewhere),
    always("fan-out: a number out of range", 2, numbers_out_of_range),
    always("`on_branch_error`: misspelt", 1, on_branch_error_slips),
    judged("`on_branch_error`: another word", 2, on_branch_error_other),
    judged("`on_branch_error`: dropped", 1, on_branch_error_dropped),
    judged("route: a value without a target", 2, route_dropped),
    judged("route: an unknown value", 2, route_slips),
    judged("route: by another value", 2, route_other),
    judged("quorum: one more", 1, need_more),
    judged("quorum: more than there are", 1, need_too_many),
    always("quorum: of nothing", 1, need_nothing),
    always("quorum: `rest` dropped", 1, rest_dropped),
    always("quorum: `rest` misspelt", 1, rest_slips),
    judged("quorum: the other `rest`", 1, rest_other),
    judged("quorum: `fewer` dropped", 1, fewer_dropped),
    always("quorum: `fewer` misspelt", 1, fewer_slips),
    judged("quorum: `fewer` leads elsewhere", 2, fewer_other),
    judged("quorum: a join of all branches", 1, quorum_to_list),
    judged("join: a quorum without `fewer`", 2, list_to_quorum),
    judged("channel: dropped", 3, channel_dropped),
    judged("channel: misspelt", 2, channel_slips),
    always("channel: reducer misspelt", 1, reducer_slips),
    judged("channel: another reducer", 3, reducer_other),
    judged("channel: first value of another type", 1, first_of_other_type),
    judged("channel: null is written", 2, null_written),
    judged("channel: another kind of value is written", 3, other_kind_written),
    judged("channel: never reset", 1, reset_dropped),
    judged("channel: reset misspelt", 1, reset_slips),
    judged("written key: that of another node", 3, written_other),
    judged("read key: that of another node", 3, read_other),
    judged("return: `cancels` dropped", 2, cancels_dropped),
    judged("return: `cancels` added", 2, cancels_added),
    always("first nodes: one named twice", 1, start_twice),
    always("first nodes: one misspelt", 1, start_slips),
    judged("first nodes: one dropped", 1, start_dropped),
    judged("first nodes: a join", 1, start_join),
    always("entry: leads nowhere", 1, entry_slips),
    judged("entry: leads to another node", 3, entry_other),
    judged("entry: element dropped", 1, entry_element_dropped),
    judged("entry: element misspelt", 1, entry_element_slips),
    always("field of a branch: misspelt", 4, field_slips),
];

/// The nodes with `waits_for`.
fn joins<'g>(mill: &Mill<'g>) -> Vec<Node<'g>> {
    mill.graph.nodes().into_iter().filter(|node| node.get("waits_for").is_some()).collect()
}

/// The nodes that begin branches.
fn fans<'g>(mill: &Mill<'g>) -> Vec<Node<'g>> {
    mill.graph.nodes().into_iter().filter(|node| matches!(node.form(), Form::All | Form::Over)).collect()
}

fn names(mill: &Mill<'_>) -> Vec<String> {
    mill.graph.nodes().iter().map(|node| node.name().to_owned()).collect()
}

/// The list of nodes in `waits_for`, if it is a list.
fn list_of<'g>(join: &Node<'g>) -> Option<&'g YamlTree> {
    let waits = join.get("waits_for")?;
    let of = if let Value::Map(_) = &waits.node { get(waits, "of")? } else { waits };
    matches!(of.node, Value::List(_)).then_some(of)
}

fn waits_for_dropped(mill: &mut Mill<'_>) {
    for join in joins(mill) {
        let sources: Vec<&str> = join.waits_for().into_iter().filter_map(text_of).collect();
        let about = [&[join.name()], sources.as_slice()].concat();
        mill.drop_field(join.tree, "waits_for", &about, &[join.key.span.start], false);
    }
}

fn source_dropped(mill: &mut Mill<'_>) {
    for join in joins(mill) {
        let Some(list) = list_of(&join).filter(|list| items(list).len() > 1) else { continue };
        for (at, source) in items(list).iter().enumerate() {
            mill.drop_item(list, at, &[text_of(source).unwrap_or_default(), join.name()], &[], false);
        }
    }
}

fn source_slips(mill: &mut Mill<'_>) {
    let names = names(mill);
    for join in joins(mill) {
        for source in join.waits_for() {
            mill.slip_word(source, |name| names.iter().any(|other| other == name), &[join.name()], true);
        }
    }
}

fn source_other(mill: &mut Mill<'_>) {
    let names = names(mill);
    for join in joins(mill) {
        for source in join.waits_for() {
            let old = text_of(source).unwrap_or_default();
            let others: Vec<&String> = names.iter().filter(|name| *name != old).collect();
            let other = (*mill.random.pick(&others).unwrap()).clone();
            mill.judged(&source.span, &other, &[old, other.as_str(), join.name()]);
        }
    }
}

fn source_added(mill: &mut Mill<'_>) {
    let names = names(mill);
    for join in joins(mill) {
        let Some(list) = list_of(&join) else { continue };
        let is_there = |name: &&String| items(list).iter().any(|source| text_of(source) == Some(name));
        let others: Vec<&String> = names.iter().filter(|name| !is_there(name)).collect();
        let Some(other) = mill.random.pick(&others).map(|other| (*other).clone()) else { continue };
        let end = list.span.end - 1;
        mill.judged(&(end..end), &format!(", {other}"), &[&other, join.name()]);
    }
}

/// The edges that lead to a join: the target, its node, and the join.
fn edges_to_joins<'g>(mill: &Mill<'g>) -> Vec<(&'g YamlTree, Node<'g>, Node<'g>)> {
    let joins = joins(mill);
    let mut found = Vec::new();
    for node in mill.graph.nodes() {
        let targets = node.edges().into_iter().filter_map(|edge| edge.to).chain(node.get("on_error"));
        for to in targets {
            found.extend(joins.iter().filter(|join| text_of(to) == Some(join.name())).map(|join| (to, node, *join)));
        }
    }
    found
}

/// Leads an edge from a join to another node. If no other edge of the node leads to the join, the join does not name the
/// node any longer, so that nothing else is wrong.
fn lead(mill: &mut Mill<'_>, to: &YamlTree, node: &Node<'_>, join: &Node<'_>, other: Option<&str>) {
    let edges = node.edges().into_iter().filter_map(|edge| edge.to).chain(node.get("on_error"));
    let is_only = edges.filter(|to| text_of(to) == Some(join.name())).count() == 1;
    let mut edits = vec![(to.span.clone(), other.unwrap_or_default().to_owned())];
    if is_only {
        let Some(list) = list_of(join).filter(|list| items(list).len() > 1) else { return };
        let Some(at) = items(list).iter().position(|source| text_of(source) == Some(node.name())) else { return };
        let spans: Vec<Range<usize>> = items(list).iter().map(|source| source.span.clone()).collect();
        let Some(span) = mill.span_of_part(list, &spans, at) else { return };
        edits.push((span, String::new()));
    }
    edits.sort_by_key(|(span, _)| span.start);
    let fans: Vec<&str> = fans(mill).iter().map(Node::name).collect();
    let keys = node.assign().iter().map(|(key, _)| key.name.as_str());
    let about: Vec<&str> = [node.name(), join.name()].into_iter().chain(other).chain(fans).chain(keys).collect();
    mill.edit(&edits, &about, &[], false);
}

fn led_past(mill: &mut Mill<'_>) {
    for (to, node, join) in edges_to_joins(mill) {
        for behind in join.edges().iter().filter_map(|edge| edge.target()).take(1) {
            lead(mill, to, &node, &join, Some(behind));
        }
    }
}

/// An edge without a target ends the branch.
fn ends_early(mill: &mut Mill<'_>) {
    for (to, node, join) in edges_to_joins(mill) {
        let whole = |tree: &YamlTree| YamlTree { span: tree.span.clone(), node: Value::Null };
        if node.get("next").is_some_and(|next| std::ptr::eq(next, to)) {
            lead(mill, &whole(to), &node, &join, Some("[{}]"));
        }
        let edges = node.get("next").map(items).unwrap_or_default();
        let own = edges.iter().find(|edge| get(edge, "to").is_some_and(|one| std::ptr::eq(one, to)));
        if let Some(edge) = own.filter(|edge| get(edge, "when").is_none() && is_flow(mill, edge)) {
            lead(mill, &whole(edge), &node, &join, Some("{}"));
        }
    }
}

fn is_flow(mill: &Mill<'_>, tree: &YamlTree) -> bool {
    mill.raw(&tree.span).starts_with('{')
}

fn led_to_return(mill: &mut Mill<'_>) {
    let returns: Vec<Node<'_>> = mill.graph.nodes().into_iter().filter(|node| node.is("return")).collect();
    for (to, node, join) in edges_to_joins(mill) {
        let other = mill.random.pick(&returns).map(Node::name).filter(|name| *name != join.name());
        if other.is_some() {
            lead(mill, to, &node, &join, other);
        }
    }
}

fn led_back(mill: &mut Mill<'_>) {
    let fans = fans(mill);
    for (to, node, join) in edges_to_joins(mill) {
        if let Some(fan) = mill.random.pick(&fans).map(Node::name) {
            lead(mill, to, &node, &join, Some(fan));
        }
    }
}

fn led_to_join(mill: &mut Mill<'_>) {
    let joins = joins(mill);
    for (to, node, join) in edges_to_joins(mill) {
        let others: Vec<&str> = joins.iter().map(Node::name).filter(|name| *name != join.name()).collect();
        let Some(other) = mill.random.pick(&others).copied() else { continue };
        mill.judged(&to.span, other, &[node.name(), join.name(), other]);
    }
}

fn all_to_first(mill: &mut Mill<'_>) {
    for node in fans(mill) {
        if let (Some(next), Some(all)) = (node.get("next"), node.of_next("all")) {
            if mill.raw(&all.span).starts_with('[') {
                let list = mill.raw(&all.span).to_owned();
                let targets: Vec<&str> = node.edges().iter().filter_map(|edge| edge.target()).collect();
                mill.judged(&span_of_value(mill, next), &list, &[&[node.name()], targets.as_slice()].concat());
            } else {
                // In block style, the word is left out.
                let (start, end) = (next.span.start, all.span.start);
                mill.judged(&(start..end), "", &[node.name()]);
                if mill.mutants.last().is_some_and(|mutant| super::model::parse(&mutant.text).is_none()) {
                    mill.mutants.pop();
                }
            }
        }
    }
}

/// The place of a mapping, which in block style ends before the next line with something else.
fn span_of_value(mill: &Mill<'_>, tree: &YamlTree) -> Range<usize> {
    tree.span.start..tree.span.start + mill.raw(&tree.span).trim_end().len()
}

fn first_to_all(mill: &mut Mill<'_>) {
    for node in mill.graph.nodes() {
        if let Some(next) =
            node.get("next").filter(|next| node.form() == Form::First && mill.raw(&next.span).starts_with('['))
        {
            let list = mill.raw(&next.span).to_owned();
            let targets: Vec<&str> = node.edges().iter().filter_map(|edge| edge.target()).collect();
            let about = [&[node.name()], targets.as_slice()].concat();
            mill.judged(&next.span, &format!("{{ all: {list} }}"), &about);
        }
    }
}

fn over_to_one(mill: &mut Mill<'_>) {
    for node in fans(mill).iter().filter(|node| node.form() == Form::Over) {
        let (Some(next), Some(to)) = (node.get("next"), node.of_next("to").and_then(text_of)) else { continue };
        let about = [node.name(), to, node.of_next("as").and_then(text_of).unwrap_or_default()];
        mill.judged(&span_of_value(mill, next), to, &about);
    }
}

fn target_twice(mill: &mut Mill<'_>) {
    for node in fans(mill) {
        let edges = node.of_next("all").map(items).unwrap_or_default();
        if let (Some(first), Some(last)) = (edges.first(), edges.last())
            && mill.raw(&last.span).starts_with('{')
        {
            let raw = mill.raw(&first.span).to_owned();
            let end = last.span.end;
            let before = &mill.graph.text[..last.span.start];
            let line = &before[before.rfind('\n').map_or(0, |at| at + 1)..];
            let between = if line.trim() == "-" { format!("\n{line}") } else { ", ".to_owned() };
            let target = get(first, "to").and_then(text_of).unwrap_or_default();
            mill.edit(&[(end..end, format!("{between}{raw}"))], &[target, node.name()], &[], true);
        }
    }
}

fn over_text(mill: &mut Mill<'_>) {
    for node in fans(mill) {
        if let [one] = node.of_next("over").map(|over| mill.graph.expressions(over)).unwrap_or_default().as_slice() {
            mill.judged(&(one.span.start..one.span.start), "all of ", &[node.name()]);
        }
    }
}

/// The paths to inputs in the file.
fn inputs(mill: &Mill<'_>) -> Vec<String> {
    let expressions = mill.graph.expressions(&mill.graph.root);
    let paths = expressions.into_iter().flat_map(|one| one.paths).map(|path| path.text);
    paths.filter(|text| text.starts_with("inputs.")).collect()
}

fn over_other(mill: &mut Mill<'_>) {
    let inputs = inputs(mill);
    for node in fans(mill) {
        if let [one] = node.of_next("over").map(|over| mill.graph.expressions(over)).unwrap_or_default().as_slice()
            && let Some(other) = mill.random.pick(&inputs).cloned()
            && one.paths[0].text != other
        {
            let name = node.of_next("as").and_then(text_of).unwrap_or("item");
            mill.judged(&one.span, &format!("${{{other}}}"), &[node.name(), name]);
        }
    }
}

fn as_dropped(mill: &mut Mill<'_>) {
    for node in fans(mill) {
        if let Some(next) = node.get("next") {
            let name = node.of_next("as").and_then(text_of).unwrap_or_default();
            mill.drop_field(next, "as", &[name, node.name()], &[], false);
        }
    }
}

fn as_slips(mill: &mut Mill<'_>) {
    for name in fans(mill).iter().filter_map(|node| node.of_next("as")) {
        mill.slip_word(name, |_| false, &[text_of(name).unwrap_or_default()], false);
    }
}

fn as_namespace(mill: &mut Mill<'_>) {
    for name in fans(mill).iter().filter_map(|node| node.of_next("as")) {
        let other = *mill.random.pick(&["state", "inputs", "result"]).unwrap();
        mill.wrong(&name.span, other, &[]);
    }
}

fn element_elsewhere(mill: &mut Mill<'_>) {
    let elements: Vec<&str> = fans(mill).iter().filter_map(|node| node.of_next("as")).filter_map(text_of).collect();
    for node in mill.graph.nodes() {
        for expression in mill.graph.expressions(node.tree) {
            let is_own = elements.contains(&expression.paths[0].root());
            if let Some(element) = mill.random.pick(&elements).filter(|_| !is_own) {
                mill.judged(&expression.span, &format!("${{{element}}}"), &[node.name()]);
            }
        }
    }
}

fn numbers_out_of_range(mill: &mut Mill<'_>) {
    for node in fans(mill) {
        for number in ["max_concurrency", "most"].iter().filter_map(|name| node.of_next(name)) {
            let other = *mill.random.pick(&["0", "2000000", "-1"]).unwrap();
            mill.wrong(&number.span, other, &[]);
        }
    }
}

fn words_of_failures<'g>(mill: &Mill<'g>) -> Vec<(&'g YamlTree, Node<'g>)> {
    fans(mill).into_iter().filter_map(|node| Some((node.of_next("on_branch_error")?, node))).collect()
}

fn on_branch_error_slips(mill: &mut Mill<'_>) {
    for (word, _) in words_of_failures(mill) {
        mill.slip_word(word, |_| false, &[], true);
    }
}

fn on_branch_error_other(mill: &mut Mill<'_>) {
    let joins: Vec<&str> = joins(mill).iter().map(Node::name).collect();
    for node in fans(mill) {
        let about = [&[node.name()], joins.as_slice()].concat();
        let others = ["stop", "finish", "collect"];
        match node.of_next("on_branch_error") {
            Some(word) => {
                let others: Vec<&str> = others.into_iter().filter(|other| text_of(word) != Some(other)).collect();
                let other = *mill.random.pick(&others).unwrap();
                mill.judged(&word.span, other, &about);
            }
            None if is_flow(mill, node.get("next").unwrap()) => {
                let end = node.get("next").unwrap().span.end - 1;
                let other = *mill.random.pick(&others).unwrap();
                mill.judged(&(end..end), &format!(", on_branch_error: {other} "), &about);
            }
            None => {}
        }
    }
}

fn on_branch_error_dropped(mill: &mut Mill<'_>) {
    for (_, node) in words_of_failures(mill) {
        mill.drop_field(node.get("next").unwrap(), "on_branch_error", &[node.name()], &[], false);
    }
}

/// The targets of routes by a value.
fn routes<'g>(mill: &Mill<'g>) -> Vec<(&'g YamlTree, Node<'g>)> {
    let nodes = mill.graph.nodes().into_iter().filter(|node| node.form() == Form::By);
    nodes.filter_map(|node| Some((node.of_next("to")?, node))).collect()
}

fn route_dropped(mill: &mut Mill<'_>) {
    for (targets, node) in routes(mill) {
        for (key, _) in fields(targets) {
            mill.drop_field(targets, &key.name, &[node.name()], &[node.key.span.start], false);
        }
    }
}

fn route_slips(mill: &mut Mill<'_>) {
    for (targets, node) in routes(mill) {
        for (key, _) in fields(targets) {
            mill.slip_key(key, |_| false, &[node.name()], false);
        }
    }
}

fn route_other(mill: &mut Mill<'_>) {
    let inputs = inputs(mill);
    for (_, node) in routes(mill) {
        let by = node.of_next("by").unwrap();
        if let Some(other) = mill.random.pick(&inputs).cloned().filter(|other| text_of(by) != Some(other)) {
            mill.judged(&by.span, &other, &[node.name()]);
        }
    }
}

/// The quorums with their number.
fn quorums<'g>(mill: &Mill<'g>) -> Vec<(Node<'g>, &'g YamlTree)> {
    joins(mill).into_iter().filter_map(|join| Some((join, join.of_quorum("need")?))).collect()
}

fn need_more(mill: &mut Mill<'_>) {
    for (join, need) in quorums(mill) {
        let number: u32 = mill.raw(&need.span).parse().unwrap_or_default();
        mill.judged(&need.span, &(number + 1).to_string(), &[join.name()]);
    }
}

fn need_too_many(mill: &mut Mill<'_>) {
    for (join, need) in quorums(mill) {
        mill.judged(&need.span, "30", &[join.name()]);
    }
}

fn need_nothing(mill: &mut Mill<'_>) {
    for (_, need) in quorums(mill) {
        mill.wrong(&need.span, "0", &[]);
    }
}

fn rest_dropped(mill: &mut Mill<'_>) {
    for (join, _) in quorums(mill) {
        mill.drop_field(join.get("waits_for").unwrap(), "rest", &[join.name()], &[], true);
    }
}

fn rest_slips(mill: &mut Mill<'_>) {
    for (join, _) in quorums(mill) {
        if let Some(rest) = join.of_quorum("rest") {
            mill.slip_word(rest, |_| false, &[], true);
        }
    }
}

fn rest_other(mill: &mut Mill<'_>) {
    for (join, _) in quorums(mill) {
        if let Some(rest) = join.of_quorum("rest") {
            let other = if text_of(rest) == Some("cancel") { "finish" } else { "cancel" };
            mill.judged(&rest.span, other, &[join.name()]);
        }
    }
}

fn fewer_dropped(mill: &mut Mill<'_>) {
    for (join, _) in quorums(mill) {
        let fewer = join.of_quorum("fewer").and_then(text_of).unwrap_or_default();
        mill.drop_field(join.get("waits_for").unwrap(), "fewer", &[join.name(), fewer], &[], false);
    }
}

fn fewer_slips(mill: &mut Mill<'_>) {
    let names = names(mill);
    for (join, _) in quorums(mill) {
        if let Some(fewer) = join.of_quorum("fewer") {
            mill.slip_word(fewer, |name| names.iter().any(|other| other == name), &[], true);
        }
    }
}

fn fewer_other(mill: &mut Mill<'_>) {
    let names = names(mill);
    for (join, _) in quorums(mill) {
        if let Some(fewer) = join.of_quorum("fewer") {
            let old = text_of(fewer).unwrap_or_default();
            for other in names.iter().filter(|name| *name != old) {
                mill.judged(&fewer.span, other, &[old, other, join.name()]);
            }
        }
    }
}

fn quorum_to_list(mill: &mut Mill<'_>) {
    for (join, _) in quorums(mill) {
        let (waits, of) = (join.get("waits_for").unwrap(), join.of_quorum("of").unwrap());
        let list = mill.raw(&of.span).to_owned();
        let fewer = join.of_quorum("fewer").and_then(text_of).unwrap_or_default();
        mill.judged(&span_of_value(mill, waits), &list, &[join.name(), fewer]);
    }
}

fn list_to_quorum(mill: &mut Mill<'_>) {
    for join in joins(mill) {
        let waits = join.get("waits_for").unwrap();
        if !matches!(waits.node, Value::Map(_)) {
            let count = join.waits_for().len();
            let (need, raw) = (1 + mill.random.below(count), mill.raw(&waits.span).to_owned());
            let rest = *mill.random.pick(&["cancel", "finish"]).unwrap();
            let fans: Vec<&str> = fans(mill).iter().map(Node::name).collect();
            let about = [&[join.name()], fans.as_slice()].concat();
            mill.judged(&waits.span, &format!("{{ of: {raw}, need: {need}, rest: {rest} }}"), &about);
        }
    }
}

fn channels<'g>(mill: &Mill<'g>) -> Vec<(&'g TreeKey, &'g str, &'g YamlTree)> {
    mill.graph.channels()
}

fn channel_dropped(mill: &mut Mill<'_>) {
    let Some(map) = mill.graph.config("channels") else { return };
    for (key, ..) in channels(mill) {
        mill.drop_field(map, &key.name, &[&key.name], &[], false);
    }
}

fn channel_slips(mill: &mut Mill<'_>) {
    for (key, ..) in channels(mill) {
        mill.slip_key(key, |_| false, &[&key.name], false);
    }
}

/// The places of the names of reducers.
fn reducers<'g>(mill: &Mill<'g>) -> Vec<(&'g TreeKey, &'g YamlTree)> {
    let word = |tree: &'g YamlTree| if text_of(tree).is_some() { Some(tree) } else { get(tree, "reduce") };
    let all = channels(mill).into_iter().filter_map(|(key, _, tree)| Some((key, word(tree)?)));
    all.filter(|(_, word)| text_of(word).is_some()).collect()
}

fn reducer_slips(mill: &mut Mill<'_>) {
    const ALL: [&str; 9] = ["append", "extend", "union", "sum", "max", "min", "merge", "messages", "last"];
    for (_, word) in reducers(mill) {
        mill.slip_word(word, |other| ALL.contains(&other), &[], true);
    }
}

fn reducer_other(mill: &mut Mill<'_>) {
    for (key, word) in reducers(mill) {
        let all = ["append", "extend", "union", "sum", "max", "min", "merge", "messages", "last"];
        let others: Vec<&str> = all.into_iter().filter(|other| text_of(word) != Some(other)).collect();
        let other = *mill.random.pick(&others).unwrap();
        mill.judged(&word.span, other, &[&key.name]);
    }
}

fn first_of_other_type(mill: &mut Mill<'_>) {
    let channels: Vec<&str> = channels(mill).iter().map(|(key, ..)| key.name.as_str()).collect();
    for (key, value) in mill.graph.config("state").map(fields).unwrap_or_default() {
        if channels.contains(&key.name.as_str())
            && let Some(other) = other_type(value, mill.raw(&value.span))
        {
            mill.judged(&value.span, &other, &[&key.name]);
        }
    }
}

/// The writes to channels.
fn channel_writes<'g>(mill: &Mill<'g>) -> Vec<(&'g TreeKey, &'g YamlTree)> {
    let channels: Vec<&str> = channels(mill).iter().map(|(key, ..)| key.name.as_str()).collect();
    let assigned = mill.graph.nodes().into_iter().flat_map(|node| node.assign());
    assigned.filter(|(key, _)| channels.contains(&key.name.as_str())).map(|(key, value)| (key, value)).collect()
}

fn null_written(mill: &mut Mill<'_>) {
    for (key, value) in channel_writes(mill) {
        mill.judged(&value.span, "null", &[&key.name]);
    }
}

fn other_kind_written(mill: &mut Mill<'_>) {
    for (key, value) in channel_writes(mill) {
        let other = *mill.random.pick(&["true", "a word", "7", "[1, 2]", "{ id: 3 }"]).unwrap();
        mill.judged(&value.span, other, &[&key.name]);
    }
}

fn reset_dropped(mill: &mut Mill<'_>) {
    for node in mill.graph.nodes() {
        mill.drop_field(node.tree, "reset", &[node.name()], &[], false);
    }
}

fn reset_slips(mill: &mut Mill<'_>) {
    for key in mill.graph.nodes().iter().flat_map(Node::resets) {
        mill.slip_word(key, |_| false, &[], false);
    }
}

/// The keys that nodes write and that are no channels.
fn plain_keys<'g>(mill: &Mill<'g>) -> Vec<(&'g TreeKey, Node<'g>)> {
    let channels: Vec<&str> = channels(mill).iter().map(|(key, ..)| key.name.as_str()).collect();
    let assigned = |node: Node<'g>| node.assign().iter().map(move |(key, _)| (key, node));
    let all = mill.graph.nodes().into_iter().flat_map(assigned);
    all.filter(|(key, _)| !channels.contains(&key.name.as_str())).collect()
}

fn written_other(mill: &mut Mill<'_>) {
    let all = plain_keys(mill);
    for (key, node) in &all {
        let own = |name: &str| node.assign().iter().any(|(key, _)| key.name == name);
        let others: Vec<&str> = all.iter().map(|(other, _)| other.name.as_str()).filter(|other| !own(other)).collect();
        if let Some(other) = mill.random.pick(&others).copied() {
            mill.judged(&key.span, other, &[&key.name, other]);
        }
    }
}

fn read_other(mill: &mut Mill<'_>) {
    let keys = plain_keys(mill);
    for node in mill.graph.nodes() {
        for expression in mill.graph.expressions(node.tree).iter().filter(|one| one.paths.len() == 1) {
            let Some((key, _)) = mill.random.pick(&keys).copied() else { continue };
            if expression.paths[0].key() != Some(&key.name) {
                let about = [key.name.as_str(), expression.paths[0].key().unwrap_or_default()];
                mill.judged(&expression.span, &format!("${{state.{}}}", key.name), &about);
            }
        }
    }
}

fn cancels_dropped(mill: &mut Mill<'_>) {
    for node in mill.graph.nodes() {
        mill.drop_field(node.tree, "cancels", &[node.name()], &[node.key.span.start], false);
    }
}

fn cancels_added(mill: &mut Mill<'_>) {
    for node in mill.graph.nodes().iter().filter(|node| node.is("return") && node.get("cancels").is_none()) {
        let ty = node.get("type").unwrap();
        let between = if mill.raw(&node.tree.span).starts_with('{') {
            ", ".to_owned()
        } else {
            let before = &mill.graph.text[..fields(node.tree)[0].0.span.start];
            format!("\n{}", &before[before.rfind('\n').map_or(0, |at| at + 1)..])
        };
        mill.judged(&(ty.span.end..ty.span.end), &format!("{between}cancels: true"), &["cancels", node.name()]);
    }
}

/// The list in `start`, if it is one.
fn starts<'g>(mill: &Mill<'g>) -> Option<&'g YamlTree> {
    mill.graph.config("start").filter(|start| matches!(start.node, Value::List(_)))
}

fn start_twice(mill: &mut Mill<'_>) {
    let Some(list) = starts(mill) else { return };
    let first = text_of(&items(list)[0]).unwrap_or_default();
    mill.wrong(&(list.span.end - 1..list.span.end - 1), &format!(", {first}"), &[]);
}

fn start_slips(mill: &mut Mill<'_>) {
    let names = names(mill);
    for name in starts(mill).map(items).unwrap_or_default() {
        mill.slip_word(name, |name| names.iter().any(|other| other == name), &[], true);
    }
}

fn start_dropped(mill: &mut Mill<'_>) {
    let Some(list) = starts(mill) else { return };
    for (at, name) in items(list).iter().enumerate() {
        mill.drop_item(list, at, &[text_of(name).unwrap_or_default()], &[], false);
    }
}

fn start_join(mill: &mut Mill<'_>) {
    let joins = joins(mill);
    let Some(join) = mill.random.pick(&joins).map(Node::name) else { return };
    let Some(start) = mill.graph.config("start") else { return };
    let place = if let Value::List(list) = &start.node { &list[0] } else { start };
    mill.judged(&place.span, join, &[text_of(place).unwrap_or_default(), join]);
}

fn entry_slips(mill: &mut Mill<'_>) {
    let names = names(mill);
    for node in mill.graph.entries().into_iter().filter_map(|(_, node, _)| node) {
        mill.slip_word(node, |name| names.iter().any(|other| other == name), &[], true);
    }
}

fn entry_other(mill: &mut Mill<'_>) {
    let names = names(mill);
    for (key, node, _) in mill.graph.entries() {
        let Some(node) = node else { continue };
        for other in names.iter().filter(|name| text_of(node) != Some(name)) {
            mill.judged(&node.span, other, &[&key.name, other]);
        }
    }
}

fn entry_element_dropped(mill: &mut Mill<'_>) {
    for (key, _, entry) in mill.graph.entries() {
        mill.drop_field(entry, "element", &[&key.name], &[key.span.start], false);
    }
}

fn entry_element_slips(mill: &mut Mill<'_>) {
    for element in mill.graph.entries().into_iter().filter_map(|(.., entry)| get(entry, "element")) {
        mill.slip_word(element, |_| false, &[], false);
    }
}

fn field_slips(mill: &mut Mill<'_>) {
    let mut keys: Vec<&TreeKey> = Vec::new();
    for node in mill.graph.nodes() {
        keys.extend(node.get("next").map(fields).unwrap_or_default().iter().map(|(key, _)| key));
        keys.extend(node.get("waits_for").map(fields).unwrap_or_default().iter().map(|(key, _)| key));
    }
    for (.., channel) in channels(mill) {
        keys.extend(fields(channel).iter().map(|(key, _)| key));
    }
    for (.., entry) in mill.graph.entries() {
        keys.extend(fields(entry).iter().map(|(key, _)| key));
    }
    // A slip in a shorter word would give another one.
    for key in keys.into_iter().filter(|key| key.name.len() > 2) {
        mill.slip_key(key, |_| false, &[], true);
    }
}
