//! Reads any text as a tool's contract that a trusted key signed.

#![no_main]

use std::sync::LazyLock;
use std::time::SystemTime;

use graph_compiler::definition::parse_contract;
use graph_compiler::diagnostic::Diagnostics;
use graph_compiler::source::SourceFile;
use graph_compiler::verify::verify;
use graph_model::name::ItemId;
use graph_signing::{ItemKind, KeyFile, KeyRing, SecretKey, sign};
use libfuzzer_sys::fuzz_target;

/// The key that signs every input, and a ring that trusts it.
static KEY: LazyLock<(SecretKey, KeyRing)> = LazyLock::new(|| {
    let key = SecretKey::from_seed(&[9; 32]);
    let keys = tempfile::tempdir().expect("there is a temporary directory");
    let file = KeyFile::new(key.public(), "the key of the fuzzer");
    std::fs::write(
        keys.path().join(format!("{}.toml", file.fingerprint)),
        file.to_signed_toml(&key, SystemTime::UNIX_EPOCH),
    )
    .expect("the file can be written");
    let (ring, ..) = KeyRing::load(&[keys.path()]);
    (key, ring)
});

fuzz_target!(|text: &str| {
    let (key, ring) = &*KEY;
    let Ok(text) = sign(ItemKind::YAML, text, key, SystemTime::UNIX_EPOCH) else { return };
    let source = SourceFile::new("graphs/tools/own/tool.yaml", "graphs/tools/own/tool.yaml", &text);
    let Ok(verified) = verify(&source, ring) else { return };
    let id = ItemId::new("own/tool").expect("this is an id");
    parse_contract(&verified, &id, &mut Diagnostics::new());
});
