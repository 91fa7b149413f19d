//! Linux mounts repaired images with its own checks on, and finds the expected files.
//!
//! The prepared images of the mtd-utils test suite are not part of the project (GPL-2.0):
//! `FLYSCH_UBIFS_IMAGES` names a directory with their `.gz` files and `expected.tsv`.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use flysch_image::{Image, ImageOpenOptions};
use flysch_ubifs::repair::Level;

/// Each line of `list` is one image and its columns; what differs is printed.
const SCRIPT: &str = r#"
cd /share
mount -t debugfs debug /sys/kernel/debug 2>/dev/null
modprobe ubi; modprobe ubifs; mkdir -p /mnt
for check in general index orphans lprops fs; do
    echo 1 > /sys/kernel/debug/ubifs/chk_$check
    [ "$(cat /sys/kernel/debug/ubifs/chk_$check)" = 1 ] || exit 9
done
same() { [ "$2" = "$3" ] || echo "WRONG $name: $1 is $2 and not $3"; }
is() { "$@" 2>/dev/null && echo 1 || echo 0; }
sum() { md5sum "$1" 2>/dev/null | cut -d' ' -f1; }
xattr() { getfattr --only-values -n user.corrupt "$1" 2>/dev/null; }
FILE=7d2f953e91033c743ab6a801d5ee6e15 OTHER=ba1f2511fc30423bdbb183fe33f3dd0f
while IFS='|' read -r name level f fu fx h hu hx s d du lost; do
    modprobe mtdram total_size=$(($(stat -c %s $name.img) / 1024)) erase_size=16
    cat $name.img > /dev/mtd0 2>/dev/null || dd if=$name.img of=/dev/mtd0 bs=16k 2>/dev/null
    cmp $name.img /dev/mtd0 || echo "WRONG $name: the flash"
    dmesg -c > /dev/null
    ubiattach -p /dev/mtd0 > /dev/null || echo "WRONG $name: no UBI"
    if mount -t ubifs /dev/ubi0_0 /mnt; then
        cd /mnt; find . -type f -exec cat {} + > /dev/null || echo "WRONG $name: cannot be read"
        same file $(is test -f corrupt_file) $f
        same file-unchanged $(is test "$(sum corrupt_file)" = $FILE) $fu
        same file-xattr $(is test "$(xattr corrupt_file)" = 123) $fx
        same hardlink $(is test -f hardl_corrupt_file) $h
        same hardlink-unchanged $(is test "$(sum hardl_corrupt_file)" = $FILE) $hu
        same hardlink-xattr $(is test "$(xattr hardl_corrupt_file)" = 123) $hx
        same symlink $(is test -L softl_corrupt_file) $s
        same dir $(is test -d dir/dir -a -b dir/block_dev -a -c dir/char_dev) $d
        [ $d = 0 ] || same dir-file $(is test "$(sum dir/file)" = $OTHER) $du
        case "$lost" in
        "no lost+found") same lost $(is test -e lost+found) 0;;
        *regular) same lost $(is test -f lost+found) 1;;
        *one) same lost "$(sum lost+found/INO_72_0)" $OTHER;;
        *two) same lost "$(sum lost+found/INO_72_0)" $OTHER
              same lost "$(sum lost+found/INO_65_0)" $FILE;;
        *) same lost "$(sum lost+found/INO_72_1)" $OTHER
           same lost $(is test -f lost+found/INO_72_0) 1;;
        esac
        (echo new > new && sync && rm new) || echo "full: $name"; cd /share
        umount /mnt || echo "WRONG $name: umount"
    else
        echo "WRONG $name: not mounted"
    fi
    dmesg | grep -iE 'ubifs error|ubifs_assert|check failed|Call Trace' | head -3 |
        sed "s/^/WRONG $name: /"
    ubidetach -d 0; rmmod mtdram
    echo "done $name"
done < list
"#;

#[test]
fn linux_mounts_what_was_repaired() {
    let Some(lab) = crate::common::lab() else { return };
    let Some(folder) = std::env::var_os("FLYSCH_UBIFS_IMAGES").map(PathBuf::from) else {
        return println!("skipped: FLYSCH_UBIFS_IMAGES names no directory");
    };
    let share = tempfile::tempdir().unwrap();
    let mut list = String::new();
    let expected = fs::read_to_string(folder.join("expected.tsv")).unwrap();
    for line in expected.lines().skip(1) {
        let columns: Vec<&str> = line.split('\t').collect();
        let level = match columns[1] {
            "safe" => Level::Safe,
            "danger_default" => Level::DangerDefault,
            "danger_rebuild" => Level::DangerRebuild,
            _ => continue,
        };
        let path = share.path().join(format!("{}.img", columns[0]));
        let packed = folder.join(format!("{}.gz", columns[0]));
        let bytes = Command::new("gzip").arg("-dc").arg(packed).output().unwrap().stdout;
        fs::write(&path, bytes).unwrap();
        if columns[0] != "good" {
            let image = Image::open(&path, &ImageOpenOptions::default()).unwrap();
            let volume = image.volumes().next().unwrap();
            image.repair(volume, level, 1_700_000_000, 0).unwrap();
        }
        list += &columns.join("|");
        list.push('\n');
    }
    fs::write(share.path().join("list"), &list).unwrap();
    let output = crate::common::run_for(&lab, SCRIPT, share.path(), Duration::from_secs(600));
    let wrong: Vec<&str> = output.lines().filter(|line| line.starts_with("WRONG")).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let mounted = output.lines().filter(|line| line.starts_with("done ")).count();
    assert_eq!(mounted, list.lines().count(), "{output}");
}
