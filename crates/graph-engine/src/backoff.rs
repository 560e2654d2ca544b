//! Back-off: whether a call that failed is made again, and how long to wait before it.

use std::time::Duration;

use graph_model::program::Retry;

use crate::failure::Category;

/// The name in a retry's `on` that stands for every category.
const ANY: &str = "any";

/// Returns how long to wait before the next call after the `attempt`-th failed; `attempt` counts from 1.
///
/// The pause is `min(delay_ms * factor^(attempt - 1), max_delay_ms) * (1 - jitter * random)` milliseconds. `random` is from
/// 0 to 1. It takes away a random part of what `jitter` allows, so that runs which failed together do not retry together. A
/// factor below 1 makes the pauses shorter. Numbers outside their range are clamped to it, and NaN has no effect; no
/// arithmetic overflows.
pub(crate) fn pause(retry: &Retry, attempt: u32, random: f64) -> Duration {
    let longest = Duration::from_millis(retry.max_delay_ms);
    let first = Duration::from_millis(retry.delay_ms).as_secs_f64();
    let factor = if retry.factor.is_nan() { 1.0 } else { retry.factor.max(0.0) };
    let times = i32::try_from(attempt.saturating_sub(1)).unwrap_or(i32::MAX);
    // Zero times infinity is NaN, and must be zero.
    let grown = if first == 0.0 { 0.0 } else { first * factor.powi(times) };
    let bounded = grown.min(longest.as_secs_f64());
    let part = part(retry.jitter) * part(random);
    Duration::try_from_secs_f64(bounded * (1.0 - part)).map_or(longest, |pause| pause.min(longest))
}

/// Whether `retry` applies to failures of this category. `any` stands for every category except [`Category::Cancelled`]: a
/// cancelled call is retried only if `on` names that category.
pub(crate) fn applies(retry: &Retry, category: Category) -> bool {
    retry.on.iter().any(|name| name == category.name() || (name == ANY && category != Category::Cancelled))
}

fn part(number: f64) -> f64 {
    if number.is_nan() { 0.0 } else { number.clamp(0.0, 1.0) }
}

/// The number of times that the built-in hook retries a transient failure (R138).
pub(crate) const BUILTIN_RETRIES: u32 = 3;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn retry() -> Retry {
        Retry { delay_ms: 100, factor: 2.0, max_delay_ms: 1000, ..Retry::default() }
    }

    #[test]
    fn pauses_follow_the_formula() {
        let pauses: Vec<u128> = (1..=6).map(|attempt| pause(&retry(), attempt, 0.0).as_millis()).collect();
        assert_eq!(pauses, [100, 200, 400, 800, 1000, 1000]);
        let jittery = Retry { jitter: 0.5, ..retry() };
        assert_eq!(pause(&jittery, 2, 0.5), Duration::from_millis(150));
        assert_eq!(pause(&jittery, 2, 1.0), Duration::from_millis(100));
        assert_eq!(pause(&retry(), 2, 1.0), Duration::from_millis(200));
    }

    #[test]
    fn nonsensical_numbers_still_give_a_pause() {
        let most = u64::MAX;
        for (retry, attempt, random, expected) in [
            (Retry { delay_ms: 0, factor: f64::INFINITY, ..retry() }, 9, 0.0, 0),
            (Retry { factor: f64::NAN, ..retry() }, 9, 0.0, 100),
            (Retry { factor: -2.0, ..retry() }, 2, 0.0, 0),
            (Retry { factor: 1e300, ..retry() }, u32::MAX, 0.0, 1000),
            (Retry { jitter: 9.0, ..retry() }, 1, 9.0, 0),
            (Retry { jitter: f64::NAN, ..retry() }, 1, f64::NAN, 100),
            (retry(), 0, 0.0, 100),
        ] {
            assert_eq!(pause(&retry, attempt, random), Duration::from_millis(expected), "{retry:?}");
        }
        let forever = Retry { delay_ms: most, max_delay_ms: most, ..retry() };
        assert!(pause(&forever, 100, 0.0) <= Duration::from_millis(most));
    }

    #[test]
    fn a_retry_is_about_the_categories_that_it_names() {
        let on = |names: &[&str]| Retry { on: names.iter().map(ToString::to_string).collect(), ..retry() };
        assert!(applies(&Retry::default(), Category::Transient));
        assert!(applies(&Retry::default(), Category::RateLimited));
        assert!(!applies(&Retry::default(), Category::Permanent));
        assert!(applies(&on(&["any"]), Category::Permanent));
        assert!(!applies(&on(&["any"]), Category::Cancelled));
        assert!(applies(&on(&["cancelled"]), Category::Cancelled));
        assert!(!applies(&on(&[]), Category::Transient));
    }

    proptest! {
        #[test]
        fn pauses_grow_and_are_bounded(
            delay_ms: u64, max_delay_ms: u64, factor in 1.0..10.0_f64, jitter in 0.0..=1.0_f64, random in 0.0..=1.0_f64,
            attempt in 0..u32::MAX,
        ) {
            let retry = Retry { delay_ms, max_delay_ms, factor, jitter, ..Retry::default() };
            let (one, next) = (pause(&retry, attempt, random), pause(&retry, attempt + 1, random));
            prop_assert!(one <= next);
            prop_assert!(next <= Duration::from_millis(max_delay_ms));
        }

        #[test]
        fn no_numbers_make_a_pause_panic(
            delay_ms: u64, max_delay_ms: u64, factor: f64, jitter: f64, random: f64, attempt: u32,
        ) {
            let retry = Retry { delay_ms, max_delay_ms, factor, jitter, ..Retry::default() };
            prop_assert!(pause(&retry, attempt, random) <= Duration::from_millis(max_delay_ms));
        }
    }
}
