//! Descriptions of the format's fields, in the words of the format's page.

/// The fields in the tables of the page: the heading above the table, the field, and its description in the table. A test
/// compares them with the page.
pub(crate) const OF_THE_PAGE: &[(&str, &str, &str)] = &[
    ("Top level", "version", "the author's version of the graph, a string"),
    ("Top level", "tool_type", "`graph`"),
    (
        "Top level",
        "executor_id",
        "`rye/core/runtimes/state-graph/runtime`, or its older spelling `rye/core/runtimes/state_graph_runtime`",
    ),
    ("Top level", "category", "the first part of the graph's id"),
    ("Top level", "description", "what the graph is for; becomes the documentation of its module"),
    ("Top level", "permissions", "capabilities that the graph may use"),
    ("Top level", "env_requires", "environment variables that must be set"),
    (
        "Top level",
        "limits",
        "`depth`: how many graphs and threads may be nested, from 0 to 100, 5 if not given; `timeout`: the \
         duration that a run may take; `deadline`: the duration after its start in which a run must have ended, waiting included; `visits`: how often a run may visit one node; `steps`: how many nodes a run and the runs \
         inside it may visit together; `turns`, `tokens` and `spend`: how much its agents may use together",
    ),
    ("Top level", "config_schema", "the inputs of a run"),
    ("Top level", "config", "the graph"),
    ("`config`", "start", "the name of the first node, or a list of names"),
    ("`config`", "entries", "other places where a run can begin"),
    ("`config`", "nodes", "a mapping from names to nodes, at most 60,000"),
    (
        "`config`",
        "max_steps",
        "how many nodes a run may visit, from 1 to 4294967295; a run that would visit one more ends with `Max steps exceeded`",
    ),
    ("`config`", "on_error", "what a failure does where a node has no `on_error` of its own: `fail` or `continue`"),
    (
        "`config`",
        "on_max_steps",
        "what happens when a run has visited `max_steps` nodes: `fail`; `return_last`, the run ends as if the last node led \
         nowhere; or `return_with_flag`, the same, and its result says so",
    ),
    (
        "`config`",
        "on_no_match",
        "what happens where a node has edges and none matches: `return`, the run ends; or `fail`, the node fails",
    ),
    (
        "`config`",
        "max_concurrency",
        "how many calls a parallel foreach makes at a time if it does not say, from 1 to 10000",
    ),
    ("`config`", "hooks", "what is done when something happens to a run"),
    ("`config`", "state", "first values of state keys; values as they are, not templates"),
    ("`config`", "channels", "keys whose writes are combined, each with its reducer"),
    ("`config`", "signals", "the signals that a run can receive: the schema of the value of each, by its name"),
    ("`config`", "description", "for readers"),
    ("`config`", "comment", "for readers"),
    (
        "foreach",
        "over",
        "the list: one `${…}` that yields one, or a list; null is an empty list, anything else fails the node",
    ),
    (
        "foreach",
        "as",
        "the name of an element in the templates of `action`: `${item.name}`. ASCII letters, digits and `_`; not a \
         namespace (`G0126`)",
    ),
    ("foreach", "action", "as of an action node"),
    (
        "foreach",
        "collect",
        "the state key that takes the list of results, in the order of the elements; not the name in `as`",
    ),
    ("foreach", "parallel", "whether calls are made concurrently"),
    ("wait", "timeout", "how long it waits: a duration, such as `48h` or `14d`"),
    (
        "wait",
        "until",
        "until when it waits: a text with a date, a time and an offset from UTC, as `2026-11-21T20:00:00+01:00` or `2026-11-21T19:00:00Z`",
    ),
    ("wait", "signals", "the names of the signals of which the first ends the wait"),
    ("wait", "on_timeout", "the node that follows if no signal comes in time; `assign` and `reset` are skipped then"),
    ("interrupt", "payload", "the value that people are shown, as of `params`"),
    ("interrupt", "result_schema", "the answers that it can have, a schema: the `result` of the node"),
    (
        "interrupt",
        "answered_by",
        "the role of those who answer, and how many of them sign the answer; without it, one person with any trusted key",
    ),
    ("interrupt", "timeout", "how long it waits: a duration, such as `48h` or `14d`"),
    (
        "interrupt",
        "on_timeout",
        "the node that follows if no answer comes in time; `assign` and `reset` are skipped then",
    ),
    ("foreach", "max_concurrency", "how many of them at a time, 1 to 10000; needs `parallel: true`"),
    (
        "How calls are made: `retry`, `timeout`, `remote`",
        "retry",
        "how a failed call is retried, with the same idempotency key: a mapping, or a number, which is its `attempts`. `retry: 1` turns retries off; without `retry`, a transient failure of a tool may be retried",
    ),
    (
        "How calls are made: `retry`, `timeout`, `remote`",
        "timeout",
        "the duration that a call may take before it is stopped and fails",
    ),
    (
        "How calls are made: `retry`, `timeout`, `remote`",
        "limits",
        "of a node that runs a graph: `depth` and `steps` of the runs below the node; of a node that calls an agent also `turns`, `tokens`, `spend` and `timeout`",
    ),
    (
        "How calls are made: `retry`, `timeout`, `remote`",
        "remote",
        "the place where an agent is to work; the tool receives it. An empty text names no place",
    ),
    (
        "How calls are made: `retry`, `timeout`, `remote`",
        "feedback",
        "`false`: the node does not see the result of its last visit",
    ),
    (
        "How calls are made: `retry`, `timeout`, `remote`",
        "cache_result",
        "`true`: the result of a call is cached, and returned again instead of the same call",
    ),
    ("How calls are made: `retry`, `timeout`, `remote`", "attempts", "how often the call is made in all, 1 to 100"),
    ("How calls are made: `retry`, `timeout`, `remote`", "delay", "the first pause"),
    (
        "How calls are made: `retry`, `timeout`, `remote`",
        "factor",
        "how many times as long each pause is as the one before, 1 to 100",
    ),
    ("How calls are made: `retry`, `timeout`, `remote`", "max_delay", "the longest pause"),
    (
        "How calls are made: `retry`, `timeout`, `remote`",
        "jitter",
        "the fraction by which a pause may be shortened at random, 0 to 1",
    ),
    (
        "How calls are made: `retry`, `timeout`, `remote`",
        "on",
        "after which failures: these, `permanent`, `cancelled`, or `any`",
    ),
    ("Hooks", "event", "what happens (`G0140`)"),
    ("Hooks", "condition", "a condition on the data of the event; without one, always"),
    ("Hooks", "action", "what is done"),
    ("Hooks", "id", "for messages and readers"),
    ("Hooks", "description", "for messages and readers"),
    ("Hooks", "comment", "for messages and readers"),
];

