//! The builtins of bash.

use std::ops::Range;
use std::rc::Rc;

use super::words::is_several;
use super::{CommandFollower, JoinOrigins, Tainted};
use crate::parse::ShellWord;
use crate::programs::EVALUATORS;
use crate::{How, ValueOrigin, names};

impl CommandFollower {
    pub(super) fn program_or_builtin(
        &mut self,
        name: &str,
        words: &[ShellWord],
        input: Option<&ValueOrigin>,
    ) -> Tainted {
        match self.builtin(name, words, input) {
            Some(printed) => printed,
            None => self.external(words, input),
        }
    }

    /// Judges a builtin of bash; `None` if the program is not a builtin that needs judging.
    pub(super) fn builtin(&mut self, name: &str, words: &[ShellWord], input: Option<&ValueOrigin>) -> Option<Tainted> {
        let arguments = &words[1..];
        let range = words[0].range.clone();
        let texts: Vec<Option<String>> = arguments.iter().map(|word| self.text(word)).collect();
        match name {
            "eval" | "." | "source" if texts.first().is_some_and(|text| text.as_deref() == Some("--")) => {
                let mut words = words.to_vec();
                words.remove(1);
                return self.builtin(name, &words, input);
            }
            "eval" => return Some(self.eval(arguments, texts, &range, input)),
            "." | "source" => {
                if let Some(script) = arguments.first() {
                    self.script(script, input, name);
                }
                let given = self.any(arguments.get(1..).unwrap_or_default());
                self.pass(given);
                return Some(self.any(arguments).join(input.cloned()));
            }
            "trap" => self.trap(name, arguments, input),
            "let" => arguments.iter().for_each(|word| self.evaluated(word)),
            "declare" | "typeset" | "local" | "export" | "readonly" => {
                self.declaration(name, arguments, &texts);
                let is_option = |text: &Option<String>| text.as_deref().is_none_or(|text| text.starts_with('-'));
                if texts.iter().all(is_option) || texts.iter().flatten().any(|text| text.starts_with("-p")) {
                    return Some(self.reach());
                }
            }
            "printf" => return Some(self.printf(arguments, &texts)),
            "read" | "mapfile" | "readarray" => self.read(name, arguments, &texts, input),
            "unset" => {
                arguments.iter().for_each(|word| self.name(word));
                Rc::make_mut(&mut self.associative).retain(|array| !texts.iter().flatten().any(|name| name == array));
            }
            "getopts" => self.getopts(arguments, &texts, &range),
            "test" | "[" => self.bracket(arguments, &texts),
            "set" if arguments.is_empty() => return Some(self.reach()),
            "set" => self.set(arguments, &texts, &range),
            "wait" => {
                let tainted = self.any(arguments);
                let named = texts.iter().flatten().any(|text| text.starts_with('-') && text.contains('p'));
                self.report_if(&tainted.filter(|_| named), || How::Name, &range);
                arguments.iter().filter(|_| named).for_each(|word| self.name(word));
            }
            _ if EVALUATORS.contains(&name) => return Some(self.evaluator(name, arguments, &texts, &range)),
            "cd" | "pushd" | "popd" => {
                let directory = self.any(arguments);
                self.enter(&directory);
            }
            "pwd" | "dirs" => return Some(self.variables.get("PWD").cloned()),
            "echo" | "type" => return Some(self.any(arguments)),
            "true" | "false" | ":" | "exit" | "return" | "shift" | "break" | "continue" | "kill" | "umask"
            | "ulimit" | "times" | "shopt" => {}
            _ => return None,
        }
        Some(None)
    }

    fn trap(&mut self, name: &str, arguments: &[ShellWord], input: Option<&ValueOrigin>) {
        if let Some(action) = arguments.iter().find(|word| !word.beginning().starts_with("--")) {
            let tainted = self.peek(action);
            self.report_if(&tainted, || How::Code(name.to_owned()), &action.range);
            if let Some(text) = self.text(action) {
                self.nested(&text, &action.range, input);
            }
        }
    }

    fn getopts(&mut self, arguments: &[ShellWord], texts: &[Option<String>], range: &Range<usize>) {
        arguments.iter().for_each(|word| self.name(word));
        if let [_, name] = texts {
            let parameters = self.positional.clone();
            for name in name.as_deref().into_iter().chain(["OPTARG"]) {
                self.assign(name, &parameters, range);
            }
        }
    }

    fn eval(
        &mut self,
        arguments: &[ShellWord],
        texts: Vec<Option<String>>,
        range: &Range<usize>,
        input: Option<&ValueOrigin>,
    ) -> Tainted {
        let tainted = self.any(arguments);
        self.report_if(&tainted, || How::Code("eval".to_owned()), range);
        let known: Option<Vec<String>> = texts.into_iter().collect();
        if known.is_none() && tainted.real().is_none() {
            let held = self.environment();
            self.report_if(&held, || How::Unreadable, range);
        }
        let printed = known.and_then(|texts| self.nested(&texts.join(" "), range, input));
        tainted.join(printed)
    }

