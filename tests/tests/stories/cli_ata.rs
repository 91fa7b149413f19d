//! `flysch ata`: its output compared with smartctl's for the same device, the confirmation required
//! before data is destroyed, and what is refused.

use flysch_tests::command::{Ran, assert_holds, run};
use serde_json::{Map, Value};

/// What smartctl 7.3 printed with `-x -j` in a Linux guest of `flysch serve ahci,size=256M`.
const SMARTCTL: &str = include_str!("ata_cli/smartctl.json");

/// Fields about smartctl and not the device; fields that we do not report: which logs may be
/// written, and flags of statistics; and traces of Linux's earlier activity.
const NOT_OURS: [&str; 12] = [
    "json_format_version",
    "smartctl",
    "local_time",
    "device",
    "in_smartctl_database",
    "read",
    "write",
    "smart_sectors",
    "smart_dir_version",
    "smart_dir_multi_sector",
    "flags",
    "power_on_time",
];

fn ata(words: &str, target: &str) -> Ran {
    run(&format!("ata {words} --on {target}"))
}

/// Numbers that grow while Linux uses its disk.
fn counts(name: &str) -> bool {
    let names = ["Total_LBAs_Read", "Total_LBAs_Written", "Logical Sectors", "Number of "];
    names.iter().any(|begin| name.starts_with(begin))
}

#[test]
fn json_has_all_that_smartctl_prints() {
    let mut all = Map::new();
    for words in [
        "info",
        "health",
        "attributes",
        "capabilities",
        "error-log",
        "selftest-log",
        "statistics",
        "log-directory",
    ] {
        let ran = ata(&format!("{words} --json"), "ahci,size=256M");
        assert_eq!(ran.status, 0, "{words}: {}", ran.stderr);
        let told: Value = serde_json::from_str(&ran.stdout).unwrap();
        let Value::Object(told) = told else { panic!("{words}: {told}") };
        all.extend(told);
    }
    let mut theirs: Value = serde_json::from_str(SMARTCTL).unwrap();
    // smartctl lists two directories in one; we do not list the directory of SMART's own logs.
    let logs = theirs["ata_log_directory"]["table"].as_array_mut().expect("a list");
    logs.retain(|log| log.get("gp_sectors").is_some());
    assert_holds(&Value::Object(all), &theirs, "", &|fields, name| {
        let grows = fields.get("name").and_then(Value::as_str).is_some_and(counts);
        NOT_OURS.contains(&name) || grows && matches!(name, "raw" | "value")
    });
}

#[test]
fn every_verb_does_what_it_says() {
    let told = |words: &str, target: &str, parts: &[&str]| {
        let ran = ata(words, target);
        assert_eq!(ran.status, 0, "{words}: {}", ran.stderr);
        for part in parts {
            assert!(ran.stdout.contains(part), "{words}: {part}: {}", ran.stdout);
        }
    };
    let disk = "ahci,size=64M";
    told("info", disk, &["FLYSCH SATA", "67108864 bytes", "6.0 Gb/s (current: 6.0 Gb/s)"]);
    told("identify", disk, &["Native Command Queuing (NCQ)", "131072 sectors"]);
    told("health", disk, &["test result: PASSED"]);
    told("attributes", disk, &["UDMA_CRC_Error_Count", "Power_Cycle_Count"]);
    told("selftest short --wait", disk, &["completed without error"]);
    told("power standby", disk, &["drive state is:  standby"]);
    told("power idle -t 60", disk, &["drive state is:  idle"]);
    told("security status", disk, &["Disabled, NOT FROZEN"]);
    told("security set-password -p secret --yes", disk, &["ENABLED, PW level HIGH"]);
    told("security freeze", disk, &["frozen [SEC2]"]);
    // A disk without a user password accepts the master password.
    told("security erase --master -p FLYSCH --yes", disk, &["Disabled, NOT FROZEN [SEC1]"]);
    told("sanitize", disk, &["idle: no operation has completed"]);
    told("sanitize block-erase --yes", disk, &["completed without error"]);
    told("sanitize freeze-lock", disk, &["frozen"]);
    told("hpa", disk, &["131072/131072, HPA is disabled"]);
    told("hpa -s 1000 --yes", disk, &["1000/131072, HPA is enabled"]);
    told("ama -s 1000 --yes", disk, &["1000/131072, AMA is enabled"]);
    told("set-feature write-cache off", disk, &["write cache disabled"]);
    told("trim -s 8 -n 100000 --yes", disk, &["trimmed 100000 sectors"]);
    told("get-log -a 0x30 -p 8", disk, &["01f0:"]);
    told("reset", disk, &["is up again"]);
    told("errors", disk, &["comreset"]);
    told("led locate", disk, &["show locate"]);
    told("passthru -c 0xec -i 512", disk, &["IDENTIFY DEVICE: status"]);
}

