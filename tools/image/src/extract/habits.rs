//! What the system does by itself to a new file.

use std::os::fd::OwnedFd;

use flysch_api::vfs::Attributes;
use rustix::fs::Mode;
use rustix::io::Errno;

/// Set-user-id, set-group-id and sticky bit: never set at creation, cleared by a change of owner.
const SPECIAL: u16 = 0o7000;

/// Owner and mode of a new file. Nothing is assumed for directories that pass on rights: everything
/// is set then.
#[derive(Clone, Copy, Debug)]
pub(super) struct Habits {
    /// Owner and group of new files; `None` if they cannot be determined.
    owner: Option<(u32, u32)>,
    /// Permissions removed from new files; `None` if they cannot be determined.
    umask: Option<u16>,
}

impl Habits {
    /// For files below `root`, which we created or found empty.
    pub(super) fn of(root: &OwnedFd) -> Self {
        let nothing = Self { owner: None, umask: None };
        let (Ok(stat), Some(owner)) = (rustix::fs::fstat(root), owner()) else { return nothing };
        let hands_down_group = Mode::from_raw_mode(stat.st_mode).contains(Mode::SGID);
        let acl = rustix::fs::fgetxattr(root, "system.posix_acl_default", &mut [0u8; 0][..]);
        // Some file systems give the directory's group, or another owner, for what we say.
        let is_ours = (stat.st_uid, stat.st_gid) == owner;
        if !is_ours || hands_down_group || !matches!(acl, Err(Errno::NODATA | Errno::NOTSUP)) {
            return nothing;
        }
        Self { owner: Some(owner), umask: umask() }
    }

    /// The mode for creating a file, and whether owner and mode are then correct.
    pub(super) fn mode(&self, attributes: &Attributes) -> (Mode, bool) {
        let wanted = attributes.permissions;
        let is_ours = self.owner == Some((attributes.owner, attributes.group));
        let is_kept = self.umask.is_some_and(|umask| wanted & (umask | SPECIAL) == 0);
        match is_ours && is_kept {
            true => (Mode::from_raw_mode(u32::from(wanted)), true),
            // Nobody else gets at it before it has its owner.
            false => (Mode::RUSR | Mode::WUSR, false),
        }
    }
}

/// The IDs that the kernel gives to new files: the fourth number of `Uid:` and `Gid:`.
fn owner() -> Option<(u32, u32)> {
    let id = |key| status(key)?.split_whitespace().nth(3)?.parse().ok();
    Some((id("Uid:")?, id("Gid:")?))
}

fn umask() -> Option<u16> {
    u16::from_str_radix(&status("Umask:")?, 8).ok()
}

/// A line of the kernel's information about this process.
fn status(key: &str) -> Option<String> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(key))?;
    Some(line.trim().to_owned())
}
