//! Boxed futures, and futures that panic.

use std::any::Any;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::task::Poll;

/// A future of a [`Runtime`](crate::Runtime).
///
/// Its type names its output and not the graph. A handler of a web framework that awaits it is therefore `Send` for tools of
/// any type, also where the trait of a tool is implemented for a `&'static` reference: rustc cannot tell that of a future whose type
/// contains the reference.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Waits for a future. Returns the panic if it panics; the future is dropped then.
pub(crate) async fn catch_panic<F: Future>(future: F) -> Result<F::Output, Box<dyn Any + Send>> {
    let mut future = pin!(future);
    poll_fn(|context| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
        Ok(poll) => poll.map(Ok),
        Err(panic) => Poll::Ready(Err(panic)),
    })
    .await
}
