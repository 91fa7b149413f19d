//! `flysch cam` and `flysch devlist`: camcontrol's syntax and output on every kind of bus.

use flysch_tests::command::{Ran, run, run_in};
use serde_json::Value;

/// The output of a successful run.
fn printed(words: &str) -> String {
    let ran = run(words);
    assert_eq!((ran.status, ran.stderr.as_str()), (0, ""), "{words}");
    ran.stdout
}

fn json(words: &str) -> Value {
    serde_json::from_str(&printed(&format!("{words} --json"))).expect(words)
}

fn cam(words: &str, target: &str) -> String {
    printed(&format!("cam {words} --on {target}"))
}

const UFS: &str = "ufs,size=64M";
const AHCI: &str = "ahci,size=64M";
const NVME: &str = "nvme,size=64M";
const EMMC: &str = "emmc,size=64M";

#[test]
fn devlist_prints_buses_of_every_kind() {
    let on = "--on ufs,size=64M,lus=2 --on ahci,size=64M --on nvme,size=64M --on emmc,size=64M";
    let golden = "\
scbus0 on ufshci0 bus 0:
<FLYSCH UFS MODEL 0001>            at scbus0 target 0 lun 0 (pass0,da0)
<FLYSCH UFS MODEL 0001>            at scbus0 target 0 lun 1 (pass1,da1)
<>                                 at scbus0 target -1 lun ffffffff ()
scbus1 on ahcich0 bus 0:
<FLYSCH SATA 1.0>                  at scbus1 target 0 lun 0 (ada0,pass2)
<>                                 at scbus1 target -1 lun ffffffff ()
scbus2 on nvme0 bus 0:
<Flysch NVMe model 1.0>            at scbus2 target 0 lun 1 (pass3,nda0)
<>                                 at scbus2 target -1 lun ffffffff ()
scbus3 on sdhci_slot0 bus 0:
<MMCHC FLYSCH 1.0 SN 0F1A5C4E>     at scbus3 target 0 lun 0 (pass4,sdda0)
<>                                 at scbus3 target -1 lun ffffffff ()
scbus-1 on xpt0 bus 0:
<>                                 at scbus-1 target -1 lun ffffffff (xpt0)
";
    assert_eq!(printed(&format!("devlist -v {on}")), golden);
    assert_eq!(printed(&format!("cam devlist -v {on}")), golden, "the same machine");
    let units: String = golden
        .lines()
        .filter(|line| line.starts_with("<F") || line.starts_with("<M"))
        .map(|line| format!("{line}\n"))
        .collect();
    assert_eq!(printed(&format!("devlist {on}")), units);
    let buses = printed(&format!("devlist -b {on}"));
    assert_eq!(buses.lines().count(), 5);
    let list = json(&format!("devlist {on}"));
    let names: Vec<&str> =
        list.as_array().unwrap().iter().filter_map(|bus| bus["sim"].as_str()).collect();
    assert_eq!(names, ["ufshci0", "ahcich0", "nvme0", "sdhci_slot0"]);
    assert_eq!(list[3]["units"][0]["partitions"][1]["name"], "boot1");
    assert_eq!(list[1]["units"][0]["names"], serde_json::json!(["ada0", "pass2"]));
}

