use std::fs::{self, Permissions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;

use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};

use super::*;

fn put(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut sink = Sink::open(path)?;
    sink.write_all(bytes)?;
    sink.finish()
}

/// As [`put`], but through a sink that can write anywhere.
fn put_anywhere(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let sink = Sink::open_anywhere(path)?;
    std::os::unix::fs::FileExt::write_all_at(sink.file(), bytes, 0)?;
    sink.finish()
}

type Put = fn(&Path, &[u8]) -> io::Result<()>;

const WAYS: [Put; 2] = [put, put_anywhere];

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_plain_file_is_replaced_at_once_and_keeps_its_mode() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out");
    fs::write(&path, "old").unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
    for put in WAYS {
        let before = fs::File::open(&path).unwrap();
        put(&path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        let after = fs::metadata(&path).unwrap();
        assert_eq!(after.mode() & 0o777, 0o640);
        assert_ne!(after.ino(), before.metadata().unwrap().ino());
    }
    let mut sink = Sink::open(&path).unwrap();
    sink.write_all(b"half").unwrap();
    assert_eq!(names(folder.path()).len(), 2);
    drop(sink);
    assert_eq!((names(folder.path()).len(), fs::read(&path).unwrap()), (1, b"new".to_vec()));
}

#[test]
fn a_link_stays_one_and_what_it_leads_to_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::create_dir(folder.join("real")).unwrap();
    symlink("real/file", folder.join("one")).unwrap();
    symlink(folder.join("one"), folder.join("two")).unwrap();
    // At first the link leads nowhere.
    for bytes in [b"first", b"again"] {
        put(&folder.join("two"), bytes).unwrap();
        assert_eq!(fs::read(folder.join("real/file")).unwrap(), bytes);
        assert!(fs::symlink_metadata(folder.join("one")).unwrap().is_symlink());
        assert!(fs::symlink_metadata(folder.join("two")).unwrap().is_symlink());
    }
    assert_eq!((names(folder).len(), names(&folder.join("real")).len()), (3, 1));
    symlink("loop", folder.join("loop")).unwrap();
    assert_eq!(put(&folder.join("loop"), b"x").unwrap_err().raw_os_error(), Some(40));
}

#[test]
fn a_pipe_is_written_to() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pipe");
    mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    for put in WAYS {
        let reader = {
            let path = path.clone();
            std::thread::spawn(move || {
                let mut got = Vec::new();
                fs::File::open(path).unwrap().read_to_end(&mut got).unwrap();
                got
            })
        };
        put(&path, b"through").unwrap();
        assert_eq!(reader.join().unwrap(), b"through");
    }
    assert!(fs::symlink_metadata(&path).unwrap().file_type().is_fifo());
    assert_eq!(names(folder.path()), ["pipe"]);
    assert_eq!(NewFile::create(&path).unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[test]
fn a_device_node_stays_one() {
    let folder = tempfile::tempdir().unwrap();
    let node = |name: &str, minor| {
        let path = folder.path().join(name);
        let mode = Mode::from_raw_mode(0o600);
        mknodat(CWD, &path, FileType::CharacterDevice, mode, makedev(1, minor)).map(|()| path)
    };
    // Numbered as in Linux: null and full.
    let (null, full) = match (node("null", 3), node("full", 7)) {
        (Ok(null), Ok(full)) if fs::File::options().write(true).open(&null).is_ok() => (null, full),
        other => {
            let line = format!("skipped: no device nodes without root: {other:?}");
            assert!(std::env::var("CI").as_deref() != Ok("true"), "{line}");
            eprintln!("{line}");
            return;
        }
    };
    for put in WAYS {
        put(&null, b"gone").unwrap();
        let error = put(&full, b"no room").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StorageFull);
    }
    for path in [&null, &full] {
        assert!(fs::symlink_metadata(path).unwrap().file_type().is_char_device());
    }
    assert_eq!(names(folder.path()), ["full", "null"]);
}

#[test]
fn what_cannot_be_written_is_refused_without_a_temporary_name() {
    let folder = tempfile::tempdir().unwrap();
    let fixed = folder.path().join("fixed");
    fs::write(&fixed, "old").unwrap();
    fs::set_permissions(&fixed, Permissions::from_mode(0o444)).unwrap();
    for (path, kind) in [
        (folder.path().to_path_buf(), ErrorKind::IsADirectory),
        (folder.path().join("no/such/folder"), ErrorKind::NotFound),
        (fixed.join("below"), ErrorKind::NotADirectory),
        (fixed.clone(), ErrorKind::PermissionDenied),
        (PathBuf::new(), ErrorKind::InvalidInput),
        ("/proc/none".into(), ErrorKind::NotFound),
    ] {
        let error = Sink::open(&path).unwrap_err();
        assert_eq!(error.kind(), kind, "{}", path.display());
        assert!(!error.to_string().contains(".part"), "{error}");
    }
    assert_eq!(names(folder.path()), ["fixed"]);
}

#[test]
fn descriptors_are_written_to_behind_what_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    fs::write(&path, "first ").unwrap();
    let file = fs::File::open(&path).unwrap();
    let number = std::os::fd::AsRawFd::as_raw_fd(&file);
    put(Path::new(&format!("/dev/fd/{number}")), b"second").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"first second");
    assert!(Sink::open(Path::new("-")).unwrap().is_standard_output());
    assert!(Sink::open(Path::new("/dev/stdout")).unwrap().is_standard_output());
    assert!(!Sink::open(Path::new("/dev/stderr")).unwrap().is_standard_output());
}

#[test]
fn a_new_file_never_replaces_another() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("backup");
    let new = || {
        let new = NewFile::create(&path).unwrap();
        new.file().write_all(b"content").unwrap();
        new
    };
    let late = new();
    new().keep_new().unwrap();
    assert_eq!(late.keep_new().unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert_eq!(names(folder.path()), ["backup"]);
}

#[test]
fn folders_made_for_nothing_are_taken_away() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a/b/c");
    drop(make_folder(&path).unwrap());
    assert!(names(folder.path()).is_empty());
    make_folder(&path).unwrap().into_iter().for_each(Made::keep);
    assert!(path.is_dir());
    assert!(make_folder(&path).unwrap().is_empty());
    let file = path.join("file");
    fs::write(&file, "").unwrap();
    assert_eq!(make_folder(&file).unwrap_err().kind(), ErrorKind::NotADirectory);
}
