//! The check finds everything that is wrong, and nothing in what is right.
//!
//! The prepared images of the mtd-utils test suite are not part of the project (GPL-2.0):
//! `FLYSCH_UBIFS_IMAGES` names a directory with their `.gz` files.

use std::path::PathBuf;
use std::process::Command;

use flysch_api::finding::{Finding, Severity};
use flysch_tests::command;
use flysch_tests::ubifs::{
    FORMATS, Format, flash, image_tree, make_tree, mkfs, tools_missing, ubinize,
};
use flysch_ubi::{AttachOptions, Ubi, find_images};
use flysch_ubifs::{OpenOptions, Ubifs};

/// The finding expected for each prepared image: part of the structure's name.
const EXPECTED: [(&str, &str); 52] = [
    ("sb_fanout", "superblock field fanout"),
    ("sb_fmt_version", "superblock field fmt_version"),
    ("sb_leb_size", "superblock field leb_size"),
    ("sb_log_lebs", "superblock field log_lebs"),
    ("sb_min_io_size", "superblock field min_io_size"),
    ("master_highest_inum", "field highest_inum"),
    ("master_lpt", "field lpt_lnum"),
    ("master_tnc", "index node: no node"),
    ("master_total_dead", "field total_dead"),
    ("master_total_dirty", "field total_dirty"),
    ("master_total_free", "field total_free"),
    ("journal_log", "log: no node"),
    ("journal_bud", "journal: 14104 bytes are not a node"),
    ("orphan_node", "orphan area: inode node"),
    ("lpt_dirty", "LPT pnode: impossible value in field dirty"),
    ("lpt_flags", "LEB properties: a LEB of data"),
    ("lpt_free", "LEB properties: 15160 bytes free"),
    ("lpt_pos", "LPT pnode: bad CRC"),
    ("ltab_dirty", "LPT ltab: LEB 5: 16072 bytes free and 10 dirty"),
    ("ltab_free", "LPT ltab: LEB 5: 12 bytes free"),
    ("index_size", "index_size is 64"),
    ("tnc_lv0_key", "index node: the node here has the wrong order of keys"),
    ("tnc_lv0_len", "index node: the node here has the wrong branch"),
    ("tnc_lv0_pos", "index node: the node here has the wrong branch"),
    ("tnc_noleaf_key", "index node: the node here has the wrong order of keys"),
    ("tnc_noleaf_len", "index node: the node here has the wrong branch"),
    ("tnc_noleaf_pos", "index node: the node here has the wrong branch"),
    ("corrupted_data_leb", "LEB: 560 bytes are not a node (bad CRC"),
    ("corrupted_idx_leb", "LEB: 15264 bytes are not a node"),
    ("inode_data", "data node: impossible value in field size"),
    ("inode_mode", "\"corrupt_file\" has type 0, but its inode is of kind Directory"),
    ("inode_nlink", "nlink is 1, but should be 2"),
    ("inode_size", "content up to 2048 in a file of size 1261"),
    ("inode_xcnt", "xattr_cnt is 2, but should be 1"),
    ("soft_link_inode_mode", "impossible mode 0o0"),
    ("soft_link_data_len", "inode node: impossible value in field data_len"),
    ("dentry_key", "directory entry node: the node here has the wrong key"),
    ("dentry_nlen", "directory entry node: impossible value in field nlen"),
    ("dentry_type", "\"corrupt_file\" has type 8"),
    ("xinode_flags", "\"user.corrupt\" leads to inode 66, which is used for something else"),
    ("xinode_key", "inode node: the node here has the wrong key"),
    ("xinode_mode", "impossible mode 0o356526517 with flags 0x20"),
    ("xentry_key", "extended attribute entry node: the node here has the wrong key"),
    ("xentry_nlen", "extended attribute entry node: impossible value in field nlen"),
    ("xentry_type", "\"user.corrupt\" has type 249"),
    ("xent_host", "\"corrupt_file\" leads to inode 65, which is used for something else"),
    ("dir_many_dentry", "2 names lead to a directory"),
    ("dir_lost", "inode node: no directory names it"),
    ("dir_lost_duplicated", "inode node: no directory names it"),
    ("dir_lost_not_recover", "\"dir\" has type 1, but its inode is of an unknown kind"),
    ("root_dir", "impossible value in field data_len"),
    ("empty_tnc", "impossible value in field data_len"),
];

/// 16 KiB blocks of NOR-like memory.
const PREPARED: Format =
    Format { min_io: 1, peb_size: 16384, leb_size: 16256, sub_page: None, lebs: 26 };

fn is_damage(finding: &Finding) -> bool {
    finding.severity != Severity::Note
}

