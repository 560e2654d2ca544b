//! Each field of the format with a value that does not belong there: a secret, a text of somebody else, nothing, a value of
//! another type, a name that nobody knows. The compiler refuses it, or a row of [`ACCEPTED`] says why it is right there.
//!
//! `FIELDS=9` tries each field in as many graphs that have it, one if not set.
//!
//! The fields come from the JSON Schema of graphs, so a new field is tried too; the graphs around them from the repository.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use graph_compiler::project::{Compilation, Project};
use graph_editor::json_schema;
use serde_json::{Value, json};

use crate::corpus::Corpus;
use crate::support::sign;
use crate::tree::Tree;

/// The part of a graph in which a field is, and the name of the field; `*` stands for names that authors choose.
type FieldName = (String, String);

/// A field in a graph: its name, and the way to it.
type FieldPlace = (FieldName, Vec<Step>);

#[derive(Debug, Clone)]
enum Step {
    Field(String),
    Element(usize),
}

/// Returns the part of a graph that a field contains, if it contains fields of the format.
fn part_in(part: &str, field: &str) -> Option<&'static str> {
    Some(match (part, field) {
        ("graph", "config") => "config",
        ("config", "nodes") => "nodes",
        ("nodes", "*") => "node",
        ("config", "entries") => "entries",
        ("entries", "*") => "entry",
        ("config", "hooks") => "hook",
        ("config", "state") => "state",
        ("config", "channels") => "channels",
        ("channels", "*") => "channel",
        ("channel", "reduce") => "function",
        ("config", "signals") => "signals",
        ("signals", "*") | ("properties", "*") | ("schema", "items" | "additionalProperties") => "schema",
        (_, "config_schema" | "result_schema") => "schema",
        ("schema", "properties") => "properties",
        ("hook", "action") => "reaction",
        (_, "action") => "call",
        ("call" | "reaction", "params") => "params",
        (_, "assign") => "assign",
        (_, "when" | "condition") | ("when", "any" | "all" | "not") => "when",
        ("next", "all") => "edge",
        ("next", "to") => "targets",
        ("answered_by", "count") => "counts",
        (_, "next") => "next",
        (_, "waits_for") => "waits_for",
        (_, "retry") => "retry",
        (_, "limits") => "limits",
        (_, "interrupts") => "interrupts",
        (_, "share") => "share",
        (_, "answered_by") => "answered_by",
        _ => return None,
    })
}

/// Whether authors choose the names of the fields in a part.
fn has_chosen_names(part: &str) -> bool {
    const PARTS: [&str; 9] =
        ["nodes", "entries", "state", "channels", "signals", "properties", "params", "assign", "targets"];
    PARTS.contains(&part) || part == "counts"
}

/// Collects the fields that a schema describes.
fn described(
    root: &Value,
    schema: &Value,
    part: &str,
    seen: &mut BTreeSet<(String, String)>,
    all: &mut BTreeSet<FieldName>,
) {
    if !schema.is_object() {
        return;
    }
    if let Some(name) = schema["$ref"].as_str().and_then(|text| text.strip_prefix("#/definitions/")) {
        // The parameters of the tools of a tree are no part of the format.
        if name != "tools" && seen.insert((name.to_owned(), part.to_owned())) {
            described(root, &root["definitions"][name], part, seen, all);
        }
    }
    for word in ["allOf", "anyOf", "oneOf"] {
        for one in schema[word].as_array().into_iter().flatten() {
            match (part, &one["if"]["properties"]["type"]) {
                ("node", kind) if one.get("if").is_some() => {
                    let kind = kind["const"].as_str().unwrap_or("action");
                    described(root, &one["then"], &format!("node of type {kind}"), seen, all);
                }
                _ => described(root, one, part, seen, all),
            }
        }
    }
    for word in ["then", "else"] {
        described(root, &schema[word], part, seen, all);
    }
    if let Some(items) = schema.get("items") {
        described(root, items, if part == "next" { "edge" } else { part }, seen, all);
    }
    let named = schema["properties"].as_object().into_iter().flatten().map(|(name, one)| (name.as_str(), one));
    let others = schema.get("additionalProperties").filter(|one| one.is_object()).map(|one| ("*", one));
    for (name, one) in named.chain(others) {
        if one["not"] == json!({}) {
            continue;
        }
        let name = if has_chosen_names(part) { "*" } else { name };
        if part != "node" {
            all.insert((part.to_owned(), name.to_owned()));
        }
        if let Some(inner) = part_in(part, name) {
            described(root, one, inner, seen, all);
        }
    }
}

