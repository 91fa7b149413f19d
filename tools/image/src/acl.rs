//! Access control lists that are left out.

/// The extended attribute that holds the list of a file.
pub(crate) const ACCESS: &[u8] = b"system.posix_acl_access";

/// Version of the format of the attribute.
const VERSION: u32 = 2;
/// Entry of the file's group.
const GROUP: u16 = 0x04;
/// Entry that limits all but the owner and the others.
const MASK: u16 = 0x10;

/// The permissions of a file without its access control list `list`. With a list the permissions
/// of the group are the list's mask, which is what all the users and groups in it may have at most;
/// without the list they would be what the group has. A list that cannot be read leaves it nothing.
pub(crate) fn permissions_without(permissions: u16, list: &[u8]) -> u16 {
    let group = group(list).unwrap_or(0);
    permissions & !0o070 | (group & 7) << 3
}

/// What the group of a file may do by its list.
fn group(list: &[u8]) -> Option<u16> {
    let (version, entries) = list.split_first_chunk()?;
    if u32::from_le_bytes(*version) != VERSION {
        return None;
    }
    let (mut group, mut mask) = (None, 7);
    for entry in entries.chunks_exact(8) {
        let allowed = u16::from_le_bytes([entry[2], entry[3]]);
        match u16::from_le_bytes([entry[0], entry[1]]) {
            GROUP => group = Some(allowed),
            MASK => mask = allowed,
            _ => {}
        }
    }
    group.map(|group| group & mask)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Owner, a user, group, mask if there is one, others.
    fn list(group: u16, mask: Option<u16>) -> Vec<u8> {
        let entries = [(1, 6), (2, 7), (GROUP, group), (0x20, 4)];
        let entries = entries.into_iter().chain(mask.map(|mask| (MASK, mask)));
        let entry = |(tag, allowed): (u16, u16)| {
            [&tag.to_le_bytes()[..], &allowed.to_le_bytes(), &[0xFF; 4]].concat()
        };
        [VERSION.to_le_bytes().to_vec(), entries.flat_map(entry).collect()].concat()
    }

    #[test]
    fn the_group_has_what_the_list_gave_it() {
        assert_eq!(permissions_without(0o674, &list(4, Some(7))), 0o644);
        assert_eq!(permissions_without(0o4674, &list(7, Some(5))), 0o4654);
        assert_eq!(permissions_without(0o664, &list(6, None)), 0o664);
        assert_eq!(permissions_without(0o674, &[]), 0o604);
        assert_eq!(permissions_without(0o674, &[1, 0, 0, 0]), 0o604);
    }
}
