//! The viewer without a terminal: any events, any keys, any size.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use graph_model::name::RunId;
use graph_runtime::events::RunEvent;
use proptest::prelude::*;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::Color;
use serde_json::{Value, json};
use unicode_width::UnicodeWidthStr;

use super::model::{GraphNode, GraphNodes, KeyChange, NodeStatus, RunModel};
use super::screen::{FollowState, KeyReaction, Pane, Screen};
use super::view::{Theme, draw};

/// Returns an event of the run `order-17`, of a second for each record.
fn event(record: u64, kind: &str, content: Value) -> RunEvent {
    let (minute, second) = (record / 60 % 60, record % 60);
    let mut event = json!({
        "run": "order-17", "root": "order-17", "graph": "shop/fulfil", "event": kind,
        "at": format!("2026-11-21T20:{minute:02}:{second:02}.000Z"), "cursor": format!("order-17@{record}.0"),
    });
    event.as_object_mut().unwrap().extend(content.as_object().unwrap().clone());
    serde_json::from_value(event).unwrap()
}

fn visited(record: u64, step: u64, node: &str, more: Value) -> RunEvent {
    let mut visit = json!({"step": step, "node": node});
    visit.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    event(record, "visited", json!({"node": node, "visit": visit}))
}

fn graph() -> GraphNodes {
    let node = |name: &str, kind, to: &[&str]| GraphNode {
        name: name.to_owned(),
        kind,
        edges: to.iter().map(|to| (Some((*to).to_owned()), None)).collect(),
    };
    GraphNodes {
        start: vec!["reserve".to_owned()],
        entries: BTreeMap::new(),
        nodes: vec![
            node("reserve", "action", &["charge"]),
            node("charge", "action", &["approve", "ship"]),
            node("approve", "interrupt", &["ship"]),
            node("ship", "action", &["done"]),
            node("done", "return", &[]),
        ],
        channels: BTreeSet::from(["log".to_owned()]),
    }
}

/// A run that waits, with something of everything.
fn waiting() -> Vec<RunEvent> {
    let due = 1_795_204_800_000_i64;
    vec![
        event(0, "started", json!({"inputs": {"item": "tea", "count": 2}})),
        visited(1, 1, "reserve", json!({"ms": 42, "changes": {"held": {"item": "tea"}, "log": ["a"]}, "edges": [0]})),
        visited(
            2,
            2,
            "charge",
            json!({"ms": 61_500, "calls": 3, "error": "503: busy\nagain", "category": "transient",
            "suppressed": true, "edges": [0], "warnings": ["slow"]}),
        ),
        event(3, "edited", json!({"edit": {"steps": 2, "by": "Ann", "why": "a typo", "set": {"held": null}}})),
        event(4, "resumed", json!({"steps": 2})),
        event(
            5,
            "wait_opened",
            json!({"step": 3, "node": "approve", "wait": {"at": due, "due": due, "payload": "ship?"}}),
        ),
    ]
}

/// The same run at its end.
fn ended() -> Vec<RunEvent> {
    let mut events = waiting();
    events.extend([
        event(6, "wait_over", json!({"wait": {"step": 3, "at": 1_795_204_700_000_i64}})),
        visited(7, 3, "approve", json!({"timed_out": true, "edges": [0]})),
        visited(8, 4, "ship", json!({"run": "order-17-4", "changes": {"log": ["b"], "held": "parcel"}, "edges": [0]})),
        visited(9, 5, "done", json!({})),
        event(
            10,
            "ended",
            json!({"end": {"status": "completed_with_errors", "steps": 5, "output": {"held": "parcel"}}}),
        ),
    ]);
    events
}

fn screen_of(events: Vec<RunEvent>, following: FollowState) -> Screen {
    let mut screen = Screen::new(RunModel::new(RunId::new("order-17").unwrap()).with_graph(graph()));
    events.into_iter().for_each(|event| screen.add(event));
    screen.following = following;
    screen
}

fn drawn(screen: &Screen, width: u16, height: u16) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, screen, Theme { is_coloured: true })).unwrap();
    terminal.backend().buffer().clone()
}

