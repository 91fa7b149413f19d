# Disks of Linux's ublk driver that flysch serves.
# refused WORDS... -- OPTION...: it fails in one line that has all the words.
refused() {
    local words=() said
    while [ "$1" != -- ]; do words+=("$1"); shift; done
    shift
    if said=$(timeout 60 $f export "$@" 2>&1); then fail "not refused: $*"; fi
    [ "$(wc -l <<<"$said")" = 1 ] || fail "more than a line: $said"
    for word in "${words[@]}"; do
        grep -qF -- "$word" <<<"$said" || fail "no \"$word\" in: $said"
    done
    echo "refused: $said"
}
# start OPTION...: a server whose disk is $d.
start() {
    $f export "$@" >$log 2>&1 &
    server=$!
    for _ in $(seq 1200); do
        grep -q '^exporting' $log && break
        kill -0 $server 2>/dev/null || fail "$*: ended"
        sleep 0.05
    done
    d=$(sed -n 's/^exporting.* at //p' $log)
    [ -b "$d" ] || fail "$*: no disk"
}
# stop: it ends as it should, and nothing is left.
stop() {
    kill -TERM $server
    wait $server || fail "its status is $?"
    grep -q '^ended' $log || fail "it did not say that it ended"
    tail -1 $log
    [ -z "$(ls /dev | grep ublk[bc])" ] || fail "left: $(ls /dev | grep ublk[bc])"
}
refused /dev/ublk-control 'modprobe ublk_drv' -- nvme,size=64M --ublk
modprobe ublk_drv || fail modprobe
dmesg -C
echo ok module

# What the driver knows of the disk.
start nvme,size=256M --ublk=5 --ublk-queues=2 --ublk-depth=32
[ $d = /dev/ublkb5 ] || fail "another number: $d"
limit logical_block_size 4096; limit physical_block_size 4096; limit max_hw_sectors_kb 256
limit write_cache 'write back'; limit fua 1
limit discard_granularity 4096; limit discard_max_bytes 2147483648; limit write_zeroes_max_bytes 67108864
[ $(blockdev --getsize64 $d) = 268435456 ] || fail "$(blockdev --getsize64 $d) bytes"
[ $(ls /sys/block/ublkb5/mq | wc -l) = 2 ] || fail "queues: $(ls /sys/block/ublkb5/mq)"
refused '/dev/ublkb5 is served by process' -- nvme,size=64M --ublk=5
echo ok limits

# Data on both queues, a file system, its discards.
verify_queues
files
zeroes
stop
grep -Eq '[1-9][0-9]* flushes, [1-9][0-9]* trims$' $log || fail "no trims: $(tail -1 $log)"
echo ok data

# What was written and not flushed is there when the server has ended.
truncate -s 64M /tmp/disk.img
head -c 32M /dev/urandom >/tmp/data
start file:/tmp/disk.img --ublk
dd if=/tmp/data of=$d bs=1M status=none
stop
cmp -n $((32 << 20)) /tmp/data /tmp/disk.img || fail "it was lost"
start file:/tmp/disk.img --ublk --read-only
[ $(blockdev --getro $d) = 1 ] || fail "not read only"
dd if=/tmp/data of=$d bs=4k count=1 oflag=direct status=none 2>/dev/null && fail "written"
cmp -n $((32 << 20)) /tmp/data $d || fail "read only"
stop
echo ok end

# A server that is killed: the disk goes, and the next one begins anew, with the number or without.
for number in =3 =3 ''; do
    start file:/tmp/disk.img --ublk$number
    dd if=/tmp/data of=$d bs=1M oflag=direct status=none || fail "no disk after a server was killed"
    fio --name=k --filename=$d --rw=randread --bs=4k --iodepth=16 --ioengine=libaio --direct=1 \
        --size=32m --allow_file_create=0 --time_based --runtime=600 --output=/tmp/fio >/dev/null 2>&1 &
    sleep 1
    kill -KILL $server; wait $server 2>/dev/null
    wait %fio 2>/dev/null
    for _ in $(seq 200); do [ -e $d ] || break; sleep 0.1; done
    [ ! -e $d ] || fail "the disk stays"
done
start file:/tmp/disk.img --ublk
[ "$(ls /dev | grep -c ublkc)" = 1 ] || fail "left: $(ls /dev | grep ublkc)"
stop
echo ok killed

# One that may be replaced: whoever uses the disk waits.
truncate -s 128M /tmp/fs.img
start file:/tmp/fs.img --ublk=7 --ublk-recover
mkfs.ext4 -q -F $d && mount $d /mnt || fail mkfs
verify --directory=/mnt --bs=4k --iodepth=16 --size=32m --number_ios=6000 --fsync=64 &
job=$!
for turn in 1 2 3; do
    sleep 0.7
    kill -KILL $server; wait $server 2>/dev/null
    kill -0 $job 2>/dev/null || fail "fio was through before the server was killed"
    if [ $turn = 1 ]; then
        sleep 1
        refused '/dev/ublkb7 waits' '--ublk-recover' -- file:/tmp/fs.img --ublk=7
        refused '/dev/ublkb7 waits' '262144 sectors' -- file:/tmp/disk.img --ublk=7 --ublk-recover
    fi
    start file:/tmp/fs.img --ublk=7 --ublk-recover
done
wait $job || fail "fio over servers that were killed"
umount /mnt || fail umount
check_ext4
stop
echo ok recovered

no_complaints
rmmod ublk_drv || fail "the driver is in use"
echo ok unloaded
