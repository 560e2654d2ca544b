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
//! The judge does not know all parts of the format. The graphs of `tests/mutations/realistic`, which together use all
//! parts, are not judged: there, a mutant is wrong if its mistake is one in any graph.
//!
//! A mistake should have one message: the diagnostics of each mutant are counted.
//!
//! `UPDATE_DOCS=1` writes `docs/checker.md` again. `MUTANTS=missed` prints each mutant that was missed,
//! `MUTANTS=accused` each one that was found although the judge finds no fault with it, `MUTANTS=misplaced` each
//! one that was found elsewhere, `MUTANTS=right` each one that neither the judge nor the compiler objects to, and
//! `MUTANTS=many` each one that has several messages. `MUTANTS_OF=corpus`, `branches` or `realistic` makes only mutants of
//! these graphs, `MUTANTS_EVERY=5` only each fifth one; then the results are printed, and the page is not compared.

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
#[path = "../mutations/operators_of_parts.rs"]
mod operators_of_parts;
#[path = "../mutations/page.rs"]
mod page;
#[path = "../mutations/places.rs"]
mod places;
#[path = "../mutations/playing.rs"]
mod playing;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::time::SystemTime;

use crate::corpus::Corpus;
use crate::support::{key, sign};
use crate::tree::Tree;
use graph_compiler::diagnostic::{Diagnostic, SourcePlace};
use graph_signing::{KeyFile, SecretKey};
use judge::Fault;
use mill::{Mill, Mutant, Random};
use model::{Callee, Callees, Graph};
use operators::{OF_CONTRACTS, OF_GRAPHS, Operator, tool_id};
use operators_of_branches::OF_BRANCHES;
use operators_of_parts::{OF_FIELDS, OF_KINDS_OF_TOOLS, OF_PARTS, OF_SETTINGS, of_settings};

/// The minimum share of wrong mutants that must be found, in percent.
const LEAST_FOUND: f64 = 99.0;
/// The minimum number of mutants.
const LEAST_MUTANTS: usize = 2000;
/// The minimum number of graphs with branches, and of their mutants.
const LEAST_GRAPHS_WITH_BRANCHES: usize = 15;
const LEAST_MUTANTS_WITH_BRANCHES: usize = 2000;
/// The minimum numbers of graphs with all parts, of their mutants, and the share in percent that have one message.
const LEAST_GRAPHS_WITH_PARTS: usize = 17;
const LEAST_MUTANTS_WITH_PARTS: usize = 1000;
const LEAST_WITH_ONE_MESSAGE: usize = 75;

/// The directory of the graphs with branches.
const BRANCHES: &str = "branches/";
/// The name of the file with the settings of a tree.
const SETTINGS: &str = "graphs.toml";

/// The kinds of mistakes, in the order in which [`Mutant::operator`] counts them.
const OPERATORS: [&[Operator]; 7] =
    [OF_GRAPHS, OF_BRANCHES, OF_CONTRACTS, OF_FIELDS, OF_PARTS, OF_KINDS_OF_TOOLS, OF_SETTINGS];

/// Returns the index of the first operator of a table.
fn first_of(table: &[Operator]) -> usize {
    OPERATORS.iter().take_while(|other| !std::ptr::eq(**other, table)).map(|other| other.len()).sum()
}

/// Returns the name of a file without its directory and extension.
fn stem(file: &str) -> &str {
    file.trim_end_matches(".yaml").rsplit('/').next().unwrap_or_default()
}

/// A tree with its graphs, contracts and callees.
struct World {
    corpus: Corpus,
    graphs: BTreeMap<String, Graph>,
    contracts: BTreeMap<String, Graph>,
    callees: Callees,
    /// Whether the judge knows all parts of the graphs.
    is_judged: bool,
}

impl World {
    /// The corpus and the graphs with branches.
    fn read() -> Self {
        let mut corpus = Corpus::read();
        // The graphs with branches, which call the tools of the corpus.
        for (name, text) in Corpus::of("tests/mutations/branches").files {
            let is_contract = name.starts_with("tools/");
            corpus.files.push((if is_contract { name } else { format!("{BRANCHES}{name}") }, text));
        }
        Self::of(corpus, true)
    }

