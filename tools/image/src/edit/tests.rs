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
    let options = PutOptions { owner: Some((7, 8)), permissions: Some(0o600) };
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
    editor.rename(b"/etc/second", b"/").unwrap();
    let changes = Changes { owner: Some(9), permissions: Some(0o700), ..Changes::default() };
    editor.change(b"/etc", &changes, true).unwrap();
    editor.set_xattr(b"/second", b"user.a", XattrChange::Set(b"b")).unwrap();
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
        (b"/no/file", "/no: no such file, directory or attribute"),
        (b"/..", "/..: this is no name of a file"),
        (b"/", "/: this is no name of a file"),
    ];
    for (path, expected) in cases {
        let error = editor.make(path, FileKind::Regular, 0, DeviceNumber::default()).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
    editor.make(b"/file", FileKind::Regular, 0o644, DeviceNumber::default()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let error = editor.put(folder.path(), b"/file", PutOptions::default()).unwrap_err();
    assert_eq!(error.to_string(), "/file: something is there, no directory");
    let missing = folder.path().join("missing");
    let error = editor.put(&missing, b"/x", PutOptions::default()).unwrap_err();
    assert!(error.to_string().contains("missing: No such file"), "{error}");
}
