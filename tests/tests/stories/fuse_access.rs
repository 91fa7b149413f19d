//! FUSE mounts: errors and rights are those of Linux's own file systems.

use std::ffi::CStr;
use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};

use flysch_fuse::{FuseOptions, Mounted, Shared};
use flysch_tests::writable::{START, jffs2, ubifs};
use flysch_vfs::Memory;
use rustix::fs::{XattrFlags, getxattr, listxattr, removexattr, setxattr};
use rustix::io::Errno;
use tempfile::TempDir;

const ACCESS: &str = "system.posix_acl_access";
const NOBODY: u32 = 65534;

fn options() -> FuseOptions {
    FuseOptions { source: "access".into(), ..FuseOptions::default() }
}

/// A mount for everybody, where it is, and the folder around it.
fn mount(fs: Shared) -> Option<(TempDir, PathBuf, Mounted)> {
    if !Path::new("/dev/fuse").exists() || !crate::image_common::is_root() {
        println!("skipped: there is no /dev/fuse, or this is not root");
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    let at = folder.path().join("mount");
    std::fs::create_dir(&at).unwrap();
    let mounted = flysch_fuse::mount_read_write(fs, &at, &options()).unwrap();
    Some((folder, at, mounted))
}

/// Runs in a thread that has no rights but those of `nobody`.
fn as_nobody<R: Send>(run: impl FnOnce() -> R + Send) -> R {
    use rustix::thread::{Gid, Uid, set_thread_groups, set_thread_res_gid, set_thread_res_uid};
    let (user, group) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
    let body = || {
        set_thread_groups(&[]).unwrap();
        set_thread_res_gid(group, group, group).unwrap();
        set_thread_res_uid(user, user, user).unwrap();
        run()
    };
    std::thread::scope(|scope| scope.spawn(body).join().unwrap())
}

/// An access list of tags, rights and, for users and groups, numbers.
fn list(entries: &[(u8, u8, u32)]) -> Vec<u8> {
    let mut list = vec![2, 0, 0, 0];
    for (tag, allowed, id) in entries {
        list.extend([*tag, 0, *allowed, 0]);
        list.extend(id.to_le_bytes());
    }
    list
}

const NO_ID: u32 = u32::MAX;

fn value(path: &Path, name: &str) -> Result<Vec<u8>, Errno> {
    let mut value = vec![0; 4096];
    let len = getxattr(path, name, &mut value)?;
    value.truncate(len);
    Ok(value)
}

fn number<T>(result: io::Result<T>) -> Option<i32> {
    result.err().and_then(|error| error.raw_os_error())
}

#[test]
fn names_that_are_too_long_are_no_missing_ones() {
    let file_systems: [(Shared, usize); 3] = [
        (Arc::new(RwLock::new(Memory::new(1 << 20, START))), 255),
        (Arc::new(RwLock::new(ubifs(64))), 255),
        (Arc::new(RwLock::new(jffs2(16))), 254),
    ];
    for (fs, longest) in file_systems {
        let Some((_folder, at, mounted)) = mount(fs) else { return };
        for (len, expected) in [(longest, Errno::NOENT), (longest + 1, Errno::NAMETOOLONG)] {
            let name = at.join("n".repeat(len));
            let found = [
                number(std::fs::symlink_metadata(&name)),
                number(std::fs::remove_file(&name)),
                number(std::fs::remove_dir(&name)),
                number(std::fs::rename(&name, at.join("new"))),
                number(std::fs::hard_link(&name, at.join("new"))),
                number(File::open(&name)),
            ];
            assert_eq!(found, [Some(expected.raw_os_error()); 6], "{len} of {longest}");
        }
        mounted.unmount().unwrap();
    }
}

#[test]
fn a_read_only_mount_has_nothing_to_sync() {
    let fs: Shared = Arc::new(RwLock::new(Memory::new(1 << 20, START)));
    let Some((_folder, at, mounted)) = mount(fs) else { return };
    mounted.unmount().unwrap();
    let fs = Arc::new(Memory::new(1 << 20, START));
    let mounted = flysch_fuse::mount(fs, &at, &options()).unwrap();
    for _ in 0..2 {
        let directory = File::open(&at).unwrap();
        directory.sync_all().unwrap();
        directory.sync_data().unwrap();
    }
    mounted.unmount().unwrap();
}

#[test]
fn attributes_of_other_namespaces_are_not_supported() {
    let file_systems: [(Shared, bool); 2] =
        [(Arc::new(RwLock::new(ubifs(64))), false), (Arc::new(RwLock::new(jffs2(16))), true)];
    for (fs, has_lists) in file_systems {
        let Some((_folder, at, mounted)) = mount(fs) else { return };
        let path = at.join("file");
        std::fs::write(&path, "").unwrap();
        let minimal = list(&[(1, 6, NO_ID), (4, 4, NO_ID), (0x20, 4, NO_ID)]);
        for name in ["foo.a", "system.foo", "user", ACCESS] {
            if has_lists && name == ACCESS {
                continue;
            }
            let refused = Err(Errno::OPNOTSUPP);
            assert_eq!(setxattr(&path, name, &minimal, XattrFlags::empty()), refused, "{name}");
            assert_eq!(value(&path, name).map(drop), refused, "{name}");
            assert_eq!(removexattr(&path, name), refused, "{name}");
        }
        setxattr(&path, "user.a", b"1", XattrFlags::empty()).unwrap();
        assert_eq!(value(&path, "user.b"), Err(Errno::NODATA));
        assert_eq!(removexattr(&path, "user.a"), Ok(()));
        mounted.unmount().unwrap();
    }
}

#[test]
fn only_root_sees_the_names_of_trusted_attributes() {
    let fs: Shared = Arc::new(RwLock::new(jffs2(16)));
    let Some((_folder, at, mounted)) = mount(fs) else { return };
    let path = at.join("file");
    std::fs::write(&path, "").unwrap();
    setxattr(&path, "trusted.a", b"1", XattrFlags::empty()).unwrap();
    setxattr(&path, "user.a", b"1", XattrFlags::empty()).unwrap();
    let names = || {
        let mut names = vec![0; 100];
        let len = listxattr(&path, &mut names).unwrap();
        let mut names: Vec<_> = names[..len]
            .split_inclusive(|byte| *byte == 0)
            .map(|name| CStr::from_bytes_with_nul(name).unwrap().to_str().unwrap().to_owned())
            .collect();
        names.sort();
        names
    };
    assert_eq!(names(), ["trusted.a", "user.a"]);
    assert_eq!(as_nobody(names), ["user.a"]);
    mounted.unmount().unwrap();
}
