//! Programs that execute text that they are given.

use super::files::is_stdin;
use super::{CommandFollower, JoinOrigins, Tainted};
use crate::parse::{ShellWord, WordPart};
use crate::programs::{self, Interpreter, Operand};
use crate::{How, ValueOrigin, filters};

/// The arguments of an interpreter by their role, as indices.
#[derive(Default)]
pub(super) struct InterpreterArguments {
    /// Whether an option has its code, or says which argument has it.
    has_code: bool,
    /// Whether there is an option that the table does not know.
    is_unknown: bool,
    code: Vec<usize>,
    operands: Vec<usize>,
}

impl InterpreterArguments {
    /// Reads the letters of the argument at `at`, each of which is an option. Returns the index of the last argument that belongs to
    /// them.
    fn letters(&mut self, program: Interpreter, letters: &str, mut at: usize, is_whole: bool) -> usize {
        for (place, letter) in letters.char_indices() {
            let end = place + letter.len_utf8();
            let (letter, has_argument_behind) = (&letters[place..end], end == letters.len() && is_whole);
            self.is_unknown |= !program.knows(letter);
            if program.attached.contains(letter) {
                break;
            }
            if program.code.contains(&letter) {
                self.has_code = true;
                // In a shell, `-c` takes the first operand, regardless of other letters in the word.
                if !program.is_shell {
                    at += usize::from(has_argument_behind);
                    self.code.push(at);
                    break;
                }
            } else if program.takes.contains(&letter) {
                // In a shell, `-o` takes the next operand, regardless of other letters in the word.
                at += usize::from(has_argument_behind || program.is_shell);
                if !program.is_shell {
                    break;
                }
            }
        }
        at
    }
}

impl CommandFollower {
    /// Judges the arguments of a program that executes some of them.
    pub(super) fn interpreter(
        &mut self,
        name: &str,
        program: Interpreter,
        words: &[ShellWord],
        texts: &[Option<String>],
        input: Option<&ValueOrigin>,
    ) -> Tainted {
        let arguments = &words[1..];
        let given = self.given(program, arguments, texts);
        if given.is_unknown {
            let reach = self.any(arguments).join(input.cloned());
            self.report_if(&reach, || How::Option(name.to_owned()), &words[0].range);
        }
        self.arguments_as_code(name, program, words, texts, input);
        if program.is_shell && given.has_code {
            let script = given.operands.first();
            return script.and_then(|&script| self.code_of_shell(name, arguments, texts, script, input));
        }
        for word in given.code.iter().filter_map(|&at| arguments.get(at)) {
            self.code_in_option(name, program, word, input);
        }
        if programs::has_shell_escapes(name) {
            let code = texts.iter().flatten().chain(self.here.iter().map(|here| &here.0));
            let reads = code.map(|text| self.expanded_in(text)).fold(None, JoinOrigins::join);
            self.report_if(&reads, || How::Unreadable, &words[0].range);
        }
        let first = given.operands.first().copied();
        self.input_as_code(name, words, texts, &given, input);
        if name.starts_with("perl") {
            self.opened_by_perl(name, words, texts, &given);
        }
        let shows = |text: &String| text.to_ascii_lowercase().contains("env");
        let shown = if texts.iter().flatten().any(shows) { self.reach() } else { None };
        let has_operand = first.is_some_and(|at| texts[at].as_deref() != Some("-"));
        let mut has_code = given.has_code;
        match (program.operand, first) {
            (Operand::Script, Some(at)) if !has_code && has_operand => {
                let reads = texts.iter().flatten().any(|text| program.is_shell && text == "-s");
                if !reads {
                    return self.script_with_parameters(name, program, arguments, at, input);
                }
            }
            (Operand::Code, Some(at)) if !has_code => self.code_of(name, &arguments[at]),
            (Operand::SecondIsCode, _) => {
                for &at in given.operands.iter().skip(1) {
                    has_code = true;
                    self.code_of(name, &arguments[at]);
                }
            }
            _ => {}
        }
        let is_stdin = program.reads_stdin
            && !has_code
            && (program.operand != Operand::Script || !has_operand || program.is_shell);
        if is_stdin {
            if program.is_shell {
                // With `-s` the operands are parameters.
                let given = self.any(arguments);
                self.pass(given);
            }
            return self.code_on_stdin(name, program, &words[0], input).join(shown);
        }
        shown
    }

