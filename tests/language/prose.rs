//! The words of pages, comments, messages and names: none has a construction of the list in `CONTRIBUTING.md`.
//!
//! `cargo test --test language prose` lists each sentence and each name that has one.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use regex::Regex;

/// Words and phrases that say too little, or that are not the field's.
const PHRASES: &str = r"(?i)\b(taken? up|takes? (it|them|one|a run|runs) up|takes up|taking up|took up|(is|are|was) none|but for|anew|beside each other|one in the other|goes? on|going on|went on|(is|are|was|were|be|been|being) told|at work)\b|\b(stands?|stood)\b( for)?";

/// A clause as the subject, at the start of a sentence. A question may begin so.
const OPENINGS: &str =
    r"^(What|Whatever|Who|Whoever|Whom|Whose|Whichever|Which|Of|(From|To|In|For|By|With|On) (what|whom|whatever))\b";

/// A that-clause as the subject.
const THAT: &str = r"^That (a|an|the|it|they|what|no|nothing|each|every|all|X|one|two)\b";

/// A clause as the subject, further on in a sentence.
const CLAUSES: &str = r"([;:,] |\band |\bbut |\bso |\bthat )(what|who|whoever|whatever) ([\w'-]+ ){1,9}?(is|are|was|were|has|have|stays?|comes?|needs?|gets?|keeps?|must|may|can|cannot) ";

/// Parts of names that say too little: `snake_case` words between underscores.
const NAMES: &[&str] = &["door", "lot", "mend", "sight", "standing", "told", "unseal", "wish"];

/// How a sentence may not be built, each with its name.
struct Rules(Vec<(&'static str, Regex)>);

impl Rules {
    fn new() -> Self {
        let rules = [("a phrase", PHRASES), ("a clause as subject", OPENINGS), ("a clause as subject", THAT)];
        let rules = rules.into_iter().chain([("a clause as subject", CLAUSES)]);
        Self(rules.map(|(name, rule)| (name, Regex::new(rule).unwrap())).collect())
    }

    /// Returns the name of the rule that a sentence breaks.
    fn broken(&self, sentence: &str) -> Option<&'static str> {
        let is_question = sentence.trim_end().ends_with('?');
        let breaks = |(name, rule): &&(&'static str, Regex)| {
            let mut found = rule.find_iter(sentence).map(|found| found.as_str());
            // `stands for` is the field's word.
            !(is_question && name.starts_with("a clause"))
                && found.any(|found| !found.ends_with(" for") || found == "but for")
        };
        self.0.iter().find(breaks).map(|(name, _)| *name)
    }
}

/// A paragraph, list item, table cell or heading, with the line that it begins on.
type Paragraph = (usize, String);

/// Returns the paragraphs of Markdown, without fenced blocks.
fn paragraphs(text: &str) -> Vec<Paragraph> {
    let (mut found, mut current, mut fence): (Vec<Paragraph>, Option<Paragraph>, Option<String>) = <_>::default();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        let ticks: String = line.chars().take_while(|character| *character == '`').collect();
        if let Some(open) = &fence {
            if line.starts_with(open.as_str()) {
                fence = None;
            }
            continue;
        }
        if ticks.len() >= 3 {
            fence = Some(ticks);
        }
        let is_item = line.starts_with("- ") || line.starts_with("* ");
        if fence.is_some() || line.is_empty() || line.starts_with("<!--") || line.starts_with(['#', '|']) || is_item {
            found.extend(current.take());
        }
        if fence.is_some() || line.is_empty() || line.starts_with("<!--") {
            continue;
        }
        if line.starts_with('|') {
            let cells = line.trim_matches('|').split('|').map(str::trim);
            found.extend(cells.filter(|cell| !cell.is_empty()).map(|cell| (number, cell.to_owned())));
        } else if line.starts_with('#') {
            found.push((number, line.trim_start_matches(['#', ' ']).to_owned()));
        } else {
            let line = if is_item { &line[2..] } else { line };
            let (_, text) = current.get_or_insert_with(|| (number, String::new()));
            text.push_str(if text.is_empty() { "" } else { " " });
            text.push_str(line);
        }
    }
    found.extend(current);
    found
}

