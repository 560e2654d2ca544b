//! What a run keeps in a project besides its journal: the results of its nodes, and its files.

use std::path::{Path, PathBuf};

use graph_runtime::ProjectFiles;
use graph_runtime::cache::NodeCache;
use graph_runtime::files::ProjectCache;

use super::{RunArguments, RunCommandFailure, UNDONE};
use crate::outcome::Error;

/// Returns the cache that is used: the one that is named; with a store, the project's; otherwise `None`.
///
/// A command depends on the directory that it is run in, so what was kept in another is not found.
pub(super) fn cache(arguments: &RunArguments, project: Option<&Path>) -> Result<Option<NodeCache>, RunCommandFailure> {
    let directory = match (&arguments.cache, project) {
        _ if arguments.no_cache || arguments.node.is_some() => None,
        (Some(directory), _) => Some(directory.as_path()),
        (None, project) => project.filter(|_| arguments.store.is_some()),
    };
    let Some(directory) = directory else { return Ok(None) };
    let cache = ProjectCache::in_directory(directory).map_err(|error| RunCommandFailure::of(UNDONE, error))?;
    let working = std::env::current_dir().map_err(|error| RunCommandFailure::of(UNDONE, error))?;
    Ok(Some(NodeCache::new(cache).salt(format!("{}\n{}", working.display(), arguments.cache_salt))))
}

/// Returns the project whose files of the run are kept, if they are.
pub(super) fn project_of_files(
    arguments: &RunArguments,
    project: Option<&Path>,
) -> Result<Option<PathBuf>, RunCommandFailure> {
    match project.filter(|_| arguments.files) {
        Some(project) => Ok(Some(project.to_owned())),
        None if arguments.files => Err(RunCommandFailure::new(
            UNDONE,
            "there is no project to keep files in: no directory above the graph holds .ai; name one with `--project DIR`",
        )),
        None => Ok(None),
    }
}

/// Says which files could not be kept. That is no failure of the run, whose journal is whole.
pub(super) fn tell_problems(files: &ProjectFiles, arguments: &RunArguments) {
    let store = arguments.store.as_deref().unwrap_or(Path::new("FILE")).display();
    for (run, error) in files.problems() {
        let error = Error::of(&*error);
        err!(
            "warning: the files of run `{run}` could not be kept: {error}; `graph files rebuild {run} --store {store}` makes them again"
        );
    }
}
