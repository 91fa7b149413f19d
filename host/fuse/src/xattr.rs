//! Names of extended attributes.

use flysch_api::vfs::FsError;

use crate::acl;

/// The namespace that only root sees (`xattr(7)`).
pub(crate) const TRUSTED: &[u8] = b"trusted.";
/// The namespaces of both formats in Linux.
const NAMESPACES: [&[u8]; 3] = [b"user.", TRUSTED, b"security."];

/// Returns the name if files can have such an attribute. FUSE passes on every name; the kernel's
/// own file systems refuse namespaces that they do not have, whatever the call.
pub(crate) fn check_name(name: &[u8], has_lists: bool) -> Result<&[u8], FsError> {
    if has_lists && [acl::ACCESS, acl::DEFAULT].contains(&name) {
        return Ok(name);
    }
    match NAMESPACES.iter().find_map(|namespace| name.strip_prefix(*namespace)) {
        None => Err(FsError::Unsupported("extended attributes of this namespace")),
        Some([]) => Err(FsError::Invalid("the extended attribute has no name in its namespace")),
        Some(_) => Ok(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_without_a_namespace_of_the_format_are_not_supported() {
        let is_known = |name: &'static str| check_name(name.as_bytes(), false).is_ok();
        assert!(["user.a", "trusted.a", "security.a", "user.a.b"].into_iter().all(is_known));
        for name in ["foo.a", "system.foo", "user", "", "users.a", "system.posix_acl_access"] {
            let found = check_name(name.as_bytes(), false);
            assert!(matches!(found, Err(FsError::Unsupported(_))), "{name}");
        }
        assert!(matches!(check_name(b"user.", false), Err(FsError::Invalid(_))));
    }

    #[test]
    fn access_lists_are_names_where_there_are_access_lists() {
        for name in ["system.posix_acl_access", "system.posix_acl_default"] {
            assert!(check_name(name.as_bytes(), true).is_ok());
        }
        assert!(check_name(b"system.posix_acl_accesss", true).is_err());
        assert!(check_name(b"system.", true).is_err());
    }
}
