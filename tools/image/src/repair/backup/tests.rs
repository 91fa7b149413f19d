use std::fs;
use std::path::PathBuf;

use super::*;

/// An image before and after a repair, and the backup of it.
struct Repaired {
    folder: tempfile::TempDir,
    old: Vec<u8>,
    new: Vec<u8>,
    backup: Vec<u8>,
}

impl Repaired {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut old = vec![7; 5 * 1024 + 100];
        for (number, block) in old.chunks_mut(1024).enumerate() {
            let number = number as u64;
            let header = EcHeader {
                erase_counter: number,
                vid_header_offset: 64,
                data_offset: 128,
                image_sequence: 99,
            };
            block[..64].copy_from_slice(&header.emit());
        }
        let mut new = old.clone();
        new[1500] = 1;
        new[4 * 1024 + 700] = 2;
        new.resize(7 * 1024, 0xFF);
        let mut this = Self { folder, old, new, backup: vec![] };
        let (one, other) = (this.file("old", &this.old), this.file("new", &this.new));
        let mut backup = vec![];
        assert_eq!(write_backup(&one, &other, 1024, &mut backup).unwrap(), 2);
        this.backup = backup;
        this
    }

    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    }

    /// Restores `image`; returns what it is then, or why it is not restored.
    fn restore(&self, backup: &[u8], image: &[u8]) -> Result<Vec<u8>, String> {
        let path = self.file("image", image);
        let restored = restore_backup(&mut &backup[..], &path);
        restored.map(|_| fs::read(&path).unwrap()).map_err(|error| error.to_string())
    }

    /// The same backup in the first format.
    fn stateless(&self) -> Vec<u8> {
        let size = (self.old.len() as u64).to_le_bytes();
        [MAGIC_STATELESS, &self.backup[8..12], &size, &self.backup[12 + 2 * State::SIZE..]].concat()
    }
}

#[test]
fn only_what_the_repair_left_is_restored() {
    let repaired = Repaired::new();
    let Repaired { old, new, backup, .. } = &repaired;
    assert_eq!(repaired.restore(backup, new).as_ref(), Ok(old));
    assert_eq!(repaired.restore(backup, old).as_ref(), Ok(old), "it is restored already");
    let mut edited = new.clone();
    edited[6000] ^= 1;
    for other in [&edited[..], &new[..6000], b"# A text", &[]] {
        let why = repaired.restore(backup, other).unwrap_err();
        assert!(why.starts_with("it does not belong to the image as it is"), "{why}");
        assert_eq!(fs::read(repaired.folder.path().join("image")).unwrap(), other);
    }
    let short = &backup[..backup.len() - 1024 - 16];
    let why = repaired.restore(short, new).unwrap_err();
    assert!(why.contains("do not give the image from before"), "{why}");
    let why = repaired.restore(b"FLYREPR2", new).unwrap_err();
    assert_eq!(why, "it is not a backup of a repair");
}

#[test]
fn a_backup_of_the_first_format_must_show_to_which_image_it_belongs() {
    let repaired = Repaired::new();
    let Repaired { old, new, .. } = &repaired;
    let backup = repaired.stateless();
    assert_eq!(repaired.restore(&backup, new).as_ref(), Ok(old));
    let mut other = new.clone();
    for block in other.chunks_mut(1024) {
        let Ok(header) = EcHeader::parse(block) else { continue };
        block[..64].copy_from_slice(&EcHeader { image_sequence: 98, ..header }.emit());
    }
    let why = repaired.restore(&backup, &other).unwrap_err();
    assert!(why.ends_with("this one has another number"), "{why}");
    let why = repaired.restore(&backup, &vec![0; new.len()]).unwrap_err();
    assert!(why.starts_with("it was made by an earlier version"), "{why}");
    let why = repaired.restore(&backup, &new[..5000]).unwrap_err();
    assert!(why.ends_with("this one is shorter"), "{why}");
}

#[test]
fn a_backup_is_known_by_the_image_from_which_it_was_made() {
    let repaired = Repaired::new();
    let backup = repaired.file("backup", &repaired.backup);
    let first = repaired.file("first", &repaired.stateless());
    for (name, expected) in [("old", true), ("new", false)] {
        let image = repaired.folder.path().join(name);
        assert_eq!(is_backup_of(&backup, &image).unwrap(), expected, "{name}");
        assert_eq!(is_backup_of(&first, &image).unwrap(), expected, "{name}");
    }
    let mut edited = repaired.old.clone();
    edited[100] ^= 1;
    let edited = repaired.file("edited", &edited);
    assert!(!is_backup_of(&backup, &edited).unwrap());
}