    fn set(&mut self, arguments: &[ShellWord], texts: &[Option<String>], range: &Range<usize>) {
        let dashes = texts.iter().position(|text| text.as_deref() == Some("--"));
        let tainted = self.any(arguments);
        // With these, words behind a program's name are assignments.
        let is_keyword = |text: &String| {
            text == "keyword" || (text.starts_with('-') && !text.starts_with("--") && text.contains('k'))
        };
        if texts.iter().flatten().any(is_keyword) {
            let reach = self.reach();
            self.report_if(&reach, || How::Unreadable, range);
        }
        if dashes.is_none()
            && let Some(word) = arguments.first()
        {
            let first = self.peek(word);
            self.report_if(&first, || How::Option("set".to_owned()), &word.range);
        }
        self.pass(tainted);
    }

    /// Judges a builtin that evaluates its arguments, or gives programs other names.
    fn evaluator(
        &mut self,
        name: &str,
        arguments: &[ShellWord],
        texts: &[Option<String>],
        range: &Range<usize>,
    ) -> Tainted {
        let tainted = self.any(arguments);
        self.report_if(&tainted, || How::Code(name.to_owned()), range);
        // These give programs other names.
        let renames = match name {
            "alias" | "enable" => !arguments.is_empty(),
            "hash" => texts.iter().any(|text| text.as_deref().is_none_or(|text| text.starts_with("-p"))),
            _ => false,
        };
        for (word, text) in arguments.iter().zip(texts) {
            if let Some(text) = text {
                self.literal_code(text, &word.range);
            }
        }
        let reach = self.reach();
        if renames {
            self.report_if(&reach, || How::Unreadable, range);
        }
        reach
    }

    pub(super) fn declaration(&mut self, name: &str, arguments: &[ShellWord], texts: &[Option<String>]) {
        let options: String = texts.iter().flatten().filter_map(|text| text.strip_prefix('-')).collect();
        let is_export = matches!(name, "export" | "readonly");
        if let Some(word) = arguments.iter().find(|word| word.expands) {
            let reach = self.reach();
            self.report_if(&reach, || How::Name, &word.range);
        }
        // An assignment to a reference changes another variable, which cannot be known.
        let may_refer = options.contains('n')
            || arguments.iter().zip(texts).any(|(word, text)| text.is_none() && word.assigns.is_none());
        if may_refer && !is_export {
            let reach = self.reach();
            self.report_if(&reach, || How::Name, &arguments[0].range);
        }
        for word in arguments {
            match &word.assigns {
                Some(assigns) => {
                    if options.contains('A') && !self.assigned.contains(&assigns.name) {
                        Rc::make_mut(&mut self.associative).insert(assigns.name.clone());
                    }
                    if options.contains('i') {
                        self.integers.insert(assigns.name.clone());
                    }
                    let value = self.assignment(word);
                    if options.contains('n') {
                        self.report_if(&value, || How::Name, &word.range);
                    }
                }
                None => {
                    self.name(word);
                    if let Some(name) = self.text(word).filter(|name| names::is_variable(name)) {
                        if options.contains('A') && !self.assigned.contains(&name) {
                            Rc::make_mut(&mut self.associative).insert(name.clone());
                        }
                        if options.contains('i') {
                            let held = self.variables.get(&name).cloned();
                            self.integers.insert(name);
                            self.report_if(&held, || How::Arithmetic, &word.range);
                        }
                    }
                }
            }
        }
    }

    pub(super) fn printf(&mut self, arguments: &[ShellWord], texts: &[Option<String>]) -> Tainted {
        let printed = self.any(arguments);
        let mut rest = 0;
        if let Some(Some(option)) = texts.first()
            && let Some(attached) = option.strip_prefix("-v")
        {
            rest = if attached.is_empty() { 2 } else { 1 };
            if attached.is_empty()
                && let Some(target) = arguments.get(1)
            {
                self.name(target);
            } else if attached.contains('[') {
                self.name(&arguments[0]);
            }
            let target = if attached.is_empty() { texts.get(1).cloned().flatten() } else { Some(attached.to_owned()) };
            if let Some(name) = target {
                let value = self.any(arguments.get(rest..).unwrap_or_default());
                let name = name.split('[').next().unwrap_or_default().to_owned();
                self.assign(&name, &value, &arguments[0].range);
            }
        } else if texts.first().is_some_and(|text| text.as_deref() == Some("--")) {
            rest = 1;
        }
        // A format that begins with `-v` names a variable.
        if let Some(format) = arguments.get(rest)
            && rest == 0
            && format.beginning().is_empty()
        {
            let tainted = self.peek(format);
            self.report_if(&tainted, || How::Option("printf".to_owned()), &format.range);
        }
        printed
    }

