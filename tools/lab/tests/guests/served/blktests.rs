//! blktests, the kernel's own tests of block devices, on our served disks.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{AHCI, Device, EMMC, NVME, SD, UFS, on_each_with};
use crate::common::put_program;

/// Programs that the tests need and the guest lacks.
const PROGRAMS: [&str; 6] = ["gawk", "column", "hexdump", "setpci", "xfs_io", "nvme"];

/// Discards, flushes, schedulers and processors that change during I/O, a function disabled in the
/// middle of it, a read-only disk; for NVMe also polling, reset, rescan and removal, for SCSI disks
/// the requests of the generic driver.
///
/// The tree of blktests, with its programs built, is the folder named by `FLYSCH_BLKTESTS`: Debian
/// does not package it.
#[test]
fn blktests_pass_on_our_disks() {
    let Some(tree) = std::env::var_os("FLYSCH_BLKTESTS").map(PathBuf::from) else {
        println!("skipped: FLYSCH_BLKTESTS names no tree of blktests");
        return;
    };
    let lay = |share: &Path| {
        let copied = Command::new("cp").arg("-r").arg(&tree).arg(share.join("blktests")).status();
        assert!(copied.is_ok_and(|status| status.success()), "{} is copied", tree.display());
        for program in PROGRAMS {
            assert!(put_program(program, share).is_some(), "{program} is missing");
        }
    };
    let of_all = ["block/003", "block/004", "block/005", "block/008", "block/012"];
    let of_nvme = ["block/007", "nvme/032", "nvme/053"];
    let of_scsi = ["scsi/001", "scsi/002", "scsi/006"];
    for device in [NVME, Device { target: "ufs,size=256M,mcq=3", ..UFS }, AHCI, EMMC, SD] {
        let own: &[&str] = match device.driver {
            "nvme" => &of_nvme,
            "sdhci-pci" => &[],
            _ => &of_scsi,
        };
        // While a function may not master the bus, libata gives up its disk after three attempts to
        // identify it, and Linux 7.3 loses a command of a UFS device with queues forever.
        let survives = device.driver != AHCI.driver && device.driver != UFS.driver;
        let unmastered = survives.then_some("block/011");
        let tests: Vec<_> = of_all.iter().chain(own).copied().chain(unmastered).collect();
        let script = format!(
            "programs='{}'; tests='{}'\n{}",
            PROGRAMS.join(" "),
            tests.join(" "),
            include_str!("blktests.sh")
        );
        on_each_with(&[device], &script, lay, |title, output| {
            for test in &tests {
                let told = |line: &&str| line.starts_with(test) && line.ends_with(']');
                let told = output.lines().find(told).unwrap_or("no verdict");
                let passes = told.ends_with("[passed]") || told.ends_with("[not run]");
                assert!(passes, "{title}: {test}: {told}");
            }
            // Not all of them may be skipped.
            assert!(output.matches("[passed]").count() >= 4, "{title}");
            assert!(output.contains("\ndisk works"), "{title}");
        });
    }
}
