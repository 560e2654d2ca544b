//! How fast the page is: the first paint, opening a long run, scrolling through it, and how far it is behind a run in progress.
//!
//! `STEPS=100000 cargo test --release -p state-graph-viewer --test viewer figures -- --nocapture` measures what `docs/benchmarks.md` has, and
//! holds it to its aims. Without `STEPS`, the run is short, and only what would make the page useless fails.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use graph_runtime::{Durability, Map, Options, RunId, Value};
use serde_json::json;

use crate::place::{Everything, Place, Served, tokio};
use crate::webdriver::Browser;

/// A loop that calls a tool until nothing is left.
const TALLY: &str = "config:\n  start: tick\n  max_steps: 4294967295\n  nodes:\n    tick: { action: { item_id: t/tick }, assign: { left: '${result.left}' }, next: [{ to: done, when: { \
                     path: state.left, op: lte, value: 0 } }, { to: tick }] }\n    done: { type: return }\n";

const TICK: &str = "version: \"1.0.0\"\ntool_type: rust\nresult_schema: { type: object, properties: { left: { type: integer } }, required: [left] }\n";

/// How many steps the long run has, and whether the figures are held to their aims.
fn steps() -> (i64, bool) {
    let steps = std::env::var("STEPS").ok().map(|steps| steps.parse().unwrap());
    (steps.unwrap_or(10_000), steps.is_some() && !cfg!(debug_assertions))
}

/// A place with a run of so many steps.
fn long(steps: i64) -> Place {
    let place = Place::new();
    place.sign("tools/t/tick.yaml", TICK);
    place.graph("tally", TALLY);
    tokio().block_on(async {
        let left = AtomicI64::new(steps - 1);
        let graph = place.load(
            "tally",
            Everything(move |_: &_, _: &_, _| Ok(json!({"left": left.fetch_sub(1, Ordering::Relaxed) - 1}))),
        );
        let runtime = place.runtime(place.store().await);
        let options =
            Options { run: Some(RunId::new("long").unwrap()), durability: Durability::Exit, ..Options::default() };
        runtime.start_with(options, graph, Map::new()).await.unwrap().await.unwrap();
    });
    place
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("this is no number: {value}"))
}

/// Returns the value below which so much of a list is.
fn quantile(values: &mut [f64], part: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a place in a short list"
    )]
    let at = ((values.len() as f64 - 1.0) * part).round() as usize;
    values[at]
}

/// Opens the page as for the first time, and returns when it was painted first.
fn first_paint(browser: &Browser, viewer: &Served) -> f64 {
    browser.open("about:blank");
    browser.open(&viewer.url);
    browser.sees("table.runs", "long");
    let script =
        "return performance.getEntriesByType('paint').find((one) => one.name === 'first-contentful-paint').startTime";
    number(&browser.run(script))
}

/// Opens the long run from the list, and returns how long it takes until rows and the last counts are there.
const OPEN: &str = "return new Promise((done) => {
    const began = performance.now();
    const look = () => {
      const rows = [...document.querySelectorAll('.rows .row:not([hidden]) .node')].filter((one) => one.innerText);
      if (rows.length > 5 && document.getElementById('steps')) done(performance.now() - began);
      else requestAnimationFrame(look);
    };
    location.hash = '#/run/long';
    look();
  })";

/// Scrolls through 10,000 rows in steps of two thirds of what is seen, one a frame, and returns the lengths of the frames, the
/// greatest number of rows in the page, and how often a row was still empty.
const SCROLL: &str = "return new Promise((done) => {
    const list = document.querySelector('.scroll');
    const frames = [];
    let [last, most, empty, looks] = [performance.now(), 0, 0, 0];
    const step = (now) => {
      frames.push(now - last);
      last = now;
      const rows = document.querySelectorAll('.rows .row');
      most = Math.max(most, rows.length);
      const box = list.getBoundingClientRect();
      const seen = document.elementFromPoint(box.left + 150, box.top + box.height / 2)?.closest('.row');
      looks += 1;
      if (!seen || !seen.querySelector('.node')) empty += 1;
      if (list.scrollTop >= 10000 * 30 || list.scrollTop + list.clientHeight >= list.scrollHeight - 2) {
        done({ frames: frames.slice(2), most, empty, looks });
        return;
      }
      list.scrollTop += list.clientHeight * 2 / 3;
      requestAnimationFrame(step);
    };
    list.scrollIntoView({ block: 'center' });
    list.scrollTop = 0;
    requestAnimationFrame(step);
  })";

