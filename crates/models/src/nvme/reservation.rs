//! Reservations: which host may do what with a namespace (8.19).
//!
//! There is one controller, so there is one host at a time: it identifies itself by its host
//! identifier (feature 81h), and another one may follow after a reset. A host without an identifier
//! cannot be recognised again: its registrations end with the reset.

use alloc::vec::Vec;

use flysch_wire::nvme::reservation::{
    EXTENDED_HEADER, ExtendedRegistrant, IGNORE_KEY, Registrant, ReservationStatus,
    ReservationType, acquire, register, release,
};
use flysch_wire::nvme::{NvmOpcode, Status};

use super::identify::CONTROLLER;
use super::transfer::Request;

/// Maximum number of registrants of a namespace.
const REGISTRANTS_MAX: usize = 32;

type HostId = [u8; 16];

/// The identity of the host (feature 81h).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HostName {
    pub(super) id: HostId,
    /// Whether it has 128 bits.
    pub(super) is_wide: bool,
}

/// The registrants and the reservation of a namespace.
#[derive(Debug, Default)]
pub(super) struct Reservation {
    registrants: Vec<(HostId, u64)>,
    /// The type and the holder; with the types for all registrants, each of them holds it.
    held: Option<(ReservationType, HostId)>,
    /// Counts changes.
    generation: u32,
    /// Whether it persists through a loss of power.
    persists: bool,
}

impl Reservation {
    /// Whether a command of `host` is allowed.
    #[inline]
    pub(super) fn allows(&self, host: &HostId, opcode: NvmOpcode) -> bool {
        match &self.held {
            None => true,
            Some(held) => self.allows_held(*held, host, opcode),
        }
    }

    fn allows_held(
        &self,
        (kind, holder): (ReservationType, HostId),
        host: &HostId,
        opcode: NvmOpcode,
    ) -> bool {
        let is_read = match opcode {
            NvmOpcode::Read | NvmOpcode::Compare | NvmOpcode::Verify | NvmOpcode::ZoneReceive => {
                true
            }
            NvmOpcode::ReservationRegister
            | NvmOpcode::ReservationReport
            | NvmOpcode::ReservationAcquire
            | NvmOpcode::ReservationRelease => return true,
            _ => false,
        };
        if is_read && !kind.excludes_reads() {
            return true;
        }
        match kind {
            ReservationType::WriteExclusive | ReservationType::ExclusiveAccess => holder == *host,
            _ => self.key_of(host).is_some(),
        }
    }

    fn key_of(&self, host: &HostId) -> Option<u64> {
        self.registrants.iter().find(|(id, _)| id == host).map(|(_, key)| *key)
    }

    fn holds(&self, host: &HostId) -> bool {
        self.held.as_ref().is_some_and(|(kind, holder)| {
            holder == host || kind.is_of_all() && self.key_of(host).is_some()
        })
    }

    /// Removes registrants; a reservation whose holder is gone is released.
    fn forget(&mut self, goes: impl Fn(&HostId, u64) -> bool) {
        self.registrants.retain(|(id, key)| !goes(id, *key));
        if let Some((kind, holder)) = self.held
            && self.key_of(&holder).is_none()
        {
            // Other registrants may remain of an "all registrants" type.
            let next = self.registrants.first().filter(|_| kind.is_of_all());
            self.held = next.map(|(id, _)| (kind, *id));
        }
    }

    /// A controller reset: forgets a host without an identifier.
    pub(super) fn reset(&mut self) {
        if !self.registrants.is_empty() {
            self.forget(|host, _| *host == [0; 16]);
        }
    }

    /// Power is back.
    pub(super) fn power_on(&mut self) {
        if !self.persists {
            (self.registrants, self.held) = (Vec::new(), None);
        }
    }

    /// Carries out a command of `host`.
    pub(super) fn carry_out(
        &mut self,
        request: &Request<'_>,
        host: &HostName,
    ) -> Result<(), Status> {
        let opcode = NvmOpcode::from_bits(request.command.opcode);
        let cdw10 = request.command.cdw10[0];
        if opcode == NvmOpcode::ReservationReport {
            return self.give_report(request, host);
        }
        let mut bytes = [0; 16];
        let keys = if opcode == NvmOpcode::ReservationRelease { 8 } else { 16 };
        request.take(&mut bytes[..keys])?;
        let (pair, _) = bytes.as_chunks::<8>();
        let keys = [u64::from_le_bytes(pair[0]), u64::from_le_bytes(pair[1])];
        match opcode {
            NvmOpcode::ReservationRegister => self.register(host.id, cdw10, keys),
            NvmOpcode::ReservationAcquire => self.acquire(host.id, cdw10, keys),
            _ => self.release(host.id, cdw10, keys[0]),
        }
    }

