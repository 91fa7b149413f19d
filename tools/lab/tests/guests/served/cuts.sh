# Live orders: power goes and comes back under writes, and the device is pulled out.
load; find_disk
put 1
dmesg -C
fio --name=w --filename=$d --offset=64m --size=64m --rw=randwrite --bs=4k --iodepth=8 \
    --ioengine=libaio --direct=1 --time_based --runtime=6 --continue_on_error=all \
    --output-format=json > /tmp/fio 2> /dev/null &
writer=$!
# Until writes come back, and nobody has flushed them.
written() { local stat; read -ra stat < /sys/block/${d#/dev/}/stat; echo ${stat[4]}; }
before=$(written)
for try in $(seq 200); do [ $(written) -gt $((before + 50)) ] && break; sleep 0.05; done
want power-cycle
wait $writer
for try in $(seq 100); do is_there 1 2> /dev/null && break; sleep 0.1; done
# Linux gives up a UFS device that is away longer than its five resets of the host take.
if ! is_there 1 2> /dev/null; then
    pci=$(basename /sys/bus/pci/drivers/$driver/0000:*)
    echo $pci > /sys/bus/pci/drivers/$driver/unbind
    echo $pci > /sys/bus/pci/drivers/$driver/bind
    find_disk; echo "given up, and bound again"
fi
if is_there 1; then kept=kept; else kept=LOST; fi
echo "== power-cycle: $kept, $(errors < /tmp/fio) errors; $(cat /share/armed.power-cycle)"
said
put 2 && is_there 2 && echo "works"

dmesg -C
want remove
# A read that comes to an end, whatever that is.
before=$(date +%s)
timeout -s KILL 400 dd if=$d of=/dev/null bs=4k count=1 skip=16384 iflag=direct 2> /tmp/said
status=$?
case $status in
    0) echo "it is read" ;;
    137) echo "== remove: no end" ;;
    *) echo "== remove: an error after $(($(date +%s) - before)) s" ;;
esac
tail -1 /tmp/said
said