/// Returns the lines of a screen as a terminal shows them: a wide character takes the cell behind it too.
fn lines_of(buffer: &Buffer) -> Vec<String> {
    let width = usize::from(buffer.area.width);
    let line = |cells: &[ratatui::buffer::Cell]| {
        let (mut line, mut at) = (String::new(), 0);
        while at < width {
            line.push_str(cells[at].symbol());
            at += cells[at].symbol().width().max(1);
        }
        line
    };
    buffer.content.chunks(width).map(line).collect()
}

fn text_of(screen: &Screen, width: u16, height: u16) -> String {
    let lines = lines_of(&drawn(screen, width, height));
    lines.iter().map(|line| line.trim_end().to_owned() + "\n").collect()
}

fn press(screen: &mut Screen, codes: &[KeyCode]) {
    for code in codes {
        assert_eq!(screen.press(KeyEvent::new(*code, KeyModifiers::NONE)), KeyReaction::Continue, "{code}");
    }
}

fn write(screen: &mut Screen, text: &str) {
    text.chars().for_each(|character| press(screen, &[KeyCode::Char(character)]));
}

macro_rules! assert_screen {
    ($name:expr, $screen:expr, $width:expr, $height:expr) => {
        insta::with_settings!({snapshot_path => "../../../tests/cli/snapshots", prepend_module_to_snapshot => false}, {
            insta::assert_snapshot!(concat!("watch_tui__", $name), text_of($screen, $width, $height));
        });
    };
}

#[test]
fn screens_of_several_sizes_show_what_fits() {
    let mut screen = screen_of(waiting(), FollowState::Live);
    screen.model.holding.holder = Some("process 17 on host".to_owned());
    assert_screen!("wide", &screen, 120, 24);
    let mut screen = screen_of(ended(), FollowState::Over);
    assert_screen!("usual", &screen, 80, 24);
    assert_screen!("narrow", &screen, 40, 12);
    assert_screen!("tiny", &screen, 20, 5);
    press(&mut screen, &[KeyCode::Up, KeyCode::Up]);
    assert_screen!("state", &screen, 120, 24);
    press(&mut screen, &[KeyCode::Enter]);
    assert_screen!("page", &screen, 80, 24);
    press(&mut screen, &[KeyCode::Esc, KeyCode::Char('/')]);
    write(&mut screen, "ship");
    assert_screen!("filter", &screen, 80, 24);
}

#[test]
fn keys_move_filter_follow_and_quit() {
    let mut screen = screen_of(ended(), FollowState::Live);
    let last = screen.model.events().len() - 1;
    assert_eq!((screen.selected(), screen.follows_end), (Some(last), true));
    press(&mut screen, &[KeyCode::Home]);
    assert_eq!((screen.selected(), screen.follows_end), (Some(0), false));
    screen.add(visited(11, 6, "ship", json!({})));
    assert_eq!(screen.selected(), Some(0), "it stays where its reader is");
    press(&mut screen, &[KeyCode::Char('f')]);
    assert_eq!(screen.selected(), Some(last + 1));
    screen.add(visited(12, 7, "ship", json!({})));
    assert_eq!(screen.selected(), Some(last + 2));
    press(&mut screen, &[KeyCode::Up, KeyCode::Down]);
    assert!(!screen.follows_end);
    press(&mut screen, &[KeyCode::End]);
    assert!(screen.follows_end);
    // The filter lets those through that have its text, whatever their case, also those that come.
    press(&mut screen, &[KeyCode::Char('/')]);
    write(&mut screen, "SHIPx");
    assert_eq!(screen.visible(), [0; 0]);
    press(&mut screen, &[KeyCode::Backspace, KeyCode::Enter]);
    assert_eq!(screen.visible(), [5, 8, last + 1, last + 2]);
    screen.add(visited(13, 8, "ship", json!({})));
    screen.add(visited(14, 9, "done", json!({})));
    assert_eq!(screen.visible(), [5, 8, last + 1, last + 2, last + 3]);
    press(&mut screen, &[KeyCode::Esc]);
    assert_eq!(screen.visible().len(), last + 5);
    // A node leads to its visits.
    press(&mut screen, &[KeyCode::Tab, KeyCode::Home, KeyCode::Enter]);
    assert_eq!((screen.focus, screen.filter.as_str(), screen.visible()), (Pane::Timeline, "reserve", &[1][..]));
    press(&mut screen, &[KeyCode::Esc, KeyCode::BackTab]);
    assert_eq!(screen.focus, Pane::Waits);
    press(&mut screen, &[KeyCode::Enter]);
    assert_eq!(screen.page.as_ref().unwrap().page.title, "step 4 ship");
    press(&mut screen, &[KeyCode::Char('q')]);
    assert!(screen.page.is_none());
    for (code, modifiers) in [
        (KeyCode::Char('q'), KeyModifiers::NONE),
        (KeyCode::Esc, KeyModifiers::NONE),
        (KeyCode::Char('c'), KeyModifiers::CONTROL),
    ] {
        assert_eq!(screen.press(KeyEvent::new(code, modifiers)), KeyReaction::Quit);
    }
    press(&mut screen, &[KeyCode::Char('/')]);
    write(&mut screen, "q");
    assert_eq!(screen.press(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)), KeyReaction::Quit);
}

