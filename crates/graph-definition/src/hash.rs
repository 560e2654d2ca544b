//! Maps and sets whose hash is fast for short keys. It has a random seed, so nobody can write a file whose names all collide.

use foldhash::fast::RandomState;

/// The map of the standard library, with this hash.
pub type HashMap<K, V> = std::collections::HashMap<K, V, RandomState>;
/// The set of the standard library, with this hash.
pub type HashSet<K> = std::collections::HashSet<K, RandomState>;
