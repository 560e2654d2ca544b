//! `graph schedules`, and the schedules of `graph work`, as their user sees them.

use serde_json::{Value, json};

use crate::place::{Place, Ran};

/// A graph that ends with the tick and the region of its run.
const REPORT: &str = "permissions: [rye.execute.tool.rye.bash]
config_schema:
  type: object
  properties:
    at: { type: string }
    region: { type: string, enum: [eu, us] }
  required: [at, region]
config:
  start: done
  nodes:
    done: { type: return, output: { at: \"${inputs.at}\", region: \"${inputs.region}\" } }
";

const SCHEDULES: &str = "[schedules.nightly]
graph = \"test/report\"
cron = \"30 2 * * *\"
zone = \"Europe/Berlin\"
overlap = \"queue\"
catch_up = { all = 7 }
tick = \"at\"
inputs = { region = \"eu\" }

[schedules.often]
graph = \"test/report\"
cron = \"*/10 * * * *\"
zone = \"UTC\"
tick = \"at\"

[schedules.often.inputs]
region = \"us\"
";

impl Place {
    fn with_schedules(text: &str) -> Self {
        let place = Self::with_key();
        place.sign("graphs/test/report.yaml", REPORT);
        place.schedules(text);
        place
    }

    /// Signs `graphs/graphs.toml`.
    fn schedules(&self, text: &str) {
        self.write("graphs/graphs.toml", text);
        let signed = self.graph(&["sign", "graphs/graphs.toml"]);
        assert_eq!(signed.code, 0, "{}", signed.err);
    }

    fn listed(&self, arguments: &[&str]) -> Value {
        let Ran { code, out, err } = self.graph(&[&["schedules", "--json"], arguments].concat());
        assert_eq!((code, err.as_str()), (0, ""), "{out}");
        serde_json::from_str(&out).unwrap()
    }
}

#[test]
fn the_schedules_of_a_tree_are_listed() {
    let place = Place::with_schedules(SCHEDULES);
    let listed = place.listed(&["--next", "3"]);
    assert_eq!(listed["count"], 2);
    let nightly = &listed["schedules"][0];
    let next = nightly["next"].as_array().unwrap();
    assert_eq!(next.len(), 3);
    assert!(next.iter().all(|tick| matches!(&tick.as_str().unwrap()[10..], "T00:30:00Z" | "T01:30:00Z")), "{next:?}");
    let mut fixed = nightly.clone();
    fixed["next"] = json!([]);
    assert_eq!(
        fixed,
        json!({
            "id": "nightly", "graph": "test/report", "cron": "30 2 * * *", "zone": "Europe/Berlin", "overlap": "queue",
            "catch_up": "all(7)", "next": [], "last": null, "queued": null, "started": null, "skipped": null,
            "current": null,
        }),
    );
    let shown = place.graph(&["schedules"]);
    assert_eq!((shown.code, shown.err.as_str()), (0, ""));
    let lines: Vec<&str> = shown.out.lines().collect();
    assert_eq!(lines[0], "schedule  graph        cron          zone           next                       last  run");
    assert!(lines[1].starts_with("nightly   test/report  30 2 * * *    Europe/Berlin  20"), "{}", lines[1]);
    assert!(lines[1].contains("T02:30:00+0"), "{}", lines[1]);
    assert!(lines[2].starts_with("often     test/report  */10 * * * *  UTC            20"), "{}", lines[2]);
    let missing = place.graph(&["schedules", "nowhere"]);
    assert_eq!((missing.code, missing.err.as_str()), (3, "error: there is no directory `nowhere`\n"));
    let none = Place::with_key();
    none.sign("graphs/test/report.yaml", REPORT);
    assert_eq!(none.listed(&[])["schedules"], json!([]));
}

#[test]
fn a_worker_starts_the_runs_of_schedules() {
    let place = Place::with_schedules(SCHEDULES);
    let work = || place.graph(&["work", "test/report", "--store", "runs.db", "--until-idle"]);
    // At first, the worker notes the schedules.
    let first = work();
    assert_eq!((first.code, first.out.as_str()), (0, ""), "{}", first.err);
    assert!(
        first.err.contains("schedule `often` starts runs of `test/report` at `*/10 * * * *` in UTC"),
        "{}",
        first.err
    );
    let listed = place.listed(&["--store", "runs.db"]);
    assert_eq!((&listed["schedules"][1]["started"], &listed["schedules"][1]["current"]), (&json!(0), &json!(true)));
    // The last tick that was handled is an hour ago.
    let store = rusqlite::Connection::open(place.path("runs.db")).unwrap();
    let earlier = "UPDATE schedules SET mark = json_set(mark, '$.last', json_extract(mark, '$.last') - 3600000)
        WHERE id = 'often'";
    assert_eq!(store.execute(earlier, []).unwrap(), 1);
    drop(store);
    let second = work();
    assert_eq!(second.code, 0, "{}", second.err);
    let listed = place.listed(&["--store", "runs.db"]);
    let often = &listed["schedules"][1];
    assert_eq!((&often["started"], &often["last"]["status"]), (&json!(1), &json!("completed")), "{often}");
    assert!(often["skipped"].as_u64().unwrap() >= 4, "{often}");
    let run = often["last"]["run_id"].as_str().unwrap();
    let tick = often["last"]["tick"].as_str().unwrap();
    assert_eq!(run, format!("often-{}", tick.replace(['-', ':'], "")));
    let shown = place.graph(&["show", run, "--store", "runs.db"]);
    assert!(shown.code == 0 && place.graph(&["verify-run", run, "--store", "runs.db"]).code == 0, "{}", shown.err);
    let ran = place.graph(&["runs", "--store", "runs.db"]);
    assert!(ran.out.contains(run), "{}", ran.out);
    let human = place.graph(&["schedules", "--store", "runs.db"]).out;
    assert!(human.contains(&format!("{run} (completed)")), "{human}");
    // Nothing starts the run again, also after it was removed.
    let removed = place.graph(&["gc", "--store", "runs.db", "--older-than", "0"]);
    assert_eq!(removed.code, 0, "{}", removed.err);
    let third = work();
    assert_eq!(third.code, 0, "{}", third.err);
    assert_eq!(place.listed(&["--store", "runs.db"])["schedules"][1]["last"]["status"], Value::Null);
}

#[test]
fn a_worker_without_schedules_starts_nothing() {
    let place = Place::with_schedules(SCHEDULES);
    let ran = place.graph(&["work", "test/report", "--store", "runs.db", "--until-idle", "--no-schedules"]);
    assert_eq!((ran.code, ran.err.as_str()), (3, "error: there is no store at runs.db\n"));
}

#[test]
fn bad_schedules_are_refused_at_their_places() {
    let place = Place::with_schedules(SCHEDULES);
    let whole = "[schedules.a]\ngraph = \"test/report\"\ncron = \"0 2 * * *\"\nzone = \"UTC\"\ntick = \"at\"\ninputs = { region = \"eu\" }\n";
    assert_eq!(
        {
            place.schedules(whole);
            place.graph(&["schedules"]).code
        },
        0
    );
    let with = |from: &str, to: &str| {
        assert!(whole.contains(from), "{from}");
        whole.replace(from, to)
    };
    // The signature is the first line.
    for (text, place_of, message) in [
        (with("cron", "cronn"), "4:1", "a schedule has no field `cronn`"),
        (with("cron = \"0 2 * * *\"\n", ""), "2:12", "schedule `a` has no field `cron`"),
        (with("0 2 * * *", "0 25 * * *"), "4:8", "`0 25 * * *` is not a cron expression: "),
        (with("0 2 * * *", "0 0 2 * * *"), "4:8", "a cron expression has five fields"),
        (with("0 2 * * *", "0 2 31 2 *"), "4:8", "no time ever matches the cron expression `0 2 31 2 *`"),
        (with("\"0 2 * * *\"", "2"), "4:8", "`cron` is a text, not a number"),
        (with("UTC", "Europe/Belin"), "5:8", "there is no time zone `Europe/Belin`"),
        (with("zone = \"UTC\"\n", ""), "2:12", "schedule `a` has no field `zone`"),
        (with("test/report", "test/raport"), "3:9", "schedule `a` has a graph that does not exist, `test/raport`"),
        (with("test/report", "test//report"), "3:9", "a graph id cannot have an empty segment"),
        (with("schedules.a", "schedules.\"a b\""), "2:12", "a schedule id cannot contain ' '"),
        (with("region = \"eu\"", "region = \"mars\""), "7:10", "schedule `a` cannot be run: "),
        (with("region = \"eu\"", ""), "7:10", "schedule `a` cannot be run: "),
        (
            with("region = \"eu\"", "region = \"eu\", at = 1"),
            "6:8",
            "the input `at` is to be the tick, and has a value",
        ),
        (with("tick = \"at\"", "tick = \"when\""), "7:10", "the graph `test/report` has no input `when`"),
        (
            with("region = \"eu\"", "region = \"eu\", regoin = \"x\""),
            "7:10",
            "the graph `test/report` has no input `regoin`",
        ),
        (with("{ region = \"eu\" }", "[]"), "7:10", "`inputs` is a table, not a list"),
        (format!("{whole}overlap = \"skipp\"\n"), "8:11", "`overlap` is `skip`, `queue` or `cancel`, not `skipp`"),
        (
            format!("{whole}catch_up = \"all\"\n"),
            "8:12",
            "`catch_up` is `\"none\"`, `\"last\"` or `{ all = N }`, not `\"all\"`",
        ),
        (
            format!("{whole}catch_up = {{ all = 0 }}\n"),
            "8:12",
            "`catch_up` is `\"none\"`, `\"last\"` or `{ all = N }`, where `N`",
        ),
        (
            format!("{whole}catch_up = {{ all = 5000 }}\n"),
            "8:12",
            "`catch_up` is `\"none\"`, `\"last\"` or `{ all = N }`, where `N`",
        ),
        (
            format!("{whole}catch_up = {{ all = 2 }}\noverlap = \"cancel\"\n"),
            "8:12",
            "each of the ticks that it catches up would cancel the run of the one before",
        ),
        (format!("{whole}{whole}"), "8:12", "`graphs/graphs.toml` is not TOML: duplicate key"),
        ("schedules = 1\n".to_owned(), "2:13", "`schedules` is a table, not a number"),
        ("[schedules]\na = 1\n".to_owned(), "3:5", "a schedule is a table, not a number"),
    ] {
        place.schedules(&text);
        let ran = place.graph(&["schedules"]);
        assert_eq!((ran.code, ran.out.as_str()), (1, ""), "{text}");
        let lines: Vec<&str> = ran.err.lines().collect();
        assert!(lines[0].starts_with(&format!("error[G0017]: {message}")), "{text}\n{}", ran.err);
        assert_eq!(lines[1].trim_start(), format!("--> graphs/graphs.toml:{place_of}"), "{text}\n{}", ran.err);
        let work = place.graph(&["work", "test/report", "--store", "runs.db", "--until-idle"]);
        assert_eq!(work.code, 1, "{text}\n{}", work.err);
        assert!(!place.path("runs.db").exists());
    }
    // Nobody signed it, or it was altered since.
    place.schedules(whole);
    place.write("graphs/graphs.toml", whole);
    let ran = place.graph(&["schedules"]);
    assert!(ran.code == 1 && ran.err.starts_with("error[G0010]: `graphs/graphs.toml` is not signed\n"), "{}", ran.err);
    place.schedules(whole);
    let altered = place.read("graphs/graphs.toml").replace("0 2", "0 3");
    place.write("graphs/graphs.toml", &altered);
    let ran = place.graph(&["schedules"]);
    assert!(ran.code == 1 && ran.err.starts_with("error[G0011]: "), "{}", ran.err);
    // Only the tree's own file has schedules.
    place.schedules("[lints]\n");
    place.write("graphs/test/graphs.toml", whole);
    assert_eq!(place.graph(&["sign", "graphs/test/graphs.toml"]).code, 0);
    let checked = place.graph(&["check", "graphs/test/report.yaml"]);
    assert!(
        checked.code == 1 && checked.err.starts_with("error[G0017]: the file cannot have schedules\n"),
        "{}",
        checked.err
    );
}
