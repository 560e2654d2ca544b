//! What does for a runtime what graphs ask of items.

use graph_model::name::ItemId;
use graph_model::program::{ItemType, Verb};
use graph_model::value::{Map, Value};

use crate::failure::ActionError;
use crate::future::BoxFuture;

/// Does what actions ask of items: fetches them, finds them, reads directives, signs them. The engine has checked before that the run
/// may ask.
pub trait PerformItems: Send + Sync + 'static {
    /// Does what a verb asks of an item, or of all items of a type where there is no id.
    fn perform<'a>(
        &'a self,
        verb: Verb,
        item: ItemType,
        id: Option<&'a ItemId>,
        params: Map<String, Value>,
    ) -> BoxFuture<'a, Result<Value, ActionError>>;
}
