use std::error::Error;

use flysch_api::flash::{FlashGeometry, FlashMut};
use flysch_api::vfs::{
    DeviceNumber, FileKind, FileSystem as _, FileSystemExt as _, FileSystemMut as _,
    FileSystemMutExt as _, NewFile, Timestamp,
};
use flysch_jffs2::create::{Content, Entry, Jffs2Builder, Jffs2Options, Padding, ROOT_INO};
use flysch_jffs2::{Jffs2, Jffs2Mut, WriteOptions};

/// The file system has no clock: the caller of a change supplies the time.
const NOW: Timestamp = Timestamp { seconds: 1_700_000_000, nanoseconds: 0 };

const FILE: NewFile<'static> = NewFile {
    kind: FileKind::Regular,
    permissions: 0o644,
    owner: 0,
    group: 0,
    device: DeviceNumber { major: 0, minor: 0 },
    target: b"",
};

/// Makes an image for such a flash (mkfs.jffs2), with `text` in the file `motd`.
pub fn first_image(flash: &FlashGeometry, text: &[u8]) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut options = Jffs2Options { erase_size: flash.erase_size, ..Jffs2Options::default() };
    // To the end of a block, and so of a page. On NAND clean markers are out of band.
    options.padding = Padding::Block;
    if flash.kind.is_nand() {
        options.cleanmarker_len = 0;
    }
    let mut image = Vec::new();
    let sink = |block: &[u8]| {
        image.extend_from_slice(block);
        Ok::<(), std::io::Error>(())
    };
    let mut builder = Jffs2Builder::new(options, sink)?;
    let (parent, name) = (ROOT_INO, b"motd");
    let motd = Entry { parent, name, file: FILE, accessed: NOW, modified: NOW, changed: NOW };
    let (size, mut rest) = (text.len() as u64, text);
    let mut read = |buffer: &mut [u8]| std::io::Read::read(&mut rest, buffer);
    builder.add(&motd, Some(Content { size, read: &mut read }))?;
    builder.finish()?;
    Ok(image)
}

/// Puts such an image on `flash`, which is erased and has no bad blocks, and reads `motd` from it;
/// then mounts it for writing, and returns what can be read of a second file.
pub fn second_file<F: FlashMut>(mut flash: F, text: &[u8]) -> Result<Vec<u8>, Box<dyn Error>> {
    let image = first_image(flash.geometry(), text)?;
    flash.program(0, &image)?;

    // Mounted for reading: the flash is not written to, and still ours if this fails.
    let fs = Jffs2::mount(&flash, None)?;
    // What a file says of its size is up to whoever made the image, so a limit is given.
    assert_eq!(fs.read_all(fs.resolve(b"/motd")?, 64 << 20)?, text);

    // Mounted for writing. Changes are on the flash after `sync`, not before.
    let mut fs = Jffs2Mut::mount(&mut flash, &WriteOptions::default())?;
    let root = fs.statistics().root;
    let log = fs.create(root, b"log", &FILE, NOW)?;
    // `write` may take less than all, as write(2) does; `write_all` takes all or fails.
    fs.write_all(log, 0, text, NOW)?;
    fs.sync(Some(log))?;
    drop(fs);

    let fs = Jffs2::mount(flash, None)?;
    Ok(fs.read_all(fs.resolve(b"/log")?, 64 << 20)?)
}
