//! The gate of a runtime: knows the running runs and whether more may begin, so that the runtime can shut down.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use graph_model::name::RunId;
use tokio::sync::Notify;
use tokio::task::{AbortHandle, JoinHandle};

use crate::stop::Stop;

/// The running runs of a runtime. A run inside another counts as part of it.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    inside: Mutex<Inside>,
    left: Notify,
}

#[derive(Debug, Default)]
struct Inside {
    is_closed: bool,
    next: u64,
    runs: HashMap<u64, One>,
}

#[derive(Debug)]
struct One {
    run: RunId,
    stop: Stop,
    /// The handle that aborts its task; `None` as long as the run is about to begin.
    task: Option<AbortHandle>,
}

/// The right of a run to execute. Dropping it gives it back.
pub(crate) struct Pass {
    gate: Arc<Gate>,
    number: u64,
}

impl Gate {
    /// Lets a run in, unless the gate is closed.
    pub(crate) fn enter(self: &Arc<Self>, run: &RunId, stop: &Stop) -> Option<Pass> {
        let mut inside = self.inside();
        if inside.is_closed {
            return None;
        }
        let number = inside.next;
        inside.next += 1;
        inside.runs.insert(number, One { run: run.clone(), stop: stop.clone(), task: None });
        Some(Pass { gate: Arc::clone(self), number })
    }

    /// Lets no more runs in, and asks all running runs to stop where they are. Returns how many these are.
    pub(crate) fn close(&self) -> usize {
        let mut inside = self.inside();
        inside.is_closed = true;
        inside.runs.values().for_each(|one| one.stop.pause());
        inside.runs.len()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.inside().is_closed
    }

    /// Waits until no run is running.
    pub(crate) async fn emptied(&self) {
        loop {
            let left = self.left.notified();
            tokio::pin!(left);
            left.as_mut().enable();
            if self.inside().runs.is_empty() {
                return;
            }
            left.await;
        }
    }

    /// Ends the tasks of all running runs, and returns the runs.
    pub(crate) fn abort(&self) -> Vec<RunId> {
        let inside = self.inside();
        inside.runs.values().filter_map(|one| one.task.as_ref()).for_each(AbortHandle::abort);
        let mut runs: Vec<RunId> = inside.runs.values().map(|one| one.run.clone()).collect();
        runs.sort_unstable();
        runs
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores the task of a run. A run that has ended is not there any more.
    fn note(&self, number: u64, task: AbortHandle) {
        if let Some(one) = self.inside().runs.get_mut(&number) {
            one.task = Some(task);
        }
    }
}

impl Pass {
    /// Spawns the task of the run, which holds the pass until it ends.
    pub(crate) fn spawn<T: Send + 'static>(
        self: Arc<Self>,
        run: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        let (gate, number) = (Arc::clone(&self.gate), self.number);
        // Without the box, the task would hold the future twice: captured and awaited.
        let run = Box::pin(run);
        let task = tokio::spawn(async move {
            // The pass is given back when everything else of the run is dropped.
            let _pass = self;
            run.await
        });
        gate.note(number, task.abort_handle());
        task
    }

    /// Stores the task of a run that another gate has spawned.
    pub(crate) fn note(&self, task: AbortHandle) {
        self.gate.note(self.number, task);
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let is_empty = {
            let mut inside = self.gate.inside();
            inside.runs.remove(&self.number);
            inside.runs.is_empty()
        };
        if is_empty {
            self.gate.left.notify_waiters();
        }
    }
}
