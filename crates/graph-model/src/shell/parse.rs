//! Reading a command of bash: the parts of it that decide what its expansions are read as.
//!
//! The reader takes what bash takes, and may take more: it is there to find where values go, not to find mistakes. What it
//! cannot read is an error, which callers treat as a danger.

use std::ops::Range;

/// The commands that may be nested in each other before the reader gives up.
const MAX_DEPTH: usize = 64;

/// A list of pipelines, with whatever operators between them.
pub(super) type List = Vec<Pipeline>;
/// Commands of which each reads what the one before it prints.
pub(super) type Pipeline = Vec<Command>;

/// A command.
#[derive(Debug, Clone)]
pub(super) enum Command {
    Simple(Simple),
    /// `{ …; }`, `( … )`, `if`, `while`, `until`: its lists, in order.
    Group(Vec<List>, Vec<Redirect>),
    /// `for` and `select`; without words, over the positional parameters.
    For(String, Option<Vec<Word>>, List, Vec<Redirect>),
    Case(Word, Vec<(Vec<Word>, List)>, Vec<Redirect>),
    /// `[[ … ]]`
    Test(Vec<Word>, Vec<Redirect>),
    /// `(( … ))`, and the head of a `for ((…))`.
    Arithmetic(Word),
    Function(String, Box<Command>),
    /// `coproc …`: what it reads, others write to its descriptor.
    Coprocess(Box<Command>),
}

/// Words, the first of which names a program, a builtin or a function.
#[derive(Debug, Clone, Default)]
pub(super) struct Simple {
    pub(super) assignments: Vec<Word>,
    pub(super) words: Vec<Word>,
    pub(super) redirects: Vec<Redirect>,
}

/// Where a command reads and writes.
#[derive(Debug, Clone)]
pub(super) enum Redirect {
    /// `<`: what is read is a file's.
    From(Word),
    /// `>`, `>>` and the like.
    Into(Word),
    /// `<<<`, and `<<` with the expansions of its text.
    Text(Word),
    /// `<&`, `>&`; bash expands the word of `>&` twice if it is no number.
    Duplicate(Word),
}

/// A word: the parts that bash joins.
#[derive(Debug, Clone, Default)]
pub(super) struct Word {
    pub(super) parts: Vec<Part>,
    /// If it has the form of an assignment: to what.
    pub(super) assigns: Option<Assigns>,
    /// Whether bash makes other words of it: it has a pattern or braces outside of quotes.
    pub(super) expands: bool,
    pub(super) range: Range<usize>,
}

/// The left side of an assignment.
#[derive(Debug, Clone)]
pub(super) struct Assigns {
    pub(super) name: String,
    pub(super) subscript: Option<Vec<Part>>,
    /// The part at which the value begins.
    pub(super) value: usize,
    /// The elements, where the value is a list in parentheses.
    pub(super) elements: Option<Vec<Word>>,
}

/// A part of a word.
#[derive(Debug, Clone)]
pub(super) enum Part {
    Text(String),
    Variable(Variable),
    /// `$(…)` and `` `…` ``
    Output {
        list: List,
        quoted: bool,
        range: Range<usize>,
    },
    /// `<(…)` and `>(…)`
    Process {
        list: List,
        /// Whether the command around it writes to the process.
        reads: bool,
        range: Range<usize>,
    },
    /// `$((…))` and `$[…]`
    Arithmetic(Vec<Part>),
}

/// An expansion of a variable, or in arithmetic a variable by its bare name.
#[derive(Debug, Clone)]
pub(super) struct Variable {
    pub(super) name: String,
    pub(super) subscript: Option<Vec<Part>>,
    /// Whether it is all elements of an array: `${name[@]}`.
    pub(super) is_all: bool,
    pub(super) operation: Operation,
    pub(super) quoted: bool,
    pub(super) range: Range<usize>,
}

/// What `${…}` does with a variable.
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
    Slice(Vec<Part>),
    /// `${name:-word}`, `${name:+word}`, `${name:?word}`, and with `=` what is assigned.
    Default(Vec<Part>, bool),
    /// `${name#pattern}`, `${name/pattern/text}`, `${name^^}`
    Pattern(Vec<Part>),
}

/// Why a command cannot be read: where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unreadable(pub(super) usize);

type Read<T> = Result<T, Unreadable>;

/// Reads a command.
pub(super) fn parse(text: &str) -> Read<List> {
    let mut parser = Parser::new(text);
    let list = parser.list(&[])?;
    if parser.at < parser.end { Err(Unreadable(parser.at)) } else { Ok(list) }
}

/// Reads the text of an arithmetic expression, as `let` has it.
pub(super) fn parse_arithmetic(text: &str) -> Read<Vec<Part>> {
    let mut parser = Parser::new(text);
    parser.arithmetic(|_| false)
}

/// More than any command needs that a person wrote.
fn fuel(text: &str) -> usize {
    1000 + 16 * text.len()
}

