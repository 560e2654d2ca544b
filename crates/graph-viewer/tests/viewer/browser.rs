//! The page in Chromium: nothing that a run contains is executed, all of it is shown, and what people do with it works.

use std::time::{Duration, Instant};

use graph_runtime::history::{EditRun as _, StateEdit};
use graph_runtime::{ActionError, Map, RunId, Value};
use serde_json::json;

use crate::place::{Everything, Place, Served, tokio};
use crate::shown::rich;
use crate::webdriver::Browser;

/// Texts that do harm where they are read as HTML, as an address, as a style, as a template or as code. Each sets `canary` then.
const HOSTILE: &[&str] = &[
    "<script>canary=1</script>",
    "<img src=x onerror=canary=1>",
    "<svg onload=canary=1>",
    "<svg><script>canary=1</script></svg>",
    "\"><script>canary=1</script>",
    "'><img src=x onerror=canary=1>",
    "</title><script>canary=1</script>",
    "</style><script>canary=1</script>",
    "</script><script>canary=1</script>",
    "</textarea><script>canary=1</script>",
    "--><script>canary=1</script>",
    "]]><script>canary=1</script>",
    "<!--<img src=x onerror=canary=1>-->",
    "<![CDATA[<script>canary=1</script>]]>",
    "<?xml version=\"1.0\"?><x/>",
    "<!DOCTYPE html><script>canary=1</script>",
    "javascript:canary=1",
    "JaVaScRiPt:canary=1",
    "java\tscript:canary=1",
    "data:text/html,<script>canary=1</script>",
    "vbscript:canary=1",
    "<a href=\"javascript:canary=1\">x</a>",
    "<iframe src=\"javascript:canary=1\"></iframe>",
    "<iframe srcdoc=\"<script>parent.canary=1</script>\"></iframe>",
    "<object data=\"javascript:canary=1\"></object>",
    "<embed src=\"javascript:canary=1\">",
    "<base href=\"http://evil.example/\">",
    "<link rel=stylesheet href=//evil.example>",
    "<meta http-equiv=refresh content=\"0;url=javascript:canary=1\">",
    "<form action=\"javascript:canary=1\"><input type=submit>",
    "<button onclick=canary=1>x</button>",
    "<input autofocus onfocus=canary=1>",
    "<select autofocus onfocus=canary=1>",
    "<textarea autofocus onfocus=canary=1>",
    "<details open ontoggle=canary=1>",
    "<video><source onerror=canary=1>",
    "<audio src onerror=canary=1>",
    "<body onload=canary=1>",
    "<marquee onstart=canary=1>",
    "<style>@import '//evil.example'</style>",
    "<style>*{background:url(javascript:canary=1)}</style>",
    "<div style=\"background:url(javascript:canary=1)\">",
    "<math><mtext><script>canary=1</script></mtext></math>",
    "<template><script>canary=1</script></template>",
    "<noscript><p title=\"</noscript><img src=x onerror=canary=1>\">",
    "<x onclick=canary=1>x</x>",
    "<svg><animate onbegin=canary=1 attributeName=x>",
    "<svg><a xlink:href=\"javascript:canary=1\"><text>x</text></a></svg>",
    "<svg><use href=\"data:image/svg+xml,<svg onload=canary=1>\"/>",
    "<svg><foreignObject><script>canary=1</script></foreignObject></svg>",
    "<svg><set attributeName=onmouseover to=canary=1>",
    "<svg><style>*{fill:red}</style>",
    "&lt;script&gt;canary=1&lt;/script&gt;",
    "&#60;script&#62;canary=1&#60;/script&#62;",
    "&#x3c;script&#x3e;canary=1",
    "%3Cscript%3Ecanary=1%3C/script%3E",
    "\\u003cscript\\u003ecanary=1",
    "\\x3cscript\\x3ecanary=1",
    "${canary=1}",
    "`${canary=1}`",
    "{{canary=1}}",
    "{{constructor.constructor('canary=1')()}}",
    "#{canary=1}",
    "<%= canary=1 %>",
    "'-(canary=1)-'",
    "\"-(canary=1)-\"",
    "';canary=1;//",
    "\";canary=1;//",
    "*/canary=1/*",
    "__proto__",
    "constructor",
    "prototype",
    "toString",
    "hasOwnProperty",
    "innerHTML",
    "onerror",
    "undefined",
    "null",
    "NaN",
    "[object Object]",
    "true",
    "0",
    "-1",
    "1e309",
    "#/run/x?tab=proof",
    "//evil.example/x",
    "http://evil.example/",
    "../../etc/passwd",
    "..%2f..%2f",
    "file:///etc/passwd",
    "blob:null/x",
    "a\nb\r\nc",
    "\u{202e}txt.exe",
    "\u{200b}hidden\u{feff}",
    "\u{0}\u{1}\u{1b}[31mred",
    "🏴\u{e0067}\u{e007f}",
    "𝕳𝖔𝖘𝖙",
    "ﷺ",
    "e\u{301}\u{301}\u{301}\u{301}",
    "<\u{0}script>canary=1</script>",
    "<scr<script>ipt>canary=1</script>",
    "\u{ff1c}script\u{ff1e}canary=1",
    "<ſcript>canary=1</ſcript>",
];

