//! `flysch cam modepage`: the mode pages of a unit, by field and in hexadecimal.

use flysch_api::count::counted;
use flysch_rig::ScsiData;
use flysch_wire::scsi::Cdb;
use flysch_wire::scsi::cdb::{ModeSelect, ModeSense, PageControl};
use flysch_wire::scsi::mode::{ModeHeader, ModeView, PageView};
use serde_json::{Value, json};

use super::Device;
use super::session::{Session, TIMEOUT_MS};
use crate::confirm::{Consent, done};
use crate::failure::Failure;
use crate::number::parse_number;

/// Longest response requested, bytes.
const ANSWER_MAX: u16 = 1024;
/// Every page.
const ALL_PAGES: u8 = 0x3F;

#[derive(Clone, Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    pub(super) device: Device,
    /// The page, with its subpage: `8`, `0x0a,1`.
    #[arg(short = 'm', value_name = "PAGE[,SUBPAGE]", value_parser = page)]
    #[arg(required_unless_present = "list")]
    page: Option<(u8, u8)>,
    /// List the pages.
    #[arg(short = 'l', conflicts_with = "page")]
    list: bool,
    /// Which values: 0 current, 1 changeable, 2 default, 3 saved.
    #[arg(short = 'P', value_name = "CONTROL", default_value = "0")]
    #[arg(value_parser = clap::value_parser!(u8).range(0..=3))]
    control: u8,
    /// Omit block descriptors.
    #[arg(short = 'd')]
    no_descriptors: bool,
    /// Print in hexadecimal even if the fields are known.
    #[arg(short = 'b')]
    binary: bool,
    /// Change a field, such as `WCE=0`; may be repeated.
    #[arg(short = 'e', value_name = "FIELD=VALUE", conflicts_with_all = ["list", "binary"])]
    edit: Vec<String>,
    #[command(flatten)]
    consent: Consent,
}

fn page(text: &str) -> Result<(u8, u8), String> {
    let (page, subpage) = text.split_once(',').unwrap_or((text, "0"));
    let number = |text: &str, max: u64| match parse_number(text) {
        Ok(value) if value <= max => Ok(value as u8),
        _ => Err(format!("`{text}` is not the number of a page: it must be 0 to {max}")),
    };
    Ok((number(page, 0x3E)?, number(subpage, 0xFE)?))
}

/// A field of a page: its name, its first byte, its highest bit there and its width in bits.
type Field = (&'static str, usize, u32, u32);

/// A page by its fields (SPC-6 7.5, SBC-5 6.5), with scsi_modes' names.
struct Page {
    number: u8,
    name: &'static str,
    fields: &'static [Field],
}

const PAGES: [Page; 4] = [
    Page {
        number: 0x01,
        name: "Read-Write Error Recovery Page",
        fields: &[
            ("AWRE (Auto Write Reallocation Enbld)", 2, 7, 1),
            ("ARRE (Auto Read Reallocation Enbld)", 2, 6, 1),
            ("TB (Transfer Block)", 2, 5, 1),
            ("RC (Read Continuous)", 2, 4, 1),
            ("EER (Enable Early Recovery)", 2, 3, 1),
            ("PER (Post Error)", 2, 2, 1),
            ("DTE (Disable Transfer on Error)", 2, 1, 1),
            ("DCR (Disable Correction)", 2, 0, 1),
            ("Read Retry Count", 3, 7, 8),
            ("Write Retry Count", 8, 7, 8),
            ("Recovery Time Limit", 10, 7, 16),
        ],
    },
    Page {
        number: 0x08,
        name: "Caching Page",
        fields: &[
            ("IC", 2, 7, 1),
            ("ABPF", 2, 6, 1),
            ("CAP", 2, 5, 1),
            ("DISC", 2, 4, 1),
            ("SIZE", 2, 3, 1),
            ("WCE", 2, 2, 1),
            ("MF", 2, 1, 1),
            ("RCD", 2, 0, 1),
            ("Demand Retention Priority", 3, 7, 4),
            ("Write Retention Priority", 3, 3, 4),
            ("Disable Pre-fetch Transfer Length", 4, 7, 16),
            ("Minimum Pre-fetch", 6, 7, 16),
            ("Maximum Pre-fetch", 8, 7, 16),
            ("Maximum Pre-fetch Ceiling", 10, 7, 16),
        ],
    },
    Page {
        number: 0x0A,
        name: "Control Mode Page",
        fields: &[
            ("TST", 2, 7, 3),
            ("D_SENSE", 2, 2, 1),
            ("GLTSD", 2, 1, 1),
            ("RLEC", 2, 0, 1),
            ("Queue Algorithm Modifier", 3, 7, 4),
            ("QErr", 3, 2, 2),
            ("SWP", 4, 3, 1),
            ("Busy Timeout Period", 8, 7, 16),
            ("Extended Self-Test Completion Time", 10, 7, 16),
        ],
    },
    Page {
        number: 0x1C,
        name: "Informational Exceptions Control Page",
        fields: &[
            ("PERF", 2, 7, 1),
            ("EBF", 2, 5, 1),
            ("EWASC", 2, 4, 1),
            ("DEXCPT", 2, 3, 1),
            ("TEST", 2, 2, 1),
            ("LogErr", 2, 0, 1),
            ("MRIE", 3, 3, 4),
            ("Interval Timer", 4, 7, 32),
            ("Report Count", 8, 7, 32),
        ],
    },
];

fn known(number: u8) -> Option<&'static Page> {
    PAGES.iter().find(|page| page.number == number)
}

