//! Who may read, write and exclude other writers: FreeBSD's access rules.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use flysch_api::block;

use super::Graph;
use super::objects::Objects;
use crate::access::Access;
use crate::error::{GeomError, Kind};
use crate::events::Event;
use crate::object::{ConsumerId, ProviderId};

#[cfg(test)]
mod tests;

impl Objects {
    /// The provider of a consumer, and its access to it.
    ///
    /// # Errors
    /// [`block::BlockError::Gone`] if it has none any more.
    pub(super) fn opened(
        &self,
        consumer: ConsumerId,
    ) -> Result<(ProviderId, Access), block::BlockError> {
        let consumer = self.consumer(consumer).ok_or(block::BlockError::Gone)?;
        Ok((consumer.provider.ok_or(block::BlockError::Gone)?, consumer.access))
    }

    /// Whether `consumer` may open `provider` further.
    ///
    /// # Errors
    /// [`Kind::NotPermitted`] if another consumer's access forbids this; the reason why the
    /// provider accepts nobody any more.
    fn check_access(
        &self,
        consumer: ConsumerId,
        provider: ProviderId,
        change: Access,
    ) -> Result<(), GeomError> {
        let name = &self[provider].name;
        if self[consumer].spoiled {
            let cause = "was changed by somebody else meanwhile; look at it again";
            return Err(GeomError::new(Kind::NotPermitted, name, cause));
        }
        let others = self[provider].access.and(self[consumer].access.undone());
        if change.exclusive > 0 && others.write > 0 {
            let who = self.who(provider, consumer, |access| access.write > 0);
            let cause = format!("is open for writing by {who}; end that first");
            return Err(GeomError::new(Kind::NotPermitted, name, cause));
        }
        if change.write > 0 && others.exclusive > 0 {
            let who = self.who(provider, consumer, |access| access.exclusive > 0);
            let cause = format!("is in use by {who}, which lets nobody else write; end that first");
            return Err(GeomError::new(Kind::NotPermitted, name, cause));
        }
        match self[provider].error {
            Some(error) => Err(GeomError::io(name, error)),
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

    /// Marks everybody on `provider` except `writer`: it was, or is about to be, written. Returns
    /// those marked.
    pub(super) fn spoil(
        &mut self,
        provider: ProviderId,
        writer: Option<ConsumerId>,
    ) -> Vec<ConsumerId> {
        let mut others = self[provider].consumers.clone();
        others.retain(|&consumer| Some(consumer) != writer);
        others.iter().for_each(|&consumer| self[consumer].spoiled = true);
        others
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
    pub fn access(&mut self, consumer: ConsumerId, change: Access) -> Result<(), GeomError> {
        let own = self[consumer].access;
        let provider = self[consumer].provider.expect("a consumer that is opened is attached");
        assert!(!own.and(change).is_negative(), "closed more often than opened");
        if change.opens() {
            self.objects.check_access(consumer, provider, change)?;
        }
        let class = self[self[provider].geom].class;
        class.access(self, provider, change)?;
        if self.objects.consumer(consumer).is_none() {
            // The class lost the provider above it, and its consumers were detached.
            return Ok(());
        }
        let before = self[provider].access;
        let after = before.and(change);
        self.objects[provider].access = after;
        self.objects[consumer].access = own.and(change);
        if before.write == 0 && after.write > 0 {
            self.events.spoiled(self.objects.spoil(provider, Some(consumer)));
        }
        if before.write > 0 && after.write == 0 && self[provider].error.is_none() {
            self.events.post(Event::Provider(provider));
        }
        Ok(())
    }

    /// Closes whatever `consumer` has open.
    pub fn close(&mut self, consumer: ConsumerId) {
        let open = self[consumer].access;
        if open != Access::NONE {
            // Closing never fails.
            let _ = self.access(consumer, open.undone());
        }
    }
}
