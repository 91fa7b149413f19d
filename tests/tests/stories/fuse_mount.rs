//! FUSE mounts: the kernel shows the tree that an image was made from.

use std::path::Path;

use crate::image_common::{differences, has_mtd_utils, make_tree, mkfs_jffs2, open, snapshot};
use flysch_fuse::{Ended, FuseOptions, Mounted};

/// Whether FUSE works here; prints a message if not.
fn has_fuse() -> bool {
    let found = Path::new("/dev/fuse").exists() && crate::image_common::is_root();
    if !found {
        println!("skipped: there is no /dev/fuse, or this is not root");
    }
    found
}

fn is_mounted(directory: &Path) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    mounts.lines().any(|line| line.split(' ').nth(1) == directory.to_str())
}

fn mount(image: &Path, directory: &Path) -> Mounted {
    std::fs::create_dir_all(directory).unwrap();
    // Device nodes are compared, so they must be enabled.
    let options = FuseOptions {
        source: image.display().to_string(),
        threads: 2,
        trusted: true,
        write_through: false,
    };
    let mounted = flysch_fuse::mount(open(image), directory, &options).unwrap();
    assert!(is_mounted(mounted.path()));
    mounted
}

#[test]
fn a_mount_shows_the_tree_and_goes_away() {
    if !has_mtd_utils() || !has_fuse() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (tree, image) = (folder.path().join("tree"), folder.path().join("image"));
    make_tree(&tree);
    mkfs_jffs2(&tree, &image, &["-e", "64KiB", "-l"]);
    let directory = folder.path().join("mnt");

    let mounted = mount(&image, &directory);
    let different = differences(&snapshot(&tree), &snapshot(&directory));
    assert!(different.is_empty(), "{}", different.join("\n"));
    // Again, from the kernel's caches, by several readers at once.
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert_eq!(snapshot(&directory), snapshot(&tree)));
        }
    });
    let error = std::fs::write(directory.join("new"), b"").unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    let error = std::fs::metadata(directory.join("nothing")).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
    let statistics = rustix::fs::statvfs(&directory).unwrap();
    assert_eq!(statistics.f_namemax, 254);
    assert!(statistics.f_blocks > 0);
    mounted.unmount().unwrap();
    assert!(!is_mounted(&directory));

    // Unmounted by somebody else: the waiting thread is notified.
    let mounted = mount(&image, &directory);
    let waiting = std::thread::spawn(move || mounted.wait().unwrap());
    crate::image_common::run("umount", &[directory.to_str().unwrap()]);
    assert_eq!(waiting.join().unwrap(), Ended::Unmounted);

    // Dropped: unmounted as well, even if somebody still uses it.
    let mounted = mount(&image, &directory);
    let inside = std::fs::File::open(directory.join("random")).unwrap();
    drop(mounted);
    assert!(!is_mounted(&directory));
    drop(inside);
}

#[test]
fn a_signal_ends_a_mount() {
    if !has_mtd_utils() || !has_fuse() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (tree, image) = (folder.path().join("tree"), folder.path().join("image"));
    make_tree(&tree);
    mkfs_jffs2(&tree, &image, &["-e", "64KiB", "-b"]);
    let directory = folder.path().join("mnt");
    let mounted = mount(&image, &directory);
    mounted.end_on_signals().unwrap();
    rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::TERM)
        .unwrap();
    assert_eq!(mounted.wait().unwrap(), Ended::Signal);
    assert!(!is_mounted(&directory));
}

/// Large directories are listed in pieces, with seeking.
#[test]
fn ten_thousand_names_are_listed_once_each() {
    if !has_mtd_utils() || !has_fuse() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (tree, image) = (folder.path().join("tree"), folder.path().join("image"));
    std::fs::create_dir(&tree).unwrap();
    for number in 0..10_000 {
        std::fs::write(tree.join(format!("a name that is not short {number:05}")), b"").unwrap();
    }
    mkfs_jffs2(&tree, &image, &["-e", "128KiB", "-l", "-n"]);
    let directory = folder.path().join("mnt");
    let mounted = mount(&image, &directory);
    let mut names: Vec<_> =
        std::fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names.len(), 10_000);
    names.dedup();
    assert_eq!(names.len(), 10_000);
    mounted.unmount().unwrap();
}
