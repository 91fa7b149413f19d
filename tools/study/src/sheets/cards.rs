//! eMMC.

use super::{Cell, Sheet, Unit};

const RUN: &str = "size=64m time_based runtime=2s ramp_time=200ms zero_buffers";

pub(super) const HS400: Sheet = Sheet {
    target: "emmc,profile=emmc-hs400",
    source: "B. Wang, lkml 2020: HS400ES 32 GB, 20 jobs of 4 KiB; TI guide, J784S4: fio on ext4, \
             depth 4",
    assumed: "tR, erase time, buffer, cache",
    run: RUN,
    cells: &[
        Cell::fitted(
            "rand read 4 KiB, 20 jobs",
            "rw=randread bs=4k numjobs=20 ioengine=psync offset_increment=64m",
            27.0,
            Unit::Mebibytes,
        ),
        Cell::fitted(
            "rand write 4 KiB, 20 jobs",
            "rw=randwrite bs=4k numjobs=20 ioengine=psync offset_increment=64m",
            36.0,
            Unit::Mebibytes,
        ),
        Cell::held("256 KiB reads, depth 4", "rw=read bs=256k iodepth=4", 295.0, Unit::Megabytes),
        Cell::held("256 KiB writes, depth 4", "rw=write bs=256k iodepth=4", 98.1, Unit::Megabytes),
        Cell::held("1 MiB reads, depth 4", "rw=read bs=1m iodepth=4", 281.0, Unit::Megabytes),
        Cell::fitted("1 MiB writes, depth 4", "rw=write bs=1m iodepth=4", 98.1, Unit::Megabytes),
    ],
};

pub(super) const HS400_CMDQ: Sheet = Sheet {
    target: "emmc,profile=emmc-hs400-cmdq",
    source: "Samsung eMMC 5.1 64 GB: the vendor's claims; A. Hunter: a queue costs 2 % of what \
             J784S4 reads",
    assumed: "as emmc-hs400; depth of the claims (32)",
    run: RUN,
    cells: &[
        Cell::fitted(
            "rand read 4 KiB, depth 32",
            "rw=randread bs=4k iodepth=32",
            11.0,
            Unit::Kiops,
        ),
        Cell::held(
            "rand write 4 KiB, depth 32",
            "rw=randwrite bs=4k iodepth=32",
            13.0,
            Unit::Kiops,
        ),
        Cell::held("256 KiB reads, depth 4", "rw=read bs=256k iodepth=4", 289.0, Unit::Megabytes),
        Cell::fitted("1 MiB writes, depth 4", "rw=write bs=1m iodepth=4", 98.1, Unit::Megabytes),
        Cell::held("seq read, claimed", "rw=read bs=512k iodepth=4", 250.0, Unit::Megabytes)
            .misses(23.4, "another part: bus and flash are those of the boards"),
        Cell::held("seq write, claimed", "rw=write bs=512k iodepth=4", 125.0, Unit::Megabytes)
            .misses(-21.0, "another part: bus and flash are those of the boards"),
    ],
};

pub(super) const OK3576: Sheet = Sheet {
    target: "emmc,profile=ok3576",
    source: "no figures: beside the UFS part of the board only claims are published",
    assumed: "everything: the flash of the UFS profile ok3576 behind an HS400 bus without a queue",
    run: RUN,
    cells: &[],
};

pub(super) const SD_UHS: Sheet = Sheet {
    target: "sd,profile=sd-uhs",
    source: "no device",
    assumed: "everything but the bus (SDR104): the flash of emmc-hs400 with one channel's buffer",
    run: RUN,
    cells: &[],
};
