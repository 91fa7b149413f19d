# Functions for jobs that let Linux write file systems and keep what lies on the flash.
#
# A case ends with images in its folder: clean.img (unmounted), cut*.img (taken while the kernel was
# writing), torn*.img (a cut whose last page is torn), and for each image, NAME.txt: what the kernel
# shows of it after its own recovery, or NAME.refused: why it does not mount it.
#
# A cut is a snapshot under a real-time priority on a machine with one processor: from its first
# read on nothing else runs, so the copy is the flash at one moment, as a power cut would leave it.

guest=/share/flysch-lab-guest
mount -t debugfs debug /sys/kernel/debug
echo -1 >/proc/sys/kernel/sched_rt_runtime_us
load_ubifs
modprobe jffs2

# load CHIP: a fresh, erased flash as /dev/mtd0, and its page, oob and block size.
load() {
    if [ -e /dev/mtd0 ]; then
        echo "the flash of the case before is still in use"
        exit 1
    fi
    case $1 in
    small) # 16 MiB of 512-byte pages, 16 KiB blocks
        modprobe nandsim first_id_byte=0x20 second_id_byte=0x33
        page=512 oob=16 block=16384 ;;
    large) # 16 MiB of 2 KiB pages, 128 KiB blocks
        modprobe nandsim first_id_byte=0x20 second_id_byte=0xa2 third_id_byte=0x00 \
            fourth_id_byte=0x15 parts=128
        page=2048 oob=64 block=131072 ;;
    huge) # 32 MiB of 4 KiB pages, 256 KiB blocks
        modprobe nandsim first_id_byte=0x20 second_id_byte=0xa2 third_id_byte=0x00 \
            fourth_id_byte=0x26 parts=128
        page=4096 oob=128 block=262144 ;;
    nor) # 16 MiB, 64 KiB blocks; written 64 bytes at once
        modprobe mtdram total_size=16384 erase_size=64
        page=64 oob=0 block=65536 ;;
    esac
    chip=$1
}

unload() {
    rmmod nandsim 2>/dev/null || rmmod mtdram
}

# dump FILE [oob]: the flash as it is now; with oob, what is on the chip and not what ECC makes of it.
dump() {
    if [ "${2-}" = oob ]; then
        chrt -f 99 nanddump -q -n -o --bb=dumpbad -f "$1" /dev/mtd0
    else
        chrt -f 99 dd if=/dev/mtd0ro of="$1" bs=128k status=none
    fi
}

# restore FILE [oob]: the flash as it was.
restore() {
    flash_erase -q /dev/mtd0 0 0
    if [ $chip = nor ]; then
        dd if="$1" of=/dev/mtd0 bs=64k status=none
    elif [ "${2-}" = oob ]; then
        nandwrite -q -n -o -N /dev/mtd0 "$1" 2>/dev/null
    else
        nandwrite -q -N /dev/mtd0 "$1" 2>/dev/null
    fi
}

# attach OPTIONS: mounts what is on the flash; format OPTIONS: makes a new file system first.
attach() {
    if [ $fs = ubifs ]; then
        ubiattach -m 0 $attach_options >/dev/null && mount -t ubifs ${1:+-o $1} -o nodev ubi0:v /mnt
    else
        mount -t jffs2 ${1:+-o $1} -o nodev mtd0 /mnt
    fi
}

format() {
    if [ $fs = ubifs ]; then
        ubiformat /dev/mtd0 -q -y $attach_options
        ubiattach -m 0 $attach_options >/dev/null
        ubimkvol /dev/ubi0 -N v -m >/dev/null
        mount -t ubifs ${1:+-o $1} -o nodev ubi0:v /mnt
    else
        mount -t jffs2 ${1:+-o $1} -o nodev mtd0 /mnt
    fi
}

detach() {
    mountpoint -q /mnt && umount /mnt
    [ $fs = jffs2 ] || ubidetach -m 0 >/dev/null 2>&1
}

# judge NAME: lets the kernel recover $folder/NAME.img and writes down what it shows.
judge() {
    dmesg -C
    restore $folder/$1.img $raw
    if attach; then
        $guest manifest /mnt >$folder/$1.txt
    else
        dmesg >$folder/$1.refused
    fi
    detach
}

# names of all kinds, access control lists where the file system has them
fill() {
    $guest rich /mnt $seed
    if [ $fs = jffs2 ]; then
        setfacl -m u:1000:rw,g:100:r /mnt/rich/attributes
        setfacl -m u:1000:rwx,d:u:1001:rx /mnt/rich/many
        touch /mnt/rich/many/heir
    fi
}

