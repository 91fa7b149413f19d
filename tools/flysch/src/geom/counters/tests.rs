use super::*;

const SHORT: Duration = Duration::from_millis(50);
const LONG: Duration = Duration::from_secs(30);

fn snapshot(at: u64) -> Snapshot {
    Snapshot { at, counters: Vec::new() }
}

#[test]
fn lanes_that_sleep_leave_what_they_told_before() {
    let (told, answers) = mpsc::channel();
    let turn = Arc::new(AtomicU32::new(u32::MAX - 1));
    let mut clerk = Clerk { turn: Arc::clone(&turn), answers, last: None };
    assert!(clerk.ask((SHORT, LONG)).unwrap_err().contains("has not begun"));
    assert_eq!(turn.load(Ordering::Relaxed), u32::MAX);
    // What is late, or was not asked for, is no answer to the next question; a later one is.
    told.send((u32::MAX, snapshot(1))).unwrap();
    told.send((1, snapshot(2))).unwrap();
    assert_eq!(clerk.ask((LONG, LONG)), Ok(snapshot(2)));
    assert_eq!(clerk.ask((LONG, SHORT)), Ok(snapshot(2)));
    // Nobody is left who could tell: nothing is waited for.
    drop(told);
    assert_eq!(clerk.ask((LONG, LONG)), Ok(snapshot(2)));
}
