//! The kinds of mistakes in mutants, and the condition under which each changes the meaning of a graph.

use graph_compiler::tree::{TreeKey, TreeNode as Value, YamlTree};

use super::mill::Mill;
use super::model::{Form, Kind, Node, Type, called, comparisons, fields, get, items, operator, text_of};

/// A kind of mistake.
pub(crate) struct Operator {
    pub(crate) name: &'static str,
    /// The condition under which such a mutant is wrong.
    pub(crate) criterion: &'static str,
    /// The maximum number of mutants of a file that are kept.
    pub(crate) most: usize,
    /// Why such a mutant may be a correct graph, where no judge says it.
    pub(crate) legal: &'static str,
    pub(crate) make: fn(&mut Mill<'_>),
}

const ALWAYS: &str = "always";
const JUDGED: &str = "if the judge finds fault";
const NEEDED: &str = "if the part needs it";

pub(crate) const fn always(name: &'static str, most: usize, make: fn(&mut Mill<'_>)) -> Operator {
    Operator { name, criterion: ALWAYS, most, legal: "", make }
}

pub(crate) const fn judged(name: &'static str, most: usize, make: fn(&mut Mill<'_>)) -> Operator {
    Operator { name, criterion: JUDGED, most, legal: "it may be another correct graph, as in the table above", make }
}

/// A mistake in something that may be left out, unless it is needed where it is.
pub(crate) const fn legal(name: &'static str, most: usize, legal: &'static str, make: fn(&mut Mill<'_>)) -> Operator {
    Operator { name, criterion: NEEDED, most, legal, make }
}

/// The mistakes that are made in graphs.
pub(crate) const OF_GRAPHS: &[Operator] = &[
    always("target: misspelt", 3, target_slips),
    judged("target: another node", 3, target_other),
    always("start: misspelt", 1, start_slips),
    judged("condition of an edge: dropped", 2, when_dropped),
    judged("edge: dropped", 2, edge_dropped),
    judged("edges: the wrong order", 2, edges_swapped),
    judged("node: dropped", 2, node_dropped),
    judged("`next`: dropped", 2, next_dropped),
    judged("`next` and `on_error`: swapped", 2, next_swapped),
    judged("`max_steps`: 1", 1, steps_too_few),
    judged("assignment: dropped", 3, assign_dropped),
    judged("written key: misspelt", 3, written_slips),
    always("read key: misspelt", 4, read_slips),
    always("namespace: misspelt", 3, namespace_slips),
    always("field of a path: misspelt", 4, field_slips),
    judged("fallback: dropped", 2, fallback_dropped),
    always("template: brace dropped", 1, brace_dropped),
    always("template: dollar dropped", 2, dollar_dropped),
    always("operator: misspelt", 2, operator_slips),
    judged("operator: another", 3, operator_other),
    judged("compared value: another type", 3, literal_swapped),
    judged("compared word: misspelt", 2, compared_word_slips),
    always("regular expression: broken", 1, regex_broken),
    judged("first value: dropped", 1, first_value_dropped),
    judged("input: default dropped", 1, default_dropped),
    judged("input: not required", 2, required_dropped),
    judged("input: property dropped", 2, property_dropped),
    judged("input: another type", 2, property_type),
    always("enumeration: emptied", 1, enum_emptied),
    judged("enumeration: member renamed", 2, member_renamed),
    judged("permission: dropped", 2, permission_dropped),
    always("permission: misspelt", 2, permission_slips),
    judged("permission: a wildcard", 1, permission_widened),
    always("item id: misspelt", 2, item_slips),
    judged("item id: another tool", 1, item_other),
    judged("parameter: dropped", 3, param_dropped),
    judged("parameter: misspelt", 3, param_slips),
    judged("parameter: literal of another type", 2, param_literal),
    judged("parameter: another value", 3, param_other),
    judged("parameter: word misspelt", 1, param_word_slips),
    always("field of the format: misspelt", 5, format_slips),
    always("word of the format: misspelt", 2, word_slips),
    always("number: out of range", 1, out_of_range),
    always("duration: unreadable", 1, duration_broken),
    always("`type`: dropped", 1, type_dropped),
    judged("`collect`: dropped", 1, collect_dropped),
    judged("`as`: dropped", 1, as_dropped),
    judged("`over`: not a list", 1, over_broken),
    always("hook: event misspelt", 1, event_slips),
    always("hook: control of another event", 1, event_other),
    always("YAML: bracket dropped", 1, bracket_dropped),
    always("YAML: quote dropped", 1, quote_dropped),
    always("YAML: duplicate key", 1, key_twice),
    always("YAML: tab", 1, tab),
];

/// The mistakes that are made in contracts. Such a mutant is wrong if a graph that calls the tool becomes wrong.
pub(crate) const OF_CONTRACTS: &[Operator] = &[
    judged("contract: parameter dropped", 1, |mill| part_dropped(mill, "config_schema")),
    judged("contract: parameter renamed", 1, |mill| part_renamed(mill, "config_schema")),
    judged("contract: parameter of another type", 1, |mill| part_type(mill, "config_schema")),
    judged("contract: parameter required", 1, param_required),
    judged("contract: result field dropped", 1, |mill| part_dropped(mill, "result_schema")),
    judged("contract: result field renamed", 1, |mill| part_renamed(mill, "result_schema")),
    judged("contract: result field of another type", 1, |mill| part_type(mill, "result_schema")),
    judged("contract: result field optional", 1, result_optional),
    judged("contract: result member renamed", 1, contract_member),
    always("contract: keyword misspelt", 1, keyword_slips),
    always("contract: `tool_type` misspelt", 1, tool_type_slips),
];

type Comparison<'g> = (&'g YamlTree, &'g str);

/// The comparisons of the edges, each with the name of its node, and of hooks.
fn tests<'g>(mill: &Mill<'g>) -> Vec<Comparison<'g>> {
    let mut tests = Vec::new();
    for node in mill.graph.nodes() {
        for condition in node.edges().iter().filter_map(|edge| edge.when) {
            comparisons(condition, &mut |test| tests.push((test, node.name())));
        }
    }
    for condition in mill.graph.hooks().iter().filter_map(|hook| get(hook, "condition")) {
        comparisons(condition, &mut |test| tests.push((test, "")));
    }
    tests
}

