//! A graph as a folder: other programs on its providers.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use flysch_random::SplitMix64;
use flysch_tests::command::{flysch, lacks, run_in};
use rustix::process::{Pid, Signal, kill_process};

const RIG: &str = "\
[[controller]]
name = \"sata\"
target = \"ahci,profile=sata-ssd\"
disks = [\"ada0\", \"ada1\"]
[[disk]]
name = \"ada0\"
image = \"a.img\"
size = \"64M\"
[[disk]]
name = \"ada1\"
image = \"b.img\"
size = \"64M\"
[[geom]]
name = \"mirror/gm0\"
create = \"mirror label gm0 ada0 ada1\"
";

/// Whether FUSE works here; prints a message if not.
fn has_fuse() -> bool {
    let found = Path::new("/dev/fuse").exists();
    if !found {
        println!("skipped: there is no /dev/fuse");
    }
    found
}

/// A mounted graph. It is unmounted on drop.
struct Mount {
    child: Child,
    folder: PathBuf,
    at: PathBuf,
}

impl Mount {
    fn start(folder: &Path, words: &str) -> Self {
        let at = folder.join("mnt");
        let _ = fs::create_dir(&at);
        let mut command = flysch();
        command.arg("geom").args(words.split_whitespace()).current_dir(folder);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("mounted on "), "{line}");
        Self { child, folder: folder.to_path_buf(), at }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.at.join(name)
    }

    /// Runs a verb on the running graph.
    fn geom(&self, words: &str) -> String {
        let ran = run_in(&format!("geom --socket mnt {words}"), &self.folder);
        assert_eq!(ran.status, 0, "{words}: {}", ran.stderr);
        ran.stdout
    }

    /// Runs another program, which must succeed.
    fn other(&self, program: &str, arguments: &[&str]) -> String {
        let output = Command::new(program).args(arguments).current_dir(&self.at).output().unwrap();
        let said =
            [output.stdout, output.stderr].map(|it| String::from_utf8_lossy(&it).into_owned());
        assert!(output.status.success(), "{program}: {}", said.concat());
        said.concat()
    }

    fn signal(&mut self, signal: Signal) -> Option<i32> {
        kill_process(Pid::from_raw(self.child.id() as i32).unwrap(), signal).unwrap();
        self.child.wait().unwrap().code()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let _ = kill_process(Pid::from_raw(self.child.id() as i32).unwrap(), Signal::TERM);
            let _ = self.child.wait();
        }
    }
}

fn is_mounted(at: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    mounts.lines().any(|line| line.split(' ').nth(1) == at.to_str())
}

