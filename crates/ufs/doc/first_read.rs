use flysch_api::command::{Command, Ended, Port as _, Scsi};
use flysch_api::machine::Machine;
use flysch_ufs::{Host, UfsError, UfsOptions};

/// Brings a controller up and does one read: `read` makes the command, whose data lies beyond
/// the driver's own memory. How it ended; its data is there if that is `Good`.
pub fn first_read<M: Machine>(
    machine: &M,
    read: impl Fn() -> Command<Scsi>,
) -> Result<Ended, UfsError> {
    let options = UfsOptions::default();
    let driver_memory = machine.memory().carve(0, Host::<M>::memory_len(&options));
    let mut host = Host::new(machine.clone(), driver_memory, options)?;
    host.bring_up(machine)?;
    let mut ports = host.into_ports();
    let port = &mut ports[0];
    loop {
        port.start(read(), machine.now()).expect("an empty queue has room");
        port.ring(machine.now());
        let outcome = loop {
            if let Some(outcome) = port.poll(machine.now()) {
                break outcome;
            }
            machine.wait(port.poll_at());
        };
        // To the first command after power came on a unit answers UNIT ATTENTION (sense key 6),
        // and moves no data: ask again. `flysch-cam` does this, and more, for a whole disk.
        let sense = port.failure().status.sense;
        let attention = sense.as_slice().get(2).is_some_and(|key| key & 0xF == 6);
        if outcome.ended != Ended::Answered || !attention {
            return Ok(outcome.ended);
        }
    }
}