/// The actions of nodes and hooks.
fn actions<'g>(mill: &Mill<'g>) -> Vec<&'g YamlTree> {
    let nodes = mill.graph.nodes().into_iter().filter_map(|node| node.get("action"));
    nodes.chain(mill.graph.hooks().iter().filter_map(|hook| get(hook, "action"))).collect()
}

/// The targets of edges and of failures.
fn targets<'g>(mill: &Mill<'g>) -> Vec<(&'g YamlTree, Node<'g>)> {
    let mut targets = Vec::new();
    for node in mill.graph.nodes() {
        targets.extend(node.edges().iter().filter_map(|edge| edge.to).map(|to| (to, node)));
        targets.extend(node.get("on_error").map(|to| (to, node)));
        targets.extend(node.of_quorum("fewer").map(|to| (to, node)));
    }
    targets
}

fn names(mill: &Mill<'_>) -> Vec<String> {
    mill.graph.nodes().iter().map(|node| node.name().to_owned()).collect()
}

fn target_slips(mill: &mut Mill<'_>) {
    let names = names(mill);
    for (to, _) in targets(mill) {
        mill.slip_word(to, |name| names.iter().any(|other| other == name), &[], true);
    }
}

fn target_other(mill: &mut Mill<'_>) {
    let names = names(mill);
    for (to, node) in targets(mill) {
        let Some(old) = text_of(to) else { continue };
        let others: Vec<&String> = names.iter().filter(|name| *name != old).collect();
        let other = (*mill.random.pick(&others).unwrap()).clone();
        // The fault may be reported at either node, or where the keys of this node are read.
        let keys = node.assign().iter().map(|(key, _)| key.name.as_str());
        let about: Vec<&str> = [old, other.as_str(), node.name()].into_iter().chain(keys).collect();
        mill.judged(&to.span, &other, &about);
    }
}

fn start_slips(mill: &mut Mill<'_>) {
    let names = names(mill);
    if let Some(start) = mill.graph.config("start") {
        mill.slip_word(start, |name| names.iter().any(|other| other == name), &[], true);
    }
}

/// The lists of edges.
fn lists<'g>(mill: &Mill<'g>) -> Vec<(&'g YamlTree, Node<'g>)> {
    let list = |node: &Node<'g>| node.of_next("all").or_else(|| node.get("next"));
    let lists = mill.graph.nodes().into_iter().filter_map(|node| Some((list(&node)?, node)));
    lists.filter(|(next, _)| matches!(next.node, Value::List(_))).collect()
}

fn when_dropped(mill: &mut Mill<'_>) {
    for (list, node) in lists(mill) {
        for edge in items(list).iter().filter(|edge| get(edge, "when").is_some()) {
            mill.drop_field(edge, "when", &[node.name()], &[list.span.start], false);
        }
    }
}

fn edge_dropped(mill: &mut Mill<'_>) {
    for (list, node) in lists(mill) {
        for (at, edge) in items(list).iter().enumerate() {
            let to = get(edge, "to").and_then(text_of).unwrap_or_default();
            mill.drop_item(list, at, &[to, node.name()], &[node.key.span.start], false);
        }
    }
}