#[test]
fn tables_and_file_systems_of_others_on_a_mirror() {
    if !has_fuse() || ["sgdisk", "mkfs.ext4", "e2fsck"].into_iter().any(lacks) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("rig.toml"), RIG).unwrap();
    let mut mount = Mount::start(folder, "mount rig.toml mnt");
    let size = fs::metadata(mount.file("mirror/gm0")).unwrap().len();
    assert_eq!(size, (64 << 20) - 512);
    // Partitions appear when sgdisk closes the disk.
    mount.other("sgdisk", &["-n", "1:0:+20M", "-n", "2:0:0", "-c", "2:data", "mirror/gm0"]);
    assert_eq!(fs::metadata(mount.file("mirror/gm0p1")).unwrap().len(), 20 << 20);
    assert!(mount.geom("part show").contains("linux-data"));
    assert!(mount.other("sgdisk", &["-v", "mirror/gm0"]).contains("No problems found"));
    let names: Vec<_> =
        fs::read_dir(mount.file("gpt")).unwrap().map(|it| it.unwrap().file_name()).collect();
    assert_eq!(names, ["data"]);
    mount.other("mkfs.ext4", &["-q", "-F", "-L", "files", "mirror/gm0p2"]);
    mount.other("e2fsck", &["-f", "-n", "gpt/data"]);
    assert!(mount.file("ext2fs/files").exists());
    // A half belongs to the mirror: nobody else may write it, but it can be read.
    let error = File::options().write(true).open(mount.file("ada0")).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
    assert!(File::open(mount.file("ada0")).is_ok());
    let error = fs::write(mount.file("new"), b"").unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
    // While it is open for writing, geoms that only tasted it are gone, and a verb that needs
    // exclusive access is refused.
    let open = File::options().read(true).write(true).open(mount.file("mirror/gm0p1")).unwrap();
    let ran = run_in("geom --socket mnt part delete -i 1 mirror/gm0", folder);
    assert!(ran.status == 1 && ran.stderr.lines().count() == 1, "{}", ran.stderr);
    open.write_all_at(b"not a whole sector", 1000).unwrap();
    open.sync_all().unwrap();
    let mut back = [0; 20];
    File::open(mount.file("mirror/gm0"))
        .unwrap()
        .read_exact_at(&mut back, (1 << 20) + 999)
        .unwrap();
    assert_eq!(&back, b"\0not a whole sector\0");
    open.set_len(5).unwrap_err();
    drop(open);
    // A half is removed and inserted while it is mounted.
    mount.geom("mirror deactivate gm0 ada1");
    fs::write(mount.file("mirror/gm0p1"), [7; 4096]).unwrap();
    assert!(mount.geom("mirror status").contains("DEGRADED"));
    mount.geom("mirror activate gm0 ada1");
    assert!(mount.geom("mirror status").contains("COMPLETE"));
    mount.other("e2fsck", &["-f", "-n", "mirror/gm0p2"]);
    assert_eq!(mount.signal(Signal::TERM), Some(0));
    assert!(!is_mounted(&mount.at));
    // Each half has all the data.
    for half in ["a.img", "b.img"] {
        let status = run_in(&format!("geom -f {half} part show"), folder);
        assert!(status.stdout.contains("linux-data"), "{half}: {}", status.stderr);
        let copied = run_in(&format!("geom -f {half} copy ext2fs/files fs.img"), folder);
        assert_eq!(copied.status, 0, "{}", copied.stderr);
        let mut check = Command::new("e2fsck");
        let checked = check.args(["-f", "-n", "fs.img"]).current_dir(folder).output().unwrap();
        assert!(checked.status.success());
    }
}

/// dd, mkfs.vfat, fsck.vfat and qemu-img on the partitions of a mirror, while verbs over the socket
/// deactivate and activate its halves; after that a verb changes the table.
#[test]
fn programs_of_others_work_while_commands_change_the_graph() {
    let others = ["mkfs.vfat", "fsck.vfat", "qemu-img", "dd"];
    if !has_fuse() || others.into_iter().any(lacks) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("rig.toml"), RIG).unwrap();
    let data: Vec<u8> =
        (0..8_u32 << 20).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    fs::write(folder.join("data"), &data).unwrap();
    let mut mount = Mount::start(folder, "mount rig.toml mnt");
    mount.geom("part create -s gpt mirror/gm0");
    for size in ["8m", "16m", "8m"] {
        mount.geom(&format!("part add -t linux-data -s {size} mirror/gm0"));
    }
    let parts = [1, 2, 3].map(|number| format!("mirror/gm0p{number}"));
    std::thread::scope(|scope| {
        let dd = scope.spawn(|| {
            let to = format!("of={}", parts[0]);
            let words = ["if=../data", &to, "bs=64k", "conv=notrunc,fsync"];
            (0..4).for_each(|_| drop(mount.other("dd", &words)));
        });
        let vfat = scope.spawn(|| {
            mount.other("mkfs.vfat", &["-n", "FATTY", &parts[1]]);
            mount.other("fsck.vfat", &["-n", &parts[1]]);
        });
        let convert = scope.spawn(|| {
            let from = ["convert", "-n", "-f", "raw", "-O", "raw", "../data", &parts[2]];
            mount.other("qemu-img", &from);
            mount.other("qemu-img", &["compare", "-f", "raw", "-F", "raw", "../data", &parts[2]]);
        });
        let mut turns = 0;
        while turns < 3 || !(dd.is_finished() && vfat.is_finished() && convert.is_finished()) {
            let half = ["ada0", "ada1"][turns % 2];
            mount.geom(&format!("mirror deactivate gm0 {half}"));
            mount.geom(&format!("mirror activate gm0 {half}"));
            assert!(mount.geom("mirror status").contains("COMPLETE"), "turn {turns}");
            turns += 1;
        }
        dd.join().and(vfat.join()).and(convert.join()).unwrap();
    });
    mount.geom("part add -t freebsd-ufs -l last mirror/gm0");
    assert!(mount.file("gpt/last").exists() && mount.file("msdosfs/FATTY").exists());
    for part in [&parts[0], &parts[2]] {
        assert!(fs::read(mount.file(part)).unwrap() == data, "{part}");
    }
    assert_eq!(mount.signal(Signal::TERM), Some(0));
    // Each half has all the data.
    let halves = ["a.img", "b.img"].map(|half| fs::read(folder.join(half)).unwrap());
    assert!(halves[0][..halves[0].len() - 512] == halves[1][..halves[1].len() - 512]);
}

