//! RPMB messages of both modes.
#![no_main]

use flysch_wire::ufs::rpmb::{
    AdvancedRpmb, DATA_LENGTH, RpmbFrame, SecureWriteProtectEntry, SecureWriteProtectView,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(message) = AdvancedRpmb::parse(bytes) {
        let mut out = [0; AdvancedRpmb::LENGTH];
        message.emit(&mut out);
        assert_eq!(AdvancedRpmb::parse(&out), Ok(message));
        assert_eq!(AdvancedRpmb::authenticated(&out)[..28], bytes[4..32]);
        let _ = message.message.response();
    }
    if let Some(bytes) = bytes.first_chunk::<{ RpmbFrame::LENGTH }>() {
        let frame = RpmbFrame::parse(bytes);
        let mut out = [0xA5; RpmbFrame::LENGTH];
        frame.emit(&mut out);
        assert_eq!(RpmbFrame::authenticated(&out), RpmbFrame::authenticated(bytes));
        assert_eq!(RpmbFrame::parse(&out), frame);
    }
    let Some(block) = bytes.first_chunk::<{ DATA_LENGTH }>() else { return };
    let Ok(view) = SecureWriteProtectView::new(block) else { return };
    let entries: Vec<SecureWriteProtectEntry> = view.entries().collect();
    let mut out = [0xA5; DATA_LENGTH];
    assert!(SecureWriteProtectView::emit(view.lun(), &entries, &mut out));
    let again = SecureWriteProtectView::new(&out).expect("just written");
    assert!(again.entries().eq(entries));
});
