//! Files that values are written to, and that are read or executed.

use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use super::{CommandFollower, JoinOrigins, Tainted, is_real, note};
use crate::parse::{Operation, Redirect, ShellWord, WordPart};
use crate::{How, ValueOrigin};

/// Files that untrusted values were written to, by their names without directory.
#[derive(Default)]
pub(super) struct WrittenFiles(BTreeMap<String, BTreeMap<String, ValueOrigin>>);

impl WrittenFiles {
    /// Notes the value that a file may hold.
    pub(super) fn note(&mut self, path: &str, origin: &ValueOrigin) {
        note(self.0.entry(base(path).to_owned()).or_default(), path, origin);
    }

    /// Returns the value in a file with this name, in any directory.
    pub(super) fn named(&self, name: &str) -> Tainted {
        let held = self.0.get(name)?;
        held.values().find(|origin| is_real(origin)).or_else(|| held.values().next()).cloned()
    }

    /// Returns the value in any file.
    pub(super) fn any(&self) -> Tainted {
        self.values().next().cloned()
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &ValueOrigin> {
        self.0.values().flat_map(BTreeMap::values)
    }
}

/// Returns the name of a file without its directory.
fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

impl CommandFollower {
    /// Follows redirections; returns the input of the command after them.
    pub(super) fn redirects(&mut self, redirects: &[Redirect], input: Tainted) -> Tainted {
        let mut input = input;
        for redirect in redirects {
            match redirect {
                Redirect::From(word) => {
                    let path = self.word(word);
                    self.split(word);
                    self.here = None;
                    let name = self.text(word);
                    let is_own = name.as_deref().is_none_or(is_stdin);
                    let is_process = word.parts.iter().any(|part| matches!(part, WordPart::Process { .. }));
                    self.is_file = !is_own && !is_process;
                    let held = if is_own { input } else { None };
                    input = path.join(held).join(self.contents(word));
                }
                Redirect::Text(word) => {
                    input = self.word(word);
                    self.is_file = false;
                    self.here = self.text(word).map(|text| Rc::new((text, word.range.clone())));
                }
                Redirect::Into(word) => {
                    let path = self.word(word).real();
                    self.created = self.created.take().join(path);
                    self.split(word);
                }
                Redirect::Duplicate(word) => {
                    let tainted = self.word(word);
                    self.split(word);
                    self.report_if(&tainted, || How::Expanded, &word.range);
                }
            }
        }
        input
    }

    /// Notes the files to which a command writes a value that may be untrusted.
    pub(super) fn write(&mut self, redirects: &[Redirect], printed: &Tainted) {
        let Some(origin) = printed else { return };
        let origin = origin.clone();
        for redirect in redirects {
            // For bash, the word of `>&` is a file if it is no number.
            match redirect {
                Redirect::Into(word) => self.written(word, &origin),
                Redirect::Duplicate(word) if !self.text(word).is_some_and(|text| is_descriptor(&text)) => {
                    self.written(word, &origin);
                }
                _ => {}
            }
        }
    }

    /// Notes that a file may hold a value.
    pub(super) fn written(&mut self, word: &ShellWord, origin: &ValueOrigin) {
        match self.path(word) {
            Some(path) if path.starts_with("/dev/") => {}
            Some(path) => self.files.note(&plain_path(&path), origin),
            None => self.scattered = self.scattered.take().join(Some(origin.clone())),
        }
    }

    /// Returns the path that a word names, with marks for the directories that are known not to be chosen by somebody else.
    pub(super) fn path(&self, word: &ShellWord) -> Option<String> {
        let mut path = String::new();
        for part in &word.parts {
            match part {
                WordPart::Variable(variable)
                    if matches!(variable.operation, Operation::Plain)
                        && (matches!(variable.name.as_str(), "PWD" | "HOME" | "TMPDIR")
                            || self.fresh.get(&variable.name) == Some(&true)) =>
                {
                    path.push_str(&format!("/${}", variable.name));
                }
                part => path.push_str(&self.text(&ShellWord { parts: vec![part.clone()], ..ShellWord::default() })?),
            }
        }
        if word.expands { None } else { Some(path) }
    }