/// Motin's listing has a port multiplier: it is target 15, and the targets of the disks behind it
/// are its port numbers.
#[test]
fn a_port_multiplier_is_listed_and_every_device_behind_it_is_reached() {
    let on = "--on ahci,size=64M,pmp=3,device=1";
    let golden = "\
scbus0 on ahcich0 bus 0:
<FLYSCH SATA 1.0>                  at scbus0 target 0 lun 0 (ada0,pass0)
<FLYSCH SATA 1.0>                  at scbus0 target 1 lun 0 (ada1,pass1)
<FLYSCH SATA 1.0>                  at scbus0 target 2 lun 0 (ada2,pass2)
<Port Multiplier 37261095 1706>    at scbus0 target 15 lun 0 (pmp0,pass3)
<>                                 at scbus0 target -1 lun ffffffff ()
scbus-1 on xpt0 bus 0:
<>                                 at scbus-1 target -1 lun ffffffff (xpt0)
";
    assert_eq!(printed(&format!("devlist -v {on}")), golden);
    for switching in ["on", "off"] {
        let target = format!("ahci,size=64M,pmp=3,device=1,fbs={switching}");
        let list = json(&format!("devlist --on {target}"));
        let multiplier = &list[0]["units"][3];
        assert_eq!(multiplier["fis_switching"], switching == "on", "{multiplier}");
        assert_eq!(multiplier["names"], serde_json::json!(["pmp0", "pass3"]));
        for (name, serial) in [("ada0", "FLYSCHSATA0000000001"), ("ada2", "FLYSCHSATA0000000003")] {
            let told = cam(&format!("identify {name}"), &target);
            assert!(told.contains(serial), "{told}");
            assert!(cam(&format!("readcap {name}"), &target).contains("512 bytes"));
        }
        // GSCR 2 of the multiplier: three ports.
        let registers = "E4 2 0 0 0 F 0 0 0 0 0 0";
        let ports =
            words(&["cam", "cmd", "pmp0", "-a", registers, "-r", "hex", "--on", &target]).stdout;
        assert_eq!(ports, "50 00 00 00 00 0F 00 00 00 03 00\n");
        let info = printed(&format!("ata info --on {target} --json"));
        assert!(info.contains("FLYSCHSATA0000000002"), "{info}");
    }
}

#[test]
fn scsi_verbs_speak_as_camcontrol() {
    assert_eq!(cam("tur", UFS), "Unit is ready\n");
    assert_eq!(
        cam("inquiry", UFS),
        "pass0: <FLYSCH UFS MODEL 0001> Fixed Direct Access SPC-4 SCSI device\n\
         pass0: Serial Number FLYSCH0000000001\n\
         pass0: 2334.720MB/s transfers, Command Queueing Enabled\n"
    );
    assert_eq!(cam("inquiry -S", UFS), "FLYSCH0000000001\n");
    assert_eq!(cam("readcap da0", UFS), "Last Block: 16383, Block Length: 4096 bytes\n");
    assert_eq!(cam("readcap -N -q -s", UFS), "16384\n");
    assert_eq!(cam("readcap -h", UFS), "Device Size: 64M, Block Length: 4096 bytes\n");
    assert_eq!(cam("readcap -l", UFS), cam("readcap", UFS));
    let three = "ufs,size=64M,lus=3";
    assert_eq!(cam("reportluns pass1", three), "3 LUNs found\n0\n1\n2\n");
    assert_eq!(cam("reportluns 0:0:2 -c", three), "3 LUNs found\n");
    assert_eq!(cam("reportluns -n da -u 0 -l", three), "0\n1\n2\n");
    assert_eq!(cam("start", UFS), "Unit started successfully\n");
    assert_eq!(cam("stop", UFS), "Unit stopped successfully\n");
    assert_eq!(
        cam("periphlist", UFS),
        "pass0:  generation: 2 index: 1 status: MORE\n\
         da0:  generation: 2 index: 2 status: LAST\n"
    );
    assert_eq!(
        cam("modepage -l", UFS),
        "0x01\tRead-Write Error Recovery Page\n0x08\tCaching Page\n0x0a\tControl Mode Page\n"
    );
    let caching = cam("modepage -m 8", UFS);
    assert!(caching.starts_with("IC:  0\nABPF:  0\n") && caching.contains("\nWCE:  1\n"));
    let bytes = cam("modepage -m 8 -b", UFS);
    assert!(bytes.starts_with("88 12 04 ") || bytes.starts_with("08 12 04 "), "{bytes}");
    assert!(cam("modepage -m 8 -P 1", UFS).contains("WCE:  "));
    assert_eq!(cam("modepage -m 8 -e WCE=0 -y", UFS), "Mode page changed\n");
    assert_eq!(cam("format --yes", UFS), "Format Complete\n");
    assert_eq!(cam("format -r", UFS), "Format is not in progress\n");
}

