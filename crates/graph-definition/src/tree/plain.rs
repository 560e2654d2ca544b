//! Plain scalars: their values, if readers of YAML 1.1 and of YAML 1.2 agree on them.

use serde_json::Number;

use super::TreeNode;

/// The value of a plain scalar.
#[derive(Debug)]
pub(super) enum Plain {
    /// The text that it is written as.
    Text,
    /// Something else.
    Value(TreeNode),
}

/// The type of a plain scalar to a reader of YAML 1.1, by the table of PyYAML's resolver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ScalarKind {
    Text,
    Null,
    Boolean,
    Integer,
    Float,
    Timestamp,
    /// `<<` and `=`, which are no values.
    Mark,
}

/// The first letters of the words that are no texts: `null`, `true`, `false`, `yes`, `no`, `on`, `off`, and their forms.
const WORDS_BEGIN: [char; 10] = ['n', 'N', 't', 'T', 'f', 'F', 'y', 'Y', 'o', 'O'];

/// Whether a plain key, though a boolean to YAML 1.1, is a word that people name things with (R320).
pub(super) fn is_word(name: &str) -> bool {
    ["yes", "no", "on", "off", "y", "n"].iter().any(|word| name.eq_ignore_ascii_case(word))
}

/// Reads a plain scalar by the core schema of YAML 1.2; `None` if readers disagree on it.
pub(super) fn plain(text: &str) -> Option<Plain> {
    // Most texts do not begin like a number, and are longer than any special word or do not begin like one.
    if text.starts_with(|c: char| c.is_alphabetic() || c == '_')
        && (text.len() > "false".len() || !text.starts_with(WORDS_BEGIN))
    {
        return Some(Plain::Text);
    }
    let found = core(text)?;
    let kind = match &found {
        Plain::Text => ScalarKind::Text,
        Plain::Value(TreeNode::Null) => ScalarKind::Null,
        Plain::Value(TreeNode::Boolean(_)) => ScalarKind::Boolean,
        Plain::Value(TreeNode::Number(number)) if number.is_f64() => ScalarKind::Float,
        Plain::Value(_) => ScalarKind::Integer,
    };
    (kind == of_yaml_1_1(text)).then_some(found)
}

/// Reads a plain scalar by the core schema; `None` for forms that not all readers of YAML 1.2 know.
fn core(text: &str) -> Option<Plain> {
    let value = match text {
        "" | "~" | "null" | "Null" | "NULL" => TreeNode::Null,
        "true" | "True" | "TRUE" => TreeNode::Boolean(true),
        "false" | "False" | "FALSE" => TreeNode::Boolean(false),
        _ if is_word(text) || ["true", "false", "null"].iter().any(|word| text.eq_ignore_ascii_case(word)) => {
            return None;
        }
        _ => {
            let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
            if !unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
                return Some(Plain::Text);
            }
            return number(text, unsigned);
        }
    };
    Some(Plain::Value(value))
}

/// Reads a plain scalar that begins as numbers do.
fn number(text: &str, unsigned: &str) -> Option<Plain> {
    let is_decimal = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let number = |number| Plain::Value(TreeNode::Number(number));
    if is_decimal(unsigned) {
        let leads_with_zero = unsigned.len() > 1 && unsigned.starts_with('0');
        let integer = text.parse::<i64>().map(Number::from).or_else(|_| text.parse::<u64>().map(Number::from));
        return integer.ok().filter(|_| !leads_with_zero && !text.starts_with('+')).map(number);
    }
    let lower = unsigned.to_ascii_lowercase();
    let radix = ["0x", "0o", "0b"].iter().any(|prefix| lower.len() > 2 && lower.starts_with(prefix));
    // Readers in other languages ignore commas between digits, as they do underscores.
    let separated = unsigned.contains(['_', ','])
        && unsigned.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'_' | b',' | b'.'));
    let is_sixty = |part: &str| is_decimal(&part.replace(['.', '_'], ""));
    let sexagesimal = unsigned.contains(':') && unsigned.split(':').all(is_sixty);
    if radix || separated || sexagesimal || matches!(lower.as_str(), ".inf" | ".nan") {
        return None;
    }
    if lower.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'+' | b'-'))
        && lower.bytes().any(|byte| byte.is_ascii_digit())
        && let Ok(float) = text.parse::<f64>()
    {
        // `1.` and `.5` are floats to some readers and texts to others, and readers disagree on numbers that overflow, or
        // underflow to zero.
        let usual = lower.starts_with(|c: char| c.is_ascii_digit()) && !lower.ends_with('.') && !lower.contains(".e");
        let mantissa = lower.split('e').next().unwrap_or_default();
        let vanishes = float == 0.0 && mantissa.bytes().any(|byte| (b'1'..=b'9').contains(&byte));
        return Number::from_f64(float).filter(|_| usual && !vanishes && !text.starts_with('+')).map(number);
    }
    Some(Plain::Text)
}

