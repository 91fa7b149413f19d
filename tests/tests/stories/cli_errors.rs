//! Invalid input: one clear line that names the object, the right status, nothing left behind.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use flysch_tests::command::{Ran, flysch, ran, run, run_in};

/// The command must refuse with `status` and one line that contains all of `parts`.
fn assert_refused(ran: &Ran, status: i32, parts: &[&str], words: &str) {
    assert_eq!(ran.status, status, "{words}: {}", ran.stderr);
    assert_eq!(ran.stderr.trim_end().lines().count(), 1, "{words}: {}", ran.stderr);
    assert!(ran.stderr.starts_with("flysch: "), "{words}: {}", ran.stderr);
    assert_eq!(ran.stdout, "", "{words}");
    for part in parts {
        assert!(ran.stderr.contains(part), "{words}: `{part}` is not in {}", ran.stderr);
    }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name());
    let mut names: Vec<String> = entries.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn wrong_use_is_status_2_and_names_what_is_wrong() {
    for (words, parts) in [
        ("devlist --on ufz", &["unknown target `ufz`", "did you mean `ufs`?"][..]),
        ("devlist --on ufs,sise=4G", &["no key `sise`", "did you mean `size`?", "profile"]),
        ("devlist --on ufs,size=4X", &["size=4X", "a size such as"]),
        ("devlist --on ufs,mcq=99", &["mcq=99", "1..31"]),
        ("devlist --on ufs,lu=3", &["lu=3", "`lus=`"]),
        ("devlist --on ufs,lus=2,lu=5", &["lu=5", "0..1"]),
        ("devlist --on ufs,profile=galaxy", &["galaxy-book-s|ok3576|"]),
        ("devlist --on ufs,faults=timeuot:1", &["timeuot", "timeout"]),
        ("devlist --on null", &["null", "no command layer"]),
        ("ufs info --on null", &["null", "not a UFS device"]),
        ("devlist --on ufs,block=1024", &["block=1024", "512", "4096"]),
        ("devlist --on emmc,block=1024", &["block=1024", "512", "4096"]),
        ("devlist --on nvme,block=1024", &["block=1024", "512", "4096"]),
        ("devlist --on ahci,block=1024", &["block=1024", "512", "4096"]),
        ("devlist --on ahci,pmp=16", &["pmp=16", "1..15"]),
        ("devlist --on ahci,pmp=3,device=3", &["device=3", "0..2"]),
        ("devlist --on ahci,fbs=off", &["fbs=", "pmp=5"]),
        ("devlist --on ahci,pmp=2,kind=cd", &["kind=cd", "disk"]),
        ("devlist --on ahcy", &["unknown target `ahcy`", "did you mean `ahci`?"]),
        ("devlist --on nvme,mcq=2", &["no key `mcq`"]),
        ("devlist --on emmc,partition=gp9", &["partition=gp9", "user|boot0|boot1|gp1"]),
        ("devlist --on emmc,partition=gp1", &["gp1", "`gp=`"]),
        ("devlist --on sd,queue=off", &["queue", "sd"]),
        ("devlist --on sd,timing=hs200", &["timing=hs200", "sdr104"]),
        ("devlist --on emmc,timing=sdr104", &["timing=sdr104", "hs200"]),
        ("devlist --on sd,block=1024", &["block=1024", "512", "4096"]),
        ("devlist --on sd,faults=switch:n1", &["switch"]),
        ("devlist --on emmc,queue=off,lanes=4", &["lanes=4", "command queueing"]),
        ("devlist --on sd@qemu,partition=boot0", &["no key `partition`"]),
        ("nvme read --start-block 0 --block-count 70000", &["`70000`", "--block-count"]),
        ("emmc bootpart enable boot1 1 --yes", &["`boot1`", "<PARTITION>"]),
        ("ata trim --lba 0 --count 0 --yes", &["--count 0", "1 or more"]),
        ("ufs attribute bActiveICCLevle", &["bActiveICCLevle", "did you mean `bActiveICCLevel`?"]),
        ("ufs attribute size", &["can be", "bMaxDataInSize"]),
        ("ufs attribute 0xEE", &["0xEE"]),
        ("ufs attribute bActiveICCLevel 256", &["out of range", "bActiveICCLevel"]),
        ("ufs attribute wExceptionEventStatus 1", &["wExceptionEventStatus", "access"]),
        ("ufs attribute bConfigDescrLock 1", &["bConfigDescrLock"]),
        ("ufs flag fDeviceInit clear", &["fDeviceInit", "access"]),
        ("ufs descriptor nonsense", &["nonsense"]),
        ("bench --name a --rw=read --name b --rw=write", &["--name", "twice", "job file"]),
        ("bench --seed -12", &["`-12` is negative"]),
        ("bench --nonsense", &["; use `flysch bench [OPTIONS] [JOBFILE]...`\n"]),
        ("bench profiles --on ufs", &["'--on' found", "use `flysch bench profiles"]),
        ("bench --clock x", &["flysch: `x` for `--clock <CLOCK>`: use virtual, hybrid or real"]),
        ("bench --trace t --trace-records 0", &["`0` for `--trace-records", "must be 1"]),
        ("bench flash --on x", &["flysch: unknown target `x`; raw flash is"]),
        ("export null --ublk=x", &["`x` for `--ublk[=<N>]`: it is not a whole number"]),
        ("bench --name a --name a", &["--name", "twice", "job file"]),
        ("copy a ufz,size=4G", &["unknown target `ufz`"]),
        ("copy a b --skip x", &["`x`", "512K"]),
        ("copy ufs - --verify", &["--verify", "stream"]),
        ("copy ufs - --seek 1", &["--seek", "stream"]),
    ] {
        assert_refused(&run(words), 2, parts, words);
    }
}

