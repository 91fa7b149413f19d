//! JFFS2 written by Linux, unmounted and cut, against what Flysch shows of it.

use crate::linux::Kernel;

#[test]
fn what_linux_wrote_is_shown_as_linux_shows_it() {
    let script = "
        whole nor jffs2 nor 21 '' '' '' 3
        whole nor-zlib jffs2 nor 22 '' '' compr=zlib 2
        whole large jffs2 large 23 oob '' '' 3
        whole large-lzo jffs2 large 24 oob '' compr=lzo 2
        whole small-none jffs2 small 25 oob '' compr=none 2";
    let Some(share) = crate::linux::run("jffs2", Kernel::Plain, script) else { return };
    crate::linux::planted_differences_are_found(&share);
    crate::linux::judge(&share);
}

#[test]
fn what_mkfs_made_and_linux_worked_on_is_shown_as_linux_shows_it() {
    let script = "
        made rtime 31 '-X rtime -x zlib -x lzo'
        made default 32 ''
        whole small-cut jffs2 small 33 oob '' '' 2";
    let Some(share) = crate::linux::run("jffs2-made", Kernel::Plain, script) else { return };
    crate::linux::judge(&share);
}
