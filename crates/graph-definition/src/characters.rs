//! Characters that look like others, so that names that differ only in them look the same.

/// For each ASCII character, the letters and signs that look like it in most typefaces.
const ALIKE: &[(char, &str)] = &[
    ('a', "аαɑ"),
    ('b', "Ьƅ"),
    ('c', "сϲᴄⅽ"),
    ('d', "ԁⅾ"),
    ('e', "еℯ"),
    ('g', "ɡցℊ"),
    ('h', "һհℎ"),
    ('i', "іιıɩⅰℹ"),
    ('j', "јϳյ"),
    ('l', "ӏⅼℓⵏ"),
    ('m', "ⅿ"),
    ('n', "ոռ"),
    ('o', "оοօσᴏℴס"),
    ('p', "рρ"),
    ('q', "ԛգզ"),
    ('r', "гᴦ"),
    ('s', "ѕꜱ"),
    ('u', "υսᴜ"),
    ('v', "νѵⅴᴠ"),
    ('w', "ԝաᴡ"),
    ('x', "х᙮ⅹ×"),
    ('y', "уγүʏ"),
    ('z', "ᴢ"),
    ('A', "АΑᎪ"),
    ('B', "ВΒᏴ"),
    ('C', "СϹⅭᏟ"),
    ('D', "ⅮᎠ"),
    ('E', "ЕΕᎬ"),
    ('F', "Ϝ"),
    ('G', "ԌᏀ"),
    ('H', "НΗᎻ"),
    ('I', "ІΙⅠӀ"),
    ('J', "ЈͿᎫ"),
    ('K', "КΚᏦK"),
    ('L', "ⅬᏞ"),
    ('M', "МΜⅯᎷ"),
    ('N', "Ν"),
    ('O', "ОΟՕ"),
    ('P', "РΡᏢ"),
    ('Q', "Ԛ"),
    ('R', "Ꮢ"),
    ('S', "ЅՏᏚ"),
    ('T', "ТΤᎢ"),
    ('U', "Ս"),
    ('V', "ѴⅤᏙ"),
    ('W', "ԜᎳ"),
    ('X', "ХΧⅩ"),
    ('Y', "ҮΥϒ"),
    ('Z', "ΖᏃ"),
    ('3', "ЗӠ"),
    ('6', "б"),
    ('-', "‐‑‒–−"),
    ('.', "․"),
    ('_', "ˍ"),
    ('\'', "’‘ʼ"),
    ('!', "ǃ"),
    (':', "։ː∶"),
    ('/', "⁄∕"),
];

/// The letters under the marks of U+00C0 to U+017F; a dot where there is no letter.
const LATIN: &str = "AAAAAA.CEEEEIIII.NOOOOO..UUUUY..aaaaaa.ceeeeiiii.nooooo..uuuuy.yAaAaAaCcCcCcCcDd..EeEeEeEeEeGgGgGgGgHh..IiIiIiIiI...JjKk.LlLlLl....NnNnNn...OoOoOo..RrRrRrSsSsSsSsTtTt..UuUuUuUuUuUuWwYyYZzZzZz.";

/// The same for U+1E00 to U+1EFF.
const LATIN_ADDITIONAL: &str = "AaBbBbBbCcDdDdDdDdDdEeEeEeEeEeFfGgHhHhHhHhHhIiIiKkKkKkLlLlLlLlMmMmMmNnNnNnNnOoOoOoOoPpPpRrRrRrRrSsSsSsSsSsTtTtTtTtUuUuUuUuUuVvVvWwWwWwWwWwXxXxYyZzZzZzhtwy......AaAaAaAaAaAaAaAaAaAaAaAaEeEeEeEeEeEeEeEeIiIiOoOoOoOoOoOoOoOoOoOoOoOoUuUuUuUuUuUuUuYyYyYyYy......";

/// Returns the ASCII character that looks like another character.
fn look(character: char) -> char {
    match character {
        _ if character.is_ascii() => character,
        // The wide forms of ASCII.
        '\u{ff01}'..='\u{ff5e}' => ascii(u32::from(character) - 0xfee0, character),
        // The alphabets and digits of mathematics.
        '\u{1d400}'..='\u{1d6a3}' => match (u32::from(character) - 0x1d400) % 52 {
            small @ 26.. => ascii(u32::from('a') + small - 26, character),
            capital => ascii(u32::from('A') + capital, character),
        },
        '\u{1d7ce}'..='\u{1d7ff}' => ascii(u32::from('0') + (u32::from(character) - 0x1d7ce) % 10, character),
        _ => ALIKE.iter().find(|(_, alike)| alike.contains(character)).map_or(character, |(ascii, _)| *ascii),
    }
}

