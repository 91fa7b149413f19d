# The virtio disk of this machine is a socket that flysch serves.
for one in /sys/block/vd*; do
    [ "$(cat $one/serial)" = exported ] && d=/dev/${one##*/}
done
[ -b "$d" ] || fail "no disk: $(ls /sys/block)"
dmesg -C
[ $(blockdev --getsize64 $d) = 268435456 ] || fail "$(blockdev --getsize64 $d) bytes"
limit logical_block_size 4096; limit write_cache 'write back'
[ $(ls /sys/block/${d#/dev/}/mq | wc -l) = 2 ] || fail "queues: $(ls /sys/block/${d#/dev/}/mq)"
echo ok limits
verify_queues
files
zeroes
echo write through >/sys/block/${d#/dev/}/cache_type || fail "the cache stays"
verify --filename=$d --bs=4k --iodepth=4 --size=8m --number_ios=200
echo write back >/sys/block/${d#/dev/}/cache_type
echo ok data

# The server is killed, and another takes its place: whoever uses the disk waits.
mkfs.ext4 -q -F $d && mount $d /mnt || fail mkfs
verify --directory=/mnt --bs=4k --iodepth=16 --size=32m --number_ios=20000 --fsync=64 &
job=$!
for turn in 1 2 3; do
    sleep 0.7
    kill -0 $job 2>/dev/null || fail "fio was through before the server was killed"
    touch /share/kill
    while [ -e /share/kill ]; do sleep 0.05; done
done
wait $job || fail "fio over servers that were killed"
cp -r /usr/lib/x86_64-linux-gnu/perl-base /mnt; before=$(sums)
umount /mnt
check_ext4
mount $d /mnt && [ "$before" = "$(sums)" ] || fail files
umount /mnt
echo ok killed

# The root of a whole system: what is started there comes from the disk.
mkfs.ext4 -q -F $d && mount $d /mnt || fail mkfs
mkdir -p /mnt/bin /mnt/proc && cp /bin/busybox /mnt/bin
umount /mnt; echo 3 >/proc/sys/vm/drop_caches; mount $d /mnt
[ "$(chroot /mnt /bin/busybox echo from the disk)" = 'from the disk' ] || fail "no root"
umount /mnt
echo ok root
no_complaints
