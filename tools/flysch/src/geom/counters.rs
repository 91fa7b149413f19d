//! Counters of a workload, available over a socket while it runs.
//!
//! A client raises a number that the lanes read with every poll. A lane that sees a number other
//! than last time publishes its counters; when all lanes have done so, the client gets them.
//! Nothing waits for the client, and without one nothing is done.

#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use flysch_files::SocketFile;

use super::mount::Order;
use super::remote;
use super::stats::Snapshot;
use crate::failure::Failure;

/// How long lanes may take to publish. They sleep while a workload pauses; their last counters are
/// then still correct.
const PATIENCE: Duration = Duration::from_secs(1);
/// The same before their first publication: disks are still being opened.
const PATIENCE_AT_FIRST: Duration = Duration::from_secs(10);

/// What lanes published, and for which number.
pub(super) type Told = (u32, Snapshot);

/// The socket for counters of workloads. Dropping it removes it.
pub(crate) struct Watched {
    /// Raised by a client.
    pub(super) turn: Arc<AtomicU32>,
    /// Where the answer goes.
    pub(super) told: Sender<Told>,
    _file: SocketFile,
}

impl Watched {
    /// Creates the socket, and answers from now on.
    pub(crate) fn listen(path: &Path) -> Result<Self, Failure> {
        let fail = |error: std::io::Error| Failure::of(path.display(), error);
        let (file, listener) = SocketFile::bind(path).map_err(Failure::failed)?;
        let (orders, to_do) = mpsc::channel();
        let (told, answers) = mpsc::channel();
        let turn = Arc::new(AtomicU32::new(0));
        let mut clerk = Clerk { turn: Arc::clone(&turn), answers, last: None };
        let work = move || {
            for order in to_do {
                if let Order::Command(line, answer) = order {
                    let patience = (PATIENCE_AT_FIRST, PATIENCE);
                    let _ = answer.send(remote::tell(&line, || clerk.ask(patience)));
                }
            }
        };
        std::thread::Builder::new().name("counters".into()).spawn(work).map_err(fail)?;
        remote::serve(listener, orders).map_err(fail)?;
        Ok(Self { turn, told, _file: file })
    }
}

/// Queries the lanes for the clients, one after the other.
struct Clerk {
    turn: Arc<AtomicU32>,
    answers: Receiver<Told>,
    last: Option<Snapshot>,
}

impl Clerk {
    /// The counters: the current ones, or the last ones if no lane answers.
    fn ask(&mut self, (at_first, later): (Duration, Duration)) -> Result<Snapshot, String> {
        // The number says all there is to say: nothing else is read by who sees it.
        let turn = self.turn.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let patience = if self.last.is_some() { later } else { at_first };
        let start = Instant::now();
        while let Ok((of, snapshot)) =
            self.answers.recv_timeout(patience.saturating_sub(start.elapsed()))
        {
            self.last = Some(snapshot);
            // It may have been raised once more since, but not have been told before.
            if of.wrapping_sub(turn) < 1 << 31 {
                break;
            }
        }
        self.last.clone().ok_or_else(|| "the workload has not begun; ask again later".into())
    }
}
