//! Maps and sets whose hash is fast for short keys. It has a random seed, so nobody can write a file whose names all collide.

use hashbrown::DefaultHashBuilder;

/// As that of the standard library.
pub type HashMap<K, V> = std::collections::HashMap<K, V, DefaultHashBuilder>;
/// As that of the standard library.
pub type HashSet<K> = std::collections::HashSet<K, DefaultHashBuilder>;
