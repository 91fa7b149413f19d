# Linux and Flysch by turns on one flash. Needs guest.sh, and the command as /share/flysch.
#
# A round is a half of Linux's and a half of Flysch's. Each half starts with what the one before left:
# everything that was shown then must be shown now, `expected` to the last character. Some halves end
# in a power cut: Linux's by putting back a copy of the flash taken while it worked, Flysch's by
# killing its daemon. What was synced before that must be there, as both show it.

cp /share/flysch /tmp/flysch
cp /share/flysch-lab-guest /tmp/guest
guest=/tmp/guest
flysch=/tmp/flysch
for check in general index orphans lprops fs; do
    echo 1 >/sys/kernel/debug/ubifs/chk_$check
done
mkdir -p /tmp/tree/many
for number in 1 2 3 4; do head -c $((number * 700)) /dev/urandom >/tmp/tree/many/$number; done
seq 20000 | head -c 65536 >/tmp/tree/size65536
seq 3000 >/tmp/tree/grown
seq 300 >/tmp/tree/overwritten
setfattr -n user.here -v there /tmp/tree/grown

# What differs is shown, the flash and the kernel's log are kept; nothing is tried after that.
wrong() {
    echo "WRONG $name, round $round, half of $half: $*"
    dmesg >/share/$name.log
    # Dumps of nodes are long, and what they are of stands before them.
    complaints | head -20
    mountpoint -q /mnt && umount -l /mnt
    nanddump -q -n -o --bb=dumpbad -f /share/$name.flash /dev/mtd0 2>/dev/null ||
        cp /dev/mtd0ro /share/$name.flash
    tar cf /share/$name.tar /tmp/*.txt
    exit 1
}

# same WHAT EXPECTED FOUND
same() {
    if ! cmp -s $2 $3; then
        diff $2 $3 | cut -c1-300 | head -30
        wrong "$1"
    fi
    compared=$((compared + $(wc -l <$3)))
}

# Everything but what the worker was busy with when the power went. That a name was removed is on a
# JFFS2 only until Linux collects the entry that says so, and with it goes the directory's mtime.
others() {
    grep -v "^work$1[/	]" $2 |
        if [ $fs = jffs2 ]; then sed '/	Directory /s/ mtime [0-9.]*//'; else cat; fi
}

shown() { $guest manifest /mnt >$1 || wrong "a manifest"; }

# What Linux has mounted, when it mounts it again: until then it shows times and link counts that are
# not on the flash (of directories in JFFS2, the change time of exchanged files in UBIFS).
shown_by_linux() {
    sync
    umount /mnt
    mount -t $fs -o "${mount_options:-rw}",nodev $([ $fs = ubifs ] && echo ubi0:v || echo mtd0) /mnt
    shown $1
}

# Old work goes when little room is left, so that there is always something to do.
room() {
    used=$(df --output=pcent /mnt | tail -1 | tr -dc 0-9)
    if [ $used -gt 50 ]; then rm -rf /mnt/work$(((round + 1) % 4)); fi
}

# begun SEED: the state that must outlive a cut.
begun() {
    mkdir -p /mnt/work$(($1 % 4))
    room
    echo "round $round, half of $half" >/mnt/synced$((round % 3))
    setfattr -n user.round -v $round /mnt/synced$((round % 3))
    # Linux does not pass syncfs on to FUSE.
    sync /mnt/synced$((round % 3))
    sync -f /mnt
    if [ $half = Linux ]; then shown_by_linux /tmp/synced.txt; else shown /tmp/synced.txt; fi
}

up_linux() {
    half=Linux
    dmesg -C
    attach "$1" || wrong "it does not mount"
    shown /tmp/found.txt
    same "as it was left" /tmp/expected.txt /tmp/found.txt
}

# A node of JFFS2 whose second page was not written when its writer was killed is no fault.
complaints() {
    dmesg | grep -E 'UBIFS error|UBIFS assert|Call Trace|ubi0 error|jffs2: (error|warning)|BUG' |
        grep -vE 'Not enough space for summary|jffs2_reserve_space\(\)=-28' |
        grep -vE 'node CRC failed at 0x[0-9a-f]+, read=0xffffffff'
}

