//! `flysch emmc`: its output compared with mmc-utils' for the same device, and the confirmation
//! required before data is destroyed.

use flysch_tests::command::{Ran, run};
use serde_json::Value;

/// Fields of EXT_CSD and their values as printed by mmc-utils (Debian 13) with `extcsd read` in a
/// Linux guest of `flysch serve emmc,size=256M`.
const RECORDED: &str = include_str!("emmc_cli/extcsd.txt");

/// Names that mmc-utils takes from older releases of the specification, or made up.
const OTHER_NAMES: [(&str, &str); 6] = [
    ("BOOT_SIZE_MULTI", "BOOT_SIZE_MULT"),
    ("CARD_TYPE", "DEVICE_TYPE"),
    ("EXT_CSD_DEVICE_LIFE_TIME_EST_TYP_A", "DEVICE_LIFE_TIME_EST_TYP_A"),
    ("EXT_CSD_DEVICE_LIFE_TIME_EST_TYP_B", "DEVICE_LIFE_TIME_EST_TYP_B"),
    ("EXT_CSD_PRE_EOL_INFO", "PRE_EOL_INFO"),
    ("HPI_FEATURE", "HPI_FEATURES"),
];
/// A field that mmc-utils counts from one, one that Linux switches off for its query, one that the
/// specification gives for 1.3 V.
const NOT_OURS: [&str; 3] = ["CMDQ_DEPTH", "CMDQ_MODE_EN", "PWR_CL_200_360"];

fn emmc(words: &str, target: &str) -> Ran {
    run(&format!("emmc {words} --on {target}"))
}

fn json(words: &str, target: &str) -> Value {
    let ran = emmc(&format!("{words} --json"), target);
    assert_eq!(ran.status, 0, "{words}: {}", ran.stderr);
    serde_json::from_str(&ran.stdout).unwrap()
}

#[test]
fn ext_csd_has_all_that_mmc_utils_prints() {
    let ours = json("extcsd read", "emmc,size=256M");
    let mut compared = 0;
    for line in RECORDED.lines() {
        let (name, value) = line.split_once(' ').unwrap();
        if NOT_OURS.contains(&name) {
            continue;
        }
        let name = OTHER_NAMES.iter().find(|(theirs, _)| *theirs == name).map_or(name, |n| n.1);
        let value = u64::from_str_radix(value.trim_start_matches("0x"), 16).unwrap();
        assert_eq!(ours[name].as_u64(), Some(value), "{name}");
        compared += 1;
    }
    assert!(compared > 90, "{compared}");
    assert_eq!(ours["raw"].as_str().map(str::len), Some(1024));
}

#[test]
fn registers_are_shown() {
    let told = |words: &str, parts: &[&str]| {
        let ran = emmc(words, "emmc,size=256M");
        assert_eq!(ran.status, 0, "{words}: {}", ran.stderr);
        for part in parts {
            assert!(ran.stdout.contains(part), "{words}: {part}: {}", ran.stdout);
        }
    };
    told("extcsd read", &["Extended CSD rev 1.8 (MMC 5.1)", "[SEC_COUNT: 0x00080000]", "HS400"]);
    told("cid read", &["======MMC/CID======", "PNM: FLYSCH", "PSN: 0x0f1a5c4e"]);
    told("csd read", &["======MMC/CSD======", "CAPACITY: 268435456 bytes, 524288 sectors"]);
    told("status get", &["SEND_STATUS response: 0x00000900", "Transfer, ready for data"]);
    told("health", &["DEVICE_LIFE_TIME_EST_TYP_A: 0x01 (0 to 10 %", "PRE_EOL_INFO: 0x01 (normal)"]);
    told("errors", &["no errors since bring-up"]);
    told("reset", &["up again"]);
}