    /// The graphs with all parts.
    fn realistic() -> Self {
        Self::of(Corpus::of("tests/mutations/realistic"), false)
    }

    fn of(corpus: Corpus, is_judged: bool) -> Self {
        let (mut graphs, mut contracts, mut callees) = (BTreeMap::new(), BTreeMap::new(), Callees::new());
        let built_in = Path::new(env!("CARGO_MANIFEST_DIR")).join("graph-compiler/contracts");
        for file in crate::expected::yaml_files(&built_in) {
            let id = file.strip_prefix(&built_in).unwrap().with_extension("").to_str().unwrap().replace('\\', "/");
            let contract = Graph::read(&fs::read_to_string(file).unwrap()).unwrap();
            callees.insert(id, Callee::from_contract(&contract.root));
        }
        for (name, text) in corpus.files.iter().filter(|(name, _)| name != SETTINGS) {
            let file = Graph::read(text).unwrap();
            if name.starts_with("tools/") {
                callees.insert(tool_id(name), Callee::from_contract(&file.root));
                contracts.insert(name.clone(), file);
            } else {
                callees.insert(file.id(stem(name)), Callee::from_graph(&file));
                graphs.insert(name.clone(), file);
            }
        }
        Self { corpus, graphs, contracts, callees, is_judged }
    }

    /// Writes the tree. Two people have all roles that the graphs name.
    fn tree(&self) -> Tree {
        let tree = self.corpus.tree();
        let role = |line: &str| Some(line.split_once("role: ")?.1.split([',', ' ', '}']).next()?.to_owned());
        let roles: BTreeSet<String> =
            self.corpus.files.iter().flat_map(|(_, text)| text.lines().filter_map(role)).collect();
        for (seed, owner) in [(31, "Ann"), (32, "Ben")].into_iter().filter(|_| !self.is_judged) {
            let mut file = KeyFile::new(SecretKey::from_seed(&[seed; 32]).public(), owner);
            file.roles = roles.iter().cloned().collect();
            tree.write(&format!("keys/{}.toml", file.fingerprint), file.to_signed_toml(&key(), SystemTime::UNIX_EPOCH));
        }
        tree
    }

    /// Returns the id of the graph or tool in a file.
    fn id(&self, file: &str) -> String {
        self.graphs.get(file).map_or_else(|| tool_id(file), |graph| graph.id(stem(file)))
    }

    /// Returns the graphs that call the graph or tool in a file.
    fn users(&self, file: &str) -> BTreeSet<&str> {
        let id = self.id(file);
        if !self.is_judged {
            return self.mentions(&id);
        }
        let calls = |graph: &Graph| {
            let hooks = graph.hooks().iter().filter_map(|hook| model::called(model::get(hook, "action")?));
            graph.nodes().iter().filter_map(model::Node::calls).chain(hooks).any(|called| called == id)
        };
        self.graphs.iter().filter(|(_, graph)| calls(graph)).map(|(name, _)| name.as_str()).collect()
    }

    /// Returns the graphs that have an id in their text, or that of a contract with it: they may call it, begin it as a
    /// task, combine writes by it, or call an agent that may call it.
    fn mentions(&self, id: &str) -> BTreeSet<&str> {
        let has = |file: &Graph| {
            file.text.split(|letter: char| !letter.is_alphanumeric() && !"/_-".contains(letter)).any(|word| word == id)
        };
        let mut users: BTreeSet<&str> =
            self.graphs.iter().filter(|(_, graph)| has(graph)).map(|(name, _)| name.as_str()).collect();
        // The directive of an agent may have its id.
        for (name, _) in self.contracts.iter().filter(|(name, contract)| has(contract) && tool_id(name) != id) {
            users.extend(self.mentions(&tool_id(name)));
        }
        users
    }

