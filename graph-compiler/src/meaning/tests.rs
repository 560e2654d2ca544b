//! Every leaf of the tables and types is in the meaning, or in the list of those that are not.

use std::collections::BTreeSet;
use std::path::Path;

use graph_model::ir::GraphIr;
use graph_model::program::{ItemType, NodeBody, OnNoMatch, Settings, Verb};
use serde_json::Number;

use super::*;
use crate::files::graph_files;
use crate::project::Project;

/// The graphs of the repository, each with its interface.
fn graphs() -> Vec<(GraphIr, Interface)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let compiled = ["graphs", "tests/engines/graphs"].into_iter().flat_map(|directory| {
        let tree = root.join(directory);
        let project = Project::open(root, &tree);
        let compile = |file: &std::path::PathBuf| {
            let compilation = project.compile(file);
            let graph = compilation.graph?;
            Some((graph.ir(&compilation.source), graph.interface().clone()))
        };
        graph_files(&tree).unwrap().iter().filter_map(compile).collect::<Vec<_>>()
    });
    let graphs: Vec<_> = compiled.collect();
    assert!(graphs.len() > 60, "{} graphs", graphs.len());
    graphs
}

/// Calls `visit` with each value in which one leaf is another one, or one part is missing or in another place, and with the path of
/// the part; a number in the path is `*`.
fn mutants(whole: &Value, visit: &mut impl FnMut(&str, Value)) {
    fn at(value: &Value, path: &str, replace: &dyn Fn(Value) -> Value, visit: &mut dyn FnMut(&str, Value)) {
        match value {
            Value::Null => visit(path, replace(Value::from("null"))),
            Value::Bool(flag) => visit(path, replace(Value::from(!flag))),
            Value::Number(number) => {
                let other = number.as_u64().map_or_else(|| Number::from(7), |number| Number::from(number + 1));
                visit(path, replace(Value::Number(other)));
            }
            Value::String(text) => {
                visit(path, replace(Value::from(format!("{text}x"))));
                visit(path, replace(Value::from(format!("{text} ${{_now}}"))));
            }
            Value::Array(list) => {
                for (index, inner) in list.iter().enumerate() {
                    let put = |inner: Value| {
                        let mut list = list.clone();
                        list[index] = inner;
                        replace(Value::Array(list))
                    };
                    at(inner, &format!("{path}.*"), &put, visit);
                    let mut shorter = list.clone();
                    shorter.remove(index);
                    visit(&format!("{path}.*"), replace(Value::Array(shorter)));
                    if index > 0 {
                        let mut swapped = list.clone();
                        swapped.swap(index - 1, index);
                        visit(&format!("{path}.order"), replace(Value::Array(swapped)));
                    }
                }
            }
            Value::Object(map) => {
                for (name, inner) in map {
                    let inside = format!("{path}.{name}");
                    let put = |inner: Value| {
                        let mut map = map.clone();
                        map.insert(name.clone(), inner);
                        replace(Value::Object(map))
                    };
                    at(inner, &inside, &put, visit);
                    let mut less = map.clone();
                    less.shift_remove(name);
                    visit(&inside, replace(Value::Object(less)));
                }
            }
        }
    }
    at(whole, "", &|value| value, &mut |path, value| visit(path, value));
}

