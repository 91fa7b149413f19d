//! File systems on chip models: a mount writes to modelled cells, which follow the rules of real
//! ones, take their time and lose their power.

mod target;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use flysch_api::flash::{Corrected, Flash, FlashError, FlashGeometry, FlashMut, OobMode};
use flysch_api::vfs::Timestamp;
use flysch_models::flash::Cut;
use flysch_models::nand::{Config, NandChip};
use flysch_models::nor::NorChip;
use flysch_mtd::Nand;
use flysch_target::chip::{Part, page_format};
use flysch_ubi::{DeviceOptions, FormatOptions, NewVolume, UbiDevice};
use flysch_ubifs::create::{CreateOptions, NewInode};

pub use target::{ChipError, ChipTarget, chip_keys};

use self::target::NewFileSystem;
use crate::lock::Exclusive;
use crate::writable::{AnyFlash, Writable, WritableError, format};

/// The name of the UBI volume created on an erased chip.
const VOLUME: &[u8] = b"flysch";
/// How far a chip may lag behind before its user waits: shorter sleeps take longer than requested.
const LAG: Duration = Duration::from_millis(1);

/// A chip, with error correction if it is NAND.
#[derive(Debug)]
enum AnyChip {
    Nand(Box<Nand<NandChip>>),
    Nor(Box<NorChip>),
}

/// A chip whose accesses may take real time.
#[derive(Debug)]
struct ChipFlash {
    chip: AnyChip,
    /// Until when the chip is busy.
    busy: Option<Mutex<Instant>>,
    lost_power: Arc<AtomicBool>,
}

/// A file system on a chip model.
#[derive(Debug)]
pub struct OnChip {
    /// The file system.
    pub fs: Writable,
    lost_power: Arc<AtomicBool>,
}

impl OnChip {
    /// Reports, from then on, whether the chip's power behaved as planned.
    pub fn power(&self) -> impl Fn() -> bool + use<> {
        let lost_power = self.lost_power.clone();
        move || lost_power.load(Ordering::Relaxed)
    }
}

impl AnyChip {
    fn flash(&self) -> &dyn Flash {
        match self {
            Self::Nand(nand) => &**nand,
            Self::Nor(chip) => &**chip,
        }
    }

    fn flash_mut(&mut self) -> &mut dyn FlashMut {
        match self {
            Self::Nand(nand) => &mut **nand,
            Self::Nor(chip) => &mut **chip,
        }
    }

    fn busy_ns(&self) -> u64 {
        match self {
            Self::Nand(nand) => nand.pages().busy_ns(),
            Self::Nor(chip) => chip.busy_ns(),
        }
    }
}

impl ChipFlash {
    fn done<R>(&self, before: u64, result: Result<R, FlashError>) -> Result<R, FlashError> {
        if matches!(result, Err(FlashError::PowerLost)) {
            self.lost_power.store(true, Ordering::Relaxed);
        }
        if let Some(busy) = &self.busy {
            let took = Duration::from_nanos(self.chip.busy_ns().saturating_sub(before));
            let now = Instant::now();
            let mut until = busy.lock().unwrap_or_else(PoisonError::into_inner);
            *until = (*until).max(now) + took;
            let wait = until.saturating_duration_since(now);
            drop(until);
            if wait >= LAG {
                std::thread::sleep(wait);
            }
        }
        result
    }

    fn look<R>(
        &self,
        look: impl FnOnce(&dyn Flash) -> Result<R, FlashError>,
    ) -> Result<R, FlashError> {
        let before = self.chip.busy_ns();
        self.done(before, look(self.chip.flash()))
    }

    fn change<R>(
        &mut self,
        change: impl FnOnce(&mut dyn FlashMut) -> Result<R, FlashError>,
    ) -> Result<R, FlashError> {
        let before = self.chip.busy_ns();
        let result = change(self.chip.flash_mut());
        self.done(before, result)
    }
}

impl Flash for ChipFlash {
    fn geometry(&self) -> &FlashGeometry {
        self.chip.flash().geometry()
    }
    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<Corrected, FlashError> {
        self.look(|flash| flash.read(offset, buffer))
    }
    fn read_oob(
        &self,
        offset: u64,
        mode: OobMode,
        buffer: &mut [u8],
    ) -> Result<Corrected, FlashError> {
        self.look(|flash| flash.read_oob(offset, mode, buffer))
    }
    fn is_bad(&self, block: u32) -> Result<bool, FlashError> {
        self.look(|flash| flash.is_bad(block))
    }
}

impl FlashMut for ChipFlash {
    fn program(&mut self, offset: u64, data: &[u8]) -> Result<(), FlashError> {
        self.change(|flash| flash.program(offset, data))
    }
    fn program_oob(&mut self, offset: u64, mode: OobMode, data: &[u8]) -> Result<(), FlashError> {
        self.change(|flash| flash.program_oob(offset, mode, data))
    }
    fn erase(&mut self, block: u32) -> Result<(), FlashError> {
        self.change(|flash| flash.erase(block))
    }
    fn mark_bad(&mut self, block: u32) -> Result<(), FlashError> {
        self.change(|flash| flash.mark_bad(block))
    }
    fn sync(&mut self) -> Result<(), FlashError> {
        self.change(|flash| flash.sync())
    }
}

