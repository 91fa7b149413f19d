//! Large numbers of everything: the cost is printed, correctness is asserted.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::time::Instant;

use flysch_api::vfs::{Changes, FileKind, FileSystemMut, FsError, Inode, Rename, XattrChange};

use super::{Random, at, content, names, new_file, regular};

/// Peak memory of this process, MiB.
pub(crate) fn peak_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)).and_then(|it| it.parse().ok());
    kib.unwrap_or(0_u64) / 1024
}

fn directory(fs: &mut dyn FileSystemMut, parent: Inode, name: &str) -> Inode {
    let made = fs.create(parent, name.as_bytes(), &new_file(FileKind::Directory), at(2));
    made.expect("there is room")
}

/// Creates files in one directory; prints the time per file for each tenth of them.
pub(crate) fn make_files(fs: &mut dyn FileSystemMut, parent: Inode, count: u32, what: &str) {
    let mut started = Instant::now();
    for number in 0..count {
        let inode = regular(fs, parent, &format!("file{number}")).expect("there is room");
        if number % 10 == 0 {
            assert_eq!(fs.write(inode, 0, b"0123456789", at(3)), Ok(10));
        }
        if (number + 1) % (count / 10).max(1) == 0 {
            let each = started.elapsed().as_micros() / u128::from((count / 10).max(1));
            println!("{what}: {} files, {each} us each, {} MiB", number + 1, peak_mib());
            started = Instant::now();
        }
    }
    fs.sync(None).expect("there is room");
}

/// Looks up random names, lists everything in pieces, and removes files while listing.
pub(crate) fn use_and_remove(fs: &mut dyn FileSystemMut, parent: Inode, count: u32, what: &str) {
    let mut random = Random::new(3);
    let started = Instant::now();
    for _ in 0..10_000 {
        let name = format!("file{}", random.below(count.into()));
        fs.lookup(parent, name.as_bytes()).expect("it is there");
    }
    println!("{what}: lookup {} us", started.elapsed().as_micros() / 10_000);
    let started = Instant::now();
    assert_eq!(names(fs, parent).len(), count as usize);
    println!("{what}: list all {:?}", started.elapsed());
    let (mut position, mut removed) = (0, BTreeSet::new());
    let started = Instant::now();
    loop {
        let mut piece: Vec<(Vec<u8>, Inode)> = vec![];
        fs.list(parent, position, &mut |entry| {
            piece.push((entry.name.to_vec(), entry.inode));
            position = entry.position;
            if piece.len() < 100 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })
        .expect("it can be listed");
        if piece.is_empty() {
            break;
        }
        for (name, inode) in piece {
            assert_eq!(fs.remove(parent, &name, at(4)), Ok(()));
            fs.forget(inode).expect("it has no name");
            assert!(removed.insert(name), "listed twice");
        }
    }
    assert_eq!(removed.len(), count as usize, "each was listed while others went");
    println!("{what}: remove {} us each", started.elapsed().as_micros() / u128::from(count));
    assert_eq!(names(fs, parent).len(), 0);
    fs.sync(None).expect("there is room");
}

/// A deep tree: its top cannot move into its depths, but its lower half can move to the root.
pub(crate) fn deep_tree(fs: &mut dyn FileSystemMut, depth: u32) {
    let root = fs.statistics().root;
    let top = directory(fs, root, "top");
    let mut below = vec![top];
    for level in 0..depth {
        let parent = *below.last().expect("there is one");
        below.push(directory(fs, parent, &format!("level{level}")));
    }
    let last = *below.last().expect("there is one");
    let inside = fs.rename((root, b"top"), (last, b"loop"), Rename::Replace, at(3));
    assert!(matches!(inside, Err(FsError::Invalid(_))), "{inside:?}");
    let exchanged = fs.rename((root, b"top"), (last, b"x"), Rename::Exchange, at(3));
    assert!(exchanged.is_err());
    let half = below[depth as usize / 2];
    let name = format!("level{}", depth / 2);
    fs.rename((half, name.as_bytes()), (root, b"moved"), Rename::Replace, at(3)).expect("it goes");
    assert_eq!(fs.lookup(root, b"moved"), Ok(below[depth as usize / 2 + 1]));
    fs.sync(None).expect("there is room");
}

