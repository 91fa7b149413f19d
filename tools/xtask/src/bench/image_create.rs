//! `cargo xtask bench --only image-create`: how long it takes to make images, compared with
//! mkfs.ubifs, mkfs.jffs2 and ubinize, on tmpfs, alternately.
//!
//! `FLYSCH_BENCH_RUNS` (5) is the number of runs of each, `FLYSCH_BENCH_TREES` (BT) selects the
//! trees.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::raw_flash::{Folder, build_flysch, folder, median, time};
use super::trees::Tree;
use crate::shell;
use crate::workspace::Workspace;

/// Page, LEB and maximum number of LEBs of the UBIFS volume; erase block of the JFFS2 image.
const UBIFS: [&str; 6] = ["-m", "2048", "-e", "126976", "-c", "1000"];
const JFFS2: [&str; 4] = ["-e", "131072", "-l", "-n"];
const UBI: [&str; 6] = ["-m", "2048", "-p", "131072", "-Q", "12345"];

/// An image to make, with our program and the other.
struct Task {
    what: String,
    ours: Command,
    theirs: Command,
}

/// Measures everything; returns Markdown.
pub(super) fn measure(workspace: &Workspace, build: &[&str]) -> Result<String, String> {
    for program in ["mkfs.ubifs", "ubinize", "mkfs.jffs2"] {
        if shell::find(program).is_none() {
            return Ok(format!("skipped: {program} is missing (apt-get install mtd-utils)"));
        }
    }
    let flysch = build_flysch(workspace, build)?;
    let folder = Folder::new(folder()?);
    let root = folder.path();
    let runs = std::env::var("FLYSCH_BENCH_RUNS").ok().and_then(|text| text.parse().ok());
    let wanted = std::env::var("FLYSCH_BENCH_TREES").unwrap_or("BT".into());
    let mut text = String::from(
        "| image | s | CPU s | MB | peer s | CPU s | MB | ratio | CPU |\n\
         |---|--:|--:|--:|--:|--:|--:|--:|--:|\n",
    );
    for tree in Tree::ALL.into_iter().filter(|tree| wanted.contains(tree.name())) {
        let source = root.join(tree.name());
        tree.make(&source).map_err(|e| format!("{}: {e}", source.display()))?;
        for task in tasks(&flysch, root, tree)? {
            row(&task, root, runs.unwrap_or(5).max(1), &mut text)?;
        }
    }
    Ok(text)
}

fn tasks(flysch: &Path, root: &Path, tree: Tree) -> Result<Vec<Task>, String> {
    let source = root.join(tree.name());
    let create = |format: &str| {
        let mut command = Command::new(flysch);
        command.args(["image", "create", format]);
        command
    };
    let mut tasks = Vec::new();
    for compressor in ["none", "lzo", "zlib", "zstd"] {
        let complete = |mut command: Command, to: &str| {
            command.args(UBIFS).args(["-x", compressor, "-r"]).arg(&source);
            command.arg("-o").arg(root.join(to));
            command
        };
        tasks.push(Task {
            what: format!("{} UBIFS {compressor}", tree.name()),
            ours: complete(create("ubifs"), "ours"),
            theirs: complete(Command::new("mkfs.ubifs"), "theirs"),
        });
    }
    let only_lzo = ["-x", "zlib", "-x", "rtime", "-X", "lzo"];
    for (compressor, arguments) in
        [("none", &["-m", "none"][..]), ("zlib", &[]), ("lzo", &only_lzo)]
    {
        let complete = |mut command: Command, to: &str| {
            command.args(JFFS2).args(arguments).arg("-r").arg(&source);
            command.arg("-o").arg(root.join(to));
            command
        };
        tasks.push(Task {
            what: format!("{} JFFS2 {compressor}", tree.name()),
            ours: complete(create("jffs2"), "ours"),
            theirs: complete(Command::new("mkfs.jffs2"), "theirs"),
        });
    }
    let (ini, volume) = (root.join("ini"), root.join("volume"));
    let section = format!(
        "[v]\nmode=ubi\nimage={}\nvol_id=0\nvol_type=dynamic\nvol_name=v\n",
        volume.display()
    );
    std::fs::write(&ini, section).map_err(|e| format!("{}: {e}", ini.display()))?;
    let mut make_volume = Command::new("mkfs.ubifs");
    make_volume.args(UBIFS).args(["-x", "none", "-r"]).arg(&source).arg("-o").arg(&volume);
    shell::output(&mut make_volume)?;
    let complete = |mut command: Command, to: &str| {
        command.args(UBI).arg("-o").arg(root.join(to)).arg(&ini);
        command
    };
    tasks.push(Task {
        what: format!("{} UBI", tree.name()),
        ours: complete(create("ubi"), "ours"),
        theirs: complete(Command::new("ubinize"), "theirs"),
    });
    Ok(tasks)
}

/// One row: our program and the other alternately.
fn row(task: &Task, root: &Path, runs: usize, text: &mut String) -> Result<(), String> {
    let (mut our_times, mut their_times) = (vec![], vec![]);
    for _ in 0..runs {
        for name in ["ours", "theirs"] {
            let _ = std::fs::remove_file(root.join(name));
        }
        our_times.push(time(&task.ours)?);
        their_times.push(time(&task.theirs)?);
    }
    let megabytes = |path: PathBuf| std::fs::metadata(path).map_or(0.0, |it| it.len() as f64 / 1e6);
    let (ours, theirs) = (median(our_times), median(their_times));
    let _ = writeln!(
        text,
        "| {} | {:.3} | {:.3} | {:.1} | {:.3} | {:.3} | {:.1} | {:.1} | {:.1} |",
        task.what,
        ours.clock,
        ours.processor,
        megabytes(root.join("ours")),
        theirs.clock,
        theirs.processor,
        megabytes(root.join("theirs")),
        theirs.clock / ours.clock,
        theirs.processor / ours.processor
    );
    Ok(())
}
