//! Extended attributes and access control lists.

use alloc::vec;
use alloc::vec::Vec;

use flysch_api::flash::Flash;
use flysch_api::vfs::{Damage, FsError};
use flysch_wire::jffs2::{ByteOrder, Xattr, XattrPrefix};

use crate::found::XattrRef;
use crate::node;

/// An extended attribute as Linux shows it.
#[derive(Debug)]
pub(crate) struct Attribute {
    /// Full name.
    pub(crate) name: Vec<u8>,
    pub(crate) value: Vec<u8>,
}

/// Reads an attribute; `None` if its namespace is unknown.
pub(crate) fn read_attribute<F: Flash>(
    flash: &F,
    order: ByteOrder,
    found: &XattrRef,
) -> Result<Option<Attribute>, FsError> {
    let place = node::place(flash, found.address);
    let damaged = |cause| FsError::Damaged { structure: "extended attribute", place, cause };
    let len_max = Xattr::LEN + usize::from(u8::MAX) + 1 + usize::from(u16::MAX) + 3;
    let mut bytes = vec![0; (found.total_len as usize).min(len_max)];
    node::read(flash, found.address.offset(), &mut bytes)?;
    let xattr = Xattr::parse(&bytes, order).map_err(|error| damaged(node::damage(error)))?;
    let (name, value) =
        xattr.name_and_value(&bytes).map_err(|error| damaged(node::damage(error)))?;
    let (name, value) = match xattr.prefix {
        XattrPrefix::Unknown(_) => return Ok(None),
        XattrPrefix::AclAccess | XattrPrefix::AclDefault => {
            let acl = convert_acl(value, order);
            let acl = acl.ok_or(damaged(Damage::Field("access control list")))?;
            (xattr.prefix.name().as_bytes().to_vec(), acl)
        }
        prefix => ([prefix.name().as_bytes(), name].concat(), value.to_vec()),
    };
    if name.contains(&0) {
        let structure = "name of an extended attribute";
        return Err(FsError::Damaged { structure, place, cause: Damage::Field("name") });
    }
    Ok(Some(Attribute { name, value }))
}

/// Version of the lists on the flash (`JFFS2_ACL_VERSION`).
const ACL_VERSION: u32 = 1;
/// Version of the lists in Linux's attributes (`POSIX_ACL_XATTR_VERSION`).
const ACL_XATTR_VERSION: u32 = 2;
/// Stands for "nobody in particular" (`ACL_UNDEFINED_ID`).
const ACL_NOBODY: u32 = u32::MAX;
/// Tags of entries that name a user or group (`ACL_USER`, `ACL_GROUP`).
const ACL_TAGS_NAMED: [u16; 2] = [2, 8];
/// Tags of the entries that do not (`ACL_USER_OBJ`, `ACL_GROUP_OBJ`, `ACL_MASK`, `ACL_OTHER`).
const ACL_TAGS_UNNAMED: [u16; 4] = [1, 4, 0x10, 0x20];

/// Converts a list from its form on the flash (in its byte order, without ids where none are
/// needed) to that of Linux's `system.posix_acl_*` attributes.
fn convert_acl(value: &[u8], order: ByteOrder) -> Option<Vec<u8>> {
    let (version, mut rest) = value.split_first_chunk::<4>()?;
    if order.value32(*version) != ACL_VERSION {
        return None;
    }
    let mut out = ACL_XATTR_VERSION.to_le_bytes().to_vec();
    while !rest.is_empty() {
        let (head, behind) = rest.split_first_chunk::<4>()?;
        let tag = order.value16([head[0], head[1]]);
        let permissions = order.value16([head[2], head[3]]);
        let id = if ACL_TAGS_NAMED.contains(&tag) {
            let (id, behind) = behind.split_first_chunk::<4>()?;
            rest = behind;
            order.value32(*id)
        } else if ACL_TAGS_UNNAMED.contains(&tag) {
            rest = behind;
            ACL_NOBODY
        } else {
            return None;
        };
        out.extend(tag.to_le_bytes());
        out.extend(permissions.to_le_bytes());
        out.extend(id.to_le_bytes());
    }
    Some(out)
}

/// Converts a list from the form of Linux's `system.posix_acl_*` attributes to its form on the
/// flash.
pub(crate) fn stored_acl(value: &[u8], order: ByteOrder) -> Option<Vec<u8>> {
    let (version, rest) = value.split_first_chunk::<4>()?;
    if u32::from_le_bytes(*version) != ACL_XATTR_VERSION || !rest.len().is_multiple_of(8) {
        return None;
    }
    let mut out = order.bytes32(ACL_VERSION).to_vec();
    for entry in rest.chunks_exact(8) {
        let tag = u16::from_le_bytes([entry[0], entry[1]]);
        let permissions = u16::from_le_bytes([entry[2], entry[3]]);
        out.extend(order.bytes16(tag));
        out.extend(order.bytes16(permissions));
        if ACL_TAGS_NAMED.contains(&tag) {
            let id = u32::from_le_bytes([entry[4], entry[5], entry[6], entry[7]]);
            out.extend(order.bytes32(id));
        } else if !ACL_TAGS_UNNAMED.contains(&tag) {
            return None;
        }
    }
    Some(out)
}

/// The attribute that holds the access list.
pub(crate) const ACCESS_LIST: &[u8] = b"system.posix_acl_access";

