//! Mode parameter lists, with both lengths of header, in both directions.
#![no_main]

use flysch_wire::scsi::mode::{Caching, Control, ModeView, ReadWriteErrorRecovery};
use libfuzzer_sys::fuzz_target;

macro_rules! settles {
    ($page:expr, $($value:ty),*) => {$(
        if let Ok(value) = <$value>::parse($page) {
            // A header of MODE SELECT(6) before the page turns it into a list.
            let mut list = [0; 4 + <$value>::LENGTH];
            value.emit((&mut list[4..]).try_into().expect("the length of the page"));
            let view = ModeView::select_6(&list).expect("just written");
            let page = view.pages().next().expect("just written");
            assert_eq!(<$value>::parse(&page), Ok(value));
            assert!(view.trailing().is_empty());
        }
    )*};
}

fuzz_target!(|bytes: &[u8]| {
    for parse in [ModeView::sense_6, ModeView::sense_10, ModeView::select_6, ModeView::select_10] {
        let Ok(view) = parse(bytes) else { continue };
        let pages: usize = view
            .pages()
            .map(|page| {
                settles!(&page, Caching, Control, ReadWriteErrorRecovery);
                page.bytes.len()
            })
            .sum();
        let all = view.block_descriptors().len() + pages + view.trailing().len();
        assert!(all <= bytes.len());
    }
});
