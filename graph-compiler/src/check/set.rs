//! Sets of small numbers, as the analyses hold one for each node.

/// A set of numbers below a count that is set when it is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Set(Vec<u64>);

impl Set {
    /// A set that can hold the numbers below `count`, and holds none.
    pub(super) fn empty(count: usize) -> Self {
        Self(vec![0; count.div_ceil(64)])
    }

    pub(super) fn insert(&mut self, number: usize) {
        self.0[number / 64] |= 1 << (number % 64);
    }

    pub(super) fn remove(&mut self, number: usize) {
        self.0[number / 64] &= !(1 << (number % 64));
    }

    pub(super) fn contains(&self, number: usize) -> bool {
        self.0[number / 64] >> (number % 64) & 1 == 1
    }

    /// Keeps what `other` has too; says whether that took anything away.
    pub(super) fn intersect(&mut self, other: &Self) -> bool {
        let mut changed = false;
        for (one, two) in self.0.iter_mut().zip(&other.0) {
            changed |= *one & !two != 0;
            *one &= two;
        }
        changed
    }

    /// Adds what `other` has.
    pub(super) fn unite(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(one, two)| *one |= two);
    }
}
