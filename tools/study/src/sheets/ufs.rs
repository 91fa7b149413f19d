//! UFS.

use super::{Cell, Sheet, Unit};

const ARTICLE: &str = "J. Choi, FreeBSD Journal 2025: Galaxy Book S, UFS 4.0 part at HS-G4";
const RUN: &str = "size=1g time_based runtime=200ms ramp_time=20ms zero_buffers";
const ASSUMED: &str = "tR, program and erase times within what TLC has, channels, dies, buffer";

pub(super) const FREEBSD: Sheet = Sheet {
    target: "ufs,profile=galaxy-book-s,software=freebsd",
    source: ARTICLE,
    assumed: ASSUMED,
    run: RUN,
    cells: &FREEBSD_CELLS,
};

pub(super) const LINUX: Sheet = Sheet {
    target: "ufs,profile=galaxy-book-s,software=linux",
    source: ARTICLE,
    assumed: ASSUMED,
    run: RUN,
    cells: &LINUX_CELLS,
};

pub(super) const BOOSTER: Sheet = Sheet {
    target: "ufs,profile=galaxy-book-s,software=freebsd,wb=on",
    source: ARTICLE,
    assumed: "program time in SLC mode",
    run: "size=1g time_based runtime=500ms ramp_time=50ms zero_buffers",
    cells: &[Cell::held(
        "seq write 1 MiB, depth 31",
        "rw=write bs=1m iodepth=31",
        1568.0,
        Unit::Mebibytes,
    )],
};

const BOARD_WRITE: &str = "rw=write bs=1m numjobs=8 ioengine=psync size=512m \
                           offset_increment=512m";
const BOARD_READ: &str = "rw=read bs=1m numjobs=8 ioengine=psync size=512m \
                          offset_increment=512m";

pub(super) const OK3576: Sheet = Sheet {
    target: "ufs,profile=ok3576",
    source: "Forlinx OK3576-C (RK3576): fio, 8 threads, 1 MiB, depth 1 each",
    assumed: "front end, firmware, tR and link share are those of galaxy-book-s",
    run: "zero_buffers",
    cells: &[
        Cell::fitted("write 1 MiB x 8", BOARD_WRITE, 333.0, Unit::Mebibytes),
        Cell::held("write 1 MiB x 8, mean", BOARD_WRITE, 23.6, Unit::MeanMillis),
        Cell::fitted("write 1 MiB x 8, p99", BOARD_WRITE, 53.0, Unit::P99Millis),
        Cell::held("read 1 MiB x 8", BOARD_READ, 755.0, Unit::Mebibytes),
        Cell::held("read 1 MiB x 8, mean", BOARD_READ, 10.6, Unit::MeanMillis),
        Cell::fitted("read 1 MiB x 8, p99", BOARD_READ, 13.0, Unit::P99Millis),
    ],
};

pub(super) const UFS40: Sheet = Sheet {
    target: "ufs,profile=ufs40",
    source: "the class of parts sold with 4200 MB/s read and 2800 MB/s written",
    assumed: "everything but the two rates",
    run: RUN,
    cells: &[
        Cell::held(
            "seq read 512 KiB, depth 16",
            "rw=read bs=512k iodepth=16",
            4200.0,
            Unit::Megabytes,
        ),
        Cell::fitted(
            "seq write 512 KiB, depth 16",
            "rw=write bs=512k iodepth=16",
            2800.0,
            Unit::Megabytes,
        ),
    ],
};

pub(super) const GENERIC: Sheet = Sheet {
    target: "ufs,profile=generic",
    source: "no device",
    assumed: "everything: galaxy-book-s behind one lane and a host without its limit",
    run: RUN,
    cells: &[],
};