#[test]
fn queues_and_buses_speak_as_camcontrol() {
    assert_eq!(cam("tags", UFS), "(pass0:ufshci0:0:0:0): device openings: 32\n");
    assert_eq!(cam("tags -q", AHCI), "32\n");
    let rows: String = [
        ("dev_openings ", 4),
        ("dev_active   ", 0),
        ("allocated    ", 0),
        ("queued       ", 0),
        ("held         ", 0),
        ("mintags      ", 1),
        ("maxtags      ", 4),
    ]
    .into_iter()
    .map(|(name, value)| format!("(pass0:ufshci0:0:0:0): {name} {value}\n"))
    .collect();
    let now = "(pass0:ufshci0:0:0:0): tagged openings now 4\n";
    assert_eq!(cam("tags -N 4 -v", UFS), format!("{now}{rows}"));
    assert_eq!(json(&format!("cam tags --on {EMMC}"))["openings"], 31);
    let both = format!("{UFS} --on {NVME} --on {AHCI} --on {EMMC}");
    let buses = |what: &str| -> String {
        (0..4).map(|bus| format!("{what} of bus {bus} was successful\n")).collect()
    };
    assert_eq!(cam("rescan all", &both), buses("Re-scan"));
    assert_eq!(cam("reset all", &both), buses("Reset"));
    assert_eq!(cam("reset da0", UFS), "Reset of 0:0:0 was successful\n");
    assert_eq!(json(&format!("cam rescan 0 --on {UFS}"))["changes"], 0);
    let ufs = cam("negotiate", UFS);
    assert!(ufs.contains("): HS gear: 4\n") && ufs.contains("): tagged queueing: enabled\n"));
    assert!(cam("negotiate -v", AHCI).contains("(pass0:ahcich0:0:0:0): SATA revision: 3.x\n"));
    assert!(cam("negotiate", NVME).contains("NVMe Spec: 2.0\n"));
    assert!(cam("negotiate", EMMC).contains("bus width: 8\n"));
}

#[test]
fn ata_verbs_speak_as_camcontrol() {
    let identify = cam("identify", AHCI);
    let golden = "\
pass0: <FLYSCH SATA 1.0> ACS-4 ATA SATA 3.x device
pass0: 600.000MB/s transfers

protocol              ATA/ATAPI-11 SATA 3.x
device model          FLYSCH SATA
firmware revision     1.0
serial number         FLYSCHSATA0000000001
";
    assert!(identify.starts_with(golden), "{identify}");
    for line in [
        "LBA48 supported       131072 sectors",
        "media RPM             non-rotating",
        "Feature                      Support  Enable    Value           Vendor",
        "write cache                    yes\tyes",
        "Native Command Queuing (NCQ)   yes\t\t32/0x20",
        "advanced power management      no\tno\t0/0x00",
    ] {
        assert!(identify.lines().any(|other| other == line), "{line}: {identify}");
    }
    assert_eq!(json(&format!("cam identify --on {AHCI}"))["sectors"], 131_072);
    assert!(cam("identify", NVME).starts_with("pass0: <Flysch NVMe model 1.0> NVMe 2.0 device\n"));
    assert_eq!(cam("tur", AHCI), "Unit is ready\n");
    assert_eq!(cam("stop", AHCI), "Unit stopped successfully\n");
    assert_eq!(cam("readcap", AHCI), "Last Block: 131071, Block Length: 512 bytes\n");
    let security = cam("security", AHCI);
    assert!(security.contains("security supported        yes\nsecurity enabled          no\n"));
    assert_eq!(cam("security -s hello -y", AHCI), "pass0: password set\n");
    assert_eq!(cam("sanitize -a block -y", AHCI), "Sanitize Complete\n");
    assert_eq!(cam("sanitize -r", AHCI), "Sanitize is not in progress\n");
}

