//! POSIX access control lists, in the format of Linux's `system.posix_acl_access`.

/// The attribute that also determines a file's permissions.
pub(crate) const ACCESS: &[u8] = b"system.posix_acl_access";
/// The attribute of a directory that determines the access lists of new files in it.
pub(crate) const DEFAULT: &[u8] = b"system.posix_acl_default";

/// `POSIX_ACL_XATTR_VERSION` (`posix_acl_xattr.h`).
const VERSION: u32 = 2;
/// A list starts with its version.
pub(crate) const HEADER_SIZE: usize = 4;
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

/// What a new file gets from the default list of its directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Inherited {
    /// All permission bits.
    pub(crate) permissions: u16,
    /// Attributes: an access list unless the permissions say the same; for a directory, the default
    /// list.
    pub(crate) lists: Vec<(&'static [u8], Vec<u8>)>,
}

/// The permissions and lists of a file that is created with `requested` permissions where `default`
/// is the default list: what both allow. `None` if the list is invalid.
pub(crate) fn inherited(default: &[u8], requested: u16, is_directory: bool) -> Option<Inherited> {
    let Permissions { bits, is_all } = permissions(default)?;
    let permissions = requested & (!0o777 | bits);
    let mut lists = vec![];
    if !is_all {
        lists.push((ACCESS, with_permissions(default, permissions)));
    }
    if is_directory {
        lists.push((DEFAULT, default.to_vec()));
    }
    Some(Inherited { permissions, lists })
}

/// A valid list in which owner, others, and the mask (or the group if there is no mask) have the
/// rights that the permission bits give them.
fn with_permissions(list: &[u8], permissions: u16) -> Vec<u8> {
    let mut list = list.to_vec();
    let tag = |entry: &[u8]| u16::from_le_bytes([entry[0], entry[1]]);
    let has_mask = list[HEADER_SIZE..].chunks_exact(ENTRY_SIZE).any(|entry| tag(entry) == MASK);
    let group_class = if has_mask { MASK } else { GROUP_OBJ };
    for entry in list[HEADER_SIZE..].chunks_exact_mut(ENTRY_SIZE) {
        let shift = match tag(entry) {
            USER_OBJ => 6,
            OTHER => 0,
            tag if tag == group_class => 3,
            _ => continue,
        };
        entry[2..4].copy_from_slice(&(permissions >> shift & 7).to_le_bytes());
    }
    list
}

#[cfg(test)]
mod tests {
    use super::{ACCESS, DEFAULT, Inherited, MASK, Permissions, inherited, permissions};

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

    #[test]
    fn a_new_file_has_what_its_request_and_the_default_list_allow() {
        // As with setfacl -d -m u:77:rwx,o::- on a directory with the permissions 755.
        let default = list(&[(1, 7), (2, 7), (4, 5), (MASK, 7), (0x20, 0)]);
        let of_file = list(&[(1, 6), (2, 7), (4, 5), (MASK, 6), (0x20, 0)]);
        let expected = Inherited { permissions: 0o660, lists: vec![(ACCESS, of_file)] };
        assert_eq!(inherited(&default, 0o666, false), Some(expected));
        let lists = vec![(ACCESS, default.clone()), (DEFAULT, default.clone())];
        let expected = Inherited { permissions: 0o2770, lists };
        assert_eq!(inherited(&default, 0o2777, true), Some(expected));
        // Without a mask, the group itself is limited.
        let unmasked = list(&[(1, 7), (8, 7), (4, 5), (0x20, 4)]);
        let limited = list(&[(1, 6), (8, 7), (4, 4), (0x20, 0)]);
        let expected = Inherited { permissions: 0o640, lists: vec![(ACCESS, limited)] };
        assert_eq!(inherited(&unmasked, 0o640, false), Some(expected));
    }

    #[test]
    fn a_short_default_list_is_only_permissions() {
        let default = list(&[(1, 7), (4, 5), (0x20, 0)]);
        let expected = Inherited { permissions: 0o1640, lists: vec![] };
        assert_eq!(inherited(&default, 0o1666, false), Some(expected));
        assert_eq!(inherited(&default[..20], 0o666, false), None);
    }
}
