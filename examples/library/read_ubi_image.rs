//! Reads a file out of a UBI image, dumped from a chip or made by ubinize.
//!
//! ```console
//! $ cargo run -p flysch-examples --example read_ubi_image -- IMAGE VOLUME FILE
//! ```
//!
//! Nothing is mounted, no root is needed, and the image is never written to.

use std::error::Error;
use std::path::Path;

use flysch_api::flash::FlashGeometry;
use flysch_api::vfs::FileSystemExt;
use flysch_mtd::{CachedFlash, FileStorage, FlashImage, Storage};
use flysch_ubi::{Ubi, find_images};
use flysch_ubifs::Ubifs;

/// Longest file to read into memory, bytes.
const CONTENT_MAX: usize = 1 << 30;

/// The content of `path`, an absolute path, in the UBIFS of volume `volume`.
pub(crate) fn read(image: &Path, volume: &str, path: &str) -> Result<Vec<u8>, Box<dyn Error>> {
    // The file is only bytes; UBI's headers say what must be known about the chip. Pages that were
    // read are cached: index nodes are small, and many share a page.
    let storage = FileStorage::open(image)?;
    let shape = FlashGeometry::nor(storage.size(), 64 << 10);
    let flash = CachedFlash::new(FlashImage::new(&storage, shape));

    let found = find_images(&flash, None);
    let first = *found.first().ok_or("there is no UBI in it")?;
    let ubi = Ubi::attach(&flash, first, &flysch_ubi::AttachOptions::default())?;
    let id = ubi.volumes().iter().find(|info| info.name == volume.as_bytes());
    let id = id.ok_or_else(|| format!("there is no volume `{volume}` in it"))?.id;
    let lebs = ubi.volume(id).expect("it was in the list");

    let fs = Ubifs::open(lebs, &flysch_ubifs::OpenOptions::default())?;
    // Symbolic links are followed inside the image. The size of the file is what the image says, so
    // there is a limit; a program that copies takes pieces with `read_full` instead.
    Ok(fs.read_all(fs.resolve(path.as_bytes())?, CONTENT_MAX)?)
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [image, volume, path] = arguments.as_slice() else {
        return Err("usage: read_ubi_image IMAGE VOLUME FILE".into());
    };
    let content = read(image.as_ref(), volume, path)?;
    std::io::Write::write_all(&mut std::io::stdout(), &content)?;
    Ok(())
}
