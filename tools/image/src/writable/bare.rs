//! A bare `.ubifs` file with atomic LEB changes.
//!
//! The file has no second block for a LEB's new content, so that is first written to a file beside
//! it. The next process that opens the image for writing completes what an abrupt end left there.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use flysch_api::flash::{Corrected, FlashError, FlashMut};
use flysch_api::volume::{LebState, Volume, VolumeGeometry, VolumeMut};
use flysch_ubifs::FlatImage;

use super::WritableError;

/// The suffix of the file beside the image.
const SUFFIX: &str = ".flysch-leb";
const MAGIC: &[u8; 8] = b"FlyschLb";
/// Magic, LEB number, CRC-32 of number and content.
const HEADER_SIZE: usize = 16;

/// A bare image, and the file for the next content of a LEB.
#[derive(Debug)]
pub(super) struct BareVolume<F> {
    image: FlatImage<F>,
    beside: PathBuf,
}

fn checksum(lnum: [u8; 4], content: &[u8]) -> [u8; 4] {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&lnum);
    crc.update(content);
    crc.finalize().to_le_bytes()
}

/// The LEB and the content in a completely written file.
fn parse(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (header, content) = bytes.split_first_chunk::<HEADER_SIZE>()?;
    let lnum = [header[8], header[9], header[10], header[11]];
    let good = header.starts_with(MAGIC) && header[12..] == checksum(lnum, content);
    good.then(|| (u32::from_le_bytes(lnum), content))
}

impl<F: FlashMut> BareVolume<F> {
    pub(super) fn new(image: FlatImage<F>, path: &Path) -> Result<Self, WritableError> {
        let mut name = path.as_os_str().to_owned();
        name.push(SUFFIX);
        let mut this = Self { image, beside: name.into() };
        match std::fs::read(&this.beside) {
            Ok(bytes) => {
                // Not written to its end: the LEB is still the old one.
                if let Some((lnum, content)) = parse(&bytes) {
                    this.image.change(lnum, content)?;
                    this.image.sync()?;
                }
                std::fs::remove_file(&this.beside)?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
        Ok(this)
    }

    fn keep(&self, lnum: u32, content: &[u8]) -> io::Result<()> {
        let lnum = lnum.to_le_bytes();
        let mut file = File::create(&self.beside)?;
        file.write_all(&[&MAGIC[..], &lnum, &checksum(lnum, content), content].concat())?;
        file.sync_data()
    }
}

impl<F: FlashMut> Volume for BareVolume<F> {
    fn geometry(&self) -> VolumeGeometry {
        self.image.geometry()
    }
    fn state(&self, lnum: u32) -> LebState {
        self.image.state(lnum)
    }
    fn read(&self, lnum: u32, offset: u32, buffer: &mut [u8]) -> Result<Corrected, FlashError> {
        self.image.read(lnum, offset, buffer)
    }
}

impl<F: FlashMut> VolumeMut for BareVolume<F> {
    fn write(&mut self, lnum: u32, offset: u32, data: &[u8]) -> Result<(), FlashError> {
        self.image.write(lnum, offset, data)
    }

    fn change(&mut self, lnum: u32, data: &[u8]) -> Result<(), FlashError> {
        let system = |error: io::Error| FlashError::Os(error.raw_os_error().unwrap_or(0));
        self.keep(lnum, data).map_err(system)?;
        self.image.change(lnum, data)?;
        self.image.sync()?;
        std::fs::remove_file(&self.beside).map_err(system)
    }

    fn unmap(&mut self, lnum: u32) -> Result<(), FlashError> {
        self.image.unmap(lnum)
    }

    fn map(&mut self, lnum: u32) -> Result<(), FlashError> {
        self.image.map(lnum)
    }

    fn sync(&mut self) -> Result<(), FlashError> {
        self.image.sync()
    }
}

#[cfg(test)]
mod tests {
    use flysch_mtd::FlashImage;

    use super::*;

    fn image() -> FlatImage<FlashImage<Vec<u8>>> {
        let geometry = flysch_api::flash::FlashGeometry::nand(0, 16384, 512, 512);
        FlatImage::new(FlashImage::new(vec![0xFF; 4 * 16384], geometry), 16384, 4)
    }

    fn start_of(volume: &impl Volume, lnum: u32) -> [u8; 4] {
        let mut start = [0; 4];
        let _ = volume.read(lnum, 0, &mut start).unwrap();
        start
    }

    #[test]
    fn a_change_that_was_cut_is_made_by_the_next_who_opens() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image");
        let beside = folder.path().join("image.flysch-leb");
        let mut volume = BareVolume::new(image(), &path).unwrap();
        volume.change(1, &[1; 512]).unwrap();
        assert_eq!(start_of(&volume, 1), [1; 4]);
        assert!(!beside.exists());
        // The process ended behind the first file.
        volume.keep(2, &[2; 1024]).unwrap();
        let volume = BareVolume::new(volume.image, &path).unwrap();
        assert_eq!(start_of(&volume, 2), [2; 4]);
        assert!(!beside.exists());
        // And in it.
        volume.keep(1, &[3; 512]).unwrap();
        let bytes = std::fs::read(&beside).unwrap();
        std::fs::write(&beside, &bytes[..100]).unwrap();
        let volume = BareVolume::new(volume.image, &path).unwrap();
        assert_eq!(start_of(&volume, 1), [1; 4]);
        assert!(!beside.exists());
    }
}
