//! Programs that are started.

use super::files::plain_path;
use super::numbers::prints_a_number;
use super::{CommandFollower, JoinOrigins, Tainted};
use crate::parse::ShellWord;
use crate::programs::{self, CARRIERS, COMPOSERS};
use crate::{How, ValueOrigin};

impl CommandFollower {
    /// Judges a program and its arguments; returns what it prints.
    pub(super) fn external(&mut self, words: &[ShellWord], input: Option<&ValueOrigin>) -> Tainted {
        if !self.work.start(words.len()) {
            return None;
        }
        let printed = self.external_inside(words, input);
        self.work.end();
        printed
    }

    fn external_inside(&mut self, words: &[ShellWord], input: Option<&ValueOrigin>) -> Tainted {
        let (first, arguments) = words.split_first()?;
        let tainted_program = self.peek(first);
        self.report_if(&tainted_program, || How::Program, &first.range);
        let Some(path) = self.text(first).filter(|_| !first.expands) else {
            let given = self.any(words).join(input.cloned());
            self.report_if(&given, || How::Unknown, &first.range);
            return given;
        };
        self.program_file(first, &path);
        let name = path.rsplit('/').next().unwrap_or_default();
        let texts: Vec<Option<String>> = arguments.iter().map(|word| self.text(word)).collect();
        let mut printed = self.any(arguments).join(input.cloned());
        // Assignments before the program that this one starts, and those of its options.
        let starter = programs::starter(name);
        if starter.is_some() || CARRIERS.contains(&name) {
            self.assignments_of_env(arguments, starter.is_some());
        }
        if let Some(interpreter) = programs::interpreter(name) {
            let more = self.interpreter(name, interpreter, words, &texts, input);
            printed = printed.join(more);
        }
        if COMPOSERS.contains(&name) {
            self.composed(name, first, arguments, &texts);
        }
        if matches!(name, "ssh" | "autossh" | "sshpass") {
            self.ssh(name, arguments, &texts);
        }
        self.implied_files(name, words, &texts);
        printed = self.listed_and_written(name, arguments, printed);
        for word in arguments {
            printed = printed.join(self.contents_of_operand(word));
        }
        if programs::has_dangerous_options(name, texts.iter().flatten().map(String::as_str)) {
            self.options(name, arguments, &texts);
        }
        if name == "git" {
            self.git(arguments, &texts);
        }
        printed = self.commands_in_options(name, arguments, printed);
        if name == "find" {
            printed = printed.join(self.find(words, &texts, input));
        }
        if let Some(starter) = starter {
            printed = printed.join(self.prefixed(name, starter, words, &texts, input));
        } else if CARRIERS.contains(&name) {
            printed = printed.join(self.carried(name, words, &texts, input));
        }
        if programs::writes_files(name)
            && let Some(origin) = self.any(arguments).join(input.cloned()).real()
        {
            self.touch(&texts, &origin);
        }
        if starter.is_none() && programs::interpreter(name).is_none() && !programs::takes_patterns(name) {
            for (word, text) in arguments.iter().zip(&texts) {
                if let Some(text) = text {
                    self.literal_code(text, &word.range);
                }
            }
        }
        if programs::prints_environment(name) {
            printed = printed.join(self.reach());
        }
        // A path may lead to a program of the author's.
        let is_own = path.contains('/') && !matches!(path.strip_suffix(name), Some("/bin/" | "/usr/bin/"));
        let is_one_each = arguments.iter().all(|word| !word.expands);
        if prints_a_number(name, &texts) && is_one_each && !is_own { None } else { printed }
    }

    /// Judges the file of a program, which the command may have written itself.
    fn program_file(&mut self, first: &ShellWord, path: &str) {
        let written = if path.contains('/') { self.executed(first) } else { self.files.named(path) };
        self.report_if(&written, || How::Code(path.to_owned()), &first.range);
        if path.contains('/') {
            self.in_foreign_directory(path, &first.range);
            self.own_scripts(first, path);
        }
    }