/// Returns the paragraphs of the comments of a Rust file.
fn comments(text: &str) -> Vec<Paragraph> {
    let mut found = Vec::new();
    let mut block: Option<(&str, usize, String)> = None;
    let flush = |block: &mut Option<(&str, usize, String)>, found: &mut Vec<Paragraph>| {
        if let Some((_, start, text)) = block.take() {
            found.extend(paragraphs(&text).into_iter().map(|(line, text)| (start + line - 1, text)));
        }
    };
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim_start();
        let mark = ["///", "//!", "//"].into_iter().find(|mark| line.starts_with(mark));
        if block.as_ref().map(|(mark, ..)| *mark) != mark {
            flush(&mut block, &mut found);
        }
        if let Some(mark) = mark {
            let (_, _, text) = block.get_or_insert_with(|| (mark, number, String::new()));
            text.push_str(&line[mark.len()..]);
            text.push('\n');
        }
    }
    flush(&mut block, &mut found);
    found
}

/// Returns the texts of a Rust file that a person may read: literals of several words outside of tests.
fn messages(text: &str) -> Vec<Paragraph> {
    static LITERAL: LazyLock<Regex> = LazyLock::new(|| Regex::new(r#"^(?:[^"/]|/[^/])*?"((?:\\.|[^"\\])*)""#).unwrap());
    let production = (1..).zip(text.lines()).take_while(|(_, line)| !line.ends_with("mod tests {"));
    let mut found = Vec::new();
    for (number, line) in production {
        let mut rest = line;
        while let Some(parts) = LITERAL.captures(rest) {
            if parts[1].matches(' ').count() >= 2 {
                found.push((number, parts[1].to_owned()));
            }
            rest = &rest[parts[0].len()..];
        }
    }
    found
}

/// Splits a paragraph into sentences. Code in it counts as one word.
fn sentences(paragraph: &str) -> Vec<String> {
    static CODE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"`[^`]*`").unwrap());
    static LINK: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\]\([^)]*\)").unwrap());
    static END: LazyLock<Regex> = LazyLock::new(|| Regex::new(r#"[.?!]\s+[A-Z("]"#).unwrap());
    let code = CODE.replace_all(paragraph, "X");
    let plain = LINK.replace_all(&code, "]").replace(['[', ']'], "").replace("**", "");
    let (mut found, mut start) = (Vec::new(), 0);
    for at in END.find_iter(&plain) {
        found.push(plain[start..=at.start()].to_owned());
        start = at.end() - 1;
    }
    found.push(plain[start..].to_owned());
    found
}

/// Returns the files of the repository that people write, by their extension.
fn files(extension: &str) -> Vec<PathBuf> {
    fn walk(directory: &Path, extension: &str, found: &mut Vec<PathBuf>) {
        // Fixtures are data, and some are wrong on purpose.
        const APART: &[&str] = &["corpus", "ui", "expand", "api", "seeds", "snapshots", "kept"];
        for entry in fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()) {
            let name = entry.file_name().unwrap().to_string_lossy().into_owned();
            let is_fixture = APART.contains(&name.as_str()) && entry.to_string_lossy().contains("/tests/");
            if entry.is_dir() && !name.starts_with('.') && name != "target" && !is_fixture {
                walk(&entry, extension, found);
            } else if entry.extension().is_some_and(|it| it == extension) && !entry.is_symlink() {
                found.push(entry);
            }
        }
    }
    let mut found = Vec::new();
    walk(Path::new(env!("CARGO_MANIFEST_DIR")), extension, &mut found);
    found.sort();
    found
}

/// Returns each sentence of some paragraphs that breaks a rule.
fn broken(path: &Path, paragraphs: Vec<Paragraph>, rules: &Rules) -> Vec<String> {
    let name = path.strip_prefix(env!("CARGO_MANIFEST_DIR")).unwrap().display();
    let sentences =
        paragraphs.into_iter().flat_map(|(line, text)| sentences(&text).into_iter().map(move |it| (line, it)));
    sentences.filter_map(|(line, it)| Some(format!("{name}:{line}: {}: {it}", rules.broken(&it)?))).collect()
}

