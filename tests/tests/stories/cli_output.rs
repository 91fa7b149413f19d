//! What the command prints: tables for people, JSON for programs.

use std::io::Read;
use std::process::Stdio;

use flysch_tests::command::{flysch, run};
use serde_json::Value;

/// What a successful run prints.
fn printed(words: &str) -> String {
    let ran = run(words);
    assert_eq!((ran.status, ran.stderr.as_str()), (0, ""), "{words}");
    assert!(!ran.stdout.contains('\u{1b}'), "{words}: colour in a pipe");
    ran.stdout
}

fn json(words: &str) -> Value {
    serde_json::from_str(&printed(&format!("{words} --json")))
        .unwrap_or_else(|e| panic!("{words}: {e}"))
}

#[test]
fn devlist_has_camcontrols_form() {
    assert_eq!(
        printed("devlist --on ufs,lus=2"),
        "<FLYSCH UFS MODEL 0001>            at scbus0 target 0 lun 0 (pass0,da0)\n\
         <FLYSCH UFS MODEL 0001>            at scbus0 target 0 lun 1 (pass1,da1)\n"
    );
    let verbose = printed("devlist -v --on ufs --on ufs,mcq=2,size=64M");
    for part in
        ["scbus0 on ufshci0 bus 0", "scbus1 on ufshci1 bus 0", "4 GiB", "64 MiB", "2 queues"]
    {
        assert!(verbose.contains(part), "{part}: {verbose}");
    }
    assert!(verbose.contains("at scbus1 target 0 lun 0 (pass1,da1)"), "{verbose}");
}

#[test]
fn every_command_speaks_json() {
    let list = json("devlist --on ufs,size=64M");
    assert_eq!(list[0]["units"][0]["blocks"], 16384);
    assert_eq!(json("ufs info")["strings"]["product"], "UFS MODEL");
    assert_eq!(json("ufs lu --on ufs,lus=3").as_array().map(Vec::len), Some(3));
    assert_eq!(json("ufs descriptor device")["bDescriptorType"], 0);
    assert!(json("ufs descriptor").as_array().is_some_and(|list| list.len() > 5));
    assert_eq!(json("ufs wb on")["enabled"], true);
    assert_eq!(json("ufs power gear 2")["gear"], 2);
    assert_eq!(json("ufs errors")["counts"]["gone"], 0);
    assert!(json("ufs flag").as_array().is_some_and(|list| list.len() > 10));
    assert!(json("targets").as_array().is_some_and(|list| list.len() == 4));
    assert_eq!(json("copy /dev/null ufs")["bytes"], 0);
}

#[test]
fn attributes_and_flags_are_written_and_read_back() {
    assert_eq!(printed("ufs attribute bActiveICCLevel 3"), "bActiveICCLevel 0x03 (3)\n");
    assert_eq!(json("ufs attribute 0x03 0x0F")["value"], 15);
    assert_eq!(json("ufs attribute activeicc")["name"], "bActiveICCLevel");
    assert_eq!(json("ufs flag fBackgroundOpsEn clear")["value"], false);
    assert_eq!(json("ufs flag fWriteBoosterEn toggle")["value"], true);
    let table = printed("ufs attribute");
    let line = table.lines().find(|line| line.contains("bActiveICCLevel")).unwrap();
    assert!(
        line.starts_with("0x03") && line.contains("volatile") && line.ends_with("1.0"),
        "{line}"
    );
}

#[test]
fn descriptors_are_shown_by_the_names_of_the_specification() {
    let device = printed("ufs descriptor device");
    for name in ["bLength", "wSpecVersion", "dExtendedUFSFeaturesSupport"] {
        assert!(device.contains(name), "{name}: {device}");
    }
    let unit = json("ufs descriptor unit 1 --on ufs,lus=2,size=64M");
    assert_eq!(
        (unit["bUnitIndex"].as_u64(), unit["qLogicalBlockCount"].as_u64()),
        (Some(1), Some(16384))
    );
    assert!(printed("ufs descriptor device --raw").starts_with("00: 59 00"));
    assert_eq!(json("ufs descriptor geometry")["bDescriptorType"], 7);
}

#[test]
fn help_completions_and_manual_page_are_there() {
    let help = printed("--help");
    for command in ["bench", "devlist", "ufs", "copy", "targets"] {
        assert!(help.contains(command), "{command}");
    }
    assert!(printed("completions bash").contains("_flysch"));
    assert!(printed("man").contains(".TH flysch"));
    assert!(printed("targets").contains("ufs@qemu"));
}

#[test]
fn a_reader_that_goes_away_is_no_panic() {
    let words = ["ufs", "attribute"];
    let mut child =
        flysch().args(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let mut complaints = String::new();
    child.stderr.take().unwrap().read_to_string(&mut complaints).unwrap();
    assert_eq!((child.wait().unwrap().code(), complaints.as_str()), (Some(0), ""));
}
