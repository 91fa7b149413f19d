//! Rigs: several controllers and disks in one file, and the providers on them as disks.

use std::fs;
use std::path::{Path, PathBuf};

use flysch_tests::command::{flysch, run_in};
use serde_json::Value;

/// The rigs that come with the project.
fn example(name: &str) -> String {
    let root: PathBuf = [env!("CARGO_MANIFEST_DIR"), "../examples/rigs", name].iter().collect();
    root.canonicalize().unwrap().to_str().unwrap().to_string()
}

fn done(words: &str, folder: &Path) -> String {
    let ran = run_in(words, folder);
    assert_eq!(ran.status, 0, "{words}: {}", ran.stderr);
    ran.stdout
}

fn refused(words: &str, folder: &Path, status: i32, part: &str) {
    let ran = run_in(words, folder);
    assert_eq!(ran.status, status, "{words}: {}{}", ran.stdout, ran.stderr);
    assert!(ran.stderr.contains(part) && ran.stderr.lines().count() == 1, "{}", ran.stderr);
}

/// The result of the only job of `bench`.
fn bench(words: &str, folder: &Path) -> Value {
    let said = done(&format!("bench --json {words}"), folder);
    serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"))
}

#[test]
fn a_phone_has_units_and_a_table() {
    let folder = tempfile::tempdir().unwrap();
    let (folder, rig) = (folder.path(), example("phone.toml"));
    let shown = done(&format!("gpart --rig {rig} show"), folder);
    assert!(shown.contains("  da0  GPT  (1.0G)"), "{shown}");
    assert_eq!(shown.matches("linux-data").count(), 3, "{shown}");
    let disks = done(&format!("geom --rig {rig} disk list"), folder);
    assert_eq!(disks.matches("UFS model galaxy-book-s, 4 queues").count(), 3, "{disks}");
    let tree = done(&format!("geom --rig {rig} tree"), folder);
    assert!(tree.contains("gpt/userdata"), "{tree}");
    // The same seed gives the same figures: time is the device's.
    let words = format!(
        "--on {rig}:gpt/userdata --rw=randwrite --bs=4k --iodepth=8 --size=8M --verify=crc32c"
    );
    let (one, other) = (bench(&words, folder), bench(&words, folder));
    let iops = |report: &Value| report["jobs"][0]["write"]["iops"].as_f64().unwrap();
    assert!(iops(&one) > 1000.0 && iops(&one) == iops(&other), "{one}");
    let said = done(&format!("bench {words}"), folder);
    assert!(said.contains("LABEL gpt/userdata on PART da0p3 on da0; UFS model"), "{said}");
    // The requests that reached each class on the way; none of them delayed any.
    let table = said.split_once("The block layer  ").expect(&said).1;
    let rows: Vec<Vec<&str>> = table.lines().map(|it| it.split_whitespace().collect()).collect();
    for (row, name) in rows[1..].iter().zip(["gpt/userdata", "da0p3", "da0"]) {
        assert_eq!(
            (row[1], row[3], &row[5..]),
            (name, "2048", &["0", "-", "0", "-"][..]),
            "{said}"
        );
    }
}

#[test]
fn a_nas_outlives_a_disk_while_a_workload_runs() {
    let folder = tempfile::tempdir().unwrap();
    let (folder, rig) = (folder.path(), example("nas.toml"));
    let status = done(&format!("gmirror --rig {rig} status -s"), folder);
    assert_eq!(
        status,
        "mirror/gm0  COMPLETE  ada0 (ACTIVE)\nmirror/gm0  COMPLETE  ada1 (ACTIVE)\n"
    );
    let words = "--rw=randrw --bs=4k --iodepth=16 --size=4M --verify=crc32c";
    let report = bench(&format!("--on {rig}:mirror/gm0p1 {words}"), folder);
    assert_eq!(report["jobs"][0]["error"], 0, "{report}");
    // The second disk can no longer write a sector: it is dropped, and only those who look notice.
    let text = fs::read_to_string(&rig).unwrap();
    let two = text.replace(
        "disks = [\"ada0\", \"ada1\"]",
        "disks = [\"ada0\"]\n[[controller]]\nname = \"ahci1\"\ntarget = \"ahci,block=512\"\n\
         disks = [\"ada1\"]\nfaults = \"medium:lba8000-9000\"",
    );
    fs::write(folder.join("two.toml"), two).unwrap();
    let said = done(&format!("bench --on two.toml:mirror/gm0p1 {words}"), folder);
    assert!(said.contains("ada1: medium error"), "{said}");
    let report = bench(&format!("--on two.toml:mirror/gm0p1 {words}"), folder);
    assert_eq!(report["jobs"][0]["error"], 0, "{report}");
}

