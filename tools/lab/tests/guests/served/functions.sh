# What the scripts on served devices share; `load`, `disk`, `driver` and `log` come before.
# find_disk: $d is the disk, once it is there.
find_disk() {
    for try in $(seq 100); do
        d=$(disk); [ -b "$d" ] && return 0
        sleep 0.1
    done
    echo "no disk"; dmesg | tail -20; exit 3
}
# pattern N: a megabyte that is another one for each N.
pattern() { yes "generation $1 of the flushed data" | head -c 1048576; }
put() {
    pattern $1 > /tmp/put
    dd if=/tmp/put of=$d bs=64k oflag=direct conv=fsync status=none
}
is_there() {
    dd if=$d of=/tmp/got bs=64k count=16 iflag=direct status=none && pattern $1 | cmp - /tmp/got
}
# errors: how many errors fio met and went on; one if it ended with the first, as with ENODATA.
errors() {
    local told count total=0
    told=$(cat)
    for count in $(sed -n 's/.*"total_err" : \([0-9]*\).*/\1/p' <<<"$told"); do
        total=$((total + count))
    done
    [ $total = 0 ] && grep -q '"error" : [1-9]' <<<"$told" && total=1
    echo $total
}
# complaints: what the kernel said that it should not have.
complaints() {
    dmesg | grep -iE "$log" | grep -iE "warn|error|fail|timeout|abort|BUG|trace" || true
}
# want ORDER: has the server do it; faults, or a word of `flysch serve-ctl`. Its answer is in
# /share/armed.ORDER.
want() {
    rm -f /share/armed.$1
    : > /share/want.$1
    while [ ! -e /share/armed.$1 ]; do sleep 0.05; done
}
