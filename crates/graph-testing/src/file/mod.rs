//! Files of tests: the cases of a graph, in YAML beside it.

mod case;
mod reader;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use graph_compiler::TEST_ENDS;
use graph_compiler::diagnostic::{Diagnostic, Diagnostics, Severity, SourcePlace, code};
use graph_compiler::source::{SourceFile, Span};
use graph_compiler::tree::{self, YamlTree};
use graph_runtime::{Pattern, Status, Value};

use crate::script::ScriptedAnswer;
pub(crate) use case::{ANSWER, CASE, ERROR, EXPECT, FAILURE, FILE, PEOPLE, SIGNAL, STATUSES, answers, category_words};
pub use reader::PlacedValue;
pub(crate) use reader::first_line;

/// The cases of a graph.
#[derive(Debug, Clone)]
pub struct TestFile {
    /// The file.
    pub source: Arc<SourceFile>,
    /// The file of the graph.
    pub graph: PathBuf,
    /// The cases, in the order of the file.
    pub cases: Vec<TestCase>,
}

/// A case: how a run begins, what happens meanwhile, and what is expected of it.
#[derive(Debug, Clone)]
pub struct TestCase {
    /// The name.
    pub name: PlacedValue<String>,
    /// The inputs, with those of the file that it does not give itself.
    pub inputs: Vec<(PlacedValue<String>, YamlTree)>,
    /// The place that mistakes in the inputs as a whole are reported at.
    pub inputs_span: Span,
    /// The entry at which the run begins, if not at the start.
    pub entry: Option<PlacedValue<String>>,
    /// The time at which the run begins.
    pub begins: SystemTime,
    /// The scripts of tools, with those of the file that it does not give itself.
    pub tools: Vec<ToolScript>,
    /// The answers of people, in their order.
    pub answers: Vec<CaseAnswer>,
    /// The signals, in their order.
    pub signals: Vec<CaseSignal>,
    /// The capabilities that are granted; `None` for those that the graph declares.
    pub grants: Option<Vec<PlacedValue<Pattern>>>,
    /// Whether the case is run again with a crash after each commit.
    pub crashes: bool,
    /// Whether scripted answers may stay unused.
    pub allows_unused: bool,
    /// The expectations.
    pub expect: Expectations,
}

/// The script of a tool.
#[derive(Debug, Clone)]
pub struct ToolScript {
    /// The tool's id.
    pub tool: PlacedValue<String>,
    /// The answers, in their order.
    pub answers: Vec<PlacedAnswer>,
    /// Whether it is that of the file, which other cases use too: its answers may stay unused.
    pub is_shared: bool,
}

/// An answer of a script, with its places.
#[derive(Debug, Clone)]
pub struct PlacedAnswer {
    /// The answer.
    pub answer: ScriptedAnswer,
    /// Its place.
    pub span: Span,
    /// The value that it returns, with places.
    pub returns: Option<YamlTree>,
    /// The parameters that it is for, with places.
    pub with: Option<YamlTree>,
}

/// An answer of people to an interrupt.
#[derive(Debug, Clone)]
pub struct CaseAnswer {
    /// The node that asks.
    pub to: PlacedValue<String>,
    /// How long after the question it is given.
    pub after: Duration,
    /// The words of people.
    pub says: PeopleSay,
    /// Its place.
    pub span: Span,
}

/// The words of people to a visit that waits for them.
#[derive(Debug, Clone, PartialEq)]
pub enum PeopleSay {
    /// This answer to its question.
    Answer(YamlTree),
    /// Nothing: its time passes.
    Nothing,
    /// The visit continues, which a hook suspended.
    Release,
}

/// A signal.
#[derive(Debug, Clone)]
pub struct CaseSignal {
    /// Its name.
    pub name: PlacedValue<String>,
    /// Its value, with places if it is given.
    pub value: Option<YamlTree>,
    /// When it is sent.
    pub sent: SentAt,
    /// The node whose wait it is for; `None` for the first that listens to it.
    pub to: Option<PlacedValue<String>>,
    /// Its place.
    pub span: Span,
}

/// When a signal is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SentAt {
    /// This long after a wait began that listens to it.
    AfterWait(Duration),
    /// This long after the run began, whatever it does then.
    AfterStart(Duration),
}