#[test]
fn sixteen_disks_on_four_controllers_are_one() {
    let folder = tempfile::tempdir().unwrap();
    let (folder, rig) = (folder.path(), example("ssds.toml"));
    let status = done(&format!("gmultipath --rig {rig} status -s"), folder);
    assert_eq!(status.lines().count(), 32, "{status}");
    assert_eq!(status.matches("(ACTIVE)").count(), 16, "{status}");
    assert!(status.contains("multipath/ssd1  OPTIMAL  ahci1/ssd1 (ACTIVE)\n"), "{status}");
    let list = done(&format!("gstripe --rig {rig} list"), folder);
    assert!(list.contains("Status: Total=16, Online=16"), "{list}");
    // Bytes are written and read back through all of it.
    let data: Vec<u8> =
        (0..3_000_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    fs::write(folder.join("data"), &data).unwrap();
    fs::write(folder.join("script"), "copy data stripe/fast\ncopy stripe/fast back\n").unwrap();
    done(&format!("geom --rig {rig} --script script"), folder);
    assert!(fs::read(folder.join("back")).unwrap()[..data.len()] == data);
}

/// Motin's machine of 2013 reached the same after his work: 16 SSDs on 4 controllers. Time is that
/// of the models, and the same in every run; docs/bench.md has the figures.
#[test]
fn sixteen_disks_do_more_than_a_million_reads_a_second() {
    let folder = tempfile::tempdir().unwrap();
    let rig = example("ssds.toml");
    for (bs, least, most) in [("512", 2_700_000.0, 3_000_000.0), ("4k", 1_250_000.0, 1_350_000.0)] {
        let words = format!(
            "--on {rig}:stripe/fast --rw=randread --bs={bs} --iodepth=768 --time_based=1 \
             --ramp_time=2ms --runtime=20ms"
        );
        let report = bench(&words, folder.path());
        assert_eq!(report["jobs"][0]["error"], 0, "{report}");
        let iops = report["jobs"][0]["read"]["iops"].as_f64().unwrap();
        assert!((least..most).contains(&iops), "{bs}: {iops}");
        // Each class on the way reports its requests: the stripe all of them, each pair of paths
        // its own.
        let layers = report["flysch"]["targets"][0]["layers"].as_array().unwrap();
        let reads = |class: &str| {
            let all = layers.iter().filter(|layer| layer["class"] == class);
            all.map(|layer| layer["reads"].as_u64().unwrap()).sum::<u64>()
        };
        assert!(reads("STRIPE") > 20_000, "{report}");
        assert_eq!((reads("MULTIPATH"), reads("DISK")), (reads("STRIPE"), reads("STRIPE")));
    }
}

#[test]
fn images_of_a_rig_are_kept_and_copied_both_ways() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let rig = "clock = \"virtual\"\n\
        [[controller]]\nname = \"n\"\ntarget = \"nvme,block=512\"\ndisks = [\"x\", \"y\"]\n\
        [[disk]]\nname = \"x\"\nsize = \"8M\"\nimage = \"x.img\"\n\
        [[disk]]\nname = \"y\"\nsize = \"8M\"\nimage = \"y.img\"\n\
        [[geom]]\nname = \"concat/cc\"\ncreate = \"concat label cc x y\"\n";
    fs::write(folder.join("r.toml"), rig).unwrap();
    let data: Vec<u8> =
        (0..9_000_448_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    fs::write(folder.join("data"), &data).unwrap();
    done("copy data r.toml:concat/cc --verify", folder);
    // Another command, and one without a rig: the same bytes are on the images.
    done("copy r.toml:concat/cc back", folder);
    assert!(fs::read(folder.join("back")).unwrap()[..data.len()] == data);
    done("geom -f x.img -f y.img copy concat/cc other", folder);
    assert!(fs::read(folder.join("other")).unwrap() == fs::read(folder.join("back")).unwrap());
    // A disk that uses this machine's time.
    let plain =
        "[[disk]]\nname = \"x\"\nimage = \"x.img\"\n[[disk]]\nname = \"y\"\nimage = \"y.img\"\n";
    fs::write(folder.join("plain.toml"), plain).unwrap();
    let report = bench("--on plain.toml:concat/cc --rw=read --bs=64k --size=4M", folder);
    assert_eq!(report["jobs"][0]["read"]["io_bytes"], 4 << 20, "{report}");
}

#[test]
fn mistakes_are_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let (folder, rig) = (folder.path(), example("nas.toml"));
    refused("geom --rig no.toml tree", folder, 1, "no.toml: No such file");
    fs::write(folder.join("r.toml"), "[[disk]]\nname = \"d\"\nimmage = \"d.img\"\n").unwrap();
    let cause = "r.toml: line 3: `immage`: [[disk]] has no such key, did you mean `image`?";
    refused("geom --rig r.toml tree", folder, 2, cause);
    refused(&format!("bench --on {rig}:mirror/gm1"), folder, 1, "did you mean `mirror/gm0`?");
    refused(&format!("bench --on {rig}"), folder, 2, "name a provider");
    refused(&format!("bench --on {rig}:ada0"), folder, 1, "open for writing by MIRROR gm0");
    refused(
        &format!("bench --clock real --on {rig}:mirror/gm0"),
        folder,
        2,
        "no thread of their own",
    );
    let rig = "[[disk]]\nname = \"d\"\nimage = \"d.img\"\nsize = \"4M\"\n\
        [[geom]]\nname = \"stripe/s\"\ncreate = [\n\"stripe lable s d\"]\n";
    fs::write(folder.join("r.toml"), rig).unwrap();
    refused("geom --rig r.toml tree", folder, 2, "r.toml: line 8: `create`: ");
    assert!(!folder.join("d.img").exists(), "made for nothing");
    refused("geom mount nowhere.toml nowhere", folder, 1, "nowhere: No such file");
    fs::create_dir(folder.join("dir")).unwrap();
    refused("geom mount nowhere.toml dir", folder, 1, "nowhere.toml: No such file");
    refused("geom mount dir", folder, 2, "no disks");
    refused("geom --socket dir part show", folder, 1, "is not a mount");
    refused("gstat dir", folder, 1, "is not a mount");
    let full = flysch().args(["geom", "-f", "x", "mount", "/proc"]).output().unwrap();
    let said = String::from_utf8(full.stderr).unwrap();
    assert!(said.contains("/proc: is already a mount point"), "{said}");
}
