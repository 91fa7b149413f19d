//! A tree with files of every kind, and every awkward name and size.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, RenameFlags, Timespec, Timestamps, Uid, XattrFlags,
};

use crate::noise::Noise;

/// Makes the tree below `root`; anything that the file system refuses (a kind of rename, a prefix
/// of attributes) is left out.
pub(crate) fn make(root: &Path, seed: u64) -> io::Result<()> {
    let mut noise = Noise::new(seed);
    let top = root.join("rich");
    fs::create_dir_all(&top)?;
    contents(&top, &mut noise)?;
    names(&top)?;
    special(&top)?;
    changes(&top, &mut noise)?;
    xattrs(&top, &mut noise)
}

fn contents(top: &Path, noise: &mut Noise) -> io::Result<()> {
    let many = top.join("many");
    fs::create_dir(&many)?;
    for number in 0..150 {
        let len = noise.below(6000) as usize;
        fs::write(many.join(format!("file{number:03}")), noise.content(len))?;
    }
    for size in [0, 1, 4095, 4096, 4097, 65536, 100_000] {
        fs::write(top.join(format!("size{size}")), noise.content(size))?;
    }
    let mut large = File::create(top.join("large"))?;
    for _ in 0..40 {
        large.write_all(&noise.content(64 << 10))?;
    }
    let sparse = File::create(top.join("sparse"))?;
    sparse.write_all_at(b"one", 5000)?;
    sparse.write_all_at(&noise.content(9000), 700_001)?;
    sparse.set_len(3 << 20)?;
    File::create(top.join("hole"))?.set_len(1 << 20)?;
    let overwritten = File::create(top.join("overwritten"))?;
    overwritten.write_all_at(&noise.content(50_000), 0)?;
    for _ in 0..20 {
        let at = noise.below(50_000);
        let len = noise.below(6000) as usize;
        overwritten.write_all_at(&noise.content(len), at)?;
        if noise.chance(4) {
            overwritten.sync_all()?;
        }
    }
    let cut = File::create(top.join("cut"))?;
    cut.write_all_at(&noise.content(60_000), 0)?;
    cut.sync_all()?;
    for size in [33_333, 10_000, 45_000, 44_000, 4096, 20_480, 0, 7] {
        cut.set_len(size)?;
        if noise.chance(2) {
            cut.sync_all()?;
        }
    }
    let mut grown = OpenOptions::new().append(true).create(true).open(top.join("grown"))?;
    for _ in 0..60 {
        let len = noise.below(400) as usize;
        grown.write_all(&noise.content(len))?;
    }
    Ok(())
}

fn names(top: &Path) -> io::Result<()> {
    let long = "n".repeat(254);
    fs::write(top.join(&long), b"254")?;
    // JFFS2 holds 254 bytes, UBIFS 255.
    let _ = fs::write(top.join("m".repeat(255)), b"255");
    for name in ["Ærø – 日本語 🗻", "with space", "tab\there", "new\nline", "-dash", ".hidden", "…"]
    {
        fs::write(top.join(name), name)?;
    }
    fs::write(top.join(std::ffi::OsStr::from_bytes(b"\xff\xfe not UTF-8")), b"x")?;
    let mut deep = top.to_path_buf();
    for level in 0..20 {
        deep.push(format!("level{level:02}"));
        fs::create_dir(&deep)?;
        fs::write(deep.join("here"), format!("{level}"))?;
    }
    fs::hard_link(top.join("size4097"), top.join("link1"))?;
    fs::hard_link(top.join("size4097"), deep.join("link2"))?;
    fs::hard_link(top.join("link1"), top.join("many/link3"))?;
    fs::remove_file(top.join("size4097"))?;
    symlink("many/file000", top.join("short-link"))?;
    symlink("/absolute/nowhere", top.join("absolute-link"))?;
    symlink("d/".repeat(120) + "end", top.join("long-link"))?;
    let _ = symlink("long/".repeat(300), top.join("very-long-link"));
    Ok(())
}

fn special(top: &Path) -> io::Result<()> {
    let node = |name: &str, kind, major, minor| {
        let device = rustix::fs::makedev(major, minor);
        rustix::fs::mknodat(CWD, top.join(name), kind, Mode::from_raw_mode(0o640), device)
    };
    node("null", FileType::CharacterDevice, 1, 3)?;
    node("mmc", FileType::BlockDevice, 179, 0)?;
    node("minor255", FileType::CharacterDevice, 200, 255)?;
    node("minor256", FileType::CharacterDevice, 200, 256)?;
    node("big", FileType::BlockDevice, 259, 70_000)?;
    node("largest", FileType::CharacterDevice, 4095, 1_048_575)?;
    node("zero", FileType::CharacterDevice, 0, 0)?;
    node("fifo", FileType::Fifo, 0, 0)?;
    node("socket", FileType::Socket, 0, 0)?;
    for (name, mode) in [("setuid", 0o4755), ("setgid", 0o2711), ("none", 0o000), ("all", 0o7777)] {
        let path = top.join(name);
        fs::write(&path, name)?;
        // Changing the owner clears set-user-ID, so the owner comes first.
        own(&path, 1000, 100)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
    }
    let sticky = top.join("sticky");
    fs::create_dir(&sticky)?;
    fs::set_permissions(&sticky, fs::Permissions::from_mode(0o3777))?;
    own(&top.join("short-link"), 65534, 65533)?;
    let times = [
        ("old", 1, 1),
        ("nanoseconds", 1_700_000_000, 123_456_789),
        ("late", 4_000_000_000, 999_999_999),
    ];
    for (name, seconds, nanoseconds) in times {
        let path = top.join(name);
        fs::write(&path, name)?;
        set_time(&path, seconds, nanoseconds)?;
    }
    fs::create_dir(top.join("old-directory"))?;
    set_time(&top.join("old-directory"), 86_400, 5)?;
    set_time(&top.join("long-link"), 1_000_000_000, 7)
}

