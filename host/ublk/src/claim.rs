//! A device of the driver: added, taken over from a killed server, or deleted.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::control::Control;
use crate::error::UblkError;
use crate::limits::Disk;
use crate::uapi::{self, Info, Parameters, command};

/// In the upper half of a device's mark: it is one of ours. The lower half is our process ID.
const OURS: u64 = 0x464c_5343 << 32;
/// How long the kernel may take to notice that a server was killed.
const NOTICE: Duration = Duration::from_secs(10);

/// One of our devices.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) info: Info,
    /// Whether it is taken over: its disk exists, and only waits.
    pub(crate) is_taken_over: bool,
}

impl Claim {
    /// Creates a device for requests of at most `buffer` bytes, or takes over the waiting one.
    pub(crate) fn new(control: &mut Control, disk: &Disk, buffer: u32) -> Result<Self, UblkError> {
        let recovery = uapi::USER_RECOVERY | uapi::USER_RECOVERY_REISSUE;
        let mut info = Info {
            queues: disk.settings.queues,
            depth: disk.settings.depth,
            buffer,
            device: disk.settings.id.unwrap_or(u32::MAX),
            flags: uapi::CMD_IOCTL_ENCODE | if disk.settings.recover { recovery } else { 0 },
            mark: OURS | u64::from(std::process::id()),
            ..Info::default()
        };
        match disk.settings.id {
            Some(id) => {
                if let Some(found) = clear(control, id)? {
                    return Self::take_over(control, disk, &info, &found);
                }
            }
            None => numbers().for_each(|id| drop(clear(control, id))),
        }
        let device = info.device;
        let added = control.info(command::ADD_DEV, device, &mut info);
        added.map_err(UblkError::at("adding a device"))?;
        let set =
            control.parameters(command::SET_PARAMS, info.device, &mut disk.parameters(info.buffer));
        if let Err(cause) = set {
            let _ = control.order(command::DEL_DEV, info.device);
            return Err(UblkError::Failed { step: "setting the disk's parameters", cause });
        }
        Ok(Self { info, is_taken_over: false })
    }

    fn take_over(
        control: &mut Control,
        disk: &Disk,
        wanted: &Info,
        found: &Info,
    ) -> Result<Self, UblkError> {
        let id = found.device;
        if !disk.settings.recover {
            return Err(UblkError::Waits(id));
        }
        let mut parameters = Parameters { length: uapi::PARAMETERS, ..Parameters::default() };
        let asked = control.parameters(command::GET_PARAMS, id, &mut parameters);
        asked.map_err(UblkError::at("asking for the disk's parameters"))?;
        if let Some(what) = difference(&parameters, &disk.parameters(found.buffer))
            .or_else(|| (found.queues > wanted.queues).then(|| format!("{} queues", found.queues)))
            .or_else(|| (found.depth != wanted.depth).then(|| format!("depth {}", found.depth)))
            .or_else(|| (found.buffer > wanted.buffer).then(|| "longer requests".to_owned()))
        {
            return Err(UblkError::OtherShape { id, what });
        }
        // The kernel refuses as long as anything of the last server is left.
        let until = Instant::now() + NOTICE;
        while let Err(cause) = control.order(command::START_USER_RECOVERY, id) {
            if cause.kind() != io::ErrorKind::ResourceBusy || Instant::now() > until {
                return Err(UblkError::Failed { step: "taking over the device", cause });
            }
            control.wait();
        }
        Ok(Self { info: *found, is_taken_over: true })
    }

    /// Starts it.
    pub(crate) fn start(&self, control: &mut Control) -> Result<(), UblkError> {
        let number =
            if self.is_taken_over { command::END_USER_RECOVERY } else { command::START_DEV };
        control.start(number, self.info.device).map_err(UblkError::at("starting the disk"))
    }

    /// Deletes it, if nobody else has; waits until nobody has it open.
    pub(crate) fn delete(&self, control: &mut Control) -> Result<(), UblkError> {
        match control.order(command::DEL_DEV, self.info.device) {
            Err(cause) if cause.raw_os_error() == Some(-uapi::ABORT) => Ok(()),
            done => done.map(drop).map_err(UblkError::at("deleting the device")),
        }
    }
}

/// The first difference that makes a disk another one.
fn difference(found: &Parameters, ours: &Parameters) -> Option<String> {
    match () {
        () if found.sectors != ours.sectors => Some(format!("{} sectors", found.sectors)),
        () if found.logical_shift != ours.logical_shift
            || found.physical_shift != ours.physical_shift =>
        {
            let bytes = |shift: u8| 1_u64.checked_shl(shift.into()).unwrap_or_default();
            let (logical, physical) = (bytes(found.logical_shift), bytes(found.physical_shift));
            Some(format!("blocks of {logical} and {physical} bytes"))
        }
        () if found.attributes != ours.attributes => {
            Some(format!("attributes {:#x}", found.attributes))
        }
        () if found.discard_max != ours.discard_max => {
            Some(format!("discards of {} sectors", found.discard_max))
        }
        () => None,
    }
}

/// Numbers in use.
fn numbers() -> impl Iterator<Item = u32> {
    let names = std::fs::read_dir("/dev").into_iter().flatten().flatten();
    let names = names.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter_map(|name| name.strip_prefix("ublkc")?.parse().ok())
}

/// Deletes device `id` if a killed server of ours left it. A device that waits for its next server
/// is returned; nothing if the number is free.
fn clear(control: &mut Control, id: u32) -> Result<Option<Info>, UblkError> {
    let until = Instant::now() + NOTICE;
    loop {
        let mut info = Info::default();
        match control.info(command::GET_DEV_INFO, id, &mut info) {
            Err(cause) if cause.raw_os_error() == Some(-uapi::ABORT) => return Ok(None),
            Err(cause) => return Err(UblkError::Failed { step: "asking for a device", cause }),
            Ok(()) => {}
        }
        let is_ours = info.mark & !u64::from(u32::MAX) == OURS;
        let server = match info.state {
            uapi::DEAD => info.mark as u32 as i32,
            _ => info.process,
        };
        match info.state {
            uapi::LIVE if is_alive(info.process) || Instant::now() > until => {
                return Err(UblkError::InUse { id, process: info.process });
            }
            // The kernel has not noticed yet.
            uapi::LIVE => control.wait(),
            _ if !is_ours => return Err(UblkError::NotOurs(id)),
            uapi::QUIESCED => return Ok(Some(info)),
            _ if is_alive(server) => return Err(UblkError::InUse { id, process: server }),
            _ => {
                let deleted = control.order(command::DEL_DEV, id);
                deleted.map_err(UblkError::at("deleting what a killed server left behind"))?;
                return Ok(None);
            }
        }
    }
}

/// Whether another process with that ID runs.
fn is_alive(process: i32) -> bool {
    process > 0
        && process.cast_unsigned() != std::process::id()
        && Path::new("/proc").join(process.to_string()).exists()
}
