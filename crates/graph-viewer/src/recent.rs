//! A map that knows which of its values was asked for longest ago.

use std::collections::HashMap;
use std::hash::Hash;

/// A map whose owner removes the values that nobody asked for, when there are too many.
pub(crate) struct Recent<K, V> {
    /// Counts the uses of all values.
    uses: u64,
    /// The values, each with the count at its last use.
    kept: HashMap<K, (u64, V)>,
}

impl<K, V> Default for Recent<K, V> {
    fn default() -> Self {
        Self { uses: 0, kept: HashMap::new() }
    }
}

impl<K: Clone + Eq + Hash, V: Clone> Recent<K, V> {
    /// Returns a value, which is the one that was used last then.
    pub(crate) fn get(&mut self, key: &K) -> Option<V> {
        self.uses += 1;
        let (used, value) = self.kept.get_mut(key)?;
        *used = self.uses;
        Some(value.clone())
    }

    pub(crate) fn insert(&mut self, key: K, value: V) {
        self.uses += 1;
        self.kept.insert(key, (self.uses, value));
    }

    pub(crate) fn len(&self) -> usize {
        self.kept.len()
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.kept.values().map(|(_, value)| value)
    }

    /// Removes the value that was used longest ago.
    pub(crate) fn forget_one(&mut self) {
        let oldest = self.kept.iter().min_by_key(|(_, (used, _))| *used).map(|(key, _)| key.clone());
        oldest.into_iter().for_each(|key| drop(self.kept.remove(&key)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_value_that_was_used_longest_ago_is_forgotten() {
        let mut recent = Recent::default();
        for key in 1..=3 {
            recent.insert(key, key * 10);
        }
        assert_eq!(recent.get(&1), Some(10));
        recent.forget_one();
        assert_eq!((recent.get(&2), recent.get(&1), recent.get(&3), recent.len()), (None, Some(10), Some(30), 2));
        recent.forget_one();
        assert_eq!(recent.values().collect::<Vec<_>>(), [&30]);
    }
}
