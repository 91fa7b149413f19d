//! Commands to `/dev/ublk-control`.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use io_uring::types::Fd;
use io_uring::{IoUring, cqueue, opcode, squeue};

use crate::error::UblkError;
use crate::uapi::{self, Command, Info, Parameters, command};

const CONTROL: &str = "/dev/ublk-control";

/// Numbers of commands in the ring: the one that is waited for, and those that are not.
const CALL: u64 = 0;
const START: u64 = 1;
const STOP: u64 = 2;

/// The driver.
pub struct Control {
    file: File,
    /// The kernel passes these commands to its own workers, so the submitter does not wait.
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
    /// Results of [`start`](Self::start) and [`stop`](Self::stop), once they are there.
    started: Option<i32>,
    stopped: Option<i32>,
}

impl core::fmt::Debug for Control {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Control").field("file", &self.file).finish_non_exhaustive()
    }
}

/// The kernel's result, as an error if it is one.
pub(crate) fn answer(result: i32) -> io::Result<i32> {
    if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(result) }
}

impl Control {
    /// Opens the driver.
    ///
    /// # Errors
    /// [`UblkError::NoDriver`], [`UblkError::Forbidden`], [`UblkError::TooOld`],
    /// [`UblkError::NoRing`].
    pub fn open() -> Result<Self, UblkError> {
        let file = File::options().read(true).write(true).open(CONTROL);
        let file = file.map_err(|cause| match cause.kind() {
            io::ErrorKind::PermissionDenied => UblkError::Forbidden(cause),
            _ => UblkError::NoDriver(cause),
        })?;
        let ring = IoUring::<squeue::Entry128, cqueue::Entry>::builder().build(4);
        let ring = ring.map_err(UblkError::NoRing)?;
        let mut control = Self { file, ring, started: None, stopped: None };
        let mut features = 0_u64;
        let address = &raw mut features;
        let ask = Command { address: address.addr() as u64, length: 8, ..Command::default() };
        // SAFETY: the kernel writes the eight bytes that the command says, before this returns.
        unsafe { control.call(command::GET_FEATURES, ask) }.map_err(|cause| {
            match cause.kind() {
                io::ErrorKind::PermissionDenied => UblkError::Forbidden(cause),
                _ => UblkError::TooOld(cause),
            }
        })?;
        if features & uapi::CMD_IOCTL_ENCODE == 0 {
            return Err(UblkError::TooOld(io::ErrorKind::Unsupported.into()));
        }
        Ok(control)
    }

    /// What becomes readable when a command ends.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring owns its descriptor and is borrowed as long.
        unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }
    }

    /// Puts a command into the ring and shows it to the kernel.
    ///
    /// # Safety
    /// The data at the command's address must have its length, and live until the command ends.
    unsafe fn submit(&mut self, number: u32, command: Command, name: u64) -> io::Result<()> {
        let entry = opcode::UringCmd80::new(Fd(self.file.as_raw_fd()), number);
        let entry = entry.cmd(Command { queue: u16::MAX, ..command }.bytes()).build();
        // SAFETY: the caller answers for what the command names.
        let pushed = unsafe { self.ring.submission().push(&entry.user_data(name)) };
        // No cause: the queue is full, and that is what is said.
        pushed.map_err(|_| io::ErrorKind::ResourceBusy)?;
        while let Err(cause) = self.ring.submit() {
            if cause.kind() != io::ErrorKind::Interrupted {
                return Err(cause);
            }
        }
        Ok(())
    }

    /// Takes completed commands; returns the result of the one that is waited for.
    fn take(&mut self) -> Option<i32> {
        let mut result = None;
        for entry in self.ring.completion() {
            match entry.user_data() {
                START => self.started = Some(entry.result()),
                STOP => self.stopped = Some(entry.result()),
                _ => result = Some(entry.result()),
            }
        }
        result
    }

    /// Executes a command.
    ///
    /// # Safety
    /// The data at the command's address must have its length.
    unsafe fn call(&mut self, number: u32, command: Command) -> io::Result<i32> {
        // SAFETY: it ends before this returns, or the kernel is broken and so is the ring.
        unsafe { self.submit(number, command, CALL) }?;
        loop {
            if let Some(result) = self.take() {
                return answer(result);
            }
            match self.ring.submit_and_wait(1) {
                Err(cause) if cause.kind() != io::ErrorKind::Interrupted => {
                    // The kernel may still write where the command says: nothing can go on.
                    panic!("io_uring does not wait: {cause}");
                }
                _ => {}
            }
        }
    }

    /// A command for a device, without data.
    pub(crate) fn order(&mut self, number: u32, device: u32) -> io::Result<i32> {
        // SAFETY: it names no memory.
        unsafe { self.call(number, Command { device, ..Command::default() }) }
    }

    /// A command for a device with its description, which the command may change.
    pub(crate) fn info(&mut self, number: u32, device: u32, info: &mut Info) -> io::Result<()> {
        let address = (&raw mut *info).addr() as u64;
        let length = size_of::<Info>() as u16;
        // SAFETY: the description lives longer than the call, and is of integers alone.
        let done =
            unsafe { self.call(number, Command { device, address, length, ..Command::default() }) };
        done.map(drop)
    }

    /// A command for a device with its parameters, which the command may change.
    pub(crate) fn parameters(
        &mut self,
        number: u32,
        device: u32,
        parameters: &mut Parameters,
    ) -> io::Result<()> {
        let address = (&raw mut *parameters).addr() as u64;
        let length = uapi::PARAMETERS as u16;
        // SAFETY: the parameters live longer than the call, and are of integers alone.
        let done =
            unsafe { self.call(number, Command { device, address, length, ..Command::default() }) };
        done.map(drop)
    }

    /// Starts a device, or takes it over. This ends when all tags wait for requests and the disk's
    /// partitions have been read, which the server has to serve meanwhile.
    pub(crate) fn start(&mut self, number: u32, device: u32) -> io::Result<()> {
        let data = u64::from(std::process::id());
        // SAFETY: it names no memory.
        unsafe { self.submit(number, Command { device, data, ..Command::default() }, START) }
    }

    /// Stops a device. This ends when the kernel's cache has been written back to the disk and its
    /// last request has been answered.
    pub(crate) fn stop(&mut self, device: u32) -> io::Result<()> {
        self.stopped = None;
        // SAFETY: it names no memory.
        unsafe { self.submit(command::STOP_DEV, Command { device, ..Command::default() }, STOP) }
    }

    /// The result of the start, returned once.
    pub(crate) fn take_started(&mut self) -> Option<i32> {
        self.take();
        self.started.take()
    }

    /// Whether the device has stopped.
    pub(crate) fn has_stopped(&mut self) -> bool {
        self.take();
        self.stopped.is_some()
    }

    /// Waits until the device has stopped, for a limited time.
    pub(crate) fn wait(&mut self) {
        use rustix::event::{PollFd, PollFlags, Timespec};
        let moment = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
        let _ = rustix::event::poll(
            &mut [PollFd::from_borrowed_fd(self.descriptor(), PollFlags::IN)],
            Some(&moment),
        );
    }
}
