//! Information about an image other than its files.

use flysch_api::finding::Severity;
use flysch_api::flash::Flash;
use flysch_api::flash::Kind;
use flysch_api::vfs::FileSystem;
use flysch_mtd::detect::{Basis, Content};

use crate::open::{Contents, Image, ImageDevice, ImageVolume, Part};

/// One line of information.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Fact {
    /// Its subject.
    pub name: &'static str,
    /// The information.
    pub value: String,
}

/// For a UBIFS whose superblock cannot be used: its contents are unknown.
const SUPERBLOCK_LOST: &str = "the superblock is damaged; files are found by their nodes";

fn fact(name: &'static str, value: impl ToString) -> Fact {
    Fact { name, value: value.to_string() }
}

/// Facts about a part of an image: its location and the geometry of its flash.
pub fn facts(image: &Image, part: &Part) -> Vec<Fact> {
    let range = &part.region.range;
    let geometry = *part.flash.geometry();
    let mut facts = vec![
        fact("content", part.region.content),
        fact("offset", range.start),
        fact("size", range.end - range.start),
    ];
    facts.extend(flash_kind(image, part).map(|kind| fact("flash", kind)));
    match part.region.basis {
        Basis::Assumed => facts.push(fact("erase block", "unknown")),
        Basis::Named | Basis::Seen => {
            facts.push(fact("erase block", geometry.erase_size));
            facts.push(fact("erase blocks", geometry.blocks()));
        }
    }
    if geometry.kind.is_nand() {
        facts.push(fact("page", geometry.write_size));
        facts.push(fact("sub-page", geometry.sub_page_size));
    }
    if let Some(device) = &image.device {
        device_facts_of_linux(device, &mut facts);
    }
    if image.page_format.is_some() || image.device.is_some() && geometry.kind.is_nand() {
        let bad = (0..geometry.blocks()).filter(|&b| part.flash.is_bad(b).unwrap_or(false)).count();
        facts.push(fact("bad blocks", bad));
    }
    if let Some(format) = &image.page_format {
        facts.push(fact("out-of-band bytes", format.oob.size));
        if format.oob.bad_marker.is_none() {
            facts.push(fact("bad-block markers", "none: something else is in their place"));
        }
        facts.push(fact("error correction", &format.ecc));
    }
    if let Content::Ubi { vid_header_offset, data_offset } = part.region.content {
        facts.push(fact("VID header offset", vid_header_offset));
        facts.push(fact("data offset", data_offset));
    }
    if let Some(failure) = &part.failure {
        facts.push(fact("failure", failure));
    }
    part.devices.iter().for_each(|device| device_facts(device, &mut facts));
    facts
}

/// The kind of flash it is for, if that can be determined.
fn flash_kind(image: &Image, part: &Part) -> Option<Kind> {
    let in_blocks = |volume: &ImageVolume| match &volume.contents {
        Contents::Jffs2(fs) => fs.facts().clean_markers > 0,
        _ => false,
    };
    let tells = match part.region.content {
        // Where its headers lie shows the page.
        Content::Ubi { .. } | Content::Ubifs { .. } => true,
        // On NAND the markers of its blocks stand out of band.
        Content::Jffs2(_) => part.volumes.iter().any(in_blocks),
    };
    let is_known = tells || image.page_format.is_some() || image.device.is_some();
    is_known.then(|| part.flash.geometry().kind)
}

/// Damage of the image as a whole and of the selected volumes, because of which some of the
/// information shown is uncertain; `check` gives details.
pub fn faults(image: &Image, wants: &dyn Fn(&ImageVolume) -> bool) -> Vec<String> {
    let mut faults = vec![];
    for part in &image.parts {
        faults.extend(part.failure.clone());
        for finding in part.devices.iter().flat_map(|device| device.findings()) {
            if finding.structure == "volume table" && finding.severity > Severity::Note {
                faults.push(finding.to_string());
            }
        }
        for volume in part.volumes.iter().filter(|volume| wants(volume)) {
            let worst = match &volume.contents {
                Contents::Broken(_, why) => Some(why.clone()),
                contents if contents.is_without_superblock() => Some(SUPERBLOCK_LOST.to_string()),
                // What the index does not reach is put together from the nodes that are left.
                Contents::Ubifs(fs) => {
                    let mut findings = fs.findings().iter();
                    findings.find(|it| it.severity > Severity::Note).map(ToString::to_string)
                }
                _ => None,
            };
            faults.extend(worst.map(|why| format!("volume {}: {why}", volume.name)));
        }
    }
    faults
}