/// Returns texts that do harm, and some that are very long.
pub(crate) fn hostile() -> Vec<String> {
    let long = ["<b>".repeat(2_000), "x".repeat(5_000)];
    HOSTILE.iter().map(|text| (*text).to_owned()).chain(long).collect()
}

fn path_of(viewer: &Served, hash: &str) -> String {
    format!("{}{hash}", viewer.url)
}

/// Waits until a script returns true.
fn until(browser: &Browser, what: &str, script: &str) {
    let began = Instant::now();
    while browser.run(script) != Value::Bool(true) {
        assert!(began.elapsed() < Duration::from_secs(30), "{what}: {}", browser.run("return document.body.innerText"));
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Opens everything that can be opened, and chooses each row in turn.
const OPEN_ALL: &str = "
    const wait = (ms) => new Promise((done) => setTimeout(done, ms));
    const openAll = async () => {
      for (let round = 0; round < 6; round += 1) {
        for (const one of document.querySelectorAll('details:not([open])')) one.open = true;
        for (const one of document.querySelectorAll('button.small')) one.click();
        await wait(30);
      }
    };
    let text = '';
    for (const tab of document.querySelectorAll('[role=tab]')) {
      tab.click();
      await wait(300);
      if (tab.id === 'tab-run') {
        const list = document.querySelector('.scroll');
        list.focus();
        for (let at = 0; at < Number(list.getAttribute('aria-setsize')); at += 1) {
          list.dispatchEvent(new KeyboardEvent('keydown', { key: at === 0 ? 'Home' : 'ArrowDown', bubbles: true }));
          for (let tries = 0; tries < 100 && /Computing|Choose a row/.test(document.querySelector('.detail').innerText); tries += 1) await wait(20);
          await openAll();
          text += document.body.innerText + [...document.querySelectorAll('svg text, svg title')].map((one) => one.textContent).join('\\n');
        }
      }
      if (tab.id === 'tab-proof') {
        for (const button of document.querySelectorAll('.proof button')) button.click();
        await wait(600);
      }
      await openAll();
      text += document.body.innerText;
    }
    for (const one of document.querySelectorAll('svg g[role=button], a, td, [title]')) {
      one.dispatchEvent(new MouseEvent('mouseover', { bubbles: true }));
      one.dispatchEvent(new MouseEvent('mousemove', { bubbles: true }));
    }
    window.seen = (window.seen ?? '') + text;
    return text.length;
";

/// Makes the run `hostile-1`: the texts are its inputs, values, names of fields and of nodes, and its failure.
fn run_hostile(place: &Place, texts: &[String]) {
    // Names of nodes are texts of any visible characters.
    let visible = |text: &&String| {
        text.len() < 100 && text.chars().all(|letter| (' '..='~').contains(&letter)) && !text.contains("${")
    };
    let names: Vec<&String> = texts.iter().filter(visible).filter(|text| text.contains('<')).take(12).collect();
    let mut nodes = String::new();
    for (at, name) in names.iter().enumerate() {
        let next = names.get(at + 1).map_or("end of it".to_owned(), |name| (*name).clone());
        nodes += &format!("    {}: {{ type: gate, next: {} }}\n", json!(name), json!(next));
    }
    let (description, first) = (json!(texts[0]), json!(names[0]));
    let graph = format!(
        "description: {description}
config_schema: {{ type: object, properties: {{ texts: {{ type: array, items: {{ type: string }} }} }}, required: [texts] }}
config:
  start: begin
  nodes:
    begin: {{ action: {{ item_id: t/echo, params: {{ texts: '${{inputs.texts}}' }} }}, assign: {{ kept: '${{result}}' }}, next: wrong }}
    wrong: {{ action: {{ item_id: t/fail }}, on_error: {first}, next: {first} }}
{nodes}    end of it: {{ type: return, output: '${{state.kept}}' }}
"
    );
    place.graph("hostile", &graph);
    let (all, failure) = (texts.to_vec(), texts.join("\n"));
    let tools = move |_: &_, row: &graph_compiler::graph::TypedTool, _| match row.id.as_str() {
        "t/fail" => Err(ActionError::permanent(failure.clone())),
        // As values, and as the names of fields.
        _ => Ok(json!({"list": all, "map": Map::from_iter(all.iter().map(|text| (text.clone(), json!(text))))})),
    };
    tokio().block_on(async {
        let runtime = place.runtime(place.store().await);
        let inputs = Map::from_iter([("texts".to_owned(), json!(texts))]);
        let graph = place.load("hostile", Everything(tools));
        runtime.start_as(RunId::new("hostile-1").unwrap(), graph, inputs).await.unwrap().await.unwrap();
    });
}

/// Writes the run `forged` into the store, as somebody can who can write to it: no record of it is signed.
fn forge(place: &Place, texts: &[String]) {
    let database = rusqlite::Connection::open(place.store_path()).unwrap();
    let run = "INSERT INTO runs (number, id, graph, status, token, holder, parent, created, updated, leased, stop)
               SELECT number + 1, 'forged', ?1, 'completed', token, '', NULL, created, updated, leased, 0
               FROM runs WHERE id = 'hostile-1'";
    database.execute(run, [&texts[1]]).unwrap();
    let number: i64 = database.query_row("SELECT number FROM runs WHERE id = 'forged'", [], |row| row.get(0)).unwrap();
    for (seq, kind) in ["start", "step", "calls", "take", "edit", "resume", "end"].into_iter().enumerate() {
        let evil = &texts[seq + 1];
        let visit = json!({
            "step": 1, "node": evil, "result": evil, "error": evil, "category": evil, "warnings": [evil], "edges": [0], "ms": 1,
            "changes": {evil: evil}, "run": "forged",
        });
        let signal =
            json!({"name": evil, "id": evil, "order": 1, "at": 0, "value": {"by": [{"owner": evil}]}, "receipt": evil});
        let body = json!({
            "v": 3, "run": "forged", "seq": seq, "prev": evil, "end": evil, "at": evil, "kind": kind, "visits": [visit],
            "next": [{"number": 2, "node": evil}], "done": [{"step": 1, "node": evil, "result": evil}],
            "taken": [{"step": 1, "at": 0, "signal": signal}], "graph": evil, "version": evil, "digest": "0".repeat(64),
            "signer": "0".repeat(16), "key": evil, "grants": [evil], "inputs": {evil: evil}, "steps": 1, "by": evil, "why": evil,
            "set": {evil: evil}, "status": "error", "error": evil, "output": evil, "code": evil,
        });
        let values = rusqlite::params![(number << 32) | i64::try_from(seq).unwrap(), body.to_string(), vec![0u8; 64]];
        database
            .execute("INSERT INTO records (key, body, signature, token) VALUES (?1, ?2, ?3, NULL)", values)
            .unwrap();
    }
}

/// Elements and attributes that only the texts could bring into the page.
const FOREIGN: &str = "return document.querySelectorAll('main script, main iframe, main object, main embed, main img, \
    main style, main base, main meta, main link, main video, main audio, main [onerror], main [onload], main [onclick], \
    main [style*=url], main [href^=\"javascript\" i], main math, main foreignObject, main marquee').length";

fn assert_nothing_was_executed(browser: &Browser, what: &str) {
    assert_eq!(browser.run("return typeof canary"), "undefined", "{what}: something was executed");
}

fn assert_is_shown(browser: &Browser, text: &str) {
    let script = format!(
        "return (async () => {{
           const {{ visible }} = await import('./dom.js');
           const shown = visible(JSON.stringify({text})).slice(0, 1500);
           const plain = (text) => text.replace(/\\s+/g, ' ');
           return seen.includes(shown) || plain(seen).includes(plain(shown));
         }})()",
        text = json!(text)
    );
    assert_eq!(browser.run(&script), true, "not shown as it is: {text:?}");
}