struct Parser<'t> {
    text: &'t str,
    at: usize,
    end: usize,
    depth: usize,
    /// How many more constructs are read: what is `((` may have to be read twice, and so on inside it.
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

    fn expect(&mut self, text: &str) -> Read<()> {
        if self.take(text) { Ok(()) } else { Err(Unreadable(self.at)) }
    }

    fn deeper<T>(&mut self, read: impl FnOnce(&mut Self) -> Read<T>) -> Read<T> {
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

    /// Skips blanks and line ends; reads the here-documents that begin behind the first line end.
    fn lines(&mut self) -> Read<Vec<Word>> {
        let mut texts = Vec::new();
        loop {
            self.blanks();
            if self.peek() != Some(b'\n') {
                return Ok(texts);
            }
            self.at += 1;
            for heredoc in std::mem::take(&mut self.heredocs) {
                texts.push(self.heredoc(&heredoc)?);
            }
        }
    }

    /// Skips line ends where the text of a here-document would not be told from what the command goes on with.
    fn line_ends(&mut self) -> Read<()> {
        if self.lines()?.is_empty() { Ok(()) } else { Err(Unreadable(self.at)) }
    }

    fn heredoc(&mut self, heredoc: &Heredoc) -> Read<Word> {
        let start = self.at;
        // A line that goes on in the next one has no end, so the next one is no delimiter.
        let mut goes_on = false;
        loop {
            let line_start = self.at;
            let rest = &self.text[line_start..self.end];
            let length = rest.find('\n').unwrap_or(rest.len());
            let line = &rest[..length];
            let line = if heredoc.strips_tabs { line.trim_start_matches('\t') } else { line };
            let is_last = line_start + length >= self.end;
            let is_delimiter = line == heredoc.delimiter && !goes_on;
            goes_on = !heredoc.is_literal && line.bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 1;
            if is_delimiter || is_last {
                // A text without its delimiter ends where the command does, as bash takes it.
                let end = if is_delimiter { line_start } else { self.end };
                let next = (line_start + length + 1).min(self.end);
                let word = self.heredoc_text(heredoc, start..end)?;
                self.at = next;
                return Ok(word);
            }
            self.at = line_start + length + 1;
        }
    }

    fn heredoc_text(&mut self, heredoc: &Heredoc, range: Range<usize>) -> Read<Word> {
        if heredoc.is_literal {
            let text = self.text[range.clone()].to_owned();
            return Ok(Word { parts: vec![Part::Text(text)], assigns: None, expands: false, range });
        }
        let end = std::mem::replace(&mut self.end, range.end);
        self.at = range.start;
        let parts = self.quoted_until(None);
        self.end = end;
        Ok(Word { parts: parts?, assigns: None, expands: false, range })
    }

    /// Reads pipelines until one of `stops`, a closing parenthesis, `;;` or the end.
    fn list(&mut self, stops: &[&str]) -> Read<List> {
        self.deeper(|parser| parser.list_inside(stops))
    }

    fn list_inside(&mut self, stops: &[&str]) -> Read<List> {
        let mut list: List = Vec::new();
        // How many of them have the texts of their heredocs.
        let mut filled = 0;
        loop {
            let texts = self.lines()?;
            if !texts.is_empty() {
                // A text of a heredoc that began outside of the list would be taken for another's.
                if !fill_heredocs(&mut list[filled..], texts) {
                    return Err(Unreadable(self.at));
                }
                filled = list.len();
            }
            match self.peek() {
                None | Some(b')') => return Ok(list),
                Some(b';') if self.peek_at(1) == Some(b';') || self.peek_at(1) == Some(b'&') => return Ok(list),
                Some(b';' | b'&') => {
                    self.at += 1;
                    continue;
                }
                _ => {}
            }
            if let Some(word) = self.reserved_word() {
                if stops.contains(&word) {
                    return Ok(list);
                }
                if RESERVED.contains(&word) {
                    return Err(Unreadable(self.at));
                }
            }
            let pipeline = self.pipeline()?;
            list.push(pipeline);
            self.blanks();
            match self.peek() {
                None | Some(b')' | b'\n') => {}
                Some(b';') => {
                    if self.peek_at(1) != Some(b';') && self.peek_at(1) != Some(b'&') {
                        self.at += 1;
                    }
                }
                Some(b'&') => {
                    self.at += if self.peek_at(1) == Some(b'&') { 2 } else { 1 };
                }
                Some(b'|') if self.peek_at(1) == Some(b'|') => self.at += 2,
                _ => return Err(Unreadable(self.at)),
            }
        }
    }

    /// Returns the word that stands here, if nothing of it is quoted or expanded.
    fn reserved_word(&self) -> Option<&'static str> {
        const WORDS: [&str; 19] = [
            "if", "then", "elif", "else", "fi", "do", "done", "case", "esac", "for", "while", "until", "select",
            "function", "time", "coproc", "{", "}", "!",
        ];
        let rest = &self.text.as_bytes()[self.at..self.end];
        let is_end = |byte: &u8| b" \t\n;&|()<>".contains(byte);
        let length = rest.iter().position(is_end).unwrap_or(rest.len());
        WORDS.into_iter().find(|word| word.as_bytes() == &rest[..length])
    }

    fn pipeline(&mut self) -> Read<Pipeline> {
        let mut pipeline = Vec::new();
        loop {
            self.blanks();
            match self.reserved_word() {
                Some("!") => {
                    self.at += 1;
                    continue;
                }
                Some("time") => {
                    self.at += 4;
                    self.blanks();
                    for option in ["-p", "--"] {
                        if self.looks_at(option) && self.peek_at(2).is_none_or(|byte| byte.is_ascii_whitespace()) {
                            self.at += 2;
                            self.blanks();
                        }
                    }
                    continue;
                }
                Some("coproc") => {
                    self.at += 6;
                    self.blanks();
                    self.name_of_coprocess();
                    let command = self.command()?;
                    pipeline.push(Command::Coprocess(Box::new(command)));
                    return Ok(pipeline);
                }
                _ => {}
            }
            pipeline.push(self.command()?);
            self.blanks();
            if self.peek() != Some(b'|') || self.peek_at(1) == Some(b'|') {
                return Ok(pipeline);
            }
            self.at += if self.peek_at(1) == Some(b'&') { 2 } else { 1 };
            let texts = self.lines()?;
            let mut texts = texts.into_iter();
            pipeline.iter_mut().for_each(|command| fill_command(command, &mut texts));
        }
    }

    /// Skips the name of a coprocess, which stands before a command of several.
    fn name_of_coprocess(&mut self) {
        let rest = &self.text[self.at..self.end];
        let length = rest.find([' ', '\t']).unwrap_or(rest.len());
        let behind = rest[length..].trim_start_matches([' ', '\t']);
        let is_several = ["[[", "(", "{", "if ", "for ", "while ", "until ", "case ", "select "];
        if is_name(&rest[..length]) && is_several.iter().any(|start| behind.starts_with(start)) {
            self.at += rest.len() - behind.len();
        }
    }

    fn command(&mut self) -> Read<Command> {
        self.deeper(Self::command_inside)
    }

    fn command_inside(&mut self) -> Read<Command> {
        match self.reserved_word() {
            Some("{") => {
                self.at += 1;
                let list = self.list(&["}"])?;
                self.expect("}")?;
                return Ok(Command::Group(vec![list], self.redirects()?));
            }
            Some("if") => {
                self.at += 2;
                let mut lists = Vec::new();
                loop {
                    lists.push(self.list(&["then", "elif", "else", "fi"])?);
                    match self.reserved_word() {
                        Some(word @ ("then" | "elif" | "else")) => self.at += word.len(),
                        _ => break,
                    }
                }
                self.expect("fi")?;
                return Ok(Command::Group(lists, self.redirects()?));
            }
            Some("while" | "until") => {
                self.at += 5;
                let condition = self.list(&["do"])?;
                let body = self.body()?;
                return Ok(Command::Group(vec![condition, body], self.redirects()?));
            }
            Some(word @ ("for" | "select")) => {
                self.at += word.len();
                return self.for_loop();
            }
            Some("case") => {
                self.at += 4;
                return self.case();
            }
            Some("function") => {
                self.at += 8;
                self.blanks();
                let name = self.word()?;
                self.blanks();
                if self.take("(") {
                    self.blanks();
                    self.expect(")")?;
                }
                return self.function(name.literal().unwrap_or_default());
            }
            _ => {}
        }
        if self.looks_at("((") {
            let start = self.at;
            self.at += 2;
            // `((` may also be two subshells.
            if let Ok(parts) = self.arithmetic_until("))") {
                let word =
                    Word { parts: vec![Part::Arithmetic(parts)], assigns: None, expands: false, range: start..self.at };
                return Ok(Command::Arithmetic(word));
            }
            self.at = start;
        }
        if self.take("(") {
            let list = self.list(&[])?;
            self.expect(")")?;
            return Ok(Command::Group(vec![list], self.redirects()?));
        }
        if self.looks_at("[[") && self.peek_at(2).is_none_or(|byte| byte.is_ascii_whitespace()) {
            self.at += 2;
            return self.test();
        }
        self.simple()
    }

    /// Reads `do … done` or `{ … }`.
    fn body(&mut self) -> Read<List> {
        self.line_ends()?;
        if self.reserved_word() == Some("{") {
            self.at += 1;
            let list = self.list(&["}"])?;
            self.expect("}")?;
            return Ok(list);
        }
        if self.reserved_word() != Some("do") {
            return Err(Unreadable(self.at));
        }
        self.at += 2;
        let list = self.list(&["done"])?;
        self.expect("done")?;
        Ok(list)
    }

    fn for_loop(&mut self) -> Read<Command> {
        self.blanks();
        let start = self.at;
        if self.take("((") {
            let parts = self.arithmetic_until("))")?;
            let head =
                Word { parts: vec![Part::Arithmetic(parts)], assigns: None, expands: false, range: start..self.at };
            self.blanks();
            self.take(";");
            let body = self.body()?;
            let lists = vec![vec![vec![Command::Arithmetic(head)]], body];
            return Ok(Command::Group(lists, self.redirects()?));
        }
        let name = self.word()?.literal().ok_or(Unreadable(start))?;
        self.line_ends()?;
        let mut words = None;
        if self.looks_at("in") && self.peek_at(2).is_none_or(|byte| byte.is_ascii_whitespace() || byte == b';') {
            self.at += 2;
            let mut list = Vec::new();
            loop {
                self.blanks();
                match self.peek() {
                    None | Some(b'\n' | b';') => break,
                    _ => list.push(self.word()?),
                }
            }
            words = Some(list);
        }
        self.blanks();
        self.take(";");
        let body = self.body()?;
        Ok(Command::For(name, words, body, self.redirects()?))
    }

    fn case(&mut self) -> Read<Command> {
        self.blanks();
        let word = self.word()?;
        self.line_ends()?;
        if !self.looks_at("in") {
            return Err(Unreadable(self.at));
        }
        self.at += 2;
        let mut arms = Vec::new();
        loop {
            self.line_ends()?;
            if self.reserved_word() == Some("esac") {
                self.at += 4;
                return Ok(Command::Case(word, arms, self.redirects()?));
            }
            self.take("(");
            let mut patterns = Vec::new();
            loop {
                self.blanks();
                patterns.push(self.word()?);
                self.blanks();
                if !self.take("|") {
                    break;
                }
            }
            self.expect(")")?;
            let body = self.list(&["esac"])?;
            arms.push((patterns, body));
            if !(self.take(";;&") || self.take(";;") || self.take(";&")) && self.reserved_word() != Some("esac") {
                return Err(Unreadable(self.at));
            }
        }
    }

    /// Reads the rest of `[[ … ]]`.
    fn test(&mut self) -> Read<Command> {
        let mut words = Vec::new();
        loop {
            self.line_ends()?;
            if self.looks_at("]]") && self.peek_at(2).is_none_or(|byte| b" \t\n;&|)<>".contains(&byte)) {
                self.at += 2;
                return Ok(Command::Test(words, self.redirects()?));
            }
            let start = self.at;
            let operator =
                ["&&", "||", "(", ")", "!=", "!", "<", ">"].into_iter().find(|operator| self.looks_at(operator));
            if let Some(operator) = operator
                && !(operator == "!" && self.peek_at(1) == Some(b'('))
            {
                self.at += operator.len();
                words.push(Word {
                    parts: vec![Part::Text(operator.to_owned())],
                    assigns: None,
                    expands: false,
                    range: start..self.at,
                });
                let is_pattern = operator == "!=";
                if is_pattern {
                    self.blanks();
                    words.push(self.pattern()?);
                }
                continue;
            }
            let word = self.word_with(Mode::Pattern)?;
            let is_match = matches!(word.literal().as_deref(), Some("=~" | "==" | "="));
            words.push(word);
            if is_match {
                self.blanks();
                words.push(self.pattern()?);
            }
        }
    }

    /// Reads the pattern of a comparison in `[[ … ]]`, which may have parentheses and bars in it.
    fn pattern(&mut self) -> Read<Word> {
        let start = self.at;
        let mut parts = Vec::new();
        let mut open = 0_usize;
        loop {
            match self.peek() {
                None => return Err(Unreadable(self.at)),
                Some(byte) if open == 0 && byte.is_ascii_whitespace() => break,
                Some(b')') if open == 0 => break,
                Some(b'&') if open == 0 && self.peek_at(1) == Some(b'&') => break,
                Some(b'|') if open == 0 && self.peek_at(1) == Some(b'|') => break,
                Some(b'(') => {
                    open += 1;
                    self.at += 1;
                }
                Some(b')') => {
                    open -= 1;
                    self.at += 1;
                }
                Some(byte) if b"|<>;& \t\n".contains(&byte) => self.at += 1,
                Some(_) => self.part(&mut parts, Mode::Pattern)?,
            }
        }
        Ok(Word { parts, assigns: None, expands: false, range: start..self.at })
    }

    fn function(&mut self, name: String) -> Read<Command> {
        self.line_ends()?;
        let body = self.command()?;
        Ok(Command::Function(name, Box::new(body)))
    }

    fn simple(&mut self) -> Read<Command> {
        let mut simple = Simple::default();
        loop {
            self.blanks();
            if let Some(redirect) = self.redirect()? {
                simple.redirects.push(redirect);
                continue;
            }
            match self.peek() {
                None | Some(b'\n' | b';' | b'&' | b'|' | b')') => break,
                Some(b'(') => {
                    // A function: `name()`.
                    let [name] = simple.words.as_slice() else { return Err(Unreadable(self.at)) };
                    let name = name.literal().ok_or(Unreadable(self.at))?;
                    self.at += 1;
                    self.blanks();
                    self.expect(")")?;
                    return self.function(name);
                }
                _ => {}
            }
            let word = self.word()?;
            if simple.words.is_empty() && word.assigns.is_some() {
                simple.assignments.push(word);
            } else {
                simple.words.push(word);
            }
        }
        if simple.words.is_empty() && simple.assignments.is_empty() && simple.redirects.is_empty() {
            return Err(Unreadable(self.at));
        }
        Ok(Command::Simple(simple))
    }

    fn redirects(&mut self) -> Read<Vec<Redirect>> {
        let mut redirects = Vec::new();
        loop {
            self.blanks();
            match self.redirect()? {
                Some(redirect) => redirects.push(redirect),
                None => return Ok(redirects),
            }
        }
    }

    /// Reads a redirection, if one stands here.
    fn redirect(&mut self) -> Read<Option<Redirect>> {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        if self.at == start && self.peek() == Some(b'{') {
            // `{name}>file` names the descriptor.
            let rest = &self.text[self.at..self.end];
            if let Some(length) = rest.find('}')
                && matches!(rest.as_bytes().get(length + 1), Some(b'<' | b'>'))
            {
                if is_name(&rest[1..length]) {
                    self.at += length + 1;
                } else if rest[1..length].contains('[') {
                    // The subscript of `{name[…]}>file` is evaluated.
                    return Err(Unreadable(self.at));
                }
            }
        }
        const OPERATORS: [&str; 13] =
            ["&>>", "&>", "<<<", "<<-", "<<", "<>", "<&", "<", ">>", ">&", ">|", ">", "\u{0}"];
        let is_process = (self.looks_at("<(") || self.looks_at(">(")) && self.at == start;
        let operator = OPERATORS.into_iter().find(|operator| self.looks_at(operator)).filter(|_| !is_process);
        let Some(operator) = operator else {
            self.at = start;
            return Ok(None);
        };
        self.at += operator.len();
        self.blanks();
        let word_start = self.at;
        let word = self.word()?;
        if word.parts.is_empty() && self.at == word_start {
            return Err(Unreadable(self.at));
        }
        Ok(Some(match operator {
            "<<" | "<<-" => {
                let raw = &self.text[word.range.clone()];
                let is_literal = raw.contains(['\'', '"', '\\']);
                let delimiter = word.literal().unwrap_or_else(|| raw.to_owned());
                self.heredocs.push(Heredoc { delimiter, is_literal, strips_tabs: operator == "<<-" });
                // Its text comes behind the line's end; an empty range marks the place for it.
                Redirect::Text(Word { parts: Vec::new(), assigns: None, expands: false, range: usize::MAX..usize::MAX })
            }
            "<<<" => Redirect::Text(word),
            "<" | "<>" => Redirect::From(word),
            "<&" | ">&" => Redirect::Duplicate(word),
            _ => Redirect::Into(word),
        }))
    }

    fn word(&mut self) -> Read<Word> {
        self.word_with(Mode::Word)
    }

    fn word_with(&mut self, mode: Mode) -> Read<Word> {
        let start = self.at;
        let mut word = Word { range: start..start, ..Word::default() };
        let outer = std::mem::take(&mut self.special);
        if mode == Mode::Word {
            word.assigns = self.assigns(&mut word.parts)?;
        }
        if word.assigns.as_ref().is_none_or(|assigns| assigns.elements.is_none()) {
            loop {
                match self.peek() {
                    None => break,
                    Some(byte) if b" \t\n;&|".contains(&byte) => break,
                    Some(b'<' | b'>') if self.peek_at(1) == Some(b'(') => self.part(&mut word.parts, mode)?,
                    Some(b'(' | b')' | b'<' | b'>') => break,
                    Some(b'\\') if self.peek_at(1) == Some(b'\n') => self.at += 2,
                    Some(byte) if b"?*+@!".contains(&byte) && self.peek_at(1) == Some(b'(') => {
                        self.at += 2;
                        self.special.push('*');
                        push_text(&mut word.parts, "(");
                        self.extended_pattern(&mut word.parts)?;
                    }
                    Some(_) => self.part(&mut word.parts, mode)?,
                }
            }
        }
        word.range = start..self.at;
        let special = std::mem::replace(&mut self.special, outer);
        let pair = |open: char, close: char| special.find(open).is_some_and(|at| special[at..].contains(close));
        word.expands = special.contains(['*', '?']) || pair('[', ']') || pair('{', '}');
        if word.range.is_empty() {
            return Err(Unreadable(self.at));
        }
        Ok(word)
    }

    /// Reads the rest of `@(…)` and the like.
    fn extended_pattern(&mut self, parts: &mut Vec<Part>) -> Read<()> {
        let mut open = 1_usize;
        while open > 0 {
            match self.peek() {
                None => return Err(Unreadable(self.at)),
                Some(b'(') => {
                    open += 1;
                    self.at += 1;
                }
                Some(b')') => {
                    open -= 1;
                    self.at += 1;
                }
                Some(byte) if b" \t\n;&|<>".contains(&byte) => self.at += 1,
                Some(_) => self.part(parts, Mode::Pattern)?,
            }
        }
        Ok(())
    }

    /// Reads `name=`, `name+=`, `name[…]=`, if the word begins so, and a list in parentheses behind it.
    fn assigns(&mut self, parts: &mut Vec<Part>) -> Read<Option<Assigns>> {
        let start = self.at;
        let length = name_length(&self.text[start..self.end]);
        if length == 0 {
            return Ok(None);
        }
        let name = self.text[start..start + length].to_owned();
        self.at += length;
        let mut subscript = None;
        if self.peek() == Some(b'[') {
            self.at += 1;
            match self.arithmetic_until("]") {
                Ok(parts) => subscript = Some(parts),
                Err(_) => {
                    self.at = start;
                    return Ok(None);
                }
            }
        }
        if !(self.take("+=") || self.take("=")) {
            self.at = start;
            return Ok(None);
        }
        parts.push(Part::Text(self.text[start..self.at].to_owned()));
        let mut elements = None;
        if self.take("(") {
            let mut list = Vec::new();
            loop {
                self.line_ends()?;
                if self.take(")") {
                    break;
                }
                if self.peek() == Some(b'[') {
                    // `[subscript]=value`
                    let element = self.at;
                    self.at += 1;
                    let subscript = self.arithmetic_until("]")?;
                    if self.take("+=") || self.take("=") {
                        let mut inner = Vec::new();
                        while self.peek().is_some_and(|byte| !b" \t\n)".contains(&byte)) {
                            self.part(&mut inner, Mode::Word)?;
                        }
                        let assigns =
                            Assigns { name: name.clone(), subscript: Some(subscript), value: 0, elements: None };
                        list.push(Word {
                            parts: inner,
                            assigns: Some(assigns),
                            expands: false,
                            range: element..self.at,
                        });
                        continue;
                    }
                    self.at = element;
                }
                list.push(self.word_with(Mode::Pattern)?);
            }
            elements = Some(list);
        }
        Ok(Some(Assigns { name, subscript, value: parts.len(), elements }))
    }

    /// Reads one part of a word: a quoted text, an expansion, or a character.
    fn part(&mut self, parts: &mut Vec<Part>, mode: Mode) -> Read<()> {
        match self.peek() {
            Some(b'\'') => {
                self.at += 1;
                let rest = &self.text[self.at..self.end];
                let length = rest.find('\'').ok_or(Unreadable(self.at))?;
                push_text(parts, &rest[..length]);
                self.at += length + 1;
            }
            Some(b'"') => {
                self.at += 1;
                parts.extend(self.quoted_until(Some(b'"'))?);
                self.expect("\"")?;
            }
            Some(b'\\') => {
                self.at += 1;
                self.character(parts);
            }
            Some(b'$') => self.dollar(parts, false)?,
            Some(b'`') => self.backticks(parts, false)?,
            Some(b'<' | b'>') if self.peek_at(1) == Some(b'(') && mode == Mode::Word => {
                let start = self.at;
                let reads = self.looks_at(">");
                self.at += 2;
                let list = self.list(&[])?;
                self.expect(")")?;
                parts.push(Part::Process { list, reads, range: start..self.at });
            }
            byte => {
                if let Some(special @ (b'*' | b'?' | b'[' | b']' | b'{' | b'}')) = byte {
                    self.special.push(char::from(special));
                }
                self.character(parts);
            }
        }
        Ok(())
    }

    fn character(&mut self, parts: &mut Vec<Part>) {
        if let Some(character) = self.text[self.at..self.end].chars().next() {
            self.at += character.len_utf8();
            push_text(parts, character.encode_utf8(&mut [0; 4]));
        }
    }

    /// Reads what is as in double quotes, to a quote or to the end.
    fn quoted_until(&mut self, quote: Option<u8>) -> Read<Vec<Part>> {
        // An empty text too is a part: `""` is a word.
        let mut parts = vec![Part::Text(String::new())];
        loop {
            match self.peek() {
                None if quote.is_none() => return Ok(parts),
                None => return Err(Unreadable(self.at)),
                Some(byte) if Some(byte) == quote => return Ok(parts),
                Some(b'\\') => {
                    let next = self.peek_at(1);
                    if !matches!(next, Some(b'$' | b'`' | b'"' | b'\\' | b'\n')) {
                        push_text(&mut parts, "\\");
                        self.at += 1;
                        continue;
                    }
                    self.at += 1;
                    if next == Some(b'\n') {
                        self.at += 1;
                    } else {
                        self.character(&mut parts);
                    }
                }
                Some(b'$') => self.dollar(&mut parts, true)?,
                Some(b'`') => self.backticks(&mut parts, true)?,
                Some(_) => self.character(&mut parts),
            }
        }
    }

    /// Reads `` `…` ``: its text is read by itself, with its backslashes taken away.
    fn backticks(&mut self, parts: &mut Vec<Part>, quoted: bool) -> Read<()> {
        let start = self.at;
        self.at += 1;
        let mut inner = String::new();
        loop {
            let rest = &self.text[self.at..self.end];
            let mut characters = rest.chars();
            match characters.next() {
                None => return Err(Unreadable(start)),
                Some('`') => break,
                Some('\\') => match characters.next() {
                    Some(next @ ('`' | '\\' | '$')) => {
                        inner.push(next);
                        self.at += 2;
                    }
                    Some('"') if quoted => {
                        inner.push('"');
                        self.at += 2;
                    }
                    _ => {
                        inner.push('\\');
                        self.at += 1;
                    }
                },
                Some(other) => {
                    inner.push(other);
                    self.at += other.len_utf8();
                }
            }
        }
        self.at += 1;
        let mut parser = Parser {
            text: &inner,
            end: inner.len(),
            at: 0,
            depth: self.depth + 1,
            fuel: self.fuel,
            heredocs: Vec::new(),
            special: String::new(),
        };
        let list = parser.list(&[]);
        self.fuel = parser.fuel;
        let mut list = list.map_err(|_| Unreadable(start))?;
        if parser.at < parser.end {
            return Err(Unreadable(start));
        }
        // The places in it are those of another text.
        let range = start..self.at;
        list.iter_mut().flatten().for_each(|command| command.place(&range));
        parts.push(Part::Output { list, quoted, range });
        Ok(())
    }

    fn dollar(&mut self, parts: &mut Vec<Part>, quoted: bool) -> Read<()> {
        self.deeper(|parser| parser.dollar_inside(parts, quoted))
    }

    fn dollar_inside(&mut self, parts: &mut Vec<Part>, quoted: bool) -> Read<()> {
        let start = self.at;
        self.at += 1;
        match self.peek() {
            Some(b'(') if self.peek_at(1) == Some(b'(') => {
                self.at += 2;
                if let Ok(inner) = self.arithmetic_until("))") {
                    parts.push(Part::Arithmetic(inner));
                    return Ok(());
                }
                // `$( (…) )`, written without the blank.
                self.at = start + 1;
                self.output(parts, quoted, start)?;
            }
            Some(b'(') => self.output(parts, quoted, start)?,
            Some(b'[') => {
                self.at += 1;
                let inner = self.arithmetic_until("]")?;
                parts.push(Part::Arithmetic(inner));
            }
            Some(b'{') => {
                self.at += 1;
                let variable = self.braces(start, quoted)?;
                parts.push(Part::Variable(variable));
            }
            Some(b'\'') if !quoted => {
                self.at += 1;
                // A character 0 ends the text that bash makes of it.
                let mut ended = false;
                loop {
                    match self.peek() {
                        None => return Err(Unreadable(start)),
                        Some(b'\'') => break,
                        Some(b'\\') => {
                            let mut unused = Vec::new();
                            ended |= !self.escape(if ended { &mut unused } else { parts });
                        }
                        Some(_) if ended => self.character(&mut Vec::new()),
                        Some(_) => self.character(parts),
                    }
                }
                self.at += 1;
                push_text(parts, "");
            }
            Some(b'"') if !quoted => {}
            Some(byte) if byte.is_ascii_alphabetic() || byte == b'_' => {
                let length = name_length(&self.text[self.at..self.end]);
                let name = self.text[self.at..self.at + length].to_owned();
                self.at += length;
                parts.push(Part::Variable(Variable::plain(name, quoted, start..self.at)));
            }
            Some(byte) if byte.is_ascii_digit() || b"@*#?-$!".contains(&byte) => {
                self.at += 1;
                let name = char::from(byte).to_string();
                parts.push(Part::Variable(Variable::plain(name, quoted, start..self.at)));
            }
            _ => push_text(parts, "$"),
        }
        Ok(())
    }

    /// Reads an escape of `$'…'`; returns whether it is another character than 0.
    fn escape(&mut self, parts: &mut Vec<Part>) -> bool {
        self.at += 1;
        let digits = |parser: &Self, radix: u32, most: usize| {
            let rest = parser.text[parser.at..parser.end].chars();
            rest.take(most).take_while(|character| character.is_digit(radix)).count()
        };
        let (skips, radix, most) = match self.peek() {
            Some(b'0'..=b'7') => (0, 8, 3),
            // In braces, bash reads more digits.
            Some(b'x') if self.peek_at(1) == Some(b'{') => {
                self.fuel = 0;
                return true;
            }
            Some(b'x') => (1, 16, 2),
            Some(b'u') => (1, 16, 4),
            Some(b'U') => (1, 16, 8),
            other => {
                let known = match other {
                    Some(b'a') => '\u{7}',
                    Some(b'b') => '\u{8}',
                    Some(b'e' | b'E') => '\u{1b}',
                    Some(b'f') => '\u{c}',
                    Some(b'n') => '\n',
                    Some(b'r') => '\r',
                    Some(b't') => '\t',
                    Some(b'v') => '\u{b}',
                    Some(b'c') => {
                        self.at += 1;
                        self.character(&mut Vec::new());
                        push_text(parts, "\u{fffd}");
                        return true;
                    }
                    Some(byte @ (b'\\' | b'\'' | b'"' | b'?')) => char::from(byte),
                    _ => {
                        push_text(parts, "\\");
                        self.character(parts);
                        return true;
                    }
                };
                self.at += 1;
                push_text(parts, known.encode_utf8(&mut [0; 4]));
                return true;
            }
        };
        self.at += skips;
        let length = digits(self, radix, most);
        let text = &self.text[self.at..self.at + length];
        let number =
            u32::from_str_radix(text, radix).ok().map(|number| if radix == 8 { number & 0xff } else { number });
        self.at += length;
        if number == Some(0) {
            return false;
        }
        // A byte that is no character of ASCII is a part of one.
        let is_byte = matches!((radix, most), (8, _) | (16, 2));
        let character = number.filter(|number| !is_byte || *number < 0x80).and_then(char::from_u32);
        push_text(parts, character.unwrap_or('\u{fffd}').encode_utf8(&mut [0; 4]));
        true
    }

    fn output(&mut self, parts: &mut Vec<Part>, quoted: bool, start: usize) -> Read<()> {
        self.at += 1;
        let outer = std::mem::take(&mut self.heredocs);
        let list = self.list(&[])?;
        self.heredocs = outer;
        self.expect(")")?;
        parts.push(Part::Output { list, quoted, range: start..self.at });
        Ok(())
    }

    /// Reads the rest of `${…}`.
    fn braces(&mut self, start: usize, quoted: bool) -> Read<Variable> {
        let mut operation = Operation::Plain;
        if self.peek() == Some(b'#') && self.peek_at(1).is_some_and(|byte| byte != b'}') {
            self.at += 1;
            operation = Operation::Length;
        } else if self.peek() == Some(b'!') && self.peek_at(1).is_some_and(|byte| byte != b'}') {
            self.at += 1;
            operation = Operation::Indirect;
        }
        let rest = &self.text[self.at..self.end];
        let mut length = name_length(rest);
        if length == 0 {
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            length = if digits > 0 { digits } else { 1 };
            if !rest.bytes().next().is_some_and(|byte| byte.is_ascii_digit() || b"@*#?-$!".contains(&byte)) {
                return Err(Unreadable(self.at));
            }
        }
        let name = rest[..length].to_owned();
        self.at += length;
        let mut subscript = None;
        let mut is_all = false;
        if self.take("[") {
            is_all = self.looks_at("@]") || self.looks_at("*]");
            if is_all {
                self.at += 2;
            } else {
                subscript = Some(self.arithmetic_until("]")?);
            }
        }
        if matches!(operation, Operation::Indirect) && (is_all || self.looks_at("*}") || self.looks_at("@}")) {
            operation = Operation::Names;
            if !self.looks_at("}") {
                self.at += 1;
            }
        }
        if self.take("}") {
            return Ok(Variable { name, subscript, is_all, operation, quoted, range: start..self.at });
        }
        let is_indirect = matches!(operation, Operation::Indirect);
        let found = match self.peek() {
            Some(b'@') => {
                self.at += 1;
                let letter = self.peek().filter(u8::is_ascii).map(char::from).ok_or(Unreadable(self.at))?;
                self.at += 1;
                Operation::Transform(letter)
            }
            Some(b':') if matches!(self.peek_at(1), Some(b'-' | b'=' | b'?' | b'+')) => {
                let sets = self.peek_at(1) == Some(b'=');
                self.at += 2;
                Operation::Default(self.braces_text(quoted)?, sets)
            }
            Some(byte @ (b'-' | b'=' | b'?' | b'+')) => {
                self.at += 1;
                Operation::Default(self.braces_text(quoted)?, byte == b'=')
            }
            Some(b':') => {
                self.at += 1;
                Operation::Slice(self.arithmetic(|parser| parser.peek() == Some(b'}'))?)
            }
            Some(b'#' | b'%' | b'/' | b'^' | b',') => {
                self.at += 1;
                Operation::Pattern(self.braces_text(quoted)?)
            }
            _ => return Err(Unreadable(self.at)),
        };
        self.expect("}")?;
        let operation = if is_indirect { Operation::Indirect } else { found };
        Ok(Variable { name, subscript, is_all, operation, quoted, range: start..self.at })
    }

    /// Reads the word in `${name:-word}`, up to its brace.
    fn braces_text(&mut self, quoted: bool) -> Read<Vec<Part>> {
        let mut parts = Vec::new();
        loop {
            match self.peek() {
                None => return Err(Unreadable(self.at)),
                Some(b'}') => return Ok(parts),
                Some(b'\'') if quoted => self.character(&mut parts),
                Some(b'$') => self.dollar(&mut parts, quoted)?,
                Some(b'`') => self.backticks(&mut parts, quoted)?,
                Some(_) => self.part(&mut parts, Mode::Pattern)?,
            }
        }
    }

    fn arithmetic_until(&mut self, close: &str) -> Read<Vec<Part>> {
        let parts = self.deeper(|parser| parser.arithmetic(|parser| parser.looks_at(close)))?;
        self.expect(close)?;
        Ok(parts)
    }

    /// Reads an arithmetic expression: its expansions, and its variables by their bare names.
    fn arithmetic(&mut self, is_end: impl Fn(&Self) -> bool) -> Read<Vec<Part>> {
        let mut parts = Vec::new();
        let (mut round, mut square) = (0_usize, 0_usize);
        loop {
            if round == 0 && square == 0 && is_end(self) {
                return Ok(parts);
            }
            match self.peek() {
                None => {
                    return if is_end(self) || (round == 0 && square == 0 && self.depth == 0) {
                        Ok(parts)
                    } else {
                        Err(Unreadable(self.at))
                    };
                }
                Some(b'(') => {
                    round += 1;
                    self.at += 1;
                }
                Some(b')') => {
                    round = round.checked_sub(1).ok_or(Unreadable(self.at))?;
                    self.at += 1;
                }
                Some(b'[') => {
                    square += 1;
                    self.at += 1;
                }
                Some(b']') => {
                    square = square.checked_sub(1).ok_or(Unreadable(self.at))?;
                    self.at += 1;
                }
                Some(b'"') => {
                    self.at += 1;
                    parts.extend(self.quoted_until(Some(b'"'))?);
                    self.expect("\"")?;
                }
                Some(b'\'') => self.part(&mut parts, Mode::Pattern)?,
                Some(b'\\') => {
                    self.at += 1;
                    self.character(&mut parts);
                }
                Some(b'$') => self.dollar(&mut parts, true)?,
                Some(b'`') => self.backticks(&mut parts, true)?,
                Some(byte) if byte.is_ascii_alphabetic() || byte == b'_' => {
                    let start = self.at;
                    let length = name_length(&self.text[start..self.end]);
                    self.at += length;
                    let name = self.text[start..self.at].to_owned();
                    parts.push(Part::Variable(Variable::plain(name, true, start..self.at)));
                }
                Some(byte) if byte.is_ascii_digit() => {
                    // `0x1F` and `16#ff` are numbers, whose letters are no names.
                    while self.peek().is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'#') {
                        self.character(&mut parts);
                    }
                }
                Some(_) => self.character(&mut parts),
            }
        }
    }
}

