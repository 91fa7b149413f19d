//! Disks and controllers of a rig that are removed and come back while it is used.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use flysch_tests::command::run_in;
use serde_json::Value;

/// A mirror of two disks on one controller, with these events.
fn mirror(events: &str) -> String {
    format!(
        "clock = \"virtual\"\n\
        [[controller]]\nname = \"ahci0\"\ntarget = \"ahci,profile=sata-ssd\"\n\
        disks = [\"ada0\", \"ada1\"]\n\
        [[disk]]\nname = \"ada0\"\nsize = \"16M\"\n\
        [[disk]]\nname = \"ada1\"\nsize = \"16M\"\n\
        [[geom]]\nname = \"mirror/gm0\"\ncreate = \"mirror label gm0 ada0 ada1\"\n{events}"
    )
}

fn event(at: &str, run: &str) -> String {
    format!("[[event]]\nat = \"{at}\"\nrun = {run}\n")
}

fn done(words: &str, folder: &Path) -> String {
    let ran = run_in(words, folder);
    assert_eq!(ran.status, 0, "{words}: {}{}", ran.stdout, ran.stderr);
    ran.stdout
}

fn refused(words: &str, folder: &Path, status: i32, part: &str) {
    let ran = run_in(words, folder);
    assert_eq!(ran.status, status, "{words}: {}{}", ran.stdout, ran.stderr);
    assert!(ran.stderr.contains(part) && ran.stderr.lines().count() == 1, "{}", ran.stderr);
}

/// The result of the only job of `bench`, and the count of each event of the block layer.
fn bench(words: &str, folder: &Path) -> (Value, BTreeMap<String, u64>) {
    let said = done(&format!("bench --json {words}"), folder);
    let report: Value = serde_json::from_str(&said).unwrap_or_else(|e| panic!("{e}: {said}"));
    let told = report["flysch"]["targets"][0]["incidents"]["geom"].as_object().cloned();
    let count = |(what, count): (String, Value)| (what, count.as_u64().unwrap());
    (report["jobs"][0].clone(), told.into_iter().flatten().map(count).collect())
}

#[test]
fn a_disk_goes_and_comes_back_by_verbs() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("r.toml"), mirror("")).unwrap();
    let script = "disk detach ada1\nmirror status -s\ndisk status -s\n\
        disk attach ada1\nmirror status -s\nmirror rebuild gm0\nmirror status -s\n\
        disk detach ahci0\ndisk status -s\ndisk attach ahci0\nmirror status -s\nlog\n";
    fs::write(folder.join("script"), script).unwrap();
    let said = done("geom --rig r.toml --script script", folder);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(
        lines[..8],
        [
            "ada1: lost",
            "mirror/gm0  DEGRADED  ada0 (ACTIVE)",
            "ada0  N/A  N/A",
            "ada1: found",
            // Nothing was written meanwhile.
            "mirror/gm0  COMPLETE  ada0 (ACTIVE)",
            "mirror/gm0  COMPLETE  ada1 (ACTIVE)",
            "gm0: 0 components rebuilt",
            "mirror/gm0  COMPLETE  ada0 (ACTIVE)",
        ],
        "{said}"
    );
    assert_eq!(lines[9..13], ["ada0: lost", "ada1: lost", "ada0: found", "ada1: found"], "{said}");
    assert!(said.contains("mirror/gm0  COMPLETE  ada1 (ACTIVE)\n"), "{said}");
    assert_eq!(said.matches("DISK: ada1: lost").count(), 2, "{said}");
}

#[test]
fn a_workload_outlives_disks_that_go_and_come_back() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    // What was written while one was missing is read from it after the other one is removed.
    let events = [
        event("2ms", "\"disk detach ada1\""),
        event("1220ms", "[\"disk attach ada1\", \"mirror rebuild gm0\"]"),
        event("1400ms", "\"disk detach ada0\""),
    ];
    fs::write(folder.join("r.toml"), mirror(&events.concat())).unwrap();
    let words = "--on r.toml:mirror/gm0 --rw=randrw --bs=4k --iodepth=16 --size=8M --loops=12 \
        --verify=crc32c";
    let (job, told) = bench(words, folder);
    assert_eq!(job["error"], 0, "{job}");
    assert!(job["job_runtime"].as_u64().unwrap() > 1400, "all of it happens: {job}");
    assert_eq!(told.get("ada1: the device is gone"), Some(&1), "{told:?}");
    assert_eq!(told.get("ada0: the device is gone"), Some(&1), "{told:?}");
    // The same seed and the same time: identical to the last digit.
    assert_eq!(bench(words, folder).0["read"]["iops"], job["read"]["iops"]);
}

