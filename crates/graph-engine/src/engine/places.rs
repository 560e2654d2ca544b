//! The visits of a step that were begun.
//!
//! Threads that change the same memory wait for each other. So the frontier is divided into parts, and each counts the visits that
//! were begun in it. A worker whose tools return at once takes the visits of a part that no other worker began with. Any worker
//! may take those that are left in a part: the tool of the one that began with it may wait, or block its thread.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How many visits a part has at most.
const LARGEST_PART: usize = 32;
/// Into how many parts the frontier of a short step is divided.
const PARTS: usize = 16;
/// A worker takes a part of its own after so many visits in a row that did not wait.
const AT_ONCE: usize = 4;
/// How long these visits take at most, each.
const SHORT: Duration = Duration::from_micros(50);

/// The places of a frontier whose visits were not begun.
#[derive(Debug)]
pub(super) struct Places {
    parts: Box<[Part]>,
    /// How many visits a part has; the last one has what is left.
    size: usize,
    visits: usize,
    /// The first part in which visits may be left.
    first: AtomicUsize,
    /// The next part that a worker takes for itself.
    next: AtomicUsize,
}

/// How many visits of a part were begun. Each counter is in memory of its own: processors share at least 64 bytes, and fetch 128.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Part(AtomicUsize);

/// How a worker takes places.
#[derive(Debug)]
pub(super) struct Taking {
    /// The part that it took for itself.
    own: Option<usize>,
    /// How many visits in a row did not wait.
    at_once: usize,
    /// When the visits began since which a part may be taken.
    since: Instant,
}

impl Taking {
    /// A worker that has taken nothing.
    pub(super) fn new() -> Self {
        Self { own: None, at_once: 0, since: Instant::now() }
    }

    /// Notes whether the last visit waited. The visits of workers that wait begin in the order of the frontier.
    pub(super) fn note(&mut self, has_waited: bool) {
        self.at_once = if has_waited { 0 } else { self.at_once + 1 };
    }

    /// Whether the visits since the last part was taken were short: long ones, which block their threads, also begin in the order
    /// of the frontier.
    fn is_short(&mut self) -> bool {
        let (now, visits) = (Instant::now(), self.at_once.min(LARGEST_PART));
        let elapsed = now.duration_since(std::mem::replace(&mut self.since, now));
        elapsed <= SHORT * u32::try_from(visits).unwrap_or(u32::MAX)
    }
}

impl Places {
    /// Returns the places of a frontier with so many visits.
    pub(super) fn new(visits: usize) -> Self {
        let size = (visits / PARTS).clamp(1, LARGEST_PART);
        Self {
            parts: std::iter::repeat_with(Part::default).take(visits.div_ceil(size)).collect(),
            size,
            visits,
            first: AtomicUsize::new(0),
            next: AtomicUsize::new(0),
        }
    }

    /// Takes a place, whose visit then begins. `None` if all were taken.
    pub(super) fn take(&self, taking: &mut Taking) -> Option<usize> {
        while taking.at_once >= AT_ONCE {
            if taking.own.is_none() && !taking.is_short() {
                taking.note(true);
                break;
            }
            let own = *taking.own.get_or_insert_with(|| self.next.fetch_add(1, Ordering::Relaxed));
            if own >= self.parts.len() {
                break;
            }
            let place = self.take_in(own);
            if place.is_some() {
                return place;
            }
            taking.own = None;
        }
        std::iter::from_fn(|| self.first_left()).find_map(|part| self.take_in(part))
    }

    /// Whether all places were taken.
    pub(super) fn is_empty(&self) -> bool {
        self.first_left().is_none()
    }

    /// Takes a place in a part.
    fn take_in(&self, part: usize) -> Option<usize> {
        let at = self.parts[part].0.fetch_add(1, Ordering::Relaxed);
        (at < self.size_of(part)).then_some(part * self.size + at)
    }

    /// Returns the first part in which places are left.
    fn first_left(&self) -> Option<usize> {
        let mut part = self.first.load(Ordering::Relaxed);
        while part < self.parts.len() && self.parts[part].0.load(Ordering::Relaxed) >= self.size_of(part) {
            part += 1;
        }
        self.first.fetch_max(part, Ordering::Relaxed);
        (part < self.parts.len()).then_some(part)
    }

    fn size_of(&self, part: usize) -> usize {
        self.size.min(self.visits - part * self.size)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Takes places until none is left; `waits` says of each whether its visit waits.
    fn taken(places: &Places, taking: &mut Taking, mut waits: impl FnMut(usize) -> bool) -> Vec<usize> {
        let next = || {
            let place = places.take(taking)?;
            taking.note(waits(place));
            Some(place)
        };
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn the_visits_of_workers_that_wait_begin_in_the_order_of_the_frontier() {
        for visits in [0, 1, 2, 15, 16, 17, 31, 50, 512, 513, 1_000] {
            let places = Places::new(visits);
            let (mut one, mut other) = (Taking::new(), Taking::new());
            for expected in 0..visits {
                let taking = if expected % 3 == 0 { &mut one } else { &mut other };
                assert_eq!(places.take(taking), Some(expected), "of {visits}");
                taking.note(true);
            }
            assert!(places.is_empty() && places.take(&mut one).is_none());
        }
    }

    #[test]
    fn long_visits_begin_in_the_order_of_the_frontier() {
        let places = Places::new(1_000);
        let (mut one, mut other) = (Taking::new(), Taking::new());
        for expected in 0..40 {
            let taking = if expected % 3 == 0 { &mut one } else { &mut other };
            taking.since -= 1_000 * SHORT;
            assert_eq!(places.take(taking), Some(expected));
            taking.note(false);
        }
    }

    #[test]
    fn a_worker_that_does_not_wait_has_a_part_of_its_own() {
        let places = Places::new(1_000);
        let (mut one, mut other) = (Taking::new(), Taking::new());
        for taking in [&mut one, &mut other] {
            taking.note(false);
            taking.at_once = AT_ONCE;
        }
        assert_eq!([places.take(&mut one), places.take(&mut other)], [Some(0), Some(LARGEST_PART)]);
        assert_eq!([places.take(&mut one), places.take(&mut other)], [Some(1), Some(LARGEST_PART + 1)]);
        // The others take what it left.
        let mut rest = taken(&places, &mut other, |_| false);
        rest.sort_unstable();
        let began = [0, 1, LARGEST_PART, LARGEST_PART + 1];
        assert_eq!(rest, (0..1_000).filter(|place| !began.contains(place)).collect::<Vec<_>>());
        assert!(places.is_empty());
    }

    proptest! {
        #[test]
        fn each_place_is_taken_once(visits in 0_usize..3_000, workers in 1_usize..9, waits in 1_usize..9) {
            let places = Places::new(visits);
            let mut all: Vec<usize> = std::thread::scope(|scope| {
                let work = || taken(&places, &mut Taking::new(), |place| place % waits == 0);
                let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
                workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
            });
            all.sort_unstable();
            prop_assert_eq!(all, (0..visits).collect::<Vec<_>>());
            prop_assert!(places.is_empty());
        }
    }
}
