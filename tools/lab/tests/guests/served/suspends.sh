# The guest's own disk and share do not come back from a suspend, so everything lies in memory and
# is told on the console.
load; find_disk
put 1; pattern 1 > /tmp/wanted
cp /bin/busybox /tmp/busybox
cat > /tmp/job <<"END"
b=/tmp/busybox
echo devices > /sys/power/pm_test
for mode in s2idle deep; do
    $b grep -q $mode /sys/power/mem_sleep || continue
    echo $mode > /sys/power/mem_sleep
    echo mem > /sys/power/state
    $b timeout 60 $b dd if=$1 of=/tmp/got bs=64k count=16 iflag=direct 2> /dev/null
    $b cmp /tmp/wanted /tmp/got && echo "suspended: $mode"
    $b rm -f /tmp/got
done
echo o > /proc/sysrq-trigger
$b sleep 60
END
exec $BASH /tmp/job $d > /dev/ttyS0 2>&1
