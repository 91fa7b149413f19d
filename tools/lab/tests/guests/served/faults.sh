# said: the first lines of the kernel's log.
said() {
    dmesg | grep -E "$log" | sed 's/^\[[^]]*\] //' | cut -c1-110 | sort | uniq -c | sort -rn |
        head -5
}
# work: 200 requests at depth 8, and what came of them.
work() {
    fio --name=f --filename=$d --offset=64m --size=64m --rw=randrw --bs=4k --iodepth=8 \
        --ioengine=libaio --direct=1 --number_ios=200 --continue_on_error=all $more \
        --output-format=json > /tmp/fio 2> /dev/null
}
# hits FAULTS: how often each of them has happened so far.
hits() {
    local one
    want status
    for one in ${1//+/ }; do grep -o "injected ${one%%:*} [0-9]*" /share/armed.status; done
}
generation=1
# fault NAME WHEN: injects, works, and looks what is left.
fault() {
    generation=$((generation + 1))
    put $generation
    dmesg -C
    want $1:$2
    # A link that hibernates by itself has the time to.
    sleep 0.3
    work
    happened=$(hits $1 | tr '\n' ' ')
    want none
    for try in $(seq 200); do is_there $generation 2> /dev/null && break; sleep 0.1; done
    if is_there $generation; then kept=kept; else kept=LOST; fi
    echo "== $1: $kept, $(errors < /tmp/fio) errors; $happened"
    said
}
