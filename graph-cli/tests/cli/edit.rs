//! `graph edit`: changing the state of stored runs.

use serde_json::{Value, json};

use crate::place::Place;

/// A graph whose node `route` has an edge for each word that a node writes to `verdict`.
const ROUTES: &str = r#"permissions: [rye.execute.tool.rye.bash]
config_schema: { type: object, properties: { number: { type: integer }, opt: { type: string } }, required: [number] }
config:
  start: pick
  state: { verdict: few, free: null }
  channels: { top: max }
  nodes:
    pick: { type: gate, assign: { top: "${inputs.number}" }, next: [{ to: many, when: { path: inputs.number, op: gt, value: 5 } }, { to: route }] }
    many: { type: gate, assign: { verdict: many }, next: route }
    route: { type: gate, next: [{ to: few, when: { path: state.verdict, value: few } }, { to: lot, when: { path: state.verdict, value: many } }] }
    few: { type: return, output: { few: "${state.verdict}", top: "${state.top}", free: "${state.free}" } }
    lot: { type: return, output: { many: "${state.verdict}" } }
"#;

/// A place with a run `r` that has made one step of [`ROUTES`].
fn with_run(more: &[&str]) -> Place {
    let place = Place::with_graph(ROUTES);
    let arguments = ["--store", "runs.db", "--run-id", "r", "--input", "number=1", "--max-steps", "1"];
    let ran = place.run(&[&arguments, more].concat());
    assert!(ran.code == 1 && ran.out.contains("Max steps exceeded"), "{}{}", ran.out, ran.err);
    place
}

impl Place {
    fn edit(&self, more: &[&str]) -> crate::place::Ran {
        self.graph(&[&["edit", "r", "--store", "runs.db", "--by", "ann", "--why", "a test"], more].concat())
    }

    fn resume(&self) -> crate::place::Ran {
        self.run(&["--store", "runs.db", "--resume", "r", "--max-steps", "9"])
    }

    fn proven(&self) -> Value {
        let proven = self.graph(&["verify-run", "r", "--store", "runs.db", "--json"]);
        assert_eq!(proven.code, 0, "{}", proven.err);
        serde_json::from_str(&proven.out).unwrap()
    }
}

