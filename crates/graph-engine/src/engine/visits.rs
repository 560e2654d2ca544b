//! The visits of a step, in few pieces of memory.

use smallvec::{SmallVec, smallvec};

use crate::engine::run_state::VisitState;
use crate::error::RunError;

/// How many visits a block has at most.
const LARGEST_BLOCK: usize = 32;

/// Visits that workers made, each with its place in the frontier. They are large, so each is moved once: a block does not grow.
#[derive(Default)]
pub(super) struct VisitBlocks {
    blocks: Vec<Vec<(usize, VisitState)>>,
    /// How many visits the last block that began here has memory for.
    size: usize,
}

/// The visits of a step.
#[derive(Default)]
pub(super) struct StepVisits {
    /// The visit of a step that has one. Its buffers are reused for the next step.
    one: Box<VisitState>,
    /// Those of a step that has several.
    several: Option<VisitBlocks>,
}

/// The visits of a step, in the order of the frontier.
pub(super) type OrderedVisits<'v> = SmallVec<[&'v mut VisitState; 1]>;

impl VisitBlocks {
    /// Adds a visit.
    pub(super) fn push(&mut self, place: usize, visit: VisitState) {
        match self.blocks.last_mut().filter(|block| block.len() < block.capacity()) {
            Some(block) => block.push((place, visit)),
            None => {
                self.size = (2 * self.size).clamp(1, LARGEST_BLOCK);
                let mut block = Vec::with_capacity(self.size);
                block.push((place, visit));
                self.blocks.push(block);
            }
        }
    }

    /// Moves the visits of another value to this one.
    pub(super) fn append(&mut self, other: &mut Self) {
        self.blocks.append(&mut other.blocks);
    }

    /// How many visits there are.
    pub(super) fn len(&self) -> usize {
        self.blocks.iter().map(Vec::len).sum()
    }
}

impl StepVisits {
    /// Returns the visit of a step that has one.
    pub(super) fn one(&mut self) -> &mut VisitState {
        self.several = None;
        &mut self.one
    }

    /// Sets the visits of a step that has several.
    pub(super) fn set(&mut self, visits: VisitBlocks) {
        self.several = Some(visits);
    }

    /// Says in one of the visits why the run cannot continue.
    pub(super) fn break_off(&mut self, error: RunError) {
        if let Some(visit) = self.in_order().first_mut() {
            visit.broken = Some(Box::new(error));
        }
    }

    /// Returns the visits, in the order of the frontier.
    pub(super) fn in_order(&mut self) -> OrderedVisits<'_> {
        let Some(several) = &mut self.several else { return smallvec![&mut *self.one] };
        let visits = several.blocks.iter_mut().flatten();
        let mut places: Vec<Option<&mut VisitState>> = Vec::new();
        for (place, visit) in visits {
            if *place >= places.len() {
                places.resize_with(*place + 1, || None);
            }
            places[*place] = Some(visit);
        }
        places.into_iter().flatten().collect()
    }
}
