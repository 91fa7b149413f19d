use std::os::unix::fs::{PermissionsExt, symlink};

use flysch_vfs::Memory;

use super::*;

const NOW: Timestamp = Timestamp { seconds: 1_700_000_000, nanoseconds: 5 };

fn memory() -> Memory {
    Memory::new(1 << 20, NOW)
}

fn content(fs: &Memory, path: &[u8]) -> Vec<u8> {
    let mut content = vec![0; 1 << 20];
    let len = fs.read(resolve(fs, path).unwrap(), 0, &mut content).unwrap();
    content.truncate(len);
    content
}

#[test]
fn a_tree_is_put_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("tree");
    std::fs::create_dir_all(tree.join("below")).unwrap();
    std::fs::write(tree.join("below/a"), "content of a").unwrap();
    std::fs::hard_link(tree.join("below/a"), tree.join("b")).unwrap();
    symlink("below/a", tree.join("link")).unwrap();
    let sparse = std::fs::File::create(tree.join("sparse")).unwrap();
    sparse.set_len(500_000).unwrap();
    std::fs::set_permissions(tree.join("b"), PermissionsExt::from_mode(0o4711)).unwrap();

    let mut fs = memory();
    let mut editor = Editor::new(&mut fs, NOW);
    let put = editor.put(&tree, b"/", PutOptions::default()).unwrap();
    assert_eq!((put.files, put.bytes), (6, 12));
    editor.finish().unwrap();
    let (a, b) = (resolve(&fs, b"/tree/below/a").unwrap(), resolve(&fs, b"/tree/b").unwrap());
    assert_eq!(a, b);
    let attributes = fs.attributes(a).unwrap();
    assert_eq!((attributes.links, attributes.permissions), (2, 0o4711));
    assert_eq!(content(&fs, b"/tree/b"), b"content of a");
    assert_eq!(content(&fs, b"/tree/link"), b"below/a");
    assert_eq!(content(&fs, b"/tree/sparse"), vec![0; 500_000]);

    // Again, over what is there, with other owners.
    std::fs::write(tree.join("below/a"), "new").unwrap();
    let options = PutOptions { owner: Some(7), group: Some(8), permissions: Some(0o600) };
    Editor::new(&mut fs, NOW).put(&tree, b"/", options).unwrap();
    let attributes = fs.attributes(resolve(&fs, b"/tree/below/a").unwrap()).unwrap();
    assert_eq!((attributes.owner, attributes.group, attributes.permissions), (7, 8, 0o600));
    assert_eq!(content(&fs, b"/tree/b"), b"new");
}

#[test]
fn every_edit_does_what_its_name_says() {
    let mut fs = memory();
    let mut editor = Editor::new(&mut fs, NOW);
    editor.make_directory(b"/etc/init.d", 0o755, true).unwrap();
    editor.make_directory(b"/etc/init.d", 0o755, true).unwrap();
    let again = editor.make_directory(b"/etc", 0o755, false).unwrap_err();
    assert_eq!(again.to_string(), "/etc: the name exists already");
    let mut input = &b"host"[..];
    editor.put_content(&mut input, b"/etc/hostname", PutOptions::default()).unwrap();
    editor.symlink(b"hostname", b"/etc/name").unwrap();
    editor.link(b"/etc/hostname", b"/etc/second").unwrap();
    let console = DeviceNumber { major: 5, minor: 1 };
    editor.make(b"/console", FileKind::CharacterDevice, 0o600, console).unwrap();
    editor.rename(b"/etc/second", b"/", false).unwrap();
    let changes = |it: &Attributes| Changes {
        owner: Some(9),
        permissions: (it.kind != FileKind::Symlink).then_some(0o700),
        ..Changes::default()
    };
    editor.change(b"/etc", &changes, Reach { recursive: true, link_itself: false }).unwrap();
    editor.set_xattr(b"/second", b"user.a", XattrChange::Set(b"b"), false).unwrap();
    let full = editor.remove(b"/etc", false).unwrap_err();
    assert_eq!(full.to_string(), "/etc: the directory is not empty");
    assert_eq!(content(&fs, b"/second"), b"host");
    let find = |fs: &Memory, path: &[u8]| fs.attributes(resolve(fs, path).unwrap()).unwrap();
    assert_eq!(
        (find(&fs, b"/etc/init.d").owner, find(&fs, b"/etc/init.d").permissions),
        (9, 0o700)
    );
    assert_eq!(find(&fs, b"/etc/name").permissions, 0o777);
    assert_eq!(find(&fs, b"/console").device, console);
    Editor::new(&mut fs, NOW).remove(b"/etc", true).unwrap();
    assert_eq!(find(&fs, b"/second").links, 1);
    assert_eq!(fs.statistics().files, Some(3));
}

