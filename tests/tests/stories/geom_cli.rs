//! `flysch geom` as used by people: FreeBSD's texts, refusals, contents.

use std::fs;
use std::path::Path;
use std::process::Command;

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

#[test]
fn a_table_is_shown_as_gpart_shows_it() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    blank(folder, "da0.img", 1 << 30);
    assert_eq!(geom("-f da0.img part create -s gpt da0", folder), "da0 created\n");
    let boot = "-f da0.img part add -t freebsd-boot -s 512k da0";
    assert_eq!(geom(boot, folder), "da0p1 added\n");
    geom("-f da0.img part add -t freebsd-ufs -b 2048 -s 2093056 -l root da0", folder);
    let set = geom("-f da0.img part set -a bootme -i 2 da0", folder);
    assert_eq!(set, "bootme set on da0p2\n");
    // The reference text of the fact sheet, character by character.
    let shown = "\
=>     40  2097072  da0  GPT  (1.0G)
       40     1024    1  freebsd-boot  (512K)
     1064      984       - free -  (492K)
     2048  2093056    2  freebsd-ufs  [bootme]  (1.0G)
  2095104     2008       - free -  (1.0M)

";
    assert_eq!(geom("-f da0.img part show", folder), shown);
    let why = geom("-f da0.img why da0", folder);
    assert!(why.contains("PART     claimed  512+92") || why.contains("claimed"), "{why}");
    let list = geom("-f da0.img --json part show", folder);
    let json: serde_json::Value = serde_json::from_str(&list).unwrap();
    assert_eq!(json[0]["partitions"][1]["label"], "root");
    let xml = geom("-f da0.img confxml", folder);
    assert!(xml.starts_with("<mesh>\n  <class id=") && xml.contains("<rawtype>516e7cb6-"));
    refused("-f da0.img part destroy da0", folder, 1, "2 partitions");
    refused("-f da0.img label label x da0", folder, 1, "in use by PART da0");
    refused("-f da0.img part show da1", folder, 1, "da1: there is no such provider");
    refused("-f da0.img part add -t efi -s 9g da0", folder, 1, "no room for");
    refused("-f da0.img part add -i 0 -t efi da0", folder, 2, "the numbers 1 to 128, not 0");
    geom("-f da0.img part destroy -F da0", folder);
    assert_eq!(geom("-f da0.img part show", folder), "");
}

#[test]
fn contents_go_in_and_come_out_through_stripes_and_labels() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for name in ["a", "b", "c"] {
        blank(folder, name, 4 << 20);
    }
    let data: Vec<u8> =
        (0..3_000_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    fs::write(folder.join("data"), &data).unwrap();
    let disks = "-f a -f b -f c";
    geom(&format!("{disks} stripe label -s 4k st a b c"), folder);
    // As many sectors as fit into whole stripes on the smallest disk: 4 MiB without the last
    // sector.
    let list = geom(&format!("{disks} stripe list"), folder);
    let usable = ((4 << 20) - 512) / 4096 * 4096 * 3;
    assert!(list.contains(&format!("Mediasize: {usable} (12M)")), "{list}");
    assert!(list.contains("Status: Total=3, Online=3\nType: AUTOMATIC\nStripesize: 4096\n"));
    geom(&format!("{disks} copy data stripe/st"), folder);
    geom("-f c -f b -f a copy stripe/st back", folder);
    let back = fs::read(folder.join("back")).unwrap();
    assert!(back[..data.len()] == data && back.len() == usable);
    assert!(fs::read(folder.join("b")).unwrap()[..4096] == data[4096..8192]);
    // Two of three: nothing can be read, and that is reported.
    refused("-f a -f b copy stripe/st back", folder, 1, "there is no such provider");
    let two = geom("-f a -f b stripe status", folder);
    assert!(two.contains("st    DOWN  a\n"), "{two}");
    refused(&format!("{disks} part create -s gpt a"), folder, 1, "in use by STRIPE st");
    geom(&format!("{disks} stripe destroy st"), folder);
    assert_eq!(geom(&format!("{disks} stripe list"), folder), "");
    geom(&format!("{disks} concat label cc a b"), folder);
    let list = geom(&format!("{disks} concat list"), folder);
    assert!(list.contains(&format!("Mediasize: {}", ((4 << 20) - 512) * 2)), "{list}");
    geom(&format!("{disks} label label name concat/cc"), folder);
    let status = geom(&format!("{disks} label status -s"), folder);
    assert!(status.contains("label/name  N/A  concat/cc"), "{status}");
    geom(&format!("{disks} copy data label/name"), folder);
    geom(&format!("{disks} copy concat/cc back"), folder);
    assert!(fs::read(folder.join("back")).unwrap()[..data.len()] == data);
}