/// A large number of names for one file.
pub(crate) fn hard_links(fs: &mut dyn FileSystemMut, count: u32, what: &str) {
    let root = fs.statistics().root;
    let parent = directory(fs, root, "links");
    let file = regular(fs, parent, "name0").expect("there is room");
    fs.write(file, 0, b"one", at(3)).expect("there is room");
    let started = Instant::now();
    for number in 1..count {
        let name = format!("name{number}");
        fs.link(file, parent, name.as_bytes(), at(3)).expect("there is room");
    }
    println!("{what}: link {} us each", started.elapsed().as_micros() / u128::from(count));
    assert_eq!(fs.attributes(file).map(|it| it.links), Ok(count));
    fs.sync(None).expect("there is room");
    let started = Instant::now();
    for number in 0..count {
        let name = format!("name{number}");
        fs.remove(parent, name.as_bytes(), at(4)).expect("it is there");
    }
    println!("{what}: unlink {} us each", started.elapsed().as_micros() / u128::from(count));
    assert_eq!(content(fs, file), b"one");
    fs.forget(file).expect("it has no name");
    assert_eq!(fs.attributes(file), Err(FsError::NotFound));
    fs.remove(root, b"links", at(4)).expect("it is empty");
    fs.sync(None).expect("there is room");
}

/// Attributes of one file, until no more are accepted; returns their number.
pub(crate) fn xattrs(fs: &mut dyn FileSystemMut, most: u32, what: &str) -> u32 {
    let root = fs.statistics().root;
    let file = regular(fs, root, "attributes").expect("there is room");
    let value = |number: u32| vec![number as u8; number as usize % 90];
    let started = Instant::now();
    let mut count = 0;
    while count < most {
        let name = format!("user.attribute{count:05}");
        match fs.set_xattr(file, name.as_bytes(), XattrChange::Create(&value(count)), at(3)) {
            Ok(()) => count += 1,
            Err(FsError::NoSpace) => break,
            Err(error) => panic!("{error}"),
        }
    }
    println!("{what}: {count} attributes, {} us each", started.elapsed().as_micros() / 1000);
    let mut listed = 0;
    fs.list_xattrs(file, &mut |_| listed += 1).expect("they can be listed");
    assert_eq!(listed, count);
    for number in (0..count).step_by(3) {
        let name = format!("user.attribute{number:05}");
        let longer = XattrChange::Replace(&[7; 1000]);
        fs.set_xattr(file, name.as_bytes(), longer, at(3)).expect("it can be longer");
        let shorter = XattrChange::Set(&[8]);
        fs.set_xattr(file, name.as_bytes(), shorter, at(3)).expect("it can be shorter");
        let mut buffer = [0; 4096];
        assert_eq!(fs.read_xattr(file, name.as_bytes(), &mut buffer), Ok(1));
        fs.set_xattr(file, name.as_bytes(), XattrChange::Remove, at(3)).expect("it can go");
    }
    for number in 0..count {
        let name = format!("user.attribute{number:05}");
        let mut buffer = [0; 4096];
        let read = fs.read_xattr(file, name.as_bytes(), &mut buffer);
        match number % 3 {
            0 => assert_eq!(read, Err(FsError::NoAttribute)),
            _ => assert_eq!(&buffer[..read.expect("it is there")], value(number)),
        }
    }
    fs.remove(root, b"attributes", at(4)).expect("it is there");
    fs.forget(file).expect("it has no name");
    fs.sync(None).expect("there is room");
    count
}

/// Names with the same R5 hash: "ca" and "bl" contribute equally to it.
pub(crate) fn colliding(number: u32) -> Vec<u8> {
    (0..14).flat_map(|bit| if number >> bit & 1 == 0 { *b"ca" } else { *b"bl" }).collect()
}

