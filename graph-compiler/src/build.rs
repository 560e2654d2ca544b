//! The front end for build scripts: compiles every graph of a tree into `OUT_DIR`.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use graph_definition::diagnostic::{Diagnostic, DiagnosticIdentity};
use graph_definition::hash::HashSet;
use proc_macro2::TokenStream;
use quote::{format_ident, quote};

use crate::expand::{ToolsModule, ToolsPlace, identifier, module_name, rename_runtime};
use crate::files::{display_name, find_graphs};
use crate::front_end;
use crate::parallel;
use crate::project::{Compilation, Project, clash};
use crate::project::{TOOLS, find_contract_graphs};

/// The name of the files in `OUT_DIR`, unless the build script sets another.
pub const NAME: &str = "graphs";
/// The end of the name of the file that holds the modules; `include_graphs!` includes it.
pub const MODULES: &str = ".rs";
/// The end of the name of the file that holds the errors of graphs with mistakes, as `compile_error!`s.
pub const ERRORS: &str = "_errors.rs";
/// The manifest of a package.
pub const MANIFEST: &str = "Cargo.toml";
/// The end of the name of the file that names the graphs with mistakes, one path a line.
pub const BROKEN: &str = "_broken.txt";
/// The end of the name of the file that names the graphs with warnings only, in the same form.
pub const WARNED: &str = "_warned.txt";

/// Compiles every graph in `directory` and below, for `graph_runtime::include_graphs!()` to include.
///
/// Called from a build script. `directory` is relative to the package; in it, `keys` holds the trusted keys, `tools` the
/// tools' contracts, and all other `*.yaml` files are graphs. A graph in a sub-directory becomes a module in a module.
///
/// Mistakes in graphs do not fail the build script: they are reported as errors and warnings of the crate, where they are
/// counted, coloured and shown by editors. The build script fails only if it cannot write its output.
pub fn build(directory: impl AsRef<Path>) {
    Build::new(directory).run();
}

/// A build script's compilation of a tree of graphs, where [`build()`] is not enough, as for a tree of an earlier release:
///
/// ```no_run
/// graph_compiler::build("graphs");
/// graph_compiler::Build::new("releases/1.0").name("release_1").tools("crate::graphs::tools").run();
/// ```
#[derive(Debug, Clone)]
pub struct Build {
    directory: PathBuf,
    runtime: String,
    name: String,
    tools: Option<String>,
}

impl Build {
    /// Compiles the graphs in `directory`, as [`build()`] does.
    pub fn new(directory: impl AsRef<Path>) -> Self {
        Self {
            directory: directory.as_ref().to_owned(),
            runtime: RUNTIME.to_owned(),
            name: NAME.to_owned(),
            tools: None,
        }
    }

    /// Sets the name under which the program knows the crate `graph-runtime`, if `Cargo.toml` renames it: `sg`, if it
    /// has `sg = { package = "state-graph-runtime", … }`. The program then writes `sg::include_graphs!()`.
    ///
    /// `graph!` finds the name by itself.
    #[must_use]
    pub fn runtime(mut self, name: impl Into<String>) -> Self {
        self.runtime = name.into();
        self
    }

    /// Sets the name by which the program includes the graphs, if it has several trees: `include_graphs!("release_1")`.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Takes the contracts that are equal in another module from there, so that one implementation of a tool serves both trees:
    /// `crate::graphs::tools`, if the program includes the graphs of the other tree in its module `graphs`.
    #[must_use]
    pub fn tools(mut self, path: impl Into<String>) -> Self {
        self.tools = Some(path.into());
        self
    }

    /// Compiles the graphs and writes the files. See [`build()`].
    pub fn run(&self) {
        if let Err(error) = self.write_files() {
            say(&format!(
                "cargo::error=failed to compile the graphs: {error}; is `graph_compiler::build` called from a build script?"
            ));
            std::process::exit(1);
        }
    }

