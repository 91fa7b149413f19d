//! Authenticated and encrypted UBIFS: written by Linux, unmounted and cut, and as made by us.

use std::fs;
use std::path::Path;

use flysch_api::finding::Severity;
use flysch_api::flash::FlashGeometry;
use flysch_lab::manifest::{self, Detail};
use flysch_mtd::FlashImage;
use flysch_ubi::{AttachOptions, Ubi, UbiVolume, find_images};
use flysch_ubifs::{AuthError, AuthKey, Keys, OpenOptions, Proof, Ubifs, UbifsOpenError};

use crate::common::{AUTH_KEY, KEYS, call, command, complaints, difference, keys, lab, put_signed};

/// Linux makes the file system; a directory for each kind of encryption, and an unencrypted one.
const SCRIPT: &str = r#"
    check_ubifs
    mounted() {
        mount -t ubifs -o auth_key=flysch:auth,auth_hash_name=sha256,compr=zstd ubi0_0 /mnt &&
            unlock /mnt
    }
    # judge NAME: what Linux shows of an image.
    judge() {
        load $1.img
        ubiattach -m 0 -d 0 >/dev/null
        mounted && $guest manifest /mnt > $1.txt && umount /mnt
        ubidetach -m 0
    }
    echo -1 >/proc/sys/kernel/sched_rt_runtime_us
    modprobe nandsim first_id_byte=0x20 second_id_byte=0xa2 third_id_byte=0x00 \
        fourth_id_byte=0x15 parts=128
    ubiformat /dev/mtd0 -q -y
    ubiattach -m 0 -d 0 >/dev/null
    ubimkvol /dev/ubi0 -N v -m >/dev/null
    mounted || exit 6
    mkdir /mnt/open
    policy /mnt/xts 2 1 4
    policy /mnt/cbc 1 5 6
    policy /mnt/adiantum 2 9 9
    for folder in open xts cbc adiantum; do
        $guest rich /mnt/$folder 7 || exit 5
    done
    sync
    for number in 1 2 3; do
        for folder in open xts cbc adiantum; do
            $guest work /mnt/$folder $number /nowhere 40 &
        done
        sleep 1.$number
        [ $number = 2 ] && sync
        chrt -f 99 dd if=/dev/mtd0ro of=/tmp/cut$number.img bs=128k status=none
        wait
    done
    umount /mnt
    ubidetach -m 0
    save clean.img
    mv /tmp/cut*.img .
    for name in clean cut1 cut2 cut3; do
        judge $name
    done
    dmesg > log
"#;

type Fs = Ubifs<UbiVolume<FlashImage<Vec<u8>>>>;

fn open(path: &Path, keys: Keys) -> Result<Fs, UbifsOpenError> {
    let content = fs::read(path).unwrap();
    let geometry = FlashGeometry::nand(content.len() as u64, 128 << 10, 2048, 512);
    let flash = FlashImage::new(content, geometry);
    let image = find_images(&flash, Some(128 << 10))[0];
    let ubi = Ubi::attach(flash, image, &AttachOptions::default()).unwrap();
    let options = OpenOptions { keys: Some(keys.into()), ..OpenOptions::default() };
    Ubifs::open(ubi.volume(0).unwrap(), &options)
}

