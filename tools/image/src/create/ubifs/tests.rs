use flysch_api::vfs::Timestamp;

use super::*;
use crate::{ImageOpenOptions, ImageVolume, testing};

/// Owner, the user 7, group, mask, others.
const LIST: [(u16, u16); 5] = [(1, 6), (2, 7), (4, 4), (0x10, 7), (0x20, 4)];

#[test]
fn a_group_gains_nothing_by_a_list_that_is_left_out() {
    let mut tree = Tree::empty(Timestamp::default());
    let mut file = Entry::new(FileKind::Regular, 0o674, (0, 0), [Timestamp::default(); 3]);
    let entry = |(tag, allowed): (u16, u16)| {
        [&tag.to_le_bytes()[..], &allowed.to_le_bytes(), &[0xFF; 4]].concat()
    };
    let list = [2_u32.to_le_bytes().to_vec(), LIST.into_iter().flat_map(entry).collect()];
    file.xattrs = vec![(acl::ACCESS.to_vec(), list.concat())];
    let _ = tree.add(0, b"file", file);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    let written = testing::ubifs_of(&tree, &path, 64);
    assert_eq!(written.notes.len(), 1);
    let image = crate::Image::open(&path, &ImageOpenOptions::default()).unwrap();
    let fs = image.volumes().find_map(ImageVolume::file_system).unwrap();
    let inode = crate::resolve(&*fs, b"/file").unwrap();
    assert_eq!(fs.attributes(inode).unwrap().permissions, 0o644);
}
