//! `docs/errors.md` says what the table of codes says. `UPDATE_DOCS=1` writes it anew.

#![expect(clippy::unwrap_used, reason = "what fails in a test is its answer")]

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use graph_compiler::code::ALL;

fn page() -> String {
    let mut page = String::from(
        "# Errors\n\n\
         What the compiler reports, by code: what it means and how to mend it. `graph check FILE` shows the same errors as\n\
         a build does. This page is written from the table in `graph-compiler/src/code.rs`.\n",
    );
    for code in ALL {
        write!(page, "\n## {}: {}\n\n{}\n", code.id, code.title, wrapped(code.explanation, 120)).unwrap();
        if let Some(level) = code.lint {
            write!(page, "\nA lint: `{}` where nothing else is set.\n", level.name()).unwrap();
        }
    }
    page
}

/// Breaks a text into lines.
fn wrapped(text: &str, width: usize) -> String {
    let (mut lines, mut line) = (Vec::new(), String::new());
    for word in text.split(' ') {
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > width {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push(line);
    lines.join("\n")
}

#[test]
fn the_page_of_errors_is_the_table_of_codes() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/errors.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, page()).unwrap();
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(found, page(), "run with UPDATE_DOCS=1 to write {} anew", path.display());
}

#[test]
fn each_explanation_is_a_text_of_sentences() {
    for code in ALL {
        assert!(!code.title.ends_with('.') && !code.title.is_empty(), "{}: {}", code.id, code.title);
        assert!(code.explanation.ends_with('.'), "{}: {}", code.id, code.explanation);
        assert!(!code.explanation.contains("  "), "{}: {}", code.id, code.explanation);
    }
}