#[test]
fn each_leaf_of_the_settings_counts() {
    let mut seen = BTreeSet::new();
    for (mut graph, interface) in graphs() {
        graph.settings.deadline_ms.get_or_insert(5_000);
        let own = digest(&graph, &interface);
        mutants(&to_value(&graph.settings).unwrap(), &mut |path, settings| {
            let Ok(settings) = serde_json::from_value::<Settings>(settings) else { return };
            if settings == graph.settings {
                return;
            }
            let field = path.split('.').nth(1).unwrap_or_default();
            // `op: eq` says what no `op` says.
            let conditions = |settings: &Settings| {
                let hooks =
                    settings.hooks.iter().map(|hook| hook.condition.as_ref().map(|when| when.condition().clone()));
                hooks.collect::<Vec<_>>()
            };
            let is_spelling = path.ends_with(".condition.op") && conditions(&settings) == conditions(&graph.settings);
            let is_left_out = matches!(field, "contracts" | "meaning" | "trusted_inputs") || is_spelling;
            let changed = digest(&GraphIr { settings, ..graph.clone() }, &interface) != own;
            assert_eq!(changed, !is_left_out, "`{path}` of {}", graph.id);
            seen.insert(field.to_owned());
        });
    }
    for field in [
        "by_branch",
        "channels",
        "contracts",
        "deadline_ms",
        "depth",
        "entries",
        "hooks",
        "keep",
        "max_concurrency",
        "max_steps",
        "meaning",
        "on_error",
        "on_max_steps",
        "on_no_match",
        "required",
        "rules",
        "schema",
        "secrets",
        "signals",
        "steps",
        "timeout_ms",
        "visits",
    ] {
        assert!(seen.contains(field), "no graph has `{field}`: {seen:?}");
    }
}

#[test]
fn each_leaf_of_a_node_counts() {
    let mut seen = BTreeSet::new();
    for (graph, interface) in graphs() {
        let own = digest(&graph, &interface);
        let shows = graph.settings.on_no_match == OnNoMatch::Fail;
        for (at, node) in graph.nodes.iter().enumerate() {
            mutants(&to_value(&node.body).unwrap(), &mut |path, body| {
                let Ok(body) = serde_json::from_value::<NodeBody>(body) else { return };
                if body == node.body {
                    return;
                }
                let field = path.split('.').nth(1).unwrap_or_default().to_owned();
                let is_left_out = matches!(field.as_str(), "line" | "env" | "facts")
                    || path.ends_with(".description") && path.starts_with(".next") && !shows
                    || path == ".join.of.order";
                let mut changed = graph.clone();
                changed.nodes[at].body = body;
                let changed = digest(&changed, &interface) != own;
                assert_eq!(changed, !is_left_out, "`{path}` of `{}` in {}", node.name, graph.id);
                seen.insert(field);
            });
            let mut renamed = graph.clone();
            renamed.nodes[at].name.push('x');
            assert_ne!(digest(&renamed, &interface), own, "the name `{}` of {}", node.name, graph.id);
        }
    }
    for field in [
        "assign",
        "cached",
        "cancels",
        "does",
        "each",
        "env",
        "facts",
        "feedback",
        "item",
        "join",
        "limits",
        "line",
        "next",
        "on_error",
        "output",
        "params",
        "remote",
        "reset",
        "retry",
        "share",
        "timeout_ms",
        "untrusted",
        "wait",
    ] {
        assert!(seen.contains(field), "no graph has `{field}`: {seen:?}");
    }
}

/// Returns types that differ from one in one part.
fn others(ty: &Type) -> Vec<Type> {
    let mut others = vec![
        Type { nullable: !ty.nullable, ..ty.clone() },
        Type { secret: !ty.secret, ..ty.clone() },
        Type { kind: if ty.kind == TypeKind::Boolean { TypeKind::String } else { TypeKind::Boolean }, ..ty.clone() },
    ];
    match &ty.kind {
        TypeKind::Enum(words) => {
            let words = words.iter().cloned().chain(["another".to_owned()]).collect();
            others.push(Type { kind: TypeKind::Enum(words), ..ty.clone() });
        }
        TypeKind::List(inner) => {
            let list = self::others(inner).into_iter().map(|inner| TypeKind::List(Box::new(inner)));
            others.extend(list.map(|kind| Type { kind, ..ty.clone() }));
        }
        TypeKind::Map(inner) => {
            let map = self::others(inner).into_iter().map(|inner| TypeKind::Map(Box::new(inner)));
            others.extend(map.map(|kind| Type { kind, ..ty.clone() }));
        }
        TypeKind::Object(fields) => {
            let object = other_fields(fields).into_iter().map(TypeKind::Object);
            others.extend(object.map(|kind| Type { kind, ..ty.clone() }));
        }
        _ => {}
    }
    others
}

