//! `flysch nvme`: its output compared with nvme-cli's for the same device, and the confirmation
//! required before data is destroyed.

use flysch_tests::command::{Ran, assert_holds, run};
use serde_json::Value;

/// Our arguments, and what nvme-cli 2.3 printed with `-o json` in a Linux guest of
/// `flysch serve nvme,size=256M,queues=2,namespaces=2`.
const RECORDED: [(&str, &str); 7] = [
    ("id-ctrl", include_str!("nvme_cli/id-ctrl.json")),
    ("id-ns -n 1", include_str!("nvme_cli/id-ns.json")),
    ("list-ns", include_str!("nvme_cli/list-ns.json")),
    ("ns-descs -n 1", include_str!("nvme_cli/ns-descs.json")),
    ("error-log -e 2", include_str!("nvme_cli/error-log.json")),
    ("list", include_str!("nvme_cli/list.json")),
    ("smart-log", include_str!("nvme_cli/smart-log.json")),
];

/// Fields of controllers other than PCI devices, the path of Linux's device file, and traces of
/// Linux's earlier reads.
const NOT_OURS: [&str; 9] = [
    "ioccsz",
    "iorcsz",
    "icdoff",
    "fcatt",
    "msdbd",
    "ofcs",
    "DevicePath",
    "data_units_read",
    "host_read_commands",
];

fn nvme(words: &str, target: &str) -> Ran {
    run(&format!("nvme {words} --on {target}"))
}

#[test]
fn json_has_all_that_nvme_cli_prints() {
    for (words, recorded) in RECORDED {
        let ran = nvme(&format!("{words} --json"), "nvme,size=256M,queues=2,namespaces=2");
        assert_eq!(ran.status, 0, "{words}: {}", ran.stderr);
        let theirs: Value = serde_json::from_str(recorded).unwrap();
        let ours: Value = serde_json::from_str(&ran.stdout).unwrap();
        assert_holds(&sorted(ours), &sorted(theirs), words, &|_, name| NOT_OURS.contains(&name));
    }
}

/// Devices by their namespaces: Linux numbers its device files arbitrarily.
fn sorted(mut list: Value) -> Value {
    if let Some(devices) = list.get_mut("Devices").and_then(Value::as_array_mut) {
        devices.sort_by_key(|one| one["NameSpace"].as_u64());
    }
    list
}

#[test]
fn every_log_and_feature_is_shown() {
    let told = |words: &str, parts: &[&str]| {
        let ran = nvme(words, "nvme,size=64M");
        assert_eq!(ran.status, 0, "{words}: {}", ran.stderr);
        for part in parts {
            assert!(ran.stdout.contains(part), "{words}: {part}: {}", ran.stdout);
        }
    };
    told("id-ctrl", &["mn        : Flysch NVMe model", "ps      4 : mp:0.0050W non-operational"]);
    told("smart-log", &["temperature", "38°C (311 Kelvin)", "available_spare "]);
    told("error-log", &["Error Log Entries: 0 of 64"]);
    told("fw-log", &["frs1 : 0x2020202020302e31 (1.0)"]);
    told("effects-log", &["Format NVM", "no other command to the namespace"]);
    told("changed-ns-list-log", &["no namespace changed"]);
    told("sanitize-log", &["never sanitized"]);
    told("supported-log-pages", &["LID 0x81 (Sanitize Status)"]);
    told("list-ctrl", &["num of ctrls present: 1", "[   0]:0x1"]);
    told("get-log -i 2 -l 16", &["0000: 00 37 01 64"]);
    told("get-feature -H", &["Volatile Write Cache Enable (WCE): Enabled", "Power State (PS): 0"]);
    told("get-feature -f 4 -s supported", &["Feature is changeable"]);
    told("set-feature -f 6 -v 0", &["value:0x00000000, save:0"]);
    told(
        "show-regs",
        &["NVMe specification 2.0", "Maximum Queue Entries Supported    (MQES): 1024"],
    );
    told("admin-passthru -o 6 --cdw10 1 -l 64", &["Success", "Flysch N"]);
    told("reset", &["is up again"]);
    told("subsystem-reset", &["is up again"]);
    told("errors", &["no errors since bring-up"]);
}