#[test]
fn no_text_of_a_run_is_executed_and_all_of_it_is_shown() {
    let profile = tempfile::tempdir().unwrap();
    let Some(browser) = Browser::start(profile.path()) else { return };
    let texts = hostile();
    assert!(texts.len() >= 100, "{}", texts.len());
    let place = Place::new();
    run_hostile(&place, &texts);
    forge(&place, &texts);
    let viewer = place.viewer();
    browser.open(&viewer.url);
    browser.sees("table.runs", "hostile-1");
    browser.sees("table.runs", &texts[1]);
    browser.picture("hostile-runs");
    for run in ["hostile-1", "forged"] {
        browser.open("about:blank");
        browser.open(&path_of(&viewer, &format!("#/run/{run}")));
        browser.sees("h1", run);
        until(&browser, "the rows", "return document.querySelectorAll('.rows .row .node').length > 3");
        assert!(browser.run(&format!("return (async () => {{ {OPEN_ALL} }})()")).as_u64().unwrap() > 1_000);
        browser.picture(&format!("hostile-{run}"));
        assert_nothing_was_executed(&browser, run);
        assert_eq!(browser.run(FOREIGN), 0, "{run}: elements of the texts are in the page");
        if run == "hostile-1" {
            texts.iter().for_each(|text| assert_is_shown(&browser, text));
        } else {
            // It is refused, and shown as far as it can be read.
            browser.sees("main .problem", "proves nothing");
            let shown = browser.run("return seen").as_str().unwrap_or_default().to_owned();
            for text in &texts[1..7] {
                assert!(shown.contains(text), "{text}");
            }
        }
    }
    browser.open(&path_of(&viewer, "#/compare/hostile-1/forged"));
    browser.sees("h1", "compared");
    assert_nothing_was_executed(&browser, "two runs compared");
    browser.open(&path_of(&viewer, "#/run/%3Cimg%20src=x%20onerror=canary=1%3E"));
    browser.sees("#problem", "there is no run of that id");
    assert_nothing_was_executed(&browser, "a run that is not there");
    let refused: Vec<String> =
        browser.log().into_iter().filter(|line| line.contains("Content Security Policy")).collect();
    assert!(refused.is_empty(), "the policy had to stop something: {refused:#?}");
}

