//! FUSE mounts that can be changed: what programs do to them is what they do to a directory.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, RwLock};

use crate::image_common::{differences, is_root, make_tree, snapshot};
use flysch_api::vfs::{FileSystem, Timestamp};
use flysch_fuse::{Mounted, Options};
use flysch_vfs::Memory;

/// A mount of something new, and what is mounted.
fn mount(at: &Path) -> Option<(Mounted, Arc<RwLock<Memory>>)> {
    if !Path::new("/dev/fuse").exists() || !is_root() {
        println!("skipped: there is no /dev/fuse, or this is not root");
        return None;
    }
    std::fs::create_dir_all(at).unwrap();
    let start = Timestamp { seconds: 1_000_000_000, nanoseconds: 0 };
    let fs = Arc::new(RwLock::new(Memory::new(64 << 20, start)));
    let options = Options { source: "memory".into(), threads: 2, trusted: true };
    let mounted = flysch_fuse::mount_read_write(fs.clone(), at, &options).unwrap();
    Some((mounted, fs))
}

#[test]
fn a_tree_copied_into_the_mount_is_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let (real, at) = (folder.path().join("real"), folder.path().join("mount"));
    let Some((mounted, fs)) = mount(&at) else { return };
    make_tree(&real);
    let tree = at.join("tree");
    let copied = Command::new("cp").args(["-a", "--"]).args([&real, &tree]).status().unwrap();
    assert!(copied.success());
    let (expected, found) = (snapshot(&real), snapshot(&tree));
    let different = differences(&expected, &found);
    assert!(different.is_empty(), "{}", different.join("\n"));
    assert!(expected.len() > 10);
    // Everything goes again, and the space with it.
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
    // The kernel lets go a moment later.
    for _ in 0..200 {
        if fs.read().unwrap().statistics().files == Some(1) {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert_eq!(fs.read().unwrap().statistics().files, Some(1));
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

    // Around the kernel's cache.
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

    // Set-user-id goes with a write, set-group-id directories hand down their group.
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
