//! Boxed futures.

use std::future::Future;
use std::pin::Pin;

/// A future of a [`Runtime`](crate::Runtime).
///
/// Its type names its output and not the graph. A handler of a web framework that awaits it is therefore `Send` for tools of
/// any type, also where `Actions` is implemented for a `&'static` reference: rustc cannot tell that of a future whose type
/// contains the reference.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
