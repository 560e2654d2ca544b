//! Messages for readers whom the sender never waits for.
//!
//! The messages are in a broadcast channel of Tokio, which drops the oldest ones. While no reader could take a message before it is
//! dropped, it is not made: it is counted, and the readers keep the older messages that they have not read.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::sync::broadcast::{Receiver, Sender};

/// The most messages that are kept: the memory for them is taken with the channel.
const MOST_MESSAGES: usize = 1 << 20;

/// Messages that a reader does not get, because it was too slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Gap(pub(super) u64);

/// The sender's side.
pub(super) struct Feeds<M> {
    sender: Sender<Numbered<M>>,
    capacity: u64,
    positions: Arc<Mutex<Positions>>,
}

/// One reader. It does not keep the sender alive.
pub(super) struct Feed<M> {
    receiver: Receiver<Numbered<M>>,
    /// The number of the next message. Only this reader writes it.
    next: Arc<AtomicU64>,
    /// A message that was found after a gap.
    held: Option<Numbered<M>>,
    positions: Arc<Mutex<Positions>>,
}

#[derive(Clone)]
struct Numbered<M> {
    number: u64,
    message: M,
}

/// The number of the next message, and the positions of the readers.
#[derive(Default)]
struct Positions {
    next: u64,
    readers: Vec<Arc<AtomicU64>>,
}

fn lock(positions: &Mutex<Positions>) -> MutexGuard<'_, Positions> {
    positions.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<M: Clone> Feeds<M> {
    /// Keeps `capacity` messages, at least one and at most [`MOST_MESSAGES`].
    pub(super) fn new(capacity: usize) -> Self {
        let capacity = capacity.clamp(1, MOST_MESSAGES);
        let (sender, _) = tokio::sync::broadcast::channel(capacity);
        Self { sender, capacity: capacity as u64, positions: Arc::default() }
    }

    /// Adds a reader of the messages from now on.
    pub(super) fn subscribe(&self) -> Feed<M> {
        let mut positions = lock(&self.positions);
        let next = Arc::new(AtomicU64::new(positions.next));
        positions.readers.push(Arc::clone(&next));
        Feed { receiver: self.sender.subscribe(), next, held: None, positions: Arc::clone(&self.positions) }
    }

    /// Whether there is no reader.
    pub(super) fn is_unread(&self) -> bool {
        lock(&self.positions).readers.is_empty()
    }

    /// Sends what `make` returns. It is not called if a message would reach nobody.
    pub(super) fn send(&self, make: impl FnOnce() -> Option<M>) {
        {
            let mut positions = lock(&self.positions);
            let Positions { next, readers } = &mut *positions;
            if readers.is_empty() {
                return;
            }
            // A reader that waits has told its position with the lock.
            if readers.iter().all(|reader| next.saturating_sub(reader.load(Ordering::Relaxed)) >= self.capacity) {
                *next += 1;
                return;
            }
        }
        let Some(message) = make() else { return };
        // Numbers are in the order of the channel, and a reader that holds the lock knows that all messages before `next` are there.
        let mut positions = lock(&self.positions);
        let number = positions.next;
        positions.next += 1;
        // It fails if the last reader has gone.
        self.sender.send(Numbered { number, message }).ok();
    }
}

/// The result of looking into the channel.
enum Found<M> {
    Message(Numbered<M>),
    /// Nothing, and the messages before this number were not made.
    Missing(u64),
    Closed,
}

impl<M: Clone> Feed<M> {
    /// Waits for the next message; `None` if there are no more. No message is lost if the future is dropped.
    pub(super) async fn recv(&mut self) -> Option<Result<M, Gap>> {
        let number = match self.held.take() {
            Some(held) => return Some(Ok(self.take(held))),
            None => match self.find().await {
                Found::Message(found) if found.number == self.next() => return Some(Ok(self.take(found))),
                Found::Message(found) => self.held.insert(found).number,
                Found::Missing(number) => number,
                Found::Closed => return None,
            },
        };
        let gap = Gap(number - self.next());
        self.next.store(number, Ordering::Relaxed);
        Some(Err(gap))
    }

    fn next(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }

    fn take(&mut self, Numbered { number, message }: Numbered<M>) -> M {
        self.next.store(number + 1, Ordering::Relaxed);
        message
    }

    async fn find(&mut self) -> Found<M> {
        loop {
            match self.receiver.try_recv() {
                Ok(found) => return Found::Message(found),
                // The numbers say how many.
                Err(TryRecvError::Lagged(_)) => {}
                Err(TryRecvError::Empty | TryRecvError::Closed) => {
                    if let Some(found) = self.find_missing() {
                        return found;
                    }
                    match self.receiver.recv().await {
                        Ok(found) => return Found::Message(found),
                        Err(RecvError::Lagged(_)) => {}
                        Err(RecvError::Closed) => return self.find_missing().unwrap_or(Found::Closed),
                    }
                }
            }
        }
    }

    /// Returns the number before which messages were not made, if this reader is not there yet. Otherwise the sender makes the next
    /// message, since it sees that all are read.
    fn find_missing(&mut self) -> Option<Found<M>> {
        let shared = Arc::clone(&self.positions);
        let positions = lock(&shared);
        if positions.next > self.next() {
            // All messages before `next` that were made are in the channel by now.
            return match self.receiver.try_recv() {
                Ok(found) => Some(Found::Message(found)),
                Err(TryRecvError::Lagged(_)) => None,
                Err(TryRecvError::Empty | TryRecvError::Closed) => Some(Found::Missing(positions.next)),
            };
        }
        None
    }
}

