//! Words: what is in them, and where it is evaluated.

use std::ops::Range;

use super::starters::INPUT;
use super::{CommandFollower, JoinOrigins, NAMED, Tainted};
use crate::parse::{self, Command, CommandList, Operation, ShellWord, Variable, WordPart};
use crate::{How, ValueOrigin, names};

impl CommandFollower {
    /// Follows an assignment; returns its value.
    pub(super) fn assignment(&mut self, word: &ShellWord) -> Tainted {
        let Some(assigns) = &word.assigns else { return None };
        let is_text = self.associative.contains(&assigns.name);
        if let Some(subscript) = &assigns.subscript {
            self.subscript(subscript, is_text, &word.range);
        }
        let value = match &assigns.elements {
            Some(elements) => elements.iter().fold(None, |found: Tainted, element| {
                let subscript = element.assigns.as_ref().and_then(|assigns| assigns.subscript.as_ref());
                if let Some(subscript) = subscript {
                    self.subscript(subscript, is_text, &element.range);
                }
                found.join(self.parts(&element.parts, &element.range))
            }),
            None => {
                // The first text has the name and the `=`, and the value up to its first expansion.
                let text = word.beginning().split_once('=').map_or("", |(_, text)| text);
                let named = self.named(text);
                self.parts(&word.parts[assigns.value.min(word.parts.len())..], &word.range).join(named)
            }
        };
        if !is_text {
            self.assigned.insert(assigns.name.clone());
        }
        if names::is_read(&assigns.name, true) {
            self.read_by_programs(&assigns.name, word);
        }
        if names::names_programs(&assigns.name) {
            let reach = self.reach();
            self.report_if(&reach, || How::Environment(assigns.name.clone()), &word.range);
        }
        self.assign(&assigns.name, &value, &word.range);
        if is_text && let Some(subscript) = &assigns.subscript {
            let key = self.quiet(|follower| follower.parts(subscript, &word.range));
            self.assign(&assigns.name, &key.real(), &word.range);
        }
        value
    }

    /// Judges the author's own value of a variable that a shell or a program executes, or that names a file which it executes.
    pub(super) fn read_by_programs(&mut self, name: &str, word: &ShellWord) {
        let Some(text) = self.text(word).and_then(|text| Some(text.split_once('=')?.1.to_owned())) else { return };
        let value = ShellWord { parts: vec![WordPart::Text(text.clone())], ..word.clone() };
        let value = ShellWord { assigns: None, ..value };
        let named = if text.contains(['$', '`']) { self.named(&text) } else { None };
        let named = named.map(|origin| match origin {
            ValueOrigin::Variable(name) => ValueOrigin::Variable(name.trim_start_matches(NAMED).to_owned()),
            origin => origin,
        });
        let read = named.join(if names::is_file_of_code(name) { self.executed(&value) } else { None });
        self.report_if(&read, || How::Environment(name.to_owned()), &word.range);
    }

    /// Follows a part that is judged elsewhere, without reporting it.
    pub(super) fn quiet(&mut self, follow: impl FnOnce(&mut Self) -> Tainted) -> Tainted {
        let count = self.dangers.len();
        let tainted = follow(self);
        self.dangers.truncate(count);
        tainted
    }

    /// Judges a subscript: for an array it is arithmetic, for an associative one a text.
    pub(super) fn subscript(&mut self, parts: &[WordPart], is_text: bool, range: &Range<usize>) {
        if is_text {
            // A bare name in it is a text too.
            let expanded: Vec<WordPart> = parts.iter().filter(|part| !is_bare(part)).cloned().collect();
            self.parts(&expanded, range);
        } else {
            self.arithmetic(parts, range);
        }
    }

    /// Follows the parts of a word; returns the untrusted value that it may hold.
    pub(super) fn word(&mut self, word: &ShellWord) -> Tainted {
        if word.assigns.as_ref().is_some_and(|assigns| assigns.elements.is_some() || assigns.subscript.is_some()) {
            return self.assignment_value(word);
        }
        let tainted = self.parts(&word.parts, &word.range);
        if word.expands { tainted.join(self.created.clone()) } else { tainted }
    }

    pub(super) fn assignment_value(&mut self, word: &ShellWord) -> Tainted {
        let Some(assigns) = &word.assigns else { return None };
        let elements = assigns.elements.iter().flatten();
        let listed =
            elements.fold(None, |found: Tainted, element| found.join(self.parts(&element.parts, &element.range)));
        listed.join(self.parts(&word.parts, &word.range))
    }

    pub(super) fn parts(&mut self, parts: &[WordPart], range: &Range<usize>) -> Tainted {
        let mut found = None;
        for part in parts {
            let tainted = self.part(part, range);
            found = found.join(tainted);
        }
        found
    }

    pub(super) fn part(&mut self, part: &WordPart, range: &Range<usize>) -> Tainted {
        if !self.work.begin() {
            return None;
        }
        match part {
            WordPart::Text(text) => self.named(text),
            WordPart::Variable(variable) => self.expansion(variable),
            WordPart::Output { list, .. } => self.substitution(list, self.substitution_input()),
            WordPart::Process { list, reads, .. } => {
                let outer = (self.here.take(), std::mem::take(&mut self.is_file));
                let input = self.substitution_input().join(if *reads { self.reach() } else { None });
                let printed = self.substitution(list, input);
                (self.here, self.is_file) = outer;
                printed
            }
            WordPart::Arithmetic(parts) => {
                self.arithmetic(parts, range);
                None
            }
        }
    }

    /// Returns the input of a command substitution: the stdin of the command around it.
    pub(super) fn substitution_input(&self) -> Tainted {
        self.reads.clone()
    }