fn edges_swapped(mill: &mut Mill<'_>) {
    // The edges of `all` have no order that matters.
    for (list, node) in lists(mill).into_iter().filter(|(_, node)| node.form() == Form::First) {
        for pair in items(list).windows(2) {
            let (one, two) = (mill.raw(&pair[0].span).to_owned(), mill.raw(&pair[1].span).to_owned());
            let edits = [(pair[0].span.clone(), two), (pair[1].span.clone(), one)];
            mill.edit(&edits, &[node.name()], &[], false);
        }
    }
}

fn node_dropped(mill: &mut Mill<'_>) {
    if let Some(nodes) = mill.graph.config("nodes") {
        for node in mill.graph.nodes() {
            mill.drop_field(nodes, node.name(), &[node.name()], &[], false);
        }
    }
}

fn next_dropped(mill: &mut Mill<'_>) {
    for node in mill.graph.nodes() {
        let to: Vec<&str> = node.edges().iter().filter_map(|edge| edge.target()).collect();
        mill.drop_field(node.tree, "next", &[&[node.name()], to.as_slice()].concat(), &[node.key.span.start], false);
    }
}

fn next_swapped(mill: &mut Mill<'_>) {
    for node in mill.graph.nodes() {
        let (Some(next), Some(failure)) = (node.get("next"), node.get("on_error")) else { continue };
        let (Some(one), Some(two)) = (text_of(next), text_of(failure)) else { continue };
        if one == two {
            continue;
        }
        let mut edits = [(next.span.clone(), two.to_owned()), (failure.span.clone(), one.to_owned())];
        edits.sort_by_key(|(span, _)| span.start);
        let keys: Vec<&str> = node.assign().iter().map(|(key, _)| key.name.as_str()).collect();
        mill.edit(&edits, &[&[one, two, node.name()], keys.as_slice()].concat(), &[], false);
    }
}

fn steps_too_few(mill: &mut Mill<'_>) {
    if let Some(steps) = mill.graph.config("max_steps") {
        mill.judged(&steps.span, "1", &["max_steps", "start"]);
    }
}

fn assign_dropped(mill: &mut Mill<'_>) {
    for node in mill.graph.nodes() {
        for (key, _) in node.assign() {
            let map = node.get("assign").unwrap();
            mill.drop_field(map, &key.name, &[&key.name], &[node.key.span.start], false);
        }
    }
}

fn written_slips(mill: &mut Mill<'_>) {
    for node in mill.graph.nodes() {
        for (key, _) in node.assign() {
            mill.slip_key(key, |_| false, &[&key.name], false);
        }
        if let Some(collect) = node.get("collect") {
            mill.slip_word(collect, |_| false, &[text_of(collect).unwrap_or_default()], false);
        }
    }
    for (key, _) in mill.graph.config("state").map(fields).unwrap_or_default() {
        mill.slip_key(key, |_| false, &[&key.name], false);
    }
}

/// Returns the paths in the file, with their places and parts.
fn paths(mill: &Mill<'_>) -> Vec<super::model::Path> {
    let expressions = mill.graph.expressions(&mill.graph.root).into_iter().flat_map(|expression| expression.paths);
    let tests = tests(mill).into_iter().filter_map(|(test, _)| {
        let tree = get(test, "path")?;
        let text = text_of(tree)?;
        Some(super::model::Path::new(text, mill.word(tree, text)?))
    });
    let routes = mill.graph.nodes().into_iter().filter_map(|node| {
        let tree = node.of_next("by")?;
        let text = text_of(tree)?;
        Some(super::model::Path::new(text, mill.word(tree, text)?))
    });
    expressions.chain(tests).chain(routes.collect::<Vec<_>>()).collect()
}

/// Makes a typing mistake in one part of a path.
fn slip_part(mill: &mut Mill<'_>, path: &super::model::Path, part: &str, is_taken: impl Fn(&str) -> bool) {
    let Some(at) = path.text.rfind(part).map(|at| path.span.start + at) else { return };
    let slipped = mill.random.slip(part, is_taken);
    mill.wrong(&(at..at + part.len()), &slipped, &[]);
}

fn read_slips(mill: &mut Mill<'_>) {
    for path in paths(mill) {
        if let Some(key) = path.key().filter(|key| !key.starts_with('_') && path.parts.len() == 2) {
            let keys: Vec<String> = paths(mill).iter().filter_map(|path| path.key().map(str::to_owned)).collect();
            slip_part(mill, &path, key, |name| keys.iter().any(|other| other == name));
        }
    }
}

fn namespace_slips(mill: &mut Mill<'_>) {
    for path in paths(mill) {
        let root = path.root().to_owned();
        let slipped = mill.random.slip(&root, |_| false);
        mill.wrong(&(path.span.start..path.span.start + root.len()), &slipped, &[]);
    }
}

