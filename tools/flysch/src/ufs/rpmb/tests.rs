use super::*;

#[test]
fn keys_come_as_digits_or_in_files_and_are_never_echoed() {
    let hex = "000102030405060708090a0B0c0d0e0f101112131415161718191a1b1c1d1e1f";
    let bytes: Vec<u8> = (0..32).collect();
    let expected = RpmbKey::new(bytes.clone().try_into().unwrap());
    assert_eq!(key(hex).unwrap(), expected);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key");
    for content in [bytes, format!("{hex}\n").into_bytes()] {
        fs::write(&path, content).unwrap();
        assert_eq!(key(path.to_str().unwrap()).unwrap(), expected);
    }
    fs::write(&path, [0; 33]).unwrap();
    let short = &hex[..63];
    for wrong in [short, path.to_str().unwrap()] {
        let told = key(wrong).unwrap_err().to_string();
        assert!(told.starts_with("--key: ") && !told.contains(short), "{told}");
    }
}

#[test]
fn areas_are_read_as_they_are_written() {
    let read = area("0x10+8:awp:open").unwrap();
    assert_eq!((read.lba, read.blocks, read.protected), (16, 8, false));
    assert_eq!(read.protect_type, WriteProtectType::NonVolatileAfterPower);
    assert!(area("7+1").unwrap().protected);
    for wrong in ["", "7", "7+", "7+x", "7+1:later", "1+99999999999"] {
        assert!(area(wrong).unwrap_err().contains("not an area such as"), "{wrong}");
    }
}