    /// Judges the files that a program executes although no argument names them.
    fn implied_files(&mut self, name: &str, words: &[ShellWord], texts: &[Option<String>]) {
        let range = &words[0].range;
        for file in programs::own_files(name, texts) {
            let held = self.files.named(file).join(self.scattered.clone());
            self.report_if(&held, || How::Code(name.to_owned()), range);
        }
        let Some(file) = programs::file_of_the_directory(name, texts) else { return };
        let arguments = &words[1..];
        let option = |word: &ShellWord| programs::names_a_place(word.beginning().split('=').next().unwrap_or_default());
        let Some(at) = arguments.iter().position(option) else {
            self.in_foreign_directory(file, range);
            return;
        };
        let place = if arguments[at].beginning().contains('=') { Some(&arguments[at]) } else { arguments.get(at + 1) };
        let Some(place) = place else { return };
        let tainted = self.peek(place).real();
        self.report_if(&tainted, || How::Directory(file.to_owned()), &place.range);
        if let Some(path) = self.text(place) {
            self.in_foreign_directory(path.split_once('=').map_or(path.as_str(), |(_, path)| path), &place.range);
        }
    }

    /// Judges the options of a program that are commands; adds their output to that of the program.
    fn commands_in_options(&mut self, name: &str, arguments: &[ShellWord], mut printed: Tainted) -> Tainted {
        for (option, word) in programs::commands_in_options(name, arguments) {
            let tainted = self.peek(&word);
            self.report_if(&tainted, || How::Code(name.to_owned()), &word.range);
            if let Some(text) = self.text(&word) {
                let code = text.strip_prefix(&format!("{option}=")).unwrap_or(&text).to_owned();
                printed = printed.join(self.nested(&code, &word.range, None));
            }
        }
        printed
    }

    /// Judges a program that builds a command from its arguments.
    fn composed(&mut self, name: &str, first: &ShellWord, arguments: &[ShellWord], texts: &[Option<String>]) {
        let tainted = self.any(arguments);
        self.report_if(&tainted, || How::Code(name.to_owned()), &first.range);
        let known: Option<Vec<String>> = texts.iter().cloned().collect();
        if let Some(known) = known.filter(|_| matches!(name, "watch" | "parallel" | "sem")) {
            let command: Vec<String> = known.into_iter().skip_while(|text| text.starts_with('-')).collect();
            self.nested(&command.join(" "), &first.range, None);
        }
    }

    /// Notes which files a program makes, moves or writes; adds the names of files to its output.
    fn listed_and_written(&mut self, name: &str, arguments: &[ShellWord], mut printed: Tainted) -> Tainted {
        if programs::moves_files(name)
            || programs::writes_operands(name)
            || matches!(name, "touch" | "mkdir" | "git" | "truncate")
        {
            let given = self.any(arguments).real();
            self.created = self.created.take().join(given);
        }
        if matches!(name, "ls" | "find" | "dir" | "vdir" | "fd" | "tree" | "du" | "git" | "realpath" | "readlink") {
            printed = printed.join(self.created.clone()).join(self.variables.get("PWD").cloned());
        }
        if programs::moves_files(name) {
            self.moves = true;
        }
        if programs::writes_operands(name)
            && let Some(origin) = &printed
        {
            for word in arguments {
                let text = self.text(word);
                match text.as_deref().map(|text| text.strip_prefix("of=").unwrap_or(text)) {
                    Some(text) if text.starts_with('-') => {}
                    Some(text) if !text.starts_with("/dev/") => self.files.note(&plain_path(text), origin),
                    Some(_) => {}
                    None => self.written(word, origin),
                }
            }
        }
        printed
    }

