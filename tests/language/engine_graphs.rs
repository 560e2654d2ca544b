//! The graphs of `tests/engines` are signed, and the list of their machines is up to date.
//!
//! The test is not in the target `engines`, because it must compile while a graph is changed and not signed yet.
//! `SIGN_FIXTURES=1` signs the graphs and contracts with the demo key, and writes the list.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use graph_compiler::graph_files;
use graph_compiler::project::{Compilation, Project};
use graph_signing::{ItemKind, SecretKey, open, sign, verify};

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/engines")
}

fn is_asked_to_write() -> bool {
    std::env::var_os("SIGN_FIXTURES").is_some()
}

/// Returns the files below a directory, sorted.
fn files(directory: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.extend(files(&path));
        } else {
            all.push(path);
        }
    }
    all.sort();
    all
}

fn project() -> Project {
    Project::open(Path::new(env!("CARGO_MANIFEST_DIR")), &directory().join("graphs"))
}

/// Signs the files whose signatures do not verify.
fn sign_all() {
    let pem = Path::new(env!("CARGO_MANIFEST_DIR")).join("graphs/keys/demo/private_key.pem");
    let key = SecretKey::from_pem(&fs::read_to_string(pem).unwrap()).unwrap();
    let project = project();
    for path in files(&directory().join("graphs")).iter().filter(|path| path.extension().unwrap() == "yaml") {
        let text = fs::read_to_string(path).unwrap();
        if verify(ItemKind::YAML, &text, project.ring()).is_err() {
            let bare = open(ItemKind::YAML, &text)
                .map_or(text.clone(), |_| text.split_once('\n').map_or(String::new(), |(_, rest)| rest.to_owned()));
            fs::write(path, sign(ItemKind::YAML, &bare, &key, SystemTime::now()).unwrap()).unwrap();
        }
    }
}

fn compilations() -> Vec<Compilation> {
    let project = project();
    let all = graph_files(project.root()).unwrap();
    let all: Vec<Compilation> = all.iter().map(|file| project.compile(file)).collect();
    let said: Vec<String> =
        all.iter().flat_map(|one| &one.diagnostics).map(graph_compiler::diagnostic::Diagnostic::render).collect();
    assert!(said.is_empty(), "{}\nSIGN_FIXTURES=1 signs what was changed", said.join("\n\n"));
    all
}

/// Returns the list of machines, which is the content of `tests/engines/machines.rs`.
fn machines() -> String {
    let mut text = String::from(
        "//! The graphs of `tests/engines/graphs`, compiled, with tools that answer as their scripts say.\n\
         //!\n\
         //! Written by `SIGN_FIXTURES=1 cargo test --test language engine_graphs`.\n\n\
         use graph_model::value::AsView;\nuse graph_runtime::graph;\n\nuse super::script::Stage;\nuse super::{Erased, erased};\n\n",
    );
    let all = compilations();
    for one in &all {
        writeln!(text, "graph!(\"{}\");", one.source).unwrap();
    }
    text.push_str("\nsuper::all_machines! {\n");
    for one in &all {
        let (module, machine, tools) = names(one);
        let stem = Path::new(&one.source).file_stem().unwrap().to_str().unwrap();
        writeln!(text, "    \"{stem}\" {module} {machine} {{").unwrap();
        for tool in tools {
            writeln!(text, "        {tool}").unwrap();
        }
        text.push_str("    }\n");
    }
    text.push_str("}\n");
    text
}

/// Returns the names of a graph's module and machine, and the tools that the program performs.
fn names(one: &Compilation) -> (String, String, Vec<String>) {
    let file: syn::File = syn::parse2(one.expand()).unwrap();
    let mut found = (String::new(), String::new(), Vec::new());
    for item in file.items {
        match item {
            syn::Item::Mod(module) => {
                found.0 = module.ident.to_string();
                let tools = modules(&module).into_iter().find(|inner| inner.ident == "tools");
                let tools = tools.iter().flat_map(|tools| modules(tools));
                found.2 = tools.filter_map(|tool| asked(tool, one)).collect();
            }
            syn::Item::Use(used) => {
                let text = text_of(&used.tree);
                found.1 = text.trim_end_matches('}').rsplit([':', ' ', '{', ',']).next().unwrap().to_owned();
            }
            _ => {}
        }
    }
    found
}

fn items(module: &syn::ItemMod) -> &[syn::Item] {
    &module.content.as_ref().unwrap().1
}

fn modules(module: &syn::ItemMod) -> Vec<&syn::ItemMod> {
    let modules = items(module).iter().filter_map(|item| match item {
        syn::Item::Mod(inner) => Some(inner),
        _ => None,
    });
    modules.collect()
}

fn text_of(tokens: &impl ToText) -> String {
    tokens.text()
}

trait ToText {
    fn text(&self) -> String;
}

impl ToText for syn::UseTree {
    fn text(&self) -> String {
        match self {
            Self::Path(path) => path.tree.text(),
            Self::Name(name) => name.ident.to_string(),
            Self::Group(group) => group.items.last().map_or(String::new(), ToText::text),
            Self::Rename(rename) => rename.rename.to_string(),
            Self::Glob(_) => String::new(),
        }
    }
}

/// Writes a tool for the list, with the fields of its parameters and the name of each in the contract; `None` for a reducer, and a
/// tool that the runtime performs.
fn asked(module: &syn::ItemMod, one: &Compilation) -> Option<String> {
    let is_tool = |item: &syn::Item| matches!(item, syn::Item::Trait(found) if found.ident == "Tool");
    items(module).iter().find(|item| is_tool(item))?;
    let structure = items(module).iter().find_map(|item| match item {
        syn::Item::Struct(found) if found.ident == "Params" => Some(&found.fields),
        _ => None,
    });
    let name = module.ident.to_string();
    let Some(structure) = structure else { return Some(format!("{name};")) };
    // The module is named after the tool, so the tool is found by this name.
    let is_it = |id: &str| id.replace(['/', '-'], "_").eq_ignore_ascii_case(name.trim_start_matches("r#"));
    let tools = &one.graph.as_ref().unwrap().interface().tools;
    let tool = tools.iter().find(|tool| is_it(&tool.id)).unwrap();
    let fields = structure.iter().zip(tool.params.iter().flatten());
    let fields = fields.map(|(field, typed)| format!("{}: \"{}\"", field.ident.as_ref().unwrap(), typed.name));
    Some(format!("{name} {{ {} }};", fields.collect::<Vec<_>>().join(", ")))
}

#[test]
fn the_graphs_are_signed_and_all_of_them_are_listed() {
    if is_asked_to_write() {
        sign_all();
    }
    let path = directory().join("machines.rs");
    let machines = machines();
    if is_asked_to_write() {
        fs::write(&path, &machines).unwrap();
    }
    assert_eq!(fs::read_to_string(path).unwrap_or_default(), machines, "SIGN_FIXTURES=1 writes the list again");
}

#[test]
fn each_graph_has_a_script_and_each_script_a_graph() {
    let stems = |directory: &Path| -> Vec<String> {
        let files = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
        let files = files.filter(|path| path.extension().is_some_and(|extension| extension == "yaml"));
        let mut stems: Vec<_> = files.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect();
        stems.sort();
        stems
    };
    let (graphs, scripts) = (stems(&directory().join("graphs")), stems(&directory().join("scripts")));
    assert_eq!(graphs, scripts);
}
