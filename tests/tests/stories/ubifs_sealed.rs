//! Signed and encrypted images of mkfs.ubifs: with their keys, and as far as can be without.

use std::fs;
use std::process::Command;

use flysch_api::finding::Severity;
use flysch_api::vfs::FileKind;
use flysch_tests::command;
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

/// What a user does with such an image and the file of its key.
#[test]
fn the_command_reads_and_changes_with_keys_and_says_what_is_wrong_with_them() {
    if tools_missing() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let run = |words: &str| command::run_in(words, folder);
    let tree = folder.join("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("plans"), b"of great import").unwrap();
    let bytes = std::array::from_fn::<u8, 64, _>(|at| at as u8);
    fs::write(folder.join("key"), bytes).unwrap();
    fs::write(folder.join("other"), [9; 64]).unwrap();
    let key = folder.join("key");
    let more = ["--key", key.to_str().unwrap(), "--cipher", "AES-256-XTS", "--padding", "16"];
    let image = mkfs(&tree, &FORMATS[1], "lzo", &more);
    fs::write(folder.join("image"), &image).unwrap();
    // Without the key there are files, under no name that anybody gave them.
    let listed = run("image ls image");
    assert_eq!(listed.status, 0, "{}", listed.stderr);
    assert!(!listed.stdout.contains("plans"), "{}", listed.stdout);
    assert_ne!(run("image cat image /plans").status, 0);
    let listed = run("image ls --key key image");
    assert!(listed.stdout.contains("plans"), "{}{}", listed.stdout, listed.stderr);
    assert_eq!(run("image cat --key key image /plans").stdout, "of great import");
    let checked = run("image check --key key image");
    assert_eq!(checked.status, 0, "{}{}", checked.stdout, checked.stderr);
    // What is put there is encrypted as well.
    fs::write(folder.join("more"), b"a line in the clear").unwrap();
    let edited = run("image edit --key key image put more /more");
    assert_eq!(edited.status, 0, "{}", edited.stderr);
    assert_eq!(run("image cat --key key image /more").stdout, "a line in the clear");
    assert_ne!(run("image cat image /more").status, 0);
    let raw = fs::read(folder.join("image")).unwrap();
    assert!(!raw.windows(19).any(|it| it == b"a line in the clear"));
    assert_eq!(run("image check --key key image").status, 0);
    let extracted = run("image extract --key key image -o out");
    assert_eq!(extracted.status, 0, "{}", extracted.stderr);
    assert_eq!(fs::read(folder.join("out/plans")).unwrap(), b"of great import");
    // A key of something else, none at all, and one that can be none.
    assert!(!run("image ls --key other image").stdout.contains("plans"));
    let missing = run("image ls --key nowhere image");
    assert_ne!(missing.status, 0);
    assert!(missing.stderr.contains("nowhere"), "{}", missing.stderr);
    fs::write(folder.join("short"), b"short").unwrap();
    let short = run("image ls --key short image");
    assert_ne!(short.status, 0);
    assert!(short.stderr.contains("short") && short.stderr.contains("16"), "{}", short.stderr);
    // An image that nobody signed is not taken for one that was.
    let signed = run("image ls --auth-key key image");
    assert_ne!(signed.status, 0);
    assert!(signed.stderr.contains("authenticated"), "{}", signed.stderr);
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
