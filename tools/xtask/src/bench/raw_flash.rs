//! `cargo xtask bench --only raw-flash`: extracting, opening and mounting images of raw flash,
//! compared with the programs people use today.
//!
//! Trees are made from fixed seeds and images by mtd-utils, on tmpfs. Our program and the other run
//! alternately, so that other work on the machine affects both; processor time, which it does not
//! affect, is given beside the elapsed time. `FLYSCH_BENCH_RUNS` (5) is the number of runs of each,
//! `FLYSCH_BENCH_TREES` (BTC) selects trees, `FLYSCH_BENCH_DIR` is the working folder.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::trees::Tree;
use crate::shell;
use crate::workspace::Workspace;

/// Sizes of erase block, page, sub-page and logical erase block of the images.
const ERASE: &str = "131072";
const PAGE: &str = "2048";
const SUB_PAGE: &str = "512";
const LEB: &str = "129024";
/// Longest wait for a mount.
const MOUNT_MAX: Duration = Duration::from_secs(120);

/// Programs compared with, and how to install them.
const PEERS: [(&str, &str); 4] = [
    ("ubireader_extract_files", "pip install ubi_reader==0.8.16"),
    ("ubireader_list_files", "pip install ubi_reader==0.8.16"),
    ("jefferson", "pip install jefferson==0.4.8"),
    ("target-mount", "pip install dissect.target dissect.jffs fusepy, apt-get install libfuse2"),
];

/// How to build the program that shows the minimum time of an extraction.
const FLOOR: [&str; 7] =
    ["build", "--quiet", "--profile=dist", "--package", "flysch-cost", "--example", "floor"];

/// The content and format of an image.
struct Image {
    tree: Tree,
    format: &'static str,
    compression: &'static str,
    path: PathBuf,
}

/// Elapsed seconds, and processor seconds.
#[derive(Clone, Copy)]
pub(super) struct Took {
    pub(super) clock: f64,
    pub(super) processor: f64,
}

/// The working folder; removed on drop.
pub(super) struct Folder(PathBuf);

impl Folder {
    pub(super) fn new(path: PathBuf) -> Self {
        Self(path)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed stays behind.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Measures everything; returns Markdown.
pub(super) fn measure(workspace: &Workspace, build: &[&str]) -> Result<String, String> {
    let flysch = build_flysch(workspace, build)?;
    let folder = Folder(folder()?);
    let root = &folder.0;
    let runs = std::env::var("FLYSCH_BENCH_RUNS").ok().and_then(|text| text.parse().ok());
    let floor = build_program(workspace, &FLOOR)?;
    let bench = Bench { flysch, floor, root: root.clone(), runs: runs.unwrap_or(5).max(1) };
    let mut text = String::new();
    for program in ["mkfs.ubifs", "ubinize", "mkfs.jffs2"] {
        if shell::find(program).is_none() {
            return Ok(format!("skipped: {program} is missing (apt-get install mtd-utils)"));
        }
    }
    for (program, remedy) in PEERS {
        if shell::find(program).is_none() {
            let _ = writeln!(text, "not compared: {program} is missing ({remedy})\n");
        }
    }
    let wanted = std::env::var("FLYSCH_BENCH_TREES").unwrap_or("BTC".into());
    bench.extraction(&wanted, &mut text)?;
    if wanted.contains('B') {
        bench.opening(&mut text)?;
        bench.mounts(&mut text)?;
    }
    Ok(text)
}

/// Builds the command and asks cargo where it is. `FLYSCH_COMMAND` names one built before.
pub(super) fn build_flysch(workspace: &Workspace, build: &[&str]) -> Result<PathBuf, String> {
    if let Some(command) = std::env::var_os("FLYSCH_COMMAND") {
        return Ok(command.into());
    }
    build_program(workspace, build)
}

fn build_program(workspace: &Workspace, arguments: &[&str]) -> Result<PathBuf, String> {
    let mut command = shell::cargo(&workspace.root);
    command.args(arguments).arg("--message-format=json-render-diagnostics");
    let messages = shell::output(&mut command)?;
    let mut executables = messages.lines().filter_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        message.get("executable")?.as_str().map(PathBuf::from)
    });
    executables.next_back().ok_or_else(|| "cargo built no program".into())
}

