//! Known values of variables and known outputs of commands: their texts are literals in the command.

use std::ops::Range;

use super::words::is_made_by_mktemp;
use super::{CommandFollower, is_real};
use crate::names;
use crate::parse::{self, Command, CommandList, Operation, Redirect, ShellWord, Simple, Variable, WordPart};

impl CommandFollower {
    /// Finds the variables to which one literal text is assigned, and nothing else.
    pub(super) fn gather_constants(&mut self, list: &CommandList) {
        for command in list.iter().flatten() {
            match command {
                Command::Simple(simple) => {
                    for word in simple.assignments.iter().chain(&simple.words) {
                        self.gather_in(&word.parts);
                        let elements = word.assigns.iter().flat_map(|assigns| assigns.elements.iter().flatten());
                        elements.for_each(|element| self.gather_in(&element.parts));
                        let Some(assigns) = &word.assigns else { continue };
                        let text = word.literal().and_then(|text| Some(text.split_once('=')?.1.to_owned()));
                        let is_plain = assigns.subscript.is_none() && assigns.elements.is_none();
                        let is_fresh = is_plain && is_made_by_mktemp(word, assigns.value);
                        *self.fresh.entry(assigns.name.clone()).or_insert(is_fresh) &= is_fresh;
                        let text = text.filter(|_| is_plain && !word.beginning().contains("+="));
                        match self.constants.get_mut(&assigns.name) {
                            Some(known) if *known != text => *known = None,
                            Some(_) => {}
                            None => {
                                self.constants.insert(assigns.name.clone(), text);
                            }
                        }
                    }
                    // A variable to which `read`, `printf -v` or the like assigns is no constant.
                    for word in &simple.words {
                        if let Some(name) = word.literal().filter(|name| names::is_variable(name)) {
                            self.fresh.insert(name.clone(), false);
                            self.constants.entry(name).or_insert(None);
                        }
                    }
                }
                Command::Group(lists, _) => lists.iter().for_each(|list| self.gather_constants(list)),
                Command::For(name, words, body, _) => {
                    words.iter().flatten().for_each(|word| self.gather_in(&word.parts));
                    self.constants.insert(name.clone(), None);
                    self.gather_constants(body);
                }
                Command::Case(word, arms, _) => {
                    self.gather_in(&word.parts);
                    arms.iter().for_each(|(_, body)| self.gather_constants(body));
                }
                Command::Function(_, body) | Command::Coprocess(body) => {
                    self.gather_constants(&vec![vec![(**body).clone()]]);
                }
                Command::Test(words, _) => words.iter().for_each(|word| self.gather_in(&word.parts)),
                Command::Arithmetic(word) => self.gather_in(&word.parts),
            }
        }
    }

    /// Finds such variables in the substitutions of a word.
    pub(super) fn gather_in(&mut self, parts: &[WordPart]) {
        for part in parts {
            match part {
                WordPart::Output { list, .. } | WordPart::Process { list, .. } => self.gather_constants(list),
                WordPart::Arithmetic(parts) => self.gather_in(parts),
                WordPart::Variable(variable) => match &variable.operation {
                    Operation::Slice(parts) | Operation::Default(parts, _) | Operation::Pattern(parts) => {
                        self.gather_in(parts);
                    }
                    _ => {}
                },
                WordPart::Text(_) => {}
            }
        }
    }

    /// Returns a word's text if it is known: written out, or a variable that holds a constant.
    pub(super) fn text(&self, word: &ShellWord) -> Option<String> {
        if word.assigns.as_ref().is_some_and(|assigns| assigns.elements.is_some()) {
            return None;
        }
        let mut text = String::new();
        for part in &word.parts {
            match part {
                WordPart::Text(piece) => text.push_str(piece),
                WordPart::Variable(Variable { name, subscript: None, operation: Operation::Plain, .. })
                    if !self.variables.get(name).is_some_and(is_real) =>
                {
                    text.push_str(self.constants.get(name)?.as_ref()?);
                }
                _ => return None,
            }
        }
        Some(text)
    }

