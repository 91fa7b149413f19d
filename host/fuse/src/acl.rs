//! POSIX access control lists, in the format of Linux's `system.posix_acl_access`.

/// The attribute that also determines a file's permissions.
pub(crate) const ACCESS: &[u8] = b"system.posix_acl_access";
/// The attribute of a directory that determines the access lists of new files in it.
pub(crate) const DEFAULT: &[u8] = b"system.posix_acl_default";

/// `POSIX_ACL_XATTR_VERSION` (`posix_acl_xattr.h`).
const VERSION: u32 = 2;
const HEADER_SIZE: usize = 4;
const ENTRY_SIZE: usize = 8;

// Tags of entries (`posix_acl.h`).
const USER_OBJ: u16 = 0x01;
const GROUP_OBJ: u16 = 0x04;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

/// The meaning of an access list for the permission bits of its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Permissions {
    /// Nine bits: read, write, execute for owner, group, others.
    pub(crate) bits: u16,
    /// The bits are its only content: the list itself need not be kept.
    pub(crate) is_all: bool,
}

/// Reads an access list; `None` if it is invalid.
pub(crate) fn permissions(list: &[u8]) -> Option<Permissions> {
    let (version, entries) = list.split_first_chunk::<HEADER_SIZE>()?;
    if u32::from_le_bytes(*version) != VERSION || entries.len() % ENTRY_SIZE != 0 {
        return None;
    }
    let (mut owner, mut group, mut mask, mut others) = (None, None, None, None);
    let mut is_all = true;
    for entry in entries.chunks_exact(ENTRY_SIZE) {
        let tag = u16::from_le_bytes([entry[0], entry[1]]);
        let allowed = Some(u16::from_le_bytes([entry[2], entry[3]]) & 7);
        match tag {
            USER_OBJ => owner = allowed,
            GROUP_OBJ => group = allowed,
            OTHER => others = allowed,
            _ => {
                is_all = false;
                mask = if tag == MASK { allowed } else { mask };
            }
        }
    }
    let bits = owner? << 6 | mask.or(group)? << 3 | others?;
    Some(Permissions { bits, is_all })
}

#[cfg(test)]
mod tests {
    use super::{MASK, Permissions, permissions};

    fn list(entries: &[(u16, u16)]) -> Vec<u8> {
        let mut list = vec![2, 0, 0, 0];
        for (tag, allowed) in entries {
            list.extend(tag.to_le_bytes());
            list.extend(allowed.to_le_bytes());
            list.extend(u32::MAX.to_le_bytes());
        }
        list
    }

    #[test]
    fn a_short_list_is_a_mode() {
        let found = permissions(&list(&[(1, 6), (4, 4), (0x20, 0)]));
        assert_eq!(found, Some(Permissions { bits: 0o640, is_all: true }));
    }

    #[test]
    fn the_mask_stands_for_the_group() {
        let found = permissions(&list(&[(1, 7), (2, 7), (4, 4), (MASK, 6), (0x20, 1)]));
        assert_eq!(found, Some(Permissions { bits: 0o761, is_all: false }));
    }

    #[test]
    fn what_is_no_list_is_none() {
        assert_eq!(permissions(&[]), None);
        assert_eq!(permissions(&[3, 0, 0, 0]), None);
        assert_eq!(permissions(&list(&[(1, 7), (4, 4)])), None);
        assert_eq!(permissions(&[2, 0, 0, 0, 1]), None);
    }
}
