//! `flysch image mount --rw` as seen by users: exclusive use of an image, and chip models.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use flysch_tests::command::{flysch, run_in};
use flysch_tests::wait::wait_until;

fn can_mount() -> bool {
    let found = Path::new("/dev/fuse").exists() && rustix::process::geteuid().is_root();
    if !found {
        println!("skipped: there is no /dev/fuse, or this is not root");
    }
    found
}

/// A mount by the command.
struct Mount {
    child: Child,
    at: PathBuf,
}

fn is_mounted(at: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    mounts.lines().any(|line| line.split(' ').nth(1) == at.to_str())
}

impl Mount {
    fn new(image: &str, folder: &Path) -> Self {
        let at = folder.join("mount");
        fs::create_dir_all(&at).unwrap();
        let mut command = flysch();
        command.args(["image", "mount", "--rw"]).args(image.split(' ')).arg("mount");
        command.current_dir(folder);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut mount = Self { child, at };
        wait_until("it is mounted", || {
            assert!(mount.child.try_wait().unwrap().is_none(), "it ended");
            is_mounted(&mount.at)
        });
        mount
    }

    /// Unmounts; returns status, standard output and standard error.
    fn end(mut self) -> (Option<i32>, String, String) {
        assert!(Command::new("umount").arg(&self.at).status().unwrap().success());
        let mut texts = [String::new(), String::new()];
        use std::io::Read;
        self.child.stdout.take().unwrap().read_to_string(&mut texts[0]).unwrap();
        self.child.stderr.take().unwrap().read_to_string(&mut texts[1]).unwrap();
        let [output, errors] = texts;
        (self.child.wait().unwrap().code(), output, errors)
    }
}

impl Drop for Mount {
    /// For failed tests.
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let _ = self.child.kill();
            let _ = self.child.wait();
            let _ = Command::new("umount").arg("-l").arg(&self.at).status();
        }
    }
}

#[test]
fn one_changes_an_image_at_a_time() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    // An erased flash is an empty JFFS2.
    fs::write(folder.join("image"), vec![0xFF; 2 << 20]).unwrap();
    let mounted = Mount::new("--erase-size 64K image", folder);
    fs::write(mounted.at.join("file"), "content").unwrap();
    fs::create_dir(folder.join("other")).unwrap();
    for command in ["image mount --rw image other", "image edit image mkdir /d", "image ls image"] {
        let ran = run_in(command, folder);
        assert_eq!(ran.status, 1, "{command}: {}", ran.stderr);
        assert!(ran.stderr.contains("is it mounted?"), "{command}: {}", ran.stderr);
    }
    assert_eq!(mounted.end().0, Some(0));
    // Not a moment later, but while the mount may still be writing its last blocks.
    let ran = run_in("image cat image /file", folder);
    assert_eq!((ran.status, &ran.stdout[..]), (0, "content"), "{}", ran.stderr);
    // Readers do not exclude each other.
    let reader = File::open(folder.join("image")).unwrap();
    reader.try_lock_shared().unwrap();
    assert_eq!(run_in("image check image", folder).status, 0);
    let ran = run_in("image edit image mkdir /d", folder);
    assert_eq!(ran.status, 1, "{}", ran.stderr);
}

/// An image is made with keys, mounted with them and changed, and reports what it cannot do.
#[test]
fn a_signed_and_encrypted_image_is_mounted_with_its_keys() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let run = |words: &str| run_in(words, folder);
    fs::create_dir(folder.join("tree")).unwrap();
    let long = "a name of some length, and so on and on, ".repeat(6);
    fs::write(folder.join("tree").join(&long), "of great import").unwrap();
    std::os::unix::fs::symlink("a/target", folder.join("tree/link")).unwrap();
    fs::write(folder.join("tree/large"), vec![7; 70_001]).unwrap();
    fs::write(folder.join("key"), std::array::from_fn::<u8, 64, _>(|at| at as u8)).unwrap();
    fs::write(folder.join("auth"), "any bytes").unwrap();
    let make = "image create ubifs -m 2048 -e 126976 -c 60 -r tree -o image";
    for cipher in ["-C AES-256-XTS", "-C adiantum -P 32 --policy-version 2"] {
        let made = run(&format!("{make} -K key {cipher} --auth-key auth --hash-algo sha512"));
        assert_eq!(made.status, 0, "{}", made.stderr);
        let checked = run("image check --key key --auth-key auth image");
        assert_eq!(checked.status, 0, "{}{}", checked.stdout, checked.stderr);
        assert!(!run("image ls --auth-key auth image").stdout.contains(&long));
        let repaired = run("image repair --key key --auth-key auth image");
        assert_eq!(repaired.status, 4, "{}", repaired.stdout);
        assert!(repaired.stderr.contains("not even with --auth-key"), "{}", repaired.stderr);
        if !can_mount() {
            continue;
        }
        let mounted = Mount::new("--key key --auth-key auth --flash-size 7618560 image", folder);
        let read = |name: &str| fs::read(mounted.at.join(name)).unwrap();
        assert_eq!(read(&long), b"of great import");
        assert_eq!(read("large"), vec![7; 70_001]);
        assert_eq!(fs::read_link(mounted.at.join("link")).unwrap(), Path::new("a/target"));
        fs::write(mounted.at.join("secret line"), "a line in the clear").unwrap();
        fs::rename(mounted.at.join("large"), mounted.at.join("larger")).unwrap();
        assert_eq!(mounted.end().0, Some(0));
        let checked = run("image check --key key --auth-key auth image");
        assert_eq!(checked.status, 0, "{}{}", checked.stdout, checked.stderr);
        let raw = fs::read(folder.join("image")).unwrap();
        assert!(!raw.windows(19).any(|it| it == b"a line in the clear"));
        let listed = run("image ls --key key image");
        assert!(listed.stdout.contains("secret line") && listed.stdout.contains("larger"));
    }
    for (options, said) in [
        ("-K key -P 5", "4, 8, 16 or 32"),
        ("--auth-cert auth", "--auth-cert"),
        ("-K auth", "16 to 64"),
        ("--hash-algo sha256", "--auth-key"),
    ] {
        let refused = run(&format!("{make} {options}"));
        assert_ne!(refused.status, 0, "{options}");
        assert!(refused.stderr.contains(said), "{options}: {}", refused.stderr);
    }
}

