//! Management of a controller and its device: queries and power of UFS, admin commands of NVMe.

use alloc::boxed::Box;
use core::ffi::c_void;
use core::fmt;

use flysch_nvme::{AdminCommand, AdminData};
use flysch_ufs::{DevicePower, LinkLimits, Operation, Output};
use flysch_wire::nvme::feature::Select;
use flysch_wire::nvme::{Cns, FeatureId, LogId};
use flysch_wire::ufs::query::{AttributeId, DescriptorId, FlagId};
use flysch_wire::ufs::uic::HsSeries;

use crate::controller::Controller;
use crate::error::{Error, Outcome, Status};
use crate::tell;

/// Most bytes of data of an admin command: a page.
pub const ADMIN_BYTES: usize = 4096;
/// Most bytes of a descriptor.
pub const DESCRIPTOR_BYTES: usize = 256;

/// The operation of a query.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueryKind {
    /// Reads a descriptor.
    ReadDescriptor = 0,
    /// Reads an attribute.
    ReadAttribute = 1,
    /// Writes an attribute.
    WriteAttribute = 2,
    /// Reads a flag as 0 or 1.
    ReadFlag = 3,
    /// Sets a flag.
    SetFlag = 4,
    /// Clears a flag.
    ClearFlag = 5,
    /// Toggles a flag.
    ToggleFlag = 6,
}

/// A query (JESD220, QUERY REQUEST UPIU).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Query {
    /// An enum flysch_query_kind.
    pub kind: u8,
    /// IDN: number of the descriptor, attribute or flag.
    pub id: u8,
    /// Index of the logical unit, string or context; else 0.
    pub index: u8,
    /// Selector; else 0.
    pub selector: u8,
    /// Set if the caller knows that a write cannot be undone; if clear, such a write is refused.
    pub irreversible: bool,
    /// The value to write to an attribute.
    pub value: u64,
}

/// What the device answered.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    /// Value of an attribute, or of a flag as 0 or 1.
    pub value: u64,
    /// Length of a descriptor, bytes.
    pub len: u16,
    /// The descriptor, big-endian, as sent by the device.
    pub bytes: [u8; DESCRIPTOR_BYTES],
}

/// Mode of the UFS link, or a limit for it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// High speed, or the low speed in which a link starts. Ignored in a limit.
    pub high_speed: bool,
    /// Gear. In a limit: the highest gear of high speed, 1 to 5; 0 stays in low speed.
    pub gear: u8,
    /// Lanes per direction.
    pub lanes: u8,
    /// Rate series: 1 A, 2 B.
    pub series: u8,
    /// Whether it hibernates on command. Ignored in a limit.
    pub hibernating: bool,
}

/// Power modes of a UFS device.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Power {
    /// Accepts commands.
    Active = 1,
    /// UFS-Sleep.
    Sleep = 2,
    /// UFS-PowerDown.
    PowerDown = 3,
    /// UFS-DeepSleep: only a reset leaves it.
    DeepSleep = 4,
}

/// An admin command of NVMe.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Admin {
    /// Opcode.
    pub opcode: u8,
    /// Whether data goes to the controller; if clear, it comes from there.
    pub to_controller: bool,
    /// NSID.
    pub nsid: u32,
    /// CDW10 to CDW15.
    pub cdw10: [u32; 6],
    /// The data, in any memory; need not be DMA memory. NULL if there is none.
    pub data: *mut c_void,
    /// Bytes of data, at most FLYSCH_ADMIN_BYTES.
    pub len: u32,
    /// Time-out, milliseconds; 0 for the driver's own limit.
    pub timeout_ms: u32,
    /// Set on return: DW0 of the completion.
    pub result: u32,
}

fn argument(words: impl fmt::Display) -> Box<Error> {
    Error::new(Status::Argument, words)
}

fn ufs_failed(cause: flysch_ufs::UfsError) -> Box<Error> {
    Error::new(Status::Device, cause)
}