#[test]
fn nodes_are_next_where_the_taken_edges_lead() {
    let mut screen = screen_of(waiting(), FollowState::Live);
    let statuses = |screen: &Screen| -> Vec<NodeStatus> {
        screen.model.nodes().iter().map(|node| screen.model.status_of(node)).collect()
    };
    use NodeStatus::{Done, Failed, Next, Unvisited, Waiting};
    assert_eq!(statuses(&screen), [Done, Failed, Waiting, Unvisited, Unvisited]);
    screen.add(event(6, "wait_over", json!({"wait": {"step": 3, "at": 1}})));
    assert_eq!(statuses(&screen), [Done, Failed, Next, Unvisited, Unvisited]);
    screen.add(visited(7, 3, "approve", json!({"edges": [0]})));
    assert_eq!(statuses(&screen), [Done, Failed, Done, Next, Unvisited]);
    let end = json!({"end": {"status": "error", "steps": 3, "error": "no", "node": "ship"}});
    screen.add(event(8, "ended", end));
    assert_eq!(statuses(&screen), [Done, Failed, Done, Failed, Unvisited]);
    assert_eq!(screen.model.counts().failures, 2);
    screen.add(event(9, "resumed", json!({"steps": 3})));
    assert_eq!(statuses(&screen), [Done, Failed, Done, Next, Unvisited]);
    // Branches of one record do not hide each other's targets.
    let mut model = RunModel::new(RunId::new("order-17").unwrap()).with_graph(graph());
    model.add(visited(1, 1, "reserve", json!({"branch": [0], "edges": [0]})));
    model.add(visited(1, 2, "charge", json!({"branch": [1], "edges": [1]})));
    let next: Vec<&str> =
        model.nodes().iter().filter(|node| model.status_of(node) == Next).map(|node| node.name.as_str()).collect();
    assert_eq!(next, ["charge", "ship"]);
}

#[test]
fn a_held_failure_is_counted_once() {
    let mut model = RunModel::new(RunId::new("order-17").unwrap());
    model.add(visited(1, 1, "a", json!({"error": "no", "held": true})));
    model.add(event(
        2,
        "ended",
        json!({"end": {"status": "error", "steps": 1, "error": "no", "node": "a", "failures": [
            {"step": 1, "node": "a", "error": "no"}, {"step": 2, "node": "b", "error": "no"},
        ]}}),
    ));
    assert_eq!((model.counts().visits, model.counts().failures), (1, 2));
}