#[test]
fn a_run_that_cannot_return_its_output_fails_and_can_be_edited_again() {
    let place = with_run(&[]);
    // No node writes this word, so the compiler proves that `route` has an edge for each case.
    assert_eq!(place.edit(&["--set", r#"verdict="other""#]).code, 0);
    let failed = place.resume();
    let result: Value = serde_json::from_str(&failed.out).unwrap();
    assert_eq!((failed.code, &result["status"], &result["node"]), (1, &json!("error"), &json!("route")));
    assert_eq!(
        result["error"],
        "the run cannot end here: expected an end at one of the graph's exits, not at `route`, found nothing"
    );
    place.proven();
    let edited = place.edit(&["--set", r#"verdict="many""#, "--json"]);
    assert_eq!(edited.code, 0, "{}", edited.err);
    let edit: Value = serde_json::from_str(&edited.out).unwrap();
    assert_eq!((&edit["run"], &edit["step"], &edit["set"]), (&json!("r"), &json!(1), &json!(["verdict"])));
    let finished = place.resume();
    assert_eq!(finished.code, 0, "{}", finished.out);
    assert_eq!(serde_json::from_str::<Value>(&finished.out).unwrap()["output"], json!({"many": "many"}));
    let proven = place.proven();
    let why: Vec<&Value> = proven
        .pointer("/runs/0/edits")
        .or(proven.pointer("/0/edits"))
        .unwrap_or(&proven["edits"])
        .as_array()
        .unwrap()
        .iter()
        .map(|edit| &edit["why"])
        .collect();
    assert_eq!(why, ["a test", "a test"]);
}

#[test]
fn bad_edits_are_explained_and_change_nothing() {
    let place = with_run(&[]);
    for (more, said) in [
        (
            &["--set", "verdict=5"][..],
            "the state key `verdict` cannot be changed so: expected a string, found an integer",
        ),
        (&["--set", "verdict=few"], "the value of `verdict` is not JSON"),
        (&["--set", "verdict"], "write `key=json`"),
        (&["--set", "verdict=null"], "the state key `verdict` cannot be unset: `few` reads it without a fallback"),
        (&["--set", "top=null"], "the state key `top` cannot be unset: it is a channel; set it to a value"),
        (&["--set", "top=true"], "the state key `top` is a channel that `max` adds to, which cannot hold this"),
        (
            &["--write", r#"top="a""#],
            "the state key `top` cannot be written so: `max` cannot compare a string with an integer",
        ),
        (&["--set", "top=1", "--set", "top=2"], "the state key `top` is given twice"),
        (&["--set", "top=1", "--write", "top=2"], "the state key `top` is both set and written"),
        (&["--set", "tip=1"], "the graph has no state key `tip`; it has"),
        (&[], "it changes no state key"),
    ] {
        let ran = place.edit(more);
        assert!(ran.code >= 2 && ran.out.is_empty() && ran.err.contains(said), "{more:?}: {}", ran.err);
        assert!(!ran.err.contains("panicked"), "{}", ran.err);
    }
    let long = "x".repeat(70_000);
    for why in ["", " ", "a\nb", "a\u{202e}b", &long] {
        let ran = place.graph(&["edit", "r", "--store", "runs.db", "--by", "ann", "--why", why, "--set", "top=2"]);
        let said = "it does not say why it is made in one line of at most 1000 visible characters";
        assert!(ran.code == 3 && ran.err.contains(said), "{}", ran.err);
    }
    let none = place.graph(&["edit", "other", "--store", "runs.db", "--by", "ann", "--why", "x", "--set", "top=2"]);
    assert!(none.code == 3 && none.err.contains("there is no run `other`"), "{}", none.err);
    let shown: Value = serde_json::from_str(&place.graph(&["show", "r", "--store", "runs.db", "--json"]).out).unwrap();
    assert!(shown["checkpoints"].as_array().unwrap().iter().all(|one| one["edits"] == json!([])), "{shown}");
}

#[test]
fn the_table_of_steps_shows_edits_where_they_were_made() {
    let place = with_run(&[]);
    assert_eq!(place.edit(&["--set", r#"verdict="other""#, "--write", "top=7"]).code, 0);
    assert_eq!(place.resume().code, 1);
    assert_eq!(place.edit(&["--set", r#"verdict="few""#]).code, 0);
    let table = || place.graph(&["show", "r", "--store", "runs.db"]).out;
    let shown = table();
    let rows: Vec<&str> = shown.lines().skip(2).collect();
    let ends = [
        "pick",
        "route",
        "route (error: the run cannot end here: expected an end at one of the graph's exits, not at",
        "route",
    ];
    for (row, end) in rows.iter().zip(ends) {
        assert!(row.contains(end), "{shown}");
    }
    assert!(!rows[1].contains("error") && rows[2].contains("(edited by ann: a test)"), "{shown}");
    assert!(rows[3].contains("verdict") && rows[3].ends_with("route"), "{shown}");
    assert_eq!(place.resume().code, 0);
    let shown = table();
    assert!(!shown.contains("error") && shown.lines().count() == 8, "{shown}");
    let state: Value =
        serde_json::from_str(&place.graph(&["show", "r", "--store", "runs.db", "--step", "1", "--json"]).out).unwrap();
    assert_eq!(state["state"], json!({"inputs": {"number": 1}, "verdict": "few", "top": 7}));
}

#[test]
fn the_files_of_a_run_follow_an_edit() {
    let place = with_run(&["--files"]);
    let differs = |code| {
        let verified = place.graph(&["files", "verify", "r", "--store", "runs.db"]);
        assert_eq!(verified.code, code, "{}{}", verified.out, verified.err);
    };
    differs(0);
    assert_eq!(place.edit(&["--set", "top=3", "--files", "."]).code, 0);
    differs(0);
    let shown = place.graph(&["show", "r", "--files", ".", "--step", "1"]);
    assert!(shown.out.contains("\"top\": 3"), "{}{}", shown.out, shown.err);
    assert_eq!(place.edit(&["--set", "top=4"]).code, 0);
    differs(1);
    assert_eq!(place.run(&["--store", "runs.db", "--resume", "r", "--max-steps", "9", "--files"]).code, 0);
    differs(0);
}
