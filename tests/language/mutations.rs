//! The share of mistakes that the compiler finds: mutants with one mistake each are made from each graph and contract
//! of the clean corpus, and from the graphs with branches in `tests/mutations/branches`, always the same ones, and compiled.
//!
//! The compiler does not decide whether a mutant is wrong. Some mistakes are wrong in any graph, such as a misspelt
//! target. For the others, a separate judge, derived from the format's description, decides whether the result has a
//! fault. A mutant without a fault is another correct graph, and is counted separately.
//!
//! A mutant is found if the compiler reports anything, because it reports nothing for the corpus. It is found on the
//! right line if the report, or a place that it points at, is on a line of the mistake, on a line of a construct that
//! contains the mistake, or on a line with the name that the mistake is about.
//!
//! `UPDATE_DOCS=1` writes `docs/checker.md` again. `MUTANTS=missed` prints each mutant that was missed,
//! `MUTANTS=accused` each one that was found although the judge finds no fault with it, `MUTANTS=misplaced` each
//! one that was found elsewhere, and `MUTANTS=right` each one that neither the judge nor the compiler objects to.

#[path = "../mutations/judge.rs"]
mod judge;
#[path = "../mutations/mill.rs"]
mod mill;
#[path = "../mutations/model.rs"]
mod model;
#[path = "../mutations/operators.rs"]
mod operators;
#[path = "../mutations/operators_of_branches.rs"]
mod operators_of_branches;
#[path = "../mutations/page.rs"]
mod page;
#[path = "../mutations/places.rs"]
mod places;
#[path = "../mutations/playing.rs"]
mod playing;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::Mutex;

use crate::corpus::Corpus;
use crate::support::sign;
use crate::tree::Tree;
use graph_compiler::diagnostic::{Diagnostic, SourcePlace};
use judge::Fault;
use mill::{Mill, Mutant, Random};
use model::{Callee, Callees, Graph};
use operators::{OF_CONTRACTS, OF_GRAPHS, Operator, tool_id};
use operators_of_branches::OF_BRANCHES;

/// The minimum share of wrong mutants that must be found, in percent.
const LEAST_FOUND: f64 = 99.0;
/// The minimum number of mutants.
const LEAST_MUTANTS: usize = 2000;
/// The minimum number of graphs with branches, and of their mutants.
const LEAST_GRAPHS_WITH_BRANCHES: usize = 15;
const LEAST_MUTANTS_WITH_BRANCHES: usize = 2000;

/// The directory of the graphs with branches.
const BRANCHES: &str = "branches/";

/// Returns the name of a file without its directory and extension.
fn stem(file: &str) -> &str {
    file.trim_end_matches(".yaml").rsplit('/').next().unwrap_or_default()
}

/// The corpus, with its graphs, contracts and callees.
struct World {
    corpus: Corpus,
    graphs: BTreeMap<String, Graph>,
    contracts: BTreeMap<String, Graph>,
    callees: Callees,
}

impl World {
    fn read() -> Self {
        let mut corpus = Corpus::read();
        // The graphs with branches, which call the tools of the corpus.
        for (name, text) in Corpus::of("tests/mutations/branches").files {
            let is_contract = name.starts_with("tools/");
            corpus.files.push((if is_contract { name } else { format!("{BRANCHES}{name}") }, text));
        }
        let (mut graphs, mut contracts, mut callees) = (BTreeMap::new(), BTreeMap::new(), Callees::new());
        let built_in = Path::new(env!("CARGO_MANIFEST_DIR")).join("graph-compiler/contracts");
        for file in crate::expected::yaml_files(&built_in) {
            let id = file.strip_prefix(&built_in).unwrap().with_extension("").to_str().unwrap().replace('\\', "/");
            let contract = Graph::read(&fs::read_to_string(file).unwrap()).unwrap();
            callees.insert(id, Callee::from_contract(&contract.root));
        }
        for (name, text) in &corpus.files {
            let file = Graph::read(text).unwrap();
            if name.starts_with("tools/") {
                callees.insert(tool_id(name), Callee::from_contract(&file.root));
                contracts.insert(name.clone(), file);
            } else {
                callees.insert(file.id(stem(name)), Callee::from_graph(&file));
                graphs.insert(name.clone(), file);
            }
        }
        Self { corpus, graphs, contracts, callees }
    }

    /// Returns the id of the graph or tool in a file.
    fn id(&self, file: &str) -> String {
        self.graphs.get(file).map_or_else(|| tool_id(file), |graph| graph.id(stem(file)))
    }

