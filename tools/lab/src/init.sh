#!/bin/busybox sh
# First program of the guest: loads what the kernel needs to see its disk and the share, lays a
# throw-away layer over the disk and goes on there.
B=/bin/busybox
$B mount -t proc proc /proc
$B mount -t sysfs sys /sys
$B mount -t devtmpfs dev /dev
for module in /modules/*; do $B insmod "$module" 2>/dev/null; done
$B mount -t ext4 -o ro,noload /dev/vda /disk
$B mount -t tmpfs memory /memory
$B mkdir /memory/upper /memory/work
$B mount -t overlay -o lowerdir=/disk,upperdir=/memory/upper,workdir=/memory/work root /root
$B mkdir -p /root/share
$B mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,cache=none share /root/share
for folder in proc sys dev; do $B mount --move /$folder /root/$folder; done
exec $B switch_root /root /bin/sh /sbin/flysch-run
