use super::*;
use clap::Parser;

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    arguments: Arguments,
}

fn arguments(words: &str) -> Arguments {
    Line::try_parse_from(["gstat"].into_iter().chain(words.split(' '))).unwrap().arguments
}

/// One that did nothing, and of which everything is measured.
fn idle(number: u32, name: &str, rank: u32) -> Counter {
    let kind = Kind { time: Some(0), ..Kind::default() };
    Counter {
        number,
        name: name.into(),
        rank,
        queued: Some(0),
        busy: Some(0),
        reads: kind,
        writes: kind,
        deletes: kind,
        others: kind,
        ..Counter::default()
    }
}

fn snapshots() -> (Snapshot, Snapshot) {
    let disk = idle(3, "da0", 1);
    let before = Snapshot {
        at: 1_000_000_000,
        counters: vec![Counter {
            reads: Kind { requests: 10, bytes: 40960, time: Some(5_000_000) },
            ..disk.clone()
        }],
    };
    let reads = Kind { requests: 2010, bytes: 40960 + (8000 << 10), time: Some(1_005_000_000) };
    let counters = vec![
        Counter {
            queued: Some(2),
            reads,
            writes: Kind { requests: 1000, bytes: 4000 << 10, time: Some(1_200_000_000) },
            deletes: Kind { requests: 4, bytes: 16384, time: Some(8_000_000) },
            others: Kind { requests: 2, bytes: 0, time: Some(4_000_000_000) },
            busy: Some(840_000_000),
            ..disk
        },
        Counter { is_consumer: true, ..idle(5, "da0", 2) },
        idle(7, "da0p1", 2),
    ];
    (before, Snapshot { at: 3_000_000_000, counters })
}

fn page(words: &str) -> String {
    let arguments = arguments(words);
    let (before, now) = snapshots();
    let mut page = heading(&arguments, 2.0);
    let rates = rates(&before, &now, &arguments);
    rates.iter().for_each(|rate| rate.line(&arguments, false, &mut page));
    page
}

#[test]
fn columns_are_those_of_gstat() {
    let all = "\
dT: 2.000s  w: 1.000s
 L(q)  ops/s    r/s   kBps   ms/r    w/s   kBps   ms/w   %busy Name
    2   1503   1000   4000    0.5    500   2000    1.2   42.0  da0
    0      0      0      0    0.0      0      0    0.0    0.0  da0p1
";
    assert_eq!(page("x"), all);
    let more = "\
dT: 2.000s  w: 0.500s  filter: ^da.$
 L(q)  ops/s    r/s     kB   kBps   ms/r    w/s     kB   kBps   ms/w    d/s     kB   kBps   ms/d   \
\x20o/s   ms/o   %busy Name
    2   1503   1000      4   4000    0.5    500      4   2000    1.2      2      4      8    \
2.0      1   2000   42.0  da0
    0      0      0      0      0    0.0      0      0      0    0.0      0      0      0    \
0.0      0    0.0    0.0  da0
";
    assert_eq!(page("-sdoc -f ^da.$ -I 500ms x"), more);
    assert_eq!(page("-p x").lines().count(), 3);
    assert_eq!(page("-a x").lines().count(), 3);
}

#[test]
fn csv_and_json_say_the_same() {
    let wanted = arguments("-Cdo x");
    let (before, now) = snapshots();
    let rates = rates(&before, &now, &wanted);
    assert_eq!(
        csv_heading(&wanted),
        "timestamp,name,q-depth,total_ops/s,read/s,read-KiB/s,ms/read,write/s,write-KiB/s,\
         ms/write,delete/s,delete-KiB/s,ms/delete,other/s,ms/other,%busy"
    );
    let line = "T,da0,2,1503,1000,4000,0.5,500,2000,1.2,2,8,2.0,1,2000.0,42.0";
    assert_eq!(rates[0].csv(&wanted, "T"), line);
    let json = rates[0].json(&wanted);
    assert_eq!((&json["name"], &json["reads"]["ms"]), (&json!("da0"), &json!(0.5)));
    assert_eq!(json["others"]["ms"], json!(2000.0));
}

#[test]
fn what_is_not_measured_is_left_out() {
    let wanted = arguments("-a x");
    let kind = |requests, bytes| Kind { requests, bytes, time: None };
    let busy = Counter {
        name: "stripe/st".into(),
        reads: kind(20, 40960),
        writes: kind(0, 0),
        ..Counter::default()
    };
    let still = Counter { number: 1, name: "st2".into(), ..Counter::default() };
    let now = Snapshot { at: 2_000_000_000, counters: vec![busy, still] };
    let rates = rates(&Snapshot::default(), &now, &wanted);
    assert_eq!(rates.len(), 1);
    let mut line = String::new();
    rates[0].line(&wanted, false, &mut line);
    let all = "    -     10     10     20      -      0      0      -      -  stripe/st\n";
    assert_eq!(line, all);
    assert_eq!(rates[0].csv(&wanted, "T"), "T,stripe/st,,10,10,20,,0,0,,");
    let json = rates[0].json(&wanted);
    assert!(json["queued"].is_null() && json["busy_percent"].is_null(), "{json}");
    assert!(json["reads"]["ms"].is_null() && json["reads"]["per_second"] == 10.0, "{json}");
}

#[test]
fn intervals_have_units() {
    assert_eq!(interval("2"), Ok(Duration::from_secs(2)));
    assert_eq!(interval("500ms"), Ok(Duration::from_millis(500)));
    assert_eq!(interval("100us"), Ok(Duration::from_micros(100)));
    for wrong in ["", "0s", "1h", "-1", "99999999999s"] {
        assert!(interval(wrong).is_err(), "{wrong}");
    }
}
