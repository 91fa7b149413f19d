//! What the table of the LEB properties tree's own LEBs says is believed only as far as it leaves
//! alone what is in use.

use std::string::{String, ToString};

use flysch_api::finding::Severity;
use flysch_api::vfs::{FileSystem, FileSystemMut, Inode, Timestamp};
use flysch_wire::ubifs::lpt::{LptFormat, Ltab};
use flysch_wire::ubifs::{Master, MasterFlags};

use super::builder::{Image, LEB_SIZE, LPT, block, file, root};
use super::guarded::Guarded;
use crate::repair::{Level, repair, survey};
use crate::{OpenOptions, Ubifs, UbifsMut};

const NOW: Timestamp = Timestamp { seconds: 9, nanoseconds: 0 };

fn sample() -> Image {
    let mut image = Image::new();
    image.commit(&root(&["file"], 0));
    image.commit(&image.entry(1, "file", 64));
    image.commit(&file(64, 9));
    image.commit(&block(64, 0, b"something"));
    image.finish_commit();
    image
}

/// What an image says of its two LEBs for the tree, the first of which has everything.
#[derive(Clone, Copy, Debug)]
struct Said {
    /// Free and dirty bytes of each.
    table: [(u32, u32); 2],
    /// Where the next write goes: LEB, counted from the first, and offset.
    head: (u32, u32),
    unclean: bool,
}

/// What the sample says.
fn good(image: &Image) -> Said {
    let master = image.master();
    let format = LptFormat::new(&image.superblock).unwrap();
    let leb = &image.volume.lebs[LPT as usize];
    let table = Ltab::parse(&leb[master.ltab_offs as usize..], &format).unwrap();
    let table: std::vec::Vec<_> = table.entries().collect();
    let head = (master.nhead_lnum - LPT, master.nhead_offs);
    Said { table: [table[0], table[1]], head, unclean: false }
}

fn with(said: Said) -> Image {
    let mut image = sample();
    let master = image.master();
    let format = LptFormat::new(&image.superblock).unwrap();
    let leb = &mut image.volume.lebs[LPT as usize];
    Ltab::emit(said.table, &format, &mut leb[master.ltab_offs as usize..]);
    let dirty = if said.unclean { MasterFlags::DIRTY.0 } else { 0 };
    let flags = MasterFlags(master.flags.0 | dirty);
    let (nhead_lnum, nhead_offs) = (LPT + said.head.0, said.head.1);
    image.write_master(Master { flags, nhead_lnum, nhead_offs, ..master });
    image
}

fn guarded(image: &Image, may_change: bool) -> Guarded {
    Guarded::new(image, 100_000, may_change)
}

fn damage(volume: &Guarded) -> String {
    let fs = Ubifs::open(volume, &OpenOptions::default()).unwrap();
    let is_damage = |found: &crate::Finding| found.severity > Severity::Note;
    fs.check().iter().filter(|found| is_damage(found)).map(ToString::to_string).collect()
}

/// Writes a file and commits.
fn write_to(volume: Guarded) -> Guarded {
    let mut fs = UbifsMut::open(volume).unwrap();
    fs.write(Inode(64), 0, b"different", NOW).unwrap();
    fs.close().unwrap()
}

#[test]
fn what_a_good_table_says_is_accepted() {
    let said = good(&sample());
    let [(free, dirty), rest] = said.table;
    let fits = [
        said,
        Said { unclean: true, ..said },
        Said { table: [(free, dirty), (0, LEB_SIZE)], ..said },
        Said { head: (1, 0), ..said },
    ];
    for said in fits {
        let volume = guarded(&with(said), true);
        assert_eq!(damage(&volume), "", "{said:?}");
        let volume = write_to(write_to(volume));
        assert_eq!(damage(&volume), "", "{said:?}");
    }
    // A byte that counts as nothing is wasted, and no danger.
    let said = Said { table: [(free, dirty - 1), rest], ..said };
    let volume = write_to(write_to(guarded(&with(said), true)));
    assert!(damage(&volume).contains("LPT ltab"));
    let (volume, _) = repair(volume, Level::Safe, 9).unwrap();
    assert_eq!(damage(&volume), "");
}

#[test]
fn what_the_table_gives_away_is_not_written_to() {
    let said = good(&sample());
    let [(free, dirty), rest] = said.table;
    let (elsewhere, used) = ((1, 0), LEB_SIZE - free - dirty);
    let wrong = [
        // The LEB counts as empty: recovery clears it, or a commit that needs more than its own.
        Said { table: [(LEB_SIZE, 0), rest], head: elsewhere, unclean: true },
        Said { table: [(LEB_SIZE, 0), rest], head: (1, LEB_SIZE - 8), unclean: false },
        // It counts as dirt: the next commit gives it up.
        Said { table: [(0, LEB_SIZE), rest], head: elsewhere, unclean: false },
        Said { table: [(free, LEB_SIZE - free), rest], head: elsewhere, unclean: true },
        // A part of what is in use counts as free, or twice.
        Said { table: [(LEB_SIZE - used + 1, 0), rest], ..said },
        Said { table: [(free, dirty + 1), rest], ..said },
        // Writing continues over it.
        Said { head: (0, 0), ..said },
        Said { head: (0, used / 8 * 8 - 8), unclean: true, ..said },
    ];
    for said in wrong {
        let image = with(said);
        let refused = UbifsMut::open(guarded(&image, false)).map(|_| ()).unwrap_err().to_string();
        assert!(refused.contains("LPT ltab") && refused.contains("LEB 5"), "{said:?}: {refused}");
        assert!(refused.ends_with("; repair it first"), "{refused}");
        // It can still be read, and repaired without a loss.
        let fs = image.open();
        assert_eq!(fs.lookup(Inode(1), b"file"), Ok(Inode(64)));
        assert!(damage(&guarded(&image, false)).contains("LPT ltab"), "{said:?}");
        assert_eq!(survey(guarded(&image, false)).unwrap().level, Some(Level::Safe), "{said:?}");
        let (volume, _) = repair(guarded(&image, true), Level::Safe, 9).unwrap();
        assert_eq!(damage(&write_to(volume)), "", "{said:?}");
    }
}
