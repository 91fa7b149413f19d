//! `cargo xtask bench --only mount`: writes tree C through a writable mount and reads it back,
//! compared with the directory that the image is in.
//!
//! `FLYSCH_BENCH_RUNS` (5) is the number of runs; the median counts.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::raw_flash::{Folder, build_flysch, folder};
use super::trees::Tree;
use crate::shell;
use crate::workspace::Workspace;

/// Bytes per read or write call.
const PIECE: usize = 1 << 20;
/// Bytes of the flash: tree C is 80 MiB.
const FLASH: &str = "128M";
const FLASH_SIZE: usize = 128 << 20;
/// How long a mount may take to appear.
const PATIENCE: Duration = Duration::from_secs(10);

/// Seconds for writing, with `fsync` of every file, and for reading.
type Times = (f64, f64);

/// Measures everything; returns Markdown.
pub(super) fn measure(workspace: &Workspace, build: &[&str]) -> Result<String, String> {
    if !Path::new("/dev/fuse").exists() {
        return Ok("skipped: there is no /dev/fuse".into());
    }
    let flysch = build_flysch(workspace, build)?;
    let folder = Folder::new(folder()?);
    let root = folder.path();
    let failed = |error: io::Error| format!("{}: {error}", root.display());
    let runs = std::env::var("FLYSCH_BENCH_RUNS").ok().and_then(|text| text.parse().ok());
    let runs: usize = runs.unwrap_or(5).max(1);
    let source = root.join("C");
    Tree::Large.make(&source).map_err(failed)?;
    let mut files = vec![];
    for entry in std::fs::read_dir(&source).map_err(failed)? {
        files.push(std::fs::read(entry.map_err(failed)?.path()).map_err(failed)?);
    }
    let mut text = String::from(
        "| tree C to | write s | MiB/s | of the directory | read s | MiB/s | of the directory |\n\
         |---|--:|--:|--:|--:|--:|--:|\n",
    );
    let mut directory = None;
    for what in ["the directory", "UBIFS none", "UBIFS lzo", "UBIFS zstd", "JFFS2"] {
        let mut times = vec![];
        for _ in 0..runs {
            times.push(match directory {
                None => pass(&files, &root.join("plain"), |_| Ok(())).map_err(failed)?,
                Some(_) => on_mount(&flysch, root, what, &files)?,
            });
        }
        let best = directory.get_or_insert(middle(&times));
        row(&mut text, what, middle(&times), *best, files.iter().map(Vec::len).sum());
    }
    Ok(text)
}

fn row(text: &mut String, what: &str, times: Times, directory: Times, bytes: usize) {
    let rate = |seconds: f64| bytes as f64 / seconds / f64::from(1 << 20);
    let _ = writeln!(
        text,
        "| {what} | {:.3} | {:.0} | {:.0} % | {:.3} | {:.0} | {:.0} % |",
        times.0,
        rate(times.0),
        directory.0 / times.0 * 100.0,
        times.1,
        rate(times.1),
        directory.1 / times.1 * 100.0,
    );
}

fn middle(times: &[Times]) -> Times {
    let median = |mut all: Vec<f64>| {
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    };
    (median(times.iter().map(|it| it.0).collect()), median(times.iter().map(|it| it.1).collect()))
}

/// Writes the files, calls `between`, and reads the files.
fn pass(
    files: &[Vec<u8>],
    at: &Path,
    between: impl FnOnce(&Path) -> io::Result<()>,
) -> io::Result<Times> {
    let begun = Instant::now();
    std::fs::create_dir_all(at)?;
    for (number, content) in files.iter().enumerate() {
        let mut file = File::create(at.join(number.to_string()))?;
        content.chunks(PIECE).try_for_each(|piece| file.write_all(piece))?;
        file.sync_all()?;
    }
    let written = begun.elapsed().as_secs_f64();
    between(at)?;
    let mut piece = vec![0; PIECE];
    let begun = Instant::now();
    for (number, content) in files.iter().enumerate() {
        let mut file = File::open(at.join(number.to_string()))?;
        let mut len = 0;
        loop {
            match file.read(&mut piece)? {
                0 => break,
                more => len += more,
            }
        }
        if len != content.len() {
            return Err(io::Error::other("a file has another length than it was given"));
        }
    }
    Ok((written, begun.elapsed().as_secs_f64()))
}

/// The same on a new image, mounted again and so with an empty cache before reading.
fn on_mount(flysch: &Path, root: &Path, what: &str, files: &[Vec<u8>]) -> Result<Times, String> {
    let image = make_image(flysch, root, what)?;
    let at = root.join("mount");
    std::fs::create_dir_all(&at).map_err(|e| e.to_string())?;
    let mut child = mount(flysch, &image, &at)?;
    let times = pass(files, &at.join("new"), |_| {
        unmount(&at, &mut child)?;
        child = mount(flysch, &image, &at).map_err(io::Error::other)?;
        Ok(())
    });
    unmount(&at, &mut child).map_err(|e| e.to_string())?;
    times.map_err(|e| format!("{what}: {e}"))
}

fn make_image(flysch: &Path, root: &Path, what: &str) -> Result<PathBuf, String> {
    let image = root.join("image");
    let failed = |error: io::Error| format!("{}: {error}", image.display());
    let Some(compressor) = what.strip_prefix("UBIFS ") else {
        // An erased flash is an empty JFFS2 file system.
        std::fs::write(&image, vec![0xFF; FLASH_SIZE]).map_err(failed)?;
        return Ok(image);
    };
    let (empty, volume, ini) = (root.join("empty"), root.join("volume"), root.join("ini"));
    std::fs::create_dir_all(&empty).map_err(failed)?;
    let mut ubifs = Command::new(flysch);
    ubifs.args(["image", "create", "ubifs", "-m", "2048", "-e", "126976", "-c", "1000", "-x"]);
    shell::output(ubifs.arg(compressor).arg("-r").arg(&empty).arg("-o").arg(&volume))?;
    let section = format!(
        "[v]\nmode=ubi\nimage={}\nvol_id=0\nvol_type=dynamic\nvol_name=v\nvol_flags=autoresize\n",
        volume.display()
    );
    std::fs::write(&ini, section).map_err(failed)?;
    let mut ubi = Command::new(flysch);
    ubi.args(["image", "create", "ubi", "-m", "2048", "-p", "131072"]);
    shell::output(ubi.arg("-o").arg(&image).arg(&ini))?;
    Ok(image)
}

fn is_mounted(at: &Path) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    mounts.lines().any(|line| line.split(' ').nth(1) == at.to_str())
}

fn mount(flysch: &Path, image: &Path, at: &Path) -> Result<Child, String> {
    let mut command = Command::new(flysch);
    command.args(["image", "mount", "--rw", "--flash-size", FLASH]).arg(image).arg(at);
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
    let mut child = child.map_err(|e| format!("{}: {e}", flysch.display()))?;
    let begun = Instant::now();
    while !is_mounted(at) {
        let ended = child.try_wait().map_err(|e| e.to_string())?;
        if ended.is_some() || begun.elapsed() > PATIENCE {
            let _ = child.kill();
            return Err(format!("{} is not mounted", image.display()));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(child)
}

fn unmount(at: &Path, child: &mut Child) -> io::Result<()> {
    let mut command = Command::new("umount");
    shell::output(command.arg(at)).map_err(io::Error::other)?;
    child.wait().map(drop)
}
