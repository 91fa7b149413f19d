//! Requests through the graph, one at a time: used for metadata and images.

use alloc::vec;
use core::fmt;

use flysch_api::block::{Cause, Error, Operation};

use crate::access::Access;
use crate::class::DEV;
use crate::error;
use crate::graph::Graph;
use crate::object::{ConsumerId, ProviderId, Statistics};
use crate::zone::{Zone, ZoneAnswer};

/// A request.
#[derive(Debug)]
pub enum Io<'a> {
    /// Fill the slice with the data at an offset.
    Read {
        /// First byte.
        offset: u64,
        /// The buffer.
        to: &'a mut [u8],
    },
    /// Write the slice at an offset.
    Write {
        /// First byte.
        offset: u64,
        /// The data.
        from: &'a [u8],
    },
    /// The contents are not needed any more.
    Delete {
        /// First byte.
        offset: u64,
        /// Number of bytes.
        length: u64,
    },
    /// Everything written is on the medium when this ends.
    Flush,
}

impl Io<'_> {
    /// The operation.
    #[must_use]
    pub fn operation(&self) -> Operation {
        match self {
            Self::Read { .. } => Operation::Read,
            Self::Write { .. } => Operation::Write,
            Self::Delete { .. } => Operation::Delete,
            Self::Flush => Operation::Flush,
        }
    }

    /// First byte; 0 for a flush.
    #[must_use]
    pub fn offset(&self) -> u64 {
        match self {
            Self::Read { offset, .. } | Self::Write { offset, .. } => *offset,
            Self::Delete { offset, .. } => *offset,
            Self::Flush => 0,
        }
    }

    /// Number of bytes; 0 for a flush.
    #[must_use]
    pub fn len(&self) -> u64 {
        match self {
            Self::Read { to, .. } => to.len() as u64,
            Self::Write { from, .. } => from.len() as u64,
            Self::Delete { length, .. } => *length,
            Self::Flush => 0,
        }
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether it changes the contents of the medium.
    #[must_use]
    pub fn changes(&self) -> bool {
        matches!(self, Self::Write { .. } | Self::Delete { .. })
    }

    /// The same request, for another use.
    pub fn again(&mut self) -> Io<'_> {
        self.part(0, self.len(), self.offset())
    }

    /// The `length` bytes from byte `skip` on, which must be within it, at `offset`.
    pub fn part(&mut self, skip: u64, length: u64, offset: u64) -> Io<'_> {
        let range = skip as usize..(skip + length) as usize;
        match self {
            Self::Read { to, .. } => Io::Read { offset, to: &mut to[range] },
            Self::Write { from, .. } => Io::Write { offset, from: &from[range] },
            Self::Delete { .. } => Io::Delete { offset, length },
            Self::Flush => Io::Flush,
        }
    }

    /// The same request with `base` added to its offset.
    pub fn shifted(&mut self, base: u64) -> Io<'_> {
        self.part(0, self.len(), self.offset().wrapping_add(base))
    }
}

/// The shape of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Size, bytes.
    pub media_size: u64,
    /// Sector size in bytes, a power of two.
    pub sector_size: u32,
    /// Optimal unit of I/O in bytes; 0 if unknown.
    pub stripe_size: u64,
    /// Offset of the disk's start within such a unit, bytes.
    pub stripe_offset: u64,
}

/// What holds the contents of a disk: an image file, memory, a target.
pub trait Medium: fmt::Debug {
    /// Its shape.
    fn shape(&self) -> Shape;

    /// Called before the first read or write.
    ///
    /// # Errors
    /// [`Error::WriteProtected`] if it cannot be written.
    fn open(&mut self, writes: bool) -> Result<(), Error> {
        let _ = writes;
        Ok(())
    }

    /// Fills `to` with the bytes at `offset`: whole sectors within the shape.
    ///
    /// # Errors
    /// The medium's.
    fn read(&mut self, offset: u64, to: &mut [u8]) -> Result<(), Error>;

    /// Writes `from` at `offset`.
    ///
    /// # Errors
    /// The medium's.
    fn write(&mut self, offset: u64, from: &[u8]) -> Result<(), Error>;

    /// The contents of these bytes are not needed any more.
    ///
    /// # Errors
    /// [`Error::Unsupported`]; the medium's.
    fn delete(&mut self, offset: u64, length: u64) -> Result<(), Error> {
        let _ = (offset, length);
        Err(Error::Unsupported)
    }

    /// Makes everything written so far durable.
    ///
    /// # Errors
    /// The medium's.
    fn flush(&mut self) -> Result<(), Error>;

    /// More properties: names and values of `geom disk list`, in the order of that list.
    fn properties(&self) -> alloc::vec::Vec<(&'static str, alloc::string::String)> {
        alloc::vec::Vec::new()
    }
}

impl Graph {
    /// Performs a request from `consumer`.
    ///
    /// # Errors
    /// If the request is invalid; those of the request.
    pub fn io(&mut self, consumer: ConsumerId, mut io: Io<'_>) -> Result<(), Error> {
        let Consumer { provider, access } = self.consumer_of(consumer)?;
        self.check_io(provider, access, &io)?;
        let what = (io.operation(), io.len());
        let class = self[self[provider].geom].class;
        let clock = self.clock.unwrap_or(|| 0);
        let begun = clock();
        let result = class.start(self, provider, io.again());
        let time = clock().saturating_sub(begun);
        let count = |statistics: &mut Statistics| {
            statistics.busy += time;
            match result {
                Ok(()) => statistics.count(what, time),
                Err(_) => statistics.failures += 1,
            }
        };
        // Either may be gone by now.
        if let Some(provider) = self.find_provider_mut(provider) {
            count(&mut provider.statistics);
        }
        if let Some(consumer) = self.find_consumer_mut(consumer) {
            count(&mut consumer.statistics);
        }
        result
    }

