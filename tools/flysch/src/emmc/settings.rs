//! `flysch emmc bootpart`, `bootbus`, `bkops_en`, `bkops`, `hwreset`, `cache`, `gp` and `enh_area`.

use clap::{Subcommand, ValueEnum};
use flysch_emmc::Operation;
use flysch_wire::mmc::{ExtCsd, ext_csd};
use serde_json::json;

use super::Session;
use crate::confirm::Consent;
use crate::failure::Failure;

#[derive(Clone, Copy, Debug, Subcommand)]
pub(super) enum BootPart {
    /// Choose the boot partition.
    Enable {
        /// 1 or 2, 7 for the user area, 0 for none.
        #[arg(value_parser = clap::value_parser!(u8).range(0..=7))]
        partition: u8,
        /// 1: the card acknowledges booting.
        #[arg(value_parser = clap::value_parser!(u8).range(0..=1))]
        send_ack: u8,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(super) enum BootMode {
    SingleBackward,
    SingleHs,
    Dual,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum AfterBoot {
    X1,
    Retain,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum BootWidth {
    X1,
    X4,
    X8,
}

#[derive(Clone, Copy, Debug, Subcommand)]
pub(super) enum BootBus {
    /// Choose timing and bus width of boot.
    Set {
        /// The timing.
        mode: BootMode,
        /// The bus width afterwards: one line, or unchanged.
        after: AfterBoot,
        /// The bus width.
        width: BootWidth,
    },
}

/// Who starts background operations.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Who {
    /// The card itself (eMMC 5.0 and later).
    Auto,
    /// The host: possible only once.
    Manual,
}

#[derive(Clone, Debug, clap::Args)]
pub(super) struct BkopsArguments {
    who: Who,
    #[command(flatten)]
    consent: Consent,
}

#[derive(Clone, Copy, Debug, Subcommand)]
pub(super) enum HardwareReset {
    /// RST_n resets the card, permanently.
    Enable {
        #[command(flatten)]
        consent: Consent,
    },
    /// RST_n has no effect, permanently.
    Disable {
        #[command(flatten)]
        consent: Consent,
    },
}

#[derive(Clone, Copy, Debug, Subcommand)]
pub(super) enum Cache {
    /// Enable the cache.
    Enable,
    /// Flush the cache and disable it.
    Disable,
    /// Flush the cache.
    Flush,
}

#[derive(Clone, Copy, Debug, Subcommand)]
pub(super) enum General {
    /// Create a partition, effective after the next power cycle.
    Create {
        /// Its size, KiB: whole write protect groups.
        #[arg(value_name = "LENGTH-KIB")]
        length: u64,
        /// Its number.
        #[arg(value_parser = clap::value_parser!(u8).range(1..=4))]
        partition: u8,
        /// 1: the partition is enhanced.
        #[arg(value_parser = clap::value_parser!(u8).range(0..=1))]
        enhanced: u8,
        /// Its extended attribute.
        #[arg(value_parser = clap::value_parser!(u8).range(0..=2))]
        extended: u8,
        /// More settings follow: do not complete partitioning yet.
        #[arg(long = "continue", short = 'c')]
        more: bool,
        #[command(flatten)]
        consent: Consent,
    },
}

#[derive(Clone, Copy, Debug, Subcommand)]
pub(super) enum EnhancedArea {
    /// Create the area, effective after the next power cycle.
    Set {
        /// Its start, KiB: a whole write protect group.
        #[arg(value_name = "START-KIB")]
        start: u64,
        /// Its size, KiB: whole write protect groups.
        #[arg(value_name = "LENGTH-KIB")]
        length: u64,
        /// More settings follow: do not complete partitioning yet.
        #[arg(long = "continue", short = 'c')]
        more: bool,
        #[command(flatten)]
        consent: Consent,
    },
}

impl Session<'_> {
    pub(super) fn boot_part(&mut self, verb: &BootPart) -> Result<(), Failure> {
        let BootPart::Enable { partition, send_ack } = *verb;
        let acknowledge = send_ack != 0;
        self.operate(Operation::SelectBoot { partition, acknowledge })?;
        let config = self.ext_csd()?.byte(ext_csd::PARTITION_CONFIG);
        let told = json!({ "PARTITION_CONFIG": config });
        self.done(&told, &format!("[PARTITION_CONFIG: 0x{config:02x}]"))
    }

    pub(super) fn boot_bus(&mut self, verb: &BootBus) -> Result<(), Failure> {
        let BootBus::Set { mode, after, width } = *verb;
        let value = (mode as u8) << 3 | (after as u8) << 2 | width as u8;
        let old = self.ext_csd()?.byte(ext_csd::BOOT_BUS_CONDITIONS);
        self.switch(ext_csd::BOOT_BUS_CONDITIONS, value)?;
        let told = json!({ "BOOT_BUS_CONDITIONS": value });
        self.done(&told, &format!("[BOOT_BUS_CONDITIONS: 0x{old:02x}] -> 0x{value:02x}"))
    }

    pub(super) fn bkops_en(&mut self, arguments: &BkopsArguments) -> Result<(), Failure> {
        let csd = self.ext_csd()?;
        if csd.0[ext_csd::BKOPS_SUPPORT] & 1 == 0 {
            return Err(Failure::failed("the card has no background operations"));
        }
        let bit = match arguments.who {
            Who::Auto if csd.revision() < ext_csd::revision::V5_0 => {
                let why = "the card cannot begin background operations: it is older than eMMC 5.0";
                return Err(Failure::failed(why));
            }
            Who::Auto => 2,
            Who::Manual => {
                let what = "Background operations by hand cannot be switched off again.";
                arguments.consent.ask(what)?;
                1
            }
        };
        let value = csd.byte(ext_csd::BKOPS_EN) | bit;
        self.switch(ext_csd::BKOPS_EN, value)?;
        self.done(&json!({ "BKOPS_EN": value }), &format!("[BKOPS_EN: 0x{value:02x}]"))
    }

    pub(super) fn bkops(&mut self) -> Result<(), Failure> {
        self.operate(Operation::Bkops)?;
        self.done(&json!({ "bkops": "done" }), "background operations are done")
    }

    pub(super) fn hardware_reset(&mut self, verb: &HardwareReset) -> Result<(), Failure> {
        let (value, consent, word) = match verb {
            HardwareReset::Enable { consent } => (1, consent, "enabled"),
            HardwareReset::Disable { consent } => (2, consent, "disabled"),
        };
        let old = self.ext_csd()?.byte(ext_csd::RST_N_FUNCTION) & 3;
        if old != 0 {
            let is = if old == 1 { "enabled" } else { "disabled" };
            return Err(Failure::failed(format!("RST_n is already {is} for ever")));
        }
        consent.ask(&format!("RST_n stays {word} for ever."))?;
        self.switch(ext_csd::RST_N_FUNCTION, value)?;
        self.done(&json!({ "RST_N_FUNCTION": value }), &format!("RST_n is {word} for ever"))
    }

    pub(super) fn cache(&mut self, verb: Cache) -> Result<(), Failure> {
        let (operation, told) = match verb {
            Cache::Enable => (Operation::Cache(true), "the cache is on"),
            Cache::Disable => (Operation::Cache(false), "the cache is empty and off"),
            Cache::Flush => (Operation::Flush, "the cache is empty"),
        };
        self.operate(operation)?;
        let on = self.ext_csd()?.byte(ext_csd::CACHE_CTRL) & 1 != 0;
        self.done(&json!({ "CACHE_CTRL": u8::from(on) }), told)
    }

    pub(super) fn general(&mut self, verb: &General) -> Result<(), Failure> {
        let General::Create { length, partition, enhanced, extended, more, consent } = *verb;
        if enhanced != 0 && extended != 0 {
            let why = "a partition can be enhanced or have an extended attribute, not both";
            return Err(Failure::usage(why));
        }
        let csd = self.unpartitioned(1, "partitions")?;
        let count = groups(&csd, length)?;
        let most = if enhanced != 0 { csd.enhanced_max_sectors() } else { csd.sectors() };
        if count > 0xFF_FFFF || length * 2 > most {
            return Err(Failure::usage(format!("{length} KiB are more than the card has")));
        }
        consent.ask("A partition is for ever, and all data of the card is lost.")?;
        let number = partition - 1;
        self.settings(ext_csd::GP_SIZE + 3 * number, &count.to_le_bytes()[..3])?;
        self.attribute(&csd, 1 << partition, enhanced != 0)?;
        if extended != 0 {
            let (index, shift) = (ext_csd::EXT_PARTITIONS_ATTRIBUTE + number / 2, number % 2 * 4);
            let value = csd.byte(index) & !(0xF << shift) | extended << shift;
            self.switch(index, value)?;
        }
        let then = self.complete(more)?;
        let told = json!({ "partition": partition, "kib": length, "completed": !more });
        self.done(&told, &format!("general purpose partition {partition}, {length} KiB: {then}"))
    }

    pub(super) fn enhanced_area(&mut self, verb: &EnhancedArea) -> Result<(), Failure> {
        let EnhancedArea::Set { start, length, more, consent } = *verb;
        let csd = self.unpartitioned(2, "enhanced areas")?;
        let count = groups(&csd, length)?;
        if start != 0 {
            groups(&csd, start)?;
        }
        let most = csd.enhanced_max_sectors() / 2;
        if length > most {
            let why = format!("{length} KiB are more than the {most} KiB that can be enhanced");
            return Err(Failure::usage(why));
        }
        // Sectors, or bytes where bytes are addressed.
        let sectors = start.saturating_mul(2);
        if sectors >= csd.sectors() {
            return Err(Failure::usage(format!("the card ends before {start} KiB")));
        }
        let place = match self.control.device().sector_addressed {
            true => sectors,
            false => sectors * 512,
        };
        consent.ask("An enhanced area is for ever, and all data of the card is lost.")?;
        self.settings(ext_csd::ENHANCED_START, &place.to_le_bytes()[..4])?;
        self.settings(ext_csd::ENHANCED_SIZE, &count.to_le_bytes()[..3])?;
        self.attribute(&csd, 1, true)?;
        let then = self.complete(more)?;
        let told = json!({ "start_kib": start, "kib": length, "completed": !more });
        self.done(&told, &format!("enhanced area of {length} KiB from {start} KiB on: {then}"))
    }

    /// EXT_CSD of a card that can be partitioned, according to this bit of PARTITIONING_SUPPORT.
    fn unpartitioned(&mut self, bit: u8, what: &str) -> Result<ExtCsd, Failure> {
        let csd = self.ext_csd()?;
        let support = csd.byte(ext_csd::PARTITIONING_SUPPORT);
        if support & 1 == 0 || support & bit == 0 {
            return Err(Failure::failed(format!("the card has no {what}")));
        }
        if csd.byte(ext_csd::PARTITION_SETTING_COMPLETED) != 0 {
            return Err(Failure::failed("the card is already partitioned, for ever"));
        }
        Ok(csd)
    }

    /// Bytes of EXT_CSD from `index` on.
    fn settings(&mut self, index: u8, bytes: &[u8]) -> Result<(), Failure> {
        for (n, &byte) in bytes.iter().enumerate() {
            self.switch(index + n as u8, byte)?;
        }
        Ok(())
    }

    /// A bit of PARTITIONS_ATTRIBUTE.
    fn attribute(&mut self, csd: &ExtCsd, bit: u8, on: bool) -> Result<(), Failure> {
        let old = csd.byte(ext_csd::PARTITIONS_ATTRIBUTE);
        self.switch(ext_csd::PARTITIONS_ATTRIBUTE, if on { old | bit } else { old & !bit })
    }

    /// Completes partitioning, unless more settings follow; reports when it takes effect.
    fn complete(&mut self, more: bool) -> Result<&'static str, Failure> {
        if more {
            return Ok("not in force until a last setting comes without --continue");
        }
        self.switch(ext_csd::PARTITION_SETTING_COMPLETED, 1)?;
        Ok("in force after the next power cycle")
    }
}

/// This many KiB in write protect groups.
fn groups(csd: &ExtCsd, kib: u64) -> Result<u64, Failure> {
    let group = u64::from(csd.write_protect_group_sectors()) / 2;
    if kib == 0 || group == 0 || !kib.is_multiple_of(group) {
        let why = format!("{kib} KiB are not whole write protect groups of {group} KiB");
        return Err(Failure::usage(why));
    }
    Ok(kib / group)
}
