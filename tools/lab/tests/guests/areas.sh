# Records the white paper's jobs on one disk with ftrace: areas KIND DISK leaves for each job
# KIND.JOB.trace and what fio said of it, KIND.JOB.json, in the share.
mount -t tracefs tracefs /sys/kernel/tracing 2> /dev/null
events="syscalls/sys_enter_pread64 syscalls/sys_exit_pread64
    syscalls/sys_enter_pwrite64 syscalls/sys_exit_pwrite64
    block/block_bio_queue block/block_getrq block/block_split block/block_bio_backmerge
    block/block_bio_frontmerge block/block_bio_remap block/block_rq_insert block/block_rq_issue
    block/block_rq_requeue block/block_rq_complete
    scsi/scsi_dispatch_cmd_start ufs/ufshcd_command nvme/nvme_setup_cmd nvme/nvme_complete_rq
    irq/irq_handler_entry irq/irq_handler_exit"

# Two of them tell how long a tick of the clock is.
mark() { echo "flysch_clock: $EPOCHREALTIME" > /sys/kernel/tracing/trace_marker; }

job() {
    kind=$1; name=$2; shift 2
    run="fio --directory=/run/m --ioengine=psync --direct=1 --overwrite=1 --thread $*"
    cd /sys/kernel/tracing
    $run --create_only=1 > /dev/null; sync
    echo > trace
    echo 1 > tracing_on; mark
    $run --output-format=json > /share/$kind.$name.json
    mark; echo 0 > tracing_on
    cat trace > /share/$kind.$name.trace
    echo "$kind.$name $(cat per_cpu/cpu*/stats | awk '/^overrun/ { n += $2 } END { print n }')"
    cd /
}

areas() {
    kind=$1; disk=$2
    echo none > /sys/block/${disk#/dev/}/queue/scheduler
    mkfs.ext4 -q -F $disk; mkdir -p /run/m; mount $disk /run/m
    cd /sys/kernel/tracing
    echo 0 > tracing_on; echo nop > current_tracer
    echo x86-tsc > trace_clock; echo 16384 > buffer_size_kb
    for event in $events; do [ -d events/$event ] && echo 1 > events/$event/enable; done
    cd /
    one="--name=one --size=32m"
    eight="--name=eight --size=4m --numjobs=8 --group_reporting"
    for rw in randread randwrite; do
        job $kind 4k.$rw.1 $one --bs=4k --rw=$rw --number_ios=600
        job $kind 4k.$rw.8 $eight --bs=4k --rw=$rw --number_ios=100
    done
    for rw in read write; do
        job $kind 128k.$rw.1 $one --bs=128k --rw=$rw --number_ios=240
        job $kind 128k.$rw.8 $eight --bs=128k --rw=$rw --number_ios=30
    done
    umount /run/m
}