fn field_slips(mill: &mut Mill<'_>) {
    for path in paths(mill) {
        let first = if path.root() == "state" { 2 } else { 1 };
        let part = path.parts.iter().skip(first).rfind(|part| part.parse::<i64>().is_err());
        if let Some(part) = part {
            slip_part(mill, &path, part, |_| false);
        }
    }
}

fn fallback_dropped(mill: &mut Mill<'_>) {
    for expression in mill.graph.expressions(&mill.graph.root) {
        if let [first, .., last] = expression.paths.as_slice() {
            let about = [first.parts.last().unwrap().as_str(), last.parts.last().unwrap().as_str()];
            mill.judged(&(first.span.end..last.span.end), "", &about);
        }
    }
}

fn brace_dropped(mill: &mut Mill<'_>) {
    for expression in mill.graph.expressions(&mill.graph.root) {
        mill.wrong(&(expression.span.end - 1..expression.span.end), "", &[]);
    }
}

fn dollar_dropped(mill: &mut Mill<'_>) {
    for expression in mill.graph.expressions(&mill.graph.root) {
        mill.wrong(&(expression.span.start..expression.span.start + 1), "", &[]);
    }
}

fn operator_slips(mill: &mut Mill<'_>) {
    for (test, _) in tests(mill) {
        if let Some(word) = get(test, "op").or_else(|| get(test, "operator")) {
            const ALL: [&str; 11] = ["eq", "ne", "neq", "gt", "gte", "lt", "lte", "in", "contains", "regex", "exists"];
            mill.slip_word(word, |name| ALL.contains(&name), &[], true);
        }
    }
}

fn operator_other(mill: &mut Mill<'_>) {
    for (test, node) in tests(mill) {
        let others: Vec<&str> = ["eq", "ne", "gt", "lt", "in", "contains", "regex", "exists"]
            .into_iter()
            .filter(|other| *other != operator(test))
            .collect();
        let other = *mill.random.pick(&others).unwrap();
        match get(test, "op").or_else(|| get(test, "operator")) {
            Some(word) => mill.judged(&word.span, other, &[node]),
            None => {
                let at = get(test, "path").unwrap().span.end;
                // In block style a field needs a line of its own; the corpus writes comparisons in flow style.
                mill.judged(&(at..at), &format!(", op: {other}"), &[node]);
            }
        }
    }
}

/// Returns a value of another type.
pub(crate) fn other_type(value: &YamlTree, raw: &str) -> Option<String> {
    Some(match &value.node {
        Value::Number(_) => format!("\"{raw}\""),
        Value::Boolean(_) => format!("\"{raw}\""),
        Value::String(_) => "7".to_owned(),
        Value::List(_) => "[[1]]".to_owned(),
        Value::Null | Value::Map(_) => return None,
    })
}

fn literal_swapped(mill: &mut Mill<'_>) {
    for (test, node) in tests(mill) {
        let Some(value) = get(test, "value") else { continue };
        if let Some(other) = other_type(value, mill.raw(&value.span)) {
            mill.judged(&value.span, &other, &[node]);
        }
    }
}

fn compared_word_slips(mill: &mut Mill<'_>) {
    for (test, node) in tests(mill) {
        if let Some(value) = get(test, "value").filter(|_| operator(test) != "regex") {
            let words = if let Value::List(list) = &value.node { list.as_slice() } else { std::slice::from_ref(value) };
            for word in words {
                mill.slip_word(word, |_| false, &[node], false);
            }
        }
    }
}

fn regex_broken(mill: &mut Mill<'_>) {
    for (test, _) in tests(mill) {
        if let (Some(value), "regex") = (get(test, "value"), operator(test)) {
            mill.wrong(&(value.span.start + 1..value.span.start + 1), "(", &[]);
        }
    }
    let mut patterns = Vec::new();
    schemas(mill, &mut |schema| patterns.extend(get(schema, "pattern").map(|pattern| pattern.span.start + 1)));
    patterns.into_iter().for_each(|at| mill.wrong(&(at..at), "(", &[]));
}

fn first_value_dropped(mill: &mut Mill<'_>) {
    if let Some(state) = mill.graph.config("state") {
        for (key, _) in fields(state) {
            let at = mill.graph.config("start").map_or(0, |start| start.span.start);
            mill.drop_field(state, &key.name, &[&key.name, "state"], &[at], false);
        }
    }
}