/// Where a word stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
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

impl Word {
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
            Some(Part::Text(text)) => text,
            _ => "",
        }
    }
}

/// Returns the text of parts of which none is expanded.
pub(super) fn literal(parts: &[Part]) -> Option<String> {
    let mut text = String::new();
    for part in parts {
        match part {
            Part::Text(piece) => text.push_str(piece),
            _ => return None,
        }
    }
    Some(text)
}

fn push_text(parts: &mut Vec<Part>, text: &str) {
    match parts.last_mut() {
        Some(Part::Text(last)) => last.push_str(text),
        _ => parts.push(Part::Text(text.to_owned())),
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

/// Puts the texts of here-documents where they are read, in order. False if there are more texts.
fn fill_heredocs(list: &mut [Pipeline], texts: Vec<Word>) -> bool {
    let mut texts = texts.into_iter();
    for command in list.iter_mut().flatten() {
        fill_command(command, &mut texts);
    }
    texts.next().is_none()
}

fn fill_command(command: &mut Command, texts: &mut impl Iterator<Item = Word>) {
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
        let inside = |list: &mut List, visit: &mut dyn FnMut(&mut Redirect)| {
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

    /// Says of everything in a command that it stands at `range`.
    fn place(&mut self, range: &Range<usize>) {
        let words = |words: &mut [Word]| words.iter_mut().for_each(|word| word.place(range));
        let lists = |list: &mut List| list.iter_mut().flatten().for_each(|command| command.place(range));
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

impl Word {
    fn place(&mut self, range: &Range<usize>) {
        self.range = range.clone();
        place_parts(&mut self.parts, range);
        if let Some(assigns) = &mut self.assigns {
            assigns.subscript.iter_mut().for_each(|parts| place_parts(parts, range));
            assigns.elements.iter_mut().flatten().for_each(|word| word.place(range));
        }
    }
}

fn place_parts(parts: &mut [Part], range: &Range<usize>) {
    for part in parts {
        match part {
            Part::Text(_) => {}
            Part::Variable(variable) => {
                variable.range = range.clone();
                variable.subscript.iter_mut().for_each(|parts| place_parts(parts, range));
                match &mut variable.operation {
                    Operation::Slice(parts) | Operation::Default(parts, _) | Operation::Pattern(parts) => {
                        place_parts(parts, range);
                    }
                    _ => {}
                }
            }
            Part::Output { list, range: own, .. } | Part::Process { list, range: own, .. } => {
                *own = range.clone();
                list.iter_mut().flatten().for_each(|command| command.place(range));
            }
            Part::Arithmetic(parts) => place_parts(parts, range),
        }
    }
}
