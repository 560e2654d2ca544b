//! What a node does.

use graph_model::program;

use super::{CallTerm, Foreach, Term};
use crate::step::Asks;

/// What a node does.
#[derive(Debug)]
pub(crate) enum Kind {
    Action(CallTerm),
    Foreach(Foreach),
    Gate,
    Return(Option<Term>),
}

impl Kind {
    /// Returns what a node does, as a program says it.
    pub(crate) fn kind(&self) -> program::Kind {
        match self {
            Self::Action(call) => program::Kind::Action(call.tool),
            Self::Foreach(each) => program::Kind::Foreach(each.call.tool),
            Self::Gate => program::Kind::Gate,
            Self::Return(_) => program::Kind::Return,
        }
    }

    /// Returns what it asks for whatever the state is.
    pub(crate) fn asks(&self) -> Asks {
        match self {
            Self::Action(call) => Asks::Once { tool: call.tool },
            Self::Foreach(each) => {
                Asks::Each { tool: each.call.tool, width: each.width.max(1), collects: each.collect }
            }
            Self::Gate | Self::Return(_) => Asks::Nothing,
        }
    }

    /// Whether the run ends with it.
    pub(crate) fn ends_run(&self) -> bool {
        matches!(self, Self::Return(_))
    }

    /// Returns the tool that it calls, once or for each item of a list.
    pub(crate) fn calls(&self) -> Option<u16> {
        self.asks().tool()
    }

    /// Whether it makes a call for each item of a list.
    pub(crate) fn goes_over_list(&self) -> bool {
        self.asks().is_each()
    }

    /// Returns the key that gets the results of the calls for a list.
    pub(crate) fn collects(&self) -> Option<usize> {
        match self.asks() {
            Asks::Each { collects, .. } => collects,
            Asks::Nothing | Asks::Once { .. } => None,
        }
    }
}