/// Creates, finds, renames, lists and removes names with the same hash.
pub(crate) fn collide(fs: &mut dyn FileSystemMut, count: u32, what: &str) {
    let root = fs.statistics().root;
    let parent = directory(fs, root, "hash");
    let started = Instant::now();
    let mut inodes = vec![];
    for number in 0..count {
        let name = colliding(number);
        let made = fs.create(parent, &name, &new_file(FileKind::Regular), at(2));
        inodes.push(made.expect("there is room"));
        if number % 400 == 399 {
            fs.sync(None).expect("there is room");
        }
    }
    println!("{what}: make {} us each", started.elapsed().as_micros() / u128::from(count));
    // Every fourth replaces its neighbour; every fourth is exchanged with another.
    for number in (0..count - 3).step_by(4) {
        let (from, to) = (colliding(number), colliding(number + 1));
        fs.rename((parent, &from), (parent, &to), Rename::Replace, at(3)).expect("there is room");
        fs.forget(inodes[number as usize + 1]).expect("it has no name");
        let (one, other) = (colliding(number + 2), colliding(number + 3));
        let exchanged = fs.rename((parent, &one), (parent, &other), Rename::Exchange, at(3));
        if exchanged.is_ok() {
            inodes.swap(number as usize + 2, number as usize + 3);
        }
        if number % 512 == 0 {
            fs.sync(None).expect("there is room");
        }
    }
    let started = Instant::now();
    for number in (0..count - 3).step_by(4) {
        let at = number as usize;
        assert_eq!(fs.lookup(parent, &colliding(number)), Err(FsError::NotFound));
        assert_eq!(fs.lookup(parent, &colliding(number + 1)), Ok(inodes[at]));
        assert_eq!(fs.lookup(parent, &colliding(number + 2)), Ok(inodes[at + 2]));
        assert_eq!(fs.lookup(parent, &colliding(number + 3)), Ok(inodes[at + 3]));
    }
    println!("{what}: lookup {} us", started.elapsed().as_micros() / u128::from(count));
    let all = names(fs, parent);
    let different: BTreeSet<_> = all.iter().collect();
    assert_eq!((all.len(), different.len()), (different.len(), (count - count / 4) as usize));
    let started = Instant::now();
    for name in all {
        let inode = fs.lookup(parent, &name).expect("it is listed");
        fs.remove(parent, &name, at(4)).expect("it is listed");
        fs.forget(inode).expect("it has no name");
    }
    println!("{what}: remove {} us each", started.elapsed().as_micros() / u128::from(count));
    fs.remove(root, b"hash", at(4)).expect("it is empty");
    fs.sync(None).expect("there is room");
}

/// A long file that is mostly holes.
pub(crate) fn sparse(fs: &mut dyn FileSystemMut, size: u64, what: &str) {
    let root = fs.statistics().root;
    let file = regular(fs, root, "sparse").expect("there is room");
    let started = Instant::now();
    let mut random = Random::new(9);
    let mut parts = vec![];
    for start in (0..size).step_by(32 << 20) {
        let data = random.bytes(10_000);
        let offset = start + 5000;
        assert_eq!(fs.write(file, offset, &data, at(3)), Ok(data.len()));
        parts.push((offset, data));
    }
    let whole = Changes { size: Some(size), ..Changes::default() };
    fs.set_attributes(file, &whole, at(4)).expect("there is room");
    fs.sync(None).expect("there is room");
    for (offset, data) in &parts {
        let mut buffer = vec![0xee; 20_000];
        let from = offset - 5000;
        let read = fs.read(file, from, &mut buffer).expect("it can be read");
        assert_eq!(read, 20_000.min((size - from) as usize));
        assert!(buffer[..5000].iter().all(|&byte| byte == 0), "a hole");
        assert_eq!(&buffer[5000..15_000], &data[..]);
        let next = fs.next_data(file, from + 20_000).expect("it can be told");
        let wanted = from + (32 << 20);
        match next {
            Some(range) => assert!(range.start >= wanted && range.start <= wanted + 5000),
            None => assert!(wanted >= size),
        }
    }
    let cut = Changes { size: Some(9000), ..Changes::default() };
    fs.set_attributes(file, &cut, at(5)).expect("it can be shorter");
    fs.set_attributes(file, &whole, at(6)).expect("there is room");
    let mut buffer = vec![0xee; 20_000];
    assert_eq!(fs.read(file, 0, &mut buffer), Ok(20_000));
    assert_eq!(&buffer[5000..9000], &parts[0].1[..4000]);
    assert!(buffer[9000..].iter().all(|&byte| byte == 0), "what was cut does not come back");
    println!("{what}: {:?}, {} MiB", started.elapsed(), peak_mib());
    fs.remove(root, b"sparse", at(7)).expect("it is there");
    fs.forget(file).expect("it has no name");
    fs.sync(None).expect("there is room");
}