#[test]
fn what_destroys_asks_first_and_does_what_it_says() {
    for words in [
        "format",
        "sanitize -a start-block-erase",
        "delete-ns -n 1",
        "detach-ns -n 1",
        "fw-commit -s 1 -a 1",
        "admin-passthru -o 0x80 -n 1",
        "write-zeroes -s 0",
        "write-uncor -s 0",
        "dsm -s 0 -b 1 -d",
        "copy -d 9 -s 0 -b 0",
        "resv-acquire -t 1",
        "zns reset-zone -s 0",
    ] {
        let ran = nvme(words, "nvme,size=16M");
        assert_eq!(ran.status, 2, "{words}: {}", ran.stdout);
        assert!(ran.stderr.contains("Add --yes"), "{words}: {}", ran.stderr);
    }
    for (words, told) in [
        ("format -b 512 --yes", "blocks of 512 bytes"),
        ("format -l 1 -s user --yes", "blocks of 4096 bytes"),
        ("sanitize -a start-crypto-erase --yes", "ended well"),
        ("delete-ns -n 1 --yes", "deleted namespace 1"),
        ("detach-ns -n 1 --yes", "Success"),
    ] {
        let ran = nvme(words, "nvme,size=16M");
        assert_eq!(ran.status, 0, "{words}: {}", ran.stderr);
        assert!(ran.stdout.contains(told), "{words}: {}", ran.stdout);
    }
}

/// Commands to namespaces. Written data is in an image, so that the next command finds it.
#[test]
fn blocks_are_read_and_written_by_command() {
    let folder = tempfile::tempdir().unwrap();
    let (image, content) = (folder.path().join("disk"), folder.path().join("content"));
    std::fs::write(&content, b"what was written").unwrap();
    let target = format!("nvme,size=1M,image={}", image.display());
    let content = content.display();
    for (words, told) in [
        (format!("write -s 3 -d {content} --yes"), "write: Success"),
        (format!("compare -s 3 -d {content}"), "compare: Success"),
        ("copy -d 20 -s 2 -b 2 --yes".to_owned(), "copy: Success"),
        (format!("compare -s 21 -d {content}"), "compare: Success"),
        ("read -s 21".to_owned(), "\"what was written"),
        ("verify -s 0 -c 255".to_owned(), "verify: Success"),
        ("flush".to_owned(), "flush: Success"),
        ("dsm -s 3 -b 1 -d --yes".to_owned(), "dsm: Success"),
        ("write-zeroes -s 20 -c 2 -d --yes".to_owned(), "write-zeroes: Success"),
        ("write-uncor -s 20 --yes".to_owned(), "write-uncor: Success"),
    ] {
        let ran = nvme(&words, &target);
        assert_eq!(ran.status, 0, "{words}: {}", ran.stderr);
        assert!(ran.stdout.contains(told), "{words}: {}", ran.stdout);
    }
    let ran = nvme(&format!("compare -s 3 -d {content}"), &target);
    assert!(ran.stderr.contains("Compare Failure"), "{}", ran.stderr);
}

