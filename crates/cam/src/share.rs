//! Several users of one lane: disks on different units of the same controller, and users that pass
//! commands through beside them.
//!
//! Theory. A lane's port returns outcomes by token, and each user has its own tokens. Between them
//! is a table with a row for each slot of the port: a row remembers whose command it is and what
//! that user's token was; the port sees the row's number and generation as the token. If an outcome
//! does not belong to the user who polled, it waits in its row, on the list of its owner. So an I/O
//! costs taking and returning a row; nothing is searched, allocated or locked. A user that has the
//! lane to itself needs none of this.
//!
//! The slots are shared fairly: if a user was turned away for lack of a slot while it had less than
//! its share, users that have more must wait until it has got one.

use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;

use flysch_api::command::{Command, Declined, Ended, Failure, Limits, NotStarted, Outcome, Port};
use flysch_api::command::{Protocol, Token};
use flysch_api::machine::{DmaRegion, Instant};

/// No row.
const NONE: u16 = u16::MAX;
/// Maximum number of rows: a row's number fits 16 bits.
const ROWS_MAX: u32 = 32_768;

/// A pending command.
#[derive(Debug)]
struct Row<P: Port> {
    /// Its token as the port knows it.
    number: u32,
    /// Its token as its owner knows it.
    owners: u32,
    /// The user who owns it.
    user: u16,
    /// The next row of the same list.
    next: u16,
    /// An outcome that waits for its owner, and the details of its failure.
    outcome: Option<Outcome>,
    failure: Failure<P::Protocol>,
}

/// State of a user.
#[derive(Clone, Copy, Debug)]
struct User {
    /// Number of its pending commands.
    active: u32,
    /// It was turned away and has less than its share.
    is_hungry: bool,
    /// Its waiting outcomes: first and last row.
    first: u16,
    last: u16,
    /// Number of freezes; while there are any, nothing of this user is started.
    frozen: u32,
}

impl User {
    const NEW: Self = Self { active: 0, is_hungry: false, first: NONE, last: NONE, frozen: 0 };
}

/// The port and the table of its commands.
#[derive(Debug)]
struct Shared<P: Port> {
    port: P,
    rows: Box<[Row<P>]>,
    free: u16,
    users: Vec<User>,
    /// How many users are hungry.
    hungry: u32,
    /// Number of freezes; while there are any, nothing at all is started.
    frozen: u32,
    /// Details of the outcome that was returned last.
    failure: Failure<P::Protocol>,
    /// Outcomes that belonged to nobody.
    strays: u64,
}

impl<P: Port> Shared<P> {
    /// Commands a user may have while another one waits.
    fn share(&self) -> u32 {
        (self.rows.len() as u32 / (self.users.len() as u32).max(1)).max(1)
    }

    fn may_start(&mut self, user: u16) -> bool {
        let share = self.share();
        let User { active, frozen, is_hungry, .. } = self.users[usize::from(user)];
        if self.frozen > 0 || frozen > 0 {
            return false;
        }
        // Whoever has its share waits for those who have less and were turned away.
        let others = self.hungry > u32::from(is_hungry);
        if self.free == NONE || (others && active >= share) {
            self.starve(user, active < share);
            return false;
        }
        true
    }

    fn starve(&mut self, user: u16, is_hungry: bool) {
        let user = &mut self.users[usize::from(user)];
        self.hungry -= u32::from(user.is_hungry);
        user.is_hungry = is_hungry;
        self.hungry += u32::from(is_hungry);
    }

    fn start(
        &mut self,
        user: u16,
        command: Command<P::Protocol>,
        now: Instant,
    ) -> Result<(), Declined> {
        if !self.may_start(user) {
            return Err(Declined { why: NotStarted::Full, token: command.token });
        }
        let at = self.free;
        let row = &mut self.rows[usize::from(at)];
        let Command { unit, payload, direction, data, crypto, ordering, deadline, token } = command;
        let owners = token.number();
        let number = row.number.wrapping_add(1 << 16);
        let token = Token::new(number);
        let command = Command { unit, payload, direction, data, crypto, ordering, deadline, token };
        if let Err(Declined { why, .. }) = self.port.start(command, now) {
            if why == NotStarted::Full {
                let is_hungry = self.users[usize::from(user)].active < self.share();
                self.starve(user, is_hungry);
            }
            return Err(Declined { why, token: Token::new(owners) });
        }
        self.free = row.next;
        (row.number, row.owners, row.user, row.next) = (number, owners, user, NONE);
        self.users[usize::from(user)].active += 1;
        if self.users[usize::from(user)].is_hungry {
            self.starve(user, false);
        }
        Ok(())
    }

    /// The next outcome of this user.
    fn poll(&mut self, user: u16, now: Instant) -> Option<Outcome> {
        if let Some(outcome) = self.take_waiting(user) {
            return Some(outcome);
        }
        while let Some(outcome) = self.port.poll(now) {
            let number = outcome.token.number();
            let Some(row) = self.rows.get_mut(usize::from(number as u16)) else {
                self.strays += 1;
                continue;
            };
            if row.number != number || row.user == NONE || row.outcome.is_some() {
                self.strays += 1;
                continue;
            }
            let owner = row.user;
            let Outcome { issued, device_done, ended, .. } = outcome;
            let token = Token::new(row.owners);
            let outcome = Outcome { issued, device_done, token, ended };
            let is_good = ended == Ended::Good;
            if owner == user {
                if !is_good {
                    self.failure = self.port.failure();
                }
                self.give_back(number as u16);
                return Some(outcome);
            }
            if !is_good {
                row.failure = self.port.failure();
            }
            row.outcome = Some(outcome);
            self.let_wait(owner, number as u16);
        }
        None
    }

