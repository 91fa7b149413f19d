//! `flysch image repair` as run by users.
//!
//! The prepared images of the mtd-utils test suite are not part of the project (GPL-2.0):
//! `FLYSCH_UBIFS_IMAGES` names a directory with their `.gz` files and `expected.tsv`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use flysch_tests::command;
use flysch_tests::ubifs::{FORMATS, make_tree, mkfs, tools_missing, ubinize};

fn prepared(name: &str, path: &Path) -> bool {
    let Some(directory) = std::env::var_os("FLYSCH_UBIFS_IMAGES").map(PathBuf::from) else {
        eprintln!("skipped: FLYSCH_UBIFS_IMAGES names no directory");
        return false;
    };
    let packed = directory.join(format!("{name}.gz"));
    let output = Command::new("gzip").arg("-dc").arg(&packed).output().unwrap();
    assert!(output.status.success(), "{}", packed.display());
    fs::write(path, output.stdout).unwrap();
    true
}

fn repair(path: &Path, options: &str) -> command::Ran {
    command::run(&format!("image repair {} {options}", path.display()))
}

/// Each prepared image is repaired at its level and not at the one below; the check then finds
/// nothing.
#[test]
fn the_prepared_images_are_repaired_at_the_stated_level() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    if !prepared("good", &path) {
        return;
    }
    assert_eq!(repair(&path, "").status, 0);
    let images = std::env::var_os("FLYSCH_UBIFS_IMAGES").unwrap();
    let expected = fs::read_to_string(Path::new(&images).join("expected.tsv")).unwrap();
    let levels = ["safe", "danger-default", "danger-rebuild"];
    for line in expected.lines().skip(2) {
        let mut columns = line.split('\t');
        let (name, level) = (columns.next().unwrap(), columns.next().unwrap().replace('_', "-"));
        prepared(name, &path);
        let before = fs::read(&path).unwrap();
        let needed = levels.iter().position(|it| *it == level);
        for (number, tried) in levels.iter().enumerate() {
            let ran = repair(&path, &format!("--level {tried}"));
            if needed == Some(number) {
                assert_eq!(ran.status, 1, "{name}: {}{}", ran.stdout, ran.stderr);
                let check = command::run(&format!("image check {}", path.display()));
                assert_eq!(check.status, 0, "{name}: {}", check.stdout);
                break;
            }
            assert_eq!(ran.status, 4, "{name} at {tried}: {}{}", ran.stdout, ran.stderr);
            assert_eq!(fs::read(&path).unwrap(), before, "{name} at {tried}");
            let says = needed.map_or("cannot be repaired".into(), |_| format!("--level {level}"));
            assert!(ran.stderr.contains(&says), "{name}: {}", ran.stderr);
        }
    }
}

/// An image of mkfs.ubifs and ubinize with its master nodes or its log lost.
#[test]
fn own_images_are_repaired_and_restored() {
    if tools_missing() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (tree, path) = (folder.path().join("tree"), folder.path().join("image"));
    fs::create_dir(&tree).unwrap();
    make_tree(&tree);
    let format = &FORMATS[1];
    let image = mkfs(&tree, format, "lzo", &[]);
    let listing = |path: &Path| command::run(&format!("image ls {}", path.display())).stdout;
    fs::write(&path, ubinize(&image, format)).unwrap();
    let files = listing(&path);
    for level in ["danger-rebuild", "safe"] {
        let mut damaged = image.clone();
        let leb = |lnum: usize| lnum * format.leb_size as usize;
        if level == "danger-rebuild" {
            // The commit start node of the log.
            damaged[leb(3)..][..32].fill(4);
        } else {
            // A sum in both master nodes.
            [1, 2].into_iter().for_each(|lnum| spoil_total_free(&mut damaged[leb(lnum)..]));
        }
        for is_bare in [false, true] {
            let bytes = if is_bare { damaged.clone() } else { ubinize(&damaged, format) };
            fs::write(&path, &bytes).unwrap();
            let dry = repair(&path, "--dry-run");
            assert_eq!(dry.status, 4, "{}{}", dry.stdout, dry.stderr);
            assert!(dry.stdout.contains(level), "{}", dry.stdout);
            assert_eq!(fs::read(&path).unwrap(), bytes);
            let backup = folder.path().join("backup");
            let _ = fs::remove_file(&backup);
            let ran = repair(&path, &format!("--level {level} --backup {}", backup.display()));
            assert_eq!(ran.status, 1, "{}{}", ran.stdout, ran.stderr);
            assert_eq!(command::run(&format!("image check {}", path.display())).status, 0);
            assert_eq!(listing(&path), files);
            assert_eq!(repair(&path, "--json").status, 0);
            let back = repair(&path, &format!("--restore {}", backup.display()));
            assert_eq!(back.status, 0, "{}", back.stderr);
            assert_eq!(fs::read(&path).unwrap(), bytes, "restored");
        }
    }
}