#[test]
fn a_provider_is_a_file_whatever_is_done_to_it() {
    if !has_fuse() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for name in ["a.img", "b.img", "c.img"] {
        File::create(folder.join(name)).unwrap().set_len(2 << 20).unwrap();
    }
    let made = run_in("geom -f a.img -f b.img -f c.img stripe label -s 4k st a b c", folder);
    assert_eq!(made.status, 0, "{}", made.stderr);
    let mut mount = Mount::start(folder, "-f a.img -f b.img -f c.img mount mnt");
    let size = fs::metadata(mount.file("stripe/st")).unwrap().len();
    let plain = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(folder.join("plain"))
        .unwrap();
    plain.set_len(size).unwrap();
    let mut numbers = SplitMix64::new(7);
    let open = || File::options().read(true).write(true).open(mount.file("stripe/st")).unwrap();
    let mut disk = open();
    for step in 0..3000_u64 {
        let offset = numbers.below(size);
        let length =
            (1 + numbers.below(if step % 5 == 0 { 200_000 } else { 3000 })).min(size - offset);
        let mut bytes = vec![step as u8; length as usize];
        match numbers.below(8) {
            0..4 => {
                for file in [&disk, &plain] {
                    file.write_all_at(&bytes, offset).unwrap();
                }
            }
            4..7 => {
                let mut wanted = bytes.clone();
                plain.read_exact_at(&mut wanted, offset).unwrap();
                disk.read_exact_at(&mut bytes, offset).unwrap();
                assert!(bytes == wanted, "step {step}: {length} bytes at {offset}");
            }
            _ if step % 3 == 0 => disk = open(),
            _ => disk.sync_data().unwrap(),
        }
    }
    // Reads stop at the end.
    assert_eq!(disk.read_at(&mut [0; 10], size - 4).unwrap(), 4);
    assert_eq!(disk.write_at(&[1; 10], size - 4).unwrap(), 4);
    plain.write_all_at(&[1; 4], size - 4).unwrap();
    assert_eq!(disk.write_at(&[1], size).unwrap_err().kind(), std::io::ErrorKind::StorageFull);
    // Still open when it ends: what was written is stored nevertheless.
    assert_eq!(mount.signal(Signal::INT), Some(0));
    drop(disk);
    let copied = run_in("geom -f c.img -f a.img -f b.img copy stripe/st back", folder);
    assert_eq!(copied.status, 0, "{}", copied.stderr);
    assert!(fs::read(folder.join("back")).unwrap() == fs::read(folder.join("plain")).unwrap());
    assert!(!is_mounted(&mount.at));
}

