//! Suites: the tests of trees of graphs, found and run.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use graph_compiler::diagnostic::{Diagnostic, Severity, SourcePlace, code};
use graph_compiler::project::{Project, display_name};
use graph_compiler::source::SourceFile;
use graph_compiler::{find_graphs, find_tests, is_test_file};
use graph_model::name::ItemId;
use graph_runtime::dynamic::{Interpreted, Library};
use graph_runtime::{SecretKey, StartError, Status};
use graph_testkit::{COVERAGE_VARIABLE, KeptJournal};

use crate::check::{TestNames, check};
use crate::coverage::GraphCoverage;
use crate::file::{TestCase, TestFile, graph_of, tests_of};
use crate::judge::{CaseFailure, compare_crashed, judge};
use crate::run::{self, CaseError, CaseRun, shown_start};
use crate::script::ScriptedTools;

/// The most crashes of one case.
const MOST_CRASHES: u64 = 10_000;

/// A graph, and the file of its tests.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct TestTarget {
    /// The directory of the tree that the graph is in.
    pub root: PathBuf,
    /// The file of the graph.
    pub graph: PathBuf,
    /// The file of its tests, if it has one.
    pub tests: Option<PathBuf>,
}

/// Why the graphs and tests at a path cannot be found.
#[derive(Debug)]
pub enum FindError {
    /// There is nothing to test there.
    Nothing(PathBuf),
    /// The graph has no file of tests.
    NoTests(PathBuf),
    /// A directory or file cannot be read.
    Unreadable(PathBuf, io::Error),
}

impl fmt::Display for FindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing(path) => write!(
                f,
                "there are no tests in {}: write the cases of `order.yaml` into `order.test.yaml`, beside it",
                path.display()
            ),
            Self::NoTests(graph) => {
                let tests = graph.with_extension("test.yaml");
                write!(f, "{} has no tests: write its cases into {}", graph.display(), tests.display())
            }
            Self::Unreadable(path, error) => write!(f, "cannot read {}: {error}", path.display()),
        }
    }
}

impl std::error::Error for FindError {}

/// Why the journals of tests in Rust are not counted.
#[derive(Debug)]
pub struct KeptJournalError {
    /// The file or directory, as messages have it.
    pub file: String,
    /// The reason.
    pub problem: String,
}

impl fmt::Display for KeptJournalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.file, self.problem)
    }
}

impl std::error::Error for KeptJournalError {}

/// The result of the tests of a graph.
#[derive(Debug)]
pub struct FileReport {
    /// The name of the file of tests, as messages have it.
    pub name: String,
    /// The files of the tree that no trusted key signed, among those that the graph was loaded with.
    pub drafts: Vec<String>,
    /// The cases, or the mistakes for which none was run.
    pub cases: Result<Vec<CaseReport>, Vec<Diagnostic>>,
    /// The parts that the cases reached, of the graph and of those that ran inside it.
    pub coverage: Vec<GraphCoverage>,
}

/// The result of a case.
#[derive(Debug)]
pub struct CaseReport {
    /// The name of the case.
    pub name: String,
    /// Its line in the file of tests.
    pub line: usize,
    /// The ways in which it failed; empty if it passed.
    pub failures: Vec<CaseFailure>,
    /// The path of the run.
    pub path: Vec<String>,
    /// How much virtual time passed.
    pub elapsed: Duration,
    /// How often the case was repeated with a crash.
    pub crashes: u64,
}

impl FileReport {
    /// Whether every case passed.
    pub fn is_passed(&self) -> bool {
        self.cases.as_ref().is_ok_and(|cases| cases.iter().all(|case| case.failures.is_empty()))
    }
}

/// Runs the tests of graphs.
pub struct TestSuite {
    working: PathBuf,
    /// Signs the files that are not signed, for this suite only.
    key: SecretKey,
    /// The trees, by their directories and by the graphs that do not run.
    trees: BTreeMap<(PathBuf, BTreeSet<String>), TestTree>,
}

/// A tree whose tools are scripted.
struct TestTree {
    library: Library,
    /// The script of the case that runs.
    tools: ScriptedTools,
    drafts: Vec<PathBuf>,
}

impl TestSuite {
    /// A suite whose messages name files relative to `working`.
    ///
    /// # Errors
    ///
    /// If the operating system gives no random bytes.
    pub fn new(working: &Path) -> Result<Self, graph_runtime::KeyError> {
        let working = working.canonicalize().unwrap_or_else(|_| working.to_owned());
        Ok(Self { working, key: SecretKey::generate()?, trees: BTreeMap::new() })
    }