/// Returns the type that PyYAML gives to a plain scalar. Each branch is one row of its table.
fn of_yaml_1_1(text: &str) -> ScalarKind {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return ScalarKind::Null,
        "<<" | "=" => return ScalarKind::Mark,
        "yes" | "Yes" | "YES" | "no" | "No" | "NO" | "true" | "True" | "TRUE" | "false" | "False" | "FALSE" | "on"
        | "On" | "ON" | "off" | "Off" | "OFF" => return ScalarKind::Boolean,
        ".nan" | ".NaN" | ".NAN" => return ScalarKind::Float,
        _ => {}
    }
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    if !unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return ScalarKind::Text;
    }
    if matches!(unsigned, ".inf" | ".Inf" | ".INF") || is_float(text, unsigned) {
        ScalarKind::Float
    } else if is_integer(unsigned) {
        ScalarKind::Integer
    } else if is_timestamp(text) {
        ScalarKind::Timestamp
    } else {
        ScalarKind::Text
    }
}

fn digits(text: &str) -> usize {
    text.bytes().take_while(u8::is_ascii_digit).count()
}

fn all(text: &str, is_it: impl Fn(u8) -> bool) -> bool {
    text.bytes().all(is_it)
}

/// `[0-9][0-9_]*\.[0-9_]*([eE][-+][0-9]+)?`, `\.[0-9][0-9_]*([eE][-+][0-9]+)?`, `[0-9][0-9_]*(:[0-5]?[0-9])+\.[0-9_]*`; the
/// second without a sign.
fn is_float(text: &str, unsigned: &str) -> bool {
    let Some((before, after)) = unsigned.split_once('.') else { return false };
    let is_digit = |byte: u8| byte.is_ascii_digit() || byte == b'_';
    let has_whole = before.starts_with(|c: char| c.is_ascii_digit()) && all(before, is_digit);
    let fraction = match after.find(['e', 'E']) {
        Some(at) => {
            let exponent = &after[at + 1..];
            let Some(power) = exponent.strip_prefix(['-', '+']) else { return false };
            if power.is_empty() || !all(power, |byte| byte.is_ascii_digit()) {
                return false;
            }
            &after[..at]
        }
        None => after,
    };
    if !all(fraction, is_digit) {
        return false;
    }
    let is_sixty = || fraction.len() == after.len() && is_sexagesimal(before, |first| first.is_ascii_digit());
    let is_part =
        unsigned.len() == text.len() && before.is_empty() && fraction.starts_with(|c: char| c.is_ascii_digit());
    has_whole || is_part || is_sixty()
}

/// `0b[0-1_]+`, `0[0-7_]+`, `0|[1-9][0-9_]*`, `0x[0-9a-fA-F_]+`, `[1-9][0-9_]*(:[0-5]?[0-9])+`.
fn is_integer(unsigned: &str) -> bool {
    let some = |text: &str, is_it: fn(u8) -> bool| !text.is_empty() && all(text, |byte| byte == b'_' || is_it(byte));
    if let Some(rest) = unsigned.strip_prefix("0b") {
        return some(rest, |byte| matches!(byte, b'0' | b'1'));
    }
    if let Some(rest) = unsigned.strip_prefix("0x") {
        return some(rest, |byte| byte.is_ascii_hexdigit());
    }
    match unsigned.strip_prefix('0') {
        Some("") => true,
        Some(rest) => some(rest, |byte| (b'0'..=b'7').contains(&byte)),
        None => {
            some(unsigned, |byte| byte.is_ascii_digit())
                || is_sexagesimal(unsigned, |first| (b'1'..=b'9').contains(&first))
        }
    }
}

