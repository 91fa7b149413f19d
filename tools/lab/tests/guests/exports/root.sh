# This system was started from what flysch serves: /dev/vda is the lower half of its root.
[ "$(cat /sys/block/vda/serial)" = exported ] || fail "vda is $(cat /sys/block/vda/serial)"
[ "$(blockdev --getro /dev/vda)" = 1 ] || fail "not read only"
echo ok serial
[ "$(ls -d /sys/block/[vsn]* | wc -l)" = 1 ] || fail "other disks: $(ls /sys/block)"
grep -q '^root / overlay.*lowerdir=/disk' /proc/mounts || fail "$(cat /proc/mounts)"
echo ok alone
[ "$(sha256sum </dev/vda | cut -c-64)" = "$(cat /share/sum)" ] || fail "other content"
echo ok content
no_complaints