    /// Finds the tests at some paths: files of tests, graphs, or directories. The graphs of a directory that have no tests are
    /// among the result.
    ///
    /// # Errors
    ///
    /// If something cannot be read, or there is no graph and no file of tests at a path.
    pub fn find(&self, paths: &[PathBuf]) -> Result<Vec<TestTarget>, FindError> {
        let mut targets: BTreeMap<PathBuf, TestTarget> = BTreeMap::new();
        for path in paths {
            // A file's path determines the tree that it is part of, so `..` and links in it are resolved first.
            let path = self.working.join(path);
            let path = path.canonicalize().map_err(|error| FindError::Unreadable(path, error))?;
            if path.is_dir() {
                let (tests, graphs) = (find_tests(&path), find_graphs(&path));
                if let Some((path, error)) = tests.unreadable.into_iter().chain(graphs.unreadable).next() {
                    return Err(FindError::Unreadable(path, error));
                }
                if tests.files.is_empty() && graphs.files.is_empty() {
                    return Err(FindError::Nothing(path));
                }
                for graph in graphs.files {
                    let target = self.target(&graph, tests_of(&graph), Some(&path));
                    targets.entry(graph).or_insert(target);
                }
                for file in tests.files {
                    let Some(graph) = graph_of(&file) else { continue };
                    let target = self.target(&graph, Some(file), Some(&path));
                    targets.insert(graph, target);
                }
            } else {
                let (graph, tests) = match is_test_file(&path) {
                    true => (graph_of(&path).unwrap_or_else(|| path.clone()), Some(path)),
                    false => (path.clone(), tests_of(&path)),
                };
                let target = self.target(&graph, tests, None);
                targets.insert(graph, target);
            }
        }
        Ok(targets.into_values().collect())
    }

    fn target(&self, graph: &Path, tests: Option<PathBuf>, directory: Option<&Path>) -> TestTarget {
        let root = Project::around(&self.working, graph).root().to_owned();
        // A directory without keys is the tree that the command line names.
        let root = match directory {
            Some(directory) if !root.join("keys").is_dir() => directory.to_owned(),
            _ => root,
        };
        TestTarget { root, graph: graph.to_owned(), tests }
    }

    /// Runs the tests of a graph, of which `is_wanted` names the cases.
    pub fn run(&mut self, target: &TestTarget, is_wanted: impl Fn(&str) -> bool) -> FileReport {
        let name = display_name(&self.working, target.tests.as_ref().unwrap_or(&target.graph));
        let mut report = FileReport { name, drafts: Vec::new(), cases: Ok(Vec::new()), coverage: Vec::new() };
        if let Err(diagnostics) = self.run_into(target, is_wanted, &mut report) {
            report.cases = Err(diagnostics);
        }
        report
    }

    fn run_into(
        &mut self,
        target: &TestTarget,
        is_wanted: impl Fn(&str) -> bool,
        report: &mut FileReport,
    ) -> Result<(), Vec<Diagnostic>> {
        if let (Some(tests), false) = (&target.tests, target.graph.is_file()) {
            let (graph, source) =
                (display_name(&self.working, &target.graph), SourceFile::new(tests, &report.name, ""));
            let message = format!("`{}` tests `{graph}`, which does not exist", report.name);
            let mut problem = Diagnostic::new(code::BAD_TEST, message, SourcePlace::file(&source));
            problem.help("rename the file of tests as its graph");
            return Err(vec![problem]);
        }
        // A graph whose tests have mistakes counts too: none of its parts is reached.
        let none = BTreeSet::new();
        let graph = self.load(target, &none)?;
        report.drafts = self.drafts(target, &none);
        let inner = self.inner(target, &none, &graph)?;
        let mut coverage = BTreeMap::new();
        self.cover(&target.graph, &graph, &mut coverage)?;
        let cases = self.cases(target, is_wanted, &TestNames::of(&graph, &inner), &report.name, &mut coverage);
        report.coverage = coverage.into_values().collect();
        report.cases = Ok(cases?);
        Ok(())
    }

