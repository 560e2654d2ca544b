//! Texts that strangers write, in each field that a command prints: no command panics, prints what a terminal obeys or a reader does
//! not see, or shows so much of a text that the rest is out of sight. JSON has them as a whole.

use serde_json::{Value, json};

use crate::place::{Place, Ran};

/// A run whose first node fails with a text, whose second one asks with it, and whose inputs and state have it.
const GRAPH: &str = "permissions: [rye.execute.tool.rye.bash]
config_schema: { type: object, properties: { text: { type: string }, cents: { type: integer } }, required: [text, cents] }
config:
  start: fails
  nodes:
    fails:
      action: { item_id: rye/bash, params: { command: \"head -c 4000 >&2; exit 1\", stdin: \"${inputs.text}\" } }
      on_error: keeps
      next: keeps
    keeps:
      type: gate
      assign: { kept: \"${inputs.text}\" }
      next: asks
    asks:
      type: interrupt
      payload: { note: \"${inputs.text}\", cents: \"${inputs.cents}\", inner: { note: \"${inputs.text}\", sum: \"${inputs.cents}\" } }
      result_schema: { type: object, properties: { note: { type: string } }, required: [note] }
      assign: { kept: \"${result.note}\" }
      next: done
    done: { type: return, output: { kept: \"${state.kept}\" } }
";

/// Sequences that terminals obey, marks that change the direction of a text, characters that nobody sees, wide and combined ones.
const PIECES: &str = "\u{1b}[2J\u{1b}]0;owned\u{7}\u{9b}31m\u{202e}\u{2066}\u{200b}\u{e0041}\u{ad}\u{2028}\r\n\t\u{7f}\u{feff}漢e\u{301}👩\u{200d}💻\\\"{}error: ";

/// Whether a character has no place on a terminal. It does not ask what the program asks.
fn is_hidden(character: char) -> bool {
    match u32::from(character) {
        0x09 | 0x0a => false,
        0x00..=0x1f | 0x7f..=0x9f | 0xad => true,
        0x200b..=0x200f | 0x2028..=0x202e | 0x2060..=0x206f | 0xfeff | 0xe0000..=0xe0fff => true,
        _ => false,
    }
}

/// How many characters of a text are of the pieces; the letters behind them have a byte each, so that a text fits into what a command
/// reads from stdin.
const MOST_OF_PIECES: usize = 1_000_000;

fn text_of(length: usize) -> String {
    PIECES.chars().cycle().take(MOST_OF_PIECES).chain(std::iter::repeat('a')).take(length).collect()
}

/// Checks what a command printed for people, or as JSON.
fn judge(arguments: &[&str], ran: &Ran, length: usize) {
    let what = format!("{arguments:?} with {length} characters");
    assert!(ran.code != 101 && !ran.err.contains("panicked"), "{what}: {}", ran.err);
    for (name, text) in [("stdout", &ran.out), ("stderr", &ran.err)] {
        let found: Vec<char> = text.chars().filter(|character| is_hidden(*character)).take(5).collect();
        assert!(found.is_empty(), "{what}: {name} has {found:?}");
    }
    assert!(!ran.out.lines().any(|line| line.starts_with("error: ")), "{what}: a line of its own");
    if serde_json::from_str::<Value>(&ran.out).is_ok() || arguments.contains(&"--step") {
        return;
    }
    let widest = ran.out.lines().map(|line| line.chars().count()).max().unwrap_or_default();
    assert!(widest <= 20_000, "{what}: a line has {widest} characters");
}

/// A run that asks, with texts of this length in it.
fn asking(length: usize) -> (Place, String) {
    let (place, text) = (Place::with_graph(GRAPH), text_of(length));
    let inputs = json!({"text": text, "cents": 123_456}).to_string();
    let run = ["run", "graphs/g.yaml", "--store", "runs.db", "--run-id", "r", "--json", "-"];
    let ran = place.piped(&run, &inputs);
    assert_eq!(ran.code, 4, "{}", ran.err.chars().take(2_000).collect::<String>());
    judge(&run, &ran, length);
    let result: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(result["open"][0]["payload"]["note"], text, "the text is whole in JSON");
    (place, text)
}

#[test]
fn every_command_prints_the_texts_of_strangers_escaped_and_cut() {
    let lengths: &[usize] = match std::env::var("HOSTILE") {
        Ok(_) => &[0, 1, 2, 119, 120, 121, 8_191, 8_192, 8_193, 65_535, 65_536, 1_000_000, 10_000_000],
        Err(_) => &[0, 1, 121, 65_536, 300_000],
    };
    for &length in lengths {
        let (place, text) = asking(length);
        let open = |arguments: &[&str]| {
            let ran = place.stored(arguments);
            judge(arguments, &ran, length);
            ran
        };
        let inbox = open(&["inbox"]);
        assert_eq!(inbox.out.lines().count(), 2, "{}", inbox.out);
        assert!(inbox.out.contains(r#"{"cents":123456,"#), "an amount is in sight: {}", inbox.out);
        let listed: Value = serde_json::from_str(&open(&["inbox", "--json"]).out).unwrap();
        assert_eq!(listed["open"][0]["payload"]["note"], text);
        let shown = open(&["answer", "r"]).out;
        assert_eq!(serde_json::from_str::<Value>(&shown).unwrap()["open"][0]["payload"]["note"], text);
        let place_of = |word: &str| shown.find(word).unwrap();
        assert!(place_of("\"cents\"") < place_of("\"note\""), "amounts first: {}", shown.get(..300).unwrap_or(&shown));
        let commands: [&[&str]; 18] = [
            &["runs"],
            &["runs", "--json"],
            &["show", "r"],
            &["show", "r", "--json"],
            &["show", "r", "--step", "2", "--graph", "graphs/g.yaml"],
            &["show", "r", "--step", "2", "--json", "--graph", "graphs/g.yaml"],
            &["diff", "r", "1", "2", "--graph", "graphs/g.yaml"],
            &["diff", "r", "1", "2", "--json", "--graph", "graphs/g.yaml"],
            &["stats"],
            &["stats", "--json"],
            &["verify-run", "r"],
            &["verify-run", "r", "--json"],
            &["attest", "r"],
            &["replay", "r", "--graph", "graphs/g.yaml"],
            &["replay", "r", "--json", "--graph", "graphs/g.yaml"],
            &["diagram", "graphs/g.yaml", "--run", "r"],
            &["signal", "r", &text_of(length.min(1_000)).replace('\0', ""), "--json", "1"],
            &["gc", "--dry-run"],
        ];
        for arguments in commands {
            open(arguments);
        }
        // An answer has at most 16,384 bytes.
        let note = text_of(length.min(1_000));
        let said = json!({"note": note}).to_string();
        let answer = ["answer", "r", "--json", "-", "--store", "runs.db"];
        let answered = place.piped(&answer, &said);
        judge(&answer, &answered, length);
        assert_eq!(answered.code, 0, "{}", answered.err.chars().take(2_000).collect::<String>());
        let resumed = place.stored(&["run", "graphs/g.yaml", "--resume", "r"]);
        judge(&["run", "--resume"], &resumed, length);
        let result: Value = serde_json::from_str(&resumed.out).unwrap();
        assert!(result.to_string().contains(&json!({"kept": note}).to_string()), "the text is whole in the result");
        for arguments in
            [&["show", "r"][..], &["verify-run", "r"], &["runs"], &["watch", "r"], &["watch", "r", "--json"]]
        {
            let ran = place.stored(arguments);
            assert!(ran.code != 101, "{}", ran.err);
            assert!(!ran.out.chars().chain(ran.err.chars()).any(is_hidden), "{arguments:?}");
        }
    }
}

#[test]
fn a_short_question_is_listed_beside_a_long_one() {
    let (place, _) = asking(70_000);
    let inputs = json!({"text": "short", "cents": 7}).to_string();
    let run = ["run", "graphs/g.yaml", "--store", "runs.db", "--run-id", "s", "--json", "-", "--quiet"];
    assert_eq!(place.piped(&run, &inputs).code, 4);
    let inbox = place.stored(&["inbox"]);
    assert_eq!((inbox.code, inbox.out.lines().count()), (0, 3), "{}", inbox.err);
    assert!(inbox.out.contains(r#"{"cents":7,"note":"short","#), "{}", inbox.out);
    assert!(inbox.out.contains("more characters)"), "{}", inbox.out);
}

#[test]
fn a_person_who_signs_sees_the_amount_first_and_texts_escaped() {
    let (place, _) = asking(200_000);
    let signed = place.piped(&["answer", "r", "--json", "-", "--store", "runs.db"], r#"{"note": "\u202efine"}"#);
    assert_eq!(signed.code, 0, "{}", signed.err);
    let note = signed.err.lines().find(|line| line.starts_with("note: you answer")).unwrap();
    assert!(note.contains(r#"which shows {"cents":123456,"inner":{"sum":123456,"#), "{note}");
    assert!(note.contains("more characters)") && note.len() < 20_000, "{note}");
    assert!(!note.chars().any(is_hidden), "{note}");
}
