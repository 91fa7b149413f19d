extern crate std;

use std::vec::Vec;

use super::*;

fn page(page: Page, flags: u8, rest: &[u8]) -> Vec<u8> {
    let mut bytes = header(page, flags, 7, rest.len()).unwrap().to_vec();
    bytes.extend(rest);
    bytes
}

fn configuration() -> Vec<u8> {
    let enclosure = EnclosureDescriptor {
        subenclosure: 0,
        types: 2,
        identifier: 0x5F1A_5C00_0000_0099,
        vendor: Text::new("FLYSCH"),
        product: Text::new("SHELF"),
        revision: Text::new("1"),
    };
    let types = [
        TypeDescriptor {
            element: ElementType::ArrayDeviceSlot,
            possible: 2,
            subenclosure: 0,
            text: b"Slots",
        },
        TypeDescriptor {
            element: ElementType::Cooling,
            possible: 1,
            subenclosure: 0,
            text: b"Fans",
        },
    ];
    let mut rest = enclosure.to_bytes().to_vec();
    rest.extend(types.iter().flat_map(TypeDescriptor::header));
    rest.extend(types.iter().flat_map(|one| one.text));
    page(Page::Configuration, 0, &rest)
}

#[test]
fn pages_are_read_as_they_were_written() {
    let bytes = configuration();
    let read = Configuration::parse(&bytes).unwrap();
    assert_eq!((read.generation, read.enclosure.identifier), (7, 0x5F1A_5C00_0000_0099));
    let types: Vec<_> = read.types().map(|one| (one.element, one.possible, one.text)).collect();
    let slots_of = (ElementType::ArrayDeviceSlot, 2, &b"Slots"[..]);
    assert_eq!(types, [slots_of, (ElementType::Cooling, 1, &b"Fans"[..])]);
    let status = page(Page::Status, 2, &[0, 0, 0, 0, 1, 0, 2, 0]);
    let status = StatusView::parse(&status).unwrap();
    assert_eq!((status.flags, status.entries()[1]), (2, [1, 0, 2, 0]));
    let names = page(Page::Descriptor, 0, b"\0\0\0\0\0\0\0\x03abc\0\0\0\x09cut");
    assert_eq!(descriptors(&names).unwrap().collect::<Vec<_>>(), [&b""[..], b"abc"]);
    let all = [
        SasSlot { element: 0, slot: 4, address: Some(0x5000_0000_0000_0001) },
        SasSlot { element: 1, slot: 5, address: None },
    ];
    let bytes: Vec<u8> = all.iter().flat_map(|one| one.to_bytes()).collect();
    let bytes = page(Page::Additional, 0, &bytes);
    assert_eq!(slots(&bytes).unwrap().collect::<Vec<_>>(), all);
}

#[test]
fn hostile_pages_are_refused_or_cut() {
    let whole = configuration();
    for length in 0..whole.len() {
        let cut = &whole[..length];
        assert!(Configuration::parse(cut).is_err(), "{length}");
        assert!(StatusView::parse(cut).is_err() && descriptors(cut).is_err());
    }
    // Any byte may have any value: nothing is read beyond the end.
    for at in 0..whole.len() {
        for value in [0, 1, 0x7F, 0xFF] {
            let mut bytes = whole.clone();
            bytes[at] = value;
            if let Ok(read) = Configuration::parse(&bytes) {
                assert!(read.types().count() <= 2 * 255);
            }
        }
    }
    let slot = SasSlot { element: 0, slot: 1, address: Some(1) }.to_bytes();
    for length in 0..slot.len() {
        let mut rest = slot[..length].to_vec();
        if length > 1 {
            rest[1] = (length - 2) as u8;
        }
        let bytes = page(Page::Additional, 0, &rest);
        assert!(slots(&bytes).unwrap().all(|one| one.address.is_none()));
    }
}
