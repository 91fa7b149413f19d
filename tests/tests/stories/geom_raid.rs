//! Several paths to one disk, and BIOS RAID volumes, as seen by users.

use std::fs;
use std::path::Path;

use flysch_tests::command::run_in;

/// Runs a verb that must succeed; returns its output.
fn geom(words: &str, folder: &Path) -> String {
    let ran = run_in(&format!("geom {words}"), folder);
    assert_eq!(ran.status, 0, "{words}: {}", ran.stderr);
    ran.stdout
}

fn refused(words: &str, folder: &Path, status: i32, part: &str) {
    let ran = run_in(&format!("geom {words}"), folder);
    assert_eq!(ran.status, status, "{words}: {}{}", ran.stdout, ran.stderr);
    assert!(ran.stderr.contains(part) && ran.stderr.lines().count() == 1, "{}", ran.stderr);
}

fn blank(folder: &Path, name: &str, bytes: u64) {
    fs::File::create(folder.join(name)).unwrap().set_len(bytes).unwrap();
}

/// The text after a key in a list.
fn value<'t>(text: &'t str, key: &str) -> &'t str {
    let start = text.find(key).unwrap_or_else(|| panic!("{key} in {text}")) + key.len();
    text[start..].lines().next().unwrap_or_default()
}

#[test]
fn a_disk_of_two_paths_is_shown_as_gmultipath_shows_it() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    // The disk of the document; a file stores what is written to it.
    blank(folder, "disk0", 750_156_374_016);
    let disks = "-f disk0,name=da0 -f disk0,name=da1";
    geom(&format!("{disks} multipath label disk0 da0 da1"), folder);
    let list = geom(&format!("{disks} multipath list"), folder);
    let uuid = value(&list, "UUID: ");
    let shown = format!(
        "\
Geom name: disk0
Type: AUTOMATIC
Mode: Active/Passive
UUID: {uuid}
State: OPTIMAL
Providers:
1. Name: multipath/disk0
   Mediasize: 750156373504 (699G)
   Sectorsize: 512
   Mode: r0w0e0
   State: OPTIMAL
Consumers:
1. Name: da0
   Mediasize: 750156374016 (699G)
   Sectorsize: 512
   Mode: r1w1e1
   State: ACTIVE
2. Name: da1
   Mediasize: 750156374016 (699G)
   Sectorsize: 512
   Mode: r1w1e1
   State: PASSIVE

"
    );
    assert_eq!(list, shown);
    let status = [
        "           Name   Status  Components\n",
        "multipath/disk0  OPTIMAL  da0 (ACTIVE)\n",
        "                          da1 (PASSIVE)\n",
    ];
    let status = status.concat();
    assert_eq!(geom(&format!("{disks} multipath status"), folder), status);
    assert_eq!(geom(&format!("{disks} multipath getactive disk0"), folder), "da0\n");
    let json = geom(&format!("{disks} --json multipath list"), folder);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json[0]["consumers"][1]["config"]["State"], "PASSIVE");
    // One path is enough, and its status shows that it is alone.
    let status = geom("-f disk0,name=da7 multipath status -s", folder);
    assert_eq!(status, "multipath/disk0  DEGRADED  da7 (ACTIVE)\n");
    geom(&format!("{disks} multipath configure -A disk0"), folder);
    let list = geom(&format!("{disks} multipath list"), folder);
    assert_eq!(value(&list, "Mode: "), "Active/Active");
    assert_eq!(geom(&format!("{disks} multipath getactive disk0"), folder), "da0 da1\n");
    // The disk's contents are on the multipath device, over either path.
    geom(&format!("{disks} part create -s gpt multipath/disk0"), folder);
    let show = geom("-f disk0,name=x part show", folder);
    assert!(show.starts_with("=>        40  1465149088  multipath/disk0  GPT"), "{show}");
    refused(&format!("{disks} part create -s gpt da0"), folder, 1, "in use by MULTIPATH disk0");
    // A copy of the disk is not one of its paths.
    let status = "-f disk0,name=da0 -f disk0,name=da1,serial=other multipath status -s";
    assert_eq!(geom(status, folder), "multipath/disk0  DEGRADED  da0 (ACTIVE)\n");
    let why = "-f disk0,name=da0 -f disk0,name=da1,serial=other why da1";
    assert!(geom(why, folder).contains("has the serial number other, but the disk has disk0"));
    geom(&format!("{disks} part destroy multipath/disk0"), folder);
    geom(&format!("{disks} multipath destroy disk0"), folder);
    assert_eq!(geom(&format!("{disks} multipath status"), folder), "");
    blank(folder, "stranger", 750_156_374_016);
    let words = "-f disk0 -f stranger multipath label disk0 disk0 stranger";
    refused(words, folder, 2, "No metadata found on stranger. It is not a path of disk0");
}

