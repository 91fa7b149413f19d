use crate::random::Random;
use std::collections::HashMap;

use flysch_api::block::Operation;
use flysch_api::machine::Instant;
use flysch_api::trace::{Record, Stamps};

use super::*;

/// Recorded in a guest of the lab: Linux 6.12 on the served models, ext4, fio with eight threads.
const UFS: &str = include_str!("tests/ufs-randread.txt");
const NVME: &str = include_str!("tests/nvme-randwrite.txt");

fn take(text: &str, ticks: Option<f64>) -> Result<(Joined, Told), ImportError> {
    let mut trace = Trace::new();
    trace.read(&mut text.as_bytes())?;
    trace.join(ticks)
}

/// Times of system calls that moved `bytes`, computed from the lines alone: thread, ticks from the
/// line of its entry to that of its exit.
fn calls(text: &str, call: &str, bytes: &str) -> Vec<(u32, u64)> {
    let mut open: HashMap<u32, u64> = HashMap::new();
    let mut all = Vec::new();
    for line in text.lines().filter(|line| line.contains(&format!(" sys_{call}"))) {
        let thread = line.split_once("fio-").unwrap().1.split_whitespace().next().unwrap();
        let thread: u32 = thread.parse().unwrap();
        let tick = line.split(": ").next().unwrap().split_whitespace().last().unwrap();
        let tick: u64 = tick.parse().unwrap();
        match line.contains("-> ") {
            false => drop(open.insert(thread, tick)),
            true if line.ends_with(bytes) => {
                all.extend(open.remove(&thread).map(|enter| (thread, tick - enter)));
            }
            true => {}
        }
    }
    all
}

#[test]
fn a_recorded_trace_gives_every_system_call_its_areas() {
    for (text, call, driver) in [(UFS, "pread64", Driver::Ufs), (NVME, "pwrite64", Driver::Nvme)] {
        let expected = calls(text, call, "0x1000");
        assert!(expected.len() >= 5, "{}", expected.len());
        // A tick is a nanosecond: what comes out is what stands in the lines.
        let (joined, told) = take(text, Some(1e9)).unwrap();
        assert_eq!((told.unknown_lines, told.odd_events), (0, 0), "{:?}", told.first_odd);
        let ios: Vec<&Io> =
            joined.ios.iter().filter(|io| io.call.is_some() && io.exit.is_some()).collect();
        let mut found: Vec<(u32, u64)> =
            ios.iter().map(|io| (io.thread, io.end() - io.start())).collect();
        let mut expected = expected;
        found.sort_unstable();
        expected.sort_unstable();
        assert_eq!(found, expected, "{driver:?}");
        for io in &ios {
            assert_eq!((io.driver, io.bytes, io.failed), (driver, 4096, false));
            let points =
                [io.start(), io.queue, io.issue, io.sent, io.seen(), io.complete, io.end()];
            assert!(points.is_sorted(), "{points:?}");
            // The driver's own event names the same place of the disk.
            let block = io.sector / 8;
            let named = match driver {
                Driver::Ufs => format!("LBA: {block},"),
                _ => format!("slba={block},"),
            };
            assert!(text.contains(&named), "{named}");
            let is_at_its_event = text.lines().any(|line| {
                let point = if driver == Driver::Ufs { "send_req" } else { "block_rq_issue" };
                let place = if driver == Driver::Ufs {
                    named.clone()
                } else {
                    format!(" {} + 8 ", io.sector)
                };
                line.contains(point) && line.contains(&place) && line.contains(&sent_tick(text, io))
            });
            assert!(is_at_its_event, "{io:?}");
        }
        let summary = summarise(&joined, told);
        let group = summary.groups.iter().find(|group| group.call.as_deref() == Some(call));
        let group = group.expect("the application's I/Os are a group");
        let sum: f64 = (0..4).map(|place| group.area(place).unwrap().mean_ns).sum();
        assert!((sum - group.area(5).unwrap().mean_ns).abs() < 1.0, "areas are all of it");
        assert!(group.threads > 1 && group.interrupts > 0);
        let text = render(&summary);
        assert!(text.contains(&format!("by {call}, {} threads", group.threads)), "{text}");
        assert!(page(&summary, "flysch").contains("3 device"));
    }
}

/// The tick of an I/O's sending as it stands in a line; times count from the first event.
fn sent_tick(text: &str, io: &Io) -> String {
    let ticks = text.lines().filter(|line| !line.starts_with('#') && !line.contains("flysch_"));
    let first = ticks.filter_map(|line| {
        let tick = line.split(": ").next()?.split_whitespace().last()?;
        tick.parse::<u64>().ok()
    });
    format!(" {}: ", first.min().unwrap() + io.sent)
}

