//! The output of the command: tables for people, JSON for programs.

use std::fs;
use std::io::Read;
use std::os::unix::fs::FileTypeExt;
use std::process::{Command, Stdio};

use flysch_tests::command::{flysch, ran, run, run_in};
use serde_json::Value;

/// The output of a successful run.
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
    let verbose = printed("devlist -vv --on ufs --on ufs,mcq=2,size=64M");
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
    let wb = json("ufs wb resize smaller");
    assert_eq!(wb["resize"]["status"], "completed successfully");
    assert_eq!(wb["size_units"], 896, "of 1024 allocation units");
    let wb = json("ufs wb partial-flush pinned 64 --others 32");
    assert_eq!((&wb["partial_flush"]["mode"], &wb["size_units"]), (&"pinned".into(), &960.into()));
    assert_eq!(wb["partial_flush"]["others_min_units"], 32);
    assert_eq!(json("ufs power gear 2")["gear"], 2);
    assert_eq!(json("ufs errors")["counts"]["gone"], 0);
    assert!(json("ufs flag").as_array().is_some_and(|list| list.len() > 10));
    assert_eq!(json("targets").as_array().map(Vec::len), Some(flysch_rig::KINDS.len()));
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
    // The one descriptor whose second byte is not a type.
    assert_eq!(json("ufs descriptor 0x0A")["bLength"], 18);
    assert!(!printed("ufs descriptor").contains("no sense"));
}

#[test]
fn help_completions_and_manual_page_are_there() {
    let help = printed("--help");
    for command in ["bench", "devlist", "ufs", "copy", "targets"] {
        assert!(help.contains(command), "{command}");
    }
    for (words, of) in [("help", "--help"), ("image help", "image --help")] {
        for asks in ["", "--help", "-h"] {
            assert_eq!(printed(&format!("{words} {asks}")), printed(of), "{words} {asks}");
        }
    }
    assert_eq!(printed("help bench flash --help"), printed("help bench flash"));
    let wrong = run("help nonsense --help");
    assert_eq!(wrong.status, 2, "{}", wrong.stderr);
    assert!(printed("completions bash").contains("_flysch"));
    let mut pages = vec![String::new()];
    let mut count = 0;
    while let Some(words) = pages.pop() {
        let page = printed(&format!("man {words}"));
        let name = format!("flysch {words}").trim().replace(' ', "-");
        let version = env!("CARGO_PKG_VERSION");
        let title = format!(".TH {name} 1 \" \" \"flysch {version}\" \"Flysch manual\"\n");
        assert!(page.contains(&title), "{words}: {}", &page[..200]);
        count += 1;
        // Every page referred to by another can be printed.
        for line in page.replace('\\', "").lines().filter(|line| line.starts_with("flysch-")) {
            let Some(referred) = line.strip_suffix("(1)") else { continue };
            let below = referred.strip_prefix(&format!("{name}-")).expect("a command below");
            pages.push(format!("{words} {below}").trim().to_owned());
        }
    }
    assert!(count > 20, "{count} pages");
    assert_eq!(run("man bench nonsense").status, 2);
    for words in ["--help", "--version", "help geom"] {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let told = ran(flysch().args(words.split(' ')).stdout(full).output().unwrap());
        let expected = "flysch: standard output: No space left on device (os error 28)\n";
        assert_eq!((told.status, &told.stderr[..]), (1, expected), "{words}");
    }
    for words in ["--json completions bash", "--json man", "man bench --json"] {
        let ran = run(words);
        assert_eq!((ran.status, ran.stdout.as_str()), (2, ""), "{words}");
        assert!(ran.stderr.contains("JSON"), "{words}: {}", ran.stderr);
    }
    assert!(printed("targets").contains("ufs@qemu"));
}

/// A very short workload.
const BRIEF: &str = "bench --on null,size=1M --rw=randread --number_ios=50";

#[test]
fn files_go_where_the_name_leads_and_replace_nothing_but_files() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let make = |words: &str| {
        let mut words = words.split_whitespace();
        let mut command = Command::new(words.next().unwrap());
        command.args(words).current_dir(folder).status().unwrap().success()
    };
    assert!(make("mkfifo pipe") && make("ln -s real link"));
    let mut cat = Command::new("cat");
    let reader = cat.arg("pipe").current_dir(folder).stdout(Stdio::piped()).spawn().unwrap();
    let of = |name: &str| run_in(&format!("{BRIEF} --csv {name}"), folder);
    assert_eq!(of("pipe").status, 0);
    let piped = reader.wait_with_output().unwrap().stdout;
    assert!(piped.starts_with(b"target,clock,"));
    assert_eq!(of("link").status, 0);
    assert!(fs::read(folder.join("real")).unwrap().starts_with(b"target,clock,"));
    let kind = |name: &str| fs::symlink_metadata(folder.join(name)).unwrap().file_type();
    assert!(kind("pipe").is_fifo() && kind("link").is_symlink());
    if make("mknod null c 1 3") && make("mknod full c 1 7") {
        assert_eq!(of("null").status, 0);
        let full = of("full");
        assert_eq!((full.status, full.stdout.contains("randread")), (1, true));
        assert_eq!(full.stderr, "flysch: full: No space left on device (os error 28)\n");
        assert_eq!(run_in("copy real ./null --seek 7", folder).status, 0);
        assert_eq!(run_in("copy real ./null --verify", folder).status, 2);
        assert!(kind("null").is_char_device() && kind("full").is_char_device());
    } else {
        eprintln!("skipped: no device nodes without root");
    }
    let names = fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name());
    assert!(names.into_iter().all(|name| !name.to_string_lossy().starts_with('.')));
}

#[test]
fn a_file_called_minus_is_standard_output_and_the_results_step_aside() {
    let ran = run(&format!("{BRIEF} --csv -"));
    assert!(ran.status == 0 && ran.stdout.starts_with("target,clock,"), "{}", ran.stdout);
    assert_eq!(ran.stdout.lines().count(), 2);
    assert!(ran.stderr.contains("job: randread"), "{}", ran.stderr);
    let ran = run(&format!("{BRIEF} --report - --json"));
    assert!(
        ran.stdout.starts_with("<!doctype html>") && ran.stdout.trim_end().ends_with("</html>")
    );
    assert!(serde_json::from_str::<Value>(&ran.stderr).is_ok(), "{}", ran.stderr);
    for words in ["--csv - --report -", "--trace -"] {
        let ran = run(&format!("{BRIEF} {words}"));
        assert_eq!((ran.status, ran.stdout.as_str()), (2, ""), "{words}: {}", ran.stderr);
    }
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
