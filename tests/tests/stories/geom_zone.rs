//! Zones of a disk with `geom zone`, in the form of zonectl(8).

use flysch_tests::command::{Ran, run_in};

/// Four zones of 1024 sectors.
const ZONED: &str = "--on nvme,size=16M,zones=4M";

/// Runs the lines in one session.
fn play(disks: &str, lines: &[&str]) -> Ran {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("script"), lines.join("\n")).unwrap();
    std::fs::write(folder.path().join("src"), [7; 4096]).unwrap();
    run_in(&format!("geom {disks} --script script"), folder.path())
}

#[test]
fn zones_are_reported_in_the_columns_of_zonectl() {
    let rz = "zone -d /dev/nda0 -c rz";
    let ran = play(ZONED, &["zone -d nda0 -c open -l 1024", rz]);
    assert_eq!((ran.status, &ran.stderr[..]), (0, ""));
    let expected = "\
4 zones, Maximum LBA 0xfff (4095)
Zone lengths and types are all the same
  Start LBA  Length       WP LBA      Zone Type      Condition      Sequential             Reset
          0,   1024,           0,  Seq Required,         Empty,     Sequential,  No Reset Needed
      0x400,   1024,       0x400,  Seq Required, Explicit Open,     Sequential,  No Reset Needed
      0x800,   1024,       0x800,  Seq Required,         Empty,     Sequential,  No Reset Needed
      0xc00,   1024,       0xc00,  Seq Required,         Empty,     Sequential,  No Reset Needed
";
    assert_eq!(ran.stdout, expected);
    // From the middle of a zone, without a heading, in words without blanks.
    let ran = play(ZONED, &["zone -d nda0 -c RZ -P script -l 0xc01"]);
    let line = "      0xc00,   1024,       0xc00,  Seq_Required,         Empty,     Sequential,  \
         No_Reset_Needed\n";
    assert_eq!(ran.stdout, line);
    let ran = play("--on nvme,size=1G,zones=64K", &["zone -d nda0 -c rz -P summary"]);
    assert!(ran.stdout.starts_with("16384 zones, Maximum LBA 0x3ffff"), "{}", ran.stdout);
    assert_eq!(ran.stdout.lines().count(), 2);
    // More than one answer of the graph can hold.
    let ran = play("--on nvme,size=1G,zones=64K", &["zone -d nda0 -c rz -P script"]);
    assert_eq!(ran.stdout.lines().count(), 16384);
    let words = format!("geom {ZONED} zone -d nda0 -c rz -o empty --json");
    let value: serde_json::Value =
        serde_json::from_str(&run_in(&words, std::env::temp_dir()).stdout).unwrap();
    assert_eq!((&value["zones"], &value["maximum_lba"]), (&4.into(), &4095.into()));
    assert_eq!(value["zone_list"][3]["write_pointer"], 0xc00);
}

#[test]
fn conditions_change_as_they_are_told_to() {
    let ran = play(
        ZONED,
        &["zone -d nda0 -c finish -l 0 --yes", "zone -d nda0.nop -c rz", "nop create nda0"],
    );
    assert!(ran.status == 1 && ran.stderr.contains("nda0.nop"), "not there yet: {}", ran.stderr);
    let full = "zone -d nda0 -c rz -o full -P summary";
    let ran = play(
        ZONED,
        &[
            "zone -d nda0 -c finish -l 0 --yes",
            "zone -d nda0 -c open -l 0x800",
            full,
            "zone -d nda0 -c rz -P script",
            "zone -d nda0 -c close -a",
            "zone -d nda0 -c rwp -a --yes",
            full,
            "zone -d nda0 -c rz -o nonwp -P summary",
            "zone -d nda0 -c rz -o nonseq -P summary",
            "zone -d nda0 -c rz -o reset -P summary",
        ],
    );
    assert_eq!((ran.status, &ran.stderr[..]), (0, ""));
    let counts: Vec<&str> = ran.stdout.lines().filter(|line| line.contains(" zones,")).collect();
    let starts: Vec<&str> = counts.iter().map(|line| &line[..1]).collect();
    assert_eq!(starts, ["1", "0", "0", "0", "0"]);
    // A full zone has no write pointer.
    let zone = ran.stdout.lines().find(|line| line.contains("Full")).unwrap();
    assert!(zone.starts_with("          0,   1024,          -1,"), "{zone}");
    assert!(ran.stdout.contains("Explicit_Open"), "{}", ran.stdout);
    // Through a NOP and a label of the whole disk the result is the same.
    let ran = play(
        ZONED,
        &[
            "nop create nda0",
            "label create all nda0.nop",
            "zone -d label/all -c finish -l 1024 --yes",
            full,
        ],
    );
    assert_eq!((ran.status, &ran.stderr[..]), (0, ""));
    assert!(ran.stdout.starts_with("1 zones"), "{}", ran.stdout);
}

