# Probe, data, a file system, unbinding, reset.
set -e
dmesg -C
load; find_disk
fio --name=v --filename=$d --rw=randrw --bs=4k --iodepth=16 --ioengine=libaio --direct=1 \
    --size=64m --verify=crc32c --verify_fatal=1 --number_ios=3000 \
    --continue_on_error=all --output-format=json > /tmp/fio || { cat /tmp/fio; exit 4; }
echo "fio errors $(errors < /tmp/fio)"
mkfs.ext4 -q -F $d; mkdir -p /tmp/mnt; mount $d /tmp/mnt
cp /usr/lib/x86_64-linux-gnu/*.so /tmp/mnt/ 2> /dev/null || true
sums() { (cd /tmp/mnt; find . -type f | sort | xargs sha256sum | sha256sum); }
before=$(sums)
umount /tmp/mnt; mount -o discard $d /tmp/mnt
[ "$before" = "$(sums)" ]; echo "files same"
rm -rf /tmp/mnt/*.so; fstrim /tmp/mnt; umount /tmp/mnt
e2fsck -fn $d > /tmp/fsck 2>&1 || { cat /tmp/fsck; exit 5; }
put 1
for i in $(seq 100); do
    pci=$(basename /sys/bus/pci/drivers/$driver/0000:*)
    echo $pci > /sys/bus/pci/drivers/$driver/unbind
    echo $pci > /sys/bus/pci/drivers/$driver/bind
    find_disk
done
is_there 1; echo "bound again 100 times"
ios=/sys/kernel/debug/mmc0/ios
mount -t debugfs none /sys/kernel/debug 2> /dev/null || true
[ ! -e $ios ] || echo "timing $(sed -n 's/timing spec:.*(\(.*\))/\1/p' $ios)"
if [ $driver = ahci ]; then
    [ $(cat /sys/block/${d#/dev/}/device/queue_depth) = 32 ]
    for policy in min_power med_power_with_dipm medium_power max_performance; do
        for host in /sys/class/scsi_host/host*/link_power_management_policy; do
            # 7.3 refuses ports that are capable of hot plug.
            echo $policy > $host 2> /dev/null || true
        done
        for try in 1 2 3 4; do is_there 1; sleep 0.1; done
    done
    blkdiscard -o 64k -l 128k $d
    head -c 128k /dev/zero > /tmp/zeros
    dd if=$d bs=64k skip=1 count=2 iflag=direct status=none | cmp - /tmp/zeros
    echo "slept and trimmed"
fi
if [ -e /sys/class/nvme/nvme0 ]; then
    echo 1 > /sys/class/nvme/nvme0/reset_controller; is_there 1
    echo "reset"
fi
echo "log:"
complaints