/// The words are right, but what they name does not exist: every command fails in the same way.
#[test]
fn what_is_named_and_absent_is_status_1() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::create_dir(folder.join("dir")).unwrap();
    fs::write(folder.join("includes.fio"), "[a]\nrw=read\ninclude absent\n").unwrap();
    fs::write(folder.join("logs.fio"), "[a]\nread_iolog=absent\n").unwrap();
    let before = names(folder);
    for (words, parts) in [
        ("nvme read -n 4 --start-block 0", &["namespace 4 is not active", "active: 1"][..]),
        ("nvme flush -n 3", &["namespace 3 is not active"]),
        ("nvme ns-descs -n 5 --on nvme,namespaces=2", &["namespace 5", "active: 1, 2"]),
        ("nvme format -n 300 --yes", &["namespace 300 is not active"]),
        ("nvme zns report-zones -n 2", &["namespace 2 is not active"]),
        ("bench absent.fio", &["absent.fio: No such file"]),
        ("bench dir", &["dir: Is a directory"]),
        ("bench includes.fio", &["includes.fio:3: ", "absent: No such file"]),
        ("bench logs.fio --on null", &["logs.fio:1: ", "absent: No such file"]),
        ("bench --on absent.toml:da0", &["absent.toml: No such file"]),
        ("bench trace import absent", &["absent: No such file"]),
        ("geom --rig absent.toml tree", &["absent.toml: No such file"]),
        ("geom --script absent", &["absent: No such file"]),
        ("geom -f absent part show", &["absent: No such file"]),
        ("geom part show da0", &["da0: there is no such provider"]),
        ("cam inquiry da9 --on ufs,size=16M", &["no device `da9`", "pass0"]),
        ("cam rescan 7 --on ufs,size=16M", &["there is no bus 7"]),
        ("image ls absent", &["absent", "No such file"]),
        ("copy absent null", &["absent", "No such file"]),
        ("ufs rpmb counter --key absent --on ufs,rpmb=normal", &["--key", "No such file"]),
        ("emmc rpmb read-counter absent", &["absent", "No such file"]),
        ("export file:absent --nbd unix:s", &["absent"]),
    ] {
        assert_refused(&run_in(words, folder), 1, parts, words);
    }
    assert_eq!(names(folder), before);
}

#[test]
fn files_that_are_no_text_are_told_so() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("odd"), b"[a]\nname = \xFF\xFE\n").unwrap();
    fs::create_dir(folder.join("tree")).unwrap();
    for words in [
        "bench odd",
        "geom --rig odd tree",
        "image create ubi -p 128KiB -m 2048 -o out odd",
        "image create jffs2 -r tree -D odd -o out",
        "lab linux --on ufs,size=16M --script odd",
    ] {
        assert_refused(&run_in(words, folder), 2, &["odd: is not text"], words);
    }
    assert_eq!(names(folder), ["odd", "tree"]);
}