/// Attaches, opens, checks; returns the findings, and the paths that still exist.
fn check(image: Vec<u8>, format: &Format) -> (Vec<Finding>, Vec<String>) {
    let flash = flash(image, format);
    let ubi = Ubi::attach(&flash, find_images(&flash, None)[0], &AttachOptions::default()).unwrap();
    let fs = Ubifs::open(ubi.volume(0).unwrap(), &OpenOptions::default()).unwrap();
    let mut findings = ubi.findings().to_vec();
    findings.extend(fs.check());
    findings.retain(is_damage);
    let paths = image_tree(&fs, &mut Vec::new()).into_keys();
    (findings, paths.map(|path| path.escape_ascii().to_string()).collect())
}

fn prepared(name: &str) -> Option<Vec<u8>> {
    let Some(directory) = std::env::var_os("FLYSCH_UBIFS_IMAGES").map(PathBuf::from) else {
        eprintln!("skipped: FLYSCH_UBIFS_IMAGES names no directory");
        return None;
    };
    let path = directory.join(format!("{name}.gz"));
    let output = Command::new("gzip").arg("-dc").arg(&path).output().unwrap();
    assert!(output.status.success(), "{}", path.display());
    Some(output.stdout)
}

#[test]
fn the_intact_image_passes() {
    let Some(image) = prepared("good") else { return };
    let (findings, paths) = check(image, &PREPARED);
    assert_eq!(findings, []);
    let expected = [
        "",
        "corrupt_file",
        "dir",
        "dir/block_dev",
        "dir/char_dev",
        "dir/dir",
        "dir/file",
        "hardl_corrupt_file",
        "softl_corrupt_file",
    ];
    assert_eq!(paths, expected);
}

#[test]
fn every_damaged_image_is_found_wrong_by_its_structure() {
    for (name, expected) in EXPECTED {
        let Some(image) = prepared(name) else { return };
        let (findings, _) = check(image, &PREPARED);
        let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
        let named = lines.iter().any(|line| line.contains(expected));
        assert!(named, "{name} wants \"{expected}\":\n{}", lines.join("\n"));
    }
}

/// The command's text and its JSON name the same findings, with a place that a person can find.
#[test]
fn the_command_names_structure_and_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    for (name, expected) in EXPECTED.into_iter().chain([("good", "nothing is wrong")]) {
        let Some(image) = prepared(name) else { return };
        std::fs::write(&path, image).unwrap();
        let shown = command::run(&format!("image check {}", path.display()));
        let status = i32::from(name != "good");
        assert_eq!(shown.status, status, "{name}: {}", shown.stderr);
        let lines: Vec<&str> = shown.stdout.lines().collect();
        let line = lines.iter().find(|line| line.contains(expected));
        let line = line.unwrap_or_else(|| panic!("{name} wants \"{expected}\": {lines:#?}"));
        let json = command::run(&format!("image check --json {}", path.display()));
        assert_eq!(json.status, status, "{name}");
        let value: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
        let findings = value["findings"].as_array().unwrap();
        if name == "good" {
            assert_eq!(value["wrong"], 0);
            continue;
        }
        assert!(value["wrong"].as_u64() >= Some(1));
        let same = findings.iter().find(|finding| {
            let field = |name: &str| finding[name].as_str().unwrap();
            format!("{}: {}", field("structure"), field("problem")).contains(expected)
        });
        let same = same.unwrap_or_else(|| panic!("{name}: {findings:#?}"));
        assert_eq!(same["volume"], "vol_a");
        // Block and offset, or the affected file.
        let is_placed = same["peb"].is_u64() && same["leb"].is_u64() && same["offset"].is_u64();
        let is_file = same["inode"].is_u64();
        assert!(is_placed || is_file, "{name}: {same}");
        assert_eq!(line.contains("PEB "), is_placed, "{name}: {line}");
        if let Some(path) = same["path"].as_str() {
            assert!(line.ends_with(path), "{name}: {line}");
        }
    }
}

#[test]
fn a_damaged_index_or_log_costs_no_file() {
    let whole = [
        "sb_fanout",
        "sb_fmt_version",
        "sb_leb_size",
        "sb_log_lebs",
        "sb_min_io_size",
        "master_lpt",
        "master_tnc",
        "journal_log",
        "journal_bud",
        "tnc_lv0_key",
        "tnc_lv0_len",
        "tnc_lv0_pos",
        "tnc_noleaf_key",
        "tnc_noleaf_len",
        "tnc_noleaf_pos",
        "corrupted_idx_leb",
    ];
    for name in whole {
        let (Some(image), Some(good)) = (prepared(name), prepared("good")) else { return };
        assert_eq!(check(image, &PREPARED).1, check(good, &PREPARED).1, "{name}");
    }
}

#[test]
fn images_of_mkfs_pass() {
    if tools_missing() {
        return;
    }
    let tree = tempfile::tempdir().unwrap();
    make_tree(tree.path());
    let big = Format { lebs: 20_000, ..FORMATS[1] };
    for format in FORMATS.iter().chain([&big]) {
        let image = mkfs(tree.path(), format, "lzo", &[]);
        let (findings, paths) = check(ubinize(&image, format), format);
        assert_eq!(findings, [], "{format:?}");
        assert!(paths.len() > 240);
    }
}
