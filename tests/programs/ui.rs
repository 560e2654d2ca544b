//! The messages of rustc for a graph, and for a program that does not fit its graph.
//!
//! `TRYBUILD=overwrite` writes the expectations again, `SIGN_FIXTURES=1` the graphs' signatures.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::{key_file, sign};

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ui/graphs")
}

/// Returns the name and the text of each fixture, with the right signatures.
///
/// The key is that of [`crate::support::key`]. Nothing else trusts it, so its secret half may be in a test.
fn signed() -> Vec<(String, String)> {
    let read = |name: &str| fs::read_to_string(fixtures().join(name)).unwrap();
    let mut files: Vec<(String, String)> = [
        "order.yaml",
        "ping.yaml",
        "pong.yaml",
        "sale.yaml",
        "seller.yaml",
        "three_mistakes.yaml",
        "unknown_target.yaml",
        "tools/shop/charge_card.yaml",
    ]
    .map(|name| (name.to_owned(), sign(&read(name))))
    .into();
    let tampered = files[0].1.replace("price_cents: 100", "price_cents: 900");
    files.push(("tampered.yaml".to_owned(), tampered));
    files.push(("unsigned.yaml".to_owned(), read("unsigned.yaml")));
    files.push(key_file());
    files
}

#[test]
fn the_fixtures_are_signed_as_their_names_say() {
    for (name, text) in signed() {
        let path = fixtures().join(&name);
        if std::env::var_os("SIGN_FIXTURES").is_some() {
            fs::write(&path, &text).unwrap();
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), text, "{name}: run with SIGN_FIXTURES=1 to sign it");
    }
}

#[test]
fn mistakes_are_shown_where_they_are() {
    // The package that trybuild compiles is in the target directory, and `graph!` looks for graphs in its own package.
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let package = target.join("tests/trybuild").join(env!("CARGO_PKG_NAME"));
    for (name, text) in signed() {
        let path = package.join("graphs").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let cases = trybuild::TestCases::new();
    // With one case that must compile, all dependencies would be built and not only checked.
    cases.compile_fail("tests/ui/*.rs");
}