/// `[0-9][0-9_]*(:[0-5]?[0-9])+`, if `begins` accepts its first digit.
fn is_sexagesimal(text: &str, begins: fn(u8) -> bool) -> bool {
    let mut parts = text.split(':');
    let first = parts.next().unwrap_or_default();
    let is_first = first.bytes().next().is_some_and(begins) && all(first, |byte| byte.is_ascii_digit() || byte == b'_');
    let is_part = |part: &str| match part.as_bytes() {
        [one] => one.is_ascii_digit(),
        [ten, one] => (b'0'..=b'5').contains(ten) && one.is_ascii_digit(),
        _ => false,
    };
    let mut count = 0;
    is_first && parts.inspect(|_| count += 1).all(is_part) && count > 0
}

/// `2026-11-23`, or a date with a time: `2026-1-2 3:04:05.6 +7:00`.
fn is_timestamp(text: &str) -> bool {
    // Takes at most `most` digits; false if there are fewer than `least`.
    fn take(rest: &mut &str, least: usize, most: usize) -> bool {
        let count = digits(rest).min(most);
        *rest = &rest[count..];
        count >= least
    }
    fn mark(rest: &mut &str, mark: &str) -> bool {
        rest.strip_prefix(mark).map(|behind| *rest = behind).is_some()
    }
    let mut rest = text;
    if !(take(&mut rest, 4, 4) && mark(&mut rest, "-")) {
        return false;
    }
    let date = rest;
    if take(&mut rest, 2, 2) && mark(&mut rest, "-") && take(&mut rest, 2, 2) && rest.is_empty() {
        return true;
    }
    rest = date;
    if !(take(&mut rest, 1, 2) && mark(&mut rest, "-") && take(&mut rest, 1, 2)) {
        return false;
    }
    let time = match rest.strip_prefix(['T', 't']) {
        Some(time) => time,
        None => {
            let time = rest.trim_start_matches([' ', '\t']);
            if time.len() == rest.len() {
                return false;
            }
            time
        }
    };
    rest = time;
    if !(take(&mut rest, 1, 2)
        && mark(&mut rest, ":")
        && take(&mut rest, 2, 2)
        && mark(&mut rest, ":")
        && take(&mut rest, 2, 2))
    {
        return false;
    }
    if mark(&mut rest, ".") {
        take(&mut rest, 0, usize::MAX);
    }
    if rest.is_empty() {
        return true;
    }
    rest = rest.trim_start_matches([' ', '\t']);
    if rest == "Z" {
        return true;
    }
    let Some(mut rest) = rest.strip_prefix(['-', '+']) else { return false };
    take(&mut rest, 1, 2) && (rest.is_empty() || (mark(&mut rest, ":") && take(&mut rest, 2, 2) && rest.is_empty()))
}

#[cfg(test)]
mod tests {
    use regex::Regex;

    use super::*;