#[test]
fn what_linux_signed_and_encrypted_is_verified_and_shown_as_linux_shows_it() {
    let Some(lab) = lab() else { return };
    let share = tempfile::tempdir().unwrap();
    put_signed(&lab, share.path());
    let functions = format!("{KEYS}\nlogon flysch:auth '{AUTH_KEY}' || exit 4\n");
    crate::common::run(&lab, &format!("{functions}{SCRIPT}"), share.path());
    let (mut files, mut wrong) = (0, String::new());
    for name in ["clean", "cut1", "cut2", "cut3"] {
        let path = share.path().join(format!("{name}.img"));
        let Ok(expected) = fs::read_to_string(path.with_extension("txt")) else {
            wrong += &format!("{name}: Linux does not mount it\n");
            continue;
        };
        let expected = manifest::from_text(&expected);
        let fs = match open(&path, keys()) {
            Ok(fs) => fs,
            Err(error) => {
                wrong += &format!("{name}: {error}\n");
                continue;
            }
        };
        assert_eq!(fs.is_unclean(), name != "clean", "{name}");
        let verified = fs.verified().unwrap();
        assert_eq!((verified.superblock, verified.master), (Proof::Hmac, Proof::Hmac));
        let found = manifest::of_file_system(&fs, Detail::Whole);
        files += found.len();
        wrong += &difference(&found, &expected);
        let findings = fs.check().into_iter().filter(|it| it.severity != Severity::Note);
        wrong.extend(findings.map(|finding| format!("{name}: {finding}\n")));
        let other = Keys { auth: Some(AuthKey::new(b"another key", None)), ..keys() };
        let refused = open(&path, other).unwrap_err();
        assert_eq!(refused, UbifsOpenError::Authentication(AuthError::Key), "{name}");
    }
    if !wrong.is_empty() {
        crate::common::keep(share.path());
        let log = fs::read_to_string(share.path().join("log")).unwrap_or_default();
        let said: Vec<&str> = log.lines().filter(|line| line.contains("UBIFS")).collect();
        panic!("{wrong}\n{}", said.join("\n"));
    }
    assert!(files > 1000, "{files} files compared");
}

/// Images made by us: name, how Linux mounts them, and how they are signed and encrypted.
const MADE: [(&str, &str, &str); 6] = [
    (
        "xts",
        "auth_key=flysch:auth,auth_hash_name=sha256",
        "--auth-key auth --hash-algo sha256 -K key -b 1111111111111111 -C AES-256-XTS -x zstd",
    ),
    (
        "cbc",
        "auth_key=flysch:auth,auth_hash_name=sha512",
        "--auth-key auth --hash-algo sha512 -K key -C AES-128-CBC -P 32 --policy-version 2 -x lzo",
    ),
    ("adiantum", "compr=zlib", "-K key -C adiantum -P 16 --policy-version 2 -x zlib"),
    (
        "signed",
        "auth_key=flysch:auth,auth_hash_name=sha224",
        "--auth-key auth --hash-algo sha224 -x none -F",
    ),
    (
        "certified",
        "auth_key=flysch:auth,auth_hash_name=sha384",
        "--auth-key maker.pem --auth-cert maker.crt --hash-algo sha384 -x lzo",
    ),
    (
        "sealed",
        "auth_key=flysch:auth,auth_hash_name=sha256",
        "--auth-key maker.pem --auth-cert maker.crt --hash-algo sha256 -K key -b 1111111111111111 \
         -x zstd -F",
    ),
];

const MOUNT_MADE: &str = r#"
    check_ubifs
    modprobe nandsim first_id_byte=0x20 second_id_byte=0xa2 third_id_byte=0x00 \
        fourth_id_byte=0x15 parts=256
    insmod /share/trust.ko file=/share/maker.der || exit 10
    # Signed by somebody whom the kernel does not know.
    ubiformat -q -y /dev/mtd0 -f stranger.img
    ubiattach -m 0 -d 0 >/dev/null
    mount -t ubifs -o auth_key=flysch:auth,auth_hash_name=sha256 ubi0_0 /mnt && exit 11
    ubidetach -m 0
    mounted() { mount -t ubifs -o $1 ubi0_0 /mnt && unlock /mnt; }
    made() { # NAME OPTIONS
        dmesg -C
        ubiformat -q -y /dev/mtd0 -f $1.img
        ubiattach -m 0 -d 0 >/dev/null
        if mounted $2; then
            $guest manifest /mnt >$1.1.txt
            $guest work /mnt/rich/many 7 /nowhere 60
            umount /mnt; mounted $2
            $guest manifest /mnt >$1.2.txt
            umount /mnt
        fi
        ubidetach -m 0
        dmesg >$1.dmesg
        save $1.out
    }
