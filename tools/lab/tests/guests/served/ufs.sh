# What Linux manages of a UFS device: descriptors, link power, power modes, WriteBooster, RPMB.
fail() { echo "FAILED: $*"; dmesg | tail -20; exit 6; }
dmesg -C
mount -t tracefs none /sys/kernel/tracing 2> /dev/null
load; find_disk
host=$(dirname /sys/bus/pci/devices/0000:*/rpm_lvl)
wlun=$(ls -d /sys/bus/scsi/devices/*:49488)
put 1

# Each is a query.
for file in $host/{*_descriptor,flags,attributes,power_info,string_descriptors}/*; do
    if cat $file > /dev/null 2>&1; then read=$((read + 1)); else unread="$unread ${file#$host/}"; fi
done
echo "$read read, not$unread"
is_there 1 || fail descriptors
echo "ok descriptors"

if [ -n "$booster" ]; then
    [ "$(cat $host/wb_on)" = 1 ] || fail "WriteBooster is off"
    [ "$(cat $host/flags/wb_enable)" = true ] || fail "its flag is clear"
    left() { cat $host/attributes/wb_avail_buf; }
    echo "booster: $(left) of 0x0A left"
    dd if=/dev/urandom of=$d bs=1M count=24 seek=100 oflag=direct conv=fsync status=none
    echo "booster: $(left) after 24 MiB"
    echo 0 > $host/wb_on; [ "$(cat $host/flags/wb_enable)" = false ] || fail "it stays on"
    echo 1 > $host/wb_on; [ "$(cat $host/flags/wb_enable)" = true ] || fail "it stays off"
    [ ! -e $host/enable_wb_buf_flush ] || { echo 1 > $host/enable_wb_buf_flush || fail flush; }
    is_there 1 || fail booster
    echo "ok booster"
else
    # It is the host controller that has a word for it.
    [ "$(cat $host/auto_hibern8)" -gt 0 ] || fail "no hibernation by itself"
    echo 1000 > $host/auto_hibern8; [ "$(cat $host/auto_hibern8)" = 1000 ] || fail "its time stays"
    for try in $(seq 20); do sleep 0.05; is_there 1 || fail "after an idle pause"; done
    echo "ok hibern8"
fi

cd /sys/kernel/tracing
echo 1 > events/ufs/ufshcd_wl_runtime_suspend/enable
echo 1 > events/ufs/ufshcd_wl_runtime_resume/enable
for level in 1 3 5; do
    echo $level > $host/rpm_lvl || fail "level $level"
    echo > trace
    for power in /sys/bus/scsi/devices/*:*/power; do
        [ ! -e $power/autosuspend_delay_ms ] || echo 50 > $power/autosuspend_delay_ms 2> /dev/null
        echo auto > $power/control
    done
    for try in $(seq 200); do
        [ "$(cat $wlun/power/runtime_status)" = suspended ] && break
        sleep 0.1
    done
    [ "$(cat $wlun/power/runtime_status)" = suspended ] || fail "level $level: awake"
    is_there 1 || fail "level $level"
    for power in /sys/bus/scsi/devices/*:*/power; do echo on > $power/control; done
    sed -n 's/.*\(ufshcd_wl_runtime_[a-z]*\):.*dev_state: \([A-Z_]*\), link_state: \([A-Z0-9_]*\), err \([-0-9]*\)/level '$level': \1 \2 \3 \4/p' trace
done
echo "ok runtime"

modprobe sg
rpmb=$(ls -d /sys/bus/scsi/devices/*:49476/scsi_generic/sg*)
[ -n "$rpmb" ] || fail "no unit for RPMB: $(ls /sys/bus/scsi/devices)"
perl /share/rpmb.pl /dev/${rpmb##*/} || fail rpmb
echo "ok rpmb"
echo "log:"
complaints

# Other drivers, which hand queries of programs on.
[ -e /share/ufshcd-pci.ko ] || exit 0
dmesg -C
modprobe -r ufshcd-pci ufshcd-core; modprobe bsg 2> /dev/null
insmod /share/ufshcd-core.ko && insmod /share/ufshcd-pci.ko || fail insmod
find_disk
perl /share/bsg.pl /dev/bsg/ufs-bsg0 || fail bsg
is_there 1 || fail "after queries"
# That they are not signed is all that may be said of them.
complaints | grep -v 'module verification failed'
true
