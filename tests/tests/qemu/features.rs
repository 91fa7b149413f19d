//! Queries, link and power, WriteBooster on QEMU's UFS device.

use flysch_api::block::Operation;
use flysch_api::machine::Machine as _;
use flysch_cam::Disk;
use flysch_tests::qemu::{
    Release, carry_out, driver_options, host, machine, memory_unit, releases, request, stack,
};
use flysch_tests::wait::wait_until;
use flysch_ufs::{
    DevicePower, Host, Operation as Action, Output, PartialFlush, Port, State, UfsError,
    WriteBoosterStatus,
};
use flysch_wire::ufs::descriptor::{DeviceDescriptor, GeometryDescriptor, UnitDescriptor};
use flysch_wire::ufs::query::{
    AttributeId, DescriptorId, FlagId, WriteBoosterFlushStatus, WriteBoosterPartialFlush,
    WriteBoosterResize, WriteBoosterResizeStatus,
};

type Qemu = flysch_qemu::Machine;

/// Runs a story on every release, SDQ and MCQ.
fn everywhere(story: impl Fn(&Release, &Qemu, Host<Qemu>)) {
    for release in releases() {
        for queues in [0, 2] {
            let units = vec![memory_unit(0, 16 << 20), memory_unit(3, 8 << 20)];
            let machine = machine(&release, queues, units);
            let (host, _) = host(&machine, driver_options(queues));
            assert_eq!(host.is_mcq(), queues > 0);
            story(&release, &machine, host);
        }
    }
}

#[test]
fn every_descriptor_attribute_and_flag() {
    everywhere(|release, machine, mut host| {
        let spec = if release.is_11 { 0x410 } else { 0x400 };
        assert_eq!(host.device().descriptor.w_spec_version, spec);
        assert_eq!(host.version().number(), (4, u8::from(release.is_11)));
        let units: Vec<_> = host.device().units.iter().flatten().collect();
        let blocks: Vec<_> = units.iter().map(|u| u.q_logical_block_count).collect();
        assert_eq!(blocks, [4096, 2048]);
        // QEMU does not have descriptors 1 (configuration), 6, 3 and A.
        let there = [
            DescriptorId::Device,
            DescriptorId::Unit,
            DescriptorId::Interconnect,
            DescriptorId::Geometry,
            DescriptorId::Power,
            DescriptorId::Health,
        ];
        for id in there {
            let bytes = host.read_descriptor(machine, id, 0).unwrap_or_else(|e| {
                panic!("{}: {}: {e}", release.name, id.name());
            });
            let bytes = bytes.as_slice();
            assert_eq!((usize::from(bytes[0]), bytes[1]), (bytes.len(), id.into_bits()));
            match id {
                DescriptorId::Device => drop(DeviceDescriptor::parse(bytes).unwrap()),
                DescriptorId::Geometry => drop(GeometryDescriptor::parse(bytes).unwrap()),
                DescriptorId::Unit => drop(UnitDescriptor::parse(bytes).unwrap()),
                _ => {}
            }
        }
        let names = host.device().descriptor;
        let manufacturer = host.read_string(machine, names.i_manufacturer_name).unwrap();
        assert_eq!(manufacturer.trim_end_matches('\0'), "REDHAT", "QEMU pads it");
        let product = host.read_string(machine, names.i_product_name).unwrap();
        assert_eq!(product.trim_end_matches('\0'), "QEMU UFS");
        assert!(host.read_descriptor(machine, DescriptorId::Configuration, 0).is_err());
        // Everything in the tables may be requested; the host stays up whatever the device answers,
        // and what is newer than the device is not sent.
        let (mut read, mut refused) = (0, 0);
        for &id in AttributeId::ALL {
            match host.read_attribute(machine, id) {
                Ok(_) => read += 1,
                Err(UfsError::TooNew { .. }) => refused += 1,
                Err(_) => {}
            }
        }
        assert!(read >= if release.is_11 { 30 } else { 20 }, "{read} attributes");
        assert!(release.is_11 || refused > 0, "{refused} refused");
        let flags = FlagId::ALL.iter().filter(|&&id| host.read_flag(machine, id).is_ok()).count();
        assert!(flags >= 3, "{flags} flags");
        assert_eq!(host.state(), State::Up);
    });
}

#[test]
fn attributes_and_flags_keep_what_is_written() {
    everywhere(|_, machine, mut host| {
        for value in [3, 7] {
            host.write_attribute(machine, AttributeId::ActiveIccLevel, value).unwrap();
            let back = host.read_attribute(machine, AttributeId::ActiveIccLevel);
            assert_eq!(back, Ok(value));
        }
        assert!(host.write_attribute(machine, AttributeId::ActiveIccLevel, 0x10).is_err());
        for set in [true, false] {
            host.write_flag(machine, FlagId::BackgroundOpsEn, set).unwrap();
            assert_eq!(host.read_flag(machine, FlagId::BackgroundOpsEn), Ok(set));
        }
    });
}