#[test]
fn a_person_finds_a_run_reads_it_answers_and_proves_it() {
    let profile = tempfile::tempdir().unwrap();
    let Some(browser) = Browser::start(profile.path()) else { return };
    let place = rich();
    let viewer = place.answering_viewer();
    browser.open(&viewer.url);
    browser.sees("table.runs", "rich-1");
    browser.sees(".inbox", "1 open question");
    browser.write("input[name=run]", "rich-1\n");
    until(&browser, "one run", "return document.querySelectorAll('table.runs tbody tr').length === 2");
    browser.picture("runs");
    browser.click("table.runs tbody tr:last-child a.run");
    browser.sees("h1", "rich-1");
    browser.sees(".drawn", "measure");
    until(&browser, "a fired edge", "return document.querySelectorAll('.drawn .arrow.fired').length > 3");
    browser.click(".rows .row[data-at='2']");
    browser.sees(".detail", "State after step");
    browser.picture("run");
    // The keyboard does what the mouse does.
    browser.run("document.querySelector('.scroll').focus()");
    browser.write(".scroll", "\u{E015}");
    until(&browser, "the next row", "return document.querySelector('.row.chosen')?.dataset.at === '3'");
    assert_eq!(browser.run("return document.activeElement.getAttribute('aria-activedescendant')"), "row-3");
    // A node of the drawing chooses its rows.
    browser.run("document.querySelectorAll('.drawn g[role=button]')[1].dispatchEvent(new KeyboardEvent('keydown', { key: 'Enter', bubbles: true }))");
    browser.sees(".tools", "only measure");
    until(
        &browser,
        "its rows",
        "return [...document.querySelectorAll('.rows .row:not([hidden]) .node')].every((one) => one.innerText.includes('measure'))",
    );
    browser.click(".tools button.chip");
    browser.click("#tab-proof");
    browser.click(".proof section:nth-child(1) button:nth-of-type(2)");
    browser.sees(".proof section:nth-child(1) .verdict", "The chain and the last signature are good.");
    browser.click(".proof section:nth-child(2) button");
    browser.sees(".proof section:nth-child(2) .verdict", "did what their graphs say");
    browser.picture("proof");
    browser.click("#tab-begin");
    browser.sees("#panel-begin", "coffee");
    browser.click("#tab-nested");
    browser.sees("#panel-nested", "inner");
    browser.sees(".question", "Options: good bad");
    browser.run("document.querySelector('.answer select').value = 'bad'");
    browser.click(".answer button");
    browser.sees(".answer", "Sent. The run continues when a worker notices.");
    let wait = viewer.api("run/rich-1/questions")["open"][0]["wait"].as_str().unwrap().to_owned();
    assert_eq!(viewer.answer("rich-1", &wait, &json!("bad")).json()["result"], "already");
    assert!(browser.text("#rights").contains("answers are signed"));
    assert_eq!(browser.log(), Vec::<String>::new());
}