    /// Judges the options by which any of the arguments may become code: settings of a shell, and modules that execute programs.
    fn arguments_as_code(
        &mut self,
        name: &str,
        program: Interpreter,
        words: &[ShellWord],
        texts: &[Option<String>],
        input: Option<&ValueOrigin>,
    ) {
        let arguments = &words[1..];
        let has_settings = |text: &str| text.starts_with("--rcfile") || text.starts_with("--init-file");
        if program.is_shell && arguments.iter().any(|word| has_settings(word.beginning())) {
            let tainted = self.any(arguments);
            let tainted = arguments.iter().fold(tainted, |tainted, word| tainted.join(self.executed(word)));
            self.report_if(&tainted, || How::Code(name.to_owned()), &words[0].range);
        }
        let module = texts.iter().position(|text| text.as_deref() == Some("-m")).and_then(|at| texts.get(at + 1));
        if name.starts_with("python") && module.is_some_and(|module| programs::executes_arguments(module.as_deref())) {
            let tainted = self.any(arguments).join(input.cloned());
            self.report_if(&tainted, || How::Code(name.to_owned()), &words[0].range);
        }
    }

    /// Judges the script at an index of the arguments, and passes the arguments behind it to the script. Returns what it
    /// prints.
    fn script_with_parameters(
        &mut self,
        name: &str,
        program: Interpreter,
        arguments: &[ShellWord],
        at: usize,
        input: Option<&ValueOrigin>,
    ) -> Tainted {
        if program.is_shell && !self.scripts.is_empty() {
            let given = self.any(&arguments[at + 1..]);
            self.pass(given);
        }
        self.script(&arguments[at], input, name);
        // The script is another text, and these are its own parameters.
        let is_first = program.is_shell && self.positional.is_none();
        if is_first { self.any(arguments) } else { None }
    }

    /// Judges the code in an option of a program, or in the file that the option names.
    fn code_in_option(&mut self, name: &str, program: Interpreter, word: &ShellWord, input: Option<&ValueOrigin>) {
        self.code_of(name, word);
        // The code may be in a file, and that file may be the program's input.
        let file = self.text(word).map(|text| text.rsplit('=').next().unwrap_or_default().to_owned());
        let is_own = file.is_some_and(|file| is_stdin(&file) || file.ends_with("f-"));
        if is_own {
            self.report_if(&input.cloned(), || How::Code(name.to_owned()), &word.range);
        }
        let is_read = is_own || word.parts.iter().any(|part| matches!(part, WordPart::Process { .. }));
        if is_read && programs::has_shell_escapes(name) && self.here.is_none() && !self.is_file {
            let held = self.environment();
            self.report_if(&held, || How::Code(name.to_owned()), &word.range);
        }
        let written = if program.operand == Operand::Script { None } else { self.contents(word) };
        self.report_if(&written, || How::Code(name.to_owned()), &word.range);
        if programs::takes_commands(name)
            && let Some(text) = self.text(word)
        {
            self.nested(&text, &word.range, None);
        }
    }

    /// Judges code that executes its input.
    fn input_as_code(
        &mut self,
        name: &str,
        words: &[ShellWord],
        texts: &[Option<String>],
        given: &InterpreterArguments,
        input: Option<&ValueOrigin>,
    ) {
        let arguments = &words[1..];
        let first = given.operands.first().copied();
        let code = given.code.iter().copied().chain(first.filter(|_| !given.has_code));
        let mut code = code.filter_map(|at| texts.get(at)?.as_deref()).map(|text| match text.strip_prefix("--") {
            Some(option) => option.split_once('=').map_or("", |(_, code)| code),
            None if text.starts_with('-') => text.split_once('e').map_or("", |(_, code)| code),
            None => text,
        });
        if code.any(|code| filters::executes_input(name, code)) {
            let read = self.any(arguments).join(input.cloned());
            let read = arguments.iter().fold(read, |read, word| read.join(self.contents(word)));
            self.report_if(&read, || How::Code(name.to_owned()), &words[0].range);
        }
    }

