//! Sockets and their clients: NBD's side of the loop.

use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixListener;
use std::time::Instant as Wall;

use flysch_export::{Door, Job};
use rustix::event::{PollFd, PollFlags};

use crate::Export;
use crate::connection::{Call, Client, Connection, Context, Ended, Socket};

/// Maximum number of clients at a time.
const CLIENTS_MAX: usize = 64;

/// Where clients connect.
#[derive(Debug)]
pub enum Listener {
    /// This machine.
    Unix(UnixListener),
    /// Any machine.
    Tcp(TcpListener),
}

impl Listener {
    /// The next client, if there is one, and its description.
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

/// Events.
pub type Event = flysch_export::Event<Ended>;

/// The clients of an export.
#[derive(Debug)]
pub struct Server<'a, L> {
    listeners: &'a [Listener],
    export: &'a Export,
    clients: Vec<Connection>,
    accepted: u64,
    is_stopping: bool,
    log: L,
}

impl<'a, L: FnMut(&Event)> Server<'a, L> {
    /// Accepts clients from `listeners`; events go to `log`.
    ///
    /// # Errors
    /// The operating system refuses.
    pub fn new(listeners: &'a [Listener], export: &'a Export, log: L) -> io::Result<Self> {
        for listener in listeners {
            match listener {
                Listener::Unix(listener) => listener.set_nonblocking(true)?,
                Listener::Tcp(listener) => listener.set_nonblocking(true)?,
            }
        }
        let clients = Vec::new();
        Ok(Self { listeners, export, clients, accepted: 0, is_stopping: false, log })
    }

    /// Releases clients that are finished.
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

    /// Accepts waiting connections.
    fn accept(&mut self) {
        for listener in self.listeners {
            let Ok((socket, who)) = listener.accept() else { continue };
            if self.clients.len() == CLIENTS_MAX || self.is_stopping || socket.prepare().is_err() {
                (self.log)(&Event::Busy(who));
                continue;
            }
            self.accepted += 1;
            self.clients.push(Connection::new(Client(self.accepted), socket));
            (self.log)(&Event::Connected(self.accepted, who));
        }
    }
}

impl<L: FnMut(&Event)> Door for Server<'_, L> {
    type Transfer = Call;

    fn receive(&mut self, block: u64, mut add: impl FnMut(Job<Call>)) -> bool {
        self.accept();
        let context = Context { export: self.export, block, is_stopping: self.is_stopping };
        let mut moved = false;
        for client in &mut self.clients {
            match client.receive(&context, &mut add) {
                Ok(took) => moved |= took,
                Err(why) => client.break_off(why),
            }
        }
        moved
    }

    fn finish(&mut self, job: Job<Call>) {
        // Who has gone wants no answer.
        let whose = job.transfer.client;
        if let Some(client) = self.clients.iter_mut().find(|client| client.client == whose) {
            client.finish(job);
        }
    }

    fn send(&mut self) -> bool {
        let mut moved = false;
        for client in &mut self.clients {
            match client.send() {
                Ok(sent) => moved |= sent,
                Err(why) => client.break_off(why),
            }
        }
        self.let_go();
        moved
    }

    fn stop(&mut self) {
        // In the first turn the requests that are here are still answered, with ESHUTDOWN.
        if std::mem::replace(&mut self.is_stopping, true) {
            self.clients.iter_mut().for_each(|client| client.end(Ended::Stopped));
        }
    }

    fn is_over(&self) -> bool {
        self.clients.is_empty()
    }

    fn watch<'a>(&'a self, polls: &mut Vec<PollFd<'a>>) -> Option<Wall> {
        polls.extend(self.listeners.iter().map(|one| PollFd::new(one, PollFlags::IN)));
        polls.extend(self.clients.iter().map(|client| {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::IN, client.wants_input());
            flags.set(PollFlags::OUT, client.wants_output());
            PollFd::new(client.socket(), flags)
        }));
        self.clients.iter().filter_map(Connection::deadline).min()
    }
}