/// Calls `visit` with each schema of the inputs, including the nested ones.
fn schemas<'g>(mill: &Mill<'g>, visit: &mut impl FnMut(&'g YamlTree)) {
    fn inner<'g>(schema: &'g YamlTree, visit: &mut impl FnMut(&'g YamlTree)) {
        visit(schema);
        get(schema, "properties").map(fields).unwrap_or_default().iter().for_each(|(_, schema)| inner(schema, visit));
        if let Some(items) = get(schema, "items") {
            inner(items, visit);
        }
    }
    if let Some(schema) = get(&mill.graph.root, "config_schema") {
        inner(schema, visit);
    }
}

/// The properties of the inputs, including the nested ones: the object's schema, the name, the property's schema.
fn properties<'g>(mill: &Mill<'g>) -> Vec<(&'g YamlTree, &'g TreeKey, &'g YamlTree)> {
    let mut all = Vec::new();
    schemas(mill, &mut |schema| {
        let properties = get(schema, "properties").map(fields).unwrap_or_default();
        all.extend(properties.iter().map(|(key, property)| (schema, key, property)));
    });
    all
}

fn default_dropped(mill: &mut Mill<'_>) {
    for (_, key, property) in properties(mill) {
        mill.drop_field(property, "default", &[&key.name], &[key.span.start], false);
    }
}

fn required_dropped(mill: &mut Mill<'_>) {
    for (schema, ..) in properties(mill) {
        let Some(required) = get(schema, "required") else { continue };
        for (at, name) in items(required).iter().enumerate() {
            let name = text_of(name).unwrap_or_default();
            mill.drop_item(required, at, &[name], &[], false);
        }
    }
}

fn is_required(schema: &YamlTree, name: &str) -> bool {
    get(schema, "required").map(items).unwrap_or_default().iter().any(|item| text_of(item) == Some(name))
}

/// Wrong if `required` still names the property; otherwise if the property is read.
fn property_dropped(mill: &mut Mill<'_>) {
    for (schema, key, _) in properties(mill) {
        let map = get(schema, "properties").unwrap();
        mill.drop_field(map, &key.name, &[&key.name], &[schema.span.start], is_required(schema, &key.name));
    }
}

/// Wrong if a keyword or the default does not fit the new type; otherwise if the judge finds a fault.
fn property_type(mill: &mut Mill<'_>) {
    for (_, key, property) in properties(mill) {
        let Some(ty) = get(property, "type") else { continue };
        let other = match text_of(ty) {
            Some("string") => "integer",
            Some("integer" | "number" | "boolean") => "string",
            _ => continue,
        };
        // A mark, such as `x-secret`, may be beside each type.
        let is_mark = |name: &str| ["type", "description"].contains(&name) || name.starts_with("x-");
        let is_bound = fields(property).iter().any(|(key, _)| !is_mark(&key.name));
        mill.edit(&[(ty.span.clone(), other.to_owned())], &[&key.name], &[key.span.start], is_bound);
    }
}

fn enum_emptied(mill: &mut Mill<'_>) {
    for (_, _, property) in properties(mill) {
        if let Some(members) = get(property, "enum") {
            mill.wrong(&members.span, "[]", &[]);
        }
    }
}

/// Wrong if the member is the default; otherwise if the judge finds a fault.
fn member_renamed(mill: &mut Mill<'_>) {
    for (_, key, property) in properties(mill) {
        for member in get(property, "enum").map(items).unwrap_or_default() {
            let text = text_of(member).unwrap_or_default();
            let is_default = get(property, "default").and_then(text_of) == Some(text);
            let about = [key.name.as_str(), text];
            let slipped = mill.random.slip(text, |_| false);
            mill.edit(&[(member.span.clone(), slipped)], &about, &[], is_default);
        }
    }
}

fn permissions<'g>(mill: &Mill<'g>) -> &'g [YamlTree] {
    get(&mill.graph.root, "permissions").map(items).unwrap_or_default()
}

fn permission_dropped(mill: &mut Mill<'_>) {
    for (at, permission) in permissions(mill).iter().enumerate() {
        let id = tool_of(permission);
        let list = get(&mill.graph.root, "permissions").unwrap();
        mill.drop_item(list, at, &[&id, "permissions"], &[], false);
    }
}

/// Returns the id of the tool in a permission.
fn tool_of(permission: &YamlTree) -> String {
    let text = text_of(permission).unwrap_or_default();
    text.splitn(4, '.').nth(3).unwrap_or_default().replace('.', "/")
}

fn permission_slips(mill: &mut Mill<'_>) {
    for permission in permissions(mill) {
        let id = tool_of(permission);
        let last = text_of(permission).unwrap_or_default().rsplit('.').next().unwrap_or_default();
        let Some(span) = mill.word(permission, last).filter(|_| last.len() > 2) else { continue };
        let slipped = mill.random.slip(last, |_| false);
        mill.wrong(&span, &slipped, &[&id]);
    }
}

