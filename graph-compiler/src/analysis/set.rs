//! Sets of small numbers, as the analyses hold one for each node.

use std::sync::Arc;

/// How many words a part of a set has.
const WORDS: usize = 32;
/// How many numbers a part of a set covers.
const NUMBERS: usize = WORDS * 64;

/// A set of numbers below a bound that is given when it is created.
///
/// Sets of neighbouring nodes differ in few numbers, and there may be as many numbers as nodes. So equal parts are shared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Set(Vec<Arc<[u64; WORDS]>>);

impl Set {
    /// Creates an empty set that can hold the numbers below `count`.
    pub(crate) fn empty(count: usize) -> Self {
        let none = Arc::new([0; WORDS]);
        Self((0..count.div_ceil(NUMBERS)).map(|_| Arc::clone(&none)).collect())
    }

    /// Creates a set that holds all numbers below `count`.
    pub(crate) fn full(count: usize) -> Self {
        let mut set = Self::empty(count);
        (0..count).for_each(|number| set.insert(number));
        set
    }

    pub(crate) fn insert(&mut self, number: usize) {
        if !self.contains(number) {
            Arc::make_mut(&mut self.0[number / NUMBERS])[number % NUMBERS / 64] |= 1 << (number % 64);
        }
    }

    pub(crate) fn remove(&mut self, number: usize) {
        if self.contains(number) {
            Arc::make_mut(&mut self.0[number / NUMBERS])[number % NUMBERS / 64] &= !(1 << (number % 64));
        }
    }

    pub(crate) fn contains(&self, number: usize) -> bool {
        self.0[number / NUMBERS][number % NUMBERS / 64] >> (number % 64) & 1 == 1
    }

    /// Returns the numbers in order.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = usize> + '_ {
        let words = self.0.iter().flat_map(|part| part.iter().copied()).enumerate();
        words
            .filter(|(_, word)| *word != 0)
            .flat_map(|(at, word)| (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| at * 64 + bit))
    }

    /// Keeps only the numbers that `other` has too; returns whether the set changed.
    pub(crate) fn intersect(&mut self, other: &Self) -> bool {
        let mut changed = false;
        for (one, two) in self.0.iter_mut().zip(&other.0) {
            if Arc::ptr_eq(one, two) || is_part(one, two) {
                continue;
            }
            changed = true;
            if is_part(two, one) {
                *one = Arc::clone(two);
            } else {
                Arc::make_mut(one).iter_mut().zip(two.iter()).for_each(|(one, two)| *one &= two);
            }
        }
        changed
    }

    /// Adds the numbers of `other`.
    pub(crate) fn unite(&mut self, other: &Self) {
        for (one, two) in self.0.iter_mut().zip(&other.0) {
            if Arc::ptr_eq(one, two) || is_part(two, one) {
                continue;
            }
            if is_part(one, two) {
                *one = Arc::clone(two);
            } else {
                Arc::make_mut(one).iter_mut().zip(two.iter()).for_each(|(one, two)| *one |= two);
            }
        }
    }
}

/// Whether all numbers of `one` are in `other`.
fn is_part(one: &[u64; WORDS], other: &[u64; WORDS]) -> bool {
    // Without an early exit: comparing all words at once is faster than looking for the first difference.
    one.iter().zip(other).fold(0, |beyond, (one, other)| beyond | (one & !other)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(numbers: &[usize]) -> Set {
        let mut set = Set::empty(5_000);
        numbers.iter().for_each(|&number| set.insert(number));
        set
    }

    fn numbers(set: &Set) -> Vec<usize> {
        let numbers: Vec<usize> = set.numbers().collect();
        assert_eq!(numbers, (0..5_000).filter(|&number| set.contains(number)).collect::<Vec<_>>());
        numbers
    }

    #[test]
    fn sets_are_joined_and_cut_in_all_their_parts() {
        let (one, two) = (set(&[0, 63, 64, 2_047, 2_048, 4_999]), set(&[63, 2_048, 3_000]));
        let mut cut = one.clone();
        assert!(cut.intersect(&two) && !cut.intersect(&two));
        assert_eq!(numbers(&cut), [63, 2_048]);
        let mut joined = one.clone();
        joined.unite(&two);
        assert_eq!(numbers(&joined), [0, 63, 64, 2_047, 2_048, 3_000, 4_999]);
        joined.remove(3_000);
        assert_eq!(joined, one);
        assert_eq!(numbers(&two), [63, 2_048, 3_000], "what is shared does not change");
    }
}
