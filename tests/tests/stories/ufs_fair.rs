//! Lanes that together ask for more than the controller holds each get their turn.

use flysch_api::command::{Declined, NotStarted, Port as _};
use flysch_api::machine::Clock as _;
use flysch_models::ufs::Config;
use flysch_tests::ufs::{buffer, machine, ports, read};
use flysch_ufs::{Options, QueueMode};

#[test]
fn no_queue_starves_another() {
    const LANES: usize = 4;
    let machine = machine(Config::default());
    let options =
        Options { queue: QueueMode::Mcq, lanes: LANES as u8, depth: 32, ..Options::default() };
    let mut ports = ports(&machine, options);
    let mut ended = [0_u32; LANES];
    while ended.iter().sum::<u32>() < 4000 {
        let now = machine.now();
        for (lane, port) in ports.iter_mut().enumerate() {
            while port.poll(now).is_some() {
                ended[lane] += 1;
            }
            loop {
                match port.start(read(lane as u32, buffer(&machine, lane, 4096)), now) {
                    Ok(()) => {}
                    Err(Declined { why: NotStarted::Full, .. }) => break,
                    Err(why) => panic!("{why:?}"),
                }
            }
            port.ring(now);
        }
        machine.wait(None);
    }
    assert!(ended.iter().all(|&count| (900..=1100).contains(&count)), "{ended:?}");
}
