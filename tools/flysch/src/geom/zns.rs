//! Zones of NVMe namespaces in the form required by the block layer.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

use flysch_api::block::{BlockError, Cause};
use flysch_api::command::NvmeStatus;
use flysch_bench::zones::{self as bench, ZONES_MAX};
use flysch_geom::zone::{
    Zone, ZoneAction, ZoneAnswer, ZoneCondition, ZoneEntry, ZoneFilter, ZoneLimit, ZoneMode,
    ZoneParameters, ZoneReport, ZoneSame, ZoneTarget, ZoneType, Zones,
};
use flysch_nvme::AdminReply;
use flysch_rig::{NvmeControl, Stack};
use flysch_wire::nvme::Status;
use flysch_wire::nvme::zone::{
    self as wire, IdentifyZonedNamespace, PARTIAL_REPORT, ZoneDescriptor, ZoneState,
};

use crate::failure::Failure;
use crate::nvme::zones::{AT_ONCE, identify_command, manage_command, report_command, report_of};

/// ZA bit 2: the controller recommends a reset.
const RESET_RECOMMENDED: u8 = 1 << 2;
/// OZCS bit 0: reads may cross zones.
const READS_ACROSS: u16 = 1;

/// A zoned namespace: its controller, its ID, its number of blocks and the zone size in blocks.
struct Namespace<'a> {
    control: &'a mut dyn NvmeControl,
    nsid: u32,
    blocks: u64,
    zoned: IdentifyZonedNamespace,
    zone_blocks: u64,
}

/// The zones of a target that [is zoned](is_zoned).
pub(super) struct OnNamespace(pub(super) Rc<RefCell<Stack>>);

impl fmt::Debug for OnNamespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnNamespace").finish_non_exhaustive()
    }
}

impl Zones for OnNamespace {
    fn zone(&mut self, command: Zone) -> Result<ZoneAnswer, BlockError> {
        zone(self.0.borrow_mut().nvme().ok_or(BlockError::Unsupported)?, command)
    }
}

/// Whether the disk of a target is a namespace with zones.
pub(super) fn is_zoned(stack: &mut Stack) -> bool {
    let Some(control) = stack.nvme() else { return false };
    let mut spaces = control.device().namespaces.iter();
    let own = spaces.find(|space| space.id == control.namespace());
    own.is_some_and(|space| space.command_set == wire::COMMAND_SET)
}

/// The zones of the disk of a target, for jobs that go by them; none if it has none.
pub(super) fn zones_of(stack: &mut Stack) -> Result<Option<bench::Zones>, Failure> {
    if !is_zoned(stack) {
        return Ok(None);
    }
    let geometry = stack.geometry();
    let (bytes, block_size) = (geometry.bytes(), geometry.block_size);
    let Some(control) = stack.nvme() else { return Ok(None) };
    let failed = |error| Failure::failed(format!("its zones cannot be read: {error}"));
    let mut namespace = Namespace::of(control).map_err(failed)?;
    let zone_blocks = namespace.zone_blocks;
    let open_max = match namespace.parameters().most_open {
        ZoneLimit::Count(count) => u32::try_from(count).unwrap_or(0),
        _ => 0,
    };
    let report = namespace.report(0, ZoneFilter::All, ZONES_MAX as usize).map_err(failed)?;
    let mut zones = Vec::with_capacity(report.zones.len());
    for entry in &report.zones {
        if entry.start != zones.len() as u64 * zone_blocks {
            let start = entry.start;
            let why = format!("its zones do not follow each other: one begins at {start}");
            return Err(Failure::failed(why));
        }
        let size = u64::from(block_size);
        let is_full = entry.condition == ZoneCondition::Full;
        let written = entry.write_pointer.map_or(0, |at| at.saturating_sub(entry.start));
        zones.push(bench::Zone {
            capacity: entry.capacity.saturating_mul(size),
            written: if is_full { entry.capacity } else { written }.saturating_mul(size),
            is_usable: !matches!(
                entry.condition,
                ZoneCondition::ReadOnly | ZoneCondition::Offline | ZoneCondition::Other(_)
            ),
        });
    }
    let size = zone_blocks.saturating_mul(block_size.into());
    let zones = bench::Zones::reported((bytes, block_size), size, &zones, open_max);
    zones.map(Some).map_err(Failure::failed)
}

