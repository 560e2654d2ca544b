//! The module of a graph with a mistake has the public items of the module that the graph has without it: a program around the graph
//! gets no error but that of the graph.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use graph_compiler::project::{Compilation, Project};
use quote::ToTokens;
use serde_json::{Value, json};
use syn::{Fields, ImplItem, Item, TraitItem, Visibility};

use crate::corpus::Corpus;
use crate::support::sign;
use crate::tree::Tree;

fn shown(tokens: &impl ToTokens) -> String {
    tokens.to_token_stream().to_string()
}

/// Collects the public items of a module, with the types of fields and the signatures of functions.
fn public_items(items: &[Item], whose: &str, all: &mut BTreeSet<String>) {
    let is_public = |visibility: &Visibility| matches!(visibility, Visibility::Public(_));
    for item in items {
        match item {
            Item::Const(one) if is_public(&one.vis) => {
                all.insert(format!("{whose}const {}: {}", one.ident, shown(&one.ty)));
            }
            Item::Static(one) if is_public(&one.vis) => {
                all.insert(format!("{whose}static {}: {}", one.ident, shown(&one.ty)));
            }
            Item::Type(one) if is_public(&one.vis) => {
                all.insert(format!("{whose}type {} = {}", one.ident, shown(&one.ty)));
            }
            Item::Use(one) if is_public(&one.vis) => {
                all.insert(format!("{whose}use {}", shown(&one.tree)));
            }
            Item::Enum(one) if is_public(&one.vis) => {
                for variant in &one.variants {
                    let fields = shown(&variant.fields);
                    all.insert(format!("{whose}enum {}::{}{fields}", one.ident, variant.ident));
                }
            }
            Item::Struct(one) if is_public(&one.vis) => {
                all.insert(format!("{whose}struct {}", one.ident));
                if let Fields::Named(fields) = &one.fields {
                    for field in fields.named.iter().filter(|field| is_public(&field.vis)) {
                        let (name, ty) = (field.ident.as_ref().unwrap(), shown(&field.ty));
                        all.insert(format!("{whose}struct {}.{name}: {ty}", one.ident));
                    }
                }
            }
            Item::Trait(one) if is_public(&one.vis) => {
                all.insert(format!("{whose}trait {}: {}", one.ident, shown(&one.supertraits)));
                for method in &one.items {
                    if let TraitItem::Fn(method) = method {
                        let has_body = method.default.is_some();
                        let signature = shown(&method.sig);
                        all.insert(format!("{whose}trait {}: {signature}, {has_body}", one.ident));
                    }
                }
            }
            Item::Impl(one) => {
                let (ty, of) = (shown(&one.self_ty), one.trait_.as_ref().map(|(path, _)| path));
                let of = of.map(shown).unwrap_or_default();
                all.insert(format!("{whose}impl {of} for {ty}"));
                for part in &one.items {
                    match part {
                        ImplItem::Fn(method) if is_public(&method.vis) => {
                            all.insert(format!("{whose}impl {ty}: {}", shown(&method.sig)));
                        }
                        ImplItem::Const(one) if is_public(&one.vis) => {
                            all.insert(format!("{whose}impl {ty}: const {}", one.ident));
                        }
                        _ => {}
                    }
                }
            }
            Item::Mod(one) if is_public(&one.vis) => {
                let inner = one.content.as_ref().map_or(&[][..], |(_, items)| items);
                public_items(inner, &format!("{whose}{}::", one.ident), all);
            }
            Item::Macro(one) => {
                let (name, tokens) = (shown(&one.mac.path), &one.mac.tokens);
                match syn::parse2::<syn::File>(tokens.clone()) {
                    Ok(file) => public_items(&file.items, whose, all),
                    Err(_) => drop(all.insert(format!("{whose}{name}!({tokens})"))),
                }
            }
            _ => {}
        }
    }
}

fn items_of(module: &Compilation) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    public_items(&syn::parse2::<syn::File>(module.expand()).unwrap().items, "", &mut all);
    all
}

/// Collects the parts of a value, each with the JSON pointer to it.
fn parts(value: &Value, way: String, all: &mut Vec<(String, Value)>) {
    match value {
        Value::Object(fields) => {
            for (key, inner) in fields {
                parts(inner, format!("{way}/{}", key.replace('~', "~0").replace('/', "~1")), all);
            }
        }
        Value::Array(list) => list.iter().enumerate().for_each(|(at, inner)| parts(inner, format!("{way}/{at}"), all)),
        _ => {}
    }
    all.push((way, value.clone()));
}

