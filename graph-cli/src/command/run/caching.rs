//! The data that a run writes to a project besides its journal: the results of its nodes, and its files.

use std::path::{Path, PathBuf};

use graph_runtime::ProjectFiles;
use graph_runtime::cache::NodeCache;
use graph_runtime::files::ProjectCache;

use super::{RunArguments, RunCommandFailure, UNDONE};
use crate::outcome::Error;

/// Returns the cache to use: the one that `--cache` names; else, with a store, the project's; else `None`.
///
/// A command depends on its working directory, so results from another directory are not found.
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

/// Returns the project that the run's files are written to, if `--files` is given.
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

/// Reports the files that could not be written. The run has not failed, because its journal is complete.
pub(super) fn tell_problems(files: &ProjectFiles, arguments: &RunArguments) {
    let store = arguments.store.as_deref().unwrap_or(Path::new("FILE")).display();
    for (run, error) in files.problems() {
        let error = Error::of(&*error);
        err!(
            "warning: the files of run `{run}` could not be kept: {error}; `graph files rebuild {run} --store {store}` makes them again"
        );
    }
}
