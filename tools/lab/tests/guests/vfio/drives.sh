# Linux has the controllers first; then ours; then Linux again. Each line `ok NAME` is looked for.
set -o pipefail
f=/share/flysch
nvme=0000:00:10.0 ufs=0000:00:11.0 one=0000:00:12.0 two=0000:00:12.1
fail() { echo "FAILED: $*"; dmesg | tail -20; exit 1; }
# refused WORDS... -- COMMAND: it fails in one line that has all the words.
refused() {
    local words=() said
    while [ "$1" != -- ]; do words+=("$1"); shift; done
    shift
    if said=$("$@" 2>&1); then fail "not refused: $*"; fi
    [ "$(wc -l <<<"$said")" = 1 ] || fail "more than a line: $said"
    for word in "${words[@]}"; do
        grep -qF -- "$word" <<<"$said" || fail "no \"$word\" in: $said"
    done
    echo "refused: $said"
}
driver() { basename "$(readlink /sys/bus/pci/devices/$1/driver || echo none)"; }
# master ADDRESS: whether it may access memory (command register, bit 2).
master() { echo $(($(od -An -tu1 -j4 -N1 /sys/bus/pci/devices/$1/config) >> 2 & 1)); }
# checked TARGET OPTION...: random data written, and read back with its checksums.
checked() {
    local target=$1
    shift
    $f bench --on "$target" --name=x --verify=crc32c "$@" >/tmp/said 2>&1 ||
        fail "$target $*: $(cat /tmp/said)"
    grep -q 'all as written' /tmp/said || fail "$target $*: nothing verified: $(cat /tmp/said)"
    grep -m1 "^$target: " /tmp/said
}

modprobe sd_mod && modprobe nvme && modprobe ufshcd-core use_mcq_mode=0 && modprobe ufshcd-pci
for _ in $(seq 100); do [ -b /dev/sda ] && [ -b /dev/nvme0n1 ] && break; sleep 0.1; done
mkfs.ext4 -q /dev/nvme0n1 && mount /dev/nvme0n1 /mnt && echo text >/mnt/file || fail mkfs

# What is in use, and what is not there, is said.
$f pci list
$f --json pci list >list
perl -0ne 'exit !/"by": "\/mnt".*"use": "mounted"/s' list || fail "the mount is not listed"
refused '`nvme`' 'nvme0n1 is mounted on /mnt' '`umount /mnt`' "\`flysch pci bind $nvme\`" -- \
    $f bench --on nvme@pci:$nvme
refused 'mounted on /mnt' '--yes' -- $f pci bind $nvme
refused 'modprobe vfio-pci' -- $f pci bind $ufs
[ "$(driver $nvme) $(driver $ufs)" = 'nvme ufshcd' ] || fail "a refusal changed something"
refused 'no such PCI function' -- $f pci bind 00:1e.7
umount /mnt
modprobe vfio-pci
refused 'is no UFS host controller but NVMe controller' -- $f bench --on ufs@pci:$nvme
refused 'is not bound to vfio-pci but to nvme' -- $f pci unbind $nvme
echo ok refusals

# A group has one owner.
[ -b /dev/nvme2n1 ] || fail "no second function"
refused "$two (nvme)" 'IOMMU group' '--yes' -- $f pci bind $one
$f pci bind --yes $one
[ "$(driver $one) $(driver $two)" = 'vfio-pci vfio-pci' ] || fail "not all of the group"
checked nvme@pci:$two --rw=randwrite --bs=4k --iodepth=4 --size=1M
$f pci unbind $two
[ "$(driver $two)" = nvme ] || fail "Linux did not take it back"
refused "$two (nvme)" 'IOMMU group' -- $f bench --on nvme@pci:$one
$f pci unbind $one
[ "$(driver $one)" = nvme ] || fail "Linux did not take it back"
echo ok groups

# Ours: interrupts and polled, queues and the single doorbell, lists, odd sizes, huge pages.
$f pci bind $nvme $ufs
[ ! -e /dev/nvme0n1 ] && [ ! -e /dev/sda ] || fail "Linux still has the disks"
for target in nvme@pci:$nvme nvme@pci:$nvme,wait=poll nvme@pci:$nvme,queues=3 \
    ufs@pci:$ufs ufs@pci:$ufs,wait=poll \
    ufs@pci:$ufs,mcq=1 ufs@pci:$ufs,mcq=1,wait=poll ufs@pci:$ufs,mcq=3; do
    checked $target --rw=randwrite --bs=4k --iodepth=1 --size=512K
    checked $target --rw=randrw --bs=4k --iodepth=32 --size=4M
    checked $target --rw=randrw --bsrange=4k-256k --iodepth=8 --size=16M --numjobs=1
    checked $target --rw=randrw --bs=64k --segments=5 --iodepth=8 --size=8M
    checked $target --rw=randrw --bs=8k --numjobs=3 --size=2M --offset_increment=8M --iodepth=5