#[test]
fn a_changed_record_is_named_by_the_page() {
    let profile = tempfile::tempdir().unwrap();
    let Some(browser) = Browser::start(profile.path()) else { return };
    let place = rich();
    let database = rusqlite::Connection::open(place.store_path()).unwrap();
    let sql = "UPDATE records SET body = replace(body, 'coffee', 'cofffe') WHERE (key & 4294967295) = 0 AND body LIKE '%coffee%'";
    assert_eq!(database.execute(sql, []).unwrap(), 1);
    drop(database);
    let viewer = place.viewer();
    browser.open(&path_of(&viewer, "#/run/rich-1?tab=proof"));
    browser.sees("main .problem", "record 0 of its journal is not signed by");
    browser.click(".proof button");
    browser.sees(".verdict.bad", "record 0 of its journal is not signed by");
    browser.click(".proof section:nth-child(2) button");
    browser.sees(".proof section:nth-child(2) .verdict.bad", "record 0 of its journal is not signed by");
    browser.picture("forged");
}

#[test]
fn an_edit_shows_who_made_it_and_why() {
    let profile = tempfile::tempdir().unwrap();
    let Some(browser) = Browser::start(profile.path()) else { return };
    let place = Place::new();
    place.graph("fails", "config:\n  state: { note: none }\n  start: a\n  nodes:\n    a: { action: { item_id: t/fail }, next: b }\n    b: { type: return, output: '${state.note}' }\n");
    tokio().block_on(async {
        let graph = || place.load("fails", Everything(|_: &_, _: &_, _| Err(ActionError::permanent("no"))));
        let runtime = place.runtime(place.store().await);
        let run = RunId::new("edited").unwrap();
        runtime.start_as(run.clone(), graph(), Map::new()).await.unwrap().await.unwrap_err();
        let edit = StateEdit {
            by: "Ann <ann@example.org>".to_owned(),
            why: "<img src=x onerror=canary=1>".to_owned(),
            set: Map::from_iter([("note".to_owned(), json!("by hand"))]),
            ..StateEdit::default()
        };
        runtime.edit(&graph(), &run, edit).await.unwrap();
    });
    let viewer = place.viewer();
    browser.open(&path_of(&viewer, "#/run/edited"));
    browser.sees(".rows", "Ann <ann@example.org>: <img src=x onerror=canary=1>");
    browser.click(".rows .row:last-child");
    assert_eq!(browser.run("return typeof canary"), "undefined");
}
