//! The state of a run: its inputs and its keys.

use graph_model::value::{FromValue, Mismatch, Value, View};

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

    /// Checks whether [`StateFields::set_element`] accepts an element for a list.
    ///
    /// # Errors
    ///
    /// If the element is not of the type of the list's elements.
    fn check_element(&self, key: usize, element: &Value) -> Result<(), Mismatch> {
        self.check(key, &Value::Array(vec![element.clone()]))
    }

    /// Sets the element of a list at an index, or adds it if the index is the list's length. An unset key is an empty
    /// list.
    ///
    /// By default this copies the whole list. A state whose lists grow long has a method of its own.
    ///
    /// # Errors
    ///
    /// If the element is not of the type of the list's elements, or the key holds no list. The key is unchanged then.
    fn set_element(&mut self, key: usize, at: usize, element: Value) -> Result<(), Mismatch> {
        let mut list = self.get(key).to_plain_value();
        list.put_element(at, element)?;
        self.set(key, list)
    }
}