fn nvme_failed(cause: flysch_nvme::NvmeError) -> Box<Error> {
    Error::new(Status::Device, cause)
}

impl Query {
    /// Converts the query to the driver's type.
    fn understood(&self) -> Outcome<flysch_ufs::Query> {
        use flysch_ufs::Query as Q;
        let (attribute, flag) = (AttributeId::from_bits(self.id), FlagId::from_bits(self.id));
        let query = match self.kind {
            kind if kind == QueryKind::ReadDescriptor as u8 => {
                Q::read_descriptor(DescriptorId::from_bits(self.id))
            }
            kind if kind == QueryKind::ReadAttribute as u8 => Q::read_attribute(attribute),
            kind if kind == QueryKind::WriteAttribute as u8 => {
                Q::write_attribute(attribute, self.value)
            }
            kind if kind == QueryKind::ReadFlag as u8 => Q::read_flag(flag),
            kind if kind == QueryKind::SetFlag as u8 => Q::set_flag(flag),
            kind if kind == QueryKind::ClearFlag as u8 => Q::clear_flag(flag),
            kind if kind == QueryKind::ToggleFlag as u8 => Q::toggle_flag(flag),
            other => return Err(argument(format_args!("kind: there is no query {other}"))),
        };
        let query = query.index(self.index).selector(self.selector);
        Ok(if self.irreversible { query.irreversible() } else { query })
    }
}

impl Controller {
    fn query(&mut self, query: &Query) -> Outcome<Answer> {
        let query = query.understood()?;
        let (host, machine) = self.ufs_host()?;
        let mut answer = Answer { value: 0, len: 0, bytes: [0; DESCRIPTOR_BYTES] };
        match host.query(machine, query).map_err(ufs_failed)? {
            Output::Value(value) => answer.value = value,
            Output::Descriptor(found) => {
                let found = found.as_slice();
                answer.len = found.len() as u16;
                answer.bytes[..found.len()].copy_from_slice(found);
            }
            _ => {}
        }
        Ok(answer)
    }

    fn set_link(&mut self, limits: &Link) -> Outcome<()> {
        let series = match limits.series {
            1 => HsSeries::A,
            2 => HsSeries::B,
            other => return Err(argument(format_args!("series: there is no {other}"))),
        };
        let limits = LinkLimits { gear: limits.gear, lanes: limits.lanes, series };
        let (host, machine) = self.ufs_host()?;
        host.run(machine, Operation::Link(limits)).map(drop).map_err(ufs_failed)
    }

    fn link(&mut self) -> Outcome<Link> {
        let link = self.ufs_host()?.0.link();
        let flysch_ufs::Link { high_speed, gear, lanes, hibernating, .. } = link;
        let series = if link.series == HsSeries::A { 1 } else { 2 };
        Ok(Link { high_speed, gear, lanes, series, hibernating })
    }

    fn set_power(&mut self, power: u8) -> Outcome<()> {
        let power = match power {
            1 => DevicePower::Active,
            2 => DevicePower::Sleep,
            3 => DevicePower::PowerDown,
            4 => DevicePower::DeepSleep,
            other => return Err(argument(format_args!("power: there is no mode {other}"))),
        };
        let (host, machine) = self.ufs_host()?;
        host.run(machine, Operation::Power(power)).map(drop).map_err(ufs_failed)
    }

    /// Sends an admin command with its data in `data`; returns DW0.
    fn admin(&mut self, command: AdminCommand, data: &mut [u8]) -> Outcome<u32> {
        let (host, machine) = self.nvme_host()?;
        let reply = host.admin(machine, command).map_err(nvme_failed)?;
        let len = data.len().min(reply.data.len());
        data[..len].copy_from_slice(&reply.data[..len]);
        Ok(reply.status.result)
    }
}