#[test]
fn what_a_mount_does_is_shown_by_gstat() {
    if !has_fuse() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("rig.toml"), RIG).unwrap();
    let mount = Mount::start(folder, "--socket sock mount rig.toml mnt");
    let reader = std::thread::scope(|scope| {
        let shown = scope.spawn(|| run_in("gstat -b -I 700ms mnt", folder));
        let file = File::open(mount.file("mirror/gm0")).unwrap();
        let mut bytes = vec![0; 65536];
        while !shown.is_finished() {
            file.read_exact_at(&mut bytes, 0).unwrap();
        }
        shown.join().unwrap()
    });
    assert_eq!(reader.status, 0, "{}", reader.stderr);
    let lines: Vec<&str> = reader.stdout.lines().collect();
    assert!(lines[0].starts_with("dT: ") && lines[0].ends_with("w: 0.700s"), "{lines:?}");
    let heading = " L(q)  ops/s    r/s   kBps   ms/r    w/s   kBps   ms/w   %busy Name";
    assert_eq!(lines[1], heading);
    let line = lines.iter().find(|line| line.ends_with("  mirror/gm0")).expect(&reader.stdout);
    let columns: Vec<&str> = line.split_whitespace().collect();
    assert!(columns[2].parse::<u64>().unwrap() > 0 && columns[5] == "0", "{line}");
    let json = run_in("--json gstat -p -f ^ada -I 10ms sock", folder).stdout;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["counters"].as_array().unwrap().len(), 2, "{json}");
    let csv = run_in("gstat -bC -I 10ms -f gm0 sock", folder).stdout;
    assert!(csv.starts_with("timestamp,name,q-depth,total_ops/s,read/s"), "{csv}");
    drop(mount);
    assert!(!folder.join("sock").exists());
}

/// While a half is rebuilt, everybody else is served and can see the progress.
#[test]
fn a_rebuild_holds_up_nobody() {
    if !has_fuse() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for name in ["a.img", "b.img"] {
        File::create(folder.join(name)).unwrap().set_len(24 << 20).unwrap();
    }
    let label = run_in("geom -f a.img -f b.img mirror label gm a b", folder);
    assert_eq!(label.status, 0, "{}", label.stderr);
    let mut mount = Mount::start(folder, "-f a.img -f b.img mount mnt");
    let file = File::options().read(true).write(true).open(mount.file("mirror/gm")).unwrap();
    file.write_all_at(&[1; 1 << 20], 0).unwrap();
    std::thread::scope(|scope| {
        // A MiB per second, so that it cannot be done before it is observed.
        let words = "geom --socket mnt mirror rebuild --rate 1m gm b";
        let rebuild = scope.spawn(move || run_in(words, folder));
        let percent = || {
            let list = mount.geom("mirror list gm");
            let line = list.lines().find_map(|line| line.trim().strip_prefix("Synchronized: "));
            line.map(|percent| percent.trim_end_matches('%').parse::<u32>().unwrap())
        };
        while percent().is_none_or(|percent| percent == 0) {
            assert!(!rebuild.is_finished(), "{:?}", rebuild.join());
        }
        // On both sides of its position.
        for at in [0_u64, 23 << 20] {
            file.write_all_at(&[at as u8 + 7; 4096], at).unwrap();
            file.sync_all().unwrap();
            let mut bytes = [0; 4096];
            file.read_exact_at(&mut bytes, at).unwrap();
            assert!(bytes == [at as u8 + 7; 4096]);
        }
        assert!(percent().is_some_and(|percent| percent < 100) && !rebuild.is_finished());
        // A second one without a limit does all of it; both get the result.
        assert_eq!(mount.geom("mirror rebuild gm"), "gm: 1 component rebuilt\n");
        let first = rebuild.join().unwrap();
        assert_eq!((first.status, &first.stdout[..]), (0, "gm: 0 components rebuilt\n"));
    });
    assert!(mount.geom("mirror status").contains("COMPLETE"));
    drop(file);
    assert_eq!(mount.signal(Signal::TERM), Some(0));
    let [a, b] = ["a.img", "b.img"].map(|name| fs::read(folder.join(name)).unwrap());
    assert!(a[..24 << 20][..(24 << 20) - 512] == b[..(24 << 20) - 512], "the halves differ");
}