/// Collects the fields of a graph.
fn written(value: &Value, part: &str, way: &mut Vec<Step>, all: &mut Vec<FieldPlace>) {
    match value {
        Value::Array(list) => {
            for (at, one) in list.iter().enumerate() {
                way.push(Step::Element(at));
                written(one, if part == "next" { "edge" } else { part }, way, all);
                way.pop();
            }
        }
        Value::Object(fields) => {
            let kind = fields.get("type").and_then(Value::as_str).unwrap_or("action");
            let part = if part == "node" { format!("node of type {kind}") } else { part.to_owned() };
            for (key, one) in fields {
                let name = if has_chosen_names(&part) { "*" } else { key };
                way.push(Step::Field(key.clone()));
                all.push(((part.clone(), name.to_owned()), way.clone()));
                if let Some(inner) = part_in(&part, name) {
                    written(one, inner, way, all);
                }
                way.pop();
            }
        }
        _ => {}
    }
}

/// Returns the value at the end of a way.
fn at<'v>(graph: &'v mut Value, way: &[Step]) -> &'v mut Value {
    way.iter().fold(graph, |value, step| match step {
        Step::Field(name) => &mut value[name.as_str()],
        Step::Element(at) => &mut value[*at],
    })
}

/// The kind of a value that is tried in the place of a field's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Secret,
    Foreign,
    Null,
    Type,
    Name,
}

/// Returns the values that are tried.
fn probes(value: &Value) -> Vec<(Kind, Value)> {
    // Elsewhere, a path is only a text.
    let is_path = value.as_str().is_some_and(|text| PATHS.iter().any(|root| text.starts_with(root)));
    let paths =
        [(Kind::Secret, "inputs.zz_secret"), (Kind::Secret, "inputs.zz_anything"), (Kind::Name, "inputs.zz_unknown")];
    let texts = [
        (Kind::Secret, "${inputs.zz_secret}"),
        (Kind::Secret, "${inputs.zz_secrets}"),
        (Kind::Secret, "${inputs.zz_anything}"),
        (Kind::Secret, "to ${inputs.zz_secret}"),
        (Kind::Foreign, "${inputs.zz_text}"),
        (Kind::Foreign, "to ${inputs.zz_text}"),
        (Kind::Name, "zz_unknown"),
    ];
    let types = [json!(3.5), json!(true), json!("zz"), json!([1]), json!({"zz": 1})];
    let is_another = |one: &Value| std::mem::discriminant(one) != std::mem::discriminant(value);
    let types = types.into_iter().filter(is_another).map(|one| (Kind::Type, one));
    let texts = texts.into_iter().chain(paths.into_iter().filter(|_| is_path));
    texts.map(|(kind, text)| (kind, text.into())).chain([(Kind::Null, Value::Null)]).chain(types).collect()
}

/// The beginnings of paths.
const PATHS: [&str; 4] = ["state.", "inputs.", "result.", "visit."];

/// A graph of the repository, with inputs for the values that are tried.
struct Base {
    tree: usize,
    name: String,
    graph: Value,
}

/// The trees with the graphs.
struct Bases {
    trees: Vec<(Tree, Project)>,
    bases: Vec<Base>,
}

fn errors(compilation: &Compilation) -> Vec<String> {
    let errors = compilation.diagnostics.iter().filter(|one| one.severity.name() == "error");
    errors.map(|one| one.code.id.to_owned()).collect()
}

