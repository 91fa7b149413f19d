//! BIOS RAID arrays made by mdadm and by us: each assembles, degrades, rebuilds and checks those of
//! the other, even if a rebuild was interrupted.

use std::path::Path;
use std::time::Duration;

use flysch_lab::Job;

use crate::common::{keep, lab, put, put_command};

/// mdadm and the program that maintains its metadata, both from this machine.
const PROGRAMS: [&str; 2] = ["/sbin/mdadm", "/sbin/mdmon"];

/// What the guest does. Disks are files and, for mdadm, loop devices, whose names it uses as serial
/// numbers.
const COMMON: &str = r#"
set -e
export IMSM_NO_PLATFORM=1 IMSM_DEVNAME_AS_SERIAL=1
cp /share/mdadm /share/mdmon /share/flysch /tmp/; export PATH=/tmp:$PATH
mkdir -p /run/mdadm /tmp/i; cd /tmp/i
for module in loop raid0 raid1 raid10 raid456; do modprobe $module; done
echo 200000 > /proc/sys/dev/raid/speed_limit_min

blank() { # SIZE NUMBER...: disks without anything
    local size=$1 n; shift
    for n in "$@"; do rm -f $n.img; truncate -s $size $n.img; done
}
ours() { # NUMBER... -- WORDS: flysch geom on these disks
    local disks=
    while [ "$1" != -- ]; do disks="$disks -f $1.img,name=d$1,serial=/dev/loop$1"; shift; done
    shift; flysch geom $disks "$@"
}
name() {
    ours "$@" -- --json raid list |
        perl -0ne 'print $1 if /"name": "((?:Intel|DDF)-[0-9a-f]+)"/'
}
attach() { local n; for n in "$@"; do losetup /dev/loop$n $n.img; done; }
wait_for() { # WORDS: until they are so
    local tries=0
    until eval "$*"; do
        tries=$((tries + 1)); test $tries -lt 600 || { echo "never: $*"; exit 1; }
        sleep 0.1
    done
}
theirs() { # NUMBER...: mdadm assembles them; md126 is the first volume, md125 the second
    attach "$@"
    local n devices=; for n in "$@"; do devices="$devices /dev/loop$n"; done
    mdadm -A /dev/md127 -e ${format:-imsm} $devices --run 2>&1
    mdadm -I /dev/md127 2>&1
}
ended() { # mdadm lets them go
    sync; wait_for '! grep -qE "resync|recovery" /proc/mdstat'
    let_go
}
let_go() {
    local a
    for a in /sys/block/md12[0-6]; do
        test -d $a && wait_for "mdadm --stop /dev/${a##*/} 2>/dev/null || ! test -d $a/md"
    done
    wait_for 'mdadm --stop /dev/md127 2>/dev/null || ! test -d /sys/block/md127/md'
    wait_for '! pidof mdmon > /dev/null'
    losetup -D; wait_for 'test -z "$(losetup -a)"'
}
equal() { cmp -n $3 $1.img $2.img; } # A B BYTES: both halves
data() { dd if=/dev/urandom of=$1 bs=64k count=$2 status=none; } # FILE STRIPS
at_level() { # LEVEL: the md of that level
    local md
    for md in /sys/block/md12[0-6]; do
        test "$(cat $md/md/level 2>/dev/null)" = $1 && echo /dev/${md##*/} && return
    done
    return 1
}
"#;

/// Arrays of Intel's format.
const INTEL: &str = r#"
echo "== theirs, read by us: every level"
for kind in "0 2" "1 2" "10 4" "5 3"; do
    set -- $kind; disks=$(seq -s' ' 0 $(($2 - 1)))
    blank 24M $disks; attach $disks
    mdadm --create /dev/md127 -e imsm -n $2 $(printf '/dev/loop%s ' $disks) --run 2>&1
    chunk=$([ $1 = 1 ] || echo -c 64)
    mdadm --create /dev/md126 -n $2 -l $1 $chunk -z 4096 /dev/md127 --run 2>&1
    data data 64; dd if=data of=/dev/md126 bs=1M oflag=direct status=none
    ended
    ours $disks -- raid status -s
    ours $disks -- copy raid/r0 back > /dev/null; cmp -n 4194304 data back
    if [ $1 = 5 ] || [ $1 = 10 ]; then
        ours $(echo $disks | cut -d' ' -f2-) -- copy raid/r0 back > /dev/null
        cmp -n 4194304 data back
    fi
    echo "same: level $1"
done

echo "== theirs, degraded by us, rebuilt by them"
blank 24M 0 1 2; attach 0 1
mdadm --create /dev/md127 -e imsm -n 2 /dev/loop0 /dev/loop1 --run 2>&1
mdadm --create /dev/md126 -n 2 -l 1 -z 4096 /dev/md127 --run 2>&1
ended
n=$(name 0 1); echo $n
data data 64
ours 0 1 -- raid remove $n d1
ours 0 -- copy data raid/r0
theirs 0
cmp -n 4194304 data /dev/md126
attach 2; mdadm --add /dev/md127 /dev/loop2 2>&1
wait_for 'grep -q "\[UU\]" /proc/mdstat'
ended
equal 0 2 4194304; ours 0 2 -- raid status -s
echo "same: degraded by us, rebuilt by them"

echo "== ours, two volumes, assembled by them"
blank 24M 0 1 2
ours 0 1 -- raid label -S 4m -s 64k Intel vol0 RAID1 d0 d1
n=$(name 0 1); ours 0 1 -- raid add -S 4m -s 64k $n vol1 RAID0
data data 64; data fast 128
ours 0 1 -- copy data raid/r0; ours 0 1 -- copy fast raid/r1
theirs 0 1
cmp data $(at_level raid1); cmp fast $(at_level raid0)
mdadm -E /dev/loop0 | grep -c "Checksum : .* correct" > /dev/null
echo "same: two volumes of ours"

echo "== ours, degraded and written by them, rebuilt by us"
one=$(at_level raid1)
mdadm --fail $one /dev/loop1 2>&1
data data 64; dd if=data of=$one bs=1M oflag=direct status=none
let_go
ours 0 1 -- raid status -s
ours 0 1 -- copy raid/r0 back > /dev/null; cmp data back
n=$(name 0 1); ours 0 2 -- --force raid insert $n d2
equal 0 2 4194304
theirs 0 2; cmp data $(at_level raid1); grep -q "\[UU\]" /proc/mdstat; ended
echo "same: degraded by them, rebuilt by us"

echo "== ours, level 10, without two disks"
blank 24M 0 1 2 3
ours 0 1 2 3 -- raid label -S 4m -s 64k Intel ten RAID10 d0 d1 d2 d3
data data 128; ours 0 1 2 3 -- copy data raid/r0
theirs 0 1 2 3; cmp data $(at_level raid10); ended
n=$(name 0 1 2 3); ours 0 1 2 3 -- raid remove $n d1 d2
data data 128; ours 0 3 -- copy data raid/r0
theirs 0 3; cmp data $(at_level raid10); ended
blank 24M 1 2; ours 0 1 2 3 -- raid insert $n d1 d2
theirs 0 1 2 3; cmp data $(at_level raid10); grep -q UUUU /proc/mdstat; ended
echo "same: level 10 of ours"

echo "== a rebuild of ours that was killed, ended by them"
blank 240M 0 1 2
ours 0 1 -- raid label -S 192m Intel vol RAID1 d0 d1
data data 3072; ours 0 1 -- copy data raid/r0
n=$(name 0 1); ours 0 1 -- raid remove $n d1
disks="-f 0.img,name=d0,serial=/dev/loop0 -f 2.img,name=d2,serial=/dev/loop2"
flysch geom $disks raid insert $n d2 > /dev/null 2>&1 &
unit() { # NUMBER: of migration, on its disk
    dd if=$1.img bs=512 skip=$(($(stat -c %s $1.img) / 512 - 2)) count=1 status=none |
        perl -0777 -ne 'print unpack("V", substr($_, 216 + 96 + 80, 4))'
}
wait_for 'test $(unit 0) -gt 0'; kill -9 $!; wait $! || true
echo "killed at unit $(unit 0)"
ours 0 2 -- raid status -s
theirs 0 2
wait_for 'grep -q "\[UU\]" /proc/mdstat'
cmp data $(at_level raid1); ended
equal 0 2 201326592
ours 0 2 -- raid status -s
echo "same: begun by us, ended by them"

echo "== a rebuild of theirs that was stopped, ended by us"
n=$(name 0 2); ours 0 2 -- raid remove $n d2; blank 240M 1
theirs 0; attach 1
echo 20000 > /proc/sys/dev/raid/speed_limit_max; echo 1000 > /proc/sys/dev/raid/speed_limit_min
mdadm --add /dev/md127 /dev/loop1 2>&1
raw() {
    dd if=/dev/loop0 bs=512 skip=$((240 * 2048 - 2)) count=1 iflag=direct status=none |
        perl -0777 -ne 'print unpack("V", substr($_, 216 + 96 + 80, 4))'
}
wait_for 'test $(raw) -gt 0'
echo idle > /sys/block/$(basename $(at_level raid1))/md/sync_action || true
let_go
echo "stopped at unit $(unit 0)"
ours 0 1 -- raid status -s | tee state
grep -q REBUILD state
n=$(name 0 1); ours 0 1 -- raid rebuild $n
equal 0 1 201326592
theirs 0 1; cmp data $(at_level raid1); grep -q "\[UU\]" /proc/mdstat; ended
echo "same: begun by them, ended by us"
printf x | dd of=1.img bs=1 seek=100000 conv=notrunc status=none
if equal 0 1 201326592 > /dev/null; then echo "a planted difference is not seen"; exit 1; fi
"#;

/// Arrays of DDF, and spare disks. No disk is added to a container that lacks one: mdadm 4.2 then
/// crashes with a segmentation fault, even with its own container. Disks come as spares.
const DDF: &str = r#"
echo "== DDF, made by them, read by us"
format=ddf
for kind in "0 2" "1 2" "10 4" "5 3"; do
    set -- $kind; disks=$(seq -s' ' 0 $(($2 - 1)))
    blank 48M $disks; attach $disks
    mdadm --create /dev/md127 -e ddf -n $2 $(printf '/dev/loop%s ' $disks) --run 2>&1
    chunk=$([ $1 = 1 ] || echo -c 64)
    mdadm --create /dev/md126 -n $2 -l $1 $chunk -z 4096 /dev/md127 --run 2>&1
    data data 64; dd if=data of=/dev/md126 bs=1M oflag=direct status=none
    ended
    ours $disks -- raid status -s
    ours $disks -- copy raid/r0 back > /dev/null; cmp -n 4194304 data back
    if [ $1 != 0 ]; then
        ours $(echo $disks | cut -d' ' -f2-) -- copy raid/r0 back > /dev/null
        cmp -n 4194304 data back
    fi
    if [ $1 = 1 ]; then
        theirs $disks
        mdadm --fail $(at_level raid1) /dev/loop1 2>&1
        data data 64; dd if=data of=$(at_level raid1) bs=1M oflag=direct status=none
        let_go
        ours $disks -- raid status -s
        for turn in 1 2 3; do
            ours $disks -- copy raid/r0 back > /dev/null; cmp -n 4194304 data back
        done
    fi
    echo "same: DDF level $1"
done

echo "== DDF, made by us, read and written by them"
for kind in "RAID0 2 raid0" "RAID1 2 raid1" "RAID10 4 raid10"; do
    set -- $kind; disks=$(seq -s' ' 0 $(($2 - 1)))
    blank 80M 0 1 2 3 4
    ours $disks -- raid label -S 4m -s 64k DDF vol $1 $(printf 'd%s ' $disks)
    data data 64; ours $disks -- copy data raid/r0
    theirs $disks
    mdadm -E /dev/loop0 | grep -A30 "Virtual Disks" | head -40
    cmp -n 4194304 data $(at_level $3)
    data data 64; dd if=data of=$(at_level $3) bs=1M oflag=direct status=none
    ended
    ours $disks -- raid status -s
    ours $disks -- copy raid/r0 back > /dev/null; cmp -n 4194304 data back
    echo "same: DDF $1 of ours"
    test $1 != RAID0 || continue
    theirs $disks; mdadm --fail $(at_level $3) /dev/loop1 2>&1
    data data 64; dd if=data of=$(at_level $3) bs=1M oflag=direct status=none
    let_go
    ours $disks -- raid status -s
    ours $disks -- copy raid/r0 back > /dev/null; cmp -n 4194304 data back
    n=$(name $disks); rest=$(echo $disks | sed 's/\b1\b/4/')
    ours $rest -- raid insert $n d4
    equal 0 4 2097152
    theirs $rest; cmp -n 4194304 data $(at_level $3); grep -qE "\[U+\]" /proc/mdstat
    ended
    ours $rest -- raid status -s | tee state; grep -q OPTIMAL state
    echo "same: DDF $1, degraded by them, rebuilt by us"
done

echo "== DDF, made by them, degraded by us, rebuilt by them"
blank 80M 0 1 2; attach 0 1
mdadm --create /dev/md127 -e ddf -n 2 /dev/loop0 /dev/loop1 --run 2>&1
mdadm --create /dev/md126 -n 2 -l 1 -z 4096 /dev/md127 --run 2>&1
ended
n=$(name 0 1); data data 64
ours 0 1 2 -- raid insert $n d2
ours 0 1 2 -- raid fail $n d1
ours 0 2 -- copy data raid/r0
theirs 0 2; cmp -n 4194304 data $(at_level raid1)
wait_for 'grep -q "\[UU\]" /proc/mdstat'; ended
ours 0 2 -- raid status -s | tee state; grep -q OPTIMAL state
equal 0 2 4194304
echo "same: DDF, degraded by us, rebuilt by them"

echo "== DDF, a spare of ours, taken by them; one of theirs, taken by us"
blank 80M 0 1 2 3
ours 0 1 -- raid label -S 4m DDF vol RAID1 d0 d1
n=$(name 0 1); data data 64; ours 0 1 -- copy data raid/r0
ours 0 1 2 -- raid insert $n d2
theirs 0 1 2; mdadm --fail $(at_level raid1) /dev/loop1 2>&1
wait_for 'grep -q "\[UU\]" /proc/mdstat'; cmp -n 4194304 data $(at_level raid1); ended
ours 0 1 2 -- raid status -s | tee state; grep -q OPTIMAL state
equal 0 2 4194304
blank 80M 0 2 3; attach 0 2 3
mdadm --create /dev/md127 -e ddf -n 3 /dev/loop0 /dev/loop2 /dev/loop3 --run 2>&1
mdadm --create /dev/md126 -n 2 -l 1 -z 4096 /dev/md127 --run 2>&1
dd if=data of=$(at_level raid1) bs=1M oflag=direct status=none; ended
n=$(name 0 2 3)
ours 0 2 3 -- raid status
first=$(ours 0 2 3 -- --json raid list | perl -0ne 'print $1 if /"d([023])"/')
ours 0 2 3 -- raid fail $n d$first
ours 0 2 3 -- raid rebuild $n | tee said; grep -q "1 subdisk rebuilt" said
rest=$(echo 0 2 3 | sed "s/$first//")
ours $rest -- raid status -s | tee state; grep -q OPTIMAL state
equal $rest 4194304
theirs $rest; cmp -n 4194304 data $(at_level raid1); grep -q "\[UU\]" /proc/mdstat; ended
echo "same: DDF spares"

echo "== Intel, a spare of ours, taken by them; one of theirs, taken by us"
format=imsm
blank 24M 0 1 2 3
ours 0 1 -- raid label -S 4m Intel vol RAID1 d0 d1
n=$(name 0 1); data data 64; ours 0 1 -- copy data raid/r0
ours 0 1 2 -- raid insert $n d2
theirs 0 1 2; mdadm --fail $(at_level raid1) /dev/loop1 2>&1
wait_for 'grep -q "\[UU\]" /proc/mdstat'; cmp -n 4194304 data $(at_level raid1); ended
ours 0 2 -- raid status -s | tee state; grep -q OPTIMAL state
equal 0 2 4194304
theirs 0 2; attach 3; mdadm --add /dev/md127 /dev/loop3 2>&1; ended
n=$(name 0 2); ours 0 2 3 -- raid fail $n d0
ours 0 2 3 -- raid rebuild $n | tee said; grep -q "1 subdisk rebuilt" said
ours 2 3 -- raid status -s | tee state; grep -q OPTIMAL state
equal 2 3 4194304
theirs 2 3; cmp -n 4194304 data $(at_level raid1); grep -q "\[UU\]" /proc/mdstat; ended
echo "same: Intel spares"

echo "== DDF, rebuilds that were cut"
format=ddf
blank 240M 0 1 2
ours 0 1 -- raid label -S 96m DDF vol RAID1 d0 d1
data data 1536; ours 0 1 -- copy data raid/r0
n=$(name 0 1); ours 0 1 -- raid remove $n d1
disks="-f 0.img,name=d0,serial=/dev/loop0 -f 2.img,name=d2,serial=/dev/loop2"
flysch geom $disks raid insert $n d2 > /dev/null 2>&1 &
wait_for 'test $(stat -c %b 2.img) -gt 4096'; kill -9 $!; wait $! || true
ours 0 2 -- raid status -s | tee state; grep -q REBUILD state
ours 0 2 -- copy raid/r0 back > /dev/null; cmp data back
ours 0 2 -- raid rebuild $n; equal 0 2 100663296
theirs 0 2; cmp data $(at_level raid1); grep -q "\[UU\]" /proc/mdstat; ended
echo "same: DDF, cut by us"
blank 240M 1
n=$(name 0 2); ours 0 1 2 -- raid insert $n d1; ours 0 1 2 -- raid fail $n d2
echo 20000 > /proc/sys/dev/raid/speed_limit_max; echo 1000 > /proc/sys/dev/raid/speed_limit_min
theirs 0 1
wait_for 'grep -q recovery /proc/mdstat'; sleep 1
echo idle > /sys/block/$(basename $(at_level raid1))/md/sync_action || true
let_go
ours 0 1 -- raid status -s | tee state
n=$(name 0 1); ours 0 1 -- raid rebuild $n
ours 0 1 -- raid status -s | tee state; grep -q OPTIMAL state
equal 0 1 100663296
echo 200000 > /proc/sys/dev/raid/speed_limit_max
theirs 0 1; cmp data $(at_level raid1); grep -q "\[UU\]" /proc/mdstat; ended
echo "same: DDF, cut by them"
"#;

/// Runs a script in the guest, which must report each of `same` as equal.
fn run(script: &str, same: &[&str]) {
    let Some(lab) = lab() else { return };
    if let Some(missing) = PROGRAMS.into_iter().find(|program| !Path::new(program).exists()) {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "{missing} is missing");
        println!("skipped: {missing} is missing: install the Debian package mdadm");
        return;
    }
    let share = tempfile::tempdir().unwrap();
    put_command(share.path());
    for (program, name) in PROGRAMS.into_iter().zip(["mdadm", "mdmon"]) {
        put(Path::new(program), share.path(), name);
    }
    let (memory_mib, timeout) = (2048, Duration::from_secs(1500));
    let script = format!("{COMMON}{script}");
    let job = Job { memory_mib, timeout, ..Job::new(&script, share.path()) };
    let done = lab.run(&job).unwrap();
    println!("{}", done.output);
    if done.status != 0 {
        keep(share.path());
    }
    assert_eq!(done.status, 0, "{}", done.output);
    for what in same {
        assert!(done.output.contains(&format!("same: {what}\n")), "{what}: {}", done.output);
    }
}

#[test]
fn raid_of_intel_goes_to_mdadm_and_comes_back() {
    run(
        INTEL,
        &[
            "level 0",
            "level 1",
            "level 10",
            "level 5",
            "degraded by us, rebuilt by them",
            "two volumes of ours",
            "degraded by them, rebuilt by us",
            "level 10 of ours",
            "begun by us, ended by them",
            "begun by them, ended by us",
        ],
    );
}

#[test]
fn raid_of_ddf_and_spares_go_to_mdadm_and_come_back() {
    run(
        DDF,
        &[
            "DDF level 0",
            "DDF level 1",
            "DDF level 10",
            "DDF level 5",
            "DDF RAID0 of ours",
            "DDF RAID1 of ours",
            "DDF RAID10 of ours",
            "DDF RAID1, degraded by them, rebuilt by us",
            "DDF RAID10, degraded by them, rebuilt by us",
            "DDF, degraded by us, rebuilt by them",
            "DDF spares",
            "Intel spares",
            "DDF, cut by us",
            "DDF, cut by them",
        ],
    );
}
