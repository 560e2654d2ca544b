//! The visits of a step, in few pieces of memory.

use smallvec::{SmallVec, smallvec};

use crate::activation::Activation;
use crate::engine::run_state::VisitState;
use crate::error::RunError;

/// How many visits a block has at most.
const LARGEST_BLOCK: usize = 32;

/// Visits that workers made, each with its place in the frontier. They are large, so each is moved once: a block does not grow.
#[derive(Default)]
pub(super) struct VisitBlocks {
    blocks: Vec<Vec<(usize, VisitState)>>,
    /// How many visits the next block has memory for; 0 if it is the first.
    next: usize,
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
                let size = self.next.max(1);
                self.next = (2 * size).min(LARGEST_BLOCK);
                let mut block = Vec::with_capacity(size);
                block.push((place, visit));
                self.blocks.push(block);
            }
        }
    }

    /// Moves the visits of another value to this one. The other begins with as many again, so that few are reserved in vain where
    /// it has few each time.
    pub(super) fn append(&mut self, other: &mut Self) {
        other.next = other.len().min(LARGEST_BLOCK);
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
        // The values of an earlier step are of no use any more.
        self.one.begin(Activation::default());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_reserve_little_in_vain_however_visits_are_handed_over() {
        for each in [1, 2, 3, 5, 31, 32, 33, 100] {
            let (mut all, mut own) = (VisitBlocks::default(), VisitBlocks::default());
            for place in 0..600 {
                own.push(place, VisitState::default());
                if place % each == each - 1 {
                    all.append(&mut own);
                }
            }
            all.append(&mut own);
            assert_eq!(all.len(), 600);
            let reserved: usize = all.blocks.iter().map(Vec::capacity).sum();
            assert!(reserved <= 2 * 600, "{reserved} for 600, handed over {each} at a time");
            assert!(each < 32 || all.blocks.len() <= 60, "{} blocks", all.blocks.len());
        }
    }

    #[test]
    fn visits_are_in_the_order_of_the_frontier() {
        let mut blocks = VisitBlocks::default();
        for place in [2, 0, 3] {
            let activation = Activation { number: place + 7, ..Activation::default() };
            blocks.push(usize::try_from(place).unwrap(), VisitState::of(activation));
        }
        let mut visits = StepVisits::default();
        visits.set(blocks);
        let numbers =
            |visits: &mut StepVisits| visits.in_order().iter().map(|visit| visit.activation.number).collect::<Vec<_>>();
        assert_eq!(numbers(&mut visits), [7, 9, 10]);
        visits.one().begin(Activation { number: 1, ..Activation::default() });
        assert_eq!(numbers(&mut visits), [1]);
    }
}