    fn consumer_of(&self, consumer: ConsumerId) -> Result<Consumer, Error> {
        let consumer = self.find_consumer(consumer).ok_or(Error::Gone)?;
        let provider = consumer.provider.ok_or(Error::Gone)?;
        Ok(Consumer { provider, access: consumer.access })
    }

    fn check_io(&self, provider: ProviderId, access: Access, io: &Io<'_>) -> Result<(), Error> {
        let may = match io {
            Io::Read { .. } => access.read > 0,
            Io::Write { .. } | Io::Delete { .. } | Io::Flush => access.write > 0,
        };
        if !may {
            return Err(Error::WriteProtected);
        }
        let provider = &self[provider];
        if let Some(error) = provider.error {
            return Err(error);
        }
        if matches!(io, Io::Flush) {
            return Ok(());
        }
        let sector = u64::from(provider.sector_size);
        if sector == 0 || provider.media_size == 0 {
            return Err(Error::Gone);
        }
        if !io.offset().is_multiple_of(sector) || !io.len().is_multiple_of(sector) {
            return Err(Error::Misaligned);
        }
        match io.offset().checked_add(io.len()) {
            Some(end) if end <= provider.media_size => Ok(()),
            _ => Err(Error::OutOfRange),
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
    ) -> Result<(), error::Error> {
        let name = || self[provider].name.clone();
        let sector = u64::from(self[provider].sector_size.max(1));
        let end = offset.checked_add(to.len() as u64);
        let Some(end) = end.filter(|&end| end <= self[provider].media_size) else {
            return Err(error::Error::io(name(), Error::OutOfRange));
        };
        let start = offset / sector * sector;
        let mut sectors = vec![0; (end.next_multiple_of(sector) - start) as usize];
        let name = self[provider].name.clone();
        let consumer = self.open(provider, Access::READ)?;
        let read = self.io(consumer, Io::Read { offset: start, to: &mut sectors });
        // With the last close, the provider may go, too.
        self.shut(consumer);
        read.map_err(|error| error::Error::io(name, error))?;
        let skip = (offset - start) as usize;
        to.copy_from_slice(&sectors[skip..skip + to.len()]);
        Ok(())
    }

    /// The last sector of `provider`, where GEOM stores its labels.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn peek_last(&mut self, provider: ProviderId) -> Result<vec::Vec<u8>, error::Error> {
        let mut sector = vec![0; self[provider].sector_size as usize];
        let at = self[provider].last_sector();
        self.peek(provider, at, &mut sector)?;
        Ok(sector)
    }

    /// Opens `provider` from outside the graph: requests go to the returned consumer.
    ///
    /// # Errors
    /// As [`access`](Self::access).
    pub fn open(
        &mut self,
        provider: ProviderId,
        access: Access,
    ) -> Result<ConsumerId, error::Error> {
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
        if let Some(consumer) = self.find_consumer(consumer) {
            let geom = consumer.geom;
            self.drop_geom(geom);
        }
    }
}

impl Graph {
    /// Performs a zone command from `consumer`, which must have its provider open for reading, and
    /// for writing if zones are changed.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if there are no zones; if the command is invalid; those of the
    /// command.
    pub fn zone(&mut self, consumer: ConsumerId, command: Zone) -> Result<ZoneAnswer, Error> {
        let provider = self.check_zone(consumer, command)?;
        let command = command.bounded();
        let class = self[self[provider].geom].class;
        let clock = self.clock.unwrap_or(|| 0);
        let begun = clock();
        let answer = class.zone(self, provider, command).and_then(|answer| {
            // A disk's answer is rejected if it could send the caller round in circles.
            let is_one = command.is_answered_by(&answer);
            if is_one { Ok(answer) } else { Err(Error::Device(Cause::None)) }
        });
        let time = clock().saturating_sub(begun);
        let count = |statistics: &mut Statistics| {
            statistics.busy += time;
            if answer.is_ok() {
                statistics.zone_commands += 1;
                statistics.zone_time += time;
            } else {
                statistics.failures += 1;
            }
        };
        // Either may be gone by now.
        if let Some(provider) = self.find_provider_mut(provider) {
            count(&mut provider.statistics);
        }
        if let Some(consumer) = self.find_consumer_mut(consumer) {
            count(&mut consumer.statistics);
        }
        answer
    }

    /// The provider to which `command` goes.
    fn check_zone(&self, consumer: ConsumerId, command: Zone) -> Result<ProviderId, Error> {
        let consumer = self.find_consumer(consumer).ok_or(Error::Gone)?;
        let id = consumer.provider.ok_or(Error::Gone)?;
        let provider = &self[id];
        let access = consumer.access;
        if (if command.changes() { access.write } else { access.read }) <= 0 {
            return Err(Error::WriteProtected);
        }
        if let Some(error) = provider.error {
            return Err(error);
        }
        match command.sector() {
            Some(sector) if sector >= provider.sectors() => Err(Error::OutOfRange),
            _ => Ok(id),
        }
    }
}

/// The part of a consumer that a request needs.
struct Consumer {
    provider: ProviderId,
    access: Access,
}
