//! Reading: from a path to text whose bytes are fixed from here on.

use std::fs::{self, File};
use std::io::{self, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use graph_signing::normalise;

use crate::diagnostic::{Diagnostic, DiagnosticCode, SourcePlace, code};

/// A range of bytes in a source's text.
pub type Span = Range<usize>;

/// The most bytes that a graph or contract may have: 4 MiB.
///
/// A graph of a thousand nodes has about 250 KiB; a larger file is no graph, or an attack on the build.
pub const MOST_BYTES: u64 = 4 * 1024 * 1024;

/// A file's text, with LF line ends.
#[derive(Debug, PartialEq, Eq)]
pub struct SourceFile {
    /// Where it was read.
    pub path: PathBuf,
    /// How messages name it: relative, with forward slashes.
    pub name: String,
    /// The text. This is verified, parsed and compiled; the file is not read again.
    pub text: String,
    lines: Vec<usize>,
}

impl SourceFile {
    /// Wraps a text that is already in memory, as an editor or a test has it.
    pub fn new(path: impl Into<PathBuf>, name: impl Into<String>, text: &str) -> Arc<Self> {
        let text = normalise(text).into_owned();
        let lines = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        Arc::new(Self { path: path.into(), name: name.into(), text, lines })
    }

    /// Reads a file.
    ///
    /// # Errors
    ///
    /// If it is missing, a directory, unreadable, empty, larger than [`MOST_BYTES`], or not UTF-8 text.
    pub fn read(path: &Path, name: &str) -> Result<Arc<Self>, Box<Diagnostic>> {
        let problem = |code: DiagnosticCode, message: String, help: Option<&str>| {
            let mut diagnostic = Diagnostic::new(code, message, SourcePlace::file(&Self::new(path, name, "")));
            diagnostic.help = help.map(str::to_owned);
            Box::new(diagnostic)
        };
        let unreadable = |error: &io::Error| {
            let help = match error.kind() {
                io::ErrorKind::NotFound => "the path is relative to the directory of the package's Cargo.toml",
                io::ErrorKind::IsADirectory => {
                    "name a file; a build script's `graph_compiler::build` takes a directory"
                }
                io::ErrorKind::NotADirectory => "a part of the path must be a directory, and is a file",
                _ => "check the file's permissions",
            };
            Self::unreadable(path, name, error, help)
        };
        let too_large = |found: String| {
            let message = format!("`{name}` is too large: {found}, and a graph has at most {MOST_BYTES} bytes");
            problem(code::TOO_LARGE, message, Some("split it into several graphs"))
        };

        // The check comes before the file is opened: a pipe would block the build until somebody writes to it.
        let metadata = fs::metadata(path).map_err(|error| unreadable(&error))?;
        if metadata.is_dir() {
            return Err(unreadable(&io::Error::from(io::ErrorKind::IsADirectory)));
        }
        if !metadata.is_file() {
            let message = format!("cannot read `{name}`: it is a pipe or a device");
            return Err(problem(code::UNREADABLE, message, Some("name a file")));
        }
        if metadata.len() > MOST_BYTES {
            return Err(too_large(format!("{} bytes", metadata.len())));
        }
        let file = File::open(path).map_err(|error| unreadable(&error))?;
        let mut bytes = Vec::new();
        // The length of a growing file is not reliable: stop reading at the limit in any case.
        file.take(MOST_BYTES + 1).read_to_end(&mut bytes).map_err(|error| unreadable(&error))?;
        if bytes.len() as u64 > MOST_BYTES {
            return Err(too_large("it is longer than that".to_owned()));
        }
        let text = String::from_utf8(bytes).map_err(|error| {
            let valid = error.utf8_error().valid_up_to();
            let line = error.as_bytes()[..valid].iter().filter(|&&byte| byte == b'\n').count() + 1;
            let message = format!("`{name}` is not UTF-8 text: byte {valid}, on line {line}, belongs to no character");
            problem(code::NOT_TEXT, message, Some("save the file as UTF-8"))
        })?;
        if text.trim_matches(['\u{feff}', ' ', '\t', '\r', '\n']).is_empty() {
            return Err(problem(code::EMPTY, format!("`{name}` is empty"), Some("write it, then sign it")));
        }
        Ok(Self::new(path, name, &text))
    }

    /// Returns a diagnostic that a file or directory cannot be read, with the reason.
    pub fn unreadable(path: &Path, name: &str, error: &io::Error, help: &str) -> Box<Diagnostic> {
        let is_link = path.symlink_metadata().is_ok_and(|metadata| metadata.is_symlink());
        let (reason, help) = match error.kind() {
            io::ErrorKind::NotFound if is_link => {
                ("it is a link to a file that does not exist".to_owned(), "correct or remove the link")
            }
            _ => (reason(error), help),
        };
        let place = SourcePlace::file(&Self::new(path, name, ""));
        let mut diagnostic = Diagnostic::new(code::UNREADABLE, format!("cannot read `{name}`: {reason}"), place);
        diagnostic.help(help);
        Box::new(diagnostic)
    }

    /// Returns the line and column of a byte, both from 1, columns in characters.
    pub fn position(&self, at: usize) -> (usize, usize) {
        let at = self.text.floor_char_boundary(at.min(self.text.len()));
        let line = self.lines.partition_point(|&start| start <= at);
        let start = self.lines[line - 1];
        (line, self.text[start..at].chars().count() + 1)
    }

    /// Returns where the line with this number, from 1, begins.
    pub fn line_start(&self, line: usize) -> usize {
        self.lines.get(line.saturating_sub(1)).copied().unwrap_or(self.text.len())
    }
}

fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "there is no such file".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        io::ErrorKind::IsADirectory => "it is a directory".to_owned(),
        io::ErrorKind::NotADirectory => "a part of its path is not a directory".to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn read(bytes: &[u8]) -> Result<Arc<SourceFile>, String> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("g.yaml");
        fs::write(&path, bytes).unwrap();
        SourceFile::read(&path, "g.yaml").map_err(|diagnostic| diagnostic.message.clone())
    }

    #[test]
    fn a_file_that_is_not_text_is_refused() {
        assert_eq!(read(b"").unwrap_err(), "`g.yaml` is empty");
        assert_eq!(read(b"\n \t\r\n").unwrap_err(), "`g.yaml` is empty");
        assert_eq!(
            read(b"a: 1\nb: \xff\xfe").unwrap_err(),
            "`g.yaml` is not UTF-8 text: byte 8, on line 2, belongs to no character"
        );
        assert_eq!(
            read(&vec![b'a'; MOST_BYTES as usize + 1]).unwrap_err(),
            "`g.yaml` is too large: 4194305 bytes, and a graph has at most 4194304 bytes"
        );
        let missing = SourceFile::read(Path::new("/nonexistent/g.yaml"), "g.yaml").unwrap_err();
        assert_eq!(missing.message, "cannot read `g.yaml`: there is no such file");
        let directory = SourceFile::read(&std::env::temp_dir(), "g.yaml").unwrap_err();
        assert_eq!(directory.message, "cannot read `g.yaml`: it is a directory");
    }

    #[cfg(unix)]
    #[test]
    fn an_endless_file_is_not_read() {
        let endless = SourceFile::read(Path::new("/dev/zero"), "g.yaml").unwrap_err();
        assert_eq!(endless.message, "cannot read `g.yaml`: it is a pipe or a device");
    }

    #[test]
    fn positions_count_lines_and_characters_from_one() {
        let source = SourceFile::new("g.yaml", "g.yaml", "é: 1\r\nb: 2\n");
        assert_eq!(source.text, "é: 1\nb: 2\n");
        assert_eq!(source.position(0), (1, 1));
        assert_eq!(source.position(2), (1, 2));
        assert_eq!(source.position(source.text.find('b').unwrap()), (2, 1));
        assert_eq!(source.position(1000), (3, 1));
    }
}