fn permission_widened(mill: &mut Mill<'_>) {
    for permission in permissions(mill) {
        let text = text_of(permission).unwrap_or_default();
        if let Some(at) = text.rfind('.').filter(|_| !text.ends_with('*') && text.matches('.').count() > 2) {
            let start = permission.span.end - (text.len() - at) + 1;
            mill.judged(&(start..permission.span.end), "*", &["permissions"]);
        }
    }
}

fn item_slips(mill: &mut Mill<'_>) {
    for action in actions(mill) {
        if let Some(id) = get(action, "item_id").filter(|id| !text_of(id).is_some_and(|text| text.contains("${"))) {
            mill.slip_word(id, |_| false, &[], true);
        }
    }
}

fn item_other(mill: &mut Mill<'_>) {
    let ids: Vec<&String> = mill.callees.keys().collect();
    for action in actions(mill) {
        if let Some(old) = called(action) {
            let other = (*mill.random.pick(&ids).unwrap()).clone();
            if other != old {
                mill.judged(&get(action, "item_id").unwrap().span, &other, &[]);
            }
        }
    }
}

/// The parameters of calls with a known callee: the action, the parameter's name, its value, and its type.
fn params<'g>(mill: &Mill<'g>) -> Vec<(&'g YamlTree, &'g TreeKey, &'g YamlTree, Type)> {
    let mut all = Vec::new();
    for action in actions(mill) {
        let Some(callee) = called(action).and_then(|id| mill.callees.get(id)) else { continue };
        for (key, value) in get(action, "params").map(fields).unwrap_or_default() {
            all.push((action, key, value, callee.params.step(&key.name).unwrap_or_else(Type::any)));
        }
    }
    all
}

fn param_dropped(mill: &mut Mill<'_>) {
    for (action, key, ..) in params(mill) {
        let id = get(action, "item_id").unwrap();
        let map = get(action, "params").unwrap();
        mill.drop_field(map, &key.name, &[], &[id.span.start], false);
    }
}

fn param_slips(mill: &mut Mill<'_>) {
    for (_, key, ..) in params(mill) {
        mill.slip_key(key, |_| false, &[], false);
    }
}

fn param_literal(mill: &mut Mill<'_>) {
    for (_, _, value, _) in params(mill) {
        let is_template = text_of(value).is_some_and(|text| text.contains("${"));
        if let Some(other) = other_type(value, mill.raw(&value.span)).filter(|_| !is_template) {
            mill.judged(&value.span, &other, &[]);
        }
    }
}

/// Replaces a whole template with one of another path in the file.
fn param_other(mill: &mut Mill<'_>) {
    let everywhere: Vec<String> =
        paths(mill).into_iter().map(|path| path.text).filter(|text| text.starts_with("inputs.")).collect();
    for (_, _, value, _) in params(mill) {
        if let [one] = mill.graph.expressions(value).as_slice()
            && one.is_whole
            && let Some(other) = mill.random.pick(&everywhere)
            && one.paths[0].text != *other
        {
            mill.judged(&one.span, &format!("${{{other}}}"), &[]);
        }
    }
}

fn param_word_slips(mill: &mut Mill<'_>) {
    for (_, _, value, ty) in params(mill) {
        if let Kind::Enum(_) = ty.kind
            && !text_of(value).is_some_and(|text| text.contains("${"))
        {
            mill.slip_word(value, |_| false, &[], false);
        }
    }
}

/// The keys that the format defines.
fn format_keys<'g>(mill: &Mill<'g>) -> Vec<&'g TreeKey> {
    let mut keys: Vec<&'g TreeKey> = Vec::new();
    let mut add =
        |tree: Option<&'g YamlTree>| keys.extend(tree.map(fields).unwrap_or_default().iter().map(|(key, _)| key));
    add(Some(&mill.graph.root));
    add(get(&mill.graph.root, "config"));
    add(get(&mill.graph.root, "limits"));
    for node in mill.graph.nodes() {
        add(Some(node.tree));
        add(node.get("action"));
        add(node.get("retry"));
        if let Some(Value::List(edges)) = node.get("next").map(|next| &next.node) {
            edges.iter().for_each(|edge| add(Some(edge)));
        }
    }
    for hook in mill.graph.hooks() {
        add(Some(hook));
        add(get(hook, "action"));
    }
    tests(mill).into_iter().for_each(|(test, _)| add(Some(test)));
    schemas(mill, &mut |schema| add(Some(schema)));
    keys
}

fn format_slips(mill: &mut Mill<'_>) {
    for key in format_keys(mill) {
        // A slip in a key as short as `to` would give another word.
        if key.name.len() > 2 {
            mill.slip_key(key, |_| false, &[], true);
        }
    }
}