#[test]
fn marks_tell_how_long_a_tick_is() {
    let text = "\
        a-1 [000] .....  1000: tracing_mark_write: flysch_clock: 7.000000\n\
        a-1 [000] .....  2000: sys_pread64(fd: 3)\n\
        a-1 [000] .....  3000: block_bio_queue: 8,0 R 8 + 8 [a]\n\
        a-1 [000] .....  4000: block_rq_issue: 8,0 R 4096 () 8 + 8 [a]\n\
        a-1 [000] .....  5000: block_rq_complete: 8,0 R () 8 + 8 [0]\n\
        a-1 [000] .....  6000: sys_pread64 -> 0x1000\n\
        a-1 [000] .....  9000: tracing_mark_write: flysch_clock: 7.000016\n";
    let (joined, _) = take(text, None).unwrap();
    assert_eq!(joined.ios[0].end() - joined.ios[0].start(), 8000, "2 ns a tick");
    let (joined, _) = take(text, Some(1e8)).unwrap();
    assert_eq!(joined.ios[0].end() - joined.ios[0].start(), 40_000, "what is said counts");
    let without = text.replace("flysch_clock", "other");
    assert!(matches!(take(&without, None), Err(ImportError::Ticks)));
    assert!(matches!(take("", None), Err(ImportError::Nothing(_))));
    assert!(matches!(take("nonsense\n", None), Err(ImportError::Nothing(_))));
}

/// Time, name, group and words of an event.
type Point = (&'static str, &'static str, &'static str, &'static str);

/// The events of one read, as each tool writes them.
#[test]
fn ftrace_trace_cmd_and_perf_tell_the_same() {
    let events: [Point; 12] = [
        ("0.000001000", "sys_enter_pread64", "syscalls", "fd: 3, buf: 0x0, count: 4096, pos: 0"),
        ("0.000002000", "block_bio_queue", "block", "8,0 R 64 + 8 [my app]"),
        ("0.000003000", "block_getrq", "block", "8,0 R 64 + 8 [my app]"),
        ("0.000003500", "block_rq_insert", "block", "8,0 R 4096 () 64 + 8 [my app]"),
        ("0.000004000", "block_rq_issue", "block", "8,0 R 4096 () 64 + 8 be,0,4 [my app]"),
        ("0.000004500", "scsi_dispatch_cmd_start", "scsi", "host_no=0 channel=0"),
        ("0.000005000", "ufshcd_command", "ufs", "send_req: 1d84000.ufshc: tag: 5, DB: 0x1"),
        ("0.000009000", "irq_handler_entry", "irq", "irq=9 name=ufshcd"),
        ("0.000009500", "ufshcd_command", "ufs", "complete_rsp: 1d84000.ufshc: tag: 5, DB: 0x0"),
        ("0.000010000", "block_rq_complete", "block", "8,0 R () 64 + 8 [0]"),
        ("0.000010500", "irq_handler_exit", "irq", "irq=9 ret=handled"),
        ("0.000012000", "sys_exit_pread64", "syscalls", "0x1000"),
    ];
    let lines = |make: &dyn Fn(&Point) -> String| events.iter().map(make).collect::<String>();
    let android = lines(&|(at, name, _, words)| match *name {
        "sys_enter_pread64" => format!("my app-71 (  70) [003] ...1 {at}: sys_pread64(fd: 3)\n"),
        "sys_exit_pread64" => format!("my app-71 (  70) [003] ...1 {at}: sys_pread64 -> 0x1000\n"),
        _ => format!("          my app-71    (-----) [003] d..2 {at}: {name}: {words}\n"),
    });
    let trace_cmd = String::from("cpus=8\n")
        + &lines(&|(at, name, _, words)| {
            format!("          my app-71    [003] {at}: {name}:      {words}\n")
        });
    let perf = lines(&|(at, name, group, words)| {
        format!("my app    70/71    [003]     {at}:          1 {group}:{name}: {words}\n")
    });
    let mut all = Vec::new();
    for text in [android, trace_cmd, perf] {
        let (joined, told) = take(&text, None).unwrap();
        assert_eq!((told.events, told.unknown_lines, told.odd_events), (12, 0, 0), "{text}");
        assert_eq!(joined.ios.len(), 1, "{text}");
        all.push(joined.ios[0]);
    }
    assert_eq!([all[0], all[0]], [all[1], all[2]]);
    let io = all[0];
    assert_eq!((io.thread, io.driver, io.operation), (71, Driver::Ufs, Operation::Read));
    let points = [io.enter, Some(io.queue), io.request, io.insert, Some(io.issue), Some(io.sent)];
    assert_eq!(points, [1000, 2000, 3000, 3500, 4000, 5000].map(Some));
    let points = [io.interrupt, Some(io.done), Some(io.complete), io.exit];
    assert_eq!(points, [9000, 9500, 10_000, 12_000].map(Some));
}