#[test]
fn hostile_texts_are_symbols_and_leave_the_layout_as_it_is() {
    for text in [
        "\u{1b}[2J\u{1b}[H\u{1b}]0;owned\u{7}",
        "\u{9b}31m\r\n\u{8}\u{8}\u{8}",
        "名前名前名前名前名前名前名前名前名前名前名前名前名前名前名前名前名前名前名前名前名前名前名前名前",
        "👩\u{200d}👩\u{200d}👧\u{fe0f}👍🏽🏴\u{e0067}🇩🇪🇩",
        "e\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}",
        "\u{301}\u{202e}\u{2066}abc\u{200b}\u{feff}\u{2028}",
        "ﷺ\u{fdfd}\u{12031}لا क्षि 각\u{11a8}",
    ] {
        let run = |more: &str| json!({"inputs": {text: more}, "entry": text});
        let changes = json!({"error": text, "changes": {text: text}, "result": {text: [text]}, "warnings": [text],
            "category": text, "items": [{"item": 0, "error": text}], "calls": 2});
        let events = vec![
            event(0, "started", run(text)),
            visited(1, 1, text, changes),
            event(2, "wait_opened", json!({"step": 2, "node": text, "wait": {"at": 1, "payload": text}})),
            event(3, "edited", json!({"edit": {"steps": 1, "by": text, "why": text, "set": {text: text}}})),
            event(4, "text", json!({"step": 2, "node": text, "tool": text, "attempt": 1, "text": text})),
            event(5, "ended", json!({"end": {"status": "error", "steps": 1, "error": text, "node": text}})),
        ];
        let mut screen = screen_of(events, FollowState::Failed(text.to_owned()));
        for _ in 0..8 {
            for page in [false, true] {
                if page {
                    press(&mut screen, &[KeyCode::Enter]);
                }
                let lines = lines_of(&drawn(&screen, 100, 30));
                for line in &lines {
                    assert!(!line.chars().any(char::is_control), "{line:?}");
                    let columns: usize =
                        line.chars().map(|part| unicode_width::UnicodeWidthChar::width(part).unwrap()).sum();
                    assert_eq!(columns, 100, "{line:?}");
                }
                // The border at the right is straight.
                let borders = lines[3..28].iter().filter(|line| line.ends_with(['│', '┃', '┓', '┐', '┘', '┛'])).count();
                assert_eq!(borders, 25, "{}", lines.join("\n"));
                if page && screen.page.is_some() {
                    press(&mut screen, &[KeyCode::Esc]);
                }
            }
            press(&mut screen, &[KeyCode::Tab, KeyCode::Up]);
        }
    }
}

#[test]
fn colours_are_left_out_if_they_are_not_wanted() {
    let screen = screen_of(ended(), FollowState::Over);
    let mut terminal = Terminal::new(TestBackend::new(120, 24)).unwrap();
    terminal.draw(|frame| draw(frame, &screen, Theme { is_coloured: false })).unwrap();
    let is_plain =
        |buffer: &Buffer| buffer.content.iter().all(|cell| (cell.fg, cell.bg) == (Color::Reset, Color::Reset));
    assert!(is_plain(terminal.backend().buffer()));
    assert!(!is_plain(&drawn(&screen, 120, 24)));
}

#[test]
fn a_run_of_100_000_events_is_as_fluent_as_a_short_one() {
    let steps = 1..=100_000_u64;
    let events = steps.map(|step| {
        visited(
            step,
            step,
            ["reserve", "charge", "ship"][step as usize % 3],
            json!({
                "changes": {"held": step, "log": [step]}, "edges": [0],
            }),
        )
    });
    let events: Vec<RunEvent> = events.collect();
    let begun = Instant::now();
    let mut screen = screen_of(events, FollowState::Live);
    let folded = begun.elapsed();
    let begun = Instant::now();
    for code in [KeyCode::Home, KeyCode::PageDown, KeyCode::Down, KeyCode::End, KeyCode::PageUp, KeyCode::Up].repeat(10)
    {
        press(&mut screen, &[code]);
        drawn(&screen, 120, 40);
    }
    let frame = begun.elapsed() / 60;
    println!("folded in {folded:?}; a frame takes {frame:?}");
    // A frame that draws or folds all events takes much longer, also on a busy machine.
    assert!(folded < Duration::from_secs(20) && frame < Duration::from_millis(250), "{folded:?} {frame:?}");
}

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![3 => "[abc]", 1 => any::<String>()]
}

