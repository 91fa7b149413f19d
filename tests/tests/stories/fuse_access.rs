//! FUSE mounts: errors and rights are those of Linux's own file systems.

use std::ffi::CStr;
use std::fs::{DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};

use flysch_api::flash::Flash;
use flysch_api::vfs::{DeviceNumber, FileKind, FsError, NewFile};
use flysch_fuse::{FuseOptions, Mounted, Shared};
use flysch_jffs2::Jffs2;
use flysch_mtd::FlashImage;
use flysch_tests::writable::{START, jffs2, ubifs};
use flysch_vfs::Memory;
use rustix::fs::{XattrFlags, getxattr, listxattr, removexattr, setxattr};
use rustix::io::Errno;
use tempfile::TempDir;

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";
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

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

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

#[test]
fn access_lists_allow_and_forbid() {
    let fs: Shared = Arc::new(RwLock::new(jffs2(16)));
    let Some((_folder, at, mounted)) = mount(fs) else { return };
    let (shut, open) = (at.join("shut"), at.join("open"));
    let reads = |path: &Path| as_nobody(|| File::open(path).is_ok());
    for (path, mode) in [(&shut, 0o644), (&open, 0o600)] {
        std::fs::write(path, "").unwrap();
        std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        assert_eq!(reads(path), mode == 0o644);
    }
    let with = |allowed, group, mask, other| {
        let owner = (1, 6, NO_ID);
        list(&[
            owner,
            (2, allowed, NOBODY),
            (4, group, NO_ID),
            (16, mask, NO_ID),
            (32, other, NO_ID),
        ])
    };
    setxattr(&shut, ACCESS, &with(0, 4, 4, 4), XattrFlags::empty()).unwrap();
    setxattr(&open, ACCESS, &with(4, 0, 4, 0), XattrFlags::empty()).unwrap();
    assert_eq!((mode(&shut), reads(&shut)), (0o644, false));
    assert_eq!((mode(&open), reads(&open)), (0o640, true));
    // chmod changes the mask.
    std::fs::set_permissions(&open, Permissions::from_mode(0o614)).unwrap();
    assert_eq!(value(&open, ACCESS), Ok(with(4, 0, 1, 4)));
    assert!(!reads(&open));
    // A list that says no more than permissions is none.
    let minimal = list(&[(1, 6, NO_ID), (4, 4, NO_ID), (0x20, 4, NO_ID)]);
    setxattr(&shut, ACCESS, &minimal, XattrFlags::empty()).unwrap();
    assert_eq!((mode(&shut), reads(&shut)), (0o644, true));
    assert_eq!(value(&shut, ACCESS), Err(Errno::NODATA));
    mounted.unmount().unwrap();
}

#[test]
fn new_files_get_the_default_list_of_their_directory() {
    let fs: Shared = Arc::new(RwLock::new(jffs2(16)));
    let Some((_folder, at, mounted)) = mount(fs) else { return };
    let below = |name: &str| at.join("d").join(name);
    std::fs::create_dir(at.join("d")).unwrap();
    let all = |owner, mask| {
        list(&[(1, owner, NO_ID), (2, 7, 77), (4, 5, NO_ID), (16, mask, NO_ID), (32, 0, NO_ID)])
    };
    setxattr(at.join("d"), DEFAULT, &all(7, 7), XattrFlags::empty()).unwrap();
    let make = |path: &Path| {
        File::options().write(true).create_new(true).mode(0o666).open(path).unwrap();
    };
    make(&below("x"));
    assert_eq!(mode(&below("x")), 0o660);
    assert_eq!(value(&below("x"), ACCESS), Ok(all(6, 6)));
    DirBuilder::new().mode(0o777).create(below("y")).unwrap();
    assert_eq!(mode(&below("y")), 0o770);
    assert_eq!(value(&below("y"), ACCESS), Ok(all(7, 7)));
    assert_eq!(value(&below("y"), DEFAULT), Ok(all(7, 7)));
    std::os::unix::fs::symlink("x", below("link")).unwrap();
    // Elsewhere the umask counts, as on the host.
    make(&at.join("plain"));
    let host = tempfile::tempdir().unwrap();
    make(&host.path().join("plain"));
    assert_eq!(mode(&at.join("plain")), mode(&host.path().join("plain")));
    mounted.unmount().unwrap();
}

#[test]
fn a_damaged_access_list_lets_in_the_owner_and_root() {
    let fs = Arc::new(RwLock::new(jffs2(16)));
    let Some((_folder, at, mounted)) = mount(fs.clone()) else { return };
    let path = at.join("file");
    std::fs::write(&path, "content").unwrap();
    let entries = [(1, 6, NO_ID), (2, 4, NOBODY), (4, 4, NO_ID), (16, 4, NO_ID), (32, 4, NO_ID)];
    setxattr(&path, ACCESS, list(&entries).as_slice(), XattrFlags::empty()).unwrap();
    std::os::unix::fs::chown(&path, Some(1), Some(1)).unwrap();
    mounted.unmount().unwrap();
    let fs = Arc::into_inner(fs).unwrap().into_inner().unwrap();
    let flash = fs.into_flash();
    let geometry = *flash.geometry();
    let mut bytes = flash.into_storage();
    // The entry of nobody on the flash.
    let entry = [2, 0, 4, 0, 0xFE, 0xFF, 0, 0];
    let found: Vec<usize> =
        (0..bytes.len() - 8).filter(|at| bytes[*at..*at + 8] == entry).collect();
    assert_eq!(found.len(), 1);
    bytes[found[0]] ^= 1;
    let fs = Arc::new(Jffs2::mount(FlashImage::new(bytes, geometry), None).unwrap());
    let mounted = flysch_fuse::mount(fs, &at, &options()).unwrap();
    assert_eq!(number(as_nobody(|| File::open(&path))), Some(Errno::ACCESS.raw_os_error()));
    assert_eq!(std::fs::read(&path).unwrap(), b"content");
    mounted.unmount().unwrap();
}

#[test]
fn a_file_is_created_with_all_its_attributes_or_not_at_all() {
    let file_systems: [Shared; 3] = [
        Arc::new(RwLock::new(Memory::new(1 << 20, START))),
        Arc::new(RwLock::new(ubifs(64))),
        Arc::new(RwLock::new(jffs2(16))),
    ];
    let kind = FileKind::Regular;
    let device = DeviceNumber::default();
    let file = NewFile { kind, permissions: 0o644, owner: 0, group: 0, device, target: b"" };
    for fs in file_systems {
        let mut fs = fs.write().unwrap();
        let root = fs.statistics().root;
        let mut xattrs = vec![(&b"user.a"[..], &b"1"[..]), (b"user.b", b"2")];
        let inode = fs.create_with_xattrs((root, b"whole"), &file, &xattrs, START).unwrap();
        let mut value = [0; 8];
        assert_eq!(fs.read_xattr(inode, b"user.b", &mut value), Ok(1));
        assert_eq!(value[0], b'2');
        xattrs.push((b"foo.c", b"3"));
        let refused = fs.create_with_xattrs((root, b"part"), &file, &xattrs, START);
        let is_refused = matches!(refused, Err(FsError::Invalid(_) | FsError::Unsupported(_)));
        assert!(is_refused, "{refused:?}");
        assert_eq!(fs.lookup(root, b"part"), Err(FsError::NotFound));
    }
}