#[test]
fn a_script_is_one_session() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    blank(folder, "d.img", 16 << 20);
    let script = "\
part create -s mbr d
part add -t freebsd -f x d
part undo d
part add -t linux-data d
nop create -r 100 ds1
";
    fs::write(folder.join("script"), script).unwrap();
    let ran = run_in("geom -f d.img --script script copy ds1.nop out", folder);
    assert_eq!(ran.status, 1, "{}", ran.stderr);
    assert!(ran.stderr.contains("ds1.nop: medium error"), "{}", ran.stderr);
    let shown = geom("-f d.img part show", folder);
    assert!(shown.contains("linux-data") && !shown.contains("freebsd"), "{shown}");
    fs::write(folder.join("script"), "part nonsense d\n").unwrap();
    refused("-f d.img --script script", folder, 2, "line 1");
}

#[test]
fn a_disk_with_content_becomes_a_mirror_and_either_half_is_enough() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for name in ["a", "b"] {
        blank(folder, name, 4 << 20);
    }
    let data: Vec<u8> =
        (0..1_000_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    fs::write(folder.join("data"), &data).unwrap();
    geom("-f a mirror label gm a", folder);
    geom("-f a copy data mirror/gm", folder);
    let inserted = geom("-f a -f b mirror insert gm b", folder);
    assert_eq!(inserted, "gm: 1 component rebuilt\n");
    let status = [
        "     Name    Status  Components\n",
        "mirror/gm  COMPLETE  a (ACTIVE)\n",
        "                     b (ACTIVE)\n",
    ];
    let status = status.concat();
    assert_eq!(geom("-f a -f b mirror status", folder), status);
    refused("-f a -f b part create -s gpt a", folder, 1, "in use by MIRROR gm");
    // One half is enough for reading, and listing it writes nothing.
    let before = fs::read(folder.join("b")).unwrap();
    assert!(geom("-f b mirror list", folder).contains("State: DEGRADED\nComponents: 2\n"));
    geom("-f b copy mirror/gm back", folder);
    assert!(fs::read(folder.join("back")).unwrap()[..data.len()] == data);
    assert!(fs::read(folder.join("b")).unwrap() == before);
    // What is written to one half only is on both once the other one is back.
    fs::write(folder.join("data"), &data[1000..]).unwrap();
    geom("-f b copy data mirror/gm", folder);
    let status = geom("-f a -f b mirror status -s", folder);
    assert!(status.contains("a (SYNCHRONIZING, 0%)"), "{status}");
    assert_eq!(geom("-f a -f b mirror rebuild gm", folder), "gm: 1 component rebuilt\n");
    geom("-f a copy mirror/gm back", folder);
    assert!(fs::read(folder.join("back")).unwrap()[..data.len() - 1000] == data[1000..]);
}

/// Metadata that is found but not followed is reported, and so are the remedies for obstacles.
#[test]
fn what_is_not_shown_and_what_is_in_the_way_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    blank(folder, "cut.img", 64 << 20);
    geom("-f cut.img part create -s gpt cut", folder);
    fs::File::options()
        .write(true)
        .open(folder.join("cut.img"))
        .unwrap()
        .set_len(40 << 20)
        .unwrap();
    for verb in ["show", "list", "status"] {
        let ran = run_in(&format!("geom -f cut.img part {verb}"), folder);
        let told = "cut: not shown: a GPT that cannot be recovered";
        assert!(ran.status == 0 && ran.stderr.contains(told), "{verb}: {}", ran.stderr);
        assert!(ran.stderr.lines().count() == 1 && ran.stderr.contains("`geom why cut`"));
    }
    refused("-f cut.img part create -s gpt cut", folder, 1, "use `geom --force` to write over it");
    geom("--force -f cut.img part create -s gpt cut", folder);
    assert_eq!(run_in("geom -f cut.img part show", folder).stderr, "");
    refused("-f cut.img part create -s gpt cut", folder, 1, "PART cut; `part destroy cut` first");
    blank(folder, "nothing.img", 0);
    refused("-f nothing.img part show", folder, 1, "nothing.img: is empty");
    blank(folder, "short.img", 100);
    refused("-f short.img part show", folder, 1, "short.img: has 100 bytes");
}

