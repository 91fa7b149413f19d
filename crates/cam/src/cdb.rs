//! The commands a disk gives, as bytes.

use flysch_wire::scsi::Cdb;
use flysch_wire::scsi::cdb::{CacheRange, LENGTH, Transfer, TransferFlags};
use flysch_wire::scsi::unmap::{self, UnmapRange};

/// Length of an UNMAP parameter list of one descriptor, bytes.
pub(crate) const UNMAP_LIST: usize = unmap::length(1);

/// READ or WRITE, in the 10-byte form where address and length fit it, else in the 16-byte form.
#[inline]
pub(crate) fn transfer(write: bool, lba: u64, blocks: u32, fua: bool) -> [u8; LENGTH] {
    let flags = TransferFlags::new().with_fua(fua);
    let transfer = Transfer { flags, ..Transfer::new(lba, blocks) };
    let short = lba <= u64::from(u32::MAX) && blocks <= u32::from(u16::MAX);
    let cdb = match (short, write) {
        (true, false) => Cdb::Read10(transfer),
        (true, true) => Cdb::Write10(transfer),
        (false, false) => Cdb::Read16(transfer),
        (false, true) => Cdb::Write16(transfer),
    };
    cdb.to_bytes()
}

/// SYNCHRONIZE CACHE(10) over the whole unit.
pub(crate) fn synchronize_cache() -> [u8; LENGTH] {
    Cdb::SynchronizeCache10(CacheRange::default()).to_bytes()
}

/// UNMAP with a parameter list of one descriptor.
pub(crate) fn unmap() -> [u8; LENGTH] {
    let parameter_list_length = UNMAP_LIST as u16;
    Cdb::Unmap { anchor: false, group: 0, parameter_list_length }.to_bytes()
}

/// The parameter list of UNMAP for one range.
pub(crate) fn unmap_list(lba: u64, blocks: u32) -> [u8; UNMAP_LIST] {
    let mut list = [0; UNMAP_LIST];
    unmap::emit(&[UnmapRange { lba, blocks }], &mut list).expect("the list has room for one");
    list
}
