use super::*;
use crate::trace::blktrace as writer;
use flysch_api::machine::Instant;
use flysch_api::trace::{Record, Stamps};

fn read_text(text: &[u8], options: &ReadOptions) -> Result<Replay, ReadError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    std::fs::write(&path, text).unwrap();
    read(&path, options)
}

fn plain(text: &str) -> Replay {
    read_text(text.as_bytes(), &ReadOptions::default()).unwrap()
}

const TIMED: &str = "\
fio version 3 iolog
27 pf add
219 pf open
225 pf read 0 4096
479 pf write 45056 8192
500 pf sync 45056 0
1936 pf trim 65536 65536
1940 pf close
";

#[test]
fn the_third_version_has_times_in_front() {
    let replay = plain(TIMED);
    let seen: Vec<_> =
        replay.entries.iter().map(|e| (e.at_nanos, e.operation, e.offset, e.length)).collect();
    let expected = [
        (0, Operation::Read, 0, 4096),
        (254_000, Operation::Write, 45_056, 8192),
        (275_000, Operation::Flush, 0, 0),
        (1_711_000, Operation::Delete, 65_536, 65_536),
    ];
    assert_eq!(seen, expected);
    assert_eq!((replay.disks, replay.odd, replay.skipped), (1, 0, 0));
    assert_eq!(replay.lengths(Operation::Write), Some((8192, 8192)));
}

#[test]
fn the_second_version_waits_in_between() {
    let replay = plain(
        "fio version 2 iolog\n/a add\n/a open\n/a read 0 512\n/a wait 300 0\n/a write 512 512\n\
         /a wait 99 0\n/b wait 100 0\n/b datasync 0 0\n/b close\n",
    );
    let seen: Vec<_> = replay.entries.iter().map(|e| (e.at_nanos, e.operation)).collect();
    let expected = [(0, Operation::Read), (300_000, Operation::Write), (400_000, Operation::Flush)];
    assert_eq!((seen.as_slice(), replay.disks), (&expected[..], 2));
}

#[test]
fn options_change_times_and_places_and_leave_out() {
    let with = |options: ReadOptions| read_text(TIMED.as_bytes(), &options).unwrap();
    let default = ReadOptions::default();
    let twice = with(ReadOptions { time_scale_percent: 200, ..default.clone() });
    assert_eq!(twice.entries[3].at_nanos, 855_500);
    let fast = with(ReadOptions { no_stall: true, ..default.clone() });
    assert!(fast.entries.iter().all(|entry| entry.at_nanos == 0));
    let placed = with(ReadOptions { scale: 3, align: 4096, ..default.clone() });
    let offsets: Vec<u64> = placed.entries.iter().map(|entry| entry.offset).collect();
    assert_eq!(offsets, [0, 12_288, 0, 20_480]);
    let skip = [false, true, true, true];
    let skipped = with(ReadOptions { skip, ..default });
    assert_eq!((skipped.entries.len(), skipped.skipped), (1, 3));
}

#[test]
fn what_makes_no_sense_is_counted_and_what_is_no_log_refused() {
    let long = "x".repeat(100_000);
    let replay = plain(&format!(
        "fio version 3 iolog\n1 a read 0 512\nwhat\n2 a read 0\n3 a jump 0 512\n4 a wait 5 0\n\
         5 a read 0 0\n6 a read -1 512\n7 a read 0 99999999999\n8 a read 0 512 7\n{long}\n\
         9 a read 18446744073709551615 512\n10 a rename\n\u{e9}\n"
    ));
    // The place beyond all disks is one; whether it is on this one is asked later.
    assert_eq!((replay.entries.len(), replay.odd, replay.first_odd), (2, 11, Some(3)));
    for (text, word) in [
        ("", "neither a log"),
        ("fio version 1 iolog\n", "neither a log"),
        ("\u{0}\u{0}\u{0}", "neither a log"),
        ("fio version 3 iolog\n1 a add\n", "it has no request"),
    ] {
        let error = read_text(text.as_bytes(), &ReadOptions::default()).unwrap_err().to_string();
        assert!(error.contains(word), "{text:?}: {error}");
    }
    let missing = read(Path::new("/nonexistent/log"), &ReadOptions::default()).unwrap_err();
    assert!(missing.to_string().starts_with("/nonexistent/log: No such file"), "{missing}");
    let folder = read(Path::new("/"), &ReadOptions::default()).unwrap_err().to_string();
    assert!(folder.contains("not a plain file"), "{folder}");
}

#[test]
fn what_blktrace_saw_queued_is_replayed() {
    let at = Instant::from_nanos;
    let record = |nanos: u64, operation, offset, length| Record {
        stamps: Stamps {
            accepted: at(nanos),
            issued: at(nanos + 100),
            delivered: at(nanos + 900),
            ..Stamps::default()
        },
        offset,
        length,
        slot: 0,
        lane: 0,
        operation,
        failed: false,
    };
    let records = [
        record(1000, Operation::Read, 4096, 512),
        record(3000, Operation::Write, 8192, 4096),
        record(4000, Operation::Flush, 0, 0),
        record(5000, Operation::Delete, 65_536, 8192),
    ];
    let mut bytes = Vec::new();
    writer::write(&mut bytes, 0, 1_700_000_000_000, &records).unwrap();
    let replay = read_text(&bytes, &ReadOptions::default()).unwrap();
    let seen: Vec<_> =
        replay.entries.iter().map(|e| (e.at_nanos, e.operation, e.offset, e.length)).collect();
    let expected = [
        (0, Operation::Read, 4096, 512),
        (2000, Operation::Write, 8192, 4096),
        (3000, Operation::Flush, 0, 0),
        (4000, Operation::Delete, 65_536, 8192),
    ];
    assert_eq!(seen, expected);
    let aligned = read_text(&bytes, &ReadOptions { align: 4096, ..ReadOptions::default() });
    assert_eq!(aligned.unwrap().entries[0].length, 4096);
    // Cut anywhere, and with any byte changed: never more than an error.
    for cut in 0..bytes.len() {
        let _ = read_text(&bytes[..cut], &ReadOptions::default());
    }
    let mut other = bytes.clone();
    other[0] = 6;
    let error = read_text(&other, &ReadOptions::default()).unwrap_err().to_string();
    assert!(error.contains("version 6"), "{error}");
}