#[test]
fn no_sentence_has_a_banned_construction() {
    let rules = Rules::new();
    let (pages, sources) = (files("md"), files("rs"));
    assert!(pages.len() > 20 && sources.len() > 300, "the files are found");
    let read = |path: &PathBuf| fs::read_to_string(path).unwrap();
    let mut found: Vec<String> = pages.iter().flat_map(|path| broken(path, paragraphs(&read(path)), &rules)).collect();
    found.extend(sources.iter().flat_map(|path| broken(path, comments(&read(path)), &rules)));
    assert!(found.is_empty(), "{} sentences:\n{}", found.len(), found.join("\n"));
}

#[test]
fn no_message_has_a_banned_phrase() {
    let rules = Rules(vec![("a phrase", Regex::new(PHRASES).unwrap())]);
    // Journals hold the engine's own failures, and audits compare them: these texts stay as they were written first.
    let is_stored = |path: &Path| path.ends_with("crates/graph-engine/src/step/visited.rs");
    let is_product = |path: &&PathBuf| path.components().any(|part| part.as_os_str() == "src");
    let sources = files("rs").into_iter().filter(|path| is_product(&path) && !is_stored(path));
    let found = sources.flat_map(|path| broken(&path, messages(&fs::read_to_string(&path).unwrap()), &rules));
    let found: Vec<String> = found.collect();
    assert!(found.is_empty(), "{} messages:\n{}", found.len(), found.join("\n"));
}

#[test]
fn no_name_has_a_banned_word() {
    let defined = Regex::new(r"\b(?:fn|mod|struct|enum|trait|type|const|static) ([A-Za-z_][A-Za-z0-9_]*)").unwrap();
    let mut found = Vec::new();
    for path in files("rs") {
        let shown = path.strip_prefix(env!("CARGO_MANIFEST_DIR")).unwrap().display().to_string();
        let text = fs::read_to_string(&path).unwrap();
        let names = text
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"))
            .flat_map(|line| defined.captures_iter(line));
        let mut names: Vec<String> = names.map(|parts| parts[1].to_owned()).collect();
        names.push(path.file_stem().unwrap().to_string_lossy().into_owned());
        for name in names {
            let words = words_of(&name);
            let Some(first) = words.first() else { continue };
            let is_question = ["what", "who", "whoever", "whatever"].contains(&first.as_str()) && words.len() > 2;
            if is_question || words.iter().any(|word| NAMES.contains(&word.as_str())) {
                found.push(format!("{shown}: {name}"));
            }
        }
    }
    assert!(found.is_empty(), "{} names:\n{}", found.len(), found.join("\n"));
}

/// Returns the words of a name in snake or camel case, in lower case.
fn words_of(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for character in name.chars() {
        if character == '_' || (character.is_uppercase() && was_lower) {
            words.push(String::new());
        }
        was_lower = character.is_lowercase();
        if character != '_' {
            words.last_mut().unwrap().push(character.to_ascii_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

#[test]
fn banned_constructions_are_found() {
    let rules = Rules::new();
    for sentence in [
        "What it writes is kept.",
        "The run is taken up again.",
        "Whoever holds it may write.",
        "That a run failed is no reason to stop.",
        "A crash loses nothing: what was committed is there.",
        "There is none, but for the first.",
        "The value stands in the file.",
    ] {
        assert!(sentences(sentence).iter().any(|sentence| rules.broken(sentence).is_some()), "{sentence}");
    }
    for sentence in
        ["What is wrong?", "The name stands for a value.", "The store keeps `what is written`.", "That is all."]
    {
        assert_eq!(sentences(sentence).iter().find_map(|sentence| rules.broken(sentence)), None, "{sentence}");
    }
    assert_eq!(words_of("aWishOf_Two"), ["a", "wish", "of", "two"]);
    assert_eq!(
        comments("/// One.\n/// ```\n/// What is code.\n/// ```\nfn a() {}\n// Two.\n"),
        [(1, "One.".into()), (6, "Two.".into())]
    );
    assert_eq!(messages("    error(\"it is told so\"); // \"not this\"\n"), [(1, "it is told so".into())]);
}
