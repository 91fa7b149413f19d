//! Writable FUSE mounts: programs affect them as they would a directory.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, RwLock};

use crate::image_common::{allowed, differences, is_root, make_tree, snapshot};
use flysch_api::vfs::{FileSystem, Timestamp};
use flysch_fuse::{FuseOptions, Mounted};
use flysch_tests::wait::wait_until;
use flysch_vfs::Memory;

/// A mount of a new file system, and the file system.
fn mount(at: &Path) -> Option<(Mounted, Arc<RwLock<Memory>>)> {
    if !Path::new("/dev/fuse").exists() || !is_root() {
        println!("skipped: there is no /dev/fuse, or this is not root");
        return None;
    }
    std::fs::create_dir_all(at).unwrap();
    let start = Timestamp { seconds: 1_000_000_000, nanoseconds: 0 };
    let fs = Arc::new(RwLock::new(Memory::new(64 << 20, start)));
    let options = FuseOptions {
        source: "memory".into(),
        threads: 2,
        trusted: true,
        ..FuseOptions::default()
    };
    let mounted = flysch_fuse::mount_read_write(fs.clone(), at, &options).unwrap();
    Some((mounted, fs))
}

#[test]
fn a_tree_copied_into_the_mount_is_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let (real, at) = (folder.path().join("real"), folder.path().join("mount"));
    let Some((mounted, fs)) = mount(&at) else { return };
    make_tree(&real);
    // The file system has no access lists, and cp says so.
    rustix::fs::removexattr(real.join("size 129"), "system.posix_acl_access").unwrap();
    let tree = at.join("tree");
    let copied = Command::new("cp").args(["-a", "--"]).args([&real, &tree]).status().unwrap();
    assert!(copied.success());
    let (expected, found) = (snapshot(&real), snapshot(&tree));
    let different = differences(&expected, &found);
    assert!(different.is_empty(), "{}", different.join("\n"));
    assert!(expected.len() > 10);
    // Everything is removed again, and the space is freed.
    std::fs::remove_dir_all(&tree).unwrap();
    mounted.unmount().unwrap();
    let statistics = fs.read().unwrap().statistics();
    assert_eq!((statistics.files, statistics.blocks_free), (Some(1), statistics.blocks));
}

#[test]
fn names_move_in_every_way_linux_has() {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().join("mount");
    let Some((mounted, _)) = mount(&at) else { return };
    let (a, b) = (at.join("a"), at.join("b"));
    std::fs::write(&a, "a").unwrap();
    std::fs::write(&b, "b").unwrap();
    let rename = |flags| renameat_with(CWD, &a, CWD, &b, flags);
    assert_eq!(rename(RenameFlags::NOREPLACE), Err(rustix::io::Errno::EXIST));
    assert_eq!(
        rename(RenameFlags::NOREPLACE | RenameFlags::WHITEOUT),
        Err(rustix::io::Errno::EXIST)
    );
    rename(RenameFlags::EXCHANGE).unwrap();
    assert_eq!(std::fs::read(&a).unwrap(), b"b");
    assert_eq!(std::fs::read(&b).unwrap(), b"a");
    rename(RenameFlags::empty()).unwrap();
    assert!(!a.exists());
    assert_eq!(std::fs::read(&b).unwrap(), b"b");
    let flags = RenameFlags::NOREPLACE | RenameFlags::WHITEOUT;
    renameat_with(CWD, &b, CWD, &a, flags).unwrap();
    assert_eq!(std::fs::metadata(&b).unwrap().mode(), 0o020_000);
    std::fs::create_dir(at.join("d")).unwrap();
    let into_itself = std::fs::rename(at.join("d"), at.join("d/e")).unwrap_err();
    assert_eq!(into_itself.raw_os_error(), Some(22));
    mounted.unmount().unwrap();
}

#[test]
fn a_file_without_a_name_is_there_until_it_is_closed() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().join("mount");
    let Some((mounted, fs)) = mount(&at) else { return };
    let path = at.join("open");
    let mut file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    file.write_all(&[7; 100_000]).unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    let mut content = vec![];
    file.read_to_end(&mut content).unwrap();
    assert_eq!(content, [7; 100_000]);
    assert!(fs.read().unwrap().statistics().blocks_free < (64 << 20) / 4096);
    drop(file);
    // The kernel releases the file a moment later.
    wait_until("the file is gone", || fs.read().unwrap().statistics().files == Some(1));
    mounted.unmount().unwrap();
}

