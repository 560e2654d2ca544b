//! Callers of tools, and the arguments of a call.

use std::any::Any;
use std::fmt::Display;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use graph_model::field::needed;
use graph_model::name::ItemId;
use graph_model::value::{FromValue, Mismatch, Value, View};

use crate::call::Call;
use crate::failure::{ActionError, Failure};
use crate::future::BoxFuture;

/// Calls tools, one at a time, and keeps the result of the last call.
///
/// The package `tests/outside/machine` of the repository has one, and the [module of machines](crate::machine) an example.
pub trait ToolCaller: Send + Sync {
    /// Prepares the call of the tool with that index. [`ToolCaller::outcome`] has the result once the future is done.
    ///
    /// # Errors
    ///
    /// If the arguments are not of the types that the tool takes.
    fn call<'a>(&'a mut self, tool: u16, arguments: &mut Arguments, call: &'a Call)
    -> Result<CallFuture<'a>, Mismatch>;

    /// Returns why the call of a tool is sure to fail before the tool is asked, if that can be determined. `id` is that of a
    /// call whose id is known only when it is made. Nothing is called.
    fn refusal(&self, tool: u16, id: Option<&ItemId>, arguments: &mut Arguments) -> Option<String> {
        let _ = (tool, id, arguments);
        None
    }

    /// Returns a view of the last call's result.
    fn outcome(&self) -> View<'_>;

    /// Restores the result of a call from a journal.
    ///
    /// # Errors
    ///
    /// If the value is not of the type that the tool returns.
    fn restore(&mut self, tool: u16, value: Value) -> Result<(), Mismatch>;
}

/// The future of a call. [`ToolCaller::outcome`] has the result when it is done.
pub type CallFuture<'a> = BoxFuture<'a, Result<(), ActionError>>;

/// The arguments of a tool, in the order of its parameters.
#[derive(Debug, Default)]
pub struct Arguments {
    values: Vec<Value>,
    taken: usize,
    wrong: Option<Mismatch>,
}

impl Arguments {
    /// Reserves memory for exactly so many arguments.
    pub(crate) fn reserve(&mut self, arguments: usize) {
        self.values.reserve_exact(arguments);
    }

    /// Adds the next argument.
    pub fn push(&mut self, value: Value) {
        self.values.push(value);
    }

    /// Returns the arguments that are left, so that they can be changed.
    pub fn values_mut(&mut self) -> &mut [Value] {
        &mut self.values[self.taken..]
    }

    /// Takes the next argument, which is called `name`. If it does not fit, [`Arguments::wrong`] returns the mismatch.
    pub fn take<T: FromValue>(&mut self, name: &str) -> T {
        self.read(name, Ok)
    }

    /// Takes the next argument like [`Arguments::take`], but refuses null.
    pub fn need<T: FromValue>(&mut self, name: &str) -> T {
        self.read(name, needed)
    }

    #[inline(never)]
    fn read<T: FromValue>(&mut self, name: &str, accept: fn(Value) -> Result<Value, Mismatch>) -> T {
        let value = self.values.get_mut(self.taken).map(std::mem::take).unwrap_or_default();
        self.taken += 1;
        accept(value).and_then(T::from_value).unwrap_or_else(|error| {
            self.wrong.get_or_insert_with(|| if name.is_empty() { error } else { error.inside(name) });
            T::blank()
        })
    }

    /// Returns the first mismatch of an argument.
    pub fn wrong(&mut self) -> Option<Mismatch> {
        self.wrong.take()
    }
}

/// A call that is to be made.
#[derive(Debug)]
pub struct Request {
    /// The tool's index.
    pub tool: u16,
    /// The item's id, where it is known only now.
    pub id: Option<ItemId>,
    /// The arguments of the tool.
    pub arguments: Arguments,
}

/// Says that the parameters of a call do not fit its tool.
pub fn unfit_parameters(tool: &str, mismatch: &dyn Display) -> String {
    format!("the parameters of `{tool}` do not fit: {mismatch}")
}

/// Waits for a call. A tool that panics fails its node, not the program: it works on its own data, which is dropped.
pub(crate) struct GuardedCall<'a>(pub(crate) CallFuture<'a>);

impl Future for GuardedCall<'_> {
    type Output = Result<(), Box<Failure>>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        poll_call(&mut self.0, context)
    }
}

#[inline]
pub(crate) fn poll_call(calling: &mut CallFuture<'_>, context: &mut Context<'_>) -> Poll<Result<(), Box<Failure>>> {
    match catch_unwind(AssertUnwindSafe(|| calling.as_mut().poll(context))) {
        Ok(poll) => poll.map_err(|error| Box::new(Failure::from(error))),
        Err(panic) => {
            let message = format!("the tool panicked: {}", panic_text(&*panic));
            Poll::Ready(Err(Box::new(Failure::permanent(message))))
        }
    }
}

pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it said nothing")
}