/// Returns lists of fields that differ from one in one part.
fn other_fields(fields: &[TypedField]) -> Vec<Vec<TypedField>> {
    let mut others = Vec::new();
    for (at, field) in fields.iter().enumerate() {
        let mut with = |other: TypedField| {
            let mut fields = fields.to_vec();
            fields[at] = other;
            others.push(fields);
        };
        with(TypedField { name: format!("{}x", field.name), ..field.clone() });
        with(TypedField { default: Some(json!([field.default, 1])), ..field.clone() });
        self::others(&field.ty).into_iter().for_each(|ty| with(TypedField { ty, ..field.clone() }));
        let mut less = fields.to_vec();
        less.remove(at);
        others.push(less);
        if at > 0 {
            let mut swapped = fields.to_vec();
            swapped.swap(at - 1, at);
            others.push(swapped);
        }
    }
    others
}

#[test]
fn each_type_that_a_graph_or_a_contract_declares_counts() {
    let mut changes = 0;
    for (graph, interface) in graphs() {
        let own = digest(&graph, &interface);
        let mut differs = |what: &str, change: &dyn Fn(&mut Interface)| {
            let mut changed = interface.clone();
            change(&mut changed);
            assert_ne!(digest(&graph, &changed), own, "{what} of {}", graph.id);
            changes += 1;
        };
        for inputs in interface.inputs.iter().flat_map(|inputs| other_fields(inputs)) {
            differs("an input", &|interface| interface.inputs = Some(inputs.clone()));
        }
        for (at, tool) in interface.tools.iter().enumerate() {
            if tool.by != Executor::Program || tool.builtin {
                continue;
            }
            for ty in others(&tool.result) {
                differs("a result", &|interface| interface.tools[at].result = ty.clone());
            }
            for fields in tool.params.iter().flat_map(|params| other_fields(params)) {
                differs("a parameter", &|interface| interface.tools[at].params = Some(fields.clone()));
            }
        }
        for (at, reducer) in interface.reducers.iter().enumerate() {
            for ty in others(&reducer.write) {
                differs("a write", &|interface| interface.reducers[at].write = ty.clone());
            }
            for ty in others(&reducer.value) {
                differs("a value", &|interface| interface.reducers[at].value = ty.clone());
            }
        }
        for (at, signal) in interface.signals.iter().enumerate() {
            for ty in others(&signal.ty) {
                differs("a signal", &|interface| interface.signals[at].ty = ty.clone());
            }
        }
        for (at, answer) in interface.answers.iter().enumerate() {
            for ty in others(&answer.ty) {
                differs("an answer", &|interface| interface.answers[at].ty = ty.clone());
            }
        }
        // Descriptions are no part of it.
        let mut described = interface.clone();
        let text = || Some("another description".to_owned());
        described.description = text();
        described.signals.iter_mut().chain(&mut described.answers).for_each(|one| one.description = text());
        described.reducers.iter_mut().for_each(|one| one.description = text());
        for tool in &mut described.tools {
            tool.description = text();
            tool.params.iter_mut().flatten().for_each(|field| field.description = text());
        }
        described.inputs.iter_mut().flatten().for_each(|field| field.description = text());
        assert_eq!(digest(&graph, &described), own, "{}", graph.id);
    }
    assert!(changes > 1000, "{changes} changes");
}

