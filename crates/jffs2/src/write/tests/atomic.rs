//! A call that is refused has changed nothing, however many nodes it would have written.

use flysch_api::vfs::{FsError, Rename};

use super::*;

const ACCESS: &[u8] = b"system.posix_acl_access";
const DEFAULT: &[u8] = b"system.posix_acl_default";

/// An access list with a mask, for these permissions.
fn list(permissions: u16) -> Vec<u8> {
    let allowed = |shift: u16| (permissions >> shift) as u8 & 7;
    let entries =
        [(1, allowed(6), u32::MAX), (2, 7, 1000), (4, 6, u32::MAX), (16, allowed(3), u32::MAX)];
    let mut list = vec![2, 0, 0, 0];
    for (tag, allowed, id) in entries.into_iter().chain([(32, allowed(0), u32::MAX)]) {
        list.extend([tag, 0, allowed, 0]);
        list.extend(id.to_le_bytes());
    }
    list
}

#[test]
fn permissions_and_their_access_list_change_together_or_not_at_all() {
    let mut refused = 0;
    for len in (20..400).step_by(12) {
        let mut fs = Nor::new(8).mount();
        let (inode, other) = (create(&mut fs, b"file"), create(&mut fs, b"other"));
        fs.set_xattr(inode, ACCESS, XattrChange::Set(&list(0o664)), NOW).unwrap();
        let mut expected = 0o664;
        let data = noise(len);
        for (at, permissions) in (0..).step_by(len).zip([0o751, 0o640].into_iter().cycle()) {
            let written = fs.write(other, at, &data, NOW);
            let changes = Changes { permissions: Some(permissions), ..Changes::default() };
            match fs.set_attributes(inode, &changes, NOW) {
                Ok(()) => expected = permissions,
                Err(error) => {
                    assert_eq!(error, FsError::NoSpace);
                    refused += 1;
                }
            }
            let mut found = [0; 100];
            let found_len = fs.read_xattr(inode, ACCESS, &mut found).unwrap();
            assert!(found[..found_len] == list(expected), "{len} bytes each, at {at}");
            assert_eq!(fs.attributes(inode).unwrap().permissions, expected);
            if written.is_err() {
                break;
            }
        }
    }
    assert!(refused > 5, "{refused}");
}

#[test]
fn a_link_to_a_file_that_cannot_be_told_of_it_is_not_made() {
    let mut fs = Nor::new(8).mount();
    let root = fs.statistics().root;
    let inode = create(&mut fs, b"file");
    let other = create(&mut fs, b"other");
    // A crafted image may say so.
    fs.inodes_mut().tables_mut().state_mut(inode.0 as u32).unwrap().version = u32::MAX;
    let worn = |result: Result<(), FsError>| matches!(result, Err(FsError::Unsupported(_)));
    assert!(worn(fs.link(inode, root, b"link", NOW)));
    assert_eq!(fs.lookup(root, b"link"), Err(FsError::NotFound));
    assert!(worn(fs.rename((root, b"file"), (root, b"moved"), Rename::Replace, NOW)));
    assert_eq!(fs.lookup(root, b"moved"), Err(FsError::NotFound));
    assert_eq!(fs.lookup(root, b"file"), Ok(inode));
    fs.link(other, root, b"link", NOW).unwrap();
}

/// A directory that is created with both of its lists.
fn create_with_lists<F: FlashMut>(fs: &mut Jffs2Mut<F>, name: &[u8]) -> Result<Inode, FsError> {
    let file = NewFile {
        kind: FileKind::Directory,
        permissions: 0o770,
        owner: 0,
        group: 0,
        device: DeviceNumber::default(),
        target: &[],
    };
    let (access, default) = (list(0o770), list(0o777));
    let lists = [(ACCESS, &access[..]), (DEFAULT, &default[..])];
    fs.create_with_xattrs((fs.statistics().root, name), &file, &lists, NOW)
}

fn has_its_lists<F: FlashMut>(fs: &Jffs2Mut<F>, inode: Inode) -> bool {
    let mut found = [0; 100];
    let mut read = |name| fs.read_xattr(inode, name, &mut found).map(|len| found[..len].to_vec());
    read(ACCESS) == Ok(list(0o770)) && read(DEFAULT) == Ok(list(0o777))
}

#[test]
fn a_power_cut_leaves_no_new_file_without_its_attributes() {
    let empty = Nor::new(8).mount().into_flash();
    let mut cuts = 0;
    for operations in 0.. {
        let flash = Nor { left: Some(operations), ..empty.clone() };
        let Ok(mut fs) = Jffs2Mut::mount(flash, &WriteOptions::default()) else { continue };
        let made = create_with_lists(&mut fs, b"new").and_then(|_| fs.sync(None));
        let mut flash = fs.into_flash();
        flash.left = None;
        let fs = flash.mount();
        match fs.lookup(fs.statistics().root, b"new") {
            Ok(inode) => assert!(has_its_lists(&fs, inode), "{operations} operations"),
            Err(error) => assert_eq!((error, made.is_err()), (FsError::NotFound, true)),
        }
        assert!(fs.into_flash().worst() <= Some(Severity::Note), "{operations} operations");
        if made.is_ok() {
            break;
        }
        cuts += 1;
    }
    assert!(cuts > 3, "{cuts}");
}

#[test]
fn a_file_whose_attributes_do_not_fit_is_not_created() {
    let mut fs = Nor::new(8).mount();
    let root = fs.statistics().root;
    let names = (0..).map(|number| format!("{number:0100}"));
    let refused = names.map(|name| (create_with_lists(&mut fs, name.as_bytes()), name));
    let (error, name) = refused.into_iter().find(|(made, _)| made.is_err()).unwrap();
    assert_eq!(error, Err(FsError::NoSpace));
    assert_eq!(fs.lookup(root, name.as_bytes()), Err(FsError::NotFound));
    let first = fs.lookup(root, format!("{:0100}", 0).as_bytes()).unwrap();
    assert!(has_its_lists(&fs, first));
}
