# What a read costs in messages: 2000 reads of 4 KiB at a depth each, and what the server had
# received before and after.
requests=2000
received() {
    local what
    want status
    for what in reads writes unmasks; do
        sed -n "s/.* $what=\([0-9]*\).*/\1/p" /share/armed.status
    done
}
load; find_disk
for depth in 1 32; do
    before=($(received))
    fio --name=m --filename=$d --rw=randread --bs=4k --iodepth=$depth --ioengine=libaio \
        --direct=1 --number_ios=$requests --norandommap > /dev/null || exit 4
    after=($(received))
    line="depth $depth:"
    for n in 0 1 2; do
        each=$(((after[n] - before[n]) * 100 / requests))
        line="$line $((each / 100)).$(printf %02d $((each % 100)))"
    done
    echo "$line"
done
