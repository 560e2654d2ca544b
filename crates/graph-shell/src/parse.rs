//! Reads a command of bash: the parts of it that decide how its expansions are read.
//!
//! The reader accepts the syntax of bash, and may accept more: its purpose is to find where values go, not to find
//! mistakes. A command that it cannot read is an error, which callers treat as a danger.

mod commands;
mod expansions;
mod heredocs;
mod words;

use std::ops::Range;
use std::rc::Rc;

/// The maximum nesting of commands, beyond which the reader gives up.
const MAX_DEPTH: usize = 64;

/// A list of pipelines, with any operators between them.
pub(super) type CommandList = Vec<Pipeline>;
/// Commands, each of which reads the output of the one before it.
pub(super) type Pipeline = Vec<Command>;

/// A command.
#[derive(Debug, Clone)]
pub(super) enum Command {
    Simple(Simple),
    /// `{ …; }`, `( … )`, `if`, `while`, `until`: its lists, in order.
    Group(Vec<CommandList>, Vec<Redirect>),
    /// `for` and `select`; without words, over the positional parameters.
    For(String, Option<Vec<ShellWord>>, CommandList, Vec<Redirect>),
    Case(ShellWord, Vec<(Vec<ShellWord>, CommandList)>, Vec<Redirect>),
    /// `[[ … ]]`
    Test(Vec<ShellWord>, Vec<Redirect>),
    /// `(( … ))`, and the head of a `for ((…))`.
    Arithmetic(ShellWord),
    Function(String, Box<Command>),
    /// `coproc …`: other commands write its input to its descriptor.
    Coprocess(Box<Command>),
}

/// Words, the first of which names a program, a builtin or a function.
#[derive(Debug, Clone, Default)]
pub(super) struct Simple {
    pub(super) assignments: Vec<ShellWord>,
    pub(super) words: Vec<ShellWord>,
    pub(super) redirects: Vec<Redirect>,
}

/// Where a command reads and writes.
#[derive(Debug, Clone)]
pub(super) enum Redirect {
    /// `<`: reads a file.
    From(ShellWord),
    /// `>`, `>>` and the like.
    Into(ShellWord),
    /// `<<<`, and `<<` with the expansions of its text.
    Text(ShellWord),
    /// `<&`, `>&`; bash expands the word of `>&` twice if it is no number.
    Duplicate(ShellWord),
}

/// A word: the parts that bash joins.
#[derive(Debug, Clone, Default)]
pub(super) struct ShellWord {
    pub(super) parts: Vec<WordPart>,
    /// The left side, if it has the form of an assignment.
    pub(super) assigns: Option<Assigns>,
    /// Whether bash expands it to other words: it has a pattern or braces outside of quotes.
    pub(super) expands: bool,
    pub(super) range: Range<usize>,
}

/// The left side of an assignment.
#[derive(Debug, Clone)]
pub(super) struct Assigns {
    pub(super) name: String,
    pub(super) subscript: Option<Vec<WordPart>>,
    /// The part at which the value begins.
    pub(super) value: usize,
    /// The elements, where the value is a list in parentheses.
    pub(super) elements: Option<Vec<ShellWord>>,
}

/// A part of a word.
#[derive(Debug, Clone)]
pub(super) enum WordPart {
    Text(String),
    Variable(Variable),
    /// `$(…)` and `` `…` ``
    Output {
        list: Rc<CommandList>,
        quoted: bool,
        range: Range<usize>,
    },
    /// `<(…)` and `>(…)`
    Process {
        list: Rc<CommandList>,
        /// Whether the command around it writes to the process.
        reads: bool,
        range: Range<usize>,
    },
    /// `$((…))` and `$[…]`
    Arithmetic(Vec<WordPart>),
}

/// An expansion of a variable, or in arithmetic a variable by its bare name.
#[derive(Debug, Clone)]
pub(super) struct Variable {
    pub(super) name: String,
    pub(super) subscript: Option<Vec<WordPart>>,
    /// Whether it is all elements of an array: `${name[@]}`.
    pub(super) is_all: bool,
    pub(super) operation: Operation,
    pub(super) quoted: bool,
    pub(super) range: Range<usize>,
}

/// The operation of `${…}` on a variable.
#[derive(Debug, Clone)]
pub(super) enum Operation {
    Plain,
    /// `${#name}`
    Length,
    /// `${!name}`
    Indirect,
    /// `${!prefix*}` and `${!list[@]}`
    Names,
    /// `${name@P}`
    Transform(char),
    /// `${name:offset:length}`
    Slice(Vec<WordPart>),
    /// `${name:-word}`, `${name:+word}`, `${name:?word}`, and `${name:=word}`, for which the flag is set: it assigns.
    Default(Vec<WordPart>, bool),
    /// `${name#pattern}`, `${name/pattern/text}`, `${name^^}`
    Pattern(Vec<WordPart>),
}