/// FreeBSD's cases (`tests/sys/geom/class/multipath/misc.sh`), with the same verbs.
#[test]
fn freebsds_cases_of_multipath() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for name in ["md0", "md1", "md2"] {
        blank(folder, name, 1 << 20);
    }
    fs::write(folder.join("data"), [7; 4096]).unwrap();
    let create = "nop create md0 md1 md2\nmultipath create MODE m md0.nop md1.nop\n";
    let cases = [
        ("", "multipath add m md2.nop", "OPTIMAL", ["ACTIVE", "PASSIVE", "PASSIVE"]),
        ("-A", "", "OPTIMAL", ["ACTIVE", "ACTIVE", ""]),
        ("-R", "", "OPTIMAL", ["ACTIVE", "READ", ""]),
        ("", "multipath fail m md0.nop", "DEGRADED", ["FAIL", "ACTIVE", ""]),
        (
            "",
            "multipath fail m md0.nop\nmultipath restore m md0.nop",
            "OPTIMAL",
            ["PASSIVE", "ACTIVE", ""],
        ),
        (
            "",
            "nop configure -r 100 -w 100 md0.nop\ncopy data multipath/m",
            "DEGRADED",
            ["FAIL", "ACTIVE", ""],
        ),
        (
            "",
            "multipath fail m md0.nop\nnop configure -r 100 -w 100 md1.nop\ncopy data multipath/m",
            "DEGRADED",
            ["ACTIVE", "FAIL", ""],
        ),
        (
            "",
            "multipath add m md2.nop\nmultipath prefer m md2.nop",
            "OPTIMAL",
            ["PASSIVE", "PASSIVE", "ACTIVE"],
        ),
        (
            "",
            "multipath add m md2.nop\nmultipath rotate m\nmultipath rotate m",
            "OPTIMAL",
            ["PASSIVE", "ACTIVE", "PASSIVE"],
        ),
        (
            "",
            "multipath add m md2.nop\nnop destroy -f md0.nop",
            "OPTIMAL",
            ["", "PASSIVE", "ACTIVE"],
        ),
    ];
    let disks = "-f md0,serial=S -f md1,serial=S -f md2,serial=S";
    for (mode, verbs, state, paths) in cases {
        let script = create.replace("MODE", mode) + verbs + "\nmultipath status -s\n";
        fs::write(folder.join("script"), &script).unwrap();
        let printed = geom(&format!("{disks} --script script"), folder);
        let status: Vec<&str> = printed.lines().filter(|it| it.starts_with("multi")).collect();
        let wanted: Vec<String> = (0..3)
            .filter(|number| !paths[*number].is_empty())
            .map(|number| format!("multipath/m  {state}  md{number}.nop ({})", paths[number]))
            .collect();
        assert_eq!(status, wanted, "{script}");
    }
}

