//! Performs the operations on items that graphs ask for.

use graph_model::name::ItemId;
use graph_model::program::{ItemType, Verb};
use graph_model::value::{Map, Value};

use crate::failure::ActionError;
use crate::future::BoxFuture;

/// Performs the operations on items that actions ask for: fetches items, finds them, reads directives, signs items. The
/// engine has checked before that the run may ask.
///
/// ```
/// # use graph_engine as graph_runtime;
/// use std::collections::HashMap;
/// use std::sync::Arc;
///
/// use graph_runtime::machine::{ItemType, Verb};
/// use graph_runtime::{ActionError, BoxFuture, ItemId, Map, PerformItems, Runtime, Value};
///
/// /// Pages of knowledge in memory.
/// struct Pages(HashMap<&'static str, &'static str>);
///
/// impl PerformItems for Pages {
///     fn perform<'a>(
///         &'a self,
///         _: Verb,
///         _: ItemType,
///         id: Option<&'a ItemId>,
///         _: Map<String, Value>,
///     ) -> BoxFuture<'a, Result<Value, ActionError>> {
///         let page = id.and_then(|id| self.0.get(id.as_str()));
///         Box::pin(async move { Ok(Value::from(*page.ok_or("there is no such page")?)) })
///     }
/// }
///
/// let pages: Arc<dyn PerformItems> = Arc::new(Pages(HashMap::from([("shop/returns", "Within 30 days.")])));
/// let runtime = Runtime::builder().spaces(pages).build()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait PerformItems: Send + Sync + 'static {
    /// Applies a verb to an item, or to all items of a type if there is no id.
    fn perform<'a>(
        &'a self,
        verb: Verb,
        item: ItemType,
        id: Option<&'a ItemId>,
        params: Map<String, Value>,
    ) -> BoxFuture<'a, Result<Value, ActionError>>;
}
