//! Flash that refuses midway: from then on it is read-only, and nothing synced is lost.

use std::collections::BTreeMap;

use flysch_api::vfs::{Changes, FileSystem, FileSystemMut, FsError, Inode};

use super::{Random, at, content, regular};

/// Synced files and their contents, without files that are being changed.
pub(crate) type Synced = BTreeMap<String, Vec<u8>>;

/// Makes random changes until something is refused or `steps` are done; returns the error.
pub(crate) fn work(
    fs: &mut dyn FileSystemMut,
    synced: &mut Synced,
    random: &mut Random,
    steps: u64,
) -> Result<(), FsError> {
    let root = fs.statistics().root;
    let mut waiting = Synced::new();
    let names: Vec<String> = (0..24).map(|number| format!("file{number}")).collect();
    for _ in 0..steps {
        let name = &names[random.below(24) as usize];
        let file: Option<Inode> = fs.lookup(root, name.as_bytes()).ok();
        let before = synced.remove(name).or_else(|| waiting.remove(name));
        match (file, random.below(8)) {
            (None, _) => {
                let inode = regular(fs, root, name)?;
                let data = random.bytes(random.clone().below(9000) as usize);
                let done = if data.is_empty() { 0 } else { fs.write(inode, 0, &data, at(2))? };
                waiting.insert(name.clone(), data[..done].to_vec());
            }
            (Some(inode), kind) if kind == 0 || before.is_none() => {
                fs.remove(root, name.as_bytes(), at(3))?;
                fs.forget(inode)?;
            }
            (Some(inode), 1) => {
                let mut bytes = before.unwrap_or_default();
                bytes.truncate(random.below(bytes.len() as u64 + 1) as usize);
                let cut = Changes { size: Some(bytes.len() as u64), ..Changes::default() };
                fs.set_attributes(inode, &cut, at(4))?;
                waiting.insert(name.clone(), bytes);
            }
            (Some(inode), _) => {
                let mut bytes = before.unwrap_or_default();
                let offset = random.below(bytes.len() as u64 + 1) as usize;
                let data = random.bytes(1 + random.clone().below(5000) as usize);
                let done = match fs.write(inode, offset as u64, &data, at(5)) {
                    Err(FsError::NoSpace) => 0,
                    other => other?,
                };
                bytes.resize(bytes.len().max(offset + done), 0);
                bytes[offset..offset + done].copy_from_slice(&data[..done]);
                waiting.insert(name.clone(), bytes);
            }
        }
        if random.below(12) == 0 {
            fs.sync(None)?;
            synced.append(&mut waiting);
        }
    }
    fs.sync(None)?;
    synced.append(&mut waiting);
    Ok(())
}

/// Nothing can be changed any more; reading still works.
pub(crate) fn assert_read_only(fs: &mut dyn FileSystemMut, synced: &Synced) {
    let root = fs.statistics().root;
    assert_eq!(regular(fs, root, "another"), Err(FsError::ReadOnly));
    assert_eq!(fs.sync(None), Err(FsError::ReadOnly));
    for name in synced.keys() {
        let inode = fs.lookup(root, name.as_bytes()).expect("it is there");
        assert_eq!(fs.write(inode, 0, b"x", at(6)), Err(FsError::ReadOnly));
        assert_eq!(fs.remove(root, name.as_bytes(), at(6)), Err(FsError::ReadOnly));
    }
    assert_synced(fs, synced);
}

pub(crate) fn assert_synced(fs: &dyn FileSystem, synced: &Synced) {
    let root = fs.statistics().root;
    for (name, bytes) in synced {
        let inode = fs.lookup(root, name.as_bytes()).expect("it is there");
        let found = content(fs, inode);
        let differs = found.iter().zip(bytes).position(|(found, wanted)| found != wanted);
        if let Some(at) = differs {
            let zeros = found[at..].iter().take_while(|&&byte| byte == 0).count();
            let bad = found.iter().zip(bytes).filter(|(found, wanted)| found != wanted).count();
            println!("{name}: {zeros} zeros at {at}, {bad} bytes differ");
        }
        let state = (found.len(), differs);
        assert_eq!(state, (bytes.len(), None), "{name} is as it was synced");
    }
}
