//! `docs/errors.md` agrees with the table of codes. `UPDATE_DOCS=1` writes the page again.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use graph_compiler::code::ALL;

fn page() -> String {
    let mut page = String::from(
        "# Errors\n\n\
         This page explains each error and warning of the compiler by its code: the mistake, and how to correct it.\n\
         `graph check FILE` reports the same errors as a build, and `graph explain CODE` prints the text of one code. The page\n\
         is generated from the table in `crates/graph-definition/src/code.rs`.\n",
    );
    for code in ALL {
        write!(page, "\n## {}: {}\n\n{}\n", code.id, code.title, code.text(120)).unwrap();
    }
    page
}

#[test]
fn the_page_of_errors_is_the_table_of_codes() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/errors.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, page()).unwrap();
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(found, page(), "run with UPDATE_DOCS=1 to write {} again", path.display());
}

#[test]
fn each_explanation_is_a_text_of_sentences() {
    for code in ALL {
        assert!(!code.title.ends_with('.') && !code.title.is_empty(), "{}: {}", code.id, code.title);
        assert!(code.explanation.ends_with('.'), "{}: {}", code.id, code.explanation);
        assert!(!code.explanation.contains("  "), "{}: {}", code.id, code.explanation);
    }
}
