//! Whether an image is all there: a file may end too early, and a volume may lack blocks that only
//! their damaged headers knew of.

use flysch_api::count::counted;
use flysch_api::finding::{Finding, Place, Severity};
use flysch_api::flash::Flash as _;
use flysch_mtd::detect::{Basis, Content};
use flysch_ubi::Content as BlockContent;
use flysch_wire::ubi::VolumeKind;

use crate::open::{Image, ImageDevice, ImageVolume, Part};

impl Part {
    /// The UBI device that contains `volume`.
    pub(crate) fn device_of(&self, volume: &ImageVolume) -> Option<&ImageDevice> {
        let mut at = self.volumes.iter().position(|other| std::ptr::eq(other, volume))?;
        // They follow each other as the devices do.
        self.devices.iter().find(|device| match at.checked_sub(device.volumes().len()) {
            Some(behind) => {
                at = behind;
                false
            }
            None => true,
        })
    }
}

/// Where a part ends inside a page or an erase block, which no flash does: the file was cut off, or
/// has not been read to its end. A JFFS2 that was made for flashing may end anywhere.
pub(crate) fn cut_end(image: &Image, part: &Part) -> Option<Finding> {
    cut_page(image, part).or_else(|| cut_block(part))
}

fn cut_page(image: &Image, part: &Part) -> Option<Finding> {
    let format = image.page_format.as_ref().filter(|_| !image.has_oob_apart)?;
    let (page, stride) = (u64::from(format.page_size), format.page_size as usize + format.oob.size);
    let stored = image.size.saturating_sub(image.offset);
    let (whole, rest) = (stored / stride as u64 * page, stored % stride as u64);
    let is_last = part.region.range.end >= whole;
    let problem = format!("it ends inside a page: {rest} of {stride} bytes of it are there");
    (rest > 0 && is_last).then(|| finding(problem, None))
}

fn cut_block(part: &Part) -> Option<Finding> {
    let size = part.flash.geometry().size;
    let problem = |what: &str, there: u64, of: u32| {
        format!("it ends inside {what}: {there} of {of} bytes of it are there")
    };
    match part.region.content {
        Content::Ubi { .. } => part.devices.iter().find_map(|device| {
            let (peb, there) = cut_peb(device, size)?;
            let problem = problem("an erase block", there, device.image().peb_size);
            Some(finding(problem, Some(peb)))
        }),
        Content::Ubifs { leb_size, .. } => {
            let there = size.checked_rem(leb_size.into()).filter(|&there| there > 0)?;
            Some(finding(problem("a LEB", there, leb_size), None))
        }
        Content::Jffs2(_) => None,
    }
    .filter(|_| part.region.basis != Basis::Assumed)
}

/// The last erase block of a device on a flash of `size` bytes, and how many of its bytes are
/// there, if not all are.
fn cut_peb(device: &ImageDevice, size: u64) -> Option<(u32, u64)> {
    let image = device.image();
    let last = image.pebs.checked_sub(1)?;
    let start = image.start + u64::from(last) * u64::from(image.peb_size);
    let there = size.saturating_sub(start);
    (there < image.peb_size.into()).then_some((last, there))
}

fn finding(problem: String, peb: Option<u32>) -> Finding {
    let place = Place { peb, ..Place::default() };
    let (severity, structure) = (Severity::Inconsistent, "image");
    Finding { severity, structure, problem, place, inode: None, path: None }
}

/// Why the content of a volume without a file system is not, or may not be, all there.
///
/// A static volume vouches for its bytes by checksums. In a dynamic one a LEB without a block is
/// erased, and no rule is broken; but if the image lacks a block of which nobody knows what it
/// held, such a LEB may as well be lost.
pub fn raw_damage(image: &Image, volume: &ImageVolume) -> Option<String> {
    let ubi = volume.ubi.as_ref()?;
    let info = ubi.info();
    if info.kind == VolumeKind::Static {
        let damage = ubi.verify().into_iter().find(|it| it.severity > Severity::Note);
        return damage.map(|finding| finding.to_string());
    }
    let part = image.parts.iter().find(|part| part.device_of(volume).is_some())?;
    let device = part.device_of(volume)?;
    let cut = cut_end(image, part);
    if cut.is_some()
        && let Some((last, _)) = cut_peb(device, part.flash.geometry().size)
        && let Some((lnum, _)) = info.map.iter().find(|(_, peb)| *peb == last)
    {
        return Some(format!("LEB {lnum} is incomplete: the image ends inside its erase block"));
    }
    let without = u64::from(info.reserved_pebs).saturating_sub(info.map.len() as u64);
    let lost = cut.or_else(|| lost_block(device)).filter(|_| without > 0)?;
    let lebs = counted(without, "LEB has no block", "LEBs have no block");
    Some(format!("may be incomplete: {lebs}, and the image is damaged: {lost}"))
}