    /// Judges the options of `git` that name a program, and the settings that do.
    pub(super) fn git(&mut self, arguments: &[ShellWord], texts: &[Option<String>]) {
        if let Some(word) = arguments.first().filter(|word| word.beginning().is_empty()) {
            let tainted = self.peek(word).real();
            self.report_if(&tainted, || How::Option("git".to_owned()), &word.range);
        }
        let is_config = texts.iter().flatten().any(|text| text == "config");
        let is_harmless = texts.iter().flatten().any(|text| text.starts_with("user."));
        let mut before = "";
        for (word, text) in arguments.iter().zip(texts) {
            let tainted = self.peek(word);
            let known = word.beginning();
            let is_setting = matches!(before, "-c" | "--config" | "--config-env" | "--exec-path" | "--upload-pack");
            let is_named = ["-c", "--config", "--exec-path", "--upload-pack", "--receive-pack", "--template"];
            let is_option = known.starts_with('-') && is_named.iter().any(|option| known.starts_with(option));
            if is_setting || is_option || (is_config && !is_harmless) {
                self.report_if(&tainted, || How::Option("git".to_owned()), &word.range);
            }
            if (is_setting || is_config)
                && let Some((_, code)) = text.as_deref().and_then(|text| text.split_once('!'))
            {
                self.nested(code, &word.range, None);
            }
            before = text.as_deref().unwrap_or_default();
        }
    }

    /// Reports untrusted arguments of a program that may be options of it, or the program that an option starts.
    pub(super) fn options(&mut self, name: &str, arguments: &[ShellWord], texts: &[Option<String>]) {
        let mut before = "";
        for (word, text) in arguments.iter().zip(texts) {
            if text.as_deref() == Some("--") {
                return;
            }
            let known = word.beginning();
            let option = if known.starts_with('-') { known.split('=').next().unwrap_or_default() } else { before };
            let is_harmless = programs::is_harmless(name, option);
            // A path is no option. For these programs, it is also no argument of an option that starts a program: such
            // arguments are judged as commands.
            let is_path = known.starts_with(['/', '.'])
                && matches!(
                    name,
                    "tar" | "gtar" | "bsdtar" | "rsync" | "install" | "cpio" | "split" | "sort" | "wget" | "zip"
                );
            let is_option = known.is_empty() || (option.starts_with('-') && !is_path);
            // `make` expands the value of an assignment.
            let is_assignment = matches!(name, "make" | "gmake") && known.contains('=');
            if (is_option && !is_harmless) || is_assignment {
                let tainted = self.peek(word);
                self.report_if(&tainted, || How::Option(name.to_owned()), &word.range);
            }
            before = text.as_deref().unwrap_or_default();
        }
    }

    /// Judges the arguments of `ssh`: all those behind the host become the command of a shell.
    pub(super) fn ssh(&mut self, name: &str, arguments: &[ShellWord], texts: &[Option<String>]) {
        const TAKES: &str = "BbcDEeFIiJLlmOopQRSWw";
        let dashes = texts.iter().position(|text| text.as_deref() == Some("--"));
        let mut host = None;
        let mut takes = false;
        for (at, word) in arguments.iter().enumerate() {
            let tainted = self.peek(word);
            let may_be_option = dashes.is_none_or(|dashes| at < dashes) && host.is_none();
            let is_taken = std::mem::take(&mut takes);
            if is_taken || dashes == Some(at) || (may_be_option && word.beginning().starts_with('-')) {
                let text = texts[at].as_deref().filter(|text| !is_taken && may_be_option && text.starts_with('-'));
                takes = text.is_some_and(|text| {
                    let mut letters = text.chars().skip(1);
                    letters.position(|letter| TAKES.contains(letter)) == text.chars().count().checked_sub(2)
                });
                let before = at.checked_sub(1).and_then(|at| texts[at].as_deref()).unwrap_or_default();
                let is_harmless = is_taken && matches!(before, "-i" | "-l" | "-p");
                self.report_if(&tainted.filter(|_| !is_harmless), || How::Option(name.to_owned()), &word.range);
                continue;
            }
            if host.is_none() {
                host = Some(at);
                let is_safe = dashes.is_some_and(|dashes| at > dashes) || !word.beginning().is_empty();
                self.report_if(&tainted.filter(|_| !is_safe), || How::Option(name.to_owned()), &word.range);
            } else {
                self.report_if(&tainted, || How::Code(name.to_owned()), &word.range);
            }
        }
    }
}