linux_half() { # SEED MOUNT-OPTIONS clean|cut
    mount_options=$2
    up_linux "$2"
    begun $1
    if [ $3 = cut ]; then
        rm -f /tmp/stop
        $guest work /mnt $1 /tmp/stop 1500 >/dev/null &
        worker=$!
        sleep $((RANDOM % 2)).$((RANDOM % 10))
        dump /tmp/cut.img $raw
        touch /tmp/stop
        wait $worker
    else
        $guest work /mnt $1 /tmp/never 150 >/dev/null
        shown_by_linux /tmp/expected.txt
    fi
    complaints >/dev/null && [ $fs = ubifs ] && echo 1 >/sys/kernel/debug/ubifs/ubi0_0/dump_lprops
    detach
    if complaints >/dev/null; then wrong "Linux complains"; fi
    if [ $3 = cut ]; then
        restore /tmp/cut.img $raw
        after_cut $1
    fi
}

# What is on the flash, as Flysch shows it without changing anything, is expected from now on.
after_cut() { # SEED
    up_flysch
    shown /tmp/expected.txt
    down_flysch
    others $(($1 % 4)) /tmp/synced.txt >/tmp/a.txt
    others $(($1 % 4)) /tmp/expected.txt >/tmp/b.txt
    same "what was synced" /tmp/a.txt /tmp/b.txt
    cuts=$((cuts + 1))
}

up_flysch() { # OPTIONS
    $flysch image mount $1 /dev/mtd0 /mnt >/tmp/daemon 2>&1 &
    daemon=$!
    until mountpoint -q /mnt; do
        kill -0 $daemon 2>/dev/null || { cat /tmp/daemon; wrong "flysch image mount $1"; }
        sleep 0.05
    done
}

down_flysch() {
    umount /mnt
    wait $daemon || { cat /tmp/daemon; wrong "flysch image mount ended with an error"; }
}

flysch_half() { # SEED clean|cut|edit
    half=Flysch
    if [ $2 = edit ]; then
        edit_half
        return
    fi
    up_flysch --rw
    shown /tmp/found.txt
    same "as it was left" /tmp/expected.txt /tmp/found.txt
    begun $1
    if [ $2 = cut ]; then
        rm -f /tmp/stop
        $guest work /mnt $1 /tmp/stop 1500 >/dev/null &
        worker=$!
        sleep $((RANDOM % 2 + 1)).$((RANDOM % 10))
        kill -9 $daemon
        touch /tmp/stop
        wait $worker $daemon 2>/dev/null
        umount -l /mnt
        after_cut $1
    else
        $guest work /mnt $1 /tmp/never 150 >/dev/null
        sync -f /mnt
        shown /tmp/expected.txt
        down_flysch
    fi
    $flysch image check /dev/mtd0 >/tmp/check 2>&1 || { cat /tmp/check; wrong "its own check"; }
}

# A tree put in, changed by every edit there is, and the oldest of them removed.
edit_half() {
    cat >/tmp/edits <<-EOF
	mkdir -p /edited/$round/deep/er
	put /tmp/tree /edited/$round
	chmod -r 751 /edited/$round/tree/many
	chown -r 12:60000 /edited/$round/tree/many
	mv /edited/$round/tree/grown /edited/$round/deep/er/moved
	ln /edited/$round/deep/er/moved /edited/$round/linked
	ln -s ../$round/linked /edited/$round/soft
	truncate -s 5001 /edited/$round/tree/size65536
	setfattr -n user.edit -v 0x00ff$round$round /edited/$round/tree
	mknod /edited/$round/node c 4 64
	rm -r /edited/$round/tree/overwritten
	rm /edited/$round/tree/many/3
	EOF
    [ $edits = 0 ] || echo "rm -r /edited/$edits" >>/tmp/edits
    edits=$round
    $flysch image edit --script /tmp/edits /dev/mtd0 >/tmp/edit 2>&1 ||
        { cat /tmp/edit; wrong "flysch image edit"; }
    up_flysch
    shown /tmp/found.txt
    down_flysch
    grep -vE '^(edited.*)?	|^edited' /tmp/expected.txt >/tmp/a.txt
    grep -vE '^(edited.*)?	|^edited' /tmp/found.txt >/tmp/b.txt
    same "what was not edited" /tmp/a.txt /tmp/b.txt
    grep -q "^edited/$round/deep/er/moved	Regular.* links 2 " /tmp/found.txt ||
        wrong "what was edited"
    mv /tmp/found.txt /tmp/expected.txt
}

