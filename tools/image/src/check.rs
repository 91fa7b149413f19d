//! Checking everything in an image.

use flysch_api::count::counted;
use flysch_api::finding::{Finding, Place, Severity};
use flysch_api::flash::Flash;

use crate::complete::cut_end;
use crate::open::{Contents, Image, ImageVolume, Part};

/// A finding of a check, for one volume or for the device below them.
#[derive(Debug)]
pub struct Checked<'i> {
    /// The volume's name among [`names`](crate::names); `None` for what lies below volumes.
    pub volume: Option<&'i str>,
    /// The finding.
    pub finding: Finding,
}

/// Checks every checksum and rule in `image`; returns whether anything is wrong.
pub fn check(image: &Image, report: &mut dyn FnMut(Checked<'_>)) -> bool {
    let mut is_wrong = false;
    let mut tell = |volume: Option<&str>, finding: Finding| {
        is_wrong |= finding.severity > Severity::Note;
        report(Checked { volume, finding });
    };
    let names = crate::open::names(image);
    let mut names = names.iter();
    for part in &image.parts {
        check_part((image, part), &mut names, &mut tell);
    }
    is_wrong
}

fn check_part(
    (image, part): (&Image, &Part),
    names: &mut std::slice::Iter<'_, String>,
    tell: &mut dyn FnMut(Option<&str>, Finding),
) {
    check_flash(part, tell);
    cut_end(image, part).into_iter().for_each(|finding| tell(None, finding));
    if let Some(failure) = &part.failure {
        tell(None, simple(Severity::Lost, "image", failure.clone(), Place::default()));
    }
    for device in &part.devices {
        device.findings().iter().for_each(|finding| tell(None, finding.clone()));
    }
    for (volume, name) in part.volumes.iter().zip(names) {
        check_volume(volume, &mut |finding| tell(Some(name), finding));
    }
}

/// Bit errors, if there is error correction.
fn check_flash(part: &Part, tell: &mut dyn FnMut(Option<&str>, Finding)) {
    let geometry = *part.flash.geometry();
    if geometry.ecc_strength == 0 {
        return;
    }
    let mut page = vec![0; geometry.write_size as usize];
    for block in 0..geometry.blocks() {
        if part.flash.is_bad(block).unwrap_or(true) {
            continue;
        }
        let start = geometry.block_start(block);
        let mut at = start;
        while at + u64::from(geometry.write_size) <= start + u64::from(geometry.block_len(block)) {
            let offset = u32::try_from(at - start).ok();
            let place = Place { peb: Some(block), leb: None, offset };
            match part.flash.read(at, &mut page) {
                Ok(corrected) if corrected.bits > 0 => {
                    let text =
                        counted(corrected.bits, "bit corrected", "bits corrected").to_string();
                    tell(None, simple(Severity::Note, "page", text, place));
                }
                Ok(_) => {}
                Err(error) => {
                    tell(None, simple(Severity::Inconsistent, "page", error.to_string(), place));
                }
            }
            at += u64::from(geometry.write_size);
        }
    }
}

fn check_volume(volume: &ImageVolume, tell: &mut dyn FnMut(Finding)) {
    if let Some(ubi) = &volume.ubi {
        ubi.verify().into_iter().for_each(&mut *tell);
    }
    match &volume.contents {
        Contents::Ubifs(fs) => fs.check().into_iter().for_each(tell),
        Contents::Jffs2(fs) => {
            let order = fs.facts().order;
            if let Err(error) = flysch_jffs2::check(fs.flash(), Some(order), tell) {
                tell(simple(Severity::Lost, "file system", error.to_string(), Place::default()));
            }
        }
        Contents::Raw(_) => {}
        Contents::Broken(_, why) => {
            tell(simple(Severity::Lost, "file system", why.clone(), Place::default()));
        }
    }
}

fn simple(severity: Severity, structure: &'static str, problem: String, place: Place) -> Finding {
    Finding { severity, structure, problem, place, inode: None, path: None }
}