    fn register(&mut self, host: HostId, cdw10: u32, keys: [u64; 2]) -> Result<(), Status> {
        let [current, new] = keys;
        let registered = self.key_of(&host);
        let known = cdw10 & IGNORE_KEY != 0 || registered == Some(current);
        match cdw10 & 7 {
            register::REGISTER if registered.is_some_and(|key| key != new) => {
                return Err(Status::ReservationConflict);
            }
            register::REGISTER if registered.is_some() => {}
            register::REPLACE if known && registered.is_some() => {
                let of_host = self.registrants.iter_mut().filter(|(id, _)| *id == host);
                of_host.for_each(|(_, key)| *key = new);
            }
            register::REPLACE if !known => return Err(Status::ReservationConflict),
            register::REGISTER | register::REPLACE => {
                if self.registrants.len() >= REGISTRANTS_MAX {
                    return Err(Status::InvalidField);
                }
                self.registrants.push((host, new));
            }
            register::UNREGISTER if known && registered.is_some() => {
                self.forget(|id, _| *id == host);
            }
            register::UNREGISTER => return Err(Status::ReservationConflict),
            _ => return Err(Status::InvalidField),
        }
        match cdw10 >> 30 {
            0 => {}
            2 => self.persists = false,
            3 => self.persists = true,
            _ => return Err(Status::InvalidField),
        }
        self.generation = self.generation.wrapping_add(1);
        Ok(())
    }

    fn acquire(&mut self, host: HostId, cdw10: u32, keys: [u64; 2]) -> Result<(), Status> {
        let [current, preempted] = keys;
        let wanted = reservation_type(cdw10)?;
        let registered = self.key_of(&host).ok_or(Status::ReservationConflict)?;
        if registered != current && cdw10 & IGNORE_KEY == 0 {
            return Err(Status::ReservationConflict);
        }
        match (cdw10 & 7, self.held) {
            (acquire::ACQUIRE, None) => self.held = Some((wanted, host)),
            (acquire::ACQUIRE, Some((kind, _))) if kind == wanted && self.holds(&host) => {}
            (acquire::ACQUIRE, Some(_)) => return Err(Status::ReservationConflict),
            // The commands of the other host ended with it: there is one controller.
            (acquire::PREEMPT | acquire::PREEMPT_AND_ABORT, held) => {
                self.preempt((host, wanted), held, preempted)?;
            }
            _ => return Err(Status::InvalidField),
        }
        Ok(())
    }

    fn preempt(
        &mut self,
        (host, wanted): (HostId, ReservationType),
        held: Option<(ReservationType, HostId)>,
        preempted: u64,
    ) -> Result<(), Status> {
        let takes = match held {
            Some((kind, _)) if kind.is_of_all() => preempted == 0,
            Some((_, holder)) => self.key_of(&holder) == Some(preempted),
            None => false,
        };
        let of_all = held.is_some_and(|(kind, _)| kind.is_of_all()) && preempted == 0;
        let goes = |id: &HostId, key: u64| *id != host && (of_all || key == preempted);
        let any = self.registrants.iter().any(|(id, key)| goes(id, *key));
        if !any && !takes {
            return Err(Status::ReservationConflict);
        }
        if takes {
            self.held = Some((wanted, host));
        }
        self.forget(goes);
        self.generation = self.generation.wrapping_add(1);
        Ok(())
    }

    fn release(&mut self, host: HostId, cdw10: u32, current: u64) -> Result<(), Status> {
        let registered = self.key_of(&host).ok_or(Status::ReservationConflict)?;
        if registered != current && cdw10 & IGNORE_KEY == 0 {
            return Err(Status::ReservationConflict);
        }
        match cdw10 & 7 {
            release::RELEASE => match self.held {
                Some((kind, _)) if self.holds(&host) => {
                    if reservation_type(cdw10)? != kind {
                        return Err(Status::InvalidField);
                    }
                    self.held = None;
                }
                _ => {}
            },
            release::CLEAR => {
                (self.registrants, self.held) = (Vec::new(), None);
                self.generation = self.generation.wrapping_add(1);
            }
            _ => return Err(Status::InvalidField),
        }
        Ok(())
    }

    fn give_report(&self, request: &Request<'_>, host: &HostName) -> Result<(), Status> {
        let [cdw10, cdw11, ..] = request.command.cdw10;
        let extended = cdw11 & 1 != 0;
        // The short data structure has no room for a wide identifier.
        if host.is_wide && !extended {
            return Err(Status::HostIdFormat);
        }
        let wanted = (u64::from(cdw10) + 1) * 4;
        let mut data = self.report(extended);
        let most = wanted.min(request.longest.into()) as usize;
        data.truncate(most);
        data.resize(most.min(data.len().next_multiple_of(4096)), 0);
        request.give(&data)
    }

    /// The report: the registrants, and who holds what.
    fn report(&self, extended: bool) -> Vec<u8> {
        let rtype = self.held.map_or(0, |(kind, _)| kind.into_bits());
        let status = ReservationStatus {
            generation: self.generation,
            rtype,
            regctl: self.registrants.len() as u16,
            ptpls: self.persists.into(),
        };
        let mut data = status.to_bytes().to_vec();
        if extended {
            data.resize(EXTENDED_HEADER, 0);
        }
        for (host, key) in &self.registrants {
            let rcsts = u8::from(self.holds(host));
            let (cntlid, rkey) = (CONTROLLER, *key);
            if extended {
                let hostid = *host;
                data.extend(ExtendedRegistrant { cntlid, rcsts, rkey, hostid }.to_bytes());
            } else {
                let [a, b, c, d, e, f, g, h, ..] = *host;
                let hostid = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
                data.extend(Registrant { cntlid, rcsts, hostid, rkey }.to_bytes());
            }
        }
        data
    }
}

/// The reservation type in CDW10 (RTYPE).
fn reservation_type(cdw10: u32) -> Result<ReservationType, Status> {
    match ReservationType::from_bits((cdw10 >> 8) as u8) {
        ReservationType::Unknown(_) => Err(Status::InvalidField),
        known => Ok(known),
    }
}