#[test]
fn parameters_are_told_as_zonectl_tells_them() {
    let ran = play(ZONED, &["zone -d nda0 -c params"]);
    let expected = "\
Zone Mode: Host Managed
Command support: Report Zones, Open, Close, Finish, Reset Write Pointer
Unrestricted Read in Sequential Write Required Zone (URSWRZ): Yes
Optimal Number of Open Sequential Write Preferred Zones: Not Set
Optimal Number of Non-Sequentially Written Sequential Write Preferred Zones: Not Set
Maximum Number of Open Sequential Write Required Zones: Unlimited
";
    assert_eq!((&ran.stdout[..], &ran.stderr[..]), (expected, ""));
    let short = "zonectl --on nvme,size=16M,zones=4M --json -d nda0 -c params";
    let ran = run_in(short, std::env::temp_dir());
    let value: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((&value["mode"], &value["max_open"]), (&"Host Managed".into(), &"unlimited".into()));
}

#[test]
fn what_cannot_be_is_told_with_its_remedy() {
    for (disks, line, status, told) in [
        (ZONED, "zone -d nda0 -c rwp -l 5 --yes", 1, "the first sector of a zone"),
        (ZONED, "zone -d nda0 -c rwp -l 0x1000 --yes", 2, "its last sector is 0xfff"),
        (ZONED, "zone -d nda0 -c rz -l 0x1000", 2, "its last sector is 0xfff"),
        (ZONED, "zone -d nda0 -c rwp -l 0", 2, "Add --yes"),
        (ZONED, "zone -d nda0 -c finish -a", 2, "Add --yes"),
        (ZONED, "zone -d nda0 -c open", 2, "-l LBA, or all of them with -a"),
        (ZONED, "zone -d nda0 -c open -a -l 0", 2, "-l"),
        (ZONED, "zone -d nda0 -c params -o full", 2, "-c rz"),
        (ZONED, "zone -d nda0 -c close -l 0", 1, "Invalid Zone State Transition"),
        (ZONED, "zone -d nda1 -c rz", 1, "nda1"),
        ("--on nvme,size=16M", "zone -d nda0 -c rz", 2, "zoned are NVMe namespaces"),
        ("--on ahci,size=16M", "zone -d ada0 -c params", 2, "has no zones"),
        ("--on ufs,size=16M", "zone -d da0 -c rwp -a --yes", 2, "has no zones"),
        ("-f src", "zone -d src -c rz", 2, "has no zones"),
    ] {
        let ran = play(disks, &[line]);
        assert_eq!(ran.status, status, "{line}: {} {}", ran.stdout, ran.stderr);
        assert!(ran.stderr.contains(told), "{line}: {}", ran.stderr);
        assert_eq!(ran.stderr.lines().count(), 1, "{line}: {}", ran.stderr);
    }
    // A part of a disk has none, and exclusive access keeps others from its zones.
    let ran = play(ZONED, &["nop create -o 4096 nda0", "zone -d nda0.nop -c rz"]);
    assert!(ran.status == 2 && ran.stderr.contains("ask nda0"), "{}", ran.stderr);
    let ran = play(
        "--on nvme,size=16M",
        &["part create -s gpt nda0", "part add -t linux-data nda0", "zone -d nda0p1 -c rz"],
    );
    assert!(ran.status == 2 && ran.stderr.contains("ask nda0"), "{}", ran.stderr);
    // A zoned disk keeps its block size.
    let ran = play(ZONED, &["copy src nda0"]);
    assert!(ran.status == 1 && ran.stderr.contains("write protected"), "{}", ran.stderr);
    let ran = play(ZONED, &["part create -s gpt nda0"]);
    assert!(ran.status == 1 && ran.stderr.contains("write protected"), "{}", ran.stderr);
}
