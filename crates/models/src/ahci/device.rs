//! A device: what it is, what it has been told, where its data is.

use flysch_wire::ata::identify::{
    additional, capability, padded, sanitize, sata, sata_feature, sata_more, sector, set82, set83,
    set84, set119,
};
use flysch_wire::ata::log::NcqError;
use flysch_wire::ata::{D2h, Identify, Kind, dsm};

use super::backend::Backend;
use super::config::{Attached, DiskConfig};
use super::link::Link;
use super::list::Seat;
use super::microcode::{Microcode, Reach};
use super::packet::Tray;
use super::port::READY;
use super::profile::{Profile, SATA_SSD, level};
use super::security::Security;
use super::smart::Smart;
use crate::media::cache::{Cache, Units};
use crate::store::Store;

/// How long a link that may sleep by itself is idle before it does, nanoseconds (assumed).
pub(super) const IDLE_NS: u64 = 1_000_000;
/// Bytes of a sector of a disc.
pub(super) const DISC_SECTOR: u32 = 2048;
/// Ultra DMA modes 0 to 6.
const UDMA: u16 = 0x7F;
/// ACS-2 to ACS-4.
const VERSIONS: [u16; 2] = [0x0E00, 0];

/// Where a device stands with power.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum PowerMode {
    #[default]
    Active,
    Idle,
    Standby,
    /// Only a reset wakes it.
    Sleep,
}

/// What has been counted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Health {
    pub(super) read_sectors: u64,
    pub(super) written_sectors: u64,
    pub(super) uncorrectable: u64,
    pub(super) power_cycles: u64,
    pub(super) unsafe_losses: u64,
    pub(super) crc_errors: u64,
    pub(super) reads: u64,
    pub(super) writes: u64,
    /// COMRESETs and soft resets.
    pub(super) resets: u64,
}

/// A sanitize operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sanitize {
    pub(super) is_under_way: bool,
    pub(super) is_done: bool,
    pub(super) is_frozen: bool,
    /// Names the one under way.
    pub(super) number: u32,
    pub(super) start: u64,
    pub(super) end: u64,
    /// What everything reads as afterwards.
    pub(super) fill: [u8; 4],
}

/// Where a device is: its port, and its port of a multiplier there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Home {
    pub(super) port: u8,
    /// `None` at the port itself.
    pub(super) fan: Option<u8>,
}

/// A device.
#[derive(Debug)]
pub(super) struct Device {
    pub(super) home: Home,
    pub(super) store: Store,
    pub(super) size: u64,
    /// log2 of the bytes of a sector.
    pub(super) shift: u32,
    pub(super) backend: Backend,
    pub(super) cache: Cache,
    profile: Profile,
    identify: Identify,
    /// The queued command that failed, until the log is read or the link is reset.
    pub(super) ncq_error: Option<NcqError>,
    pub(super) write_cache: bool,
    pub(super) look_ahead: bool,
    pub(super) dipm: bool,
    /// The Ultra DMA mode that was chosen.
    pub(super) udma: Option<u8>,
    /// Speed of the link, 0 while there is none.
    speed: u8,
    /// Device sleep is on.
    pub(super) sleeps: bool,
    pub(super) smart: Smart,
    pub(super) microcode: Microcode,
    pub(super) reach: Reach,
    /// The command before the last, and the last.
    pub(super) last: [u8; 2],
    pub(super) power: PowerMode,
    pub(super) security: Security,
    pub(super) sanitize: Sanitize,
    pub(super) health: Health,
    pub(super) wake_ns: [u64; 3],
    pub(super) ready_ns: u64,
    /// It is pulled off the link.
    pub(super) is_detached: bool,
    /// Sense data of the packet command that failed last.
    pub(super) sense: [u8; 3],
    pub(super) tray: Tray,
}

/// Times that power came at the factory.
const CYCLES: u64 = 1;

impl Device {
    pub(super) fn new(attached: Attached, seed: u64, cached: bool) -> Option<Self> {
        match attached {
            // A multiplier has its devices behind it.
            Attached::Nothing | Attached::Multiplier(_) => None,
            Attached::Disk(config) => Some(Self::disk(*config, seed, cached)),
            Attached::Cd(store, size) => Some(Self::disc(store, size, seed)),
        }
    }

    fn disk(config: DiskConfig, seed: u64, cached: bool) -> Self {
        let identify = identify_disk(&config);
        let store = config.store.unwrap_or_else(|| Store::memory(config.size));
        let mut this = Self::with(config.profile, (store, config.size), seed, identify);
        this.shift = config.sector_bytes.trailing_zeros();
        this.cache = Cache::new(cached);
        this.security = Security::new(config.password);
        this
    }

