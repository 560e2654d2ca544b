//! Turns of tasks: whether the others of a thread had one while a run waited.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::task::yield_now;

tokio::task_local! {
    /// Set in the tasks of runs: whether the other tasks of the thread have had a turn while this one blocked it.
    static RUN: Cell<bool>;
}

/// Wraps a future as the task of a run.
pub(crate) fn in_run<F: Future>(future: F) -> impl Future<Output = F::Output> {
    RUN.scope(Cell::new(false), future)
}

/// Whether a store may wait for its disk on the caller's thread: the caller is the task of a run, and the other threads of a
/// multi-threaded Tokio runtime do its other work meanwhile.
///
/// A store that finds its writer free, with nobody waiting for it, then writes at once, inside
/// [`block_in_place`](https://docs.rs/tokio/latest/tokio/task/fn.block_in_place.html), and says so with [`others_had_turn`].
/// Being woken by another thread can take as long as the write. While the writer is busy, it is faster to collect the
/// requests and commit them together than to make each run wait for a commit of its own.
///
/// ```
/// # use graph_engine as graph_runtime;
/// use graph_runtime::store::{StoreError, may_block_run, others_had_turn};
///
/// async fn write(task: impl FnOnce() -> Result<(), StoreError> + Send + 'static) -> Result<(), StoreError> {
///     if may_block_run() {
///         let done = tokio::task::block_in_place(task);
///         others_had_turn();
///         return done;
///     }
///     tokio::task::spawn_blocking(task).await.map_err(|_| StoreError::Closed)?
/// }
/// ```
pub fn may_block_run() -> bool {
    use tokio::runtime::RuntimeFlavor;
    let is_run = RUN.try_with(|_| ()).is_ok();
    is_run && Handle::try_current().is_ok_and(|handle| handle.runtime_flavor() == RuntimeFlavor::MultiThread)
}

/// Says that the run's task blocked its thread, so that the other tasks of the thread ran elsewhere meanwhile. The run then
/// continues without yielding to them once more. Does nothing if the caller is not the task of a run.
///
/// [`may_block_run`] has an example.
pub fn others_had_turn() {
    // The flag exists only in the task of a run.
    RUN.try_with(|had| had.set(true)).unwrap_or_default();
}

/// Whether the other tasks of the thread have had a turn since this was asked last.
pub(crate) fn had_others_turn() -> bool {
    RUN.try_with(|had| had.replace(false)).unwrap_or(false)
}

/// How long a run may continue before the other tasks of its thread have a turn, if its tools never wait.
pub(crate) const TURN: Duration = Duration::from_micros(500);

/// The number of steps between two checks of that time: a check costs a fifth of a step.
pub(crate) const STEPS_A_LOOK: u64 = 32;

/// Whether the other tasks of the thread should have a turn after so many steps, since the graph's tools may never wait.
#[inline]
pub(crate) fn is_others_turn(steps: u64, turn: &mut Instant) -> bool {
    steps % STEPS_A_LOOK == STEPS_A_LOOK - 1 && is_turn_over(turn)
}

/// Whether the time slice of a run is over. A run that blocked on the disk has already yielded its worker thread, so it need
/// not yield again.
#[inline(never)]
pub(crate) fn is_turn_over(turn: &mut Instant) -> bool {
    let had_turn = had_others_turn();
    let is_over = turn.elapsed() >= TURN;
    if is_over {
        *turn = Instant::now();
    }
    is_over && !had_turn
}

/// Lets the other tasks of the thread have a turn. Any thread may continue this task, so it does not wait while one of them
/// blocks the thread.
///
/// [`yield_now`] keeps a task for its thread. That is better if there is only one: its timers are looked at too.
pub(crate) async fn leave_thread() {
    if Handle::current().metrics().num_workers() < 2 {
        return yield_now().await;
    }
    let mut has_left = false;
    poll_fn(|context| {
        if std::mem::replace(&mut has_left, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
