//! The example of the UFS driver's front page, over the model.

use flysch_api::command::Ended;
use flysch_models::ufs::Config;
use flysch_tests::ufs::{buffer, done, fill, holds, machine, ports, read, write};
use flysch_ufs::UfsOptions;

#[expect(unreachable_pub, reason = "public on the page it is from")]
#[path = "../../../../crates/ufs/doc/first_read.rs"]
mod first_read;

#[test]
fn the_front_page_reads_what_was_written() {
    let machine = machine(Config::default());
    let data = buffer(&machine, 1, 4096);
    fill(&machine, data, 77);
    done(&mut ports(&machine, UfsOptions::default())[0], &machine, write(7, data));
    // Another host: the unit must first report that it was reset.
    fill(&machine, data, 1);
    let ended = first_read::first_read(&machine, || read(7, data)).expect("up");
    assert_eq!(ended, Ended::Good);
    assert!(holds(&machine, data, 77));
}
