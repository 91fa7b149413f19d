use flysch_api::vfs::{
    DeviceNumber, FileKind, FileSystem as _, FileSystemExt as _, FileSystemMut as _,
    FileSystemMutExt as _, NewFile, Timestamp,
};
use flysch_api::volume::VolumeMut;
use flysch_ubifs::create::{CreateOptions, NewInode, format};
use flysch_ubifs::{OpenOptions, Ubifs, UbifsMut};

/// Makes an empty file system on `volume` (mkfs.ubifs), mounts it, writes a file, unmounts it, and
/// reads the file from what is on the flash.
pub fn first_file<V: VolumeMut>(
    mut volume: V,
    text: &[u8],
) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
    // The file system has no clock: the caller of a change supplies the time.
    let now = Timestamp { seconds: 1_700_000_000, nanoseconds: 0 };
    let shape = volume.geometry();
    let page = shape.write_size.unwrap_or(2048);
    let options = CreateOptions::new(page, shape.leb_size, shape.lebs);
    format(&mut volume, &options, &NewInode::directory(now))?;

    // Mounted for writing. Changes are on the flash after `sync`, not before.
    let mut fs = UbifsMut::open(volume)?;
    let root = fs.statistics().root;
    let file = NewFile {
        kind: FileKind::Regular,
        permissions: 0o644,
        owner: 0,
        group: 0,
        device: DeviceNumber { major: 0, minor: 0 },
        target: b"",
    };
    let motd = fs.create(root, b"motd", &file, now)?;
    // `write` may take less than all, as write(2) does; `write_all` takes all or fails.
    fs.write_all(motd, 0, text, now)?;
    fs.sync(Some(motd))?;
    let volume = fs.close()?;

    // Opened for reading: the flash is not written to.
    let fs = Ubifs::open(volume, &OpenOptions::default())?;
    // What a file says of its size is up to whoever made the image, so a limit is given.
    Ok(fs.read_all(fs.resolve(b"/motd")?, 64 << 20)?)
}
