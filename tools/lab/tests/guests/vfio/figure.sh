# figure.sh: Linux's drivers on one pair of controllers, ours on another of the same kinds. Each
# stack runs each job once a round, for three seconds; NAME-RW-DEPTH-ROUND.json is what it tells of
# itself, .idle what the processor did meanwhile: microseconds and ticks of idle time, twice.
# From memory: the share is slow.
cp /share/flysch /tmp/flysch && f=/tmp/flysch
rounds=$(cat rounds)
modprobe vfio-pci && modprobe sd_mod && $f pci bind 00:11.0 00:15.0 || exit 3
# QEMU says that its controller may share its namespaces: without this Linux puts a second disk, of
# paths, above the one measured.
modprobe nvme_core multipath=N && modprobe nvme poll_queues=1 && modprobe ufshcd-pci || exit 4
# A disk has its node before it has its queue's files.
for disk in sda nvme0n1; do
    for _ in $(seq 100); do [ -f /sys/block/$disk/queue/scheduler ] && break; sleep 0.1; done
done
for disk in sda nvme0n1; do echo none >/sys/block/$disk/queue/scheduler || exit 5; done
mkdir -p out && cd out || exit 6
stamp() {
    local idle wait
    read -r _ _ _ _ idle wait _ </proc/stat
    echo "${EPOCHREALTIME/./} $((idle + wait))"
}
measure() { # NAME COMMAND...
    local name=$1 start
    shift
    "$@" >$name.json 2>$name.error &
    sleep 1.7
    start=$(stamp)
    sleep 1
    echo "$start $(stamp)" >$name.idle
    wait $! || { cat $name.error; exit 7; }
}
job() { # of both: fio's options are ours
    echo --name=x --rw=$rw --bs=4k --iodepth=$depth --size=256M --time_based --runtime=3 \
        --norandommap
}
ours() { measure $1-$rw-$depth-$round $f --json bench --on $2 $(job); }
linux() {
    local name=$1 disk=$2
    shift 2
    measure $name-$rw-$depth-$round fio --filename=/dev/$disk $(job) --direct=1 \
        --ioengine=io_uring --lat_percentiles=1 --fixedbufs --registerfiles --output-format=json "$@"
}
for round in $(seq $rounds); do for rw in randread randwrite; do for depth in 1 32; do
    linux linux-nvme nvme0n1
    ours ufs ufs@pci:00:15.0
    linux linux-nvme-poll nvme0n1 --hipri
    ours ufs-poll ufs@pci:00:15.0,wait=poll
    ours ufs-adaptive ufs@pci:00:15.0,wait=adaptive
    linux linux-ufs sda
    ours ufs-mcq ufs@pci:00:15.0,mcq=1
    linux linux-ufs-poll sda --hipri
    ours ufs-mcq-poll ufs@pci:00:15.0,mcq=1,wait=poll
    ours nvme nvme@pci:00:11.0
    ours nvme-adaptive nvme@pci:00:11.0,wait=adaptive
    ours nvme-poll nvme@pci:00:11.0,wait=poll
done; done; done
