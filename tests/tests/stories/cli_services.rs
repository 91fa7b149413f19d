//! `flysch ufs rpmb|ffu|purge|refresh|history|timestamp|bootlun|crypto`: their output, their
//! prerequisites, and their errors.

use std::fs;
use std::path::Path;

use flysch_models::ufs::firmware_image;
use flysch_tests::command::{Ran, run_in};
use serde_json::Value;

const HEX: &str = "5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a";

/// A folder with a key, the same key in hexadecimal, another key, and two blocks.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let files: [(&str, Vec<u8>); 5] = [
        ("key", vec![0x5A; 32]),
        ("digits", format!("{HEX}\n").into_bytes()),
        ("other", vec![1; 32]),
        ("two", (0..512).map(|n| n as u8).collect()),
        ("firmware", firmware_image(*b"0002", &[7; 70_000])),
    ];
    for (name, content) in files {
        fs::write(folder.path().join(name), content).unwrap();
    }
    folder
}

fn printed(words: &str, folder: &Path) -> String {
    let ran = run_in(words, folder);
    assert_eq!((ran.status, ran.stderr.as_str()), (0, ""), "{words}: {}", ran.stdout);
    ran.stdout
}

fn json(words: &str, folder: &Path) -> Value {
    serde_json::from_str(&printed(&format!("{words} --json"), folder)).unwrap()
}

/// One line, the right status, all parts of the message.
fn refused(words: &str, folder: &Path, status: i32, parts: &[&str]) {
    let Ran { status: is, stderr, .. } = run_in(words, folder);
    assert_eq!(is, status, "{words}: {stderr}");
    assert_eq!(stderr.trim_end().lines().count(), 1, "{words}: {stderr}");
    assert!(!stderr.contains(HEX), "{words}: a key is echoed");
    for part in parts {
        assert!(stderr.contains(part), "{words}: `{part}` is not in {stderr}");
    }
}

#[test]
fn rpmb_is_read_and_written_with_keys_from_files_and_digits() {
    let folder = folder();
    let here = folder.path();
    let on = "--on ufs,rpmb-key=key,size=64M";
    let info = json(&format!("ufs rpmb info {on}"), here);
    assert_eq!((info["mode"].as_str(), info["blocks_max"].as_u64()), (Some("normal"), Some(64)));
    let advanced = json("ufs rpmb --on ufs,rpmb=advanced", here);
    assert_eq!(advanced["block_bytes"], 4096);
    for key in ["key", "digits", HEX] {
        let counter = json(&format!("ufs rpmb counter --key {key} {on}"), here);
        assert_eq!((&counter["counter"], &counter["authenticated"]), (&0.into(), &true.into()));
    }
    let unproved = printed(&format!("ufs rpmb counter {on}"), here);
    assert!(unproved.contains("proved         no"), "{unproved}");
    let written = json(&format!("ufs rpmb write two --address 7 --key key {on}"), here);
    assert_eq!((&written["blocks"], &written["counter"]), (&2.into(), &1.into()));
    let read = format!("ufs rpmb read --blocks 100 --key key -o out {on}");
    assert_eq!(printed(&read, here), "");
    assert_eq!(fs::read(here.join("out")).unwrap(), [0; 25_600]);
    let set = json(&format!("ufs rpmb protect 0 8+8:awp 64+1:power:open --key key {on}"), here);
    assert_eq!(set["areas"], 2);
    assert_eq!(printed(&format!("ufs rpmb protection 0 --key key {on}"), here), "no area\n");
    let programmed = printed("ufs rpmb program-key --key key --yes", here);
    assert_eq!(programmed, "the key is programmed\n");
}