/// The place where a command cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unreadable(pub(super) usize);

type Parsed<T> = Result<T, Unreadable>;

/// Reads a command.
pub(super) fn parse(text: &str) -> Parsed<CommandList> {
    let mut parser = Parser::new(text);
    let list = parser.list(&[])?;
    if parser.at < parser.end { Err(Unreadable(parser.at)) } else { Ok(list) }
}

/// Reads the text of an arithmetic expression, as `let` has it.
pub(super) fn parse_arithmetic(text: &str) -> Parsed<Vec<WordPart>> {
    let mut parser = Parser::new(text);
    parser.arithmetic(|_| false)
}

/// Returns more fuel than any command needs that a person wrote.
fn fuel(text: &str) -> usize {
    1000 + 16 * text.len()
}

/// The place to which the reader may go back, if what it tries to read there is something else.
#[derive(Debug, Clone, Copy)]
struct ReaderMark {
    at: usize,
    heredocs: usize,
}

struct Parser<'t> {
    text: &'t str,
    at: usize,
    end: usize,
    depth: usize,
    /// The number of constructs that may still be read, and of bytes that may be read again: the contents of `((` may have to be
    /// read twice, and again for each `((` inside.
    fuel: usize,
    /// The here-documents whose text has not come yet.
    heredocs: Vec<Heredoc>,
    /// The characters of patterns and braces of the word that is read, outside of quotes.
    special: String,
}

/// A here-document whose text has not come yet.
struct Heredoc {
    delimiter: String,
    is_literal: bool,
    strips_tabs: bool,
}

const RESERVED: [&str; 8] = ["then", "elif", "else", "fi", "do", "done", "esac", "}"];

impl<'t> Parser<'t> {
    fn new(text: &'t str) -> Self {
        Self { text, at: 0, end: text.len(), depth: 0, fuel: fuel(text), heredocs: Vec::new(), special: String::new() }
    }

    fn peek(&self) -> Option<u8> {
        (self.at < self.end).then(|| self.text.as_bytes()[self.at])
    }

    fn peek_at(&self, ahead: usize) -> Option<u8> {
        (self.at + ahead < self.end).then(|| self.text.as_bytes()[self.at + ahead])
    }

    fn looks_at(&self, text: &str) -> bool {
        self.text.as_bytes()[..self.end].get(self.at..).is_some_and(|rest| rest.starts_with(text.as_bytes()))
    }

    fn take(&mut self, text: &str) -> bool {
        let found = self.looks_at(text);
        if found {
            self.at += text.len();
        }
        found
    }

    fn expect(&mut self, text: &str) -> Parsed<()> {
        if self.take(text) { Ok(()) } else { Err(Unreadable(self.at)) }
    }

    fn mark(&self) -> ReaderMark {
        ReaderMark { at: self.at, heredocs: self.heredocs.len() }
    }

    /// Goes back, to read what follows as something else.
    fn go_back(&mut self, ReaderMark { at, heredocs }: ReaderMark) -> Parsed<()> {
        self.fuel = self.fuel.checked_sub(self.at - at).ok_or(Unreadable(self.at))?;
        self.at = at;
        self.heredocs.truncate(heredocs);
        Ok(())
    }

    fn deeper<T>(&mut self, read: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.depth >= MAX_DEPTH || self.fuel == 0 {
            return Err(Unreadable(self.at));
        }
        self.fuel -= 1;
        self.depth += 1;
        let result = read(self);
        self.depth -= 1;
        result
    }

    /// Skips blanks, comments and escaped line ends.
    fn blanks(&mut self) {
        loop {
            match self.peek() {
                Some(b' ' | b'\t') => self.at += 1,
                Some(b'\\') if self.peek_at(1) == Some(b'\n') => self.at += 2,
                Some(b'#') => {
                    while self.peek().is_some_and(|byte| byte != b'\n') {
                        self.at += 1;
                    }
                }
                _ => return,
            }
        }
    }
}

/// The context of a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WordContext {
    /// A word of a command: it may be an assignment.
    Word,
    /// A pattern or an element of a list.
    Pattern,
}

impl Variable {
    fn plain(name: String, quoted: bool, range: Range<usize>) -> Self {
        Self { name, subscript: None, is_all: false, operation: Operation::Plain, quoted, range }
    }
}

impl ShellWord {
    /// Returns its text, if nothing in it is expanded.
    pub(super) fn literal(&self) -> Option<String> {
        if self.assigns.as_ref().is_some_and(|assigns| assigns.elements.is_some()) {
            return None;
        }
        literal(&self.parts)
    }

    /// Returns the text that it begins with.
    pub(super) fn beginning(&self) -> &str {
        match self.parts.first() {
            Some(WordPart::Text(text)) => text,
            _ => "",
        }
    }
}

