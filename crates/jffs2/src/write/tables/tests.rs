use std::format;

use super::*;

/// A name for each number, all with the same checksum.
fn alike(number: u32) -> Vec<u8> {
    let mut name = format!("{number:08x}----").into_bytes();
    // Each bit of the last four bytes changes other bits of the checksum: solve for them.
    let at = name.len() - 4;
    name[at..].fill(0);
    let wanted = crc32(b"any") ^ crc32(&name);
    let mut rows: Vec<(u32, u32)> = (0..32)
        .map(|bit| {
            let mut flipped = name.clone();
            flipped[at + bit / 8] ^= 1 << (bit % 8);
            (crc32(&flipped) ^ crc32(&name), 1 << bit)
        })
        .collect();
    let (mut left, mut flips) = (wanted, 0);
    for bit in 0..32 {
        let pivot = rows.iter().position(|(sum, _)| sum >> bit & 1 == 1).unwrap();
        let (sum, source) = rows.swap_remove(pivot);
        for row in rows.iter_mut().filter(|row| row.0 >> bit & 1 == 1) {
            *row = (row.0 ^ sum, row.1 ^ source);
        }
        if left >> bit & 1 == 1 {
            (left, flips) = (left ^ sum, flips ^ source);
        }
    }
    name[at..].copy_from_slice(&flips.to_le_bytes());
    name
}

#[test]
fn names_made_to_have_one_hash_are_found_without_comparing_all() {
    const COUNT: u32 = 3000;
    let mut directory = Directory::default();
    let names: Vec<Vec<u8>> = (0..COUNT).map(alike).collect();
    assert!(names.iter().all(|name| hash(name) == hash(b"any")));
    crate::steps::take();
    for (ino, name) in (1..).zip(&names) {
        let (name, address) = (name.clone().into(), Address::new(u64::from(ino) * 4));
        let entry = Name { name, ino, version: ino, address, kind: 8, by_mkfs: false };
        assert!(directory.put(entry).is_none());
    }
    for (ino, name) in (1..).zip(&names) {
        assert_eq!(directory.lookup(name).map(|entry| entry.ino), Some(ino));
        let _found = directory.entry_at(hash(name), Address::new(u64::from(ino) * 4));
    }
    assert!(directory.lookup(b"any").is_none());
    assert_eq!(directory.from(Spot::at(0)).count(), COUNT as usize);
    for name in names.iter().step_by(2) {
        directory.take(name).unwrap();
    }
    for (number, name) in names.iter().enumerate() {
        assert_eq!(directory.entry(name).is_some(), number % 2 == 1);
    }
    let steps = crate::steps::take();
    assert!(steps < u64::from(COUNT) * 20, "{steps} names were looked at");
}
