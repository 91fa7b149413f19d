//! Who may read, write and forbid others to write: FreeBSD's rules of access.

use alloc::format;
use alloc::string::String;
use core::fmt;

use crate::error::{Error, Kind};
use crate::events::Event;
use crate::graph::Graph;
use crate::object::{ConsumerId, ProviderId};

/// Counts of opens, or changes of them: reading, writing, forbidding others to write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// To read.
    pub read: i32,
    /// To write.
    pub write: i32,
    /// That nobody else writes.
    pub exclusive: i32,
}

impl Access {
    /// Nothing.
    pub const NONE: Self = Self::new(0, 0, 0);
    /// To read, and no more: how classes taste.
    pub const READ: Self = Self::new(1, 0, 0);
    /// To have it alone.
    pub const ALONE: Self = Self::new(1, 1, 1);

    /// These counts.
    #[must_use]
    pub const fn new(read: i32, write: i32, exclusive: i32) -> Self {
        Self { read, write, exclusive }
    }

    /// The opposite change.
    #[must_use]
    pub const fn undone(self) -> Self {
        Self::new(-self.read, -self.write, -self.exclusive)
    }

    /// Both changes.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self::new(
            self.read + other.read,
            self.write + other.write,
            self.exclusive + other.exclusive,
        )
    }

    /// Whether it opens anything.
    #[must_use]
    pub const fn opens(self) -> bool {
        self.read > 0 || self.write > 0 || self.exclusive > 0
    }

    fn is_negative(self) -> bool {
        self.read < 0 || self.write < 0 || self.exclusive < 0
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "r{}w{}e{}", self.read, self.write, self.exclusive)
    }
}

impl Graph {
    /// Changes how `consumer` has its provider open.
    ///
    /// # Errors
    /// [`Kind::NotPermitted`] if somebody else has it open in a way that forbids this; why the
    /// provider takes nobody any more; what its class says. Nothing has changed then.
    ///
    /// # Panics
    /// If the consumer is attached to nothing, or would have it open less than not at all.
    pub fn access(&mut self, consumer: ConsumerId, change: Access) -> Result<(), Error> {
        let own = self[consumer].access;
        let provider = self[consumer].provider.expect("a consumer that is opened is attached");
        assert!(!own.and(change).is_negative(), "closed more often than opened");
        if change.opens() {
            self.check_access(consumer, provider, change)?;
        }
        let class = self[self[provider].geom].class;
        class.access(self, provider, change)?;
        if self.find_consumer(consumer).is_none() {
            // The class lost the provider over it, and whoever stood on it was taken off.
            return Ok(());
        }
        let before = self[provider].access;
        let after = before.and(change);
        self.provider_mut(provider).access = after;
        self.consumer_mut(consumer).access = own.and(change);
        if before.write == 0 && after.write > 0 {
            self.spoil(provider, Some(consumer));
        }
        if before.write > 0 && after.write == 0 && self[provider].error.is_none() {
            self.post(Event::Provider(provider));
        }
        Ok(())
    }

    fn check_access(
        &self,
        consumer: ConsumerId,
        provider: ProviderId,
        change: Access,
    ) -> Result<(), Error> {
        let name = &self[provider].name;
        if self[consumer].spoiled {
            let cause = "was changed by somebody else meanwhile; look at it again";
            return Err(Error::new(Kind::NotPermitted, name, cause));
        }
        let others = self[provider].access.and(self[consumer].access.undone());
        if change.exclusive > 0 && others.write > 0 {
            let who = self.who(provider, consumer, |access| access.write > 0);
            let cause = format!("is open for writing by {who}; end that first");
            return Err(Error::new(Kind::NotPermitted, name, cause));
        }
        if change.write > 0 && others.exclusive > 0 {
            let who = self.who(provider, consumer, |access| access.exclusive > 0);
            let cause = format!("is in use by {who}, which lets nobody else write; end that first");
            return Err(Error::new(Kind::NotPermitted, name, cause));
        }
        match self[provider].error {
            Some(error) => Err(Error::io(name, error)),
            None => Ok(()),
        }
    }

    /// Who else has the provider open so.
    fn who(&self, provider: ProviderId, but: ConsumerId, so: impl Fn(Access) -> bool) -> String {
        let mut others = self[provider].consumers.iter().filter(|&&other| other != but);
        let other = others.find(|&&other| so(self[other].access));
        other.map_or_else(
            || "somebody".into(),
            |&other| {
                let geom = &self[self[other].geom];
                format!("{} {}", geom.class.name(), geom.name)
            },
        )
    }

    /// Closes whatever `consumer` has open.
    pub fn close(&mut self, consumer: ConsumerId) {
        let open = self[consumer].access;
        if open != Access::NONE {
            // Closing never fails.
            let _ = self.access(consumer, open.undone());
        }
    }

    /// Tells everybody on `provider` but `writer` that it was, or is about to be, written.
    pub(crate) fn spoil(&mut self, provider: ProviderId, writer: Option<ConsumerId>) {
        for consumer in self[provider].consumers.clone() {
            if Some(consumer) != writer {
                self.consumer_mut(consumer).spoiled = true;
                self.post(Event::Spoiled(consumer));
            }
        }
    }
}
