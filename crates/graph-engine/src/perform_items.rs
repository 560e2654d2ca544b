//! Performs the operations on items that graphs ask for.

use graph_model::name::ItemId;
use graph_model::program::{ItemType, Verb};
use graph_model::value::{Map, Value};

use crate::failure::ActionError;
use crate::future::BoxFuture;

/// Performs the operations on items that actions ask for: fetches items, finds them, reads directives, signs items. The
/// engine has checked before that the run may ask.
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