/// A list in the form of Linux's attributes that takes over permission bits: the owner, everybody
/// else, and the mask (or the group if there is no mask). `None` if it is not a list.
pub(crate) fn acl_with_permissions(list: &[u8], permissions: u16) -> Option<Vec<u8>> {
    let [user, group, mask, other] = ACL_TAGS_UNNAMED;
    let (version, entries) = list.split_first_chunk::<4>()?;
    if u32::from_le_bytes(*version) != ACL_XATTR_VERSION || !entries.len().is_multiple_of(8) {
        return None;
    }
    let tag_of = |entry: &[u8]| u16::from_le_bytes([entry[0], entry[1]]);
    let has_mask = entries.chunks_exact(8).any(|entry| tag_of(entry) == mask);
    let mut out = list.to_vec();
    for entry in out[4..].chunks_exact_mut(8) {
        let tag = tag_of(entry);
        let shift = match tag {
            _ if tag == user => 6,
            _ if tag == mask || tag == group && !has_mask => 3,
            _ if tag == other => 0,
            _ => continue,
        };
        entry[2..4].copy_from_slice(&(permissions >> shift & 7).to_le_bytes());
    }
    Some(out)
}

/// Longest value (the length field has 16 bits), bytes.
const VALUE_LEN_MAX: usize = u16::MAX as usize;

/// Namespace, name within it and value, as stored, of an attribute given by its full name; or why
/// it cannot be stored.
pub(crate) fn stored_form(
    name: &[u8],
    value: &[u8],
    order: ByteOrder,
) -> Result<(XattrPrefix, Vec<u8>, Vec<u8>), &'static str> {
    let prefix = prefix_of(name).ok_or("JFFS2 does not keep attributes of this namespace")?;
    let stored = match prefix {
        XattrPrefix::AclAccess | XattrPrefix::AclDefault => {
            stored_acl(value, order).ok_or("not an access control list")?
        }
        _ => value.to_vec(),
    };
    let rest = &name[prefix.name().len()..];
    if rest.len() > usize::from(u8::MAX) || rest.contains(&0) {
        return Err(
            "the name of an extended attribute can have at most 255 bytes, none of them NUL",
        );
    }
    if stored.len() > VALUE_LEN_MAX {
        return Err("an extended attribute can have at most 65535 bytes");
    }
    Ok((prefix, rest.to_vec(), stored))
}

fn prefix_of(name: &[u8]) -> Option<XattrPrefix> {
    XattrPrefix::ALL.iter().copied().find(|prefix| {
        let text = prefix.name().as_bytes();
        match prefix {
            XattrPrefix::AclAccess | XattrPrefix::AclDefault => name == text,
            _ => name.len() > text.len() && name.starts_with(text),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_become_those_of_linux() {
        // user::rw-, user:1000:r--, group::r--, mask::r--, other::---
        let little = [
            1, 0, 0, 0, //
            1, 0, 6, 0, //
            2, 0, 4, 0, 0xE8, 3, 0, 0, //
            4, 0, 4, 0, //
            0x10, 0, 4, 0, //
            0x20, 0, 0, 0,
        ];
        let expected = [
            2, 0, 0, 0, //
            1, 0, 6, 0, 0xFF, 0xFF, 0xFF, 0xFF, //
            2, 0, 4, 0, 0xE8, 3, 0, 0, //
            4, 0, 4, 0, 0xFF, 0xFF, 0xFF, 0xFF, //
            0x10, 0, 4, 0, 0xFF, 0xFF, 0xFF, 0xFF, //
            0x20, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF,
        ];
        assert_eq!(convert_acl(&little, ByteOrder::Little).unwrap(), expected);
        let big = [0, 0, 0, 1, 0, 1, 0, 6, 0, 2, 0, 4, 0, 0, 3, 0xE8];
        assert_eq!(convert_acl(&big, ByteOrder::Big).unwrap(), expected[..20]);
        assert_eq!(stored_acl(&expected, ByteOrder::Little).unwrap(), little);
        assert_eq!(stored_acl(&expected[..20], ByteOrder::Big).unwrap(), big);
        assert_eq!(stored_acl(&expected[..19], ByteOrder::Big), None);
    }

    #[test]
    fn lists_follow_permissions() {
        let list = |entries: &[(u16, u16)]| {
            let mut list = vec![2, 0, 0, 0];
            for (tag, allowed) in entries {
                list.extend(tag.to_le_bytes());
                list.extend(allowed.to_le_bytes());
                list.extend([9; 4]);
            }
            list
        };
        let masked = list(&[(1, 6), (2, 7), (4, 5), (0x10, 7), (0x20, 4)]);
        let expected = list(&[(1, 7), (2, 7), (4, 5), (0x10, 1), (0x20, 0)]);
        assert_eq!(acl_with_permissions(&masked, 0o4710), Some(expected));
        let bare = list(&[(1, 6), (4, 5), (0x20, 4)]);
        assert_eq!(acl_with_permissions(&bare, 0o712), Some(list(&[(1, 7), (4, 1), (0x20, 2)])));
        assert_eq!(acl_with_permissions(&bare[..11], 0o712), None);
        assert_eq!(acl_with_permissions(&[1, 0, 0, 0], 0o712), None);
    }

    #[test]
    fn damaged_lists_are_refused() {
        for bad in [
            &[][..],
            &[2, 0, 0, 0],
            &[1, 0, 0, 0, 1],
            &[1, 0, 0, 0, 2, 0, 4, 0],
            &[1, 0, 0, 0, 3, 0, 4, 0],
        ] {
            assert_eq!(convert_acl(bad, ByteOrder::Little), None, "{bad:?}");
        }
    }
}
