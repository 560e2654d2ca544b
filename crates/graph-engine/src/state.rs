//! The state of a run: its inputs and its keys.

use graph_model::value::{Mismatch, Value, View};

/// The state of a run: its inputs, and one cell for each key.
///
/// The package `tests/outside/machine` of the repository has one, and the [module of machines](crate::machine) an example.
pub trait StateFields: Send + Sync {
    /// Looks at the run's original inputs.
    fn inputs(&self) -> View<'_>;

    /// Looks at a key; null until it is set.
    fn get(&self, key: usize) -> View<'_>;

    /// Checks whether [`StateFields::set`] accepts a value for a key.
    ///
    /// # Errors
    ///
    /// If the value is not of the key's type.
    fn check(&self, key: usize, value: &Value) -> Result<(), Mismatch>;

    /// Sets a key; null unsets it.
    ///
    /// # Errors
    ///
    /// If the value is not of the key's type. The key is unchanged then.
    fn set(&mut self, key: usize, value: Value) -> Result<(), Mismatch>;
}