fn word_slips(mill: &mut Mill<'_>) {
    let mut words: Vec<&YamlTree> = Vec::new();
    words.extend(["tool_type", "executor_id"].iter().filter_map(|name| get(&mill.graph.root, name)));
    words.extend(["on_error", "on_max_steps", "on_no_match"].iter().filter_map(|name| mill.graph.config(name)));
    for node in mill.graph.nodes() {
        words.extend(node.get("type"));
        words.extend(node.get("retry").and_then(|retry| get(retry, "on")).map(items).unwrap_or_default());
    }
    for action in actions(mill) {
        words.extend(["primary", "item_type"].iter().filter_map(|name| get(action, name)));
    }
    schemas(mill, &mut |schema| {
        words.extend(["type", "format"].iter().filter_map(|name| get(schema, name)));
        words.extend(get(schema, "required").map(items).unwrap_or_default());
    });
    for word in words {
        mill.slip_word(word, |_| false, &[], true);
    }
}

fn out_of_range(mill: &mut Mill<'_>) {
    let mut numbers: Vec<&YamlTree> = Vec::new();
    numbers.extend(["max_steps", "max_concurrency"].iter().filter_map(|name| mill.graph.config(name)));
    for node in mill.graph.nodes() {
        let retry = node.get("retry");
        let attempts = retry.map(|retry| get(retry, "attempts").unwrap_or(retry));
        numbers.extend(attempts.into_iter().chain(node.get("max_concurrency")));
    }
    for number in numbers.into_iter().filter(|tree| matches!(tree.node, Value::Number(_))) {
        mill.wrong(&number.span, "0", &[]);
    }
}

fn duration_broken(mill: &mut Mill<'_>) {
    let mut durations: Vec<&YamlTree> = Vec::new();
    durations.extend(get(&mill.graph.root, "limits").and_then(|limits| get(limits, "timeout")));
    for node in mill.graph.nodes() {
        durations.extend(node.get("timeout"));
        durations.extend(node.get("retry").and_then(|retry| get(retry, "delay")));
    }
    for duration in durations {
        mill.wrong(&duration.span, "20 sec", &[]);
    }
}

fn type_dropped(mill: &mut Mill<'_>) {
    for node in mill.graph.nodes() {
        mill.drop_field(node.tree, "type", &[node.name()], &[node.key.span.start], true);
    }
}

fn collect_dropped(mill: &mut Mill<'_>) {
    for node in mill.graph.nodes() {
        let key = node.get("collect").and_then(text_of).unwrap_or_default();
        mill.drop_field(node.tree, "collect", &[key, node.name()], &[], false);
    }
}

fn as_dropped(mill: &mut Mill<'_>) {
    for node in mill.graph.nodes() {
        mill.drop_field(node.tree, "as", &[node.item(), node.name()], &[], false);
    }
}

fn over_broken(mill: &mut Mill<'_>) {
    for node in mill.graph.nodes() {
        if let [one] = node.get("over").map(|over| mill.graph.expressions(over)).unwrap_or_default().as_slice() {
            mill.judged(&(one.span.start..one.span.start), "all of ", &[]);
        }
    }
}

fn event_slips(mill: &mut Mill<'_>) {
    for event in mill.graph.hooks().iter().filter_map(|hook| get(hook, "event")) {
        mill.slip_word(event, |_| false, &[], true);
    }
}

fn event_other(mill: &mut Mill<'_>) {
    for hook in mill.graph.hooks() {
        let steers = get(hook, "action")
            .is_some_and(|action| get(action, "retry").or_else(|| get(action, "continue")).is_some());
        if let Some(event) = get(hook, "event").filter(|_| steers) {
            mill.wrong(&event.span, "graph_completed", &["retry", "continue"]);
        }
    }
}

fn bracket_dropped(mill: &mut Mill<'_>) {
    for node in mill.graph.nodes() {
        for part in [node.get("assign"), node.get("action"), node.get("output")].into_iter().flatten() {
            if mill.raw(&part.span).ends_with('}') && mill.raw(&part.span).starts_with('{') {
                mill.wrong(&(part.span.end - 1..part.span.end), "", &[]);
            }
        }
    }
}

fn quote_dropped(mill: &mut Mill<'_>) {
    for node in mill.graph.nodes() {
        for (_, value) in node.assign() {
            if mill.raw(&value.span).ends_with('"') {
                mill.wrong(&(value.span.end - 1..value.span.end), "", &[]);
            }
        }
    }
}

