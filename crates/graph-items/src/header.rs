//! The header of a page of knowledge: YAML between `---`, or in a code block at the start of the page.

use serde_json::{Map, Value};

use super::yaml::{YamlError, mapping};

/// The header of a page.
pub(super) struct PageHeader<'t> {
    text: &'t str,
    /// Whether the page's signature covers it. By the format, it does not cover a header between `---` (R30).
    pub(super) signed: bool,
}

impl<'t> PageHeader<'t> {
    /// Finds the header of `content`, the text below the signature line; it is empty if there is no header.
    ///
    /// The signed part begins where a header between `---` ends, so that the page consists of the header and the signed part.
    pub(super) fn of(content: &'t str) -> Self {
        match content.strip_prefix("---").and_then(|rest| rest.split_once("---")) {
            Some((text, _)) => Self { text, signed: false },
            None => Self { text: fenced(content).unwrap_or_default(), signed: true },
        }
    }

    /// Reads it.
    ///
    /// # Errors
    ///
    /// If it is not a YAML mapping.
    pub(super) fn read(&self) -> Result<Map<String, Value>, YamlError> {
        mapping(self.text)
    }
}

/// Returns the text of the YAML code block at the start of `content`.
fn fenced(content: &str) -> Option<&str> {
    let (open, block) = content.trim_start().split_once('\n')?;
    if open.trim_end() != "```yaml" {
        return None;
    }
    let mut length = 0;
    for line in block.split_inclusive('\n') {
        if line.trim_end() == "```" {
            return Some(&block[..length]);
        }
        length += line.len();
    }
    None
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(content: &str) -> (Value, bool) {
        let header = PageHeader::of(content);
        (Value::Object(header.read().unwrap()), header.signed)
    }

    #[test]
    fn both_forms_are_read_and_only_the_code_block_is_signed() {
        assert_eq!(read("---\ntitle: A\n---\n\nbody\n"), (json!({"title": "A"}), false));
        assert_eq!(read("```yaml\ntitle: A\n```\n\nbody\n"), (json!({"title": "A"}), true));
    }

    #[test]
    fn a_page_without_header_has_no_metadata() {
        for content in
            ["", "body\n", "# Title\n```yaml\ntitle: A\n```\n", "```yaml\nnever: closed\n", "---\nnever closed\n"]
        {
            assert_eq!(read(content), (json!({}), true), "{content:?}");
        }
    }
}
