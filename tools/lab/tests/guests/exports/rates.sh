# rates.sh: disks of this guest that a program serves, ours and QEMU's, beside the kernel's own with
# the same below them. All are there all the time; each does each job once a round, in turn, for two
# seconds: NAME-RW-DEPTH-ROUND.json.
cp /share/flysch /tmp/flysch && f=/tmp/flysch
qemu_nbd() { LD_LIBRARY_PATH=/share/lib /share/qemu-nbd "$@"; }
modprobe ublk_drv && modprobe nbd nbds_max=4 && modprobe loop || fail modprobe
modprobe null_blk nr_devices=1 gb=1 bs=4096 completion_nsec=0 irqmode=0 submit_queues=1 || fail null_blk
for name in ublk nbd qemu loop; do head -c 64M /dev/zero >/tmp/memory-$name; done
serve() { # NAME OPTION...: of ours
    local name=$1
    shift
    $f export "$@" >/tmp/$name.log 2>&1 &
    for _ in $(seq 600); do grep -q '^exporting' /tmp/$name.log && return; sleep 0.05; done
    log=/tmp/$name.log; fail "$name does not serve"
}
client() { # NUMBER SOCKET
    LD_LIBRARY_PATH=/share/lib /share/nbd-client -unix $2 /dev/nbd$1 -b 4096 >>/tmp/client 2>&1 ||
        { cat /tmp/client; fail "nbd-client $2"; }
}
serve ublk-null null --ublk=0
serve ublk-memory file:/tmp/memory-ublk --ublk=1
serve nbd-null null --nbd unix:/tmp/null.sock; client 0 /tmp/null.sock
serve nbd-memory file:/tmp/memory-nbd --nbd unix:/tmp/memory.sock; client 1 /tmp/memory.sock
qemu_nbd --fork --persistent --cache=writeback --socket=/tmp/q0.sock --image-opts \
    driver=raw,file.driver=null-co,file.size=1073741824 && client 2 /tmp/q0.sock || fail qemu-nbd
qemu_nbd --fork --persistent --cache=writeback --format=raw --socket=/tmp/q1.sock /tmp/memory-qemu &&
    client 3 /tmp/q1.sock || fail qemu-nbd
losetup --sector-size 4096 /dev/loop0 /tmp/memory-loop || fail losetup
for disk in ublkb0 ublkb1 nbd0 nbd1 nbd2 nbd3 loop0 nullb0; do
    echo none >/sys/block/$disk/queue/scheduler || fail scheduler
done
mkdir -p out
measure() { # NAME DISK
    fio --name=x --filename=/dev/$2 --rw=$rw --bs=4k --iodepth=$depth --size=64M --time_based \
        --runtime=2 --norandommap --direct=1 --ioengine=io_uring --output-format=json \
        >out/$1-$rw-$depth-$round.json || fail "fio $2"
}
for round in $(seq $(cat rounds)); do for rw in randread randwrite; do for depth in 1 32; do
    measure null-kernel nullb0; measure null-ublk ublkb0; measure null-nbd nbd0
    measure null-qemu nbd2
    measure memory-kernel loop0; measure memory-ublk ublkb1; measure memory-nbd nbd1
    measure memory-qemu nbd3
done; done; done
# Disks whose servers end with the guest would hold up its end.
for n in 0 1 2 3; do
    LD_LIBRARY_PATH=/share/lib /share/nbd-client -d /dev/nbd$n >>/tmp/client 2>&1
done
losetup -d /dev/loop0
kill -TERM $(jobs -p)
wait
echo ok rates
