//! A port over a port that reports its commands.

use alloc::vec::Vec;

use flysch_api::command::{self, Command, Declined, Direction, Ended, Failure, Limits, NotStarted};
use flysch_api::command::{Outcome, Port, Scsi};
use flysch_api::machine::{DmaRegion, Instant};
use flysch_wire::scsi::Cdb;
use flysch_wire::scsi::luns::LogicalUnitNumber;
use flysch_wire::scsi::vpd::VpdPage;

use super::{Answer, Ccb, Probing, Request, Tracer};

/// A SCSI port whose traffic is reported; commands and outcomes pass through unchanged.
#[derive(Debug)]
pub struct Traced<'a, P> {
    port: &'a mut P,
    tracer: Tracer,
    /// The probe to which these commands belong.
    probing: Option<Probing>,
    /// Commands in progress, by token.
    under_way: Vec<(u32, Ccb)>,
}

impl<'a, P: Port<Protocol = Scsi>> Traced<'a, P> {
    /// Reports the commands of a peripheral driver.
    pub const fn new(port: &'a mut P, tracer: Tracer) -> Self {
        Self { port, tracer, probing: None, under_way: Vec::new() }
    }

    /// Reports the commands of a [scan](mod@crate::scan), and its steps.
    pub fn probe(port: &'a mut P, tracer: Tracer) -> Self {
        let probing = Probing::new(tracer, "PROBE_");
        let tracer = probing.tracer().clone();
        Self { port, tracer, probing: Some(probing), under_way: Vec::new() }
    }

    /// The scan is over.
    pub fn finish(mut self) {
        if let Some(probing) = &mut self.probing {
            probing.finish();
        }
    }

    /// Reports a command that was accepted, or never will be.
    fn tell(&mut self, what: Begun, declined: Option<NotStarted>) {
        let Begun { token, unit, cdb, data } = what;
        // The number by which people know the unit.
        let lun = LogicalUnitNumber::from_bits(unit).to_ufs().map_or(unit, u64::from);
        if let Some(probing) = &mut self.probing
            && let Some(action) = action(&Cdb::parse(&cdb.0))
        {
            probing.to(lun, action);
        }
        let ccb = self.tracer.start(lun, Request::Scsi(cdb), data);
        match declined {
            None => self.under_way.push((token, ccb)),
            Some(why) => self.tracer.end(ccb, &Answer::NotStarted(why)),
        }
    }
}

/// What is reported about a command when it starts.
struct Begun {
    token: u32,
    unit: u64,
    cdb: command::Cdb,
    data: (Direction, u32),
}

/// What a probe does with this command, in the words of `scsi_xpt.c` and `scsi_da.c`.
fn action(cdb: &Cdb) -> Option<&'static str> {
    Some(match cdb {
        Cdb::TestUnitReady => "TUR",
        Cdb::ReportLuns { .. } => "REPORT_LUNS",
        Cdb::ModeSense6(_) | Cdb::ModeSense10(_) => "MODE_SENSE",
        Cdb::ReadCapacity10 => "RC",
        Cdb::ReadCapacity16 { .. } => "RC16",
        Cdb::Inquiry { page: None, .. } => "INQUIRY",
        Cdb::Inquiry { page: Some(page), .. } => match VpdPage::from_bits(*page) {
            VpdPage::SupportedPages => "SUPPORTED_VPD_LIST",
            VpdPage::UnitSerialNumber => "SERIAL_NUM",
            VpdPage::DeviceIdentification => "DEVICE_ID",
            VpdPage::BlockLimits => "BLK_LIMITS",
            VpdPage::BlockDeviceCharacteristics => "BDC",
            VpdPage::LogicalBlockProvisioning => "LBP",
            _ => "EXTENDED_INQUIRY",
        },
        _ => return None,
    })
}

impl<P: Port<Protocol = Scsi>> Port for Traced<'_, P> {
    type Protocol = Scsi;

    fn limits(&self) -> &Limits {
        self.port.limits()
    }

    fn memory(&self) -> &DmaRegion {
        self.port.memory()
    }

    fn start(&mut self, command: Command<Scsi>, now: Instant) -> Result<(), Declined> {
        let Command { unit, payload: cdb, direction, data, .. } = command;
        let token = command.token.number();
        let begun = Begun { token, unit, cdb, data: (direction, data.len()) };
        let started = self.port.start(command, now);
        let declined = started.as_ref().err().map(|declined| declined.why);
        // A command that finds the queue full is submitted again.
        if declined != Some(NotStarted::Full) {
            self.tell(begun, declined);
        }
        started
    }

    fn ring(&mut self, now: Instant) {
        if let Some((_, ccb)) = self.under_way.last() {
            self.tracer.issue(ccb.lun);
        }
        self.port.ring(now);
    }

    fn poll(&mut self, now: Instant) -> Option<Outcome> {
        let outcome = self.port.poll(now)?;
        let token = outcome.token.number();
        let at = self.under_way.iter().position(|(other, _)| *other == token);
        if let Some(at) = at {
            let (_, ccb) = self.under_way.remove(at);
            match outcome.ended {
                Ended::Good => self.tracer.end(ccb, &Answer::Good),
                ended => self.tracer.end(ccb, &Answer::Scsi(ended, &self.port.failure())),
            }
        }
        Some(outcome)
    }

    fn failure(&self) -> Failure<Scsi> {
        self.port.failure()
    }

    fn poll_at(&self) -> Option<Instant> {
        self.port.poll_at()
    }
}