#[test]
fn protection_boot_and_cache_are_set() {
    let on = "emmc,size=256M";
    let boot = json("writeprotect boot set 1", on);
    assert_eq!((boot["BOOT_WP"].as_u64(), boot["BOOT_WP_STATUS"].as_u64()), (Some(0x83), Some(4)));
    let both = json("writeprotect boot set", on);
    assert_eq!(both["BOOT_WP_STATUS"], 5);
    let user = json("writeprotect user set temp 16384 32768", on);
    assert_eq!(user["protected"][0]["start"], 16384);
    assert_eq!(user["protected"][0]["blocks"], 32768);
    assert_eq!(json("writeprotect user get", on)["protected"].as_array().map(Vec::len), Some(0));
    assert_eq!(json("bootpart enable 2 1", on)["PARTITION_CONFIG"], 0x50);
    assert_eq!(json("bootbus set single_hs x1 x4", on)["BOOT_BUS_CONDITIONS"], 9);
    assert_eq!(json("bkops_en auto", on)["BKOPS_EN"], 2);
    assert_eq!(json("cache disable", on)["CACHE_CTRL"], 0);
    assert_eq!(json("cache enable", on)["CACHE_CTRL"], 1);
    assert_eq!(json("erase trim 0 7 --yes", on)["end"], 7);
    assert_eq!(json("sanitize --yes", on)["sanitize"], "done");
}

#[test]
fn what_is_for_ever_wants_consent() {
    let words = [
        "sanitize",
        "erase trim 0 7",
        "hwreset enable",
        "hwreset disable",
        "bkops_en manual",
        "gp create 8192 1 0 0",
        "enh_area set 0 8192",
    ];
    for words in words {
        let ran = emmc(words, "emmc,size=256M");
        assert_eq!(ran.status, 2, "{words}");
        assert!(ran.stderr.contains("--yes"), "{words}: {}", ran.stderr);
        assert_eq!((ran.stderr.lines().count(), ran.stdout.as_str()), (1, ""), "{words}");
    }
}

#[test]
fn a_card_is_partitioned_once() {
    let on = "emmc,size=256M";
    let made = json("gp create 16384 2 1 0 --yes", on);
    assert_eq!(made["partition"], 2);
    assert_eq!(made["completed"], true);
    assert_eq!(json("gp create 8192 1 0 2 --continue --yes", on)["completed"], false);
    let area = json("enh_area set 8192 65536 --yes", on);
    assert_eq!(area["start_kib"], 8192);
    assert_eq!(area["kib"], 65536);
    let ran = emmc("enh_area set 0 131072 --yes", "emmc,size=8G");
    assert!(ran.stdout.contains("in force after the next power cycle"), "{}", ran.stderr);
}

#[test]
fn what_a_card_lacks_is_said_in_a_line() {
    let cases = [
        ("scr read", "emmc", 1, "no SCR"),
        ("gp create 8192 1 0 0 --yes", "emmc,size=256M,gp=8M", 1, "already partitioned"),
        ("gp create 262144 1 0 0 --yes", "emmc,size=256M", 1, "EXT_CSD byte 155"),
        ("gp create 139264 1 1 0 --yes", "emmc,size=256M", 2, "more than the card has"),
        ("enh_area set 0 139264 --yes", "emmc,size=256M", 2, "131072 KiB that can be enhanced"),
        ("enh_area set 5 8192 --yes", "emmc,size=256M", 2, "whole write protect groups"),
        ("enh_area set 262144 8192 --yes", "emmc,size=256M", 2, "ends before 262144 KiB"),
        ("gp create 8192 5 0 0 --yes", "emmc,size=256M", 2, "it must be 1 to 4"),
        ("gp create 100 1 0 0 --yes", "emmc,size=256M", 2, "whole write protect groups"),
        ("gp create 8192 1 1 2 --yes", "emmc,size=256M", 2, "not both"),
        ("writeprotect user set temp 1 5", "emmc,size=256M", 2, "write protect group"),
        ("writeprotect user set temp 524288 16384", "emmc,size=256M", 2, "ends at sector 524288"),
        ("bootpart enable 4 0", "emmc", 2, "boot partitions are 1 and 2"),
        ("erase legacy 0 7 --yes", "emmc", 2, "whole erase groups"),
        ("erase trim 9 7 --yes", "emmc", 2, "not a range"),
        ("rpmb read-counter", "emmc", 1, "not yet programmed"),
        ("rpmb read-block 65535 2 out", "emmc", 2, "block 65535"),
        ("ffu no-such-file --yes", "emmc", 1, "no-such-file"),
        ("status get", "nvme", 2, "not an eMMC device or SD card"),
    ];
    for (words, target, status, part) in cases {
        let ran = emmc(words, target);
        assert_eq!(ran.status, status, "{words}: {}", ran.stderr);
        assert!(ran.stderr.contains(part), "{words}: {}", ran.stderr);
        assert_eq!(ran.stderr.lines().count(), 1, "{words}: {}", ran.stderr);
    }
}