#[test]
fn an_enclosure_tells_what_is_in_it_as_sesutil() {
    let on = "--enclosure 3 --on ufs,size=64M --on ahci,size=64M";
    let map = printed(&format!("cam sesmap {on}"));
    let golden = "\
ses0:
\tEnclosure Name: FLYSCH Enclosure 1.0
\tEnclosure ID: 3f1a5c0000000001
\tElement 0, Type: Array Device Slot
\t\tStatus: Unsupported (0x00 0x00 0x00 0x00)
\t\tDescription: Drive Slots
\tElement 1, Type: Array Device Slot
\t\tStatus: OK (0x01 0x00 0x00 0x00)
\t\tDescription: Slot 00
\t\tDevice Names: da0
\tElement 2, Type: Array Device Slot
\t\tStatus: OK (0x01 0x00 0x00 0x00)
\t\tDescription: Slot 01
\t\tDevice Names: ada0
\tElement 3, Type: Array Device Slot
\t\tStatus: Not Installed (0x05 0x00 0x00 0x00)
\t\tDescription: Slot 02
\tElement 4, Type: Cooling
";
    assert!(map.starts_with(golden), "{map}");
    assert!(map.contains("\t\tExtra status:\n\t\t- Speed: 4500 rpm\n"), "{map}");
    let located = printed(&format!("cam sesmap --locate 2 on {on}"));
    assert!(located.contains("(0x01 0x00 0x02 0x00)"), "{located}");
    assert_eq!(located.matches("LED=locate").count(), 1);
    assert_eq!(
        printed(&format!("cam devlist {on}")).lines().last(),
        Some("<FLYSCH Enclosure 1.0>             at scbus2 target 0 lun 0 (pass2,ses0)")
    );
    let list = json(&format!("cam devlist {on}"));
    assert_eq!(
        list[1]["units"][0]["physical_path"],
        "id1,enc@n3f1a5c0000000001/type@0/slot@2/elmdesc@Slot_01"
    );
    assert_eq!(printed(&format!("cam tur ses0 {on}")), "Unit is ready\n");
    let wrong = run(&format!("cam sesmap --locate 4 on {on}"));
    assert_eq!((wrong.status, wrong.stderr.contains("not a slot")), (1, true), "{}", wrong.stderr);
    let none = run("cam sesmap --on ufs,size=64M");
    assert_eq!((none.status, none.stderr.lines().count()), (2, 1));
}

/// As [`run`], for words that contain spaces.
fn words(words: &[&str]) -> Ran {
    let out = flysch_tests::command::flysch()
        .args(words)
        .stdin(std::process::Stdio::null())
        .output()
        .expect("it runs");
    Ran {
        status: out.status.code().unwrap_or(-1),
        stdout: String::from_utf8_lossy(&out.stdout).into(),
        stderr: String::from_utf8_lossy(&out.stderr).into(),
    }
}