impl Bases {
    fn read() -> Self {
        let mut all = Self { trees: Vec::new(), bases: Vec::new() };
        for directory in ["tests/fields", "tests/corpus", "tests/engines/graphs", "tests/check"] {
            let corpus = Corpus::of(directory);
            let tree = corpus.tree();
            let project = tree.project();
            all.trees.push((tree, project));
            for (name, text) in corpus.files.iter().filter(|(name, _)| !name.contains('/') && name.ends_with(".yaml")) {
                let Ok(Value::Object(graph)) = serde_yaml::from_str::<Value>(text) else { continue };
                if graph.get("tool_type") != Some(&json!("graph")) {
                    continue;
                }
                let mut graph = Value::Object(graph);
                let schema = &mut graph["config_schema"];
                if schema.is_null() {
                    *schema = json!({"type": "object"});
                }
                for (input, ty) in [
                    ("zz_secret", json!({"type": "string", "x-secret": true})),
                    ("zz_secrets", json!({"type": "array", "items": {"type": "string", "x-secret": true}})),
                    ("zz_anything", json!({"x-secret": true})),
                    ("zz_text", json!({"type": "string"})),
                ] {
                    schema["properties"][input] = ty;
                    match schema.get_mut("required").and_then(Value::as_array_mut) {
                        Some(required) => required.push(input.into()),
                        None => schema["required"] = json!([input]),
                    }
                }
                all.bases.push(Base { tree: all.trees.len() - 1, name: name.clone(), graph });
            }
        }
        all.bases = std::mem::take(&mut all.bases)
            .into_iter()
            .filter(|base| errors(&all.compile(base.tree, &base.graph)).is_empty())
            .collect();
        all
    }

    fn compile(&self, tree: usize, graph: &Value) -> Compilation {
        let (tree, project) = &self.trees[tree];
        tree.write("zz_probe.yaml", sign(&format!("{graph}\n")));
        project.compile(&tree.path("zz_probe.yaml"))
    }
}

/// The fields that no graph has, with the reason.
const WITHOUT_A_GRAPH: [(&str, &str); 12] = [
    ("entry: comment", COMMENT),
    ("function: comment", COMMENT),
    ("interrupts: comment", COMMENT),
    ("share: comment", COMMENT),
    ("waits_for: comment", COMMENT),
    ("node of type gate: description", COMMENT),
    ("node of type foreach: waits_for", "joins of other types are tried"),
    ("node of type interrupt: waits_for", "joins of other types are tried"),
    ("node of type wait: waits_for", "joins of other types are tried"),
    ("schema: x-sink", "a word, tried by the fixtures of sinks"),
    ("share: keys", "the short form is tried"),
    ("share: signals", "tried by the fixtures of signals"),
];

const COMMENT: &str = "a text for readers";

/// The values that are accepted: their kind, the part, the fields, and the reason. `*` is any kind, part or field.
const ACCEPTED: &[(&[Kind], &str, &[&str], &str)] = &[
    (&[Kind::Type], "*", &["retry"], "a number is the number of attempts"),
    (&[Kind::Type], "*", &["over"], "a list may be written"),
    (&[Kind::Type], "answered_by", &["count"], "a number is one for all words"),
    (
        ALL,
        "*",
        &["comment", "description", "title", "examples"],
        "for readers: no value is put into it, and nothing acts on it",
    ),
    (ALL, "graph", &["owner", "rye_cloud"], "fields of other tools, which are not read"),
    (ALL, "schema", &["x-of-ours"], "annotations of others, which are not read"),
    (
        &[Kind::Foreign, Kind::Type, Kind::Name, Kind::Null],
        "assign",
        &["*"],
        "the state takes any value, and its type follows",
    ),
    (&[Kind::Type, Kind::Name, Kind::Null], "state", &["*"], "a first value is any value"),
    (
        &[Kind::Foreign, Kind::Type, Kind::Name, Kind::Null],
        "params",
        &["*"],
        "a parameter takes what its contract takes",
    ),
    (
        &[Kind::Foreign, Kind::Type, Kind::Name, Kind::Secret],
        "node of type return",
        &["output"],
        "a run returns any value; a secret is marked in its type",
    ),
    (
        &[Kind::Foreign, Kind::Type, Kind::Name],
        "node of type interrupt",
        &["payload"],
        "people are shown any value that is no secret",
    ),
    (
        &[Kind::Foreign, Kind::Type, Kind::Name],
        "reaction",
        &["error", "reason"],
        "the message is any value that is no secret",
    ),
    (
        &[Kind::Foreign],
        "reaction",
        &["max_retries", "additional_steps", "count"],
        "a number may be computed: what is no number is as none",
    ),
    (&[Kind::Foreign], "call", &["item_id"], "an id may be computed; the graph's permissions limit it"),
    (
        &[Kind::Foreign],
        "node of type wait",
        &["until"],
        "a time may be computed, and the node fails if the text is no time",
    ),
    (
        &[Kind::Type, Kind::Name, Kind::Null],
        "when",
        &["value"],
        "a value is compared with one of any type, as far as types are known",
    ),
    (&[Kind::Type], "*", &["timeout", "deadline", "delay", "max_delay"], "a number is so many seconds"),
    (&[Kind::Type, Kind::Name], "*", &["env_requires"], "one name is as a list of one"),
    (&[Kind::Type, Kind::Name], "*", &["remote"], "the program knows its agents"),
    (&[Kind::Name], "*", &["category", "version", "id", "role", "const", "pattern"], "the author chooses the word"),
    (&[Kind::Type], "schema", &["additionalProperties"], "`true` allows any field"),
];