/// The contents of a chip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Nothing,
    Ubi,
    Other,
}

fn look_at(flash: &dyn Flash) -> Result<Found, FlashError> {
    let geometry = *flash.geometry();
    let mut found = Found::Nothing;
    let mut start = [0; 64];
    for block in 0..geometry.blocks() {
        if flash.is_bad(block)? {
            continue;
        }
        match flash.read(geometry.block_start(block), &mut start) {
            Ok(_) if start.starts_with(b"UBI#") => return Ok(Found::Ubi),
            Ok(_) if start.iter().all(|&byte| byte == 0xFF) => {}
            Ok(_) | Err(FlashError::Uncorrectable { .. }) => found = Found::Other,
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

impl ChipTarget {
    fn chip(&self) -> Result<AnyChip, WritableError> {
        match &self.part {
            Part::Nor(profile) => {
                let chip = NorChip::new(profile.clone(), self.seed);
                Ok(AnyChip::Nor(Box::new(chip)))
            }
            Part::Nand(profile) => {
                let config = Config {
                    seed: self.seed,
                    factory_bad: self.factory_bad,
                    wears: self.wears,
                    corrects: false,
                    ..Config::default()
                };
                let chip = match &self.image {
                    None => NandChip::new(profile.clone(), config),
                    Some(path) => {
                        if path.exists() {
                            // Waits for a mount that is about to end.
                            drop(Exclusive::of(path)?);
                        }
                        NandChip::in_file(path, true, profile.clone(), config).map_err(format)?
                    }
                };
                let (kind, erase_size) = {
                    let geometry = chip.geometry();
                    (geometry.kind, geometry.erase_size)
                };
                let pages = page_format(profile, self.strength).map_err(format)?;
                Ok(AnyChip::Nand(Box::new(Nand::over(chip, pages, kind, erase_size)?)))
            }
        }
    }

    /// Opens the file system on the chip for modification, after creating it if the chip is erased.
    /// `volume` is the name or number of a UBI volume, if there are several.
    ///
    /// # Errors
    /// The file behind it cannot be used, or its contents are not a file system.
    pub fn open(&self, volume: Option<&str>) -> Result<OnChip, WritableError> {
        let lost_power = Arc::<AtomicBool>::default();
        let busy = self.takes_time.then(|| Mutex::new(Instant::now()));
        let mut flash = ChipFlash { chip: self.chip()?, busy, lost_power: lost_power.clone() };
        let mut found = look_at(&flash)?;
        if (found, self.new) == (Found::Nothing, NewFileSystem::Ubifs) {
            make_ubifs(Box::new(&mut flash), self.seed)?;
            found = Found::Ubi;
        }
        if let Some(Cut { operation, tear }) = self.cut {
            let power = match &mut flash.chip {
                AnyChip::Nand(nand) => nand.pages_mut().power_mut(),
                AnyChip::Nor(chip) => chip.power_mut(),
            };
            let at = power.operations().saturating_add(operation);
            power.cut_at(at, tear);
        }
        let fs = match found {
            Found::Ubi => open_ubifs(Box::new(flash), volume)?,
            Found::Nothing | Found::Other => {
                let flash: AnyFlash = Box::new(flash);
                Writable::jffs2(Box::new(flash), None, None)?
            }
        };
        Ok(OnChip { fs, lost_power })
    }
}

fn make_ubifs(flash: AnyFlash, seed: u64) -> Result<(), WritableError> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let seconds = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    let now = Timestamp { seconds, nanoseconds: now.subsec_nanos() };
    let write_size = flash.geometry().write_size;
    let options = FormatOptions::new(seed as u32);
    let device = UbiDevice::format(flash, &options, &DeviceOptions::default());
    let mut device = device.map_err(format)?;
    let lebs = device.account().available;
    let id = device.create(&NewVolume::dynamic(VOLUME, lebs)).map_err(format)?;
    let mut volume = device.into_volume(id).map_err(format)?;
    let options = CreateOptions::new(write_size, volume.device().leb_size(), lebs);
    let root = NewInode::directory(now);
    flysch_ubifs::create::format(&mut volume, &options, &root).map_err(format)?;
    volume.into_device().detach().map(drop).map_err(format)
}

fn open_ubifs(flash: AnyFlash<'static>, wanted: Option<&str>) -> Result<Writable, WritableError> {
    let device = UbiDevice::attach(flash, &DeviceOptions::default()).map_err(format)?;
    let names: Vec<(u32, String)> = device
        .volumes()
        .map(|volume| (volume.id, String::from_utf8_lossy(&volume.name).into_owned()))
        .collect();
    let is_wanted = |(id, name): &&(u32, String)| {
        wanted.is_none_or(|wanted| wanted == name || wanted == id.to_string())
    };
    let chosen: Vec<_> = names.iter().filter(is_wanted).collect();
    let [(id, _)] = chosen[..] else {
        let names: Vec<&str> = names.iter().map(|(_, name)| &name[..]).collect();
        let there = names.join(", ");
        return Err(format(format_args!("name one volume with --volume; there are: {there}")));
    };
    let volume = device.into_volume(*id).map_err(format)?;
    Writable::ubifs(Box::new(volume), None, None)
}
