//! Following values through a command.
//!
//! The values that a variable may hold are collected without regard to the order of the commands, until nothing new is
//! found; then each place is judged. So a value is followed through a loop too, and a variable that ever held a value
//! counts as holding it everywhere.

mod builtins;
mod constants;
mod external;
mod files;
mod find;
mod interpreters;
mod numbers;
mod starters;
mod substitutions;
mod texts;
mod words;
mod work;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;

use crate::parse::{
    self, Command, CommandList, Operation, Redirect, ShellWord, Simple, Unreadable, Variable, WordPart,
};
use crate::{Danger, Foreign, How, ProgramArgument, ValueOrigin, names};

use files::WrittenFiles;
use substitutions::Substitutions;
use work::WorkLimit;

/// The maximum nesting of commands in texts of other commands.
const MAX_NESTING: usize = 8;

/// Follows a command. Returns the dangers, and the steps that it cost.
pub(super) fn command(text: &str, foreign: &Foreign) -> (Vec<Danger>, usize) {
    let list = match parse::parse(text) {
        Ok(list) => list,
        Err(Unreadable(at)) => {
            return (vec![Danger { origin: ValueOrigin::Anything, how: How::Unreadable, range: at..at }], 0);
        }
    };
    let mut follower = CommandFollower::new(foreign, text.len());
    follower.gather_constants(&list);
    follower.reads_errors = leads_errors(text);
    let stdin = foreign.stdin.then_some(ValueOrigin::Stdin);
    follower.until_settled(|follower| {
        follower.list(&list, stdin.as_ref());
    })
}

