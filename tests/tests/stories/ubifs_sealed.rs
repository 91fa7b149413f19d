//! Signed and encrypted images of mkfs.ubifs: with their keys, and as far as possible without.

use std::fs;
use std::path::Path;
use std::process::Command;

use flysch_api::finding::Severity;
use flysch_api::vfs::FileKind;
use flysch_image::read_certificates;
use flysch_tests::command;
use flysch_tests::ubifs::{
    FORMATS, differences, flash, host_tree, image_tree, make_tree, mkfs, tools_missing,
};
use flysch_ubifs::{
    AuthError, AuthKey, FlatImage, Keys, MasterKey, OpenOptions, Proof, SignatureError, Ubifs,
    UbifsOpenError,
};
use flysch_wire::ubifs::{
    Group, Header, Node, SIGNATURE_NODE_SIZE, SUPERBLOCK_NODE_SIZE, Signature,
};

fn damage(fs: &Ubifs<FlatImage<flysch_mtd::FlashImage<Vec<u8>>>>) -> Vec<String> {
    let found = fs.check().into_iter().filter(|it| it.severity != Severity::Note);
    found.map(|it| it.to_string()).collect()
}

fn open(image: Vec<u8>) -> Ubifs<FlatImage<flysch_mtd::FlashImage<Vec<u8>>>> {
    open_with(image, Keys::default())
}

fn open_with(image: Vec<u8>, keys: Keys) -> Ubifs<FlatImage<flysch_mtd::FlashImage<Vec<u8>>>> {
    let volume = FlatImage::open(flash(image, &FORMATS[1])).expect("a superblock");
    let options = OpenOptions { keys: Some(keys.into()), ..OpenOptions::default() };
    Ubifs::open(volume, &options).expect("it opens")
}

/// A private key and its certificate, `NAME.pem` and `NAME.crt`; `false` without openssl.
fn certify(folder: &Path, name: &str) -> bool {
    let words = format!(
        "req -new -nodes -batch -x509 -days 10 -newkey rsa:2048 -subj /O=test/CN={name} \
         -keyout {name}.pem -out {name}.crt"
    );
    let made = openssl(folder, &words);
    if made.is_none() {
        eprintln!("skipped: openssl is not installed");
    }
    made.is_some()
}

/// The standard output of openssl; `None` if it fails.
fn openssl(folder: &Path, words: &str) -> Option<Vec<u8>> {
    let mut openssl = Command::new("openssl");
    let output = openssl.args(words.split_whitespace()).current_dir(folder).output().ok()?;
    output.status.success().then_some(output.stdout)
}

/// The message in the signature node of an image.
fn message(image: &[u8]) -> &[u8] {
    let node = &image[SUPERBLOCK_NODE_SIZE..];
    let length = u32::from_le_bytes(node[28..32].try_into().unwrap());
    &node[SIGNATURE_NODE_SIZE..][..length as usize]
}

fn trusting(folder: &Path, name: &str, key: Option<AuthKey>) -> Keys {
    let trust = read_certificates(&[folder.join(name)]).unwrap();
    Keys { auth: key, trust, ..Keys::default() }
}

fn refusal(image: &[u8], keys: Keys) -> AuthError {
    let volume = FlatImage::open(flash(image.to_vec(), &FORMATS[1])).expect("a superblock");
    match Ubifs::open(volume, &OpenOptions { keys: Some(keys.into()), ..OpenOptions::default() }) {
        Err(UbifsOpenError::Authentication(error)) => error,
        other => panic!("{:?}", other.map(|fs| fs.verified().copied())),
    }
}

