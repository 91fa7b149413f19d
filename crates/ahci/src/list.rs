//! The command list of a port: running and stopping it, and what the driver's own commands in it
//! have in common.

use crate::channel::{Channel, Own, Run};
use crate::error::Cause;
use flysch_api::machine::Machine;
use flysch_script::{Primitives, Replay};
use flysch_wire::ata::log;
use flysch_wire::ata::registers::{
    PX_CMD, PX_IS, PX_SERR, PX_SSTS, PX_TFD, PortCmd, Ssts, Tfd, det, status,
};
use flysch_wire::ata::{D2h, H2d, Opcode, SECTOR};

impl<M: Machine> Channel<M> {
    /// The PxCMD register.
    pub(crate) fn command_register(&self) -> PortCmd {
        PortCmd::from_bits(self.machine.read32(self.base + PX_CMD))
    }

    /// Changes PxCMD, only once.
    #[track_caller]
    pub(crate) fn change_command(&mut self, change: impl FnOnce(PortCmd) -> PortCmd) {
        self.effect(|channel| {
            let cmd = change(channel.command_register().with_clo(false).with_icc(0));
            channel.machine.write32(channel.base + PX_CMD, cmd.into_bits());
        });
    }

    /// Clears PxCMD.ST and waits for CR to follow: the HBA has then dropped all commands in its
    /// list.
    pub(crate) fn stop_list(&mut self) -> Run<Result<(), Cause>> {
        self.change_command(|cmd| cmd.with_st(false));
        let running = PortCmd::new().with_cr(true).into_bits();
        let timeout = self.options.timeouts.stop_ms;
        let stopped = self.until(("PxCMD", PX_CMD), running, 0, timeout)?;
        Ok(stopped.map(|_| ()))
    }

    /// Clears what the port has reported so far, and starts the list. The device must be ready: if
    /// it is not, the HBA may be able to override that (CLO).
    pub(crate) fn start_list(&mut self) -> Run<Result<(), Cause>> {
        self.write(PX_SERR, u32::MAX);
        self.write(PX_IS, u32::MAX);
        let tfd = Tfd::from_bits(self.read(PX_TFD));
        if tfd.status() & (status::BSY | status::DRQ) != 0 {
            if !self.hba.cap.sclo() {
                return Ok(Err(Cause::Register { name: "PxTFD", value: tfd.into_bits() }));
            }
            self.change_command(|cmd| cmd.with_clo(true));
            let over = PortCmd::new().with_clo(true).into_bits();
            let timeout = self.options.timeouts.stop_ms;
            if let Err(cause) = self.until(("PxCMD", PX_CMD), over, 0, timeout)? {
                return Ok(Err(cause));
            }
        }
        self.change_command(|cmd| cmd.with_st(true));
        Ok(Ok(()))
    }

    /// Whether a device communicates.
    pub(crate) fn is_present(&self) -> bool {
        let ssts = Ssts::from_bits(self.machine.read32(self.base + PX_SSTS));
        ssts.det() == det::READY && ssts.into_bits() != u32::MAX
    }

    /// Clears what the port reported while it had no device.
    pub(crate) fn forget_changes(&mut self) {
        let (machine, base) = (&self.machine, self.base);
        machine.write32(base + PX_SERR, u32::MAX);
        machine.write32(base + PX_IS, u32::MAX);
    }

    /// Gives up the port: its list does not run, and nothing interrupts.
    pub(crate) fn give_up(&mut self) {
        let (machine, base) = (&self.machine, self.base);
        let cmd = self.command_register();
        if cmd.into_bits() != u32::MAX {
            machine.write32(base + PX_CMD, cmd.with_st(false).into_bits());
            machine.write32(base + PX_SERR, u32::MAX);
        }
    }
}

/// The driver's own commands.
impl<M: Machine> Channel<M> {
    /// SET FEATURES.
    pub(crate) fn own_feature(&self, what: u16, count: u16) -> Own {
        let own = Own::new(Opcode::SetFeatures, self.options.timeouts.command_ms);
        Own { fis: H2d { features: what, count, ..own.fis }, ..own }
    }

    /// READ LOG EXT of one page.
    pub(crate) fn own_log(&self, address: u8, page: u16) -> Own {
        let own = Own::reading(Opcode::ReadLogExt, SECTOR as u32, self.options.timeouts.log_ms);
        Own { fis: H2d { lba: log::lba(address, page), count: 1, ..own.fis }, ..own }
    }

    /// Runs one of the driver's own commands, which must succeed.
    pub(crate) fn must(&mut self, own: Own) -> Run<D2h> {
        let fis = self.command(own)??;
        if fis.status & (status::ERR | status::DF) != 0 {
            let opcode = Opcode::from_bits(own.fis.command);
            return Err(Cause::Status { opcode, status: fis.status, error: fis.error }.into());
        }
        Ok(fis)
    }

    /// Runs a command that always succeeds, to clear an error from STATUS.
    pub(crate) fn clear_error(&mut self) -> Run<()> {
        let own = Own::new(Opcode::CheckPowerMode, self.options.timeouts.command_ms);
        self.command(own)??;
        Ok(())
    }
}