    /// Adds what the journals in a directory reached of graphs whose parts are known. Returns the ids of the other graphs in it. Tests in
    /// Rust write such journals if `GRAPH_COVERAGE` names the directory.
    ///
    /// # Errors
    ///
    /// Names a file that cannot be read, was changed, or is the journal of another version of its graph.
    pub fn cover_journals(
        &mut self,
        targets: &[TestTarget],
        directory: &Path,
        coverage: &mut BTreeMap<PathBuf, GraphCoverage>,
    ) -> Result<BTreeSet<String>, KeptJournalError> {
        let directory = self.working.join(directory);
        let working = self.working.clone();
        let problem = |path: &Path, problem: String| {
            let file = display_name(&working, path);
            KeptJournalError { file, problem }
        };
        let files = KeptJournal::files(&directory)
            .map_err(|error| problem(&directory, format!("it cannot be read: {error}")))?;
        if files.is_empty() {
            let none = format!(
                "there are no journals: tests in Rust write them if {COVERAGE_VARIABLE} is the absolute path of the directory"
            );
            return Err(problem(&directory, none));
        }
        let mut others = BTreeSet::new();
        for file in files {
            let journal = KeptJournal::read(&file).map_err(|error| problem(&file, error))?;
            let (mut is_counted, mut refused) = (false, None);
            for known in coverage.values_mut().filter(|known| known.id == journal.graph) {
                let root = targets.iter().map(|target| &target.root).find(|root| known.file.starts_with(root));
                let Some(root) = root else { continue };
                let target = TestTarget { root: root.clone(), graph: known.file.clone(), tests: None };
                let graph = self.load(&target, &BTreeSet::new()).map_err(|_| "the graph has mistakes".to_owned());
                match graph.and_then(|graph| known.add(&graph, &journal.run, &journal.records)) {
                    Ok(()) => is_counted = true,
                    Err(error) => refused = Some(error),
                }
            }
            match refused.filter(|_| !is_counted) {
                Some(error) => {
                    let help = "if the graph was changed since, remove the journals and run the tests again";
                    return Err(problem(&file, format!("{error}; {help}")));
                }
                None if !is_counted => drop(others.insert(journal.graph)),
                None => {}
            }
        }
        Ok(others)
    }

    /// Runs the wanted cases of a graph.
    fn cases(
        &mut self,
        target: &TestTarget,
        is_wanted: impl Fn(&str) -> bool,
        names: &TestNames,
        name: &str,
        coverage: &mut BTreeMap<PathBuf, GraphCoverage>,
    ) -> Result<Vec<CaseReport>, Vec<Diagnostic>> {
        let Some(tests) = &target.tests else { return Ok(Vec::new()) };
        let file = TestFile::read(tests, name)?;
        check(&file, names)?;
        let cases = file.cases.iter().filter(|case| is_wanted(&case.name.value));
        cases.map(|case| self.case(target, &file, case, names, coverage)).collect()
    }

    /// Returns the tree of a graph, in which the graphs `replaced` do not run.
    fn tree(&mut self, target: &TestTarget, replaced: &BTreeSet<String>) -> &TestTree {
        let key = (target.root.clone(), replaced.clone());
        let (working, own) = (&self.working, &self.key);
        self.trees.entry(key).or_insert_with(|| {
            let (project, drafts) = Project::open(working, &target.root).with_drafts(own);
            let tools = ScriptedTools::new();
            // The library asks which graphs do not run when it loads them.
            let tools = replaced.iter().fold(tools, |tools, id| tools.graph(id.as_str(), []));
            TestTree { library: Library::scripted(project, tools.clone()), tools, drafts }
        })
    }

    fn load(&mut self, target: &TestTarget, replaced: &BTreeSet<String>) -> Result<Interpreted, Vec<Diagnostic>> {
        let tree = self.tree(target, replaced);
        let replacing = replaced.iter().fold(ScriptedTools::new(), |tools, id| tools.graph(id.as_str(), []));
        tree.tools.replace_by(replacing);
        let error = match tree.library.graph(&target.graph) {
            Ok(graph) => return Ok(graph),
            Err(error) => error,
        };
        // In a draft, the places of mistakes would be those of the signed text.
        let project = Project::open(&self.working, &target.root).for_review();
        let is_mistake = |one: &Diagnostic| one.severity == Severity::Error && !one.code.is_of_trust();
        let found: Vec<Diagnostic> = project.review(&target.graph).diagnostics.into_iter().filter(is_mistake).collect();
        Err(if found.is_empty() { error.diagnostics } else { found })
    }

    fn drafts(&mut self, target: &TestTarget, replaced: &BTreeSet<String>) -> Vec<String> {
        let working = self.working.clone();
        self.tree(target, replaced).drafts.iter().map(|file| display_name(&working, file)).collect()
    }

    /// Returns the graphs that run inside a graph.
    fn inner(
        &mut self,
        target: &TestTarget,
        replaced: &BTreeSet<String>,
        graph: &Interpreted,
    ) -> Result<Vec<Interpreted>, Vec<Diagnostic>> {
        let library = self.tree(target, replaced).library.clone();
        let ids = graph.interface().inner.iter().filter_map(|inner| ItemId::new(inner.id.as_str()).ok());
        let files = ids.filter_map(|id| library.find(&id));
        files.map(|file| library.graph(&file).map_err(|error| error.diagnostics)).collect()
    }

