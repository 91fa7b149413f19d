//! `flysch image repair` as a user runs it.
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

/// Each prepared image at its level and not at the one below; the check is content then.
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

/// An image of mkfs.ubifs and ubinize, its master nodes or its log lost.
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

/// Changes `total_free` of the master node at the start of `leb`, and its CRC with it.
fn spoil_total_free(leb: &mut [u8]) {
    /// Bytes of a master node, and where it has that sum.
    const NODE: usize = 512;
    const TOTAL_FREE: usize = 24 + 56;
    leb[TOTAL_FREE] ^= 8;
    let crc = flysch_wire::ubifs::crc32(&leb[8..NODE]);
    leb[4..8].copy_from_slice(&crc.to_le_bytes());
}
