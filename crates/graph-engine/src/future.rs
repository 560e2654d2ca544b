//! Futures that are boxed.

use std::future::Future;
use std::pin::Pin;

/// A future of a [`Runtime`](crate::Runtime).
///
/// Its type names what comes of it and not the graph. A handler of a web framework that awaits it is `Send` for tools of any type,
/// also where `Actions` is implemented for a `&'static` reference: rustc cannot tell that of a future whose type has the reference in it.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
