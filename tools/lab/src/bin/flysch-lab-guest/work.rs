//! Random work, like fsstress: everything that can be requested of a file system.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, RenameFlags, Uid};

use crate::noise::Noise;
use crate::rich::{set_time, set_xattr};

/// Number of directories to work in, one per seed: later work meets what earlier work left behind.
const TOPS: u64 = 4;
/// Maximum number of files that are deleted and still open.
const OPEN_MAX: usize = 4;
/// So few that most of what is requested exists.
const FOLDERS: u64 = 3;
const NAMES: u64 = 12;

/// Works below `root` until the file `stop` exists or `count` operations are done. Failures (no
/// such name, not empty, no space) are ignored: most operations do not know what exists.
pub(crate) fn run(root: &Path, seed: u64, stop: &Path, count: u64) -> io::Result<()> {
    let top = root.join(format!("work{}", seed % TOPS));
    fs::create_dir_all(&top)?;
    // Otherwise the directory could be removed while empty, and nothing could be done after that.
    File::create(top.join("here"))?;
    for number in 0..FOLDERS {
        let _ = fs::create_dir(top.join(format!("folder{number}")));
    }
    let mut worker = Worker { top, noise: Noise::new(seed), nameless: vec![] };
    let mut done = 0;
    let mut failed = 0;
    while done < count && !stop.exists() {
        failed += u64::from(worker.step().is_err());
        done += 1;
    }
    println!("{done} operations, of which {failed} had nothing to do");
    Ok(())
}

struct Worker {
    top: PathBuf,
    noise: Noise,
    /// Files without a name.
    nameless: Vec<File>,
}

impl Worker {
    fn folder(&mut self) -> PathBuf {
        let mut folder = self.top.clone();
        for _ in 0..self.noise.below(3) {
            folder.push(format!("folder{}", self.noise.below(FOLDERS)));
        }
        folder
    }

    fn path(&mut self) -> PathBuf {
        let number = self.noise.below(NAMES);
        let name = match number {
            0 => "l".repeat(254),
            1 => String::from("ü – 名前"),
            _ => format!("name{number}"),
        };
        self.folder().join(name)
    }

    /// A path, also in the form for calls that need a C string.
    fn raw_path(&mut self) -> CString {
        CString::new(self.path().as_os_str().as_bytes()).unwrap_or_default()
    }

    /// Opens some path for writing; never waits for the other end of a FIFO.
    fn open(&mut self, options: &mut OpenOptions) -> io::Result<File> {
        options.custom_flags(OFlags::NONBLOCK.bits() as i32).open(self.path())
    }

    fn bytes(&mut self) -> Vec<u8> {
        let limit = *self.noise.pick(&[100, 3000, 3000, 10_000, 10_000, 40_000, 150_000]);
        let len = self.noise.below(limit) as usize;
        self.noise.content(len)
    }

    fn step(&mut self) -> io::Result<()> {
        match self.noise.below(34) {
            0..=4 => self.replace(),
            5..=7 => self.append(),
            8..=10 => self.overwrite(),
            11..=12 => self.truncate(),
            13..=15 => fs::remove_file(self.path()),
            16..=17 => self.rename(),
            18 => fs::hard_link(self.path(), self.path()),
            19 => self.link(),
            20 => self.node(),
            21..=22 => self.make_folder(),
            23 => fs::remove_dir(self.folder()),
            24..=25 => self.xattr(),
            26 => self.mode(),
            27 => self.times(),
            28 => self.delete_open(),
            29 => self.write_open(),
            30 => self.unnamed(),
            31..=32 => self.synced(),
            _ => {
                if self.noise.chance(6) {
                    rustix::fs::sync();
                }
                Ok(())
            }
        }
    }

    fn replace(&mut self) -> io::Result<()> {
        let bytes = self.bytes();
        let mut options = OpenOptions::new();
        self.open(options.write(true).create(true).truncate(true))?.write_all(&bytes)
    }

    fn append(&mut self) -> io::Result<()> {
        let bytes = self.bytes();
        self.open(OpenOptions::new().append(true).create(true))?.write_all(&bytes)
    }

    fn overwrite(&mut self) -> io::Result<()> {
        let at = self.noise.below(60_000);
        let bytes = self.bytes();
        self.open(OpenOptions::new().write(true))?.write_all_at(&bytes, at)
    }

    fn truncate(&mut self) -> io::Result<()> {
        let limit = *self.noise.pick(&[1, 5000, 60_000, 300_000]);
        let size = self.noise.below(limit);
        self.open(OpenOptions::new().write(true))?.set_len(size)
    }