/// The kernel's information about a device, and the counts of its error correction.
fn device_facts_of_linux(device: &flysch_linux::MtdDevice, facts: &mut Vec<Fact>) {
    let geometry = device.geometry();
    facts.push(fact("device", format!("mtd{}", device.facts().number)));
    if !device.facts().name.is_empty() {
        facts.push(fact("device name", &device.facts().name));
    }
    if geometry.kind.is_nand() {
        facts.push(fact("out-of-band bytes", geometry.oob_size));
        facts.push(fact("corrected bits per step", geometry.ecc_strength));
    }
    if let Ok(counters) = device.counters()
        && geometry.ecc_strength > 0
    {
        facts.push(fact("bits corrected so far", counters.corrected));
        facts.push(fact("steps lost so far", counters.failed));
    }
}

fn device_facts(device: &ImageDevice, facts: &mut Vec<Fact>) {
    let image = device.image();
    facts.push(fact("image sequence number", image.image_sequence));
    facts.push(fact("PEBs", image.pebs));
    facts.push(fact("LEB size", device.leb_size()));
    facts.push(fact("volumes", device.volumes().len()));
    facts.push(fact("findings", device.findings().len()));
}

/// Facts about a volume.
pub fn volume_facts(volume: &ImageVolume) -> Vec<Fact> {
    let mut facts = vec![fact("name", &volume.name), fact("format", volume.format())];
    if let Some(ubi) = &volume.ubi {
        let info = ubi.info();
        facts.push(fact("id", info.id));
        facts.push(fact("kind", format!("{:?}", info.kind).to_lowercase()));
        facts.push(fact("reserved LEBs", info.reserved_pebs));
        facts.push(fact("used LEBs", info.map.len()));
        facts.push(fact("LEB size", info.leb_size));
        facts.push(fact("alignment", info.alignment));
        if info.update_marker {
            facts.push(fact("update marker", "set: an update did not finish"));
        }
    }
    match &volume.contents {
        contents if contents.is_without_superblock() => {
            facts.push(fact("superblock", SUPERBLOCK_LOST));
        }
        Contents::Ubifs(fs) => {
            ubifs_facts(fs.superblock(), fs.is_unclean(), &mut facts);
            facts.extend(authentication(fs.superblock(), fs.verified()));
        }
        Contents::Jffs2(fs) => {
            let found = fs.facts();
            facts.push(fact("byte order", found.order));
            facts.push(fact("files", found.inodes));
            facts.push(fact("inode nodes", found.nodes));
            facts.push(fact("extended attributes", found.xattrs));
            facts.push(fact("blocks with clean marker", found.clean_markers));
            facts.push(fact("blocks with summary", found.summaries));
            facts.push(fact("problems", found.problems));
            facts.push(fact("free bytes", free_bytes(&**fs)));
        }
        Contents::Raw(flash) => facts.push(fact("size", flash.geometry().size)),
        Contents::Broken(_, why) => facts.push(fact("failure", why)),
    }
    facts
}

/// For an authenticated file system, what was verified.
fn authentication(
    superblock: &flysch_wire::ubifs::Superblock,
    verified: Option<&flysch_ubifs::Verified>,
) -> Option<Fact> {
    let flag = flysch_wire::ubifs::SuperblockFlags::AUTHENTICATION;
    let what = match verified {
        Some(it) => format!(
            "{}, verified: superblock ({}), master node ({})",
            it.algorithm.name(),
            it.superblock.name(),
            it.master.name()
        ),
        None => "not verified, no key was given".into(),
    };
    superblock.flags.contains(flag).then(|| fact("authentication", what))
}

fn free_bytes(fs: &dyn FileSystem) -> u64 {
    let statistics = fs.statistics();
    statistics.blocks_free * u64::from(statistics.block_size)
}

fn ubifs_facts(superblock: &flysch_wire::ubifs::Superblock, unclean: bool, facts: &mut Vec<Fact>) {
    facts.push(fact("format version", superblock.format_version));
    facts.push(fact("min. I/O unit", superblock.min_io_size));
    facts.push(fact("LEBs", superblock.leb_count));
    facts.push(fact("LEBs at most", superblock.leb_count_max));
    facts.push(fact("log LEBs", superblock.log_lebs));
    facts.push(fact("LPT LEBs", superblock.lpt_lebs));
    facts.push(fact("orphan LEBs", superblock.orphan_lebs));
    facts.push(fact("journal size", superblock.bud_bytes_max));
    facts.push(fact("fanout", superblock.fanout));
    facts.push(fact("key hash", superblock.key_hash));
    let compression = match superblock.default_compression {
        0 => "none",
        1 => "lzo",
        2 => "zlib",
        3 => "zstd",
        _ => "unknown",
    };
    facts.push(fact("compression", compression));
    let uuid: String = superblock.uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    facts.push(fact("UUID", uuid));
    facts.push(fact("last unmount", if unclean { "unclean" } else { "clean" }));
}
