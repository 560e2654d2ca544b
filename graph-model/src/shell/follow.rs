//! Following values through a command.
//!
//! What a variable may hold is collected without regard to the order of the commands, until nothing new is found; then each place is
//! judged. So a value is followed round a loop too, and a variable that ever held one counts as holding it everywhere.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::parse::{self, Command, List, Operation, Part, Redirect, Simple, Unreadable, Variable, Word};
use super::programs::{self, CARRIERS, COMPOSERS, EVALUATORS, Interpreter, Operand, PREFIXES};
use super::{Argument, Danger, Foreign, How, Origin, names};

/// How often commands that stand in texts of other commands are read.
const MAX_NESTING: usize = 8;

pub(super) fn command(text: &str, foreign: &Foreign) -> Vec<Danger> {
    let list = match parse::parse(text) {
        Ok(list) => list,
        Err(Unreadable(at)) => {
            return vec![Danger { origin: Origin::Anything, how: How::Unreadable, range: at..at }];
        }
    };
    let mut follower = Follower::new(foreign);
    follower.gather_constants(&list);
    let stdin = foreign.stdin.then_some(Origin::Stdin);
    follower.until_settled(|follower| {
        follower.list(&list, stdin.as_ref());
    })
}

pub(super) fn program(arguments: &[Argument<'_>], foreign: &Foreign) -> Vec<Danger> {
    let mut follower = Follower::new(foreign);
    let words: Vec<Word> = arguments
        .iter()
        .enumerate()
        .map(|(at, argument)| {
            let mut parts = vec![Part::Text(argument.text.to_owned())];
            if argument.is_foreign {
                follower.variables.insert(format!("{ARGUMENT}{at}"), Origin::Argument(at));
                let (name, operation) = (format!("{ARGUMENT}{at}"), Operation::Plain);
                let variable = Variable { name, subscript: None, operation, quoted: true, range: at..at + 1 };
                parts.push(Part::Variable(variable));
            }
            Word { parts, assigns: None, range: at..at + 1 }
        })
        .collect();
    let stdin = foreign.stdin.then_some(Origin::Stdin);
    follower.until_settled(|follower| {
        follower.external(&words, stdin.as_ref());
    })
}

/// What the name of a variable begins with that stands for a program's argument; no variable of a shell has such a name.
const ARGUMENT: &str = "argument ";

pub(super) fn expands(text: &str, name: &str) -> bool {
    let Ok(list) = parse::parse(text) else { return false };
    let mut follower = Follower::new(&Foreign::default());
    follower.looks_for = Some(name.to_owned());
    follower.list(&list, None);
    follower.found
}

#[derive(Default)]
struct Follower {
    /// The variables that may hold what somebody else chose.
    variables: BTreeMap<String, Origin>,
    /// The same of the positional parameters.
    positional: Option<Origin>,
    /// Files that such values were written to.
    files: BTreeMap<String, Origin>,
    /// Variables with the attribute `-i`, of which every value is evaluated.
    integers: BTreeSet<String>,
    /// Associative arrays, whose subscripts are texts.
    associative: BTreeSet<String>,
    /// Variables that only one literal text is ever assigned to.
    constants: BTreeMap<String, Option<String>>,
    /// What the functions may print.
    functions: BTreeMap<String, Option<Origin>>,
    dangers: Vec<Danger>,
    /// Where the text stands that is read, if it stands in another one.
    within: Option<Range<usize>>,
    nesting: usize,
    /// What the command reads that is followed.
    reads: Tainted,
    /// The same where it is a text in the command, and where that stands.
    here: Option<(String, Range<usize>)>,
    looks_for: Option<String>,
    found: bool,
}

type Tainted = Option<Origin>;

/// What the arguments of an interpreter are, by their indices.
#[derive(Default)]
struct Given {
    /// Whether an option has its code, or says which argument has.
    has_code: bool,
    code: Vec<usize>,
    operands: Vec<usize>,
}

impl Given {
    /// Reads the letters of the argument at `at`, each of which is an option. Returns the index of the last argument that belongs to
    /// them.
    fn letters(&mut self, program: Interpreter, letters: &str, mut at: usize, is_whole: bool) -> usize {
        for (place, letter) in letters.char_indices() {
            let end = place + letter.len_utf8();
            let (letter, has_argument_behind) = (&letters[place..end], end == letters.len() && is_whole);
            if program.code.contains(&letter) {
                self.has_code = true;
                // `-c` of a shell takes the first operand, whatever letters stand beside it.
                if !program.is_shell {
                    at += usize::from(has_argument_behind);
                    self.code.push(at);
                    break;
                }
            } else if program.takes.contains(&letter) {
                at += usize::from(has_argument_behind);
                break;
            }
        }
        at
    }
}

impl Follower {
    fn new(foreign: &Foreign) -> Self {
        let variables = foreign.variables.iter().map(|name| (name.clone(), Origin::Variable(name.clone()))).collect();
        Self { variables, ..Self::default() }
    }

    fn until_settled(mut self, mut walk: impl FnMut(&mut Self)) -> Vec<Danger> {
        loop {
            let before = self.size();
            self.dangers.clear();
            walk(&mut self);
            if self.size() == before {
                break;
            }
        }
        let mut dangers = self.dangers;
        dangers.sort_by_key(|danger| (danger.range.start, danger.range.end));
        dangers.dedup();
        dangers
    }

    fn size(&self) -> (usize, usize, usize, usize, bool, usize) {
        let printing = self.functions.values().filter(|tainted| tainted.is_some()).count();
        let (integers, lists) = (self.integers.len(), self.associative.len());
        (
            self.variables.len(),
            self.files.len(),
            integers + lists,
            self.functions.len(),
            self.positional.is_some(),
            printing,
        )
    }

    fn report(&mut self, origin: &Origin, how: How, range: &Range<usize>) {
        let range = self.within.clone().unwrap_or_else(|| range.clone());
        self.dangers.push(Danger { origin: origin.clone(), how, range });
    }

    fn report_if(&mut self, tainted: &Tainted, how: impl FnOnce() -> How, range: &Range<usize>) {
        if let Some(origin) = tainted {
            self.report(origin, how(), range);
        }
    }

    /// Assigns what may be somebody else's to a variable.
    fn assign(&mut self, name: &str, value: &Tainted, range: &Range<usize>) {
        let Some(origin) = value else { return };
        if names::is_read(name, true) {
            self.report(origin, How::Environment(name.to_owned()), range);
        }
        if self.integers.contains(name) {
            self.report(origin, How::Arithmetic, range);
        }
        self.variables.entry(name.to_owned()).or_insert_with(|| origin.clone());
    }

    fn variable(&mut self, name: &str) -> Tainted {
        if self.looks_for.as_deref() == Some(name) {
            self.found = true;
        }
        let is_positional = matches!(name, "@" | "*") || name.bytes().all(|byte| byte.is_ascii_digit());
        if is_positional { self.positional.clone() } else { self.variables.get(name).cloned() }
    }

    /// Finds the variables to which one literal text is assigned, and nothing else.
    fn gather_constants(&mut self, list: &List) {
        for command in list.iter().flatten() {
            match command {
                Command::Simple(simple) => {
                    for word in simple.assignments.iter().chain(&simple.words) {
                        let Some(assigns) = &word.assigns else { continue };
                        let text = word.literal().and_then(|text| Some(text.split_once('=')?.1.to_owned()));
                        let is_plain = assigns.subscript.is_none() && assigns.elements.is_none();
                        let text = text.filter(|_| is_plain && !word.beginning().contains("+="));
                        match self.constants.get_mut(&assigns.name) {
                            Some(known) if *known != text => *known = None,
                            Some(_) => {}
                            None => {
                                self.constants.insert(assigns.name.clone(), text);
                            }
                        }
                    }
                    // What `read`, `printf -v` and their like assign is no constant.
                    for word in &simple.words {
                        if let Some(name) = word.literal().filter(|name| names::is_variable(name)) {
                            self.constants.entry(name).or_insert(None);
                        }
                    }
                }
                Command::Group(lists, _) => lists.iter().for_each(|list| self.gather_constants(list)),
                Command::For(name, _, body, _) => {
                    self.constants.insert(name.clone(), None);
                    self.gather_constants(body);
                }
                Command::Case(_, arms, _) => arms.iter().for_each(|(_, body)| self.gather_constants(body)),
                Command::Function(_, body) => self.gather_constants(&vec![vec![(**body).clone()]]),
                Command::Test(..) | Command::Arithmetic(_) => {}
            }
        }
    }

    /// Returns a word's text where it is known: written out, or a variable that holds a constant.
    fn text(&self, word: &Word) -> Option<String> {
        if word.assigns.as_ref().is_some_and(|assigns| assigns.elements.is_some()) {
            return None;
        }
        let mut text = String::new();
        for part in &word.parts {
            match part {
                Part::Text(piece) => text.push_str(piece),
                Part::Variable(Variable { name, subscript: None, operation: Operation::Plain, .. })
                    if !self.variables.contains_key(name) =>
                {
                    text.push_str(self.constants.get(name)?.as_ref()?);
                }
                _ => return None,
            }
        }
        Some(text)
    }

    /// Follows a list whose commands read `input`; returns what it prints.
    fn list(&mut self, list: &List, input: Option<&Origin>) -> Tainted {
        let mut printed = None;
        for pipeline in list {
            let mut flows = input.cloned();
            let here = self.here.clone();
            for command in pipeline {
                flows = self.command(command, flows.as_ref());
                self.here = None;
            }
            self.here = here;
            printed = printed.or(flows);
        }
        printed
    }

    fn command(&mut self, command: &Command, input: Option<&Origin>) -> Tainted {
        let outer = (std::mem::replace(&mut self.reads, input.cloned()), self.here.clone());
        let printed = self.command_inside(command, input);
        (self.reads, self.here) = outer;
        printed
    }

    fn command_inside(&mut self, command: &Command, input: Option<&Origin>) -> Tainted {
        match command {
            Command::Simple(simple) => self.simple(simple, input),
            Command::Group(lists, redirects) => {
                let input = self.redirects(redirects, input.cloned());
                let mut printed = None;
                for list in lists {
                    let flows = self.list(list, input.as_ref());
                    printed = printed.or(flows);
                }
                self.write(redirects, &printed);
                printed
            }
            Command::For(name, words, body, redirects) => {
                let input = self.redirects(redirects, input.cloned());
                let over = match words {
                    Some(words) => words.iter().fold(None, |found: Tainted, word| found.or(self.word(word))),
                    None => self.positional.clone(),
                };
                let range = words.iter().flatten().next().map_or(0..0, |word| word.range.clone());
                self.assign(name, &over, &range);
                let printed = self.list(body, input.as_ref());
                self.write(redirects, &printed);
                printed
            }
            Command::Case(word, arms, redirects) => {
                let input = self.redirects(redirects, input.cloned());
                self.word(word);
                let mut printed = None;
                for (patterns, body) in arms {
                    patterns.iter().for_each(|pattern| drop(self.word(pattern)));
                    let flows = self.list(body, input.as_ref());
                    printed = printed.or(flows);
                }
                self.write(redirects, &printed);
                printed
            }
            Command::Test(words, redirects) => {
                self.redirects(redirects, None);
                self.test(words);
                None
            }
            Command::Arithmetic(word) => {
                self.word(word);
                None
            }
            Command::Function(name, body) => {
                self.functions.entry(name.clone()).or_insert(None);
                let called = self.variables.get(STDIN).cloned();
                let printed = self.command(body, input.or(called.as_ref()));
                let known = self.functions.entry(name.clone()).or_insert(None);
                if known.is_none() {
                    *known = printed;
                }
                None
            }
        }
    }

    /// Follows redirections; returns what the command reads then.
    fn redirects(&mut self, redirects: &[Redirect], input: Tainted) -> Tainted {
        let mut input = input;
        for redirect in redirects {
            match redirect {
                Redirect::From(word) => {
                    let path = self.word(word);
                    self.split(word);
                    self.here = None;
                    let name = self.text(word).unwrap_or_default();
                    let is_own = is_stdin(&name) || name.starts_with("/proc/");
                    input = path.or(if is_own { input } else { self.files.get(&plain_path(&name)).cloned() });
                }
                Redirect::Text(word) => {
                    input = self.word(word);
                    self.here = self.text(word).map(|text| (text, word.range.clone()));
                }
                Redirect::Into(word) | Redirect::Duplicate(word) => {
                    self.word(word);
                    self.split(word);
                }
            }
        }
        input
    }

    /// Notes to which files a command writes what may be somebody else's.
    fn write(&mut self, redirects: &[Redirect], printed: &Tainted) {
        let Some(origin) = printed else { return };
        for redirect in redirects {
            if let Redirect::Into(word) = redirect
                && let Some(name) = self.text(word)
            {
                self.files.entry(plain_path(&name)).or_insert_with(|| origin.clone());
            }
        }
    }

    fn simple(&mut self, simple: &Simple, input: Option<&Origin>) -> Tainted {
        for word in &simple.assignments {
            self.assignment(word);
        }
        for word in &simple.words {
            self.word(word);
            if word.assigns.is_none() {
                self.split(word);
            }
        }
        let input = self.redirects(&simple.redirects, input.cloned());
        let printed = self.started(&simple.words, input.as_ref());
        self.write(&simple.redirects, &printed);
        printed
    }

    /// Follows an assignment; returns its value.
    fn assignment(&mut self, word: &Word) -> Tainted {
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
                found.or(self.parts(&element.parts, &element.range))
            }),
            None => self.parts(&word.parts[assigns.value.min(word.parts.len())..], &word.range),
        };
        self.assign(&assigns.name, &value, &word.range);
        value
    }

    /// Judges a subscript: of an array it is arithmetic, of an associative one a text.
    fn subscript(&mut self, parts: &[Part], is_text: bool, range: &Range<usize>) {
        if is_text {
            // A bare name in it is a text too.
            let expanded: Vec<Part> = parts.iter().filter(|part| !is_bare(part)).cloned().collect();
            self.parts(&expanded, range);
        } else {
            self.arithmetic(parts, range);
        }
    }

    /// Follows what is in a word; returns whose value it may be.
    fn word(&mut self, word: &Word) -> Tainted {
        if word.assigns.as_ref().is_some_and(|assigns| assigns.elements.is_some() || assigns.subscript.is_some()) {
            return self.assignment_value(word);
        }
        self.parts(&word.parts, &word.range)
    }

    fn assignment_value(&mut self, word: &Word) -> Tainted {
        let Some(assigns) = &word.assigns else { return None };
        let elements = assigns.elements.iter().flatten();
        let listed =
            elements.fold(None, |found: Tainted, element| found.or(self.parts(&element.parts, &element.range)));
        listed.or(self.parts(&word.parts, &word.range))
    }

    fn parts(&mut self, parts: &[Part], range: &Range<usize>) -> Tainted {
        let mut found = None;
        for part in parts {
            let tainted = self.part(part, range);
            found = found.or(tainted);
        }
        found
    }

    fn part(&mut self, part: &Part, range: &Range<usize>) -> Tainted {
        match part {
            Part::Text(_) => None,
            Part::Variable(variable) => self.expansion(variable),
            Part::Output { list, .. } => self.list(list, self.substitution_input().as_ref()),
            Part::Process { list, .. } => self.list(list, self.substitution_input().as_ref()),
            Part::Arithmetic(parts) => {
                self.arithmetic(parts, range);
                None
            }
        }
    }

    /// What a command substitution reads: the stdin of the command around it.
    fn substitution_input(&self) -> Tainted {
        self.reads.clone()
    }

    fn expansion(&mut self, variable: &Variable) -> Tainted {
        let Variable { name, subscript, operation, range, .. } = variable;
        let value = self.variable(name);
        if let Some(subscript) = subscript {
            let is_text = self.associative.contains(name);
            self.subscript(subscript, is_text, range);
        }
        match operation {
            Operation::Plain => value,
            Operation::Length | Operation::Names => None,
            Operation::Indirect => {
                self.report_if(&value, || How::Expanded, range);
                value
            }
            Operation::Transform(letter) => {
                if *letter == 'P' {
                    self.report_if(&value, || How::Expanded, range);
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
                value.or(other)
            }
            Operation::Pattern(parts) => {
                let other = self.parts(parts, range);
                value.or(other)
            }
        }
    }

    /// Judges an arithmetic expression: everything in it is evaluated.
    fn arithmetic(&mut self, parts: &[Part], range: &Range<usize>) {
        for part in parts {
            let place = match part {
                Part::Variable(variable) => variable.range.clone(),
                Part::Output { range, .. } => range.clone(),
                _ => range.clone(),
            };
            let tainted = self.part(part, range);
            self.report_if(&tainted, || How::Arithmetic, &place);
        }
    }

    /// Reports the parts of a word that stand outside of quotes and may be somebody else's.
    fn split(&mut self, word: &Word) {
        for part in &word.parts {
            let (quoted, range) = match part {
                Part::Variable(variable) => (variable.quoted, &variable.range),
                Part::Output { quoted, range, .. } => (*quoted, range),
                _ => continue,
            };
            if !quoted {
                let count = self.dangers.len();
                let tainted = self.part(part, range);
                // What is wrong inside was said when the word was followed.
                self.dangers.truncate(count);
                self.report_if(&tainted, || How::Split, range);
            }
        }
    }

    /// Returns whose value a word may be, without following what is in it once more.
    fn peek(&mut self, word: &Word) -> Tainted {
        let count = self.dangers.len();
        let tainted = self.word(word);
        self.dangers.truncate(count);
        tainted
    }

    fn any(&mut self, words: &[Word]) -> Tainted {
        words.iter().fold(None, |found: Tainted, word| found.or(self.peek(word)))
    }

    /// Judges `[[ … ]]`.
    fn test(&mut self, words: &[Word]) {
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
                let tainted = self.peek(name);
                self.report_if(&tainted, || How::Name, &name.range);
            }
        }
    }

    /// Judges a word that is evaluated as arithmetic.
    fn evaluated(&mut self, word: &Word) {
        let mut tainted = self.peek(word);
        for part in &word.parts {
            if let Part::Text(text) = part
                && let Ok(parts) = parse::parse_arithmetic(text)
            {
                let count = self.dangers.len();
                let named = self.parts(&parts, &word.range);
                self.dangers.truncate(count);
                tainted = tainted.or(named);
            }
        }
        self.report_if(&tainted, || How::Arithmetic, &word.range);
    }

    /// Judges a simple command: a builtin, a function, or a program.
    fn started(&mut self, words: &[Word], input: Option<&Origin>) -> Tainted {
        let (first, arguments) = words.split_first()?;
        if let Some(origin) = self.peek(first) {
            self.report(&origin, How::Program, &first.range);
            return Some(origin);
        }
        let Some(name) = self.text(first) else {
            let tainted = self.any(arguments).or(input.cloned());
            self.report_if(&tainted, || How::Unknown, &first.range);
            return tainted;
        };
        if let Some(printed) = self.functions.get(&name).cloned() {
            let given = self.any(arguments);
            if self.positional.is_none() {
                self.positional = given.clone();
            }
            // What the function reads is what the command around it reads; its body was followed where it stands.
            if let Some(origin) = input {
                self.variables.entry(STDIN.to_owned()).or_insert_with(|| origin.clone());
            }
            return printed.or(given).or(input.cloned());
        }
        match self.builtin(&name, words, input) {
            Some(printed) => printed,
            None => self.external(words, input),
        }
    }

    /// Judges a builtin of bash; nothing if it is none that needs it.
    fn builtin(&mut self, name: &str, words: &[Word], input: Option<&Origin>) -> Option<Tainted> {
        let arguments = &words[1..];
        let range = words[0].range.clone();
        let texts: Vec<Option<String>> = arguments.iter().map(|word| self.text(word)).collect();
        match name {
            "eval" => {
                let tainted = self.any(arguments);
                self.report_if(&tainted, || How::Code(name.to_owned()), &range);
                let known: Option<Vec<String>> = texts.into_iter().collect();
                let printed = known.and_then(|texts| self.nested(&texts.join(" "), &range, input));
                return Some(tainted.or(printed));
            }
            "." | "source" => {
                if let Some(script) = arguments.first() {
                    self.script(script, input, name);
                }
                if self.positional.is_none() {
                    self.positional = self.any(arguments.get(1..).unwrap_or_default());
                }
                return Some(self.any(arguments).or(input.cloned()));
            }
            "trap" => {
                if let Some(action) = arguments.iter().find(|word| !word.beginning().starts_with("--")) {
                    let tainted = self.peek(action);
                    self.report_if(&tainted, || How::Code(name.to_owned()), &action.range);
                    if let Some(text) = self.text(action) {
                        self.nested(&text, &action.range, input);
                    }
                }
            }
            "let" => arguments.iter().for_each(|word| self.evaluated(word)),
            "declare" | "typeset" | "local" | "export" | "readonly" => self.declaration(arguments, &texts),
            "printf" => return Some(self.printf(arguments, &texts)),
            "read" | "mapfile" | "readarray" => self.read(name, arguments, &texts, input),
            "unset" | "getopts" => {
                for word in arguments {
                    let tainted = self.peek(word);
                    self.report_if(&tainted, || How::Name, &word.range);
                }
            }
            "test" | "[" => self.bracket(arguments, &texts),
            "set" => {
                let dashes = texts.iter().position(|text| text.as_deref() == Some("--"));
                let tainted = self.any(arguments);
                if dashes.is_none()
                    && let Some(word) = arguments.first()
                {
                    let first = self.peek(word);
                    self.report_if(&first, || How::Option("set".to_owned()), &word.range);
                }
                if self.positional.is_none() {
                    self.positional = tainted;
                }
            }
            "wait" => {
                let tainted = self.any(arguments);
                let named = texts.iter().flatten().any(|text| text.starts_with("-p"));
                self.report_if(&tainted.filter(|_| named), || How::Name, &range);
            }
            _ if EVALUATORS.contains(&name) => {
                let tainted = self.any(arguments);
                self.report_if(&tainted, || How::Code(name.to_owned()), &range);
                return Some(tainted);
            }
            "echo" => return Some(self.any(arguments)),
            "true" | "false" | ":" | "cd" | "pushd" | "popd" | "exit" | "return" | "shift" | "break" | "continue"
            | "kill" | "umask" | "ulimit" | "pwd" | "type" | "times" | "shopt" => {}
            _ => return None,
        }
        Some(None)
    }

    fn declaration(&mut self, arguments: &[Word], texts: &[Option<String>]) {
        let options: String = texts.iter().flatten().filter_map(|text| text.strip_prefix('-')).collect();
        for word in arguments {
            match &word.assigns {
                Some(assigns) => {
                    if options.contains('A') {
                        self.associative.insert(assigns.name.clone());
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
                    let tainted = self.peek(word);
                    self.report_if(&tainted, || How::Name, &word.range);
                    if let Some(name) = self.text(word).filter(|name| names::is_variable(name)) {
                        if options.contains('A') {
                            self.associative.insert(name.clone());
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

    fn printf(&mut self, arguments: &[Word], texts: &[Option<String>]) -> Tainted {
        let printed = self.any(arguments);
        let mut rest = 0;
        if let Some(Some(option)) = texts.first()
            && let Some(attached) = option.strip_prefix("-v")
        {
            rest = if attached.is_empty() { 2 } else { 1 };
            if attached.is_empty()
                && let Some(target) = arguments.get(1)
            {
                let tainted = self.peek(target);
                self.report_if(&tainted, || How::Name, &target.range);
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

    fn read(&mut self, name: &str, arguments: &[Word], texts: &[Option<String>], input: Option<&Origin>) {
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
                            if let Some(target) = value {
                                self.assign(&target, &input, &range);
                            }
                            named = true;
                        }
                        "C" => {
                            self.report_if(&tainted, || How::Code(name.to_owned()), &range);
                            if let Some(text) = value {
                                if self.positional.is_none() {
                                    self.positional.clone_from(&input);
                                }
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
            let tainted = self.peek(word);
            self.report_if(&tainted, || How::Name, &word.range);
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
    fn bracket(&mut self, arguments: &[Word], texts: &[Option<String>]) {
        let end = match texts.last() {
            Some(Some(last)) if last == "]" => arguments.len() - 1,
            _ => arguments.len(),
        };
        let tainted: Vec<Tainted> = arguments[..end].iter().map(|word| self.peek(word)).collect();
        for at in 1..end {
            if !matches!(texts[at - 1].as_deref(), Some("-v" | "-R")) {
                continue;
            }
            self.report_if(&tainted[at].clone(), || How::Name, &arguments[at].range);
        }
        // Where two values of others stand side by side, the first may be the operator `-v`.
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

    /// Follows code that stands in a text of the command; returns what it prints.
    fn nested(&mut self, text: &str, range: &Range<usize>, input: Option<&Origin>) -> Tainted {
        let is_given = !self.variables.is_empty() || self.positional.is_some() || input.is_some();
        match parse::parse(text) {
            Ok(_) if self.nesting >= MAX_NESTING && is_given => {
                self.report(&Origin::Anything, How::Unreadable, range);
                None
            }
            Ok(list) if self.nesting < MAX_NESTING => {
                let outer = self.within.clone();
                self.within.get_or_insert_with(|| range.clone());
                self.nesting += 1;
                self.gather_constants(&list);
                let printed = self.list(&list, input);
                self.nesting -= 1;
                self.within = outer;
                printed
            }
            Ok(_) => None,
            Err(_) if is_given => {
                self.report(&Origin::Anything, How::Unreadable, range);
                None
            }
            Err(_) => None,
        }
    }

    /// Judges a word that names a file of code.
    fn script(&mut self, word: &Word, input: Option<&Origin>, reader: &str) {
        let tainted = self.peek(word);
        self.report_if(&tainted, || How::Code(reader.to_owned()), &word.range);
        let Some(name) = self.text(word) else { return };
        let written = self.files.get(&plain_path(&name)).cloned();
        let written = written.or(if is_stdin(&name) { input.cloned() } else { None });
        self.report_if(&written, || How::Code(reader.to_owned()), &word.range);
    }

    /// Judges a program and its arguments; returns what it prints.
    fn external(&mut self, words: &[Word], input: Option<&Origin>) -> Tainted {
        let (first, arguments) = words.split_first()?;
        let tainted_program = self.peek(first);
        self.report_if(&tainted_program, || How::Program, &first.range);
        let Some(path) = self.text(first) else { return self.any(words).or(input.cloned()) };
        let written = self.files.get(&plain_path(&path)).cloned();
        self.report_if(&written, || How::Code(path.clone()), &first.range);
        let name = path.rsplit('/').next().unwrap_or_default();
        let texts: Vec<Option<String>> = arguments.iter().map(|word| self.text(word)).collect();
        let mut printed = self.any(arguments).or(input.cloned());
        if let Some(interpreter) = programs::interpreter(name) {
            let more = self.interpreter(name, interpreter, words, &texts, input);
            printed = printed.or(more);
        }
        if COMPOSERS.contains(&name) {
            let tainted = self.any(arguments);
            self.report_if(&tainted, || How::Code(name.to_owned()), &first.range);
        }
        match name {
            "ssh" | "autossh" | "sshpass" => self.ssh(name, arguments, &texts),
            "env" => self.assignments_of_env(arguments),
            "tee" => {
                if let Some(origin) = &printed {
                    for file in texts.iter().flatten() {
                        self.files.entry(plain_path(file)).or_insert_with(|| origin.clone());
                    }
                }
            }
            _ => {}
        }
        if programs::has_dangerous_options(name, texts.iter().flatten().map(String::as_str)) {
            self.options(name, arguments, &texts);
        }
        if PREFIXES.contains(&name) || CARRIERS.contains(&name) {
            self.carried(name, words, &texts, input);
        }
        if prints_a_number(name, &texts) { None } else { printed }
    }

    /// Judges the arguments of a program that executes some of them.
    fn interpreter(
        &mut self,
        name: &str,
        program: Interpreter,
        words: &[Word],
        texts: &[Option<String>],
        input: Option<&Origin>,
    ) -> Tainted {
        let arguments = &words[1..];
        let given = self.given(program, arguments, texts);
        if program.is_shell && given.has_code {
            let script = given.operands.first();
            return script.and_then(|&script| self.code_of_shell(name, arguments, texts, script, input));
        }
        for word in given.code.iter().filter_map(|&at| arguments.get(at)) {
            self.code_of(name, word);
        }
        let first = given.operands.first().copied();
        let has_operand = first.is_some_and(|at| texts[at].as_deref() != Some("-"));
        let mut has_code = given.has_code;
        match (program.operand, first) {
            (Operand::Script, Some(at)) if !has_code && has_operand => {
                let reads = texts.iter().flatten().any(|text| program.is_shell && text == "-s");
                if !reads {
                    self.script(&arguments[at], input, name);
                    // The script is another text, whose own parameters these are.
                    let is_first = program.is_shell && self.positional.is_none();
                    return if is_first { self.any(arguments) } else { None };
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
        if is_stdin { self.code_on_stdin(name, program, &words[0], input) } else { None }
    }

    /// Tells the options of an interpreter from its operands.
    fn given(&mut self, program: Interpreter, arguments: &[Word], texts: &[Option<String>]) -> Given {
        let mut given = Given::default();
        let mut at = 0;
        while let Some(word) = arguments.get(at) {
            let known = word.beginning();
            let is_long = known.starts_with("--") && known.len() > 2;
            let is_option = known.starts_with('-') && known.len() > 1 && known != "--" && given.operands.is_empty();
            let is_whole = texts[at].is_some();
            let option = known.split('=').next().unwrap_or_default();
            if !is_option {
                // An operand that begins with a value of somebody else may be an option, as which it is judged below.
                if known != "--" || texts[at].as_deref() != Some("--") {
                    given.operands.push(at);
                }
            } else if program.code.contains(&option) {
                given.has_code = true;
                at += usize::from(is_whole && !known.contains('='));
                given.code.push(at);
            } else if program.takes.contains(&option) {
                at += usize::from(is_whole && !known.contains('='));
            } else if !is_long {
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
    fn code_of_shell(
        &mut self,
        name: &str,
        arguments: &[Word],
        texts: &[Option<String>],
        script: usize,
        input: Option<&Origin>,
    ) -> Tainted {
        let positional = self.any(arguments.get(script + 1..).unwrap_or_default());
        if self.positional.is_none() {
            self.positional = positional;
        }
        let word = &arguments[script];
        let tainted = self.peek(word);
        self.report_if(&tainted, || How::Code(name.to_owned()), &word.range);
        match texts[script].as_deref() {
            Some(text) => return self.nested(text, &word.range, input),
            None if tainted.is_none() => {
                // The code is put together from what is the author's own; what it does with the values cannot be seen.
                let given = self.any(arguments).or(input.cloned());
                self.report_if(&given, || How::Unreadable, &word.range);
            }
            None => {}
        }
        None
    }

    /// Judges the code that an interpreter reads from stdin.
    fn code_on_stdin(&mut self, name: &str, program: Interpreter, command: &Word, input: Option<&Origin>) -> Tainted {
        let mut printed = None;
        if program.is_shell
            && let Some((text, range)) = self.here.take()
        {
            printed = self.nested(&text, &range, None);
        }
        if let Some(origin) = input {
            self.report(origin, How::Code(name.to_owned()), &command.range);
        }
        printed
    }

    /// Judges an argument that is code of a program.
    fn code_of(&mut self, name: &str, word: &Word) {
        let tainted = self.peek(word);
        self.report_if(&tainted, || How::Code(name.to_owned()), &word.range);
    }

    /// Judges the arguments of `ssh`: all behind the host become the command of a shell.
    fn ssh(&mut self, name: &str, arguments: &[Word], texts: &[Option<String>]) {
        let dashes = texts.iter().position(|text| text.as_deref() == Some("--"));
        let mut host = None;
        for (at, word) in arguments.iter().enumerate() {
            let tainted = self.peek(word);
            let is_option = dashes.is_none_or(|dashes| at < dashes) && word.beginning().starts_with('-');
            if is_option || dashes == Some(at) {
                self.report_if(&tainted, || How::Option(name.to_owned()), &word.range);
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

    /// Judges the assignments among the arguments of `env`.
    fn assignments_of_env(&mut self, arguments: &[Word]) {
        for word in arguments {
            if let Some((name, _)) = word.beginning().split_once('=') {
                let tainted = self.peek(word);
                let name = name.to_owned();
                if names::is_read(&name, true) {
                    self.report_if(&tainted, || How::Environment(name), &word.range);
                }
            }
        }
    }

    /// Reports values among the arguments of a program that may be options of it.
    fn options(&mut self, name: &str, arguments: &[Word], texts: &[Option<String>]) {
        for (word, text) in arguments.iter().zip(texts) {
            if text.as_deref() == Some("--") {
                return;
            }
            if word.beginning().is_empty() {
                let tainted = self.peek(word);
                self.report_if(&tainted, || How::Option(name.to_owned()), &word.range);
            }
        }
    }

    /// Judges the program that another one starts.
    fn carried(&mut self, name: &str, words: &[Word], texts: &[Option<String>], input: Option<&Origin>) {
        let arguments = &words[1..];
        let is_prefix = PREFIXES.contains(&name);
        let mut started = false;
        for (at, word) in arguments.iter().enumerate() {
            let known = word.beginning().to_owned();
            let after_exec = at > 0
                && matches!(texts[at - 1].as_deref(), Some("-exec" | "-execdir" | "-ok" | "-okdir"))
                && name == "find";
            if (is_prefix && !started && known.is_empty()) || after_exec {
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
                || ((PREFIXES.contains(&base) || CARRIERS.contains(&base))
                    && (is_prefix || !matches!(base, "exec" | "command" | "builtin" | "time")))
                || COMPOSERS.contains(&base)
                || base == "ssh"
                || (matches!(name, "command" | "builtin" | "busybox" | "env" | "sudo") && base != name);
            if is_known {
                let mut inner: Vec<Word> = arguments[at..].to_vec();
                if name == "xargs" {
                    inner.extend(input.map(|_| standing_for_input(&word.range)));
                    self.xargs_places(&inner, texts, input);
                }
                match (is_prefix, input) {
                    (true, input) => drop(self.started(&inner, input)),
                    (false, _) if name == "xargs" => {
                        let outer = self.variables.get(INPUT).cloned();
                        if let Some(origin) = input {
                            self.variables.insert(INPUT.to_owned(), origin.clone());
                        }
                        self.external(&inner, None);
                        if outer.is_none() {
                            self.variables.remove(INPUT);
                        }
                    }
                    (false, input) => drop(self.external(&inner, input)),
                }
            }
            // What stands behind an option may be its argument.
            let is_ambiguous =
                at > 0 && texts[at - 1].as_deref().is_some_and(|text| text.starts_with('-') && text != "--");
            if is_prefix && !is_ambiguous {
                return;
            }
            started = started || !is_ambiguous;
        }
    }

    /// Reports code of `xargs` in which `{}` or the like stands for what it reads.
    fn xargs_places(&mut self, words: &[Word], texts: &[Option<String>], input: Option<&Origin>) {
        let Some(origin) = input else { return };
        let replaces = |text: &&str| text.starts_with("-I") || text.starts_with("-i") || text.starts_with("--replace");
        if !texts.iter().flatten().map(String::as_str).any(|text| replaces(&text)) {
            return;
        }
        for word in words {
            if self.text(word).is_some_and(|text| text.contains("{}") && text.len() > 2) {
                self.report(origin, How::Code("xargs".to_owned()), &word.range);
            }
        }
    }
}

/// Holds what functions read where they are called; no variable of a shell has such a name.
const STDIN: &str = "the stdin";
/// Holds what `xargs` appends.
const INPUT: &str = "the input of xargs";

/// The word that `xargs` makes of what it reads.
fn standing_for_input(range: &Range<usize>) -> Word {
    let (name, operation) = (INPUT.to_owned(), Operation::Plain);
    let variable = Variable { name, subscript: None, operation, quoted: true, range: range.clone() };
    Word { parts: vec![Part::Variable(variable)], assigns: None, range: range.clone() }
}

/// Returns a path without the `./` that names the same file.
fn plain_path(path: &str) -> String {
    path.trim_start_matches("./").to_owned()
}

fn is_stdin(path: &str) -> bool {
    path == "-" || path.starts_with("/dev/stdin") || path.starts_with("/dev/fd/") || path.starts_with("/proc/self/fd/")
}

/// Whether a part is a variable by its bare name, as arithmetic has it.
fn is_bare(part: &Part) -> bool {
    matches!(part, Part::Variable(variable) if variable.range.len() == variable.name.len())
}

/// Whether all that a program prints is a number, whatever it is given.
fn prints_a_number(name: &str, texts: &[Option<String>]) -> bool {
    let operands = texts.iter().filter(|text| text.as_deref().is_none_or(|text| !text.starts_with('-'))).count();
    let letters = |letter: char| {
        let is_short = |text: &&String| text.starts_with('-') && !text.starts_with("--");
        texts.iter().flatten().filter(is_short).any(|text| text.contains(letter))
    };
    match name {
        "wc" => operands == 0,
        "grep" | "egrep" | "fgrep" => letters('c') && !letters('r') && !letters('R') && !letters('H') && operands <= 2,
        "tr" => {
            let known: Vec<&str> = texts.iter().flatten().map(String::as_str).collect();
            matches!(known.as_slice(), ["-cd" | "-dc", "0-9" | "[:digit:]" | "0-9\\n"])
        }
        _ => false,
    }
}
