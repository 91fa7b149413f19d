//! UBIFS as Linux writes it, unmounted and cut, against what Flysch shows of it.

mod linux;

#[test]
fn what_linux_wrote_is_shown_as_linux_shows_it() {
    let script = "
        whole small-lzo ubifs small 1 '' '' compr=lzo 3
        whole large-zlib ubifs large 2 oob '' compr=zlib 3
        whole late-zstd ubifs large 3 '' '-O 2048' compr=zstd 3
        whole nor-none ubifs nor 4 '' '' compr=none 3
        whole huge-lzo ubifs huge 5 '' '' compr=lzo 2";
    let Some(share) = linux::run("ubifs", script) else { return };
    linux::judge(&share);
}
