//! Who may read, write and exclude other writers: FreeBSD's access rules.

use alloc::format;
use alloc::string::String;
use core::fmt;

use crate::error::{Error, Kind};
use crate::events::Event;
use crate::graph::Graph;
use crate::object::{ConsumerId, ProviderId};

/// Open counts, or changes to them: reading, writing, excluding other writers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Opens for reading.
    pub read: i32,
    /// Opens for writing.
    pub write: i32,
    /// Opens that exclude other writers.
    pub exclusive: i32,
}

impl Access {
    /// No access.
    pub const NONE: Self = Self::new(0, 0, 0);
    /// Read access only, as classes taste.
    pub const READ: Self = Self::new(1, 0, 0);
    /// Read, write and exclusive access.
    pub const ALONE: Self = Self::new(1, 1, 1);

    /// Access with these counts.
    #[must_use]
    pub const fn new(read: i32, write: i32, exclusive: i32) -> Self {
        Self { read, write, exclusive }
    }

    /// The change that undoes this one.
    #[must_use]
    pub const fn undone(self) -> Self {
        Self::new(-self.read, -self.write, -self.exclusive)
    }

    /// The sum of both changes.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self::new(
            self.read + other.read,
            self.write + other.write,
            self.exclusive + other.exclusive,
        )
    }

    /// Whether it increases any count.
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
    /// Changes the access that `consumer` has to its provider.
    ///
    /// # Errors
    /// [`Kind::NotPermitted`] if another consumer's access forbids this; the reason why the
    /// provider accepts nobody any more; the errors of its class. Nothing has changed then.
    ///
    /// # Panics
    /// If the consumer is not attached, or if a count would become negative.
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
            // The class lost the provider above it, and its consumers were detached.
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

    /// The other consumers whose access to the provider satisfies `so`.
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

    /// Tells everybody on `provider` except `writer` that it was, or is about to be, written.
    pub(crate) fn spoil(&mut self, provider: ProviderId, writer: Option<ConsumerId>) {
        for consumer in self[provider].consumers.clone() {
            if Some(consumer) != writer {
                self.consumer_mut(consumer).spoiled = true;
                self.post(Event::Spoiled(consumer));
            }
        }
    }
}
