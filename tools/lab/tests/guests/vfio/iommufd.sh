# Functions by their own files. Each line `ok NAME` is looked for.
nvme=0000:00:10.0 ufs=0000:00:11.0 sata=0000:00:13.0 mmc=0000:00:14.0 card=0000:00:15.0
all="$nvme $ufs $sata $mmc $card"
targets="nvme@pci:$nvme ufs@pci:$ufs ahci@pci:$sata emmc@pci:$mmc sd@pci:$card"
# file ADDRESS: the function's own file.
file() { echo /dev/vfio/devices/$(ls /sys/bus/pci/devices/$1/vfio-dev); }
by_own_file() { grep -q ', iommufd' /tmp/said; }

modprobe irqbypass || fail irqbypass
for module in iommufd vfio vfio_iommu_type1 vfio-pci-core vfio-pci; do
    insmod /share/$module.ko || fail "$module"
done
$f pci bind $all
for one in $all; do [ -c "$(file $one)" ] || fail "no file of $one"; done

if [ "$only" = interrupts ]; then
    refused 'does not check interrupts' 'allow_unsafe_interrupts' -- \
        $f bench --on nvme@pci:$nvme,access=iommufd --number_ios=1
    echo ok interrupts
    exit 0
fi

for target in $targets ufs@pci:$ufs,mcq=3 nvme@pci:$nvme,queues=3,wait=poll; do
    checked $target,access=iommufd --rw=randrw --bs=4k --iodepth=32 --size=1M
    by_own_file || fail "by its group: $(cat /tmp/said)"
    checked $target,access=iommufd --rw=randrw --bs=64k --segments=5 --iodepth=8 --size=4M
done
echo ok data

# Where there are containers they are used; where there are none, files.
checked nvme@pci:$nvme --rw=randrw --bs=4k --iodepth=4 --size=1M
by_own_file && fail "not by its group"
mv /dev/vfio/vfio /dev/vfio/away
refused '/dev/vfio/vfio' -- $f bench --on nvme@pci:$nvme,access=group --number_ios=1
checked nvme@pci:$nvme --rw=randrw --bs=4k --iodepth=4 --size=1M
by_own_file || fail "by its group"
mv /dev/iommu /dev/away
refused '/dev/iommu' 'modprobe iommufd' -- $f bench --on nvme@pci:$nvme --number_ios=1
mv /dev/away /dev/iommu && mv /dev/vfio/away /dev/vfio/vfio
echo ok choice

FLYSCH_PCI=$nvme FLYSCH_PCI_ACCESS=iommufd ./device --nocapture >/tmp/said 2>&1 ||
    fail "$(cat /tmp/said)"
address=$(sed -n 's/^Identify into \(0x[0-9a-f]*\),.*/\1/p' /tmp/said | head -1)
dmesg | grep -q "\[00:10.0\] fault addr $address " || fail "no fault at $address"
echo ok bounds

for target in $targets; do
    address=${target#*:}
    $f bench --on $target,access=iommufd --rw=randwrite --bs=16k --iodepth=32 --size=32M \
        --time_based --runtime=60 >/dev/null 2>&1 &
    pid=$!
    for _ in $(seq 100); do [ "$(master $address)" = 1 ] && break; sleep 0.05; done
    [ "$(master $address)" = 1 ] || fail "$target never mastered the bus"
    sleep 0.4
    for access in iommufd group; do
        refused "another program uses it (process $pid)" -- $f bench --on $target,access=$access
    done
    refused "another program uses it (process $pid)" -- $f pci unbind $address
    kill -9 $pid
    wait $pid 2>/dev/null
    [ "$(master $address)" = 0 ] || fail "$target still masters the bus"
    checked $target,access=iommufd --rw=randrw --bs=4k --iodepth=32 --size=1M
done
echo ok kill

as_nobody() { setpriv --reuid=nobody --clear-groups --inh-caps=-all "$@"; }
refused 'permission denied' -- as_nobody $f bench --on nvme@pci:$nvme,access=iommufd
chown nobody /dev/iommu $(file $nvme)
as_nobody $f bench --on nvme@pci:$nvme,access=iommufd --rw=randread --bs=4k --iodepth=4 --size=1M \
    >/dev/null || fail "nobody may not"
refused 'pin' 'locked memory' 'ulimit -l' -- \
    prlimit --memlock=65536:65536 setpriv --reuid=nobody --clear-groups --inh-caps=-all \
    $f bench --on nvme@pci:$nvme,access=iommufd --rw=randread --bs=64k --iodepth=32 --size=4M
echo ok rights

modprobe nvme && modprobe ahci && modprobe sdhci-pci && modprobe ufshcd-pci
$f pci unbind $all || fail unbind
! dmesg | grep -E 'BUG|Oops|Call Trace|WARNING' || fail "the kernel complains"
echo ok end
