//! Sockets, clients and the device in one loop.

use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant as Wall};

use flysch_api::block::Device;
use flysch_api::machine::{Clock, Wake};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};

use crate::Export;
use crate::connection::{Connection, Context, Counts, Ended, Socket};
use crate::jobs::{Client, Jobs};

/// Most clients at a time.
const CLIENTS_MAX: usize = 64;
/// Longest time the device is waited for between two looks at the sockets.
const GLANCE: Duration = Duration::from_micros(20);
/// How long clients may take over their last answers when the server ends.
const FAREWELL: Duration = Duration::from_secs(5);

/// Where clients come from.
#[derive(Debug)]
pub enum Listener {
    /// This machine.
    Unix(UnixListener),
    /// Any machine.
    Tcp(TcpListener),
}

impl Listener {
    /// The next client, if there is one, and who it is.
    fn accept(&self) -> io::Result<(Socket, String)> {
        match self {
            Self::Unix(listener) => {
                let (socket, _) = listener.accept()?;
                let process = rustix::net::sockopt::socket_peercred(&socket);
                let process = process.map_or(0, |peer| peer.pid.as_raw_nonzero().get());
                Ok((Socket::Unix(socket), format!("process {process}")))
            }
            Self::Tcp(listener) => {
                let (socket, address) = listener.accept()?;
                Ok((Socket::Tcp(socket), address.to_string()))
            }
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(listener) => listener.as_fd(),
            Self::Tcp(listener) => listener.as_fd(),
        }
    }
}

/// What happened, for whoever keeps a log. Clients are numbered from 1.
#[derive(Debug)]
pub enum Event {
    /// A client has connected: who it is.
    Connected(u64, String),
    /// One was sent away because there are too many.
    Busy(String),
    /// A client has gone, why, and what it did.
    Gone(u64, Ended, Counts),
}

/// Ends a server from other threads.
#[derive(Clone, Debug)]
pub struct Handle {
    wake: Arc<OwnedFd>,
    stop: Arc<AtomicBool>,
}

impl Handle {
    /// Has the server finish what is under way and end; from anywhere, signal handlers' threads
    /// included.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
        let _ = rustix::io::write(&*self.wake, &1_u64.to_ne_bytes());
    }
}

/// A server that listens.
#[derive(Debug)]
pub struct Server {
    listeners: Vec<Listener>,
    handle: Handle,
}

/// What is true of one run.
struct Run<'a, D, C, L> {
    jobs: Jobs<'a, D, C>,
    clients: Vec<Connection>,
    accepted: u64,
    log: L,
}

impl Server {
    /// One that takes clients from `listeners`.
    ///
    /// # Errors
    /// The operating system refuses.
    pub fn new(listeners: Vec<Listener>) -> io::Result<Self> {
        for listener in &listeners {
            match listener {
                Listener::Unix(listener) => listener.set_nonblocking(true)?,
                Listener::Tcp(listener) => listener.set_nonblocking(true)?,
            }
        }
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let wake = Arc::new(rustix::event::eventfd(0, flags)?);
        Ok(Self { listeners, handle: Handle { wake, stop: Arc::default() } })
    }

    /// A handle to end it by.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Serves `device` until it is ended. `log` is told what happens. What was answered is not
    /// safer afterwards than clients asked for: flush the device if it shall be.
    ///
    /// # Errors
    /// The operating system no longer lets it wait.
    pub fn run<D: Device, C: Clock>(
        &self,
        export: &Export,
        device: &mut D,
        clock: &C,
        log: impl FnMut(&Event),
    ) -> io::Result<()> {
        let jobs = Jobs::new(device, clock);
        let mut run = Run { jobs, clients: Vec::new(), accepted: 0, log };
        let mut ends: Option<Wall> = None;
        loop {
            if ends.is_none() && self.handle.stop.load(Ordering::SeqCst) {
                ends = Some(Wall::now() + FAREWELL);
            }
            let moved = run.turn(export, ends.is_some());
            if let Some(ends) = ends {
                run.clients.iter_mut().for_each(|client| client.end(Ended::Stopped));
                run.let_go();
                if (run.clients.is_empty() && run.jobs.is_idle()) || Wall::now() > ends {
                    return Ok(());
                }
            }
            if moved {
                run.accept(&self.listeners, ends.is_some());
                continue;
            }
            match run.jobs.is_idle() {
                true => self.sleep(&run.clients, ends)?,
                false => run.wait_for_device(),
            }
            run.accept(&self.listeners, ends.is_some());
        }
    }