/// With a rate, requests continue between the pieces of a rebuild; without one they wait for all of
/// it.
#[test]
fn a_rebuild_with_a_rate_goes_on_beside_a_workload() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let run = |rate: &str| {
        let events = [
            event("2ms", "\"mirror deactivate gm0 ada1\""),
            event("20ms", &format!("\"mirror activate{rate} gm0 ada1\"")),
            event("500ms", "\"mirror deactivate gm0 ada0\""),
        ];
        fs::write(folder.join("r.toml"), mirror(&events.concat())).unwrap();
        let words = "--on r.toml:mirror/gm0 --rw=randrw --bs=4k --iodepth=16 --size=8M --loops=32 \
            --verify=crc32c";
        let (job, told) = bench(words, folder);
        assert_eq!(job["error"], 0, "{job}");
        assert!(job["job_runtime"].as_u64().unwrap() > 500, "all of it happens");
        // The last half that holds everything would not have been removed.
        assert!(!told.keys().any(|what| what.contains("line")), "a verb failed: {told:?}");
        (job["read"]["clat_ns"]["max"].as_u64().unwrap(), told)
    };
    let (beside, told) = run(" --rate 40m");
    assert_eq!(told.get("gm0: 1 component rebuilt"), Some(&1), "{told:?}");
    let (whole, _) = run("");
    assert!(beside * 3 < whole, "a request waited for {beside} ns, or {whole} ns");
}

#[test]
fn a_stripe_over_paths_outlives_controllers_that_go_one_after_the_other() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let rig = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/rigs/ssds.toml");
    let events = [
        event("5ms", "\"disk detach ahci1\""),
        event("140ms", "\"disk attach ahci1\""),
        event("400ms", "\"disk detach ahci0\""),
    ];
    let text = fs::read_to_string(rig).unwrap() + &events.concat();
    fs::write(folder.join("r.toml"), text).unwrap();
    let words = "--on r.toml:stripe/fast --rw=randread --bs=4k --iodepth=8 --time_based=1 \
        --runtime=600ms --size=64M";
    let (job, told) = bench(words, folder);
    assert_eq!(job["error"], 0, "{job}");
    let gone = |controller: &str| {
        let all = told.iter().filter(|(what, _)| what.starts_with(controller));
        all.map(|(_, count)| count).sum::<u64>()
    };
    assert!(gone("ahci1/") > 0 && gone("ahci0/") > 0, "{told:?}");
    assert!(!told.keys().any(|what| what.contains("line")), "a verb failed: {told:?}");
}

/// What is on the disks stays there, whatever their controller.
#[test]
fn controllers_of_every_kind_go_and_come_back() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let data: Vec<u8> =
        (0..1_000_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    fs::write(folder.join("data"), &data).unwrap();
    let script = "copy data x\ndisk detach c0\ndisk status -s\ndisk attach c0\ndisk rescan\n\
        disk detach c0\ndisk attach c0\ncopy x back\n";
    fs::write(folder.join("script"), script).unwrap();
    for target in ["ahci", "nvme", "ufs,mcq=2", "ufs", "emmc", "sd"] {
        let rig = format!(
            "clock = \"virtual\"\n[[controller]]\nname = \"c0\"\ntarget = \"{target}\"\n\
             disks = [\"x\"]\n[[disk]]\nname = \"x\"\nsize = \"16M\"\n"
        );
        fs::write(folder.join("r.toml"), rig).unwrap();
        let said = done("geom --rig r.toml --script script", folder);
        let lines: Vec<&str> = said.lines().collect();
        let wanted = ["x: lost", "x: found", "x: lost", "x: found"];
        assert_eq!(lines[1..lines.len() - 1], wanted, "{target}: {said}");
        assert!(fs::read(folder.join("back")).unwrap()[..data.len()] == data, "{target}");
    }
    // Under a workload, one of each kind: the first is rebuilt before the second is removed.
    let events = [
        event("1ms", "\"disk detach c0\""),
        event("450ms", "[\"disk attach c0\", \"mirror rebuild gm0\"]"),
        event("600ms", "\"disk detach c1\""),
    ];
    let rig = mirror(&events.concat()).replace(
        "[[controller]]\nname = \"ahci0\"\ntarget = \"ahci,profile=sata-ssd\"\n\
         disks = [\"ada0\", \"ada1\"]\n",
        "[[controller]]\nname = \"c0\"\ntarget = \"nvme\"\ndisks = [\"ada0\"]\n\
         [[controller]]\nname = \"c1\"\ntarget = \"ufs,mcq=2\"\ndisks = [\"ada1\"]\n",
    );
    fs::write(folder.join("r.toml"), rig).unwrap();
    let words = "--on r.toml:mirror/gm0 --rw=randrw --bs=4k --iodepth=8 --size=8M --loops=16 \
        --verify=crc32c";
    let (job, told) = bench(words, folder);
    assert_eq!(job["error"], 0, "{job}");
    for disk in ["ada0", "ada1"] {
        assert_eq!(told.get(&format!("{disk}: the device is gone")), Some(&1), "{told:?}");
    }
}