/// The disk's contents are in a file, which shows what an erase left.
#[test]
fn an_overwrite_leaves_its_pattern_and_an_erase_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("disk.img");
    let on = format!("ahci,size=4M,image={}", image.display());
    for (words, wanted) in [
        ("sanitize overwrite --pattern 0x44332211 --passes 3 --yes", [0x11, 0x22, 0x33, 0x44]),
        ("security erase --master -p FLYSCH --yes", [0; 4]),
        ("sanitize overwrite --pattern 0x5a5a5a5a --yes", [0x5A; 4]),
        ("sanitize block-erase --yes", [0; 4]),
    ] {
        let ran = ata(words, &on);
        assert_eq!(ran.status, 0, "{words}: {}", ran.stderr);
        let content = std::fs::read(&image).unwrap();
        assert_eq!(content.len(), 4 << 20, "{words}");
        assert!(content.chunks(4).all(|chunk| chunk == wanted), "{words}");
    }
}

#[test]
fn what_destroys_asks_first() {
    for words in [
        "trim -s 0 -n 8",
        "sanitize crypto-scramble",
        "security set-password -p secret",
        "security erase -p secret",
        "hpa -s 8",
        "ama -s 8",
        "fwactivate",
        "passthru -c 0x35",
    ] {
        let ran = ata(words, "ahci,size=16M");
        assert_eq!(ran.status, 2, "{words}: {}", ran.stdout);
        assert!(ran.stderr.contains("Add --yes"), "{words}: {}", ran.stderr);
    }
}

#[test]
fn wrong_use_and_what_is_missing_are_named() {
    let disk = "ahci,size=16M";
    for (words, target, status, told) in [
        ("info", "ufs,size=16M", 2, "is not a SATA device"),
        ("security erase -p nobody --yes", disk, 1, "did not carry it out"),
        ("hpa -s 99999999 --yes", disk, 2, "1 to 32768 sectors"),
        ("trim -s 40000 -n 1 --yes", disk, 2, "sectors 0 to 32767"),
        ("get-log -a 0x77", disk, 1, "log 0x77 has 0 pages"),
        ("power check -t 5", disk, 2, "a timer needs"),
        ("power idle -t 7", disk, 2, "cannot be set"),
        ("security disable -p wrong", disk, 1, "did not carry it out"),
        ("fwactivate --yes", disk, 1, "did not carry it out"),
        ("fwdownload -f /no/such/file --yes", disk, 1, "/no/such/file"),
        ("toc", disk, 1, "not an optical drive"),
        ("passthru -c 0x400", disk, 2, "not a byte"),
    ] {
        let ran = ata(words, target);
        assert_eq!(ran.status, status, "{words}: {} {}", ran.stdout, ran.stderr);
        assert!(ran.stderr.contains(told), "{words}: {}", ran.stderr);
        assert_eq!(ran.stderr.lines().count(), 1, "{words}: {}", ran.stderr);
    }
}

#[test]
fn a_disc_is_read_and_not_written() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("disc.img");
    let bytes: Vec<u8> = (0..1 << 20).map(|at: u32| (at / 7) as u8).collect();
    std::fs::write(&image, &bytes).unwrap();
    let target = format!("ahci,kind=cd,image={}", image.display());
    let back = folder.path().join("back.img");
    let ran = run(&format!("copy {target} {}", back.display()));
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    assert_eq!(std::fs::read(&back).unwrap(), bytes);
    let ran = run(&format!("copy {} {target}", back.display()));
    assert_eq!(ran.status, 1, "{}", ran.stdout);
    assert!(ran.stderr.contains("write protected"), "{}", ran.stderr);
    let ran = ata("toc", &target);
    assert!(ran.stdout.contains("512"), "{} {}", ran.stdout, ran.stderr);
    for (words, told) in [("eject", "ejected"), ("load", "loaded")] {
        let ran = ata(words, &target);
        assert!(ran.stdout.contains(told), "{words}: {} {}", ran.stdout, ran.stderr);
    }
}
