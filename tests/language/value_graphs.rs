//! The compiled graphs of `tests/engines/values` are those that its schemas make.
//!
//! The test is not in the target `engines`, because it must compile while a graph is changed and not signed yet.
//! `SIGN_FIXTURES=1` writes them, signed with the demo key.

#[path = "../engines/values/schema.rs"]
mod schema;

use std::fs;
use std::path::Path;
use std::time::SystemTime;

use graph_signing::{ItemKind, SecretKey, sign};

#[test]
fn value_graphs_have_fields_of_every_kind() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (name, text) in schema::files(&schema::every()) {
        let path = root.join("tests/engines/values").join(name);
        if std::env::var_os("SIGN_FIXTURES").is_some() {
            let pem = fs::read_to_string(root.join("graphs/keys/demo/private_key.pem")).unwrap();
            let secret = SecretKey::from_pem(&pem).unwrap();
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, sign(ItemKind::YAML, &text, &secret, SystemTime::now()).unwrap()).unwrap();
        }
        let found = fs::read_to_string(&path).unwrap();
        let body = found.split_once('\n').map(|(_, body)| body);
        assert_eq!(body, Some(&*text), "{name} is another one: SIGN_FIXTURES=1 writes it");
    }
}