fn zone(control: &mut dyn NvmeControl, command: Zone) -> Result<ZoneAnswer, BlockError> {
    let mut namespace = Namespace::of(control)?;
    match command {
        Zone::Report { start, filter, most } => {
            namespace.report(start, filter, most as usize).map(ZoneAnswer::Report)
        }
        Zone::Parameters => Ok(ZoneAnswer::Parameters(namespace.parameters())),
        Zone::Manage(action, target) => {
            let action = match action {
                ZoneAction::Open => wire::ZoneAction::Open,
                ZoneAction::Close => wire::ZoneAction::Close,
                ZoneAction::Finish => wire::ZoneAction::Finish,
                ZoneAction::Reset => wire::ZoneAction::Reset,
            };
            let block = match target {
                ZoneTarget::At(block) => Some(block),
                ZoneTarget::All => None,
            };
            let done = namespace.control.io(manage_command(namespace.nsid, action, block));
            ended(done).map(|_| ZoneAnswer::Done)
        }
    }
}

/// The result of a command.
fn ended(reply: Result<AdminReply, flysch_nvme::NvmeError>) -> Result<Vec<u8>, BlockError> {
    let reply = reply.map_err(|error| match error {
        flysch_nvme::NvmeError::Gone => BlockError::Gone,
        flysch_nvme::NvmeError::Recovered => BlockError::Reset,
        _ => BlockError::Device(Cause::None),
    })?;
    let status: NvmeStatus = reply.status;
    match Status::of_field(status.status) {
        Status::Success => Ok(reply.data),
        Status::InvalidOpcode => Err(BlockError::Unsupported),
        _ => Err(BlockError::Device(Cause::Nvme(status))),
    }
}

impl<'a> Namespace<'a> {
    fn of(control: &'a mut dyn NvmeControl) -> Result<Self, BlockError> {
        let nsid = control.namespace();
        let spaces = &control.device().namespaces;
        let space = spaces.iter().find(|space| space.id == nsid).ok_or(BlockError::Gone)?;
        let (blocks, format) = (space.data.nsze, space.data.format_in_use());
        let data = ended(control.admin(identify_command(nsid)))?;
        let zoned = IdentifyZonedNamespace::parse(&data).unwrap_or_default();
        let zone_blocks = zoned.zone_blocks(format);
        match zone_blocks {
            // A controller whose zones have no blocks has none that could be told.
            0 => Err(BlockError::Device(Cause::None)),
            _ => Ok(Self { control, nsid, blocks, zoned, zone_blocks }),
        }
    }

    fn parameters(&self) -> ZoneParameters {
        use ZoneAction::{Close, Finish, Open, Reset};
        ZoneParameters {
            mode: ZoneMode::HostManaged,
            reports: true,
            actions: vec![Open, Close, Finish, Reset],
            reads_anywhere: self.zoned.ozcs & READS_ACROSS != 0,
            optimal_open: ZoneLimit::NotSet,
            optimal_non_sequential: ZoneLimit::NotSet,
            // Counted from zero; all ones are no limit.
            most_open: match self.zoned.mor {
                u32::MAX => ZoneLimit::Unlimited,
                number => ZoneLimit::Count(u64::from(number) + 1),
            },
        }
    }