#[test]
fn a_long_run_opens_at_once_and_scrolls_smoothly() {
    let profile = tempfile::tempdir().unwrap();
    let Some(browser) = Browser::start(profile.path()) else { return };
    let (steps, is_held) = steps();
    let place = long(steps);
    let viewer = place.viewer();
    let mut paints: Vec<f64> = (0..7).map(|_| first_paint(&browser, &viewer)).collect();
    let paint = quantile(&mut paints, 0.5);
    // A viewer that was just started knows nothing of the run.
    let mut opened: Vec<f64> = (0..5)
        .map(|_| {
            let viewer = place.viewer();
            first_paint(&browser, &viewer);
            number(&browser.run(OPEN))
        })
        .collect();
    let open = quantile(&mut opened, 0.5);
    let began = Instant::now();
    let viewer = place.viewer();
    assert_eq!(viewer.api("run/long")["steps"], steps);
    let served = began.elapsed();
    first_paint(&browser, &viewer);
    browser.run(OPEN);
    // The drawing comes later, and moves the timeline.
    browser.sees(".drawn", "tick");
    let scrolled = browser.run(SCROLL);
    let mut frames: Vec<f64> = scrolled["frames"].as_array().unwrap().iter().map(number).collect();
    let (middle, most) = (quantile(&mut frames, 0.5), quantile(&mut frames, 0.99));
    let began = Instant::now();
    let state = viewer.api(&format!("run/long/state?step={steps}"));
    let state_took = began.elapsed();
    assert_eq!(state["state"]["left"], 0);
    println!("a run of {steps} steps:");
    println!("  first paint of the page: {paint:.0} ms (the slowest of 7: {:.0} ms)", paints[6]);
    println!("  opened by a viewer that was just started: {open:.0} ms (the slowest of 5: {:.0} ms)", opened[4]);
    println!("  read and verified by the viewer: {served:.0?}; its last state with differences: {state_took:.0?}");
    println!(
        "  scrolled through 10,000 rows: {} frames, the middle one {middle:.1} ms, 99 % within {most:.1} ms; {} of {} looks saw an empty row; at most {} rows in the page",
        frames.len(),
        scrolled["empty"],
        scrolled["looks"],
        scrolled["most"]
    );
    assert!(scrolled["most"].as_u64().unwrap() < 150, "{}", scrolled["most"]);
    let [empty, looks] = ["empty", "looks"].map(|name| number(&scrolled[name]));
    assert!(empty <= looks / 4.0, "rows are there when they are seen: {empty} of {looks} are not");
    let slack = if is_held { 1.0 } else { 10.0 };
    assert!(paint <= 300.0 * slack && open <= 1000.0 * slack && middle <= 20.0 * slack && most <= 50.0 * slack);
}

/// Watches the rows for some time, and returns how long after its record each new row was in the page.
const WATCH: &str = "return new Promise((done) => {
    const known = new Set([...document.querySelectorAll('.rows .row .at')].map((one) => one.title + one.parentNode.dataset.at));
    const late = [];
    const look = () => {
      for (const one of document.querySelectorAll('.rows .row:not([hidden]) .at')) {
        const id = one.title + one.parentNode.dataset.at;
        if (known.has(id) || !one.title) continue;
        known.add(id);
        late.push(Date.now() - Date.parse(one.title));
      }
    };
    const watching = new MutationObserver(look);
    watching.observe(document.querySelector('.rows'), { childList: true, subtree: true, characterData: true });
    setTimeout(() => { watching.disconnect(); done(late); }, arguments[0] ?? 6000);
  })";

#[test]
fn the_page_is_close_behind_a_run_in_progress() {
    let profile = tempfile::tempdir().unwrap();
    let Some(browser) = Browser::start(profile.path()) else { return };
    let (_, is_held) = steps();
    let place = Place::new();
    place.sign("tools/t/tick.yaml", TICK);
    place.graph("tally", TALLY);
    let runs = tokio();
    let graph = place.load(
        "tally",
        Everything(|_: &_, _: &_, _| {
            std::thread::sleep(Duration::from_millis(170));
            Ok(json!({"left": 1}))
        }),
    );
    let runtime = runs.block_on(async {
        let runtime = place.runtime(place.store().await);
        let options = Options { run: Some(RunId::new("long").unwrap()), ..Options::default() };
        let begun = runtime.start_with(options, graph, Map::new()).await.unwrap();
        tokio::spawn(async move { drop(begun.await) });
        runtime
    });
    let viewer = place.viewer();
    browser.open(&format!("{}#/run/long", viewer.url));
    browser.sees("h1", "live");
    let late = browser.run(WATCH);
    let mut late: Vec<f64> = late.as_array().unwrap().iter().map(number).collect();
    assert!(late.len() > 10, "{late:?}");
    let (middle, most) = (quantile(&mut late, 0.5), quantile(&mut late, 0.95));
    println!(
        "rows of a run in progress are in the page {middle:.0} ms after their records, 95 % within {most:.0} ms ({} rows)",
        late.len()
    );
    browser.picture("live");
    runs.block_on(runtime.shutdown(Duration::from_secs(1)));
    let slack = if is_held { 1.0 } else { 10.0 };
    assert!(middle <= 200.0 * slack && most <= 300.0 * slack, "{late:?}");
}
