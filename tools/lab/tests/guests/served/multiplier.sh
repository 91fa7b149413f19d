# Disks behind a port multiplier: `fans` of them, each with what is its own; one goes and comes.
set -e
dmesg -C
load
disks() { lsblk -dnpo NAME | grep /dev/sd || true; }
# count N: waits until there are so many disks.
count() {
    for try in $(seq 600); do
        [ $(disks | wc -l) = $1 ] && return 0
        sleep 0.1
    done
    echo "not $1 disks:"; disks; dmesg | tail -40; exit 3
}
count $fans; echo "disks $fans"
dmesg | grep -oE "Port Multiplier [0-9.]+, .*" | head -1
# each WORD: does it with each disk, as $d, and a number of its own.
each() {
    local n=0
    for d in $(disks); do n=$((n + 1)); $1 $n || { echo "$1: disk $n"; exit 4; }; done
}
each put; each is_there; echo "each its own"
n=0
cat > /tmp/fio.job << END
[global]
rw=randrw
bs=4k
iodepth=16
ioengine=libaio
direct=1
offset=64m
size=32m
verify=crc32c
verify_fatal=1
number_ios=1000
continue_on_error=all
END
for d in $(disks); do n=$((n + 1)); printf '[disk%d]\nfilename=%s\n' $n $d >> /tmp/fio.job; done
fio --output-format=json /tmp/fio.job > /tmp/fio || { cat /tmp/fio; exit 5; }
echo "fio errors $(errors < /tmp/fio | sort -u | tr '\n' ' ')"
d=$(disks | tail -1)
mkfs.ext4 -q -F $d; mkdir -p /tmp/mnt; mount $d /tmp/mnt
cp /usr/lib/x86_64-linux-gnu/*.so /tmp/mnt/ 2> /dev/null || true
sums() { (cd /tmp/mnt; find . -type f | sort | xargs sha256sum | sha256sum); }
before=$(sums)
umount /tmp/mnt; mount $d /tmp/mnt
[ "$before" = "$(sums)" ]; umount /tmp/mnt; echo "files same"
each put
# Taken out by Linux, and found again.
first=$(disks | head -1)
host=$(readlink -f /sys/block/${first#/dev/} | grep -oE 'host[0-9]+' | head -1)
echo 1 > /sys/block/${first#/dev/}/device/delete
count $((fans - 1))
n=1; for d in $(disks); do n=$((n + 1)); is_there $n; done; echo "one deleted, the others work"
echo "- - -" > /sys/class/scsi_host/$host/scan
count $fans; each is_there; echo "one back"
for i in 1 2 3; do
    pci=$(basename /sys/bus/pci/drivers/$driver/0000:*)
    echo $pci > /sys/bus/pci/drivers/$driver/unbind; count 0
    echo $pci > /sys/bus/pci/drivers/$driver/bind; count $fans
done
each is_there; echo "bound again 3 times"
echo "log:"
# Before it lets go Linux asks the multiplier itself for its power mode, which none knows.
complaints | grep -v '\.15: Check power mode failed' || true
echo "end of log"
# One goes by itself while all are read, and comes back soon: as another, or as the one it was.
dmesg -C
want detach:n30
for d in $(disks); do
    dd if=$d of=/dev/null bs=4k count=2000 iflag=direct status=none 2> /dev/null &
done
wait
want none
for try in $(seq 300); do [ $(disks | wc -l) = $fans ] && break; sleep 0.1; done
count $fans
set +e
for try in $(seq 300); do
    good=0; n=0
    for d in $(disks); do n=$((n + 1)); is_there $n 2> /dev/null && good=$((good + 1)); done
    [ $good = $fans ] && break
    sleep 0.1
done
want status
echo "pulled off: $good of $fans there; $(grep -o 'injected detach [0-9]*' /share/armed.status)"
dmesg | grep -E "$log" | sed 's/^\[[^]]*\] //' | cut -c1-110 | head -12
