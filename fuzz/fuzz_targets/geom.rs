//! A disk with hostile contents: every class tastes it, and partitions within partitions.
//!
//! The input is the first 8 and the last 8 sectors of a small disk; the others are zero.
#![no_main]

use flysch_geom::class::disk::{MD, Memory};
use flysch_geom::{Graph, all, dump};
use flysch_wire::geom::{cache, jmicron, nvidia, promise, sii};
use flysch_wire::geom::{
    concat, ddf, disklabel, disklabel64, gpt, imsm, label, mbr, mirror, multipath, stripe,
};
use libfuzzer_sys::fuzz_target;

const SECTOR: usize = 512;
const ENDS: usize = 8 * SECTOR;
const SIZE: usize = 1 << 18;

fuzz_target!(|bytes: &[u8]| {
    parse(bytes);
    // Only a larger disk has room for a 64-bit disklabel.
    let is_large =
        bytes.get(512..).is_some_and(|it| it.starts_with(&disklabel64::MAGIC.to_le_bytes()));
    let size = if is_large { 2 << 20 } else { SIZE };
    let mut memory = Memory { serial: "FUZZ".into(), ..Memory::new(size) };
    let front = bytes.len().min(ENDS);
    memory.bytes[..front].copy_from_slice(&bytes[..front]);
    let back = &bytes[front..];
    let len = back.len().min(ENDS);
    memory.bytes[size - len..].copy_from_slice(&back[back.len() - len..]);
    if promise::Promise::is_it(bytes) && bytes.len() >= promise::LEN {
        let at = size - promise::from_end(0) as usize * SECTOR;
        memory.bytes[at..at + promise::LEN].copy_from_slice(&bytes[..promise::LEN]);
        fix_promise(&mut memory.bytes[at..at + promise::LEN]);
    }
    fix_checksums(&mut memory.bytes);
    let mut graph = Graph::new(&all(), 1);
    if MD.insert(&mut graph, "md0", Box::new(memory)).is_ok() {
        graph.settle();
        let _ = (dump::confxml(&graph), dump::confdot(&graph));
    }
});

fn parse(bytes: &[u8]) {
    let _ = label::Label::parse(bytes);
    let _ = stripe::Stripe::parse(bytes);
    let _ = (concat::Concat::parse(bytes), cache::Cache::parse(bytes));
    let _ = multipath::Multipath::parse(bytes);
    let _ = disklabel::Disklabel::parse(bytes);
    let _ = disklabel64::Disklabel64::parse(bytes);
    let _ = (ddf::Header::parse(bytes), ddf::Configuration::parse(bytes));
    let _ = (ddf::Physical::parse(bytes), ddf::Virtual::parse(bytes), ddf::reference(bytes));
    let _ = (promise::Promise::parse(bytes), nvidia::Nvidia::parse(bytes));
    let _ = (sii::Sii::parse(bytes), jmicron::JMicron::parse(bytes));
    let _ = mbr::Record::parse(bytes);
    let _ = gpt::Header::parse(bytes, 1, 1000);
    if let Ok(value) = mirror::Mirror::parse(bytes) {
        let mut sector = [0; SECTOR];
        value.emit(&mut sector);
        assert_eq!(mirror::Mirror::parse(&sector).map(|again| again.id), Ok(value.id));
    }
}

/// Corrects the checksum of Intel's metadata, if it takes one or two sectors.
fn fix_imsm(disk: &mut [u8]) {
    let anchor = disk.len() - 2 * SECTOR;
    let mut whole = disk[anchor..][..SECTOR].to_vec();
    whole.extend_from_slice(&disk[anchor - SECTOR..anchor]);
    let Ok(header) = imsm::Header::parse(&whole) else { return };
    whole.truncate(header.len as usize);
    let sum = imsm::checksum(&whole);
    disk[anchor + 0x20..][..4].copy_from_slice(&sum.to_le_bytes());
}

fn fix_promise(record: &mut [u8]) {
    let words = record.chunks_exact(4).take(511);
    let sum =
        words.fold(0, |sum: u32, it| sum.wrapping_add(u32::from_le_bytes(it.try_into().unwrap())));
    record[0x7FC..0x800].copy_from_slice(&sum.to_le_bytes());
}

/// Makes the sum of the first `words` words of `sector` zero by changing the one at `at`.
fn fix_words(sector: &mut [u8], words: usize, at: usize) {
    sector[at..at + 2].fill(0);
    let words = sector.chunks_exact(2).take(words);
    let sum =
        words.fold(0, |sum: u16, it| sum.wrapping_add(u16::from_le_bytes(it.try_into().unwrap())));
    sector[at..at + 2].copy_from_slice(&sum.wrapping_neg().to_le_bytes());
}

/// Corrects the checksums of the formats that take one sector.
fn fix_old(disk: &mut [u8]) {
    let len = disk.len();
    let (front, last) = disk.split_at_mut(len - SECTOR);
    if last.starts_with(b"JM") {
        fix_words(last, 64, 4);
    } else if last[262..264] == 0x1095_u16.to_le_bytes() {
        fix_words(last, 160, 318);
    }
    let sector = &mut front[len - 2 * SECTOR..];
    let words = u32::from_le_bytes(sector[8..12].try_into().unwrap()).min(128) as usize;
    if sector.starts_with(&nvidia::MAGIC) && words > 3 {
        sector[12..16].fill(0);
        let words = sector.chunks_exact(4).take(words);
        let sum = words
            .fold(0, |sum: u32, it| sum.wrapping_add(u32::from_le_bytes(it.try_into().unwrap())));
        sector[12..16].copy_from_slice(&sum.wrapping_neg().to_le_bytes());
    }
}

/// Corrects the checksum of a 64-bit disklabel.
fn fix_disklabel64(disk: &mut [u8]) {
    let count = u32::from_le_bytes(disk[524..528].try_into().unwrap()) as usize;
    if disk[512..516] == disklabel64::MAGIC.to_le_bytes() && count <= disklabel64::PARTITIONS {
        disk[516..520].fill(0);
        let crc = crc32fast::hash(&disk[512..712 + 64 * count]);
        disk[516..520].copy_from_slice(&crc.to_le_bytes());
    }
}

/// Corrects the checksums of a first GPT header and its table, so that what follows is reached.
fn fix_checksums(disk: &mut [u8]) {
    fix_imsm(disk);
    fix_old(disk);
    fix_disklabel64(disk);
    let header = &disk[SECTOR..2 * SECTOR];
    if header[..8] != gpt::SIGNATURE {
        return;
    }
    let number = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().unwrap());
    let small = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().unwrap());
    let start = number(72).saturating_mul(SECTOR as u64);
    let len = u64::from(small(80)).saturating_mul(u64::from(small(84)));
    let table = usize::try_from(start)
        .ok()
        .and_then(|start| disk.get(start..)?.get(..usize::try_from(len).ok()?));
    let crc = table.map(crc32fast::hash);
    let header = &mut disk[SECTOR..2 * SECTOR];
    if let Some(crc) = crc {
        header[88..92].copy_from_slice(&crc.to_le_bytes());
    }
    header[12..16].copy_from_slice(&92_u32.to_le_bytes());
    header[16..20].fill(0);
    let crc = crc32fast::hash(&header[..92]);
    header[16..20].copy_from_slice(&crc.to_le_bytes());
}