fn any_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!({"a": [1, "x"]})),
        any::<i64>().prop_map(|number| json!(number)),
        any_text().prop_map(|text| json!(text))
    ]
}

fn any_changes() -> impl Strategy<Value = Value> {
    prop::collection::btree_map(any_text(), any_value(), 0..3).prop_map(|map| json!(map))
}

/// The kind of an event, and its content.
fn any_event() -> impl Strategy<Value = (&'static str, Value)> {
    let visit = (
        (1..9_u64, any_text(), any_changes(), prop::option::of(any_text()), prop::collection::vec(0..4_u16, 0..3)),
        (0..4_u64, any::<u64>(), any::<bool>(), any::<bool>(), prop::option::of(Just("nested"))),
    );
    let visit = visit.prop_map(|((step, node, changes, error, edges), (calls, ms, cached, cancelled, run))| {
        let visit = json!({"step": step, "node": node, "changes": changes, "error": error, "edges": edges, "calls": calls,
            "ms": ms, "cached": cached, "cancelled": cancelled, "run": run});
        ("visited", json!({"node": node, "visit": visit}))
    });
    let statuses = prop::sample::select(vec!["completed", "completed_with_errors", "error", "cancelled"]);
    let end = (statuses, prop::option::of(any_text()), any_value()).prop_map(|(status, node, output)| {
        ("ended", json!({"end": {"status": status, "steps": 1, "error": node, "node": node, "output": output}}))
    });
    let edit = (any_changes(), any_changes(), any_text()).prop_map(|(set, write, why)| {
        ("edited", json!({"edit": {"steps": 1, "by": why, "why": why, "set": set, "write": write}}))
    });
    let wait = (1..9_u64, any_text(), prop::option::of(any::<i64>()), any_value());
    let call = (1..9_u64, any_text(), any_text()).prop_map(|(step, node, tool)| {
        json!({"step": step, "node": node, "tool": tool, "attempt": 1, "ms": 1, "text": tool, "name": tool, "data": tool})
    });
    let live = prop::sample::select(vec!["call_started", "call_ended", "text", "custom"]);
    prop_oneof![
        6 => visit,
        1 => end,
        1 => edit,
        1 => any_value().prop_map(|inputs| ("started", json!({"inputs": inputs}))),
        1 => Just(("resumed", json!({"steps": 3}))),
        2 => wait.prop_map(|(step, node, due, payload)| {
            ("wait_opened", json!({"step": step, "node": node, "wait": {"at": 1, "due": due, "payload": payload}}))
        }),
        1 => (1..9_u64).prop_map(|step| ("wait_over", json!({"wait": {"step": step, "at": 1}}))),
        1 => (live, call),
    ]
}

/// Folds the JSON of events again, in the simplest way.
#[derive(Default)]
struct CountJudge {
    visits: u64,
    failures: u64,
    retries: u64,
    by_node: BTreeMap<String, u64>,
    nested: usize,
    waits: BTreeSet<u64>,
    is_ended: bool,
    state: BTreeMap<String, Value>,
}

impl CountJudge {
    fn see(&mut self, kind: &str, content: &Value) {
        let write = |state: &mut BTreeMap<String, Value>, map: &Value, unsets: bool| {
            for (key, value) in map.as_object().unwrap() {
                if unsets && value.is_null() {
                    state.remove(key)
                } else {
                    state.insert(key.clone(), value.clone())
                };
            }
        };
        match kind {
            "visited" => {
                let visit = &content["visit"];
                self.visits += 1;
                self.failures += u64::from(!visit["error"].is_null());
                self.retries += visit["calls"].as_u64().unwrap().max(1) - 1;
                *self.by_node.entry(visit["node"].as_str().unwrap().to_owned()).or_default() += 1;
                self.nested += usize::from(!visit["run"].is_null());
                self.waits.remove(&visit["step"].as_u64().unwrap());
                write(&mut self.state, &visit["changes"], false);
            }
            "wait_opened" => drop(self.waits.insert(content["step"].as_u64().unwrap())),
            "wait_over" => drop(self.waits.remove(&content["wait"]["step"].as_u64().unwrap())),
            "edited" => {
                write(&mut self.state, &content["edit"]["write"], false);
                write(&mut self.state, &content["edit"]["set"], true);
            }
            "started" | "resumed" => self.is_ended = false,
            "ended" => {
                self.is_ended = true;
                let end = &content["end"];
                self.failures += u64::from(end["status"] == "error" && !end["node"].is_null());
            }
            _ => {}
        }
    }
}

