//! Ends of lines, and the here-documents behind them.

use std::ops::Range;

use super::{Heredoc, Parsed, Parser, ShellWord, Unreadable, WordPart};

impl Parser<'_> {
    /// Skips blanks and line ends; reads the here-documents that begin behind the first line end.
    pub(super) fn lines(&mut self) -> Parsed<Vec<ShellWord>> {
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

    /// Skips line ends; fails at a here-document, whose text would not be distinguished from the rest of the command.
    pub(super) fn line_ends(&mut self) -> Parsed<()> {
        if self.lines()?.is_empty() { Ok(()) } else { Err(Unreadable(self.at)) }
    }

    pub(super) fn heredoc(&mut self, heredoc: &Heredoc) -> Parsed<ShellWord> {
        let start = self.at;
        // A line that continues in the next one has no end, so the next one is no delimiter.
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
                // A text without its delimiter ends where the command does, as in bash.
                let end = if is_delimiter { line_start } else { self.end };
                let next = (line_start + length + 1).min(self.end);
                let word = self.heredoc_text(heredoc, start..end)?;
                self.at = next;
                return Ok(word);
            }
            self.at = line_start + length + 1;
        }
    }

    pub(super) fn heredoc_text(&mut self, heredoc: &Heredoc, range: Range<usize>) -> Parsed<ShellWord> {
        if heredoc.is_literal {
            let text = self.text[range.clone()].to_owned();
            return Ok(ShellWord { parts: vec![WordPart::Text(text)], assigns: None, expands: false, range });
        }
        let end = std::mem::replace(&mut self.end, range.end);
        self.at = range.start;
        let parts = self.quoted_until(None);
        self.end = end;
        Ok(ShellWord { parts: parts?, assigns: None, expands: false, range })
    }
}
