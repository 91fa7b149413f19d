use flysch_random::SplitMix64;

use super::*;

/// A sequence of 32-bit words.
fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// A BAR of 16 KiB, like that of QEMU's NVMe device: all of it may be mapped.
#[test]
fn region_without_sparse_areas_is_mapped_whole() {
    let nvme = bytes(&[4096, 0xF, 0, 32, 0x4000, 0, 0, 0, 3 | 1 << 16, 0]);
    let region = Region::parse(&nvme).unwrap();
    assert_eq!((region.size, region.areas.as_slice()), (0x4000, &[(0, 0x4000)][..]));
    let unmapped = bytes(&[4096, 0x3, 7, 0, 256, 0, 0, 0x700]);
    let region = Region::parse(&unmapped).unwrap();
    assert_eq!((region.size, region.offset), (256, 0x700_0000_0000));
    assert!(region.areas.is_empty());
}

#[test]
fn sparse_areas_are_those_inside() {
    let head = [4096, 0xD, 0, 32, 0x4000, 0, 0, 0];
    let areas = [1 | 1 << 16, 0, 3, 0, 0, 0, 0x1000, 0, 0x3000, 0, 0x1000, 0, 0x3000, 0, 0x2000, 0];
    let region = Region::parse(&bytes(&[&head[..], &areas[..]].concat())).unwrap();
    assert_eq!(region.areas, [(0, 0x1000), (0x3000, 0x1000)], "the third ends outside");
    let none = [1 | 1 << 16, 0, 0, 0];
    let region = Region::parse(&bytes(&[&head[..], &none[..]].concat())).unwrap();
    assert!(region.areas.is_empty(), "sparse with nothing in it is nothing");
}

/// The kernel's answer behind an emulated Intel IOMMU.
#[test]
fn usable_addresses_are_read() {
    let answer = bytes(&[
        112,
        3,
        0x4020_1000,
        0,
        24,
        0, // page sizes, capabilities at 24
        3 | 1 << 16,
        36,
        65_535, // maps left
        1 | 1 << 16,
        0,
        2,
        0,
        0,
        0,
        0xFEDF_FFFF,
        0,
        0xFEF0_0000,
        0,
        0xFFFF_FFFF,
        0xFFFF,
    ]);
    let iommu = Iommu::parse(&answer).unwrap();
    assert_eq!(iommu.ranges, [(0, 0xFEDF_FFFF), (0xFEF0_0000, 0xFFFF_FFFF_FFFF)]);
    assert_eq!((iommu.maps_left, iommu.page_sizes), (Some(65_535), 0x4020_1000));
}

#[test]
fn broken_chains_are_refused() {
    let region = |cap: u32, rest: &[u32]| {
        let head = [4096, 0x8, 0, cap, 0x1000, 0, 0, 0];
        Region::parse(&bytes(&[&head[..], rest].concat()))
    };
    assert_eq!(region(32, &[9, 32]), None, "a circle of one");
    assert_eq!(region(32, &[9, 40, 9, 32]), None, "a circle of two");
    assert_eq!(region(36, &[9]), None, "beyond the end");
    assert_eq!(region(u32::MAX, &[9, 0]), None);
    assert_eq!(region(32, &[1, 0, u32::MAX, 0]), None, "more areas than there is room");
    assert_eq!(region(32, &[1, 0, 2, 0, 0, 0, 0, 0]), None, "areas beyond the end");
    assert_eq!(Region::parse(&[0; 31]), None);
    let wraps = bytes(&[4096, 0, 0, 0, u32::MAX, u32::MAX, 1, 0]);
    assert_eq!(Region::parse(&wraps), None);
    assert_eq!(Iommu::parse(&bytes(&[24, 2, 0, 0, 20, 0])), None);
}

/// Whatever the words are, the parsers terminate without a panic.
#[test]
fn random_answers_do_no_harm() {
    let mut random = SplitMix64::new(1);
    for _ in 0..20_000 {
        let words: Vec<u32> = (0..24)
            .map(|_| {
                let word = random.bits() as u32;
                if word.is_multiple_of(3) { word } else { word % 100 }
            })
            .collect();
        let answer = bytes(&words);
        if let Some(region) = Region::parse(&answer) {
            assert!(region.areas.iter().all(|&(at, len)| at + len <= region.size));
        }
        let _ = Iommu::parse(&answer);
    }
}
