use std::string::ToString;
use std::vec;
use std::vec::Vec;

use flysch_api::flash::{self, Corrected, Flash, FlashGeometry};
use flysch_api::volume::{LebState, Volume};
use flysch_random::SplitMix64;
use flysch_wire::ubi::{
    Compatibility, EcHeader, LAYOUT_VOLUME, VidHeader, VolumeKind, VolumeRecord, crc32, fastmap,
};

use super::*;
use crate::blocks::Claim;

mod votes;

const PEB_SIZE: u32 = 16384;
const LEB_SIZE: u32 = PEB_SIZE - 128;

/// A flash that is a byte vector.
#[derive(Clone, Debug)]
struct Memory {
    geometry: FlashGeometry,
    bytes: Vec<u8>,
}

impl Memory {
    fn new(bytes: Vec<u8>) -> Self {
        Self { geometry: FlashGeometry::nor(bytes.len() as u64, PEB_SIZE), bytes }
    }

    fn erased(pebs: u32) -> Self {
        Self::new(vec![0xff; (pebs * PEB_SIZE) as usize])
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn peb(&mut self, peb: u32) -> &mut [u8] {
        &mut self.bytes[(peb * PEB_SIZE) as usize..][..PEB_SIZE as usize]
    }

    fn free(&mut self, peb: u32) {
        let header = EcHeader {
            erase_counter: 1,
            vid_header_offset: 64,
            data_offset: 128,
            image_sequence: 7,
        };
        self.put((peb * PEB_SIZE) as usize, &header.emit());
    }

    fn leb(&mut self, peb: u32, vid: VidHeader, data: &[u8]) {
        self.free(peb);
        let start = (peb * PEB_SIZE) as usize;
        self.put(start + 64, &vid.emit());
        self.put(start + 128, data);
    }

    fn image(&self) -> UbiImage {
        find_images(self, None)[0]
    }

    fn attach(&self) -> Ubi<Memory> {
        Ubi::attach(self.clone(), self.image(), &AttachOptions::default()).unwrap()
    }
}

impl Flash for Memory {
    fn geometry(&self) -> &FlashGeometry {
        &self.geometry
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<Corrected, flash::FlashError> {
        self.geometry.check(offset, buffer.len())?;
        buffer.copy_from_slice(&self.bytes[offset as usize..][..buffer.len()]);
        Ok(Corrected::NONE)
    }
}

fn dynamic(volume: u32, lnum: u32, sequence: u64) -> VidHeader {
    VidHeader {
        kind: VolumeKind::Dynamic,
        copy: false,
        compatibility: Compatibility::None,
        volume,
        lnum,
        data_size: 0,
        used_ebs: 0,
        data_pad: 0,
        data_crc: 0,
        sequence,
    }
}

fn layout(lnum: u32, sequence: u64) -> VidHeader {
    let compatibility = Compatibility::Reject;
    VidHeader { compatibility, ..dynamic(LAYOUT_VOLUME, lnum, sequence) }
}

fn copied(lnum: u32, sequence: u64, data: &[u8]) -> VidHeader {
    VidHeader {
        copy: true,
        data_size: data.len() as u32,
        data_crc: crc32(data),
        ..dynamic(0, lnum, sequence)
    }
}

fn table(records: &[Option<VolumeRecord>]) -> Vec<u8> {
    let count = flysch_wire::ubi::records_max(LEB_SIZE) as usize;
    let mut bytes = Vec::new();
    for id in 0..count {
        let record = records.get(id).copied().flatten();
        bytes.extend_from_slice(&record.map_or(VolumeRecord::emit_empty(), |r| r.emit()));
    }
    bytes
}

/// Eight blocks: two of the table, LEB 0 and 2 of a volume of five, the rest free.
fn sample() -> Memory {
    let mut flash = Memory::erased(8);
    let records = table(&[VolumeRecord::new(b"root", 5)]);
    flash.leb(0, layout(0, 1), &records);
    flash.leb(1, layout(1, 2), &records);
    flash.leb(2, dynamic(0, 0, 3), b"zero");
    flash.leb(3, dynamic(0, 2, 4), b"two");
    for peb in 4..8 {
        flash.free(peb);
    }
    flash
}

fn read(ubi: &Ubi<Memory>, lnum: u32) -> [u8; 4] {
    let mut bytes = [0; 4];
    let _ = Volume::read(&ubi.volume(0).unwrap(), lnum, 0, &mut bytes).unwrap();
    bytes
}

#[test]
fn a_clean_image_attaches_without_findings() {
    let ubi = sample().attach();
    assert_eq!(ubi.findings(), []);
    assert_eq!(ubi.sequence_max(), 4);
    assert_eq!((ubi.leb_size(), ubi.image().image_sequence), (LEB_SIZE, 7));
    let volume = ubi.volume(0).unwrap();
    assert_eq!(volume.info().name, b"root");
    assert_eq!(Volume::geometry(&volume).lebs, 5);
    assert_eq!(volume.state(2), LebState::Mapped(Some(3)));
    assert_eq!(volume.state(1), LebState::Unmapped);
    assert_eq!((&read(&ubi, 0), read(&ubi, 1)), (b"zero", [0xff; 4]));
    let beyond = Volume::read(&volume, 5, 0, &mut [0]);
    assert_eq!(beyond, Err(flash::FlashError::OutOfRange));
    let mut bytes = [0; 8];
    let _ = Flash::read(&volume, u64::from(LEB_SIZE) * 2 - 4, &mut bytes).unwrap();
    assert_eq!(&bytes, b"\xff\xff\xff\xfftwo\xff", "LEBs lie one behind the other");
}

#[test]
fn the_newer_copy_wins_unless_it_was_not_finished() {
    let mut flash = sample();
    flash.leb(4, dynamic(0, 0, 9), b"new!");
    assert_eq!(&read(&flash.attach(), 0), b"new!", "no copy flag: newer wins");
    flash.leb(4, copied(0, 9, b"new!"), b"new!");
    let ubi = flash.attach();
    assert_eq!(&read(&ubi, 0), b"new!", "finished copy");
    assert_eq!(ubi.blocks()[2].content, Content::Stale);
    flash.leb(4, copied(0, 9, b"new!"), b"new?");
    let ubi = flash.attach();
    assert_eq!(&read(&ubi, 0), b"zero", "unfinished copy");
    assert_eq!(ubi.findings().len(), 1);
    flash.leb(5, copied(0, 10, b"next"), b"next");
    assert_eq!(&read(&flash.attach(), 0), b"next", "three copies");
}

#[test]
fn many_unfinished_copies_of_a_leb_are_chosen_from() {
    // With time that is quadratic in their number this takes a minute.

    const COPIES: u64 = 1 << 17;
    let mut flash = sample();
    flash.leb(4, copied(0, 9, b"new!"), b"new?");
    let reader = crate::blocks::Reader::new(&flash, flash.image());
    let offsets = Offsets { vid_header: 64, data: 128 };
    let mut attach = crate::scan::Attach::new(reader, (offsets, 7), crate::scan::Purpose::Read);
    attach.scan().unwrap();
    // As if that many blocks held what block 4 holds.
    let unfinished = (0..COPIES).map(|at| Claim { peb: 4, vid: copied(0, 9 + at, b"new!") });
    attach.claims.entry((0, 0)).or_default().extend(unfinished);
    attach.choose();
    assert_eq!(attach.winner(0, 0).map(|claim| claim.peb), Some(2));
}

#[test]
fn a_lost_copy_of_the_table_costs_nothing() {
    for lost in 0..2 {
        let mut flash = sample();
        flash.peb(lost).fill(0xff);
        let ubi = flash.attach();
        assert_eq!(ubi.volumes()[0].name, b"root");
        assert_eq!(ubi.findings().len(), 1, "{:?}", ubi.findings());
        assert!(ubi.findings()[0].to_string().contains("copy"), "{}", ubi.findings()[0]);
    }
    let mut flash = sample();
    flash.peb(0).fill(0xff);
    flash.peb(1).fill(0xff);
    let ubi = flash.attach();
    assert_eq!((ubi.volumes()[0].id, ubi.volumes()[0].reserved_pebs), (0, 3));
    assert_eq!(&read(&ubi, 0), b"zero");
}

#[test]
fn a_bad_record_is_taken_from_the_other_copy() {
    let mut flash = sample();
    flash.peb(0)[128 + 20] ^= 1;
    let ubi = flash.attach();
    assert_eq!(ubi.volumes()[0].name, b"root");
    assert!(ubi.findings()[0].to_string().contains("record 0"), "{:?}", ubi.findings());
}

/// Names of the volumes, by id.
fn names(ubi: &Ubi<Memory>) -> Vec<(u32, &[u8])> {
    ubi.volumes().iter().map(|volume| (volume.id, &volume.name[..])).collect()
}

/// [`sample`] with these two tables; the records that `bad` names, by copy and id, are damaged.
fn tables(copies: [&[&[u8]]; 2], bad: &[(u32, usize)]) -> Memory {
    let mut flash = sample();
    for (lnum, copy) in (0..).zip(copies) {
        let records: Vec<_> = copy.iter().map(|name| VolumeRecord::new(name, 5)).collect();
        flash.leb(lnum, layout(lnum, 1), &table(&records));
    }
    for &(lnum, id) in bad {
        flash.peb(lnum)[128 + id * 172 + 20] ^= 1;
    }
    flash
}

#[test]
fn one_whole_copy_of_the_table_counts_and_nothing_of_the_other() {
    let (old, new): (&[&[u8]], &[&[u8]]) = (&[b"a", b"b"], &[b"b", b"a", b"c"]);
    let named = |names: &[&'static [u8]]| (0..).zip(names.to_vec()).collect::<Vec<(u32, &[u8])>>();
    let attached = tables([old, new], &[]).attach();
    assert_eq!(names(&attached), named(&[b"a", b"b"]));
    // Record by record this would be two volumes "b".
    let attached = tables([old, new], &[(0, 0)]).attach();
    assert_eq!(names(&attached), named(&[b"b", b"a", b"c"]));
    // Neither is whole.
    let attached = tables([old, old], &[(0, 0), (1, 1)]).attach();
    assert_eq!(names(&attached), named(&[b"a", b"b"]));
    assert!(attached.findings().iter().any(|it| it.problem.contains("neither copy is whole")));
    // A volume whose record is lost is known by its blocks.
    let attached = tables([old, old], &[(0, 0), (1, 0)]).attach();
    assert_eq!(names(&attached), [(0, &b""[..]), (1, b"b")]);
    assert_eq!(&read(&attached, 0), b"zero");
    assert!(attached.findings().iter().any(|it| it.severity == Severity::Lost));
}

#[test]
fn damaged_headers_cost_one_block_and_are_named() {
    let mut flash = sample();
    flash.peb(2)[10] ^= 4;
    let ubi = flash.attach();
    assert_eq!(&read(&ubi, 0), b"zero", "the data does not need the erase counter");
    assert_eq!(ubi.findings()[0].structure, "EC header");
    assert_eq!(ubi.findings()[0].place.peb, Some(2));
    assert_eq!(ubi.blocks()[2].erase_counter, None);
    assert_eq!(ubi.findings()[0].severity, Severity::Inconsistent);

    let mut flash = sample();
    let is_free = |block: &crate::Block| matches!(block.content, Content::Free);
    let free = flash.attach().blocks().iter().position(is_free).unwrap();
    flash.peb(free as u32)[10] ^= 4;
    assert_eq!(flash.attach().findings()[0].severity, Severity::Note, "nothing is in the block");

    // Power went while a suspected block was tried, or marked bad after that.
    for pattern in [0xA5, 0x5A, 0x00] {
        let mut flash = sample();
        flash.peb(free as u32).fill(pattern);
        let ubi = flash.attach();
        assert!(ubi.findings().iter().all(|it| it.severity == Severity::Note), "{pattern:#x}");
        assert_eq!(ubi.blocks()[free].content, Content::Erased);
    }

    let mut flash = sample();
    flash.peb(2)[70] ^= 4;
    let ubi = flash.attach();
    assert_eq!(ubi.volume(0).unwrap().state(0), LebState::Unmapped);
    assert_eq!(&read(&ubi, 2), b"two\xff");
    assert_eq!(ubi.findings()[0].severity, Severity::Lost);
    assert!(matches!(ubi.blocks()[2].content, Content::Corrupt(_)));

    // Both headers over data: it may be damage, or half an erase.
    flash.peb(2)[10] ^= 4;
    let ubi = flash.attach();
    let worst = ubi.findings().iter().find(|it| it.severity == Severity::Lost).unwrap();
    assert!(worst.problem.contains("an erase that lost power"), "{worst}");
    assert_eq!(worst.place.peb, Some(2));
}

#[test]
fn images_are_found_behind_a_prefix_truncated_and_shuffled() {
    let flash = sample();
    let mut moved = vec![0x5a; 65536 + 512];
    moved.extend_from_slice(&flash.bytes);
    let moved = Memory::new(moved);
    assert_eq!(moved.image().peb_size, PEB_SIZE);
    assert_eq!(&read(&moved.attach(), 0), b"zero");

    let cut = Memory::new(flash.bytes[..PEB_SIZE as usize * 3 + 9].to_vec());
    let ubi = cut.attach();
    assert_eq!(&read(&ubi, 0), b"zero");
    assert_eq!(ubi.volume(0).unwrap().state(2), LebState::Unmapped);

    let mut pebs: Vec<&[u8]> = flash.bytes.chunks(PEB_SIZE as usize).collect();
    pebs.reverse();
    pebs.swap(1, 3);
    let shuffled = Memory::new(pebs.concat());
    assert_eq!(&read(&shuffled.attach(), 2), b"two\xff");
}

#[test]
fn images_one_behind_the_other_are_told_apart() {
    let first = sample();
    let mut second = sample();
    for peb in 0..8 {
        let mut ec = EcHeader::parse(second.peb(peb)).unwrap();
        ec.image_sequence = 8;
        second.put((peb * PEB_SIZE) as usize, &ec.emit());
    }
    let both = Memory::new([first.bytes.clone(), second.bytes].concat());
    let images = find_images(&both, None);
    assert_eq!(
        images.iter().map(|i| (i.pebs, i.image_sequence)).collect::<Vec<_>>(),
        [(8, 7), (8, 8)]
    );

    // Made with one fixed image sequence number and with sequence numbers 0, as ubinize does.
    let mut plain = sample();
    for (peb, vid) in [(0, layout(0, 0)), (1, layout(1, 0)), (2, dynamic(0, 0, 0))] {
        plain.put((peb * PEB_SIZE) as usize + 64, &vid.emit());
    }
    let both = Memory::new([plain.bytes.clone(), plain.bytes].concat());
    let images = find_images(&both, None);
    assert_eq!(
        images.iter().map(|i| (i.start, i.pebs)).collect::<Vec<_>>(),
        [(0, 8), (131_072, 8)]
    );
}

#[test]
fn blocks_without_an_image_number_belong_to_the_image_they_are_in() {
    let mut flash = sample();
    for peb in [0, 2, 3, 4, 7] {
        let mut ec = EcHeader::parse(flash.peb(peb)).unwrap();
        ec.image_sequence = 0;
        flash.put((peb * PEB_SIZE) as usize, &ec.emit());
    }
    let images = find_images(&flash, None);
    assert_eq!(images.iter().map(|i| (i.pebs, i.image_sequence)).collect::<Vec<_>>(), [(8, 7)]);
    let ubi = flash.attach();
    assert_eq!((ubi.findings(), ubi.image().image_sequence), (&[][..], 7));
    assert_eq!((&read(&ubi, 0), &read(&ubi, 2)), (b"zero", b"two\xff"));
    assert_eq!(ubi.blocks(), sample().attach().blocks());
}

#[test]
fn static_volumes_know_their_length_and_their_damage() {
    let mut flash = Memory::erased(6);
    let mut record = VolumeRecord::new(b"kernel", 3).unwrap();
    record.kind = VolumeKind::Static;
    let records = table(&[Some(record)]);
    flash.leb(0, layout(0, 1), &records);
    flash.leb(1, layout(1, 2), &records);
    let full = vec![0xab; LEB_SIZE as usize];
    for (peb, lnum, data) in [(2, 0, &full[..]), (3, 1, &b"tail"[..])] {
        let vid = VidHeader {
            kind: VolumeKind::Static,
            used_ebs: 2,
            data_size: data.len() as u32,
            data_crc: crc32(data),
            ..dynamic(0, lnum, 3)
        };
        flash.leb(peb, vid, data);
    }
    let volume = flash.attach().volume(0).unwrap();
    assert_eq!(volume.info().used_bytes, Some(u64::from(LEB_SIZE) + 4));
    assert_eq!(volume.verify(), []);
    flash.peb(3)[129] ^= 1;
    let findings = flash.attach().volume(0).unwrap().verify();
    assert_eq!((findings.len(), findings[0].place.peb), (1, Some(3)));
    flash.peb(2)[64..128].fill(0xff);
    assert!(flash.attach().findings().iter().any(|f| f.to_string().contains("1 of 2 blocks")));
}

/// A static volume of three LEBs whose blocks have these headers.
fn fixed(headers: &[VidHeader]) -> Memory {
    let mut flash = Memory::erased(8);
    let mut record = VolumeRecord::new(b"kernel", 3).unwrap();
    record.kind = VolumeKind::Static;
    let records = table(&[Some(record)]);
    flash.leb(0, layout(0, 1), &records);
    flash.leb(1, layout(1, 2), &records);
    for (peb, vid) in (2..).zip(headers) {
        flash.leb(peb, *vid, b"tail");
    }
    (2 + headers.len() as u32..8).for_each(|peb| flash.free(peb));
    flash
}

/// The header of a static volume's block that holds 4 bytes, or all if others follow.
fn part(lnum: u32, used_ebs: u32, sequence: u64) -> VidHeader {
    let data_size = if lnum + 1 < used_ebs { LEB_SIZE } else { 4 };
    let plain = dynamic(0, lnum, sequence);
    VidHeader { kind: VolumeKind::Static, used_ebs, data_size, data_crc: crc32(b"tail"), ..plain }
}

#[test]
fn blocks_that_contradict_the_table_are_named_and_measure_nothing() {
    let whole = u64::from(LEB_SIZE);
    for (headers, length, peb, problem) in [
        // The last LEB says that it belongs to a dynamic volume: it has no used_ebs.
        (vec![dynamic(0, 0, 3)], whole, 2, "a block of a dynamic volume, but volume 0 is static"),
        (vec![part(0, 2, 3), dynamic(0, 1, 4)], 2 * whole, 3, "a block of a dynamic volume"),
        (vec![part(0, 1, 3), part(1, 2, 5)], whole + 4, 2, "used_ebs 1, but 2 in volume 0"),
        (vec![part(0, 1, 3), part(1, u32::MAX, 5)], 4, 3, "used_ebs 4294967295, but 1"),
        (vec![VidHeader { data_pad: 8, ..part(0, 1, 3) }], whole, 2, "data_pad 8, but that of"),
    ] {
        let flash = fixed(&headers);
        let ubi = flash.attach();
        assert_eq!(ubi.volumes()[0].used_bytes, Some(length), "{headers:?}");
        let found = ubi.findings().iter().find(|it| it.problem.contains(problem));
        let found = found.unwrap_or_else(|| panic!("{:?}", ubi.findings()));
        assert_eq!((found.severity, found.place.peb), (Severity::Inconsistent, Some(peb)));
    }
    let mut flash = sample();
    flash.leb(2, part(0, 1, 3), b"zero");
    let ubi = flash.attach();
    assert!(ubi.findings()[0].problem.contains("a block of a static volume"));
    assert_eq!(&read(&ubi, 0), b"zero", "it is served nevertheless");
}

#[test]
fn a_fastmap_that_contradicts_the_table_is_no_worse() {
    let mut flash = with_fastmap();
    let mut record = VolumeRecord::new(b"root", 5).unwrap();
    record.kind = VolumeKind::Static;
    let records = table(&[Some(record)]);
    (0..2).for_each(|peb| flash.leb(peb, layout(peb, 1), &records));
    let options = AttachOptions { fastmap: FastmapUse::Use };
    let ubi = Ubi::attach(flash.clone(), flash.image(), &options).unwrap();
    assert!(ubi.attached_by_fastmap());
    let named: Vec<_> = ubi.findings().iter().filter_map(|it| it.place.peb).collect();
    assert_eq!(named, [2, 3], "{:?}", ubi.findings());
}

#[test]
fn a_volume_is_not_larger_than_a_flash_can_be() {
    let most = u64::from(LEB_SIZE) * (8 + (1 << 18));
    for (kind, used_ebs) in [(VolumeKind::Dynamic, 0), (VolumeKind::Static, u32::MAX)] {
        let mut flash = sample();
        let mut record = VolumeRecord::new(b"root", u32::MAX).unwrap();
        record.kind = kind;
        let records = table(&[Some(record)]);
        (0..2).for_each(|peb| flash.leb(peb, layout(peb, 1), &records));
        let far = i32::MAX as u32;
        let data_size = if used_ebs == 0 { 0 } else { LEB_SIZE };
        for (peb, lnum) in [(2, 0), (3, far)] {
            let vid = VidHeader { kind, used_ebs, data_size, ..dynamic(0, lnum, 3) };
            flash.leb(peb, vid, b"zero");
        }
        let ubi = flash.attach();
        let volume = ubi.volume(0).unwrap();
        assert_eq!(Flash::geometry(&volume).size, most);
        let lebs = Volume::geometry(&volume).lebs;
        assert_eq!(u64::from(lebs) * u64::from(LEB_SIZE), most);
        let beyond = Volume::read(&volume, lebs, 0, &mut [0]);
        assert_eq!(beyond, Err(flash::FlashError::OutOfRange));
        assert_eq!(&read(&ubi, 0), b"zero");
    }
}

/// Adds a fastmap in PEB 7 to [`sample`]; PEB 6 is in the pool.
fn with_fastmap() -> Memory {
    let mut flash = sample();
    let mut data = Vec::new();
    let header = fastmap::Header { free: 2, used: 4, scrub: 0, bad: 0, erase: 0, volumes: 2 };
    data.extend_from_slice(&header.emit());
    let pool = fastmap::Pool { size: 1, size_max: 8, pebs: [6; fastmap::POOL_MAX] };
    data.extend_from_slice(&pool.emit());
    data.extend_from_slice(&fastmap::Pool { size: 0, ..pool }.emit());
    for peb in [4, 5, 0, 1, 2, 3] {
        data.extend_from_slice(&fastmap::EraseCounter { peb, erase_counter: 1 }.emit());
    }
    for (volume, map) in [(0, &[2, u32::MAX, 3, u32::MAX, u32::MAX][..]), (LAYOUT_VOLUME, &[0, 1])]
    {
        let kind = VolumeKind::Dynamic;
        let header = fastmap::FastmapVolume {
            volume,
            kind,
            data_pad: 0,
            used_ebs: 0,
            last_eb_bytes: LEB_SIZE,
        };
        data.extend_from_slice(&header.emit());
        let reserved_pebs = map.len() as u32;
        data.extend_from_slice(&fastmap::MapHeader { reserved_pebs }.emit());
        for peb in map {
            data.extend_from_slice(&peb.to_be_bytes());
        }
    }
    let mut superblock = fastmap::Superblock {
        data_crc: 0,
        used_blocks: 1,
        locations: [0; 32],
        erase_counters: [1; 32],
        sequence: 5,
    };
    superblock.locations[0] = 7;
    let mut all = superblock.emit().to_vec();
    all.extend_from_slice(&data);
    all.resize(LEB_SIZE as usize, 0);
    superblock.data_crc = crc32(&all);
    all[..fastmap::Superblock::SIZE].copy_from_slice(&superblock.emit());
    let compatibility = Compatibility::Delete;
    let vid = VidHeader { compatibility, ..dynamic(fastmap::SUPERBLOCK_VOLUME, 0, 5) };
    flash.leb(7, vid, &all);
    flash
}

#[test]
fn a_fastmap_shows_what_a_scan_shows() {
    let attach = |flash: &Memory| {
        let options = AttachOptions { fastmap: FastmapUse::Use };
        Ubi::attach(flash.clone(), flash.image(), &options).unwrap()
    };
    let mut flash = with_fastmap();
    let ubi = attach(&flash);
    assert!(ubi.attached_by_fastmap(), "{:?}", ubi.findings());
    assert_eq!(ubi.volumes(), flash.attach().volumes());
    assert_eq!(ubi.blocks(), flash.attach().blocks());

    flash.leb(6, dynamic(0, 2, 6), b"pool");
    assert_eq!(&read(&attach(&flash), 2), b"pool", "written since, from the pool");

    flash.peb(7)[128 + 400] ^= 1;
    let ubi = attach(&flash);
    assert!(!ubi.attached_by_fastmap());
    assert!(ubi.findings()[0].to_string().contains("CRC"), "{:?}", ubi.findings());
    assert_eq!(&read(&ubi, 2), b"pool");
}

#[test]
fn nothing_to_attach_is_said() {
    let flash = Memory::erased(4);
    assert_eq!(find_images(&flash, None), []);
    let image = UbiImage { start: 0, peb_size: PEB_SIZE, pebs: 4, image_sequence: 0 };
    let error = Ubi::attach(flash, image, &AttachOptions::default()).unwrap_err();
    assert_eq!(error, AttachError::NoHeaders);
}

#[test]
fn flipped_bits_anywhere_never_panic() {
    let flash = with_fastmap();
    let mut random = SplitMix64::new(1);
    for _ in 0..400 {
        let mut broken = flash.clone();
        for _ in 0..8 {
            let peb = random.below(8) as u32;
            let at = random.below(600) as usize;
            broken.peb(peb)[at] ^= 1 << random.below(8);
        }
        for image in find_images(&broken, None) {
            for fastmap in [FastmapUse::Use, FastmapUse::Ignore] {
                let Ok(ubi) = Ubi::attach(broken.clone(), image, &AttachOptions { fastmap }) else {
                    continue;
                };
                for info in ubi.volumes() {
                    let volume = ubi.volume(info.id).unwrap();
                    let _ = (volume.verify(), Volume::read(&volume, 0, 0, &mut [0; 64]));
                }
            }
        }
    }
}