/// A file would be hidden by what is mounted on it.
#[test]
fn only_a_directory_is_mounted_on() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("file"), "content").unwrap();
    for image in ["file", "--rw file", "--rw nor,fs=jffs2", "--rw nothing"] {
        let ran = run_in(&format!("image mount {image} file"), folder);
        assert_eq!(ran.status, 1, "{}", ran.stderr);
        assert!(ran.stderr.contains("file: is not a directory, and"), "{}", ran.stderr);
    }
}

#[test]
fn a_chip_keeps_what_was_synced_when_its_power_goes() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for fs_name in ["ubifs", "jffs2"] {
        let chip = format!("nand,profile=MT29F2G08ABAEA,blocks=128,fs={fs_name},image={fs_name}");
        let mounted = Mount::new(&chip, folder);
        fs::write(mounted.at.join("first"), "before").unwrap();
        let (status, _, errors) = mounted.end();
        assert_eq!((status, &errors[..]), (Some(0), ""));
        // For all other commands the file is a dump with out-of-band bytes.
        let ran = run_in(&format!("image cat {fs_name} /first"), folder);
        assert_eq!((ran.status, &ran.stdout[..]), (0, "before"), "{}", ran.stderr);

        let mounted = Mount::new(&format!("{chip},cut=300l"), folder);
        let mut synced = vec![];
        let refused = (0..1000).find_map(|number| {
            let name = format!("f{number}");
            let written = File::create(mounted.at.join(&name)).and_then(|mut file| {
                file.write_all(&[number as u8; 10_000])?;
                file.sync_all()
            });
            match written {
                Ok(()) => synced.push((name, number)),
                Err(error) => return Some(error),
            }
            None
        });
        let refused = refused.expect("the power goes").raw_os_error();
        assert!(matches!(refused, Some(5 | 30)), "{refused:?}: neither EIO nor EROFS");
        assert!(synced.len() > 5, "{}", synced.len());
        let (status, output, errors) = mounted.end();
        assert_eq!((status, &errors[..]), (Some(0), ""));
        assert!(output.contains("the power was cut"), "{output}");

        let mounted = Mount::new(&chip, folder);
        for (name, number) in &synced {
            assert_eq!(fs::read(mounted.at.join(name)).unwrap(), [*number as u8; 10_000], "{name}");
        }
        assert_eq!(mounted.end().0, Some(0));
        let ran = run_in(&format!("image check {fs_name}"), folder);
        assert_eq!(ran.status, 0, "{}{}", ran.stdout, ran.stderr);
    }
}

#[test]
fn a_chip_is_named_in_full_or_what_is_wrong_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for (chip, told) in [
        ("--rw nand,profile=K9", "expected K9F5608U0D, NAND01GR3B"),
        ("--rw nand,blocks=1", "expected a number from 32 to 65536"),
        ("--rw nor,image=x", "a file is NOR flash without a model"),
        ("--rw nand,cut=3x", "expected a number and b, e, h, l or a"),
        ("--rw nor,colour=red", "target `nor` has no key `colour`"),
        ("nand", "a chip can only be mounted with --rw"),
    ] {
        let ran = run_in(&format!("image mount {chip} ."), folder);
        assert_eq!(ran.status, 2, "{}", ran.stderr);
        assert!(ran.stderr.contains(told), "{chip}: {}", ran.stderr);
    }
}