    /// Returns the untrusted value that the command may have written to a file.
    pub(super) fn contents(&self, word: &ShellWord) -> Tainted {
        let any = || self.scattered.clone().join(self.files.any());
        if word.parts.iter().any(|part| matches!(part, WordPart::Process { .. })) {
            return None;
        }
        let Some(path) = self.path(word) else { return any() };
        if self.moves && !path.is_empty() {
            return any();
        }
        let same = self.files.named(base(&path));
        same.join(self.scattered.clone().filter(|_| !path.starts_with("/usr/") && !path.starts_with("/bin/")))
    }

    /// Returns the untrusted value in a file that is executed.
    pub(super) fn executed(&self, word: &ShellWord) -> Tainted {
        let touched = self.text(word).and_then(|path| self.touched.get(base(&path)).cloned());
        self.contents(word).join(touched)
    }

    /// Notes a directory in which commands are executed.
    pub(super) fn enter(&mut self, directory: &Tainted) {
        if let Some(origin) = directory.real() {
            for name in ["PWD", "OLDPWD", "DIRSTACK"] {
                note(&mut self.variables, name, &origin);
            }
        }
    }

    /// Judges a file that is executed and whose name begins in the current directory: whoever chooses the directory chooses the file.
    pub(super) fn in_foreign_directory(&mut self, path: &str, range: &Range<usize>) {
        if path.starts_with('/') || path == "-" {
            return;
        }
        let directory = self.variables.get("PWD").cloned();
        self.report_if(&directory, || How::Directory(path.to_owned()), range);
    }

    /// Notes the files among the arguments of a program that may write them.
    pub(super) fn touch(&mut self, texts: &[Option<String>], origin: &ValueOrigin) {
        let is_part = |letter: char| letter.is_alphanumeric() || "._-".contains(letter);
        for name in texts.iter().flatten().flat_map(|text| text.split(|letter| !is_part(letter))) {
            let attached = name.strip_prefix("-o").or_else(|| name.strip_prefix("-O"));
            for name in [Some(name), attached].into_iter().flatten().filter(|name| !name.is_empty()) {
                note(&mut self.touched, name, origin);
            }
        }
    }

    /// Follows the descriptors that `exec` opens, for all later commands.
    pub(super) fn opened(&mut self, redirects: &[Redirect], input: &Tainted) {
        for redirect in redirects {
            match redirect {
                Redirect::Into(word) | Redirect::Duplicate(word) => {
                    if let Some(origin) = self.reach() {
                        self.written(word, &origin);
                    }
                }
                // A text may have code in it that reads a variable.
                Redirect::Text(_) => self.opened = self.opened.take().join(self.reach()),
                Redirect::From(_) => {}
            }
        }
        if redirects.iter().any(|redirect| matches!(redirect, Redirect::From(_) | Redirect::Text(_))) {
            self.opened = self.opened.take().join(input.clone());
        }
    }

    /// Returns the untrusted value that a program may print if a word among its arguments is a file's name.
    pub(super) fn contents_of_operand(&mut self, word: &ShellWord) -> Tainted {
        if word.literal().is_some_and(|text| text.starts_with('-')) {
            return None;
        }
        // `/proc` has the environment of each process.
        if word
            .parts
            .iter()
            .any(|part| matches!(part, WordPart::Text(text) if text.contains("/proc") || text == "environ"))
        {
            return self.reach();
        }
        self.contents(word)
    }
}

/// Returns a path without the `./` that names the same file.
pub(super) fn plain_path(path: &str) -> String {
    path.trim_start_matches("./").to_owned()
}

/// Whether the word of `>&` is a descriptor, and no file.
pub(super) fn is_descriptor(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-')
}

/// Whether a path may lead to a file that is already open.
pub(super) fn is_stdin(path: &str) -> bool {
    let is_other = matches!(path, "/dev/null" | "/dev/zero" | "/dev/full" | "/dev/random" | "/dev/urandom");
    path == "-" || (!is_other && (path.starts_with("/dev/") || path.starts_with("/proc/")))
}
