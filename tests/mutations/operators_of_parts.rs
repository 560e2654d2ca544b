//! The kinds of mistakes in the parts of a graph beside nodes and branches: waits, signals, questions to people, calls,
//! limits, tasks, hooks, shared keys. Each is made in each field of such a part.

use std::ops::Range;

use graph_compiler::tree::{TreeKey, TreeNode as Value, YamlTree};

use super::mill::{Mill, Mutant};
use super::model::{Form, Node, called, fields, get, items, parse, text_of};
use super::operators::{Operator, always, legal};

/// The four mistakes that can be made with the fields of a part.
macro_rules! of_fields {
    ($($part:literal: $reason:literal,)*) => {
        &[$(
            always(concat!($part, ": field misspelt"), 2, |mill| field_slips(mill, $part)),
            legal(concat!($part, ": field dropped"), 2, $reason, |mill| field_dropped(mill, $part)),
            always(concat!($part, ": value of another type"), 2, |mill| value_of_another_type(mill, $part)),
            always(concat!($part, ": field at another level"), 2, |mill| field_moved(mill, $part)),
        )*]
    };
}

/// The mistakes with the fields of each part, with the reason why a graph without an optional one is another graph.
pub(crate) const OF_FIELDS: &[Operator] = of_fields![
    "wait": "none of its fields is optional",
    "question": "who answers, how many of them, and until when is the author's choice",
    "signal": "a rule of the schema is optional",
    "call": "repetitions and limits of a call are the author's choice",
    "action": "a tool without required parameters takes none",
    "foreach": "the calls are made one after the other, or their results are not kept",
    "fan-out": "a limit or a policy is optional",
    "channel": "a channel keeps its values, in the order of the writes",
    "sharing": "a graph may keep its keys and signals to itself",
    "entry": "a node that is in no list needs no element",
    "hook": "a hook without a condition is always asked",
    "limits": "a limit is optional",
    "task": "a limit or a time is optional",
    "config": "a setting has a default",
];

/// The mistakes with names, words, numbers and values of these parts.
pub(crate) const OF_PARTS: &[Operator] = &[
    always("node: another `type`", 4, type_other),
    always("signal: declared with a slip", 1, signal_slips),
    always("signal: awaited with a slip", 1, awaited_slips),
    always("signal: not received", 1, awaited_dropped),
    always("route: the path misspelt", 3, by_slips),
    always("route: a word misspelt", 2, word_slips),
    always("question: a word of the answer misspelt", 1, answer_slips),
    always("question: a word of `count` misspelt", 1, count_slips),
    always("question: the role misspelt", 1, role_slips),
    always("question: more people than there are", 1, count_too_many),
    always("approval: a value is not shown", 2, payload_dropped),
    always("approval: a value is shown inside a text", 1, payload_in_text),
    always("approval: no value is shown", 1, payload_emptied),
    always("approval: nobody answers in time", 1, timeout_approves),
    always("approval: no answer refuses", 1, nothing_refuses),
    always("secret: shown to people", 1, secret_shown),
    always("sink: a value in it", 1, sink_filled),
    always("part: a number out of range", 4, number_out_of_range),
    always("part: a duration without a unit that exists", 3, duration_broken),
    always("part: a word misspelt", 3, part_word_slips),
    always("limits: too few for the agents", 2, limits_of_agents),
    always("limits: too few steps", 1, limits_of_steps),
    always("limits of a node: above the contract", 1, limits_of_node),
    always("sharing: a key misspelt", 1, share_slips),
    always("task: target misspelt", 2, target_slips),
    always("task: an input misspelt", 2, input_slips),
    always("task: an input missing", 2, input_dropped),
    always("task: an input of another type", 2, input_of_another_type),
    always("task: an input beside the target", 1, input_moved),
    always("task: a limit above the contract", 1, task_limit),
];

/// The mistakes in contracts of agents, programs, servers' tools and reducers.
pub(crate) const OF_KINDS_OF_TOOLS: &[Operator] = &[
    always("contract of a kind: field misspelt", 3, kind_slips),
    always("contract of a kind: needed field dropped", 2, kind_dropped),
    always("contract of a kind: value of another type", 2, kind_types),
    always("contract of a kind: a tool misspelt", 1, kind_tools),
    always("contract of a kind: a number out of range", 2, kind_numbers),
    always("contract: mark misspelt", 1, mark_slips),
];

/// The mistakes in the schedules of a tree's settings.
pub(crate) const OF_SETTINGS: &[Operator] = &[always("schedule: a mistake", 1, |_| {})];