#[test]
fn any_command_can_be_passed_through() {
    let inquiry = ["cam", "cmd", "-c", "12 0 0 0 24 0", "-i", "36", "s8 z8 z16 z4", "--on", UFS];
    assert_eq!(words(&inquiry).stdout, "FLYSCH UFS MODEL 0001\n");
    let raw = ["cam", "cmd", "-c", "12 0 0 0 24 0", "-i", "36", "-", "--on", UFS];
    assert_eq!(words(&raw).stdout.len(), 36, "as it is");
    let power = ["cam", "cmd", "-a", "E5 0 0 0 0 0 0 0 0 0 0 0", "-r", "hex", "--on", AHCI];
    assert_eq!(words(&power).stdout, "50 00 00 00 00 00 00 00 00 FF 00\n");
    // A refusal by the device is reported with its sense data, in one line.
    let odd = words(&["cam", "cmd", "-c", "12 1 77 0 24 0", "-i", "36", "-", "--on", UFS]);
    assert_eq!(odd.status, 1);
    assert_eq!(
        odd.stderr,
        "flysch: pass0: INQUIRY: SCSI status: CHECK CONDITION, ILLEGAL REQUEST asc:24,0 \
         (INVALID FIELD IN CDB)\n"
    );
    for (line, why) in [
        (&["-c", "12 zz"][..], "not a byte"),
        (&["-c", ""], "1 to 16 bytes"),
        (&["-a", "EC 0"], "twelve bytes"),
        (&["-c", "12 0 0 0 24 0", "-i", "0", "-"], "1 to 65536"),
        (&["-c", "4 0 0 0 0 0"], "--yes"),
        (&["-c", "12 0 0 0 24 0", "-i", "36", "q9"], "sBYTE"),
    ] {
        let all: Vec<&str> =
            ["cam", "cmd"].iter().chain(line).copied().chain(["--on", UFS]).collect();
        let ran = words(&all);
        assert_eq!(ran.status, 2, "{line:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(why), "{line:?}: {}", ran.stderr);
        assert_eq!(ran.stderr.lines().count(), 1, "{line:?}: {}", ran.stderr);
    }
}

#[test]
fn what_is_asked_wrongly_is_told_in_one_line() {
    for (words, why) in [
        ("cam tur --on ufs,size=64M,lus=2", "several devices, name one: pass0, pass1"),
        ("cam tur --on null", "no command layer"),
        ("cam inquiry --on ahci,size=64M", "pass0: it does not take SCSI commands"),
        ("cam identify --on ufs,size=64M", "pass0: it does not take ATA or NVMe commands"),
        ("cam format --on ufs,size=64M", "REMOVE ALL DATA from pass0: <FLYSCH UFS MODEL 0001>"),
        ("cam format -y --on nvme,size=64M", "`flysch nvme format`"),
        ("cam sanitize -a crypto -y --on ufs,size=64M", "`flysch ufs purge`"),
        ("cam security -s x --on ahci,size=64M", "--yes"),
        ("cam rescan 0:0 --on ufs,size=64M", "name `all`, a bus, or a bus:target:lun"),
        ("cam modepage -m 99 --on ufs,size=64M", "not the number of a page"),
        ("cam modepage -m 8 -e XYZ=1 -y --on ufs,size=64M", "fields: IC; ABPF"),
        ("cam modepage -m 8 -e WCE=2 -y --on ufs,size=64M", "WCE has 1 bit\n"),
        ("cam debug", "you must specify \"all\", \"off\", or a bus"),
        ("cam debug -c tur", "you must specify \"all\", \"off\", or a bus"),
        ("cam debug 0 tur", "without one of -I, -P, -T, -S, -X, -c, -p"),
        ("cam debug -c 0:0:0", "the flags last as long as this command"),
        ("cam debug -c off tur", "leave `debug off` out"),
        ("bench --iosched read-bais=1 --on null", "`read-bais=1` is not understood"),
    ] {
        let ran = run(words);
        assert_eq!((ran.status, ran.stderr.lines().count()), (2, 1), "{words}: {}", ran.stderr);
        assert!(ran.stderr.contains(why), "{words}: {}", ran.stderr);
    }
    // Naming something that does not exist is not a usage error, nor is a refusal by the device.
    for (words, why) in [
        ("cam tur pass9 --on ufs,size=64M", "there is no device `pass9`; devices: pass0"),
        ("cam rescan 7 --on ufs,size=64M", "there is no bus 7"),
        ("cam debug -c 0:3 tur --on ufs,size=64M", "the buses 0 and the units 0:0:0"),
        ("cam debug -c 7 tur --on ufs,size=64M", "there is nothing at `7`"),
        ("cam debug -c da7 tur --on ufs,size=64M", "there is no device `da7`; devices: pass0"),
    ] {
        let ran = run(words);
        assert_eq!((ran.status, ran.stderr.lines().count()), (1, 1), "{words}: {}", ran.stderr);
        assert!(ran.stderr.contains(why), "{words}: {}", ran.stderr);
    }
    for words in ["cam security -e wrong -y --on ahci,size=64M", "cam modepage -m 5 --on ufs"] {
        let ran = run(words);
        assert_eq!((ran.status, ran.stderr.lines().count()), (1, 1), "{words}: {}", ran.stderr);
    }
}

/// The output of `cam debug` for a successful verb, and the output of the verb itself.
fn debugged(words: &str, target: &str) -> (String, String) {
    let line = format!("cam debug {words} --on {target}");
    let ran = run(&line);
    assert_eq!(ran.status, 0, "{line}: {}", ran.stderr);
    (ran.stderr, ran.stdout)
}

#[test]
fn debug_tells_of_every_kind_of_command() {
    let done = "CAM status: CCB request completed without error\n";
    for (target, words, enabled, path, command) in [
        (
            UFS,
            "-c 0:0:0 tur da0",
            "0:0:0",
            "ufshci0:0:0:0",
            "TEST UNIT READY. CDB: 00 00 00 00 00 00 ",
        ),
        (
            AHCI,
            "-c 0 tur",
            "0:-1:ffffffff",
            "ahcich0:0:0:0",
            "CHECK_POWER_MODE. ACB: e5 00 00 00 00 40 00 00 00 00 00 00",
        ),
        (
            NVME,
            "-c nda0 tur",
            "0:0:1",
            "nvme0:0:0:1",
            "IDENTIFY. NCB: opc=6 fuse=0 nsid=1 prp1=0 prp2=0 cdw=0 0 0 0 0 0",
        ),
        (
            EMMC,
            "-c all tur",
            "-1:-1:ffffffff",
            "sdhci_slot0:0:0:0",
            "SEND_STATUS. CMD13 arg 0x10000 flags 0x15 dlen 0 dflags 0x0",
        ),
    ] {
        let golden = format!(
            "Debugging enabled for {enabled}\n(pass0:{path}): {command}\n(pass0:{path}): {done}"
        );
        assert_eq!(debugged(words, target), (golden, "Unit is ready\n".to_owned()), "{words}");
    }
    // A failure is reported with its sense data, and then in the command's own line.
    let odd = ["cam", "debug", "-I", "all", "cmd", "-c", "12 1 77 0 24 0", "-i", "36", "-"];
    let odd: Vec<&str> = odd.into_iter().chain(["--on", UFS]).collect();
    assert_eq!(
        words(&odd).stderr,
        "Debugging enabled for -1:-1:ffffffff\n\
         (pass0:ufshci0:0:0:0): INQUIRY. CDB: 12 01 77 00 24 00 \n\
         (pass0:ufshci0:0:0:0): CAM status: SCSI Status Error\n\
         (pass0:ufshci0:0:0:0): SCSI status: Check Condition\n\
         (pass0:ufshci0:0:0:0): SCSI sense: ILLEGAL REQUEST asc:24,0 (INVALID FIELD IN CDB)\n\
         flysch: pass0: INQUIRY: SCSI status: CHECK CONDITION, ILLEGAL REQUEST asc:24,0 \
         (INVALID FIELD IN CDB)\n"
    );
    let (told, _) = debugged("-I all tur", &format!("{UFS},faults=transient:n1,seed=7"));
    let golden = "\
Debugging enabled for -1:-1:ffffffff
(pass0:ufshci0:0:0:0): TEST UNIT READY. CDB: 00 00 00 00 00 00 
(pass0:ufshci0:0:0:0): CAM status: SCSI Status Error
(pass0:ufshci0:0:0:0): SCSI status: Check Condition
(pass0:ufshci0:0:0:0): SCSI sense: UNIT ATTENTION asc:29,4 (DEVICE INTERNAL RESET)
(pass0:ufshci0:0:0:0): Retrying command (per sense data)
";
    assert_eq!(told, golden, "it is tried again, and well");
    for target in [AHCI, NVME, EMMC] {
        let ran = run(&format!("cam debug -c 0 tur --on {target},faults=timeout:n1"));
        let told = "): CAM status: Command timeout\nflysch: pass0: ";
        assert!(ran.stderr.contains(told), "{}", ran.stderr);
        assert_eq!(ran.status, 1);
    }
    // Waiting for the device lets time pass.
    let (told, _) = debugged("-c ada0 sanitize -a block -y", AHCI);
    assert_eq!(told.matches("): BLOCK_ERASE_EXT. ACB: ").count(), 1);
    assert!((1..100).contains(&told.matches("): SANITIZE_STATUS_EXT. ACB: ").count()));
    // Standard output has only the verb's output, in JSON too; other units are silent.
    let (told, json) = debugged("-ITSXPcp 0 readcap --json", UFS);
    assert_eq!(serde_json::from_str::<Value>(&json).unwrap()["block_length"], 4096);
    assert_eq!(told.matches("READ CAPACITY(10). CDB: 25 ").count(), 1, "{told}");
    let two = format!("{UFS},lus=2");
    let (told, _) = debugged("-c 0:0:0 tur 0:0:1", &two);
    assert_eq!(told, "Debugging enabled for 0:0:0\n");
    let (told, _) = debugged("-c ses0 sesmap --enclosure 2", UFS);
    assert!(told.contains("(ses0:mps0:0:0:0): RECEIVE DIAGNOSTIC RESULTS. CDB: 1c 01 01 40"));
}

#[test]
fn debug_tells_of_calls_resets_and_probes() {
    let golden = "\
Debugging enabled for 0:-1:ffffffff
(pass0:ufshci0:0:0:0): sendccb 1
(pass0:ufshci0:0:0:0): xpt_action: func 0x901 XPT_SCSI_IO
cam_debug: xpt_schedule_dev
(pass0:ufshci0:0:0:0): CAM_DIR_IN, dxfer_len 252
cam_debug: xpt_run_devq
(pass0:ufshci0:0:0:0): xpt_done: func= 0x901 XPT_SCSI_IO status 0x1
(pass0:ufshci0:0:0:0): resid 232
cam_debug: xpt_release_ccb
(pass0:ufshci0:0:0:0): returnccb 1
";
    let serial =
        ["cam", "debug", "-PTSX", "0", "cmd", "-c", "12 1 80 0 fc 0", "-i", "252", "s4 c2"];
    let ran = words(&serial.into_iter().chain(["--on", UFS]).collect::<Vec<_>>());
    assert_eq!((ran.stderr.as_str(), ran.stdout.as_str()), (golden, "FL\n"));
    assert_eq!(run("cam debug off").stderr, "Debugging turned off\n");
    let golden = "\
Debugging enabled for -1:-1:ffffffff
(noperiph:ufshci0:0:0:0): xpt_action: func 0x912 XPT_RESET_DEV
(noperiph:ufshci0:0:0:0): dev reset
(noperiph:ufshci0:0:0:0): xpt_done: func= 0x912 XPT_RESET_DEV status 0x1
";
    assert_eq!(debugged("-TS all reset da0", UFS).0, golden);
    let golden = "\
Debugging enabled for 0:-1:ffffffff
(noperiph:ahcich0:0:-1:ffffffff): xpt_action: func 0x708 XPT_SCAN_BUS
(aprobe0:ahcich0:0:0:0): Periph created
(aprobe0:ahcich0:0:0:0): Probe started
(aprobe0:ahcich0:0:0:0): Probe PROBE_INVALID to PROBE_IDENTIFY
(aprobe0:ahcich0:0:0:0): xpt_action: func 0x918 XPT_ATA_IO
(aprobe0:ahcich0:0:0:0): ATA_IDENTIFY. ACB: ec 00 00 00 00 00 00 00 00 00 00 00
(aprobe0:ahcich0:0:0:0): xpt_done: func= 0x918 XPT_ATA_IO status 0x1
(aprobe0:ahcich0:0:0:0): Probe PROBE_IDENTIFY to PROBE_DONE
(aprobe0:ahcich0:0:0:0): Probe completed
(aprobe0:ahcich0:0:0:0): Periph invalidated
(aprobe0:ahcich0:0:0:0): Periph destroyed
(noperiph:ahcich0:0:-1:ffffffff): xpt_done: func= 0x708 XPT_SCAN_BUS status 0x1
";
    assert_eq!(debugged("-ITp 0 rescan 0", AHCI).0, golden);
    let (told, _) = debugged("-p 0:0:1 rescan all", &format!("{UFS},lus=2"));
    let start = "\
Debugging enabled for 0:0:1
(probe0:ufshci0:0:0:1): Probe started
(probe0:ufshci0:0:0:1): Probe PROBE_INVALID to PROBE_INQUIRY
(probe0:ufshci0:0:0:1): INQUIRY. CDB: 12 00 00 00 24 00 
(probe0:ufshci0:0:0:1): Probe PROBE_INQUIRY to PROBE_SUPPORTED_VPD_LIST
";
    assert!(told.starts_with(start), "{told}");
    assert!(told.ends_with("to PROBE_DONE\n(probe0:ufshci0:0:0:1): Probe completed\n"), "{told}");
    assert!(!told.contains("ufshci0:0:0:0"), "{told}");
    let (told, _) = debugged("-p all rescan all", &format!("{NVME} --on {EMMC}"));
    assert_eq!(told.matches("): IDENTIFY. NCB: ").count(), 2, "{told}");
    assert_eq!(told.matches("Probe NVME_PROBE_IDENTIFY_NS to NVME_PROBE_DONE").count(), 1);
    assert_eq!(told.matches("(mmcprobe0:sdhci_slot0:0:0:0): SEND_STATUS. CMD13 ").count(), 1);
}

/// 99th percentile and maximum for the first job's reads, from the caller's request to its
/// completion, microseconds.
fn reads(table: &str) -> (f64, f64) {
    let line = table.lines().find(|line| line.trim_start().starts_with("all ")).expect(table);
    let words: Vec<&str> = line.split_whitespace().skip(1).collect();
    let times = words.chunks(2).map(|pair| {
        let value: f64 = pair[0].parse().expect(line);
        match pair[1] {
            "ns" => value / 1000.0,
            "us" => value,
            "ms" => value * 1000.0,
            other => panic!("{other}: {line}"),
        }
    });
    // mean, p50, p99, p99.9, max
    let times: Vec<f64> = times.collect();
    (times[2], times[4])
}

#[test]
fn the_scheduler_keeps_reads_fast_in_a_flood() {
    let folder = tempfile::tempdir().unwrap();
    // A reader next to two writers of large requests and a job that deletes.
    let job = "\
[global]
ioengine=libaio
randseed=5
runtime=400ms
time_based=1
size=64m
[reader]
rw=randread
bs=4k
iodepth=1
[writer]
rw=randwrite
bs=128k
iodepth=16
numjobs=2
[trimmer]
rw=randtrim
bs=1m
iodepth=8
";
    std::fs::write(folder.path().join("flood.fio"), job).unwrap();
    let bench = |more: &str| {
        let line = format!("bench flood.fio --on ufs,size=256M,clock=virtual {more}");
        let ran = run_in(&line, folder.path());
        assert_eq!(ran.status, 0, "{line}: {}", ran.stderr);
        ran.stdout
    };
    let rules = "--iosched read-latency=300,delete-depth=1";
    let (without, with) = (reads(&bench("")), reads(&bench(rules)));
    // 719 us and 50.4 ms against 331 us and 1.24 ms.
    assert!(with.0 * 2.0 < without.0, "99th percentile: {with:?} with it, {without:?} without");
    assert!(with.1 * 10.0 < without.1, "longest: {with:?} with it, {without:?} without");
    // The flood continues, and the scheduler's actions are among the incidents.
    let ran = run_in(
        &format!("bench flood.fio --on ufs,size=256M,clock=virtual {rules} --json"),
        folder.path(),
    );
    let result: Value = serde_json::from_str(&ran.stdout).unwrap();
    for (name, kind) in [("writer", "write"), ("trimmer", "trim")] {
        let jobs = result["jobs"].as_array().unwrap();
        let one = jobs.iter().find(|one| one["jobname"] == name).unwrap();
        assert!(one[kind]["total_ios"].as_u64() > Some(400), "{name}: {one}");
    }
    let told = &result["flysch"]["targets"][0]["incidents"]["scheduler"];
    assert!(told["less room for writes and deletes"].as_u64() > Some(0), "{told}");
}