#[test]
fn zones_and_reservations_are_shown() {
    let told = |words: &str, parts: &[&str]| {
        let ran = nvme(words, "nvme,size=1G,zones=4M,cmb=1M,apst=on");
        assert_eq!(ran.status, 0, "{words}: {}", ran.stderr);
        for part in parts {
            assert!(ran.stdout.contains(part), "{words}: {part}: {}", ran.stdout);
        }
    };
    // More than one command can report.
    told("zns report-zones", &["nr_zones: 256", "SLBA: 0x3fc00", "Cap: 0x400"]);
    told("zns report-zones -s 1024 -d 1", &["nr_zones: 1\n", "SLBA: 0x400 "]);
    told("zns report-zones -S full --json", &["\"nr_zones\": 0"]);
    told("zns id-ns", &["mar     : No Limit", "zsze:0x400 zdes:0 (in use)"]);
    told("zns id-ctrl", &["zasl    : 0"]);
    told("zns finish-zone -s 1024 --yes", &["Finish Zone: Success, zone slba: 0x400"]);
    told("zns reset-zone -a --yes", &["all zones"]);
    told("resv-register -k 7", &["success"]);
    told("resv-report", &["gen       : 0", "regctl    : 0", "this host has no identifier"]);
    told("resv-report -e --json", &["\"rtype\": 0", "\"regctls\": []"]);
    told("get-feature -f 0xc -H", &["Enabled", "from state 0 to 3 after 100 ms"]);
    told("show-regs", &["NVMe specification 2.0"]);
    let bench = "bench --rw=randread --bs=4k --number_ios=10 --on nvme,size=1G,zones=4M";
    assert_eq!(run(bench).status, 0, "reads go anywhere");
    let bench = "bench --rw=randwrite --bs=4k --number_ios=10 --on nvme,size=1G,zones=4M";
    let ran = run(bench);
    assert_ne!(ran.status, 0, "writes do not: {}", ran.stdout);
    let ran = nvme("set-feature -f 0x81 -v 0 -d /dev/null", "nvme,size=16M");
    assert!(ran.stderr.contains("/dev/null has 0 bytes, but its structure 8"), "{}", ran.stderr);
}

#[test]
fn wrong_use_is_named() {
    for (words, target, status, told) in [
        ("id-ctrl", "ufs,size=16M", 2, "is not an NVMe controller"),
        ("id-ns -n 7", "nvme,size=16M", 1, "namespace 7 is not active; active: 1"),
        ("id-ctrl", "nvme,namespaces=2,ns=3", 2, "1..2"),
        ("format -b 1024 --yes", "nvme,size=16M", 2, "there are 0: 512 bytes, 1: 4096 bytes"),
        ("format -l 9 --yes", "nvme,size=16M", 2, "there is no LBA format 9"),
        ("get-log -i 0x70", "nvme,size=16M", 1, "Invalid Log Page"),
        ("get-log -i 2 -l 5", "nvme,size=16M", 2, "a multiple of 4"),
        ("get-feature -f 0x99", "nvme,size=16M", 1, "Invalid Field in Command"),
        ("set-feature -f 0xc -v 0", "nvme,size=16M", 2, "its value is a structure of 256 bytes"),
        ("set-feature -f 6 -d /dev/null", "nvme,size=16M", 2, "it has no structure"),
        ("set-feature -f 0xd -v 1", "nvme,size=16M", 2, "the memory is the driver's"),
        ("zns report-zones", "nvme,size=16M", 1, "namespace 1 has no zones"),
        ("resv-acquire -t 1 --yes", "nvme,size=16M", 1, "Reservation Conflict"),
        ("resv-acquire -t 9 --yes", "nvme,size=16M", 2, "write exclusive"),
        ("verify -s 4096", "nvme,size=16M", 1, "LBA Out of Range"),
        ("dsm -s 1,2 -b 1 -d --yes", "nvme,size=16M", 2, "2 first blocks, but 1 length"),
        ("copy -d 0 -s 0 -b 3 --yes", "nvme,size=16M", 1, "Overlapping Range"),
        ("compare -s 0 -d /no/such/file", "nvme,size=16M", 1, "/no/such/file"),
        ("id-ns", "nvme,size=16M,cmb=5", 2, "BYTES|off"),
        ("id-ns", "nvme,size=16M,zones=3M", 1, "zone size of namespace 1"),
        ("set-feature -f 7 -v 0", "nvme,size=16M", 2, "the driver's queues depend on it"),
        ("create-ns -s 100", "nvme,size=16M", 1, "Namespace Insufficient Capacity"),
        ("attach-ns -n 2", "nvme,size=16M", 1, "Invalid"),
        ("fw-download -f /no/such/file", "nvme,size=16M", 1, "/no/such/file"),
        ("admin-passthru -o 1 --yes", "nvme,size=16M", 2, "of the driver's own"),
    ] {
        let ran = nvme(words, target);
        assert_eq!(ran.status, status, "{words}: {} {}", ran.stdout, ran.stderr);
        assert!(ran.stderr.contains(told), "{words}: {}", ran.stderr);
        assert_eq!(ran.stderr.lines().count(), 1, "{words}: {}", ran.stderr);
    }
}
