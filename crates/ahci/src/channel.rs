//! The channel: the primitives of which control path procedures are made, and what they work on.
//!
//! Theory. Bring-up, operations and recovery are long sequences full of waiting. They are ordinary
//! functions that a [script](flysch_script) replays over primitives that wait:
//! [`until`](Primitives::until), [`sleep`](Primitives::sleep), [`command`](Channel::command),
//! [`ports_obey`](Channel::ports_obey). Every other effect is guarded by [`first`](Channel::first),
//! or goes through [`read`](Primitives::read) and [`write`](Primitives::write), so that a replay
//! does not repeat it.
//!
//! The channel is the only thing that a replay works on. What procedures find out and decide is the
//! state of other objects - what is attached, which power state the link uses - each with the
//! procedures that need it. These borrow the channel and change their own state inside its
//! primitives.

use crate::error::{AhciError, Cause};
use crate::history::{ErrorKind, ErrorLog};
use crate::layout::PortMemory;
use crate::options::AhciOptions;
use crate::quirks::Quirks;
use crate::shared::Shared;
use alloc::sync::Arc;
use flysch_api::machine::{Instant, Machine, Registers};
use flysch_script::{Answer, AnswerOf, Player, Primitives, Replay, Script, ScriptOf, Wait};
use flysch_wire::ata::fis::{H2D_DWORDS, REGISTER_LENGTH, SRST};
use flysch_wire::ata::list::{ACMD, HEADER, HeaderFlags, PRDT, RECEIVED_LENGTH, RECEIVED_RFIS};
use flysch_wire::ata::multiplier::CONTROL_PORT;
use flysch_wire::ata::registers::{
    Cap, Cap2, Fbs, PX_CI, PX_FBS, PX_IS, PX_SERR, PX_TFD, Tfd, interrupt, status,
};
use flysch_wire::ata::{D2h, H2d, Header, Opcode, Prd};

/// The result of a procedure.
pub(crate) type Run<T> = flysch_script::Run<T, AhciError>;

/// What is being waited for, besides registers and time.
#[derive(Debug)]
pub(crate) enum Action {
    /// A command in the driver's own slot, with the two words its header held before, for a port of
    /// a multiplier.
    Command { opcode: u8, pmp: u8, header: [u64; 2], deadline: Instant },
    /// Every port obeys the standing order.
    Obey,
}

/// One of the driver's own commands.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Own {
    pub(crate) fis: H2d,
    /// Its data: whether it goes to the device, and how many bytes.
    pub(crate) data: Option<(bool, u32)>,
    pub(crate) packet: Option<[u8; 16]>,
    pub(crate) timeout_ms: u32,
}

impl Own {
    /// A command without data.
    pub(crate) fn new(opcode: Opcode, timeout_ms: u32) -> Self {
        let fis = H2d { is_command: true, command: opcode.into_bits(), ..H2d::default() };
        Self { fis, timeout_ms, ..Self::default() }
    }

    /// A command that reads `bytes` bytes.
    pub(crate) fn reading(opcode: Opcode, bytes: u32, timeout_ms: u32) -> Self {
        Self { data: Some((false, bytes)), ..Self::new(opcode, timeout_ms) }
    }
}

/// Bytes of sense data requested.
pub(crate) const SENSE_BYTES: usize = 18;
/// FEATURES of PACKET: data by DMA.
const PACKET_DMA: u16 = 1;

impl Own {
    /// REQUEST SENSE to a packet device.
    pub(crate) fn request_sense(timeout_ms: u32) -> Self {
        let mut packet = [0; 16];
        (packet[0], packet[4]) = (0x03, SENSE_BYTES as u8);
        let mut own = Self::reading(Opcode::Packet, SENSE_BYTES as u32, timeout_ms);
        own.fis.features = PACKET_DMA;
        Self { packet: Some(packet), ..own }
    }
}

/// What is known about the HBA.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HbaFacts {
    pub(crate) cap: Cap,
    pub(crate) cap2: Cap2,
    pub(crate) quirks: Quirks,
}

/// The only channel to a port and what is attached to it, or to the HBA, and the script that runs
/// over it.
#[derive(Debug)]
pub(crate) struct Channel<M: Machine> {
    pub(crate) machine: M,
    pub(crate) shared: Arc<Shared>,
    pub(crate) options: AhciOptions,
    pub(crate) hba: HbaFacts,
    pub(crate) errors: ErrorLog,
    /// Start of the port's registers; 0 for the HBA.
    pub(crate) base: u32,
    pub(crate) memory: PortMemory,
    /// The device that the driver's own commands address: its port of a multiplier.
    pub(crate) unit: u8,
    /// The slot of the driver's own commands.
    pub(crate) slot: usize,
    /// Whether the HBA keeps devices apart (FIS-based switching).
    pub(crate) switches: bool,
    pub(crate) script: ScriptOf<Self>,
}