    fn mutants(&self) -> Vec<Mutant> {
        let of_graphs: &[&[Operator]] =
            if self.is_judged { &[OF_GRAPHS, OF_BRANCHES] } else { &[OF_GRAPHS, OF_BRANCHES, OF_FIELDS, OF_PARTS] };
        let of_contracts: &[&[Operator]] =
            if self.is_judged { &[OF_CONTRACTS] } else { &[OF_CONTRACTS, OF_KINDS_OF_TOOLS] };
        let mut mutants = Vec::new();
        for (file, graph) in &self.graphs {
            of_graphs.iter().for_each(|table| mutants.extend(self.mutants_of(file, graph, table)));
        }
        // The callers of computed ids are known only at run time, so such contracts have no mutants.
        for (file, contract) in self.contracts.iter().filter(|(file, _)| !self.users(file).is_empty()) {
            of_contracts.iter().for_each(|table| mutants.extend(self.mutants_of(file, contract, table)));
        }
        if let Some((_, text)) = self.corpus.files.iter().find(|(name, _)| name == SETTINGS && !self.is_judged) {
            mutants.extend(of_settings(text, SETTINGS, first_of(OF_SETTINGS)));
        }
        mutants
    }

    fn mutants_of(&self, file: &str, graph: &Graph, operators: &[Operator]) -> Vec<Mutant> {
        let mut kept = Vec::new();
        let first = first_of(operators);
        for (at, operator) in operators.iter().enumerate() {
            let random = Random::of(&format!("{file}, {}", operator.name));
            let mut mill =
                Mill { file, graph, callees: &self.callees, random, operator: first + at, mutants: Vec::new() };
            (operator.make)(&mut mill);
            // The kinds that the other graphs have too are rarer here.
            let is_known = !self.is_judged && first < first_of(OF_FIELDS);
            let most = if is_known { 1 } else { operator.most };
            for _ in 0..most.min(mill.mutants.len()) {
                let one = mill.random.below(mill.mutants.len());
                kept.push(mill.mutants.swap_remove(one));
            }
        }
        kept
    }

