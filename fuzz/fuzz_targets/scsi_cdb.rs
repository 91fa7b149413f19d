//! Command descriptor blocks.
#![no_main]

use flysch_wire::scsi::Cdb;
use flysch_wire::scsi::cdb::LENGTH;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: [u8; LENGTH]| {
    let cdb = Cdb::parse(&bytes);
    assert_eq!(cdb.opcode().into_bits(), bytes[0]);
    assert!(matches!(cdb.opcode().cdb_length(), 6 | 10 | 12 | 16));
    let out = cdb.to_bytes();
    assert_eq!(Cdb::parse(&out), cdb);
    // What `to_bytes` writes has no bit that the input did not have.
    for (out, byte) in out.iter().zip(&bytes) {
        assert_eq!(out & !byte, 0);
    }
});
