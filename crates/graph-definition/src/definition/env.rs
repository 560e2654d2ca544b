//! The environment variables that a graph and its nodes require.

use super::reader::DefinitionReader;
use crate::diagnostic::{SourcePlace, code};
use crate::hash::HashSet;
use crate::tree::YamlTree;

/// Environment variables, each once, in the order in which they occur.
#[derive(Default)]
pub(super) struct RequiredEnv {
    pub(super) names: Vec<String>,
    known: HashSet<String>,
}

impl RequiredEnv {
    /// Reads a list of names, or one name (R281). Returns those that are new.
    pub(super) fn read(&mut self, reader: &mut DefinitionReader<'_>, tree: &YamlTree) -> Vec<String> {
        let before = self.names.len();
        let items = reader.one_or_list(tree, "`env_requires`", "a name or a list of names");
        reader.note_repeated("`env_requires`", items);
        for item in items {
            let Some(name) = reader.text(item, "an environment variable's name") else { continue };
            let is_odd = |character: char| {
                matches!(character, '=' | '$' | '{' | '}') || character.is_whitespace() || character.is_control()
            };
            if name.value.is_empty() || name.value.contains(is_odd) {
                let place = SourcePlace::new(reader.source, name.span);
                let message = format!("`{}` cannot be an environment variable's name", name.value);
                reader
                    .diagnostics
                    .error(code::BAD_NAME, place, message)
                    .help("write the name alone, as `HOME`: without `$`, braces, `=` and blanks");
            } else if self.known.insert(name.value.clone()) {
                self.names.push(name.value);
            }
        }
        self.names[before..].to_vec()
    }
}