    fn disc(store: Store, size: u64, seed: u64) -> Self {
        let identify = Identify {
            kind: Kind::Packet,
            packet_type: 5,
            serial: padded("FLYSCHDISC0000000001"),
            firmware: padded("1.0"),
            model: padded("FLYSCH DISC"),
            capabilities: capability::DMA | capability::LBA | capability::IORDY,
            versions: VERSIONS,
            sata: sata::GEN1,
            supported: [set82::PACKET, set83::VALID, set84::VALID],
            enabled: [set82::PACKET, 0, set84::VALID],
            udma: UDMA,
            ..Identify::default()
        };
        let profile = Profile { link: Link { generation: 1 }, ..SATA_SSD };
        let mut this = Self::with(profile, (store, size), seed, identify);
        this.shift = DISC_SECTOR.trailing_zeros();
        this.write_cache = false;
        this
    }

    fn with(profile: Profile, (store, size): (Store, u64), seed: u64, identify: Identify) -> Self {
        Self {
            home: Home::default(),
            store,
            size,
            shift: 9,
            backend: Backend::new(profile, seed),
            cache: Cache::new(false),
            profile,
            identify,
            ncq_error: None,
            write_cache: true,
            look_ahead: true,
            dipm: false,
            udma: None,
            speed: 0,
            sleeps: false,
            smart: Smart::default(),
            microcode: Microcode::default(),
            reach: Reach::new(size),
            last: [0; 2],
            power: PowerMode::Active,
            security: Security::default(),
            sanitize: Sanitize::default(),
            health: Health { power_cycles: CYCLES, ..Health::default() },
            wake_ns: profile.wake_ns,
            ready_ns: profile.ready_ns,
            is_detached: false,
            sense: [0; 3],
            tray: Tray::default(),
        }
    }

    pub(super) fn is_packet(&self) -> bool {
        self.identify.kind == Kind::Packet
    }

    pub(super) fn is_there(&self) -> bool {
        !self.is_detached
    }

    /// Sectors that can be reached.
    pub(super) fn sectors(&self) -> u64 {
        self.reach.bytes >> self.shift
    }

    /// Sectors there are.
    pub(super) fn native_sectors(&self) -> u64 {
        self.size >> self.shift
    }

    pub(super) fn queues(&self) -> bool {
        self.identify.has_ncq()
    }

    pub(super) fn has_lba48(&self) -> bool {
        self.identify.has_lba48()
    }

    pub(super) fn queues_trim(&self) -> bool {
        self.identify.sata_more & sata_more::SEND_RECEIVE != 0
    }

    pub(super) fn can_sleep(&self) -> bool {
        self.identify.sata_features & sata_feature::DEVSLEEP != 0
    }

    /// What it sends when it is ready after a reset. ERROR 1: the diagnostics were passed. A packet
    /// device shows no DRDY yet (ACS 11.3).
    pub(super) fn signature_fis(&self) -> D2h {
        let status = if self.is_packet() { 0 } else { READY };
        // SATA 11.2.
        let lba = if self.is_packet() { 0xEB_1401 } else { 1 };
        D2h { interrupt: true, status, error: 1, lba, device: 0, count: 1 }
    }

    /// It is at this place, and has a name that no other device of the HBA has.
    pub(super) fn sits(&mut self, home: Home, seat: Seat) {
        (self.home, self.backend.seat) = (home, seat);
        if self.identify.wwn != 0 {
            self.identify.wwn += u64::from(seat);
        }
    }

    /// Identify data as it is now.
    pub(super) fn identify(&self) -> Identify {
        let mut now = self.identify.clone();
        let on = |word: &mut u16, bit: u16, is: bool| {
            *word = if is { *word | bit } else { *word & !bit };
        };
        on(&mut now.enabled[0], set82::WRITE_CACHE, self.write_cache && !self.is_packet());
        on(&mut now.enabled[0], set82::LOOK_AHEAD, self.look_ahead);
        on(&mut now.enabled[0], set82::SMART, self.smart.is_on && !self.is_packet());
        on(&mut now.sata_enabled, sata_feature::DIPM, self.dipm);
        now.udma |= self.udma.map_or(0, |mode| 1 << (8 + mode));
        now.sata_more |= u16::from(self.speed) << 1;
        on(&mut now.sata_enabled, sata_feature::DEVSLEEP, self.sleeps);
        if !self.is_packet() {
            now.sectors_28 = self.sectors().min((1 << 28) - 1) as u32;
            now.sectors_48 = if self.has_lba48() { self.sectors() } else { 0 };
            now.firmware = self.microcode.running();
            now.security = self.security.word();
            on(&mut now.enabled[0], set82::SECURITY, self.security.is_enabled());
        }
        now
    }