#[test]
fn a_workload_on_what_goes_for_good_ends() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let rig = "clock = \"virtual\"\n\
        [[controller]]\nname = \"nvme0\"\ntarget = \"nvme,block=512\"\ndisks = [\"x\", \"y\"]\n\
        [[disk]]\nname = \"x\"\nsize = \"8M\"\n[[disk]]\nname = \"y\"\nsize = \"8M\"\n\
        [[geom]]\nname = \"concat/cc\"\ncreate = \"concat label cc x y\"\n\
        [[event]]\nat = \"1ms\"\nrun = \"disk detach y\"\n";
    fs::write(folder.join("r.toml"), rig).unwrap();
    let words = "bench --on r.toml:concat/cc --rw=randread --bs=4k --iodepth=8 --time_based=1 \
        --runtime=20ms";
    let ran = run_in(words, folder);
    assert_eq!(ran.status, 1, "{}{}", ran.stdout, ran.stderr);
    assert!(ran.stderr.contains("gone"), "{}", ran.stderr);
    // Another disk on the same controller does not notice.
    let concat = "[[geom]]\nname = \"concat/cc\"\ncreate = \"concat label cc x y\"\n";
    fs::write(folder.join("r.toml"), rig.replace(concat, "")).unwrap();
    let words = words.replace("concat/cc", "x");
    done(&words, folder);
}

#[test]
fn what_a_model_does_by_itself_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let faulty = mirror("").replace(
        "disks = [\"ada0\", \"ada1\"]",
        "disks = [\"ada0\"]\n[[controller]]\nname = \"ahci1\"\n\
         target = \"ahci,profile=sata-ssd\"\nfaults = \"unplug:n400\"\ndisks = [\"ada1\"]",
    );
    let text = faulty + &event("30ms", "[\"disk attach ahci1\", \"mirror rebuild gm0\"]");
    fs::write(folder.join("r.toml"), text).unwrap();
    let words = "--on r.toml:mirror/gm0 --rw=randrw --bs=4k --iodepth=16 --size=8M --loops=8 \
        --verify=crc32c";
    let (job, told) = bench(words, folder);
    assert_eq!(job["error"], 0, "{job}");
    assert!(told.keys().any(|what| what.starts_with("ada1: ")), "{told:?}");
    assert!(!told.keys().any(|what| what.contains("line")), "a verb failed: {told:?}");
}

/// There is no `disk attach` or `disk rescan`: a disk that returns to its place is found by its
/// driver. That it is there, with the right data, shows when the other half is removed.
#[test]
fn what_comes_back_by_itself_is_found_under_a_workload() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let ahci = "target = \"ahci,profile=sata-ssd\"";
    for (target, away) in [(ahci, "ada1"), ("target = \"nvme\"", "ada1"), (ahci, "ahci0")] {
        let both = [
            event("2ms", &format!("\"disk detach --for 1200ms {away}\"")),
            event("1600ms", "[\"mirror rebuild gm0\"]"),
            event("1700ms", "\"disk detach ada0\""),
        ];
        let mut text = mirror(&both.concat()).replace(ahci, target);
        if away == "ahci0" {
            // Only the controller of the second disk.
            text = text
                .replace("ahci0", "ahci1")
                .replace("detach --for 1200ms ahci1", "detach --for 1200ms ahci0")
                .replace("[\"ada0\", \"ada1\"]", "[\"ada0\"]")
                .replace(
                    "[[disk]]\nname = \"ada0\"",
                    &format!(
                        "[[controller]]\nname = \"ahci0\"\n{target}\ndisks = [\"ada1\"]\n\
                         [[disk]]\nname = \"ada0\""
                    ),
                );
        }
        fs::write(folder.join("r.toml"), text).unwrap();
        let words = "--on r.toml:mirror/gm0 --rw=randrw --bs=4k --iodepth=4 --size=8M --loops=56 \
            --verify=crc32c";
        let (job, told) = bench(words, folder);
        assert_eq!(job["error"], 0, "{target} {away}: {job}");
        assert!(job["job_runtime"].as_u64().unwrap() > 1700, "all of it happens: {job}");
        assert_eq!(told.get("ada1: found"), Some(&1), "{target} {away}: {told:?}");
        // Neither the rebuild nor the second removal failed.
        assert!(!told.keys().any(|what| what.contains("line")), "a verb failed: {told:?}");
    }
}