fn own(path: &Path, owner: u32, group: u32) -> io::Result<()> {
    let (owner, group) = (Some(Uid::from_raw(owner)), Some(Gid::from_raw(group)));
    Ok(rustix::fs::chownat(CWD, path, owner, group, AtFlags::SYMLINK_NOFOLLOW)?)
}

pub(crate) fn set_time(path: &Path, seconds: i64, nanoseconds: i64) -> io::Result<()> {
    let time = Timespec { tv_sec: seconds, tv_nsec: nanoseconds as _ };
    let times = Timestamps { last_access: time, last_modification: time };
    Ok(rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)?)
}

fn changes(top: &Path, noise: &mut Noise) -> io::Result<()> {
    let folder = top.join("renames");
    fs::create_dir(&folder)?;
    for name in ["a", "b", "c", "d", "e", "f", "g"] {
        let len = noise.below(3000) as usize;
        fs::write(folder.join(name), noise.content(len))?;
    }
    fs::create_dir_all(folder.join("from/inner"))?;
    fs::create_dir(folder.join("to"))?;
    fs::create_dir(folder.join("to/inner"))?;
    fs::rename(folder.join("a"), folder.join("moved"))?;
    fs::rename(folder.join("b"), folder.join("c"))?;
    fs::rename(folder.join("from/inner"), folder.join("to/inner"))?;
    fs::rename(folder.join("d"), folder.join("to/d"))?;
    let flagged = |from: &str, to: &str, flags| {
        let _ = rustix::fs::renameat_with(CWD, folder.join(from), CWD, folder.join(to), flags);
    };
    flagged("e", "f", RenameFlags::EXCHANGE);
    flagged("g", "to", RenameFlags::EXCHANGE);
    flagged("moved", "whited", RenameFlags::WHITEOUT);
    flagged("c", "h", RenameFlags::NOREPLACE);
    let gone = top.join("gone");
    fs::create_dir(&gone)?;
    for number in 0..10 {
        fs::write(gone.join(format!("{number}")), noise.content(700))?;
    }
    for number in 0..9 {
        fs::remove_file(gone.join(format!("{number}")))?;
    }
    // The name is reused for something else.
    fs::create_dir(gone.join("3"))?;
    fs::create_dir(gone.join("removed"))?;
    fs::remove_dir(gone.join("removed"))
}

/// Sets an attribute, if the file system accepts it.
pub(crate) fn set_xattr(path: &Path, name: &str, value: &[u8]) -> bool {
    let path = CString::new(path.as_os_str().as_bytes()).unwrap_or_default();
    rustix::fs::lsetxattr(&path, name, value, XattrFlags::empty()).is_ok()
}

fn xattrs(top: &Path, noise: &mut Noise) -> io::Result<()> {
    let file = top.join("attributes");
    fs::write(&file, b"has attributes")?;
    set_xattr(&file, "user.empty", b"");
    set_xattr(&file, "user.text", b"some text");
    set_xattr(&file, "trusted.secret", &noise.content(900));
    set_xattr(&file, "security.label", b"u:object_r:file:s0\0");
    set_xattr(&file, "user.long", &noise.content(1900));
    set_xattr(&file, "user.changed", b"before");
    set_xattr(&file, "user.changed", b"after, and longer");
    set_xattr(&file, "user.removed", b"going");
    let path = CString::new(file.as_os_str().as_bytes()).unwrap_or_default();
    let _ = rustix::fs::lremovexattr(&path, "user.removed");
    set_xattr(&file, &format!("user.{}", "x".repeat(200)), b"long name");
    set_xattr(top, "user.directory", b"on a directory");
    set_xattr(&top.join("short-link"), "trusted.link", b"on a symlink");
    set_xattr(&top.join("fifo"), "security.fifo", b"on a FIFO");
    set_xattr(&top.join("null"), "trusted.device", &noise.content(30));
    for number in 0..20 {
        set_xattr(&top.join("many/file001"), &format!("user.n{number}"), &noise.content(number));
    }
    Ok(())
}