fn ascii(number: u32, otherwise: char) -> char {
    char::from_u32(number).unwrap_or(otherwise)
}

/// Returns a name with the ASCII characters that its characters look like.
pub fn skeleton(name: &str) -> String {
    name.chars().map(look).collect()
}

/// Whether a name has combining marks, over or under the letter before them: such a letter can also be written as one
/// character.
pub fn has_marks(name: &str) -> bool {
    name.chars().any(is_mark)
}

fn is_mark(character: char) -> bool {
    matches!(character, '\u{300}'..='\u{36f}')
}

/// As [`skeleton`], without the marks of the letters.
pub fn bare(name: &str) -> String {
    let letter = |character: char| {
        let (table, first) = match character {
            '\u{c0}'..='\u{17f}' => (LATIN, 0xc0),
            '\u{1e00}'..='\u{1eff}' => (LATIN_ADDITIONAL, 0x1e00),
            _ => return character,
        };
        let under = table.as_bytes().get((u32::from(character) - first) as usize).map(|&byte| char::from(byte));
        under.filter(|&under| under != '.').unwrap_or(character)
    };
    name.chars().filter(|&character| !is_mark(character)).map(letter).map(look).collect()
}

/// Lists the characters of a name that are not ASCII, for messages.
pub fn shown(name: &str) -> String {
    let strange = name.chars().filter(|&character| !character.is_ascii());
    let mut codes: Vec<String> = strange.map(|character| format!("U+{:04X}", u32::from(character))).collect();
    codes.dedup();
    match codes.as_slice() {
        [] => "in ASCII".to_owned(),
        codes => format!("has {}", codes.join(", ")),
    }
}

/// Describes the difference between two names that look the same; `None` if they do not.
pub(crate) fn describe_difference(wrong: &str, right: &str) -> Option<String> {
    let visible = |name: &str| -> String {
        let seen = name.chars().filter(|&character| !graph_model::character::is_invisible(character));
        bare(&seen.collect::<String>())
    };
    let look_alike = wrong != right && !(wrong.is_ascii() && right.is_ascii()) && visible(wrong) == visible(right);
    look_alike.then(|| match (wrong.is_ascii(), right.is_ascii()) {
        (false, _) => format!("`{}` here {}", wrong, shown(wrong)),
        (true, _) => format!("the other {}", shown(right)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_look_the_same_have_one_skeleton() {
        for (one, other) in [
            ("done", "dоne"),
            ("PAY", "РАУ".replace('У', "Y").as_str()),
            ("total", "ｔｏｔａｌ"),
            ("x1", "𝐱𝟏"),
            ("a-b", "a‐b"),
        ] {
            assert_eq!(skeleton(one), skeleton(other), "{one} {other}");
        }
        for (one, other) in [("done", "dane"), ("größe", "grosse"), ("résumé", "resume"), ("名前", "名称")] {
            assert_ne!(skeleton(one), skeleton(other));
        }
    }

    #[test]
    fn a_letter_with_a_mark_is_written_in_two_ways() {
        let (composed, decomposed) = ("caf\u{e9}", "cafe\u{301}");
        assert_eq!(bare(composed), bare(decomposed));
        assert!(has_marks(decomposed) && !has_marks(composed));
        assert_eq!(LATIN.len(), 0x17f - 0xc0 + 1);
        assert_eq!(LATIN_ADDITIONAL.len(), 0x1eff - 0x1e00 + 1);
    }

    #[test]
    fn look_alike_names_are_explained() {
        assert_eq!(describe_difference("dоne", "done").unwrap(), "`dоne` here has U+043E");
        assert_eq!(describe_difference("do\u{200b}ne", "done").unwrap(), "`do\u{200b}ne` here has U+200B");
        assert_eq!(describe_difference("done", "dоne").unwrap(), "the other has U+043E");
        assert_eq!(describe_difference("dnoe", "done"), None);
        assert_eq!(describe_difference("größe", "grösse"), None);
    }
}