fn key_twice(mill: &mut Mill<'_>) {
    for node in mill.graph.nodes() {
        if let Some((key, value)) = node.assign().first() {
            let raw = mill.raw(&(key.span.start..value.span.end)).to_owned();
            let is_flow = mill.raw(&node.get("assign").unwrap().span).starts_with('{');
            let indent = mill.graph.text[..key.span.start].rsplit('\n').next().unwrap_or_default().to_owned();
            let between = if is_flow { ", ".to_owned() } else { format!("\n{indent}") };
            let end = value.span.end;
            mill.edit(&[(end..end, format!("{between}{raw}"))], &[&key.name], &[], true);
        }
    }
}

fn tab(mill: &mut Mill<'_>) {
    for node in mill.graph.nodes() {
        if let Some((key, _)) = fields(node.tree).first().filter(|_| !mill.raw(&node.tree.span).starts_with('{')) {
            mill.wrong(&(key.span.start - 2..key.span.start), "\t", &[]);
        }
    }
}

/// Wrong if `required` still names the property; otherwise if a caller gives or reads it.
fn part_dropped(mill: &mut Mill<'_>, schema: &str) {
    let Some(schema) = get(&mill.graph.root, schema) else { return };
    let Some(map) = get(schema, "properties") else { return };
    let id = tool_id(mill.file);
    for (key, _) in fields(map) {
        mill.drop_field(map, &key.name, &[&key.name, &id], &[schema.span.start], is_required(schema, &key.name));
    }
}

/// Returns the id of the tool whose contract is in a file.
pub(crate) fn tool_id(file: &str) -> String {
    file.trim_start_matches("tools/").trim_end_matches(".yaml").to_owned()
}

fn part_renamed(mill: &mut Mill<'_>, schema: &str) {
    let Some(schema) = get(&mill.graph.root, schema) else { return };
    let id = tool_id(mill.file);
    for (key, _) in get(schema, "properties").map(fields).unwrap_or_default() {
        let slipped = mill.random.slip(&key.name, |_| false);
        let mut edits = vec![(key.span.clone(), slipped.clone())];
        let required = get(schema, "required").map(items).unwrap_or_default();
        let listed = required.iter().find(|item| text_of(item) == Some(&key.name));
        edits.extend(listed.map(|item| (item.span.clone(), slipped)));
        mill.edit(&edits, &[&key.name, &id], &[], false);
    }
}

fn part_type(mill: &mut Mill<'_>, schema: &str) {
    let Some(schema) = get(&mill.graph.root, schema) else { return };
    let id = tool_id(mill.file);
    for (key, property) in get(schema, "properties").map(fields).unwrap_or_default() {
        let Some(ty) = get(property, "type") else { continue };
        let other = match text_of(ty) {
            Some("string") => "integer",
            Some("integer" | "number") => "string",
            Some("boolean") => "number",
            _ => continue,
        };
        let is_bound = get(property, "default").is_some();
        mill.edit(&[(ty.span.clone(), other.to_owned())], &[&key.name, &id], &[], is_bound);
    }
}

fn param_required(mill: &mut Mill<'_>) {
    let Some(schema) = get(&mill.graph.root, "config_schema") else { return };
    let id = tool_id(mill.file);
    let Some(required) = get(schema, "required") else { return };
    for (key, property) in get(schema, "properties").map(fields).unwrap_or_default() {
        if !is_required(schema, &key.name) && get(property, "default").is_none() {
            let at = required.span.end - 1;
            mill.judged(&(at..at), &format!(", {}", key.name), &[&key.name, &id]);
        }
    }
}

fn result_optional(mill: &mut Mill<'_>) {
    let Some(schema) = get(&mill.graph.root, "result_schema") else { return };
    let Some(required) = get(schema, "required") else { return };
    let id = tool_id(mill.file);
    for (at, name) in items(required).iter().enumerate() {
        mill.drop_item(required, at, &[text_of(name).unwrap_or_default(), &id], &[], false);
    }
}

fn contract_member(mill: &mut Mill<'_>) {
    let Some(schema) = get(&mill.graph.root, "result_schema") else { return };
    let id = tool_id(mill.file);
    for (key, property) in get(schema, "properties").map(fields).unwrap_or_default() {
        for member in get(property, "enum").map(items).unwrap_or_default() {
            let text = text_of(member).unwrap_or_default();
            let slipped = mill.random.slip(text, |_| false);
            mill.judged(&member.span, &slipped, &[&key.name, text, &id]);
        }
    }
}

fn keyword_slips(mill: &mut Mill<'_>) {
    for schema in ["config_schema", "result_schema"].iter().filter_map(|name| get(&mill.graph.root, name)) {
        for (key, _) in fields(schema) {
            mill.slip_key(key, |_| false, &[], true);
        }
    }
}

fn tool_type_slips(mill: &mut Mill<'_>) {
    if let Some(word) = get(&mill.graph.root, "tool_type") {
        mill.slip_word(word, |_| false, &[], true);
    }
}