#[test]
fn an_image_that_mkfs_signed_is_verified_by_its_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    if tools_missing() || !certify(folder, "maker") || !certify(folder, "other") {
        return;
    }
    let tree = tempfile::tempdir().unwrap();
    make_tree(tree.path());
    let [key, certificate] = ["maker.pem", "maker.crt"].map(|name| folder.join(name));
    for algorithm in ["sha256", "sha512"] {
        let (key, certificate) = (key.to_str().unwrap(), certificate.to_str().unwrap());
        let more = ["--hash-algo", algorithm, "--auth-key", key, "--auth-cert", certificate];
        let image = mkfs(tree.path(), &FORMATS[1], "lzo", &more);
        // With the key of a device that has not yet put an HMAC into the image, or without.
        for key in [None, Some(AuthKey::new(b"any", None))] {
            let signed = open_with(image.clone(), trusting(folder, "maker.crt", key));
            let verified = signed.verified().unwrap();
            assert_eq!((verified.superblock, verified.master), (Proof::Signature, Proof::Hash));
            assert_eq!(verified.algorithm.name(), algorithm);
            assert_eq!(damage(&signed), Vec::<String>::new(), "{algorithm}");
            let found = image_tree(&signed, &mut Vec::new());
            assert_eq!(differences(&host_tree(tree.path()), &found), Vec::<String>::new());
        }
        // A key has no bearing on a signature.
        let keys = Keys { auth: Some(AuthKey::new(b"any", None)), ..Keys::default() };
        let none = AuthError::Signature(SignatureError::NoCertificate);
        assert_eq!(refusal(&image, keys), none);
        let other = refusal(&image, trusting(folder, "other.crt", None));
        assert_eq!(other, AuthError::Signature(SignatureError::Signer));
        let fs = open(image.clone());
        assert!(fs.findings().iter().any(|it| it.problem.contains("authenticated")), "{algorithm}");
        assert_eq!(damage(&fs), Vec::<String>::new(), "{algorithm}");
        nothing_else_is_taken(&image, &trusting(folder, "maker.crt", None));
    }
}

/// Neither another superblock nor another message is accepted, and none of them causes a panic.
fn nothing_else_is_taken(image: &[u8], keys: &Keys) {
    let (superblock, message) = (&image[..SUPERBLOCK_NODE_SIZE], message(image));
    let trust = keys.trust.as_deref().unwrap();
    assert_eq!(trust.verify(superblock, message), Ok(()));
    // The identifier, with its CRC corrected.
    let mut forged = image.to_vec();
    forged[108] ^= 1;
    Header::parse(&forged).unwrap().emit(&mut forged[..SUPERBLOCK_NODE_SIZE]);
    let wrong = SignatureError::Wrong;
    assert_eq!(refusal(&forged, keys.clone()), AuthError::Signature(wrong));
    // No signature, as left by mkfs.ubifs if it signs nothing.
    let mut missing = image.to_vec();
    let node = &mut missing[SUPERBLOCK_NODE_SIZE..][..SIGNATURE_NODE_SIZE];
    Node::Signature(Signature { kind: 0, signature: &[] }).emit(9, Group::None, node);
    let none = AuthError::Signature(SignatureError::Missing);
    assert_eq!(refusal(&missing, keys.clone()), none);
    let name = message.windows(4).position(|it| it == b"test").unwrap();
    let signature = message.len() - 256;
    for at in 0..message.len() {
        let mut changed = message.to_vec();
        changed[at] ^= 1;
        let found = trust.verify(superblock, &changed);
        // The fields that announce the hashes, and the version of the form, do not matter.
        assert!(found.is_err() || (15..58).contains(&at), "{at}: {found:?}");
        if (name..name + 4).contains(&at) {
            assert_eq!(found, Err(SignatureError::Signer), "{at}");
        }
        if at >= signature {
            assert_eq!(found, Err(wrong), "{at}");
        }
        assert!(trust.verify(superblock, &message[..at]).is_err(), "{at}");
    }
}

