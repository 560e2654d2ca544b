//! News: a thread that notices when anybody has changed the file.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use tokio::sync::watch;

use crate::form::connect_to_read;
use graph_engine::store::StoreError;

/// How often the thread looks. One look takes microseconds.
const PACE: Duration = Duration::from_millis(25);
/// The time after which it reports news in any case: holders may be gone, and clocks may have been set.
const HEARTBEAT: Duration = Duration::from_secs(1);

/// Starts the thread, which ends when the last receiver is dropped. It counts the changes of the file that other connections
/// than its own make, in this process and in others.
pub(super) fn watch(path: &Path, patience: Duration) -> Result<watch::Receiver<u64>, StoreError> {
    let connection = connect_to_read(path, patience)?;
    let (sender, receiver) = watch::channel(1);
    let look = move || {
        let (mut known, mut told) = (version(&connection), Instant::now());
        while !sender.is_closed() {
            thread::sleep(PACE);
            let found = version(&connection);
            // A version that cannot be read counts as one that has changed, at the pace of the heartbeat.
            if (found.is_some() && found != known) || told.elapsed() >= HEARTBEAT {
                (known, told) = (found, Instant::now());
                sender.send_modify(|news| *news += 1);
            }
        }
    };
    let thread = thread::Builder::new().name("graph store news".to_owned()).spawn(look);
    thread.map(|_| receiver).map_err(|error| {
        StoreError::open(path.display(), format!("no thread could be started: {error}")).with_source(error)
    })
}

/// Returns the number that SQLite changes whenever another connection has changed the file.
fn version(connection: &Connection) -> Option<i64> {
    connection.pragma_query_value(None, "data_version", |row| row.get(0)).ok()
}
