# Linux has the controllers first; then ours; then Linux again. Each line `ok NAME` is looked for.
nvme=0000:00:10.0 ufs=0000:00:11.0 one=0000:00:12.0 two=0000:00:12.1
sata=0000:00:13.0 mmc=0000:00:14.0 card=0000:00:15.0
# QEMU 11.1 aborts at the next command to an eMMC device that Linux 7 has put to sleep, which it does
# when it is unbound: there this is `emmc=no`, and the device stays with Linux.
[ "$emmc" = no ] && mmc=
all="$nvme $ufs $sata $mmc $card"
driver() { basename "$(readlink /sys/bus/pci/devices/$1/driver || echo none)"; }

# disk ADDRESS: the disk of a function, without the partitions of an eMMC device.
disk() {
    local place
    for place in /sys/block/*; do
        case $(readlink -f $place) in
            *boot[01]) ;;
            */$1/*) basename $place ;;
        esac
    done
}
# Linux has found all disks.
found() {
    local one
    for one in $all; do
        for _ in $(seq 200); do [ -n "$(disk $one)" ] && break; sleep 0.1; done
        [ -b /dev/$(disk $one) ] || fail "Linux does not find the disk of $one"
    done
}
targets="nvme@pci:$nvme ufs@pci:$ufs ahci@pci:$sata ${mmc:+emmc@pci:$mmc} sd@pci:$card"

modprobe sd_mod && modprobe nvme && modprobe ufshcd-core use_mcq_mode=0 && modprobe ufshcd-pci &&
    modprobe ahci && modprobe mmc_block && modprobe sdhci-pci || fail modprobe
found

# What is in use, and what is not there, is said.
drivers="nvme ufshcd ahci ${mmc:+sdhci-pci }sdhci-pci"
drivers() { for each in $all; do driver $each; done | paste -sd ' '; }
for target in $targets; do
    address=${target#*:}
    name=$(disk $address)
    mkfs.ext4 -q -F /dev/$name && mount /dev/$name /mnt && echo text >/mnt/file || fail "mkfs $name"
    $f --json pci list >list
    perl -0ne 'exit !/"by": "\/mnt".*"use": "mounted"/s' list || fail "the mount is not listed"
    refused "\`$(driver $address)\`" "$name is mounted on /mnt" '`umount /mnt`' \
        "\`flysch pci bind $address\`" -- $f bench --on $target
    refused 'mounted on /mnt' '--yes' -- $f pci bind $address
    umount /mnt
done
$f pci list
refused 'modprobe vfio-pci' -- $f pci bind $ufs
[ "$(drivers)" = "$drivers" ] || fail "a refusal changed something: $(drivers)"
refused 'no such PCI function' -- $f pci bind 00:1e.7
modprobe vfio-pci
refused 'is no UFS host controller but NVMe controller' -- $f bench --on ufs@pci:$nvme
refused 'is no AHCI controller but SD host controller' -- $f bench --on ahci@pci:$card
refused 'is no SD host controller but AHCI controller' -- $f bench --on emmc@pci:$sata
refused 'is not bound to vfio-pci but to nvme' -- $f pci unbind $nvme
refused 'is not bound to vfio-pci but to sdhci-pci' -- $f pci unbind $card
refused 'no file of its own' 'CONFIG_VFIO_DEVICE_CDEV' 'access=iommufd' -- eval \
    "$f pci bind $ufs >/dev/null && $f bench --on ufs@pci:$ufs,access=iommufd"
$f pci unbind $ufs
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
$f pci bind $all
for each in $all; do [ -z "$(disk $each)" ] || fail "Linux still has the disk of $each"; done
[ -z "$mmc" ] ||
    refused 'has an eMMC device and no SD card' "\`emmc@pci:$mmc\`" -- $f bench --on sd@pci:$mmc
refused 'has an SD card and no eMMC device' "\`sd@pci:$card\`" -- $f bench --on emmc@pci:$card
refused 'no device at port 3' -- $f bench --on ahci@pci:$sata,port=3
for target in nvme@pci:$nvme nvme@pci:$nvme,wait=poll nvme@pci:$nvme,queues=3 \
    nvme@pci:$nvme,wait=adaptive ufs@pci:$ufs ufs@pci:$ufs,wait=poll ufs@pci:$ufs,wait=adaptive \
    ufs@pci:$ufs,mcq=1 ufs@pci:$ufs,mcq=1,wait=poll ufs@pci:$ufs,mcq=3; do
    checked $target --rw=randwrite --bs=4k --iodepth=1 --size=512K
    checked $target --rw=randrw --bs=4k --iodepth=32 --size=4M
    checked $target --rw=randrw --bsrange=4k-256k --iodepth=8 --size=16M --numjobs=1
    checked $target --rw=randrw --bs=64k --segments=5 --iodepth=8 --size=8M
    checked $target --rw=randrw --bs=8k --numjobs=3 --size=2M --offset_increment=8M --iodepth=5
done
# What has one queue, or none.
for target in ahci@pci:$sata ahci@pci:$sata,wait=poll ahci@pci:$sata,wait=adaptive,ncq=off \
    ${mmc:+emmc@pci:$mmc emmc@pci:$mmc,wait=poll emmc@pci:$mmc,dma=off} \
    ${mmc:+emmc@pci:$mmc,partition=boot0} sd@pci:$card sd@pci:$card,wait=poll; do
    checked $target --rw=randwrite --bs=4k --iodepth=1 --size=256K
    checked $target --rw=randrw --bs=4k --iodepth=32 --size=768K
    checked $target --rw=randrw --bs=64k --segments=5 --iodepth=8 --size=768K
    case $target in
        *poll) grep -q ', polled' /tmp/said || fail "it is not polled: $(cat /tmp/said)" ;;
        ahci*adaptive*) grep -q ', MSI after looking' /tmp/said || fail "$(cat /tmp/said)" ;;
        ahci*) grep -q ', MSI,' /tmp/said || fail "no message of AHCI's: $(cat /tmp/said)" ;;
        *) grep -q 'interrupt line' /tmp/said || fail "no line: $(cat /tmp/said)" ;;
    esac
done
echo 64 >/proc/sys/vm/nr_hugepages
checked nvme@pci:$nvme --rw=randrw --bs=64k --iodepth=8 --size=8M
grep -q 'huge pages' /tmp/said || fail "no huge pages used: $(cat /tmp/said)"
echo 0 >/proc/sys/vm/nr_hugepages
$f devlist $(printf -- '--on %s ' $targets) | tee /tmp/said
for disk in nda0 da0 ada0 sdda0 ${mmc:+sdda1}; do grep -q "$disk" /tmp/said || fail "no $disk"; done
$f ufs info --on ufs@pci:$ufs >/dev/null && $f nvme id-ctrl --on nvme@pci:$nvme >/dev/null &&
    $f ata info --on ahci@pci:$sata >/dev/null && $f emmc scr read --on sd@pci:$card >/dev/null &&
    { [ -z "$mmc" ] || $f emmc extcsd read --on emmc@pci:$mmc >/dev/null; } ||
    fail "a command of management"
echo ok data

# One process at a time; and one that is killed leaves nothing running.
for target in $targets ufs@pci:$ufs,mcq=2; do
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
for target in $targets; do
    $f copy /tmp/data $target --seek 4M --verify >/dev/null || fail "copy to $target"
done
$f pci unbind $all
found
for each in $all; do
    dd if=/dev/$(disk $each) bs=1M skip=4 count=12 iflag=direct status=none | cmp - /tmp/data ||
        fail "Linux reads other data from $each"
done
dd if=/dev/urandom of=/tmp/more bs=1M count=12 status=none
for each in $all; do
    disk=$(disk $each)
    mkfs.ext4 -q -F /dev/$disk && mount /dev/$disk /mnt && cp /tmp/more /mnt && umount /mnt ||
        fail "Linux's file system on $disk"
    dd if=/tmp/more of=/dev/$disk bs=1M seek=64 oflag=direct status=none
done
$f pci bind $all
for target in $targets; do
    $f copy $target /tmp/back --skip 64M --length 12M >/dev/null && cmp /tmp/back /tmp/more ||
        fail "$target reads other data than Linux wrote"
    rm /tmp/back
done
$f pci unbind $all
found
for each in $all; do
    disk=$(disk $each)
    e2fsck -fn /dev/$disk >/dev/null && mount -o ro /dev/$disk /mnt && cmp /mnt/more /tmp/more &&
        umount /mnt || fail "the file system on $disk"
done
echo ok peers
[ "$(drivers) $(driver 0000:00:12.0)" = "$drivers nvme" ] || fail "left bound: $(drivers)"
! dmesg | grep -E 'BUG|Oops|Call Trace' || fail "the kernel complains"
echo ok end
