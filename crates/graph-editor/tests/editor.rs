//! An editor's questions about a graph, finished or not.

#![expect(clippy::panic, clippy::unwrap_used, reason = "what fails in a test is its answer")]

#[path = "../../../tests/support/mod.rs"]
mod support;
#[path = "../../../tests/support/tree.rs"]
mod tree;

use std::fs;
use std::path::{Path, PathBuf};

use graph_compiler::project::Project;
use graph_compiler::source::SourceFile;
use graph_editor::{Completion, Document, Location, Symbol, SymbolKind, TextPosition};
use proptest::prelude::*;
use support::sign;
use tree::Tree;

const CONTRACT: &str = "tool_type: rust
description: Charges a card.
config_schema:
  type: object
  properties:
    card: { type: string, description: The card's token. }
    quantity: { type: integer, default: 1 }
    pin: { type: string, x-secret: true }
    note: { type: string, x-sink: html }
  required: [card]
result_schema:
  type: object
  properties: { receipt: { type: string, description: Its number. } }
  required: [receipt]
";

const CHILD: &str = "version: \"1\"
tool_type: graph
executor_id: rye/core/runtimes/state-graph/runtime
category: shop
permissions: [\"*\"]
config_schema: { type: object, properties: { article: { type: string } }, required: [article] }
config: { start: done, nodes: { done: { type: return, output: { found: true, of: \"${inputs.article}\" } } } }
";

const GRAPH: &str = r#"version: "1"
tool_type: graph
executor_id: rye/core/runtimes/state-graph/runtime
permissions: [rye.execute.tool.shop.*]
config_schema:
  type: object
  properties:
    cards: { type: array, items: { type: string }, description: Who pays. }
    limit: { type: integer, default: 3 }
config:
  start: find
  state:
    tries: 0
  hooks:
    - event: error
      id: watch
      condition: { path: state.tries, op: gt, value: 1 }
      action: { abort: true }
  nodes:
    find:
      action:
        item_id: shop/child
        params: { article: tea }
      assign: { found: "${result.output.found}", tries: "${inputs.limit}" }
      next:
        - { to: pay, when: { path: state.found, value: true } }
        - to: done
    pay:
      type: foreach
      over: "${inputs.cards}"
      as: card
      action: { item_id: shop/charge, params: { card: "${card}", pin: "1", note: "" } }
      collect: receipts
      next: done
      on_error: done
    done:
      type: return
      output: { receipts: "${state.receipts.0.receipt}", tries: "${state.tries}", at: "${_now}" }
"#;

struct Shop {
    tree: Tree,
    project: Project,
}

impl Shop {
    fn new() -> Self {
        let tree = Tree::new();
        tree.write("tools/shop/charge.yaml", sign(CONTRACT));
        tree.write("child.yaml", sign(CHILD));
        let project = tree.project();
        Self { tree, project }
    }

    fn open(&self, text: &str) -> Document {
        Document::open(&self.project, SourceFile::new(self.tree.path("sell.yaml"), "graphs/sell.yaml", text))
    }
}

/// Returns the byte of a text at which the part between bars begins: `st|art|`.
fn find(text: &str, marked: &str) -> usize {
    let (before, after) = marked.split_once('|').unwrap();
    text.find(&format!("{before}{after}")).unwrap_or_else(|| panic!("{marked}")) + before.len()
}

fn hover(document: &Document, marked: &str) -> String {
    let text = &document.source().text;
    document.type_at(find(text, marked)).map_or_else(String::new, |hover| hover.markdown)
}

fn shown(places: &[Location]) -> Vec<String> {
    let name = |place: &Location| place.source.path.file_name().unwrap().to_str().unwrap().to_owned();
    places
        .iter()
        .map(|place| {
            format!(
                "{}:{} {}",
                name(place),
                place.source.position(place.span.start).0,
                &place.source.text[place.span.clone()]
            )
        })
        .collect()
}

fn definition(document: &Document, marked: &str) -> Vec<String> {
    shown(&document.definition_of(find(&document.source().text, marked)))
}

fn references(document: &Document, marked: &str) -> Vec<String> {
    shown(&document.references_of(find(&document.source().text, marked)))
}

fn labels(completions: &[Completion]) -> Vec<&str> {
    completions.iter().map(|completion| completion.label.as_str()).collect()
}

#[test]
fn a_draft_gets_all_errors_and_the_missing_signature() {
    let shop = Shop::new();
    let text = GRAPH.replace("to: done", "to: dnoe");
    let codes = |document: &Document| document.diagnostics().iter().map(|found| found.code.id).collect::<Vec<_>>();
    assert_eq!(codes(&shop.open(&text)), ["G0010", "G0102"]);
    assert_eq!(codes(&shop.open(&sign(&text))), ["G0102"]);
}

#[test]
fn symbols_list_named_things_in_file_order_under_their_parents() {
    fn lines(symbols: &[Symbol], text: &str, indent: usize, lines: &mut Vec<String>) {
        for symbol in symbols {
            assert!(
                symbol.span.start <= symbol.name_span.start && symbol.name_span.end <= symbol.span.end,
                "{symbol:?}"
            );
            let detail = symbol.detail.as_deref().unwrap_or("-");
            let written = &text[symbol.name_span.clone()];
            lines.push(format!("{:indent$}{:?} {} ({detail}) `{written}`", "", symbol.kind, symbol.name));
            lines_of_children(symbol, text, indent, lines);
        }
    }
    fn lines_of_children(symbol: &Symbol, text: &str, indent: usize, all: &mut Vec<String>) {
        lines(&symbol.children, text, indent + 2, all);
    }
    let shop = Shop::new();
    let document = shop.open(GRAPH);
    let mut all = Vec::new();
    lines(document.symbols(), GRAPH, 0, &mut all);
    assert_eq!(
        all,
        [
            "Input cards (array) `cards`",
            "Input limit (integer) `limit`",
            "Key tries (-) `tries`",
            "Hook watch (error) `watch`",
            "Node find (action: shop/child) `find`",
            "  Key found (-) `found`",
            "  Key tries (-) `tries`",
            "  Edge pay (-) `pay`",
            "  Edge done (-) `done`",
            "Node pay (foreach: shop/charge) `pay`",
            "  Variable card (-) `card`",
            "  Key receipts (-) `receipts`",
            "  Edge done (next) `done`",
            "  Edge done (on_error) `done`",
            "Node done (return) `done`",
        ]
    );
    let node = &document.symbols()[4];
    assert!(GRAPH[node.span.clone()].starts_with("find:") && GRAPH[node.span.clone()].ends_with("- to: done"));
}

#[test]
fn hover_shows_the_type_and_origin_of_what_is_at_a_position() {
    let shop = Shop::new();
    let document = shop.open(GRAPH);
    for (marked, expected) in [
        ("${state.receipts|.0.", "`state.receipts.0.receipt` is a string or nothing\n\nset by `pay` on line 33"),
        ("path: |state.found", "`state.found` is a boolean\n\nset by `find` on line 24"),
        ("tries: \"${|inputs.limit", "`inputs.limit` is an integer\n\n`3` if not given"),
        ("    |tries: 0", "`state.tries` is an integer\n\nset by `config.state` on line 13, `find` on line 24"),
        ("    |cards: {", "`inputs.cards` is a list of strings or nothing\n\nWho pays."),
        ("\"${|card}\"", "`card` is a string\n\nthe element of the list that `pay` goes over"),
        ("as: |card", "`card` is a string\n\nthe element of the list that `pay` goes over"),
        (", |pin:", "`pin` is a string, a secret"),
        (", |note:", "`note` is a string\n\nread as code: `x-sink: html`; values belong elsewhere"),
        ("at: \"${|_now", "`_now` is a string"),
        ("params: { |card:", "`card` is a string\n\nThe card's token.\n\nneeded"),
        (
            "to: |pay",
            "node `pay`, foreach: shop/charge\n\nleads to `done`, `done` if it fails\n\nits `result` is an object\n\n- `receipt`, a string: Its number.",
        ),
        ("on_error: |done", "node `done`, return"),
        ("|on_error: done", "the node where the run continues if this one fails; `assign` is skipped then"),
        ("|start: find", "the name of the first node, or a list of names"),
    ] {
        assert_eq!(hover(&document, marked), expected, "{marked}");
    }
    let charge = hover(&document, "item_id: |shop/charge");
    assert_eq!(
        charge,
        "`shop/charge`, a tool of the program\n\nCharges a card.\n\nIt takes\n\n- `card`, a string: The card's token.\n- `quantity`, an \
         integer, `1` if not given\n- `pin`, a string or nothing, a secret\n- `note`, a string or nothing\n\nIt returns an object\n\n- `receipt`, a string: Its number."
    );
    assert!(
        hover(&document, "item_id: |shop/child")
            .starts_with("`shop/child`, the graph in `graphs/child.yaml`\n\nIt takes\n\n- `article`")
    );
    assert_eq!(hover(&document, "|version:"), "the author's version of the graph, a string");
    assert_eq!(hover(&document, "  type: |object"), "");
}

#[test]
fn a_name_leads_to_its_definition() {
    let shop = Shop::new();
    let document = shop.open(GRAPH);
    for (marked, expected) in [
        ("to: |pay", &["sell.yaml:28 pay"][..]),
        ("start: |find", &["sell.yaml:20 find"]),
        ("tries: \"${|state.tries", &["sell.yaml:13 tries", "sell.yaml:24 tries"]),
        ("{ path: |state.tries", &["sell.yaml:13 tries", "sell.yaml:24 tries"]),
        ("over: \"${|inputs.cards", &["sell.yaml:8 cards"]),
        ("\"${|card}\"", &["sell.yaml:31 card"]),
        ("\"${|result.output", &["sell.yaml:22 shop/child"]),
        ("item_id: |shop/charge", &["charge.yaml:1 "]),
        ("item_id: |shop/child", &["child.yaml:1 "]),
        ("params: { |card:", &["charge.yaml:7 card"]),
        ("params: { |article:", &["child.yaml:7 article"]),
        ("at: \"${|_now", &[]),
        ("|version:", &[]),
    ] {
        assert_eq!(definition(&document, marked), expected, "{marked}");
    }
}

#[test]
fn all_places_of_a_name_are_found_from_any_of_them() {
    let shop = Shop::new();
    let document = shop.open(GRAPH);
    let tries = ["sell.yaml:13 tries", "sell.yaml:17 state.tries", "sell.yaml:24 tries", "sell.yaml:38 state.tries"];
    for marked in ["    |tries: 0", "path: |state.tries", ", |tries: \"${inputs", "${|state.tries"] {
        assert_eq!(references(&document, marked), tries, "{marked}");
    }
    let done = ["sell.yaml:27 done", "sell.yaml:34 done", "sell.yaml:35 done", "sell.yaml:36 done"];
    for marked in ["- to: |done", "    |done:\n", "on_error: |done"] {
        assert_eq!(references(&document, marked), done, "{marked}");
    }
    assert_eq!(references(&document, "as: |card"), ["sell.yaml:31 card", "sell.yaml:32 card"]);
    assert_eq!(references(&document, "item_id: |shop/charge"), ["sell.yaml:32 shop/charge"]);
    assert_eq!(references(&document, "at: \"${|_now"), [""; 0]);
}

#[test]
fn completion_offers_the_names_that_fit() {
    let shop = Shop::new();
    for (from, to, expected) in [
        ("      next: done\n", "      next: d|\n", &["find", "pay", "done"][..]),
        ("start: find", "start: |", &["find", "pay", "done"]),
        ("start: find", "start: [find, p|", &["find", "pay", "done"]),
        ("      next: done\n", "      waits_for: [|\n", &["find", "pay", "done"]),
        ("      next: done\n", "      waits_for: { of: [find, |\n", &["find", "pay", "done"]),
        ("      next: done\n", "      waits_for: [find] |\n", &[]),
        ("${state.tries}", "${state.|}", &["tries", "found", "receipts"]),
        ("${state.tries}", "${state.t|", &["tries", "found", "receipts"]),
        ("${inputs.limit}", "${state.tries || inputs.|}", &["cards", "limit"]),
        ("${result.output.found}", "${result.output.|}", &["found", "of"]),
        ("${card}", "${|}", &["card", "state", "inputs", "result", "_now", "_timestamp", "visit"]),
        ("path: state.found,", "path: |,", &["state", "inputs", "result", "visit"]),
        (
            "path: state.tries, op: gt",
            "path: |, op: gt",
            &["graph_id", "error", "classification", "node", "state", "step_count", "attempt", "inputs"],
        ),
        ("op: gt", "op: |", &["eq", "ne", "gt", "gte", "lt", "lte", "in", "contains", "regex", "exists"]),
        ("event: error", "event: |", &["graph_started", "after_step", "error", "limit", "graph_completed"]),
        ("type: return", "type: |", &["action", "foreach", "gate", "interrupt", "wait", "return"]),
        ("params: { article: tea }", "params:\n          a|", &["article"]),
        ("version: \"1\"", "version: |", &[]),
    ] {
        assert!(GRAPH.contains(from), "{from}");
        let text = GRAPH.replacen(from, to, 1);
        let at = text.find(to).unwrap()
            + to.find('|').filter(|at| !to[*at..].starts_with("||")).unwrap_or_else(|| to.rfind('|').unwrap());
        let text = format!("{}{}", &text[..at], &text[at + 1..]);
        let completions = shop.open(&text).completions(&shop.project, at);
        assert_eq!(labels(&completions), expected, "{to}");
        assert!(completions.iter().all(|one| one.span.end == at), "{to}");
    }
    let text = GRAPH.replacen("item_id: shop/charge", "item_id: shop/ch", 1);
    let completions = shop.open(&text).completions(&shop.project, text.find("shop/ch,").unwrap() + 7);
    let ids = labels(&completions);
    assert!(ids.contains(&"shop/charge") && ids.contains(&"shop/child") && ids.contains(&"rye/bash"), "{ids:?}");
    assert_eq!(&text[completions[0].span.clone()], "shop/ch");
}

#[test]
fn a_reducer_of_the_program_is_described_found_and_offered_to_channels_only() {
    let shop = Shop::new();
    let contract = "tool_type: reducer\ndescription: Adds points.\nconfig_schema: { type: integer }\n\
                    result_schema: { type: object, properties: { sum: { type: integer } }, required: [sum] }\n";
    shop.tree.write("tools/shop/points.yaml", sign(contract));
    let shop = Shop { project: shop.tree.project(), ..shop };
    let text =
        GRAPH.replacen("  state:\n", "  channels:\n    points: { reduce: { item_id: shop/points } }\n  state:\n", 1);
    let document = shop.open(&text);
    let hover = hover(&document, "item_id: |shop/points");
    assert!(hover.contains("a reducer of the program\n\nAdds points.\n\nA write is an integer"), "{hover}");
    assert!(hover.contains("The value is an object\n\n- `sum`, an integer"), "{hover}");
    assert_eq!(definition(&document, "item_id: |shop/points").len(), 1);
    let offered = |text: &str, at: &str| {
        let at = text.find(at).unwrap() + at.len();
        labels(&shop.open(text).completions(&shop.project, at)).into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(offered(&text, "reduce: { item_id: shop/"), ["shop/points"]);
    let below =
        text.replacen("{ reduce: { item_id: shop/points } }", "\n      reduce:\n        item_id: shop/points", 1);
    assert_eq!(offered(&below, "reduce:\n        item_id: shop/"), ["shop/points"]);
    let of_action = offered(&text, "action: { item_id: shop/");
    assert!(of_action.contains(&"shop/charge".to_owned()) && !of_action.contains(&"shop/points".to_owned()));
}

#[test]
fn an_incomplete_line_hides_no_other_symbols() {
    let shop = Shop::new();
    for (from, to) in [
        ("collect: receipts", "collect: \"receipts"),
        ("collect: receipts", "collect: receipts: x"),
        ("collect: receipts", "collect"),
        ("      as: card\n", "      as: {card\n"),
        ("version: \"1\"\n", ""),
        ("tool_type: graph\n", "tool\n"),
        ("permissions: [rye.execute.tool.shop.*]\n", "permissions: [\n"),
    ] {
        let text = GRAPH.replacen(from, to, 1);
        let document = shop.open(&text);
        assert!(!document.diagnostics().is_empty(), "{to}");
        let nodes = document.symbols().iter().filter(|symbol| symbol.kind == SymbolKind::Node);
        let nodes: Vec<&str> = nodes.map(|node| node.name.as_str()).collect();
        assert!(nodes.starts_with(&["find", "pay"]), "{to}: {nodes:?}");
        assert_eq!(hover(&document, "path: |state.found").lines().next(), Some("`state.found` is a boolean"), "{to}");
        let pay = definition(&document, "to: |pay");
        assert!(pay.len() == 1 && pay[0].ends_with(" pay"), "{to}: {pay:?}");
    }
}

#[test]
fn a_contract_is_checked_as_one_and_shows_its_parameters() {
    let shop = Shop::new();
    let open = |text: &str| {
        Document::open(
            &shop.project,
            SourceFile::new(shop.tree.path("tools/shop/charge.yaml"), "graphs/tools/shop/charge.yaml", text),
        )
    };
    let document = open(&sign(CONTRACT));
    assert!(document.diagnostics().is_empty(), "{:?}", document.diagnostics());
    let names: Vec<&str> = document.symbols().iter().map(|symbol| symbol.name.as_str()).collect();
    assert_eq!(names, ["card", "quantity", "pin", "note"]);
    let codes: Vec<&str> = open(&CONTRACT.replacen("type: string", "type: text", 1))
        .diagnostics()
        .iter()
        .map(|found| found.code.id)
        .collect();
    assert_eq!(codes, ["G0010", "G0035"]);
}

#[test]
fn places_are_found_in_lines_with_characters_beyond_ascii() {
    let shop = Shop::new();
    let text = GRAPH.replace("article: tea", "article: \"𝄞é ${inputs.limit}\"");
    let document = shop.open(&text);
    let at = find(&text, "𝄞é ${|inputs.limit");
    let position = TextPosition::of(document.source(), at);
    assert_eq!(position, TextPosition { line: 22, character: 34 });
    assert_eq!(document.type_at(position.offset_in(document.source())).unwrap().span, at..at + "inputs.limit".len());
}

fn fixtures() -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files: Vec<PathBuf> = ["tests/check", "graphs"]
        .iter()
        .flat_map(|directory| fs::read_dir(root.join(directory)).unwrap().map(|entry| entry.unwrap().path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
        .collect();
    files.sort();
    let mut texts: Vec<String> = files.iter().map(|path| fs::read_to_string(path).unwrap()).collect();
    texts.push(GRAPH.to_owned());
    texts
}

/// Asks all questions about a place.
fn ask(shop: &Shop, document: &Document, offset: usize) {
    let text = &document.source().text;
    let places = document.definition_of(offset).into_iter().chain(document.references_of(offset));
    for place in places {
        assert!(place.source.text.get(place.span.clone()).is_some(), "{place:?}");
    }
    if let Some(hover) = document.type_at(offset) {
        assert!(text.get(hover.span.clone()).is_some() && !hover.markdown.is_empty());
    }
    for completion in document.completions(&shop.project, offset) {
        assert!(text.get(completion.span.clone()).is_some());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn every_text_and_place_gets_an_answer(
        file in any::<prop::sample::Index>(),
        cut in any::<(prop::sample::Index, prop::sample::Index)>(),
        put in "|\"|'|\\$\\{|\\$\\{state\\.|é𝄞|: |\\{ |\\[|\n  - |\t|&a|\u{202e}",
        at in prop::collection::vec(any::<prop::sample::Index>(), 12),
    ) {
        let (texts, shop) = (fixtures(), Shop::new());
        let text = file.get(&texts);
        let boundary = |index: &prop::sample::Index| text.floor_char_boundary(index.index(text.len() + 1));
        let (one, two) = (boundary(&cut.0), boundary(&cut.1));
        // A person makes small changes, so a short cut is tested too.
        let (start, end) = (one.min(two), one.max(two));
        for end in [end, text.floor_char_boundary((start + 5).min(text.len()))] {
            let text = format!("{}{put}{}", &text[..start], &text[end.max(start)..]);
            let document = shop.open(&text);
            for offset in at.iter().map(|index| index.index(text.len() + 3)).chain([start, start + put.len()]) {
                ask(&shop, &document, offset);
            }
        }
    }
}

#[test]
fn every_place_of_every_fixture_can_be_asked_about() {
    let shop = Shop::new();
    for text in fixtures() {
        let document = shop.open(&text);
        (0..=document.source().text.len() + 1).step_by(7).for_each(|offset| ask(&shop, &document, offset));
    }
}