    /// Returns the graphs that call the graph or tool in a file.
    fn users(&self, file: &str) -> Vec<&str> {
        let id = self.id(file);
        let calls = |graph: &Graph| {
            let hooks = graph.hooks().iter().filter_map(|hook| model::called(model::get(hook, "action")?));
            graph.nodes().iter().filter_map(model::Node::calls).chain(hooks).any(|called| called == id)
        };
        self.graphs.iter().filter(|(_, graph)| calls(graph)).map(|(name, _)| name.as_str()).collect()
    }

    fn mutants(&self) -> Vec<Mutant> {
        let mut mutants = Vec::new();
        for (file, graph) in &self.graphs {
            mutants.extend(self.mutants_of(file, graph, OF_GRAPHS, 0));
            mutants.extend(self.mutants_of(file, graph, OF_BRANCHES, OF_GRAPHS.len()));
        }
        // The callers of computed ids are known only at run time, so such contracts have no mutants.
        for (file, contract) in self.contracts.iter().filter(|(file, _)| !self.users(file).is_empty()) {
            mutants.extend(self.mutants_of(file, contract, OF_CONTRACTS, OF_GRAPHS.len() + OF_BRANCHES.len()));
        }
        mutants
    }

    fn mutants_of(&self, file: &str, graph: &Graph, operators: &[Operator], first: usize) -> Vec<Mutant> {
        let mut kept = Vec::new();
        for (at, operator) in operators.iter().enumerate() {
            let random = Random::of(&format!("{file}, {}", operator.name));
            let mut mill =
                Mill { file, graph, callees: &self.callees, random, operator: first + at, mutants: Vec::new() };
            (operator.make)(&mut mill);
            for _ in 0..operator.most.min(mill.mutants.len()) {
                let one = mill.random.below(mill.mutants.len());
                kept.push(mill.mutants.swap_remove(one));
            }
        }
        kept
    }

    /// Returns the faults of a mutant and of the graphs that depend on it. The judge is not asked about a mutant that is
    /// wrong in any graph.
    fn faults(&self, mutant: &Mutant) -> BTreeSet<Fault> {
        let Some(file) = Graph::read(&mutant.text) else {
            assert!(mutant.is_wrong, "{} in {} is no YAML: {}", mutant.what, mutant.file, mutant.text);
            return BTreeSet::new();
        };
        if mutant.is_wrong {
            return BTreeSet::new();
        }
        let is_contract = self.contracts.contains_key(&mutant.file);
        let callee = if is_contract { Callee::from_contract(&file.root) } else { Callee::from_graph(&file) };
        let mut callees = self.callees.clone();
        callees.insert(self.id(&mutant.file), callee);
        let mut faults = if is_contract { BTreeSet::new() } else { judge::faults(&file, &callees) };
        for user in self.users(&mutant.file).into_iter().filter(|user| *user != mutant.file) {
            faults.extend(judge::faults(&self.graphs[user], &callees));
        }
        faults
    }

    /// Compiles a mutant, and the graphs that call it.
    fn compile(&self, mutant: &Mutant, tree: &Tree) -> Vec<Diagnostic> {
        tree.write(&mutant.file, sign(&mutant.text));
        let project = tree.project();
        let own = self.graphs.contains_key(&mutant.file).then_some(mutant.file.as_str());
        let files: BTreeSet<&str> = own.into_iter().chain(self.users(&mutant.file)).collect();
        let found = files.iter().flat_map(|file| project.compile(&tree.path(file)).diagnostics).collect();
        let (_, text) = self.corpus.files.iter().find(|(name, _)| *name == mutant.file).unwrap();
        tree.write(&mutant.file, sign(text));
        found
    }
}

/// A mutant with its faults and with the compiler's diagnostics.
struct Verdict {
    mutant: Mutant,
    faults: BTreeSet<Fault>,
    found: Vec<Diagnostic>,
}

impl Verdict {
    fn is_wrong(&self) -> bool {
        self.mutant.is_wrong || !self.faults.is_empty()
    }

    /// Whether the mutant is one of a graph with branches.
    fn is_of_branches(&self) -> bool {
        self.mutant.file.starts_with(BRANCHES)
    }

    fn is_found(&self) -> bool {
        !self.found.is_empty()
    }

