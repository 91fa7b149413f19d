# What the scripts on exports share. Each line `ok NAME` is looked for.
set -o pipefail
f=/share/flysch log=/tmp/log
fail() { echo "FAILED: $*"; [ ! -e $log ] || cat $log; dmesg | tail -20; exit 1; }
# limit FILE VALUE: what the kernel made of a limit of the disk $d.
limit() {
    local found
    found=$(cat /sys/block/${d#/dev/}/queue/$1)
    [ "$found" = "$2" ] || fail "$1 is $found, not $2"
}
verify() {
    fio --name=v --rw=randrw --ioengine=libaio --direct=1 --verify=crc32c --verify_fatal=1 \
        --output=/tmp/fio "$@" || { cat /tmp/fio; fail "fio $*"; }
}
# verify_queues: from each processor its own part.
verify_queues() {
    verify --filename=$d --numjobs=2 --cpus_allowed=0-1 --cpus_allowed_policy=split --iodepth=16 \
        --bsrange=4k-512k --size=64m --offset_increment=64m --number_ios=600
}
sums() { (cd /mnt; find . -type f | sort | xargs sha256sum | sha256sum); }
check_ext4() { e2fsck -fn $d >/tmp/fsck 2>&1 || { cat /tmp/fsck; fail e2fsck; }; }
# files: a file system, whose files are the same after a mount, and its discards.
files() {
    mkfs.ext4 -q -F $d && mount $d /mnt || fail mkfs
    cp -r /usr/lib/x86_64-linux-gnu/perl-base /mnt
    before=$(sums)
    umount /mnt && mount $d /mnt && [ "$before" = "$(sums)" ] || fail files
    verify --directory=/mnt --bs=4k --iodepth=8 --size=16m --number_ios=500 --fsync=32
    rm -rf /mnt/v.*; fstrim /mnt || fail fstrim
    umount /mnt
    check_ext4
}
# zeroes: written by the disk itself, in the first four MiB.
zeroes() {
    dd if=/dev/urandom of=$d bs=1M count=4 oflag=direct status=none
    blkdiscard -z -o 1M -l 2M $d || fail "write zeroes"
    head -c 2M /dev/zero >/tmp/zeroes
    dd if=$d bs=1M skip=1 count=2 iflag=direct status=none | cmp - /tmp/zeroes || fail zeroes
    blkdiscard -o 1M -l 2M $d || fail discard
}
no_complaints() {
    dmesg | grep -E 'BUG|WARNING|Call Trace|hung task|blocked for more' && fail "the kernel complains"
    echo ok clean
}
