//! A disk over the model of a UFS device: bring-up, scan, a write and a read.
//!
//! ```console
//! $ cargo run -p flysch-examples --example disk_over_the_model
//! ```
//!
//! On real hardware only the machine differs (see `own_machine.rs`).

use std::error::Error;

use flysch_api::block::{BlockDevice, Completion, Operation, Request};
use flysch_api::data::Data;
use flysch_api::machine::{Clock, DmaRegion, Identity, Machine};
use flysch_cam::{Disk, scan};
use flysch_models::machine::{Inline, Mode};
use flysch_models::ufs::{Config, Ufs};
use flysch_ufs::{Host, UfsOptions};

/// DMA memory: what the driver needs, the disk's scratch, and buffers for data. `ADDRESS` is where
/// the device sees it.
const DRIVER: usize = 1 << 20;
const SCRATCH: usize = 64 << 10;
const BUFFERS: usize = 1 << 20;
const ADDRESS: u64 = 0x8000_0000;

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let memory = DmaRegion::zeroed(DRIVER + SCRATCH + BUFFERS, ADDRESS);
    let model = Ufs::new(Config::default(), memory.clone())?;
    let machine = Inline::new(model, memory, Identity::default(), Mode::Virtual);

    // The controller: one host, and one lane for each queue (here one).
    let options = UfsOptions::default();
    let mut host = Host::new(machine.clone(), machine.memory().carve(0, DRIVER), options)?;
    host.bring_up(&machine)?;
    let mut port = host.into_ports().remove(0);

    // Its logical units, and a disk over the first one that can be a disk.
    let scratch = machine.memory().carve(DRIVER, SCRATCH);
    let units = scan(&mut port, &machine, &scratch)?;
    let unit = units.iter().find(|unit| unit.is_block_device()).ok_or("there is no disk")?;
    println!("{unit}, {} blocks", unit.shape()?.blocks);
    let mut disk = Disk::new(port, unit.shape()?, scratch, &flysch_cam::DiskOptions::default())?;

    let block = disk.geometry().block_size;
    let buffer = DRIVER + SCRATCH;
    machine.memory().write(buffer, &vec![0x5A; block as usize]);
    let mut request = Request {
        operation: Operation::Write,
        force_unit_access: true,
        offset: 7 * u64::from(block),
        length: block.into(),
        data: Data::One(machine.memory().slice(buffer, block)),
        crypto: None,
        token: 1,
        accepted: machine.now(),
    };
    let written = carry_out(&mut disk, &machine, &request)?;

    machine.memory().fill(buffer, block as usize, 0);
    request = Request { operation: Operation::Read, token: 2, accepted: machine.now(), ..request };
    let read = carry_out(&mut disk, &machine, &request)?;
    let mut bytes = vec![0; block as usize];
    machine.memory().read(buffer, &mut bytes);
    assert!(bytes.iter().all(|&byte| byte == 0x5A));
    for (what, completion) in [("write", written), ("read", read)] {
        println!("{what}: {:?}", completion.passage);
    }
    Ok(())
}

/// Runs one request to completion. With many requests, keep the queue full: `submit` until it
/// returns `Full`, `ring` once for the batch, `poll` until it returns `None`.
fn carry_out<C: Clock>(
    disk: &mut impl BlockDevice,
    clock: &C,
    request: &Request,
) -> Result<Completion, Box<dyn Error>> {
    disk.submit(request, clock.now()).map_err(|refused| format!("{refused:?}"))?;
    disk.ring(clock.now());
    loop {
        if let Some(completion) = disk.poll(clock.now()) {
            completion.result?;
            return Ok(completion);
        }
        clock.wait(disk.poll_at());
    }
}
