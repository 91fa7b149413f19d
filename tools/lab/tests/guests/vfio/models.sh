# Our models, which are served outside, through VFIO.
within='timeout 120'
nvme=0000:00:10.0 ufs=0000:00:11.0 sata=0000:00:12.0 mmc=0000:00:13.0 card=0000:00:14.0
modprobe vfio-pci && $f pci bind $nvme $ufs $sata $mmc $card || fail bind
$f pci list
for target in nvme@pci:$nvme nvme@pci:$nvme,queues=3,wait=poll ufs@pci:$ufs \
    ufs@pci:$ufs,wait=poll ufs@pci:$ufs,mcq=1 ufs@pci:$ufs,mcq=3,wait=poll \
    ahci@pci:$sata ahci@pci:$sata,wait=poll ahci@pci:$sata,ncq=off,link-power=slumber \
    emmc@pci:$mmc emmc@pci:$mmc,wait=poll emmc@pci:$mmc,queue=off,timing=hs200 \
    sd@pci:$card sd@pci:$card,wait=poll; do
    checked $target --rw=randrw --bs=4k --iodepth=16 --size=1M
    checked $target --rw=randrw --bs=64k --segments=5 --iodepth=4 --size=4M
done
echo ok data
for target in nvme@pci:$nvme ufs@pci:$ufs,mcq=2 ahci@pci:$sata emmc@pci:$mmc sd@pci:$card; do
    $f bench --on $target --rw=randwrite --bs=16k --iodepth=32 --size=32M --time_based \
        --runtime=60 >/dev/null 2>&1 &
    pid=$!
    sleep 3
    kill -9 $pid || fail "$target ended by itself"
    wait $pid 2>/dev/null
    checked $target --rw=randrw --bs=4k --iodepth=32 --size=1M
done
echo ok kill
