//! Random changes of texts: edits that people make, and edits that nobody makes.

use crate::random::Random;

/// A reproducible source of random choices.
pub(crate) struct Chance(Random);

impl Chance {
    pub(crate) fn new(seed: usize) -> Self {
        Self(Random::new(seed as u64))
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.0.below(end as u64)).unwrap()
    }

    fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.below(from.len())]
    }

    /// Returns a random place in a text where a character begins.
    fn place(&mut self, text: &str) -> usize {
        let at = self.below(text.len() + 1);
        text.floor_char_boundary(at)
    }
}

/// Pieces that are put into texts: words and signs of the format, and text that is difficult to parse.
const PIECES: &[&str] = &[
    "${",
    "}",
    "${inputs.",
    "${state.",
    "||",
    "$${",
    ".",
    "..",
    "[0]",
    "[-1]",
    "[",
    "]",
    "{",
    "}",
    "{}",
    "[]",
    ":",
    ": ",
    ",",
    "- ",
    "\n",
    "\n  ",
    "\n    ",
    "\t",
    "#",
    "\"",
    "'",
    "|",
    ">",
    "|-\n",
    "&a ",
    "*a",
    "!!str ",
    "<<: ",
    "---\n",
    "...\n",
    "? ",
    "%YAML 1.2\n",
    "~",
    "null",
    "true",
    "yes",
    "0",
    "-1",
    "1e999",
    "99999999999999999999",
    "0x1f",
    ".inf",
    "12:30",
    "\"\"",
    "state",
    "inputs",
    "result",
    "visit.number",
    "visit.previous",
    "_now",
    "_timestamp",
    "state._last_error",
    "state._retries",
    "type: gate",
    "type: foreach",
    "type: return",
    "type: action",
    "next: ",
    "next: []",
    "on_error: ",
    "assign: {}",
    "when: {}",
    "all: []",
    "any: []",
    "not: {}",
    "op: regex",
    "op: in",
    "op: exists",
    "op: contains",
    "op: gt",
    "value: []",
    "value: {}",
    "value: null",
    "value: \"(\"",
    "value: 1",
    "over: []",
    "collect: x",
    "as: state",
    "parallel: true",
    "retry: 3",
    "timeout: 1s",
    "default: []",
    "enum: []",
    "enum: [a, a]",
    "type: object",
    "type: array",
    "type: [string, \"null\"]",
    "items: {}",
    "properties: {}",
    "required: [x]",
    "additionalProperties: {}",
    "minimum: 3",
    "pattern: \"[\"",
    "const: {}",
    "x-secret: true",
    "x-sink: shell",
    "max_steps: 0",
    "max_steps: 4294967295",
    "on_max_steps: return_last",
    "on_error: continue",
    "feedback: false",
    "limits: { depth: 100 }",
    "é",
    "\u{202e}",
    "\u{feff}",
    "\u{0}",
    "\u{85}",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢",
    "\r\n",
    "a\u{301}",
];

/// Makes an input from one of the texts, with up to eight changes.
pub(crate) fn change(texts: &[String], mut chance: Chance) -> String {
    let mut text = texts[chance.below(texts.len())].clone();
    for _ in 0..=chance.below(8) {
        text = change_once(text, texts, &mut chance);
        if text.len() > 200_000 {
            break;
        }
    }
    text
}

fn change_once(mut text: String, texts: &[String], chance: &mut Chance) -> String {
    match chance.below(12) {
        0..=3 => {
            let at = chance.place(&text);
            text.insert_str(at, chance.pick(PIECES));
        }
        4 | 5 => {
            let (one, two) = (chance.place(&text), chance.below(12));
            let end = text.ceil_char_boundary((one + two).min(text.len()));
            text.replace_range(one..end, "");
        }
        6 => {
            let (one, two) = (chance.place(&text), chance.below(12));
            let end = text.ceil_char_boundary((one + two).min(text.len()));
            let piece = chance.pick(PIECES);
            text.replace_range(one..end, piece);
        }
        7 => text = change_lines(&text, chance),
        8 => {
            // A value of another text replaces one of this text.
            let other = &texts[chance.below(texts.len())];
            let values: Vec<&str> = other.split([':', ',', '{', '}', '\n']).map(str::trim).collect();
            let value = chance.pick(&values).to_owned();
            let at = chance.place(&text);
            let end = text[at..].find([',', '}', '\n']).map_or(text.len(), |end| at + end);
            text.replace_range(at..end, &value);
        }
        9 => {
            // Some lines of another text are inserted.
            let other: Vec<&str> = texts[chance.below(texts.len())].lines().collect();
            let from = chance.below(other.len());
            let some = other[from..(from + 1 + chance.below(8)).min(other.len())].join("\n");
            let at = text[..chance.place(&text)].rfind('\n').map_or(0, |at| at + 1);
            text.insert_str(at, &(some + "\n"));
        }
        10 => {
            // A part is repeated many times: lists and mappings grow, brackets nest.
            let at = chance.place(&text);
            let end = text.ceil_char_boundary((at + 1 + chance.below(40)).min(text.len()));
            let part = text[at..end].repeat(1 + chance.below(60));
            text.insert_str(at, &part);
        }
        _ => text.truncate(chance.place(&text)),
    }
    text
}

fn change_lines(text: &str, chance: &mut Chance) -> String {
    let mut lines: Vec<&str> = text.lines().collect();
    if lines.len() < 2 {
        return text.to_owned();
    }
    let (one, two) = (chance.below(lines.len()), chance.below(lines.len()));
    match chance.below(4) {
        0 => lines.swap(one, two),
        1 => {
            lines.remove(one);
        }
        2 => lines.insert(two, lines[one]),
        _ => lines[one] = lines[one].trim_start(),
    }
    lines.join("\n") + "\n"
}
