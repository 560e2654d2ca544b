//! The versions of a graph as one value.

use std::fmt;
use std::iter::once;
use std::sync::Arc;

use graph_engine::machine::{AsView, CompiledGraph, Graph, Machine, StateFields, ToolCaller};
use graph_engine::{Failure, ItemId, Mismatch, Value};

/// A graph with its older versions, for a program that is deployed with a changed graph while runs of the old one are left.
///
/// It is a graph itself: new runs begin under the newest version. Workers, and the methods of [`Runtime`](crate::Runtime) that take
/// a run, use the version with the [meaning](CompiledGraph::meaning) that the run began under, with its tools and its types. Runs of
/// a version that is not named are refused. Clones share the versions.
///
/// ```
/// # use graph_runtime::{Graph, Runtime};
/// # async fn example<G: Graph, Old: Graph>(runtime: Runtime, new: G, old: Old) -> Result<(), Box<dyn std::error::Error>>
/// # where
/// #     G::Output: 'static,
/// #     Old::Output: Into<G::Output>,
/// # {
/// use graph_runtime::{RunId, Versions, WorkerOptions};
///
/// let orders = Versions::of(new).and(old)?;
/// let worker = runtime.worker(WorkerOptions::default().graph(orders.clone()))?;
/// for question in runtime.questions(&orders, &RunId::new("order-17")?).await? {
///     println!("{} asks {}", question.node, question.payload);
/// }
/// # Ok(())
/// # }
/// ```
pub struct Versions<G: Graph, O = <G as Graph>::Output> {
    newest: Arc<G>,
    older: Vec<Arc<dyn Machine>>,
    /// The functions that read the outputs of the newest version and of the older ones.
    outputs: Vec<ReadOutput<O>>,
}

/// Reads the output of a run that ended at a node.
type ReadOutput<O> = Arc<dyn Fn(&str, Value) -> Result<O, Mismatch> + Send + Sync>;

/// Why a graph is no older version.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum VersionError {
    /// It has another id than the newest version.
    AnotherGraph {
        /// The id of the newest version.
        graph: String,
        /// Its id.
        other: String,
    },
    /// It has the meaning of a version that was named before, so a run would be a run of both.
    Twice {
        /// The id.
        graph: String,
    },
}

impl fmt::Display for VersionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AnotherGraph { graph, other } => {
                write!(f, "`{other}` is no version of `{graph}`: all versions of a graph have its id")
            }
            Self::Twice { graph } => {
                write!(
                    f,
                    "two versions of `{graph}` have the same meaning, so their runs are the same: name one of them"
                )
            }
        }
    }
}

impl std::error::Error for VersionError {}

/// Converts an output to JSON, with `[secret]` for secrets: for [`Versions::with`] and [`Versions::and_with`].
///
/// # Errors
///
/// Never.
pub fn to_json<O: AsView>(output: O) -> Result<Value, Mismatch> {
    Ok(output.view().to_value())
}

impl<G: Graph> Versions<G>
where
    G::Output: 'static,
{
    /// The newest version, under which runs begin.
    pub fn of(newest: G) -> Self {
        Self::with(newest, Ok)
    }
}

