//! Disks that are replaced by others while a rig is open.

use std::path::Path;

use flysch_ahci::AtaCommand;
use flysch_wire::ata::Opcode;

use super::super::{RigClock, RigFile};
use super::*;
use crate::Needs;

fn open(text: &str) -> OpenRig {
    let rig = RigFile::parse(Path::new("r.toml"), text, &[]).expect("a rig");
    OpenRig::open(&rig, &Needs { memory: 4096, ..Needs::default() }, false).expect("models")
}

/// Sets the number of accessible sectors of the disk behind a port, until its next power cycle.
fn set_max(rig: &OpenRig, sectors: u64) {
    let mut stack = rig.buses[0].stack.borrow_mut();
    let ahci = stack.ahci().expect("a SATA disk");
    ahci.command(AtaCommand::new(Opcode::ReadNativeMaxExt)).expect("the native size");
    let mut command = AtaCommand::new(Opcode::SetMaxExt);
    command.task.lba = sectors - 1;
    ahci.command(command).expect("a smaller one");
}

#[test]
fn a_disk_of_another_size_is_told_by_a_scan() {
    let mut rig = open(
        "clock = \"virtual\"\n[[controller]]\nname = \"a\"\ntarget = \"ahci,size=64M\"\n\
         disks = [\"x\", \"y\"]\n",
    );
    assert!(matches!(rig.clock(), Some(RigClock::Models(_))));
    assert!(rig.rescan(None).expect("both are there").is_empty(), "nothing has changed");
    set_max(&rig, 1 << 15);
    let news = rig.rescan(Some("x")).expect("it is there");
    let [News::Changed(disk, change)] = &news[..] else { panic!("{news:?}") };
    assert_eq!((&disk.name[..], *change), ("x", Change::Resized { bytes: 16 << 20 }));
    // Its lanes are those of the disk as it is now, and it is told once.
    let Source::Lanes(lanes) = &disk.source else { panic!("a model has lanes") };
    use flysch_api::block::BlockDevice as _;
    assert_eq!(lanes[0].geometry().bytes(), 16 << 20);
    assert!(rig.rescan(None).expect("both are there").is_empty());
}
