//! Following values through a command.
//!
//! What a variable may hold is collected without regard to the order of the commands, until nothing new is found; then each place is
//! judged. So a value is followed round a loop too, and a variable that ever held one counts as holding it everywhere.

mod find;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;

use super::parse::{self, Command, List, Operation, Part, Redirect, Simple, Unreadable, Variable, Word};
use super::programs::{self, CARRIERS, COMPOSERS, EVALUATORS, Interpreter, Operand, OptionOf, Starter};
use super::{Argument, Danger, Foreign, How, Origin, filters, names};

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
    follower.reads_errors = leads_errors(text);
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
                let variable =
                    Variable { name, subscript: None, is_all: false, operation, quoted: true, range: at..at + 1 };
                parts.push(Part::Variable(variable));
            }
            Word { parts, assigns: None, expands: false, range: at..at + 1 }
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
    /// Files that programs may have written such values to: they are named beside them.
    touched: BTreeMap<String, Origin>,
    /// Variables with the attribute `-i`, of which every value is evaluated.
    integers: BTreeSet<String>,
    /// Associative arrays, whose subscripts are texts, of those that were declared where the walk is now.
    associative: Rc<BTreeSet<String>>,
    /// Variables that the walk has seen an assignment to: they do not become associative arrays any more.
    assigned: BTreeSet<String>,
    /// Variables that only hold the name of a file that `mktemp` made.
    fresh: BTreeMap<String, bool>,
    /// Variables that only one literal text is ever assigned to.
    constants: BTreeMap<String, Option<String>>,
    /// What the functions may print.
    functions: BTreeMap<String, Option<Origin>>,
    dangers: Vec<Danger>,
    /// Where the text stands that is read, if it stands in another one.
    within: Option<Range<usize>>,
    nesting: usize,
    /// Whether the stdin of the whole command is somebody else's.
    stdin: bool,
    /// What the command reads that is followed.
    reads: Tainted,
    /// The same where it is a text in the command, and where that stands.
    here: Option<(String, Range<usize>)>,
    /// What the command writes to files of its own, by their names without directory; nothing is what cannot be read.
    scripts: BTreeMap<String, BTreeSet<Script>>,
    /// What files may be called that somebody else named.
    created: Tainted,
    /// Whether the command reads a file whose name is known, and which the author wrote.
    is_file: bool,
    /// What descriptors hold that `exec` opens for all commands.
    opened: Tainted,
    /// What was written to a file whose name cannot be known.
    scattered: Tainted,
    /// Whether what commands write to stderr may be read: error messages have the words in them that a command was given.
    reads_errors: bool,
    /// Whether the command copies or renames files, so that what was written to one may be in another.
    moves: bool,
    looks_for: Option<String>,
    found: bool,
}

type Tainted = Option<Origin>;

/// The text of a script that the command writes, and where that stands; nothing if it cannot be read.
type Script = Option<(String, usize, usize)>;

/// What the name of a value begins with that is only the name of a variable: it matters where bash evaluates names. No variable of
/// a shell has such a name.
const NAMED: &str = "the name of ";

/// What may be somebody else's, of several values.
trait Join {
    /// Returns a value itself before the name of a variable.
    fn join(self, other: Tainted) -> Tainted;
    /// Returns the value, if it is more than the name of a variable.
    fn real(&self) -> Tainted;
}

impl Join for Tainted {
    fn join(self, other: Tainted) -> Tainted {
        if self.as_ref().is_some_and(is_real) {
            self
        } else {
            other.filter(|other| is_real(other) || self.is_none()).or(self)
        }
    }

    fn real(&self) -> Tainted {
        self.clone().filter(is_real)
    }
}

fn is_real(origin: &Origin) -> bool {
    !matches!(origin, Origin::Variable(name) if name.starts_with(NAMED))
}

/// Notes whose value something holds.
fn note(map: &mut BTreeMap<String, Origin>, name: &str, origin: &Origin) {
    let known = map.entry(name.to_owned()).or_insert_with(|| origin.clone());
    if !is_real(known) {
        *known = origin.clone();
    }
}

/// What the arguments of an interpreter are, by their indices.
#[derive(Default)]
struct Given {
    /// Whether an option has its code, or says which argument has.
    has_code: bool,
    /// Whether an option stands there that the table does not know.
    is_unknown: bool,
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
            self.is_unknown |= !program.knows(letter);
            if program.attached.contains(letter) {
                break;
            }
            if program.code.contains(&letter) {
                self.has_code = true;
                // `-c` of a shell takes the first operand, whatever letters stand beside it.
                if !program.is_shell {
                    at += usize::from(has_argument_behind);
                    self.code.push(at);
                    break;
                }
            } else if program.takes.contains(&letter) {
                // Of a shell, `-o` takes the next operand, whatever letters stand beside it.
                at += usize::from(has_argument_behind || program.is_shell);
                if !program.is_shell {
                    break;
                }
            }
        }
        at
    }
}

impl Follower {
    fn new(foreign: &Foreign) -> Self {
        let variables = foreign.variables.iter().map(|name| (name.clone(), Origin::Variable(name.clone()))).collect();
        Self { variables, stdin: foreign.stdin, ..Self::default() }
    }

