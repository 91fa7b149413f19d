//! FreeBSD's own test cases for the block layer (`tests/sys/geom/class`), run through the command.
//! The table in `docs/geom.md` says where each of them is, and where the right result differs.

use std::fs;
use std::path::Path;

use flysch_tests::command::run_in;

const MIB: u64 = 1 << 20;

/// Disks of these sizes in their own folder.
struct Bench {
    folder: tempfile::TempDir,
    disks: String,
}

impl Bench {
    fn new(disks: &[(&str, u64)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut words = String::new();
        for (name, bytes) in disks {
            let path = folder.path().join(name);
            fs::File::create(path).unwrap().set_len(*bytes).unwrap();
            words += &format!("-f {name} ");
        }
        Self { folder, disks: words }
    }

    /// The same, with a file `src` of random bytes.
    fn with_source(disks: &[(&str, u64)], bytes: usize) -> Self {
        let this = Self::new(disks);
        fs::write(this.folder().join("src"), random(bytes)).unwrap();
        this
    }

    fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.folder().join(name)).unwrap()
    }

    /// Runs the lines in one session; returns the status, the output and the messages.
    fn try_play(&self, lines: &[&str]) -> flysch_tests::command::Ran {
        fs::write(self.folder().join("script"), lines.join("\n")).unwrap();
        run_in(&format!("geom {} --script script", self.disks), self.folder())
    }

    /// The same for lines that must succeed; the output of `copy` is left out.
    fn play(&self, lines: &[&str]) -> String {
        let ran = self.try_play(lines);
        assert_eq!(ran.status, 0, "{lines:?}: {}{}", ran.stdout, ran.stderr);
        let told = ran.stdout.split_inclusive('\n');
        told.filter(|line| !line.ends_with(" bytes copied\n")).collect()
    }

    /// `copy FROM dst`, and the resulting file.
    fn copied(&self, before: &[&str], from: &str) -> Vec<u8> {
        let copy = format!("copy {from} dst");
        self.play(&[before, &[&copy]].concat());
        self.read("dst")
    }
}

