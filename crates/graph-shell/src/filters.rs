//! Programs of awk and sed: whether they execute their input.

use super::programs::interpreter;

/// Whether a program of awk or sed executes lines that it reads, or parts of them.
pub(super) fn executes_input(name: &str, program: &str) -> bool {
    match name {
        "awk" | "gawk" | "mawk" | "nawk" | "original-awk" => awk_executes(program),
        "sed" | "gsed" => Sed { rest: program }.executes(),
        _ => false,
    }
}

/// A token of an awk program, as far as it matters here.
#[derive(Debug, PartialEq)]
enum Token<'t> {
    Name(&'t str),
    Text(&'t str),
    Sign(char),
    LineEnd,
}

/// Whether an awk program starts a command that is not a literal in it: by `system`, or by a pipe.
fn awk_executes(program: &str) -> bool {
    let tokens = awk_tokens(program);
    let ends = |at: usize| matches!(tokens.get(at), None | Some(Token::LineEnd | Token::Sign(';' | '}' | ')')));
    let is_sign = |at: usize, sign: char| tokens.get(at) == Some(&Token::Sign(sign));
    (0..tokens.len()).any(|at| match tokens[at] {
        Token::Name("system") if is_sign(at + 1, '(') => {
            !(matches!(tokens.get(at + 2), Some(Token::Text(_))) && is_sign(at + 3, ')'))
        }
        Token::Sign('|') if is_sign(at + 1, '|') || (at > 0 && is_sign(at - 1, '|')) => false,
        Token::Sign('|') => {
            let behind = at + 1 + usize::from(is_sign(at + 1, '&'));
            match tokens.get(behind) {
                Some(Token::Name("getline")) => {
                    let is_alone = at < 2 || !matches!(tokens[at - 2], Token::Name(_) | Token::Text(_));
                    !(at > 0 && matches!(tokens[at - 1], Token::Text(_)) && is_alone)
                }
                // A literal command that reads the printed text: a shell executes that text.
                Some(Token::Text(command)) if ends(behind + 1) => {
                    let mut words = command.split_whitespace();
                    words.any(|word| {
                        interpreter(word.rsplit('/').next().unwrap_or(word)).is_some_and(|one| one.is_shell)
                    })
                }
                _ => true,
            }
        }
        _ => false,
    })
}

fn awk_tokens(program: &str) -> Vec<Token<'_>> {
    let bytes = program.as_bytes();
    let (mut tokens, mut at) = (Vec::new(), 0);
    // Returns the end of a quoted part that began before `from`.
    let closing = |from: usize, quote: u8| {
        let mut end = from;
        while end < bytes.len() && bytes[end] != quote && (quote == b'"' || bytes[end] != b'\n') {
            end += if bytes[end] == b'\\' { 2 } else { 1 };
        }
        end.min(bytes.len())
    };
    while at < bytes.len() {
        match bytes[at] {
            b'\n' => {
                tokens.push(Token::LineEnd);
                at += 1;
            }
            byte if byte.is_ascii_whitespace() => at += 1,
            b'\\' if bytes.get(at + 1) == Some(&b'\n') => at += 2,
            b'#' => at = closing(at + 1, b'\n'),
            b'"' => {
                let end = closing(at + 1, b'"');
                tokens.push(Token::Text(program.get(at + 1..end).unwrap_or_default()));
                at = end + 1;
            }
            // A regular expression, if no operand is before it.
            b'/' if !matches!(tokens.last(), Some(Token::Name(_) | Token::Text(_) | Token::Sign(')' | ']' | '$'))) => {
                at = closing(at + 1, b'/') + 1;
                tokens.push(Token::Sign('/'));
            }
            byte if byte.is_ascii_alphanumeric() || byte == b'_' => {
                let length =
                    bytes[at..].iter().take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_').count();
                tokens.push(Token::Name(&program[at..at + length]));
                at += length;
            }
            byte => {
                tokens.push(Token::Sign(char::from(byte)));
                at += 1;
            }
        }
    }
    tokens
}

/// A program of sed, from which commands are read.
struct Sed<'t> {
    rest: &'t str,
}

