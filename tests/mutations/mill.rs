//! Makes mutants: a place in a text, its replacement, and the lines on which a reader would look for the mistake.

use std::ops::Range;

use graph_compiler::tree::{TreeKey, YamlTree};

use super::model::{Callees, Graph, fields, parse};

/// A text with one mistake.
pub(crate) struct Mutant {
    /// The kind of mistake, an index into the table of operators.
    pub(crate) operator: usize,
    pub(crate) file: String,
    pub(crate) text: String,
    /// The line of the mistake, from 1, and the lines of the constructs that contain it.
    pub(crate) lines: Vec<usize>,
    /// The names that the mistake is about: a line with one of them is right too.
    pub(crate) names: Vec<String>,
    /// A description of the change, for people.
    pub(crate) what: String,
    /// Whether the mutant is wrong in any graph; otherwise the judge decides.
    pub(crate) is_wrong: bool,
}

/// A source of random choices.
pub(crate) struct Random(crate::random::Random);

impl Random {
    /// Starts from the hash of a text, so that the mutants of one file do not depend on the others.
    pub(crate) fn of(seed: &str) -> Self {
        let hash = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        Self(crate::random::Random::new(seed.bytes().fold(0x9e37_79b9_7f4a_7c15, hash)))
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.0.below(end as u64)).unwrap()
    }

    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        if from.is_empty() { None } else { Some(&from[self.below(from.len())]) }
    }

    /// Makes a typing mistake in a word: two letters are swapped, or one letter is left out or doubled.
    pub(crate) fn slip(&mut self, word: &str, is_taken: impl Fn(&str) -> bool) -> String {
        let letters: Vec<char> = word.chars().collect();
        for _ in 0..20 {
            let mut slipped = letters.clone();
            let at = self.below(letters.len());
            match self.below(3) {
                0 if at + 1 < letters.len() => slipped.swap(at, at + 1),
                1 if letters.len() > 3 => {
                    slipped.remove(at);
                }
                _ => slipped.insert(at, letters[at]),
            }
            let slipped: String = slipped.into_iter().collect();
            let is_name = slipped.starts_with(|first: char| first.is_ascii_alphabetic()) && slipped.is_ascii();
            if slipped != word && is_name && !is_taken(&slipped) {
                return slipped;
            }
        }
        format!("{word}x")
    }
}

/// The input of an operator, and the mutants that it makes.
pub(crate) struct Mill<'g> {
    pub(crate) file: &'g str,
    pub(crate) graph: &'g Graph,
    pub(crate) callees: &'g Callees,
    pub(crate) random: Random,
    pub(crate) operator: usize,
    pub(crate) mutants: Vec<Mutant>,
}