#[test]
fn rpmb_says_what_is_wrong_and_what_to_do() {
    let folder = folder();
    let here = folder.path();
    let on = "--on ufs,rpmb-key=key,size=64M";
    for (words, status, parts) in [
        ("counter --key other", 1, &["RPMB region 0", "MAC", "is it the key"][..]),
        ("write two --key other", 1, &["RPMB region 0", "MAC"][..]),
        ("write two", 2, &["--key"][..]),
        ("write key --key key", 1, &["key: 32 bytes", "256", "pad"][..]),
        ("write two --key key --address 16383", 1, &["Address failure"][..]),
        ("counter --region 1", 1, &["region 1 is not enabled", "rpmb info"][..]),
        ("counter --key 5a5a", 1, &["--key", "64 hexadecimal digits"][..]),
        ("program-key --key key", 2, &["never be changed", "--yes"][..]),
        ("program-key --key key --yes", 1, &["stays"][..]),
        ("protect 9 0+1 --key key", 1, &["Invalid Secure Write Protect"][..]),
        ("protect 0 x --key key", 2, &["not an area such as"][..]),
    ] {
        refused(&format!("ufs rpmb {words} {on}"), here, status, parts);
    }
    refused("ufs rpmb counter", here, 1, &["not yet programmed", "program-key"]);
    refused("ufs rpmb --on ufs,rpmb-key=two", here, 1, &["two: no RPMB key", "512 bytes"]);
    refused("ufs rpmb --on null", here, 2, &["not a UFS device"]);
}

#[test]
fn firmware_is_updated_only_by_a_whole_image_and_a_yes() {
    let folder = folder();
    let here = folder.path();
    let status = json("ufs ffu", here);
    assert_eq!(
        (&status["revision"], &status["status"]),
        (&"0001".into(), &"no information".into())
    );
    let done = json("ufs ffu update firmware --yes", here);
    assert_eq!((&done["was"], &done["revision"]), (&"0001".into(), &"0002".into()));
    let later = json("ufs ffu update firmware --no-activate --yes", here);
    assert_eq!((&later["revision"], &later["activated"]), (&"0001".into(), &false.into()));
    refused("ufs ffu update firmware", here, 2, &["70064 bytes", "0001", "--yes"]);
    let whole = fs::read(here.join("firmware")).unwrap();
    fs::write(here.join("short"), &whole[..40_000]).unwrap();
    refused("ufs ffu update short --yes", here, 1, &["short", "corruption", "old firmware"]);
    fs::write(here.join("empty"), []).unwrap();
    refused("ufs ffu update empty --yes", here, 1, &["empty: ", "1 byte to 16 MiB"]);
    refused("ufs ffu update nothing --yes", here, 1, &["nothing: ", "No such file"]);
}

#[test]
fn long_work_is_begun_waited_for_and_told() {
    let folder = folder();
    let here = folder.path();
    assert_eq!(printed("ufs purge", here), "purge  idle\n");
    assert_eq!(json("ufs purge start --yes", here)["status"], "completed successfully");
    refused("ufs purge start", here, 2, &["for ever", "--yes"]);
    assert_eq!(json("ufs refresh", here)["total_count"], 0);
    let step = json("ufs refresh start", here);
    assert_eq!(step["progress_percent"], 1.0);
    let all = json("ufs refresh start --full --selective", here);
    assert_eq!((&all["total_count"], &all["method"]), (&1.into(), &"manual, selective".into()));
}

#[test]
fn history_time_and_boot_unit() {
    let folder = folder();
    let here = folder.path();
    let list = printed("ufs history", here);
    assert!(list.contains("vendor FLYSCH") && list.contains("0x10"), "{list}");
    let length = json("ufs history", here)["buffers"][0]["bytes"].as_u64().unwrap();
    assert_eq!(printed("ufs history 0x10 -o log", here), "");
    let log = fs::read(here.join("log")).unwrap();
    assert_eq!((log.len() as u64, &log[..8]), (length, &b"FLYSCHEV"[..]));
    assert!(printed("ufs history 0x10", here).starts_with("000000  46 4c 59 53 43 48 45 56"));
    refused("ufs history 0x11", here, 2, &["0x11"]);
    assert_eq!(json("ufs timestamp 12345", here)["qTimestamp"], 12345);
    assert!(json("ufs timestamp", here)["qTimestamp"].as_u64() > Some(1 << 60));

    let on = "--on ufs,lus=3,boot=on,size=64M";
    let boot = json(&format!("ufs bootlun {on}"), here);
    assert_eq!((&boot["bBootLunEn"], boot["units"].as_array().map(Vec::len)), (&0.into(), Some(2)));
    let set = printed(&format!("ufs bootlun set b --yes {on}"), here);
    assert!(set.starts_with("boots from  Boot LU B\n"), "{set}");
    refused(&format!("ufs bootlun set a {on}"), here, 2, &["--yes"]);
    refused(&format!("ufs bootlun read {on}"), here, 1, &["no boot unit is chosen"]);
    refused("ufs bootlun set a --yes", here, 1, &["UFS model", "bBootEnable"]);
}

