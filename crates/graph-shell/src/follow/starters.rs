//! Programs that start another program, which is among their arguments.

use std::ops::Range;

use super::{CommandFollower, JoinOrigins, Tainted, note};
use crate::parse::{Operation, ShellWord, Variable, WordPart};
use crate::programs::{self, CARRIERS, COMPOSERS, OptionOf, Starter};
use crate::{How, ValueOrigin, names};

/// The variable that holds the input that `xargs` appends.
pub(super) const INPUT: &str = "the input of xargs";

impl CommandFollower {
    /// Judges the program that another one starts with the rest of its arguments.
    pub(super) fn prefixed(
        &mut self,
        name: &str,
        starter: Starter,
        words: &[ShellWord],
        texts: &[Option<String>],
        input: Option<&ValueOrigin>,
    ) -> Tainted {
        let arguments = &words[1..];
        let listed: Tainted = match name {
            // `-a` names a file with its input.
            "xargs" => arguments.iter().fold(None, |found: Tainted, word| found.join(self.contents(word))),
            _ => None,
        };
        let input = input.cloned().join(listed);
        let input = input.as_ref();
        let given = self.any(arguments).join(if name == "xargs" { input.cloned() } else { None });
        let Some(at) = self.place_of_program(name, starter, arguments, texts) else {
            // The place of the program cannot be known.
            self.report_if(&given, || How::Unknown, &words[0].range);
            return self.carried(name, words, texts, input);
        };
        let Some(first) = arguments.get(at) else {
            if starter.is_shell {
                if let Some(origin) = input {
                    self.report(origin, How::Code(name.to_owned()), &words[0].range);
                }
                self.unread(name, &words[0].range);
            }
            return if name == "env" { self.reach() } else { None };
        };
        self.enter_place_of(&arguments[..at], texts);
        let mut inner: Vec<ShellWord> = arguments[at..].to_vec();
        if name == "xargs" {
            inner.extend(input.map(|_| input_placeholder(&first.range)));
            self.xargs_places(&mut inner, arguments, input);
            return self.started_by_xargs(&inner, input);
        }
        self.started(&inner, input)
    }

    /// Notes the directory that an option names for the program that another one starts.
    fn enter_place_of(&mut self, arguments: &[ShellWord], texts: &[Option<String>]) {
        const OPTIONS: [&str; 7] = ["-C", "-D", "-w", "--chdir", "--wd", "--wdns", "--working-directory"];
        for (at, word) in arguments.iter().enumerate() {
            let before = at.checked_sub(1).and_then(|at| texts[at].as_deref()).unwrap_or_default();
            if OPTIONS.contains(&before) || OPTIONS.iter().any(|option| word.beginning().starts_with(option)) {
                let directory = self.peek(word);
                self.enter(&directory);
            }
        }
    }

    /// Returns the index of the argument that is the program which another program starts, or the number of arguments if
    /// there is no such program; `None` if that cannot be known. Judges the arguments before it.
    fn place_of_program(
        &mut self,
        name: &str,
        starter: Starter,
        arguments: &[ShellWord],
        texts: &[Option<String>],
    ) -> Option<usize> {
        let mut operands = starter.operands;
        let mut at = 0;
        let mut is_known = true;
        let mut is_behind_dashes = false;
        while let Some(word) = arguments.get(at) {
            let known = word.beginning().to_owned();
            let is_assignment =
                starter.assigns && known.split_once('=').is_some_and(|(name, _)| names::is_variable(name));
            if !is_behind_dashes && known == "--" && texts[at].is_some() {
                is_behind_dashes = true;
            } else if known == "-" && name == "env" && texts[at].is_some() {
                // As `-i`.
            } else if !is_behind_dashes && known.starts_with('-') && known.len() > 1 {
                match starter.option(&known, texts[at].is_some()) {
                    OptionOf::Flag => {}
                    OptionOf::Takes => at += 1,
                    OptionOf::Unknown => is_known = false,
                }
            } else if is_assignment {
                // Judged with the others.
            } else if operands > 0 && !(starter.optional_operand && is_program(&known)) {
                let tainted = self.peek(word);
                // It may be an option of this program, and another root has other programs.
                let may_be_option = known.is_empty() && !is_behind_dashes;
                if may_be_option || matches!(name, "chroot" | "envdir") {
                    self.report_if(&tainted, || How::Option(name.to_owned()), &word.range);
                }
                operands -= 1;
            } else {
                break;
            }
            at += 1;
        }
        is_known.then_some(at)
    }

    /// Judges the program that `xargs` starts, which reads nothing.
    fn started_by_xargs(&mut self, inner: &[ShellWord], input: Option<&ValueOrigin>) -> Tainted {
        let outer = self.variables.get(INPUT).cloned();
        if let Some(origin) = input {
            self.variables.insert(INPUT.to_owned(), origin.clone());
        }
        let outer_file = std::mem::replace(&mut self.is_file, true);
        let printed = self.started(inner, None);
        self.is_file = outer_file;
        if outer.is_none() {
            self.variables.remove(INPUT);
        }
        printed
    }