/// The expectations of a case. Only the given ones are checked.
#[derive(Debug, Clone, Default)]
pub struct Expectations {
    /// The names of the visited nodes, in their order.
    pub path: Option<PlacedValue<Vec<PlacedValue<String>>>>,
    /// How the run ends.
    pub status: Option<PlacedValue<Status>>,
    /// The output, exactly.
    pub output: Option<PlacedValue<Value>>,
    /// Some keys of the state at the end.
    pub state: Option<PlacedValue<YamlTree>>,
    /// Why the run fails.
    pub error: Option<PlacedValue<ExpectedError>>,
    /// The calls of tools.
    pub calls: Vec<(PlacedValue<String>, ExpectedCalls)>,
    /// How many nodes are visited.
    pub steps: Option<PlacedValue<u64>>,
    /// Parts of the warnings of the run, in their order.
    pub warnings: Option<PlacedValue<Vec<PlacedValue<String>>>>,
}

/// The error that a case expects.
#[derive(Debug, Clone, Default)]
pub struct ExpectedError {
    /// A part of its text.
    pub contains: Option<PlacedValue<String>>,
    /// The node that fails.
    pub node: Option<PlacedValue<String>>,
}

/// The calls of a tool that a case expects.
#[derive(Debug, Clone)]
pub enum ExpectedCalls {
    /// This many.
    Count(PlacedValue<u64>),
    /// These, in their order: some parameters of each.
    List(PlacedValue<Vec<PlacedValue<Value>>>),
}

/// Returns the file of the graph that a file of tests is beside: its path with `.yaml`, or with `.yml` if only that is there.
pub fn graph_of(tests: &Path) -> Option<PathBuf> {
    let name = tests.file_name()?.to_str()?;
    let lower = name.to_ascii_lowercase();
    let end = TEST_ENDS.iter().find(|end| lower.ends_with(**end))?;
    let stem = &name[..name.len() - end.len()];
    let candidates = [".yaml", ".yml"].map(|end| tests.with_file_name(format!("{stem}{end}")));
    Some(candidates.iter().find(|path| path.is_file()).unwrap_or(&candidates[0]).clone())
}

/// Returns the file of tests beside a graph, if there is one.
pub fn tests_of(graph: &Path) -> Option<PathBuf> {
    let stem = graph.file_stem()?.to_str()?;
    TEST_ENDS.iter().map(|end| graph.with_file_name(format!("{stem}{end}"))).find(|path| path.is_file())
}

impl TestFile {
    /// Reads a file of tests. `name` is how messages name it.
    ///
    /// # Errors
    ///
    /// All mistakes in its shape, in the order of the file. [`check`](crate::check) compares it with its graph.
    pub fn read(path: &Path, name: &str) -> Result<Self, Vec<Diagnostic>> {
        let source = SourceFile::read(path, name).map_err(|problem| vec![about_tests(*problem)])?;
        Self::parse(&source)
    }

    /// As [`TestFile::read`], for a text that is already in memory.
    ///
    /// # Errors
    ///
    /// As of [`TestFile::read`].
    pub fn parse(source: &Arc<SourceFile>) -> Result<Self, Vec<Diagnostic>> {
        let mut diagnostics = Diagnostics::new();
        let Some(graph) = graph_of(&source.path) else {
            let message = format!("`{}` is not the name of a file of tests", source.name);
            let mut problem = Diagnostic::new(code::BAD_TEST, message, SourcePlace::file(source));
            problem.help("the tests of `order.yaml` are in `order.test.yaml`, beside it");
            return Err(vec![problem]);
        };
        let yaml = tree::parse(source, &mut diagnostics);
        if let Some(yaml) = &yaml {
            diagnostics.extend(tree::read_again(source, yaml));
        }
        let cases = yaml.map(|yaml| case::cases(source, &yaml.root, &mut diagnostics)).unwrap_or_default();
        if diagnostics.has_errors() {
            return Err(diagnostics.in_order(&source.name).into_iter().map(about_tests).collect());
        }
        Ok(Self { source: Arc::clone(source), graph, cases })
    }
}

/// Adapts a diagnostic of any file to one of tests, which nobody signs.
pub(crate) fn about_tests(mut problem: Diagnostic) -> Diagnostic {
    if problem.code == code::EMPTY && problem.severity == Severity::Error {
        problem.help("write a case, or remove the file");
    }
    problem
}