    fn let_wait(&mut self, owner: u16, at: u16) {
        let user = &mut self.users[usize::from(owner)];
        match user.last {
            NONE => user.first = at,
            last => self.rows[usize::from(last)].next = at,
        }
        user.last = at;
    }

    fn take_waiting(&mut self, user: u16) -> Option<Outcome> {
        let at = self.users[usize::from(user)].first;
        let row = self.rows.get_mut(usize::from(at))?;
        let outcome = row.outcome.take()?;
        if outcome.ended != Ended::Good {
            self.failure = row.failure;
        }
        let next = row.next;
        let user = &mut self.users[usize::from(user)];
        user.first = next;
        if next == NONE {
            user.last = NONE;
        }
        self.give_back(at);
        Some(outcome)
    }

    fn give_back(&mut self, at: u16) {
        let row = &mut self.rows[usize::from(at)];
        let user = row.user;
        (row.user, row.next) = (NONE, self.free);
        self.free = at;
        self.users[usize::from(user)].active -= 1;
    }
}

/// No details of a failure.
fn none<F: Protocol>() -> Failure<F> {
    Failure { status: F::Status::default(), residual: 0, code: 0 }
}

/// A lane for several users. The port ends when the last of it and its [`Member`]s is dropped.
#[derive(Debug)]
pub struct Lane<P: Port>(Rc<RefCell<Shared<P>>>);

impl<P: Port> Lane<P> {
    /// Creates it over a port that carries no commands.
    pub fn new(port: P) -> Self {
        let slots = port.limits().slots.min(ROWS_MAX) as u16;
        let row = |at: u16| Row {
            number: at.into(),
            owners: 0,
            user: NONE,
            next: if at + 1 == slots { NONE } else { at + 1 },
            outcome: None,
            failure: none(),
        };
        let shared = Shared {
            port,
            rows: (0..slots).map(row).collect(),
            free: if slots == 0 { NONE } else { 0 },
            users: Vec::new(),
            hungry: 0,
            frozen: 0,
            failure: none(),
            strays: 0,
        };
        Self(Rc::new(RefCell::new(shared)))
    }

    /// A port for another user: for a disk, or for commands that are passed through.
    pub fn member(&self) -> Member<P> {
        let mut shared = self.0.borrow_mut();
        let user = shared.users.len() as u16;
        shared.users.push(User::NEW);
        let (limits, memory) = (*shared.port.limits(), shared.port.memory().clone());
        Member { shared: Rc::clone(&self.0), user, limits, memory }
    }

    /// Starts nothing until [`release`](Self::release) has been called as many times as this (CAM's
    /// SIM queue); commands in flight still end.
    pub fn freeze(&self) {
        self.0.borrow_mut().frozen += 1;
    }

    /// Undoes one [`freeze`](Self::freeze).
    pub fn release(&self) {
        let mut shared = self.0.borrow_mut();
        shared.frozen = shared.frozen.saturating_sub(1);
    }

    /// Outcomes that belonged to nobody: a fault of the port.
    pub fn strays(&self) -> u64 {
        self.0.borrow().strays
    }

    /// Runs a function on the port itself: its control path.
    pub fn with_port<R>(&self, what: impl FnOnce(&mut P) -> R) -> R {
        what(&mut self.0.borrow_mut().port)
    }
}

/// One user's end of a [`Lane`].
#[derive(Debug)]
pub struct Member<P: Port> {
    shared: Rc<RefCell<Shared<P>>>,
    user: u16,
    limits: Limits,
    memory: DmaRegion,
}

impl<P: Port> Member<P> {
    /// Starts nothing of this user until [`release`](Self::release) has been called as many times
    /// as this.
    pub fn freeze(&self) {
        self.shared.borrow_mut().users[usize::from(self.user)].frozen += 1;
    }

    /// Undoes one [`freeze`](Self::freeze).
    pub fn release(&self) {
        let frozen = &mut self.shared.borrow_mut().users[usize::from(self.user)].frozen;
        *frozen = frozen.saturating_sub(1);
    }
}

impl<P: Port> Port for Member<P> {
    type Protocol = P::Protocol;

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn memory(&self) -> &DmaRegion {
        &self.memory
    }

    fn start(&mut self, command: Command<P::Protocol>, now: Instant) -> Result<(), Declined> {
        self.shared.borrow_mut().start(self.user, command, now)
    }

    fn ring(&mut self, now: Instant) {
        self.shared.borrow_mut().port.ring(now);
    }

    fn poll(&mut self, now: Instant) -> Option<Outcome> {
        self.shared.borrow_mut().poll(self.user, now)
    }

    fn failure(&self) -> Failure<P::Protocol> {
        self.shared.borrow().failure
    }

    fn poll_at(&self) -> Option<Instant> {
        let shared = self.shared.borrow();
        if shared.users[usize::from(self.user)].first != NONE {
            return Some(Instant::START);
        }
        shared.port.poll_at()
    }
}
