//! Helpers that several of these tests share.

use graph_runtime::record::SignedRecord;
use graph_runtime::{RunId, Runtime, SecretKey, Store, Value};

/// The key that signs the journals.
pub(crate) const KEY: [u8; 32] = [1; 32];

pub(crate) fn id(name: &str) -> RunId {
    RunId::new(name).unwrap()
}

/// A runtime with a store, which grants everything.
pub(crate) fn runtime(store: impl Store) -> Runtime {
    Runtime::builder().store(store).sign_with(SecretKey::from_seed(&KEY)).grant("*").unwrap().build().unwrap()
}

/// Returns the kinds of some records.
pub(crate) fn kinds(records: &[SignedRecord]) -> Vec<String> {
    let kind = |signed: &SignedRecord| {
        serde_json::from_str::<Value>(&signed.body).unwrap()["kind"].as_str().unwrap().to_owned()
    };
    records.iter().map(kind).collect()
}
