//! One client at a time, and the loop that serves it in real time.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::Instant as Wall;

use flysch_api::machine::Instant;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};

use crate::Function;
use crate::session::{Counts, Session};

/// Commands served between two checks of everything else.
const BURST: usize = 64;

/// Events, for a log.
#[derive(Debug)]
pub enum Event {
    /// A client has connected, with this process ID.
    Connected(i32),
    /// One was turned away because another is connected.
    Busy,
    /// The client has disconnected, and why.
    Gone(String, Counts),
    /// One of its requests was refused, in words.
    Refused(&'static str),
}

/// How the loop continues after [`Handle::wake`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Unchanged.
    Continue,
    /// Without the client: the function is pulled out of its machine.
    Disconnect,
    /// Not at all.
    Stop,
}

/// Wakes a server from other threads.
#[derive(Clone, Debug)]
pub struct Handle(Arc<OwnedFd>);

impl Handle {
    /// Makes the server ask what to do; may be called from anywhere, including signal handlers'
    /// threads.
    pub fn wake(&self) {
        let _ = rustix::io::write(&*self.0, &1_u64.to_ne_bytes());
    }
}

/// A server that clients can connect to.
#[derive(Debug)]
pub struct Server {
    listener: UnixListener,
    wake: Handle,
    started: Wall,
}

impl Server {
    /// A server for clients of `listener`.
    ///
    /// # Errors
    /// The operating system refuses.
    pub fn new(listener: UnixListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let wake = Handle(Arc::new(rustix::event::eventfd(0, flags)?));
        Ok(Self { listener, wake, started: Wall::now() })
    }

    /// A handle that wakes it.
    pub fn handle(&self) -> Handle {
        self.wake.clone()
    }

    fn now(&self) -> Instant {
        Instant::START + self.started.elapsed()
    }

    /// Serves `function` to one client after another until `woken` returns [`Turn::Stop`].
    ///
    /// `woken` is called after each [`Handle::wake`], with what the connected client has sent so
    /// far; events go to `log`.
    ///
    /// # Errors
    /// The operating system no longer lets it wait.
    pub fn run<F: Function + ?Sized>(
        &self,
        function: &mut F,
        mut woken: impl FnMut(&mut F, Option<Counts>) -> Turn,
        mut log: impl FnMut(&Event),
    ) -> io::Result<()> {
        let mut session: Option<Session> = None;
        loop {
            let now = self.now();
            function.advance(now);
            if let Some(session) = &mut session {
                session.interrupts(function, now);
            }
            let ready = self.wait(session.as_ref(), function.next_event())?;
            let mut ended = None;
            if ready.woken {
                let _ = rustix::io::read(&*self.wake.0, &mut [0_u8; 8]);
                function.advance(self.now());
                match woken(function, session.as_ref().map(|session| session.counts)) {
                    Turn::Continue => {}
                    Turn::Disconnect => ended = Some("pulled out".to_owned()),
                    Turn::Stop => break,
                }
            }
            if let Some(session) = &mut session {
                if ready.unmask {
                    session.unmask_signalled(self.now());
                }
                if ready.socket
                    && let Err(why) = session.serve(function, || self.now(), BURST)
                {
                    ended = Some(why.to_string());
                }
                if let Some(words) = session.take_refusal() {
                    log(&Event::Refused(words));
                }
            }
            if let Some(why) = ended
                && let Some(session) = session.take()
            {
                let counts = session.counts;
                session.end(function, self.now());
                log(&Event::Gone(why, counts));
            }
            if ready.listener {
                self.accept(&mut session, function, &mut log);
            }
        }
        if let Some(session) = session {
            session.end(function, self.now());
        }
        Ok(())
    }

    fn accept(
        &self,
        session: &mut Option<Session>,
        function: &mut (impl Function + ?Sized),
        log: &mut impl FnMut(&Event),
    ) {
        let Ok((socket, _)) = self.listener.accept() else { return };
        if session.is_some() {
            log(&Event::Busy);
            return;
        }
        let process = rustix::net::sockopt::socket_peercred(&socket);
        let process = process.map_or(0, |peer| peer.pid.as_raw_nonzero().get());
        if let Ok(new) = Session::new(socket, function) {
            *session = Some(new);
            log(&Event::Connected(process));
        }
    }

    /// Sleeps until there is input or `next`.
    fn wait(&self, session: Option<&Session>, next: Option<Instant>) -> io::Result<Ready> {
        let mut descriptors = vec![
            PollFd::new(&*self.wake.0, PollFlags::IN),
            PollFd::new(&self.listener, PollFlags::IN),
        ];
        let again = session.and_then(Session::again);
        if let Some(session) = session {
            let (socket, flags, unmask) = session.descriptors();
            descriptors.push(PollFd::from_borrowed_fd(socket, flags));
            descriptors.extend(unmask.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        }
        let until = [next, again].into_iter().flatten().min();
        let left = until.map(|until| {
            let nanos = until.nanos_since(self.now());
            Timespec {
                tv_sec: (nanos / 1_000_000_000) as i64,
                tv_nsec: (nanos % 1_000_000_000) as i64,
            }
        });
        match rustix::event::poll(&mut descriptors, left.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let is_ready = |at: usize| descriptors.get(at).is_some_and(|fd| !fd.revents().is_empty());
        Ok(Ready {
            woken: is_ready(0),
            listener: is_ready(1),
            socket: is_ready(2),
            unmask: is_ready(3),
        })
    }
}

/// The available input.
struct Ready {
    woken: bool,
    listener: bool,
    socket: bool,
    unmask: bool,
}