#[test]
fn the_other_tables_count_and_the_facts_about_the_text_do_not() {
    for (graph, interface) in graphs() {
        let own = digest(&graph, &interface);
        let changed = |change: &dyn Fn(&mut GraphIr)| {
            let mut graph = graph.clone();
            change(&mut graph);
            digest(&graph, &interface) != own
        };
        assert!(changed(&|graph| graph.id.push('x')));
        assert!(changed(&|graph| graph.permissions.push("rye.execute.tool.another".to_owned())));
        assert!(changed(&|graph| graph.env.push("ANOTHER".to_owned())));
        assert!(graph.nodes.len() == 1 || changed(&|graph| graph.start = u16::from(graph.start == 0)));
        for at in 0..graph.keys.len() {
            assert!(changed(&|graph| graph.keys[at].name.push('x')));
            assert!(changed(&|graph| graph.keys[at].initial = Some(json!({"another": graph.keys[at].initial}))));
        }
        for (at, tool) in graph.tools.iter().enumerate() {
            let has_contract = tool.by == Executor::Program && {
                let of = &interface.tools[at];
                !of.builtin || of.subprocess.is_some() || of.mcp.is_some()
            };
            assert!(changed(&|graph| graph.tools[at].id.push('x')));
            assert_eq!(changed(&|graph| graph.tools[at].typed = !tool.typed), has_contract);
            assert_eq!(changed(&|graph| graph.tools[at].nests = !tool.nests), has_contract);
            assert_eq!(changed(&|graph| graph.tools[at].params = None), has_contract && tool.params.is_some());
        }
        assert!(!changed(&|graph| graph.version.push('1')));
        assert!(!changed(&|graph| graph.source.push('x')));
        assert!(!changed(&|graph| graph.digest = graph.digest.replace('0', "1")));
        assert!(!changed(&|graph| graph.signer = graph.signer.replace('0', "1")));
        assert!(!changed(&|graph| graph.permissions.reverse()));
        assert!(!changed(&|graph| graph.env.reverse()));
    }
}

#[test]
fn the_order_of_keys_counts_where_something_sees_the_whole_state() {
    let mut both = [0, 0];
    for (mut graph, interface) in graphs() {
        let own = digest(&graph, &interface);
        if graph.keys.len() < 2 {
            continue;
        }
        graph.keys.reverse();
        let changed = digest(&graph, &interface) != own;
        let text = serde_json::to_string(&graph.nodes.iter().map(|node| &node.body).collect::<Vec<_>>()).unwrap();
        let sees =
            text.contains("${state}") || to_value(&graph.settings).unwrap()["hooks"].to_string().contains("${state}");
        assert_eq!(changed, sees, "{}", graph.id);
        both[usize::from(changed)] += 1;
    }
    assert!(both.iter().all(|&count| count > 0), "{both:?}");
}

#[test]
fn the_digest_of_a_contract_has_what_the_program_sees() {
    let field = |name: &str, kind: TypeKind| TypedField {
        name: name.to_owned(),
        ty: Type::of(kind),
        default: None,
        description: Some("A field.".to_owned()),
        rules: vec!["minLength: 1".to_owned()],
    };
    let digest = |change: &dyn Fn(&mut TypedTool)| {
        let mut tool = TypedTool {
            id: "shop/charge".to_owned(),
            verb: Verb::Execute,
            item: ItemType::Tool,
            by: Executor::Program,
            typed: true,
            capability: None,
            builtin: false,
            subprocess: None,
            mcp: None,
            module: None,
            description: None,
            params: Some(vec![field("cents", TypeKind::Integer)]),
            result: Type::of(TypeKind::Object(vec![field("receipt", TypeKind::String)])),
            rules: Default::default(),
        };
        change(&mut tool);
        tool.contract_digest()
    };
    let own = digest(&|_| {});
    let described = digest(&|tool| {
        tool.description = Some("Charges a card.".to_owned());
        tool.params.as_mut().unwrap()[0].description = None;
        tool.params.as_mut().unwrap()[0].rules = Vec::new();
    });
    assert_eq!(own, described);
    let changes: [&dyn Fn(&mut TypedTool); 8] = [
        &|tool| tool.id.push('s'),
        &|tool| tool.params = None,
        &|tool| tool.params.as_mut().unwrap()[0].name.push('s'),
        &|tool| tool.params.as_mut().unwrap()[0].ty.secret = true,
        &|tool| tool.params.as_mut().unwrap()[0].ty.nullable = true,
        &|tool| tool.params.as_mut().unwrap()[0].default = Some(Value::from(3)),
        &|tool| tool.result = Type::any(),
        &|tool| tool.builtin = true,
    ];
    let digests: BTreeSet<String> =
        changes.iter().map(|change| digest(change).to_hex()).chain([own.to_hex()]).collect();
    assert_eq!(digests.len(), changes.len() + 1);
}
