//! The guest starts, has the kernel's flash stack, and reports how a script ended.

use std::time::Duration;

use crate::common::lab;
use flysch_lab::{Job, LabError};

#[test]
fn kernel_file_systems_work_and_results_come_back() {
    let Some(lab) = lab() else { return };
    let share = tempfile::tempdir().unwrap();
    std::fs::write(share.path().join("in"), "from outside\n").unwrap();
    let script = "
        set -e
        modprobe nandsim first_id_byte=0x20 second_id_byte=0xaa \
            third_id_byte=0x00 fourth_id_byte=0x15
        modprobe ubifs; modprobe jffs2
        ubiformat /dev/mtd0 -q -y; ubiattach -m 0 >/dev/null
        ubimkvol /dev/ubi0 -N v -s 16MiB >/dev/null
        mount -t ubifs ubi0:v /mnt
        cp in /mnt/f; setfattr -n user.a -v b /mnt/f; sync
        getfattr --absolute-names --only-values -n user.a /mnt/f > xattr
        cp /mnt/f out
        echo said; exit 7";
    let done = lab.run(&Job::new(script, share.path())).unwrap();
    assert_eq!((done.status, done.output.trim()), (7, "said"), "{}", done.console);
    assert_eq!(std::fs::read_to_string(share.path().join("out")).unwrap(), "from outside\n");
    assert_eq!(std::fs::read_to_string(share.path().join("xattr")).unwrap(), "b");
}

#[test]
fn guest_that_hangs_is_ended_in_time() {
    let Some(lab) = lab() else { return };
    let share = tempfile::tempdir().unwrap();
    let job = Job { timeout: Duration::from_secs(15), ..Job::new("sleep 1000", share.path()) };
    assert!(matches!(lab.run(&job), Err(LabError::TimedOut { seconds: 15, .. })));
    assert_eq!(std::fs::read_dir(share.path()).unwrap().count(), 0, "nothing is left in the share");
}
