# What the scripts on functions behind VFIO share.
set -o pipefail
# From memory: the share is slow.
cp /share/flysch /tmp/flysch && f=/tmp/flysch
fail() { echo "FAILED: $*"; dmesg | tail -20; exit 1; }
# refused WORDS... -- COMMAND: it fails in one line that has all the words.
refused() {
    local words=() said
    while [ "$1" != -- ]; do words+=("$1"); shift; done
    shift
    if said=$("$@" 2>&1); then fail "not refused: $*"; fi
    [ "$(wc -l <<<"$said")" = 1 ] || fail "more than a line: $said"
    for word in "${words[@]}"; do
        grep -qF -- "$word" <<<"$said" || fail "no \"$word\" in: $said"
    done
    echo "refused: $said"
}
# master ADDRESS: whether it may access memory (command register, bit 2).
master() { echo $(($(od -An -tu1 -j4 -N1 /sys/bus/pci/devices/$1/config) >> 2 & 1)); }
# checked TARGET OPTION...: random data written, and read back with its checksums,
# by a command that `$within` may bound.
checked() {
    local target=$1
    shift
    $within $f bench --on "$target" --name=x --verify=crc32c "$@" >/tmp/said 2>&1 ||
        fail "$target $*: $(cat /tmp/said)"
    grep -q 'all as written' /tmp/said || fail "$target $*: nothing verified: $(cat /tmp/said)"
    grep -m1 "^$target: " /tmp/said
}
