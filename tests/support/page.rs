//! The pages, and their fenced blocks.

use std::fs;
use std::path::{Path, PathBuf};

/// A fenced block of a page.
pub(crate) struct Block {
    /// The page and the line of the fence.
    pub(crate) place: String,
    pub(crate) language: String,
    /// The comments between the block before and this one, as `from: PATH`, each on a line of its own.
    pub(crate) comments: Vec<String>,
    /// Its lines, without the indentation of its fence.
    pub(crate) text: String,
}

/// Returns the pages of a repository: their names below it, and their texts.
pub(crate) fn pages(repository: &Path) -> Vec<(String, String)> {
    let docs = fs::read_dir(repository.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let mut pages: Vec<PathBuf> = docs.filter(|path| path.extension().is_some_and(|it| it == "md")).collect();
    pages.extend(["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"].map(|name| repository.join(name)));
    pages.sort();
    let name = |path: &Path| path.strip_prefix(repository).unwrap().display().to_string();
    pages.iter().map(|path| (name(path), fs::read_to_string(path).unwrap())).collect()
}

/// Returns the blocks of a page, in order.
pub(crate) fn blocks(name: &str, page: &str) -> Vec<Block> {
    let (mut blocks, mut comments) = (Vec::new(), Vec::new());
    let mut lines = (1..).zip(page.lines());
    while let Some((number, line)) = lines.next() {
        let indent = line.len() - line.trim_start().len();
        let line = line.trim();
        let fence: String = line.chars().take_while(|character| *character == '`').collect();
        if fence.len() >= 3 {
            let block = lines.by_ref().map(|(_, line)| line).take_while(|line| line.trim() != fence);
            let text = block.map(|line| format!("{}\n", line.get(indent..).unwrap_or_default())).collect();
            let language = line[fence.len()..].trim().to_owned();
            let comments = std::mem::take(&mut comments);
            blocks.push(Block { place: format!("{name}:{number}"), language, comments, text });
        } else {
            let comment = line.strip_prefix("<!-- ").and_then(|comment| comment.strip_suffix(" -->"));
            comments.extend(comment.map(str::to_owned));
        }
    }
    blocks
}