#[test]
fn the_volumes_of_the_document_are_shown_as_graid_shows_them() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for name in ["ada0", "ada1", "ada2"] {
        blank(folder, name, 60_022_480_896);
    }
    let disks = "-f ada0 -f ada1";
    let label = "raid label -S 32212254720b -s 64k Intel Volume0 RAID1 ada0 ada1";
    geom(&format!("{disks} {label}"), folder);
    let list = geom(&format!("{disks} raid list"), folder);
    let name = value(&list, "Geom name: ").to_string();
    geom(&format!("{disks} raid add -s 64k {name} Volume1 RAID0"), folder);
    let shown = format!(
        "\
Geom name: {name}
State: OPTIMAL
Metadata: Intel
Providers:
1. Name: raid/r0
   Mediasize: 32212254720 (30G)
   Sectorsize: 512
   Mode: r0w0e0
   Subdisks: ada0 (ACTIVE), ada1 (ACTIVE)
   Dirty: No
   State: OPTIMAL
   Strip: 65536
   Components: 2
   Transformation: RAID1
   RAIDLevel: RAID1
   Label: Volume0
   descr: Intel RAID1 volume
2. Name: raid/r1
   Mediasize: 55610179584 (52G)
   Sectorsize: 512
   Stripesize: 65536
   Stripeoffset: 0
   Mode: r0w0e0
   Subdisks: ada0 (ACTIVE), ada1 (ACTIVE)
   Dirty: No
   State: OPTIMAL
   Strip: 65536
   Components: 2
   Transformation: RAID0
   RAIDLevel: RAID0
   Label: Volume1
   descr: Intel RAID0 volume
Consumers:
1. Name: ada0
   Mediasize: 60022480896 (56G)
   Sectorsize: 512
   Mode: r1w1e1
   ReadErrors: 0
   Subdisks: r0(Volume0):0@0, r1(Volume1):0@32214614016
   State: ACTIVE (ACTIVE, ACTIVE)
2. Name: ada1
   Mediasize: 60022480896 (56G)
   Sectorsize: 512
   Mode: r1w1e1
   ReadErrors: 0
   Subdisks: r0(Volume0):1@0, r1(Volume1):1@32214614016
   State: ACTIVE (ACTIVE, ACTIVE)

"
    );
    assert_eq!(geom(&format!("{disks} raid list"), folder), shown);
    let status = [
        "   Name   Status  Components\n",
        "raid/r0  OPTIMAL  ada0 (ACTIVE (ACTIVE, ACTIVE))\n",
        "                  ada1 (ACTIVE (ACTIVE, ACTIVE))\n",
        "raid/r1  OPTIMAL  ada0 (ACTIVE (ACTIVE, ACTIVE))\n",
        "                  ada1 (ACTIVE (ACTIVE, ACTIVE))\n",
    ];
    let status = status.concat();
    assert_eq!(geom(&format!("{disks} raid status"), folder), status);
    refused(&format!("{disks} part create -s gpt ada0"), folder, 1, &format!("RAID {name}"));
    // With another serial number it is another disk.
    let why = geom("-f ada0,serial=other why ada0", folder);
    assert!(why.contains("it is for disks ada0, ada1, and this one is other"), "{why}");
    refused("-f ada0,serial=other part create -s gpt ada0", folder, 1, "RAID (Intel)");
    geom(&format!("{disks} raid delete {name} Volume1"), folder);
    geom(&format!("{disks} raid delete {name}"), folder);
    assert_eq!(geom(&format!("{disks} raid status"), folder), "");
}

#[test]
fn a_disk_is_replaced_and_rebuilt() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for name in ["a", "b", "c"] {
        blank(folder, name, 16 << 20);
    }
    geom("-f a -f b raid label -S 4m Intel vol RAID1 a b", folder);
    let list = geom("-f a -f b raid list", folder);
    let name = value(&list, "Geom name: ");
    let data: Vec<u8> =
        (0..4 << 20).map(|n: u32| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    fs::write(folder.join("data"), &data).unwrap();
    // Examining half of it changes nothing.
    let before = fs::read(folder.join("a")).unwrap();
    assert_eq!(geom("-f a raid status -s", folder), "raid/r0  DEGRADED  a (ACTIVE (ACTIVE))\n");
    assert!(fs::read(folder.join("a")).unwrap() == before);
    geom("-f a copy data raid/r0", folder);
    let status = geom("-f a -f b raid status -s", folder);
    assert!(status.ends_with("raid/r0  DEGRADED  b (STALE)\n"), "{status}");
    geom("-f a -f b copy raid/r0 back", folder);
    assert!(fs::read(folder.join("back")).unwrap() == data, "the stale half is not read");
    refused(
        &format!("-f a -f b raid fail {name} a"),
        folder,
        1,
        "it holds the only copy of a volume",
    );
    let insert = format!("-f a -f c raid insert {name} c");
    assert_eq!(geom(&insert, folder), format!("{name}: 1 subdisk rebuilt\n"));
    let again = format!("-f a -f c raid rebuild {name}");
    assert_eq!(geom(&again, folder), format!("{name}: nothing to rebuild\n"));
    geom("-f c copy raid/r0 back", folder);
    assert!(fs::read(folder.join("back")).unwrap() == data);
    let json = geom("-f a -f c --json raid list", folder);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json[0]["providers"][0]["config"]["Subdisks"], "a (ACTIVE), c (ACTIVE)");
}