/// The command, killed at each call by which it changes something.
#[test]
fn a_repair_that_is_killed_is_done_by_the_same_command() {
    /// Calls that change files and names; standard output does not count.
    const CALLS: &str = "pwrite64,ftruncate,fsync,fdatasync,link,linkat,rename,unlink";
    if command::lacks("strace") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let run = |words: &str| command::run_in(words, folder);
    fs::create_dir(folder.join("tree")).unwrap();
    fs::write(folder.join("tree/file"), vec![7; 20_000]).unwrap();
    let made = "image create ubifs -r tree -m 512 -e 15872 -c 32 -x none -o inner";
    assert_eq!(run(made).status, 0);
    let mut damaged = fs::read(folder.join("inner")).unwrap();
    [1, 2].into_iter().for_each(|lnum| spoil_total_free(&mut damaged[lnum * 15872..]));
    let words = "image repair inner --backup saved";
    let start = |damaged: &[u8]| {
        let _ = fs::remove_file(folder.join("saved"));
        fs::write(folder.join("inner"), damaged).unwrap();
    };
    let whole = |when: &str| {
        assert_eq!(run("image check inner").status, 0, "{when}");
        let back = run("image repair inner --restore saved");
        assert_eq!(back.status, 0, "{when}: {}", back.stderr);
        assert!(fs::read(folder.join("inner")).unwrap() == damaged, "{when}: restored");
    };
    start(&damaged);
    assert_eq!(run(words).status, 1);
    whole("undisturbed");
    let mut killed = 0;
    for call in CALLS.split(',') {
        for number in 1.. {
            start(&damaged);
            let mut strace = Command::new("strace");
            let kill = format!("inject={call}:signal=SIGKILL:when={number}");
            strace.args(["-f", "-qq", "-o", "/dev/null", "-e", &format!("trace={call}")]);
            strace.args(["-e", &kill]).arg(command::flysch().get_program());
            let output = strace.args(words.split(' ')).current_dir(folder).output().unwrap();
            if let Some(status) = output.status.code() {
                assert_eq!(status, 1, "{}", String::from_utf8_lossy(&output.stderr));
                break;
            }
            killed += 1;
            let when = format!("killed at {call} {number}");
            let is_done = fs::read(folder.join("inner")).unwrap() != damaged;
            let again = run(words);
            assert_eq!(again.status, i32::from(!is_done), "{when}: {}", again.stderr);
            whole(&when);
        }
    }
    assert!(killed > 10, "{killed} calls only: are there others by now?");
    // A file of that name that belongs to somebody else.
    start(&damaged);
    fs::write(folder.join("saved"), "mine").unwrap();
    let refused = run(words);
    assert_eq!(refused.status, 8, "{}", refused.stderr);
    assert_eq!(fs::read(folder.join("saved")).unwrap(), b"mine");
    assert!(fs::read(folder.join("inner")).unwrap() == damaged);
}

/// UBI below the file systems: a copy of its table, headers, blocks of other origin.
#[test]
fn ubi_itself_is_repaired() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let run = |words: &str| command::run_in(words, folder);
    fs::create_dir(folder.join("tree")).unwrap();
    fs::write(folder.join("tree/file"), vec![7; 100_000]).unwrap();
    let inner = "image create ubifs -r tree -m 512 -e 15872 -c 100 -x none -o inner";
    assert_eq!(run(inner).status, 0);
    let ini = |id: u32| {
        format!("[{id}]\nmode=ubi\nimage=inner\nvol_id={id}\nvol_type=dynamic\nvol_name=v{id}\n")
    };
    fs::write(folder.join("ini"), format!("{}{}", ini(0), ini(1))).unwrap();
    let made = "image create ubi -p 16KiB -m 512 -s 256 -O 256 -Q 5 -o image ini";
    assert_eq!(run(made).status, 0);
    let good = fs::read(folder.join("image")).unwrap();
    const PEB: usize = 16384;
    let free = good.len() / PEB;
    // Name, damage, and the level required.
    type Damage = fn(&mut Vec<u8>);
    let damages: [(&str, Damage, &str); 5] = [
        ("volume table", |image| image[PEB + 512..][..600].fill(0), "safe"),
        ("EC header", |image| image[5 * PEB + 8] ^= 1, "safe"),
        (
            "VID header",
            |image| {
                // A free block with content.
                let mut block = vec![0xFF; PEB];
                block[..64].copy_from_slice(&image[..64]);
                block[9000] = 0;
                image.extend(block);
            },
            "safe",
        ),
        (
            "EC header",
            |image| {
                let mut block = image[6 * PEB..7 * PEB].to_vec();
                block[27] ^= 1;
                let crc = flysch_wire::ubi::crc32(&block[..60]);
                block[60..64].copy_from_slice(&crc.to_be_bytes());
                image.extend(block);
            },
            "danger-default",
        ),
        (
            "VID header",
            |image| {
                let block = image[6 * PEB..7 * PEB].to_vec();
                image.extend(block);
            },
            "danger-default",
        ),
    ];
    let listing = run("image ls image").stdout;
    for (number, (structure, damage, level)) in damages.into_iter().enumerate() {
        let mut image = good.clone();
        damage(&mut image);
        fs::write(folder.join("image"), &image).unwrap();
        let what = format!("{number}, {structure}");
        assert_eq!(run("image check image").status, 1, "{what}");
        let dry = run("image repair image --dry-run");
        assert_eq!(dry.status, 4, "{what}: {}{}", dry.stdout, dry.stderr);
        let line = dry.stdout.lines().next().unwrap_or_default();
        assert!(line.starts_with(level) && line.contains(structure), "{what}: {}", dry.stdout);
        if level != "safe" {
            assert_eq!(run("image repair image").status, 4, "{what}");
            assert_eq!(fs::read(folder.join("image")).unwrap(), image, "{what}");
        }
        let ran = run(&format!("image repair image --level {level}"));
        assert_eq!(ran.status, 1, "{what}: {}{}", ran.stdout, ran.stderr);
        let check = run("image check image");
        assert_eq!(check.status, 0, "{what}: {}", check.stdout);
        assert_eq!(run("image ls image").stdout, listing, "{what}");
        assert_eq!(run("image repair image").status, 0, "{what}");
    }
    assert_eq!(free, good.len() / PEB);
    // Both copies: the names are stored nowhere else.
    let mut image = good;
    [0, 1].into_iter().for_each(|block| image[block * PEB..][..PEB].fill(0xFF));
    fs::write(folder.join("image"), &image).unwrap();
    let ran = run("image repair image --level danger-rebuild");
    assert_eq!(ran.status, 4, "{}{}", ran.stdout, ran.stderr);
    assert!(ran.stderr.contains("both copies of UBI's volume table are lost"), "{}", ran.stderr);
}

