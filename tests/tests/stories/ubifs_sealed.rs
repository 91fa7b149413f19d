//! Signed and encrypted images of mkfs.ubifs: recognised, shown as far as can be without a key.

use std::fs;
use std::process::Command;

use flysch_api::finding::Severity;
use flysch_api::vfs::FileKind;
use flysch_tests::ubifs::{
    FORMATS, differences, flash, host_tree, image_tree, make_tree, mkfs, tools_missing,
};
use flysch_ubifs::{FlatImage, Options, Ubifs};

fn damage(fs: &Ubifs<FlatImage<flysch_mtd::Image<Vec<u8>>>>) -> Vec<String> {
    let found = fs.check().into_iter().filter(|it| it.severity != Severity::Note);
    found.map(|it| it.to_string()).collect()
}

fn open(image: Vec<u8>) -> Ubifs<FlatImage<flysch_mtd::Image<Vec<u8>>>> {
    let volume = FlatImage::open(flash(image, &FORMATS[1])).expect("a superblock");
    Ubifs::open(volume, &Options::default()).expect("it opens")
}

#[test]
fn a_signed_image_is_read_and_said_to_be_unverified() {
    if tools_missing() {
        return;
    }
    let keys = tempfile::tempdir().unwrap();
    let (key, certificate) = (keys.path().join("key.pem"), keys.path().join("cert.pem"));
    let made = Command::new("openssl")
        .args(["req", "-new", "-nodes", "-batch", "-x509", "-days", "10", "-subj", "/CN=test"])
        .arg("-out")
        .arg(&certificate)
        .arg("-keyout")
        .arg(&key)
        .output();
    if !made.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: openssl is not installed");
        return;
    }
    let tree = tempfile::tempdir().unwrap();
    make_tree(tree.path());
    for algorithm in ["sha256", "sha512"] {
        let (key, certificate) = (key.to_str().unwrap(), certificate.to_str().unwrap());
        let more = ["--hash-algo", algorithm, "--auth-key", key, "--auth-cert", certificate];
        let fs = open(mkfs(tree.path(), &FORMATS[1], "lzo", &more));
        assert!(fs.findings().iter().any(|it| it.problem.contains("authenticated")), "{algorithm}");
        assert_eq!(damage(&fs), Vec::<String>::new(), "{algorithm}");
        let found = image_tree(&fs, &mut Vec::new());
        assert_eq!(differences(&host_tree(tree.path()), &found), Vec::<String>::new());
    }
}

#[test]
fn an_encrypted_image_shows_its_structure_and_refuses_its_content() {
    if tools_missing() {
        return;
    }
    let tree = tempfile::tempdir().unwrap();
    make_tree(tree.path());
    let key = tree.path().with_extension("key");
    fs::write(&key, std::array::from_fn::<u8, 64, _>(|at| at as u8)).unwrap();
    let more = [
        "--key",
        key.to_str().unwrap(),
        "--key-descriptor",
        "0011223344556677",
        "--cipher",
        "AES-256-XTS",
    ];
    let fs = open(mkfs(tree.path(), &FORMATS[1], "lzo", &more));
    fs::remove_file(key).unwrap();
    assert!(fs.findings().iter().any(|it| it.problem.contains("encrypted")));
    assert_eq!(damage(&fs), Vec::<String>::new());
    let expected = host_tree(tree.path());
    let found = image_tree(&fs, &mut Vec::new());
    assert_eq!(found.len(), expected.len(), "every file is there under some name");
    let sizes = |tree: &flysch_tests::ubifs::Tree| {
        let files = tree.values().filter(|file| file.kind == FileKind::Regular);
        let mut all: Vec<_> = files.map(|file| (file.permissions, file.owner)).collect();
        all.sort_unstable();
        all
    };
    assert_eq!(sizes(&found), sizes(&expected));
    for file in found.values() {
        match file.kind {
            // mkfs.ubifs leaves files with several names as they are.
            FileKind::Regular if file.links.0 > 1 => {
                assert!(file.content == expected[&b"text"[..]].content);
            }
            FileKind::Regular | FileKind::Symlink => {
                let refusal = file.content.as_ref().unwrap_err();
                assert!(refusal.contains("encrypted"), "{refusal}");
            }
            _ => assert_eq!(file.content, Ok(Vec::new())),
        }
    }
}
