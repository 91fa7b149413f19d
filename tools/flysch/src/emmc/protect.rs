//! `flysch emmc writeprotect`.

use clap::{Subcommand, ValueEnum};
use flysch_emmc::{CardKind, Operation, Output as Answer};
use flysch_wire::mmc::ext_csd;
use serde_json::json;

use super::Session;
use crate::failure::Failure;
use crate::number::parse_number;

#[derive(Clone, Debug, Subcommand)]
pub(super) enum Verb {
    /// The boot partitions.
    #[command(subcommand)]
    Boot(Boot),
    /// The user area.
    #[command(subcommand)]
    User(User),
}

#[derive(Clone, Debug, Subcommand)]
pub(super) enum Boot {
    /// Show how they are protected.
    Get,
    /// Protect them until the next power cycle.
    Set {
        /// Only one of them: 0 or 1.
        #[arg(value_parser = clap::value_parser!(u8).range(0..=1))]
        number: Option<u8>,
    },
}

/// How long the protection stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Type {
    /// Remove the protection.
    None,
    /// Until it is removed.
    Temp,
    /// Until the next power cycle.
    Pwron,
}

#[derive(Clone, Debug, Subcommand)]
pub(super) enum User {
    /// Show what is protected.
    Get,
    /// Protect or unprotect a range of whole write protect groups.
    Set {
        /// The kind of protection.
        kind: Type,
        /// First sector.
        #[arg(value_parser = parse_number)]
        start: u64,
        /// Number of sectors.
        #[arg(value_parser = parse_number)]
        blocks: u64,
    },
}

/// BOOT_WP: until the next power cycle; which partition, if only one; that it is only one.
const BOOT_POWER: u8 = 1;
const BOOT_SECOND: u8 = 1 << 1;
const BOOT_ONE: u8 = 1 << 7;
/// USER_WP: CMD28 protects until the next power cycle.
const USER_POWER: u8 = 1;
/// Groups reported by one CMD30.
const GROUPS: u64 = 32;

impl Session<'_> {
    pub(super) fn write_protect(&mut self, verb: &Verb) -> Result<(), Failure> {
        match verb {
            Verb::Boot(Boot::Get) => self.boot_protection(),
            Verb::Boot(Boot::Set { number }) => {
                let which = match number {
                    None => 0,
                    Some(0) => BOOT_ONE,
                    Some(_) => BOOT_ONE | BOOT_SECOND,
                };
                let old = self.ext_csd()?.byte(ext_csd::BOOT_WP);
                self.switch(ext_csd::BOOT_WP, old & !BOOT_SECOND | which | BOOT_POWER)?;
                self.boot_protection()
            }
            Verb::User(User::Get) => self.user_protection(),
            Verb::User(User::Set { kind, start, blocks }) => {
                self.protect_user(*kind, (*start, *blocks))
            }
        }
    }

    fn boot_protection(&mut self) -> Result<(), Failure> {
        let csd = self.ext_csd()?;
        let (set, status) = (csd.byte(ext_csd::BOOT_WP), csd.byte(ext_csd::BOOT_WP_STATUS));
        if self.output.json() {
            return self.output.value(&json!({ "BOOT_WP": set, "BOOT_WP_STATUS": status }));
        }
        self.output.line(format!("[BOOT_WP_STATUS]: 0x{status:02x}"))?;
        self.output.line(format!("[BOOT_WP]: 0x{set:02x}"))?;
        for (n, shift) in [(0, 0), (1, 2)] {
            let words = match status >> shift & 3 {
                0 => "not protected",
                1 => "protected until power goes",
                2 => "protected for ever",
                _ => "reserved",
            };
            self.output.line(format!(" boot partition {n}: {words}"))?;
        }
        Ok(())
    }

    /// Sectors of a write protect group, and of the user area.
    fn groups(&mut self) -> Result<(u64, u64), Failure> {
        let device = self.control.device();
        if device.kind == CardKind::Sd {
            return Err(Failure::failed("only eMMC devices have write protection of groups"));
        }
        let (sectors, group) = (device.sectors, device.ext_csd.write_protect_group_sectors());
        match group {
            0 => Err(Failure::failed("the card has no write protect groups")),
            group => Ok((group.into(), sectors)),
        }
    }

    fn user_protection(&mut self) -> Result<(), Failure> {
        let (group, sectors) = self.groups()?;
        let count = sectors.div_ceil(group);
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for first in (0..count).step_by(GROUPS as usize) {
            let sector = (first * group) as u32;
            let Answer::Protection(bits) = self.operate(Operation::Protection { sector })? else {
                return Err(Failure::failed("the driver did not answer with the protection"));
            };
            for n in (first..count.min(first + GROUPS)).filter(|n| bits >> (n - first) & 1 != 0) {
                match ranges.last_mut() {
                    Some((_, last)) if *last + 1 == n => *last = n,
                    _ => ranges.push((n, n)),
                }
            }
        }
        if self.output.json() {
            let one = |(first, last): &(u64, u64)| {
                let blocks = (last + 1 - first) * group;
                json!({ "start": first * group, "blocks": blocks })
            };
            let protected: Vec<_> = ranges.iter().map(one).collect();
            return self.output.value(&json!({ "group_blocks": group, "protected": protected }));
        }
        let bytes = group * 512;
        self.output.line(format!("Write Protect Group size in blocks/bytes: {group}/{bytes}"))?;
        for (first, last) in &ranges {
            let blocks = format!("Blocks {}-{}", first * group, (last + 1) * group - 1);
            self.output
                .line(format!("Write Protect Groups {first}-{last} ({blocks}), protected"))?;
        }
        match ranges.is_empty() {
            true => self.output.line("nothing is protected"),
            false => Ok(()),
        }
    }

    fn protect_user(&mut self, kind: Type, (start, blocks): (u64, u64)) -> Result<(), Failure> {
        let (group, sectors) = self.groups()?;
        let whole = start.is_multiple_of(group) && blocks.is_multiple_of(group) && blocks != 0;
        if !whole {
            let why =
                format!("start and blocks must be multiples of the write protect group, {group}");
            return Err(Failure::usage(why));
        }
        let end = start.checked_add(blocks).filter(|&end| end <= sectors);
        let Some(end) = end else {
            return Err(Failure::usage(format!("the user area ends at sector {sectors}")));
        };
        let old = self.ext_csd()?.byte(ext_csd::USER_WP);
        if kind == Type::Pwron {
            self.switch(ext_csd::USER_WP, old | USER_POWER)?;
        }
        let on = kind != Type::None;
        for sector in (start..end).step_by(group as usize) {
            self.operate(Operation::Protect { sector: sector as u32, on })?;
        }
        if kind == Type::Pwron {
            self.switch(ext_csd::USER_WP, old)?;
        }
        self.user_protection()
    }
}
