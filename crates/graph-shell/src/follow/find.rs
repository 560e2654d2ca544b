//! The programs that `find` starts: the names of the files that it finds, or their contents, may be untrusted.

use super::starters::{INPUT, input_placeholder};
use super::words::is_several;
use super::{CommandFollower, JoinOrigins as _, Tainted};
use crate::parse::{ShellWord, WordPart};
use crate::{How, ValueOrigin};

/// Primaries that take an argument.
const TAKES: [&str; 34] = [
    "-name",
    "-iname",
    "-path",
    "-ipath",
    "-wholename",
    "-iwholename",
    "-regex",
    "-iregex",
    "-regextype",
    "-type",
    "-xtype",
    "-size",
    "-mtime",
    "-mmin",
    "-atime",
    "-amin",
    "-ctime",
    "-cmin",
    "-used",
    "-user",
    "-group",
    "-uid",
    "-gid",
    "-perm",
    "-maxdepth",
    "-mindepth",
    "-samefile",
    "-links",
    "-inum",
    "-lname",
    "-ilname",
    "-fstype",
    "-context",
    "-printf",
];

impl CommandFollower {
    /// Judges `find`; returns the output of the programs that it starts.
    pub(super) fn find(
        &mut self,
        words: &[ShellWord],
        texts: &[Option<String>],
        input: Option<&ValueOrigin>,
    ) -> Tainted {
        let (range, arguments) = (words[0].range.clone(), &words[1..]);
        let given = self.any(arguments).real();
        let found = given.clone().join(self.created.clone()).join(self.files.any());
        let (mut printed, mut is_expression, mut starts, mut at) = (None, false, 0, 0);
        while let Some(word) = arguments.get(at) {
            let text = texts[at].as_deref().unwrap_or_default();
            if matches!(text, "-exec" | "-execdir" | "-ok" | "-okdir") {
                if text.ends_with("dir") {
                    self.enter(&given);
                }
                let rest = at + 1..arguments.len();
                let end = rest.clone().find(|at| matches!(texts[*at].as_deref(), Some(";" | "+"))).unwrap_or(rest.end);
                let started = self.started_by_find(&arguments[at + 1..end], &texts[at + 1..end], found.as_ref(), input);
                printed = printed.join(started);
                (at, is_expression) = (end + 1, true);
                continue;
            }
            let tainted = self.peek(word).real();
            let is_braced = word.expands
                && word.parts.iter().any(|part| matches!(part, WordPart::Text(text) if text.contains('{')));
            if is_braced {
                self.report_if(&given, || How::Unknown, &word.range);
            } else if tainted.is_some() && word.beginning().is_empty() {
                starts += 1;
                if is_expression || is_several(word) {
                    self.report_if(&tainted, || How::Option("find".to_owned()), &word.range);
                }
            }
            is_expression |= text.starts_with(['-', '(', '!']);
            let takes = TAKES.contains(&text) || text.starts_with("-newer");
            let is_argument = arguments.get(at + 1).is_some_and(|next| !is_several(next));
            at += if takes && is_argument { 2 } else { 1 };
        }
        // Several values may be `-exec`, a program and its arguments.
        let ends = texts.iter().flatten().any(|text| matches!(text.as_str(), ";" | "+"));
        if starts > 2 || (starts > 1 && ends) {
            self.report_if(&given, || How::Option("find".to_owned()), &range);
        }
        printed
    }

    fn started_by_find(
        &mut self,
        words: &[ShellWord],
        texts: &[Option<String>],
        found: Option<&ValueOrigin>,
        input: Option<&ValueOrigin>,
    ) -> Tainted {
        let Some(origin) = found else { return self.started(words, input) };
        let mut inner = words.to_vec();
        for (word, text) in inner.iter_mut().zip(texts) {
            let Some(text) = text.as_deref().filter(|text| text.contains("{}")) else { continue };
            if text.contains([' ', ';', '$', '(', '"', '\'']) {
                self.report(origin, How::Code("find".to_owned()), &word.range);
            }
            // A path that is found begins with the directory where `find` looks.
            let mut place = input_placeholder(&word.range);
            place.parts.insert(0, WordPart::Text("./".to_owned()));
            *word = place;
        }
        let outer = self.variables.insert(INPUT.to_owned(), origin.clone());
        let printed = self.started(&inner, input);
        match outer {
            Some(outer) => drop(self.variables.insert(INPUT.to_owned(), outer)),
            None => drop(self.variables.remove(INPUT)),
        }
        printed
    }
}