# Erase counters of all blocks never fall; a block without one is met only after a cut.
counters() { # clean|cut
    [ $fs = ubifs ] || return 0
    $guest counters /dev/mtd0ro $block >/tmp/counters.txt
    awk 'NR == FNR { old[$1] = $2; next } ($1 in old) && $2 < old[$1]' \
        /tmp/counters.old.txt /tmp/counters.txt >/tmp/fallen.txt
    [ ! -s /tmp/fallen.txt ] || { head -5 /tmp/fallen.txt; wrong "erase counters fell"; }
    [ $1 != clean ] || [ $(wc -l </tmp/counters.txt) = $good ] || wrong "erase counters lost"
    cp /tmp/counters.txt /tmp/counters.old.txt
}

# turns NAME FS CHIP SEED ATTACH-OPTIONS MOUNT-OPTIONS ROUNDS
turns() {
    name=$1 fs=$2 seed=$4 mount_options= attach_options=$5 round=0 half=Linux
    [ $fs = jffs2 ] && [ $3 != nor ] && raw=oob || raw=
    compared=0 cuts=0 edits=0
    RANDOM=$4
    began=$SECONDS
    load $3
    format "$6"
    $guest rich /mnt $seed
    rm -rf /mnt/rich/large
    shown_by_linux /tmp/expected.txt
    detach
    good=$(($(cat /sys/class/mtd/mtd0/size) / block - $(cat /sys/class/mtd/mtd0/bad_blocks)))
    : >/tmp/counters.old.txt
    counters clean
    [ $fs = jffs2 ] || cp /tmp/counters.txt /tmp/counters.first.txt
    for round in $(seq $7); do
        how=clean
        [ $((round % 3)) = 2 ] && how=cut
        linux_half $((seed * 1000 + round)) "${options[round % ${#options[@]}]}" $how
        counters $how
        how=clean
        [ $((round % 3)) = 0 ] && how=cut
        [ $((round % 5)) = 3 ] && how=edit
        flysch_half $((seed * 2000 + round)) $how
        counters $how
        echo "$name: round $round, $compared files compared, $((SECONDS - began)) s"
    done
    planted
    erased=
    [ $fs = jffs2 ] || erased=", erase counters in all $(sum first) to $(sum old)"
    unload
    echo "turns $name: $7 rounds, $cuts cuts, $compared files compared$erased," \
        "$((SECONDS - began)) s"
}

sum() { awk '{ sum += $2 } END { print sum }' /tmp/counters.$1.txt; }

# One byte that Linux changes after it has told what is there: Flysch's half would see it.
planted() {
    up_linux
    before=$(stat -c %y /mnt/synced1)
    printf R | dd of=/mnt/synced1 conv=notrunc status=none
    touch -d "$before" /mnt/synced1
    detach
    up_flysch
    shown /tmp/found.txt
    down_flysch
    for list in expected found; do
        sed 's/ ctime [0-9.]*//' /tmp/$list.txt >/tmp/$list.plain
    done
    [ "$(diff /tmp/expected.plain /tmp/found.plain | grep -c '^>')" = 1 ] ||
        wrong "the planted byte"
    [ $fs = jffs2 ] && return
    # And one erase counter.
    echo "5 1000000" >>/tmp/counters.old.txt
    ! (wrong() { exit 1; }; counters cut) >/dev/null || wrong "the planted erase counter"
    sed -i '$d' /tmp/counters.old.txt
}