/// A verb looks for its input file before its device is opened: this device could not be opened.
#[test]
fn a_missing_file_is_told_before_a_device_is_opened() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::create_dir(folder.join("dir")).unwrap();
    for (words, target) in [
        ("nvme fw-download -f FILE", "nvme"),
        ("nvme write -s 0 -d FILE --yes", "nvme"),
        ("nvme compare -s 0 -d FILE", "nvme"),
        ("nvme set-feature -f 0xc -d FILE", "nvme"),
        ("nvme admin-passthru -o 0x80 -i FILE --yes", "nvme"),
        ("nvme zns zone-append -s 0 -d FILE", "nvme"),
        ("ata fwdownload -f FILE --yes", "ahci"),
        ("ata passthru -c 0x3f -o FILE --yes", "ahci"),
        ("emmc ffu FILE --yes", "emmc"),
        ("emmc rpmb write-key FILE --yes", "emmc"),
        ("emmc rpmb read-counter FILE", "emmc"),
        ("ufs ffu update FILE --yes", "ufs"),
        ("ufs rpmb write FILE", "ufs"),
    ] {
        for (name, cause) in [("absent", "No such file"), ("dir", "directory")] {
            let words = format!("{} --on {target},image=no.img", words.replace("FILE", name));
            let ran = run_in(&words, folder);
            assert_refused(&ran, 1, &[&format!("flysch: {name}: "), cause], &words);
        }
    }
}

/// One job file for every kind of device, with both block sizes if a kind has two.
#[test]
fn a_job_file_runs_on_every_kind_of_device() {
    let folder = tempfile::tempdir().unwrap();
    let job = "[global]\nbs=4k\nsize=2m\nverify=crc32c\nioengine=libaio\niodepth=8\n\n\
               [fill]\nrw=randwrite\n\n[mixed]\nstonewall\nrw=randrw\nrwmixread=70\n";
    fs::write(folder.path().join("one.fio"), job).unwrap();
    for target in [
        "ufs,size=16M,block=512",
        "ufs,size=16M,block=4096",
        "nvme,size=16M,block=512",
        "nvme,size=16M,block=4096",
        "ahci,size=16M,block=512",
        "ahci,size=16M,block=4096",
        "emmc,size=16M,block=512",
        "emmc,size=16M,block=4096",
        "emmc,size=16M,queue=off",
        "emmc,size=16M,gp=8M,partition=gp1",
        "sd,size=4G",
        "sd,size=16M,block=4096",
        "sd,size=16M,dma=off",
    ] {
        let ran = run_in(&format!("bench one.fio --on {target} --json"), folder.path());
        assert_eq!(ran.status, 0, "{target}: {}", ran.stderr);
        let told: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
        let jobs = told["jobs"].as_array().expect("jobs");
        assert_eq!(jobs.len(), 2, "{target}");
        for job in jobs {
            assert_eq!(job["error"], 0, "{target}: {job}");
            assert!(job["write"]["io_bytes"].as_u64() > Some(0), "{target}: {job}");
        }
        assert_eq!(jobs[0]["write"]["io_bytes"], 2 << 20, "{target}");
    }
}

#[test]
fn what_a_device_lacks_is_one_line() {
    for (words, status, parts) in [
        ("nvme id-ns -n 9 --on nvme,size=16M", 1, &["namespace 9 is not active"][..]),
        ("nvme zns report-zones --on nvme,size=16M", 1, &["namespace 1 has no zones"]),
        ("nvme resv-report --on ahci,size=16M", 2, &["is not an NVMe controller"]),
        ("ata info --on nvme,size=16M", 2, &["not a SATA device"]),
        ("emmc extcsd read --on ahci,size=16M", 2, &["not an eMMC device"]),
        ("emmc gp create 8192 2 0 0 --yes --on emmc,size=16M,gp=8M", 1, &["already partitioned"]),
    ] {
        assert_refused(&run(words), status, parts, words);
    }
}

#[test]
fn words_the_command_does_not_know_are_status_2() {
    for words in ["", "nonsense", "ufs", "copy", "copy a", "devlist --nonsense"] {
        let ran = run(words);
        assert_eq!(ran.status, 2, "{words}: {}", ran.stderr);
        let told = ["Usage", "--help", "; use `flysch "];
        assert!(told.iter().any(|part| ran.stderr.contains(part)), "{}", ran.stderr);
    }
}

