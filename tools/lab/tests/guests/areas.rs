//! The white paper's experiment repeated: the four areas of Linux's own UFS and NVMe stacks,
//! recorded in the guest and joined by `flysch bench trace`.

use std::fs;
use std::path::Path;
use std::time::Duration;

use flysch_lab::{Job, Lab};
use serde_json::Value;

use crate::common::{call, command, labs};
use crate::served::qemu_11;

const JOBS: [&str; 8] = [
    "4k.randread.1",
    "4k.randread.8",
    "4k.randwrite.1",
    "4k.randwrite.8",
    "128k.read.1",
    "128k.read.8",
    "128k.write.1",
    "128k.write.8",
];

/// QEMU's own UFS and NVMe devices in one guest, each on a file.
fn record(lab: &Lab, share: &Path) -> String {
    let image = |name: &str| {
        let path = share.join(name);
        fs::File::create(&path).unwrap().set_len(512 << 20).unwrap();
        path.display().to_string()
    };
    let (ufs, nvme) = (image("ufs.img"), image("nvme.img"));
    let arguments = [
        "-smp".into(),
        "2".into(),
        "-machine".into(),
        "q35".into(),
        "-drive".into(),
        format!("if=none,id=u0,format=raw,file={ufs}"),
        "-device".into(),
        "ufs,id=uf,serial=y,mcq=true,mcq-maxq=2".into(),
        "-device".into(),
        "ufs-lu,bus=uf,drive=u0".into(),
        "-drive".into(),
        format!("if=none,id=n0,format=raw,file={nvme}"),
        "-device".into(),
        "nvme,drive=n0,serial=x,max_ioqpairs=2".into(),
    ];
    let script = format!(
        "{}\n{}",
        include_str!("areas.sh"),
        "modprobe nvme; sleep 3; areas nvme /dev/nvme0n1\n\
         modprobe scsi_mod; modprobe sd_mod; modprobe ufshcd-pci; sleep 3\n\
         areas ufs $(lsblk -dnpo NAME | grep /dev/sd | head -1)\n"
    );
    let job = Job {
        arguments: &arguments,
        program: Some(qemu_11()),
        timeout: Duration::from_secs(900),
        ..Job::new(&script, share)
    };
    let done = lab.run(&job).unwrap();
    assert_eq!(done.status, 0, "{}\n{}", done.output, done.console);
    done.output
}

/// Every request made by fio is an I/O with its areas, whose sum does not exceed what fio measured
/// around them; and the four ratios are printed beside the paper's.
#[test]
fn linux_spends_its_time_in_four_areas() {
    let program = command();
    for lab in labs() {
        let share = tempfile::tempdir().unwrap();
        let said = record(&lab, share.path());
        println!("{:?}\n{said}", lab.kernel());
        for kind in ["ufs", "nvme"] {
            for job in JOBS {
                let name = format!("{kind}.{job}");
                assert!(said.contains(&format!("{name} 0")), "{name}: the recorder lost events");
                let words = format!("bench trace import {name}.trace --json");
                let summary: Value =
                    serde_json::from_str(&call(&program, &words, share.path())).unwrap();
                let fio = fs::read_to_string(share.path().join(format!("{name}.json"))).unwrap();
                let fio: Value = serde_json::from_str(&fio[fio.find('{').unwrap()..]).unwrap();
                let side = if job.contains("read") { "read" } else { "write" };
                let theirs = &fio["jobs"][0][side];
                let groups = summary["groups"].as_array().unwrap().iter();
                let mut ours = groups.filter(|group| {
                    group["driver"] == kind
                        && group["call"].is_string()
                        && group["operation"] == side
                });
                let ours = ours.next().unwrap_or_else(|| panic!("{name}: {summary}"));
                assert_eq!(ours["ios"], theirs["total_ios"], "{name}");
                let area = |name: &str| {
                    let areas = ours["areas"].as_array().unwrap().iter();
                    let found = areas.clone().find(|area| area["name"] == name);
                    found.unwrap_or_else(|| panic!("{name}"))["mean_ns"].as_f64().unwrap()
                };
                let (all, lat) = (area("all"), theirs["lat_ns"]["mean"].as_f64().unwrap());
                assert!(all <= lat * 1.01 && all >= lat * 0.3, "{name}: {all} of {lat} ns");
                assert!(area("3 device") > 0.0 && area("1 file system") > 0.0, "{name}");
            }
        }
        let files = |kind: &str| JOBS.map(|job| format!("{kind}.{job}.trace")).join(" ");
        let words = format!("bench trace ratio --ufs {} --nvme {}", files("ufs"), files("nvme"));
        println!("{}", call(&program, &words, share.path()));
    }
}
