//! Six jobs for comparing the work that file systems cause for a chip: the same calls, in the same
//! order, whichever implementation has mounted the folder.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::noise::Noise;

const BLOCK: usize = 4096;

/// One job: its preparation, and what is measured.
struct Job {
    name: &'static str,
    before: fn(&Path) -> io::Result<()>,
    run: fn(&Path) -> io::Result<()>,
}

const JOBS: [Job; 6] = [
    Job { name: "random", before: nothing, run: |root| stream(root, false) },
    Job { name: "zeros", before: nothing, run: |root| stream(root, true) },
    Job { name: "files", before: nothing, run: |root| small_files(root, 10_000) },
    Job { name: "appends", before: nothing, run: appends },
    Job { name: "overwrites", before: fill, run: overwrites },
    Job { name: "names", before: |root| small_files(root, 3000), run: names },
];

/// Carries out `phase` (`before` or `run`) of the job called `name` in `root`.
pub(crate) fn run(name: &str, phase: &str, root: &Path) -> io::Result<()> {
    let job = JOBS.iter().find(|job| job.name == name);
    let job = job.ok_or_else(|| io::Error::other("there is no such job"))?;
    match phase {
        "before" => (job.before)(root),
        _ => (job.run)(root),
    }
}

fn nothing(_: &Path) -> io::Result<()> {
    Ok(())
}

fn random(noise: &mut Noise, len: usize) -> Vec<u8> {
    (0..len).map(|_| noise.next() as u8).collect()
}

/// 10 MiB in writes of 64 KiB, synced at the end.
fn stream(root: &Path, zeros: bool) -> io::Result<()> {
    let mut noise = Noise::new(1);
    let mut file = File::create(root.join("stream"))?;
    for _ in 0..160 {
        let content = if zeros { vec![0; 1 << 16] } else { random(&mut noise, 1 << 16) };
        file.write_all(&content)?;
    }
    file.sync_all()
}

/// Files of 100 to 1123 bytes, half of them random, in folders of a hundred.
fn small_files(root: &Path, count: u64) -> io::Result<()> {
    let mut noise = Noise::new(2);
    for number in 0..count {
        let path = small(root, number);
        if number % 100 == 0 {
            fs::create_dir_all(path.parent().unwrap_or(root))?;
        }
        let len = 100 + noise.below(1024) as usize;
        let content = if noise.chance(2) { random(&mut noise, len) } else { vec![b'a'; len] };
        fs::write(path, content)?;
    }
    Ok(())
}

fn small(root: &Path, number: u64) -> PathBuf {
    root.join(format!("folder-{}", number / 100)).join(format!("file-{number}"))
}

/// 16 bytes at a time, as a logger writes; synced after every thousand.
fn appends(root: &Path) -> io::Result<()> {
    let mut file = File::create(root.join("log"))?;
    for number in 0..20_000 {
        file.write_all(format!("{number:>7} sample\n\n").as_bytes())?;
        if number % 1000 == 999 {
            file.sync_all()?;
        }
    }
    Ok(())
}

/// A file of 8 MiB, and others until nine tenths of the file system are used.
fn fill(root: &Path) -> io::Result<()> {
    let mut noise = Noise::new(3);
    fs::write(root.join("base"), random(&mut noise, 8 << 20))?;
    for number in 0.. {
        File::open(root.join("base"))?.sync_all()?;
        let room = rustix::fs::statvfs(root)?;
        if room.f_bavail * 10 <= room.f_blocks {
            break;
        }
        let path = root.join(format!("filler-{number}"));
        fs::write(&path, random(&mut noise, 256 << 10))?;
        File::open(path)?.sync_all()?;
    }
    Ok(())
}

/// 2000 blocks at random places of a file, synced after every sixteen, as a database does.
fn overwrites(root: &Path) -> io::Result<()> {
    let mut noise = Noise::new(4);
    let file = File::options().write(true).open(root.join("base"))?;
    for number in 0..2000 {
        let at = noise.below((8 << 20) / BLOCK as u64) * BLOCK as u64;
        file.write_all_at(&random(&mut noise, BLOCK), at)?;
        if number % 16 == 15 {
            file.sync_data()?;
        }
    }
    Ok(())
}

/// Each of 3000 files is renamed, half of them over another file; a third is removed.
fn names(root: &Path) -> io::Result<()> {
    for number in 0..3000 {
        let from = small(root, number);
        match number % 3 {
            0 => fs::rename(&from, from.with_extension("moved"))?,
            1 => fs::rename(&from, small(root, number + 1))?,
            _ => fs::remove_file(&from)?,
        }
    }
    Ok(())
}
