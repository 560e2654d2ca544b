//! One meaning: each graph runs compiled and interpreted, with and without a journal, and has the result that its
//! script expects.
//!
//! A script in `tests/engines/scripts` defines the answers of the tools of the graph with the same name, and the
//! expected results. `CASES=name` runs the graphs whose names begin with it; `SHOW=1` prints the result of each case.

#![expect(clippy::unwrap_used, reason = "what fails in a test is its answer")]

mod case;
mod conditions;
mod costs;
mod determinism;
mod forgeries;
mod judge;
mod kept;
mod known_values;
mod machines;
mod property;
mod quorums;
#[path = "../support/random.rs"]
mod random;
mod reducers;
mod script;
mod shares;
mod values;
mod wild;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use graph_model::name::ItemId;
use graph_model::value::AsView;
use graph_runtime::__private::CompiledGraph;
use graph_runtime::dynamic::{Interpreted, Library};
use graph_runtime::{Failure, Graph, Machine, Map, Mismatch, StateFields, ToolCaller, Value};

use case::{Bench, Cut};
use script::{Script, Stage};

/// Returns the number in an environment variable, by which a test is made longer or has another seed.
pub(crate) fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// A graph without its Rust types, so that the same code runs all graphs.
#[derive(Clone)]
pub(crate) struct Erased {
    machine: Arc<dyn Machine>,
    read: Arc<Read>,
}

/// Converts a run's output at a node to the graph's type and back.
type Read = dyn Fn(&str, Value) -> Result<Value, Mismatch> + Send + Sync;

impl Erased {
    /// Returns the machine itself.
    fn machine(&self) -> Arc<dyn Machine> {
        Arc::clone(&self.machine)
    }
}

impl Graph for Erased {
    type Inputs = Map<String, Value>;
    type Output = Value;

    fn output(&self, node: &str, value: Value) -> Result<Value, Mismatch> {
        (self.read)(node, value)
    }
}

impl Machine for Erased {
    fn graph(&self) -> &CompiledGraph {
        self.machine.graph()
    }

    fn open(&self, inputs: Value) -> Result<Box<dyn StateFields>, Mismatch> {
        self.machine.open(inputs)
    }

    fn check_output(&self, node: &str, output: &Value) -> Result<(), Mismatch> {
        self.machine.check_output(node, output)
    }

    fn signal(&self, name: &str, value: Value) -> Result<Value, Mismatch> {
        self.machine.signal(name, value)
    }

    fn answer(&self, node: &str, value: Value) -> Result<Value, Mismatch> {
        self.machine.answer(node, value)
    }

    fn tool_caller(&self) -> Box<dyn ToolCaller> {
        self.machine.tool_caller()
    }

    fn nested(&self, tool: u16) -> Option<Arc<dyn Machine>> {
        self.machine.nested(tool)
    }

    fn nested_called(&self, id: &ItemId) -> Result<Option<Arc<dyn Machine>>, Box<Failure>> {
        self.machine.nested_called(id)
    }

    fn missing_tools(&self) -> Vec<String> {
        self.machine.missing_tools()
    }

    fn missing_reducers(&self) -> Vec<String> {
        self.machine.missing_reducers()
    }
}

pub(crate) fn erased<G: Graph>(graph: G) -> Erased
where
    G::Output: AsView,
{
    let graph = Arc::new(graph);
    let machine = Arc::clone(&graph) as _;
    let read = move |node: &str, value| graph.output(node, value).map(|output| output.view().to_value());
    Erased { machine, read: Arc::new(read) }
}

/// Implements the tools of every graph for [`Stage`], and lists the graphs.
macro_rules! all_machines {
    ($($name:literal $module:ident $machine:ident {
        $($tool:ident $({ $($field:ident: $key:literal),* })?;)*
    })*) => {
        $($(
            impl $module::tools::$tool::Tool for Stage {
                fn $tool(
                    &self,
                    call: &graph_runtime::Call,
                    params: $module::tools::$tool::Params,
                ) -> impl Future<Output = Result<$module::tools::$tool::Output, graph_runtime::ActionError>> + Send {
                    let shown = super::all_machines!(@shown params $({ $($field: $key),* })?);
                    self.perform(call, shown)
                }
            }
        )*)*

        /// Returns the compiled graph of that name, with the tools of a stage.
        pub(crate) fn machine(name: &str, stage: &Stage) -> Option<Erased> {
            match name {
                $($name => Some(erased($machine::new(stage.clone()))),)*
                _ => None,
            }
        }
    };
    (@shown $params:ident) => {
        $params.view().to_plain_value()
    };
    // Fields that are null are left out, as in an interpreted graph.
    (@shown $params:ident { $($field:ident: $key:literal),* }) => {{
        let mut shown = graph_runtime::Map::new();
        $(
            if !$params.$field.view().is_null() {
                shown.insert($key.to_owned(), $params.$field.view().to_plain_value());
            }
        )*
        graph_runtime::Value::Object(shown)
    }};
}
pub(crate) use all_machines;

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/engines")
}

/// Returns the names of the graphs.
fn names() -> Vec<String> {
    let only = std::env::var("CASES").unwrap_or_default();
    let files = graph_compiler::graph_files(&directory().join("graphs")).unwrap();
    let names = files.iter().map(|file| file.file_stem().unwrap().to_str().unwrap().to_owned());
    names.filter(|name| name.starts_with(&only)).collect()
}

fn interpreted(name: &str, library: &Library) -> Interpreted {
    let file = library.root().join(format!("{name}.yaml"));
    library.graph(&file).map_err(|error| error.to_string()).unwrap()
}

/// Calls `check` with each graph and each case of its script, several graphs at a time, and fails with all findings.
fn each(check: impl Fn(&Bench, &script::Case) -> Vec<String> + Sync) {
    let names = names();
    let (next, said) = (std::sync::atomic::AtomicUsize::new(0), std::sync::Mutex::new(Vec::new()));
    let work = || {
        let stage = Stage::default();
        let library = Library::open(&directory().join("graphs"), stage.clone());
        loop {
            let at = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let Some(name) = names.get(at) else { return };
            let script = Script::read(&directory().join(format!("scripts/{name}.yaml"))).unwrap();
            let bench = Bench {
                stage: stage.clone(),
                compiled: machines::machine(name, &stage).expect("SIGN_FIXTURES=1 lists every graph"),
                interpreted: erased(interpreted(name, &library)),
            };
            for case in &script.cases {
                let found = check(&bench, case);
                let found = found.into_iter().map(|found| format!("{name}: {}: {found}", case.name));
                said.lock().unwrap().extend(found);
            }
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..2).map(|_| scope.spawn(work)).collect();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    });
    let mut said = said.into_inner().unwrap();
    said.sort();
    assert!(said.is_empty(), "{} found:\n{}", said.len(), said.join("\n"));
}

#[test]
fn cases_match_their_scripts_on_both_engines_journaled_or_not() {
    each(|bench, case| bench.four_ways(case));
}

#[test]
fn ended_run_resumes_to_the_same_result_on_either_engine() {
    each(|bench, case| bench.cut(case, Cut::Nowhere));
}

#[test]
fn run_cut_after_any_record_ends_the_same_on_the_other_engine() {
    each(|bench, case| bench.cut(case, Cut::Everywhere));
}

#[test]
fn journal_that_lost_its_end_does_not_resume_as_a_running_run() {
    each(|bench, case| bench.cut(case, Cut::BeforeEnd));
}