/// Follows the arguments of a program, as [`command`] does.
pub(super) fn program(arguments: &[ProgramArgument<'_>], foreign: &Foreign) -> (Vec<Danger>, usize) {
    let mut follower =
        CommandFollower::new(foreign, arguments.iter().map(|argument| argument.text.len()).sum::<usize>());
    let words: Vec<ShellWord> = arguments
        .iter()
        .enumerate()
        .map(|(at, argument)| {
            let mut parts = vec![WordPart::Text(argument.text.to_owned())];
            if argument.is_foreign {
                follower.variables.insert(format!("{ARGUMENT}{at}"), ValueOrigin::Argument(at));
                let (name, operation) = (format!("{ARGUMENT}{at}"), Operation::Plain);
                let variable =
                    Variable { name, subscript: None, is_all: false, operation, quoted: true, range: at..at + 1 };
                parts.push(WordPart::Variable(variable));
            }
            ShellWord { parts, assigns: None, expands: false, range: at..at + 1 }
        })
        .collect();
    let stdin = foreign.stdin.then_some(ValueOrigin::Stdin);
    follower.until_settled(|follower| {
        follower.external(&words, stdin.as_ref());
    })
}

/// The prefix of the variables that stand for a program's arguments; no variable of a shell has such a name.
const ARGUMENT: &str = "argument ";

pub(super) fn expanded(text: &str) -> BTreeSet<String> {
    let Ok(list) = parse::parse(text) else { return BTreeSet::new() };
    let mut follower = CommandFollower::new(&Foreign::default(), text.len());
    follower.expanded = Some(BTreeSet::new());
    follower.list(&list, None);
    follower.expanded.unwrap_or_default()
}

#[derive(Default)]
struct CommandFollower {
    /// The variables that may hold untrusted values.
    variables: BTreeMap<String, ValueOrigin>,
    /// The untrusted value that the positional parameters may hold.
    positional: Option<ValueOrigin>,
    /// Files that such values were written to.
    files: WrittenFiles,
    /// Files that programs may have written such values to: their names are arguments of the same program.
    touched: BTreeMap<String, ValueOrigin>,
    /// Variables with the attribute `-i`: each of their values is evaluated.
    integers: BTreeSet<String>,
    /// Associative arrays, whose subscripts are texts, that are declared at the current place of the walk.
    associative: Rc<BTreeSet<String>>,
    /// Variables that the walk has seen an assignment to: they cannot become associative arrays any more.
    assigned: BTreeSet<String>,
    /// Variables that only hold the name of a file that `mktemp` made.
    fresh: BTreeMap<String, bool>,
    /// Variables that only one literal text is ever assigned to.
    constants: BTreeMap<String, Option<String>>,
    /// The untrusted values that the functions may print.
    functions: BTreeMap<String, Option<ValueOrigin>>,
    dangers: Vec<Danger>,
    /// The results of the substitutions that were followed in this walk.
    substitutions: Substitutions,
    work: WorkLimit,
    /// The place of the text that is read, if it is in another text.
    within: Option<Range<usize>>,
    nesting: usize,
    /// Whether the stdin of the whole command is untrusted.
    stdin: bool,
    /// The untrusted value that the current command may read.
    reads: Tainted,
    /// The text that the current command reads and its place, if that is a literal in the command.
    here: Option<Rc<(String, Range<usize>)>>,
    /// The scripts that the command writes to its own files, by the files' names without directory.
    scripts: BTreeMap<String, BTreeSet<Script>>,
    /// The untrusted value that may be in the names of files.
    created: Tainted,
    /// Whether the command reads a file whose name is known, and which the author wrote.
    is_file: bool,
    /// The untrusted value in descriptors that `exec` opens for all commands.
    opened: Tainted,
    /// The untrusted value that was written to a file whose name cannot be known.
    scattered: Tainted,
    /// Whether the stderr of commands may be read: error messages repeat the words that a command was given.
    reads_errors: bool,
    /// Whether the command copies or renames files, so that a value that was written to one may be in another.
    moves: bool,
    /// The variables that the command expands, if they are collected.
    expanded: Option<BTreeSet<String>>,
}

type Tainted = Option<ValueOrigin>;

/// The text of a script that the command writes, and its range; `None` if it cannot be read.
type Script = Option<(String, usize, usize)>;

/// The prefix of a value that is only the name of a variable. Such a value matters where bash evaluates names. No
/// variable of a shell has such a name.
const NAMED: &str = "the name of ";

/// Combines the untrusted origins of several values.
trait JoinOrigins {
    /// Returns one of the two: a value itself rather than the name of a variable.
    fn join(self, other: Tainted) -> Tainted;
    /// Returns the value, if it is more than the name of a variable.
    fn real(&self) -> Tainted;
}

impl JoinOrigins for Tainted {
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

fn is_real(origin: &ValueOrigin) -> bool {
    !matches!(origin, ValueOrigin::Variable(name) if name.starts_with(NAMED))
}

/// Notes the origin of the value that something holds.
fn note(map: &mut BTreeMap<String, ValueOrigin>, name: &str, origin: &ValueOrigin) {
    let known = map.entry(name.to_owned()).or_insert_with(|| origin.clone());
    if !is_real(known) {
        *known = origin.clone();
    }
}

impl CommandFollower {
    /// A follower of a command with this many bytes.
    fn new(foreign: &Foreign, length: usize) -> Self {
        let variables =
            foreign.variables.iter().map(|name| (name.clone(), ValueOrigin::Variable(name.clone()))).collect();
        Self { variables, stdin: foreign.stdin, work: WorkLimit::new(length), ..Self::default() }
    }

    fn until_settled(mut self, mut walk: impl FnMut(&mut Self)) -> (Vec<Danger>, usize) {
        loop {
            let before = self.size();
            self.dangers.clear();
            self.associative = Rc::default();
            self.assigned.clear();
            self.substitutions.clear();
            walk(&mut self);
            if self.work.is_over() {
                let unread = Danger { origin: ValueOrigin::Anything, how: How::Unreadable, range: 0..0 };
                return (vec![unread], self.work.steps());
            }
            if self.size() == before {
                break;
            }
        }
        let mut dangers = self.dangers;
        dangers.sort_by_key(|danger| (danger.range.start, danger.range.end));
        dangers.dedup();
        (dangers, self.work.steps())
    }

    /// Returns a measure of the knowledge so far: it only ever grows.
    fn size(&self) -> usize {
        let weight = |origin: &ValueOrigin| if is_real(origin) { 2 } else { 1 };
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

    /// Returns an untrusted value that a variable of the command holds.
    fn environment(&self) -> Tainted {
        self.work.scan(self.variables.len());
        self.variables
            .iter()
            .find(|(name, origin)| names::is_variable(name) && is_real(origin))
            .map(|(_, origin)| origin.clone())
    }

    /// Returns any untrusted value that the command may reach.
    fn reach(&self) -> Tainted {
        let stdin = self.stdin.then_some(ValueOrigin::Stdin);
        self.environment().join(self.positional.real()).join(self.reads.real()).join(stdin)
    }

    /// Returns the first untrusted variable that a text names, as a value.
    fn named(&self, text: &str) -> Tainted {
        self.work.scan(text.len());
        let mut words = text.split(|character: char| !(character.is_ascii_alphanumeric() || character == '_'));
        words.find(|word| self.variables.contains_key(*word)).map(|word| match &self.variables[word] {
            ValueOrigin::Variable(name) if !is_real(&self.variables[word]) => ValueOrigin::Variable(name.clone()),
            origin => ValueOrigin::Variable(format!(
                "{NAMED}{}",
                match origin {
                    ValueOrigin::Variable(name) => name,
                    _ => word,
                }
            )),
        })
    }

    /// Returns an untrusted value that a shell would expand in a text.
    fn expanded_in(&self, text: &str) -> Tainted {
        if !self.work.scan(text.len() * self.variables.len()) {
            return None;
        }
        let is_expanded = |name: &str| ["$", "${", "$("].iter().any(|sign| text.contains(&format!("{sign}{name}")));
        let mut held = self.variables.iter().filter(|(_, origin)| is_real(origin));
        held.find(|(name, _)| names::is_variable(name) && is_expanded(name)).map(|(_, origin)| origin.clone())
    }

    /// Notes a value that the positional parameters hold.
    fn pass(&mut self, given: Tainted) {
        self.positional = self.positional.take().join(given);
    }

    fn report(&mut self, origin: &ValueOrigin, how: How, range: &Range<usize>) {
        // A name is a danger only where it is evaluated.
        let origin = match origin {
            ValueOrigin::Variable(name) => match name.strip_prefix(NAMED) {
                Some(name) if how == How::Arithmetic => &ValueOrigin::Variable(name.to_owned()),
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

    /// Assigns a value that may be untrusted to a variable.
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
        if let Some(expanded) = &mut self.expanded {
            expanded.insert(name.to_owned());
        }
        let is_positional = matches!(name, "@" | "*") || name.bytes().all(|byte| byte.is_ascii_digit());
        if is_positional {
            return self.positional.clone();
        }
        let held = self.variables.get(name).cloned();
        if names::is_copied(name) { held.join(self.reach()) } else { held }
    }

    /// Follows a list whose commands read `input`; returns what it prints.
    fn list(&mut self, list: &CommandList, input: Option<&ValueOrigin>) -> Tainted {
        let mut printed = None;
        for pipeline in list {
            let mut flows = input.cloned().join(self.opened.clone());
            let outer = (self.here.clone(), self.is_file);
            let declared = (pipeline.len() > 1).then(|| Rc::clone(&self.associative));
            for command in pipeline {
                flows = self.command(command, flows.as_ref());
                self.here = self.literal_output(command).map(Rc::new);
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

    fn command(&mut self, command: &Command, input: Option<&ValueOrigin>) -> Tainted {
        if !self.work.begin() {
            return None;
        }
        let outer = (std::mem::replace(&mut self.reads, input.cloned()), self.here.clone(), self.is_file);
        // A declaration in a function, a branch or a subshell need not hold behind it.
        let declared = (!matches!(command, Command::Simple(_))).then(|| Rc::clone(&self.associative));
        let printed = self.command_inside(command, input);
        (self.reads, self.here, self.is_file) = outer;
        if let Some(declared) = declared {
            self.associative = declared;
        }
        printed
    }

    fn command_inside(&mut self, command: &Command, input: Option<&ValueOrigin>) -> Tainted {
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

    fn simple(&mut self, simple: &Simple, input: Option<&ValueOrigin>) -> Tainted {
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
            // `$(< file)` is the contents of the file.
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

    /// Returns the untrusted value that an error message or a trace may repeat from a command's words, if stderr may be read.
    fn said_of(&mut self, words: &[ShellWord]) -> Tainted {
        if self.reads_errors { self.any(words).real() } else { None }
    }

    /// Judges a simple command: a builtin, a function, or a program.
    fn started(&mut self, words: &[ShellWord], input: Option<&ValueOrigin>) -> Tainted {
        if !self.work.start(words.len()) {
            return None;
        }
        let printed = self.started_inside(words, input);
        self.work.end();
        printed
    }

    fn started_inside(&mut self, words: &[ShellWord], input: Option<&ValueOrigin>) -> Tainted {
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
            // The function reads the input of the command around it; its body was followed at its definition.
            if let Some(origin) = input {
                note(&mut self.variables, STDIN, origin);
            }
            // It cannot be known whether the function exists when this is executed: a program of the same name may be
            // started instead.
            let other = self.program_or_builtin(&name, words, input);
            return printed.join(given).join(input.cloned()).join(other);
        }
        self.program_or_builtin(&name, words, input)
    }
}

/// The variable that holds the input of functions where they are called; no variable of a shell has such a name.
const STDIN: &str = "the stdin";

/// Whether a command redirects stderr to a place where it can be read. That excludes `/dev/null`, and stdout that is
/// redirected to stderr.
fn leads_errors(text: &str) -> bool {
    let mut text = text.replace("\\\n", "").replace("> /dev/null", ">/dev/null").replace("1>/dev/null", ">/dev/null");
    for discarded in [" >/dev/null 2>&1", "&>/dev/null", "2>/dev/null", ">&/dev/null", ">&2"] {
        text = text.replace(discarded, " ");
    }
    ["2>", "2<", "&>", ">&", "|&"].iter().any(|operator| text.contains(operator))
}
