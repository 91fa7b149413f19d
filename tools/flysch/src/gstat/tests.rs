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

fn snapshots() -> (Snapshot, Snapshot) {
    let disk = Counter { number: 3, name: "da0".into(), rank: 1, ..Counter::default() };
    let before = Snapshot {
        at: 1_000_000_000,
        counters: vec![Counter {
            reads: Kind { requests: 10, bytes: 40960, time: 5_000_000 },
            ..disk.clone()
        }],
    };
    let reads = Kind { requests: 2010, bytes: 40960 + (8000 << 10), time: 1_005_000_000 };
    let counters = vec![
        Counter {
            queued: 2,
            reads,
            writes: Kind { requests: 1000, bytes: 4000 << 10, time: 1_200_000_000 },
            deletes: Kind { requests: 4, bytes: 16384, time: 8_000_000 },
            others: Kind { requests: 2, bytes: 0, time: 4_000_000_000 },
            busy: 840_000_000,
            ..disk
        },
        Counter { number: 5, name: "da0".into(), is_consumer: true, rank: 2, ..Counter::default() },
        Counter { number: 7, name: "da0p1".into(), rank: 2, ..Counter::default() },
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
fn intervals_have_units() {
    assert_eq!(interval("2"), Ok(Duration::from_secs(2)));
    assert_eq!(interval("500ms"), Ok(Duration::from_millis(500)));
    assert_eq!(interval("100us"), Ok(Duration::from_micros(100)));
    for wrong in ["", "0s", "1h", "-1", "99999999999s"] {
        assert!(interval(wrong).is_err(), "{wrong}");
    }
}
