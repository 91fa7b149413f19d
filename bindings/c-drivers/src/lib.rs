//! The UFS and NVMe drivers for C: what `flysch_drivers.h` declares.
//!
//! The crate is a static library for firmware, boot loaders and small systems. It has no state of
//! its own: all state belongs to a controller that [`flysch_ufs_open`] or [`flysch_nvme_open`]
//! brought up through functions written by the caller.
//!
//! | module | what |
//! |---|---|
//! | `error` | errors |
//! | `values` | the structures of the header |
//! | `machine` | the caller's functions as a machine |
//! | `platform` | the board around a UFS controller |
//! | `controller` | a controller, its units, its disks |
//! | `manage` | queries and power of UFS, admin commands of NVMe |
//! | `runtime` | memory and panics where there is no operating system |
//!
//! The header is generated from this crate by cbindgen; a test compares them.
#![no_std]
#![deny(missing_docs)]
// The C names are the contract.
#![allow(clippy::missing_safety_doc)]

extern crate alloc;
#[cfg(not(target_os = "none"))]
extern crate std;

mod controller;
mod error;
mod machine;
mod manage;
mod platform;
#[cfg(target_os = "none")]
mod runtime;
mod values;

use alloc::boxed::Box;
use core::ffi::{c_char, c_void};

pub use controller::Controller;
pub use error::{Error, Status, TEXT_BYTES};
pub use manage::{
    ADMIN_BYTES, Admin, Answer, DESCRIPTOR_BYTES, Link, Power, Query, QueryKind, flysch_nvme_admin,
    flysch_nvme_feature, flysch_nvme_identify, flysch_nvme_log_page, flysch_nvme_set_feature,
    flysch_ufs_link, flysch_ufs_query, flysch_ufs_set_link, flysch_ufs_set_power,
};
pub use values::{
    Board, Clocks, Completion, DmeSetting, Event, NEVER, Operation, Options, Platform, Queue,
    Request, Unit, Wake,
};

use error::Outcome;
use machine::Wired;

/// Writes an error to where the caller wants it.
///
/// # Safety
/// `place` is NULL or may be written.
unsafe fn tell<T>(place: *mut Error, outcome: Outcome<T>) -> Result<T, Status> {
    outcome.map_err(|error| {
        let status = error.status;
        if !place.is_null() {
            // SAFETY: the caller's promise.
            unsafe { place.write(*error) }
        }
        status
    })
}

/// The text for a status; never NULL.
#[unsafe(no_mangle)]
pub extern "C" fn flysch_status_text(status: i32) -> *const c_char {
    let text = match status {
        0 => c"done",
        -1 => c"no room now",
        -2 => {
            c"an argument is invalid: the error's text names it; in a request, an unknown operation"
        }
        -3 => c"not enough memory",
        -4 => c"the controller did not come up",
        -5 => c"no such disk",
        -6 => c"no lane left for another disk",
        -7 => c"the range is not on the device",
        -8 => c"offset or length is not a multiple of the block size",
        -9 => c"the data is not where the controller takes it",
        -10 => c"the device does not support this operation",
        -11 => c"the device is write protected",
        -12 => c"medium error",
        -13 => c"device error",
        -14 => c"no answer from the device in time",
        -15 => c"lost in a device reset",
        -16 => c"host controller error",
        -17 => c"the device is gone",
        _ => c"unknown status",
    };
    text.as_ptr()
}

/// The library's version, as `0.1.0`.
#[unsafe(no_mangle)]
pub extern "C" fn flysch_drivers_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// Options for one disk, 32 commands in flight, with interrupts and transfers of up to 1 MiB.
#[unsafe(no_mangle)]
pub extern "C" fn flysch_default_options() -> Options {
    let queue = Queue::Auto as u8;
    Options { disks: 1, queue, depth: 32, interrupts: true, transfer_max: 1 << 20 }
}

/// Bytes of DMA memory that the driver itself needs with these options, in addition to data. 0 if
/// the options are invalid.
///
/// `options` is NULL for the defaults.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flysch_dma_needed(options: *const Options) -> usize {
    // SAFETY: NULL or a valid pointer, as the header says.
    let options = unsafe { options.as_ref() }.copied().unwrap_or_else(|| flysch_default_options());
    controller::memory_needed(&options).unwrap_or(0)
}

/// Brings up a UFS host controller and the device behind it, and finds its logical units.
///
/// `options` and `platform` may be NULL. Returns NULL on failure; `error`, if it is not NULL, then
/// has the reason. Close the controller with flysch_close.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flysch_ufs_open(
    board: *const Board,
    options: *const Options,
    platform: *const Platform,
    error: *mut Error,
) -> *mut Controller {
    // SAFETY: NULL or a valid pointer, as the header says.
    let platform = unsafe { platform.as_ref() }.copied();
    // SAFETY: the caller's promises, passed on.
    unsafe {
        open(board, options, error, |machine, options| Controller::ufs(machine, options, platform))
    }
}

/// Brings up an NVMe controller and finds its namespaces; otherwise like flysch_ufs_open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flysch_nvme_open(
    board: *const Board,
    options: *const Options,
    error: *mut Error,
) -> *mut Controller {
    // SAFETY: the caller's promises, passed on.
    unsafe { open(board, options, error, Controller::nvme) }
}