    /// Judges the program that another one starts.
    pub(super) fn carried(
        &mut self,
        name: &str,
        words: &[ShellWord],
        texts: &[Option<String>],
        input: Option<&ValueOrigin>,
    ) -> Tainted {
        let arguments = &words[1..];
        let is_prefix = programs::starter(name).is_some() && name != "xargs";
        let mut printed = None;
        let mut started = false;
        for (at, word) in arguments.iter().enumerate() {
            let known = word.beginning().to_owned();
            if is_prefix && !started && known.is_empty() {
                let tainted = self.peek(word);
                self.report_if(&tainted, || How::Program, &word.range);
            }
            let Some(text) = texts[at].as_deref() else { continue };
            let is_command = !text.starts_with('-')
                && !text.contains('=')
                && !text.starts_with(|first: char| first.is_ascii_digit());
            if !is_command {
                continue;
            }
            let base = text.rsplit('/').next().unwrap_or_default();
            let is_known = programs::interpreter(base).is_some()
                || ((programs::starter(base).is_some() || CARRIERS.contains(&base))
                    && (is_prefix || !matches!(base, "exec" | "command" | "builtin" | "time")))
                || COMPOSERS.contains(&base)
                || base == "ssh"
                || (matches!(name, "command" | "builtin" | "busybox" | "env" | "sudo") && base != name);
            if is_known {
                // Each such word may be the program, with all words behind it.
                if !self.work.copy(arguments.len() - at) {
                    return printed;
                }
                let mut inner: Vec<ShellWord> = arguments[at..].to_vec();
                if name == "xargs" {
                    inner.extend(input.map(|_| input_placeholder(&word.range)));
                    self.xargs_places(&mut inner, arguments, input);
                }
                match (is_prefix, input) {
                    (true, input) => printed = printed.join(self.started(&inner, input)),
                    (false, _) if name == "xargs" => {
                        let outer = self.variables.get(INPUT).cloned();
                        if let Some(origin) = input {
                            self.variables.insert(INPUT.to_owned(), origin.clone());
                        }
                        printed = printed.join(self.external(&inner, None));
                        if outer.is_none() {
                            self.variables.remove(INPUT);
                        }
                    }
                    (false, input) => printed = printed.join(self.external(&inner, input)),
                }
            }
            // A word behind an option may be the option's argument.
            let is_ambiguous =
                at > 0 && texts[at - 1].as_deref().is_some_and(|text| text.starts_with('-') && text != "--");
            if is_prefix && !is_ambiguous {
                return printed;
            }
            started = started || !is_ambiguous;
        }
        printed
    }

    /// Reports code that contains the text which `xargs` replaces with its input, and puts the input in the place of that text.
    pub(super) fn xargs_places(
        &mut self,
        words: &mut [ShellWord],
        arguments: &[ShellWord],
        input: Option<&ValueOrigin>,
    ) {
        let Some(origin) = input else { return };
        let mut place = None;
        for (at, word) in arguments.iter().enumerate() {
            let text = self.text(word).unwrap_or_default();
            // Other options may be in the same word.
            let text = match text.strip_prefix('-').filter(|letters| !letters.starts_with('-')) {
                Some(letters) => format!("-{}", letters.trim_start_matches(['0', 'o', 'p', 'r', 't', 'x'])),
                None => text,
            };
            let next = || arguments.get(at + 1).and_then(|word| self.text(word)).unwrap_or_default();
            place = match (text.strip_prefix("-I"), text.as_str()) {
                (Some(""), _) => Some(next()),
                (Some(rest), _) => Some(rest.to_owned()),
                (None, "-i" | "--replace") => Some("{}".to_owned()),
                (None, text) => match text.strip_prefix("--replace=").or(text.strip_prefix("-i")) {
                    Some(rest) => Some(rest.to_owned()),
                    None => continue,
                },
            };
            break;
        }
        let Some(place) = place.filter(|place| !place.is_empty()) else { return };
        for word in words {
            let Some(text) = self.text(word).filter(|text| text.contains(&place)) else { continue };
            if text.len() > place.len() {
                self.report(origin, How::Code("xargs".to_owned()), &word.range);
            }
            *word = input_placeholder(&word.range);
        }
    }

    /// Follows the assignments among the arguments of `env` and the like.
    pub(super) fn assignments_of_env(&mut self, arguments: &[ShellWord], is_prefix: bool) {
        for word in arguments {
            let Some((name, _)) = word.beginning().split_once('=') else { continue };
            let name = name.strip_prefix("--env=").or(name.strip_prefix("-e")).unwrap_or(name).to_owned();
            if !names::is_variable(&name) {
                continue;
            }
            let Some(origin) = self.peek(word).real() else { continue };
            if is_prefix && names::is_read(&name, true) {
                self.report(&origin, How::Environment(name.clone()), &word.range);
            }
            note(&mut self.variables, &name, &origin);
        }
    }
}

/// Returns the word that `xargs` makes of its input.
pub(super) fn input_placeholder(range: &Range<usize>) -> ShellWord {
    let (name, operation) = (INPUT.to_owned(), Operation::Plain);
    let variable = Variable { name, subscript: None, is_all: false, operation, quoted: true, range: range.clone() };
    ShellWord { parts: vec![WordPart::Variable(variable)], assigns: None, expands: false, range: range.clone() }
}

/// Whether a word can be the name of a program, and not that of a machine before it.
pub(super) fn is_program(text: &str) -> bool {
    const MACHINES: [&str; 9] = ["linux32", "linux64", "i386", "i486", "i586", "i686", "x86_64", "uname26", "aarch64"];
    !MACHINES.contains(&text)
}