/// Descriptions of the other fields.
pub(crate) const OTHERS: &[(&str, &str, &str)] = &[
    ("limits", "depth", "how many graphs and threads may be nested"),
    ("limits", "timeout", "the duration that a run may take"),
    ("limits", "deadline", "the duration after its start in which a run must have ended, waiting included"),
    ("limits", "visits", "how often a run may visit one node, in all its branches"),
    ("limits", "steps", "how many nodes a run and the runs inside it may visit together"),
    ("limits", "turns", "how often all agents of a run may ask their models together"),
    ("limits", "tokens", "how many tokens all agents of a run may take together"),
    ("limits", "spend", "how much all agents of a run may spend together, as `0.10 USD`"),
    ("limits of a node", "turns", "how often the agent that the node calls may ask its model"),
    ("limits of a node", "tokens", "how many tokens the agent that the node calls may take"),
    ("limits of a node", "spend", "how much the agent that the node calls may spend, as `0.10 USD`"),
    ("limits of a node", "timeout", "how long the agent that the node calls may take"),
    ("limits of a node", "depth", "how many graphs and threads may be nested below the node"),
    (
        "limits of a node",
        "steps",
        "how many nodes all runs that a visit begins, and those inside them, may visit together",
    ),
    ("node", "type", "what the node does; one with an `action` and no `type` is an `action`"),
    ("node", "description", "for readers"),
    ("node", "comment", "for readers"),
    ("node", "action", "what the node calls"),
    (
        "node",
        "next",
        "where the run continues: a node's name, a list of edges, of which the first that matches is followed, or a mapping with `all`, `over` or `by`; without it the run ends here",
    ),
    (
        "node",
        "waits_for",
        "the nodes that lead here from branches; the node is visited once all branches have arrived or ended, or, with a mapping, once `need` of them have arrived",
    ),
    ("entry", "node", "the node"),
    (
        "entry",
        "element",
        "the input that is the element of the branch that the node is in: `inputs.name`; in branches of several lists, one for \
         each by the name of its elements",
    ),
    ("entry", "comment", "for readers"),
    ("`waits_for`", "of", "the nodes that lead here from branches"),
    ("`waits_for`", "need", "how many branches have arrived when the node is visited"),
    (
        "`waits_for`",
        "rest",
        "the other branches end, and their calls are dropped, which may have had their effects (`cancel`), or run on beside the nodes behind the join (`finish`)",
    ),
    ("`waits_for`", "fewer", "the node that is visited instead as soon as fewer branches can arrive"),
    ("`waits_for`", "comment", "for readers"),
    ("`next` with `all`", "all", "edges, of which each that matches begins a branch"),
    ("`next` with `all`", "max_concurrency", "how many nodes of the branches run at a time, at most"),
    (
        "`next` with `all`",
        "on_branch_error",
        "what a failure in a branch does that nothing else handles: `stop`, the run ends; `finish`, it ends when the other branches are done; or `collect`, the branch ends",
    ),
    ("`next` with `all`", "comment", "for readers"),
    ("`next` with `over`", "over", "a list; each element begins a branch"),
    ("`next` with `over`", "as", "the name of the element in its branch"),
    ("`next` with `over`", "to", "the first node of each branch"),
    ("`next` with `over`", "max_concurrency", "how many branches run at a time, at most"),
    ("`next` with `over`", "most", "how many elements the list has at most; the node fails if it has more"),
    (
        "`next` with `over`",
        "on_branch_error",
        "what a failure in a branch does that nothing else handles: `stop`, the run ends; `finish`, it ends when the other branches are done; or `collect`, the branch ends",
    ),
    ("`next` with `over`", "comment", "for readers"),
    ("`next` with `by`", "by", "a path to a word of an `enum` or a boolean"),
    ("`next` with `by`", "to", "the node for each value; `{}` is an end"),
    ("`next` with `by`", "comment", "for readers"),
    ("node", "on_error", "the node where the run continues if this one fails; `assign` is skipped then"),
    ("node", "interrupts", "who answers the tool if it asks people before it is done"),
    ("node", "env_requires", "environment variables that must be set: a list of names, or one"),
    ("node", "assign", "state keys and the values that they get, in the order of the file; values may hold templates"),
    ("node", "reset", "channels that get their first values again before `assign`: a name, or a list of names"),
    (
        "node",
        "share",
        "keys that the graph of the action has too: its run begins with their values, and what it writes to them is written here when it ends; a name, or a list of names, or `keys` and `signals`",
    ),
    ("`share`", "keys", "the keys: a name, or a list of names"),
    (
        "`share`",
        "signals",
        "signals that the graph of the action has too: they end its waits as they end those of this graph; a name, or a list of names",
    ),
    ("`share`", "comment", "for readers"),
    (
        "channel",
        "reduce",
        "how the writes are combined: a reducer, or `item_id` with the id of a function of the program",
    ),
    ("channel", "id", "for `messages`: the field by which an object replaces an earlier one; `id` if not given"),
    (
        "channel",
        "order",
        "for `append` and `extend`: `branch` puts the elements in the order of the branches when these meet",
    ),
    (
        "channel",
        "keep",
        "`step`: it has its value in the step after a write only; `memory`: no journal has it, and only `params` may read it",
    ),
    ("channel", "comment", "for readers"),
    ("reducer", "item_id", "the contract of a function of the program, with `tool_type: reducer`"),
    ("reducer", "comment", "for readers"),
    ("node", "cancels", "`true`: the run returns here although branches are active, and cancels them"),
    ("node", "output", "what the run returns, any value with templates; without it the run returns its state"),
    ("edge", "to", "the node that the edge leads to; without it the run ends"),
    ("edge", "when", "the condition under which the edge is followed; without one, always"),
    ("edge", "description", "what the edge is for; messages about it show it"),
    ("edge", "comment", "for readers"),
    ("condition", "path", "what is looked at: a path without `${}`"),
    ("condition", "op", "how it is compared; `eq` if not given"),
    ("condition", "operator", "another spelling of `op`"),
    ("condition", "value", "what it is compared with: a value as it is, not a template"),
    ("condition", "any", "holds if one of these does"),
    ("condition", "all", "holds if all of these do"),
    ("condition", "not", "holds if this does not"),
    (
        "action",
        "primary",
        "what is done with the item: `execute`; `fetch`, also written `search` and `load`; or `sign`",
    ),
    ("action", "item_type", "what kind of item it is"),
    ("action", "item_id", "which item: an id, or a template that yields one"),
    ("`interrupts`", "result_schema", "the answers that a question can have, a schema"),
    ("`interrupts`", "answered_by", "who answers, as of an interrupt"),
    ("`interrupts`", "timeout", "how long each question waits for its answer: a duration"),
    (
        "`interrupts`",
        "on_timeout",
        "the node that follows if no answer comes in time; `assign` and `reset` are skipped then, and the tool is not called again",
    ),
    ("`interrupts`", "comment", "for readers"),
    ("`answered_by`", "role", "a word that the files of trusted keys name in `roles`"),
    (
        "`answered_by`",
        "count",
        "how many people sign the answer, each with a key of their own, 1 to 20: 1 by default; or how many for each word of the answer, as `{ approve: 2, refuse: 1 }`",
    ),
    ("`answered_by`", "comment", "for readers"),
    ("action", "params", "the parameters; values may hold templates at any depth, and what is null is left out"),
    ("schema", "type", "the type of the value: a type, or a list of one and `null`"),
    ("schema", "properties", "the fields of the object; others are accepted and dropped"),
    ("schema", "required", "the fields that must be given"),
    ("schema", "items", "what the elements of the list are"),
    ("schema", "additionalProperties", "what the values of an object are that has no `properties`"),
    ("schema", "enum", "the texts that are allowed"),
    ("schema", "default", "the value that is used if none is given"),
    ("schema", "title", "for readers"),
    ("schema", "description", "what it is for; becomes documentation"),
    ("schema", "examples", "for readers"),
    ("schema", "x-sink", "who reads the text as code: a template in it could become a part of the code"),
    ("schema", "x-secret", "whether the value is shown only to those who need it"),
    (
        "schema",
        "x-guarded",
        "whether the caller of the graph vouches for the input, so that a guarded call may use it; at a parameter of a guarded tool, `false`: its value needs no approval",
    ),
];

/// Returns the description of a field.
pub(crate) fn of(place: &str, field: &str) -> Option<&'static str> {
    let mut all = OF_THE_PAGE.iter().chain(OTHERS);
    all.find(|(where_, name, _)| *where_ == place && *name == field).map(|(.., text)| *text)
}

/// The heading of the page above the table of a node's fields.
pub(crate) const CONDUCT: &str = "How calls are made: `retry`, `timeout`, `remote`";

/// Returns the description of a field of a node of this type.
pub(crate) fn of_node(kind: &str, field: &str) -> Option<&'static str> {
    let own = ["foreach", "interrupt", "wait"].contains(&kind).then(|| of(kind, field)).flatten();
    own.or_else(|| of("node", field)).or_else(|| of(CONDUCT, field))
}
