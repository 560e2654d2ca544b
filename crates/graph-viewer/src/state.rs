//! The state of a viewer.

use std::sync::Arc;

use graph_runtime::PublicKey;

use crate::index::RunIndexes;
use crate::listing::FiledRuns;
use crate::source::Source;
use crate::views::StateCache;
use crate::{AnswerRights, FindGraph, ViewerOptions};

/// The state of a viewer, shared by all requests.
pub(crate) struct ViewerState {
    pub(crate) source: Source,
    pub(crate) key: PublicKey,
    pub(crate) files_key: Option<PublicKey>,
    pub(crate) graphs: Arc<FindGraph>,
    pub(crate) answers: Option<AnswerRights>,
    pub(crate) indexes: RunIndexes,
    pub(crate) filed: FiledRuns,
    pub(crate) states: Arc<StateCache>,
}

impl ViewerState {
    pub(crate) fn new(options: ViewerOptions) -> Self {
        let ViewerOptions { place, key, files_key, graphs, answers } = options;
        Self {
            source: Source::new(place),
            key,
            files_key,
            graphs,
            answers,
            indexes: RunIndexes::default(),
            filed: FiledRuns::default(),
            states: Arc::default(),
        }
    }
}