/// The value of a field, if the page is long enough.
fn get(bytes: &[u8], (_, byte, high, bits): Field) -> Option<u64> {
    let length = (bits as usize + 7 - high as usize).div_ceil(8).max(1);
    let bytes = bytes.get(byte..byte + length)?;
    let value = bytes.iter().fold(0_u64, |value, &byte| value << 8 | u64::from(byte));
    let total = 8 * length as u32;
    Some(value >> (total - (7 - high) - bits) & ((1 << bits) - 1))
}

/// Sets a field.
fn set(bytes: &mut [u8], (_, byte, high, bits): Field, value: u64) -> Option<()> {
    for bit in 0..bits {
        // From the highest bit on.
        let at = 7 - high + bit;
        let place = bytes.get_mut(byte + at as usize / 8)?;
        let mask = 0x80 >> (at % 8);
        match value >> (bits - 1 - bit) & 1 {
            0 => *place &= !mask,
            _ => *place |= mask,
        }
    }
    Some(())
}

fn mode_sense(
    session: &mut Session<'_>,
    page: (u8, u8),
    arguments: &Arguments,
) -> Result<Vec<u8>, Failure> {
    let sense = ModeSense {
        page: page.0,
        subpage: page.1,
        control: PageControl::from_bits(arguments.control),
        dbd: arguments.no_descriptors,
        llbaa: false,
        allocation_length: ANSWER_MAX,
    };
    let cdb = Cdb::ModeSense10(sense);
    session.scsi(cdb, ScsiData::In(ANSWER_MAX.into()), TIMEOUT_MS)
}

pub(super) fn modepage(session: &mut Session<'_>, arguments: &Arguments) -> Result<(), Failure> {
    let Some((number, subpage)) = arguments.page else { return list_pages(session, arguments) };
    let answer = mode_sense(session, (number, subpage), arguments)?;
    let view = ModeView::sense_10(&answer).map_err(Failure::failed)?;
    let wanted = |page: &PageView<'_>| {
        page.page.into_bits() == number && page.subpage.unwrap_or(0) == subpage
    };
    let Some(page) = view.pages().find(wanted) else {
        return Err(Failure::failed(format!("{}: it has no such page", session.pass())));
    };
    let bytes = page.bytes.to_vec();
    if !arguments.edit.is_empty() {
        return edit(session, arguments, number, bytes);
    }
    let fields = known(number).filter(|_| subpage == 0 && !arguments.binary);
    if session.output.json() {
        let fields = fields.map_or(&[][..], |page| page.fields);
        let pair = |field: &Field| Some((field.0.to_owned(), get(&bytes, *field)?.into()));
        let map: serde_json::Map<String, Value> = fields.iter().filter_map(pair).collect();
        return session.output.value(&json!({ "page": number, "fields": map, "bytes": bytes }));
    }
    if let Some(page) = fields {
        for field in page.fields {
            if let Some(value) = get(&bytes, *field) {
                session.output.line(format!("{}:  {value}", field.0))?;
            }
        }
        return Ok(());
    }
    for row in bytes.chunks(16) {
        let row: Vec<String> = row.iter().map(|byte| format!("{byte:02x}")).collect();
        session.output.line(row.join(" "))?;
    }
    Ok(())
}

