//! UBI headers, volume table records, fastmap parts.
#![no_main]

use flysch_wire::ubi::{EcHeader, VidHeader, VolumeRecord, crc32, fastmap};
use libfuzzer_sys::fuzz_target;

macro_rules! settles {
    ($bytes:expr, $($part:ty),*) => {$(
        if let Ok(value) = <$part>::parse($bytes) {
            assert_eq!(<$part>::parse(&value.emit()), Ok(value));
        }
    )*};
}

fuzz_target!(|bytes: &[u8]| {
    let mut bytes = bytes.to_vec();
    // A valid checksum, so that the fields are reached.
    for covered in [60, 168] {
        if bytes.len() >= covered + 4 {
            let crc = crc32(&bytes[..covered]);
            bytes[covered..covered + 4].copy_from_slice(&crc.to_be_bytes());
            headers(&bytes);
        }
    }
    headers(&bytes);
});

fn headers(bytes: &[u8]) {
    settles!(bytes, EcHeader, VidHeader);
    if let Ok(vid) = VidHeader::parse(bytes) {
        let _ = vid.fits(126_976);
    }
    if let Ok(Some(record)) = VolumeRecord::parse(bytes) {
        assert_eq!(VolumeRecord::parse(&record.emit()), Ok(Some(record)));
    }
    settles!(
        bytes,
        fastmap::Superblock,
        fastmap::Header,
        fastmap::Pool,
        fastmap::EraseCounter,
        fastmap::FastmapVolume,
        fastmap::MapHeader
    );
}
