use super::*;
use alloc::vec;

fn key() -> RpmbKey {
    RpmbKey::new(core::array::from_fn(|n| n as u8))
}

fn bytes_of(hex: &str) -> Vec<u8> {
    let digits = hex.as_bytes().chunks_exact(2);
    digits.map(|two| u8::from_str_radix(str::from_utf8(two).unwrap(), 16).unwrap()).collect()
}

#[test]
fn requests_are_signed_as_openssl_signs_them() {
    // openssl dgst -sha256 -mac HMAC -macopt hexkey:000102..1f over what the MAC covers: the last
    // 284 bytes of each frame, or the data, the fields and four zero bytes.
    const FRAMES: &str = "733f00d96cdf58cd4ba4148280d0d1d812e73c744cc90f28c5fed6fcd1a4e324";
    const SEGMENT: &str = "5f650b78f5f85c813e4f7a69cd9cf47aff17a53447b7dae4d81ca8f548c51bba";
    let write = |data| RpmbRequest::Write { key: key(), counter: 7, address: 4, data };
    let frames = write([[0xA0; 256], [0xA1; 256]].concat()).frames();
    assert_eq!(frames.len(), 1024);
    assert_eq!(frames[512 + 196..][..32], bytes_of(FRAMES));
    // Stuff bytes, key of the first frame, and the tail as mmc-utils and U-Boot lay it out.
    assert!(frames[..228].iter().all(|&byte| byte == 0));
    assert_eq!(frames[500..512], [0, 0, 0, 7, 0, 4, 0, 2, 0, 0, 0, 3]);
    let segment = write(vec![0xA0; 4096]).segment();
    assert_eq!(segment[..6], [2, 1, 0, 0, 0, 3]);
    assert_eq!(segment[32..], bytes_of(SEGMENT));
}

const READ: Nonce = [3; 16];

fn read(key: Option<RpmbKey>) -> RpmbRequest {
    RpmbRequest::Read { key, nonce: READ, address: 5, blocks: 2 }
}

/// An answer to [`read`] after `spoil` was done to its frames, signed by `signer`.
fn answer(signer: &RpmbKey, spoil: impl Fn(&mut RpmbFrame)) -> Vec<u8> {
    let mut bytes = Vec::new();
    for n in 0..2 {
        let mut frame = RpmbFrame {
            data: [n; 256],
            nonce: READ,
            address: 5,
            block_count: 2,
            ..RpmbFrame::new(RpmbMessage::DataReadResponse)
        };
        spoil(&mut frame);
        let mut out = [0; 512];
        frame.emit(&mut out);
        bytes.extend_from_slice(&out);
    }
    let mac = mac_of_frames(signer, &bytes).finalize().into_bytes();
    bytes[512 + 196..][..32].copy_from_slice(&mac);
    bytes
}

fn check(request: &RpmbRequest, frames: &[u8]) -> Result<RpmbAnswer, RpmbError> {
    Said::in_frames(request, frames)?.check(request, 256)
}

#[test]
fn only_the_new_answer_of_the_right_region_is_believed() {
    let good = answer(&key(), |_| ());
    let told = check(&read(Some(key())), &good).expect("a good answer");
    assert!(told.authenticated && told.counter.is_none());
    assert_eq!(told.data, [[0; 256], [1; 256]].concat());
    let other = RpmbKey::new([9; 32]);
    assert_eq!(check(&read(Some(other.clone())), &good), Err(RpmbError::Mac), "another key");
    let unproved = check(&read(None), &answer(&other, |_| ())).expect("passed on");
    assert!(!unproved.authenticated);
    let stale = answer(&key(), |frame| frame.nonce = [4; 16]);
    assert_eq!(check(&read(Some(key())), &stale), Err(RpmbError::Nonce), "an old answer");
    assert_eq!(check(&read(None), &stale), Err(RpmbError::Nonce));
    for byte in [228, 500, 512 + 228, 512 + 484, 512 + 505] {
        let mut changed = good.clone();
        changed[byte] ^= 1;
        assert!(check(&read(Some(key())), &changed).is_err(), "byte {byte}");
    }
    let elsewhere = answer(&key(), |frame| frame.address = 6);
    assert_eq!(check(&read(Some(key())), &elsewhere), Err(RpmbError::Blocks));
    let another = answer(&key(), |frame| frame.message = RpmbMessage::ReadCounterResponse);
    assert!(matches!(check(&read(Some(key())), &another), Err(RpmbError::Message(_))));
    let refused = answer(&key(), |frame| frame.result.set_status(RpmbStatus::AddressFailure));
    let refused = check(&read(Some(key())), &refused);
    assert_eq!(refused, Err(RpmbError::Refused(RpmbStatus::AddressFailure)));
    assert_eq!(check(&read(None), &[]), Err(RpmbError::Malformed));
}

#[test]
fn a_write_is_done_when_the_counter_went_on() {
    let request = RpmbRequest::Write { key: key(), counter: 7, address: 5, data: vec![0; 256] };
    let said = |counter| {
        let mut frame = RpmbFrame::new(RpmbMessage::DataWriteResponse);
        (frame.write_counter, frame.address) = (counter, 5);
        let mut bytes = [0; 512];
        frame.emit(&mut bytes);
        frame.key_mac = mac_of_frames(&key(), &bytes).finalize().into_bytes().into();
        frame.emit(&mut bytes);
        bytes
    };
    assert_eq!(check(&request, &said(8)).expect("done").counter, Some(8));
    let expected = RpmbError::Counter { expected: 8, got: 7 };
    assert_eq!(check(&request, &said(7)), Err(expected));
}

#[test]
fn what_a_region_cannot_take_is_not_sent() {
    let unit = RpmbUnit {
        advanced: false,
        block_length: 256,
        blocks_max: 4,
        regions: [131_072, 0, 131_072, 0],
    };
    let write = |len| RpmbRequest::Write { key: key(), counter: 0, address: 0, data: vec![0; len] };
    assert_eq!(write(1024).check(0, &unit), Ok(()));
    assert_eq!(write(1024).check(2, &unit), Ok(()));
    for len in [0, 255, 257, 1280] {
        assert_eq!(write(len).check(0, &unit), Err(RpmbError::Length), "{len}");
    }
    for region in [1, 3, 4, 255] {
        assert_eq!(write(256).check(region, &unit), Err(RpmbError::NoRegion(region)));
    }
}

#[test]
fn a_key_is_never_printed() {
    let command = RpmbCommand { region: 0, request: RpmbRequest::ProgramKey { key: key() } };
    let text = alloc::format!("{command:?}");
    assert!(text.contains("RpmbKey(..)") && !text.contains('1'), "{text}");
}
