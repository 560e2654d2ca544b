//! Conditions: tests combined with `all`, `any` and `not`.

/// A condition over tests of type `T` (R76).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition<T> {
    /// Holds always: an edge without `when`.
    Always,
    /// Holds if all do; an empty `all` holds.
    All(Vec<Self>),
    /// Holds if one does; an empty `any` does not hold.
    Any(Vec<Self>),
    /// Holds if the other does not.
    Not(Box<Self>),
    /// A comparison.
    Test(T),
}

impl<T> Condition<T> {
    /// Decides the condition; `test` decides a comparison. Stops at the first test that settles it.
    ///
    /// # Errors
    ///
    /// The first error that `test` gives.
    pub fn holds<E>(&self, test: &mut impl FnMut(&T) -> Result<bool, E>) -> Result<bool, E> {
        match self {
            Self::Always => Ok(true),
            Self::All(conditions) => {
                for condition in conditions {
                    if !condition.holds(test)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Self::Any(conditions) => {
                for condition in conditions {
                    if condition.holds(test)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            Self::Not(condition) => condition.holds(test).map(|holds| !holds),
            Self::Test(leaf) => test(leaf),
        }
    }

    /// Rebuilds the condition with each test changed by `change`.
    ///
    /// # Errors
    ///
    /// The first error that `change` gives.
    pub fn try_map<U, E>(&self, change: &mut impl FnMut(&T) -> Result<U, E>) -> Result<Condition<U>, E> {
        let list = |conditions: &[Self], change: &mut _| {
            conditions.iter().map(|condition| condition.try_map(change)).collect::<Result<Vec<_>, E>>()
        };
        Ok(match self {
            Self::Always => Condition::Always,
            Self::All(conditions) => Condition::All(list(conditions, change)?),
            Self::Any(conditions) => Condition::Any(list(conditions, change)?),
            Self::Not(condition) => Condition::Not(Box::new(condition.try_map(change)?)),
            Self::Test(leaf) => Condition::Test(change(leaf)?),
        })
    }

    /// Calls `visit` with each test, in order.
    pub fn tests<'a>(&'a self, visit: &mut impl FnMut(&'a T)) {
        match self {
            Self::Always => {}
            Self::All(conditions) | Self::Any(conditions) => conditions.iter().for_each(|one| one.tests(visit)),
            Self::Not(condition) => condition.tests(visit),
            Self::Test(leaf) => visit(leaf),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Condition::{All, Always, Any, Not, Test};
    use super::*;

    fn holds(condition: &Condition<bool>) -> bool {
        condition.holds(&mut |leaf| Ok::<_, ()>(*leaf)).unwrap()
    }

    #[test]
    fn combinators_combine() {
        assert!(holds(&Always));
        assert!(holds(&All(vec![])));
        assert!(!holds(&Any(vec![])));
        assert!(!holds(&Not(Box::new(Always))));
        assert!(holds(&All(vec![Test(true), Any(vec![Test(false), Not(Box::new(Test(false)))])])));
        assert!(!holds(&All(vec![Test(true), Test(false)])));
    }

    #[test]
    fn the_first_test_that_settles_it_is_the_last_one_asked() {
        let mut asked = 0;
        let condition = Any(vec![Test(true), Test(false)]);
        condition
            .holds(&mut |leaf| {
                asked += 1;
                Ok::<_, ()>(*leaf)
            })
            .unwrap();
        assert_eq!(asked, 1);
    }
}
