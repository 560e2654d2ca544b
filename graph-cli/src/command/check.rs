//! `graph check`: check graphs as the compiler does.

use std::path::{Path, PathBuf};

use clap::Args;
use graph_compiler::diagnostic::Severity;
use graph_compiler::graph_files;
use graph_compiler::project::Project;

use crate::outcome::{Done, Error, Outcome};

#[derive(Args)]
pub(crate) struct Check {
    /// Graphs, or directories of graphs
    #[arg(value_name = "PATH", default_value = "graphs")]
    paths: Vec<PathBuf>,
}

pub(crate) fn run(arguments: &Check) -> Done {
    let working = std::env::current_dir()?;
    let (mut graphs, mut errors, mut warnings) = (0, 0, 0);
    for path in &arguments.paths {
        let path = working.join(path);
        for (project, file) in files(&working, &path)? {
            graphs += 1;
            for diagnostic in project.compile(&file).diagnostics {
                match diagnostic.severity {
                    Severity::Error => errors += 1,
                    Severity::Warning => warnings += 1,
                }
                // Colours are left out where stderr is no terminal.
                anstream::eprintln!("{}\n", diagnostic.render_coloured());
            }
        }
    }
    let count = |number: usize, what: &str| format!("{number} {what}{}", if number == 1 { "" } else { "s" });
    let found = match (errors, warnings) {
        (0, 0) => "no errors".to_owned(),
        (_, 0) => count(errors, "error"),
        _ => format!("{}, {}", count(errors, "error"), count(warnings, "warning")),
    };
    anstream::println!("checked {}: {found}", count(graphs, "graph"));
    Ok(Outcome::of(errors == 0))
}

/// Returns the graphs at a path, each with the tree that it belongs to.
fn files(working: &Path, path: &Path) -> Result<Vec<(std::rc::Rc<Project>, PathBuf)>, Error> {
    if !path.is_dir() {
        return Ok(vec![(Project::around(working, path).into(), path.to_owned())]);
    }
    let project: std::rc::Rc<Project> = Project::open(working, path).into();
    let files = graph_files(path).map_err(|error| Error::file("read", path, &error))?;
    if files.is_empty() {
        return Err(Error::new(format!("there are no graphs in {}", path.display())));
    }
    Ok(files.into_iter().map(|file| (std::rc::Rc::clone(&project), file)).collect())
}