    /// Adds a graph to the coverage, if it is not there yet.
    fn cover<'c>(
        &self,
        file: &Path,
        graph: &Interpreted,
        coverage: &'c mut BTreeMap<PathBuf, GraphCoverage>,
    ) -> Result<&'c mut GraphCoverage, Vec<Diagnostic>> {
        let source = SourceFile::read(file, &display_name(&self.working, file)).map_err(|problem| vec![*problem])?;
        Ok(coverage.entry(file.to_owned()).or_insert_with(|| GraphCoverage::of(graph, &source)))
    }

    fn case(
        &mut self,
        target: &TestTarget,
        file: &TestFile,
        case: &TestCase,
        names: &TestNames,
        coverage: &mut BTreeMap<PathBuf, GraphCoverage>,
    ) -> Result<CaseReport, Vec<Diagnostic>> {
        let library = self.tree(target, &BTreeSet::new()).library.clone();
        let is_graph = |id: &str| ItemId::new(id).is_ok_and(|id| library.find(&id).is_some());
        let replaced: BTreeSet<String> =
            case.tools.iter().map(|script| script.tool.value.clone()).filter(|id| is_graph(id)).collect();
        let graph = self.load(target, &replaced)?;
        let tree = self.tree(target, &replaced);
        let (library, tools) = (tree.library.clone(), tree.tools.clone());
        let perform = |crash: u64| {
            tools.replace_by(script(case, &replaced));
            run::run(case, &graph, &tools, crash)
        };
        let (line, _) = file.source.position(case.name.span.start);
        let mut report = CaseReport {
            name: case.name.value.clone(),
            line,
            failures: Vec::new(),
            path: Vec::new(),
            elapsed: Duration::ZERO,
            crashes: 0,
        };
        let whole = match perform(0) {
            Ok(whole) => whole,
            Err(error) => {
                report.failures = unstarted(file, case, error, &tools, names);
                return Ok(report);
            }
        };
        report.failures = judge(file, case, &whole, &tools, names);
        (report.path, report.elapsed) = (whole.path.clone(), whole.elapsed);
        for (id, run, records) in &whole.journals {
            let Some(path) = ItemId::new(id.as_str()).ok().and_then(|id| library.find(&id)) else { continue };
            let graph = library.graph(&path).map_err(|error| error.diagnostics)?;
            let added = self.cover(&path, &graph, coverage)?.add(&graph, run, records);
            if let Err(error) = added {
                report.failures.push(CaseFailure::new(&file.source, &case.name.span, "coverage", error));
            }
        }
        if case.crashes && report.failures.is_empty() {
            for after in 1..=whole.commits.min(MOST_CRASHES) {
                report.crashes = after;
                report.failures = match perform(after) {
                    Ok(crashed) => compare_crashed(file, case, &whole, &crashed, after),
                    Err(error) => unstarted(file, case, error, &tools, names),
                };
                if !report.failures.is_empty() {
                    break;
                }
            }
        }
        Ok(report)
    }
}

/// Returns the scripted tools of a case, in which the graphs `replaced` do not run.
fn script(case: &TestCase, replaced: &BTreeSet<String>) -> ScriptedTools {
    case.tools.iter().fold(ScriptedTools::new(), |tools, script| {
        let answers = script.answers.iter().map(|placed| placed.answer.clone());
        match replaced.contains(&script.tool.value) {
            true => tools.graph(&*script.tool.value, answers),
            false => tools.tool(&*script.tool.value, answers),
        }
    })
}

/// Returns how a case failed whose run could not begin, or went wrong. A case may expect that its inputs are refused.
fn unstarted(
    file: &TestFile,
    case: &TestCase,
    error: CaseError,
    tools: &ScriptedTools,
    names: &TestNames,
) -> Vec<CaseFailure> {
    let error = match error {
        CaseError::Start(error) => error,
        CaseError::Failed(reason) => {
            let message = format!("the case cannot be run: {reason}");
            return vec![CaseFailure::new(&file.source, &case.name.span, "case", message)];
        }
    };
    let text = shown_start(&error);
    let is_of_inputs = matches!(error, StartError::Inputs { .. } | StartError::MissingInputs { .. });
    let expect = &case.expect;
    if is_of_inputs && (expect.error.is_some() || expect.status.as_ref().is_some_and(|one| one.value == Status::Error))
    {
        return judge(file, case, &CaseRun::refused(text), tools, names);
    }
    let span = match (&error, &case.entry, case.grants.as_deref()) {
        (StartError::Begin { .. }, Some(entry), _) => &entry.span,
        (StartError::NotGranted { .. }, _, Some([first, ..])) => &first.span,
        (StartError::Inputs { .. } | StartError::MissingInputs { .. }, ..) => &case.inputs_span,
        _ => &case.name.span,
    };
    vec![CaseFailure::new(&file.source, span, "start", format!("the run cannot begin: {text}"))]
}
