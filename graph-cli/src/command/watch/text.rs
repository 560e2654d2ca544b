//! Texts of runs as a terminal may show them. They come from tools, models and people, and a terminal would obey some of them.

use graph_model::character::is_invisible;
use unicode_segmentation::UnicodeSegmentation;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Stands for a character that is not shown.
const REPLACEMENT: char = '\u{fffd}';
/// The most marks that one character may carry. More of them cover the lines above and below.
const MOST_MARKS: usize = 4;
/// The most bytes of one text that are shown.
const MOST_BYTES: usize = 256 * 1024;
/// The most bytes of one text that a row of a table shows. No terminal is that wide.
pub(super) const MOST_BRIEF_BYTES: usize = 1000;

/// Returns a text as one line: each control or invisible character is a symbol, and each character is as wide in every terminal as it
/// is counted here.
pub(super) fn one_line(text: &str) -> String {
    let text: String = capped(text).chars().map(symbol).collect();
    let mut shown = String::with_capacity(text.len());
    for grapheme in text.graphemes(true) {
        if is_steady(grapheme) { shown.push_str(grapheme) } else { shown.push(REPLACEMENT) }
    }
    shown.truncate(capped(&shown).len());
    shown
}

/// Returns the beginning of a text as one line, for a table.
pub(super) fn brief(text: &str) -> String {
    one_line(&text[..text.floor_char_boundary(MOST_BRIEF_BYTES)])
}

/// Returns the lines of a text, each as [`one_line`] does, with spaces in place of tabs. A text that is too long ends with a line that
/// says so.
pub(super) fn lines(text: &str) -> Vec<String> {
    let shown = capped(text);
    let mut lines: Vec<String> = shown.split('\n').map(|line| one_line(&line.replace('\t', "    "))).collect();
    let hidden = text.len() - shown.len();
    if hidden > 0 {
        lines.push(format!("… {hidden} more bytes are not shown"));
    }
    lines
}

/// Returns the text in at most `width` columns. `…` shows that there is more.
pub(super) fn cut(text: &str, width: usize) -> String {
    if width_of(text) <= width {
        return text.to_owned();
    }
    let mut left = width.saturating_sub(1);
    let fits = |grapheme: &&str| {
        let fits = grapheme.width() <= left;
        left = left.saturating_sub(if fits { grapheme.width() } else { left });
        fits
    };
    let mut cut: String = text.graphemes(true).take_while(fits).collect();
    if width > 0 {
        cut.push('…');
    }
    cut
}

/// Returns the text in exactly `width` columns, with spaces behind it or cut.
pub(super) fn padded(text: &str, width: usize) -> String {
    let mut text = cut(text, width);
    let missing = width.saturating_sub(width_of(&text));
    text.extend(std::iter::repeat_n(' ', missing));
    text
}

/// Breaks a line into rows of at most `width` columns.
pub(super) fn wrapped(line: &str, width: usize) -> Vec<&str> {
    let (mut rows, mut begin, mut used) = (Vec::new(), 0, 0);
    for (at, grapheme) in line.grapheme_indices(true) {
        let wide = grapheme.width();
        if used + wide > width && at > begin {
            rows.push(&line[begin..at]);
            (begin, used) = (at, 0);
        }
        used += wide;
    }
    rows.push(&line[begin..]);
    rows
}

/// Returns the number of columns that a text takes.
pub(super) fn width_of(text: &str) -> usize {
    text.graphemes(true).map(UnicodeWidthStr::width).sum()
}

/// Returns the beginning of a text that is not too long.
fn capped(text: &str) -> &str {
    &text[..text.floor_char_boundary(MOST_BYTES)]
}

fn symbol(character: char) -> char {
    match character {
        '\0'..='\u{1f}' => char::from_u32(0x2400 + u32::from(character)).unwrap_or(REPLACEMENT),
        '\u{7f}' => '\u{2421}',
        _ if character.is_control() || is_invisible(character) => REPLACEMENT,
        _ => character,
    }
}

/// Whether all terminals agree how wide a character is: those that compose characters, and those that add up their parts.
fn is_steady(grapheme: &str) -> bool {
    let widths = grapheme.chars().map(|part| part.width().unwrap_or(0));
    let marks = widths.clone().filter(|width| *width == 0).count();
    let sum: usize = widths.sum();
    (1..=2).contains(&sum) && sum == grapheme.width() && marks <= MOST_MARKS
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn control_characters_are_symbols() {
        for (text, shown) in [
            ("plain größe 名前", "plain größe 名前"),
            ("\u{1b}[2J\u{1b}]0;title\u{7}", "␛[2J␛]0;title␇"),
            ("a\r\nb\tc", "a␍␊b␉c"),
            ("\u{9b}31m\u{7f}", "\u{fffd}31m␡"),
            ("abc\u{202e}cba", "abc\u{fffd}cba"),
            ("e\u{301}", "e\u{301}"),
            ("\u{301}e", "\u{fffd}e"),
            ("👍🏽👩\u{200d}💻", "\u{fffd}👩\u{fffd}💻"),
        ] {
            assert_eq!(one_line(text), shown, "{text:?}");
        }
        let tower = format!("e{}", "\u{301}".repeat(100));
        assert_eq!(one_line(&tower), "\u{fffd}");
    }

    #[test]
    fn a_text_that_is_too_long_says_how_much_is_hidden() {
        let shown = lines(&"x\n".repeat(MOST_BYTES));
        assert_eq!(shown.last().unwrap(), &format!("… {MOST_BYTES} more bytes are not shown"));
        assert!(one_line(&"é".repeat(MOST_BYTES)).len() <= MOST_BYTES);
    }

    proptest! {
        #[test]
        fn every_text_has_steady_characters_and_fits(text in any::<String>(), width in 0_usize..30) {
            let line = one_line(&text);
            prop_assert!(line.graphemes(true).all(is_steady), "{line:?}");
            prop_assert!(!line.chars().any(|character| character.is_control() || is_invisible(character)));
            prop_assert!(width_of(&cut(&line, width)) <= width);
            prop_assert_eq!(width_of(&padded(&line, width)), width);
            let rows = wrapped(&line, width);
            prop_assert_eq!(rows.concat(), line.clone());
            prop_assert!(width < 2 || rows.iter().all(|row| width_of(row) <= width));
            prop_assert_eq!(one_line(&line), line);
        }
    }
}