/// The texts of `tests/mutations/realistic/graphs.toml` that are replaced, and their replacements. Whether a schedule fits its graph is
/// no question of the check: `graph schedules` and workers answer it.
const SETTINGS: &[(&str, &str)] = &[
    ("graph = \"subscriptions/renewals\"\n", ""),
    ("15 1 * * *", "15 1 * *"),
    ("15 1 * * *", "75 1 * * *"),
    ("MON-FRI", "MON-FRY"),
    ("Europe/Berlin", "Europe/Berln"),
    ("zone = \"Europe/Berlin\"\n", ""),
    ("\"queue\"", "\"que\""),
    ("{ all = 3 }", "{ all = 0 }"),
    ("\"last\"", "\"lats\""),
    ("overlap", "overlaps"),
    ("[schedules.", "[schedule."),
];

/// Returns the mutants of a settings file.
pub(crate) fn of_settings(text: &str, file: &str, operator: usize) -> Vec<Mutant> {
    let mutant = |(from, to): &(&str, &str)| {
        let at = text.find(from).unwrap();
        Mutant {
            operator,
            file: file.to_owned(),
            text: text.replacen(from, to, 1),
            lines: vec![text[..at].matches('\n').count() + 1],
            names: vec!["schedules".to_owned()],
            what: format!("`{}` → `{}`", from.trim(), to.trim()),
            is_wrong: true,
        }
    };
    SETTINGS.iter().map(mutant).collect()
}

/// The fields that a part needs, always or beside the field that is named second.
const NEEDED: &[(&str, &str, &str)] = &[
    ("wait", "timeout", ""),
    ("wait", "until", ""),
    ("wait", "signals", "on_timeout"),
    ("wait", "on_timeout", ""),
    ("question", "payload", ""),
    ("question", "result_schema", ""),
    ("question", "timeout", ""),
    ("question", "on_timeout", ""),
    ("action", "item_id", ""),
    ("action", "params", ""),
    ("foreach", "over", ""),
    ("foreach", "action", ""),
    ("foreach", "as", ""),
    ("fan-out", "over", ""),
    ("fan-out", "as", ""),
    ("fan-out", "to", ""),
    ("fan-out", "all", ""),
    ("fan-out", "by", ""),
    ("channel", "reduce", ""),
    ("entry", "node", ""),
    ("entry", "element", ""),
    ("hook", "event", ""),
    ("hook", "action", ""),
    ("hook", "escalate", ""),
    ("hook", "suspend", ""),
    ("hook", "retry", "max_retries"),
    ("task", "target", ""),
    ("task", "inputs", ""),
    ("task", "tasks", ""),
    ("task", "task", ""),
    ("task", "message", ""),
    ("task", "directive_name", ""),
    ("task", "operation", ""),
    ("config", "start", ""),
    ("config", "nodes", ""),
    ("config", "signals", ""),
];

/// The fields whose values may be of any type, or that another operator changes.
const ANY: &[&str] = &[
    "payload",
    "default",
    "value",
    "description",
    "comment",
    "reason",
    "element",
    "const",
    "message",
    "nodes",
    "inputs",
    "params",
    "state",
    "next",
    "to",
    "id",
    "retry",
    "enum",
];

/// The tools of `tests/mutations/realistic` whose calls people approve.
const GUARDED: [&str; 3] = ["bank/transfer", "ops/withdraw", "support/pay_back"];

/// A mapping with fields of the format.
struct Part<'g> {
    part: &'static str,
    map: &'g YamlTree,
    /// The place of its name, on which a reader looks for its mistakes too.
    at: usize,
}