#[test]
fn what_can_not_be_says_why() {
    let mut fs = memory();
    let mut editor = Editor::new(&mut fs, NOW);
    let cases: [(&[u8], &str); 3] = [
        (b"/no/file", "/no: no such file or directory"),
        (b"/..", "/..: not a valid name of a file"),
        (b"/", "/: not a valid name of a file"),
    ];
    for (path, expected) in cases {
        let error = editor.make(path, FileKind::Regular, 0, DeviceNumber::default()).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
    editor.make(b"/file", FileKind::Regular, 0o644, DeviceNumber::default()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let error = editor.put(folder.path(), b"/file", PutOptions::default()).unwrap_err();
    assert_eq!(error.to_string(), "/file: something other than a directory is in the way");
    let missing = folder.path().join("missing");
    let error = editor.put(&missing, b"/x", PutOptions::default()).unwrap_err();
    assert!(error.to_string().contains("missing: No such file"), "{error}");
}

/// As mv, ln, rm and touch do.
#[test]
fn a_slash_at_the_end_means_a_directory() {
    let mut fs = memory();
    let mut editor = Editor::new(&mut fs, NOW);
    let none = DeviceNumber::default();
    editor.make(b"/a", FileKind::Regular, 0o644, none).unwrap();
    editor.make_directory(b"/dir/", 0o755, false).unwrap();
    editor.make_directory(b"/p/q/", 0o755, true).unwrap();
    let mut input = &b"x"[..];
    let results = [
        editor.rename(b"/a", b"/new/", false),
        editor.rename(b"/a/", b"/new", false),
        editor.symlink(b"a", b"/new/"),
        editor.link(b"/a", b"/new/"),
        editor.make(b"/new/", FileKind::Fifo, 0o644, none),
        editor.touch(b"/new/", None, true),
        editor.put_content(&mut input, b"/new/", PutOptions::default()).map(drop),
        editor.remove(b"/a/", false),
    ];
    for result in results {
        let why = result.unwrap_err().to_string();
        assert!(why.ends_with("/: there is no such directory"), "{why}");
    }
    editor.rename(b"/dir/", b"/new/", false).unwrap();
    editor.rename(b"/a", b"/new/", false).unwrap();
    editor.remove(b"/new/", true).unwrap();
    assert_eq!(fs.statistics().files, Some(3));
}

#[test]
fn the_content_of_a_directory_goes_into_another_also_the_root() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join("etc/below")).unwrap();
    std::fs::write(folder.path().join("etc/below/file"), "content").unwrap();
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o711)).unwrap();
    let mut fs = memory();
    let mut editor = Editor::new(&mut fs, NOW);
    editor.make_directory(b"/real", 0o755, false).unwrap();
    editor.symlink(b"/real", b"/etc").unwrap();
    let refused = editor.put(&folder.path().join("."), b"/", PutOptions::default()).unwrap_err();
    assert_eq!(refused.to_string(), "/etc: something other than a directory is in the way");
    editor.put(&folder.path().join("etc/."), b"/etc", PutOptions::default()).unwrap();
    editor.remove(b"/etc", false).unwrap();
    editor.put(&folder.path().join("."), b"/", PutOptions::default()).unwrap();
    assert_eq!(content(&fs, b"/real/below/file"), b"content");
    assert_eq!(content(&fs, b"/etc/below/file"), b"content");
    assert_eq!(fs.attributes(fs.statistics().root).unwrap().permissions, 0o711);
}

