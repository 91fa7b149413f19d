//! NVMe and SATA drives.

use super::{Cell, Sheet, Unit};

const RUN: &str = "size=1g time_based runtime=100ms ramp_time=10ms zero_buffers";

pub(super) const PM991A: Sheet = Sheet {
    target: "nvme,profile=pm991a",
    source: "PM991a 256 GB on a Raspberry Pi 5, PCIe 2 x1: users' hdparm and fio (pineboards \
             issue 16)",
    assumed: "payload 256, tR, how a die's rate divides; figures at depth 1 hold the host's \
              software",
    run: RUN,
    cells: &[
        Cell::fitted("rand read 4 KiB, depth 1", "rw=randread bs=4k iodepth=1", 13.9, Unit::Kiops),
        Cell::held("rand write 4 KiB, depth 1", "rw=randwrite bs=4k iodepth=1", 38.1, Unit::Kiops),
        Cell::fitted(
            "rand read 4 KiB, depth 60",
            "rw=randread bs=4k iodepth=60",
            106.0,
            Unit::Kiops,
        ),
        Cell::held(
            "rand write 4 KiB, depth 60",
            "rw=randwrite bs=4k iodepth=60",
            87.0,
            Unit::Kiops,
        ),
        Cell::held("seq read 1 MiB, depth 4", "rw=read bs=1m iodepth=4", 419.0, Unit::Megabytes),
        Cell::fitted(
            "seq write 1 MiB, depth 4",
            "rw=write bs=1m iodepth=4",
            316.0,
            Unit::Megabytes,
        ),
    ],
};

pub(super) const M8PE: Sheet = Sheet {
    target: "nvme,profile=m8pe,software=linux-j721e",
    source: "TI guide, J721E: Plextor M8Pe 128 GB on PCIe 3 x2, fio on ext4",
    assumed: "payload 128, tR, how a die's rate divides",
    run: RUN,
    cells: &[
        Cell::fitted("4 KiB reads, depth 4", "rw=read bs=4k iodepth=4", 103.0, Unit::Megabytes),
        Cell::fitted("4 KiB writes, depth 4", "rw=write bs=4k iodepth=4", 183.0, Unit::Megabytes),
        Cell::held("256 KiB reads, depth 4", "rw=read bs=256k iodepth=4", 1510.0, Unit::Megabytes),
        Cell::held("256 KiB writes, depth 4", "rw=write bs=256k iodepth=4", 733.0, Unit::Megabytes),
        Cell::held("1 MiB reads, depth 4", "rw=read bs=1m iodepth=4", 1514.0, Unit::Megabytes),
        Cell::fitted("1 MiB writes, depth 4", "rw=write bs=1m iodepth=4", 709.0, Unit::Megabytes),
    ],
};

pub(super) const M8PE_X1: Sheet = Sheet {
    target: "nvme,profile=m8pe-x1,software=linux-am64x",
    source: "TI guide, AM64x: Lite-On M8Pe on PCIe 2 x1, fio on ext4, middle of five tables",
    assumed: "nothing new: the drive of m8pe behind another link; the software is fitted to the \
              reads and to the published load of the writes of 4 KiB",
    run: RUN,
    cells: &[
        Cell::fitted("4 KiB reads, depth 4", "rw=read bs=4k iodepth=4", 98.5, Unit::Megabytes),
        Cell::fitted("4 KiB writes, depth 4", "rw=write bs=4k iodepth=4", 77.0, Unit::Megabytes),
        Cell::held("256 KiB reads, depth 4", "rw=read bs=256k iodepth=4", 397.0, Unit::Megabytes),
        Cell::held("256 KiB writes, depth 4", "rw=write bs=256k iodepth=4", 378.0, Unit::Megabytes),
        Cell::held("1 MiB reads, depth 4", "rw=read bs=1m iodepth=4", 398.0, Unit::Megabytes),
        Cell::held("1 MiB writes, depth 4", "rw=write bs=1m iodepth=4", 374.0, Unit::Megabytes),
    ],
};