/// Any kind.
const ALL: &[Kind] = &[Kind::Secret, Kind::Foreign, Kind::Null, Kind::Type, Kind::Name];

/// Whether a graph has no error if a field is removed.
fn may_be_absent(bases: &Bases, base: &Base, way: &[Step]) -> bool {
    let mut graph = base.graph.clone();
    let Some((Step::Field(last), around)) = way.split_last() else { return false };
    at(&mut graph, around).as_object_mut().unwrap().remove(last);
    errors(&bases.compile(base.tree, &graph)).is_empty()
}

#[test]
fn each_field_refuses_what_does_not_belong_there_or_a_row_says_why() {
    let bases = Bases::read();
    let schema = json_schema::of_tree(&Project::open(Path::new("."), Path::new("no tree")));
    let mut fields = BTreeSet::new();
    described(&schema, &schema, "graph", &mut BTreeSet::new(), &mut fields);
    let most = std::env::var("FIELDS").map_or(1, |most| most.parse().unwrap());
    let mut places: BTreeMap<FieldName, Vec<(&Base, Vec<Step>)>> = BTreeMap::new();
    for base in &bases.bases {
        let mut all = Vec::new();
        written(&base.graph, "graph", &mut Vec::new(), &mut all);
        for (field, way) in all {
            let places = places.entry(field).or_default();
            if places.len() < most {
                places.push((base, way));
            }
        }
    }
    let mut problems = String::new();
    for field in fields.iter().filter(|field| !places.contains_key(*field)) {
        let name = format!("{}: {}", field.0, field.1);
        if !WITHOUT_A_GRAPH.iter().any(|(known, _)| *known == name) {
            writeln!(problems, "no graph has the field {name}").unwrap();
        }
    }
    let (mut tried, mut used) = (0, BTreeSet::new());
    let mut accepted: BTreeMap<(Kind, &FieldName), BTreeSet<String>> = BTreeMap::new();
    for (field, places) in &places {
        for (base, way) in places {
            let value = at(&mut base.graph.clone(), way).clone();
            for (kind, probe) in probes(&value) {
                let mut graph = base.graph.clone();
                *at(&mut graph, way) = probe.clone();
                tried += 1;
                let is_accepted = graph != base.graph && errors(&bases.compile(base.tree, &graph)).is_empty();
                // A field without a value counts as absent.
                if is_accepted && !(kind == Kind::Null && may_be_absent(&bases, base, way)) {
                    accepted.entry((kind, field)).or_default().insert(format!("{probe} in {}", base.name));
                }
            }
        }
    }
    for ((kind, (part, name)), values) in accepted {
        let row = ACCEPTED.iter().position(|(of, at, names, _)| {
            of.contains(&kind) && (*at == "*" || *at == part) && names.contains(&name.as_str())
        });
        match row {
            Some(row) => drop(used.insert(row)),
            None => writeln!(problems, "{kind:?} in `{name}` of {part}: {values:?}").unwrap(),
        }
    }
    for (at, (kinds, part, names, _)) in ACCEPTED.iter().enumerate() {
        if most > 1 && !used.contains(&at) {
            writeln!(problems, "nothing of the kind is accepted: {kinds:?} in {names:?} of {part}").unwrap();
        }
    }
    assert!(tried > 1_000, "{tried}");
    assert!(problems.is_empty(), "{tried} tried\n{problems}");
}