/// Returns the text of parts; `None` if any part is expanded.
pub(super) fn literal(parts: &[WordPart]) -> Option<String> {
    let mut text = String::new();
    for part in parts {
        match part {
            WordPart::Text(piece) => text.push_str(piece),
            _ => return None,
        }
    }
    Some(text)
}

fn push_text(parts: &mut Vec<WordPart>, text: &str) {
    match parts.last_mut() {
        Some(WordPart::Text(last)) => last.push_str(text),
        _ => parts.push(WordPart::Text(text.to_owned())),
    }
}

fn name_length(text: &str) -> usize {
    if text.starts_with(|character: char| character.is_ascii_digit()) {
        return 0;
    }
    text.bytes().take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_').count()
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && name_length(text) == text.len()
}

/// Puts the texts of here-documents where they are read, in order. Returns false if there are more texts.
fn fill_heredocs(list: &mut [Pipeline], texts: Vec<ShellWord>) -> bool {
    let mut texts = texts.into_iter();
    for command in list.iter_mut().flatten() {
        fill_command(command, &mut texts);
    }
    texts.next().is_none()
}

fn fill_command(command: &mut Command, texts: &mut impl Iterator<Item = ShellWord>) {
    command.redirects(&mut |redirect| {
        if let Redirect::Text(word) = redirect
            && word.range.start == usize::MAX
            && let Some(text) = texts.next()
        {
            *word = text;
        }
    });
}

impl Command {
    /// Calls `visit` with each redirection of the command and of those in it, in the order of the text.
    fn redirects(&mut self, visit: &mut dyn FnMut(&mut Redirect)) {
        let inside = |list: &mut CommandList, visit: &mut dyn FnMut(&mut Redirect)| {
            list.iter_mut().flatten().for_each(|command| command.redirects(visit));
        };
        let own = match self {
            Self::Simple(simple) => &mut simple.redirects,
            Self::Group(lists, own) => {
                lists.iter_mut().for_each(|list| inside(list, visit));
                own
            }
            Self::For(_, _, body, own) => {
                inside(body, visit);
                own
            }
            Self::Case(_, arms, own) => {
                arms.iter_mut().for_each(|(_, body)| inside(body, visit));
                own
            }
            Self::Test(_, own) => own,
            Self::Arithmetic(_) => return,
            Self::Function(_, body) | Self::Coprocess(body) => return body.redirects(visit),
        };
        own.iter_mut().for_each(visit);
    }

    /// Sets the place of everything in a command to `range`.
    fn place(&mut self, range: &Range<usize>) {
        let words = |words: &mut [ShellWord]| words.iter_mut().for_each(|word| word.place(range));
        let lists = |list: &mut CommandList| list.iter_mut().flatten().for_each(|command| command.place(range));
        match self {
            Self::Simple(simple) => {
                words(&mut simple.assignments);
                words(&mut simple.words);
            }
            Self::Group(inner, _) => inner.iter_mut().for_each(lists),
            Self::For(_, over, body, _) => {
                over.iter_mut().for_each(|over| words(over));
                lists(body);
            }
            Self::Case(word, arms, _) => {
                word.place(range);
                for (patterns, body) in arms {
                    words(patterns);
                    lists(body);
                }
            }
            Self::Test(inner, _) => words(inner),
            Self::Arithmetic(word) => word.place(range),
            Self::Function(_, body) | Self::Coprocess(body) => body.place(range),
        }
        self.redirects(&mut |redirect| {
            let (Redirect::From(word) | Redirect::Into(word) | Redirect::Text(word) | Redirect::Duplicate(word)) =
                redirect;
            word.place(range);
        });
    }
}

impl ShellWord {
    fn place(&mut self, range: &Range<usize>) {
        self.range = range.clone();
        place_parts(&mut self.parts, range);
        if let Some(assigns) = &mut self.assigns {
            assigns.subscript.iter_mut().for_each(|parts| place_parts(parts, range));
            assigns.elements.iter_mut().flatten().for_each(|word| word.place(range));
        }
    }
}

fn place_parts(parts: &mut [WordPart], range: &Range<usize>) {
    for part in parts {
        match part {
            WordPart::Text(_) => {}
            WordPart::Variable(variable) => {
                variable.range = range.clone();
                variable.subscript.iter_mut().for_each(|parts| place_parts(parts, range));
                match &mut variable.operation {
                    Operation::Slice(parts) | Operation::Default(parts, _) | Operation::Pattern(parts) => {
                        place_parts(parts, range);
                    }
                    _ => {}
                }
            }
            WordPart::Output { list, range: own, .. } | WordPart::Process { list, range: own, .. } => {
                *own = range.clone();
                Rc::make_mut(list).iter_mut().flatten().for_each(|command| command.place(range));
            }
            WordPart::Arithmetic(parts) => place_parts(parts, range),
        }
    }
}
