//! The results of the mutants, as a page and as lists for people who work on the compiler.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::operators::Operator;
use super::{OPERATORS, Verdict};

/// The results for the mutants of one operator.
#[derive(Default, Clone, Copy)]
struct Row {
    made: usize,
    wrong: usize,
    found: usize,
    in_place: usize,
    /// The mutants that are not wrong, although the compiler reports something.
    accused: usize,
    /// The mutants with exactly one diagnostic.
    with_one: usize,
}

impl Row {
    fn of<'v>(verdicts: impl IntoIterator<Item = &'v Verdict>) -> Self {
        let mut row = Self::default();
        verdicts.into_iter().for_each(|verdict| row.add(verdict));
        row
    }

    fn add(&mut self, verdict: &Verdict) {
        self.made += 1;
        self.with_one += usize::from(verdict.has_one_message());
        if verdict.is_wrong() {
            self.wrong += 1;
            self.found += usize::from(verdict.is_found());
            self.in_place += usize::from(verdict.is_found() && verdict.is_in_place());
        } else {
            self.accused += usize::from(verdict.is_found());
        }
    }

    /// Returns the number of mutants with diagnostics.
    fn reported(&self) -> usize {
        self.found + self.accused
    }

    fn line(&self, name: &str, criterion: &str) -> String {
        let Self { made, wrong, found, in_place, accused, with_one } = self;
        let other = made - wrong;
        format!(
            "| {name} | {criterion} | {made} | {wrong} | {found} | {in_place} | {other} | {accused} | {with_one} |\n"
        )
    }

    /// Returns how many of the mutants with diagnostics have exactly one, as a sentence.
    fn messages(&self) -> String {
        let (reported, share) = (self.reported(), percent(self.with_one, self.reported()));
        format!("{} of the {reported} mutants that are found have exactly one message ({share}).\n", self.with_one)
    }
}

fn operators() -> impl Iterator<Item = &'static Operator> {
    OPERATORS.iter().copied().flatten()
}

fn percent(part: usize, whole: usize) -> String {
    // Truncated and not rounded, so that the share was really reached.
    let tenths = part * 1000 / whole.max(1);
    format!("{}.{} %", tenths / 10, tenths % 10)
}

/// Returns a table with a row for each operator that made a mutant.
fn table(verdicts: &[&Verdict]) -> String {
    let mut table = "| mistake | is wrong | mutants | wrong | found | right line | not wrong | found | one message |\n\
                     |---|---|--:|--:|--:|--:|--:|--:|--:|\n"
        .to_owned();
    for (at, operator) in operators().enumerate() {
        let row = Row::of(verdicts.iter().copied().filter(|verdict| verdict.mutant.operator == at));
        if row.made > 0 {
            table += &row.line(operator.name, operator.criterion);
        }
    }
    table
}

pub(crate) fn page(verdicts: &[Verdict]) -> String {
    let (judged, of_parts): (Vec<&Verdict>, Vec<&Verdict>) = verdicts.iter().partition(|verdict| verdict.is_judged);
    let total = Row::of(judged.iter().copied());
    let of_branches = || judged.iter().copied().filter(|verdict| verdict.is_of_branches());
    let branches = Row::of(of_branches());
    let graphs: BTreeSet<&str> = of_branches().map(|verdict| verdict.mutant.file.as_str()).collect();
    let mut page = format!(
        "# How many mistakes the checker finds\n\n\
         The compiler reports nothing about the graphs of `tests/corpus` and of `tests/mutations/branches`, nor about the contracts\n\
         of their tools. A test makes {} mutants of them, with one mistake each, and compiles each mutant. This page is written by\n\
         `tests/language/mutations.rs`, from the results.\n\n\
         {} of these mutants are wrong. The compiler finds {} of the wrong ones ({}), {} of them on the right line ({}).\n\n\
         The directory `tests/mutations/branches` has {} graphs with branches. {} of the mutants are made of them, and {} of these are\n\
         wrong. The compiler finds {} of the wrong ones ({}), {} of them on the right line ({}).\n\n\
         - A mutant is **wrong** if its mistake is one in every graph, such as an edge to a node that does not exist, or if a judge\n  \
         finds fault with it. The judge knows the format and does not use the compiler. Every other mutant is a different graph\n  \
         that an author may want: an edge leads to another node, or an optional parameter is not given.\n\
         - A mutant is **found** if the compiler reports anything.\n\
         - The **right line** is the line of the mistake, the line of a construct that contains it, or a line with a name that the\n  \
         mistake is about.\n\
         - A mutant that is **not wrong** may be found all the same: the compiler objects to its style, or to something that the\n  \
         judge does not know.\n\n\
         The judge plays a graph with branches: it moves one visit at a time through every position that a run can come to, whatever\n\
         conditions hold and calls fail. So it sees every order of the branches. It does not know these mistakes, and a mutant with\n\
         one of them counts as not wrong:\n\n\
         - a secret that is written to a channel which compares values\n\
         - a read of a channel with `keep: step` in a step without its value\n\
         - a key that is set to null on the way to a read\n\
         - a failure of a gate, other than of one that adds to a `sum`\n\
         - a loop that cannot end because its exits look at nothing that changes\n\n",
        total.made,
        total.wrong,
        total.found,
        percent(total.found, total.wrong),
        total.in_place,
        percent(total.in_place, total.wrong),
        graphs.len(),
        branches.made,
        branches.wrong,
        branches.found,
        percent(branches.found, branches.wrong),
        branches.in_place,
        percent(branches.in_place, branches.wrong),
    );
    page += "A mistake should have one message. ";
    page += &total.messages();
    page += "\n";
    page += &table(&judged);
    page += &branches.line("**of graphs with branches**", "");
    page += &total.line("**all**", "");
    page += "\n## Graphs with all parts\n\n";
    page += &parts(&of_parts);
    page += "\n## Not found\n\n";
    let missed = verdicts.iter().filter(|verdict| verdict.is_wrong() && !verdict.is_found());
    let mut groups: BTreeMap<(usize, String), Vec<&Verdict>> = BTreeMap::new();
    for verdict in missed {
        groups.entry((verdict.mutant.operator, verdict.why())).or_default().push(verdict);
    }
    if groups.is_empty() {
        page += "Nothing.\n";
    } else {
        page += "| mistake | why it is wrong | why it is not found | mutants | for example |\n|---|---|---|--:|---|\n";
    }
    for ((operator, why), group) in groups {
        let one = &group[0].mutant;
        let name = operators().nth(operator).unwrap().name;
        let example = format!("{}:{}, {}", one.file, one.lines[0], one.what.replace('|', "\\|"));
        writeln!(page, "| {name} | {why} | {} | {} | {example} |", reason(name), group.len()).unwrap();
    }
    page
}