/// Returns the parts of a graph.
fn parts<'g>(mill: &Mill<'g>) -> Vec<Part<'g>> {
    let mut all = Vec::new();
    let mut add = |part, tree: Option<&'g YamlTree>, at: usize| {
        all.extend(tree.filter(|tree| !fields(tree).is_empty()).map(|map| Part { part, map, at }));
    };
    add("limits", get(&mill.graph.root, "limits"), 0);
    add("config", get(&mill.graph.root, "config"), 0);
    for (key, signal) in mill.graph.config("signals").map(fields).unwrap_or_default() {
        add("signal", Some(signal), key.span.start);
    }
    for (key, _, channel) in mill.graph.channels() {
        add("channel", Some(channel), key.span.start);
        add("channel", get(channel, "reduce"), key.span.start);
    }
    for (key, _, entry) in mill.graph.entries() {
        add("entry", Some(entry), key.span.start);
    }
    for hook in mill.graph.hooks() {
        add("hook", Some(hook), hook.span.start);
        add("hook", get(hook, "action").filter(|action| get(action, "item_id").is_none()), hook.span.start);
    }
    for node in mill.graph.nodes() {
        let at = node.key.span.start;
        let kind = if node.is("wait") {
            "wait"
        } else if node.is("interrupt") {
            "question"
        } else if node.is("foreach") {
            "foreach"
        } else {
            "call"
        };
        if kind != "call" || node.get("action").is_some() {
            add(kind, Some(node.tree), at);
        }
        add("question", node.get("interrupts"), at);
        let asks = node.get("interrupts").unwrap_or(node.tree);
        add("question", get(asks, "answered_by"), at);
        add("call", node.get("retry"), at);
        add("call", node.get("limits"), at);
        add("action", node.get("action"), at);
        add("sharing", node.get("share"), at);
        add("fan-out", node.get("next").filter(|_| node.form() != Form::By), at);
        let params = node.get("action").filter(|action| starts_tasks(action)).and_then(|action| get(action, "params"));
        add("task", params, at);
        for name in ["limits", "limit_overrides"] {
            add("task", params.and_then(|params| get(params, name)), at);
        }
    }
    all
}

fn starts_tasks(action: &YamlTree) -> bool {
    called(action).is_some_and(|id| id.starts_with("rye/orchestrate/") || id.starts_with("rye/agent/threads/"))
}

/// The fields of the parts of one kind.
fn fields_of<'g>(mill: &Mill<'g>, kind: &str) -> Vec<(Part<'g>, &'g TreeKey, &'g YamlTree)> {
    let of_kind = parts(mill).into_iter().filter(|part| part.part == kind);
    let each = |part: Part<'g>| {
        let Part { part, map, at } = part;
        fields(map).iter().map(move |(key, value)| (Part { part, map, at }, key, value))
    };
    of_kind.flat_map(each).collect()
}

fn field_slips(mill: &mut Mill<'_>, kind: &str) {
    for (part, key, _) in fields_of(mill, kind) {
        let has = |name: &str| get(part.map, name).is_some();
        // A slip in a shorter word would give another one.
        if key.name.len() > 2 {
            mill.slip_key(key, has, &[], true);
        }
    }
}

fn field_dropped(mill: &mut Mill<'_>, kind: &str) {
    for (part, key, _) in fields_of(mill, kind) {
        let is_needed = NEEDED.iter().any(|(part, name, beside)| {
            (*part, *name) == (kind, key.name.as_str())
                && (beside.is_empty() || get(part_of(mill, kind, key), beside).is_some())
        });
        // Without its only field, nothing of a part in block style is left.
        if fields(part.map).len() > 1 {
            mill.drop_field(part.map, &key.name, &[&key.name], &[part.at], is_needed);
        }
    }
}

/// Returns the mapping that has a key.
fn part_of<'g>(mill: &Mill<'g>, kind: &str, key: &TreeKey) -> &'g YamlTree {
    let all = fields_of(mill, kind);
    all.into_iter().find(|(_, other, _)| std::ptr::eq(*other, key)).map(|(part, ..)| part.map).unwrap()
}

fn value_of_another_type(mill: &mut Mill<'_>, kind: &str) {
    for (part, key, value) in fields_of(mill, kind) {
        if ANY.contains(&key.name.as_str()) || value.node == Value::Null {
            continue;
        }
        let other = if matches!(value.node, Value::List(_) | Value::Map(_)) { "7" } else { "{ x: 1 }" };
        mill.edit(&[(value.span.clone(), other.to_owned())], &[&key.name], &[part.at], true);
        keep_if_yaml(mill);
    }
}

/// Takes the last mutant back, if its text is no YAML.
fn keep_if_yaml(mill: &mut Mill<'_>) {
    if mill.mutants.last().is_some_and(|mutant| parse(&mutant.text).is_none()) {
        mill.mutants.pop();
    }
}

