//! The state of a run: its inputs and its keys.

use std::panic::{AssertUnwindSafe, catch_unwind};

use graph_model::reducer::{Reducer, ReducerError, Uncombined};
use graph_model::value::{AsView, FromValue, MOST_LEVELS, Mismatch, Value, View};

use crate::tool_caller::panic_text;

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

    /// Combines a write to a key with its value, if the key is a channel whose reducer is a function of the program. `value` is
    /// null before the first write. `None` if the program has no such function, which is the default.
    ///
    /// The function is pure: the same value and write yield the same. It may be called more than once for a write.
    fn reduce(&self, key: usize, value: View<'_>, write: &Value) -> Option<Result<Value, ReducerError>> {
        let _ = (key, value, write);
        None
    }
}

/// Combines a write to a channel with a value. A function of the program that panics fails.
///
/// # Errors
///
/// As [`Reducer::combine`], or if the function fails or is not there.
pub fn combine(
    state: &dyn StateFields,
    key: usize,
    reducer: &Reducer,
    value: Value,
    write: &Value,
) -> Result<Value, Uncombined> {
    let Some(function) = reducer.function() else { return reducer.combine(value, write.clone()) };
    reducer.check(write)?;
    match catch_unwind(AssertUnwindSafe(|| state.reduce(key, value.view(), write))) {
        Ok(Some(Ok(combined))) if !combined.view().is_within(MOST_LEVELS) => {
            let error = ReducerError::new(format!("it returned a value of more than {MOST_LEVELS} levels"));
            Err(Uncombined::failed(function, &error))
        }
        Ok(Some(Ok(combined))) => Ok(combined),
        Ok(Some(Err(error))) => Err(Uncombined::failed(function, &error)),
        Ok(None) => Err(Uncombined::missing(function)),
        Err(panic) => {
            let error = ReducerError::new(format!("it panicked: {}", panic_text(&*panic)));
            Err(Uncombined::failed(function, &error))
        }
    }
}
