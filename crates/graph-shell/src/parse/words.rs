//! Words, and their quoted parts.

use super::{Assigns, Parsed, Parser, ShellWord, Unreadable, WordContext, WordPart, name_length, push_text};

impl Parser<'_> {
    pub(super) fn word(&mut self) -> Parsed<ShellWord> {
        self.word_with(WordContext::Word)
    }

    pub(super) fn word_with(&mut self, mode: WordContext) -> Parsed<ShellWord> {
        let start = self.at;
        let mut word = ShellWord { range: start..start, ..ShellWord::default() };
        let outer = std::mem::take(&mut self.special);
        if mode == WordContext::Word {
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
    pub(super) fn extended_pattern(&mut self, parts: &mut Vec<WordPart>) -> Parsed<()> {
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
                Some(_) => self.part(parts, WordContext::Pattern)?,
            }
        }
        Ok(())
    }

    /// Reads `name=`, `name+=`, `name[…]=`, if the word begins so, and a list in parentheses behind it.
    pub(super) fn assigns(&mut self, parts: &mut Vec<WordPart>) -> Parsed<Option<Assigns>> {
        let (start, mark) = (self.at, self.mark());
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
                    self.go_back(mark)?;
                    return Ok(None);
                }
            }
        }
        if !(self.take("+=") || self.take("=")) {
            self.go_back(mark)?;
            return Ok(None);
        }
        parts.push(WordPart::Text(self.text[start..self.at].to_owned()));
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
                    let (element, mark) = (self.at, self.mark());
                    self.at += 1;
                    let subscript = self.arithmetic_until("]")?;
                    if self.take("+=") || self.take("=") {
                        let mut inner = Vec::new();
                        while self.peek().is_some_and(|byte| !b" \t\n)".contains(&byte)) {
                            self.part(&mut inner, WordContext::Word)?;
                        }
                        let assigns =
                            Assigns { name: name.clone(), subscript: Some(subscript), value: 0, elements: None };
                        list.push(ShellWord {
                            parts: inner,
                            assigns: Some(assigns),
                            expands: false,
                            range: element..self.at,
                        });
                        continue;
                    }
                    self.go_back(mark)?;
                }
                list.push(self.word_with(WordContext::Pattern)?);
            }
            elements = Some(list);
        }
        Ok(Some(Assigns { name, subscript, value: parts.len(), elements }))
    }

    /// Reads one part of a word: a quoted text, an expansion, or a character.
    pub(super) fn part(&mut self, parts: &mut Vec<WordPart>, mode: WordContext) -> Parsed<()> {
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
            Some(b'<' | b'>') if self.peek_at(1) == Some(b'(') && mode == WordContext::Word => {
                let start = self.at;
                let reads = self.looks_at(">");
                self.at += 2;
                let list = self.list(&[])?;
                self.expect(")")?;
                parts.push(WordPart::Process { list: list.into(), reads, range: start..self.at });
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

    pub(super) fn character(&mut self, parts: &mut Vec<WordPart>) {
        if let Some(character) = self.text[self.at..self.end].chars().next() {
            self.at += character.len_utf8();
            push_text(parts, character.encode_utf8(&mut [0; 4]));
        }
    }

    /// Reads text by the rules of double quotes, up to a quote or to the end.
    pub(super) fn quoted_until(&mut self, quote: Option<u8>) -> Parsed<Vec<WordPart>> {
        // An empty text too is a part: `""` is a word.
        let mut parts = vec![WordPart::Text(String::new())];
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

    /// Reads `` `…` ``: its text is read by itself, with its backslashes removed.
    pub(super) fn backticks(&mut self, parts: &mut Vec<WordPart>, quoted: bool) -> Parsed<()> {
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
        parts.push(WordPart::Output { list: list.into(), quoted, range });
        Ok(())
    }
}
