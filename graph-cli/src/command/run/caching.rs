//! The data that a run writes to a project besides its journal: the results of its nodes, and its files.

use std::path::{Path, PathBuf};

use clap::Args;
use graph_runtime::ProjectFiles;
use graph_runtime::cache::NodeCache;
use graph_runtime::files::ProjectCache;

use super::failure::RunCommandFailure;
use crate::outcome::Error;
use crate::output::UNDONE;

/// The options about cached results of nodes.
#[derive(Args)]
pub(in crate::command) struct CachingArguments {
    /// The directory whose .ai caches the results of nodes with `cache_result` [default: with a store, the project's]
    #[arg(long, value_name = "DIR")]
    cache: Option<PathBuf>,
    /// Cache no results of nodes, and use no cached ones
    #[arg(long, conflicts_with = "cache")]
    no_cache: bool,
    /// A text that cached results also depend on, such as the version of a called program
    #[arg(long, value_name = "TEXT", default_value = "", conflicts_with = "no_cache", hide_default_value = true)]
    cache_salt: String,
}

impl CachingArguments {
    /// Returns the cache to use: that which `--cache` names, else that of the project; `None` without one.
    ///
    /// A command depends on its working directory, so results from another directory are not found.
    pub(in crate::command) fn cache(&self, project: Option<&Path>) -> Result<Option<NodeCache>, RunCommandFailure> {
        let directory = self.cache.as_deref().or(project).filter(|_| !self.no_cache);
        let Some(directory) = directory else { return Ok(None) };
        let cache = ProjectCache::in_directory(directory).map_err(|error| RunCommandFailure::of(UNDONE, error))?;
        let working = std::env::current_dir().map_err(|error| RunCommandFailure::of(UNDONE, error))?;
        Ok(Some(NodeCache::new(cache).salt(format!("{}\n{}", working.display(), self.cache_salt))))
    }
}

/// Returns the project that the run's files are written to, if `--files` is given.
pub(in crate::command) fn project_of_files(
    is_wanted: bool,
    project: Option<&Path>,
) -> Result<Option<PathBuf>, RunCommandFailure> {
    match project.filter(|_| is_wanted) {
        Some(project) => Ok(Some(project.to_owned())),
        None if is_wanted => Err(RunCommandFailure::new(
            UNDONE,
            "there is no project to keep files in: no directory above the graph holds .ai; name one with `--project DIR`",
        )),
        None => Ok(None),
    }
}

/// Reports the files that could not be written. The run has not failed, because its journal is complete.
pub(in crate::command) fn tell_problems(files: &ProjectFiles, store: Option<&Path>) {
    let store = store.unwrap_or(Path::new("FILE")).display();
    for (run, error) in files.problems() {
        let error = Error::of(&*error);
        err!(
            "warning: the files of run `{run}` could not be kept: {error}; `graph files rebuild {run} --store {store}` makes them again"
        );
    }
}