/// Attributes of a whole GPT, as seen by others; boot code with its own serial number; a table that
/// is destroyed in two steps.
#[test]
fn what_belongs_to_a_whole_table_is_set_cleared_and_destroyed() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    blank(folder, "da0.img", 64 << 20);
    geom("-f da0.img part create -s gpt da0", folder);
    geom("-f da0.img part add -t linux-data -s 8m da0", folder);
    let record = || fs::read(folder.join("da0.img")).unwrap()[446..510].to_vec();
    let before = record();
    assert_eq!(geom("-f da0.img part set -a active da0", folder), "active set on da0\n");
    assert_eq!((record()[0], record()[4]), (0x80, 0xEE));
    if let Ok(parted) =
        Command::new("parted").args(["-sm", "da0.img", "print"]).current_dir(folder).output()
    {
        let said = String::from_utf8_lossy(&parted.stdout).into_owned();
        assert!(said.contains(":gpt::pmbr_boot;"), "{said}");
    }
    assert_eq!(geom("-f da0.img part unset -a active da0", folder), "active unset on da0\n");
    assert_eq!(record(), before);
    assert_eq!(geom("-f da0.img part set -a lenovofix da0", folder), "lenovofix set on da0\n");
    assert_eq!((&record()[..16], &record()[16..32]), (&[0; 16][..], &before[..16]));
    if let Ok(sgdisk) = Command::new("sgdisk").args(["-v", "da0.img"]).current_dir(folder).output()
    {
        let said = String::from_utf8_lossy(&sgdisk.stdout).into_owned();
        assert!(said.contains("No problems found"), "{said}");
    }
    geom("-f da0.img part unset -a lenovofix da0", folder);
    assert_eq!(record(), before);
    refused(
        "-f da0.img part set -a bootme da0",
        folder,
        2,
        "active and lenovofix are; others need a partition",
    );
    // Destroyed for the session, and restored; then destroyed permanently.
    let shown = geom("-f da0.img part show", folder);
    fs::write(folder.join("undone"), "part destroy -F -f x da0\npart show\npart undo da0\n")
        .unwrap();
    assert_eq!(
        geom("-f da0.img --script undone part show", folder),
        format!("da0 destroyed\n{shown}")
    );
    fs::write(folder.join("half"), "part destroy -F -f x da0\n").unwrap();
    refused(
        "-f da0.img --script half part add -t efi da0",
        folder,
        1,
        "`commit` or `undo` that first",
    );
    assert_eq!(geom("-f da0.img part show", folder), shown, "nothing was written");
    fs::write(folder.join("done"), "part destroy -F -f x da0\npart commit da0\n").unwrap();
    geom("-f da0.img --script done tree", folder);
    assert_eq!(geom("-f da0.img part show", folder), "");
    // The serial number of an MBR is preserved, or taken from the code.
    blank(folder, "ada0.img", 64 << 20);
    geom("-f ada0.img part create -s mbr ada0", folder);
    let mut image = fs::read(folder.join("ada0.img")).unwrap();
    image[440..444].copy_from_slice(b"WXYZ");
    fs::write(folder.join("ada0.img"), image).unwrap();
    fs::write(folder.join("boot0"), [0xC0; 512]).unwrap();
    let front = || fs::read(folder.join("ada0.img")).unwrap()[438..448].to_vec();
    geom("-f ada0.img part bootcode -b boot0 ada0", folder);
    assert_eq!(front(), b"\xC0\xC0WXYZ\xC0\xC0\0\0");
    geom("-f ada0.img part bootcode -N -b boot0 ada0", folder);
    assert_eq!(front(), b"\xC0\xC0\xC0\xC0\xC0\xC0\xC0\xC0\0\0");
    refused("-f ada0.img part set -a active ada0", folder, 2, "name the partition with -i");
}

/// A mirror without metadata uses all of its components, and ends with the session.
#[test]
fn a_mirror_without_metadata_lasts_as_long_as_the_session() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    blank(folder, "a.img", 4 << 20);
    blank(folder, "b.img", 4 << 20);
    let data: Vec<u8> = (0..4_u32 << 20).map(|n| (n / 511) as u8).collect();
    fs::write(folder.join("data"), &data).unwrap();
    let script = "mirror create gm a b\nmirror list gm\ncopy data mirror/gm\nmirror remove gm a\n\
        mirror status -s gm\n";
    fs::write(folder.join("script"), script).unwrap();
    let said = geom("-f a.img -f b.img --script script tree", folder);
    assert!(said.contains("Type: MANUAL") && said.contains("Mediasize: 4194304"), "{said}");
    assert!(said.contains("mirror/gm  COMPLETE  b (ACTIVE)"), "{said}");
    for name in ["a.img", "b.img"] {
        assert!(fs::read(folder.join(name)).unwrap() == data, "{name}: nothing but the data");
    }
    assert_eq!(geom("-f a.img -f b.img mirror status -s", folder), "");
    fs::write(folder.join("more"), "mirror create gm a\nmirror insert gm b\n").unwrap();
    refused("-f a.img -f b.img --script more tree", folder, 2, "make it by `label` to do this");
}
