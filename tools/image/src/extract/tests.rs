use std::os::unix::fs::MetadataExt as _;

use flysch_api::vfs::{DeviceNumber, FileSystemMut, NewFile, Timestamp};
use flysch_vfs::Memory;

use super::*;

const NOW: Timestamp = Timestamp { seconds: 1_700_000_000, nanoseconds: 0 };

fn new(kind: FileKind, permissions: u16, owner: u32) -> NewFile<'static> {
    NewFile { kind, permissions, owner, group: 0, device: DeviceNumber::default(), target: b"" }
}

fn mode(path: &Path) -> u32 {
    path.symlink_metadata().unwrap().mode() & 0o7777
}

/// No call sets this owner, whoever makes it.
#[test]
fn a_file_without_its_owner_does_not_run_as_another() {
    let mut fs = Memory::new(1 << 20, NOW);
    let root = fs.statistics().root;
    for (name, kind) in [("su", FileKind::Regular), ("pipe", FileKind::Fifo)] {
        fs.create(root, name.as_bytes(), &new(kind, 0o6755, u32::MAX), NOW).unwrap();
    }
    fs.create(root, b"d", &new(FileKind::Directory, 0o3755, u32::MAX), NOW).unwrap();
    fs.create(root, b"plain", &new(FileKind::Regular, 0o644, u32::MAX), NOW).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let done = extract(&fs, &out, &ExtractOptions::default(), &Progress::default()).unwrap();
    assert_eq!(done.failures, []);
    let modes = ["su", "pipe", "d", "plain"].map(|name| mode(&out.join(name)));
    assert_eq!(modes, [0o755, 0o755, 0o1755, 0o644]);
    assert_eq!(done.without_set_id, 3);
}
