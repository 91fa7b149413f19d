# Two functions of one device, an NVMe and a UFS controller.
set -e
dmesg -C
load
disk() { echo /dev/nvme0n1; }; find_disk; nvme=$d
disk() { lsblk -dnpo NAME | grep /dev/sd | head -1; }; find_disk
for function in 0 1; do
    cat /sys/bus/pci/devices/0000:00:10.$function/uevent | grep DRIVER
done
for disk in $d $nvme; do
    fio --name=v --filename=$disk --rw=randrw --bs=4k --iodepth=16 --ioengine=libaio --direct=1 \
        --size=64m --verify=crc32c --verify_fatal=1 --number_ios=1000 \
        --output-format=json > /tmp/fio.${disk##*/} &
    jobs="$jobs $!"
done
for job in $jobs; do wait $job || { cat /tmp/fio.*; exit 3; }; done
echo "both at once"
put 1
want remove
if timeout 60 dd if=$nvme of=/dev/null bs=4k count=1 skip=9999 iflag=direct 2> /dev/null; then
    echo "it is read after it was pulled out"; exit 4
fi
is_there 1; put 2; is_there 2
echo "one alone"
[ -z "$(complaints)" ] || { complaints; exit 5; }
