//! Helpers that several of these tests share.

use std::sync::atomic::{AtomicU64, Ordering};

use graph_runtime::record::SignedRecord;
use graph_runtime::testing::{FaultyStore, StoreFault};
use graph_runtime::{Builder, EncryptionKey, MemoryStore, RunId, Runtime, SecretKey, Store, Value};

/// The key that signs the journals.
pub(crate) const KEY: [u8; 32] = [1; 32];

pub(crate) fn id(name: &str) -> RunId {
    RunId::new(name).unwrap()
}

/// A runtime with a store, which grants everything.
pub(crate) fn runtime(store: impl Store) -> Runtime {
    builder(store).build().unwrap()
}

/// A builder of such a runtime.
pub(crate) fn builder(store: impl Store) -> Builder {
    let builder = Runtime::builder().store(store).sign_with(SecretKey::from_seed(&KEY)).grant("*").unwrap();
    builder.encrypt_with(encryption_key())
}

/// The store of a process that makes some appends, and whose later ones all fail: before they are durable, or `written` all the same.
pub(crate) fn failing(disk: &MemoryStore, appends: u64, written: bool) -> FaultyStore {
    let left = AtomicU64::new(appends);
    FaultyStore::new(disk.clone(), move |write| {
        let fails = !write.creates
            && left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_err();
        fails.then_some(StoreFault::Fails { written })
    })
}

/// The key that encrypts the secrets of runs.
pub(crate) fn encryption_key() -> EncryptionKey {
    EncryptionKey::from_bytes([7; 32])
}

/// Returns the kinds of some records.
pub(crate) fn kinds(records: &[SignedRecord]) -> Vec<String> {
    let kind = |signed: &SignedRecord| {
        serde_json::from_str::<Value>(&signed.body).unwrap()["kind"].as_str().unwrap().to_owned()
    };
    records.iter().map(kind).collect()
}
