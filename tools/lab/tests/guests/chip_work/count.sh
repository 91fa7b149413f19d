# Counts what one job makes a chip do: every call that reaches the MTD device, whoever makes it, by
# the kernel's own probes. Linux mounts it, or Flysch through /dev/mtd0: the same probes see both.

cp /share/flysch /tmp/flysch
cp /share/flysch-lab-guest /tmp/guest
guest=/tmp/guest
flysch=/tmp/flysch
page=2048
tracing=/sys/kernel/tracing

probe() {
    modprobe nandsim first_id_byte=0x20 second_id_byte=0xa2 third_id_byte=0x00 fourth_id_byte=0x15
    modprobe ubifs
    modprobe jffs2
    mount -t tracefs t $tracing
    echo 150000 >$tracing/buffer_size_kb
    # Length and place stand in the kernel's mtd_oob_ops and erase_info.
    echo 'p:rd mtd_read_oob at=%si:u64 len=+8(%dx):u64' >>$tracing/kprobe_events
    echo 'p:wr mtd_write_oob at=%si:u64 len=+8(%dx):u64' >>$tracing/kprobe_events
    echo 'p:er mtd_erase at=+0(%si):u64' >>$tracing/kprobe_events
    echo 0 >$tracing/tracing_on
    echo 1 >$tracing/events/kprobes/enable
}

new() {
    if [ $fs = jffs2 ]; then
        flash_erase -q -j /dev/mtd0 0 0
    else
        ubiformat -q -y /dev/mtd0
        ubiattach -m 0 >/dev/null
        ubimkvol /dev/ubi0 -N v -m >/dev/null
        ubidetach -m 0
    fi
}

up_linux() {
    if [ $fs = jffs2 ]; then
        mount -t jffs2 mtd0 /mnt
    else
        ubiattach -m 0 >/dev/null
        mount -t ubifs ubi0:v /mnt
    fi
}

down_linux() {
    umount /mnt
    [ $fs = jffs2 ] || ubidetach -m 0
}

up_flysch() {
    $flysch image mount --rw /dev/mtd0 /mnt >/tmp/daemon 2>&1 &
    daemon=$!
    until mountpoint -q /mnt; do
        kill -0 $daemon 2>/dev/null || { cat /tmp/daemon; exit 1; }
        sleep 0.05
    done
}

down_flysch() {
    umount /mnt
    wait $daemon || { cat /tmp/daemon; exit 1; }
}

# count JOB linux|flysch
count() {
    new
    up_linux
    $guest job $1 before /mnt || exit 1
    sync
    down_linux
    up_$2
    echo >$tracing/trace
    echo 1 >$tracing/tracing_on
    $guest job $1 run /mnt || exit 1
    down_$2
    # Whoever leaves erases for later has Linux do them now. What it reads for that is not counted.
    echo 0 >$tracing/events/kprobes/rd/enable
    up_linux
    sleep 2
    down_linux
    echo 1 >$tracing/events/kprobes/rd/enable
    echo 0 >$tracing/tracing_on
    if ! grep -q '^overrun: 0$' $tracing/per_cpu/cpu0/stats; then
        echo "the trace was too long"
        exit 1
    fi
    # What was written is what the kernel finds there.
    up_linux
    $guest manifest /mnt | sed -E 's/ [cm]time [0-9.-]+//g; s/ inode [0-9]+//
        s/(	Directory .*) size [0-9]+/\1/' | sort >/tmp/$2.txt
    down_linux
    awk -v page=$page -v what="$fs $1 $2" '
        function field(name,    i) {
            for (i = NF; i; i--) if (index($i, name "=") == 1) return substr($i, length(name) + 2)
        }
        function pages(at, len) { return len ? int((at + len - 1) / page) - int(at / page) + 1 : 0 }
        / rd: / { read += pages(field("at"), field("len")) }
        / wr: / { written += pages(field("at"), field("len")) }
        / er: / { erased++ }
        END { printf "counted %s %d %d %d\n", what, written, read, erased }' $tracing/trace
}

probe
for fs in $file_systems; do
    for job in $jobs; do
        count $job linux
        count $job flysch
        cmp /tmp/linux.txt /tmp/flysch.txt || { diff /tmp/linux.txt /tmp/flysch.txt | head; exit 1; }
    done
done
