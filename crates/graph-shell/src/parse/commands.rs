//! Commands, pipelines and lists of them.

use super::{
    Command, CommandList, Heredoc, Parsed, Parser, Pipeline, RESERVED, Redirect, ShellWord, Simple, Unreadable,
    WordContext, WordPart, fill_command, fill_heredocs, is_name, name_length,
};

impl Parser<'_> {
    /// Reads pipelines until one of `stops`, a closing parenthesis, `;;` or the end.
    pub(super) fn list(&mut self, stops: &[&str]) -> Parsed<CommandList> {
        self.deeper(|parser| parser.list_inside(stops))
    }

    pub(super) fn list_inside(&mut self, stops: &[&str]) -> Parsed<CommandList> {
        let mut list: CommandList = Vec::new();
        // The number of pipelines that have the texts of their heredocs.
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

    /// Returns the reserved word that begins here, if no part of it is quoted or expanded.
    pub(super) fn reserved_word(&self) -> Option<&'static str> {
        const WORDS: [&str; 19] = [
            "if", "then", "elif", "else", "fi", "do", "done", "case", "esac", "for", "while", "until", "select",
            "function", "time", "coproc", "{", "}", "!",
        ];
        let rest = &self.text.as_bytes()[self.at..self.end];
        let is_end = |byte: &u8| b" \t\n;&|()<>".contains(byte);
        let length = rest.iter().position(is_end).unwrap_or(rest.len());
        WORDS.into_iter().find(|word| word.as_bytes() == &rest[..length])
    }

    pub(super) fn pipeline(&mut self) -> Parsed<Pipeline> {
        let mut pipeline = Vec::new();
        // The number of commands that have the texts of their heredocs.
        let mut filled = 0;
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
            if !texts.is_empty() {
                let mut texts = texts.into_iter();
                pipeline[filled..].iter_mut().for_each(|command| fill_command(command, &mut texts));
                filled = pipeline.len();
            }
        }
    }

    /// Skips the name of a coprocess, which only a compound command can have.
    pub(super) fn name_of_coprocess(&mut self) {
        let rest = &self.text[self.at..self.end];
        let length = name_length(rest);
        let behind = rest[length..].trim_start_matches([' ', '\t']);
        let is_word = length > 0 && behind.len() < rest.len() - length;
        let is_several = ["[[", "(", "{", "if ", "for ", "while ", "until ", "case ", "select "];
        if is_word && is_several.iter().any(|start| behind.starts_with(start)) {
            self.at += rest.len() - behind.len();
        }
    }

    pub(super) fn command(&mut self) -> Parsed<Command> {
        self.deeper(Self::command_inside)
    }

    pub(super) fn command_inside(&mut self) -> Parsed<Command> {
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
            let (start, mark) = (self.at, self.mark());
            self.at += 2;
            // `((` may also be two subshells.
            if let Ok(parts) = self.arithmetic_until("))") {
                let word = ShellWord {
                    parts: vec![WordPart::Arithmetic(parts)],
                    assigns: None,
                    expands: false,
                    range: start..self.at,
                };
                return Ok(Command::Arithmetic(word));
            }
            self.go_back(mark)?;
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
    pub(super) fn body(&mut self) -> Parsed<CommandList> {
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

    pub(super) fn for_loop(&mut self) -> Parsed<Command> {
        self.blanks();
        let start = self.at;
        if self.take("((") {
            let parts = self.arithmetic_until("))")?;
            let head = ShellWord {
                parts: vec![WordPart::Arithmetic(parts)],
                assigns: None,
                expands: false,
                range: start..self.at,
            };
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

    pub(super) fn case(&mut self) -> Parsed<Command> {
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
    pub(super) fn test(&mut self) -> Parsed<Command> {
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
                words.push(ShellWord {
                    parts: vec![WordPart::Text(operator.to_owned())],
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
            let word = self.word_with(WordContext::Pattern)?;
            let is_match = matches!(word.literal().as_deref(), Some("=~" | "==" | "="));
            words.push(word);
            if is_match {
                self.blanks();
                words.push(self.pattern()?);
            }
        }
    }

    /// Reads the pattern of a comparison in `[[ … ]]`, which may have parentheses and bars in it.
    pub(super) fn pattern(&mut self) -> Parsed<ShellWord> {
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
                Some(_) => self.part(&mut parts, WordContext::Pattern)?,
            }
        }
        Ok(ShellWord { parts, assigns: None, expands: false, range: start..self.at })
    }

    pub(super) fn function(&mut self, name: String) -> Parsed<Command> {
        self.line_ends()?;
        let body = self.command()?;
        Ok(Command::Function(name, Box::new(body)))
    }

    pub(super) fn simple(&mut self) -> Parsed<Command> {
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

    pub(super) fn redirects(&mut self) -> Parsed<Vec<Redirect>> {
        let mut redirects = Vec::new();
        loop {
            self.blanks();
            match self.redirect()? {
                Some(redirect) => redirects.push(redirect),
                None => return Ok(redirects),
            }
        }
    }

    /// Reads a redirection, if one begins here.
    pub(super) fn redirect(&mut self) -> Parsed<Option<Redirect>> {
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
                Redirect::Text(ShellWord {
                    parts: Vec::new(),
                    assigns: None,
                    expands: false,
                    range: usize::MAX..usize::MAX,
                })
            }
            "<<<" => Redirect::Text(word),
            "<" | "<>" => Redirect::From(word),
            "<&" | ">&" => Redirect::Duplicate(word),
            _ => Redirect::Into(word),
        }))
    }
}