    /// Sleeps until something comes over a socket, or a time is up.
    fn sleep(&self, clients: &[Connection], ends: Option<Wall>) -> io::Result<()> {
        let mut descriptors = vec![PollFd::new(&*self.handle.wake, PollFlags::IN)];
        let listeners = self.listeners.iter();
        descriptors.extend(listeners.map(|listener| PollFd::new(listener, PollFlags::IN)));
        descriptors.extend(clients.iter().map(|client| {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::IN, client.wants_input());
            flags.set(PollFlags::OUT, client.wants_output());
            PollFd::new(client.socket(), flags)
        }));
        let until = clients.iter().filter_map(Connection::deadline).chain(ends).min();
        let left = until.map(|until| {
            // A little more: what is looked at then shall be over.
            let left = until.saturating_duration_since(Wall::now()) + Duration::from_millis(1);
            Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) }
        });
        match rustix::event::poll(&mut descriptors, left.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let _ = rustix::io::read(&*self.handle.wake, &mut [0_u8; 8]);
        Ok(())
    }
}

impl<D: Device, C: Clock, L: FnMut(&Event)> Run<'_, D, C, L> {
    /// Takes what clients sent, lets the device work, answers. Whether anything moved.
    fn turn(&mut self, export: &Export, is_stopping: bool) -> bool {
        let context = Context { export, block: self.jobs.block(), is_stopping };
        let mut moved = false;
        for client in &mut self.clients {
            match client.receive(&context, |job| self.jobs.add(job)) {
                Ok(took) => moved |= took,
                Err(why) => client.break_off(why),
            }
        }
        let clients = &mut self.clients;
        moved |= self.jobs.advance(|job| {
            // Who has gone wants no answer.
            if let Some(client) = clients.iter_mut().find(|client| client.client == job.client) {
                client.finish(job);
            }
        });
        for client in &mut self.clients {
            match client.send() {
                Ok(sent) => moved |= sent,
                Err(why) => client.break_off(why),
            }
        }
        self.let_go();
        moved
    }

    /// Lets clients go that are through.
    fn let_go(&mut self) {
        let log = &mut self.log;
        self.clients.retain_mut(|client| {
            let is_over = client.is_over();
            if is_over {
                log(&Event::Gone(client.client.0, client.why(), client.counts));
            }
            !is_over
        });
    }

    /// Waits for the device for a moment; ends what is under way if nothing can come of it.
    fn wait_for_device(&mut self) {
        let clock = self.jobs.clock();
        let soon = clock.now() + GLANCE;
        let asked = self.jobs.poll_at();
        let until = asked.map_or(soon, |asked| asked.min(soon));
        let woke = clock.wait(Some(until));
        if woke == Wake::Idle && asked.is_none() && !self.jobs.is_waiting() {
            let clients = &mut self.clients;
            self.jobs.give_up(|job| {
                if let Some(client) = clients.iter_mut().find(|one| one.client == job.client) {
                    client.finish(job);
                }
            });
        }
    }

    /// Takes who wants to connect.
    fn accept(&mut self, listeners: &[Listener], is_stopping: bool) {
        for listener in listeners {
            let Ok((socket, who)) = listener.accept() else { continue };
            if self.clients.len() == CLIENTS_MAX || is_stopping || socket.prepare().is_err() {
                (self.log)(&Event::Busy(who));
                continue;
            }
            self.accepted += 1;
            self.clients.push(Connection::new(Client(self.accepted), socket));
            (self.log)(&Event::Connected(self.accepted, who));
        }
    }
}
