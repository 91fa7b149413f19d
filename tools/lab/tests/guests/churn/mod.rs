//! Work for a file system that is the same in each run.

use std::ops::ControlFlow;

use flysch_api::vfs::{
    Changes, DeviceNumber, FileKind, FileSystem, FileSystemMut, FsError, Inode, NewFile, Rename,
    Timestamp, XattrChange,
};
use flysch_random::SplitMix64;

pub(crate) fn now(seconds: i64) -> Timestamp {
    Timestamp { seconds: 1_700_000_000 + seconds, nanoseconds: 0 }
}

/// Directories and other files of a tree, each with the directory and name that lead to it.
pub(crate) type Named = (Inode, Vec<u8>, Inode);

pub(crate) fn tree(fs: &dyn FileSystem) -> (Vec<Inode>, Vec<Named>) {
    let (mut directories, mut files) = (vec![Inode(1)], Vec::new());
    let mut at = 0;
    while let Some(&directory) = directories.get(at) {
        at += 1;
        let listed = fs.list(directory, 0, &mut |entry| {
            if entry.kind == FileKind::Directory {
                directories.push(entry.inode);
            }
            files.push((directory, entry.name.to_vec(), entry.inode));
            ControlFlow::Continue(())
        });
        listed.unwrap();
    }
    (directories, files)
}

/// Random work; ends early if power fails.
pub(crate) fn churn(fs: &mut dyn FileSystemMut, seed: u64, operations: u64) -> Result<(), FsError> {
    let mut numbers = SplitMix64::new(seed);
    for step in 0..operations {
        // Impossible operations are skipped: no room, a directory below itself, ...
        if let Err(error @ (FsError::Medium { .. } | FsError::ReadOnly | FsError::Damaged { .. })) =
            operation(fs, &mut numbers, step)
        {
            return Err(error);
        }
        if step % 100 == 99 {
            fs.sync(None)?;
        }
    }
    Ok(())
}

pub(crate) fn operation(
    fs: &mut dyn FileSystemMut,
    numbers: &mut SplitMix64,
    step: u64,
) -> Result<(), FsError> {
    let time = now(step as i64);
    let (directories, files) = tree(fs);
    let parent = directories[numbers.below(directories.len() as u64) as usize];
    let name = format!("{}{}", "n".repeat(1 + numbers.below(30) as usize), numbers.below(99));
    let any = |numbers: &mut SplitMix64| match files.is_empty() {
        true => None,
        false => Some(files[numbers.below(files.len() as u64) as usize].clone()),
    };
    let kinds = [
        FileKind::Regular,
        FileKind::Directory,
        FileKind::Symlink,
        FileKind::CharacterDevice,
        FileKind::BlockDevice,
        FileKind::Fifo,
        FileKind::Socket,
        FileKind::Regular,
    ];
    let old = any(numbers);
    match (numbers.below(12), old) {
        (0..3, _) | (_, None) => {
            let kind = kinds[numbers.below(8) as usize];
            let target: &[u8] = if kind == FileKind::Symlink { b"../some/where" } else { b"" };
            let device = DeviceNumber { major: 8, minor: numbers.below(300) as u32 };
            let new = NewFile { kind, permissions: 0o640, owner: 7, group: 8, device, target };
            let inode = fs.create(parent, name.as_bytes(), &new, time)?;
            if kind == FileKind::Regular {
                let data: Vec<u8> = (0..numbers.below(30_000)).map(|n| (n / 7) as u8).collect();
                let _ = fs.write(inode, 0, &data, time)?;
            }
        }
        (3..6, Some((_, _, inode))) => {
            let data: Vec<u8> = (0..numbers.below(9000)).map(|n| (n * n / 5) as u8).collect();
            let _ = fs.write(inode, numbers.below(60_000), &data, time)?;
        }
        (6, Some((_, _, inode))) => {
            let changes = Changes { size: Some(numbers.below(40_000)), ..Changes::default() };
            fs.set_attributes(inode, &changes, time)?;
        }
        (7, Some((_, _, inode))) => {
            let mut name = *b"user.a";
            name[5] += numbers.below(5) as u8;
            let value = vec![b'v'; numbers.below(200) as usize];
            let change = match numbers.below(3) {
                0 => XattrChange::Remove,
                _ => XattrChange::Set(&value),
            };
            // Linux shows these for files and directories only.
            if matches!(fs.attributes(inode)?.kind, FileKind::Regular | FileKind::Directory) {
                fs.set_xattr(inode, &name, change, time)?;
            }
        }
        (8, Some((_, _, inode))) => fs.link(inode, parent, name.as_bytes(), time)?,
        (9, Some((from, old, _))) => {
            let to = any(numbers).filter(|_| numbers.below(2) == 0);
            let (to, new) =
                to.map_or((parent, name.into_bytes()), |(parent, name, _)| (parent, name));
            let how = [Rename::Replace, Rename::Keep, Rename::Exchange, Rename::Whiteout];
            let there = fs.lookup(to, &new);
            fs.rename((from, &old), (to, &new), how[numbers.below(4) as usize], time)?;
            if let Ok(there) = there {
                fs.forget(there)?;
            }
        }
        (10, Some((_, _, inode))) => {
            let permissions = Some(numbers.below(0o1000) as u16);
            let changes = Changes { permissions, owner: Some(9), ..Changes::default() };
            fs.set_attributes(inode, &changes, time)?;
            fs.sync(Some(inode))?;
        }
        (_, Some((parent, name, inode))) => {
            fs.remove(parent, &name, time)?;
            if numbers.below(4) != 0 {
                fs.forget(inode)?;
            }
        }
    }
    Ok(())
}