"#;

/// Made by the command, signed and encrypted by policies of both versions: Linux mounts each with
/// the keys and shows the tree it was made from; Flysch verifies and shows its later changes.
#[test]
fn what_is_made_signed_and_encrypted_is_mounted_by_linux() {
    let Some(lab) = lab() else { return };
    let share = tempfile::tempdir().unwrap();
    let share = share.path();
    let flysch = command();
    fs::create_dir(share.join("tree")).unwrap();
    call(Path::new(env!("CARGO_BIN_EXE_flysch-lab-guest")), "rich tree 5", share);
    fs::write(share.join("key"), (1..=64).collect::<Vec<u8>>()).unwrap();
    fs::write(share.join("auth"), AUTH_KEY).unwrap();
    put_signed(&lab, share);
    for name in ["maker", "stranger"] {
        let request = "req -new -nodes -batch -x509 -days 10 -newkey rsa:2048";
        let words = format!("{request} -subj /O=test/CN={name} -keyout {name}.pem -out {name}.crt");
        call(Path::new("openssl"), &words, share);
    }
    call(Path::new("openssl"), "x509 -in maker.crt -outform DER -out maker.der", share);
    let mut script = format!("{KEYS}\nlogon flysch:auth '{AUTH_KEY}' || exit 4\n{MOUNT_MADE}");
    let stranger =
        ("stranger", "", "--auth-key stranger.pem --auth-cert stranger.crt --hash-algo sha256");
    for (name, mount, options) in MADE.into_iter().chain([stranger]) {
        let geometry = "-m 2048 -e 129024 --pebs 256";
        let words = format!("image create ubifs {geometry} -r tree {options} -o v");
        call(&flysch, &words, share);
        let ini = "[v]\nmode=ubi\nimage=v\nvol_id=0\nvol_name=v\nvol_flags=autoresize\n";
        fs::write(share.join("ini"), ini).unwrap();
        let words = format!("image create ubi -p 128KiB -m 2048 -s 512 -o {name}.img ini");
        call(&flysch, &words, share);
        if name != stranger.0 {
            script += &format!("made {name} {mount}\n");
        }
    }
    crate::common::run(&lab, &script, share);
    let tree = manifest::of_directory(&share.join("tree"), Detail::Restored).unwrap();
    let mut wrong = String::new();
    for (name, ..) in MADE {
        let read = |end: &str| fs::read_to_string(share.join(format!("{name}.{end}")));
        let log = read("dmesg").unwrap();
        complaints(&log).iter().for_each(|line| wrong += &format!("{name}: {line}\n"));
        let auth = keys().auth.filter(|_| name != "adiantum");
        let trust = flysch_image::read_certificates(&[share.join("maker.crt")]).unwrap();
        let trust = trust.filter(|_| name != "adiantum");
        let shown = |path: &Path, detail| {
            let keys = Keys { auth: auth.clone(), trust: trust.clone(), ..keys() };
            let fs = open(path, keys).unwrap();
            let findings = fs.check().into_iter().filter(|it| it.severity != Severity::Note);
            let findings: Vec<String> = findings.map(|it| format!("{name}: {it}\n")).collect();
            (manifest::of_file_system(&fs, detail), findings.concat())
        };
        let image = share.join(format!("{name}.img"));
        wrong += &difference(&shown(&image, Detail::Restored).0, &tree);
        for (path, linux) in [(image, "1.txt"), (share.join(format!("{name}.out")), "2.txt")] {
            let Ok(linux) = read(linux) else {
                wrong += &format!("{name}: Linux does not mount it: {log}\n");
                continue;
            };
            let (found, findings) = shown(&path, Detail::Whole);
            wrong += &findings;
            wrong += &difference(&found, &manifest::from_text(&linux));
        }
    }
    if !wrong.is_empty() {
        crate::common::keep(share);
    }
    assert!(wrong.is_empty(), "{wrong}");
}