/// An inline-encrypted disk is read back with its key; its image contains ciphertext equal to what
/// OpenSSL produces for the same key and block numbers.
#[test]
fn a_disk_is_encrypted_with_a_key_from_a_file() {
    let folder = folder();
    let here = folder.path();
    let key: Vec<u8> = (0..64).collect();
    fs::write(here.join("xts"), &key).unwrap();
    fs::write(here.join("plain"), vec![0x11; 1 << 20]).unwrap();
    let on = "ufs,image=disk,size=1M,crypto=aes-256-xts";
    printed(&format!("copy plain {on},crypto-key=xts"), here);
    printed(&format!("copy {on},crypto-key=xts back"), here);
    assert!(fs::read(here.join("back")).unwrap() == fs::read(here.join("plain")).unwrap());
    let image = fs::read(here.join("disk")).unwrap();
    let begins = |block: usize| -> String {
        image[block * 4096..][..8].iter().map(|byte| format!("{byte:02x}")).collect()
    };
    assert_eq!([begins(0), begins(255)], ["d55fe2ed8537f5a7", "8e3b8d02166b7d72"]);
    // Without a key it is different each time.
    printed(&format!("copy {on} noise"), here);
    assert!(fs::read(here.join("noise")).unwrap() != fs::read(here.join("plain")).unwrap());
    for (key, part) in [("key", "it has 32 bytes, but a key has 64"), ("two", "more than 64 bytes")]
    {
        refused(&format!("copy plain {on},crypto-key={key}"), here, 1, &[key, part]);
    }
    fs::write(here.join("same"), [5; 64]).unwrap();
    refused(&format!("copy plain {on},crypto-key=same"), here, 1, &["its halves must differ"]);
    let shown = printed("ufs crypto --on ufs,crypto=aes-128-xts,data-unit=512", here);
    assert_eq!(
        shown,
        "key slots  16, 1 in use\n\
         cipher     AES-XTS, 256 bits, data units 512 1024 2048 4096 8192 16384 32768 65536\n\
         cipher     AES-XTS, 128 bits, data units 512 1024 2048 4096 8192 16384 32768 65536\n\
         slot 0     AES-XTS, 128 bits, data units 512\n"
    );
    let json = json("ufs crypto --on ufs,crypto=aes-256-xts", here);
    assert_eq!((&json["slots"], &json["keys"][0]["key_bits"]), (&16.into(), &256.into()));
    let verify =
        "bench --rw=randrw --bsrange=4k-64k --iodepth=8 --size=8m --verify=crc32c --segments=5";
    for queues in ["", ",mcq=2"] {
        printed(&format!("{verify} --on ufs,crypto=aes-256-xts{queues}"), here);
    }
}

#[test]
fn a_workload_with_pauses_shows_what_waking_costs() {
    let folder = folder();
    let waits = |keys: &str| {
        let words = "--rw=randread --bs=4k --rate_iops=100 --number_ios=50";
        let ran = json(&format!("bench --on ufs,clock=virtual{keys} {words}"), folder.path());
        ran["jobs"][0]["read"]["slat_ns"]["max"].as_u64().expect("a latency")
    };
    assert_eq!((waits(""), waits(",suspend=1000000")), (0, 0), "no pause is that long");
    let hibernated = waits(",suspend=1000");
    assert!((200_000..2_000_000).contains(&hibernated), "{hibernated} ns");
    let slept = waits(",suspend=1000,suspend-level=sleep");
    assert!(slept > hibernated + 3_000_000, "{slept} ns");
    refused(
        "bench --on ufs,suspend-level=sleep",
        folder.path(),
        2,
        &["`suspend=MICROSECONDS` as well"],
    );
}