/// A mount that ends interrupts a rebuild, and notifies the waiting client.
#[test]
fn a_rebuild_is_left_where_it_is() {
    if !has_fuse() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for name in ["a.img", "b.img"] {
        File::create(folder.join(name)).unwrap().set_len(8 << 20).unwrap();
    }
    let label = run_in("geom -f a.img -f b.img mirror label gm a b", folder);
    assert_eq!(label.status, 0, "{}", label.stderr);
    let mut mount = Mount::start(folder, "-f a.img -f b.img mount mnt");
    std::thread::scope(|scope| {
        let words = "geom --socket mnt mirror rebuild --rate 64k gm b";
        let rebuild = scope.spawn(move || run_in(words, folder));
        while !mount.geom("mirror list gm").contains("SYNCHRONIZING") {}
        assert_eq!(mount.signal(Signal::TERM), Some(0));
        let said = rebuild.join().unwrap();
        assert_eq!(said.status, 1);
        assert!(said.stderr.contains("the mount has ended; `rebuild` goes on"), "{}", said.stderr);
    });
    let again = run_in("geom -f a.img -f b.img mirror rebuild gm", folder);
    assert_eq!(again.stdout, "gm: 1 component rebuilt\n", "{}", again.stderr);
}

#[test]
fn disks_are_pulled_and_put_back_under_open_files() {
    if !has_fuse() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    // The second disk has its own controller, which a fault removes at some request.
    let rig = RIG.replace(
        "disks = [\"ada0\", \"ada1\"]",
        "disks = [\"ada0\"]\n[[controller]]\nname = \"other\"\ntarget = \"ahci\"\n\
         faults = \"unplug:n200\"\ndisks = [\"ada1\"]",
    );
    fs::write(folder.join("rig.toml"), rig).unwrap();
    let mut mount = Mount::start(folder, "mount rig.toml mnt");
    let open = |name| File::options().read(true).write(true).open(mount.file(name)).unwrap();
    let file = open("mirror/gm0");
    // Automatically: the mirror continues, and the disk is no longer a file.
    for at in 0..400 {
        file.write_all_at(&[at as u8; 4096], at * 4096).unwrap();
    }
    file.sync_all().unwrap();
    assert!(!mount.file("ada1").exists());
    assert!(mount.geom("mirror status").contains("DEGRADED"));
    assert!(mount.geom("log").contains("DISK: ada1: lost"));
    assert_eq!(mount.geom("disk attach other"), "ada1: found\n");
    assert_eq!(mount.geom("mirror rebuild gm0"), "gm0: 1 component rebuilt\n");
    // Manually, with the file open: the data read now was rebuilt.
    assert_eq!(mount.geom("disk detach ada0"), "ada0: lost\n");
    assert!(!mount.file("ada0").exists());
    for at in 0..400 {
        let mut bytes = [0; 4096];
        file.read_exact_at(&mut bytes, at * 4096).unwrap();
        assert!(bytes == [at as u8; 4096], "{at}");
    }
    // The last one is removed: errors, and nothing worse.
    assert_eq!(mount.geom("disk detach ada1"), "ada1: lost\n");
    let error = file.write_all_at(&[1; 4096], 0).unwrap_err();
    assert!([Some(5), Some(6)].contains(&error.raw_os_error()), "{error}");
    assert!(!mount.file("mirror/gm0").exists());
    drop(file);
    assert_eq!(mount.geom("disk rescan"), "");
    assert_eq!(mount.geom("disk attach ada1"), "ada1: found\n");
    assert!(mount.file("mirror/gm0").exists());
    assert_eq!(mount.signal(Signal::TERM), Some(0));
}