/// Returns the results for the graphs with all parts.
fn parts(verdicts: &[&Verdict]) -> String {
    let total = Row::of(verdicts.iter().copied());
    let is_graph = |file: &&str| !file.starts_with("tools/") && file.ends_with(".yaml");
    let graphs: BTreeSet<&str> = verdicts.iter().map(|verdict| verdict.mutant.file.as_str()).filter(is_graph).collect();
    let mut page = format!(
        "The directory `tests/mutations/realistic` has {} graphs that together use all parts of the format: waits, signals, questions\n\
         to people, guarded calls, branches, channels, shared keys, entries, limits, nested graphs, agents, programs, tasks, tools of\n\
         servers, hooks, secrets and schedules. {} mutants are made of them and of their contracts. The judge does not know all of\n\
         these parts, so a mutant is wrong only if its mistake is one in every graph. {} are wrong, the compiler finds {} of these ({}), {} on\n\
         the right line ({}). {}\n",
        graphs.len(),
        total.made,
        total.wrong,
        total.found,
        percent(total.found, total.wrong),
        total.in_place,
        percent(total.in_place, total.wrong),
        total.messages(),
    );
    page += &table(verdicts);
    page += &total.line("**all**", "");
    page += "\n### Legal mutants\n\nThe mutants that are not wrong, and about which the compiler says nothing:\n\n\
             | mistake | mutants | it is legal because |\n|---|--:|---|\n";
    for (at, operator) in operators().enumerate() {
        let is_legal =
            |verdict: &&&Verdict| verdict.mutant.operator == at && !verdict.is_wrong() && !verdict.is_found();
        let count = verdicts.iter().filter(is_legal).count();
        if count > 0 {
            writeln!(page, "| {} | {count} | {} |", operator.name, operator.legal).unwrap();
        }
    }
    page
}

/// Returns why the compiler does not find mutants of an operator, if that is known.
fn reason(operator: &str) -> &'static str {
    match operator {
        "template: dollar dropped" => "the text has an operator between its paths, and may be meant as it is",
        "field of a path: misspelt" => "the type is not known: a map with any keys, or the data of an event",
        _ => "no rule looks for it",
    }
}

/// Prints the mutants that `MUTANTS` selects.
pub(crate) fn print(verdicts: &[Verdict]) {
    let asked = std::env::var("MUTANTS").unwrap_or_default();
    for verdict in verdicts {
        let is_asked_for = match (verdict.is_wrong(), verdict.is_found()) {
            (true, false) => asked == "missed",
            (true, true) => asked == "misplaced" && !verdict.is_in_place(),
            (false, true) => asked == "accused",
            (false, false) => asked == "right",
        };
        if is_asked_for || asked == "many" && verdict.found.len() > 1 {
            let mutant = &verdict.mutant;
            let name = operators().nth(mutant.operator).unwrap().name;
            println!("{name}: {}:{} {} ({})", mutant.file, mutant.lines[0], mutant.what, verdict.why());
            for found in &verdict.found {
                println!("    {} {} {}", found.code.id, found.location(), found.message);
            }
        }
    }
}

/// Checks that the page is up to date, or writes it.
pub(crate) fn check(verdicts: &[Verdict]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/checker.md");
    let page = page(verdicts);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, &page).unwrap();
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(found, page, "run with UPDATE_DOCS=1 to write {} again", path.display());
}
