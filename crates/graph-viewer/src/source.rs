//! The store or the project that is shown. Either may be deleted or replaced while it is.

use std::fs::{self, Metadata};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use graph_runtime::files::ProjectStore;
use graph_runtime::{RunId, SqliteOptions, Store};
use tokio::sync::Mutex;

use crate::ViewedPlace;
use crate::problem::ViewProblem;

/// The directory of the journals among the files of a project.
const THREADS: [&str; 3] = [".ai", "state", "threads"];

/// The length of a file, and when it was changed.
pub(crate) type FileStamp = (u64, SystemTime);

/// Opens the place of the runs again whenever it is another one than before.
pub(crate) struct Source {
    place: ViewedPlace,
    opened: Mutex<Option<OpenPlace>>,
}

/// A place that is open.
#[derive(Clone)]
pub(crate) struct OpenPlace {
    pub(crate) store: Arc<dyn Store>,
    /// The same, if it is the files of a project.
    pub(crate) files: Option<ProjectStore>,
    /// The identity of its file or directory.
    identity: PlaceIdentity,
    /// How often the place was opened: whatever is known of an earlier one does not count.
    pub(crate) generation: u64,
}

/// The identity of a file or directory at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
struct PlaceIdentity {
    #[cfg(unix)]
    number: (u64, u64),
    created: Option<SystemTime>,
}

impl PlaceIdentity {
    fn of(metadata: &Metadata) -> Self {
        #[cfg(unix)]
        let number = {
            use std::os::unix::fs::MetadataExt as _;
            (metadata.dev(), metadata.ino())
        };
        Self {
            #[cfg(unix)]
            number,
            created: metadata.created().ok(),
        }
    }
}

impl Source {
    pub(crate) fn new(place: ViewedPlace) -> Self {
        Self { place, opened: Mutex::new(None) }
    }

    /// Returns the path, as the person named it.
    pub(crate) fn path(&self) -> &Path {
        match &self.place {
            ViewedPlace::Store(path) | ViewedPlace::Files(path) => path,
        }
    }

    pub(crate) fn is_files(&self) -> bool {
        matches!(self.place, ViewedPlace::Files(_))
    }

    /// Opens the place, unless it is open and still the same.
    pub(crate) async fn open(&self) -> Result<OpenPlace, ViewProblem> {
        let mut opened = self.opened.lock().await;
        let path = self.path();
        let metadata = fs::metadata(path).map_err(|error| {
            ViewProblem::unreadable(format!("cannot read {}: {error}; was it moved or deleted?", path.display()))
        });
        let metadata = match metadata {
            Ok(metadata) => metadata,
            Err(problem) => {
                *opened = None;
                return Err(problem);
            }
        };
        let identity = PlaceIdentity::of(&metadata);
        if let Some(opened) = opened.as_ref().filter(|opened| opened.identity == identity) {
            return Ok(opened.clone());
        }
        let generation = opened.as_ref().map_or(0, |opened| opened.generation) + 1;
        let (store, files): (Arc<dyn Store>, _) = match &self.place {
            ViewedPlace::Store(path) => (Arc::new(SqliteOptions::default().open_read_only(path).await?), None),
            ViewedPlace::Files(path) => {
                let files = ProjectStore::in_directory(path);
                let files = files.map_err(|error| ViewProblem::unreadable(ViewProblem::chain(&error)))?;
                (Arc::new(files.clone()), Some(files))
            }
        };
        let new = OpenPlace { store, files, identity, generation };
        *opened = Some(new.clone());
        Ok(new)
    }

    /// Returns the names of the runs whose journals are among the files of a project; `None` if runs are in a store.
    pub(crate) fn filed(&self) -> Result<Option<Vec<RunId>>, ViewProblem> {
        let ViewedPlace::Files(root) = &self.place else { return Ok(None) };
        let directory = THREADS.iter().fold(root.clone(), |path, part| path.join(part));
        let unread = |error: std::io::Error| {
            ViewProblem::unreadable(format!("cannot read the directory {}: {error}", directory.display()))
        };
        let entries = match fs::read_dir(&directory) {
            // A project that has not run anything.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Some(Vec::new())),
            entries => entries.map_err(unread)?,
        };
        let mut runs = Vec::new();
        for entry in entries {
            let name = entry.map_err(unread)?.file_name();
            let run = name.to_str().and_then(|name| RunId::new(name).ok());
            // Other programs have threads there too.
            runs.extend(run.filter(|run| self.journal_file(run).is_ok_and(|file| file.is_some())));
        }
        Ok(Some(runs))
    }

    /// Returns the journal's file of a run of a project; `None` if runs are in a store. No link is followed below the project.
    pub(crate) fn journal_file(&self, run: &RunId) -> Result<Option<PathBuf>, ViewProblem> {
        let ViewedPlace::Files(root) = &self.place else { return Ok(None) };
        let mut path = root.clone();
        for part in THREADS.into_iter().chain([run.as_str(), "journal.jsonl"]) {
            path.push(part);
            let metadata = fs::symlink_metadata(&path);
            match metadata.map(|metadata| metadata.is_symlink()) {
                Ok(false) => {}
                Ok(true) => return Err(ViewProblem::unfit(format!("{} is a link, and not followed", path.display()))),
                Err(_) => return Err(ViewProblem::missing(format!("there is no run `{run}`"))),
            }
        }
        Ok(Some(path))
    }

    /// Returns the length of a run's file and when it was changed, by which a change of it is noticed.
    pub(crate) fn stamp(&self, run: &RunId) -> Option<FileStamp> {
        let metadata = fs::metadata(self.journal_file(run).ok()??).ok()?;
        Some((metadata.len(), metadata.modified().ok()?))
    }
}
