//! SMART: attributes, self-tests, their logs (ACS-3 7.48; ACS-4 has what is left of it in logs).

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use flysch_wire::ata::command::smart::{self, test};
use flysch_wire::ata::log::address;
use flysch_wire::ata::smart::{
    Attribute, SELF_TESTS_MAX, SelfTest, SmartData, attribute, offline, self_test, self_test_page,
};
use flysch_wire::ata::{H2d, SECTOR};

use super::command::aborted;
use super::control::Given;
use super::device::{Device, Health};
use super::flow::Good;
use super::list::Fail;

const MINUTE_NS: u64 = 60_000_000_000;
/// Minutes of a short and of an extended self-test.
const MINUTES: [u16; 2] = [1, 10];
/// What EXECUTE may do and waits for: not offered.
const CAPTIVE: u8 = 0x80;

/// Hours with power.
pub(super) fn hours(now: u64) -> u64 {
    now / (60 * MINUTE_NS)
}

/// A self-test that runs.
#[derive(Clone, Copy, Debug)]
struct Running {
    kind: u8,
    start: u64,
    end: u64,
}

/// Where a disk stands with SMART.
#[derive(Debug)]
pub(super) struct Smart {
    pub(super) is_on: bool,
    running: Option<Running>,
    /// Self-tests that ended, the newest first.
    tests: VecDeque<SelfTest>,
}

impl Default for Smart {
    fn default() -> Self {
        Self { is_on: true, running: None, tests: VecDeque::with_capacity(SELF_TESTS_MAX) }
    }
}

impl Smart {
    /// A self-test whose time is over has ended.
    fn settle(&mut self, now: u64) {
        if let Some(running) = self.running.filter(|running| running.end <= now) {
            self.end(self_test::GOOD, running.end);
        }
    }

    /// The self-test that runs ends so.
    fn end(&mut self, result: u8, now: u64) {
        let Some(Running { kind, .. }) = self.running.take() else { return };
        self.tests.truncate(SELF_TESTS_MAX - 1);
        let test = SelfTest { kind, status: result << 4, hours: hours(now) as u16, lba: 0 };
        self.tests.push_front(test);
    }

    /// The byte of SMART READ DATA.
    fn status(&self, now: u64) -> u8 {
        match self.running {
            Some(Running { start, end, .. }) => {
                let left = (end - now) * 10 / (end - start).max(1);
                self_test::RUNS << 4 | left.min(9) as u8
            }
            None => self.tests.front().map_or(self_test::GOOD, |test| test.status),
        }
    }

    /// EXECUTE OFF-LINE IMMEDIATE; whether there is such a test.
    fn execute(&mut self, kind: u8, now: u64) -> bool {
        let minutes = match kind {
            // Data is collected all the time.
            test::OFFLINE => return true,
            test::ABORT => {
                self.end(self_test::ABORTED, now);
                return true;
            }
            test::SHORT => MINUTES[0],
            test::EXTENDED => MINUTES[1],
            _ => return false,
        };
        // A new one ends the one that runs.
        self.end(self_test::ABORTED, now);
        let end = now + u64::from(minutes) * MINUTE_NS;
        self.running = Some(Running { kind, start: now, end });
        true
    }

    /// A reset, or a loss of power.
    pub(super) fn interrupt(&mut self, now: u64) {
        self.settle(now);
        self.end(self_test::INTERRUPTED, now);
    }

    /// SMART READ DATA.
    fn data(&self, health: &Health, now: u64) -> SmartData {
        let rows = [
            (attribute::REALLOCATED, 0x33, 0),
            (attribute::POWER_ON_HOURS, 0x32, hours(now)),
            (attribute::POWER_CYCLES, 0x32, health.power_cycles),
            (attribute::UNEXPECTED_POWER_LOSS, 0x32, health.unsafe_losses),
            (attribute::UNCORRECTABLE, 0x33, health.uncorrectable),
            (attribute::CRC_ERRORS, 0x32, health.crc_errors),
            (attribute::WRITTEN, 0x32, health.written_sectors),
            (attribute::READ, 0x32, health.read_sectors),
        ];
        let mut data = SmartData {
            self_test: self.status(now),
            offline_capability: offline::IMMEDIATE | offline::SELF_TEST,
            capability: 3,
            error_logging: 1,
            minutes: MINUTES,
            ..SmartData::default()
        };
        for (to, (id, flags, raw)) in data.attributes.iter_mut().zip(rows) {
            *to = Attribute { id, flags, value: 100, worst: 100, raw };
        }
        data
    }

    /// Thresholds of the attributes: none of them ever fails.
    fn thresholds(&self, health: &Health, now: u64) -> Vec<u8> {
        let mut page = vec![0; SECTOR];
        page[0] = 1;
        for (n, attribute) in self.data(health, now).attributes.iter().enumerate() {
            page[2 + 12 * n] = attribute.id;
        }
        seal(&mut page);
        page
    }

    /// SMART READ LOG: a page.
    fn log(&mut self, log: u8) -> Result<Vec<u8>, Fail> {
        let mut page = vec![0; SECTOR];
        page[0] = 1;
        match log {
            address::DIRECTORY => {
                for log in [address::ERRORS, address::SELF_TESTS] {
                    page[2 * usize::from(log)] = 1;
                }
            }
            // Errors are told to the host and counted, not kept.
            address::ERRORS => seal(&mut page),
            address::SELF_TESTS => {
                return Ok(self_test_page(self.tests.make_contiguous()).to_vec());
            }
            _ => return Err(aborted()),
        }
        Ok(page)
    }
}

impl Device {
    /// SMART.
    pub(super) fn smart(&mut self, fis: &H2d, now: u64) -> Result<Given, Fail> {
        let signed = fis.lba & 0xFF_FF00 == smart::LBA;
        let what = fis.features & 0xFF;
        if !signed || !self.smart.is_on && what != smart::ENABLE {
            return Err(aborted());
        }
        self.smart.settle(now);
        let given = |data: Vec<u8>| Ok((Good::default(), data));
        match what {
            smart::ENABLE => self.smart.is_on = true,
            smart::DISABLE => self.smart.is_on = false,
            smart::READ_DATA => {
                return given(self.smart.data(&self.health, now).to_bytes().to_vec());
            }
            smart::READ_THRESHOLDS => return given(self.smart.thresholds(&self.health, now)),
            smart::READ_LOG if fis.count & 0xFF == 1 => {
                return self.smart.log(fis.lba as u8).and_then(given);
            }
            smart::RETURN_STATUS => {
                // Never exceeded: flash does not wear out here.
                return Ok((Good { lba: smart::LBA, ..Good::default() }, Vec::new()));
            }
            smart::EXECUTE if fis.lba as u8 & CAPTIVE != 0 => return Err(aborted()),
            smart::EXECUTE if self.smart.execute(fis.lba as u8, now) => {}
            _ => return Err(aborted()),
        }
        Ok((Good::default(), Vec::new()))
    }
}

/// The last byte makes the sum of the page zero.
fn seal(page: &mut [u8]) {
    let (last, others) = page.split_last_mut().expect("a page has bytes");
    *last = 0_u8.wrapping_sub(others.iter().fold(0, |sum, byte| sum.wrapping_add(*byte)));
}