/// Returns graphs with one mistake each, and its name. No mistake changes a name or a type of the graph.
fn with_mistakes(graph: &Value) -> Vec<(String, Value)> {
    let mut all = Vec::new();
    let mut places = Vec::new();
    parts(graph, String::new(), &mut places);
    let mut change = |kind: &str, way: &str, value: Value| {
        let mut changed = graph.clone();
        *changed.pointer_mut(way).unwrap() = value;
        all.push((format!("{kind} at `{way}`"), changed));
    };
    let with = |value: &Value, key: &str, inner: Value| {
        let mut value = value.clone();
        value[key] = inner;
        value
    };
    for (way, value) in &places {
        let names: Vec<&str> = way.split('/').skip(1).collect();
        match (names.as_slice(), value) {
            // A policy, and no target.
            (["config", "on_error"], _) => {}
            ([.., "next" | "to" | "on_error" | "on_timeout"], Value::String(_)) => {
                change("an unknown target", way, "zz_nowhere".into());
                change("a target that is no name", way, json!(7));
            }
            (["config", "nodes", _] | ["config"] | [], Value::Object(_)) => {
                change("an unknown field", way, with(value, "zz_field", json!(1)));
            }
            (["config", "nodes", _, "action"], Value::Object(_)) => {
                change("an unknown field", way, with(value, "zz_field", json!(1)));
                change("an unknown parameter", way, with(value, "params", json!({"zz_parameter": 1})));
            }
            (["config", "nodes", _, "action", "params", _], Value::String(text)) => {
                change("a template that is not closed", way, format!("{text} ${{inputs.").into());
                change("an unknown name", way, "${inputs.zz_unknown}".into());
            }
            ([.., "path"], Value::String(_)) if names.contains(&"when") => {
                change("an unknown path", way, "state.zz_unknown".into());
                change("a path of another type", way, json!(["zz"]));
            }
            ([.., "timeout" | "retry" | "limits" | "max_concurrency" | "max_steps"], _) => {
                change("a value of another type", way, "zz some".into());
            }
            (["permissions"], _) => {
                change("no permission", way, json!([]));
                change("a missing permission", way, json!(["rye.execute.tool.zz"]));
            }
            (["config", "start"], _) => change("an unknown start", way, "zz_nowhere".into()),
            _ => {}
        }
    }
    all
}

/// How many mistakes of the examples are tried; `STUBS=all` tries each.
const ONE_OF: usize = 7;

#[test]
fn a_graph_with_a_mistake_has_each_public_item_of_the_graph_without_it() {
    let corpus = Corpus::read();
    let tree = corpus.tree();
    // As the build script and the macros read it.
    let project = tree.project().for_review();
    let one_of = if std::env::var("STUBS").is_ok_and(|all| all == "all") { 1 } else { ONE_OF };
    let (mut problems, mut tried, mut known) = (String::new(), 0, BTreeSet::new());
    let graphs: Vec<&(String, String)> =
        corpus.files.iter().filter(|(name, _)| !name.contains('/') && name.ends_with(".yaml")).collect();
    for (name, text) in graphs {
        let good = project.compile(&tree.path(name));
        assert!(good.graph.is_some(), "{name}");
        let items = items_of(&good);
        let graph: Value = serde_yaml::from_str(text).unwrap();
        let mut mistakes: Vec<(String, String)> = vec![
            ("no signature".to_owned(), text.clone()),
            ("another text than the signed one".to_owned(), sign(text).replace("version:", "version :")),
        ];
        let changed = with_mistakes(&graph).into_iter().map(|(kind, graph)| (kind, sign(&format!("{graph}\n"))));
        mistakes.extend(changed.filter(|(kind, _)| {
            let kind = kind.split(" at ").next().unwrap_or_default().to_owned();
            tried += 1;
            known.insert(kind) || tried % one_of == 0
        }));
        for (kind, text) in mistakes {
            problems += &differences(&tree, &project, name, &kind, &text, &items);
        }
        tree.write(name, sign(text));
    }
    assert!(tried > 1_000, "{tried}");
    assert!(problems.is_empty(), "{tried} mistakes\n{problems}");
}

/// The mistakes behind which it is not known which values are set: names stay, and types may be without their values.
const LOSES_TYPES: [&str; 4] =
    ["an unknown start", "an unknown target", "a target that is no name", "a path of another type"];

/// Returns an item without its types.
fn name_of(item: &str) -> String {
    if item.contains(" fn ") { item.to_owned() } else { item.split(": ").next().unwrap_or_default().to_owned() }
}

/// Describes how the public items of a graph with a mistake differ from those of the graph without it.
fn differences(tree: &Tree, project: &Project, name: &str, kind: &str, text: &str, items: &BTreeSet<String>) -> String {
    tree.write(name, text);
    let bad = project.compile(&tree.path(name));
    let mut said = String::new();
    if bad.graph.is_some() {
        return said;
    }
    let found = items_of(&bad);
    let loses_types = LOSES_TYPES.iter().any(|known| kind.starts_with(known));
    let shown = |items: &BTreeSet<String>| -> BTreeSet<String> {
        // A struct without a needed field has a default.
        let items = items.iter().filter(|item| !loses_types || !item.contains("default!"));
        items.map(|item| if loses_types { name_of(item) } else { item.clone() }).collect()
    };
    let (items, found) = (&shown(items), shown(&found));
    let (missing, more): (Vec<_>, Vec<_>) = (items.difference(&found).collect(), found.difference(items).collect());
    if !missing.is_empty() || !more.is_empty() {
        writeln!(said, "{name}, {kind}:").unwrap();
        missing.iter().take(6).for_each(|item| writeln!(said, "  - {item}").unwrap());
        more.iter().take(6).for_each(|item| writeln!(said, "  + {item}").unwrap());
    }
    said
}