    /// Returns words as bash splits them if they are variables without quotes that hold constants.
    pub(super) fn split_constants(&self, words: &[ShellWord]) -> Vec<ShellWord> {
        const SPLIT: [char; 6] = [' ', '\t', '\n', '*', '?', '['];
        let constant = |part: &WordPart| match part {
            WordPart::Variable(Variable {
                name, subscript: None, operation: Operation::Plain, quoted: false, ..
            }) if !self.variables.get(name).is_some_and(is_real) => self.constants.get(name)?.as_ref(),
            _ => None,
        };
        let is_split = |text: &String| text.is_empty() || text.contains(SPLIT) || self.constants.contains_key("IFS");
        let mut split = Vec::new();
        for word in words {
            if word.assigns.is_some() || !word.parts.iter().filter_map(constant).any(is_split) {
                split.push(word.clone());
                continue;
            }
            let text = match word.parts.as_slice() {
                [part] => constant(part),
                _ => None,
            };
            match text.filter(|text| !text.contains(['*', '?', '[']) && !self.constants.contains_key("IFS")) {
                Some(text) => split.extend(text.split_whitespace().map(|text| {
                    let parts = vec![WordPart::Text(text.to_owned())];
                    ShellWord { parts, assigns: None, expands: false, range: word.range.clone() }
                })),
                None => split.push(ShellWord { expands: true, ..word.clone() }),
            }
        }
        split
    }

    /// Judges a literal in a command that names untrusted variables: a program may pass it to a shell.
    pub(super) fn literal_code(&mut self, text: &str, range: &Range<usize>) {
        // The text itself, the part behind the name of an option, and the part behind that of a setting.
        const MOST: usize = 3;
        let mut rest = Some(text);
        for _ in 0..MOST {
            let Some(code) = rest.filter(|code| self.expanded_in(code).is_some()) else { return };
            rest = code.split_once('=').map(|(_, code)| code);
            let command = code.trim_start_matches(['!', '|', '@']);
            if parse::parse(command).is_ok() {
                self.nested(command, range, None);
            }
        }
    }

    /// Returns the text that a command prints, if that is a literal in it.
    pub(super) fn literal_output(&self, command: &Command) -> Option<(String, Range<usize>)> {
        let Command::Simple(simple) = command else { return None };
        if simple.redirects.iter().any(|redirect| matches!(redirect, Redirect::Into(_) | Redirect::Duplicate(_))) {
            return None;
        }
        self.literal_text(simple)
    }

    /// Returns the text that a command prints or writes, if that is a literal in it.
    pub(super) fn literal_text(&self, simple: &Simple) -> Option<(String, Range<usize>)> {
        let words = &simple.words;
        let redirects: Vec<&Redirect> =
            simple.redirects.iter().filter(|redirect| !matches!(redirect, Redirect::Into(_))).collect();
        let texts: Vec<String> = words.iter().map(|word| self.text(word)).collect::<Option<_>>()?;
        let (first, rest) = texts.split_first()?;
        if self.functions.contains_key(first) || words.iter().any(|word| word.expands) {
            return None;
        }
        let range = words.get(1).map_or(0..0, |word| word.range.clone());
        let text = match (first.as_str(), rest, redirects.as_slice()) {
            ("cat", [], [Redirect::Text(word)]) => return Some((self.text(word)?, word.range.clone())),
            ("echo", [first, ..], []) if !first.starts_with('-') => rest.join(" "),
            ("echo", [first, rest @ ..], []) if first == "-n" => rest.join(" "),
            ("printf", [format, text], []) if matches!(format.as_str(), "%s" | "%s\\n" | "%s\n") => text.clone(),
            _ => return None,
        };
        Some((text, range))
    }
}