    /// Whether the compiler points at the mistake.
    fn is_in_place(&self) -> bool {
        let places = self
            .found
            .iter()
            .flat_map(|one| std::iter::once(&one.place).chain(one.related.iter().map(|(place, _)| place)));
        places.into_iter().any(|place| self.is_right(place))
    }

    fn is_right(&self, place: &SourcePlace) -> bool {
        // The first line is the signature.
        let Some((line, _)) = place.position().filter(|&(line, _)| line > 1) else { return false };
        let is_own = place.source.name.trim_start_matches("graphs/") == self.mutant.file;
        let text = place.source.text.lines().nth(line - 1).unwrap_or_default();
        (is_own && self.mutant.lines.contains(&(line - 1))) || self.mutant.names.iter().any(|name| has_word(text, name))
    }

    /// Returns why the mutant is wrong.
    fn why(&self) -> String {
        let words: Vec<&str> = self.faults.iter().map(|fault| fault.words()).collect();
        if words.is_empty() { "it always is".to_owned() } else { words.join("; ") }
    }
}

fn has_word(line: &str, word: &str) -> bool {
    let inside = |character: char| character.is_ascii_alphanumeric() || character == '_';
    !word.is_empty()
        && line
            .match_indices(word)
            .any(|(at, _)| !line[..at].ends_with(inside) && !line[at + word.len()..].starts_with(inside))
}

fn judge_all(world: &World) -> Vec<Verdict> {
    let waiting = Mutex::new(world.mutants().into_iter().enumerate().collect::<Vec<_>>());
    let done = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from).min(8) {
            scope.spawn(|| {
                let tree = world.corpus.tree();
                loop {
                    let next = waiting.lock().unwrap().pop();
                    let Some((at, mutant)) = next else { return };
                    let (faults, found) = (world.faults(&mutant), world.compile(&mutant, &tree));
                    done.lock().unwrap().insert(at, Verdict { mutant, faults, found });
                }
            });
        }
    });
    done.into_inner().unwrap().into_values().collect()
}

#[test]
fn the_graphs_with_branches_have_no_diagnostics() {
    let world = World::read();
    let tree = world.corpus.tree();
    let project = tree.project();
    let graphs: Vec<&String> = world.graphs.keys().filter(|name| name.starts_with(BRANCHES)).collect();
    assert!(graphs.len() >= LEAST_GRAPHS_WITH_BRANCHES, "{} graphs", graphs.len());
    for name in graphs {
        assert!(world.graphs[name].has_branches(), "{name} has no branches");
        let compilation = project.compile(&tree.path(name));
        let said: Vec<String> = compilation.diagnostics.iter().map(Diagnostic::render).collect();
        assert!(said.is_empty() && compilation.graph.is_some(), "{name}: {said:#?}");
    }
}

#[test]
fn the_judge_finds_no_fault_with_the_corpus() {
    let world = World::read();
    let faults = |(name, graph): (&String, &Graph)| (name.clone(), judge::faults(graph, &world.callees));
    let faulty: Vec<_> = world.graphs.iter().map(faults).filter(|(_, faults)| !faults.is_empty()).collect();
    assert!(faulty.is_empty(), "{faulty:#?}");
}

#[test]
fn wrong_mutants_are_found() {
    let world = World::read();
    let verdicts = judge_all(&world);
    page::print(&verdicts);
    let all: Vec<&Verdict> = verdicts.iter().collect();
    assert!(all.len() >= LEAST_MUTANTS, "{} mutants", all.len());
    let of_branches: Vec<&Verdict> = verdicts.iter().filter(|verdict| verdict.is_of_branches()).collect();
    assert!(of_branches.len() >= LEAST_MUTANTS_WITH_BRANCHES, "{} mutants with branches", of_branches.len());
    for some in [all, of_branches] {
        let wrong: Vec<&Verdict> = some.into_iter().filter(|verdict| verdict.is_wrong()).collect();
        let found = wrong.iter().filter(|verdict| verdict.is_found()).count();
        assert!(found as f64 >= wrong.len() as f64 * LEAST_FOUND / 100.0, "{found} of {} were found", wrong.len());
    }
    let seen: BTreeSet<Fault> = verdicts.iter().flat_map(|verdict| verdict.faults.iter().copied()).collect();
    let unseen: Vec<&Fault> = Fault::OF_BRANCHES.iter().filter(|fault| !seen.contains(fault)).collect();
    assert!(unseen.is_empty(), "no mutant has these faults: {unseen:?}");
    page::check(&verdicts);
}
