//! `/dev/mtdN` itself: `flysch image` shows of the device what the kernel's mount shows, including
//! bad blocks and bit errors; and it writes the device in the same way.

use std::time::Duration;

use crate::common::lab;

fn share() -> tempfile::TempDir {
    let share = tempfile::tempdir().unwrap();
    crate::common::put_command(share.path());
    let test = ["test", "--package", "flysch-linux", "--test", "device", "--no-run"];
    crate::common::put(&crate::common::build(&test, "device"), share.path(), "device");
    crate::common::put_helper(share.path());
    share
}

/// 64 MiB of NAND in 128 KiB blocks with 2 KiB pages, an occasional 1-bit flip, bad blocks, and 8
/// MiB of NOR. Each file system is filled, compared when mounted and through the device, and once
/// more with a planted difference.
const SCRIPT: &str = r#"
set -e
cd /share
modprobe nandsim first_id_byte=0x20 second_id_byte=0xa2 third_id_byte=0x00 fourth_id_byte=0x15 \
    parts=200,150,50 badblocks=7,210,211 bitflips=1 2>&1
modprobe mtdram total_size=8192 erase_size=64
modprobe ubifs; modprobe jffs2; modprobe mtdblock
cat /proc/mtd
mkdir -p /tmp/mnt /tmp/out
manifest() { # DIR: without what no extraction can restore
    ./flysch-lab-guest manifest $1 | sed -E 's/ ctime [0-9.-]+//; s/ inode [0-9]+//
        /\t(Directory|BlockDevice|CharacterDevice|Socket|Fifo) /s/ size [0-9]+//
        /\tDirectory /s/ links [0-9]+//' | sort
}
compare() { # DEVICE NAME: what is mounted, and what the device tells
    manifest /tmp/mnt > /tmp/a
    ./flysch image extract $1 -o /tmp/out/$2
    manifest /tmp/out/$2 > /tmp/b
    if ! cmp /tmp/a /tmp/b; then diff /tmp/a /tmp/b | head -20; exit 1; fi
    echo "same: $2, $(wc -l < /tmp/a) files"
    ./flysch image check $1 > $2.check || { cat $2.check; exit 1; }
    ./flysch image info $1 > $2.info
    test "$(./flysch image ls --json $1 | wc -c)" -gt 1000
}

ubiformat /dev/mtd0 -q -y; ubiattach -m 0 > /dev/null
ubimkvol /dev/ubi0 -N v -s 12MiB > /dev/null
mount -t ubifs ubi0:v /tmp/mnt
./flysch-lab-guest rich /tmp/mnt 1
umount /tmp/mnt; mount -t ubifs -o ro ubi0:v /tmp/mnt
compare /dev/mtd0 ubifs
umount /tmp/mnt; ubidetach -m 0

mount -t jffs2 mtd1 /tmp/mnt
./flysch-lab-guest rich /tmp/mnt 2
umount /tmp/mnt; mount -t jffs2 -o ro mtd1 /tmp/mnt
compare /dev/mtd1 nand
umount /tmp/mnt
nor=$(grep mtdram /proc/mtd | cut -d: -f1)
mount -t jffs2 $nor /tmp/mnt
./flysch-lab-guest rich /tmp/mnt 3
umount /tmp/mnt; mount -t jffs2 -o ro $nor /tmp/mnt
compare /dev/${nor}ro nor

echo x > /tmp/out/nor/planted
manifest /tmp/out/nor > /tmp/b
if cmp -s /tmp/a /tmp/b; then echo "a planted difference is not seen"; exit 1; fi
umount /tmp/mnt

FLYSCH_MTD=/dev/mtd2 ./device --nocapture
flash_erase -q /dev/$nor 0 0
FLYSCH_MTD=/dev/$nor ./device --nocapture
if ./flysch image info /dev/null; then exit 1; fi
"#;

#[test]
fn devices_show_what_the_kernel_shows_and_are_written() {
    let Some(lab) = lab() else { return };
    let share = share();
    let output = crate::common::run_for(&lab, SCRIPT, share.path(), Duration::from_secs(600));
    println!("{output}");
    for name in ["ubifs", "nand", "nor"] {
        assert!(output.contains(&format!("same: {name},")), "{}", output);
        let info = std::fs::read_to_string(share.path().join(format!("{name}.info"))).unwrap();
        println!("{info}");
        assert!(info.contains("device"), "{info}");
    }
    assert_eq!(output.matches("test result: ok. 2 passed").count(), 2, "{}", output);
}