    /// Returns the faults of a mutant and of the graphs that depend on it. The judge is not asked about a mutant that is
    /// wrong in any graph.
    fn faults(&self, mutant: &Mutant) -> BTreeSet<Fault> {
        if mutant.is_wrong || !self.is_judged {
            return BTreeSet::new();
        }
        let Some(file) = Graph::read(&mutant.text) else {
            panic!("{} in {} is no YAML: {}", mutant.what, mutant.file, mutant.text);
        };
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

    /// Compiles a mutant, and the graphs that call it. Returns each diagnostic once.
    fn compile(&self, mutant: &Mutant, tree: &Tree) -> Vec<Diagnostic> {
        tree.write(&mutant.file, sign(&mutant.text));
        let project = tree.project();
        // The contracts of agents and programs are graphs too.
        let is_graph = self.graphs.contains_key(&mutant.file)
            || !self.is_judged
                && ["agent", "program"].iter().any(|kind| mutant.text.contains(&format!("tool_type: {kind}")));
        let own = is_graph.then_some(mutant.file.as_str());
        let files: BTreeSet<&str> = if mutant.file == SETTINGS {
            // Each graph has the mistakes of the settings.
            self.graphs.keys().map(String::as_str).take(1).collect()
        } else {
            own.into_iter().chain(self.users(&mutant.file)).collect()
        };
        let mut known = HashSet::new();
        let all = files.iter().flat_map(|file| project.compile(&tree.path(file)).diagnostics);
        let found = all.filter(|one| known.insert(one.identity())).collect();
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
    /// Whether the judge was asked.
    is_judged: bool,
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

    fn has_one_message(&self) -> bool {
        self.found.len() == 1
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

/// Makes and compiles the mutants of a tree, or each of some of them.
fn judge_all(world: &World, every: usize, is_wanted: impl Fn(&Mutant) -> bool) -> Vec<Verdict> {
    let mutants = world.mutants().into_iter().filter(is_wanted).step_by(every);
    let waiting = Mutex::new(mutants.enumerate().collect::<Vec<_>>());
    let done = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from).min(8) {
            scope.spawn(|| {
                let tree = world.tree();
                loop {
                    let next = waiting.lock().unwrap().pop();
                    let Some((at, mutant)) = next else { return };
                    let (faults, found) = (world.faults(&mutant), world.compile(&mutant, &tree));
                    let verdict = Verdict { mutant, faults, found, is_judged: world.is_judged };
                    done.lock().unwrap().insert(at, verdict);
                }
            });
        }
    });
    done.into_inner().unwrap().into_values().collect()
}

#[test]
fn the_graphs_with_branches_have_no_diagnostics() {
    let world = World::read();
    let graphs = world.graphs.iter().filter(|(name, _)| name.starts_with(BRANCHES));
    assert!(graphs.clone().count() >= LEAST_GRAPHS_WITH_BRANCHES);
    assert!(graphs.clone().all(|(_, graph)| graph.has_branches()));
    assert_no_diagnostics(&world, graphs.map(|(name, _)| name.as_str()));
}

#[test]
fn the_graphs_with_all_parts_have_no_diagnostics() {
    let world = World::realistic();
    assert!(world.graphs.len() >= LEAST_GRAPHS_WITH_PARTS, "{} graphs", world.graphs.len());
    assert_no_diagnostics(&world, world.graphs.keys().map(String::as_str));
}

fn assert_no_diagnostics<'w>(world: &World, graphs: impl Iterator<Item = &'w str>) {
    let tree = world.tree();
    let project = tree.project();
    for name in graphs {
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
    let (part, every) = (std::env::var("MUTANTS_OF"), std::env::var("MUTANTS_EVERY"));
    let is_whole = part.is_err() && every.is_err();
    let every = every.map_or(1, |every| every.parse().unwrap());
    let is_wanted = |name: &str| part.as_ref().map_or(true, |part| part == name);
    let mut verdicts = judge_all(&World::read(), every, |mutant| {
        is_wanted(if mutant.file.starts_with(BRANCHES) { "branches" } else { "corpus" })
    });
    verdicts.extend(judge_all(&World::realistic(), every, |_| is_wanted("realistic")));
    page::print(&verdicts);
    if !is_whole {
        println!("{}", page::page(&verdicts));
        return;
    }
    let (all, of_parts): (Vec<&Verdict>, Vec<&Verdict>) = verdicts.iter().partition(|verdict| verdict.is_judged);
    assert!(all.len() >= LEAST_MUTANTS, "{} mutants", all.len());
    let of_branches: Vec<&Verdict> = verdicts.iter().filter(|verdict| verdict.is_of_branches()).collect();
    assert!(of_branches.len() >= LEAST_MUTANTS_WITH_BRANCHES, "{} mutants with branches", of_branches.len());
    assert!(of_parts.len() >= LEAST_MUTANTS_WITH_PARTS, "{} mutants with all parts", of_parts.len());
    for some in [all, of_branches, of_parts] {
        let with_one = some.iter().filter(|verdict| verdict.has_one_message()).count();
        let with_any = some.iter().filter(|verdict| verdict.is_found()).count();
        assert!(with_one * 100 >= with_any * LEAST_WITH_ONE_MESSAGE, "{with_one} of {with_any} have one message");
        let wrong: Vec<&Verdict> = some.into_iter().filter(|verdict| verdict.is_wrong()).collect();
        let found = wrong.iter().filter(|verdict| verdict.is_found()).count();
        assert!(found as f64 >= wrong.len() as f64 * LEAST_FOUND / 100.0, "{found} of {} were found", wrong.len());
    }
    let seen: BTreeSet<Fault> = verdicts.iter().flat_map(|verdict| verdict.faults.iter().copied()).collect();
    let unseen: Vec<&Fault> = Fault::OF_BRANCHES.iter().filter(|fault| !seen.contains(fault)).collect();
    assert!(unseen.is_empty(), "no mutant has these faults: {unseen:?}");
    page::check(&verdicts);
}