impl<G: Graph, O: 'static> Versions<G, O> {
    /// As [`Versions::of`], with outputs of another type than those of the newest version: an enum of the outputs of all versions,
    /// or JSON.
    ///
    /// ```
    /// # use graph_runtime::Graph;
    /// # use graph_runtime::machine::AsView;
    /// # fn example<G: Graph, Old: Graph>(new: G, old: Old) -> Result<(), Box<dyn std::error::Error>>
    /// # where
    /// #     G::Output: AsView,
    /// #     Old::Output: AsView,
    /// # {
    /// use graph_runtime::versions::{Versions, to_json};
    ///
    /// let orders = Versions::with(new, to_json).and_with(old, to_json)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn with(newest: G, convert: impl Fn(G::Output) -> Result<O, Mismatch> + Send + Sync + 'static) -> Self {
        let newest = Arc::new(newest);
        let (machines, outputs): (Vec<_>, Vec<_>) = all(&newest, convert).unzip();
        Self { newest, older: machines.into_iter().skip(1).collect(), outputs }
    }

    /// Adds an older version, whose outputs become those of the newest. It is kept as long as it has runs.
    ///
    /// # Errors
    ///
    /// If it has another id, or the meaning of a version that was named before.
    pub fn and<Old: Graph>(self, old: Old) -> Result<Self, VersionError>
    where
        Old::Output: Into<O>,
    {
        self.and_with(old, |output| Ok(output.into()))
    }

    /// As [`Versions::and`], with a function that converts the outputs.
    ///
    /// # Errors
    ///
    /// As [`Versions::and`].
    pub fn and_with<Old: Graph>(
        mut self,
        old: Old,
        convert: impl Fn(Old::Output) -> Result<O, Mismatch> + Send + Sync + 'static,
    ) -> Result<Self, VersionError> {
        for (version, output) in all(&Arc::new(old), convert) {
            let graph = self.newest.graph();
            if version.graph().id() != graph.id() {
                let [graph, other] = [graph, version.graph()].map(|graph| graph.id().to_string());
                return Err(VersionError::AnotherGraph { graph, other });
            }
            if self.all().any(|known| known.has_runs_of(version.graph())) {
                return Err(VersionError::Twice { graph: graph.id().to_string() });
            }
            self.older.push(version);
            self.outputs.push(output);
        }
        Ok(self)
    }

    fn all(&self) -> impl Iterator<Item = &CompiledGraph> {
        once(self.newest.graph()).chain(self.older.iter().map(|version| version.graph()))
    }
}

/// Returns a version, and those older ones that it has itself, each with the function that reads its outputs.
fn all<V: Graph, O: 'static>(
    version: &Arc<V>,
    convert: impl Fn(V::Output) -> Result<O, Mismatch> + Send + Sync + 'static,
) -> impl Iterator<Item = (Arc<dyn Machine>, ReadOutput<O>)> {
    let convert = Arc::new(convert);
    once(None).chain((0..version.older().len()).map(Some)).map(move |older| {
        let machine: Arc<dyn Machine> = match older {
            Some(at) => Arc::clone(&version.older()[at]),
            None => Arc::clone(version) as _,
        };
        let (version, convert) = (Arc::clone(version), Arc::clone(&convert));
        let read: ReadOutput<O> = Arc::new(move |node, value| convert(version.output_of(older, node, value)?));
        (machine, read)
    })
}

impl<G: Graph, O> Clone for Versions<G, O> {
    fn clone(&self) -> Self {
        Self { newest: Arc::clone(&self.newest), older: self.older.clone(), outputs: self.outputs.clone() }
    }
}

impl<G: Graph, O: 'static> fmt::Debug for Versions<G, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.all().map(|graph| format!("{} ({})", graph.id(), graph.digest()))).finish()
    }
}

impl<G: Graph, O: 'static> Graph for Versions<G, O> {
    type Inputs = G::Inputs;
    type Output = O;

    fn output(&self, node: &str, value: Value) -> Result<O, Mismatch> {
        self.output_of(None, node, value)
    }

    fn output_of(&self, older: Option<usize>, node: &str, value: Value) -> Result<O, Mismatch> {
        self.outputs[older.map_or(0, |at| at + 1)](node, value)
    }
}

impl<G: Graph, O: 'static> Machine for Versions<G, O> {
    fn graph(&self) -> &CompiledGraph {
        self.newest.graph()
    }

    fn older(&self) -> &[Arc<dyn Machine>] {
        &self.older
    }

    fn open(&self, inputs: Value) -> Result<Box<dyn StateFields>, Mismatch> {
        self.newest.open(inputs)
    }

    fn tool_caller(&self) -> Box<dyn ToolCaller> {
        self.newest.tool_caller()
    }

    fn check_output(&self, node: &str, output: &Value) -> Result<(), Mismatch> {
        self.newest.check_output(node, output)
    }

    fn signal(&self, name: &str, value: Value) -> Result<Value, Mismatch> {
        self.newest.signal(name, value)
    }

    fn answer(&self, node: &str, value: Value) -> Result<Value, Mismatch> {
        self.newest.answer(node, value)
    }

    fn nested(&self, tool: u16) -> Option<Arc<dyn Machine>> {
        self.newest.nested(tool)
    }

    fn nested_called(&self, id: &ItemId) -> Result<Option<Arc<dyn Machine>>, Box<Failure>> {
        self.newest.nested_called(id)
    }

    fn missing_tools(&self) -> Vec<String> {
        self.newest.missing_tools()
    }

    fn missing_reducers(&self) -> Vec<String> {
        self.newest.missing_reducers()
    }
}
