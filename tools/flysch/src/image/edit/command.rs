//! What an edit is, and how it is executed.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use flysch_api::vfs::{Attributes, Changes, DeviceNumber, FileKind, Timestamp, XattrChange};
use flysch_image::{
    EditError, Editor, FlagChange, ModeChange, OwnerChange, Put, PutOptions, Reach,
};

use super::parse::{self, Value};
use crate::image::parse_offset;

/// One edit.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Edit {
    /// Put a file or a whole tree from this machine into the image, as `cp -a` does.
    Put {
        /// The file or directory on this machine; `-` is standard input, `DIR/.` the contents of a
        /// directory.
        #[arg(value_name = "FILE")]
        source: PathBuf,
        /// The path in the image, or a directory in the image to put it into.
        #[arg(value_name = "PATH")]
        path: OsString,
        /// Owner and group, as in chown; default: those of the source file.
        #[arg(long, value_name = "OWNER:GROUP")]
        owner: Option<OwnerChange>,
        /// Permissions of files, octal; default: those of the source file.
        #[arg(long, value_name = "MODE", value_parser = parse::mode)]
        mode: Option<u16>,
    },
    /// Remove files or empty directories.
    Rm {
        /// Remove directories with everything in them.
        #[arg(short, long, short_alias = 'R')]
        recursive: bool,
        /// Ignore nonexistent files.
        #[arg(short, long)]
        force: bool,
        /// Paths in the image.
        #[arg(value_name = "PATH", required = true)]
        paths: Vec<OsString>,
    },
    /// Make directories.
    Mkdir {
        /// Also create parent directories; existing ones are no error.
        #[arg(short, long)]
        parents: bool,
        /// Permissions, octal.
        #[arg(short, long, value_name = "MODE", value_parser = parse::mode, default_value = "755")]
        mode: u16,
        /// Paths in the image.
        #[arg(value_name = "PATH", required = true)]
        paths: Vec<OsString>,
    },
    /// Move or rename files; an existing file with the new name is replaced.
    Mv {
        /// Their current paths.
        #[arg(value_name = "FROM", required = true)]
        from: Vec<OsString>,
        /// The new path, or a directory to move them into, which it must be for several.
        #[arg(value_name = "TO")]
        to: OsString,
    },
    /// Give a file another name, or create a symlink.
    Ln {
        /// Create a symlink: its target is stored unchanged.
        #[arg(short, long)]
        symbolic: bool,
        /// Replace an existing name, unless it is a directory.
        #[arg(short, long)]
        force: bool,
        /// If the name is a symlink to a directory, replace it instead of following it.
        #[arg(short, long)]
        no_dereference: bool,
        /// The file, or the target of the symlink.
        #[arg(value_name = "TARGET")]
        target: OsString,
        /// The new name, or a directory to create it in.
        #[arg(value_name = "PATH")]
        path: OsString,
    },
    /// Create a device node (b or c with MAJOR MINOR), a FIFO (p) or a socket (s).
    Mknod {
        /// Permissions, octal.
        #[arg(short, long, value_name = "MODE", value_parser = parse::mode, default_value = "644")]
        mode: u16,
        /// The path in the image.
        #[arg(value_name = "PATH")]
        path: OsString,
        /// Type: b, c, p or s.
        #[arg(value_name = "KIND", value_parser = parse::kind)]
        kind: FileKind,
        /// Major device number.
        #[arg(value_name = "MAJOR", requires = "minor")]
        major: Option<u32>,
        /// Minor device number.
        #[arg(value_name = "MINOR")]
        minor: Option<u32>,
    },
    /// Change permissions.
    Chmod {
        /// Also everything below.
        #[arg(short, long, short_alias = 'R')]
        recursive: bool,
        /// Permissions: octal, or changes such as u+x or go=rX.
        #[arg(value_name = "MODE", allow_hyphen_values = true)]
        mode: ModeChange,
        /// Paths in the image.
        #[arg(value_name = "PATH", required = true)]
        paths: Vec<OsString>,
    },
    /// Change owner and group.
    Chown {
        /// Also everything below.
        #[arg(short, long, short_alias = 'R')]
        recursive: bool,
        /// Change symlinks themselves, not their targets; below a directory this is always so.
        #[arg(short = 'N', long)]
        no_dereference: bool,
        /// Numbers, or names from the image's own /etc/passwd and /etc/group.
        #[arg(value_name = "OWNER:GROUP")]
        owner: OwnerChange,
        /// Paths in the image.
        #[arg(value_name = "PATH", required = true)]
        paths: Vec<OsString>,
    },
    /// Change flags: i immutable, a append-only, S content and D names written synchronously, c
    /// compressed.
    Chattr {
        /// Also everything below.
        #[arg(short, long, short_alias = 'R')]
        recursive: bool,
        /// Flags to add (+i), to remove (-a), or all of them (=S).
        #[arg(value_name = "FLAGS", allow_hyphen_values = true)]
        flags: FlagChange,
        /// Paths in the image.
        #[arg(value_name = "PATH", required = true)]
        paths: Vec<OsString>,
    },
    /// Set access and change times; a nonexistent file is created.
    Touch {
        /// The time, UTC: 2026-11-22T09:30:00.5 or @SECONDS; default: now.
        #[arg(short, long, value_name = "TIME", value_parser = parse::date)]
        date: Option<Timestamp>,
        /// Do not create files.
        #[arg(short = 'c', long)]
        no_create: bool,
        /// Paths in the image.
        #[arg(value_name = "PATH", required = true)]
        paths: Vec<OsString>,
    },
    /// Truncate a file, or extend it by a hole.
    Truncate {
        /// Its new length.
        #[arg(short, long, value_name = "BYTES", value_parser = parse_offset)]
        size: u64,
        /// The path in the image.
        #[arg(value_name = "PATH")]
        path: OsString,
    },
    /// Set an extended attribute, or remove it.
    Setfattr {
        /// Its full name, such as user.comment.
        #[arg(short, long, value_name = "NAME")]
        name: OsString,
        /// Its value; 0x and hexadecimal digits for bytes.
        #[arg(short, long, value_name = "VALUE", value_parser = parse::value)]
        value: Option<Value>,
        /// Remove it.
        #[arg(short = 'x', long, conflicts_with = "value", required_unless_present = "value")]
        remove: bool,
        /// Act on a symlink itself, not on its target.
        #[arg(long)]
        no_dereference: bool,
        /// The path in the image.
        #[arg(value_name = "PATH")]
        path: OsString,
    },
}

