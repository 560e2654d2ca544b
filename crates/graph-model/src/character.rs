//! Characters that a reader does not see.

/// Whether a character shows nothing of itself: it has no width, or is there to change how others are shown.
///
/// These are the characters that Unicode calls default-ignorable (`Default_Ignorable_Code_Point`), those that draw lines and
/// blocks of text apart without showing it, and letters that are blank.
pub fn is_invisible(character: char) -> bool {
    matches!(
        character,
        '\u{ad}'
            | '\u{34f}'
            | '\u{61c}'
            | '\u{115f}'..='\u{1160}'
            | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{2800}'
            | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}'
            | '\u{13430}'..='\u{1343f}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}'
    )
}

/// Whether a character can be in a name: it is visible, or it is the plain space.
pub fn is_plain_in_names(character: char) -> bool {
    character == ' ' || !(character.is_control() || character.is_whitespace() || is_invisible(character))
}

/// Returns the invisible characters of a text that have no use at their place, with their byte offsets.
///
/// Three kinds have a use: those that choose the coloured form of an emoji, those that join several emoji to one, and
/// those that join or separate letters in scripts that need it, such as Persian and Hindi.
pub fn out_of_place(text: &str) -> impl Iterator<Item = (usize, char)> + '_ {
    let around = move |at: usize, character: char| {
        (text[..at].chars().next_back(), text[at + character.len_utf8()..].chars().next())
    };
    text.char_indices().filter(|(_, character)| is_invisible(*character)).filter(move |&(at, character)| {
        let (before, after) = around(at, character);
        let is_in_place = match character {
            '\u{fe0e}' | '\u{fe0f}' => before.is_some_and(is_emoji) || after == Some('\u{20e3}'),
            '\u{200d}' if before.is_some_and(|before| is_emoji(before) || before == '\u{fe0f}') => {
                after.is_some_and(is_emoji)
            }
            '\u{200c}' | '\u{200d}' => before.is_some_and(is_joined) && after.is_some_and(is_joined),
            _ => false,
        };
        !is_in_place
    })
}

/// Whether a character is, or may be, an emoji.
fn is_emoji(character: char) -> bool {
    matches!(
        character,
        '\u{a9}' | '\u{ae}' | '\u{203c}' | '\u{2049}' | '\u{2122}' | '\u{2139}' | '\u{2194}'..='\u{21aa}'
            | '\u{231a}'..='\u{23ff}' | '\u{24c2}' | '\u{25aa}'..='\u{27bf}' | '\u{2934}'..='\u{2935}'
            | '\u{2b05}'..='\u{2b55}' | '\u{3030}' | '\u{303d}' | '\u{3297}' | '\u{3299}' | '\u{1f000}'..='\u{1faff}'
    )
}

/// Whether a character is a letter or sign of a script whose letters are joined: from Arabic to Khmer and Mongolian.
fn is_joined(character: char) -> bool {
    matches!(character, '\u{620}'..='\u{8ff}' | '\u{900}'..='\u{df4}' | '\u{f40}'..='\u{109f}' | '\u{1780}'..='\u{17b3}'
        | '\u{17b6}'..='\u{17d3}' | '\u{1820}'..='\u{18aa}' | '\u{fb50}'..='\u{fdff}' | '\u{fe70}'..='\u{fefc}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invisible_characters_are_found_unless_they_have_a_use() {
        for text in
            ["👩\u{200d}💻", "❤\u{fe0f}", "1\u{fe0f}\u{20e3}", "می\u{200c}خواهم", "क्\u{200d}ष", "größe 名前 été"]
        {
            assert_eq!(out_of_place(text).next(), None, "{text}");
        }
        for text in [
            "do\u{200b}ne",
            "a\u{ad}b",
            "a\u{2060}b",
            "a\u{3164}b",
            "a\u{e0041}b",
            "a\u{fe0f}b",
            "a\u{200d}b",
            "a\u{200c}b",
            "ls\u{2800}",
            "می\u{200c} x",
            "👩\u{200d}",
        ] {
            assert_eq!(out_of_place(text).count(), 1, "{text:?}");
        }
    }

    #[test]
    fn a_name_is_made_of_what_is_seen_and_plain_spaces() {
        assert!("all done größe 名前 👩💻".chars().all(is_plain_in_names));
        for character in ['\t', '\u{a0}', '\u{2003}', '\u{3000}', '\u{200b}', '\u{fe0f}', '\u{7}'] {
            assert!(!is_plain_in_names(character), "{character:?}");
        }
    }
}