/// The data of an admin command.
///
/// # Safety
/// It is NULL or has `len` bytes that nobody else uses at the same time.
unsafe fn room<'a>(data: *mut c_void, len: usize) -> Outcome<&'a mut [u8]> {
    if len > ADMIN_BYTES {
        return Err(argument(format_args!("{len} bytes: at most {ADMIN_BYTES} are moved")));
    }
    match (data.is_null(), len) {
        (_, 0) => Ok(&mut []),
        (true, _) => Err(argument("the data is NULL")),
        // SAFETY: the caller's promise.
        (false, len) => Ok(unsafe { core::slice::from_raw_parts_mut(data.cast(), len) }),
    }
}

/// # Safety
/// `controller` is NULL or a controller of ours that nobody else uses at the same time.
unsafe fn known<'a>(controller: *mut Controller) -> Outcome<&'a mut Controller> {
    // SAFETY: the caller's promise.
    unsafe { controller.as_mut() }.ok_or_else(|| argument("the controller is NULL"))
}

/// # Safety
/// `pointer` is NULL or valid.
unsafe fn given<'a, T>(pointer: *mut T, what: &str) -> Outcome<&'a mut T> {
    // SAFETY: the caller's promise.
    unsafe { pointer.as_mut() }.ok_or_else(|| argument(format_args!("{what} is NULL")))
}

/// # Safety
/// `error` is NULL or may be written.
unsafe fn status(error: *mut Error, outcome: Outcome<()>) -> Status {
    // SAFETY: the caller's promise.
    unsafe { tell(error, outcome) }.map_or_else(|status| status, |()| Status::Ok)
}

/// Sends a query to a UFS device and waits for its answer. Requests may be under way. `query` is
/// not changed; `answer` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flysch_ufs_query(
    controller: *mut Controller,
    query: *const Query,
    answer: *mut Answer,
    error: *mut Error,
) -> Status {
    // SAFETY: NULL or as the header says.
    let asked = unsafe {
        known(controller).and_then(|controller| {
            let query = given(query.cast_mut(), "the query")?;
            let told = controller.query(query)?;
            if !answer.is_null() {
                answer.write(told);
            }
            Ok(())
        })
    };
    // SAFETY: NULL or room for an error.
    unsafe { status(error, asked) }
}

/// Writes the mode of the UFS link to `link`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flysch_ufs_link(
    controller: *mut Controller,
    link: *mut Link,
    error: *mut Error,
) -> Status {
    // SAFETY: NULL or as the header says.
    let told = unsafe {
        known(controller).and_then(|controller| {
            *given(link, "the link")? = controller.link()?;
            Ok(())
        })
    };
    // SAFETY: NULL or room for an error.
    unsafe { status(error, told) }
}

/// Changes gear, lanes and rate of the UFS link to the highest within `limits`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flysch_ufs_set_link(
    controller: *mut Controller,
    limits: *const Link,
    error: *mut Error,
) -> Status {
    // SAFETY: NULL or as the header says.
    let set = unsafe {
        known(controller)
            .and_then(|controller| controller.set_link(given(limits.cast_mut(), "the limits")?))
    };
    // SAFETY: NULL or room for an error.
    unsafe { status(error, set) }
}

/// Puts a UFS device into a power mode, an enum flysch_power. No request may be under way.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flysch_ufs_set_power(
    controller: *mut Controller,
    power: u8,
    error: *mut Error,
) -> Status {
    // SAFETY: NULL or as the header says.
    let set = unsafe { known(controller) }.and_then(|controller| controller.set_power(power));
    // SAFETY: NULL or room for an error.
    unsafe { status(error, set) }
}