impl Sed<'_> {
    /// Whether a command executes the pattern space: `e` without a command of its own, or `s` with the flag `e`.
    fn executes(&mut self) -> bool {
        loop {
            self.rest = self.rest.trim_start_matches(|sign: char| sign.is_whitespace() || ";{}".contains(sign));
            self.addresses();
            let Some(command) = self.next() else { return false };
            match command {
                'e' => {
                    let own = self.until(&['\n']);
                    if own.trim_matches(|sign: char| sign.is_whitespace() || ";}".contains(sign)).is_empty() {
                        return true;
                    }
                }
                's' | 'y' => {
                    if let Some(delimiter) = self.next() {
                        self.skip_past(delimiter);
                        self.skip_past(delimiter);
                    }
                    let flags = self.until(&['\n', ';', '}']);
                    let flags = flags.split('w').next().unwrap_or_default();
                    if command == 's' && flags.contains('e') {
                        return true;
                    }
                }
                'a' | 'i' | 'c' => while self.until(&['\n']).ends_with('\\') {},
                '#' => drop(self.until(&['\n'])),
                'r' | 'w' | 'R' | 'W' => drop(self.until(&['\n'])),
                ':' | 'b' | 't' | 'T' | 'q' | 'Q' | 'l' | 'L' => drop(self.until(&['\n', ';', '}'])),
                _ => {}
            }
        }
    }

    fn next(&mut self) -> Option<char> {
        let mut chars = self.rest.chars();
        let first = chars.next()?;
        self.rest = chars.as_str();
        Some(first)
    }

    /// Takes the text before the first of some characters, and that character.
    fn until(&mut self, ends: &[char]) -> &str {
        let (taken, rest) = self.rest.split_at(self.rest.find(ends).unwrap_or(self.rest.len()));
        self.rest = rest.strip_prefix(ends).unwrap_or(rest);
        taken
    }

    /// Skips a part that ends with a delimiter.
    fn skip_past(&mut self, delimiter: char) {
        while let Some(next) = self.next() {
            match next {
                '\\' => drop(self.next()),
                _ if next == delimiter => return,
                _ => {}
            }
        }
    }

    fn addresses(&mut self) {
        loop {
            self.rest = self.rest.trim_start_matches(|sign: char| {
                sign.is_whitespace() || sign.is_ascii_digit() || "$,~+!IM".contains(sign)
            });
            if let Some(rest) = self.rest.strip_prefix('/') {
                self.rest = rest;
                self.skip_past('/');
            } else if let Some(rest) = self.rest.strip_prefix('\\') {
                self.rest = rest;
                if let Some(delimiter) = self.next() {
                    self.skip_past(delimiter);
                }
            } else {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_that_execute_lines_differ_from_those_that_print() {
        for program in [
            "{system($0)}",
            "{ system(\"cp \" $1 \" b\") }",
            "BEGIN { system(v) }",
            "{ print | $0 }",
            "{ print | \"sh\" }",
            "{ print $1 | \"/bin/bash -s\" }",
            "{ print | \"cat > \" $1 }",
            "{ $0 | getline x }",
            "{ (\"date -d \" $1) | getline x }",
            "{ \"date -d \" $1 | getline x }",
            "{ print |& $1 }",
            "/a|b/ { system ($0) }",
            "# \" \n{ system($1) }",
            "{ x = 1 / 2; system($0) } # /",
        ] {
            assert!(executes_input("awk", program), "{program}");
        }
        for program in [
            "{print $1}",
            "{ system(\"date\") }",
            "{ print | \"sort -n\" }",
            "{ \"date\" | getline now; print now, $0 }",
            "/a|b/ { print }",
            "$1 ~ /x|y/ || $2 { n++ } END { print n / 2 }",
            "{ split($0, a, \"|\"); print a[1] \"|\" a[2] }",
            "# system($0)\n{ print \"system($0)\" }",
            "function f(x) { return x } { print f($1) }",
        ] {
            assert!(!executes_input("awk", program), "{program}");
        }
        for program in [
            "e",
            "1e",
            "s/a/b/e",
            "s|a/|b|ge",
            "/x/e",
            "/a;e/{p;e}",
            "$!{s/^/ls /e}",
            "s/a/b/;e",
            "y/a/b/;e",
            "1,/b/e",
            "p\ne\n",
            "\\|a|e",
            "s/\\//x/e",
            "a\\\nfoo\ne",
        ] {
            assert!(executes_input("sed", program), "{program}");
        }
        for program in [
            "s/a/e/",
            "/e/p",
            "s/e/e/g",
            "e date",
            "a\\\nthe\n",
            "i e",
            "r file.e",
            "b e",
            ":e;n;b e",
            "s/a/b/w file.e",
            "y/e/f/",
            "s;e;e;",
            "$d",
            "1,3p",
            "/a/!d",
            "s/a;e/b/",
            "# e",
            "s/x/\\\ne/",
        ] {
            assert!(!executes_input("sed", program), "{program}");
        }
    }
}
