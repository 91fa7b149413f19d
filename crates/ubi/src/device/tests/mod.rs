mod basic;
mod cuts;
mod fastmap;
mod faults;
mod objects;
mod ram;
mod refused;
mod table;
mod verdict;

use std::vec::Vec;

use flysch_api::volume::{Volume, VolumeMut};

use crate::{DeviceOptions, FormatOptions, NewVolume, ReadOnly, UbiDevice, UbiError};
use ram::Ram;

fn format(flash: Ram) -> UbiDevice<Ram> {
    UbiDevice::format(flash, &FormatOptions::new(0x1234), &DeviceOptions::default()).unwrap()
}

fn attach(flash: Ram) -> UbiDevice<Ram> {
    UbiDevice::attach(flash, &DeviceOptions::default()).unwrap()
}

/// The whole content of a LEB.
fn leb(device: &mut UbiDevice<Ram>, id: u32, lnum: u32) -> Vec<u8> {
    let volume = device.volume_mut(id).unwrap();
    let mut bytes = std::vec![0; volume.geometry().leb_size as usize];
    let _ = volume.read(lnum, 0, &mut bytes).unwrap();
    bytes
}

/// `len` bytes that identify `tag`.
fn data(tag: u8, len: usize) -> Vec<u8> {
    (0..len).map(|at| tag ^ (at as u8).wrapping_mul(7)).collect()
}

fn write(device: &mut UbiDevice<Ram>, id: u32, lnum: u32, offset: u32, bytes: &[u8]) {
    device.volume_mut(id).unwrap().write(lnum, offset, bytes).unwrap();
}

fn change(device: &mut UbiDevice<Ram>, id: u32, lnum: u32, bytes: &[u8]) {
    device.volume_mut(id).unwrap().change(lnum, bytes).unwrap();
}