fn any_key() -> impl Strategy<Value = KeyCode> {
    use KeyCode::{BackTab, Backspace, Down, End, Enter, Esc, Home, PageDown, PageUp, Tab, Up};
    prop_oneof![
        prop::sample::select(vec![Up, Down, PageUp, PageDown, Home, End, Tab, BackTab, Enter, Esc, Backspace]),
        prop::sample::select(vec!['/', 'f', 'a', 'b', 'é', 'q', 'j', 'k']).prop_map(KeyCode::Char),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_model_of_any_events_agrees_with_a_judge(events in prop::collection::vec(any_event(), 0..40), known in any::<bool>()) {
        let mut model = RunModel::new(RunId::new("order-17").unwrap());
        if known {
            model = model.with_graph(graph());
        }
        let mut judge = CountJudge::default();
        let mut states = Vec::new();
        for (record, (kind, content)) in events.iter().enumerate() {
            model.add(event(record as u64, kind, content.clone()));
            judge.see(kind, content);
            states.push(judge.state.clone());
            let counts = model.counts();
            prop_assert_eq!((counts.visits, counts.failures, counts.retries), (judge.visits, judge.failures, judge.retries));
            let open: BTreeSet<u64> = model.open_waits().map(|(step, ..)| step).collect();
            prop_assert_eq!(open, if judge.is_ended { BTreeSet::new() } else { judge.waits.clone() });
            prop_assert_eq!(model.nested().len(), judge.nested);
            let visits = model.nodes().iter().filter(|node| node.counts.visits > 0);
            let visits: BTreeMap<String, u64> = visits.map(|node| (node.name.clone(), node.counts.visits)).collect();
            prop_assert_eq!(&visits, &judge.by_node);
        }
        for (at, state) in states.iter().enumerate() {
            let rows = model.state_after(at);
            let shown = rows.iter().filter_map(|row| Some((row.key.to_owned(), row.value?.clone())));
            prop_assert_eq!(&shown.collect::<BTreeMap<_, _>>(), state);
            let before = at.checked_sub(1).map(|before| &states[before]);
            for row in rows {
                let old = before.and_then(|before| before.get(row.key));
                match row.change {
                    KeyChange::Kept => prop_assert_eq!(row.value, old),
                    KeyChange::New => prop_assert_eq!(None, old),
                    KeyChange::From(value) => prop_assert_eq!(Some(value), old),
                }
            }
        }
    }

    #[test]
    fn any_keys_on_a_screen_of_any_size_do_not_panic(
        events in prop::collection::vec(any_event(), 0..30),
        keys in prop::collection::vec(any_key(), 0..30),
        (width, height) in (1..130_u16, 1..45_u16),
    ) {
        let mut screen = screen_of(Vec::new(), FollowState::Live);
        let mut keys = keys.into_iter();
        for (record, (kind, content)) in events.iter().enumerate() {
            screen.add(event(record as u64, kind, content.clone()));
            let Some(key) = keys.next() else { continue };
            screen.press(KeyEvent::new(key, KeyModifiers::NONE));
            drawn(&screen, width, height);
        }
        for key in keys {
            screen.press(KeyEvent::new(key, KeyModifiers::NONE));
            let lines = lines_of(&drawn(&screen, width, height));
            prop_assert!(lines.iter().all(|line| line.width() == usize::from(width)), "{}", lines.join("\n"));
        }
        prop_assert_eq!(screen.selected().is_none(), screen.visible().is_empty());
    }
}
