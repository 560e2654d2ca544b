//! The services that the runs of a runtime share.

use std::fmt;
use std::sync::Arc;

use graph_model::capability::Grants;
use graph_signing::SecretKey;

use crate::answer::ReadAnswerKeys;
use crate::cache::NodeCache;
use crate::call::ToolSettings;
use crate::classify::Classifier;
use crate::clock::Clock;
use crate::encryption_key::EncryptionKey;
use crate::gate::Gate;
use crate::hooks::{AnyHooks, Layer};
use crate::observer::Observer;
use crate::perform_items::PerformItems;
use crate::store::{Store, StoreError};
use crate::threads::Threads;

/// The services that the runs of a runtime share.
///
/// Its public fields are for companion crates, which get it from [`services`](crate::runtime::services).
pub struct RuntimeServices {
    /// The store of the journals.
    pub store: Option<Arc<dyn Store>>,
    /// The key that signs them.
    pub key: Option<SecretKey>,
    /// The key that encrypts secrets in them.
    pub encryption_key: Option<EncryptionKey>,
    /// The capabilities that runs may use.
    pub grants: Grants,
    /// The time.
    pub clock: Arc<dyn Clock>,
    pub(crate) observers: Arc<[Arc<dyn Observer>]>,
    #[cfg(feature = "events")]
    pub(crate) events: Option<Arc<crate::events::EventHub>>,
    /// The program's hooks: those that may steer before those that may not.
    pub(crate) hooks: Vec<(Layer, Arc<dyn AnyHooks>)>,
    /// The classifier of failures; `None` stands for the documented one. The documented classifier is made only when
    /// something fails, because compiling its regular expressions takes milliseconds.
    pub(crate) classifier: Option<Classifier>,
    pub(crate) items: Option<Arc<dyn PerformItems>>,
    pub(crate) threads: Option<Arc<dyn Threads>>,
    pub(crate) cache: Option<NodeCache>,
    pub(crate) keeps_history: bool,
    /// Returns the keys of the people who answer.
    pub(crate) answer_keys: Option<ReadAnswerKeys>,
    pub(crate) tool_settings: Option<Arc<dyn ToolSettings>>,
    pub(crate) gate: Arc<Gate>,
}

impl fmt::Debug for RuntimeServices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime").field("store", &self.store).field("grants", &self.grants).finish_non_exhaustive()
    }
}

impl RuntimeServices {
    /// Returns the store, and the key that signs its journals.
    ///
    /// # Errors
    ///
    /// If there is no store.
    pub fn stored(&self) -> Result<(&Arc<dyn Store>, &SecretKey), StoreError> {
        self.store.as_ref().zip(self.key.as_ref()).ok_or(StoreError::None)
    }

    /// Returns the same services without the store, so that a run and the runs inside it leave nothing behind.
    pub(crate) fn unkept(&self) -> Self {
        Self {
            store: None,
            key: None,
            encryption_key: self.encryption_key.clone(),
            grants: self.grants.clone(),
            clock: Arc::clone(&self.clock),
            observers: Arc::clone(&self.observers),
            #[cfg(feature = "events")]
            events: self.events.clone(),
            hooks: self.hooks.clone(),
            classifier: self.classifier.clone(),
            items: self.items.clone(),
            threads: self.threads.clone(),
            cache: None,
            keeps_history: false,
            tool_settings: self.tool_settings.clone(),
            answer_keys: self.answer_keys.clone(),
            gate: Arc::clone(&self.gate),
        }
    }
}
