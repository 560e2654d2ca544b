//! The answers of one tool, in a file of their own.

use std::path::Path;

use graph_compiler::diagnostic::{Diagnostic, Diagnostics};
use graph_compiler::source::SourceFile;
use graph_compiler::tree;

use crate::check::{TestNames, check_script};
use crate::file::{PlacedValue, ToolScript, about_tests, answers};
use crate::script::ScriptedAnswer;

/// Reads the answers of a tool from a file: a list of them, as in a file of tests, in YAML or JSON. `name` is how messages name the
/// file.
///
/// # Errors
///
/// All mistakes in it, and the results that do not fit the contract of the tool.
pub fn read_answers(
    path: &Path,
    name: &str,
    tool: &str,
    names: &TestNames,
) -> Result<Vec<ScriptedAnswer>, Vec<Diagnostic>> {
    let source = SourceFile::read(path, name).map_err(|problem| vec![about_tests(*problem)])?;
    let mut diagnostics = Diagnostics::new();
    let yaml = tree::parse(&source, &mut diagnostics);
    if let Some(yaml) = &yaml {
        diagnostics.extend(tree::read_again(&source, yaml));
    }
    let answers = yaml.map(|yaml| answers(&source, &yaml.root, &mut diagnostics)).unwrap_or_default();
    if diagnostics.has_errors() {
        return Err(diagnostics.in_order(name).into_iter().map(about_tests).collect());
    }
    let script = ToolScript { tool: PlacedValue::new(tool.to_owned(), 0..0), answers, is_shared: false };
    check_script(&source, &script, names)?;
    Ok(script.answers.into_iter().map(|placed| placed.answer).collect())
}
