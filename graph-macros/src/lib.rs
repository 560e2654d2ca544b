//! The macros of `graph-runtime`: doors to `graph-compiler`.

// Libraries speak through values and `tracing`; only the command line prints.
#![warn(clippy::print_stdout, clippy::print_stderr)]

use std::path::{Path, PathBuf};

use graph_compiler::door::{RustPlace, report};
use graph_compiler::project::Project;
use proc_macro2::TokenStream;
use quote::quote;
use syn::LitStr;

/// Compiles the graph at a path, relative to the package, into a module of its own.
///
/// See `graph_runtime::graph!`.
#[proc_macro]
pub fn graph(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let path: LitStr = match syn::parse(input) {
        Ok(path) => path,
        Err(error) => return error.to_compile_error().into(),
    };
    let package = package();
    let file = package.join(path.value());
    let project = Project::around(&package, &file).with_manifest(package.join(graph_compiler::MANIFEST));
    let compilation = project.compile(&file);
    let errors = report(&compilation.diagnostics, &path.value(), Some(&place(&path)));
    let module = compilation.expand();
    quote!(#errors #module).into()
}

/// Includes the modules that the build script's `graph_compiler::build` wrote.
///
/// See `graph_runtime::include_graphs!`.
#[proc_macro]
pub fn include_graphs(_: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let Some(out) = std::env::var_os("OUT_DIR").map(PathBuf::from) else {
        let text = "`include_graphs!` needs a build script that calls `graph_compiler::build(\"graphs\")`";
        return quote!(::std::compile_error!(#text);).into();
    };
    let errors = broken(&out);
    let (modules, plain) = (format!("/{}", graph_compiler::MODULES), format!("/{}", graph_compiler::ERRORS));
    // What no graph is to blame for, as a directory that is missing, stands in the file of errors only.
    let errors = errors.unwrap_or_else(|| quote!(::std::include!(::std::concat!(::std::env!("OUT_DIR"), #plain));));
    quote!(#errors ::std::include!(::std::concat!(::std::env!("OUT_DIR"), #modules));).into()
}

/// Compiles the graphs with mistakes again, to report them from inside rustc, where cargo takes them for rustc's own.
fn broken(out: &Path) -> Option<TokenStream> {
    let list = std::fs::read_to_string(out.join(graph_compiler::BROKEN)).ok()?;
    let (root, files) = list.split_once('\n')?;
    let package = package();
    let project = Project::open(&package, Path::new(root)).with_manifest(package.join(graph_compiler::MANIFEST));
    let compilations: Vec<_> = files.lines().map(|file| (file, project.compile(Path::new(file)))).collect();
    // A graph that has no mistake now was mended since; until the build script runs again, its old mistakes stand.
    if compilations.iter().any(|(_, compilation)| compilation.graph.is_some()) {
        return None;
    }
    let errors = compilations.iter().map(|(file, compilation)| {
        let name = graph_compiler::project::display_name(&package, Path::new(file));
        report(&compilation.diagnostics, &name, None)
    });
    Some(errors.collect())
}

fn package() -> PathBuf {
    std::env::var_os("CARGO_MANIFEST_DIR")
        .map(PathBuf::from)
        .or_else(|| std::env::current_dir().ok())
        .unwrap_or_default()
}

/// Where the path stands in the Rust program.
fn place(path: &LitStr) -> RustPlace {
    let span = path.span().unwrap();
    let (start, end) = (span.start(), span.end());
    let file = span.local_file().unwrap_or_default().to_string_lossy().into_owned();
    RustPlace { file, line: start.line(), column: start.column(), end_column: end.column() }
}