    pub(super) fn read(
        &mut self,
        name: &str,
        arguments: &[ShellWord],
        texts: &[Option<String>],
        input: Option<&ValueOrigin>,
    ) {
        const WITH_ARGUMENT: &str = "adinNptuOsckCI";
        let takes = if name == "read" { "adinNptu" } else { "dnOsuCc" };
        debug_assert!(takes.chars().all(|letter| WITH_ARGUMENT.contains(letter)));
        let input = input.cloned();
        let mut named = false;
        let mut at = 0;
        while at < arguments.len() {
            let word = &arguments[at];
            let option = texts[at].as_deref().and_then(|text| text.strip_prefix('-')).filter(|rest| !rest.is_empty());
            if let Some(letters) = option
                && !named
            {
                let place = letters.find(|letter| takes.contains(letter));
                if let Some(place) = place {
                    let letter = &letters[place..=place];
                    let attached = &letters[place + 1..];
                    let (value, range) = if attached.is_empty() {
                        at += 1;
                        let next = arguments.get(at);
                        (next.and_then(|next| self.text(next)), next.map(|next| next.range.clone()))
                    } else {
                        (Some(attached.to_owned()), Some(word.range.clone()))
                    };
                    let range = range.unwrap_or_else(|| word.range.clone());
                    let tainted = arguments.get(at).and_then(|next| self.peek(next));
                    match letter {
                        "a" => {
                            self.report_if(&tainted, || How::Name, &range);
                            if let Some(word) = arguments.get(at) {
                                self.name(word);
                            }
                            if let Some(target) = value {
                                self.assign(&target, &input, &range);
                            }
                            named = true;
                        }
                        "C" => {
                            // Bash appends the line to it, and evaluates that: with `eval` in front, the line is code.
                            let evaluates = value.as_ref().is_none_or(|text| {
                                let first = text.split_whitespace().next().unwrap_or_default();
                                EVALUATORS.contains(&first) || matches!(first, "let" | "declare" | "typeset" | "local")
                            });
                            self.report_if(&input.clone().filter(|_| evaluates), || How::Code(name.to_owned()), &range);
                            self.report_if(&tainted, || How::Code(name.to_owned()), &range);
                            if let Some(text) = value {
                                self.pass(input.clone());
                                self.nested(&text, &range, None);
                            }
                        }
                        _ => {}
                    }
                }
                at += 1;
                continue;
            }
            named = true;
            self.name(word);
            if let Some(target) = texts[at].clone() {
                let target = target.split('[').next().unwrap_or_default().to_owned();
                self.assign(&target, &input, &word.range);
            }
            at += 1;
        }
        if !named {
            let default = if name == "read" { "REPLY" } else { "MAPFILE" };
            self.assign(default, &input, &(0..0));
        }
    }

    /// Judges `[ … ]` and `test`, which evaluate nothing but the names behind `-v` and `-R`.
    pub(super) fn bracket(&mut self, arguments: &[ShellWord], texts: &[Option<String>]) {
        let end = match texts.last() {
            Some(Some(last)) if last == "]" => arguments.len() - 1,
            _ => arguments.len(),
        };
        let tainted: Vec<Tainted> = arguments[..end].iter().map(|word| self.peek(word).real()).collect();
        for at in 1..end {
            if !matches!(texts[at - 1].as_deref(), Some("-v" | "-R")) {
                continue;
            }
            self.name(&arguments[at]);
        }
        // If one value becomes several words, one of them may be the operator.
        for at in (0..end).filter(|at| is_several(&arguments[*at])) {
            self.report_if(&tainted[at], || How::Option("test".to_owned()), &arguments[at].range);
        }
        // If two untrusted values are next to each other, the first may be the operator `-v`.
        for at in 1..end {
            let is_operator = tainted[at - 1].is_some()
                && !matches!(
                    texts.get(at.wrapping_sub(2)).and_then(|text| text.as_deref()),
                    Some("=" | "==" | "!=" | "<" | ">")
                )
                && !texts[at]
                    .as_deref()
                    .is_some_and(|text| text.starts_with('-') || matches!(text, "=" | "==" | "!=" | "<" | ">" | "]"));
            if is_operator && (tainted[at].is_some() || end == 2) {
                self.report_if(&tainted[at - 1].clone(), || How::Option("test".to_owned()), &arguments[at - 1].range);
            }
        }
    }

    /// Judges `[[ … ]]`.
    pub(super) fn test(&mut self, words: &[ShellWord]) {
        const NUMERIC: [&str; 6] = ["-eq", "-ne", "-lt", "-le", "-gt", "-ge"];
        for (at, word) in words.iter().enumerate() {
            self.word(word);
            let text = word.literal();
            let Some(text) = text.as_deref() else { continue };
            if NUMERIC.contains(&text) {
                let sides = [at.checked_sub(1), Some(at + 1)];
                for side in sides.into_iter().flatten().filter_map(|at| words.get(at)) {
                    self.evaluated(side);
                }
            } else if matches!(text, "-v" | "-R")
                && let Some(name) = words.get(at + 1)
            {
                self.name(name);
            }
        }
    }
}