#[test]
fn images_that_cannot_hold_a_unit_are_refused_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::create_dir(folder.join("dir")).unwrap();
    fs::write(folder.join("small.img"), [7; 8192]).unwrap();
    fs::write(folder.join("odd.img"), [7; 5000]).unwrap();
    fs::write(folder.join("ro.img"), [7; 8192]).unwrap();
    fs::set_permissions(folder.join("ro.img"), fs::Permissions::from_mode(0o444)).unwrap();
    let before = names(folder);
    for (target, parts) in [
        ("ufs,image=absent.img", &["absent.img", "does not exist", "size="][..]),
        ("ufs,image=dir,size=1M", &["dir", "is a directory"]),
        ("ufs,image=small.img,size=1M", &["small.img", "8192 bytes", "truncate -s 1048576"]),
        ("ufs,image=odd.img", &["odd.img", "5000 bytes"]),
        ("ufs,image=ro.img", &["ro.img", "not writable"]),
        ("ufs,image=none/new.img,size=1M", &["none/new.img", "No such file"]),
        ("ufs,image=/dev/null,size=1M", &["/dev/null", "not a regular file"]),
        ("file:dir", &["dir", "directory"]),
        ("file:absent.img", &["absent.img"]),
        ("file:small.img,size=1M", &["small.img", "8192"]),
    ] {
        let words = format!("copy {target} out.bin");
        assert_refused(&run_in(&words, folder), 1, parts, &words);
    }
    assert_eq!(names(folder), before);
    assert_eq!(fs::read(folder.join("small.img")).unwrap(), [7; 8192]);
}

#[test]
fn a_copy_that_cannot_work_is_refused_before_it_starts() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::create_dir(folder.join("dir")).unwrap();
    fs::write(folder.join("data"), vec![7; 1 << 20]).unwrap();
    let before = names(folder);
    for (words, parts) in [
        ("copy absent ufs,image=new.img,size=1M", &["absent", "No such file"][..]),
        ("copy dir ufs", &["dir", "directory"]),
        ("copy data ufs,size=512K", &["room for 524288 bytes", "1048576 bytes"]),
        ("copy data ufs,size=1M --seek 4K", &["room for 1044480 bytes"]),
        ("copy data ufs --skip 2M", &["data", "--skip is 2097152"]),
        ("copy data ufs --length 2M", &["data", "1048576", "2097152"]),
        ("copy ufs,size=1M out --skip 2M", &["--skip is 2097152"]),
        ("copy ufs,size=1M dir", &["dir", "directory"]),
        ("copy ufs,size=1M none/out", &["none/out", "No such file"]),
        ("copy ufs,size=1M /dev/full", &["/dev/full", "No space left"]),
    ] {
        assert_refused(&run_in(words, folder), 1, parts, words);
    }
    assert_eq!(names(folder), before);
}

/// What is read is neither replaced nor written to, whatever name it is given.
#[test]
fn an_output_is_never_one_of_the_inputs() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let volume = "[v]\nmode=ubi\nimage=data\nvol_id=0\nvol_type=dynamic\nvol_name=v\n";
    fs::write(folder.join("data"), vec![7; 1 << 20]).unwrap();
    fs::write(folder.join("jobs.fio"), "[a]\nrw=read\nsize=4k\n").unwrap();
    fs::write(folder.join("ubi.ini"), volume).unwrap();
    fs::write(folder.join("rig.toml"), "[[disk]]\nname = \"d\"\nimage = \"data\"\n").unwrap();
    fs::hard_link(folder.join("data"), folder.join("hard")).unwrap();
    std::os::unix::fs::symlink("data", folder.join("soft")).unwrap();
    let contents = || names(folder).iter().map(|it| fs::read(folder.join(it)).unwrap()).collect();
    let before: Vec<Vec<u8>> = contents();
    for words in [
        "copy data data",
        "copy data ./data --skip 4K",
        "copy hard data",
        "copy soft data",
        "copy data soft",
        "copy data file:data --seek 4K",
        "copy file:data hard",
        "copy ufs,image=data nvme,image=data",
        "copy rig.toml:d data",
        "copy rig.toml:d rig.toml",
        "geom -f data,name=d copy d ./data",
        "geom -f data,name=d copy ./soft d",
        "geom --rig rig.toml copy d ./hard",
        "geom --on ufs,image=data copy da0 data",
        "bench jobs.fio --on null --csv jobs.fio",
        "bench --on file:data --rw=read --size=4k --csv hard",
        "bench trace import data --html data",
        "image create ubi -p 128KiB -m 2048 -o data ubi.ini",
        "image create ubi -p 128KiB -m 2048 -o ubi.ini ubi.ini",
        "image create jffs2 --tar data -o hard",
        "image repair data --backup data",
        "image repair data -o out --backup soft",
    ] {
        let ran = run_in(words, folder);
        assert_refused(&ran, 2, &["is the input"], words);
        assert!(contents() == before, "{words}");
    }
}

#[test]
fn more_than_fits_from_a_stream_says_where_it_stopped() {
    let input = fs::File::open("/dev/zero").unwrap();
    let output = flysch().args(["copy", "-", "ufs,size=9M"]).stdin(input).output().unwrap();
    assert_refused(&ran(output), 1, &["full after 9437184 bytes"], "copy - ufs,size=9M");
}

