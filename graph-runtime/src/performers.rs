//! How a program performs the tools that have no trait of their own.

use std::fmt;
use std::future::Future;

use graph_engine::{ActionError, AsView, BoxFuture, Call, FromValue, Map, Value};

/// The tools of the runtime, for graphs that call no others: `ProjectStats::new(Builtins)`. The feature `tools` performs them.
#[derive(Debug, Clone, Copy, Default)]
pub struct Builtins;

impl RuntimeTools for Builtins {}

/// Performs the tools whose ids a graph computes, for a type that has tools.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not perform tools whose ids a graph computes",
    label = "`Dispatch` is missing",
    note = "implement it: `impl graph_runtime::Dispatch for {Self} {{ async fn dispatch(&self, call: &Call, params: Map<String, Value>) -> Result<Value, ActionError> }}`"
)]
pub trait Dispatch: Send + Sync + 'static {
    /// Performs a tool: [`Call::tool`] tells which.
    fn dispatch(
        &self,
        call: &Call,
        params: Map<String, Value>,
    ) -> impl Future<Output = Result<Value, ActionError>> + Send;
}

/// How a type that has tools performs those of the runtime: built-in ones, programs, and tools of servers.
///
/// `impl RuntimeTools for Shop {}` lets the runtime perform them.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has none of the tools that the runtime performs: built-in ones, programs, and tools of servers",
    label = "`RuntimeTools` is missing",
    note = "`impl graph_runtime::RuntimeTools for {Self} {{}}` lets the runtime perform them"
)]
pub trait RuntimeTools: Send + Sync + 'static {
    /// Performs a tool of the runtime: [`Call::tool`] tells which.
    fn perform<P: AsView + Send, R: FromValue>(
        &self,
        call: &Call,
        tool: RuntimeCall<P, R>,
    ) -> impl Future<Output = Result<R, ActionError>> + Send {
        tool.perform(call)
    }
}

/// A call of a tool that the runtime performs.
pub struct RuntimeCall<P, R> {
    /// The parameters.
    pub params: P,
    perform: for<'a> fn(&'a Call, P) -> BoxFuture<'a, Result<R, ActionError>>,
}

impl<P, R> RuntimeCall<P, R> {
    /// A call with these parameters. Generated code makes it.
    #[doc(hidden)]
    pub fn new(params: P, perform: for<'a> fn(&'a Call, P) -> BoxFuture<'a, Result<R, ActionError>>) -> Self {
        Self { params, perform }
    }

    /// Lets the runtime perform the tool.
    pub fn perform(self, call: &Call) -> BoxFuture<'_, Result<R, ActionError>> {
        (self.perform)(call, self.params)
    }
}

impl<P: AsView, R> fmt::Debug for RuntimeCall<P, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RuntimeCall").field("params", &self.params.view().to_value()).finish_non_exhaustive()
    }
}

#[cfg(feature = "testing")]
mod fakes {
    use std::future::Future;

    use graph_engine::{ActionError, AsView, Call, FromValue, Map, Value};
    use graph_testkit::{Fakes, fake};

    use super::{Dispatch, RuntimeCall, RuntimeTools};

    impl<R: 'static> Dispatch for Fakes<R> {
        fn dispatch(
            &self,
            call: &Call,
            params: Map<String, Value>,
        ) -> impl Future<Output = Result<Value, ActionError>> + Send {
            fake(self, call, params)
        }
    }

    impl<R: 'static> RuntimeTools for Fakes<R> {
        fn perform<P: AsView + Send, V: FromValue>(
            &self,
            call: &Call,
            tool: RuntimeCall<P, V>,
        ) -> impl Future<Output = Result<V, ActionError>> + Send {
            fake(self, call, tool.params)
        }
    }
}