impl Mill<'_> {
    pub(crate) fn raw(&self, span: &Range<usize>) -> &str {
        &self.graph.text[span.clone()]
    }

    fn line(&self, at: usize) -> usize {
        self.graph.text[..at].matches('\n').count() + 1
    }

    /// Adds a mutant for which the judge decides whether it is wrong.
    pub(crate) fn judged(&mut self, span: &Range<usize>, with: &str, names: &[&str]) {
        self.edit(&[(span.clone(), with.to_owned())], names, &[], false);
    }

    /// Adds a mutant that is wrong.
    pub(crate) fn wrong(&mut self, span: &Range<usize>, with: &str, names: &[&str]) {
        self.edit(&[(span.clone(), with.to_owned())], names, &[], true);
    }

    /// Adds a mutant of several edits, in the order of the text; `around` has the places of the constructs that contain
    /// the mistake.
    pub(crate) fn edit(&mut self, edits: &[(Range<usize>, String)], names: &[&str], around: &[usize], is_wrong: bool) {
        let (Some((first, _)), Some((last, _))) = (edits.first(), edits.last()) else { return };
        let mut text = String::with_capacity(self.graph.text.len() + 16);
        let mut from = 0;
        for (span, with) in edits {
            text.push_str(&self.graph.text[from..span.start]);
            text.push_str(with);
            from = span.end;
        }
        text.push_str(&self.graph.text[from..]);
        let shown =
            |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(60).collect::<String>();
        let what = format!("`{}` → `{}`", shown(self.raw(first)), shown(&edits[0].1));
        let lines = [first.start, last.start].iter().chain(around).map(|&at| self.line(at)).collect();
        let names = names.iter().map(|&name| name.to_owned()).collect();
        self.mutants.push(Mutant {
            operator: self.operator,
            file: self.file.to_owned(),
            text,
            lines,
            names,
            what,
            is_wrong,
        });
    }

    /// Adds a mutant in which a field of a mapping is missing. The text stays YAML.
    pub(crate) fn drop_field(&mut self, map: &YamlTree, name: &str, names: &[&str], around: &[usize], is_wrong: bool) {
        let list = fields(map);
        let Some(at) = list.iter().position(|(key, _)| key.name == name) else { return };
        let spans: Vec<Range<usize>> =
            list.iter().map(|(key, value)| key.span.start..value.span.end.max(key.span.end)).collect();
        self.drop_part(map, &spans, at, names, around, is_wrong);
    }

    /// Adds a mutant in which an element of a list is missing.
    pub(crate) fn drop_item(&mut self, list: &YamlTree, at: usize, names: &[&str], around: &[usize], is_wrong: bool) {
        let spans: Vec<Range<usize>> = super::model::items(list).iter().map(|item| item.span.clone()).collect();
        self.drop_part(list, &spans, at, names, around, is_wrong);
    }

    fn drop_part(
        &mut self,
        whole: &YamlTree,
        parts: &[Range<usize>],
        at: usize,
        names: &[&str],
        around: &[usize],
        is_wrong: bool,
    ) {
        if let Some(span) = self.span_of_part(whole, parts, at) {
            let around: Vec<usize> = around.iter().copied().chain([whole.span.start]).collect();
            self.edit(&[(span, String::new())], names, &around, is_wrong);
            // The rest of the text must still be YAML.
            if self.mutants.last().is_some_and(|mutant| parse(&mutant.text).is_none()) {
                self.mutants.pop();
            }
        }
    }

    /// Returns the range to cut so that a mapping or list loses one part.
    pub(crate) fn span_of_part(&self, whole: &YamlTree, parts: &[Range<usize>], at: usize) -> Option<Range<usize>> {
        let text = &self.graph.text;
        let own = &parts[at];
        if let Some(next) = parts.get(at + 1) {
            return Some(own.start..next.start);
        }
        if text[whole.span.clone()].starts_with(['{', '[']) {
            return Some(at.checked_sub(1).map_or(own.start, |before| parts[before].end)..own.end);
        }
        let start = text[..own.start].rfind('\n').map_or(0, |newline| newline + 1);
        let end = text[..own.end].trim_end().len();
        let end = text[end..].find('\n').map_or(text.len(), |newline| end + newline + 1);
        let is_alone_in_an_item = parts.len() == 1 && text[start..own.start].trim_start().starts_with('-');
        (!is_alone_in_an_item).then_some(start..end)
    }

    /// Makes a typing mistake in the name of a key.
    pub(crate) fn slip_key(&mut self, key: &TreeKey, is_taken: impl Fn(&str) -> bool, names: &[&str], is_wrong: bool) {
        if self.raw(&key.span) == key.name {
            let slipped = self.random.slip(&key.name, is_taken);
            self.edit(&[(key.span.clone(), slipped)], names, &[], is_wrong);
        }
    }

    /// Returns the place of a word in the text of a value.
    pub(crate) fn word(&self, tree: &YamlTree, word: &str) -> Option<Range<usize>> {
        let at = self.raw(&tree.span).find(word)? + tree.span.start;
        Some(at..at + word.len())
    }

    /// Makes a typing mistake in a value that is one word.
    pub(crate) fn slip_word(
        &mut self,
        tree: &YamlTree,
        is_taken: impl Fn(&str) -> bool,
        names: &[&str],
        is_wrong: bool,
    ) {
        let Some(word) = super::model::text_of(tree).filter(|word| !word.is_empty()) else { return };
        if let Some(span) = self.word(tree, word) {
            let slipped = self.random.slip(word, is_taken);
            self.edit(&[(span, slipped)], names, &[], is_wrong);
        }
    }
}