/// Writes a value on one line.
fn flow(tree: &YamlTree) -> String {
    match &tree.node {
        Value::Null => "null".to_owned(),
        Value::Boolean(value) => value.to_string(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => serde_json::to_string(text).unwrap(),
        Value::List(list) => format!("[{}]", list.iter().map(flow).collect::<Vec<_>>().join(", ")),
        Value::Map(map) => {
            let field = |(key, value): &(TreeKey, YamlTree)| {
                format!("{}: {}", serde_json::to_string(&key.name).unwrap(), flow(value))
            };
            format!("{{ {} }}", map.iter().map(field).collect::<Vec<_>>().join(", "))
        }
    }
}

/// Returns the place for another field of a mapping, and the text around it.
fn place_in(mill: &Mill<'_>, map: &YamlTree, field: &str) -> Option<(Range<usize>, String)> {
    let first = fields(map).first()?.0.span.start;
    if mill.raw(&map.span).starts_with('{') {
        return Some((first..first, format!("{field}, ")));
    }
    let line = mill.graph.text[..first].rfind('\n').map_or(0, |newline| newline + 1);
    Some((first..first, format!("{field}\n{}", " ".repeat(first - line))))
}

/// Adds a mutant in which a field is in another mapping.
fn moved(mill: &mut Mill<'_>, from: &YamlTree, key: &TreeKey, to: Option<&YamlTree>, at: usize) {
    let list = fields(from);
    let (Some(to), Some(index)) = (to, list.iter().position(|(other, _)| std::ptr::eq(other, key))) else { return };
    let spans: Vec<Range<usize>> =
        list.iter().map(|(key, value)| key.span.start..value.span.end.max(key.span.end)).collect();
    let Some(cut) = mill.span_of_part(from, &spans, index).filter(|_| list.len() > 1) else { return };
    let field = format!("{}: {}", key.name, flow(&list[index].1));
    let Some((place, text)) = place_in(mill, to, &field) else { return };
    if get(to, &key.name).is_some() || cut.contains(&place.start) {
        return;
    }
    let mut edits = [(cut, String::new()), (place, text)];
    edits.sort_by_key(|(span, _)| span.start);
    mill.edit(&edits, &[&key.name], &[at], true);
    keep_if_yaml(mill);
}

/// Moves fields to a level where an author may look for them.
fn field_moved(mill: &mut Mill<'_>, kind: &str) {
    let (root, config) = (&mill.graph.root, get(&mill.graph.root, "config"));
    let all = fields_of(mill, kind);
    for (part, key, _) in &all {
        let name = key.name.as_str();
        let nodes = mill.graph.nodes();
        let node = nodes.iter().find(|node| node.key.span.start == part.at).map(|node| node.tree);
        let of = |field: &str| node.and_then(|node| get(node, field));
        let is_node = node.is_some_and(|node| std::ptr::eq(node, part.map));
        let to = match (kind, name) {
            ("limits", _) => config,
            ("config", "max_steps" | "max_concurrency") => get(root, "limits"),
            ("config", "hooks" | "signals" | "channels" | "entries" | "state") => Some(root),
            ("wait" | "question", "on_timeout" | "assign") if is_node => {
                of("next").filter(|next| !fields(next).is_empty())
            }
            ("question", "payload" | "timeout") if is_node => of("answered_by"),
            ("question", "role" | "count") if of("interrupts").is_none() => node,
            (
                "call" | "foreach",
                "retry" | "timeout" | "limits" | "cache_result" | "share" | "interrupts" | "assign" | "collect" | "as",
            ) if is_node => of("action"),
            ("call", "attempts" | "turns" | "steps") => of("action"),
            ("action", "item_id" | "params") => node,
            ("fan-out", "most" | "max_concurrency" | "on_branch_error") => node,
            ("hook", "condition") => get(part.map, "action"),
            ("task", "limits" | "timeout" | "limit_overrides" | "mode") => of("action"),
            _ => None,
        };
        moved(mill, part.map, key, to, part.at);
    }
}

fn type_other(mill: &mut Mill<'_>) {
    for node in mill.graph.nodes() {
        let Some(word) = node.get("type") else { continue };
        let others: &[&str] = match text_of(word) {
            Some("interrupt") => &["gate", "wait", "action"],
            Some("wait") => &["gate", "interrupt", "action"],
            Some("foreach") => &["action", "gate"],
            Some("return") if node.get("output").is_some() => &["gate", "action"],
            Some("gate") => &["wait", "interrupt", "return", "action"],
            _ => &[],
        };
        if let Some(other) = mill.random.pick(others).copied() {
            mill.wrong(&word.span, other, &[node.name()]);
        }
    }
}

fn signal_slips(mill: &mut Mill<'_>) {
    for (key, _) in mill.graph.config("signals").map(fields).unwrap_or_default() {
        mill.slip_key(key, |_| false, &[&key.name], true);
    }
}

/// The lists of signals that waits name.
fn awaited<'g>(mill: &Mill<'g>) -> Vec<(&'g YamlTree, Node<'g>)> {
    let nodes = mill.graph.nodes().into_iter().filter(|node| node.is("wait"));
    nodes.filter_map(|node| Some((node.get("signals")?, node))).collect()
}

