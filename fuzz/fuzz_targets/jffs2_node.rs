//! JFFS2 nodes of every type, summaries and their entries, in both byte orders.
#![no_main]

use flysch_wire::jffs2::{
    ByteOrder, Dirent, Header, Inode, NAME_LEN_MAX, Summary, SummaryEntry, SummaryTrailer, Xattr,
    Xref, crc32, detect,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = detect(bytes);
    for order in ByteOrder::ALL {
        node(bytes, order);
        let mut bytes = bytes.to_vec();
        fix_checksums(&mut bytes, order);
        node(&bytes, order);
    }
});

/// Corrects the checksums, so that what follows them is reached.
fn fix_checksums(bytes: &mut [u8], order: ByteOrder) {
    let Ok(header) = Header::parse_unchecked(bytes, order) else { return };
    header.emit(order, bytes);
    let (covered, place, payload) = match header.node_type.0 {
        0xE001 => (32, 32, Some((36, 40))),
        0xE002 => (60, 64, Some((60, 68))),
        0x2006 => (24, 28, Some((24, 32))),
        0xE008 => (28, 28, Some((24, 32))),
        0xE009 => (24, 24, None),
        _ => return,
    };
    let mut put = |at: usize, covered: std::ops::Range<usize>| {
        let Some(part) = bytes.get(covered) else { return };
        let crc = crc32(part);
        let crc = if order == ByteOrder::Little { crc.to_le_bytes() } else { crc.to_be_bytes() };
        if let Some(place) = bytes.get_mut(at..at + 4) {
            place.copy_from_slice(&crc);
        }
    };
    if let Some((at, from)) = payload {
        let end = usize::try_from(header.total_len).unwrap_or(usize::MAX);
        put(at, from..end);
    }
    put(place, 0..covered);
}

fn node(bytes: &[u8], order: ByteOrder) {
    let mut out = vec![0; bytes.len().max(1 << 10)];
    if let Ok(inode) = Inode::parse(bytes, order)
        && let Ok(data) = inode.data(bytes)
        && inode.stored_len() == inode.csize
    {
        inode.emit(data, order, &mut out);
        assert_eq!(Inode::parse(&out, order), Ok(inode));
        assert_eq!(inode.data(&out), Ok(data));
    }
    if let Ok(dirent) = Dirent::parse(bytes, order)
        && let Ok(name) = dirent.name(bytes)
        && name.len() <= NAME_LEN_MAX
    {
        dirent.emit(name, order, &mut out);
        assert_eq!(Dirent::parse(&out, order), Ok(dirent));
    }
    if let Ok(xattr) = Xattr::parse(bytes, order)
        && let Ok((name, value)) = xattr.name_and_value(bytes)
    {
        xattr.emit(name, value, order, &mut out);
        let again = Xattr::parse(&out, order).expect("it was emitted");
        assert_eq!(again.name_and_value(&out), Ok((name, value)));
    }
    if let Ok(xref) = Xref::parse(bytes, order) {
        xref.emit(order, &mut out);
        assert_eq!(Xref::parse(&out, order), Ok(xref));
    }
    summary(bytes, order);
}

fn summary(bytes: &[u8], order: ByteOrder) {
    let _ = SummaryTrailer::parse(bytes, order);
    let Ok(summary) = Summary::parse(bytes, order) else { return };
    let mut out = vec![0; bytes.len()];
    let mut len = 0;
    let mut count = 0;
    for entry in summary.entries(bytes, order) {
        let Ok(entry) = entry else { return };
        len += entry.emit(order, &mut out[Summary::LEN + len..]);
        assert_eq!(SummaryEntry::parse(&out[Summary::LEN + len - entry.len()..], order), Ok(entry));
        count += 1;
    }
    assert_eq!(count, summary.entries);
    summary.emit(len, 0, order, &mut out);
    let again = Summary::parse(&out, order).expect("it was emitted");
    assert_eq!(again.entries, summary.entries);
}