impl<M> Drop for Feed<M> {
    fn drop(&mut self) {
        lock(&self.positions).readers.retain(|reader| !Arc::ptr_eq(reader, &self.next));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use futures_util::FutureExt;
    use graph_model::digest::Digest;

    use super::*;

    /// Returns the numbers `0..limit` that depend on a seed and a count alone.
    struct Random(u64, u64);

    impl Random {
        fn below(&mut self, limit: u64) -> u64 {
            self.1 += 1;
            let digest = Digest::of(format!("{} {}", self.0, self.1));
            u64::from_le_bytes(digest.as_bytes()[..8].try_into().unwrap()) % limit
        }
    }

    /// A reader's messages and gaps are all messages since it came, in their order, whatever others read.
    #[test]
    fn readers_account_for_each_message() {
        let count = std::env::var("FEEDS").map_or(500, |count| count.parse().unwrap());
        let (mut gaps, mut skipped) = (0, 0);
        for seed in 0..count {
            let mut random = Random(seed, 0);
            let capacity = 1 + random.below(8);
            let feeds = Feeds::new(usize::try_from(capacity).unwrap());
            // Each with the number of the message that it expects, and those it was sent when it read everything.
            let mut readers: VecDeque<(Feed<u64>, u64)> = VecDeque::new();
            let mut sent = 0;
            let mut read = |feed: &mut Feed<u64>, expected: &mut u64, sent: u64| match feed.recv().now_or_never() {
                Some(Some(Ok(number))) => {
                    assert_eq!(number, *expected, "SEED={seed}");
                    *expected += 1;
                    true
                }
                Some(Some(Err(Gap(dropped)))) => {
                    assert!(dropped > 0, "SEED={seed}");
                    *expected += dropped;
                    gaps += 1;
                    true
                }
                Some(None) => panic!("SEED={seed}: the sender is there"),
                None => {
                    assert_eq!(*expected, sent, "SEED={seed}: a reader that waits has all");
                    false
                }
            };
            for _ in 0..200 {
                match random.below(10) {
                    0 if readers.len() < 3 => readers.push_back((feeds.subscribe(), sent)),
                    1 if random.below(3) == 0 => drop(readers.pop_front()),
                    2..=4 => {
                        let some = random.below(1 + readers.len() as u64);
                        if let Some((feed, expected)) = readers.get_mut(usize::try_from(some).unwrap()) {
                            for _ in 0..=random.below(4) {
                                read(feed, expected, sent);
                            }
                        }
                    }
                    _ => {
                        let mut is_made = false;
                        feeds.send(|| {
                            is_made = true;
                            Some(sent)
                        });
                        let is_wanted = readers.iter().any(|(feed, _)| sent - feed.next() < capacity);
                        assert_eq!(is_made, is_wanted, "SEED={seed}");
                        skipped += u64::from(!is_made && !readers.is_empty());
                        // Nobody counts what nobody could miss.
                        sent += u64::from(is_made || !readers.is_empty());
                    }
                }
            }
            for (feed, expected) in &mut readers {
                while read(feed, expected, sent) {}
            }
            drop(feeds);
            for (mut feed, _) in readers {
                assert_eq!(feed.recv().now_or_never(), Some(None), "SEED={seed}");
            }
        }
        assert!(gaps > 100 && skipped > 100, "{gaps} gaps, {skipped} messages that were not made");
    }

    #[tokio::test]
    async fn a_reader_that_waits_is_woken_after_messages_that_were_not_made() {
        let feeds = Arc::new(Feeds::new(1));
        let mut feed = feeds.subscribe();
        for number in 0..3 {
            feeds.send(|| Some(number));
        }
        assert_eq!(feed.recv().await, Some(Ok(0)));
        assert_eq!(feed.recv().await, Some(Err(Gap(2))));
        let sender = Arc::clone(&feeds);
        let later = tokio::spawn(async move {
            tokio::task::yield_now().await;
            sender.send(|| Some(3));
        });
        assert_eq!(feed.recv().await, Some(Ok(3)));
        later.await.unwrap();
        feeds.send(|| Some(4));
        feeds.send(|| Some(5));
        drop(feeds);
        assert_eq!(feed.recv().await, Some(Ok(4)));
        assert_eq!((feed.recv().await, feed.recv().await), (Some(Err(Gap(1))), None));
    }

    /// Several senders and readers at once.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn threads_lose_no_count() {
        let feeds = Arc::new(Feeds::new(4));
        let reading = [0, 1].map(|pause| {
            let mut feed = feeds.subscribe();
            tokio::spawn(async move {
                let (mut all, mut last) = (0, 0);
                while let Some(read) = feed.recv().await {
                    match read {
                        Ok(()) => all += 1,
                        Err(Gap(dropped)) => all += dropped,
                    }
                    last += 1;
                    if pause > 0 && last % 7 == 0 {
                        tokio::task::yield_now().await;
                    }
                }
                all
            })
        });
        let sending = [0, 1].map(|_| {
            let feeds = Arc::clone(&feeds);
            tokio::spawn(async move { (0..10_000).for_each(|_| feeds.send(|| Some(()))) })
        });
        for sender in sending {
            sender.await.unwrap();
        }
        drop(feeds);
        for reader in reading {
            assert_eq!(reader.await.unwrap(), 20_000);
        }
    }
}
