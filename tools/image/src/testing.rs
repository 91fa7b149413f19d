//! Images for tests.

use std::fs;
use std::path::Path;

use flysch_ubi::create::ImageOptions;
use flysch_ubifs::create::{CreateOptions, Packing};
use flysch_wire::ubifs::Compression;

use crate::create::{Making, Tree, TreeOptions, UbiPlan, UbifsOptions, UbifsWritten, create_ubifs};

/// A UBI image with dynamic volumes: the name of each, the bytes of its content, its size.
pub(crate) fn ubi(peb_size: u32, min_io_size: u32, volumes: &[(&str, usize, u64)]) -> Vec<u8> {
    let content =
        |bytes: usize| (0..bytes as u32).map(|at| (at * 7 + at / 251) as u8).collect::<Vec<_>>();
    let contents: Vec<_> = volumes.iter().map(|(_, bytes, _)| content(*bytes)).collect();
    let volumes: Vec<_> =
        volumes.iter().zip(&contents).map(|(it, content)| (it.0, &content[..], it.2)).collect();
    ubi_of(peb_size, min_io_size, &volumes)
}

/// The same with these contents.
pub(crate) fn ubi_of(peb_size: u32, min_io_size: u32, volumes: &[(&str, &[u8], u64)]) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let mut ini = String::new();
    for (id, (name, content, size)) in volumes.iter().enumerate() {
        let path = folder.path().join(name);
        fs::write(&path, content).unwrap();
        let image = path.display();
        ini += &format!(
            "[{name}]\nmode=ubi\nimage={image}\nvol_id={id}\nvol_type=dynamic\nvol_name={name}\n\
             vol_size={size}\n"
        );
    }
    let options = ImageOptions {
        peb_size,
        min_io_size,
        sub_page_size: None,
        vid_header_offset: None,
        erase_counter: 0,
        image_sequence: 0,
    };
    let plan = UbiPlan::new(("ini", &ini), options, Some(7)).unwrap();
    let mut image = vec![];
    plan.write(&mut image, &Making::default()).unwrap();
    image
}

/// Makes the bare UBIFS `image` of the files in `directory`, which may grow to `lebs_max` LEBs.
pub(crate) fn ubifs(directory: &Path, image: &Path, lebs_max: u32) {
    let _ = ubifs_of(
        &Tree::from_directory(directory, &TreeOptions::default()).unwrap(),
        image,
        lebs_max,
    );
}

/// The same of a tree.
pub(crate) fn ubifs_of(tree: &Tree, image: &Path, lebs_max: u32) -> UbifsWritten {
    let options = UbifsOptions {
        format: CreateOptions::new(512, 15_360, lebs_max),
        packing: Packing::new(Compression::None),
        threads: 1,
        keys: None,
        signer: None,
        policy: None,
    };
    let out = fs::File::create_new(image).unwrap();
    create_ubifs(tree, &options, &out, &Making::default()).unwrap()
}

/// Spoils the node of an inode in the bare UBIFS `image`.
pub(crate) fn spoil_inode(image: &Path, inode: u32) {
    let mut bytes = fs::read(image).unwrap();
    let is_it = |node: &[u8]| {
        node.starts_with(&[0x31, 0x18, 0x10, 0x06])
            && node[20] == 0
            && node[24..28] == inode.to_le_bytes()
    };
    let at: Vec<usize> =
        (0..bytes.len() - 160).step_by(8).filter(|&at| is_it(&bytes[at..])).collect();
    assert!(!at.is_empty());
    at.into_iter().for_each(|at| bytes[at + 80] ^= 1);
    fs::write(image, bytes).unwrap();
}