#[test]
fn owners_are_those_of_the_image() {
    let mut fs = memory();
    let mut editor = Editor::new(&mut fs, NOW);
    let root: OwnerChange = "root:root".parse().unwrap();
    assert_eq!(editor.owners(&root).unwrap(), (Some(0), Some(0)), "without any list");
    editor.make_directory(b"/usr/etc", 0o755, true).unwrap();
    editor.symlink(b"usr/etc", b"/etc").unwrap();
    let passwd = b"# users\nwww:x:33:34::/:/bin/sh\nroot:x:1:2:::\nbad:x:y:z\n";
    editor.put_content(&mut &passwd[..], b"/etc/passwd", PutOptions::default()).unwrap();
    editor.put_content(&mut &b"adm:x:4:www\n"[..], b"/etc/group", PutOptions::default()).unwrap();
    for (text, expected) in [
        ("www", (Some(33), None)),
        ("www:", (Some(33), Some(34))),
        (":adm", (None, Some(4))),
        ("33:adm", (Some(33), Some(4))),
        ("7:8", (Some(7), Some(8))),
        ("root", (Some(1), None)),
    ] {
        let change: OwnerChange = text.parse().unwrap();
        assert_eq!(editor.owners(&change).unwrap(), expected, "{text}");
    }
    let unknown = editor.owners(&"bad:none".parse().unwrap()).unwrap_err().to_string();
    assert_eq!(unknown, "`bad` is not in the image's /etc/passwd: give the number");
    for text in ["", ":", "a:b:c"] {
        assert!(text.parse::<OwnerChange>().is_err(), "{text}");
    }
}

#[test]
fn a_group_gains_nothing_by_a_list_that_the_format_cannot_hold() {
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    let image = folder.path().join("image");
    crate::testing::ubifs(&tree, &image, 64);
    std::fs::write(tree.join("file"), "content").unwrap();
    std::fs::set_permissions(tree.join("file"), PermissionsExt::from_mode(0o644)).unwrap();
    // Owner rw, the user 7 rwx, group r, mask rwx, others r.
    let entries = [(1, 6, -1), (2, 7, 7), (4, 4, -1), (0x10, 7, -1), (0x20, 4, -1)];
    let entry = |(tag, allowed, id): (u16, u16, i32)| {
        [&tag.to_le_bytes()[..], &allowed.to_le_bytes(), &id.to_le_bytes()].concat()
    };
    let list = [2_u32.to_le_bytes().to_vec(), entries.into_iter().flat_map(entry).collect()];
    let flags = rustix::fs::XattrFlags::empty();
    let name = "system.posix_acl_access";
    if rustix::fs::setxattr(tree.join("file"), name, &list.concat(), flags).is_err() {
        eprintln!("nothing is tested: the file system of this machine has no lists");
        return;
    }
    let opened = crate::Image::open(&image, &crate::ImageOpenOptions::default()).unwrap();
    let room = crate::Room { bytes: Some(1 << 20), ..crate::Room::default() };
    let writable = opened.open_writable(opened.volumes().next().unwrap(), &room).unwrap();
    let shared = writable.file_system();
    let mut fs = shared.write().unwrap();
    let mut editor = Editor::new(&mut *fs, NOW);
    let put = editor.put(&tree.join("file"), b"/", PutOptions::default()).unwrap();
    assert_eq!(put.without_xattr, 1);
    let named = PutOptions { permissions: Some(0o660), ..PutOptions::default() };
    let _ = editor.put(&tree.join("file"), b"/named", named).unwrap();
    let modes = ["/file", "/named"].map(|path| {
        let inode = resolve(&*fs, path.as_bytes()).unwrap();
        fs.attributes(inode).unwrap().permissions
    });
    assert_eq!(modes, [0o644, 0o660]);
}