fn awaited_slips(mill: &mut Mill<'_>) {
    for (list, node) in awaited(mill) {
        for name in items(list) {
            mill.slip_word(name, |_| false, &[node.name()], true);
        }
    }
}

/// Wrong if the node's route has a target for the signal.
fn awaited_dropped(mill: &mut Mill<'_>) {
    for (list, node) in awaited(mill).into_iter().filter(|(_, node)| node.form() == Form::By) {
        for (at, name) in items(list).iter().enumerate() {
            mill.drop_item(list, at, &[text_of(name).unwrap_or_default(), node.name()], &[], true);
        }
    }
}

fn by_slips(mill: &mut Mill<'_>) {
    for node in mill.graph.nodes() {
        let Some(by) = node.of_next("by") else { continue };
        for part in text_of(by).unwrap_or_default().split('.') {
            if let Some(span) = mill.word(by, part) {
                let slipped = mill.random.slip(part, |_| false);
                mill.wrong(&span, &slipped, &[node.name()]);
            }
        }
    }
}

fn word_slips(mill: &mut Mill<'_>) {
    for node in mill.graph.nodes().iter().filter(|node| node.form() == Form::By) {
        for (key, _) in node.of_next("to").map(fields).unwrap_or_default() {
            mill.slip_key(key, |_| false, &[node.name()], true);
        }
    }
}

/// The questions to people, with their nodes.
fn questions<'g>(mill: &Mill<'g>) -> Vec<(&'g YamlTree, Node<'g>)> {
    let question =
        |node: Node<'g>| Some((node.get("interrupts").or_else(|| node.is("interrupt").then_some(node.tree))?, node));
    mill.graph.nodes().into_iter().filter_map(question).collect()
}

/// Wrong if the words of the answer are used.
fn answer_slips(mill: &mut Mill<'_>) {
    for (question, node) in questions(mill).into_iter().filter(|(_, node)| node.form() == Form::By) {
        let Some(schema) = get(question, "result_schema") else { continue };
        let words = get(schema, "properties").map(fields).unwrap_or_default().iter().map(|(_, property)| property);
        for word in words.chain([schema]).filter_map(|schema| get(schema, "enum")).flat_map(items) {
            mill.slip_word(word, |_| false, &[node.name(), text_of(word).unwrap_or_default()], true);
        }
    }
}

fn count_slips(mill: &mut Mill<'_>) {
    for (question, node) in questions(mill) {
        for (word, _) in get(question, "answered_by").and_then(|by| get(by, "count")).map(fields).unwrap_or_default() {
            mill.slip_key(word, |_| false, &[node.name()], true);
        }
    }
}

fn role_slips(mill: &mut Mill<'_>) {
    for (question, _) in questions(mill) {
        if let Some(role) = get(question, "answered_by").and_then(|by| get(by, "role")) {
            mill.slip_word(role, |_| false, &[], true);
        }
    }
}

fn count_too_many(mill: &mut Mill<'_>) {
    for (question, _) in questions(mill) {
        let Some(count) = get(question, "answered_by").and_then(|by| get(by, "count")) else { continue };
        let number = fields(count).first().map_or(count, |(_, number)| number);
        mill.wrong(&number.span, "9", &["role"]);
    }
}

/// The guarded calls of a graph.
fn guarded<'g>(mill: &Mill<'g>) -> Vec<Node<'g>> {
    mill.graph.nodes().into_iter().filter(|node| node.calls().is_some_and(|id| GUARDED.contains(&id))).collect()
}

/// The values in payloads that are arguments of guarded calls: the payload, the place in it, and the value.
fn approved<'g>(mill: &Mill<'g>) -> Vec<(&'g YamlTree, &'g TreeKey, &'g YamlTree)> {
    let params = guarded(mill).into_iter().filter_map(|node| get(node.get("action")?, "params"));
    let arguments: Vec<&str> = params.flat_map(fields).filter_map(|(_, value)| text_of(value)).collect();
    let mut found = Vec::new();
    for payload in questions(mill).into_iter().filter_map(|(question, _)| get(question, "payload")) {
        // Numbers of a tool need no approval.
        let is_argument = |value: &YamlTree| {
            text_of(value).is_some_and(|text| text.starts_with("${inputs.") && arguments.contains(&text))
        };
        found.extend(
            fields(payload).iter().filter(|(_, value)| is_argument(value)).map(|(key, value)| (payload, key, value)),
        );
    }
    found
}

