//! The cache of nodes: keeps the results of calls beyond their run, and returns them for identical calls (R295–R301).
//!
//! An entry is identified by the graph's digest, the node, the tool with its contract and version, and the parameters. It is
//! signed with the runtime's key together with that identity, so an entry that somebody else wrote, changed or moved is not
//! a result of anything. It is written only after the step that it is a result of is committed.

mod entry;

use std::collections::{BTreeMap, HashMap};
use std::future::ready;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{fmt, io};

use graph_model::value::Value;

use crate::future::BoxFuture;

pub use graph_model::digest::Digest;

pub use entry::{CacheEntry, CacheEntryError};

/// The future that a method of a [`Cache`] returns.
pub type CacheFuture<'a, T> = BoxFuture<'a, io::Result<T>>;

/// Stores texts by key. A text that was forgotten is computed again. A text that is returned is verified, so a cache need
/// not be trusted.
///
/// Many runs and processes may use it at once. For a key, `get` returns either the whole of one text that was put there or
/// nothing.
///
/// [`MemoryCache`] is one. The example of [`NodeCache`] gives it to a runtime.
pub trait Cache: fmt::Debug + Send + Sync + 'static {
    /// Returns the text that was last put under a key, if there is one.
    fn get<'a>(&'a self, key: &'a Digest) -> CacheFuture<'a, Option<String>>;

    /// Puts a text under a key. After an error or a crash, the key has either this text or the one before it.
    fn put<'a>(&'a self, key: &'a Digest, entry: &'a str) -> CacheFuture<'a, ()>;
}

/// The cache that a runtime uses, and the versions of the tools whose results it keeps.
///
/// ```
/// # fn build() -> Result<(), graph_engine::BuildError> {
/// # use graph_engine::{Runtime, SecretKey};
/// # use graph_engine::cache::{MemoryCache, NodeCache};
/// # let key = SecretKey::from_seed(&[1; 32]);
/// let cache = NodeCache::new(MemoryCache::new()).salt(env!("CARGO_PKG_VERSION")).tool("rates/look_up", "2");
/// let runtime = Runtime::builder().sign_with(key).cache(cache).build()?;
/// # Ok(())
/// # }
/// # build().unwrap();
/// ```
#[derive(Debug, Clone)]
pub struct NodeCache {
    pub(crate) cache: Arc<dyn Cache>,
    pub(crate) salt: String,
    pub(crate) tools: BTreeMap<String, String>,
}

impl NodeCache {
    /// Uses `cache`.
    pub fn new(cache: impl Cache) -> Self {
        Self { cache: Arc::new(cache), salt: String::new(), tools: BTreeMap::new() }
    }

    /// Sets a salt that identifies all tools of the program: entries that were written with another salt are not found. A
    /// program whose tools change must change its salt; it can use its own version.
    #[must_use]
    pub fn salt(mut self, salt: impl Into<String>) -> Self {
        self.salt = salt.into();
        self
    }

    /// Sets the version of one tool: results of other versions are not found.
    #[must_use]
    pub fn tool(mut self, id: impl Into<String>, version: impl Into<String>) -> Self {
        self.tools.insert(id.into(), version.into());
        self
    }
}

/// A cache in memory. Clones share their entries, and nothing is forgotten. It is meant for tests and for programs that do
/// not run long.
///
/// [`NodeCache`] has an example.
#[derive(Debug, Clone, Default)]
pub struct MemoryCache {
    entries: Arc<Mutex<HashMap<Digest, String>>>,
}

impl MemoryCache {
    /// A cache with nothing in it.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns all entries, in the order of the keys.
    pub fn entries(&self) -> BTreeMap<Digest, String> {
        self.held().iter().map(|(key, entry)| (*key, entry.clone())).collect()
    }

    fn held(&self) -> MutexGuard<'_, HashMap<Digest, String>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Cache for MemoryCache {
    fn get<'a>(&'a self, key: &'a Digest) -> CacheFuture<'a, Option<String>> {
        Box::pin(ready(Ok(self.held().get(key).cloned())))
    }

    fn put<'a>(&'a self, key: &'a Digest, entry: &'a str) -> CacheFuture<'a, ()> {
        self.held().insert(*key, entry.to_owned());
        Box::pin(ready(Ok(())))
    }
}

/// The result of a call, to be kept when its step is committed.
#[derive(Debug)]
pub(crate) struct Fresh {
    pub(crate) key: Digest,
    pub(crate) node: u16,
    pub(crate) result: Value,
}
