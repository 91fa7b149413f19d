//! The number of vfio-user messages that Linux needs for a read: they account for a served device's
//! time.

use super::{AHCI, Device, EMMC, EMMC_PLAIN, NVME, SD, UFS, on_each};

/// Maximum numbers per request, for depths 1 and 32, of register reads, which the guest waits for,
/// and of writes. At depth 32 the number of requests served by one interrupt depends on the load of
/// the machine.
type Bounds = [(f64, f64); 2];

/// Messages per read: register reads, which QEMU and thus the guest wait for, writes, which they do
/// not, and unmasked interrupts.
#[test]
fn linux_takes_this_many_messages_for_a_read() {
    let devices: [(Device, Bounds); 8] = [
        (UFS, [(5.0, 3.0), (2.0, 2.0)]),
        (Device { target: "ufs,size=256M,mcq=3", ..UFS }, [(7.5, 5.0), (3.0, 3.0)]),
        (NVME, [(0.1, 2.1), (0.1, 1.0)]),
        (
            Device { target: "nvme,size=256M,queues=2,vectors=off", ..NVME },
            [(0.1, 2.1), (0.1, 1.0)],
        ),
        (AHCI, [(4.5, 4.5), (2.0, 3.5)]),
        (EMMC, [(7.0, 5.0), (4.0, 3.0)]),
        (EMMC_PLAIN, [(8.0, 16.0); 2]),
        (SD, [(12.0, 19.0); 2]),
    ];
    for (device, bounds) in devices {
        on_each(&[device], include_str!("messages.sh"), |title, output| {
            for (depth, (reads, writes)) in [1, 32].into_iter().zip(bounds) {
                let start = format!("depth {depth}: ");
                let line = output.lines().find_map(|line| line.strip_prefix(&start));
                let line = line.unwrap_or_else(|| panic!("{title}: depth {depth}"));
                let each: Vec<f64> =
                    line.split(' ').map(|number| number.parse().unwrap()).collect();
                assert!(each[0] <= reads && each[1] <= writes, "{title}, depth {depth}: {line}");
            }
        });
    }
}