    /// The table of PyYAML's resolver (`yaml/resolver.py`), in its order, without the row of tags.
    const TABLE: [(ScalarKind, &str); 7] = [
        (ScalarKind::Boolean, "^(?:yes|Yes|YES|no|No|NO|true|True|TRUE|false|False|FALSE|on|On|ON|off|Off|OFF)$"),
        (
            ScalarKind::Float,
            r"^(?:[-+]?(?:[0-9][0-9_]*)\.[0-9_]*(?:[eE][-+][0-9]+)?|\.[0-9][0-9_]*(?:[eE][-+][0-9]+)?|[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+\.[0-9_]*|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$",
        ),
        (
            ScalarKind::Integer,
            r"^(?:[-+]?0b[0-1_]+|[-+]?0[0-7_]+|[-+]?(?:0|[1-9][0-9_]*)|[-+]?0x[0-9a-fA-F_]+|[-+]?[1-9][0-9_]*(?::[0-5]?[0-9])+)$",
        ),
        (ScalarKind::Mark, "^(?:<<)$"),
        (ScalarKind::Null, "^(?:~|null|Null|NULL|)$"),
        (
            ScalarKind::Timestamp,
            r"^(?:[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]|[0-9][0-9][0-9][0-9]-[0-9][0-9]?-[0-9][0-9]?(?:[Tt]|[ \t]+)[0-9][0-9]?:[0-9][0-9]:[0-9][0-9](?:\.[0-9]*)?(?:[ \t]*(?:Z|[-+][0-9][0-9]?(?::[0-9][0-9])?))?)$",
        ),
        (ScalarKind::Mark, "^(?:=)$"),
    ];

    struct Judge(Vec<(ScalarKind, Regex)>);

    impl Judge {
        fn new() -> Self {
            Self(TABLE.iter().map(|(kind, pattern)| (*kind, Regex::new(pattern).unwrap())).collect())
        }

        fn kind(&self, text: &str) -> ScalarKind {
            self.0.iter().find(|(_, pattern)| pattern.is_match(text)).map_or(ScalarKind::Text, |(kind, _)| *kind)
        }
    }

    #[test]
    fn every_short_text_is_what_the_table_of_pyyaml_says() {
        const ALPHABET: &[u8] = b"019-+._:exbT ";
        let judge = Judge::new();
        for length in 0..=4_u32 {
            for number in 0..ALPHABET.len().pow(length) {
                let mut rest = number;
                let text: String = (0..length)
                    .map(|_| {
                        let character = ALPHABET[rest % ALPHABET.len()];
                        rest /= ALPHABET.len();
                        char::from(character)
                    })
                    .collect();
                assert_eq!(of_yaml_1_1(&text), judge.kind(&text), "{text:?}");
            }
        }
    }

    #[test]
    fn texts_made_of_parts_are_what_the_table_says() {
        const PARTS: [&str; 26] = [
            "0", "7", "12", "59", "61", "2026", "1234", ".", ":", "-", "+", "_", "e", "E+3", "e-04", "T", "t", " ",
            "\t", "Z", "0x1F", "0b10", "0o7", ".inf", ".NaN", "-11-23",
        ];
        let judge = Judge::new();
        let mut state = 1_u64;
        let mut draw = |most: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % most
        };
        for _ in 0..200_000 {
            let text: String = (0..1 + draw(9)).map(|_| PARTS[draw(PARTS.len())]).collect();
            assert_eq!(of_yaml_1_1(&text), judge.kind(&text), "{text:?}");
        }
        for text in ["yes", "Off", "<<", "=", "~", "NULL", "nul", "2001-12-14t21:59:43.10-05:00", "2001-1-1 1:00:00 Z"]
        {
            assert_eq!(of_yaml_1_1(text), judge.kind(text), "{text:?}");
        }
    }

    #[test]
    fn scalars_that_both_readers_agree_on_are_accepted() {
        for text in
            ["1", "-1", "0", "1.5", "-2.50", "1.5e+3", "1.0E-7", "true", "Null", "1.2.3", "v1", "08:00x", "a=b", "<<x"]
        {
            assert!(plain(text).is_some(), "{text}");
        }
        for text in [
            "1e3",
            "1E3",
            "1.5e3",
            "1e+3",
            "1e18",
            "12e03",
            "2026-11-23",
            "2001-01-01 10:00:00",
            "=",
            "<<",
            "1.5e-400",
            "2001-12-14t21:59:43.10-05:00",
            "1_2:30",
            "1,000",
            "1,000.5",
            "190:20:30.15",
            "0_1",
            "1_",
            "0b1_0",
            "08",
            "+5",
        ] {
            assert!(plain(text).is_none(), "{text}");
        }
    }
}
