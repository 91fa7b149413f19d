# A gigabyte with CRCs, then work of many kinds at once on ext4.
set -e
dmesg -C
load; find_disk
fio --name=v --filename=$d --rw=randwrite --bs=64k --iodepth=8 --ioengine=libaio --direct=1 \
    --size=1g --verify=crc32c --verify_fatal=1 --output-format=json > /tmp/fio ||
    { cat /tmp/fio; exit 4; }
echo "verified $(grep -o '"io_kbytes" : 1048576' /tmp/fio | sort -u)"
mkfs.ext4 -q -F $d; mkdir -p /tmp/mnt; mount $d /tmp/mnt
for seed in 1 2 3 4; do
    /share/flysch-lab-guest work /tmp/mnt $seed /tmp/stop 3000 &
    jobs="$jobs $!"
done
for job in $jobs; do wait $job; done
if [ -x /share/fsstress ]; then
    mkdir /tmp/mnt/fsstress
    LD_LIBRARY_PATH=/share/lib /share/fsstress -d /tmp/mnt/fsstress -s 1 -p 4 -n 2000 > /dev/null
    echo "fsstress ended"
fi
/share/flysch-lab-guest manifest /tmp/mnt > /tmp/before
umount /tmp/mnt
e2fsck -fn $d > /tmp/fsck 2>&1 || { cat /tmp/fsck; exit 5; }
mount $d /tmp/mnt
/share/flysch-lab-guest manifest /tmp/mnt | diff /tmp/before - > /tmp/diff || { head /tmp/diff; exit 6; }
umount /tmp/mnt
echo "$(wc -l < /tmp/before) files same"
echo "log:"
complaints
