//! An error for `main`.

use std::error::Error;
use std::fmt;

/// An error that `main` returns, printed for people.
///
/// Rust prints what `main` returns by `Debug`. That of this type is the error's message, with a line for each cause. Any error
/// becomes one by `?`.
///
/// ```
/// use graph_runtime::{MainError, Runtime};
///
/// fn main() -> Result<(), MainError> {
///     let runtime = Runtime::builder().grant("rye.execute.tool.desk.greet")?.build()?;
/// #   drop(runtime);
///     Ok(())
/// }
/// ```
pub struct MainError(Box<dyn Error + Send + Sync>);

impl<E: Error + Send + Sync + 'static> From<E> for MainError {
    fn from(error: E) -> Self {
        Self(Box::new(error))
    }
}

impl fmt::Debug for MainError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = self.0.to_string();
        let mut cause = self.0.source();
        while let Some(error) = cause {
            // Many errors have the text of their cause in their own.
            let of_cause = error.to_string();
            if !text.contains(&of_cause) {
                text = format!("{text}\n  because {of_cause}");
            }
            cause = error.source();
        }
        f.write_str(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::MainError;

    use crate::BuildError;

    #[test]
    fn an_error_is_printed_by_its_message_and_its_causes() {
        let source = std::io::Error::other("the disk is gone");
        let printed = format!("{:?}", MainError::from(BuildError::Directory { path: "data".into(), source }));
        assert_eq!(printed, "the directory `data` cannot be opened for tools\n  because the disk is gone");
    }
}