fn payload_dropped(mill: &mut Mill<'_>) {
    let calls: Vec<&str> = guarded(mill).iter().map(Node::name).collect();
    for (payload, key, _) in approved(mill) {
        mill.drop_field(payload, &key.name, &calls, &[], true);
    }
}

fn payload_in_text(mill: &mut Mill<'_>) {
    for (_, key, value) in approved(mill) {
        let inside = format!("\"Is it {}?\"", text_of(value).unwrap_or_default());
        mill.wrong(&value.span, &inside, &[&key.name]);
    }
}

fn payload_emptied(mill: &mut Mill<'_>) {
    let calls: Vec<&str> = guarded(mill).iter().map(Node::name).collect();
    if let Some((payload, ..)) = approved(mill).first() {
        mill.wrong(&payload.span, "{ what: the payment }\n", &calls);
        keep_if_yaml(mill);
    }
}

/// The questions that approve a call, each with the routes of its words.
fn approvals<'g>(mill: &Mill<'g>) -> Vec<(Node<'g>, &'g [(TreeKey, YamlTree)])> {
    let payloads: Vec<&YamlTree> = approved(mill).into_iter().map(|(payload, ..)| payload).collect();
    let shows = |node: &Node<'g>| {
        node.get("payload").is_some_and(|own| payloads.iter().any(|payload| std::ptr::eq(*payload, own)))
    };
    let nodes = mill.graph.nodes().into_iter().filter(shows).filter(|node| node.form() == Form::By);
    nodes.map(|node| (node, node.of_next("to").map(fields).unwrap_or_default())).collect()
}

/// The node that an approving answer leads to: the word with which a guarded call, or the session for it, follows.
fn approving(routes: &[(TreeKey, YamlTree)]) -> Option<&YamlTree> {
    let words = ["approve", "pay", "withdraw", "true"];
    routes.iter().find(|(word, _)| words.contains(&word.name.as_str())).map(|(_, to)| to)
}

fn timeout_approves(mill: &mut Mill<'_>) {
    for (node, routes) in approvals(mill) {
        if let (Some(to), Some(late)) = (approving(routes).and_then(text_of), node.get("on_timeout")) {
            mill.wrong(&late.span, to, &[node.name(), to]);
        }
    }
}

fn nothing_refuses(mill: &mut Mill<'_>) {
    for (node, routes) in approvals(mill) {
        let Some(to) = approving(routes).and_then(text_of) else { continue };
        let edits: Vec<_> = routes.iter().map(|(_, other)| (other.span.clone(), to.to_owned())).collect();
        mill.edit(&edits, &[node.name(), to], &[], true);
    }
}

fn secret_shown(mill: &mut Mill<'_>) {
    let secret = ["token: { type: string, x-secret: true }"];
    if !secret.iter().any(|schema| mill.graph.text.contains(schema)) {
        return;
    }
    for node in mill.graph.nodes().iter().filter(|node| node.calls().is_some()) {
        let params = node.get("action").and_then(|action| get(action, "params")).map(fields).unwrap_or_default();
        if let Some((key, value)) = params.iter().find(|(key, _)| ["service", "command"].contains(&key.name.as_str())) {
            mill.wrong(&value.span, "\"${inputs.token}\"", &[&key.name]);
        }
    }
}

fn sink_filled(mill: &mut Mill<'_>) {
    let Some((input, _)) =
        properties(mill).iter().find(|(_, schema)| get(schema, "type").and_then(text_of) == Some("string"))
    else {
        return;
    };
    let text = format!("\"x ${{inputs.{}}}\"", input.name);
    for node in mill.graph.nodes() {
        for (key, value) in node.get("action").and_then(|action| get(action, "params")).map(fields).unwrap_or_default()
        {
            if ["sql", "command", "url"].contains(&key.name.as_str()) {
                mill.wrong(&value.span, &text, &[&key.name]);
            }
        }
    }
}

fn properties<'g>(mill: &Mill<'g>) -> &'g [(TreeKey, YamlTree)] {
    get(&mill.graph.root, "config_schema").and_then(|schema| get(schema, "properties")).map(fields).unwrap_or_default()
}

