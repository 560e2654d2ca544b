//! Content-addressed objects, and refs to them. An object is written once under the SHA-256 of its bytes, which every read
//! checks.

use std::sync::Arc;

use graph_model::digest::Digest;
use graph_model::name::RunId;
use graph_model::value::{Map, Value, canonical_json};

use crate::disk::Disk;
use crate::error::FilesError;

const ROOT: &str = ".ai/state/objects";

/// An object that is to be written.
#[derive(Debug)]
pub(crate) struct Object {
    pub(crate) hash: Digest,
    text: String,
}

impl Object {
    /// Makes an object of this kind, in the first version of the format (R193).
    pub(crate) fn new<'f>(kind: &str, fields: impl IntoIterator<Item = (&'f str, Value)>) -> Self {
        let mut map: Map<String, Value> = fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        map.insert("kind".to_owned(), Value::from(kind));
        map.insert("schema".to_owned(), Value::from(1));
        let text = canonical_json(&Value::Object(map));
        Self { hash: Digest::of(&text), text }
    }
}

/// The objects of a project: the snapshots, receipts and results of its runs (R191).
///
/// ```
/// # mod graph_runtime {
/// #     pub use graph_engine::*;
/// #     pub mod files { pub use graph_project_files::*; }
/// #     pub use files::ProjectFiles;
/// # }
/// # let directory = tempfile::tempdir()?;
/// # let directory = directory.path();
/// # let key = graph_runtime::SecretKey::from_seed(&[1; 32]);
/// use graph_runtime::ProjectFiles;
/// use serde_json::json;
///
/// let objects = ProjectFiles::in_directory(directory, key)?.objects();
/// let receipt = objects.put(&json!({ "cents": 900 }))?;
/// assert_eq!(objects.get(&receipt)?, json!({ "cents": 900 }));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Objects {
    pub(crate) disk: Arc<Disk>,
}

/// The objects of a run, followed from its ref (R196).
#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    /// The execution snapshot that the ref names.
    pub snapshot: Value,
    /// The state at that time.
    pub state: Value,
    /// Each receipt with its result, in order.
    pub receipts: Vec<(Value, Value)>,
}

impl Objects {
    /// Writes a value, and returns the hash under which it is found.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn put(&self, value: &Value) -> Result<Digest, FilesError> {
        let text = canonical_json(value);
        let hash = Digest::of(&text);
        self.write(&object_file(&hash), text.as_bytes())?;
        Ok(hash)
    }

    /// Reads a value.
    ///
    /// # Errors
    ///
    /// If there is no value with that hash, its bytes do not have the hash, or it cannot be read.
    pub fn get(&self, hash: &Digest) -> Result<Value, FilesError> {
        let file = object_file(hash);
        let bytes = self.read(&file, hash)?;
        serde_json::from_slice(&bytes)
            .map_err(|error| FilesError::Unreadable { path: self.disk.path(&file), reason: error.to_string() })
    }

    /// Writes bytes unchanged, and returns the hash under which they are found.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn put_blob(&self, bytes: &[u8]) -> Result<Digest, FilesError> {
        let hash = Digest::of(bytes);
        self.write(&blob_file(&hash), bytes)?;
        Ok(hash)
    }

    /// Reads bytes as they were written.
    ///
    /// # Errors
    ///
    /// As for [`Objects::get`].
    pub fn blob(&self, hash: &Digest) -> Result<Vec<u8>, FilesError> {
        self.read(&blob_file(hash), hash)
    }

    /// Returns the execution snapshot that a run's ref names; `None` if the run has no ref (R195).
    ///
    /// # Errors
    ///
    /// If the ref cannot be read.
    pub fn reference(&self, run: &RunId) -> Result<Option<Digest>, FilesError> {
        let file = ref_file(run);
        let Some(bytes) = self.disk.read(&file)? else { return Ok(None) };
        let unreadable = |reason: String| FilesError::Unreadable { path: self.disk.path(&file), reason };
        let value: Value = serde_json::from_slice(&bytes).map_err(|error| unreadable(error.to_string()))?;
        let hash = value.get("hash").and_then(Value::as_str).unwrap_or_default();
        hash.parse().map(Some).map_err(|error: graph_model::digest::NotADigest| unreadable(error.to_string()))
    }

    /// Follows a run's ref to its state and to every receipt and result (R196); `None` if the run has no ref.
    ///
    /// # Errors
    ///
    /// If any of them is missing or altered.
    pub fn trace(&self, run: &RunId) -> Result<Option<Trace>, FilesError> {
        let Some(hash) = self.reference(run)? else { return Ok(None) };
        let snapshot = self.get(&hash)?;
        let state = self.linked(&hash, snapshot.get("state_hash"))?;
        let receipts = snapshot.get("node_receipts").and_then(Value::as_array).into_iter().flatten();
        let receipts = receipts.map(|receipt| {
            let receipt = self.linked(&hash, Some(receipt))?;
            let result = self.linked(&hash, receipt.get("node_result_hash"))?;
            Ok((receipt, result))
        });
        let receipts = receipts.collect::<Result<_, FilesError>>()?;
        Ok(Some(Trace { snapshot, state, receipts }))
    }

    fn linked(&self, from: &Digest, to: Option<&Value>) -> Result<Value, FilesError> {
        match to.and_then(Value::as_str).map(str::parse) {
            Some(Ok(hash)) => self.get(&hash),
            _ => {
                let (path, reason) =
                    (self.disk.path(&object_file(from)), "it names no object where it must".to_owned());
                Err(FilesError::Unreadable { path, reason })
            }
        }
    }

    pub(crate) fn put_object(&self, object: &Object) -> Result<(), FilesError> {
        self.write(&object_file(&object.hash), object.text.as_bytes())
    }

    /// Sets a run's ref to a snapshot.
    pub(crate) fn refer(&self, run: &RunId, hash: &Digest) -> Result<(), FilesError> {
        self.disk.replace(&ref_file(run), format!("{{\"hash\": \"{hash}\"}}").as_bytes())
    }

    /// Writes a file once. A file that exists and was altered is corrected.
    fn write(&self, file: &str, bytes: &[u8]) -> Result<(), FilesError> {
        match self.disk.read(file) {
            Ok(Some(there)) if there == bytes => Ok(()),
            _ => self.disk.replace(file, bytes),
        }
    }

    fn read(&self, file: &str, hash: &Digest) -> Result<Vec<u8>, FilesError> {
        let path = || self.disk.path(file);
        let bytes = self.disk.read(file)?.ok_or_else(|| FilesError::Missing { path: path() })?;
        let found = Digest::of(&bytes);
        if found == *hash { Ok(bytes) } else { Err(FilesError::Altered { path: path(), found }) }
    }
}

fn object_file(hash: &Digest) -> String {
    let hex = hash.to_hex();
    format!("{ROOT}/objects/{}/{}/{hex}.json", &hex[..2], &hex[2..4])
}

fn blob_file(hash: &Digest) -> String {
    let hex = hash.to_hex();
    format!("{ROOT}/blobs/{}/{}/{hex}", &hex[..2], &hex[2..4])
}

fn ref_file(run: &RunId) -> String {
    format!("{ROOT}/refs/graphs/{run}.json")
}