const FREEBSD_CELLS: [Cell; 24] = [
    Cell::fitted("seq read, depth 1", "rw=read bs=128k iodepth=1", 709.0, Unit::Mebibytes),
    Cell::held("seq read, depth 2", "rw=read bs=128k iodepth=2", 1395.0, Unit::Mebibytes),
    Cell::fitted("seq read, depth 4", "rw=read bs=128k iodepth=4", 1416.0, Unit::Mebibytes),
    Cell::held("seq read, depth 8", "rw=read bs=128k iodepth=8", 1417.0, Unit::Mebibytes),
    Cell::held("seq read, depth 16", "rw=read bs=128k iodepth=16", 1399.0, Unit::Mebibytes),
    Cell::fitted("seq read, depth 32", "rw=read bs=128k iodepth=32", 1361.0, Unit::Mebibytes),
    Cell::fitted("seq write, depth 1", "rw=write bs=128k iodepth=1", 554.0, Unit::Mebibytes),
    Cell::held("seq write, depth 2", "rw=write bs=128k iodepth=2", 556.0, Unit::Mebibytes),
    Cell::fitted("seq write, depth 4", "rw=write bs=128k iodepth=4", 559.0, Unit::Mebibytes),
    Cell::held("seq write, depth 8", "rw=write bs=128k iodepth=8", 554.0, Unit::Mebibytes),
    Cell::held("seq write, depth 16", "rw=write bs=128k iodepth=16", 555.0, Unit::Mebibytes),
    Cell::fitted("seq write, depth 32", "rw=write bs=128k iodepth=32", 556.0, Unit::Mebibytes),
    Cell::fitted("rand read, depth 1", "rw=randread bs=4k iodepth=1", 7.1, Unit::Kiops),
    Cell::held("rand read, depth 2", "rw=randread bs=4k iodepth=2", 14.8, Unit::Kiops),
    Cell::fitted("rand read, depth 4", "rw=randread bs=4k iodepth=4", 31.6, Unit::Kiops),
    Cell::held("rand read, depth 8", "rw=randread bs=4k iodepth=8", 63.5, Unit::Kiops),
    Cell::held("rand read, depth 16", "rw=randread bs=4k iodepth=16", 103.7, Unit::Kiops),
    Cell::fitted("rand read, depth 32", "rw=randread bs=4k iodepth=32", 114.2, Unit::Kiops),
    Cell::fitted("rand write, depth 1", "rw=randwrite bs=4k iodepth=1", 12.1, Unit::Kiops),
    Cell::held("rand write, depth 2", "rw=randwrite bs=4k iodepth=2", 29.4, Unit::Kiops),
    Cell::fitted("rand write, depth 4", "rw=randwrite bs=4k iodepth=4", 68.2, Unit::Kiops),
    Cell::held("rand write, depth 8", "rw=randwrite bs=4k iodepth=8", 102.3, Unit::Kiops),
    Cell::held("rand write, depth 16", "rw=randwrite bs=4k iodepth=16", 105.5, Unit::Kiops),
    Cell::fitted("rand write, depth 32", "rw=randwrite bs=4k iodepth=32", 106.6, Unit::Kiops),
];

/// Why some cells of Linux are off.
const SLEEPY: &str = "one sleep of one processor stands for a governor's choice of states";
const CURVE: &str = "random writes gain little from depth 4 to 8, which no sleep gives";

const LINUX_CELLS: [Cell; 24] = [
    Cell::fitted("seq read, depth 1", "rw=read bs=128k iodepth=1", 542.0, Unit::Mebibytes),
    Cell::held("seq read, depth 2", "rw=read bs=128k iodepth=2", 1358.0, Unit::Mebibytes)
        .misses(-17.0, SLEEPY),
    Cell::fitted("seq read, depth 4", "rw=read bs=128k iodepth=4", 1351.0, Unit::Mebibytes),
    Cell::held("seq read, depth 8", "rw=read bs=128k iodepth=8", 1352.0, Unit::Mebibytes),
    Cell::held("seq read, depth 16", "rw=read bs=128k iodepth=16", 1351.0, Unit::Mebibytes),
    Cell::fitted("seq read, depth 32", "rw=read bs=128k iodepth=32", 1355.0, Unit::Mebibytes),
    Cell::fitted("seq write, depth 1", "rw=write bs=128k iodepth=1", 479.0, Unit::Mebibytes)
        .misses(14.9, SLEEPY),
    Cell::held("seq write, depth 2", "rw=write bs=128k iodepth=2", 548.0, Unit::Mebibytes),
    Cell::fitted("seq write, depth 4", "rw=write bs=128k iodepth=4", 550.0, Unit::Mebibytes),
    Cell::held("seq write, depth 8", "rw=write bs=128k iodepth=8", 550.0, Unit::Mebibytes),
    Cell::held("seq write, depth 16", "rw=write bs=128k iodepth=16", 552.0, Unit::Mebibytes),
    Cell::fitted("seq write, depth 32", "rw=write bs=128k iodepth=32", 553.0, Unit::Mebibytes),
    Cell::fitted("rand read, depth 1", "rw=randread bs=4k iodepth=1", 6.1, Unit::Kiops),
    Cell::held("rand read, depth 2", "rw=randread bs=4k iodepth=2", 13.0, Unit::Kiops),
    Cell::fitted("rand read, depth 4", "rw=randread bs=4k iodepth=4", 29.7, Unit::Kiops)
        .misses(-14.8, SLEEPY),
    Cell::held("rand read, depth 8", "rw=randread bs=4k iodepth=8", 61.1, Unit::Kiops),
    Cell::held("rand read, depth 16", "rw=randread bs=4k iodepth=16", 119.0, Unit::Kiops),
    Cell::fitted("rand read, depth 32", "rw=randread bs=4k iodepth=32", 142.0, Unit::Kiops),
    Cell::fitted("rand write, depth 1", "rw=randwrite bs=4k iodepth=1", 11.0, Unit::Kiops),
    Cell::held("rand write, depth 2", "rw=randwrite bs=4k iodepth=2", 21.0, Unit::Kiops),
    Cell::fitted("rand write, depth 4", "rw=randwrite bs=4k iodepth=4", 53.1, Unit::Kiops),
    Cell::held("rand write, depth 8", "rw=randwrite bs=4k iodepth=8", 84.1, Unit::Kiops)
        .misses(51.7, CURVE),
    Cell::held("rand write, depth 16", "rw=randwrite bs=4k iodepth=16", 114.0, Unit::Kiops),
    Cell::fitted("rand write, depth 32", "rw=randwrite bs=4k iodepth=32", 120.0, Unit::Kiops),
];
