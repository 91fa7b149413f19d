//! Thirty rounds of Linux and Flysch writing the same flash in turn, on the device itself: what one
//! shows at the end the other shows at its start, and what was synced survives power cuts of both.

use std::time::Duration;

/// Number of rounds of each case, unless `FLYSCH_LAB_ROUNDS` sets another.
const ROUNDS: u64 = 30;

/// Whether UBI keeps a fastmap while Linux has the flash.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kernel {
    Plain,
    Fastmap,
}

const UBIFS_OPTIONS: &str = "compr=zstd compr=lzo compr=zlib compr=none";
const JFFS2_OPTIONS: &str = "compr=lzo compr=zlib '' compr=none";

/// One call of `turns`: name, file system, chip, seed, options of the attach and of the first
/// mount; see turns/rounds.sh. Linux mounts with each of the options in turn. `FLYSCH_LAB_SEED` is
/// added to the seed, for different rounds.
fn run(kernel: Kernel, options: &str, case: (&str, u64, &str)) {
    let Some(lab) = crate::common::lab() else { return };
    let rounds = number("FLYSCH_LAB_ROUNDS").unwrap_or(ROUNDS);
    let share = tempfile::tempdir().unwrap();
    crate::common::put_command(share.path());
    crate::common::put_helper(share.path());
    if kernel == Kernel::Fastmap {
        crate::common::put_fastmap(&lab, share.path());
    }
    let more = number("FLYSCH_LAB_SEED").unwrap_or(0);
    let functions = [
        crate::common::LOAD_UBIFS,
        include_str!("linux/guest.sh"),
        include_str!("turns/rounds.sh"),
    ]
    .join("\n");
    let (flash, seed, attach) = case;
    let seed = seed + more;
    let script =
        format!("{functions}\noptions=({options})\nturns {flash} {seed} {attach} {rounds}\n");
    // Five minutes on an idle machine.
    let output = crate::common::run_for(&lab, &script, share.path(), Duration::from_secs(3600));
    println!("{output}");
    assert!(output.lines().any(|line| line.starts_with("turns ")), "{output}");
}

/// The value of a variable, if it is set.
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect(name))
}

#[test]
fn ubifs_is_written_in_turn_on_sub_pages() {
    run(Kernel::Plain, UBIFS_OPTIONS, ("sub-pages ubifs large", 41, "'' compr=lzo"));
}

#[test]
fn ubifs_is_written_in_turn_on_whole_pages() {
    run(Kernel::Plain, UBIFS_OPTIONS, ("whole-pages ubifs large", 42, "'-O 2048' compr=zstd"));
}

#[test]
fn ubifs_is_written_in_turn_on_nor() {
    run(Kernel::Plain, UBIFS_OPTIONS, ("nor ubifs nor", 43, "'' compr=zlib"));
}

/// The command keeps no fastmap: it must invalidate Linux's before it changes anything.
#[test]
fn ubifs_is_written_in_turn_over_fastmaps() {
    run(Kernel::Fastmap, UBIFS_OPTIONS, ("fastmap ubifs large", 44, "'' compr=lzo"));
}

#[test]
fn jffs2_is_written_in_turn_on_nand() {
    run(Kernel::Plain, JFFS2_OPTIONS, ("jffs2-nand jffs2 large", 51, "'' ''"));
}

#[test]
fn jffs2_is_written_in_turn_on_nor() {
    run(Kernel::Plain, JFFS2_OPTIONS, ("jffs2-nor jffs2 nor", 52, "'' ''"));
}
