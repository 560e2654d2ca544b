//! In a file with very many mistakes, 100 are shown and the others are counted.
//!
//! The test is short by default. `FLOODS=1 cargo test --release --test language many_mistakes` uses files of the
//! largest allowed size. `cargo bench --bench floods` measures the time and the memory.

use crate::floods::{Flood, floods};
use crate::tree::Tree;
use graph_compiler::diagnostic::MOST_SHOWN;

/// Checks an unsigned file, as for a pull request. Returns the number of mistakes that are shown, and the number of all
/// mistakes.
fn check(text: &str) -> (usize, usize) {
    let tree = Tree::new();
    tree.write("g.yaml", text);
    let diagnostics = tree.project().for_review().review(&tree.path("g.yaml")).diagnostics;
    let shown = diagnostics.iter().filter(|one| one.stands_for == 1 && one.code.id != "G0029").count();
    (shown, diagnostics.iter().map(|one| one.stands_for).sum())
}

#[test]
fn a_file_with_many_mistakes_shows_a_hundred() {
    let is_long = std::env::var_os("FLOODS").is_some_and(|value| !value.is_empty());
    for Flood { name, most, text, mistakes } in floods() {
        let n = if is_long { most } else { most.min(250) };
        let (shown, all) = check(&text(n));
        assert!(shown <= MOST_SHOWN, "{name}: {shown}");
        if let Some(mistakes) = mistakes {
            // The missing signature is one more mistake.
            assert_eq!(all, mistakes(n) + 1, "{name}");
            assert_eq!(shown, all.min(MOST_SHOWN), "{name}");
        }
    }
}