#[test]
fn an_image_is_signed_as_openssl_and_mkfs_sign_it() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    if !certify(folder, "maker") || !certify(folder, "other") {
        return;
    }
    let run = |words: &str| command::run_in(words, folder);
    fs::create_dir(folder.join("tree")).unwrap();
    fs::write(folder.join("tree/file"), "signed").unwrap();
    fs::write(folder.join("raw"), "any bytes").unwrap();
    let make = "image create ubifs -r tree -m 2048 -e 126976 -c 64 --hash-algo sha384 -o image";
    let made = run(&format!("{make} --auth-key maker.pem --auth-cert maker.crt"));
    assert_eq!(made.status, 0, "{}", made.stderr);
    let image = fs::read(folder.join("image")).unwrap();
    fs::write(folder.join("superblock"), &image[..SUPERBLOCK_NODE_SIZE]).unwrap();
    fs::write(folder.join("message"), message(&image)).unwrap();
    let verify = "cms -verify -binary -inform DER -in message -content superblock -noverify \
                  -nointern -certfile";
    assert!(openssl(folder, &format!("{verify} maker.crt")).is_some());
    assert!(openssl(folder, &format!("{verify} other.crt")).is_none());
    let sign = "cms -sign -binary -noattr -nocerts -md sha384 -signer maker.crt -inkey maker.pem \
                -outform DER -in superblock";
    assert!(openssl(folder, sign).unwrap() == message(&image));
    // The certificate alone permits reading; the key is needed for a change, after which the key
    // authenticates it.
    let checked = run("image check --auth-cert maker.crt image");
    assert_eq!((checked.status, &checked.stderr[..]), (0, ""), "{}", checked.stdout);
    let shown = run("image info --auth-cert maker.crt image").stdout;
    assert!(shown.contains("superblock (signature), master node (hash)"), "{shown}");
    assert_eq!(run("image cat --auth-cert maker.crt image /file").stdout, "signed");
    let edit = |keys: &str| format!("image edit {keys} image put tree/file /more");
    let refused = |words: &str, wanted: &str| {
        let output = run(words);
        let said = format!("{}{}", output.stdout, output.stderr);
        assert_ne!(output.status, 0, "{words}");
        assert!(said.contains(wanted), "{words}: {said}");
    };
    refused(&edit("--auth-cert maker.crt"), "--auth-key");
    refused("image check --auth-cert other.crt image", "not signed by that certificate");
    refused("image check --auth-key raw image", "--auth-cert");
    refused("image check --auth-cert maker.pem image", "no certificate in it");
    refused("image check --auth-cert raw image", "not an X.509 certificate");
    refused(&format!("{make} --auth-key other.pem --auth-cert maker.crt"), "another certificate");
    refused(&format!("{make} --auth-key maker.pem"), "--auth-cert");
    refused(&format!("{make} --auth-key raw --auth-cert maker.crt"), "no private key");
    let edited = run(&edit("--auth-cert maker.crt --auth-key raw --flash-size 8126464"));
    assert_eq!(edited.status, 0, "{}", edited.stderr);
    refused("image check --auth-cert maker.crt image", "only the device's key");
    let checked = run("image check --auth-key raw image");
    assert_eq!(checked.status, 0, "{}{}", checked.stdout, checked.stderr);
    assert_eq!(run("image cat --auth-key raw image /more").stdout, "signed");
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

/// What a user does with such an image and the file with its key.
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
    // Without the key there are files, but not under their real names.
    let listed = run("image ls image");
    assert_eq!(listed.status, 0, "{}", listed.stderr);
    assert!(!listed.stdout.contains("plans"), "{}", listed.stdout);
    assert_ne!(run("image cat image /plans").status, 0);
    let listed = run("image ls --key key image");
    assert!(listed.stdout.contains("plans"), "{}{}", listed.stdout, listed.stderr);
    assert_eq!(run("image cat --key key image /plans").stdout, "of great import");
    let checked = run("image check --key key image");
    assert_eq!(checked.status, 0, "{}{}", checked.stdout, checked.stderr);
    // What is put there is encrypted, too.
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
    // A key for something else, no key, and an invalid one.
    assert!(!run("image ls --key other image").stdout.contains("plans"));
    let missing = run("image ls --key nowhere image");
    assert_ne!(missing.status, 0);
    assert!(missing.stderr.contains("nowhere"), "{}", missing.stderr);
    fs::write(folder.join("short"), b"short").unwrap();
    let short = run("image ls --key short image");
    assert_ne!(short.status, 0);
    assert!(short.stderr.contains("short") && short.stderr.contains("16"), "{}", short.stderr);
    // An unsigned image is not taken for a signed one.
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
            // mkfs.ubifs leaves files with several names unencrypted.
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
