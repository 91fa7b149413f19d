//! Extended attributes that Linux loses and Flysch does not.
//!
//! Garbage collection copies an attribute's node with a version number one higher. If power is cut
//! in the middle of the copy, Linux still takes the highest version, finds it damaged, and the
//! attribute is gone; Flysch shows the older copy, which is still intact (docs/jffs2.md). The
//! differences allowed are determined here from the bytes of the flash alone.

use std::collections::{BTreeMap, BTreeSet};

use flysch_api::flash::Flash;
use flysch_lab::manifest::Manifest;
use flysch_wire::jffs2::{ByteOrder, Header, NodeType, Xattr, Xref};

/// Attributes whose newest copy is damaged and that have an older, intact one: inode and full name.
pub(crate) type Lost = BTreeSet<(u32, String)>;

/// Finds them on a little-endian JFFS2.
pub(crate) fn find<F: Flash>(flash: &F) -> Lost {
    let order = ByteOrder::Little;
    let geometry = flash.geometry();
    // For each number the versions, and the name if that copy is intact.
    let mut copies: BTreeMap<u32, BTreeMap<u32, Option<String>>> = BTreeMap::new();
    let mut users: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
    let mut block = vec![];
    for number in 0..geometry.blocks() {
        block.resize(geometry.block_len(number) as usize, 0);
        // Uncorrectable data is returned nevertheless.
        let _read = flash.read(geometry.block_start(number), &mut block);
        let mut at = 0;
        while at + Header::LEN <= block.len() {
            let node = &block[at..];
            let Ok(header) = Header::parse(node, order) else {
                at += 4;
                continue;
            };
            let node = &node[..node.len().min(header.total_len as usize)];
            if header.node_type == NodeType::XATTR
                && let Ok(xattr) = Xattr::parse(node, order)
            {
                let name = xattr.name_and_value(node).ok().map(|(name, _)| {
                    let name = [xattr.prefix.name().as_bytes(), name].concat();
                    name.escape_ascii().to_string()
                });
                let versions = copies.entry(xattr.xid).or_default();
                let known = versions.entry(xattr.version).or_default();
                *known = known.take().or(name);
            }
            if header.node_type == NodeType::XREF
                && let Ok(xref) = Xref::parse(node, order)
            {
                users.entry(xref.xid).or_default().insert(xref.ino);
            }
            at += (header.total_len as usize).next_multiple_of(4).max(Header::LEN);
        }
    }
    let mut lost = Lost::new();
    for (xid, versions) in copies {
        let mut newest_first = versions.into_values().rev();
        if let Some(None) = newest_first.next()
            && let Some(name) = newest_first.flatten().next()
        {
            let inodes = users.get(&xid).into_iter().flatten();
            lost.extend(inodes.map(|ino| (*ino, name.clone())));
        }
    }
    lost
}

/// `found` without those of `lost` that Linux does not show.
pub(crate) fn without(found: &Manifest, expected: &Manifest, lost: &Lost) -> Manifest {
    let strip = |path: &String, line: &String| {
        let linux = expected.get(path).map_or("", String::as_str);
        let mut line = line.clone();
        for (ino, name) in lost {
            let start = format!(" xattr {name}=");
            if !line.contains(&format!(" inode {ino} ")) || linux.contains(&start) {
                continue;
            }
            if let Some(from) = line.find(&start) {
                let value = from + start.len();
                let end = line[value..].find(' ').map_or(line.len(), |len| value + len);
                line.replace_range(from..end, "");
            }
        }
        line
    };
    found.iter().map(|(path, line)| (path.clone(), strip(path, line))).collect()
}

#[cfg(test)]
mod tests {
    use flysch_api::flash::{Corrected, FlashError, FlashGeometry};
    use flysch_wire::jffs2::XattrPrefix;

    use super::*;

    struct Memory(FlashGeometry, Vec<u8>);

    impl Flash for Memory {
        fn geometry(&self) -> &FlashGeometry {
            &self.0
        }

        fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<Corrected, FlashError> {
            buffer.copy_from_slice(&self.1[offset as usize..][..buffer.len()]);
            Ok(Corrected::NONE)
        }
    }

    /// Copies of attribute 3 of these versions, some of them damaged.
    fn flash(copies: &[(u32, bool)]) -> Memory {
        let order = ByteOrder::Little;
        let mut bytes = vec![0xFF; 8192];
        let mut at = Xref { ino: 7, xid: 3, xseqno: 2 }.emit(order, &mut bytes);
        for (version, is_good) in copies {
            let prefix = XattrPrefix::User;
            let fields =
                Xattr { xid: 3, version: *version, prefix, name_len: 0, value_len: 0, data_crc: 0 };
            let len = fields.emit(b"a", b"value", order, &mut bytes[at..]);
            if !is_good {
                bytes[at + Xattr::LEN + 4] ^= 1;
            }
            at += len;
        }
        Memory(FlashGeometry::nor(8192, 8192), bytes)
    }

    #[test]
    fn an_attribute_may_be_lost_if_its_newest_copy_alone_is_damaged() {
        let lost = Lost::from([(7, "user.a".to_owned())]);
        assert_eq!(find(&flash(&[(1, true), (2, false)])), lost);
        assert_eq!(find(&flash(&[(2, false), (1, true)])), lost);
        for copies in [
            &[(1, true), (2, true)][..],
            &[(1, false), (2, true)],
            &[(1, false), (2, false)],
            &[(2, false)],
            &[(2, false), (2, true), (1, true)],
        ] {
            assert_eq!(find(&flash(copies)), Lost::new(), "{copies:?}");
        }
    }

    #[test]
    fn nothing_but_such_an_attribute_may_differ() {
        let lost = Lost::from([(7, "user.a".to_owned())]);
        let line = |text: &str| Manifest::from([("f".to_owned(), text.to_owned())]);
        let found = line("Regular inode 7 content x xattr user.a=61 xattr user.b=62");
        let shown = |linux: &str| without(&found, &line(linux), &lost) == line(linux);
        assert!(shown("Regular inode 7 content x xattr user.b=62"));
        assert!(shown("Regular inode 7 content x xattr user.a=61 xattr user.b=62"));
        assert!(!shown("Regular inode 7 content x xattr user.a=61"));
        assert!(!shown("Regular inode 7 content x xattr user.a=63 xattr user.b=62"));
        assert!(!shown("Regular inode 7 content y xattr user.b=62"));
        let other = line("Regular inode 8 content x xattr user.a=61");
        assert_eq!(without(&other, &line("Regular inode 8 content x"), &lost), other);
    }
}