#[test]
fn hibernation_and_device_power() {
    everywhere(|_, machine, mut host| {
        for _ in 0..3 {
            host.hibernate(machine, true).expect("enter");
            host.hibernate(machine, false).expect("exit");
        }
        for power in [DevicePower::Sleep, DevicePower::Active] {
            host.set_power(machine, power).unwrap_or_else(|e| panic!("{power:?}: {e}"));
        }
        assert_eq!(host.read_flag(machine, FlagId::DeviceInit), Ok(false));
        assert_eq!(host.state(), State::Up);
    });
}

#[test]
fn write_booster() {
    for release in releases() {
        let (mut disk, machine, data) = stack(&release, 0, vec![memory_unit(0, 64 << 20)]).disk(0);
        let host = |disk: &mut Disk<_>| -> Option<WriteBoosterStatus> {
            let port: &mut Port<Qemu> = disk.port_mut();
            port.host_mut().expect("the first port").write_booster(&machine).ok()
        };
        if !release.is_11 {
            assert_eq!(host(&mut disk), None, "QEMU 10 has none");
            continue;
        }
        let flag = |disk: &mut Disk<Port<Qemu>>, id, set| {
            disk.port_mut().host_mut().unwrap().write_flag(&machine, id, set).unwrap();
        };
        flag(&mut disk, FlagId::WriteBoosterEn, true);
        let status = host(&mut disk).unwrap();
        assert!(status.enabled && !status.flushing && status.size_units > 0, "{status:?}");
        // Something must be in the buffer: then a flush runs, on the device's own clock.
        let slice = data.slice(0, 16 << 20);
        for i in 0..16 {
            let write = request(Operation::Write, (i % 4) << 24, 16 << 20, slice, &machine);
            assert_eq!(carry_out(&mut disk, &machine, &[write])[0].result, Ok(()));
        }
        flag(&mut disk, FlagId::WriteBoosterBufferFlushEn, true);
        assert!(host(&mut disk).unwrap().flushing);
        wait_until("the flush goes on", || {
            host(&mut disk).unwrap().flush_status != WriteBoosterFlushStatus::Idle
        });
        flag(&mut disk, FlagId::WriteBoosterEn, false);
        assert!(!host(&mut disk).unwrap().enabled);
    }
}

#[test]
fn the_write_booster_buffer_is_resized_and_flushed_in_part() {
    for release in releases().into_iter().filter(|release| release.is_11) {
        let machine = machine(&release, 0, vec![memory_unit(0, 64 << 20)]);
        let (mut host, _) = host(&machine, driver_options(0));
        let full = host.write_booster(&machine).expect("there is one").size_units;
        let smaller = host.resize_write_booster(&machine, WriteBoosterResize::Decrease);
        let smaller = smaller.expect("an end");
        assert_eq!(smaller.status, WriteBoosterResizeStatus::Completed);
        assert!(smaller.size_units < full, "{smaller:?}");
        let larger = host.resize_write_booster(&machine, WriteBoosterResize::Increase);
        assert_eq!(larger.map(|state| state.size_units), Ok(full));
        let state = |host: &mut Host<Qemu>| match host.run(&machine, Action::PartialFlushState) {
            Ok(Output::PartialFlush(state)) => state,
            other => panic!("{other:?}"),
        };
        let set = |host: &mut Host<Qemu>, flush| {
            assert_eq!(host.run(&machine, Action::SetPartialFlush(flush)), Ok(Output::None));
        };
        set(&mut host, PartialFlush::Fifo { units: 16 });
        let fifo = state(&mut host);
        assert_eq!((fifo.mode, fifo.fifo_max, fifo.fifo), (WriteBoosterPartialFlush::Fifo, 16, 16));
        set(&mut host, PartialFlush::Pinned { units: 32, others_min: 4 });
        let pinned = state(&mut host);
        assert_eq!(
            (pinned.pinned, pinned.pinned_available_percent, pinned.others_min),
            (32, 100, 4)
        );
        let rest = host.write_booster(&machine).expect("status").size_units;
        assert_eq!(rest, full - 32, "the pinned part is told apart");
        host.run(&machine, Action::Unpin(true)).expect("released");
        assert!(state(&mut host).unpinned);
        set(&mut host, PartialFlush::None);
        assert_eq!(host.write_booster(&machine).expect("status").size_units, full);
    }
}

#[test]
fn a_second_bring_up_finds_everything_again() {
    everywhere(|_, machine, mut host| {
        let before = host.device().clone();
        host.bring_up(machine).expect("again");
        assert_eq!(*host.device(), before);
        assert!(host.machine().memory().len() >= 64 << 20);
    });
}