/// The finding for a block that held data of an unknown LEB.
fn lost_block(device: &ImageDevice) -> Option<Finding> {
    let is_unknown = |peb: u32| {
        let block = device.blocks().get(peb as usize);
        block.is_some_and(|block| matches!(block.content, BlockContent::Corrupt(_)))
    };
    let mut findings = device.findings().iter();
    let found =
        findings.find(|it| it.severity == Severity::Lost && it.place.peb.is_some_and(is_unknown));
    found.cloned()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use crate::testing;
    use crate::{ImageOpenOptions, check};

    use super::*;

    fn open(bytes: &[u8], oob_size: Option<u32>) -> (tempfile::NamedTempFile, Image) {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), bytes).unwrap();
        let page_size = oob_size.map(|_| 512);
        let options = ImageOpenOptions { page_size, oob_size, ..ImageOpenOptions::default() };
        let image = Image::open(file.path(), &options).unwrap();
        (file, image)
    }

    /// Why the only volume is not complete, and the findings of a check.
    fn judged(bytes: &[u8], oob_size: Option<u32>) -> (String, Vec<String>) {
        let (_file, image) = open(bytes, oob_size);
        let mut findings = vec![];
        check(&image, &mut |checked| findings.push(checked.finding.to_string()));
        let volume = image.volumes().next().unwrap();
        (raw_damage(&image, volume).unwrap_or_default(), findings)
    }

    const PEB: usize = 16 << 10;

    #[test]
    fn a_volume_that_lost_a_block_is_not_complete() {
        let whole = testing::ubi(PEB as u32, 512, &[("raw", 40 * 1024, 200 * 1024)]);
        assert_eq!(judged(&whole, None), (String::new(), vec![]));
        // In the last block of the volume, and in the one before.
        for (cut, lnum) in [(5000, 2), (PEB + 5000, 1)] {
            let (why, findings) = judged(&whole[..whole.len() - cut], None);
            let expected = format!("LEB {lnum} is incomplete: the image ends inside its erase");
            assert!(why.starts_with(&expected), "{why}");
            assert_eq!(findings.len(), 1, "{findings:?}");
            assert!(findings[0].contains("ends inside an erase block: 11384 of 16384"));
        }
        let mut spoilt = whole.clone();
        spoilt[3 * PEB + 512 + 20] ^= 1;
        let (why, findings) = judged(&spoilt, None);
        assert!(why.starts_with("may be incomplete: 12 LEBs have no block"), "{why}");
        assert_eq!(findings.len(), 1, "{findings:?}");
    }

    /// Another volume's loss is none of a full one.
    #[test]
    fn a_volume_with_all_its_blocks_is_complete() {
        let size = 2 * (PEB as u64 - 1024);
        let volumes = [("full", size as usize, size), ("other", 40 * 1024, 100 * 1024)];
        let mut image = testing::ubi(PEB as u32, 512, &volumes);
        let end = image.len();
        image[end - PEB + 512 + 20] ^= 1;
        let (_file, image) = open(&image[..end], None);
        let why: Vec<_> = image.volumes().map(|volume| raw_damage(&image, volume)).collect();
        assert_eq!(why[0], None);
        assert!(why[1].is_some());
    }

    #[test]
    fn a_dump_does_not_end_inside_a_page() {
        let plain = testing::ubi(PEB as u32, 512, &[("raw", 40 * 1024, 200 * 1024)]);
        let oob = [0xFF; 16];
        let dump: Vec<u8> = plain.chunks(512).flat_map(|page| [page, &oob].concat()).collect();
        assert_eq!(judged(&dump, Some(16)), (String::new(), vec![]));
        let (why, findings) = judged(&dump[..dump.len() - 20], Some(16));
        assert!(why.starts_with("LEB 2 is incomplete"), "{why}");
        assert!(findings[0].contains("ends inside a page: 508 of 528 bytes"), "{findings:?}");
    }
}