/// The first pause between two checks, nanoseconds.
const PATIENCE: u32 = 2_000;
const MS: u64 = 1_000_000;
/// How long a control FIS may take, ms.
const CONTROL_MS: u32 = 500;
/// How long SRST is asserted, and how long the device is left alone after it, nanoseconds (ACS
/// requires 5 us and 2 ms; Linux: 1 ms).
const RESET_NS: u64 = MS;

impl<M: Machine> Player for Channel<M> {
    type Reply = D2h;
    type Cause = Cause;
    type Action = Action;

    fn script(&mut self) -> &mut ScriptOf<Self> {
        &mut self.script
    }

    fn registers(&self) -> &impl Registers {
        &self.machine
    }

    fn base(&self) -> u32 {
        self.base
    }

    fn hopeless(&self, _: &'static str, value: u32) -> Option<Cause> {
        (value == u32::MAX).then_some(Cause::Removed)
    }

    fn overdue(name: &'static str, value: u32) -> Cause {
        Cause::Register { name, value }
    }
}

impl<M: Machine> Channel<M> {
    pub(crate) fn new(
        machine: &M,
        shared: &Arc<Shared>,
        base: u32,
        memory: PortMemory,
        (options, hba): (&AhciOptions, HbaFacts),
    ) -> Self {
        Self {
            machine: machine.clone(),
            shared: shared.clone(),
            options: options.clone(),
            hba,
            errors: ErrorLog::default(),
            base,
            memory,
            unit: 0,
            slot: 0,
            switches: false,
            script: Script::new(PATIENCE),
        }
    }

    /// Checks whether an action has ended.
    pub(crate) fn attempt(&mut self, action: &Action) -> Option<AnswerOf<Self>> {
        match *action {
            Action::Command { opcode, pmp, header, deadline } => {
                let answer = self.look_for_answer((opcode, pmp), deadline)?;
                let at = self.slot * HEADER;
                self.memory.list.store64(at, header[0]);
                self.memory.list.store64(at + 8, header[1]);
                Some(answer)
            }
            Action::Obey => {
                if self.shared.orders.all_obey() {
                    return Some(Answer::Value(0));
                }
                self.script.look_again(Instant::NEVER);
                None
            }
        }
    }

    /// Whether one of the driver's own commands has ended, and how.
    fn look_for_answer(
        &mut self,
        (opcode, pmp): (u8, u8),
        deadline: Instant,
    ) -> Option<AnswerOf<Self>> {
        let interrupts = self.machine.read32(self.base + PX_IS);
        if interrupts == u32::MAX {
            return Some(Answer::Failed(Cause::Removed));
        }
        let tfd = Tfd::from_bits(self.machine.read32(self.base + PX_TFD));
        let fatal = interrupt::ERRORS & !interrupt::TFES;
        if interrupts & fatal != 0 {
            return Some(Answer::Failed(Cause::Interface(interrupts)));
        }
        let busy = tfd.status() & (status::BSY | status::DRQ) != 0;
        let issued = self.machine.read32(self.base + PX_CI) >> self.slot & 1 != 0;
        let failed = interrupts & interrupt::TFES != 0;
        if failed || (!issued && !busy) {
            // No FIS follows PIO data; STATUS and ERROR are in the register in any case.
            let fis = self.last_fis(pmp);
            return Some(Answer::Reply(D2h { status: tfd.status(), error: tfd.error(), ..fis }));
        }
        self.fail_at(deadline, Cause::Timeout(Opcode::from_bits(opcode)))
    }

    /// The last D2H register FIS; of one port of a multiplier if the HBA keeps them apart.
    pub(crate) fn last_fis(&self, pmp: u8) -> D2h {
        let part = if self.switches { usize::from(pmp) * RECEIVED_LENGTH } else { 0 };
        let mut bytes = [0; REGISTER_LENGTH];
        self.machine.sync_for_cpu(self.memory.received.span(0, self.memory.received.len()));
        self.memory.received.read(part + RECEIVED_RFIS, &mut bytes);
        D2h::parse(&bytes).unwrap_or_default()
    }

    /// Selects the device, if the HBA keeps devices apart.
    pub(crate) fn name(&self, pmp: u8) {
        if self.switches {
            let fbs = Fbs::new().with_en(true).with_dev(pmp);
            self.machine.write32(self.base + PX_FBS, fbs.into_bits());
        }
    }

    /// Whether the procedure gets here for the first time: what follows has an effect.
    #[track_caller]
    pub(crate) fn first(&mut self) -> bool {
        let mut first = false;
        self.effect(|_| first = true);
        first
    }

    /// Logs what went wrong, without a guard against replays.
    pub(crate) fn log(&mut self, kind: ErrorKind, value: u32) {
        self.errors.note(self.script.now(), kind, value);
    }

    /// Logs what went wrong, only once.
    #[track_caller]
    pub(crate) fn note(&mut self, kind: ErrorKind, value: u32) {
        self.effect(|channel| channel.log(kind, value));
    }