    fn until_settled(mut self, mut walk: impl FnMut(&mut Self)) -> Vec<Danger> {
        loop {
            let before = self.size();
            self.dangers.clear();
            self.associative = Rc::default();
            self.assigned.clear();
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

    /// Returns how much is known: it only ever grows.
    fn size(&self) -> usize {
        let weight = |origin: &Origin| if is_real(origin) { 2 } else { 1 };
        let of = |tainted: &Tainted| tainted.as_ref().map_or(0, weight);
        let held =
            self.variables.values().chain(self.files.values()).chain(self.touched.values()).map(weight).sum::<usize>();
        let printed = self.functions.values().map(of).sum::<usize>();
        let others = of(&self.positional) + of(&self.opened) + of(&self.scattered);
        let flags = usize::from(self.moves) + usize::from(self.reads_errors);
        held + printed
            + others
            + flags
            + self.integers.len()
            + self.functions.len()
            + of(&self.created)
            + self.scripts.values().map(BTreeSet::len).sum::<usize>()
    }

    /// Returns a value of somebody else that a variable of the command holds.
    fn environment(&self) -> Tainted {
        self.variables
            .iter()
            .find(|(name, origin)| names::is_variable(name) && is_real(origin))
            .map(|(_, origin)| origin.clone())
    }

    /// Returns any value of somebody else that the command may get at.
    fn reach(&self) -> Tainted {
        let stdin = self.stdin.then_some(Origin::Stdin);
        self.environment().join(self.positional.real()).join(self.reads.real()).join(stdin)
    }

    /// Returns what a text holds that names variables of others.
    fn named(&self, text: &str) -> Tainted {
        let mut words = text.split(|character: char| !(character.is_ascii_alphanumeric() || character == '_'));
        words.find(|word| self.variables.contains_key(*word)).map(|word| match &self.variables[word] {
            Origin::Variable(name) if !is_real(&self.variables[word]) => Origin::Variable(name.clone()),
            origin => Origin::Variable(format!(
                "{NAMED}{}",
                match origin {
                    Origin::Variable(name) => name,
                    _ => word,
                }
            )),
        })
    }

    /// Returns a value that a text expands, as a shell would that it is given to.
    fn expanded_in(&self, text: &str) -> Tainted {
        let is_expanded = |name: &str| ["$", "${", "$("].iter().any(|sign| text.contains(&format!("{sign}{name}")));
        let mut held = self.variables.iter().filter(|(_, origin)| is_real(origin));
        held.find(|(name, _)| names::is_variable(name) && is_expanded(name)).map(|(_, origin)| origin.clone())
    }

    /// Notes what the positional parameters hold.
    fn pass(&mut self, given: Tainted) {
        self.positional = self.positional.take().join(given);
    }

    fn report(&mut self, origin: &Origin, how: How, range: &Range<usize>) {
        // A name is a danger only where it is evaluated.
        let origin = match origin {
            Origin::Variable(name) => match name.strip_prefix(NAMED) {
                Some(name) if how == How::Arithmetic => &Origin::Variable(name.to_owned()),
                Some(_) => return,
                None => origin,
            },
            _ => origin,
        };
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
        note(&mut self.variables, name, origin);
    }

    fn variable(&mut self, name: &str) -> Tainted {
        if self.looks_for.as_deref() == Some(name) {
            self.found = true;
        }
        let is_positional = matches!(name, "@" | "*") || name.bytes().all(|byte| byte.is_ascii_digit());
        if is_positional {
            return self.positional.clone();
        }
        let held = self.variables.get(name).cloned();
        if names::is_copied(name) { held.join(self.reach()) } else { held }
    }

    /// Finds the variables to which one literal text is assigned, and nothing else.
    fn gather_constants(&mut self, list: &List) {
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
                    // What `read`, `printf -v` and their like assign is no constant.
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

    /// Finds them in the substitutions of a word.
    fn gather_in(&mut self, parts: &[Part]) {
        for part in parts {
            match part {
                Part::Output { list, .. } | Part::Process { list, .. } => self.gather_constants(list),
                Part::Arithmetic(parts) => self.gather_in(parts),
                Part::Variable(variable) => match &variable.operation {
                    Operation::Slice(parts) | Operation::Default(parts, _) | Operation::Pattern(parts) => {
                        self.gather_in(parts);
                    }
                    _ => {}
                },
                Part::Text(_) => {}
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
                    if !self.variables.get(name).is_some_and(is_real) =>
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
            let mut flows = input.cloned().join(self.opened.clone());
            let outer = (self.here.clone(), self.is_file);
            let declared = (pipeline.len() > 1).then(|| Rc::clone(&self.associative));
            for command in pipeline {
                flows = self.command(command, flows.as_ref());
                self.here = self.literal_output(command);
                self.is_file = false;
            }
            (self.here, self.is_file) = outer;
            if let Some(declared) = declared {
                self.associative = declared;
            }
            printed = printed.join(flows);
        }
        printed
    }

    fn command(&mut self, command: &Command, input: Option<&Origin>) -> Tainted {
        let outer = (std::mem::replace(&mut self.reads, input.cloned()), self.here.clone(), self.is_file);
        // What is declared in a function, a branch or a subshell need not hold behind it.
        let declared = (!matches!(command, Command::Simple(_))).then(|| Rc::clone(&self.associative));
        let printed = self.command_inside(command, input);
        (self.reads, self.here, self.is_file) = outer;
        if let Some(declared) = declared {
            self.associative = declared;
        }
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
                    printed = printed.join(flows);
                }
                self.write(redirects, &printed);
                printed
            }
            Command::For(name, words, body, redirects) => {
                let input = self.redirects(redirects, input.cloned());
                let over = match words {
                    Some(words) => words.iter().fold(None, |found: Tainted, word| found.join(self.word(word))),
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
                let mut printed = self.word(word).filter(|_| self.reads_errors);
                for (patterns, body) in arms {
                    patterns.iter().for_each(|pattern| drop(self.word(pattern)));
                    let flows = self.list(body, input.as_ref());
                    printed = printed.join(flows);
                }
                self.write(redirects, &printed);
                printed
            }
            Command::Test(words, redirects) => {
                self.redirects(redirects, None);
                self.test(words);
                let printed = self.said_of(words);
                self.write(redirects, &printed);
                printed
            }
            Command::Arithmetic(word) => {
                self.word(word);
                None
            }
            Command::Coprocess(body) => {
                (self.here, self.is_file) = (None, false);
                let reach = self.reach();
                self.command(body, input.cloned().join(reach).as_ref())
            }
            Command::Function(name, body) => {
                if name == "command_not_found_handle" {
                    let reach = self.reach();
                    self.report_if(&reach, || How::Code(name.clone()), &(0..0));
                }
                self.functions.entry(name.clone()).or_insert(None);
                let called = self.variables.get(STDIN).cloned();
                let printed = self.command(body, input.or(called.as_ref()));
                let known = self.functions.entry(name.clone()).or_insert(None);
                *known = known.take().join(printed);
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
                    let name = self.text(word);
                    let is_own = name.as_deref().is_none_or(is_stdin);
                    let is_process = word.parts.iter().any(|part| matches!(part, Part::Process { .. }));
                    self.is_file = !is_own && !is_process;
                    let held = if is_own { input } else { None };
                    input = path.join(held).join(self.contents(word));
                }
                Redirect::Text(word) => {
                    input = self.word(word);
                    self.is_file = false;
                    self.here = self.text(word).map(|text| (text, word.range.clone()));
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

    /// Notes to which files a command writes what may be somebody else's.
    fn write(&mut self, redirects: &[Redirect], printed: &Tainted) {
        let Some(origin) = printed else { return };
        let origin = origin.clone();
        for redirect in redirects {
            // Bash takes the word of `>&` for a file if it is no number.
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
    fn written(&mut self, word: &Word, origin: &Origin) {
        match self.path(word) {
            Some(path) if path.starts_with("/dev/") => {}
            Some(path) => note(&mut self.files, &plain_path(&path), origin),
            None => self.scattered = self.scattered.take().join(Some(origin.clone())),
        }
    }

    /// Returns the path that a word names, with marks for the directories that are known not to be others.
    fn path(&self, word: &Word) -> Option<String> {
        let mut path = String::new();
        for part in &word.parts {
            match part {
                Part::Variable(variable)
                    if matches!(variable.operation, Operation::Plain)
                        && (matches!(variable.name.as_str(), "PWD" | "HOME" | "TMPDIR")
                            || self.fresh.get(&variable.name) == Some(&true)) =>
                {
                    path.push_str(&format!("/${}", variable.name));
                }
                part => path.push_str(&self.text(&Word { parts: vec![part.clone()], ..Word::default() })?),
            }
        }
        if word.expands { None } else { Some(path) }
    }

    /// Returns what a file may hold that somebody else chose and the command wrote there.
    fn contents(&self, word: &Word) -> Tainted {
        let any = || self.scattered.clone().join(self.files.values().next().cloned());
        if word.parts.iter().any(|part| matches!(part, Part::Process { .. })) {
            return None;
        }
        let Some(path) = self.path(word) else { return any() };
        if self.moves && !path.is_empty() {
            return any();
        }
        let base = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
        let same = self.files.iter().find(|(file, _)| base(file) == base(&path)).map(|(_, origin)| origin.clone());
        same.join(self.scattered.clone().filter(|_| !path.starts_with("/usr/") && !path.starts_with("/bin/")))
    }

    /// Returns what somebody else chose of a file that is executed.
    fn executed(&self, word: &Word) -> Tainted {
        let base = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
        let touched = self.text(word).and_then(|path| self.touched.get(&base(&path)).cloned());
        self.contents(word).join(touched)
    }

    /// Notes the files that stand among the arguments of a program which may write them.
    fn touch(&mut self, texts: &[Option<String>], origin: &Origin) {
        let is_part = |letter: char| letter.is_alphanumeric() || "._-".contains(letter);
        for name in texts.iter().flatten().flat_map(|text| text.split(|letter| !is_part(letter))) {
            let attached = name.strip_prefix("-o").or_else(|| name.strip_prefix("-O"));
            for name in [Some(name), attached].into_iter().flatten().filter(|name| !name.is_empty()) {
                note(&mut self.touched, name, origin);
            }
        }
    }

    /// Judges a text that stands in a command and names variables of others: a program may hand it to a shell.
    fn literal_code(&mut self, text: &str, range: &Range<usize>) {
        // Behind the name of an option, and behind that of a setting.
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

    /// Returns what a command prints, if that is a text that stands in it.
    fn literal_output(&self, command: &Command) -> Option<(String, Range<usize>)> {
        let Command::Simple(simple) = command else { return None };
        if simple.redirects.iter().any(|redirect| matches!(redirect, Redirect::Into(_) | Redirect::Duplicate(_))) {
            return None;
        }
        self.literal_text(simple)
    }

    /// Returns what a command prints or writes, if that is a text that stands in it.
    fn literal_text(&self, simple: &Simple) -> Option<(String, Range<usize>)> {
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
        let is_exec = simple.words.iter().any(|word| self.text(word).as_deref() == Some("exec"));
        if is_exec {
            self.opened(&simple.redirects, &input);
        }
        let words = self.split_constants(&simple.words);
        let mut printed = self.started(&words, input.as_ref());
        if simple.words.is_empty() && simple.assignments.is_empty() {
            // `$(< file)` is what the file holds.
            printed = printed.join(input);
        }
        printed = printed.join(self.said_of(&simple.words)).join(self.said_of(&simple.assignments));
        for redirect in &simple.redirects {
            let (Redirect::From(word) | Redirect::Into(word) | Redirect::Text(word) | Redirect::Duplicate(word)) =
                redirect;
            printed = printed.join(self.said_of(std::slice::from_ref(word)));
        }
        let text = self.literal_text(simple);
        for redirect in &simple.redirects {
            if let Redirect::Into(word) = redirect
                && let Some(path) = self.path(word)
            {
                let base = path.rsplit('/').next().unwrap_or_default().to_owned();
                self.scripts
                    .entry(base)
                    .or_default()
                    .insert(text.clone().map(|(text, range)| (text, range.start, range.end)));
            }
        }
        self.write(&simple.redirects, &printed);
        printed
    }

    /// Returns what an error message or a trace may repeat of a command's words, if somebody reads them.
    fn said_of(&mut self, words: &[Word]) -> Tainted {
        if self.reads_errors { self.any(words).real() } else { None }
    }

    /// Returns words as bash splits them where they are variables without quotes that hold constants.
    fn split_constants(&self, words: &[Word]) -> Vec<Word> {
        const SPLIT: [char; 6] = [' ', '\t', '\n', '*', '?', '['];
        let constant =
            |part: &Part| match part {
                Part::Variable(Variable {
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
                    let parts = vec![Part::Text(text.to_owned())];
                    Word { parts, assigns: None, expands: false, range: word.range.clone() }
                })),
                None => split.push(Word { expands: true, ..word.clone() }),
            }
        }
        split
    }

    /// Follows the descriptors that `exec` opens, for all commands that come.
    fn opened(&mut self, redirects: &[Redirect], input: &Tainted) {
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
                found.join(self.parts(&element.parts, &element.range))
            }),
            None => {
                // The text in front holds the name too, and what follows it without an expansion between.
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
    fn read_by_programs(&mut self, name: &str, word: &Word) {
        let Some(text) = self.text(word).and_then(|text| Some(text.split_once('=')?.1.to_owned())) else { return };
        let value = Word { parts: vec![Part::Text(text.clone())], ..word.clone() };
        let value = Word { assigns: None, ..value };
        let named = if text.contains(['$', '`']) { self.named(&text) } else { None };
        let named = named.map(|origin| match origin {
            Origin::Variable(name) => Origin::Variable(name.trim_start_matches(NAMED).to_owned()),
            origin => origin,
        });
        let read = named.join(if names::is_file_of_code(name) { self.executed(&value) } else { None });
        self.report_if(&read, || How::Environment(name.to_owned()), &word.range);
    }

    /// Follows something that was judged elsewhere.
    fn quiet(&mut self, follow: impl FnOnce(&mut Self) -> Tainted) -> Tainted {
        let count = self.dangers.len();
        let tainted = follow(self);
        self.dangers.truncate(count);
        tainted
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
        let tainted = self.parts(&word.parts, &word.range);
        if word.expands { tainted.join(self.created.clone()) } else { tainted }
    }

    fn assignment_value(&mut self, word: &Word) -> Tainted {
        let Some(assigns) = &word.assigns else { return None };
        let elements = assigns.elements.iter().flatten();
        let listed =
            elements.fold(None, |found: Tainted, element| found.join(self.parts(&element.parts, &element.range)));
        listed.join(self.parts(&word.parts, &word.range))
    }

    fn parts(&mut self, parts: &[Part], range: &Range<usize>) -> Tainted {
        let mut found = None;
        for part in parts {
            let tainted = self.part(part, range);
            found = found.join(tainted);
        }
        found
    }

    fn part(&mut self, part: &Part, range: &Range<usize>) -> Tainted {
        match part {
            Part::Text(text) => self.named(text),
            Part::Variable(variable) => self.expansion(variable),
            Part::Output { list, .. } => {
                let declared = Rc::clone(&self.associative);
                let printed = self.list(list, self.substitution_input().as_ref());
                self.associative = declared;
                printed
            }
            Part::Process { list, reads, .. } => {
                let outer = (self.here.take(), std::mem::take(&mut self.is_file));
                let input = self.substitution_input().join(if *reads { self.reach() } else { None });
                let printed = self.list(list, input.as_ref());
                (self.here, self.is_file) = outer;
                printed
            }
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
            Operation::Length => None,
            // The subscripts of an associative array are texts.
            Operation::Names if self.associative.contains(name) => value,
            Operation::Names => {
                let found =
                    self.variables.keys().find(|known| known.starts_with(name.as_str()) && names::is_variable(known));
                found.map(|found| Origin::Variable(format!("{NAMED}{found}")))
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
        words.iter().fold(None, |found: Tainted, word| found.join(self.peek(word)))
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
                self.name(name);
            }
        }
    }

    /// Judges a word that names a variable, maybe with a subscript.
    fn name(&mut self, word: &Word) {
        let tainted = self.peek(word);
        self.report_if(&tainted, || How::Name, &word.range);
        let is_evaluated =
            |text: String| text.split_once('[').is_some_and(|(name, _)| !self.associative.contains(name));
        if tainted.real().is_none() && self.text(word).is_none_or(is_evaluated) {
            self.evaluated(word);
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
                tainted = tainted.join(named);
            }
        }
        self.report_if(&tainted, || How::Arithmetic, &word.range);
    }

    /// Judges a simple command: a builtin, a function, or a program.
    fn started(&mut self, words: &[Word], input: Option<&Origin>) -> Tainted {
        let (first, arguments) = words.split_first()?;
        if let Some(origin) = self.peek(first).real() {
            self.report(&origin, How::Program, &first.range);
            return Some(origin);
        }
        let Some(name) = self.text(first).filter(|_| !first.expands) else {
            let tainted = self.any(arguments).join(input.cloned());
            self.report_if(&tainted, || How::Unknown, &first.range);
            return tainted;
        };
        if let Some(printed) = self.functions.get(&name).cloned() {
            let given = self.any(arguments);
            self.pass(given.clone());
            // What the function reads is what the command around it reads; its body was followed where it stands.
            if let Some(origin) = input {
                note(&mut self.variables, STDIN, origin);
            }
            // Whether the function is there when this is executed cannot be known: the program of its name may be.
            let other = self.program_or_builtin(&name, words, input);
            return printed.join(given).join(input.cloned()).join(other);
        }
        self.program_or_builtin(&name, words, input)
    }

    fn program_or_builtin(&mut self, name: &str, words: &[Word], input: Option<&Origin>) -> Tainted {
        match self.builtin(name, words, input) {
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
            "eval" | "." | "source" if texts.first().is_some_and(|text| text.as_deref() == Some("--")) => {
                let mut words = words.to_vec();
                words.remove(1);
                return self.builtin(name, &words, input);
            }
            "eval" => {
                let tainted = self.any(arguments);
                self.report_if(&tainted, || How::Code(name.to_owned()), &range);
                let known: Option<Vec<String>> = texts.into_iter().collect();
                if known.is_none() && tainted.real().is_none() {
                    let held = self.environment();
                    self.report_if(&held, || How::Unreadable, &range);
                }
                let printed = known.and_then(|texts| self.nested(&texts.join(" "), &range, input));
                return Some(tainted.join(printed));
            }
            "." | "source" => {
                if let Some(script) = arguments.first() {
                    self.script(script, input, name);
                }
                let given = self.any(arguments.get(1..).unwrap_or_default());
                self.pass(given);
                return Some(self.any(arguments).join(input.cloned()));
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
            "getopts" => {
                arguments.iter().for_each(|word| self.name(word));
                if let [_, name] = texts.as_slice() {
                    let parameters = self.positional.clone();
                    for name in name.as_deref().into_iter().chain(["OPTARG"]) {
                        self.assign(name, &parameters, &range);
                    }
                }
            }
            "test" | "[" => self.bracket(arguments, &texts),
            "set" => {
                let dashes = texts.iter().position(|text| text.as_deref() == Some("--"));
                let tainted = self.any(arguments);
                if arguments.is_empty() {
                    return Some(self.reach());
                }
                // Then words behind a program's name are assignments.
                let is_keyword = |text: &String| {
                    text == "keyword" || (text.starts_with('-') && !text.starts_with("--") && text.contains('k'))
                };
                if texts.iter().flatten().any(is_keyword) {
                    let reach = self.reach();
                    self.report_if(&reach, || How::Unreadable, &range);
                }
                if dashes.is_none()
                    && let Some(word) = arguments.first()
                {
                    let first = self.peek(word);
                    self.report_if(&first, || How::Option("set".to_owned()), &word.range);
                }
                self.pass(tainted);
            }
            "wait" => {
                let tainted = self.any(arguments);
                let named = texts.iter().flatten().any(|text| text.starts_with('-') && text.contains('p'));
                self.report_if(&tainted.filter(|_| named), || How::Name, &range);
                arguments.iter().filter(|_| named).for_each(|word| self.name(word));
            }
            _ if EVALUATORS.contains(&name) => {
                let tainted = self.any(arguments);
                self.report_if(&tainted, || How::Code(name.to_owned()), &range);
                // They give other programs a name.
                let renames = match name {
                    "alias" | "enable" => !arguments.is_empty(),
                    "hash" => texts.iter().any(|text| text.as_deref().is_none_or(|text| text.starts_with("-p"))),
                    _ => false,
                };
                for (word, text) in arguments.iter().zip(&texts) {
                    if let Some(text) = text {
                        self.literal_code(text, &word.range);
                    }
                }
                let reach = self.reach();
                if renames {
                    self.report_if(&reach, || How::Unreadable, &range);
                }
                return Some(reach);
            }
            "cd" | "pushd" | "popd" => {
                if let Some(origin) = self.any(arguments).real() {
                    for name in ["PWD", "OLDPWD", "DIRSTACK"] {
                        note(&mut self.variables, name, &origin);
                    }
                }
            }
            "pwd" | "dirs" => return Some(self.variables.get("PWD").cloned()),
            "echo" | "type" => return Some(self.any(arguments)),
            "true" | "false" | ":" | "exit" | "return" | "shift" | "break" | "continue" | "kill" | "umask"
            | "ulimit" | "times" | "shopt" => {}
            _ => return None,
        }
        Some(None)
    }

    fn declaration(&mut self, name: &str, arguments: &[Word], texts: &[Option<String>]) {
        let options: String = texts.iter().flatten().filter_map(|text| text.strip_prefix('-')).collect();
        let is_export = matches!(name, "export" | "readonly");
        if let Some(word) = arguments.iter().find(|word| word.expands) {
            let reach = self.reach();
            self.report_if(&reach, || How::Name, &word.range);
        }
        // What is assigned to a reference is assigned to another variable, which cannot be known.
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
    fn bracket(&mut self, arguments: &[Word], texts: &[Option<String>]) {
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
        // Of several words that come of one value, one may be the operator.
        for at in (0..end).filter(|at| is_several(&arguments[*at])) {
            self.report_if(&tainted[at], || How::Option("test".to_owned()), &arguments[at].range);
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
                self.reads_errors |= leads_errors(text);
                // As a rule it is another process, which has no arrays of this one.
                let declared = std::mem::take(&mut self.associative);
                let printed = self.list(&list, input);
                self.associative = declared;
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
        let is_device = |start: &str| start.starts_with("/proc/") || start.starts_with("/dev/");
        let is_own = self.text(word).map_or_else(|| is_device(word.beginning()), |name| is_stdin(&name));
        let written = self.executed(word).join(if is_own { input.cloned() } else { None });
        self.report_if(&written, || How::Code(reader.to_owned()), &word.range);
        if is_own && written.real().is_none() {
            self.unread(reader, &word.range);
        }
        self.own_scripts(word, reader);
        for part in &word.parts {
            if let Part::Process { list, .. } = part {
                self.process(list, reader, &word.range);
            }
        }
    }

    /// Judges a script that the command itself writes: it may read a variable.
    fn own_scripts(&mut self, word: &Word, reader: &str) {
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
    fn process(&mut self, list: &List, reader: &str, range: &Range<usize>) {
        let outer = (self.here.take(), std::mem::take(&mut self.is_file));
        if let [pipeline] = list.as_slice()
            && let [command] = pipeline.as_slice()
        {
            self.here = self.literal_output(command);
        }
        self.unread(reader, range);
        (self.here, self.is_file) = outer;
    }

    /// Judges code that a shell reads and nobody else's value is in: it may read a variable. Returns what it prints.
    fn unread(&mut self, reader: &str, range: &Range<usize>) -> Tainted {
        if let Some((text, range)) = self.here.take() {
            return self.nested(&text, &range, None);
        }
        if !self.is_file {
            let held = self.environment();
            self.report_if(&held, || How::Code(reader.to_owned()), range);
        }
        None
    }

    /// Judges a program and its arguments; returns what it prints.
    fn external(&mut self, words: &[Word], input: Option<&Origin>) -> Tainted {
        let (first, arguments) = words.split_first()?;
        let tainted_program = self.peek(first);
        self.report_if(&tainted_program, || How::Program, &first.range);
        let Some(path) = self.text(first).filter(|_| !first.expands) else {
            let given = self.any(words).join(input.cloned());
            self.report_if(&given, || How::Unknown, &first.range);
            return given;
        };
        let written = if path.contains('/') { self.executed(first) } else { self.files.get(&path).cloned() };
        let named = self.files.iter().find(|(file, _)| file.rsplit('/').next() == Some(path.as_str()));
        let written = written.join(named.map(|(_, origin)| origin.clone()));
        self.report_if(&written, || How::Code(path.clone()), &first.range);
        if path.contains('/') {
            self.own_scripts(first, &path);
        }
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
            let tainted = self.any(arguments);
            self.report_if(&tainted, || How::Code(name.to_owned()), &first.range);
            let known: Option<Vec<String>> = texts.iter().cloned().collect();
            if let Some(known) = known.filter(|_| matches!(name, "watch" | "parallel" | "sem")) {
                let command: Vec<String> = known.into_iter().skip_while(|text| text.starts_with('-')).collect();
                self.nested(&command.join(" "), &first.range, None);
            }
        }
        if matches!(name, "ssh" | "autossh" | "sshpass") {
            self.ssh(name, arguments, &texts);
        }
        for file in programs::own_files(name, &texts) {
            let found = self.files.iter().find(|(path, _)| path.rsplit('/').next() == Some(file));
            let held = found.map(|(_, origin)| origin.clone()).join(self.scattered.clone());
            self.report_if(&held, || How::Code(name.to_owned()), &first.range);
        }
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
                    Some(text) if !text.starts_with("/dev/") => note(&mut self.files, &plain_path(text), origin),
                    Some(_) => {}
                    None => self.written(word, origin),
                }
            }
        }
        for word in arguments {
            printed = printed.join(self.contents_of_operand(word));
        }
        if programs::has_dangerous_options(name, texts.iter().flatten().map(String::as_str)) {
            self.options(name, arguments, &texts);
        }
        if name == "git" {
            self.git(arguments, &texts);
        }
        for (option, word) in programs::commands_in_options(name, arguments) {
            let tainted = self.peek(&word);
            self.report_if(&tainted, || How::Code(name.to_owned()), &word.range);
            if let Some(text) = self.text(&word) {
                let code = text.strip_prefix(&format!("{option}=")).unwrap_or(&text).to_owned();
                printed = printed.join(self.nested(&code, &word.range, None));
            }
        }
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

    /// Returns what a program may print that is given a word which may be a file's name.
    fn contents_of_operand(&mut self, word: &Word) -> Tainted {
        if word.literal().is_some_and(|text| text.starts_with('-')) {
            return None;
        }
        // The directory has the environment of each process.
        if word.parts.iter().any(|part| matches!(part, Part::Text(text) if text.contains("/proc") || text == "environ"))
        {
            return self.reach();
        }
        self.contents(word)
    }

    /// Judges the options of `git` that name a program, and the settings that do.
    fn git(&mut self, arguments: &[Word], texts: &[Option<String>]) {
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

    /// Judges the program that another one starts with the rest of its arguments.
    fn prefixed(
        &mut self,
        name: &str,
        starter: Starter,
        words: &[Word],
        texts: &[Option<String>],
        input: Option<&Origin>,
    ) -> Tainted {
        let arguments = &words[1..];
        let listed: Tainted = match name {
            // `-a` names a file of it.
            "xargs" => arguments.iter().fold(None, |found: Tainted, word| found.join(self.contents(word))),
            _ => None,
        };
        let input = input.cloned().join(listed);
        let input = input.as_ref();
        let given = self.any(arguments).join(if name == "xargs" { input.cloned() } else { None });
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
        if !is_known {
            // Where the program stands cannot be known.
            self.report_if(&given, || How::Unknown, &words[0].range);
            return self.carried(name, words, texts, input);
        }
        let Some(first) = arguments.get(at) else {
            if starter.is_shell {
                if let Some(origin) = input {
                    self.report(origin, How::Code(name.to_owned()), &words[0].range);
                }
                self.unread(name, &words[0].range);
            }
            return if name == "env" { self.reach() } else { None };
        };
        let mut inner: Vec<Word> = arguments[at..].to_vec();
        if name == "xargs" {
            inner.extend(input.map(|_| standing_for_input(&first.range)));
            self.xargs_places(&mut inner, arguments, input);
            let outer = self.variables.get(INPUT).cloned();
            if let Some(origin) = input {
                self.variables.insert(INPUT.to_owned(), origin.clone());
            }
            // Its program reads nothing.
            let outer_file = std::mem::replace(&mut self.is_file, true);
            let printed = self.started(&inner, None);
            self.is_file = outer_file;
            if outer.is_none() {
                self.variables.remove(INPUT);
            }
            return printed;
        }
        self.started(&inner, input)
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
        if given.is_unknown {
            let reach = self.any(arguments).join(input.cloned());
            self.report_if(&reach, || How::Option(name.to_owned()), &words[0].range);
        }
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
        if program.is_shell && given.has_code {
            let script = given.operands.first();
            return script.and_then(|&script| self.code_of_shell(name, arguments, texts, script, input));
        }
        for word in given.code.iter().filter_map(|&at| arguments.get(at)) {
            self.code_of(name, word);
            // The code may be a file, and that what the program reads.
            let file = self.text(word).map(|text| text.rsplit('=').next().unwrap_or_default().to_owned());
            let is_own = file.is_some_and(|file| is_stdin(&file) || file.ends_with("f-"));
            if is_own {
                self.report_if(&input.cloned(), || How::Code(name.to_owned()), &word.range);
            }
            let is_read = is_own || word.parts.iter().any(|part| matches!(part, Part::Process { .. }));
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
        if programs::has_shell_escapes(name) {
            let code = texts.iter().flatten().chain(self.here.iter().map(|(text, _)| text));
            let reads = code.map(|text| self.expanded_in(text)).fold(None, Join::join);
            self.report_if(&reads, || How::Unreadable, &words[0].range);
        }
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
        if name.starts_with("perl") {
            // With `-n` and `-p`, and by `<>`, it opens its operands as `open` does, which takes `| command`.
            let letters =
                |text: &String| text.starts_with('-') && !text.starts_with("--") && text.contains(['n', 'p', 'i']);
            let reads =
                texts.iter().flatten().any(|text| letters(text) || text.contains("<>") || text.contains("ARGV>"));
            let operands: Vec<Word> = given.operands.iter().map(|&at| arguments[at].clone()).collect();
            let tainted = self.any(&operands);
            self.report_if(&tainted.filter(|_| reads), || How::Code(name.to_owned()), &words[0].range);
        }
        let shows = |text: &String| text.to_ascii_lowercase().contains("env");
        let shown = if texts.iter().flatten().any(shows) { self.reach() } else { None };
        let has_operand = first.is_some_and(|at| texts[at].as_deref() != Some("-"));
        let mut has_code = given.has_code;
        match (program.operand, first) {
            (Operand::Script, Some(at)) if !has_code && has_operand => {
                let reads = texts.iter().flatten().any(|text| program.is_shell && text == "-s");
                if !reads {
                    if program.is_shell && !self.scripts.is_empty() {
                        let given = self.any(&arguments[at + 1..]);
                        self.pass(given);
                    }
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

    /// Tells the options of an interpreter from its operands.
    fn given(&mut self, program: Interpreter, arguments: &[Word], texts: &[Option<String>]) -> Given {
        let mut given = Given::default();
        let mut at = 0;
        // Some take options behind operands too.
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
                // An operand that begins with a value of somebody else may be an option, as which it is judged below.
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
    fn code_of_shell(
        &mut self,
        name: &str,
        arguments: &[Word],
        texts: &[Option<String>],
        script: usize,
        input: Option<&Origin>,
    ) -> Tainted {
        let positional = self.any(arguments.get(script + 1..).unwrap_or_default());
        self.pass(positional);
        let word = &arguments[script];
        let tainted = self.peek(word);
        self.report_if(&tainted, || How::Code(name.to_owned()), &word.range);
        match texts[script].as_deref() {
            Some(text) => return self.nested(text, &word.range, input),
            None if tainted.real().is_none() => {
                // The code is put together from what is the author's own; what it does with the values cannot be seen.
                let given = self.any(arguments).join(input.cloned()).join(self.environment());
                self.report_if(&given, || How::Unreadable, &word.range);
            }
            None => {}
        }
        None
    }

    /// Judges the code that an interpreter reads from stdin.
    fn code_on_stdin(&mut self, name: &str, program: Interpreter, command: &Word, input: Option<&Origin>) -> Tainted {
        if let Some(origin) = input {
            self.report(origin, How::Code(name.to_owned()), &command.range);
        }
        if program.is_shell || programs::takes_commands(name) { self.unread(name, &command.range) } else { None }
    }

    /// Judges an argument that is code of a program.
    fn code_of(&mut self, name: &str, word: &Word) {
        let tainted = self.peek(word);
        self.report_if(&tainted, || How::Code(name.to_owned()), &word.range);
    }

    /// Judges the arguments of `ssh`: all behind the host become the command of a shell.
    fn ssh(&mut self, name: &str, arguments: &[Word], texts: &[Option<String>]) {
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

    /// Follows the assignments among the arguments of `env` and the like.
    fn assignments_of_env(&mut self, arguments: &[Word], is_prefix: bool) {
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

    /// Reports values among the arguments of a program that may be options of it, or what an option starts.
    fn options(&mut self, name: &str, arguments: &[Word], texts: &[Option<String>]) {
        let mut before = "";
        for (word, text) in arguments.iter().zip(texts) {
            if text.as_deref() == Some("--") {
                return;
            }
            let known = word.beginning();
            let option = if known.starts_with('-') { known.split('=').next().unwrap_or_default() } else { before };
            let is_harmless = programs::is_harmless(name, option);
            // A path is no option, and of these programs no argument of one that starts something: those are judged as commands.
            let is_path = known.starts_with(['/', '.'])
                && matches!(
                    name,
                    "tar" | "gtar" | "bsdtar" | "rsync" | "install" | "cpio" | "split" | "sort" | "wget" | "zip"
                );
            let is_option = known.is_empty() || (option.starts_with('-') && !is_path);
            // What stands in an assignment of `make` is expanded by it.
            let is_assignment = matches!(name, "make" | "gmake") && known.contains('=');
            if (is_option && !is_harmless) || is_assignment {
                let tainted = self.peek(word);
                self.report_if(&tainted, || How::Option(name.to_owned()), &word.range);
            }
            before = text.as_deref().unwrap_or_default();
        }
    }

    /// Judges the program that another one starts.
    fn carried(&mut self, name: &str, words: &[Word], texts: &[Option<String>], input: Option<&Origin>) -> Tainted {
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
                let mut inner: Vec<Word> = arguments[at..].to_vec();
                if name == "xargs" {
                    inner.extend(input.map(|_| standing_for_input(&word.range)));
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
            // What stands behind an option may be its argument.
            let is_ambiguous =
                at > 0 && texts[at - 1].as_deref().is_some_and(|text| text.starts_with('-') && text != "--");
            if is_prefix && !is_ambiguous {
                return printed;
            }
            started = started || !is_ambiguous;
        }
        printed
    }

    /// Reports code of `xargs` in which the text stands that it replaces by what it reads, and puts that in its places.
    fn xargs_places(&mut self, words: &mut [Word], arguments: &[Word], input: Option<&Origin>) {
        let Some(origin) = input else { return };
        let mut place = None;
        for (at, word) in arguments.iter().enumerate() {
            let text = self.text(word).unwrap_or_default();
            // Other options may stand in the same word.
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
            *word = standing_for_input(&word.range);
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
    let variable = Variable { name, subscript: None, is_all: false, operation, quoted: true, range: range.clone() };
    Word { parts: vec![Part::Variable(variable)], assigns: None, expands: false, range: range.clone() }
}

/// Returns a path without the `./` that names the same file.
fn plain_path(path: &str) -> String {
    path.trim_start_matches("./").to_owned()
}

/// Whether a word can be the name of a program, and not of a thing that stands before it.
fn is_program(text: &str) -> bool {
    const MACHINES: [&str; 9] = ["linux32", "linux64", "i386", "i486", "i586", "i686", "x86_64", "uname26", "aarch64"];
    !MACHINES.contains(&text)
}

/// Whether a word becomes as many as a value says: all elements of a list, all parameters, what `xargs` reads.
fn is_several(word: &Word) -> bool {
    word.parts.iter().any(|part| match part {
        Part::Variable(Variable { name, is_all, .. }) => *is_all || matches!(name.as_str(), "@" | "*") || name == INPUT,
        _ => false,
    })
}

/// Whether the word of `>&` is a descriptor, and no file.
fn is_descriptor(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-')
}

/// Whether a path may lead to what is open already.
fn is_stdin(path: &str) -> bool {
    let is_other = matches!(path, "/dev/null" | "/dev/zero" | "/dev/full" | "/dev/random" | "/dev/urandom");
    path == "-" || (!is_other && (path.starts_with("/dev/") || path.starts_with("/proc/")))
}

/// Whether all of a value is the name of a file that `mktemp` makes.
fn is_made_by_mktemp(word: &Word, value: usize) -> bool {
    let [Part::Output { list, .. }] = word.parts.get(value..).unwrap_or_default() else {
        // A text without characters stands before what is in quotes.
        return match word.parts.get(value..) {
            Some([Part::Text(text), Part::Output { list, .. }]) => text.is_empty() && is_mktemp(list),
            _ => false,
        };
    };
    is_mktemp(list)
}

fn is_mktemp(list: &List) -> bool {
    let [pipeline] = list.as_slice() else { return false };
    let [Command::Simple(simple)] = pipeline.as_slice() else { return false };
    let mut texts = simple.words.iter().map(Word::literal);
    texts.next().flatten().as_deref() == Some("mktemp") && texts.all(|text| text.is_some())
}

/// Whether a part is a variable by its bare name, as arithmetic has it.
fn is_bare(part: &Part) -> bool {
    matches!(part, Part::Variable(variable) if variable.range.len() == variable.name.len())
}

/// Whether a command leads stderr to where it can be read. What it leads to `/dev/null`, and what it writes to stderr, cannot be.
fn leads_errors(text: &str) -> bool {
    let mut text = text.replace("\\\n", "").replace("> /dev/null", ">/dev/null").replace("1>/dev/null", ">/dev/null");
    for discarded in [" >/dev/null 2>&1", "&>/dev/null", "2>/dev/null", ">&/dev/null", ">&2"] {
        text = text.replace(discarded, " ");
    }
    ["2>", "2<", "&>", ">&", "|&"].iter().any(|operator| text.contains(operator))
}

/// Whether all that a program prints to stdout is a number, whatever it is given.
fn prints_a_number(name: &str, texts: &[Option<String>]) -> bool {
    let operands = texts.iter().filter(|text| text.as_deref().is_none_or(|text| !text.starts_with('-'))).count();
    match name {
        "wc" => operands == 0,
        "grep" | "egrep" | "fgrep" => operands <= 2 && prints_a_count(texts.iter().flatten().map(String::as_str)),
        "tr" => {
            let known: Vec<&str> = texts.iter().flatten().map(String::as_str).collect();
            matches!(known.as_slice(), ["-cd" | "-dc", "0-9" | "[:digit:]" | "0-9\\n"])
        }
        "stat" => prints_a_size(&texts.iter().map(Option::as_deref).collect::<Vec<_>>()),
        "date" => prints_a_time(&texts.iter().map(Option::as_deref).collect::<Vec<_>>()),
        _ => false,
    }
}

/// Whether the options of `grep` ask for the count of one file's lines. With more files, and in a directory, it prints their names.
fn prints_a_count<'t>(texts: impl Iterator<Item = &'t str>) -> bool {
    let mut counts = false;
    for option in texts.take_while(|text| *text != "--").filter(|text| text.len() > 1) {
        let Some(letters) = option.strip_prefix('-') else { continue };
        let (letters, is_known) = match letters.strip_prefix('-') {
            Some("count") => ("c", true),
            Some(name) => ("", matches!(name, "ignore-case" | "extended-regexp" | "fixed-strings" | "invert-match")),
            // The letter of a pattern is the last one, so that the pattern is an operand here.
            None => (
                letters,
                letters.strip_suffix('e').unwrap_or(letters).bytes().all(|letter| b"cEFPGivwxsah".contains(&letter)),
            ),
        };
        if !is_known {
            return false;
        }
        counts |= letters.contains('c');
    }
    counts
}

/// Whether `stat` is asked for one number of a file. An operand without `--` in front may be another format, so there is but one: as
/// an option, it leaves no file to print anything of.
fn prints_a_size(texts: &[Option<&str>]) -> bool {
    let is_number = |format: &str| {
        matches!(format.strip_prefix('%'), Some("s" | "b" | "h" | "i" | "u" | "g" | "X" | "Y" | "Z" | "W"))
    };
    let files = match texts {
        [Some("-c" | "--format" | "--printf"), Some(format), files @ ..] if is_number(format) => files,
        [Some(option), files @ ..]
            if ["-c", "--format=", "--printf="].iter().any(|name| option.strip_prefix(name).is_some_and(is_number)) =>
        {
            files
        }
        _ => return false,
    };
    files.len() == 1 || files.first() == Some(&Some("--"))
}

/// Whether `date` is asked for a time in digits.
fn prints_a_time(texts: &[Option<&str>]) -> bool {
    let is_digits = |format: &str| {
        let parts = format.strip_prefix("+%").map(|rest| rest.split('%'));
        parts.is_some_and(|mut parts| {
            parts.all(|part| matches!(part, "s" | "Y" | "m" | "d" | "H" | "M" | "S" | "j" | "N" | "u" | "w" | "y"))
        })
    };
    let rest = match texts {
        [Some("-u"), rest @ ..] => rest,
        _ => texts,
    };
    match rest {
        [Some(format)]
        | [Some("-d" | "--date" | "-r"), _, Some(format)]
        | [Some(format), Some("-d" | "--date" | "-r"), _] => is_digits(format),
        _ => false,
    }
}