# snapshots COUNT: takes cut1.img ... while others work.
snapshots() {
    for number in $(seq $1); do
        sleep 0.$((RANDOM % 9))$((RANDOM % 9))
        [ $((number % 3)) = 0 ] && { sync & sleep 0.0$((RANDOM % 9)); }
        dump /tmp/cut$number.img $raw
    done
}

# begin NAME FS CHIP SEED [raw] [ATTACH-OPTIONS]: the settings of a case.
begin() {
    folder=/share/$1 fs=$2 seed=$4 raw=${5-} attach_options=${6-}
    mkdir $folder
    began=$SECONDS
    load $3
    RANDOM=$4
}

# whole NAME FS CHIP SEED raw|"" ATTACH-OPTIONS MOUNT-OPTIONS CUTS: a clean image and cuts, all judged
whole() {
    begin "$1" "$2" "$3" "$4" "$5" "$6"
    format "$7"
    fill
    rm -f /tmp/stop
    $guest work /mnt $((seed * 2)) /tmp/stop &
    first=$!
    $guest work /mnt $((seed * 2 + 1)) /tmp/stop &
    second=$!
    snapshots $8
    touch /tmp/stop
    wait $first $second
    detach
    dump $folder/clean.img $raw
    mv /tmp/cut*.img $folder/
    worked=$SECONDS
    judge clean
    for number in $(seq $8); do
        judge cut$number
        [ "${torn-yes}" = yes ] || continue
        $guest tear $folder/cut$number.img $folder/torn$number.img $page \
            $([ "$raw" = oob ] && echo $oob || echo 0) $block $((seed * 100 + number)) \
            $([ $fs = ubifs ] && echo ubi || echo jffs2) && judge torn$number
    done
    unload
    echo "$1: $((worked - began)) s of work, $((SECONDS - worked)) s of judging"
}

# made NAME SEED MKFS-OPTIONS: an image of mkfs.jffs2, as it is and after work.
made() {
    begin "$1" jffs2 nor $2
    mkdir /tmp/tree
    $guest rich /tmp/tree $seed
    # Longer than JFFS2 holds: mkfs.jffs2 cuts the one and writes the other, which Linux cannot open.
    rm /tmp/tree/rich/very-long-link /tmp/tree/rich/mmm*
    mkfs.jffs2 -r /tmp/tree -o /tmp/made.img -e 64KiB --pad=$((16 << 20)) -l \
        --with-xattr $3
    mv /tmp/made.img $folder/clean-made.img
    rm -rf /tmp/tree
    judge clean-made
    attach
    $guest work /mnt $seed /tmp/never 300
    detach
    dump $folder/clean-worked.img
    judge clean-worked
    unload
}

# emulated NAME CHIP SEED MOUNT-OPTIONS ROUNDS: power cuts that the kernel emulates, in UBIFS
# (tst_recovery) and in UBI (tst_emulate_power_cut) by turns.
emulated() {
    begin "$1" ubifs "$2" "$3"
    for number in $(seq $5); do
        flash_erase -q /dev/mtd0 0 0
        format "$4"
        [ $number = 1 ] && { fill; sync; }
        if [ $((number % 2)) = 1 ]; then
            echo 1 >/sys/kernel/debug/ubifs/ubi0_0/tst_recovery
        else
            echo $((RANDOM % 20)) >/sys/kernel/debug/ubi/ubi0/tst_emulate_power_cut_min
            echo $((RANDOM % 20 + 20)) >/sys/kernel/debug/ubi/ubi0/tst_emulate_power_cut_max
            echo $((RANDOM % 3 + 1)) >/sys/kernel/debug/ubi/ubi0/tst_emulate_power_cut
        fi
        dmesg -C
        timeout 20 $guest work /mnt $((seed * 100 + number)) /tmp/never 2000
        dmesg | grep -i -m1 "power cut"
        detach
        dump $folder/cut$number.img
    done
    for number in $(seq $5); do
        judge cut$number
    done
    unload
}

# encrypted NAME CHIP SEED: a directory with a policy, and what the kernel shows without its key.
encrypted() {
    begin "$1" ubifs "$2" "$3"
    format compr=zstd
    mkdir /mnt/plain
    echo plain >/mnt/plain/file
    unlock /mnt
    policy /mnt/secret 2 1 4
    $guest rich /mnt/secret $seed 2>&1
    detach
    dump $folder/clean.img
    judge clean
    unload
}
