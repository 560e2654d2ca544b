//! Positions as editors count them.

use graph_compiler::source::SourceFile;

/// A position in a text as the Language Server Protocol counts it: lines from 0, and UTF-16 units from 0 within the line.
///
/// ```
/// use graph_editor::TextPosition;
/// use graph_compiler::source::SourceFile;
///
/// let source = SourceFile::new("g.yaml", "g.yaml", "a: 1\nb: 𝄞 c\n");
/// let position = TextPosition::of(&source, source.text.find('c').unwrap());
/// assert_eq!((position.line, position.character), (1, 6));
/// assert_eq!(position.offset_in(&source), source.text.find('c').unwrap());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TextPosition {
    /// The line, from 0.
    pub line: u32,
    /// The UTF-16 units before it in its line.
    pub character: u32,
}

impl TextPosition {
    /// Returns the position of a byte. A byte inside a character has the position of the character; a byte after the text,
    /// that of its end.
    pub fn of(source: &SourceFile, offset: usize) -> Self {
        let at = source.text.floor_char_boundary(offset.min(source.text.len()));
        let (line, _) = source.position(at);
        let before = &source.text[source.line_start(line)..at];
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        Self { line: count(line - 1), character: count(before.encode_utf16().count()) }
    }

    /// Returns the byte at the position: the end of the line if it is after that, and the end of the text if it is after the
    /// last line.
    ///
    /// A [`SourceFile`] has only LF line endings. This makes no difference to a `TextPosition`, whose line does not include
    /// its ending.
    pub fn offset_in(self, source: &SourceFile) -> usize {
        let start = source.line_start(usize::try_from(self.line).unwrap_or(usize::MAX).saturating_add(1));
        let line = source.text[start..].split('\n').next().unwrap_or_default();
        let mut units = 0;
        for (at, character) in line.char_indices() {
            units += character.len_utf16();
            if units > usize::try_from(self.character).unwrap_or(usize::MAX) {
                return start + at;
            }
        }
        start + line.len()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn astral_characters_count_as_two_units_and_accents_as_one() {
        let source = SourceFile::new("g.yaml", "g.yaml", "é: 𝄞x\n\nlast");
        let place = |text: &str| TextPosition::of(&source, source.text.find(text).unwrap());
        assert_eq!(place(":"), TextPosition { line: 0, character: 1 });
        assert_eq!(place("𝄞"), TextPosition { line: 0, character: 3 });
        assert_eq!(place("x"), TextPosition { line: 0, character: 5 });
        assert_eq!(place("last"), TextPosition { line: 2, character: 0 });
        let offset = |line, character| TextPosition { line, character }.offset_in(&source);
        assert_eq!(offset(0, 4), source.text.find('𝄞').unwrap(), "between the halves of a character is before it");
        assert_eq!(offset(0, 99), source.text.find('\n').unwrap());
        assert_eq!(offset(1, 3), source.text.find("\n\n").unwrap() + 1);
        assert_eq!(offset(99, 0), source.text.len());
        assert_eq!(offset(u32::MAX, u32::MAX), source.text.len());
    }

    proptest! {
        #[test]
        fn a_place_is_found_again(text in "([a-c\n]|é|𝄞|\r\n){0,20}", at in 0..60_usize) {
            let source = SourceFile::new("g.yaml", "g.yaml", &text);
            let offset = source.text.floor_char_boundary(at.min(source.text.len()));
            prop_assert_eq!(TextPosition::of(&source, at).offset_in(&source), offset);
        }
    }
}
