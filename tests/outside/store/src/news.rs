//! News: something has happened, in any process, after which a run may be claimed earlier than before.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::watch;

use crate::file::nanoseconds;
use crate::locked;

/// The time after which there are news in any case: a process that dies says nothing.
const HEARTBEAT: Duration = Duration::from_secs(1);

/// The file `news`, which has the time of the last news. Each process looks at it at short intervals, so nothing has to be
/// read of the runs as long as nothing happens.
#[derive(Debug)]
pub(crate) struct News {
    file: File,
    count: watch::Sender<u64>,
    /// The content of the file, and when it was counted.
    counted: Mutex<([u8; 8], Instant)>,
}

impl News {
    pub(crate) fn open(directory: &Path) -> io::Result<Self> {
        let path = directory.join("news");
        let file = File::options().read(true).write(true).create(true).truncate(false).open(path)?;
        Ok(Self { file, count: watch::Sender::new(1), counted: Mutex::new(([0; 8], Instant::now())) })
    }

    /// Says to all processes that something has happened. If that fails, the heartbeat replaces it.
    pub(crate) fn publish(&self) {
        drop(self.file.write_all_at(&nanoseconds(SystemTime::now()).to_le_bytes(), 0));
    }

    /// Counts the news since the last look.
    pub(crate) fn look(&self) {
        let mut found = [0; 8];
        // The file is empty before the first news.
        drop(self.file.read_exact_at(&mut found, 0));
        let mut counted = locked(&self.counted);
        if found != counted.0 || counted.1.elapsed() >= HEARTBEAT {
            *counted = (found, Instant::now());
            self.count.send_modify(|count| *count += 1);
        }
    }

    /// Waits until there are other news than those that were seen, and returns their number.
    pub(crate) async fn after(&self, seen: u64) -> Option<u64> {
        let found = self.count.subscribe().wait_for(|count| *count != seen).await.map(|count| *count);
        found.ok()
    }
}
