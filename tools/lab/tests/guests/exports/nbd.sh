# Linux's own NBD driver, set up by nbd-client, on what flysch serves.
d=/dev/nbd0
client() { LD_LIBRARY_PATH=/share/lib /share/nbd-client "$@" >>/tmp/client 2>&1; }
start() {
    $f export "$@" >$log 2>&1 &
    server=$!
    for _ in $(seq 1200); do
        grep -q '^exporting' $log && return
        kill -0 $server 2>/dev/null || fail "$*: ended"
        sleep 0.05
    done
    fail "$*: not ready"
}
# connect OPTION...: until the kernel has the disk.
connect() {
    client "$@" -N disk $d || { cat /tmp/client; fail "nbd-client $*"; }
    for _ in $(seq 100); do
        [ "$(blockdev --getsize64 $d)" -gt 0 ] && return
        sleep 0.1
    done
    fail "nbd-client $*: no disk"
}
disconnect() {
    client -d $d
    for _ in $(seq 100); do
        [ -e /sys/block/nbd0/pid ] || return
        sleep 0.1
    done
    fail "the client stays"
}
stop() {
    kill -TERM $server
    wait $server || fail "its status is $?"
    grep -q '^ended' $log || fail "it did not say that it ended"
    tail -1 $log
}
# exercise: one file of ext4 is changed at random in every way there is, as fsx does it, and always
# has what a copy in memory has, from the page cache, from the disk and after a new mount.
exercise() {
    mkfs.ext4 -q -F $d && mount $d /mnt || fail mkfs
    for seed in 1 2; do
        perl - $seed /mnt/file <<'PERL' || fail "a file's content: seed $seed"
use strict;
my ($seed, $path) = @ARGV;
my $most = 1 << 20;
my $copy = "";
srand($seed);
my $pool = pack("N*", map { int rand 2**32 } 1 .. 32768);
open(my $file, "+>", $path) or die "$path: $!";
binmode($file);
my $check = sub {
    sysseek($file, 0, 0);
    my ($all, $got) = ("", 1);
    while ($got) { $got = sysread($file, $all, 65536, length $all) // die "read: $!"; }
    $all eq $copy or die "step $_[0]: another content, ${\length $all} and ${\length $copy} bytes";
};
for my $step (1 .. 600) {
    my ($what, $from, $len) = (int rand 100, int rand $most, 1 + int rand 65536);
    if ($what < 60) {
        my $data = substr($pool, int rand 65536, $len);
        sysseek($file, $from, 0);
        my $done = syswrite($file, $data) // die "write: $!";
        $done == $len or die "wrote $done of $len";
        $copy .= "\0" x ($from + $len - length $copy) if length $copy < $from + $len;
        substr($copy, $from, $len) = $data;
    } elsif ($what < 70) {
        truncate($file, $from) or die "truncate: $!";
        $copy = length $copy > $from ? substr($copy, 0, $from) : $copy . "\0" x ($from - length $copy);
    } elsif ($what < 85) {
        # fallocate(2): of a part a hole (3) or zeroes (17), the size stays.
        my $mode = $what < 78 ? 3 : 17;
        syscall(285, fileno $file, $mode, $from, $len) == 0 or die "fallocate: $!";
        my $room = length($copy) - $from;
        $len = $room if $len > $room;
        substr($copy, $from, $len) = "\0" x $len if $room > 0;
    } elsif ($what < 95) {
        sysseek($file, $from, 0);
        my $data = "";
        sysread($file, $data, $len) // die "read: $!";
        my $want = $from < length $copy ? substr($copy, $from, $len) : "";
        $data eq $want or die "step $step: $len bytes at $from are others";
    } else {
        # fsync, and from the disk again.
        syscall(74, fileno $file) == 0 or die "fsync: $!";
        open(my $caches, ">", "/proc/sys/vm/drop_caches") or die "drop_caches: $!";
        print $caches "3\n";
        close $caches;
        $check->($step);
    }
}
$check->("last");
open(my $other, ">", "/tmp/copy") or die "/tmp/copy: $!";
print $other $copy;
PERL
        umount /mnt && mount $d /mnt && cmp /mnt/file /tmp/copy || fail "after a new mount"
    done
    umount /mnt
    check_ext4
    echo ok exercised
}
modprobe nbd max_part=0 || fail modprobe
busybox ifconfig lo 127.0.0.1 up || fail lo
dmesg -C

# Four connections over a socket of this machine.
start nvme,size=256M --nbd unix:/tmp/s --nbd tcp:127.0.0.1:10809 --name disk
connect -unix /tmp/s -b 4096 -C 4
[ $(blockdev --getsize64 $d) = 268435456 ] || fail "$(blockdev --getsize64 $d) bytes"
limit logical_block_size 4096; limit write_cache 'write back'; limit fua 1
verify_queues
exercise
files
disconnect
[ $(grep -c '^client [1-4]: .* reads' $log) = 4 ] || fail "not four clients: $(cat $log)"
echo ok connections

# The same disk over TCP, in blocks of 512 bytes, parts of the server's.
connect 127.0.0.1 10809 -b 512
limit logical_block_size 512
mount -o ro $d /mnt && [ "$before" = "$(sums)" ] || fail "other files over TCP"
umount /mnt
verify --filename=$d --bsrange=512-16k --bs_unaligned=0 --blockalign=512 --iodepth=8 --size=8m \
    --number_ios=400
disconnect
stop
echo ok tcp

# What is written and not flushed is there after the server's end, and after it was killed what was.
truncate -s 64M /tmp/disk.img
head -c 32M /dev/urandom >/tmp/data
start file:/tmp/disk.img --nbd unix:/tmp/s --name disk
# What is in flight when a connection breaks ends when it times out.
connect -unix /tmp/s -b 4096 -C 2 -timeout 5
dd if=/tmp/data of=$d bs=1M oflag=direct conv=fsync status=none || fail write
fio --name=k --filename=$d --rw=randrw --bs=4k --iodepth=16 --ioengine=libaio --direct=1 \
    --offset=32m --size=32m --allow_file_create=0 --time_based --runtime=600 --output=/tmp/fio >/dev/null 2>&1 &
sleep 1
kill -KILL $server; wait $server 2>/dev/null
wait %fio 2>/dev/null && fail "it reads and writes without a server"
disconnect
start file:/tmp/disk.img --nbd unix:/tmp/s --name disk
connect -unix /tmp/s -b 4096 -C 2
cmp -n $((32 << 20)) /tmp/data $d || fail "other data after the server was killed"
dd if=/tmp/data of=$d bs=1M seek=32 oflag=direct status=none || fail write
stop
disconnect
cmp -n $((32 << 20)) /tmp/data /tmp/disk.img && cmp -i 0:$((32 << 20)) /tmp/data /tmp/disk.img ||
    fail "it was lost"
echo ok killed

start file:/tmp/disk.img --nbd unix:/tmp/s --name disk --read-only
connect -unix /tmp/s
[ $(blockdev --getro $d) = 1 ] || fail "not read only"
cmp -n $((4 << 20)) /tmp/data $d || fail "read only"
disconnect
stop
[ ! -e /tmp/s ] || fail "the socket stays"
echo ok readonly
no_complaints