    /// Gives the ports an order, only once.
    #[track_caller]
    pub(crate) fn order(&mut self, flags: u32) {
        self.effect(|channel| channel.shared.orders.publish(flags));
    }

    /// Waits until every port obeys the standing order.
    #[track_caller]
    pub(crate) fn ports_obey(&mut self) -> Wait<()> {
        self.ask(|_| Action::Obey)?;
        Ok(())
    }

    /// Runs one of the driver's own commands to its end, in its slot of a running list; returns the
    /// registers at that time. Its data, if any, is in `own_data`. The device must have no other
    /// command.
    #[track_caller]
    pub(crate) fn command(&mut self, own: Own) -> Wait<Result<D2h, Cause>> {
        Ok(self.ask(|channel| channel.issue(own))?.reply())
    }

    fn issue(&mut self, own: Own) -> Action {
        let PortMemory { list, own_table, own_data, .. } = &self.memory;
        let at = self.slot * HEADER;
        let header = [list.load64(at), list.load64(at + 8)];
        // A command for the multiplier itself says so in its FIS.
        let pmp = if own.fis.pmp == CONTROL_PORT { CONTROL_PORT } else { self.unit };
        let fis = H2d { pmp, ..own.fis };
        for (n, word) in fis.to_words().into_iter().enumerate() {
            own_table.store64(8 * n, word);
        }
        if let Some(packet) = own.packet {
            own_table.write(ACMD, &packet);
        }
        let mut flags = HeaderFlags::new().with_cfl(H2D_DWORDS).with_pmp(pmp);
        flags.set_atapi(own.packet.is_some());
        if let Some((write, bytes)) = own.data {
            let prd = Prd { address: own_data.address(), bytes, interrupt: false }.to_words();
            own_table.store64(PRDT, prd[0]);
            own_table.store64(PRDT + 8, prd[1]);
            flags = flags.with_write(write).with_prdtl(1);
        }
        let words = Header { flags, moved: 0, table: own_table.address() }.to_words();
        list.store64(at, words[0]);
        list.store64(at + 8, words[1]);
        for part in [list, own_table, own_data] {
            self.machine.sync_for_device(part.span(0, part.len()));
        }
        self.machine.write32(self.base + PX_SERR, u32::MAX);
        self.machine.write32(self.base + PX_IS, interrupt::GOOD | interrupt::ERRORS);
        self.name(pmp);
        self.machine.write32(self.base + PX_CI, 1 << self.slot);
        let deadline = self.script.now().after_nanos(u64::from(own.timeout_ms) * MS);
        Action::Command { opcode: own.fis.command, pmp, header, deadline }
    }

    /// Soft reset of the device at a port of a multiplier, or of the multiplier (SATA 11.4; AHCI
    /// 10.4.1), in a running list with no other command. The device is busy afterwards.
    pub(crate) fn soft_reset(&mut self, pmp: u8) -> Wait<Result<(), Cause>> {
        // A waiting command may be using the slot.
        let at = self.slot * HEADER;
        let header = [0, 8].map(|word| self.once(|channel| channel.memory.list.load64(at + word)));
        let mut end = Ok(());
        for asserted in [true, false] {
            self.effect(|channel| channel.send_control(pmp, asserted));
            let bit = 1 << self.slot;
            end = self.until(("PxCI", PX_CI), bit, 0, CONTROL_MS)?.map(drop);
            if end.is_err() {
                break;
            }
            self.sleep(RESET_NS)?;
        }
        self.effect(|channel| {
            channel.memory.list.store64(at, header[0]);
            channel.memory.list.store64(at + 8, header[1]);
        });
        Ok(end)
    }

    /// Sends a control FIS.
    fn send_control(&mut self, pmp: u8, reset: bool) {
        let PortMemory { list, own_table, .. } = &self.memory;
        let fis = H2d { pmp, control: if reset { SRST } else { 0 }, ..H2d::default() };
        for (n, word) in fis.to_words().into_iter().enumerate() {
            own_table.store64(8 * n, word);
        }
        let flags = HeaderFlags::new().with_cfl(H2D_DWORDS).with_pmp(pmp);
        let flags = flags.with_reset(reset).with_clear_busy(reset);
        let words = Header { flags, moved: 0, table: own_table.address() }.to_words();
        let at = self.slot * HEADER;
        list.store64(at, words[0]);
        list.store64(at + 8, words[1]);
        for part in [list, own_table] {
            self.machine.sync_for_device(part.span(0, part.len()));
        }
        self.name(pmp);
        self.machine.write32(self.base + PX_CI, 1 << self.slot);
    }

    /// The first `N` bytes of `own_data`, into which a command has just read.
    pub(crate) fn own_data<const N: usize>(&self) -> [u8; N] {
        self.machine.sync_for_cpu(self.memory.own_data.span(0, N));
        let mut bytes = [0; N];
        self.memory.own_data.read(0, &mut bytes);
        bytes
    }
}