/// # Safety
/// The pointers are NULL or valid, and the board is as its fields say.
unsafe fn open(
    board: *const Board,
    options: *const Options,
    error: *mut Error,
    bring_up: impl FnOnce(Wired, &Options) -> Outcome<Controller>,
) -> *mut Controller {
    // SAFETY: NULL or a valid pointer.
    let options = unsafe { options.as_ref() }.copied().unwrap_or_else(|| flysch_default_options());
    // SAFETY: as above.
    let board = unsafe { board.as_ref() }.copied();
    let board = board.ok_or_else(|| Error::new(Status::Argument, "the board is NULL"));
    let opened = board.and_then(|board| {
        // SAFETY: the caller's promise.
        let machine = unsafe { Wired::new(board) }?;
        bring_up(machine, &options)
    });
    // SAFETY: NULL or a valid pointer.
    match unsafe { tell(error, opened) } {
        Ok(controller) => Box::into_raw(Box::new(controller)),
        Err(_) => core::ptr::null_mut(),
    }
}

/// Frees a controller, which may be NULL. It does not stop the controller: see flysch_shutdown. No
/// request may be under way.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flysch_close(controller: *mut Controller) {
    if !controller.is_null() {
        // SAFETY: an open returned it, and it is no longer used, as the header says.
        drop(unsafe { Box::from_raw(controller) });
    }
}

/// Writes up to `room` units to `units`, which may be NULL if `room` is 0; returns how many there
/// are.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flysch_units(
    controller: *const Controller,
    units: *mut Unit,
    room: usize,
) -> usize {
    // SAFETY: a controller of ours, as the header says.
    let all = unsafe { &*controller }.units();
    let count = all.len();
    for (n, unit) in all.take(room).enumerate() {
        // SAFETY: there is room for `room` units.
        unsafe { units.add(n).write(*unit) }
    }
    count
}

/// Makes the unit with this number a disk. Returns the disk's number for requests, counted from 0,
/// or a negative enum flysch_status; `error`, if it is not NULL, then has the reason.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flysch_attach(
    controller: *mut Controller,
    unit: u64,
    error: *mut Error,
) -> i32 {
    // SAFETY: a controller of ours that nobody else uses at the same time, as the header says.
    let attached = unsafe { &mut *controller }.attach(unit);
    // SAFETY: NULL or a valid pointer.
    unsafe { tell(error, attached) }.map_or_else(|status| status as i32, |disk| disk as i32)
}

/// A part of the board's DMA memory for data, aligned to 4096 bytes. NULL if there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flysch_dma_alloc(controller: *mut Controller, len: usize) -> *mut c_void {
    // SAFETY: as in `flysch_attach`.
    let part = unsafe { &mut *controller }.take(len);
    part.map_or(core::ptr::null_mut(), |part| part.as_ptr().cast())
}

/// Takes back what flysch_dma_alloc returned, with the same length. Returns whether it had.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flysch_dma_free(
    controller: *mut Controller,
    place: *mut c_void,
    len: usize,
) -> bool {
    // SAFETY: as in `flysch_attach`.
    unsafe { &mut *controller }.give_back(place, len)
}

/// Submits a request for a disk. Returns FLYSCH_STATUS_OK, FLYSCH_STATUS_FULL if there is no room
/// now, or the reason why it can never succeed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flysch_submit(
    controller: *mut Controller,
    disk: u32,
    request: *const Request,
) -> Status {
    // SAFETY: as in `flysch_attach`; the request is read here and not kept.
    let taken = unsafe { (*controller).submit(disk as usize, &*request) };
    taken.err().unwrap_or(Status::Ok)
}

/// Issues the submitted requests: once for a batch.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flysch_ring(controller: *mut Controller) {
    // SAFETY: as in `flysch_attach`.
    unsafe { &mut *controller }.ring();
}

/// Writes the next completion, if there is one, to `completion`. Call it until it returns false,
/// after each interrupt and at flysch_poll_at: it also handles deadlines and recovery.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flysch_poll(
    controller: *mut Controller,
    completion: *mut Completion,
) -> bool {
    // SAFETY: as in `flysch_attach`.
    let done = unsafe { &mut *controller }.poll();
    if let Some(done) = done {
        // SAFETY: there is room for one, as the header says.
        unsafe { completion.write(done) }
    }
    done.is_some()
}

/// When to poll even without an interrupt; FLYSCH_NEVER if nothing is under way.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flysch_poll_at(controller: *const Controller) -> u64 {
    // SAFETY: as in `flysch_units`.
    unsafe { &*controller }.poll_at().map_or(NEVER, |at| at.nanos())
}

/// Executes one request to its end, waiting as the board does. No other request may be under way.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flysch_run(
    controller: *mut Controller,
    disk: u32,
    request: *const Request,
) -> Status {
    // SAFETY: as in `flysch_submit`.
    let (controller, request) = unsafe { (&mut *controller, &*request) };
    if let Err(status) = controller.submit(disk as usize, request) {
        return status;
    }
    controller.ring();
    loop {
        match controller.poll() {
            Some(done) => return done.status,
            None => controller.wait(),
        }
    }
}

/// Flushes and stops the device and the controller, as before power-off. Only flysch_close may
/// follow.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flysch_shutdown(controller: *mut Controller, error: *mut Error) -> Status {
    // SAFETY: as in `flysch_attach`.
    let done = unsafe { &mut *controller }.shut_down();
    // SAFETY: NULL or a valid pointer.
    unsafe { tell(error, done) }.map_or_else(|status| status, |()| Status::Ok)
}