/// Lines of one thread on one processor, a microsecond apart.
fn joined(lines: &[&str]) -> Joined {
    let line = |(at, words): (usize, &&str)| format!("a-7 [000] 0.{at:06}: {words}\n");
    let text: String = lines.iter().enumerate().map(line).collect();
    let (joined, told) = take(&text, None).unwrap();
    assert_eq!((told.unknown_lines, told.odd_events), (0, 0), "{:?}", told.first_odd);
    joined
}

#[test]
fn split_merged_moved_and_partial_requests_find_their_ios() {
    // One call, one bio, two requests.
    let split = joined(&[
        "sys_enter_pread64: fd: 3",
        "block_bio_queue: 8,0 R 0 + 16 [a]",
        "block_split: 8,0 R 0 / 8 [a]",
        "block_rq_issue: 8,0 R 4096 () 0 + 8 [a]",
        "block_rq_issue: 8,0 R 4096 () 8 + 8 [a]",
        "block_rq_complete: 8,0 R () 8 + 8 [0]",
        "block_rq_complete: 8,0 R () 0 + 8 [0]",
        "sys_exit_pread64: 0x2000",
    ]);
    let io = split.ios[0];
    assert_eq!((split.ios.len(), io.bytes, io.issue, io.complete), (1, 8192, 3000, 6000));
    // Two bios, the second behind and the third before the first, one request, an error.
    let merged = joined(&[
        "block_bio_queue: 8,0 WS 80 + 8 [a]",
        "block_getrq: 8,0 WS 80 + 8 [a]",
        "block_bio_queue: 8,0 WS 88 + 8 [a]",
        "block_bio_backmerge: 8,0 WS 88 + 8 [a]",
        "block_bio_queue: 8,0 WS 72 + 8 [a]",
        "block_bio_frontmerge: 8,0 WS 72 + 8 [a]",
        "block_rq_issue: 8,0 WS 12288 () 72 + 24 [a]",
        "block_rq_complete: 8,0 WS () 72 + 24 [-5]",
    ]);
    assert_eq!((merged.ios.len(), merged.loss.unfinished), (3, 0));
    assert!(merged.ios.iter().all(|io| io.issue == 6000 && io.failed && io.call.is_none()));
    // Of a partition, given back once, and completed in two parts.
    let moved = joined(&[
        "block_bio_queue: 8,1 R 10 + 16 [a]",
        "block_bio_remap: 8,0 R 2058 + 16 <- (8,1) 10",
        "block_getrq: 8,0 R 2058 + 16 [a]",
        "block_rq_issue: 8,0 R 8192 () 2058 + 16 [a]",
        "block_rq_requeue: 8,0 R () 2058 + 16 [0]",
        "block_rq_issue: 8,0 R 8192 () 2058 + 16 [a]",
        "block_rq_complete: 8,0 R () 2058 + 8 [0]",
        "block_rq_complete: 8,0 R () 2066 + 8 [0]",
    ]);
    assert_eq!((moved.ios.len(), moved.ios[0].complete), (1, 7000));
    assert_eq!(moved.loss.without_interrupt, 1);
}

#[test]
fn what_cannot_be_joined_is_counted() {
    let lost = joined(&[
        "block_rq_complete: 8,0 R () 8 + 8 [0]",
        "block_rq_issue: 8,0 R 4096 () 16 + 8 [a]",
        "block_bio_queue: 8,0 R 24 + 8 [a]",
        "sys_enter_read: fd: 3",
        "block_bio_queue: 8,0 RA 32 + 8 [a]",
        "block_rq_issue: 8,0 RA 4096 () 32 + 8 [a]",
        "sys_exit_read: 0x1000",
        "block_rq_complete: 8,0 RA () 32 + 8 [0]",
        "block_bio_queue: 8,0 FF 0 + 0 [a]",
        "block_rq_issue: 8,0 FF 0 () 0 + 0 [a]",
        "block_rq_complete: 8,0 FF () 0 + 0 [0]",
    ]);
    assert_eq!(lost.ios.len(), 1);
    assert_eq!((lost.ios[0].exit, lost.loss.after_the_call), (None, 1));
    let Loss { unfinished, unknown_requests, unknown_completions, .. } = lost.loss;
    assert_eq!((unfinished, unknown_requests, unknown_completions), (1, 1, 1));
}

