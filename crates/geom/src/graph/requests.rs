//! Requests through the graph, one at a time: used for metadata and images.

use alloc::vec;
use alloc::vec::Vec;

use flysch_api::block::{self, Cause};

use super::Graph;
use super::dev::DEV;
use crate::access::Access;
use crate::error::GeomError;
use crate::io::Io;
use crate::object::{ConsumerId, ProviderId};
use crate::statistics::Statistics;
use crate::zone::{Zone, ZoneAnswer};

impl Graph {
    /// Performs a request from `consumer`.
    ///
    /// # Errors
    /// If the request is invalid; those of the request.
    pub fn io(&mut self, consumer: ConsumerId, mut io: Io<'_>) -> Result<(), block::BlockError> {
        let (provider, access) = self.objects.opened(consumer)?;
        self[provider].check(access, &io)?;
        let what = (io.operation(), io.len());
        let class = self[self[provider].geom].class;
        let clock = self.clock.unwrap_or(|| 0);
        let begun = clock();
        let result = class.start(self, provider, io.again());
        let time = clock().saturating_sub(begun);
        self.count(provider, consumer, |statistics| {
            statistics.busy += time;
            match result {
                Ok(()) => statistics.count(what, time),
                Err(_) => statistics.failures += 1,
            }
        });
        result
    }

    /// Performs a zone command from `consumer`, which must have its provider open for reading, and
    /// for writing if zones are changed.
    ///
    /// # Errors
    /// [`block::BlockError::Unsupported`] if there are no zones; if the command is invalid; those
    /// of the command.
    pub fn zone(
        &mut self,
        consumer: ConsumerId,
        command: Zone,
    ) -> Result<ZoneAnswer, block::BlockError> {
        let (provider, access) = self.objects.opened(consumer)?;
        self[provider].check_zone(access, command)?;
        let command = command.bounded();
        let class = self[self[provider].geom].class;
        let clock = self.clock.unwrap_or(|| 0);
        let begun = clock();
        let answer = class.zone(self, provider, command).and_then(|answer| {
            // A disk's answer is rejected if it could make the caller loop forever.
            let is_one = command.is_answered_by(&answer);
            if is_one { Ok(answer) } else { Err(block::BlockError::Device(Cause::None)) }
        });
        let time = clock().saturating_sub(begun);
        self.count(provider, consumer, |statistics| {
            statistics.busy += time;
            if answer.is_ok() {
                statistics.zone_commands += 1;
                statistics.zone_time += time;
            } else {
                statistics.failures += 1;
            }
        });
        answer
    }

    /// Counts at both ends; either may already be gone.
    pub(crate) fn count(
        &mut self,
        provider: ProviderId,
        consumer: ConsumerId,
        count: impl Fn(&mut Statistics),
    ) {
        if let Some(provider) = self.objects.provider_mut(provider) {
            count(&mut provider.statistics);
        }
        if let Some(consumer) = self.objects.consumer_mut(consumer) {
            count(&mut consumer.statistics);
        }
    }

    /// Reads bytes of `provider` at any offset, as a class does when it tastes.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn peek(
        &mut self,
        provider: ProviderId,
        offset: u64,
        to: &mut [u8],
    ) -> Result<(), GeomError> {
        let name = || self[provider].name.clone();
        let sector = u64::from(self[provider].sector_size.max(1));
        let end = offset.checked_add(to.len() as u64);
        let Some(end) = end.filter(|&end| end <= self[provider].media_size) else {
            return Err(GeomError::io(name(), block::BlockError::OutOfRange));
        };
        let start = offset / sector * sector;
        let mut sectors = vec![0; (end.next_multiple_of(sector) - start) as usize];
        let name = self[provider].name.clone();
        let consumer = self.open(provider, Access::READ)?;
        let read = self.io(consumer, Io::Read { offset: start, to: &mut sectors });
        // The last close may remove the provider, too.
        self.shut(consumer);
        read.map_err(|error| GeomError::io(name, error))?;
        let skip = (offset - start) as usize;
        to.copy_from_slice(&sectors[skip..skip + to.len()]);
        Ok(())
    }

    /// The last sector of `provider`, where GEOM stores its labels.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn peek_last(&mut self, provider: ProviderId) -> Result<Vec<u8>, GeomError> {
        let mut sector = vec![0; self[provider].sector_size as usize];
        let at = self[provider].last_sector();
        self.peek(provider, at, &mut sector)?;
        Ok(sector)
    }

    /// Opens `provider` from outside the graph: requests go to the returned consumer.
    ///
    /// # Errors
    /// As [`access`](Self::access).
    pub fn open(&mut self, provider: ProviderId, access: Access) -> Result<ConsumerId, GeomError> {
        let name = self[provider].name.clone();
        let geom = self.new_geom(&DEV, name);
        let consumer = self.new_consumer(geom);
        let opened = self.attach(consumer, provider).and_then(|()| self.access(consumer, access));
        match opened {
            Ok(()) => Ok(consumer),
            Err(error) => {
                self.drop_geom(geom);
                Err(error)
            }
        }
    }

    /// Undoes [`open`](Self::open).
    pub fn shut(&mut self, consumer: ConsumerId) {
        if let Some(consumer) = self.objects.consumer(consumer) {
            let geom = consumer.geom;
            self.drop_geom(geom);
        }
    }
}