    fn report(
        &mut self,
        start: u64,
        filter: ZoneFilter,
        most: usize,
    ) -> Result<ZoneReport, BlockError> {
        let (last_sector, same) = (self.blocks.saturating_sub(1), ZoneSame::All);
        let mut report = ZoneReport { available: 0, last_sector, same, zones: Vec::new() };
        let Some(wanted) = number_of(filter) else { return Ok(report) };
        // Controllers do not count zones by attribute: those are all looked at.
        let by_attribute = filter == ZoneFilter::ResetNeeded;
        if !by_attribute {
            report.available = self.part(start, 0, wanted)?.0;
        }
        let mut at = start;
        while at < self.blocks {
            let room = match by_attribute {
                true => AT_ONCE,
                false => AT_ONCE.min(most - report.zones.len()),
            };
            let (_, part) = self.part(at, room, wanted | PARTIAL_REPORT)?;
            let part: Vec<ZoneEntry> = part.iter().map(|zone| self.entry(zone)).collect();
            // Zones rise, or a report would never end.
            let end = part.last().map(|last| last.start.saturating_add(last.length));
            let Some(end) = end.filter(|&end| end > at) else { break };
            at = end;
            let meant = part.into_iter().filter(|zone| !by_attribute || zone.reset_needed);
            for zone in meant {
                report.available += u64::from(by_attribute);
                if report.zones.len() < most {
                    report.zones.push(zone);
                }
            }
        }
        Ok(report)
    }

    /// At most `room` zones starting with the one that contains block `at`, and the total number.
    fn part(
        &mut self,
        at: u64,
        room: usize,
        wanted: u32,
    ) -> Result<(u64, Vec<ZoneDescriptor>), BlockError> {
        let data = ended(self.control.io(report_command(self.nsid, (at, room), wanted)))?;
        Ok(report_of(&data, room))
    }

    fn entry(&self, zone: &ZoneDescriptor) -> ZoneEntry {
        let left = self.blocks.saturating_sub(zone.zslba);
        let condition = condition_of(zone.state());
        let is_written = matches!(
            condition,
            ZoneCondition::Empty
                | ZoneCondition::ImplicitOpen
                | ZoneCondition::ExplicitOpen
                | ZoneCondition::Closed
        );
        ZoneEntry {
            start: zone.zslba,
            length: self.zone_blocks.min(left),
            capacity: zone.zcap,
            write_pointer: is_written.then_some(zone.wp),
            kind: match zone.zt {
                ZoneDescriptor::SEQUENTIAL => ZoneType::SequentialRequired,
                other => ZoneType::Other(other),
            },
            condition,
            reset_needed: zone.za & RESET_RECOMMENDED != 0,
            non_sequential: false,
        }
    }
}

/// The bits with which zone management receive selects such zones; none if NVMe has none.
fn number_of(filter: ZoneFilter) -> Option<u32> {
    let number = match filter {
        ZoneFilter::All | ZoneFilter::ResetNeeded => 0,
        ZoneFilter::In(ZoneCondition::Empty) => 1,
        ZoneFilter::In(ZoneCondition::ImplicitOpen) => 2,
        ZoneFilter::In(ZoneCondition::ExplicitOpen) => 3,
        ZoneFilter::In(ZoneCondition::Closed) => 4,
        ZoneFilter::In(ZoneCondition::Full) => 5,
        ZoneFilter::In(ZoneCondition::ReadOnly) => 6,
        ZoneFilter::In(ZoneCondition::Offline) => 7,
        ZoneFilter::In(ZoneCondition::NotWritePointer | ZoneCondition::Other(_))
        | ZoneFilter::NonSequential => return None,
    };
    Some(number << 8)
}

fn condition_of(state: ZoneState) -> ZoneCondition {
    match state {
        ZoneState::Empty => ZoneCondition::Empty,
        ZoneState::ImplicitlyOpened => ZoneCondition::ImplicitOpen,
        ZoneState::ExplicitlyOpened => ZoneCondition::ExplicitOpen,
        ZoneState::Closed => ZoneCondition::Closed,
        ZoneState::ReadOnly => ZoneCondition::ReadOnly,
        ZoneState::Full => ZoneCondition::Full,
        ZoneState::Offline => ZoneCondition::Offline,
        ZoneState::Unknown(number) => ZoneCondition::Other(number),
    }
}