pub(super) const SAMSUNG_980_PRO: Sheet = Sheet {
    target: "nvme,profile=980pro",
    source: "Samsung 980 PRO 1 TB: the vendor's claims",
    assumed: "payload 256, tR, how a die's rate divides",
    run: RUN,
    cells: &[
        Cell::fitted("rand read 4 KiB, depth 1", "rw=randread bs=4k iodepth=1", 22.0, Unit::Kiops),
        Cell::held("rand write 4 KiB, depth 1", "rw=randwrite bs=4k iodepth=1", 60.0, Unit::Kiops),
        Cell::fitted(
            "rand read 4 KiB, depth 60",
            "rw=randread bs=4k iodepth=60",
            1000.0,
            Unit::Kiops,
        ),
        Cell::held(
            "rand write 4 KiB, depth 60",
            "rw=randwrite bs=4k iodepth=60",
            1000.0,
            Unit::Kiops,
        ),
        Cell::held("seq read 1 MiB, depth 8", "rw=read bs=1m iodepth=8", 7000.0, Unit::Megabytes),
        Cell::fitted(
            "seq write 1 MiB, depth 8",
            "rw=write bs=1m iodepth=8",
            5000.0,
            Unit::Megabytes,
        ),
    ],
};

pub(super) const SAMSUNG_980: Sheet = Sheet {
    target: "nvme,profile=980",
    source: "Samsung 980 1 TB, without DRAM: the vendor's claims",
    assumed: "payload 256, tR, how a die's rate divides, what a look-up takes without the host's \
              memory",
    run: RUN,
    cells: &[
        Cell::fitted("rand read 4 KiB, depth 1", "rw=randread bs=4k iodepth=1", 17.0, Unit::Kiops),
        Cell::held("rand write 4 KiB, depth 1", "rw=randwrite bs=4k iodepth=1", 53.0, Unit::Kiops),
        Cell::fitted(
            "rand read 4 KiB, depth 60",
            "rw=randread bs=4k iodepth=60",
            500.0,
            Unit::Kiops,
        ),
        Cell::held(
            "rand write 4 KiB, depth 60",
            "rw=randwrite bs=4k iodepth=60",
            480.0,
            Unit::Kiops,
        ),
        Cell::held("seq read 1 MiB, depth 8", "rw=read bs=1m iodepth=8", 3500.0, Unit::Megabytes),
        Cell::fitted(
            "seq write 1 MiB, depth 8",
            "rw=write bs=1m iodepth=8",
            3000.0,
            Unit::Megabytes,
        ),
    ],
};

pub(super) const SATA_SSD: Sheet = Sheet {
    target: "ahci,profile=sata-ssd",
    source: "Samsung 850 EVO 1 TB: the vendor's claims",
    assumed: "channels, dies, program and erase times, buffer, SLC area",
    run: RUN,
    cells: &[
        Cell::fitted("rand read 4 KiB, depth 1", "rw=randread bs=4k iodepth=1", 10.0, Unit::Kiops),
        Cell::held("rand write 4 KiB, depth 1", "rw=randwrite bs=4k iodepth=1", 40.0, Unit::Kiops),
        Cell::held("rand read 4 KiB, depth 32", "rw=randread bs=4k iodepth=32", 98.0, Unit::Kiops),
        Cell::fitted(
            "rand write 4 KiB, depth 32",
            "rw=randwrite bs=4k iodepth=32",
            90.0,
            Unit::Kiops,
        ),
        Cell::fitted(
            "seq read 128 KiB, depth 8",
            "rw=read bs=128k iodepth=8",
            540.0,
            Unit::Megabytes,
        ),
        Cell::held(
            "seq write 128 KiB, depth 8",
            "rw=write bs=128k iodepth=8",
            520.0,
            Unit::Megabytes,
        ),
    ],
};

pub(super) const SATA2_SSD: Sheet = Sheet {
    target: "ahci,profile=sata2-ssd",
    source: "no device",
    assumed: "everything: sata-ssd behind a link of 3 Gb/s",
    run: RUN,
    cells: &[],
};

pub(super) const OK3576: Sheet = Sheet {
    target: "nvme,profile=ok3576",
    source: "no device",
    assumed: "everything: the flash of the UFS profile ok3576 behind one lane of PCIe 2",
    run: RUN,
    cells: &[],
};