    /// Judges the operands of `perl` that it opens.
    fn opened_by_perl(
        &mut self,
        name: &str,
        words: &[ShellWord],
        texts: &[Option<String>],
        given: &InterpreterArguments,
    ) {
        // With `-n` and `-p`, and by `<>`, it opens its operands as `open` does, which takes `| command`.
        let letters =
            |text: &String| text.starts_with('-') && !text.starts_with("--") && text.contains(['n', 'p', 'i']);
        let reads = texts.iter().flatten().any(|text| letters(text) || text.contains("<>") || text.contains("ARGV>"));
        let operands: Vec<ShellWord> = given.operands.iter().map(|&at| words[1 + at].clone()).collect();
        let tainted = self.any(&operands);
        self.report_if(&tainted.filter(|_| reads), || How::Code(name.to_owned()), &words[0].range);
    }

    /// Separates the options of an interpreter from its operands.
    pub(super) fn given(
        &mut self,
        program: Interpreter,
        arguments: &[ShellWord],
        texts: &[Option<String>],
    ) -> InterpreterArguments {
        let mut given = InterpreterArguments::default();
        let mut at = 0;
        // Some programs accept options behind operands too.
        let permutes = program.operand != Operand::Script && !program.is_posix;
        let mut is_behind_dashes = false;
        while let Some(word) = arguments.get(at) {
            let known = word.beginning();
            let is_long = known.starts_with("--") && known.len() > 2;
            let is_whole = texts[at].is_some();
            let marks = |first: char| first == '-' || (first == '+' && program.is_shell);
            let is_option = known.starts_with(marks)
                && known.len() > 1
                && known != "--"
                && !is_behind_dashes
                && (permutes || given.operands.is_empty());
            is_behind_dashes |= known == "--" && is_whole;
            let option = known.split('=').next().unwrap_or_default();
            if !is_option {
                // An operand that begins with an untrusted value may be an option, and is judged as one below.
                if known != "--" || texts[at].as_deref() != Some("--") {
                    given.operands.push(at);
                }
            } else if program.code.contains(&option) {
                given.has_code = true;
                at += usize::from(is_whole && !known.contains('='));
                given.code.push(at);
            } else if program.takes_two.contains(&option) {
                at += 2;
            } else if program.takes.contains(&option) {
                at += usize::from(is_whole && !known.contains('='));
            } else if is_long {
                given.is_unknown |= !program.knows(option);
            } else {
                let letters = &known[1..];
                at = given.letters(program, letters, at, is_whole);
                let tainted = self.peek(word);
                if tainted.is_some() && !program.takes.iter().any(|takes| letters.starts_with(takes)) {
                    given.code.push(at.min(arguments.len() - 1));
                }
            }
            at += 1;
        }
        given
    }

    /// Judges the code that a shell is given as an argument, as by `-c`, and reads it.
    pub(super) fn code_of_shell(
        &mut self,
        name: &str,
        arguments: &[ShellWord],
        texts: &[Option<String>],
        script: usize,
        input: Option<&ValueOrigin>,
    ) -> Tainted {
        let positional = self.any(arguments.get(script + 1..).unwrap_or_default());
        self.pass(positional);
        let word = &arguments[script];
        let tainted = self.peek(word);
        self.report_if(&tainted, || How::Code(name.to_owned()), &word.range);
        match texts[script].as_deref() {
            Some(text) => return self.nested(text, &word.range, input),
            None if tainted.real().is_none() => {
                // The code is built from the author's own parts, but its use of the values cannot be seen.
                let given = self.any(arguments).join(input.cloned()).join(self.environment());
                self.report_if(&given, || How::Unreadable, &word.range);
            }
            None => {}
        }
        None
    }

    /// Judges the code that an interpreter reads from stdin.
    pub(super) fn code_on_stdin(
        &mut self,
        name: &str,
        program: Interpreter,
        command: &ShellWord,
        input: Option<&ValueOrigin>,
    ) -> Tainted {
        if let Some(origin) = input {
            self.report(origin, How::Code(name.to_owned()), &command.range);
        }
        if program.is_shell || programs::takes_commands(name) { self.unread(name, &command.range) } else { None }
    }

    /// Judges an argument that is code of a program.
    pub(super) fn code_of(&mut self, name: &str, word: &ShellWord) {
        let tainted = self.peek(word);
        self.report_if(&tainted, || How::Code(name.to_owned()), &word.range);
    }
}