/// Runs a script on a file system of 1 MiB, in its own mount namespace: `$1` is the command, and
/// `$2` a folder with room. Returns `None`, after a message, if namespaces are not available.
fn on_a_small_disk(script: &str, folder: &Path) -> Option<Ran> {
    let disk = folder.join("disk");
    fs::create_dir(&disk).unwrap();
    let mounted = format!("mount -t tmpfs -o size=1m tmpfs \"$3\" || exit 77; cd \"$3\"; {script}");
    let output = std::process::Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", &mounted, "sh"])
        .args([flysch().get_program(), folder.as_os_str(), disk.as_os_str()])
        .output()
        .expect("unshare of util-linux runs");
    let ran = ran(output);
    if ran.status == 77 || ran.stderr.contains("unshare") {
        let line = format!("skipped: no mount namespace here: {}", ran.stderr.trim());
        assert!(std::env::var("CI").as_deref() != Ok("true"), "{line}");
        eprintln!("{line}");
        return None;
    }
    Some(ran)
}

#[test]
fn a_full_file_system_leaves_no_half_file() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("data"), vec![7; 4 << 20]).unwrap();
    let script = "data=\"$2/data\"; echo old > kept; \"$1\" copy \"$data\" new; echo \"new $?\"; \
                  \"$1\" copy \"$data\" kept; echo \"kept $?\"; \
                  \"$1\" bench --on null --rw=read --number_ios=50000 --trace tr > /dev/null; \
                  echo \"trace $?\"; \"$1\" copy \"$data\" file:image,size=4M; echo \"image $?\"; \
                  \"$1\" bench --on ufs,image=unit,size=16M --rw=write --size=8M > /dev/null; \
                  echo \"unit $?\"; ls -A; cat kept";
    let Some(ran) = on_a_small_disk(script, folder.path()) else { return };
    let expected = "new 1\nkept 1\ntrace 1\nimage 1\nunit 1\nkept\nold\n";
    assert_eq!(ran.stdout, expected, "{}", ran.stderr);
    assert!(!ran.stderr.contains(".part"), "{}", ran.stderr);
    assert_eq!(ran.stderr.matches("No space left").count(), 5, "{}", ran.stderr);
}

/// A run that continues gives results, and all of them report that this machine has no room, not
/// that the device's medium is bad.
#[test]
fn a_model_on_a_full_disk_is_told_as_that_in_every_output() {
    let folder = tempfile::tempdir().unwrap();
    let script = "run() { \"$1\" bench --on \"$2\",image=unit,size=16M --rw=write --size=8M \
                  --continue_on_error=all $3; echo $? >&2; }; \
                  for on in ufs nvme; do out=\"$2/$on\"; \
                  run \"$1\" $on \"--csv=$out.csv --report=$out\" > \"$out.txt\"; \
                  run \"$1\" $on --json > \"$out.json\"; ls -A; done";
    let Some(ran) = on_a_small_disk(script, folder.path()) else { return };
    assert_eq!(ran.stdout, "", "the image that was made is gone: {}", ran.stderr);
    let statuses = ran.stderr.lines().filter(|line| !line.starts_with("flysch: report in "));
    assert_eq!(statuses.collect::<Vec<_>>(), ["0"; 4], "{}", ran.stderr);
    // Space could not be allocated, in the terms of each protocol.
    for (on, cause) in [("ufs", "sense 7/27/07"), ("nvme", "NVMe status 0/81")] {
        let read = |name: String| fs::read_to_string(folder.path().join(name)).unwrap();
        let (text, json) = (read(format!("{on}.txt")), read(format!("{on}.json")));
        let (csv, page) = (read(format!("{on}.csv")), read(format!("{on}/index.html")));
        const WORDS: &str = "unit has no room left (make some on its file system)";
        for (output, named) in [
            (&text, format!("host file {WORDS} ")),
            (&json, format!("\"{WORDS}\"")),
            (&csv, format!("host file {WORDS}=")),
            (&page, format!(">{WORDS}<")),
        ] {
            assert!(output.contains(&named) && output.contains("host file"), "{named}: {output}");
            assert!(!output.to_lowercase().contains("medium error"), "{output}");
        }
        assert!(text.contains(cause), "{cause}: {text}");
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        let job = &json["jobs"][0];
        assert_eq!((&job["error"], &job["first_error"]), (&0.into(), &28.into()), "{job}");
        assert!(job["total_err"].as_u64() > Some(0), "{job}");
    }
}
