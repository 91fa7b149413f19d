use std::fs;
use std::path::Path;

use flysch_api::vfs::{FsError, Timestamp};

use super::*;
use crate::{EditError, Editor, ImageOpenOptions, testing};

const NOW: Timestamp = Timestamp { seconds: 1_700_000_000, nanoseconds: 0 };

/// Removes `/d` in a copy of `image`, given that room; returns the blocks that there were.
fn remove(image: &Path, room: &Room) -> (u64, Result<(), EditError>) {
    let copy = image.with_extension("copy");
    fs::copy(image, &copy).unwrap();
    let opened = Image::open(&copy, &ImageOpenOptions::default()).unwrap();
    let volume = opened.volumes().next().unwrap();
    let writable = opened.open_writable(volume, room).unwrap();
    let blocks = writable.blocks();
    let shared = writable.file_system();
    let mut locked = shared.write().unwrap();
    let mut editor = Editor::new(&mut *locked, NOW);
    let removed = editor.remove(b"/d", true).and_then(|()| editor.finish());
    (blocks, removed)
}

/// What a removal needs is not known before: it gets more until it fits, or no more is to be had.
#[test]
fn changes_get_the_room_that_they_need() {
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("tree");
    fs::create_dir_all(tree.join("d")).unwrap();
    for number in 0..6000 {
        fs::write(tree.join(format!("d/{number}")), "x").unwrap();
    }
    let first = Room { flash_size: None, bytes: Some(16 << 10) };
    for (lebs_max, fits) in [(400, true), (157, false)] {
        let image = folder.path().join(format!("image-{lebs_max}"));
        testing::ubifs(&tree, &image, lebs_max);
        let size = fs::metadata(&image).unwrap().len();
        let (mut blocks, removed) = remove(&image, &first);
        assert!(removed.unwrap_err().lacks_room());
        let mut has_room = false;
        for attempt in 1.. {
            let Some(room) = first.for_attempt(attempt, size) else { break };
            let (now, removed) = remove(&image, &room);
            has_room = removed.is_ok();
            if has_room || now <= blocks {
                break;
            }
            blocks = now;
        }
        assert_eq!(has_room, fits, "{lebs_max}");
    }
    assert_eq!(Room { flash_size: Some(1 << 30), ..first }.for_attempt(1, 1), None);
    assert!(!EditError::Sync(FsError::ReadOnly).lacks_room());
}

/// A UBI device needs more blocks than the named flash has.
#[test]
fn an_image_that_cannot_be_opened_does_not_grow() {
    let folder = tempfile::tempdir().unwrap();
    let inner = folder.path().join("inner");
    let tree = folder.path().join("tree");
    fs::create_dir(&tree).unwrap();
    testing::ubifs(&tree, &inner, 64);
    let bytes = testing::ubi_of(16 << 10, 512, &[("fs", &fs::read(&inner).unwrap(), 64 * 15_360)]);
    let path = folder.path().join("image");
    fs::write(&path, &bytes).unwrap();
    let image = Image::open(&path, &ImageOpenOptions::default()).unwrap();
    let volume = image.volumes().next().unwrap();
    let flash_size = Some(bytes.len() as u64 + (4 << 14));
    let refused = image.open_writable(volume, &Room { flash_size, bytes: None }).unwrap_err();
    assert!(matches!(refused, WritableError::NoRoom(_)), "{refused}");
    assert_eq!(fs::metadata(&path).unwrap().len(), bytes.len() as u64);
    let flash_size = Some(100 << 14);
    drop(image.open_writable(volume, &Room { flash_size, bytes: None }).unwrap());
    assert_eq!(fs::metadata(&path).unwrap().len(), 100 << 14);
}