/// Each I/O of one `io_uring_enter` is separate, and ends with its request.
#[test]
fn calls_that_submit_many_are_not_one() {
    let many = joined(&[
        "sys_enter_io_uring_enter: fd: 3",
        "block_bio_queue: 8,0 R 0 + 8 [a]",
        "block_rq_issue: 8,0 R 4096 () 0 + 8 [a]",
        "block_bio_queue: 8,0 R 80 + 8 [a]",
        "block_rq_issue: 8,0 R 4096 () 80 + 8 [a]",
        "sys_exit_io_uring_enter: 0x2",
        "block_rq_complete: 8,0 R () 80 + 8 [0]",
        "block_rq_complete: 8,0 R () 0 + 8 [0]",
    ]);
    let [second, first] = many.ios[..] else { panic!("{:?}", many.ios) };
    assert_eq!((first.enter, first.end()), (Some(0), 7000));
    assert_eq!((second.enter, second.end()), (Some(1000), 6000));
    assert_eq!(many.call_name(first.call.unwrap()), "io_uring_enter");
}

/// Our own traces are read back, complete and truncated at any point.
#[test]
fn blktrace_files_are_read_and_may_end_anywhere() {
    let at = |nanos| Instant::from_nanos(nanos);
    let record = |n: u64, operation| Record {
        stamps: Stamps {
            accepted: at(n * 1000),
            issued: at(n * 1000 + 300),
            device_done: None,
            seen: at(n * 1000 + 7000),
            delivered: at(n * 1000 + 8000),
        },
        offset: n << 16,
        length: 4096,
        slot: n as u16,
        lane: 0,
        operation,
        failed: n == 3,
    };
    let operations = [Operation::Read, Operation::Write, Operation::Delete, Operation::Read];
    let records: Vec<Record> = (0..).zip(operations).map(|(n, it)| record(n, it)).collect();
    let mut file = Vec::new();
    crate::trace::blktrace::write(&mut file, 0, 0, &records).unwrap();
    let read = |bytes: &[u8]| {
        let mut trace = Trace::new();
        trace.read(&mut &bytes[..]).map(|()| trace)
    };
    let (joined, told) = read(&file).unwrap().join(None).unwrap();
    assert_eq!((told.events, told.other_events, told.unknown_lines), (12, 2, 0));
    let found: Vec<_> = joined
        .ios
        .iter()
        .map(|io| (io.operation, io.sector, io.queue, io.issue, io.complete, io.failed))
        .collect();
    let expected: Vec<_> = records
        .iter()
        .map(|it| {
            let Stamps { accepted, issued, delivered, .. } = it.stamps;
            let times = [accepted, issued, delivered].map(Instant::nanos);
            (it.operation, it.offset / 512, times[0], times[1], times[2], it.failed)
        })
        .collect();
    assert_eq!(found, expected);
    // The same in the other byte order, but for the payloads of notes.
    let mut big = file.clone();
    let mut at = 0;
    while at < big.len() {
        let extra = usize::from(u16::from_le_bytes([big[at + 46], big[at + 47]]));
        for (from, len) in [(0, 4), (4, 4), (8, 8), (16, 8), (24, 4), (28, 4), (32, 4), (36, 4)] {
            big[at + from..at + from + len].reverse();
        }
        for (from, len) in [(40, 4), (44, 2), (46, 2)] {
            big[at + from..at + from + len].reverse();
        }
        at += 48 + extra;
    }
    assert_eq!(read(&big).unwrap().join(None).unwrap().0.ios, joined.ios);
    for end in 0..file.len() {
        if let Ok(trace) = read(&file[..end]) {
            let _ = trace.join(None);
        }
    }
    let mut other = file.clone();
    other[0] = 8;
    assert!(matches!(read(&other), Err(ImportError::Version(8))));
}

