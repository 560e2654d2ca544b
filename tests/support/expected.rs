//! The diagnostics that the comments of a fixture expect.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use graph_compiler::diagnostic::Diagnostic;
use graph_compiler::project::Compilation;

/// An expected diagnostic.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Expected {
    pub(crate) file: String,
    /// Line and column from 1, as in the fixture; `None` for the file as a whole.
    pub(crate) place: Option<(usize, usize)>,
    /// The severity and the code, such as `error[G0102]`.
    pub(crate) title: String,
    pub(crate) message: String,
    /// Texts that its help or notes must contain.
    pub(crate) hints: Vec<String>,
}

impl Expected {
    /// Reads the comments of a file.
    pub(crate) fn read(file: &str, text: &str) -> Vec<Self> {
        let (mut all, mut about): (Vec<Self>, usize) = (Vec::new(), 0);
        for (number, line) in (1..).zip(text.lines()) {
            let comment = line.strip_prefix('#').unwrap_or_default();
            let words = comment.trim_start();
            let column = match comment.chars().next() {
                Some('<') => 1,
                _ => 2 + comment.chars().take_while(|&character| character == ' ').count(),
            };
            let hint = words.strip_prefix("help: ").or_else(|| words.strip_prefix("note: "));
            let whole = words.strip_prefix("file: ");
            let expected = whole.unwrap_or_else(|| words.trim_start_matches(['<', '^']).trim_start());
            let is_marked = whole.is_some() || words.starts_with(['<', '^']);
            if let (Some(hint), Some(last)) = (hint, all.last_mut()) {
                last.hints.push(hint.to_owned());
            } else if is_marked {
                let (title, message) =
                    expected.split_once(": ").ok_or_else(|| format!("{file}:{number}: {line}")).unwrap();
                all.push(Self {
                    file: file.to_owned(),
                    place: whole.is_none().then_some((about, column)),
                    title: title.to_owned(),
                    message: message.to_owned(),
                    hints: Vec::new(),
                });
            } else {
                about = number;
            }
        }
        all
    }

    fn is_met_by(&self, found: &Diagnostic) -> bool {
        let said: Vec<&String> = found.notes.iter().chain(&found.help).collect();
        self.file == found.place.source.name.trim_start_matches("graphs/")
            && self.place == place(found)
            && self.title == format!("{}[{}]", found.severity.name(), found.code.id)
            && found.message.contains(&self.message)
            && self.hints.iter().all(|hint| said.iter().any(|text| text.contains(hint)))
    }
}

/// Returns the place of a diagnostic in the fixture, which has no signature line.
fn place(diagnostic: &Diagnostic) -> Option<(usize, usize)> {
    diagnostic.place.position().filter(|&(line, _)| line > 1).map(|(line, column)| (line - 1, column))
}

/// Returns the YAML files below a directory, in order.
pub(crate) fn yaml_files(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(yaml_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "yaml") {
            files.push(path);
        }
    }
    files.sort();
    files
}

/// Describes the differences in words for people; an empty text without differences.
pub(crate) fn difference(mut expected: Vec<Expected>, compilation: &Compilation) -> String {
    let mut text = String::new();
    for found in &compilation.diagnostics {
        match expected.iter().position(|expected| expected.is_met_by(found)) {
            Some(at) => {
                expected.remove(at);
            }
            None => write!(text, "not expected:\n{}\n\n", found.render()).unwrap(),
        }
    }
    for Expected { file, place, title, message, hints } in expected {
        let place = place.map_or_else(String::new, |(line, column)| format!(":{line}:{column}"));
        writeln!(text, "missing:\n{title}: {message}\n --> {file}{place}, {hints:?}\n").unwrap();
    }
    if compilation.graph.is_some() == compilation.diagnostics.iter().any(|found| found.severity.name() == "error") {
        text += "a graph comes if, and only if, there is no error\n";
    }
    text
}
