use super::*;

#[test]
fn versions_are_read_from_what_qemu_says() {
    let debian = "QEMU emulator version 10.0.2 (Debian 1:10.0.2+ds-2~bpo12+1)\nCopyright";
    assert_eq!(parse_version(debian), Some((10, 0)));
    assert_eq!(parse_version("QEMU emulator version 8.2.0"), Some((8, 2)));
    assert_eq!(parse_version("something else"), None);
}

#[test]
fn a_debian_machine_names_its_mirror() {
    if Apt::find(true).release.is_some() {
        let source = source("trixie").expect("apt has sources");
        assert!(source.ends_with("/debian trixie main"), "{source}");
    }
}

#[test]
fn a_missing_tool_is_named_with_its_remedy() {
    let mut needs = Needs::default();
    needs.missing.insert("fio", "apt-get install fio".into());
    assert_eq!(needs.lacks(&["qemu"]), None);
    let lack = needs.lacks(&["qemu", "fio"]).unwrap();
    assert!(lack.contains("fio") && lack.contains("apt-get install"));
}