#[test]
fn hostile_text_is_counted_and_never_a_panic() {
    let mut random = Random::new(5);
    let pieces = [
        "18446744073709551615",
        "-1",
        "[",
        "]",
        " + ",
        " / ",
        "(",
        "<-",
        ".",
        ":",
        "tag:",
        "\u{fffd}",
        "99999999999999999999999",
        "nvme",
        "sys_",
        " ",
        "",
    ];
    for round in 0..300 {
        let mut bytes = if round % 2 == 0 { UFS } else { NVME }.as_bytes().to_vec();
        for _ in 0..40 {
            let at = (random.bits() % bytes.len() as u64) as usize;
            let piece = pieces[(random.bits() % pieces.len() as u64) as usize].as_bytes();
            let end = (at + (random.bits() % 9) as usize).min(bytes.len());
            bytes.splice(at..end, piece.iter().copied());
        }
        let mut trace = Trace::new();
        trace.read(&mut &bytes[..]).unwrap();
        if let Ok((joined, told)) = trace.join(Some(2.6e9)) {
            let summary = summarise(&joined, told);
            let _ = (render(&summary), page(&summary, ""));
            write_perfetto(&mut Vec::new(), &joined).unwrap();
        }
    }
    // A line without an end, and one that is longer than any.
    let long = format!("{}\n{}", "x".repeat(100_000), &UFS[..5000]);
    let mut trace = Trace::new();
    trace.read(&mut long.as_bytes()).unwrap();
    assert_eq!(trace.told.unknown_lines, 1, "the long line, once");
    assert!(trace.told.first_odd.as_ref().is_some_and(|line| line.len() <= 120));
    assert!(trace.told.events > 10);
    let extremes = "\
        a-1 [4294967295] 18446744073.709551615: block_bio_queue: 4294967295,0 R \
        18446744073709551615 + 4294967295 [a]\n\
        a-1 [0] 0.0: block_rq_issue: 8,0 R 0 () 18446744073709551615 + 4294967295 [a]\n\
        a-1 [0] 0.1: block_bio_queue: 8,0 R 5 + 1 [a]\n\
        a-1 [0] 0.1: block_split: 8,0 R 5 / 4 [a]\n\
        a-1 [0] 0.2: block_bio_backmerge: 8,0 R 5 + 1 [a]\n\
        a-1 [0] 0.2: block_rq_complete: 8,0 R () 18446744073709551615 + 1 [0]\n";
    let (joined, told) = take(extremes, None).unwrap();
    assert_eq!((joined.ios.len(), told.odd_events), (0, 1));
}

/// A file that is not a recorder's text, or is unknown, is reported in one line with the remedy.
#[test]
fn files_without_an_event_say_what_they_are() {
    let said = |bytes: &[u8]| {
        let mut trace = Trace::new();
        let mut file = bytes;
        let result = trace.read(&mut file).and_then(|()| trace.join(Some(1e9)).map(drop));
        let said = result.unwrap_err().to_string();
        assert!(!said.contains('\n') && said.chars().count() < 400, "{said}");
        said
    };
    for (start, remedy) in [
        (&b"\x17\x08Dtracing6\0\0\x08"[..], "trace-cmd report -i FILE"),
        (b"PERFILE2h\0\0\0", "perf script --ns -i FILE"),
        (b"2ELIFREP\0\0\0\0", "perf script --ns -i FILE"),
        (b"\x1F\x8B\x08\0", "zcat FILE"),
        (b"\x28\xB5\x2F\xFD\x04", "zstdcat FILE"),
        (b"\xFD7zXZ\0\0", "xzcat FILE"),
        (b"BZh91AY", "bzcat FILE"),
    ] {
        let text = said(start);
        assert!(text.contains(remedy) && text.contains("makes text of it"), "{text}");
    }
    assert_eq!(said(b""), "it is empty");
    // `perf script -F comm,tid,time,event,trace` leaves the processor out.
    let text = said(b"fio 812 3.5: block:block_rq_issue: 8,0 R 4096 () 8 + 8 [fio]\n");
    assert!(text.contains("[CPU]") && text.contains("`fio 812 3.5: block:block"), "{text}");
    let text = said(b"fio-812 [001] 3.500000: block_rq_issue: what another kernel prints\n");
    assert!(
        text.contains("its only event of a storage stack") && text.contains("another kernel"),
        "{text}"
    );
    let text = said(b"fio-812 [001] 3.500000: sched_switch: prev_comm=fio\n");
    assert!(text.contains("record block_bio_queue"), "{text}");
    let long = [&b"x".repeat(1 << 20)[..], b"\n\0\x1B[31m\xFF\xFE\n"].concat();
    let text = said(&long);
    assert!(!text.contains('\x1B') && text.contains("none of its lines"), "{text}");
}