/// Sends an admin command to an NVMe controller and waits for its completion. Commands that would
/// interfere with the driver's own queues or events are refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flysch_nvme_admin(
    controller: *mut Controller,
    command: *mut Admin,
    error: *mut Error,
) -> Status {
    // SAFETY: NULL or as the header says.
    let done = unsafe {
        known(controller).and_then(|controller| {
            let admin = given(command, "the command")?;
            let data = room(admin.data, admin.len as usize)?;
            let moved = match (data.len(), admin.to_controller) {
                (0, _) => AdminData::None,
                (_, true) => AdminData::Out(data.to_vec()),
                (_, false) => AdminData::In(admin.len),
            };
            let Admin { opcode, nsid, cdw10, .. } = *admin;
            let timeout_ms = (admin.timeout_ms != 0).then_some(admin.timeout_ms);
            let command = AdminCommand { opcode, nsid, cdw10, data: moved, timeout_ms };
            admin.result = controller.admin(command, data)?;
            Ok(())
        })
    };
    // SAFETY: NULL or room for an error.
    unsafe { status(error, done) }
}

/// IDENTIFY: reads the structure with this CNS, of a namespace or, if `nsid` is 0, of the
/// controller, into `data`, which has FLYSCH_ADMIN_BYTES bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flysch_nvme_identify(
    controller: *mut Controller,
    cns: u8,
    nsid: u32,
    data: *mut c_void,
    error: *mut Error,
) -> Status {
    // SAFETY: NULL or as the header says.
    let done = unsafe {
        known(controller).and_then(|controller| {
            let command = AdminCommand::identify(Cns::from_bits(cns), nsid);
            controller.admin(command, room(data, ADMIN_BYTES)?).map(drop)
        })
    };
    // SAFETY: NULL or room for an error.
    unsafe { status(error, done) }
}

/// GET LOG PAGE: reads the first `len` bytes, a multiple of four and at most FLYSCH_ADMIN_BYTES, of
/// the controller's own log page `id` into `data`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flysch_nvme_log_page(
    controller: *mut Controller,
    id: u8,
    data: *mut c_void,
    len: u32,
    error: *mut Error,
) -> Status {
    /// NSID for what belongs to the controller.
    const ALL: u32 = u32::MAX;
    // SAFETY: NULL or as the header says.
    let done = unsafe {
        known(controller).and_then(|controller| {
            let data = room(data, len as usize)?;
            if len == 0 || !len.is_multiple_of(4) {
                return Err(argument(format_args!("{len} bytes are no multiple of four")));
            }
            let (host, machine) = controller.nvme_host()?;
            let reply =
                host.log_page(machine, (LogId::from_bits(id), ALL), len).map_err(nvme_failed)?;
            let len = data.len().min(reply.data.len());
            data[..len].copy_from_slice(&reply.data[..len]);
            Ok(())
        })
    };
    // SAFETY: NULL or room for an error.
    unsafe { status(error, done) }
}

/// GET FEATURES: reads the current value of a feature, one dword, into `value`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flysch_nvme_feature(
    controller: *mut Controller,
    id: u8,
    value: *mut u32,
    error: *mut Error,
) -> Status {
    // SAFETY: NULL or as the header says.
    let told = unsafe {
        known(controller).and_then(|controller| {
            let value = given(value, "the value")?;
            let (host, machine) = controller.nvme_host()?;
            let told = host.feature(machine, FeatureId::from_bits(id), Select::Current);
            *value = told.map_err(nvme_failed)?;
            Ok(())
        })
    };
    // SAFETY: NULL or room for an error.
    unsafe { status(error, told) }
}

/// SET FEATURES: sets a feature whose value is one dword.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flysch_nvme_set_feature(
    controller: *mut Controller,
    id: u8,
    value: u32,
    error: *mut Error,
) -> Status {
    // SAFETY: NULL or as the header says.
    let set = unsafe { known(controller) }.and_then(|controller| {
        let (host, machine) = controller.nvme_host()?;
        host.set_feature(machine, FeatureId::from_bits(id), value).map_err(nvme_failed)
    });
    // SAFETY: NULL or room for an error.
    unsafe { status(error, set) }
}
