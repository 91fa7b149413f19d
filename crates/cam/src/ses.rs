//! `ses`: enclosures. The elements of an enclosure, their status, which device is in which slot,
//! and where that is: the physical path for which the block layer asks.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt::Write as _;

use flysch_api::command::{Cdb, Command, Direction, Ended, Ordering, Port, Scsi, Token};
use flysch_api::data::Data;
use flysch_api::machine::{Clock, DmaRegion};
use flysch_wire::scsi::luns::LogicalUnitNumber;
use flysch_wire::scsi::ses::{self, Configuration, ElementType, Page, StatusCode, StatusView};

use crate::error::CamError;
use crate::family::{Action, Family};
use crate::run;

/// Scratch memory needed to read an enclosure, bytes: the longest page requested.
pub const SCRATCH_BYTES: usize = PAGE_MAX as usize;
const PAGE_MAX: u16 = 16 << 10;
/// Time limit of one page, milliseconds.
const TIMEOUT_MS: u64 = 10_000;
/// How often a page is requested again after a temporary failure, and all pages after a change of
/// the configuration between two of them.
const TRIES: u32 = 5;
/// Enclosures with more elements than this are not read.
const ELEMENTS_MAX: usize = 4096;

/// An element of an enclosure, or the entry for all elements of a type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Element {
    /// Its type.
    pub kind: ElementType,
    /// Index of the type in the enclosure's list of types.
    pub type_index: usize,
    /// Its number within the type: 0 for the entry for all of them; the first element is 1.
    pub number: usize,
    /// Its four bytes of status.
    pub status: [u8; 4],
    /// Its name.
    pub description: String,
    /// DEVICE SLOT NUMBER, if the enclosure reports it.
    pub slot: Option<u8>,
    /// SAS address of the device in it.
    pub address: Option<u64>,
}

impl Element {
    /// ELEMENT STATUS CODE.
    pub const fn code(&self) -> StatusCode {
        StatusCode::from_bits(self.status[0] & 0xF)
    }

    /// PRDFAIL: it is expected to fail.
    pub const fn will_fail(&self) -> bool {
        self.status[0] & 0x40 != 0
    }

    /// IDENT of a slot: its locate light is on.
    pub const fn is_located(&self) -> bool {
        self.kind.is_slot() && self.status[2] & 0x02 != 0
    }

    /// FAULT REQSTD of a slot: its light indicates a failed device.
    pub const fn is_marked_faulty(&self) -> bool {
        self.kind.is_slot() && self.status[3] & 0x20 != 0
    }

    /// What the status of some types also reports: revolutions per minute, degrees.
    pub fn measured(&self) -> Option<String> {
        let [_, high, low, _] = self.status;
        match self.kind {
            ElementType::Cooling if self.number > 0 => {
                let speed = (u32::from(high & 7) << 8 | u32::from(low)) * 10;
                Some(alloc::format!("Speed: {speed} rpm"))
            }
            ElementType::Temperature if low != 0 => {
                Some(alloc::format!("Temperature: {} C", i32::from(low) - 20))
            }
            _ => None,
        }
    }
}

/// An enclosure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Enclosure {
    /// ENCLOSURE LOGICAL IDENTIFIER.
    pub identifier: u64,
    /// Vendor, product and revision.
    pub name: String,
    /// INVOP 4, INFO 3, NON-CRIT 2, CRIT 1, UNRECOV 0.
    pub status: u8,
    /// Generation code of its configuration.
    pub generation: u32,
    /// Its elements; those of a type follow the entry for all of them.
    pub elements: Vec<Element>,
}

impl Enclosure {
    /// The location of an element, as FreeBSD's `ses` writes it: `id1,enc@n.../type@.../slot@...`.
    pub fn physical_path(&self, element: &Element) -> String {
        let Element { type_index, number, description, .. } = element;
        let identifier = self.identifier;
        let mut path =
            alloc::format!("id1,enc@n{identifier:x}/type@{type_index:x}/slot@{number:x}");
        if !description.is_empty() {
            path.push_str("/elmdesc@");
            let plain = |c: char| if c.is_ascii_graphic() && c != '/' { c } else { '_' };
            path.extend(description.chars().map(plain));
        }
        path
    }

    /// What is wrong with it, in sesutil's words; `OK` if nothing is.
    pub fn condition(&self) -> String {
        let names = [(0, "UNRECOVERABLE"), (1, "CRITICAL"), (2, "NONCRITICAL"), (3, "INFO")];
        let mut words = String::new();
        for (_, name) in names.iter().filter(|(bit, _)| self.status >> bit & 1 != 0) {
            let comma = if words.is_empty() { "" } else { "," };
            let _ = write!(words, "{comma}{name}");
        }
        if words.is_empty() { "OK".to_string() } else { words }
    }
}