fn random(bytes: usize) -> Vec<u8> {
    (0..bytes as u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

/// The numbers after a key in dumps.
fn numbers(dump: &str, key: &str) -> Vec<u64> {
    let lines = dump.lines().filter_map(|line| line.trim_start().strip_prefix(key));
    lines.map(|value| value.trim().parse().unwrap()).collect()
}

#[test]
fn mirror_1_has_the_size_of_the_smallest_without_a_sector() {
    let bench = Bench::new(&[("us0", MIB), ("us1", 2 * MIB), ("us2", 3 * MIB)]);
    let told = bench.play(&["mirror label -v m us0 /dev/us1 us2", "diskinfo mirror/m"]);
    let stored = ["us0", "/dev/us1", "us2"].map(|it| format!("Metadata value stored on {it}.\n"));
    let size = MIB - 512;
    let info = format!("mirror/m\t512\t{size}\t{}\t0\t0\n", size / 512);
    assert_eq!(told, stored.concat() + "Done.\n" + &info);
}

#[test]
fn mirror_2_to_7_every_balance_reads_what_was_written_down_to_the_last_component() {
    for balance in ["none", "round-robin", "load", "split -s 4096", "prefer"] {
        let disks = ["us0", "us1", "us2"].map(|name| (name, MIB / 2 + 512));
        let bench = Bench::with_source(&disks, MIB as usize / 2);
        let src = bench.read("src");
        let label = format!("mirror label -b {balance} m us0 us1 us2");
        bench.play(&[&label, "copy src mirror/m"]);
        for name in ["us0", "us1", "us2"] {
            assert!(bench.read(name)[..src.len()] == src, "{balance}: {name}");
        }
        assert!(bench.copied(&[], "mirror/m") == src, "{balance}");
        for name in ["us0", "us1"] {
            let remove = format!("mirror remove m {name}");
            assert!(bench.copied(&[&remove], "mirror/m") == src, "{balance} without {name}");
        }
        // The last one stays: its data exists nowhere else.
        let last = bench.try_play(&["mirror remove m us2"]);
        assert!(last.status == 1 && last.stderr.contains("last good component"), "{last:?}");
        let status = bench.play(&["mirror status -s m", "mirror destroy m", "mirror status"]);
        assert_eq!(status, "mirror/m  COMPLETE  us2 (ACTIVE)\n");
    }
}

/// Two halves on NOPs, accepted only by the NOPs' names.
const HALVES: [(&str, u64); 2] = [("us0", 2 * MIB), ("us1", 2 * MIB)];
const NOPS: &str = "nop create us0 us1";

#[test]
fn mirror_9_a_half_that_was_replaced_is_not_taken_back() {
    let three = [("us0", 2 * MIB), ("us1", 2 * MIB), ("us2", 2 * MIB)];
    let bench = Bench::with_source(&three, 2048);
    let nops = "nop create us0 us1 us2";
    let told = bench.play(&[
        nops,
        "mirror label -h m us0.nop us1.nop",
        "nop configure -w 100 us1.nop",
        "copy src mirror/m",
        "nop configure -w 0 us1.nop",
        "mirror status -s m",
        "mirror forget m",
        "mirror insert -h m us2.nop",
        "mirror status -s m",
        "mirror stop m",
    ]);
    assert_eq!(
        told,
        "mirror/m  DEGRADED  us0.nop (ACTIVE)\n\
         m: 1 component rebuilt\n\
         mirror/m  COMPLETE  us0.nop (ACTIVE)\n\
         mirror/m  COMPLETE  us2.nop (ACTIVE)\n"
    );
    // The original two: one is out of date, so the mirror runs on the other.
    fs::write(bench.folder().join("src"), random(4096)).unwrap();
    let told = bench.play(&[NOPS, "mirror status -s m", "copy src mirror/m"]);
    assert_eq!(told, "mirror/m  DEGRADED  us0.nop (ACTIVE)\n");
    // The replacement missed a write, and is rebuilt.
    let told = bench.play(&[nops, "mirror rebuild m", "mirror status -s m", "mirror destroy m"]);
    assert!(told.ends_with("us2.nop (ACTIVE)\n") && !told.contains("us1"), "{told}");
    assert!(bench.read("us0")[..4096] == random(4096) && bench.read("us0") == bench.read("us2"));
}

/// The state of a mirror after one of its halves failed a request: what it read then, what the
/// metadata of both says, and which ones take part when the half returns.
fn after_trouble(trouble: &str, act: &[&str]) -> (Vec<u8>, String, String) {
    let bench = Bench::with_source(&HALVES, MIB as usize);
    bench.play(&[NOPS, "mirror label -h m us0.nop", "copy src mirror/m"]);
    bench.play(&[NOPS, "mirror insert -h m us1.nop"]);
    fs::write(bench.folder().join("new"), random(2048)).unwrap();
    let trouble = format!("nop configure {trouble} us1.nop");
    let quiet = "nop configure -r 0 -w 0 us1.nop";
    let mut lines = vec![NOPS, &trouble];
    lines.extend(act);
    lines.extend([quiet, "mirror dump us0.nop us1.nop"]);
    lines.extend(["nop destroy -f us1.nop", "nop create us1", "mirror status -s m"]);
    let told = bench.play(&lines);
    let at = told.find("mirror/m").unwrap();
    let dst = fs::read(bench.folder().join("dst")).unwrap_or_default();
    (dst, told[..at].to_string(), told[at..].to_string())
}

/// A half that fails a read once is repaired from the other one; if it still cannot be read, it is
/// dropped.
#[test]
fn mirror_10_a_read_that_fails_is_done_by_the_other_half() {
    let (dst, dump, status) = after_trouble("-r 100", &["copy mirror/m dst"]);
    assert!(dst[..MIB as usize] == random(MIB as usize));
    let generations = numbers(&dump, "genid: ");
    assert!(generations[0] > generations[1], "{dump}");
    assert_eq!(status, "mirror/m  DEGRADED  us0.nop (ACTIVE)\n", "it is not taken back");
}

#[test]
fn mirror_11_a_half_that_is_gone_when_it_is_read_comes_back() {
    let act = ["copy mirror/m dst", "copy new mirror/m"];
    let (dst, dump, status) = after_trouble("-e 6 -r 100", &act);
    assert!(dst[..MIB as usize] == random(MIB as usize));
    let (generations, syncs) = (numbers(&dump, "genid: "), numbers(&dump, "syncid: "));
    assert_eq!(generations[0], generations[1], "{dump}");
    assert!(syncs[0] > syncs[1], "{dump}");
    assert!(status.contains("us1.nop (SYNCHRONIZING, 0%)"), "{status}");
}

#[test]
fn mirror_12_a_half_that_cannot_be_written_stays_out() {
    let act = ["copy new mirror/m", "copy mirror/m dst"];
    let (dst, dump, status) = after_trouble("-w 100", &act);
    assert!(dst[..2048] == random(2048));
    let generations = numbers(&dump, "genid: ");
    assert!(generations[0] > generations[1], "{dump}");
    assert_eq!(status, "mirror/m  DEGRADED  us0.nop (ACTIVE)\n");
}

#[test]
fn mirror_13_a_half_that_is_gone_when_it_is_written_comes_back() {
    let act = ["copy new mirror/m", "copy mirror/m dst"];
    let (dst, dump, status) = after_trouble("-e 6 -w 100", &act);
    assert!(dst[..2048] == random(2048));
    let (generations, syncs) = (numbers(&dump, "genid: "), numbers(&dump, "syncid: "));
    assert_eq!(generations[0], generations[1], "{dump}");
    assert!(syncs[0] > syncs[1], "{dump}");
    assert!(status.contains("us1.nop (SYNCHRONIZING, 0%)"), "{status}");
}

#[test]
fn mirror_component_selection_believes_the_latest_generation() {
    let three = [("us0", 2 * MIB), ("us1", 2 * MIB), ("us2", 2 * MIB)];
    let bench = Bench::with_source(&three, 512);
    let nops = "nop create us0 us1 us2";
    bench.play(&[nops, "mirror label -h m us0.nop", "mirror insert -h m us1.nop us2.nop"]);
    let fail = |who: &str| {
        let fail = format!("nop configure -w 100 {who}.nop");
        bench.play(&[nops, &fail, "copy src mirror/m", "mirror status -s m"])
    };
    let two = fail("us2");
    assert_eq!(two.matches("DEGRADED").count(), 2, "{two}");
    assert_eq!(fail("us1"), "mirror/m  DEGRADED  us0.nop (ACTIVE)\n");
    // They arrive one after the other, oldest first.
    let mut bench = bench;
    bench.disks = ["us2", "us1", "us0"].map(|it| format!("-f {it},name={it}.nop ")).concat();
    let told = bench.play(&["mirror dump us2.nop us1.nop us0.nop", "mirror status -s"]);
    let generations = numbers(&told, "genid: ");
    assert!(generations[0] < generations[1] && generations[1] < generations[2], "{told}");
    assert!(told.ends_with("\nmirror/m  DEGRADED  us0.nop (ACTIVE)\n"), "{told}");
    // If the oldest arrives alone the mirror runs on it, and newer ones are not rebuilt from it.
    bench.disks = "-f us2 -f us1 -f us0 ".into();
    let told = bench.play(&["nop create us2", "nop create us0", "mirror status -s", "why us0.nop"]);
    assert!(told.starts_with("mirror/m  DEGRADED  us2.nop (ACTIVE)\n"), "{told}");
    assert!(told.contains("it is newer than the mirror that runs without it"), "{told}");
}

#[test]
fn mirror_sync_error_reads_another_half_or_leaves_the_new_one_to_be_rebuilt() {
    // One half alone: what it cannot read exists nowhere else, and the new one does not take part.
    let bench = Bench::with_source(&HALVES, MIB as usize);
    bench.play(&[NOPS, "mirror label -h m us0.nop", "copy src mirror/m"]);
    let ran = bench.try_play(&[NOPS, "nop configure -r 100 us0.nop", "mirror insert -h m us1.nop"]);
    assert_eq!(ran.status, 1, "{ran:?}");
    let status = bench.play(&[NOPS, "mirror status -s m"]);
    assert!(
        status.contains("us0.nop (ACTIVE)") && !status.contains("us1.nop (ACTIVE)"),
        "{status}"
    );
    // Two halves: the other one is read.
    let three = [("us0", 2 * MIB), ("us1", 2 * MIB), ("us2", 2 * MIB)];
    let bench = Bench::with_source(&three, MIB as usize);
    let nops = "nop create us0 us1 us2";
    bench.play(&[nops, "mirror label -h m us0.nop us1.nop", "copy src mirror/m"]);
    let told = bench.play(&[
        nops,
        "nop configure -r 100 us0.nop",
        "mirror insert -h m us2.nop",
        "mirror status -s m",
        "mirror destroy m",
    ]);
    assert!(told.contains("us2.nop (ACTIVE)"), "{told}");
    assert!(bench.read("us1") == bench.read("us2"));
}

#[test]
fn stripe_1_and_2_have_the_size_and_the_content() {
    let disks = [("us0", MIB), ("us1", 2 * MIB), ("us2", 3 * MIB)];
    let bench = Bench::with_source(&disks, 3 * MIB as usize);
    for stripe in ["16384", "8192"] {
        let create = format!("stripe create -s {stripe} s us0 us1 us2");
        let told =
            bench.play(&[&create, "diskinfo stripe/s", "copy src stripe/s", "copy stripe/s dst"]);
        assert_eq!(told, format!("stripe/s\t512\t3145728\t6144\t{stripe}\t0\n"));
        assert!(bench.read("dst") == bench.read("src"), "{stripe}");
    }
}

#[test]
fn concat_1_and_2_have_the_size_and_the_content() {
    let disks = [("us0", MIB), ("us1", 2 * MIB), ("us2", 3 * MIB)];
    let bench = Bench::with_source(&disks, 6 * MIB as usize);
    let create = "concat create c us0 us1 us2";
    let told = bench.play(&[create, "diskinfo concat/c", "copy src concat/c", "copy concat/c dst"]);
    assert_eq!(told, "concat/c\t512\t6291456\t12288\t0\t0\n");
    assert!(bench.read("dst") == bench.read("src"));
}

#[test]
fn concat_append_1_and_2_make_it_larger_and_keep_the_content() {
    let disks = [("us0", MIB + 512), ("us1", MIB + 512), ("us2", MIB + 512)];
    let bench = Bench::with_source(&disks, 3 * MIB as usize);
    let size = "diskinfo concat/c";
    let told = bench.play(&["concat create c us0 us1", size, "concat append c us2", size]);
    let line = |bytes: u64| format!("concat/c\t512\t{bytes}\t{}\t0\t0\n", bytes / 512);
    assert_eq!(told, line(2 * MIB + 1024) + &line(3 * MIB + 1536));
    let told = bench.play(&["concat label c us0 us1", size, "concat append c us2", size]);
    assert_eq!(told, line(2 * MIB) + &line(3 * MIB));
    bench.play(&["copy src concat/c", "concat stop c"]);
    assert!(bench.copied(&[], "concat/c") == bench.read("src"), "after a stop");
    let dump = bench.play(&["concat dump us2"]);
    assert!(dump.contains("          Disk number: 2\nTotal number of disks: 3\n"), "{dump}");
    let again = bench.try_play(&["concat append c us2"]);
    assert!(again.status == 1 && again.stderr.contains("in use by CONCAT c"), "{again:?}");
}

#[test]
fn label_basic_creates_shows_and_stops() {
    let bench = Bench::new(&[("md0", 32 * MIB)]);
    let told = bench.play(&[
        "label create -v test /dev/md0",
        "label status /dev/md0",
        "label stop test",
        "label status -s /dev/md0",
    ]);
    assert!(told.starts_with("Done.\n") && told.contains("   label/test     N/A  md0\n"), "{told}");
    assert!(!told.ends_with("label/test     N/A  md0\n"), "{told}");
}

#[test]
fn nop_preserves_sizes_and_has_those_it_is_given() {
    let bench = Bench::with_source(&[("md0", MIB)], MIB as usize);
    let told = bench.play(&["nop create /dev/md0", "diskinfo md0 md0.nop"]);
    assert_eq!(told, "md0\t512\t1048576\t2048\t0\t0\nmd0.nop\t512\t1048576\t2048\t0\t0\n");
    let copied = bench.copied(&["nop create md0", "copy src md0.nop"], "md0.nop");
    assert!(copied == bench.read("src"));
    for size in [65536, 524_288, 1_048_576] {
        let create = format!("nop create -s {size} md0");
        let told = bench.play(&[&create, "diskinfo md0.nop", "nop destroy md0.nop"]);
        assert_eq!(told, format!("md0.nop\t512\t{size}\t{}\t0\t0\n", size / 512));
    }
    let larger = bench.try_play(&["nop create -s 2097152 md0"]);
    assert_eq!(larger.status, 2, "{larger:?}");
    for stripe in [512_u64, 1024, 2048, 4096, 8192] {
        let mut lines = Vec::new();
        let mut expected = String::new();
        for offset in (0..stripe).step_by(512) {
            lines.push(format!("nop create -p {stripe} -P {offset} md0"));
            lines.extend(["diskinfo md0.nop".into(), "nop destroy md0.nop".into()]);
            expected += &format!("md0.nop\t512\t1048576\t2048\t{stripe}\t{offset}\n");
        }
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        assert_eq!(bench.play(&lines), expected);
    }
    let create = "nop create -z some/physical/path -Z other md0";
    assert_eq!(bench.play(&[create, "diskinfo -p other.nop"]), "some/physical/path\n");
    let blank = bench.try_play(&["nop create -z '' md0", "diskinfo -p md0.nop"]);
    assert!(blank.status == 1 && blank.stderr.contains("has no physical path"), "{blank:?}");
}

#[test]
fn part_misc_adds_to_physical_paths() {
    let bench = Bench::new(&[("md0", MIB)]);
    let none = bench.try_play(&[
        "part create -s bsd md0",
        "part add -t freebsd-ufs md0",
        "diskinfo -p md0a",
    ]);
    assert!(none.status == 1 && none.stderr.contains("md0a: has no physical path"), "{none:?}");
    // The label is in its first partition, but that is not taken as containing a table.
    let shown = bench.play(&["part show", "part list md0"]);
    assert_eq!(shown.matches("  BSD  ").count(), 1, "{shown}");
    let nested = bench.try_play(&["part create -s mbr md0a"]);
    assert!(nested.status == 2 && nested.stderr.contains("those hold no tables"), "{nested:?}");
    for (scheme, kind, behind) in
        [("bsd", "freebsd-ufs", "a"), ("gpt", "efi", "p1"), ("mbr", "freebsd", "s1")]
    {
        let bench = Bench::new(&[("md0", MIB)]);
        let create = format!("part create -s {scheme} md0.nop");
        let add = format!("part add -t {kind} md0.nop");
        let show = format!("diskinfo -p md0.nop{behind}");
        let told = bench.play(&["nop create -z some/physical/path md0", &create, &add, &show]);
        assert!(told.ends_with(&format!("\nsome/physical/path/{behind}\n")), "{told}");
    }
    let bench = Bench::new(&[("md0", MIB)]);
    let told = bench.play(&[
        "nop create -z some/physical/path md0",
        "part create -s mbr md0.nop",
        "part add -t freebsd md0.nop",
        "part create -s bsd md0.nops1",
        "part add -t freebsd-ufs md0.nops1",
        "diskinfo -p md0.nops1a",
    ]);
    assert!(told.ends_with("\nsome/physical/path/s1/a\n"), "{told}");
}

/// One disk, seen over `count` paths, `md0` and so on.
fn paths(count: usize) -> Bench {
    let mut bench = Bench::with_source(&[("disk", MIB)], 4096);
    bench.disks = (0..count).map(|number| format!("-f disk,name=md{number} ")).collect();
    bench
}

#[test]
fn multipath_failloop_ends_and_restores_few() {
    let create = ["nop create md0 md1", "multipath create n md0.nop md1.nop"];
    let fail = "nop configure -r 100 -w 100 md0.nop md1.nop";
    let bench = paths(2);
    let ran = bench.try_play(&[&create[..], &[fail, "copy src multipath/n"]].concat());
    assert!(ran.status == 1 && ran.stderr.contains("medium error"), "{ran:?}");
    // The physical path is passed through.
    let told = paths(2).play(&[
        "nop create -z some/physical/path md0 md1",
        "multipath create n md0.nop md1.nop",
        "diskinfo -p multipath/n",
    ]);
    assert_eq!(told, "some/physical/path\n");
}

#[test]
fn multipath_misc_departs_and_arrives() {
    let bench = paths(2);
    let count = |told: &str| told.matches("Name: md").count();
    let told = bench.play(&[
        "nop create -o 131072 md0 md1",
        "multipath label n md0.nop md1.nop",
        "multipath list n",
    ]);
    assert_eq!(count(&told), 2, "{told}");
    let gone = ["nop create -o 131072 md0 md1", "nop destroy -f md0.nop", "multipath list n"];
    let told = bench.play(&gone);
    assert_eq!(count(&told), 1, "{told}");
    let back = [&gone[..2], &["nop create -o 131072 md0", "multipath list n"]].concat();
    let told = bench.play(&back);
    assert!(count(&told) == 2 && told.contains("State: OPTIMAL"), "{told}");
}

/// The output of `gpart backup` is accepted by `gpart restore`, comments included, with the same
/// result.
#[test]
fn gpart_backup_and_restore_have_freebsds_columns() {
    let bench = Bench::new(&[("da0", 64 * MIB), ("da1", 64 * MIB)]);
    bench.play(&[
        "part create -s gpt da0",
        "part add -t freebsd-boot -s 512k da0",
        "part add -t freebsd-ufs -l 'my root' -a 1m -s 60m da0",
        "part add -t !0fc63daf-8483-4772-8e79-3d69d8477de5 da0",
        "part set -a bootme -i 2 da0",
        "part set -a bootonce -i 2 da0",
    ]);
    let backup = bench.play(&["part backup da0"]);
    let wide = "!0fc63daf-8483-4772-8e79-3d69d8477de5".len();
    let expected = format!(
        "GPT 128\n\
         1   {:>wide$}     40   1024  \n\
         2   {:>wide$}   2048 122880 my%20root  [bootme,bootonce] \n\
         3   {} 124928   6104  \n",
        "freebsd-boot", "freebsd-ufs", "!0fc63daf-8483-4772-8e79-3d69d8477de5"
    );
    assert_eq!(backup, expected);
    let said = format!("# of da0\n\n{backup}").replace("GPT 128", "  GPT");
    let restore = |words: &str, said: &str| {
        let mut command = flysch_tests::command::flysch();
        command.args(words.split(' ')).current_dir(bench.folder());
        command.stdin(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        let mut child = command.spawn().unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), said.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    assert_eq!(restore("gpart -f da1 restore -l da1", &said), (0, String::new()));
    assert_eq!(bench.play(&["part backup da1"]), expected);
    let (status, why) = restore("gpart -f da1 restore -F da1", "GPT 128\n1 efi here 5\n");
    assert!(status == 1 && why.contains("line 2: `here` is not a number"), "{why}");
    assert_eq!(bench.play(&["part backup da1"]), expected, "nothing was written");
    // A name that belongs to a stripe of the disk below is reported.
    let told = bench.play(&[
        "part destroy -F da1",
        "nop create -p 4096 da1",
        "part create -s mbr da1.nop",
        "part add -t freebsd -b 63 -s 1008 -a 1 da1.nop",
    ]);
    let words = "da1.nops1 added, but partition is not aligned on 4096 bytes\n";
    assert!(told.ends_with(words), "{told}");
}

/// GPT partition types given by FreeBSD's names are recognised by sfdisk.
#[test]
fn gpart_types_are_those_that_sfdisk_lists() {
    if flysch_tests::command::lacks("sfdisk") {
        return;
    }
    let bench = Bench::new(&[("da0", 64 * MIB)]);
    let listed = std::process::Command::new("sfdisk").args(["--label", "gpt", "-T"]).output();
    let listed = String::from_utf8(listed.unwrap().stdout).unwrap().to_lowercase();
    for (name, words) in [
        ("efi", "efi system"),
        ("bios-boot", "bios boot"),
        ("ms-reserved", "microsoft reserved"),
        ("ms-ldm-metadata", "microsoft ldm metadata"),
        ("ms-recovery", "windows recovery environment"),
        ("linux-lvm", "linux lvm"),
        ("linux-raid", "linux raid"),
        ("freebsd-zfs", "freebsd zfs"),
        ("netbsd-ffs", "netbsd ffs"),
        ("openbsd-data", "openbsd data"),
        ("apple-hfs", "apple hfs/hfs+"),
        ("apple-apfs", "apple apfs"),
        ("apple-core-storage", "apple core storage"),
        ("solaris-root", "solaris root"),
        ("solaris-altsec", "solaris alternate sector"),
        ("chromeos-root", "chromeos root fs"),
        ("vmware-vmfs", "vmware vmfs"),
    ] {
        let add = format!("part add -t {name} da0");
        let told =
            bench.play(&["part create -s gpt da0", &add, "part show -r", "part destroy -F da0"]);
        let row = told.lines().find(|line| line.trim_start().starts_with("40 ")).unwrap();
        let guid = row.split_whitespace().nth(3).unwrap();
        let line = listed.lines().find(|line| line.starts_with(guid));
        assert!(line.is_some_and(|line| line.contains(words)), "{name} {guid}: {line:?}");
    }
}