impl Edit {
    /// The approximate number of bytes that it adds to the image.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Put { source, .. } if source.as_os_str() != "-" => {
                flysch_image::tree_bytes(source)
            }
            // Standard input tells nothing; names and attributes need little.
            Self::Put { .. } => 4 << 20,
            _ => 16 << 10,
        }
    }

    /// Whether it consumes standard input.
    pub(super) fn reads_standard_input(&self) -> bool {
        matches!(self, Self::Put { source, .. } if source.as_os_str() == "-")
    }

    /// Checks that its words alone do not allow.
    pub(super) fn check(&self) -> Result<(), String> {
        let Self::Mknod { kind, major, .. } = self else { return Ok(()) };
        let is_device = matches!(kind, FileKind::BlockDevice | FileKind::CharacterDevice);
        match (is_device, major) {
            (true, None) => Err("mknod: b and c need MAJOR and MINOR".into()),
            (false, Some(_)) => Err("mknod: p and s take no MAJOR and MINOR".into()),
            _ => Ok(()),
        }
    }

    pub(super) fn apply(&self, editor: &mut Editor<'_>, put: &mut Put) -> Result<(), EditError> {
        match self {
            Self::Put { source, path, owner, mode } => {
                let owner = owner.as_ref().map_or(Ok((None, None)), |it| editor.owners(it))?;
                let options = PutOptions { owner: owner.0, group: owner.1, permissions: *mode };
                let one = match source.as_os_str().as_bytes() {
                    b"-" => editor.put_content(&mut std::io::stdin(), path.as_bytes(), options)?,
                    _ => editor.put(source, path.as_bytes(), options)?,
                };
                put.files += one.files;
                put.bytes += one.bytes;
                put.without_xattr += one.without_xattr;
                Ok(())
            }
            Self::Rm { recursive, force, paths } => {
                each(paths, |path| match *force && !editor.is_there(path) {
                    true => Ok(()),
                    false => editor.remove(path, *recursive),
                })
            }
            Self::Mkdir { parents, mode, paths } => {
                each(paths, |path| editor.make_directory(path, *mode, *parents))
            }
            Self::Mv { from, to } => {
                let is_one = from.len() == 1;
                each(from, |from| editor.rename(from, to.as_bytes(), !is_one))
            }
            Self::Ln { .. } => self.link(editor),
            Self::Mknod { mode, path, kind, major, minor } => {
                let device = DeviceNumber {
                    major: major.unwrap_or_default(),
                    minor: minor.unwrap_or_default(),
                };
                editor.make(path.as_bytes(), *kind, *mode, device)
            }
            _ => self.change(editor),
        }
    }

    fn link(&self, editor: &mut Editor<'_>) -> Result<(), EditError> {
        let Self::Ln { symbolic, force, no_dereference, target, path } = self else {
            return Ok(());
        };
        let target = target.as_bytes();
        let path = editor.destination(path.as_bytes(), target, !no_dereference);
        if *force && editor.is_there(&path) {
            editor.remove(&path, false)?;
        }
        match symbolic {
            true => editor.symlink(target, &path),
            false => editor.link(target, &path),
        }
    }

    /// Attributes.
    fn change(&self, editor: &mut Editor<'_>) -> Result<(), EditError> {
        match self {
            Self::Chmod { recursive, mode, paths } => {
                let change = |it: &Attributes| {
                    let new = || mode.apply(it.permissions, it.kind == FileKind::Directory);
                    // Linux has none for symlinks.
                    let permissions = (it.kind != FileKind::Symlink).then(new);
                    Changes { permissions, ..Changes::default() }
                };
                let reach = Reach { recursive: *recursive, link_itself: false };
                each(paths, |path| editor.change(path, &change, reach))
            }
            Self::Chown { recursive, no_dereference, owner, paths } => {
                let (owner, group) = editor.owners(owner)?;
                let changes = Changes { owner, group, ..Changes::default() };
                let reach = Reach { recursive: *recursive, link_itself: *no_dereference };
                each(paths, |path| editor.change(path, &|_| changes, reach))
            }
            Self::Chattr { recursive, flags, paths } => {
                let reach = Reach { recursive: *recursive, link_itself: false };
                each(paths, |path| editor.change_flags(path, *flags, reach))
            }
            Self::Touch { date, no_create, paths } => {
                each(paths, |path| editor.touch(path, *date, !no_create))
            }
            Self::Truncate { size, path } => {
                let changes = Changes { size: Some(*size), ..Changes::default() };
                editor.change(path.as_bytes(), &|_| changes, Reach::default())
            }
            Self::Setfattr { name, value, path, no_dereference, .. } => {
                let change = value
                    .as_ref()
                    .map_or(XattrChange::Remove, |Value(value)| XattrChange::Set(value));
                editor.set_xattr(path.as_bytes(), name.as_bytes(), change, *no_dereference)
            }
            _ => Ok(()),
        }
    }
}

fn each(
    paths: &[OsString],
    mut edit: impl FnMut(&[u8]) -> Result<(), EditError>,
) -> Result<(), EditError> {
    paths.iter().try_for_each(|path| edit(path.as_bytes()))
}