#[test]
fn content_is_written_mapped_directly_and_cut() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().join("mount");
    let Some((mounted, _)) = mount(&at) else { return };
    let path = at.join("file");
    let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    file.write_all_at(b"far", 1 << 20).unwrap();
    file.set_len((1 << 20) + 1).unwrap();
    file.sync_all().unwrap();
    assert_eq!(file.metadata().unwrap().len(), (1 << 20) + 1);
    let mut bytes = [9; 5];
    assert_eq!(file.read_at(&mut bytes, (1 << 20) - 3).unwrap(), 4);
    assert_eq!(bytes, [0, 0, 0, b'f', 9]);

    // Bypasses the kernel's cache.
    let direct = File::options()
        .read(true)
        .write(true)
        .custom_flags(rustix::fs::OFlags::DIRECT.bits().cast_signed())
        .open(&path)
        .unwrap();
    direct.write_all_at(&[5; 8192], 4096).unwrap();
    let mut block = [0; 8192];
    file.read_exact_at(&mut block, 4096).unwrap();
    assert_eq!(block, [5; 8192]);

    // A write clears set-user-ID; set-group-ID directories pass on their group.
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o6755)).unwrap();
    std::os::unix::fs::chown(&at, Some(0), Some(77)).unwrap();
    std::fs::set_permissions(&at, PermissionsExt::from_mode(0o2755)).unwrap();
    std::fs::create_dir(at.join("below")).unwrap();
    let below = std::fs::metadata(at.join("below")).unwrap();
    assert_eq!((below.gid(), below.mode() & 0o2000), (77, 0o2000));

    let full = std::fs::write(at.join("large"), vec![1; 65 << 20]).unwrap_err();
    assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
    mounted.unmount().unwrap();
}

/// Compared with what Linux allows on a file system of its own.
#[test]
fn immutable_and_append_only_files_are_what_they_are_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let (at, host) = (folder.path().join("mount"), folder.path().join("host"));
    let Some((mounted, _)) = mount(&at) else { return };
    std::fs::create_dir(&host).unwrap();
    for flag in ['i', 'a'] {
        let found = allowed(&at, flag).expect("the mount has flags");
        let Some(expected) = allowed(&host, flag) else { continue };
        assert_eq!(found, expected, "+{flag}");
        assert_eq!(found.is_empty(), flag == 'i', "+{flag}: {found:?}");
    }
    mounted.unmount().unwrap();
}

/// Synchronous writes are on the medium when the call returns.
#[test]
fn what_is_synchronous_is_synced() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().join("mount");
    let Some((mounted, fs)) = mount(&at) else { return };
    let synced = || fs.read().unwrap().synced();
    let syncs = |what: &str, is_sync: bool, act: &mut dyn FnMut()| {
        let before = synced();
        act();
        assert_eq!(synced() > before, is_sync, "{what}");
    };
    let open = |flags: rustix::fs::OFlags| {
        let mut options = File::options();
        options.write(true).create(true).custom_flags(flags.bits().cast_signed());
        options.open(at.join("file")).unwrap()
    };
    use rustix::fs::{IFlags, OFlags};
    let plain = open(OFlags::empty());
    syncs("plain", false, &mut || plain.write_all_at(b"x", 0).unwrap());
    for flags in [OFlags::SYNC, OFlags::DSYNC, OFlags::SYNC | OFlags::DIRECT] {
        let file = open(flags);
        syncs(&format!("{flags:?}"), true, &mut || file.write_all_at(&[1; 4096], 4096).unwrap());
    }
    rustix::fs::ioctl_setflags(&plain, IFlags::SYNC).unwrap();
    assert_eq!(rustix::fs::ioctl_getflags(&plain).unwrap(), IFlags::SYNC);
    syncs("chattr +S", true, &mut || plain.write_all_at(b"y", 9).unwrap());
    syncs("chattr +S", true, &mut || plain.set_len(3).unwrap());
    rustix::fs::ioctl_setflags(&plain, IFlags::empty()).unwrap();
    syncs("chattr -S", false, &mut || plain.write_all_at(b"z", 9).unwrap());

    std::fs::create_dir(at.join("names")).unwrap();
    let names = File::open(at.join("names")).unwrap();
    let name = |name: &str| at.join("names").join(name);
    syncs("plain names", false, &mut || std::fs::write(name("a"), "").unwrap());
    rustix::fs::ioctl_setflags(&names, IFlags::DIRSYNC).unwrap();
    syncs("create", true, &mut || std::fs::write(name("b"), "").unwrap());
    syncs("rename", true, &mut || std::fs::rename(name("b"), name("c")).unwrap());
    syncs("link", true, &mut || std::fs::hard_link(name("c"), name("d")).unwrap());
    syncs("unlink", true, &mut || std::fs::remove_file(name("c")).unwrap());
    mounted.unmount().unwrap();
}

/// `sync` does not reach a FUSE mount. With write-through it need not; otherwise everything is on
/// the medium shortly after the last change.
#[test]
fn a_mount_can_be_synchronous_as_a_whole() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().join("mount");
    let Some((mounted, fs)) = mount(&at) else { return };
    mounted.unmount().unwrap();
    let options =
        FuseOptions { source: "memory".into(), write_through: true, ..FuseOptions::default() };
    let mounted = flysch_fuse::mount_read_write(fs.clone(), &at, &options).unwrap();
    let mut before = fs.read().unwrap().synced();
    let mut more = |what: &str| {
        let now = fs.read().unwrap().synced();
        assert!(std::mem::replace(&mut before, now) < now, "{what}");
    };
    std::fs::create_dir(at.join("d")).unwrap();
    more("mkdir");
    std::fs::write(at.join("d/f"), "content").unwrap();
    more("write");
    std::fs::set_permissions(at.join("d/f"), PermissionsExt::from_mode(0o600)).unwrap();
    more("chmod");
    std::fs::remove_file(at.join("d/f")).unwrap();
    more("unlink");
    mounted.unmount().unwrap();
}
