//! Providers and consumers, and the numbers by which all objects of a graph are known.

use alloc::string::String;
use alloc::vec::Vec;

use flysch_api::block::{self, BlockError};

use crate::access::Access;
use crate::io::{Io, Shape};
use crate::statistics::Statistics;
use crate::zone::Zone;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        ///
        /// Ids are never reused: the id of an object that is gone refers to nothing.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub(crate) u32);

        impl $name {
            /// Its number, for dumps.
            #[must_use]
            pub const fn number(self) -> u32 {
                self.0
            }
        }
    };
}

id!(
    /// Identifies a geom of a graph.
    GeomId
);
id!(
    /// Identifies a provider of a graph.
    ProviderId
);
id!(
    /// Identifies a consumer of a graph.
    ConsumerId
);

/// Something that looks like a disk.
#[derive(Clone, Debug)]
pub struct Provider {
    /// Its geom.
    pub geom: GeomId,
    /// Its name, as below `/dev` in FreeBSD.
    pub name: String,
    /// Size, bytes.
    pub media_size: u64,
    /// Sector size, bytes.
    pub sector_size: u32,
    /// Optimal unit of I/O in bytes; 0 if unknown.
    pub stripe_size: u64,
    /// Offset of this provider's start within such a unit, bytes.
    pub stripe_offset: u64,
    /// Sum of all its consumers' counts.
    pub access: Access,
    /// Its consumers, oldest first.
    pub consumers: Vec<ConsumerId>,
    /// Why it accepts no requests any more.
    pub error: Option<block::BlockError>,
    /// Its completed requests.
    pub statistics: Statistics,
}

impl Provider {
    /// Number of whole sectors.
    #[must_use]
    pub fn sectors(&self) -> u64 {
        self.media_size / u64::from(self.sector_size.max(1))
    }

    /// First byte of the last sector; 0 if there is none.
    #[must_use]
    pub fn last_sector(&self) -> u64 {
        self.sectors().saturating_sub(1) * u64::from(self.sector_size)
    }

    /// A new one, which nobody uses yet.
    pub(crate) fn new(geom: GeomId, name: String, shape: Shape) -> Self {
        Self {
            geom,
            name,
            media_size: shape.media_size,
            sector_size: shape.sector_size,
            stripe_size: shape.stripe_size,
            stripe_offset: shape.stripe_offset,
            access: Access::NONE,
            consumers: Vec::new(),
            error: None,
            statistics: Statistics::default(),
        }
    }

    /// Whether a consumer with this access may do this now.
    ///
    /// # Errors
    /// [`BlockError::WriteProtected`] without the access; why nothing is accepted any more; if the
    /// request is not whole sectors, or beyond the end.
    pub(crate) fn check(&self, access: Access, io: &Io<'_>) -> Result<(), BlockError> {
        let may = match io {
            Io::Read { .. } => access.read > 0,
            Io::Write { .. } | Io::Delete { .. } | Io::Flush => access.write > 0,
        };
        if !may {
            return Err(BlockError::WriteProtected);
        }
        if let Some(error) = self.error {
            return Err(error);
        }
        if matches!(io, Io::Flush) {
            return Ok(());
        }
        let sector = u64::from(self.sector_size);
        if sector == 0 || self.media_size == 0 {
            return Err(BlockError::Gone);
        }
        if !io.offset().is_multiple_of(sector) || !io.len().is_multiple_of(sector) {
            return Err(BlockError::Misaligned);
        }
        match io.offset().checked_add(io.len()) {
            Some(end) if end <= self.media_size => Ok(()),
            _ => Err(BlockError::OutOfRange),
        }
    }

    /// The same for a zone command.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub(crate) fn check_zone(&self, access: Access, command: Zone) -> Result<(), BlockError> {
        if (if command.changes() { access.write } else { access.read }) <= 0 {
            return Err(BlockError::WriteProtected);
        }
        if let Some(error) = self.error {
            return Err(error);
        }
        match command.sector() {
            Some(sector) if sector >= self.sectors() => Err(BlockError::OutOfRange),
            _ => Ok(()),
        }
    }
}

/// A geom's use of a provider.
#[derive(Clone, Debug)]
pub struct Consumer {
    /// Its geom.
    pub geom: GeomId,
    /// The provider it is attached to.
    pub provider: Option<ProviderId>,
    /// Its access to the provider.
    pub access: Access,
    /// Somebody else wrote: what was tasted may no longer be valid.
    pub spoiled: bool,
    /// Its completed requests.
    pub statistics: Statistics,
}

impl Consumer {
    /// A new one, on no provider yet.
    pub(crate) fn new(geom: GeomId) -> Self {
        Self {
            geom,
            provider: None,
            access: Access::NONE,
            spoiled: false,
            statistics: Statistics::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zone::{ZoneAction, ZoneTarget};

    const SHAPE: Shape =
        Shape { media_size: 4096, sector_size: 512, stripe_size: 0, stripe_offset: 0 };

    #[test]
    fn requests_need_access_and_whole_sectors_within_the_provider() {
        let mut provider = Provider::new(GeomId(1), String::from("d"), SHAPE);
        let written = Access::new(0, 1, 0);
        let mut bytes = [0; 1024];
        let mut read = |provider: &Provider, access, offset, length: usize| {
            provider.check(access, &Io::Read { offset, to: &mut bytes[..length] })
        };
        assert_eq!(read(&provider, Access::READ, 3072, 1024), Ok(()));
        assert_eq!(read(&provider, written, 0, 512), Err(BlockError::WriteProtected));
        assert_eq!(read(&provider, Access::READ, 256, 512), Err(BlockError::Misaligned));
        assert_eq!(read(&provider, Access::READ, 512, 256), Err(BlockError::Misaligned));
        assert_eq!(read(&provider, Access::READ, 3584, 1024), Err(BlockError::OutOfRange));
        assert_eq!(
            read(&provider, Access::READ, 0_u64.wrapping_sub(512), 512),
            Err(BlockError::OutOfRange)
        );
        for changes in [Io::Write { offset: 0, from: &[0; 512] }, Io::Flush] {
            assert_eq!(provider.check(Access::READ, &changes), Err(BlockError::WriteProtected));
            assert_eq!(provider.check(written, &changes), Ok(()));
        }
        let delete = Io::Delete { offset: 512, length: 4096 };
        assert_eq!(provider.check(written, &delete), Err(BlockError::OutOfRange));
        provider.media_size = 0;
        assert_eq!(read(&provider, Access::READ, 0, 512), Err(BlockError::Gone));
        provider.error = Some(BlockError::TimedOut);
        assert_eq!(provider.check(written, &Io::Flush), Err(BlockError::TimedOut));
        assert_eq!(provider.check_zone(Access::READ, Zone::Parameters), Err(BlockError::TimedOut));
    }

    #[test]
    fn zone_commands_need_access_and_a_sector_of_the_provider() {
        let provider = Provider::new(GeomId(1), String::from("d"), SHAPE);
        let open = |sector| Zone::Manage(ZoneAction::Open, ZoneTarget::At(sector));
        assert_eq!(provider.check_zone(Access::READ, open(0)), Err(BlockError::WriteProtected));
        assert_eq!(provider.check_zone(Access::ALONE, open(7)), Ok(()));
        assert_eq!(provider.check_zone(Access::ALONE, open(8)), Err(BlockError::OutOfRange));
        assert_eq!(provider.check_zone(Access::READ, Zone::Parameters), Ok(()));
        assert_eq!(
            provider.check_zone(Access::NONE, Zone::Parameters),
            Err(BlockError::WriteProtected)
        );
    }
}