/// The fields of all parts.
fn all_fields<'g>(mill: &Mill<'g>) -> Vec<(&'g TreeKey, &'g YamlTree)> {
    let mut all: Vec<(&TreeKey, &YamlTree)> = Vec::new();
    for (key, value) in parts(mill).into_iter().flat_map(|part| fields(part.map)) {
        if !all.iter().any(|(other, _)| std::ptr::eq(*other, key)) {
            all.push((key, value));
        }
    }
    all
}

fn number_out_of_range(mill: &mut Mill<'_>) {
    for (key, value) in all_fields(mill) {
        let other = match key.name.as_str() {
            "attempts" | "factor" | "most" | "max_concurrency" | "visits" | "steps" | "turns" | "tokens"
            | "max_steps" => "0",
            "count" if fields(value).is_empty() => "0",
            "count" => "{ approve: 21, refuse: 1 }",
            "jitter" => "2",
            "depth" => "101",
            "spend" => "0.05 EUR",
            _ => continue,
        };
        mill.wrong(&value.span, other, &[&key.name]);
    }
}

fn duration_broken(mill: &mut Mill<'_>) {
    for (key, value) in all_fields(mill) {
        // The time of a task is a number of seconds.
        if ["timeout", "deadline", "delay", "max_delay"].contains(&key.name.as_str())
            && !matches!(value.node, Value::Number(_))
        {
            mill.wrong(&value.span, "3 weeks", &[&key.name]);
        }
    }
}

fn part_word_slips(mill: &mut Mill<'_>) {
    const WORDS: [&str; 8] =
        ["on_branch_error", "keep", "order", "mode", "operation", "on_no_match", "on_error", "on_timeout"];
    for (key, value) in all_fields(mill) {
        if WORDS.contains(&key.name.as_str()) {
            mill.slip_word(value, |_| false, &[&key.name], true);
        }
    }
}

/// Wrong if an agent is called.
fn limits_of_agents(mill: &mut Mill<'_>) {
    for (key, value) in get(&mill.graph.root, "limits").map(fields).unwrap_or_default() {
        let other = match key.name.as_str() {
            "turns" | "tokens" => "1",
            "spend" => "\"0.01 USD\"",
            _ => continue,
        };
        mill.wrong(&value.span, other, &[&key.name]);
    }
}

fn limits_of_steps(mill: &mut Mill<'_>) {
    if let Some(steps) = get(&mill.graph.root, "limits").and_then(|limits| get(limits, "steps")) {
        mill.wrong(&steps.span, "1", &["steps"]);
    }
}

fn limits_of_node(mill: &mut Mill<'_>) {
    for limits in mill.graph.nodes().into_iter().filter_map(|node| node.get("limits")) {
        if let Some(turns) = get(limits, "turns") {
            mill.wrong(&turns.span, "99", &["turns"]);
        }
    }
}

fn share_slips(mill: &mut Mill<'_>) {
    for share in mill.graph.nodes().into_iter().filter_map(|node| node.get("share")) {
        let lists = fields(share).iter().map(|(_, names)| names);
        for names in lists.chain([share]) {
            for name in items(names).iter().chain([names]) {
                mill.slip_word(name, |_| false, &["share"], true);
            }
        }
    }
}

/// The parameters of the calls that start tasks by a literal id.
fn starts<'g>(mill: &Mill<'g>) -> Vec<(&'g YamlTree, Node<'g>)> {
    let nodes = mill.graph.nodes().into_iter().filter(|node| node.get("action").is_some_and(starts_tasks));
    let params = |node: Node<'g>| Some((get(node.get("action")?, "params")?, node));
    nodes.filter_map(params).filter(|(params, _)| target(params).is_some()).collect()
}

fn target(params: &YamlTree) -> Option<&YamlTree> {
    get(params, "target").or_else(|| get(params, "directive_name"))
}

fn target_slips(mill: &mut Mill<'_>) {
    for (params, node) in starts(mill) {
        mill.slip_word(target(params).unwrap(), |_| false, &[node.name()], true);
    }
}

/// The inputs of tasks.
fn inputs<'g>(mill: &Mill<'g>) -> Vec<(&'g YamlTree, &'g YamlTree, Node<'g>)> {
    let of = |(params, node): (&'g YamlTree, Node<'g>)| Some((params, get(params, "inputs")?, node));
    starts(mill).into_iter().filter_map(of).collect()
}

fn input_slips(mill: &mut Mill<'_>) {
    for (_, inputs, node) in inputs(mill) {
        fields(inputs).iter().for_each(|(key, _)| mill.slip_key(key, |_| false, &[node.name()], true));
    }
}

