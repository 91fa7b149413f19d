//! `flysch ata selftest` and `selftest-log`.

use clap::ValueEnum;
use flysch_ahci::AtaCommand;
use flysch_api::count::counted;
use flysch_wire::ata::Opcode;
use flysch_wire::ata::command::smart::{self, test};
use flysch_wire::ata::log::address;
use flysch_wire::ata::smart::{SelfTest, SmartData, offline, self_test, self_tests};
use serde_json::{Value, json};

use super::Session;
use crate::failure::Failure;
use crate::progress::Progress;

/// The test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Collect data off line.
    Offline,
    /// A short self-test.
    Short,
    /// An extended self-test.
    Long,
    /// End the running test.
    Abort,
}

#[derive(Clone, Copy, Debug, clap::Args)]
pub(super) struct Arguments {
    /// The test.
    kind: Kind,
    /// Wait for the end and report it.
    #[arg(long, short)]
    wait: bool,
}

/// Interval at which a running test is polled, ms.
const LOOK_MS: u32 = 1_000;
/// A test that takes this many times its stated duration is not waited for.
const PATIENCE: u64 = 10;

/// The status of a self-test in smartctl's terms.
pub(super) fn status_words(status: u8) -> String {
    let text = match status >> 4 {
        self_test::GOOD => "completed without error",
        self_test::ABORTED => "was aborted by the host",
        self_test::INTERRUPTED => "was interrupted by the host with a reset",
        3 => "could not complete due to a fatal or unknown error",
        4 => "completed with error (unknown test element)",
        5 => "completed with error (electrical test element)",
        6 => "completed with error (servo/seek test element)",
        self_test::READ_FAILURE => "completed with error (read test element)",
        8 => "completed with error (handling damage?)",
        self_test::RUNS => return format!("in progress, {}0% remaining", status & 0xF),
        _ => "reserved",
    };
    text.to_owned()
}

/// The same as in the log's table.
fn log_words(status: u8) -> &'static str {
    match status >> 4 {
        self_test::GOOD => "Completed without error",
        self_test::ABORTED => "Aborted by host",
        self_test::INTERRUPTED => "Interrupted (host reset)",
        3 => "Fatal or unknown error",
        4 => "Completed: unknown failure",
        5 => "Completed: electrical failure",
        6 => "Completed: servo/seek failure",
        self_test::READ_FAILURE => "Completed: read failure",
        8 => "Completed: handling damage??",
        self_test::RUNS => "Self-test routine in progress",
        _ => "Unknown/reserved test status",
    }
}

fn kind_words(kind: u8) -> &'static str {
    match kind & 0x7F {
        test::OFFLINE => "Offline",
        test::SHORT => "Short offline",
        test::EXTENDED => "Extended offline",
        3 => "Conveyance offline",
        4 => "Selective offline",
        _ => "Vendor",
    }
}

pub(super) fn self_test(session: &mut Session<'_>, arguments: Arguments) -> Result<(), Failure> {
    let Arguments { kind, wait } = arguments;
    let data = super::smart::smart_data(session)?;
    let (code, minutes) = match kind {
        Kind::Offline => (test::OFFLINE, None),
        Kind::Short => (test::SHORT, Some(data.minutes[0])),
        Kind::Long => (test::EXTENDED, Some(data.minutes[1])),
        Kind::Abort => (test::ABORT, None),
    };
    let needs = if kind == Kind::Offline { offline::IMMEDIATE } else { offline::SELF_TEST };
    if data.offline_capability & needs == 0 {
        return Err(Failure::failed("the device has no such test"));
    }
    let mut command = AtaCommand::new(Opcode::Smart);
    command.task.features = smart::EXECUTE;
    command.task.lba = smart::LBA | u64::from(code);
    session.command(command)?;
    let Some(minutes) = minutes.filter(|_| wait) else {
        let told = json!({ "test": code, "minutes": minutes });
        let until = minutes.map(|minutes| counted(minutes, "minute", "minutes"));
        let until = until.map_or_else(String::new, |it| format!("; it takes about {it}"));
        return session.done(&told, &format!("the command is carried out{until}"));
    };
    let data = wait_for_test(session, minutes)?;
    let text = status_words(data.self_test);
    let passed = data.self_test >> 4 == self_test::GOOD;
    let told = json!({ "test": code, "status": data.self_test, "passed": passed });
    match passed {
        true => session.done(&told, &format!("the session-test {text}")),
        false => Err(Failure::failed(format!("the session-test {text}"))),
    }
}

/// Polls until no test runs.
fn wait_for_test(session: &mut Session<'_>, minutes: u16) -> Result<SmartData, Failure> {
    let mut progress = Progress::share("testing");
    let looks = u64::from(minutes.max(1)) * 60 * PATIENCE;
    for _ in 0..looks {
        let data = super::smart::smart_data(session)?;
        if data.self_test >> 4 != self_test::RUNS {
            return Ok(data);
        }
        progress.set(1000 - 100 * u64::from(data.self_test & 0xF).min(10));
        session.control.rest(LOOK_MS);
    }
    Err(Failure::failed("the session-test does not end"))
}

pub(super) fn self_test_log(session: &mut Session<'_>) -> Result<(), Failure> {
    let page = super::smart::smart_log(session, address::SELF_TESTS)?;
    let tests: Vec<SelfTest> = self_tests(&page).map_err(Failure::failed)?.collect();
    if session.output.json() {
        let revision = super::le16(&page, 0);
        return session.output.value(&json!({
            "ata_smart_self_test_log": { "standard": table(revision, &tests) }
        }));
    }
    if tests.is_empty() {
        return session.output.line("No session-tests have been logged.");
    }
    let row = |(number, test): (usize, &SelfTest)| {
        let left = if test.status >> 4 == self_test::GOOD { 0 } else { test.status & 0xF };
        let lba = match test.lba {
            0 | u32::MAX => "-".to_owned(),
            lba => lba.to_string(),
        };
        let words = [kind_words(test.kind), log_words(test.status)].map(str::to_owned);
        let [kind, status] = words;
        let remaining = format!("{:02}%", u32::from(left) * 10);
        vec![(number + 1).to_string(), kind, status, remaining, test.hours.to_string(), lba]
    };
    let rows: Vec<_> = tests.iter().enumerate().map(row).collect();
    let heading = ["Num", "Test", "Status", "Remaining", "LifeTime(hours)", "LBA_of_first_error"];
    session.output.table(&heading, &rows)
}

/// The log in smartctl's form.
fn table(revision: u16, tests: &[SelfTest]) -> Value {
    let failed = |test: &&SelfTest| matches!(test.status >> 4, 3..=8);
    let one = |test: &SelfTest| {
        let mut status = json!({ "value": test.status, "string": log_words(test.status) });
        match test.status >> 4 {
            self_test::GOOD => status["passed"] = json!(true),
            3..=8 => status["passed"] = json!(false),
            _ => status["remaining_percent"] = json!((test.status & 0xF) * 10),
        }
        let mut entry = json!({
            "type": { "value": test.kind, "string": kind_words(test.kind) },
            "status": status,
            "lifetime_hours": test.hours,
        });
        if !matches!(test.lba, 0 | u32::MAX) {
            entry["lba"] = json!(test.lba);
        }
        entry
    };
    let mut log = json!({ "revision": revision, "count": tests.len() });
    if !tests.is_empty() {
        log["table"] = tests.iter().map(one).collect();
        log["error_count_total"] = json!(tests.iter().filter(failed).count());
    }
    log
}
