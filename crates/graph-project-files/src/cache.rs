//! The node cache of a project: a file for each entry, `.ai/state/objects/cache/nodes/<key>.json` (R298).

use std::future::ready;
use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::disk::Disk;
use crate::error::FilesError;
use graph_engine::cache::{Cache, CacheFuture, Digest};

const DIRECTORY: &str = ".ai/state/objects/cache/nodes";

/// A cache of nodes in the `.ai` of a project. Several processes may use it at once; each file is replaced as a whole.
///
/// The files are not synced to disk. If a power loss leaves a file half written, it does not match its signature, and its
/// value is computed again.
///
/// ```
/// # mod graph_runtime {
/// #     pub use graph_engine::*;
/// #     pub mod files { pub use graph_project_files::*; }
/// #     pub use files::ProjectFiles;
/// # }
/// # let directory = tempfile::tempdir()?;
/// # let directory = directory.path();
/// use graph_runtime::cache::NodeCache;
/// use graph_runtime::files::ProjectCache;
/// use graph_runtime::{Runtime, SecretKey};
///
/// let cache = NodeCache::new(ProjectCache::in_directory(directory)?).salt(env!("CARGO_PKG_VERSION"));
/// let runtime = Runtime::builder().sign_with(SecretKey::generate()?).cache(cache).build()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct ProjectCache {
    disk: Arc<Disk>,
}

impl ProjectCache {
    /// Opens the cache in the `.ai` of the project at `root`. No link below `root` is followed. Nothing is written until
    /// there is an entry to store.
    ///
    /// # Errors
    ///
    /// If there is no such directory.
    pub fn in_directory(root: impl AsRef<Path>) -> Result<Self, FilesError> {
        Ok(Self { disk: Arc::new(Disk::open(root.as_ref())?) })
    }

    /// Returns the keys of all entries, in their order.
    ///
    /// # Errors
    ///
    /// If the directory cannot be read.
    pub fn keys(&self) -> Result<Vec<Digest>, FilesError> {
        let key = |name: String| name.strip_suffix(".json")?.parse().ok();
        let mut keys: Vec<Digest> = self.disk.names(DIRECTORY)?.into_iter().filter_map(key).collect();
        keys.sort_unstable();
        Ok(keys)
    }

    /// Returns the text of an entry, if there is one.
    ///
    /// # Errors
    ///
    /// If it cannot be read.
    pub fn text(&self, key: &Digest) -> Result<Option<String>, FilesError> {
        let unreadable = |error: std::string::FromUtf8Error| FilesError::Unreadable {
            path: self.disk.path(&file(key)),
            reason: error.to_string(),
        };
        self.disk.read(&file(key))?.map(String::from_utf8).transpose().map_err(unreadable)
    }

    /// Removes an entry. It is not an error if there is no such entry.
    ///
    /// # Errors
    ///
    /// If it cannot be removed.
    pub fn remove(&self, key: &Digest) -> Result<(), FilesError> {
        self.disk.remove(&file(key))
    }
}

impl Cache for ProjectCache {
    fn get<'a>(&'a self, key: &'a Digest) -> CacheFuture<'a, Option<String>> {
        Box::pin(ready(self.text(key).map_err(io::Error::other)))
    }

    fn put<'a>(&'a self, key: &'a Digest, entry: &'a str) -> CacheFuture<'a, ()> {
        Box::pin(ready(self.disk.replace(&file(key), entry.as_bytes()).map_err(io::Error::other)))
    }
}

fn file(key: &Digest) -> String {
    format!("{DIRECTORY}/{key}.json")
}