    fn rename(&mut self) -> io::Result<()> {
        let flags = match self.noise.below(6) {
            0 => RenameFlags::EXCHANGE,
            1 => RenameFlags::WHITEOUT,
            2 => RenameFlags::NOREPLACE,
            _ => RenameFlags::empty(),
        };
        let (from, to) = match self.noise.chance(5) {
            true => (self.folder(), self.folder()),
            false => (self.path(), self.path()),
        };
        Ok(rustix::fs::renameat_with(CWD, from, CWD, to, flags)?)
    }

    fn link(&mut self) -> io::Result<()> {
        let len = self.noise.below(250) as usize + 1;
        symlink("t".repeat(len), self.path())
    }

    fn node(&mut self) -> io::Result<()> {
        let kinds =
            [FileType::CharacterDevice, FileType::BlockDevice, FileType::Fifo, FileType::Socket];
        let kind = *self.noise.pick(&kinds);
        let major = self.noise.below(4096) as u32;
        let minor = self.noise.below(1 << 20) as u32;
        let device = rustix::fs::makedev(major, minor);
        let path = self.path();
        Ok(rustix::fs::mknodat(CWD, path, kind, Mode::from_raw_mode(0o600), device)?)
    }

    fn make_folder(&mut self) -> io::Result<()> {
        let folder = self.folder();
        fs::create_dir(folder.join(format!("folder{}", self.noise.below(FOLDERS))))
    }

    fn xattr(&mut self) -> io::Result<()> {
        let path = if self.noise.chance(4) { self.folder() } else { self.path() };
        let prefix = *self.noise.pick(&["user", "trusted", "security"]);
        let name = format!("{prefix}.x{}", self.noise.below(4));
        if self.noise.chance(3) {
            let path = CString::new(path.as_os_str().as_bytes()).unwrap_or_default();
            return Ok(rustix::fs::lremovexattr(&path, &name)?);
        }
        let len = self.noise.below(600) as usize;
        set_xattr(&path, &name, &self.noise.content(len));
        Ok(())
    }

    fn mode(&mut self) -> io::Result<()> {
        let path = self.path();
        let ids = (self.noise.below(70_000) as u32, self.noise.below(70_000) as u32);
        let (owner, group) = (Some(Uid::from_raw(ids.0)), Some(Gid::from_raw(ids.1)));
        rustix::fs::chownat(CWD, &path, owner, group, AtFlags::SYMLINK_NOFOLLOW)?;
        let mode = self.noise.below(0o10000) as u32;
        fs::set_permissions(path, fs::Permissions::from_mode(mode))
    }

    fn times(&mut self) -> io::Result<()> {
        let path = if self.noise.chance(3) { self.folder() } else { self.path() };
        let seconds = self.noise.below(4_000_000_000) as i64;
        set_time(&path, seconds, self.noise.below(1_000_000_000) as i64)
    }

    fn delete_open(&mut self) -> io::Result<()> {
        let path = self.path();
        let mut options = OpenOptions::new();
        let flags = OFlags::NONBLOCK.bits() as i32;
        let file = options.write(true).custom_flags(flags).open(&path)?;
        fs::remove_file(path)?;
        if self.nameless.len() == OPEN_MAX {
            self.nameless.remove(0);
        }
        self.nameless.push(file);
        Ok(())
    }

    fn write_open(&mut self) -> io::Result<()> {
        let bytes = self.bytes();
        match self.nameless.last() {
            Some(file) => file.write_all_at(&bytes, 100),
            None => Ok(()),
        }
    }

    /// A file that is created without a name and gets one later, or never.
    fn unnamed(&mut self) -> io::Result<()> {
        let flags = OFlags::TMPFILE | OFlags::WRONLY;
        let folder = self.folder();
        let file = rustix::fs::openat(CWD, folder, flags, Mode::from_raw_mode(0o600))?;
        let file = File::from(file);
        file.write_all_at(&self.bytes(), 0)?;
        if self.noise.chance(2) {
            let name = self.raw_path();
            rustix::fs::linkat(&file, c"", CWD, &name, AtFlags::EMPTY_PATH)?;
        }
        Ok(())
    }

    fn synced(&mut self) -> io::Result<()> {
        let file = self.open(OpenOptions::new().append(true))?;
        let bytes = self.bytes();
        (&file).write_all(&bytes)?;
        if self.noise.chance(2) { file.sync_data() } else { file.sync_all() }
    }
}
