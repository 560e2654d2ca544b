//! What the runs of a runtime have in common.

use std::fmt;
use std::sync::Arc;

use graph_model::capability::Grants;
use graph_model::signature::SecretKey;

use crate::cache::NodeCache;
use crate::call::ToolSettings;
use crate::classify::Classifier;
use crate::clock::Clock;
use crate::gate::Gate;
use crate::hooks::{AnyHooks, Layer};
use crate::observer::Observer;
use crate::perform_items::PerformItems;
use crate::seal::SealKey;
use crate::store::Store;
use crate::threads::Threads;

pub(crate) struct RuntimeServices {
    pub(crate) store: Option<Arc<dyn Store>>,
    pub(crate) key: Option<SecretKey>,
    pub(crate) seal: Option<SealKey>,
    pub(crate) grants: Grants,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) observers: Vec<Arc<dyn Observer>>,
    /// The program's hooks: those that may steer before those that may not.
    pub(crate) hooks: Vec<(Layer, Arc<dyn AnyHooks>)>,
    /// The documented one if there is none. It is made when something fails: its regular expressions take milliseconds.
    pub(crate) classifier: Option<Classifier>,
    pub(crate) items: Option<Arc<dyn PerformItems>>,
    pub(crate) threads: Option<Arc<dyn Threads>>,
    pub(crate) cache: Option<NodeCache>,
    pub(crate) keeps_history: bool,
    pub(crate) tool_settings: Option<Arc<dyn ToolSettings>>,
    pub(crate) gate: Arc<Gate>,
}

impl fmt::Debug for RuntimeServices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime").field("store", &self.store).field("grants", &self.grants).finish_non_exhaustive()
    }
}
