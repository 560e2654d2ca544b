//! The macros of `graph-runtime`: front ends of `graph-compiler`.

// Libraries speak through values and `tracing`; only the command line prints.
#![warn(clippy::print_stdout, clippy::print_stderr)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use graph_compiler::diagnostic::{Diagnostic, Severity};
use graph_compiler::expand::{ToolsPlace, rename_runtime};
use graph_compiler::front_end::{RustPlace, report};
use graph_compiler::project::{Compilation, Project, display_name};
use proc_macro2::{TokenStream, TokenTree};
use quote::quote;
use syn::LitStr;

/// Compiles the graph at a path, relative to the package, into a module of its own. The input is the path by which the
/// program names the runtime, as `graph_runtime::graph!` passes it, followed by the path of a module with contracts in brackets, and
/// the graph's path.
///
/// See `graph_runtime::graph!`.
#[proc_macro]
pub fn graph(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let mut runtime: Vec<TokenTree> = TokenStream::from(input).into_iter().collect();
    let path = runtime.pop().map(TokenStream::from).unwrap_or_default();
    let reused = runtime.pop();
    let (path, reused) = match syn::parse2::<LitStr>(path).and_then(|path| Ok((path, module_path(reused)?))) {
        Ok(both) => both,
        Err(error) => return error.to_compile_error().into(),
    };
    let package = package();
    let file = package.join(path.value());
    let project = Project::around(&package, &file).with_manifest(package.join(graph_compiler::MANIFEST)).for_review();
    let compilation = project.compile(&file);
    let said = own(&compilation);
    let errors = report(&said, &path.value(), Some(&place(&path)));
    let module = compilation.expand_with(ToolsPlace::Inside { reused: reused.as_ref() });
    let module = rename_runtime(module, &runtime.into_iter().collect());
    quote!(#errors #module).into()
}

/// Returns the path of the module whose contracts a graph uses; `None` if it is not given.
fn module_path(brackets: Option<TokenTree>) -> syn::Result<Option<TokenStream>> {
    let Some(TokenTree::Group(group)) = brackets else { return Ok(None) };
    if group.stream().is_empty() {
        return Ok(None);
    }
    let path = group.stream().to_string().replace(' ', "");
    graph_compiler::module_path(&path).map(Some).map_err(|error| syn::Error::new_spanned(group.stream(), error))
}

/// Returns the diagnostics to report for a graph. Warnings about graphs inside it are reported where those are compiled.
fn own(compilation: &Compilation) -> Vec<Diagnostic> {
    let is_inner = |one: &Diagnostic| compilation.inner.contains(&one.place.source.path);
    let own = compilation.diagnostics.iter().filter(|one| one.severity == Severity::Error || !is_inner(one));
    own.cloned().collect()
}

/// Makes a test that runs in virtual time, of an `async` function that takes a `TestBed`.
///
/// ```ignore
/// #[graph_runtime::testing::graph_test]
/// async fn an_order_is_shipped(bed: TestBed) {
///     bed.run(Fulfil::new(fakes()), inputs()).await.assert_status(Status::Completed);
/// }
/// ```
///
/// A crate that knows `graph-runtime` under another name gives it: `#[sg::testing::graph_test(::sg)]`.
///
/// See `graph_runtime::testing`.
#[proc_macro_attribute]
pub fn graph_test(arguments: proc_macro::TokenStream, function: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let function = syn::parse_macro_input!(function as syn::ItemFn);
    let runtime = if arguments.is_empty() {
        quote!(::graph_runtime)
    } else {
        let path = syn::parse_macro_input!(arguments with syn::Path::parse_mod_style);
        quote!(#path)
    };
    let syn::ItemFn { attrs, sig, block, .. } = &function;
    let bed = match sig.inputs.first() {
        Some(syn::FnArg::Typed(bed)) if sig.inputs.len() == 1 && sig.asyncness.is_some() => bed,
        _ => {
            let text = "a `graph_test` is an `async fn` that takes a `TestBed`";
            return syn::Error::new_spanned(sig, text).to_compile_error().into();
        }
    };
    let (name, output) = (&sig.ident, &sig.output);
    quote! {
        #[test]
        #(#attrs)*
        fn #name() #output {
            #runtime::testing::in_virtual_time(async |#bed| #block)
        }
    }
    .into()
}

/// Includes the modules that the build script's `graph_compiler::build` wrote.
///
/// ```ignore
/// mod graphs {
///     graph_runtime::include_graphs!();
/// }
/// use graphs::{ProjectStats, project_stats};
/// ```
///
/// The contracts of their tools are in the module `tools` beside them. `include_graphs!("release_1")` includes the graphs of a
/// `graph_compiler::Build` with this name.
///
/// A crate of this kind is made by `graph new crate`, which a test compiles and runs.
#[proc_macro]
pub fn include_graphs(name: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let name = match name.is_empty() {
        true => graph_compiler::NAME.to_owned(),
        false => syn::parse_macro_input!(name as LitStr).value(),
    };
    let Some(out) = std::env::var_os("OUT_DIR").map(PathBuf::from) else {
        let text = "`include_graphs!` needs a build script that calls `graph_compiler::build(\"graphs\")`";
        return quote!(::std::compile_error!(#text);).into();
    };
    let mut said = ReportedDiagnostics::default();
    let errors = broken(&out.join(format!("{name}{}", graph_compiler::BROKEN)), &mut said);
    let warnings = warned(&out.join(format!("{name}{}", graph_compiler::WARNED)), &mut said);
    let (modules, plain) =
        (format!("/{name}{}", graph_compiler::MODULES), format!("/{name}{}", graph_compiler::ERRORS));
    // Errors that belong to no graph, such as a missing directory, are only in the file of errors.
    let errors = errors.unwrap_or_else(|| quote!(::std::include!(::std::concat!(::std::env!("OUT_DIR"), #plain));));
    quote!(#errors #warnings ::std::include!(::std::concat!(::std::env!("OUT_DIR"), #modules));).into()
}

/// The diagnostics that were reported already: a mistake in a graph is found again where others nest it, one in a
/// contract where graphs use it.
#[derive(Default)]
struct ReportedDiagnostics(BTreeSet<String>);

impl ReportedDiagnostics {
    fn report(&mut self, package: &Path, file: &str, compilation: &Compilation) -> TokenStream {
        let new = compilation.diagnostics.iter().filter(|one| self.0.insert(one.render())).cloned();
        report(&new.collect::<Vec<_>>(), &display_name(package, Path::new(file)), None)
    }
}

/// Compiles the graphs with mistakes again, to report them from inside rustc, where cargo takes them for rustc's own.
fn broken(list: &Path, said: &mut ReportedDiagnostics) -> Option<TokenStream> {
    let package = package();
    let compilations = again(&package, list)?;
    // A graph without mistakes was corrected after the build script ran; until that runs again, the file of errors is used.
    if compilations.iter().any(|(_, compilation)| compilation.graph.is_some()) {
        return None;
    }
    Some(compilations.iter().map(|(file, compilation)| said.report(&package, file, compilation)).collect())
}

/// Compiles the graphs with warnings again, to report those too. A graph that was changed since is left to the build
/// script's next run.
fn warned(list: &Path, said: &mut ReportedDiagnostics) -> TokenStream {
    let package = package();
    let compilations = again(&package, list).unwrap_or_default();
    let warned = compilations.iter().filter(|(_, compilation)| compilation.graph.is_some());
    warned.map(|(file, compilation)| said.report(&package, file, compilation)).collect()
}

/// Compiles the graphs of a list again; `None` where the list is empty.
fn again(package: &Path, list: &Path) -> Option<Vec<(String, Compilation)>> {
    let list = std::fs::read_to_string(list).ok()?;
    let (root, files) = list.split_once('\n')?;
    let project =
        Project::open(package, Path::new(root)).with_manifest(package.join(graph_compiler::MANIFEST)).for_review();
    Some(files.lines().map(|file| (file.to_owned(), project.compile(Path::new(file)))).collect())
}

fn package() -> PathBuf {
    std::env::var_os("CARGO_MANIFEST_DIR")
        .map(PathBuf::from)
        .or_else(|| std::env::current_dir().ok())
        .unwrap_or_default()
}

/// Returns the place of the path in the Rust program.
fn place(path: &LitStr) -> RustPlace {
    let span = path.span();
    let native = span.unwrap();
    let (start, end) = (native.start(), native.end());
    let file = native.local_file().unwrap_or_default().to_string_lossy().into_owned();
    RustPlace { file, line: start.line(), column: start.column(), end_column: end.column(), span }
}
