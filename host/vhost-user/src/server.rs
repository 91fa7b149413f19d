//! One client at a time, for `flysch-export`'s loop.

use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Instant;

use flysch_export::{Door, Job};
use rustix::event::{PollFd, PollFlags};

use crate::ended::Ended;
use crate::request::{Call, Disk};
use crate::session::Session;

/// While the rings keep the server busy, it checks the socket at every n-th iteration.
const LOOK: u32 = 64;

/// Events.
pub type Event = flysch_export::Event<Ended>;

/// The export of a disk.
#[derive(Debug)]
pub struct Server<'a, L> {
    listener: &'a UnixListener,
    disk: &'a Disk,
    session: Option<Session>,
    /// A client that has connected and waits for the end of the previous client's requests, and its
    /// description.
    next: Option<(UnixStream, String)>,
    accepted: u64,
    /// Requests in flight, including those of clients that are gone.
    under_way: usize,
    turns: u32,
    is_stopping: bool,
    log: L,
}

impl<'a, L: FnMut(&Event)> Server<'a, L> {
    /// Accepts clients from `listener`, one after the other; events go to `log`.
    ///
    /// # Errors
    /// The operating system refuses.
    pub fn new(listener: &'a UnixListener, disk: &'a Disk, log: L) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        Ok(Self {
            listener,
            disk,
            session: None,
            next: None,
            accepted: 0,
            under_way: 0,
            turns: 0,
            is_stopping: false,
            log,
        })
    }

    /// Processes the client's messages.
    fn messages(&mut self) -> bool {
        match self.session.as_mut().map(|session| session.messages(self.disk)) {
            None => false,
            Some(Ok(took)) => took,
            Some(Err(why)) => {
                self.let_go(why);
                true
            }
        }
    }

    /// Accepts a waiting connection. While requests of the previous client are in flight, the next
    /// one waits, because it would repeat requests that are still being executed.
    fn accept(&mut self) -> bool {
        if self.next.is_none()
            && !self.is_stopping
            && let Ok((socket, _)) = self.listener.accept()
        {
            let process = rustix::net::sockopt::socket_peercred(&socket);
            let process = process.map_or(0, |peer| peer.pid.as_raw_nonzero().get());
            // The client there is may have gone just now, to come again.
            self.messages();
            self.next = Some((socket, format!("process {process}")));
        }
        let Some((socket, who)) = self.next.take() else { return false };
        if self.session.is_some() {
            (self.log)(&Event::Busy(who));
            return true;
        }
        if self.under_way > 0 {
            self.next = Some((socket, who));
            return false;
        }
        let Ok(session) = Session::new(self.accepted + 1, socket) else { return true };
        self.accepted += 1;
        self.session = Some(session);
        (self.log)(&Event::Connected(self.accepted, who));
        true
    }

    fn let_go(&mut self, why: Ended) {
        if let Some(session) = self.session.take() {
            (self.log)(&Event::Gone(session.number, why, session.counts));
        }
    }
}

impl<L: FnMut(&Event)> Door for Server<'_, L> {
    type Transfer = Call;

    fn receive(&mut self, block: u64, mut add: impl FnMut(Job<Call>)) -> bool {
        let mut moved = false;
        if self.turns.is_multiple_of(LOOK) {
            // Who has gone is let go before the next one is looked for: it may be the same.
            moved = self.messages();
            moved |= self.accept();
        }
        self.turns = self.turns.wrapping_add(1);
        if let Some(session) = self.session.as_mut().filter(|_| !self.is_stopping) {
            let (log, number, under_way) = (&mut self.log, session.number, &mut self.under_way);
            let mut count = |job| {
                *under_way += 1;
                add(job);
            };
            moved |= session.take(self.disk, block, &mut count, |what| {
                log(&Event::Trouble(number, what));
            });
        }
        moved
    }

    fn finish(&mut self, job: Job<Call>) {
        self.under_way -= 1;
        let whose = job.transfer.session;
        // What a client that is gone had asked for, the next one may ask for again.
        if let Some(session) = self.session.as_mut().filter(|session| session.number == whose) {
            session.finish(job);
        }
    }

    fn send(&mut self) -> bool {
        if let Some(Err(why)) = self.session.as_mut().map(Session::send) {
            self.let_go(why);
        }
        if self.is_stopping && self.under_way == 0 {
            self.let_go(Ended::Stopped);
        }
        false
    }

    fn stop(&mut self) {
        self.is_stopping = true;
    }

    fn is_over(&self) -> bool {
        self.session.is_none()
    }

    fn rest(&mut self) -> bool {
        // After the sleep the socket is looked at first.
        self.turns = 0;
        self.session.as_mut().is_none_or(Session::rest)
    }

    fn watch<'a>(&'a self, polls: &mut Vec<PollFd<'a>>) -> Option<Instant> {
        polls.push(PollFd::new(self.listener, PollFlags::IN));
        if let Some(session) = &self.session {
            session.watch(polls);
        }
        None
    }
}
