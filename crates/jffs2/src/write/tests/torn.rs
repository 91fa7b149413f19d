//! What another driver left when power was cut.

use super::*;

/// Linux takes a torn copy beside the node that was being copied for a reason to show older nodes.
#[test]
fn no_torn_copy_stays_and_nothing_else_goes() {
    let options = WriteOptions { compressors: Compressors::none(), ..WriteOptions::default() };
    let mut fs = Jffs2Mut::mount(Nor::paged(8), &options).unwrap();
    let file = create(&mut fs, b"file");
    let data = noise(1000);
    fs.write(file, 0, &data, NOW).unwrap();
    let other = create(&mut fs, b"other");
    fs.write(other, 0, &data, NOW).unwrap();
    fs.sync(None).unwrap();
    let node = |fs: &Jffs2Mut<Nor>, inode: Inode| {
        let nodes = fs.inodes().tables().inodes[&(inode.0 as u32)].living();
        let node = nodes.last().unwrap();
        let at = node.address.offset() as usize;
        at..at + node.total_len as usize
    };
    let (torn, whole) = (node(&fs, file), node(&fs, other));
    let mut flash = fs.into_flash();
    // A block without a stamp: a whole copy of one node, and the beginning of another.
    let block = (0..8).rev().find(|block| flash.is_erased(*block)).unwrap();
    let copies = [whole.clone(), torn.start..torn.end - 400];
    let bytes: Vec<u8> = copies
        .into_iter()
        .flat_map(|part| {
            let padding = part.len().next_multiple_of(4) - part.len();
            flash.bytes[part].iter().copied().chain((0..padding).map(|_| 0xFF)).collect::<Vec<_>>()
        })
        .collect();
    let marker = flash.bytes[block * BLOCK..][..BLOCK].iter().take_while(|it| **it != 0xFF).count();
    let start = block * BLOCK + marker.next_multiple_of(4);
    flash.bytes[start..start + bytes.len()].copy_from_slice(&bytes);
    // The one that was copied is not there any more.
    flash.bytes[whole.start + 1] = 0;
    let fs = Jffs2Mut::mount(flash, &options).unwrap();
    let mut found = vec![0; 1000];
    for inode in [file, other] {
        assert_eq!(fs.read(inode, 0, &mut found), Ok(1000));
        assert!(found == data);
    }
    let mut fs = fs;
    fs.sync(None).unwrap();
    let flash = fs.into_flash();
    assert!(flash.is_erased(block));
    let fs = Jffs2Mut::mount(flash, &options).unwrap();
    for inode in [file, other] {
        assert_eq!(fs.read(inode, 0, &mut found), Ok(1000));
        assert!(found == data);
    }
}

/// Linux collects an attribute that was replaced, and some time later the reference to it.
#[test]
fn a_reference_to_an_attribute_that_linux_replaced_is_no_loss() {
    let mut fs = Nor::new(8).mount();
    let inode = create(&mut fs, b"file");
    fs.set_xattr(inode, b"user.round", XattrChange::Set(b"5"), NOW).unwrap();
    fs.sync(None).unwrap();
    let at = fs.inodes().tables().xattrs.values().next().unwrap().address.offset() as usize;
    let mut flash = fs.into_flash();
    let whole = flash.clone();
    // Its node is marked obsolete, as on NOR.
    flash.bytes[at + 3] &= !0x20;
    assert_eq!(flash.worst(), Some(Severity::Note));
    let fs = flash.clone().mount();
    let mut names = 0;
    fs.list_xattrs(inode, &mut |_| names += 1).unwrap();
    assert_eq!(names, 0, "as Linux shows it");
    assert_eq!(
        fs.read_xattr(inode, b"user.round", &mut [0; 9]),
        Err(flysch_api::vfs::FsError::NoAttribute)
    );
    // With any sign of damage the attribute may be what was lost.
    let mut flash = whole;
    flash.bytes[at + 20] ^= 1;
    assert_eq!(flash.worst(), Some(Severity::Lost));
}