/// How pages are read from and written to one unit.
#[derive(Debug)]
pub struct Reader<'a, P, C> {
    /// The port; it carries no other commands.
    pub port: &'a mut P,
    /// Its clock.
    pub clock: &'a C,
    /// Part of the port's memory, [`SCRATCH_BYTES`] long.
    pub scratch: &'a DmaRegion,
    /// The unit.
    pub lun: LogicalUnitNumber,
}

impl<P: Port<Protocol = Scsi>, C: Clock> Reader<'_, P, C> {
    /// Reads the enclosure.
    ///
    /// # Errors
    /// [`CamError::Scratch`]; [`CamError::NotStarted`] and [`CamError::Command`] for a page that
    /// cannot be read, except for names and slots, which an enclosure need not report;
    /// [`CamError::BadAnswer`].
    pub fn read(&mut self) -> Result<Enclosure, CamError> {
        if self.scratch.len() < SCRATCH_BYTES {
            return Err(CamError::Scratch { needed: SCRATCH_BYTES, got: self.scratch.len() });
        }
        for _ in 0..TRIES {
            if let Some(enclosure) = self.read_once()? {
                return Ok(enclosure);
            }
        }
        Err(self.bad("it changes all the time"))
    }

    /// The enclosure, if it did not change between two pages.
    fn read_once(&mut self) -> Result<Option<Enclosure>, CamError> {
        let configuration = self.page(Page::Configuration)?;
        let status = self.page(Page::Status)?;
        let names = self.optional(Page::Descriptor)?;
        let slots = self.optional(Page::Additional)?;
        let configuration = Configuration::parse(&configuration)
            .map_err(|cause| self.unfit("the configuration page is not as it says", cause))?;
        let status = StatusView::parse(&status)
            .map_err(|cause| self.unfit("the status page is not as it says", cause))?;
        if status.generation != configuration.generation {
            return Ok(None);
        }
        let enclosure = &configuration.enclosure;
        let name = [
            enclosure.vendor.to_string(),
            enclosure.product.to_string(),
            enclosure.revision.to_string(),
        ];
        let mut elements = self.elements(&configuration, status.entries())?;
        if let Some(names) = names.as_deref().and_then(|names| ses::descriptors(names).ok()) {
            for (element, text) in elements.iter_mut().zip(names) {
                element.description = printable(text);
            }
        }
        if let Some(slots) = slots.as_deref().and_then(|slots| ses::slots(slots).ok()) {
            // Overall entries have no number here.
            let mut single: Vec<&mut Element> =
                elements.iter_mut().filter(|element| element.number > 0).collect();
            for slot in slots {
                if let Some(element) = single.get_mut(usize::from(slot.element)) {
                    (element.slot, element.address) = (Some(slot.slot), slot.address);
                }
            }
        }
        Ok(Some(Enclosure {
            identifier: enclosure.identifier,
            name: name.join(" "),
            status: status.flags,
            generation: configuration.generation,
            elements,
        }))
    }

    fn elements(
        &self,
        configuration: &Configuration<'_>,
        status: &[[u8; 4]],
    ) -> Result<Vec<Element>, CamError> {
        let mut elements = Vec::new();
        let mut status = status.iter();
        for (type_index, one) in configuration.types().enumerate() {
            for number in 0..=usize::from(one.possible) {
                let short = || self.bad("the status page lacks elements");
                let status = *status.next().ok_or_else(short)?;
                if elements.len() == ELEMENTS_MAX {
                    return Err(self.bad("it has too many elements"));
                }
                let description = if number == 0 { printable(one.text) } else { String::new() };
                let (slot, address) = (None, None);
                let kind = one.element;
                let element =
                    Element { kind, type_index, number, status, description, slot, address };
                elements.push(element);
            }
        }
        Ok(elements)
    }

    /// Switches the locate light and the fault light of a slot. `at` is the element's index in
    /// [`Enclosure::elements`], which must have been read just before.
    ///
    /// # Errors
    /// As [`read`](Self::read); [`CamError::BadAnswer`] for an element that is not a slot.
    pub fn set_lights(
        &mut self,
        enclosure: &Enclosure,
        at: usize,
        locate: bool,
        fault: bool,
    ) -> Result<(), CamError> {
        /// SELECT: this element is to be changed.
        const SELECT: u8 = 0x80;
        if !enclosure.elements.get(at).is_some_and(|element| element.kind.is_slot()) {
            return Err(self.bad("that element is not a slot"));
        }
        let mut page = Vec::new();
        let rest = enclosure.elements.len() * 4;
        let header = ses::header(Page::Status, 0, enclosure.generation, rest)
            .map_err(|cause| self.unfit("it has too many elements", cause))?;
        page.extend(header);
        for (number, element) in enclosure.elements.iter().enumerate() {
            page.extend(match number == at {
                true => [SELECT, 0, u8::from(locate) << 1, u8::from(fault) << 5],
                // What is not selected stays as it is.
                false => [0; 4],
            });
            debug_assert!(number < ELEMENTS_MAX, "{element:?}");
        }
        self.put("SEND DIAGNOSTIC", Page::Status, Some(&page)).map(|_| ())
    }

    fn bad(&self, fault: &'static str) -> CamError {
        let (name, lun) = ("RECEIVE DIAGNOSTIC RESULTS", self.lun);
        CamError::BadAnswer { name, lun, fault, cause: None }
    }

    fn unfit(&self, fault: &'static str, cause: flysch_wire::WireError) -> CamError {
        let (name, lun) = ("RECEIVE DIAGNOSTIC RESULTS", self.lun);
        CamError::BadAnswer { name, lun, fault, cause: Some(cause) }
    }

    /// Reads an optional page.
    fn optional(&mut self, page: Page) -> Result<Option<Vec<u8>>, CamError> {
        match self.page(page) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error @ CamError::NotStarted(..)) => Err(error),
            Err(_) => Ok(None),
        }
    }

    fn page(&mut self, page: Page) -> Result<Vec<u8>, CamError> {
        self.put("RECEIVE DIAGNOSTIC RESULTS", page, None)
    }

    /// Reads a page, or writes it.
    fn put(
        &mut self,
        name: &'static str,
        page: Page,
        write: Option<&[u8]>,
    ) -> Result<Vec<u8>, CamError> {
        let mut cdb = [0; 16];
        let length = write.map_or(SCRATCH_BYTES, <[u8]>::len);
        let [high, low] = (length as u16).to_be_bytes();
        (cdb[3], cdb[4]) = (high, low);
        let direction = match write {
            // PF: the parameter list is a page.
            Some(_) => {
                (cdb[0], cdb[1]) = (ses::SEND_DIAGNOSTIC, 0x10);
                Direction::ToDevice
            }
            // PCV: the page code counts.
            None => {
                (cdb[0], cdb[1], cdb[2]) = (ses::RECEIVE_DIAGNOSTIC_RESULTS, 1, page.into_bits());
                Direction::FromDevice
            }
        };
        let mut tries = 1;
        loop {
            match write {
                Some(bytes) => self.scratch.write(0, bytes),
                None => self.scratch.fill(0, length, 0),
            }
            let command = Command {
                unit: self.lun.to_bits(),
                payload: Cdb(cdb),
                direction,
                data: Data::One(self.scratch.slice(0, length as u32)),
                crypto: None,
                ordering: Ordering::Simple,
                deadline: self.clock.now().after_nanos(TIMEOUT_MS * 1_000_000),
                token: Token::new(tries),
            };
            let ended = run(self.port, self.clock, command)
                .map_err(|why| CamError::NotStarted(name, why))?
                .ended;
            let failure = self.port.failure();
            let residual = if ended == Ended::Good { 0 } else { failure.residual as usize };
            let action = match ended {
                Ended::Good => Action::Succeed,
                ended => Scsi::verdict(ended, &failure, false).action,
            };
            match action {
                Action::Succeed => {
                    let mut bytes = alloc::vec![0; length.saturating_sub(residual)];
                    self.scratch.read(0, &mut bytes);
                    return Ok(bytes);
                }
                Action::Fail | Action::PollReady | Action::Start => {}
                _ if tries < TRIES => {
                    tries += 1;
                    continue;
                }
                _ => {}
            }
            return Err(CamError::command(name, self.lun, ended, &failure));
        }
    }
}

/// Text from a device without padding; unprintable characters become question marks.
fn printable(text: &[u8]) -> String {
    let text = text.trim_ascii();
    let end = text.iter().rposition(|&byte| byte != 0 && byte != b' ').map_or(0, |at| at + 1);
    let plain = |&byte: &u8| if (0x20..0x7F).contains(&byte) { byte as char } else { '?' };
    text[..end].iter().map(plain).collect()
}
