//! Bring-up and data.
use crate::host::Host;
use flysch_models::ufs::Config;

#[test]
fn what_was_written_is_read_back() {
    for queues in [0, 1, 4] {
        let mut host = Host::up(Config::default(), 1 << 20, queues);
        let data: Vec<u8> = (0..300 * 4096_u32).map(|n| (n ^ n >> 11) as u8).collect();
        let end = host.command_out(0, &Host::write10(77, 200), &data[..200 * 4096]);
        assert_eq!((end.status, end.residual), (0, 0), "{end:?}");
        let (end, back) = host.command_in(0, &Host::read10(77, 200), 200 * 4096);
        assert_eq!((end.status, end.residual), (0, 0));
        assert!(back == data[..200 * 4096]);
    }
}
