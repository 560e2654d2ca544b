//! Texts that are read as commands of bash: of `eval`, of `bash -c`, of scripts.

use std::ops::Range;
use std::rc::Rc;

use super::files::is_stdin;
use super::{CommandFollower, JoinOrigins, MAX_NESTING, Tainted, leads_errors};
use crate::parse::{self, CommandList, ShellWord, WordPart};
use crate::{How, ValueOrigin};

impl CommandFollower {
    /// Follows code in a text of the command; returns what it prints.
    pub(super) fn nested(&mut self, text: &str, range: &Range<usize>, input: Option<&ValueOrigin>) -> Tainted {
        self.work.scan(4 * text.len());
        if !self.work.begin() {
            return None;
        }
        let is_given = !self.variables.is_empty() || self.positional.is_some() || input.is_some();
        match parse::parse(text) {
            Ok(_) if self.nesting >= MAX_NESTING && is_given => {
                self.report(&ValueOrigin::Anything, How::Unreadable, range);
                None
            }
            Ok(list) if self.nesting < MAX_NESTING => {
                let outer = self.within.clone();
                self.within.get_or_insert_with(|| range.clone());
                self.nesting += 1;
                self.gather_constants(&list);
                self.reads_errors |= leads_errors(text);
                // As a rule, another process executes it, which has no arrays of this one.
                let declared = std::mem::take(&mut self.associative);
                let printed = self.list(&list, input);
                self.associative = declared;
                self.nesting -= 1;
                self.within = outer;
                printed
            }
            Ok(_) => None,
            Err(_) if is_given => {
                self.report(&ValueOrigin::Anything, How::Unreadable, range);
                None
            }
            Err(_) => None,
        }
    }

    /// Judges a word that names a file of code.
    pub(super) fn script(&mut self, word: &ShellWord, input: Option<&ValueOrigin>, reader: &str) {
        let tainted = self.peek(word);
        self.report_if(&tainted, || How::Code(reader.to_owned()), &word.range);
        let is_device = |start: &str| start.starts_with("/proc/") || start.starts_with("/dev/");
        let is_own = self.text(word).map_or_else(|| is_device(word.beginning()), |name| is_stdin(&name));
        let written = self.executed(word).join(if is_own { input.cloned() } else { None });
        self.report_if(&written, || How::Code(reader.to_owned()), &word.range);
        if is_own && written.real().is_none() {
            self.unread(reader, &word.range);
        }
        if let Some(path) = self.text(word) {
            self.in_foreign_directory(&path, &word.range);
        }
        self.own_scripts(word, reader);
        for part in &word.parts {
            if let WordPart::Process { list, .. } = part {
                self.process(list, reader, &word.range);
            }
        }
    }

    /// Judges a script that the command itself writes: it may read a variable.
    pub(super) fn own_scripts(&mut self, word: &ShellWord, reader: &str) {
        if self.scripts.is_empty() || self.nesting >= MAX_NESTING {
            return;
        }
        let base = self.path(word).map(|path| path.rsplit('/').next().unwrap_or_default().to_owned());
        let base = base.filter(|base| !self.moves || self.scripts.contains_key(base));
        let found: Vec<_> = match base {
            Some(base) => self.scripts.get(&base).cloned().into_iter().flatten().collect(),
            None => self.scripts.values().flatten().cloned().collect(),
        };
        for script in found {
            match script {
                Some((text, start, end)) => drop(self.nested(&text, &(start..end), None)),
                None => {
                    let held = self.environment();
                    self.report_if(&held, || How::Code(reader.to_owned()), &word.range);
                }
            }
        }
    }

    /// Judges code that a shell reads from a process.
    pub(super) fn process(&mut self, list: &CommandList, reader: &str, range: &Range<usize>) {
        let outer = (self.here.take(), std::mem::take(&mut self.is_file));
        if let [pipeline] = list.as_slice()
            && let [command] = pipeline.as_slice()
        {
            self.here = self.literal_output(command).map(Rc::new);
        }
        self.unread(reader, range);
        (self.here, self.is_file) = outer;
    }

    /// Judges code that a shell reads and that has no untrusted value in it: it may read a variable. Returns what it prints.
    pub(super) fn unread(&mut self, reader: &str, range: &Range<usize>) -> Tainted {
        if let Some(here) = self.here.take() {
            return self.nested(&here.0, &here.1, None);
        }
        if !self.is_file {
            let held = self.environment();
            self.report_if(&held, || How::Code(reader.to_owned()), range);
        }
        None
    }
}
