//! Expansions that begin with a dollar, and arithmetic.

use super::{Operation, Parsed, Parser, Unreadable, Variable, WordContext, WordPart, name_length, push_text};

impl<'t> Parser<'t> {
    pub(super) fn dollar(&mut self, parts: &mut Vec<WordPart>, quoted: bool) -> Parsed<()> {
        self.deeper(|parser| parser.dollar_inside(parts, quoted))
    }

    pub(super) fn dollar_inside(&mut self, parts: &mut Vec<WordPart>, quoted: bool) -> Parsed<()> {
        let start = self.at;
        self.at += 1;
        let mark = self.mark();
        match self.peek() {
            Some(b'(') if self.peek_at(1) == Some(b'(') => {
                self.at += 2;
                if let Ok(inner) = self.arithmetic_until("))") {
                    parts.push(WordPart::Arithmetic(inner));
                    return Ok(());
                }
                // `$( (…) )`, written without the blank.
                self.go_back(mark)?;
                self.output(parts, quoted, start)?;
            }
            Some(b'(') => self.output(parts, quoted, start)?,
            Some(b'[') => {
                self.at += 1;
                let inner = self.arithmetic_until("]")?;
                parts.push(WordPart::Arithmetic(inner));
            }
            Some(b'{') => {
                self.at += 1;
                let variable = self.braces(start, quoted)?;
                parts.push(WordPart::Variable(variable));
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
                parts.push(WordPart::Variable(Variable::plain(name, quoted, start..self.at)));
            }
            Some(byte) if byte.is_ascii_digit() || b"@*#?-$!".contains(&byte) => {
                self.at += 1;
                let name = char::from(byte).to_string();
                parts.push(WordPart::Variable(Variable::plain(name, quoted, start..self.at)));
            }
            _ => push_text(parts, "$"),
        }
        Ok(())
    }

    /// Reads an escape of `$'…'`; returns false if it is the character 0.
    pub(super) fn escape(&mut self, parts: &mut Vec<WordPart>) -> bool {
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
        // A byte outside of ASCII is a part of a character.
        let is_byte = matches!((radix, most), (8, _) | (16, 2));
        let character = number.filter(|number| !is_byte || *number < 0x80).and_then(char::from_u32);
        push_text(parts, character.unwrap_or('\u{fffd}').encode_utf8(&mut [0; 4]));
        true
    }

    pub(super) fn output(&mut self, parts: &mut Vec<WordPart>, quoted: bool, start: usize) -> Parsed<()> {
        self.at += 1;
        let outer = std::mem::take(&mut self.heredocs);
        let list = self.list(&[]);
        self.heredocs = outer;
        let list = list?;
        self.expect(")")?;
        parts.push(WordPart::Output { list: list.into(), quoted, range: start..self.at });
        Ok(())
    }

    /// Reads the rest of `${…}`.
    pub(super) fn braces(&mut self, start: usize, quoted: bool) -> Parsed<Variable> {
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
    pub(super) fn braces_text(&mut self, quoted: bool) -> Parsed<Vec<WordPart>> {
        let mut parts = Vec::new();
        loop {
            match self.peek() {
                None => return Err(Unreadable(self.at)),
                Some(b'}') => return Ok(parts),
                Some(b'\'') if quoted => self.character(&mut parts),
                Some(b'$') => self.dollar(&mut parts, quoted)?,
                Some(b'`') => self.backticks(&mut parts, quoted)?,
                Some(_) => self.part(&mut parts, WordContext::Pattern)?,
            }
        }
    }

    pub(super) fn arithmetic_until(&mut self, close: &str) -> Parsed<Vec<WordPart>> {
        let parts = self.deeper(|parser| parser.arithmetic(|parser| parser.looks_at(close)))?;
        self.expect(close)?;
        Ok(parts)
    }

    /// Reads an arithmetic expression: its expansions, and its variables by their bare names.
    pub(super) fn arithmetic(&mut self, is_end: impl Fn(&Self) -> bool) -> Parsed<Vec<WordPart>> {
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
                Some(b'\'') => self.part(&mut parts, WordContext::Pattern)?,
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
                    parts.push(WordPart::Variable(Variable::plain(name, true, start..self.at)));
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
