//! The commands in the pages: sessions are run and compared with what the page shows, other commands are parsed by the command line
//! itself.
//!
//! | block | |
//! |---|---|
//! | `console` | each line that begins with `$ ` is run by bash, in one directory for each page; the lines below are what it prints, with `…` for any text and a line `…` for any lines |
//! | `<!-- setup: … -->` | a line of its own: run like that, and shown to nobody |
//! | `sh` | each `graph VERB …` is accepted by the command line |
//! | `text`, first word `graph` | a synopsis: it names all options of the verb's help, or a page section does, and no others |

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::page::{self, Block, pages};
use crate::place::Place;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Returns the blocks of all pages in a language.
fn blocks(language: &str) -> Vec<Block> {
    let blocks = pages(&repository()).into_iter().flat_map(|(name, page)| page::blocks(&name, &page));
    blocks.filter(|block| block.language == language).collect()
}

/// Whether a printed line is what a page shows, where `…` stands for any text.
fn is_line(shown: &str, printed: &str) -> bool {
    let mut parts = shown.split('…');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = printed.strip_prefix(first) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    for part in middle {
        let Some((_, after)) = rest.split_once(part) else { return false };
        rest = after;
    }
    rest.ends_with(last)
}

/// Whether the printed lines are what a page shows, where a line `…` stands for any lines.
fn is_output(shown: &[&str], printed: &[&str]) -> bool {
    match (shown.split_first(), printed.split_first()) {
        (None, None) => true,
        (Some((&"…", shown)), _) => (0..=printed.len()).any(|skipped| is_output(shown, &printed[skipped..])),
        (Some((first, shown)), Some((line, printed))) => is_line(first, line) && is_output(shown, printed),
        _ => false,
    }
}

/// A place in which a page's commands are run.
struct Shell {
    place: Place,
    path: String,
}

impl Shell {
    fn new() -> Self {
        let graph = Path::new(env!("CARGO_BIN_EXE_graph")).parent().unwrap().display().to_string();
        let path = format!("{graph}:{}", std::env::var("PATH").unwrap());
        Self { place: Place::new(), path }
    }

    /// Runs a line, and returns what it prints to both streams.
    fn run(&self, line: &str) -> String {
        let mut bash = Command::new("bash");
        bash.args(["-c", &format!("exec 2>&1\n{line}")]).current_dir(self.place.root()).env_clear();
        bash.env("HOME", self.place.root().join("home")).env("PATH", &self.path).env("REPOSITORY", repository());
        for name in ["user", "author", "committer"] {
            bash.env(format!("GIT_{}_NAME", name.to_uppercase()), "Ann");
            bash.env(format!("GIT_{}_EMAIL", name.to_uppercase()), "ann@example.org");
        }
        self.place.ran(bash.output().unwrap()).out
    }
}

#[test]
fn sessions_in_the_pages_print_what_they_show() {
    let mut wrong = String::new();
    let mut run = 0;
    for (name, page) in pages(&repository()) {
        let shell = Shell::new();
        for block in page::blocks(&name, &page) {
            for line in block.comments.iter().filter_map(|comment| comment.strip_prefix("setup: ")) {
                let printed = shell.run(&format!("set -e\n{{ {line}\n}} >/dev/null"));
                assert_eq!(printed, "", "{}: the setup `{line}` failed", block.place);
            }
            if block.language != "console" {
                continue;
            }
            let mut lines = block.text.lines().peekable();
            while let Some(line) = lines.next() {
                let command =
                    line.strip_prefix("$ ").unwrap_or_else(|| panic!("{}: `{line}` is no command", block.place));
                let mut shown = Vec::new();
                while let Some(line) = lines.next_if(|line| !line.starts_with("$ ")) {
                    shown.push(line.trim_end());
                }
                let printed = shell.run(command);
                let lines: Vec<&str> = printed.trim_end().lines().map(str::trim_end).collect();
                while shown.last().is_some_and(|line| line.is_empty()) {
                    shown.pop();
                }
                if !is_output(&shown, &lines) {
                    wrong.push_str(&format!(
                        "{}: `{command}` prints\n{printed}\nand not\n{}\n\n",
                        block.place,
                        shown.join("\n")
                    ));
                }
                run += 1;
            }
        }
    }
    assert!(run > 20, "the sessions are found: {run}");
    assert!(wrong.is_empty(), "{wrong}");
}

/// Returns the words of a command line, as a shell splits them; comments are left out.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for character in line.chars() {
        match (quote, character) {
            (Some(open), _) if character == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            (None, '#') if word.is_none() => break,
            (None, ' ') => words.extend(word.take()),
            _ => word.get_or_insert_default().push(character),
        }
    }
    words.extend(word);
    words
}

#[test]
fn commands_in_the_pages_are_accepted() {
    let place = Place::new();
    let mut checked = 0;
    for block in blocks("sh") {
        let text = block.text.replace("\\\n", " ").replace("cargo run -p state-graph-cli -- ", "graph ");
        for line in text.lines().flat_map(|line| line.split(" && ")) {
            let words = words(line.trim());
            if words.first().is_none_or(|word| word != "graph") {
                continue;
            }
            let arguments = words[1..].iter().take_while(|word| !word.starts_with(['>', '<', '|']) && *word != "2>");
            let mut arguments: Vec<&str> = arguments.map(String::as_str).collect();
            arguments.push("--help");
            let ran = place.graph(&arguments);
            assert_eq!(ran.code, 0, "{}: {line}\n{}", block.place, ran.err);
            checked += 1;
        }
    }
    assert!(checked > 5, "the commands are found: {checked}");
}

/// Returns the long options that a text names.
fn options(text: &str) -> BTreeSet<String> {
    let starts = text.match_indices("--").map(|(at, _)| &text[at + 2..]);
    let name = |text: &str| text.chars().take_while(|it| it.is_ascii_lowercase() || *it == '-').collect::<String>();
    starts.map(name).filter(|name| !name.is_empty() && !name.starts_with('-')).collect()
}

#[test]
fn synopses_name_the_options_that_there_are() {
    let place = Place::new();
    let page = fs::read_to_string(repository().join("docs/cli.md")).unwrap();
    let mut seen = BTreeSet::new();
    for block in blocks("text").into_iter().filter(|block| block.text.starts_with("graph ")) {
        let is_verb = |word: &&str| word.starts_with(|it: char| it.is_ascii_lowercase()) && !word.contains(['=', '.']);
        let verb: Vec<&str> = block.text.split_whitespace().skip(1).take_while(is_verb).collect();
        let mut asked = verb.clone();
        asked.push("--help");
        let ran = place.graph(&asked);
        assert_eq!(ran.code, 0, "{}: {verb:?}", block.place);
        let mut known = options(ran.out.split_once("Usage:").unwrap().1);
        known.remove("help");
        let named = options(&block.text);
        let unknown: Vec<_> = named.difference(&known).collect();
        assert!(unknown.is_empty(), "{}: `graph {}` has no options {unknown:?}", block.place, verb.join(" "));
        // Options that the synopsis sums up are in the section.
        let heading = format!("## `graph {}`", verb.join(" "));
        let section =
            page.split_once(&heading).map(|(_, rest)| rest.split("\n## ").next().unwrap()).unwrap_or_default();
        let missing: Vec<_> = known.difference(&options(section)).cloned().collect();
        assert!(missing.is_empty(), "{}: the section of `graph {}` lacks {missing:?}", block.place, verb.join(" "));
        seen.insert(verb.join(" "));
    }
    assert!(seen.len() > 25, "the synopses are found: {seen:?}");
}