fn list_pages(session: &mut Session<'_>, arguments: &Arguments) -> Result<(), Failure> {
    let answer = mode_sense(session, (ALL_PAGES, 0), arguments)?;
    let view = ModeView::sense_10(&answer).map_err(Failure::failed)?;
    let pages = view.pages().map(|page| (page.page.into_bits(), page.subpage));
    let pages: Vec<_> = pages.collect();
    if session.output.json() {
        let one = |(page, subpage): &(u8, Option<u8>)| {
            let name = known(*page).map(|page| page.name);
            json!({ "page": page, "subpage": subpage, "name": name })
        };
        return session.output.value(&pages.iter().map(one).collect::<Vec<_>>());
    }
    for (page, subpage) in pages {
        let name = known(page).map_or("", |page| page.name);
        match subpage {
            None => session.output.line(format!("{page:#04x}\t{name}"))?,
            Some(subpage) => session.output.line(format!("{page:#04x},{subpage:#04x}\t{name}"))?,
        }
    }
    Ok(())
}

fn edit(
    session: &mut Session<'_>,
    arguments: &Arguments,
    page: u8,
    mut bytes: Vec<u8>,
) -> Result<(), Failure> {
    let fields = known(page).map_or(&[][..], |page| page.fields);
    for change in &arguments.edit {
        let pair = change.split_once('=').and_then(|(name, value)| {
            let by_name = |field: &&Field| {
                let short = field.0.split(" (").next().unwrap_or(field.0);
                field.0.eq_ignore_ascii_case(name) || short.eq_ignore_ascii_case(name)
            };
            Some((*fields.iter().find(by_name)?, parse_number(value).ok()?))
        });
        let wrong = || {
            let names: Vec<&str> = fields.iter().map(|field| field.0).collect();
            let names = if names.is_empty() { "none".into() } else { names.join("; ") };
            Failure::usage(format!("`{change}` is not FIELD=VALUE; fields: {names}"))
        };
        let (field, value) = pair.ok_or_else(wrong)?;
        if value >> field.3 != 0 {
            let bits = counted(field.3, "bit", "bits");
            let line = format!("`{change}`: {} has {bits}", field.0);
            return Err(Failure::usage(line));
        }
        set(&mut bytes, field, value).ok_or_else(wrong)?;
    }
    let pass = session.pass();
    arguments.consent.ask(&format!("{pass}: the unit will work with different parameters."))?;
    // PS is reserved in MODE SELECT, and so is the data length.
    bytes[0] &= 0x7F;
    let mut list = vec![0; ModeHeader::LENGTH_10];
    list.extend(&bytes);
    let length = list.len() as u16;
    let sp = arguments.control == 3;
    let select = ModeSelect { pf: true, sp, parameter_list_length: length };
    session.scsi(Cdb::ModeSelect10(select), ScsiData::Out(list), TIMEOUT_MS)?;
    done(session.output, &json!({ "page": page, "bytes": bytes }), "Mode page changed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_and_set() {
        let mut page = [0x08, 0x12, 0b0000_0101, 0x5A, 0x12, 0x34];
        let field =
            |name: &str| *known(8).unwrap().fields.iter().find(|field| field.0 == name).unwrap();
        assert_eq!(get(&page, field("WCE")), Some(1));
        assert_eq!(get(&page, field("IC")), Some(0));
        assert_eq!(get(&page, field("Write Retention Priority")), Some(0xA));
        assert_eq!(get(&page, field("Demand Retention Priority")), Some(5));
        assert_eq!(get(&page, field("Disable Pre-fetch Transfer Length")), Some(0x1234));
        assert_eq!(get(&page, field("Minimum Pre-fetch")), None, "the page is too short");
        set(&mut page, field("WCE"), 0).unwrap();
        set(&mut page, field("Write Retention Priority"), 3).unwrap();
        set(&mut page, field("Disable Pre-fetch Transfer Length"), 0xFEDC).unwrap();
        assert_eq!(page, [0x08, 0x12, 0b0000_0001, 0x53, 0xFE, 0xDC]);
        assert_eq!(set(&mut page, field("Maximum Pre-fetch"), 1), None);
    }
}