    fn write_files(&self) -> io::Result<()> {
        let variable = |name: &str| {
            std::env::var_os(name).map(PathBuf::from).ok_or_else(|| io::Error::other(format!("{name} is not set")))
        };
        let package = variable("CARGO_MANIFEST_DIR")?;
        let directory = package.join(&self.directory);
        // The manifest may get settings of lints.
        for path in [&directory, &package.join(MANIFEST)] {
            say(&format!("cargo::rerun-if-changed={}", path.display()));
        }
        if syn::parse_str::<syn::Ident>(&self.runtime).is_err() {
            return Err(io::Error::other(format!("`{}` is not the name of a crate", self.runtime)));
        }
        let reused = self.tools.as_deref().map(module_path).transpose().map_err(io::Error::other)?;
        write(&compile(&package, &directory, reused.as_ref()), &variable("OUT_DIR")?, &self.name, &self.runtime)
    }
}

/// Reads the path of a module with contracts.
///
/// # Errors
///
/// If it is no path, or leads from the module in which it is written: it is used inside of other modules.
pub fn module_path(path: &str) -> Result<TokenStream, String> {
    match syn::parse_str::<syn::Path>(path) {
        Ok(parsed) if parsed.segments.len() > 1 && parsed.segments[0].ident == "crate" => Ok(quote!(#parsed)),
        _ => Err(format!("`{path}` is not the path of a module with contracts, such as `crate::graphs::tools`")),
    }
}

/// The name of the runtime's crate if the program does not set one.
const RUNTIME: &str = "graph_runtime";

#[expect(clippy::print_stdout, reason = "a build script speaks to cargo on stdout")]
fn say(line: &str) {
    println!("{line}");
}

/// A tree of modules.
#[derive(Default)]
struct Modules {
    graphs: BTreeMap<String, (PathBuf, TokenStream)>,
    inner: BTreeMap<String, Modules>,
    /// The graphs of other directories that graphs of this one nest, with the paths of their modules from the outermost one.
    from_elsewhere: BTreeMap<String, Vec<String>>,
}

/// The result of compiling a tree of graphs.
#[derive(Default)]
struct Compiled {
    /// The tree's directory.
    root: PathBuf,
    /// The contracts that the graphs share.
    tools: TokenStream,
    modules: Modules,
    diagnostics: Vec<Diagnostic>,
    known: HashSet<DiagnosticIdentity>,
    broken: Vec<PathBuf>,
    /// The graphs without errors that have warnings.
    warned: Vec<PathBuf>,
}

fn compile(package: &Path, directory: &Path, reused: Option<&TokenStream>) -> Compiled {
    let mut compiled = Compiled { root: directory.to_owned(), ..Compiled::default() };
    let walk = find_graphs(directory);
    compiled.diagnostics.extend(walk.problems(package));
    compiled.known.extend(compiled.diagnostics.iter().map(Diagnostic::identity));
    let mut files = walk.files;
    // An agent or program is the graph that its contract means.
    files.extend(find_contract_graphs(directory));
    let project = Project::open(package, directory).with_manifest(package.join(MANIFEST)).for_review();
    let compilations = parallel::map(&files, |file| project.compile(file));
    // A graph that cannot be read may use each contract.
    let is_unreadable = compilations.iter().any(|compilation| compilation.interface.is_none());
    let more = if is_unreadable { project.tools_with_contracts() } else { Vec::new() };
    let tools = ToolsModule::of(compilations.iter().filter_map(|compilation| compilation.interface.as_ref()), &more);
    compiled.tools = tools.expand(reused);
    let mut nesting = Vec::new();
    for (file, compilation) in files.into_iter().zip(compilations) {
        nesting.push((file.clone(), compilation.inner.clone()));
        compiled.add(&file, &way(directory, &file), compilation, &tools);
    }
    for (file, inner) in nesting {
        inner.iter().for_each(|inner| compiled.bring(package, &file, inner));
    }
    compiled
}

/// Returns the modules around a graph's own, outermost first: one for each directory.
fn way(directory: &Path, file: &Path) -> Vec<String> {
    let inside = file.strip_prefix(directory).unwrap_or(file).parent().unwrap_or(Path::new(""));
    // It has the place of its id, and not that of its contract.
    let inside = inside.strip_prefix(TOOLS).unwrap_or(inside);
    inside.iter().map(|part| module_name(&part.to_string_lossy())).collect()
}

impl Compiled {
    /// Returns the tokens of the contracts and of the modules.
    fn tokens(&self) -> TokenStream {
        let (tools, modules) = (&self.tools, self.modules.tokens(0));
        quote!(#tools #modules)
    }

    fn add(&mut self, file: &Path, way: &[String], compilation: Compilation, tools: &ToolsModule) {
        let modules =
            way.iter().fold(&mut self.modules, |modules, part| modules.inner.entry(part.clone()).or_default());
        if compilation.graph.is_none() {
            self.broken.push(file.to_owned());
        } else if !compilation.diagnostics.is_empty() {
            self.warned.push(file.to_owned());
        }
        let tokens = compilation.expand_with(ToolsPlace::Shared { tools, levels: way.len() + 1 });
        // A mistake in a graph is also reported for the graphs that nest it, and one in a contract for all graphs that use it.
        let known = &mut self.known;
        self.diagnostics.extend(compilation.diagnostics.into_iter().filter(|one| known.insert(one.identity())));
        // If several graphs would have one name, each compilation reports it; the module is the first one's.
        modules.graphs.entry(compilation.name).or_insert_with(|| (file.to_owned(), tokens));
    }

    /// Imports a graph into the module of a graph that nests it, if the two are in different directories.
    fn bring(&mut self, package: &Path, file: &Path, inner: &Path) {
        let (to, from) = (way(&self.root, file), way(&self.root, inner));
        if to == from {
            return;
        }
        let stem = inner.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        let name = module_name(stem);
        let modules = to.iter().fold(&mut self.modules, |modules, part| modules.inner.entry(part.clone()).or_default());
        let taken = match (modules.graphs.get(&name), modules.from_elsewhere.get(&name)) {
            (Some((other, _)), _) => Some(display_name(package, other)),
            (None, Some(other)) if *other != from => Some(format!("{}/{name}", other.join("/"))),
            _ if modules.inner.contains_key(&name) => Some(format!("the directory {name}")),
            _ => None,
        };
        match taken {
            Some(other) => {
                let clash = clash(inner, &display_name(package, inner), &other, &name);
                if self.diagnostics.iter().all(|known| known.render() != clash.render()) {
                    self.diagnostics.push(clash);
                }
            }
            None => {
                modules.from_elsewhere.insert(name, from);
            }
        }
    }
}

impl Modules {
    /// Returns the tokens of the modules, which are `depth` levels below the outermost one.
    fn tokens(&self, depth: usize) -> TokenStream {
        let graphs = self.graphs.values().map(|(_, tokens)| tokens);
        let from_elsewhere = self.from_elsewhere.iter().map(|(name, way)| {
            let up = std::iter::repeat_n(format_ident!("super"), depth);
            let up = std::iter::once(format_ident!("self")).chain(up);
            let (name, way) = (identifier(name), way.iter().map(|part| identifier(part)));
            quote! {
                #[allow(clippy::allow_attributes, unused_imports, unused_qualifications, reason = "generated code")]
                use #(#up::)* #(#way::)* #name;
            }
        });
        let inner = self.inner.iter().map(|(name, modules)| {
            let doc = format!(" The graphs of the directory `{}`.", name.trim_start_matches("r#"));
            let (name, tokens) = (identifier(name), modules.tokens(depth + 1));
            quote! {
                #[doc = #doc]
                #[allow(clippy::allow_attributes, unreachable_pub, reason = "generated code")]
                pub mod #name {
                    #tokens
                }
            }
        });
        quote!(#(#from_elsewhere)* #(#graphs)* #(#inner)*)
    }
}

fn write(compiled: &Compiled, out: &Path, name: &str, runtime: &str) -> io::Result<()> {
    let mut modules = compiled.tokens();
    if runtime != RUNTIME {
        let runtime = identifier(runtime);
        modules = rename_runtime(modules, &quote!(::#runtime));
    }
    let modules = format(&modules);
    let errors = format(&front_end::compile_errors(&compiled.diagnostics));
    // The tree's directory comes first: it determines the trusted keys, independent of the directories above a file.
    let list = |files: &[PathBuf]| -> String {
        let lines = std::iter::once(&compiled.root).chain(files).map(|path| format!("{}\n", path.display()));
        if files.is_empty() { String::new() } else { lines.collect() }
    };
    for diagnostic in &compiled.diagnostics {
        // Cargo shows this only if the script fails, or with `-vv`.
        io::Write::write_all(&mut io::stderr(), format!("{}\n\n", diagnostic.render()).as_bytes())?;
    }
    let file = |end: &str| out.join(format!("{name}{end}"));
    write_if_changed(&file(ERRORS), &errors)?;
    write_if_changed(&file(BROKEN), &list(&compiled.broken))?;
    write_if_changed(&file(WARNED), &list(&compiled.warned))?;
    write_if_changed(&file(MODULES), &modules)
}

/// Formats tokens as a file for people to read, with the feature `format`.
pub fn format(tokens: &TokenStream) -> String {
    #[cfg(feature = "format")]
    if let Ok(file) = syn::parse2(tokens.clone()) {
        return prettyplease::unparse(&file);
    }
    // Rustc cannot read these tokens either, and reports the error.
    tokens.to_string()
}

/// Writes a file unless it has this content already: a newer time would make cargo compile again.
fn write_if_changed(path: &Path, text: &str) -> io::Result<()> {
    match fs::read_to_string(path) {
        Ok(existing) if existing == text => Ok(()),
        _ => fs::write(path, text),
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use graph_signing::{ItemKind, KeyFile, SecretKey, sign};

    use super::*;
    use crate::levels::SETTINGS;

    /// Writes a tree of graphs, each given by its path, category and node, and compiles it.
    fn modules(graphs: &[(&str, &str, &str)]) -> (String, Vec<Diagnostic>) {
        let key = SecretKey::from_seed(&[9; 32]);
        let package = tempfile::tempdir().unwrap();
        let tree = package.path().join("graphs");
        let write = |name: &str, text: String| {
            let path = tree.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let file = KeyFile::new(key.public(), "the key of this test");
        write(&format!("keys/{}.toml", file.fingerprint), file.to_signed_toml(&key, SystemTime::UNIX_EPOCH));
        let signed = |text: &str| sign(ItemKind::YAML, text, &key, SystemTime::UNIX_EPOCH).unwrap();
        // The permissions of these graphs are wider than any of them needs.
        write(SETTINGS, signed("[lints]\nG0133 = \"allow\"\n"));
        for (path, category, node) in graphs {
            let text = format!(
                "version: \"1\"\ntool_type: graph\nexecutor_id: rye/core/runtimes/state-graph/runtime\n\
                 category: {category}\npermissions: [rye.*]\nconfig: {{ start: a, nodes: {{ a: {node} }} }}\n"
            );
            write(path, signed(&text));
        }
        let compiled = compile(package.path(), &tree, None);
        (format(&compiled.tokens()), compiled.diagnostics)
    }

    #[test]
    fn a_module_with_contracts_is_named_from_the_root_of_the_crate() {
        assert_eq!(module_path("crate::graphs::tools").unwrap().to_string(), "crate :: graphs :: tools");
        for wrong in ["", "crate", "graphs::tools", "self::tools", "::graphs::tools", "crate::graphs tools"] {
            assert!(module_path(wrong).unwrap_err().contains("such as `crate::graphs::tools`"), "{wrong}");
        }
    }

    #[test]
    fn a_graph_imports_nested_graphs_from_other_directories() {
        let end = "{ type: return }";
        let (text, diagnostics) = modules(&[
            ("outer.yaml", "shop", "{ action: { item_id: bank/inner } }"),
            ("one/two/inner.yaml", "bank", end),
            ("three/other.yaml", "shop", "{ action: { item_id: shop/outer } }"),
        ]);
        assert!(diagnostics.is_empty(), "{}", diagnostics[0].render());
        assert!(text.contains("\nuse self::one::two::inner;\n"), "{text}");
        assert!(
            text.contains("    use self::super::one::two::inner;\n") && text.contains("    use self::super::outer;\n"),
            "{text}"
        );
    }

    #[test]
    fn importing_a_nested_graph_over_an_equal_name_is_an_error() {
        let end = "{ type: return }";
        let (_, diagnostics) = modules(&[
            ("outer.yaml", "shop", "{ action: { item_id: bank/inner } }"),
            ("inner.yaml", "shop", end),
            ("one/inner.yaml", "bank", end),
        ]);
        let messages: Vec<&str> = diagnostics.iter().map(|one| one.message.as_str()).collect();
        assert_eq!(messages.len(), 1);
        assert!(messages[0].ends_with("would both become `inner` in Rust"), "{}", messages[0]);
    }

    #[test]
    fn conflicting_graphs_are_reported_once() {
        let end = "{ type: return }";
        let reported = |graphs: &[(&str, &str)]| {
            let graphs: Vec<_> = graphs.iter().map(|(path, category)| (*path, *category, end)).collect();
            let (text, diagnostics) = modules(&graphs);
            assert!(syn::parse_file(&text).is_ok());
            let other = diagnostics.iter().find(|one| one.code.id != "G0128");
            assert!(other.is_none(), "{}", other.map_or_else(String::new, Diagnostic::render));
            diagnostics.iter().map(|one| one.message.clone()).collect::<Vec<_>>()
        };
        for (graphs, expected) in [
            (
                &[("fulfil.yaml", "shop"), ("sub/fulfil.yaml", "shop")][..],
                "`graphs/fulfil.yaml` and `graphs/sub/fulfil.yaml` have the same id, `shop/fulfil`",
            ),
            (
                &[("a-b.yaml", "x"), ("a_b.yaml", "x")],
                "`graphs/a-b.yaml` and `graphs/a_b.yaml` would both become `a_b` in Rust",
            ),
            (
                &[("ab1.yaml", "x"), ("ab_1.yaml", "x")],
                "`graphs/ab1.yaml` and `graphs/ab_1.yaml` would both become `Ab1` in Rust",
            ),
            (&[("a.yaml", "x"), ("a/b.yaml", "x")], "`graphs/a` and `graphs/a.yaml` would both become `a` in Rust"),
            (
                &[("bash.yaml", "rye")],
                "the built-in tool `rye/bash` and `graphs/bash.yaml` have the same id, `rye/bash`",
            ),
        ] {
            let messages = reported(graphs);
            assert!(messages.iter().any(|message| message == expected), "{messages:?}");
            assert!(messages.len() == 1 || expected.contains("a_b"), "{messages:?}");
        }
        assert_eq!(
            reported(&[("one/g.yaml", "x"), ("two/g.yaml", "w"), ("g/h.yaml", "v"), ("g/i.yaml", "v")]),
            [""; 0]
        );
    }

    #[test]
    fn a_mistake_in_a_nested_graph_is_reported_once() {
        let (_, diagnostics) = modules(&[
            ("outer.yaml", "shop", "{ action: { item_id: shop/inner } }"),
            ("inner.yaml", "shop", "{ type: gate, next: nowhere }"),
        ]);
        assert_eq!(diagnostics.len(), 1, "{}", diagnostics.len());
    }
}