pub(super) fn folder() -> Result<PathBuf, String> {
    let tmpfs = Path::new("/dev/shm");
    let above = match std::env::var_os("FLYSCH_BENCH_DIR") {
        Some(folder) => PathBuf::from(folder),
        None if tmpfs.is_dir() => tmpfs.to_path_buf(),
        None => std::env::temp_dir(),
    };
    let folder = above.join(format!("flysch-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    Ok(folder)
}

struct Bench {
    flysch: PathBuf,
    /// Decompresses and writes the files of a tree, and nothing else.
    floor: PathBuf,
    root: PathBuf,
    runs: usize,
}

impl Bench {
    fn extraction(&self, wanted: &str, text: &mut String) -> Result<(), String> {
        text.push_str(
            "| tree | format | image MB | extract s | CPU s | peak MiB | peer s | CPU s | ratio \
             | CPU | floor s | CPU s |\n|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n",
        );
        for tree in Tree::ALL.into_iter().filter(|tree| wanted.contains(tree.name())) {
            let source = self.root.join(tree.name());
            tree.make(&source).map_err(|e| format!("{}: {e}", source.display()))?;
            for compression in ["none", "lzo", "zlib", "zstd"] {
                let image = self.ubi(tree, compression)?;
                self.extract(&image, text)?;
            }
            for compression in ["zlib", "lzo"] {
                let image = self.jffs2(tree, compression)?;
                self.extract(&image, text)?;
            }
        }
        text.push('\n');
        Ok(())
    }

    fn ubi(&self, tree: Tree, compression: &'static str) -> Result<Image, String> {
        let ubifs = self.root.join("image.ubifs");
        let mut mkfs = Command::new("mkfs.ubifs");
        mkfs.args(["-m", PAGE, "-e", LEB, "-c", "1000", "-x", compression, "-r"]);
        shell::output(mkfs.arg(self.root.join(tree.name())).arg("-o").arg(&ubifs))?;
        let ini = self.root.join("ubi.ini");
        let section = format!(
            "[v]\nmode=ubi\nimage={}\nvol_id=0\nvol_type=dynamic\nvol_name=rootfs\n\
             vol_flags=autoresize\n",
            ubifs.display()
        );
        std::fs::write(&ini, section).map_err(|e| format!("{}: {e}", ini.display()))?;
        let path = self.root.join(format!("{}-{compression}.ubi", tree.name()));
        let mut ubinize = Command::new("ubinize");
        ubinize.args(["-m", PAGE, "-p", ERASE, "-s", SUB_PAGE, "-Q", "12345", "-o"]);
        shell::output(ubinize.arg(&path).arg(&ini))?;
        std::fs::remove_file(&ubifs).map_err(|e| format!("{}: {e}", ubifs.display()))?;
        Ok(Image { tree, format: "UBIFS", compression, path })
    }

    fn jffs2(&self, tree: Tree, compression: &'static str) -> Result<Image, String> {
        let path = self.root.join(format!("{}-{compression}.jffs2", tree.name()));
        let mut mkfs = Command::new("mkfs.jffs2");
        mkfs.args(["-e", ERASE, "-l", "-n", "-p"]);
        if compression == "lzo" {
            mkfs.args(["-x", "zlib", "-x", "rtime", "-X", "lzo"]);
        }
        shell::output(mkfs.arg("-r").arg(self.root.join(tree.name())).arg("-o").arg(&path))?;
        Ok(Image { tree, format: "JFFS2", compression, path })
    }

    /// One row: our program and the other alternately.
    fn extract(&self, image: &Image, text: &mut String) -> Result<(), String> {
        let out = self.root.join("out");
        let ours = || {
            let mut command = Command::new(&self.flysch);
            command.args(["image", "extract"]).arg(&image.path).arg("-o").arg(&out);
            command
        };
        let theirs = || {
            let mut command = match image.format {
                "UBIFS" => Command::new("ubireader_extract_files"),
                _ => Command::new("jefferson"),
            };
            command.args(if image.format == "UBIFS" { ["-k", "-o"] } else { ["-f", "-d"] });
            command.arg(&out).arg(&image.path);
            command
        };
        let has_peer = shell::find(&theirs().get_program().to_string_lossy()).is_some();
        let (mut our_times, mut their_times, mut floors) = (vec![], vec![], vec![]);
        for run in 0..self.runs {
            if image.format == "UBIFS" {
                clear(&out)?;
                floors.push(self.floor(image, &out)?);
            }
            clear(&out)?;
            our_times.push(time(&ours())?);
            if run == 0 {
                let mut compare = Command::new("diff");
                compare.arg("-r").arg(self.root.join(image.tree.name())).arg(&out);
                shell::output(&mut compare)?;
            }
            if has_peer {
                clear(&out)?;
                their_times.push(time(&theirs())?);
            }
        }
        clear(&out)?;
        let peak = peak_kib(ours())? as f64 / 1024.0;
        clear(&out)?;
        let size = std::fs::metadata(&image.path).map_or(0, |data| data.len());
        let ours = median(our_times);
        let _ = write!(
            text,
            "| {} | {} {} | {:.1} | {:.3} | {:.3} | {peak:.1} |",
            image.tree.name(),
            image.format,
            image.compression,
            size as f64 / 1e6,
            ours.clock,
            ours.processor
        );
        push_peer(text, ours, &their_times);
        match floors.is_empty() {
            true => text.push_str(" | |\n"),
            false => {
                let floor = median(floors);
                let _ = writeln!(text, " {:.3} | {:.3} |", floor.clock, floor.processor);
            }
        }
        // Printed now, so that an interrupted run is not lost.
        eprintln!("{}", text.lines().next_back().unwrap_or_default());
        Ok(())
    }

    /// The time to decompress and write the same files, with nothing read or checked.
    fn floor(&self, image: &Image, out: &Path) -> Result<Took, String> {
        let mut command = Command::new(&self.floor);
        command.arg(self.root.join(image.tree.name())).arg(out).arg(image.compression);
        let said = shell::output(&mut command)?;
        let seconds: Vec<f64> =
            said.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        match seconds[..] {
            [clock, processor] => Ok(Took { clock, processor }),
            _ => Err(format!("floor: `{said}` is not two numbers")),
        }
    }

    /// From the start of the program to the names in the root directory.
    fn opening(&self, text: &mut String) -> Result<(), String> {
        text.push_str(
            "| tree B, first `ls` | s | CPU s | peer s | CPU s | ratio | CPU |\n\
             |---|--:|--:|--:|--:|--:|--:|\n",
        );
        for name in ["B-lzo.ubi", "B-zlib.jffs2"] {
            let image = self.root.join(name);
            let has_peer = name.ends_with("ubi") && shell::find("ubireader_list_files").is_some();
            let (mut our_times, mut their_times) = (vec![], vec![]);
            for _ in 0..self.runs {
                let mut ours = Command::new(&self.flysch);
                ours.args(["image", "ls", "--depth", "1"]).arg(&image).arg("/");
                our_times.push(time(&ours)?);
                if has_peer {
                    let mut theirs = Command::new("ubireader_list_files");
                    their_times.push(time(theirs.args(["-P", "/"]).arg(&image))?);
                }
            }
            let ours = median(our_times);
            let _ = write!(
                text,
                "| `flysch image ls --depth 1 {name} /` | {:.3} | {:.3} |",
                ours.clock, ours.processor
            );
            push_peer(text, ours, &their_times);
            text.push('\n');
            eprintln!("{}", text.lines().next_back().unwrap_or_default());
        }
        text.push('\n');
        Ok(())
    }

    /// Mounts the JFFS2 image of tree B: seconds until ready, then until read with tar.
    fn mounts(&self, text: &mut String) -> Result<(), String> {
        let image = self.root.join("B-zlib.jffs2");
        let at = self.root.join("mount");
        std::fs::create_dir_all(&at).map_err(|e| format!("{}: {e}", at.display()))?;
        let mut ours = Command::new(&self.flysch);
        ours.args(["image", "mount"]).arg(&image).arg(&at);
        let mut theirs = Command::new("target-mount");
        theirs.arg("-q").arg(&image).arg(&at);
        let has_peer = shell::find("target-mount").is_some();
        let mut times: [Vec<Took>; 4] = Default::default();
        for _ in 0..self.runs {
            for (program, command) in [&mut ours, &mut theirs].into_iter().enumerate() {
                if program == 1 && !has_peer {
                    continue;
                }
                let (ready, tar) = mount(command, &at)?;
                times[program].push(Took { clock: ready, processor: f64::NAN });
                times[program + 2].push(Took { clock: tar, processor: f64::NAN });
            }
        }
        text.push_str(
            "| FUSE mount, JFFS2 of tree B | s | dissect s | ratio |\n|---|--:|--:|--:|\n",
        );
        let [our_ready, their_ready, our_tar, their_tar] = times;
        let rows =
            [("until the first `ls`", our_ready, their_ready), ("`tar cf -`", our_tar, their_tar)];
        for (what, ours, theirs) in rows {
            let ours = median(ours).clock;
            let _ = match theirs.is_empty() {
                true => writeln!(text, "| {what} | {ours:.3} | | |"),
                false => {
                    let theirs = median(theirs).clock;
                    writeln!(text, "| {what} | {ours:.3} | {theirs:.3} | {:.1} |", theirs / ours)
                }
            };
            eprintln!("{}", text.lines().next_back().unwrap_or_default());
        }
        Ok(())
    }
}

fn push_peer(text: &mut String, ours: Took, theirs: &[Took]) {
    if theirs.is_empty() {
        text.push_str(" | | | |");
        return;
    }
    let theirs = median(theirs.to_vec());
    let _ = write!(
        text,
        " {:.3} | {:.3} | {:.1} | {:.1} |",
        theirs.clock,
        theirs.processor,
        theirs.clock / ours.clock,
        theirs.processor / ours.processor
    );
}

/// The medians of elapsed and processor time, each on its own.
pub(super) fn median(times: Vec<Took>) -> Took {
    let middle = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
    };
    Took {
        clock: middle(times.iter().map(|took| took.clock).collect()),
        processor: middle(times.iter().map(|took| took.processor).collect()),
    }
}

/// Runs a program under the shell's `time`, which also counts its threads.
pub(super) fn time(command: &Command) -> Result<Took, String> {
    let mut shell = Command::new("bash");
    shell.args(["-c", "TIMEFORMAT='%R %U %S'; time \"$@\" >/dev/null 2>&1", "bash"]);
    shell.arg(command.get_program()).args(command.get_args());
    let output = shell.stdin(Stdio::null()).output().map_err(|e| format!("bash: {e}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let seconds: Vec<f64> =
        said.split_whitespace().filter_map(|word| word.replace(',', ".").parse().ok()).collect();
    match (&seconds[..], output.status.success()) {
        ([clock, user, system], true) => Ok(Took { clock: *clock, processor: user + system }),
        _ => Err(format!("{:?}: {}", command.get_program(), output.status)),
    }
}

/// Peak memory of a program, kibibytes: the last value seen in /proc before it ends.
fn peak_kib(mut command: Command) -> Result<u64, String> {
    let mut child = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|e| format!("{:?}: {e}", command.get_program()))?;
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    while child.try_wait().map_err(|e| e.to_string())?.is_none() {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
        peak = peak.max(kib.unwrap_or(0));
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(peak)
}

/// Mounts with `command` at `at`; returns the seconds until the tree's root can be listed, and the
/// seconds that tar then takes.
fn mount(command: &mut Command, at: &Path) -> Result<(f64, f64), String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let begun = Instant::now();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|e| format!("{program}: {e}"))?;
    let root = loop {
        if let Some(root) = find_root(at, 3) {
            break root;
        }
        let ended = child.try_wait().map_err(|e| e.to_string())?;
        if ended.is_some() || begun.elapsed() > MOUNT_MAX {
            let _ = child.kill();
            return Err(format!("{program} does not mount"));
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    let ready = begun.elapsed().as_secs_f64();
    let mut tar = Command::new("bash");
    // Into a pipe: with /dev/null as its output, tar would not read the files.
    tar.args(["-c", "set -o pipefail; tar cf - -C \"$1\" . | cat >/dev/null", "bash"]).arg(&root);
    let begun = Instant::now();
    let packed = shell::output(&mut tar);
    let tar = begun.elapsed().as_secs_f64();
    unmount(at, &mut child)?;
    packed.map(|_| (ready, tar))
}

/// The folder in which tree B begins: some mounts have it further down.
fn find_root(at: &Path, depth: usize) -> Option<PathBuf> {
    let entries: Vec<PathBuf> =
        std::fs::read_dir(at).ok()?.flatten().map(|entry| entry.path()).collect();
    if entries.iter().any(|entry| entry.ends_with("d000")) {
        return Some(at.to_path_buf());
    }
    let below = depth.checked_sub(1)?;
    entries.iter().find_map(|entry| find_root(entry, below))
}

fn unmount(at: &Path, child: &mut Child) -> Result<(), String> {
    let unmounted = ["umount", "fusermount3"].into_iter().any(|program| {
        let mut command = Command::new(program);
        if program == "fusermount3" {
            command.arg("-u");
        }
        shell::output(command.arg(at)).is_ok()
    });
    if !unmounted {
        return Err(format!("{} cannot be unmounted", at.display()));
    }
    child.wait().map(drop).map_err(|e| e.to_string())
}

fn clear(folder: &Path) -> Result<(), String> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(format!("{}: {error}", folder.display()))
        }
        _ => Ok(()),
    }
}