done
echo 64 >/proc/sys/vm/nr_hugepages
checked nvme@pci:$nvme --rw=randrw --bs=64k --iodepth=8 --size=8M
grep -q 'huge pages' /tmp/said || fail "no huge pages used: $(cat /tmp/said)"
echo 0 >/proc/sys/vm/nr_hugepages
$f --json devlist --on ufs@pci:$ufs >/dev/null && $f ufs info --on ufs@pci:$ufs >/dev/null || fail ufs
echo ok data

# One process at a time; and one that is killed leaves nothing running.
for target in nvme@pci:$nvme ufs@pci:$ufs ufs@pci:$ufs,mcq=2; do
    address=$(grep -o '0000:[^,]*' <<<$target)
    for round in 1 2 3; do
        $f bench --on $target --rw=randwrite --bs=16k --iodepth=32 --size=32M --time_based \
            --runtime=60 >/dev/null 2>&1 &
        pid=$!
        for _ in $(seq 100); do [ "$(master $address)" = 1 ] && break; sleep 0.05; done
        [ "$(master $address)" = 1 ] || fail "$target never mastered the bus"
        sleep 0.4
        if [ $round = 1 ]; then
            refused "another program uses it (process $pid)" -- $f bench --on $target
            refused "another program uses it (process $pid)" -- $f pci unbind $address
        fi
        kill -9 $pid
        wait $pid 2>/dev/null
        [ "$(master $address)" = 0 ] || fail "$target still masters the bus"
        checked $target --rw=randrw --bs=4k --iodepth=32 --size=2M
    done
done
echo ok kill

# Who owns the group's file needs no root; too little memory that may be locked is said.
chown nobody /dev/vfio/$(basename $(readlink /sys/bus/pci/devices/$nvme/iommu_group))
as_nobody() { setpriv --reuid=nobody --clear-groups --inh-caps=-all "$@"; }
as_nobody $f bench --on nvme@pci:$nvme --rw=randread --bs=4k --iodepth=4 --size=1M \
    >/dev/null || fail "nobody may not"
refused 'pin' 'locked memory' 'ulimit -l' -- \
    prlimit --memlock=65536:65536 setpriv --reuid=nobody --clear-groups --inh-caps=-all \
    $f bench --on nvme@pci:$nvme --rw=randread --bs=64k --iodepth=32 --size=4M
refused 'permission denied' -- as_nobody $f bench --on ufs@pci:$ufs
echo ok rights

# What ours wrote Linux reads, and the other way round.
dd if=/dev/urandom of=/tmp/data bs=1M count=12 status=none
for target in nvme@pci:$nvme ufs@pci:$ufs; do
    $f copy /tmp/data $target --seek 4M --verify >/dev/null || fail "copy to $target"
done
$f pci unbind $nvme $ufs
for _ in $(seq 100); do [ -b /dev/sda ] && [ -b /dev/nvme0n1 ] && break; sleep 0.1; done
for disk in nvme0n1 sda; do
    dd if=/dev/$disk bs=1M skip=4 count=12 iflag=direct status=none | cmp - /tmp/data ||
        fail "Linux reads other data from $disk"
done
dd if=/dev/urandom of=/tmp/more bs=1M count=12 status=none
for disk in nvme0n1 sda; do
    mkfs.ext4 -q -F /dev/$disk && mount /dev/$disk /mnt && cp /tmp/more /mnt && umount /mnt ||
        fail "Linux's file system on $disk"
    dd if=/tmp/more of=/dev/$disk bs=1M seek=64 oflag=direct status=none
done
$f pci bind $nvme $ufs
for target in nvme@pci:$nvme ufs@pci:$ufs; do
    $f copy $target /tmp/back --skip 64M --length 12M >/dev/null && cmp /tmp/back /tmp/more ||
        fail "$target reads other data than Linux wrote"
    rm /tmp/back
done
$f pci unbind $nvme $ufs
for _ in $(seq 100); do [ -b /dev/sda ] && [ -b /dev/nvme0n1 ] && break; sleep 0.1; done
for disk in nvme0n1 sda; do
    e2fsck -fn /dev/$disk >/dev/null && mount -o ro /dev/$disk /mnt && cmp /mnt/more /tmp/more &&
        umount /mnt || fail "the file system on $disk"
done
echo ok peers
[ "$(driver $nvme) $(driver $ufs) $(driver $one)" = 'nvme ufshcd nvme' ] || fail "left bound"
! dmesg | grep -E 'BUG|Oops|Call Trace' || fail "the kernel complains"
echo ok end