/// Between the lines of a script, time passes with requests; those to the other half are enough.
#[test]
fn what_comes_back_by_itself_is_found_between_verbs() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("data"), vec![0x5A; 4 << 20]).unwrap();
    let script = "disk detach --for 1ms ada1\nmirror status -s\ncopy data mirror/gm0\n\
        copy mirror/gm0 back\nmirror rebuild gm0\nmirror status -s\nlog\n";
    fs::write(folder.join("script"), script).unwrap();
    for target in ["ahci,profile=sata-ssd", "nvme"] {
        fs::write(folder.join("r.toml"), mirror("").replace("ahci,profile=sata-ssd", target))
            .unwrap();
        let said = done("geom --rig r.toml --script script", folder);
        assert!(said.starts_with("ada1: lost\nmirror/gm0  DEGRADED  ada0 (ACTIVE)\n"), "{said}");
        assert!(said.contains("mirror/gm0  COMPLETE  ada1 (ACTIVE)\n"), "{target}: {said}");
        assert!(said.contains("DISK: ada1: found"), "{target}: {said}");
        let _ = fs::remove_file(folder.join("back"));
    }
}

/// A unit attention of a unit that stays: its cause is in the log, and the unit is scanned if
/// necessary, without harm to what is being written there.
#[test]
fn unit_attentions_lead_to_scans() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("data"), vec![0x5A; 4 << 20]).unwrap();
    let rig = |faults: &str| {
        format!(
            "clock = \"virtual\"\n[[controller]]\nname = \"ufs0\"\ntarget = \"ufs\"\n\
             faults = \"{faults}\"\ndisks = [\"da0\"]\n[[disk]]\nname = \"da0\"\nsize = \"16M\"\n"
        )
    };
    fs::write(folder.join("script"), "copy data da0\ndisk status -s\ncopy da0 back\nlog\n")
        .unwrap();
    for (faults, is_reset) in [("power:n12", true), ("", false)] {
        let _ = fs::remove_file(folder.join("back"));
        fs::write(folder.join("r.toml"), rig(faults).replace("faults = \"\"\n", "")).unwrap();
        let said = done("geom --rig r.toml --script script", folder);
        assert_eq!(said.contains("DISK: da0: was reset"), is_reset, "{faults}: {said}");
        assert!(!said.contains("da0: lost"), "{faults}: {said}");
    }
}

#[test]
fn mistakes_are_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("r.toml"), mirror("")).unwrap();
    let geom = |verb: &str| format!("geom --rig r.toml {verb}");
    refused(&geom("disk detach ada2"), folder, 1, "there are ahci0, ada0, ada1");
    refused(&geom("disk detach ada11"), folder, 1, "did you mean `ada1`?");
    refused(&geom("disk attach ada1"), folder, 2, "ada1: is attached; `disk detach ada1`");
    refused(&geom("disk detach --for soon ada1"), folder, 2, "soon");
    fs::write(folder.join("s"), "disk detach ada1\ndisk detach ada1\n").unwrap();
    refused("geom --rig r.toml --script s", folder, 2, "s: line 2: ada1: is already detached");
    fs::write(folder.join("s"), "disk detach ahci0\ndisk attach ada1\n").unwrap();
    refused("geom --rig r.toml --script s", folder, 2, "attach that one first");
    fs::write(folder.join("d.img"), [0; 4096]).unwrap();
    refused("geom -f d.img disk detach d", folder, 2, "only models of a rig");
    let phone = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/rigs/phone.toml");
    refused(&format!("geom --rig {phone} disk detach da0"), folder, 2, "is a part of its device");
    for (event, part) in [
        (event("soon", "\"disk rescan\""), "`at`: must be a time"),
        (event("1s", "\"disk dettach ada0\""), "`run`: "),
        (event("1s", "\"copy ada0 x\""), "not while requests are under way"),
        (event("1s", "\"disk rescan\"").replace("at =", "when ="), "[[event]] has no such key"),
    ] {
        fs::write(folder.join("r.toml"), mirror(&event)).unwrap();
        refused("geom --rig r.toml tree", folder, 2, part);
    }
}
