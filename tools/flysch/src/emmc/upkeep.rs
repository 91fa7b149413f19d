//! `flysch emmc sanitize`, `erase` and `ffu`.

use std::path::PathBuf;

use clap::ValueEnum;
use flysch_emmc::{EraseKind, Operation};
use flysch_wire::mmc::ext_csd;
use serde_json::json;

use super::Session;
use crate::confirm::Consent;
use crate::failure::Failure;
use crate::number::parse_number;

/// Largest firmware image that is sent, bytes.
const IMAGE_MAX: u64 = 64 << 20;

#[derive(Clone, Debug, clap::Args)]
pub(super) struct SanitizeArguments {
    #[command(flatten)]
    consent: Consent,
}

/// How to erase sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Type {
    /// Whole erase groups.
    Legacy,
    /// Sectors, whose content is then undefined.
    Discard,
    /// Whole erase groups and all copies of their data.
    SecureErase,
    /// Sectors and all copies of their data.
    SecureTrim,
    /// Sectors.
    Trim,
}

#[derive(Clone, Debug, clap::Args)]
pub(super) struct EraseArguments {
    /// The method.
    kind: Type,
    /// First sector.
    #[arg(value_parser = parse_number)]
    start: u64,
    /// Last sector.
    #[arg(value_parser = parse_number)]
    end: u64,
    #[command(flatten)]
    consent: Consent,
}

#[derive(Clone, Debug, clap::Args)]
pub(super) struct FirmwareArguments {
    /// The maker's image for exactly this card.
    pub(super) image: PathBuf,
    #[command(flatten)]
    consent: Consent,
}

impl Session<'_> {
    pub(super) fn sanitize(&mut self, arguments: &SanitizeArguments) -> Result<(), Failure> {
        let what = "Sanitize removes what was erased or trimmed for ever.";
        arguments.consent.ask(what)?;
        self.operate(Operation::Sanitize)?;
        self.done(&json!({ "sanitize": "done" }), "sanitize is done")
    }

    pub(super) fn erase(&mut self, arguments: &EraseArguments) -> Result<(), Failure> {
        let EraseArguments { kind, start, end, consent } = arguments;
        let number = |n: u64| u32::try_from(n).ok();
        let count = end.checked_sub(*start).map(|sectors| sectors + 1).and_then(number);
        let (Some(first), Some(sectors)) = (number(*start), count) else {
            return Err(Failure::usage(format!("{start} to {end} is not a range of sectors")));
        };
        consent.ask(&format!("Sectors {start} to {end} lose their data."))?;
        let kind = match kind {
            Type::Legacy => EraseKind::Erase,
            Type::Discard => EraseKind::Discard,
            Type::SecureErase => EraseKind::SecureErase,
            Type::SecureTrim => EraseKind::SecureTrim,
            Type::Trim => EraseKind::Trim,
        };
        self.operate(Operation::Erase { kind, first, sectors })?;
        let told = json!({ "start": start, "end": end });
        self.done(&told, &format!("sectors {start} to {end} are erased"))
    }

    pub(super) fn ffu(&mut self, arguments: &FirmwareArguments) -> Result<(), Failure> {
        let path = &arguments.image;
        let failed = |cause: String| Failure::of(path.display(), cause);
        let bytes = std::fs::metadata(path).map_err(|error| failed(error.to_string()))?.len();
        if bytes == 0 || !bytes.is_multiple_of(512) || bytes > IMAGE_MAX {
            let why = format!(
                "{bytes} bytes are not firmware: it must have whole sectors, up to {IMAGE_MAX}"
            );
            return Err(failed(why));
        }
        let image = std::fs::read(path).map_err(|error| failed(error.to_string()))?;
        arguments.consent.ask("Other firmware may keep the card from coming up again.")?;
        let version = |session: &mut Self| -> Result<String, Failure> {
            let at = usize::from(ext_csd::FIRMWARE_VERSION);
            let csd = session.ext_csd()?;
            Ok(csd.0[at..at + 8].iter().map(|byte| format!("{byte:02x}")).collect())
        };
        let old = version(self)?;
        self.operate(Operation::Firmware(image))?;
        let new = version(self)?;
        let told = json!({ "bytes": bytes, "old": old, "new": new });
        self.done(&told, &format!("{bytes} bytes of firmware installed: {old} -> {new}"))
    }
}