fn input_dropped(mill: &mut Mill<'_>) {
    for (_, inputs, node) in inputs(mill) {
        if let [_, ..] = fields(inputs) {
            mill.wrong(&inputs.span, "{}", &[node.name()]);
        }
    }
}

fn input_of_another_type(mill: &mut Mill<'_>) {
    for (_, inputs, node) in inputs(mill) {
        if let Some((key, value)) = fields(inputs).first() {
            mill.wrong(&value.span, "{ x: 1 }", &[&key.name, node.name()]);
        }
    }
}

fn input_moved(mill: &mut Mill<'_>) {
    for (params, inputs, node) in inputs(mill).into_iter().filter(|(params, ..)| get(params, "target").is_some()) {
        let Some((key, value)) = fields(inputs).first() else { continue };
        let field = format!("{}: {}", key.name, flow(value));
        if let [_] = fields(inputs) {
            let list = fields(params);
            let at = list.iter().find(|(_, value)| std::ptr::eq(value, inputs)).map(|(key, _)| key.span.start).unwrap();
            mill.wrong(&(at..inputs.span.end), &field, &[node.name()]);
        }
    }
}

fn task_limit(mill: &mut Mill<'_>) {
    for (params, node) in starts(mill) {
        let limits = get(params, "limits").or_else(|| get(params, "limit_overrides"));
        if let Some(turns) = limits.and_then(|limits| get(limits, "turns")) {
            mill.wrong(&turns.span, "99", &["turns", node.name()]);
        }
    }
}

/// The mappings of a contract that say how its tool works.
fn kind_parts<'g>(mill: &Mill<'g>) -> Vec<&'g YamlTree> {
    let Some(config) = get(&mill.graph.root, "config") else { return Vec::new() };
    let inner = ["limits", "model", "approvals"].into_iter().filter_map(|name| get(config, name));
    [config].into_iter().chain(inner).collect()
}

fn kind_slips(mill: &mut Mill<'_>) {
    for (key, _) in kind_parts(mill).into_iter().flat_map(fields) {
        mill.slip_key(key, |_| false, &[], true);
    }
}

fn kind_dropped(mill: &mut Mill<'_>) {
    if let Some(config) = get(&mill.graph.root, "config") {
        for name in ["directive", "command", "calls", "server", "tool", "schema"] {
            mill.drop_field(config, name, &[name, "config"], &[], true);
        }
    }
    if get(&mill.graph.root, "tool_type")
        .and_then(text_of)
        .is_some_and(|kind| ["agent", "program", "reducer"].contains(&kind))
    {
        mill.drop_field(&mill.graph.root, "result_schema", &["result_schema", "tool_type"], &[], true);
    }
}

fn kind_types(mill: &mut Mill<'_>) {
    for (key, value) in kind_parts(mill).into_iter().flat_map(fields) {
        let other = if matches!(value.node, Value::List(_) | Value::Map(_)) { "7" } else { "{ x: 1 }" };
        mill.edit(&[(value.span.clone(), other.to_owned())], &[&key.name], &[], true);
        keep_if_yaml(mill);
    }
}

fn kind_tools(mill: &mut Mill<'_>) {
    let Some(config) = get(&mill.graph.root, "config") else { return };
    for list in ["tools", "calls"].into_iter().filter_map(|name| get(config, name)) {
        items(list).iter().for_each(|id| mill.slip_word(id, |_| false, &[], true));
    }
}

fn kind_numbers(mill: &mut Mill<'_>) {
    let Some(limits) = get(&mill.graph.root, "config").and_then(|config| get(config, "limits")) else { return };
    for (key, value) in fields(limits) {
        let other = match key.name.as_str() {
            "spend" => "\"0.05 EUR\"",
            "timeout" => "3 weeks",
            _ => "0",
        };
        mill.wrong(&value.span, other, &[&key.name]);
    }
}

/// The marks of schemas and contracts that begin with `x-`.
fn mark_slips(mill: &mut Mill<'_>) {
    fn marks<'g>(tree: &'g YamlTree, found: &mut Vec<&'g TreeKey>) {
        for (key, value) in fields(tree) {
            found.extend(key.name.starts_with("x-").then_some(key));
            marks(value, found);
        }
    }
    let mut found = Vec::new();
    marks(&mill.graph.root, &mut found);
    for key in found {
        let slipped = mill.random.slip(&key.name["x-".len()..], |_| false);
        mill.wrong(&key.span, &format!("x-{slipped}"), &[]);
    }
}
