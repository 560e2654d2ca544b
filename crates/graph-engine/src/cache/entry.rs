//! An entry: the result of a call, signed together with the identity of the call.

use graph_model::digest::{Digest, hex, unhex};
use graph_model::value::{Map, Value, canonical_json};
use graph_signing::{Fingerprint, PublicKey, SecretKey};
use serde::{Deserialize, Serialize};

const KIND: &str = "node_cache";
const SCHEMA: u32 = 1;
/// The prefix of every text that is signed, so that the signature is valid for nothing else.
const SIGNED: &str = "state graphs: node cache\n";
/// The beginning of an entry, before the 128 hex digits of its signature.
const BEGINNING: &str = "{\"sig\":\"";
const DIGITS: usize = 128;

/// The result of a call, as a cache keeps it (R298).
///
/// Its text is one JSON object that begins with `sig`: the Ed25519 signature, in hex, of the line `state graphs: node cache`
/// followed by the text without that member. The signature is verified against the text, so the result keeps the order of
/// its fields.
///
/// ```
/// # use graph_engine as graph_runtime;
/// # use graph_runtime::PublicKey;
/// # use graph_runtime::cache::MemoryCache;
/// # fn example(cache: MemoryCache, key: PublicKey) -> Result<(), Box<dyn std::error::Error>> {
/// use graph_runtime::cache::CacheEntry;
///
/// for (name, text) in cache.entries() {
///     let entry = CacheEntry::read(&text, &name, &key)?;
///     println!("`{}` of {}: {}", entry.node, entry.graph, entry.result);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct CacheEntry {
    /// The key that it is kept under.
    pub key: Digest,
    /// The graph's id.
    pub graph: String,
    /// The digest that the graph's signature covers.
    pub digest: Digest,
    /// The node.
    pub node: String,
    /// When it was kept: RFC 3339 in UTC with whole seconds.
    pub cached_at: String,
    /// The result of the call.
    pub result: Value,
}

/// Why an entry is not used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CacheEntryError {
    /// It is not an entry.
    #[error("it cannot be read: {0}")]
    Unreadable(String),
    /// It was changed, or another key signed it.
    #[error("it was not signed with {0}, or changed since")]
    Signature(Fingerprint),
    /// It is the entry of another key that was moved to this place.
    #[error("it is the entry {0}, and was moved")]
    Moved(Digest),
}

#[derive(Serialize, Deserialize)]
struct StoredEntry {
    schema: u32,
    kind: String,
    key: Digest,
    graph_id: String,
    graph_hash: Digest,
    node_name: String,
    cached_at: String,
    /// The digest of the object `node_result`, as the project's objects name it.
    node_result_hash: Digest,
    result: Value,
}

impl CacheEntry {
    /// Reads the entry that was found under a key.
    ///
    /// # Errors
    ///
    /// If the text is not an entry, `signer` did not sign it as it is, or it is the entry of another key.
    pub fn read(text: &str, key: &Digest, signer: &PublicKey) -> Result<Self, CacheEntryError> {
        let unreadable = |reason: &str| CacheEntryError::Unreadable(reason.to_owned());
        let rest = text.strip_prefix(BEGINNING).ok_or_else(|| unreadable("it does not begin with its signature"))?;
        let (digits, rest) = rest.split_at_checked(DIGITS).ok_or_else(|| unreadable("it is cut off"))?;
        let rest = rest.strip_prefix("\",").ok_or_else(|| unreadable("its signature has no end"))?;
        let signature = unhex(digits).ok_or_else(|| unreadable("its signature is not one"))?;
        if !signer.verifies_bytes(format!("{SIGNED}{{{rest}").as_bytes(), &signature) {
            return Err(CacheEntryError::Signature(signer.fingerprint()));
        }
        let form: StoredEntry =
            serde_json::from_str(&format!("{{{rest}")).map_err(|error| unreadable(&error.to_string()))?;
        if form.schema != SCHEMA || form.kind != KIND {
            return Err(unreadable("it is of another form"));
        }
        if form.key != *key {
            return Err(CacheEntryError::Moved(form.key));
        }
        let StoredEntry { graph_id: graph, graph_hash: digest, node_name: node, cached_at, result, .. } = form;
        Ok(Self { key: *key, graph, digest, node, cached_at, result })
    }

    /// Returns the SHA-256 of the object `node_result` that a project's files contain for the result.
    pub fn node_result_hash(&self) -> Digest {
        let fields = [("kind", Value::from("node_result")), ("schema", 1.into()), ("result", self.result.clone())];
        let object: Map<String, Value> = fields.map(|(name, value)| (name.to_owned(), value)).into_iter().collect();
        Digest::of(canonical_json(&Value::Object(object)))
    }

    /// Writes and signs the entry.
    pub fn sign(&self, key: &SecretKey) -> String {
        let form = StoredEntry {
            schema: SCHEMA,
            kind: KIND.to_owned(),
            key: self.key,
            graph_id: self.graph.clone(),
            graph_hash: self.digest,
            node_name: self.node.clone(),
            cached_at: self.cached_at.clone(),
            node_result_hash: self.node_result_hash(),
            result: self.result.clone(),
        };
        let text = serde_json::to_string(&form).expect("an entry has only texts as keys and finite numbers");
        let signature = hex(&key.sign_bytes(format!("{SIGNED}{text}").as_bytes()));
        format!("{BEGINNING}{signature}\",{}", &text[1..])
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entry() -> CacheEntry {
        CacheEntry {
            key: Digest::of("key"),
            graph: "test/graph".to_owned(),
            digest: Digest::of("graph"),
            node: "node".to_owned(),
            cached_at: "2026-03-02T12:00:00Z".to_owned(),
            result: json!({"b": 1.5, "a": "é"}),
        }
    }

    #[test]
    fn a_signed_entry_reads_back_with_its_fields_in_order() {
        let key = SecretKey::from_seed(&[1; 32]);
        let read = CacheEntry::read(&entry().sign(&key), &Digest::of("key"), &key.public()).unwrap();
        assert_eq!(read, entry());
        assert_eq!(read.result.to_string(), entry().result.to_string());
        let as_json: Value = serde_json::from_str(&entry().sign(&key)).unwrap();
        assert_eq!(as_json["node_result_hash"], json!(entry().node_result_hash()));
    }

    #[test]
    fn an_entry_with_any_byte_changed_is_refused() {
        let key = SecretKey::from_seed(&[1; 32]);
        let text = entry().sign(&key);
        for at in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1;
            let Ok(changed) = String::from_utf8(bytes) else { continue };
            assert!(CacheEntry::read(&changed, &Digest::of("key"), &key.public()).is_err(), "{at}");
        }
        for length in 0..text.len() {
            let cut = text.get(..length).unwrap_or_default();
            assert!(CacheEntry::read(cut, &Digest::of("key"), &key.public()).is_err(), "{length}");
        }
    }

    #[test]
    fn a_moved_or_foreign_entry_is_refused() {
        let (key, other) = (SecretKey::from_seed(&[1; 32]), SecretKey::from_seed(&[2; 32]));
        let text = entry().sign(&key);
        let moved = CacheEntry::read(&text, &Digest::of("other"), &key.public());
        assert_eq!(moved, Err(CacheEntryError::Moved(Digest::of("key"))));
        let foreign = CacheEntry::read(&text, &Digest::of("key"), &other.public());
        assert_eq!(foreign, Err(CacheEntryError::Signature(other.public().fingerprint())));
    }
}
