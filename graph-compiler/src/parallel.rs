//! Work on several cores: the compiler runs inside builds, where it is not optimised and rustc waits for it.
//!
//! Results are in the order of the input, so that the same input gives the same output. If no thread can be started,
//! the calling thread does the work.

use std::cell::Cell;
use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

thread_local! {
    /// Whether the work that this thread is a part of already keeps the other cores busy.
    static IS_SHARED: Cell<bool> = const { Cell::new(false) };
}

/// Runs `one` and `other` concurrently, and returns both results.
pub(crate) fn both<A: Send, B>(one: impl Fn() -> A + Sync, other: impl FnOnce() -> B) -> (A, B) {
    if IS_SHARED.get() {
        return (one(), other());
    }
    thread::scope(|scope| {
        let running = thread::Builder::new().spawn_scoped(scope, &one);
        let other = other();
        let one = match running {
            Ok(running) => running.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            Err(_) => one(),
        };
        (one, other)
    })
}

/// Calls `work` with every item, and returns the results in the order of the items.
pub(crate) fn map<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let cores = if IS_SHARED.get() { 1 } else { thread::available_parallelism().map_or(1, NonZero::get) };
    let threads = cores.min(items.len());
    // With at least one item for every core, no core is free for parts of items.
    let is_shared = threads > 1 && threads == cores;
    let next = AtomicUsize::new(0);
    let take = || {
        let before = IS_SHARED.replace(IS_SHARED.get() || is_shared);
        let mut done = Vec::new();
        while let Some((at, item)) = {
            let at = next.fetch_add(1, Ordering::Relaxed);
            items.get(at).map(|item| (at, item))
        } {
            done.push((at, work(item)));
        }
        IS_SHARED.set(before);
        done
    };
    let mut done = thread::scope(|scope| {
        let others: Vec<_> =
            (1..threads).map_while(|_| thread::Builder::new().spawn_scoped(scope, take).ok()).collect();
        let mut done = take();
        for other in others {
            done.extend(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        done
    });
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_the_order_of_the_items() {
        let items: Vec<usize> = (0..1000).collect();
        assert_eq!(map(&items, |item| item * 2), (0..1000).map(|item| item * 2).collect::<Vec<_>>());
        assert_eq!(map(&[] as &[u8], |item| *item), [0_u8; 0]);
        assert_eq!(both(|| 1, || "two"), (1, "two"));
    }

    #[test]
    fn parts_of_items_are_done_by_the_thread_that_has_the_item() {
        let items: Vec<usize> = (0..100).collect();
        let part = || thread::current().id();
        let own = |_: &usize| {
            let (one, other) = both(part, part);
            let inner = map(&[(); 4], |()| part());
            inner.into_iter().chain([one, other]).all(|id| id == part())
        };
        assert!(
            thread::available_parallelism().is_ok_and(|cores| cores.get() == 1)
                || map(&items, own).into_iter().all(|own| own)
        );
        assert!(!IS_SHARED.get(), "it is over");
    }
}
