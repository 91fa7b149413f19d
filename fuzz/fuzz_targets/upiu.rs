//! UPIUs with everything that can follow them.
#![no_main]

use flysch_wire::ufs::upiu::{
    HEADER_LENGTH, Header, LENGTH, RESPONSE_LENGTH_MAX, ResponseUpiu, SENSE_LENGTH_MAX, Upiu,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some(fixed) = bytes.first_chunk::<LENGTH>() else { return };
    let header = Header::parse(fixed);
    let mut head = [0; HEADER_LENGTH];
    header.emit(&mut head);
    assert_eq!(head, fixed[..HEADER_LENGTH]);

    let unit = Upiu::parse(fixed);
    let mut out = [0xA5; LENGTH];
    unit.emit(&mut out);
    assert_eq!(Upiu::parse(&out), unit);

    if let Ok(data) = header.data_segment(bytes) {
        assert_eq!(data.len(), usize::from(header.data_segment_length));
        assert!(header.unit_length() >= header.data_offset() + data.len());
    }
    let _ = header.extra_header_segments(bytes);
    let response = ResponseUpiu { header, residual_transfer_count: 0 };
    let sense = response.sense(bytes);
    assert!(sense.len() <= SENSE_LENGTH_MAX);

    if let Upiu::Response(mut response) = unit {
        // Extra header segments and CRCs are not emitted together with sense data.
        response.header.ehs_length = 0;
        response.header.transaction.set_hd(false);
        let mut long = [0xA5; RESPONSE_LENGTH_MAX];
        let length = response.emit_with_sense(sense, &mut long);
        let back = ResponseUpiu::parse(long.first_chunk().expect("longer than a unit"));
        assert_eq!(back.expect("a response").sense(&long[..length]), sense);
    }
});