    /// The link came up with at most `most`; tells its speed.
    pub(super) fn link_up(&mut self, most: u8) -> u8 {
        let speed = self.profile.link.generation.min(most);
        self.speed = speed;
        self.backend.media.set_link(Link::times(speed, &self.profile.timing));
        speed
    }

    /// COMRESET, or a soft reset: what was on its way is dropped. Settings stay.
    pub(super) fn link_is_reset(&mut self, now: u64) {
        self.backend.clear();
        self.ncq_error = None;
        self.health.resets += 1;
        self.microcode.start_over();
        self.smart.interrupt(now);
        self.power = PowerMode::Active;
        self.security.is_erase_prepared = false;
    }

    /// A command that needs the medium comes at `now`.
    #[inline]
    pub(super) fn wake(&mut self, now: u64) {
        if self.power != PowerMode::Active {
            self.power = PowerMode::Active;
            self.backend.media.meter_mut().enter(level::ACTIVE, now);
        }
    }

    /// Power came back: settings are those of the factory.
    pub(super) fn power_on(&mut self, now: u64) {
        self.backend.power_on();
        self.link_is_reset(now);
        self.reach.power_on();
        (self.write_cache, self.look_ahead, self.dipm, self.sleeps) =
            (!self.is_packet(), true, false, false);
        self.tray = self.tray.after_power_loss();
        self.sanitize.is_frozen = false;
        self.security.power_on();
        self.health.power_cycles += 1;
    }
}

impl Units for Device {
    fn unit(&mut self, _: u8) -> Option<(&mut Store, bool)> {
        Some((&mut self.store, false))
    }
}

fn identify_disk(config: &DiskConfig) -> Identify {
    let sectors = config.size / u64::from(config.sector_bytes);
    let queues = config.lba48 && config.queue_depth > 0;
    let bit = |on: bool, bits: u16| if on { bits } else { 0 };
    let generation = config.profile.link.generation;
    let set82 = set82::SMART
        | set82::SECURITY
        | set82::WRITE_CACHE
        | set82::LOOK_AHEAD
        | bit(config.lba48, set82::HOST_PROTECTED_AREA);
    let set83 =
        set83::FLUSH | set83::MICROCODE | bit(config.lba48, set83::LBA48 | set83::FLUSH_EXT);
    let set84 = set84::ERROR_LOGGING
        | set84::SELF_TEST
        | set84::WWN
        | bit(config.lba48, set84::LOGS | set84::FUA);
    let set119 = set119::LOG_DMA | set119::MICROCODE_PARTS | bit(config.lba48, set119::MAX_ADDRESS);
    let wide = config.sector_bytes != 512;
    Identify {
        kind: Kind::Disk,
        serial: padded(&config.serial),
        model: padded(&config.model),
        capabilities: capability::DMA
            | capability::LBA
            | capability::IORDY
            | capability::STANDBY_TIMER,
        versions: VERSIONS,
        sectors_28: sectors.min((1 << 28) - 1) as u32,
        additional: additional::DETERMINISTIC_AFTER_TRIM | additional::ZERO_AFTER_TRIM,
        queue_depth: config.queue_depth.max(1),
        sata: sata::GEN1
            | bit(generation > 1, sata::GEN2)
            | bit(generation > 2, sata::GEN3)
            | bit(queues, sata::NCQ)
            | sata::HOST_POWER,
        sata_more: bit(queues && config.queued_trim, sata_more::SEND_RECEIVE),
        sata_features: sata_feature::DIPM | bit(config.device_sleep, sata_feature::DEVSLEEP),
        supported: [set82, set83 | set83::VALID, set84 | set84::VALID],
        enabled: [set82 & !set82::SECURITY, set83, set84 | set84::VALID],
        udma: UDMA,
        sectors_48: if config.lba48 { sectors } else { 0 },
        trim_blocks: 8,
        sector_size: sector::VALID | if wide { sector::LOGICAL } else { sector::PHYSICAL | 3 },
        sector_words: if wide { config.sector_bytes / 2 } else { 0 },
        more: [set119 | set83::VALID; 2],
        wwn: 0x5F1A_5C00_0000_0001,
        sanitize: sanitize::SUPPORTED
            | sanitize::CRYPTO
            | sanitize::BLOCK_ERASE
            | sanitize::OVERWRITE,
        dsm: dsm::TRIM,
        rotation: 1,
        transport: 0x107F,
        microcode_blocks: [1, 8],
        ..Identify::default()
    }
}