    pub(super) fn expansion(&mut self, variable: &Variable) -> Tainted {
        let Variable { name, subscript, operation, range, .. } = variable;
        let value = self.variable(name);
        if let Some(subscript) = subscript {
            let is_text = self.associative.contains(name);
            self.subscript(subscript, is_text, range);
        }
        match operation {
            Operation::Plain => value,
            Operation::Length => None,
            // The subscripts of an associative array are texts.
            Operation::Names if self.associative.contains(name) => value,
            Operation::Names => {
                let found =
                    self.variables.keys().find(|known| known.starts_with(name.as_str()) && names::is_variable(known));
                found.map(|found| ValueOrigin::Variable(format!("{NAMED}{found}")))
            }
            Operation::Indirect => {
                let value = value.join(self.reach());
                self.report_if(&value, || How::Expanded, range);
                value
            }
            Operation::Transform(letter) => {
                if *letter == 'P' {
                    let constant = self.constants.get(name).cloned().flatten();
                    let read = match constant {
                        Some(text) => self.expanded_in(&text).or_else(|| self.named(&text)).and_then(|_| self.reach()),
                        None => self.reach(),
                    };
                    self.report_if(&value.clone().join(read), || How::Expanded, range);
                }
                value
            }
            Operation::Slice(parts) => {
                self.arithmetic(parts, range);
                value
            }
            Operation::Default(parts, sets) => {
                let other = self.parts(parts, range);
                if *sets {
                    self.assign(name, &other, range);
                }
                value.join(other)
            }
            Operation::Pattern(parts) => {
                let other = self.parts(parts, range);
                value.join(other)
            }
        }
    }

    /// Judges an arithmetic expression: everything in it is evaluated.
    pub(super) fn arithmetic(&mut self, parts: &[WordPart], range: &Range<usize>) {
        for part in parts {
            let place = match part {
                WordPart::Variable(variable) => variable.range.clone(),
                WordPart::Output { range, .. } => range.clone(),
                _ => range.clone(),
            };
            let tainted = self.part(part, range);
            self.report_if(&tainted, || How::Arithmetic, &place);
        }
    }

    /// Reports the parts of a word that are outside of quotes and may be untrusted.
    pub(super) fn split(&mut self, word: &ShellWord) {
        for part in &word.parts {
            let (quoted, range) = match part {
                WordPart::Variable(variable) => (variable.quoted, &variable.range),
                WordPart::Output { quoted, range, .. } => (*quoted, range),
                _ => continue,
            };
            if !quoted {
                let count = self.dangers.len();
                let tainted = self.part(part, range);
                // Dangers inside were reported when the word was followed.
                self.dangers.truncate(count);
                self.report_if(&tainted, || How::Split, range);
            }
        }
    }

    /// Returns the untrusted value that a word may hold, without reporting the dangers in it again.
    pub(super) fn peek(&mut self, word: &ShellWord) -> Tainted {
        let count = self.dangers.len();
        let tainted = self.word(word);
        self.dangers.truncate(count);
        tainted
    }

    pub(super) fn any(&mut self, words: &[ShellWord]) -> Tainted {
        words.iter().fold(None, |found: Tainted, word| found.join(self.peek(word)))
    }

    /// Judges a word that names a variable, maybe with a subscript.
    pub(super) fn name(&mut self, word: &ShellWord) {
        let tainted = self.peek(word);
        self.report_if(&tainted, || How::Name, &word.range);
        let is_evaluated =
            |text: String| text.split_once('[').is_some_and(|(name, _)| !self.associative.contains(name));
        if tainted.real().is_none() && self.text(word).is_none_or(is_evaluated) {
            self.evaluated(word);
        }
    }

    /// Judges a word that is evaluated as arithmetic.
    pub(super) fn evaluated(&mut self, word: &ShellWord) {
        let mut tainted = self.peek(word);
        for part in &word.parts {
            if let WordPart::Text(text) = part
                && let Ok(parts) = parse::parse_arithmetic(text)
            {
                let count = self.dangers.len();
                let named = self.parts(&parts, &word.range);
                self.dangers.truncate(count);
                tainted = tainted.join(named);
            }
        }
        self.report_if(&tainted, || How::Arithmetic, &word.range);
    }
}

/// Whether a word may become several words: all elements of a list, all parameters, the input of `xargs`.
pub(super) fn is_several(word: &ShellWord) -> bool {
    word.parts.iter().any(|part| match part {
        WordPart::Variable(Variable { name, is_all, .. }) => {
            *is_all || matches!(name.as_str(), "@" | "*") || name == INPUT
        }
        _ => false,
    })
}

/// Whether all of a value is the name of a file that `mktemp` makes.
pub(super) fn is_made_by_mktemp(word: &ShellWord, value: usize) -> bool {
    let [WordPart::Output { list, .. }] = word.parts.get(value..).unwrap_or_default() else {
        // An empty text comes before a quoted part.
        return match word.parts.get(value..) {
            Some([WordPart::Text(text), WordPart::Output { list, .. }]) => text.is_empty() && is_mktemp(list),
            _ => false,
        };
    };
    is_mktemp(list)
}

pub(super) fn is_mktemp(list: &CommandList) -> bool {
    let [pipeline] = list.as_slice() else { return false };
    let [Command::Simple(simple)] = pipeline.as_slice() else { return false };
    let mut texts = simple.words.iter().map(ShellWord::literal);
    texts.next().flatten().as_deref() == Some("mktemp") && texts.all(|text| text.is_some())
}

/// Whether a part is a variable by its bare name, as arithmetic has it.
pub(super) fn is_bare(part: &WordPart) -> bool {
    matches!(part, WordPart::Variable(variable) if variable.range.len() == variable.name.len())
}
