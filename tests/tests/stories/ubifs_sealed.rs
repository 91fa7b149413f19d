//! Signed and encrypted images of mkfs.ubifs: with their keys, and as far as can be without.

use std::fs;
use std::process::Command;

use flysch_api::finding::Severity;
use flysch_api::vfs::FileKind;
use flysch_tests::ubifs::{
    FORMATS, differences, flash, host_tree, image_tree, make_tree, mkfs, tools_missing,
};
use flysch_ubifs::{AuthKey, FlatImage, Keys, MasterKey, Options, Proof, Ubifs};

fn damage(fs: &Ubifs<FlatImage<flysch_mtd::Image<Vec<u8>>>>) -> Vec<String> {
    let found = fs.check().into_iter().filter(|it| it.severity != Severity::Note);
    found.map(|it| it.to_string()).collect()
}

fn open(image: Vec<u8>) -> Ubifs<FlatImage<flysch_mtd::Image<Vec<u8>>>> {
    open_with(image, Keys::default())
}

fn open_with(image: Vec<u8>, keys: Keys) -> Ubifs<FlatImage<flysch_mtd::Image<Vec<u8>>>> {
    let volume = FlatImage::open(flash(image, &FORMATS[1])).expect("a superblock");
    let options = Options { keys: Some(keys.into()), ..Options::default() };
    Ubifs::open(volume, &options).expect("it opens")
}

#[test]
fn a_signed_image_is_verified_up_to_its_signature() {
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
        let image = mkfs(tree.path(), &FORMATS[1], "lzo", &more);
        // Another key than the one of the device it is for: it has no HMAC yet.
        let keys = Keys { auth: Some(AuthKey::new(b"any", None)), ..Keys::default() };
        let signed = open_with(image.clone(), keys);
        let verified = signed.verified().unwrap();
        assert_eq!((verified.superblock, verified.master), (Proof::Unverified, Proof::Hash));
        assert_eq!(verified.algorithm.name(), algorithm);
        assert_eq!(damage(&signed), Vec::<String>::new(), "{algorithm}");
        let fs = open(image);
        assert!(fs.findings().iter().any(|it| it.problem.contains("authenticated")), "{algorithm}");
        assert_eq!(damage(&fs), Vec::<String>::new(), "{algorithm}");
        let found = image_tree(&fs, &mut Vec::new());
        assert_eq!(differences(&host_tree(tree.path()), &found), Vec::<String>::new());
    }
}

#[test]
fn an_encrypted_image_is_read_with_its_key() {
    if tools_missing() {
        return;
    }
    let tree = tempfile::tempdir().unwrap();
    make_tree(tree.path());
    let bytes = std::array::from_fn::<u8, 64, _>(|at| at as u8);
    let key = tree.path().with_extension("key");
    fs::write(&key, bytes).unwrap();
    for (cipher, descriptor) in [("AES-256-XTS", Some([0x11; 8])), ("AES-128-CBC", None)] {
        let text: String = [0x11; 8].iter().map(|byte| format!("{byte:02x}")).collect();
        let key = key.to_str().unwrap();
        let mut more = vec!["--key", key, "--cipher", cipher, "--padding", "16"];
        if descriptor.is_some() {
            more.extend(["--key-descriptor", &text]);
        }
        let image = mkfs(tree.path(), &FORMATS[1], "lzo", &more);
        let masters = vec![MasterKey::new(&bytes, descriptor).unwrap()];
        let fs = open_with(image, Keys { masters, ..Keys::default() });
        assert_eq!(damage(&fs), Vec::<String>::new(), "{cipher}");
        let found = image_tree(&fs, &mut Vec::new());
        let different = differences(&host_tree(tree.path()), &found);
        assert_eq!(different, Vec::<String>::new(), "{cipher}");
    }
    fs::remove_file(key).unwrap();
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