/// Damage in each of two volumes: one run repairs both.
#[test]
fn all_volumes_are_repaired_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let run = |words: &str| command::run_in(words, folder);
    fs::create_dir(folder.join("tree")).unwrap();
    fs::write(folder.join("tree/file"), vec![7; 100_000]).unwrap();
    fs::write(folder.join("other"), b"no file system").unwrap();
    let inner = "image create ubifs -r tree -m 512 -e 15872 -c 100 -x none -o inner";
    assert_eq!(run(inner).status, 0);
    let good = fs::read(folder.join("inner")).unwrap();
    let mut damaged = good.clone();
    [1, 2].into_iter().for_each(|lnum| spoil_total_free(&mut damaged[lnum * 15872..]));
    fs::write(folder.join("inner"), &damaged).unwrap();
    let section = |id: u32, image: &str, kind: &str| {
        format!("[{id}]\nmode=ubi\nimage={image}\nvol_id={id}\nvol_type={kind}\nvol_name=v{id}\n")
    };
    // Room for a new index.
    let dynamic = |id| section(id, "inner", "dynamic") + "vol_size=1MiB\n";
    fs::write(folder.join("ini"), dynamic(0) + &section(1, "other", "static") + &dynamic(4))
        .unwrap();
    let made = "image create ubi -p 16KiB -m 512 -s 256 -O 256 -Q 5 -o image ini";
    assert_eq!(run(made).status, 0);
    let one = run("image repair image --volume v4 --output one");
    assert_eq!(one.status, 1, "{}{}", one.stdout, one.stderr);
    assert_eq!(run("image repair one --volume v4").status, 0);
    assert_eq!(run("image repair one --dry-run").status, 4, "the other volume");
    let ran = run("image repair image");
    assert_eq!(ran.status, 1, "{}{}", ran.stdout, ran.stderr);
    assert!(ran.stdout.contains("v0: ") && ran.stdout.contains("v4: "), "{}", ran.stdout);
    assert_eq!(run("image check image").status, 0);
    assert_eq!(run("image repair image --volume v1").status, 4, "there is no file system in it");
    // The content of the static volume, of which there is no copy.
    let mut image = fs::read(folder.join("image")).unwrap();
    let at = image.windows(14).position(|it| it == b"no file system").unwrap();
    image[at] ^= 1;
    fs::write(folder.join("image"), image).unwrap();
    let ran = run("image repair image");
    assert_eq!(ran.status, 4, "{}{}", ran.stdout, ran.stderr);
    assert!(ran.stderr.contains("v1: static volume data"), "{}", ran.stderr);
}

/// Changes `total_free` of the master node at the start of `leb`, and corrects its CRC.
fn spoil_total_free(leb: &mut [u8]) {
    /// Size of a master node, and the offset of that sum.
    const NODE: usize = 512;
    const TOTAL_FREE: usize = 24 + 56;
    leb[TOTAL_FREE] ^= 8;
    let crc = flysch_wire::ubifs::crc32(&leb[8..NODE]);
    leb[4..8].copy_from_slice(&crc.to_le_bytes());
}
