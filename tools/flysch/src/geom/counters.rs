//! Counters of a workload, for those who ask over a socket while it runs.
//!
//! Who asks raises a number that the lanes look at with every poll. A lane that sees another number
//! than the last time tells what went its way; when all have told, the counters go to who asked.
//! Nobody waits for who asks, and as long as nobody asks nothing is done.

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

/// How long lanes may take to tell. They sleep where a workload pauses; then what they told before
/// is still true.
const PATIENCE: Duration = Duration::from_secs(1);
/// The same as long as they never told anything: disks are still being opened.
const PATIENCE_AT_FIRST: Duration = Duration::from_secs(10);

/// What lanes told, and at which number.
pub(super) type Told = (u32, Snapshot);

/// The socket that counters of workloads are asked for over. Dropped, it is gone.
pub(crate) struct Watched {
    /// Raised by who asks.
    pub(super) turn: Arc<AtomicU32>,
    /// Where the answer goes.
    pub(super) told: Sender<Told>,
    _file: SocketFile,
}

impl Watched {
    /// Makes the socket, and answers from now on.
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

/// Asks the lanes for those who ask, one after the other.
struct Clerk {
    turn: Arc<AtomicU32>,
    answers: Receiver<Told>,
    last: Option<Snapshot>,
}

impl Clerk {
    /// The counters: those of now, or the last ones if no lane says anything.
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
