//! Our driver on our model with QEMU between them: the messages of the vfio-user server reach a
//! controller's driver as QEMU's own client understands them, without a guest.

use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use flysch_api::block::{BlockDevice as _, BlockError, Operation};
use flysch_api::machine::Registers as _;
use flysch_models::faults::{Kind, Plan};
use flysch_qemu::{Controller, Machine, QemuOptions};
use flysch_rig::{Served as Function, serve};
use flysch_tests::qemu::{Release, Stack, carry_out, releases, request, stack_on};
use flysch_tests::wait::PATIENCE;
use flysch_vfio_user::{Handle, Server, Turn};
use flysch_wire::ufs::registers as reg;

use crate::io::hammer;
use crate::nvme;

const BLOCK: u64 = 4096;

/// An action on the device or its server.
enum Order {
    Arm(Box<Plan>),
    Pull,
    End,
}

/// The model, served in its own thread.
struct Served {
    path: PathBuf,
    handle: Handle,
    orders: Sender<Order>,
    thread: Option<JoinHandle<Box<dyn Function>>>,
    log: Receiver<String>,
    _folder: tempfile::TempDir,
}

impl Served {
    fn start(target: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let mut function = serve(&target.parse().unwrap()).unwrap().expect("a model");
        let server = Server::new(UnixListener::bind(&path).unwrap()).unwrap();
        let handle = server.handle();
        let (orders, ordered) = channel();
        let (sender, log) = channel();
        let thread = std::thread::spawn(move || {
            let woken = |function: &mut (dyn Function + 'static), _| {
                let mut turn = Turn::Continue;
                for order in ordered.try_iter() {
                    match order {
                        Order::Arm(plan) => function.arm(*plan),
                        Order::Pull => turn = Turn::Disconnect,
                        Order::End => turn = Turn::Stop,
                    }
                }
                turn
            };
            let tell = |event: &_| drop(sender.send(format!("{event:?}")));
            server.run(&mut *function, woken, tell).unwrap();
            function
        });
        Self { path, handle, orders, thread: Some(thread), log, _folder: folder }
    }

    /// Waits until the log contains a line with these words.
    fn logged(&self, words: &str) -> String {
        loop {
            let line = self.log.recv_timeout(PATIENCE).expect(words);
            if line.contains(words) {
                return line;
            }
        }
    }

    fn order(&self, order: Order) {
        self.orders.send(order).unwrap();
        self.handle.wake();
    }

    /// Ends the server and returns the device.
    fn end(mut self) -> Box<dyn Function> {
        self.order(Order::End);
        self.thread.take().unwrap().join().unwrap()
    }
}

/// A stack on the device served at `path`.
fn stack(release: &Release, path: &Path, queues: u8) -> Stack {
    let options = QemuOptions {
        program: Some(release.program.clone()),
        memory_bytes: 64 << 20,
        socket: Some(path.to_path_buf()),
        ..QemuOptions::default()
    };
    let machine = Machine::start(&options).unwrap_or_else(|e| panic!("{}: {e}", release.name));
    stack_on(machine, queues)
}

/// The releases that have the client.
fn clients() -> impl Iterator<Item = Release> {
    releases().into_iter().filter(|release| release.is_11)
}

#[test]
fn everything_written_is_read_back_and_stays() {
    for release in clients() {
        for (target, queues) in [("ufs,size=16M", 0), ("ufs,size=16M,mcq=3", 3)] {
            let served = Served::start(target);
            let stack_a = stack(&release, &served.path, queues);
            served.logged("Connected");
            let (mut disk, machine, data) = stack_a.disk(0);
            assert_eq!(disk.geometry().blocks, (16 << 20) / BLOCK);
            hammer(&mut disk, &machine, &data, (0, 2048), 3);
            data.fill(0, 8 << 12, 0x5A);
            let slice = data.slice(0, 8 << 12);
            let write = request(Operation::Write, 3000 * BLOCK, 8 << 12, slice, &machine);
            assert_eq!(carry_out(&mut disk, &machine, &[write])[0].result, Ok(()));
            let statistics = disk.statistics();
            assert_eq!((statistics.failures, statistics.strays, statistics.timeouts), (0, 0, 0));
            drop((disk, machine));
            let line = served.logged("Gone");
            assert!(!line.contains("maps: 0"), "{line}");
            // Another machine, the same device.
            let (mut disk, machine, data) = stack(&release, &served.path, queues).disk(0);
            let slice = data.slice(0, 8 << 12);
            let read = request(Operation::Read, 3000 * BLOCK, 8 << 12, slice, &machine);
            assert_eq!(carry_out(&mut disk, &machine, &[read])[0].result, Ok(()));
            let mut found = vec![0; 8 << 12];
            data.read(0, &mut found);
            assert!(found.iter().all(|&byte| byte == 0x5A));
            // It is unplugged from its machine: its registers are gone, and so is the disk.
            served.order(Order::Pull);
            served.logged("pulled out");
            while machine.read32(reg::CAP) != u32::MAX {
                std::thread::sleep(Duration::from_millis(1));
            }
            let read = request(Operation::Read, 0, BLOCK, data.slice(0, 4096), &machine);
            assert_eq!(carry_out(&mut disk, &machine, &[read])[0].result, Err(BlockError::Gone));
            drop((disk, machine));
            assert_eq!(served.end().failure(), None);
        }
    }
}

/// Faults during use: unfinished work is repeated, and nothing is lost.
#[test]
fn faults_injected_meanwhile_are_recovered_from() {
    const FAULTS: [Kind; 5] =
        [Kind::BadOcs, Kind::Transient, Kind::LinkLoss, Kind::Fatal, Kind::LineReset];
    for release in clients() {
        for (target, queues) in [("ufs,size=16M", 0), ("ufs,size=16M,mcq=3", 3)] {
            let served = Served::start(target);
            let (mut disk, machine, data) = stack(&release, &served.path, queues).disk(0);
            for (part, kind) in FAULTS.into_iter().enumerate() {
                let plan = Plan::parse(&format!("{kind}:n3"), &Kind::UFS).unwrap();
                served.order(Order::Arm(Box::new(plan)));
                hammer(&mut disk, &machine, &data, (part as u64 * 512, 512), 2);
            }
            assert_eq!(disk.statistics().failures, 0);
            drop((disk, machine));
            let incidents = served.end().incidents();
            for kind in FAULTS {
                let happened = incidents.iter().find(|one| one.what == kind.name());
                assert_eq!(happened.map(|one| one.count), Some(1), "{target}: {kind}");
            }
        }
    }
}

#[test]
fn the_nvme_model_passes_what_qemus_device_passes() {
    let machine = |release: &Release, served: &Served| {
        let options = QemuOptions {
            program: Some(release.program.clone()),
            controller: Controller::Nvme(flysch_qemu::NvmeDevice::new(512)),
            queues: 4,
            memory_bytes: 64 << 20,
            units: Vec::new(),
            socket: Some(served.path.clone()),
        };
        Machine::start(&options).unwrap_or_else(|e| panic!("{}: {e}", release.name))
    };
    for release in clients() {
        for (keys, sgls) in [("", true), (",vectors=off", false)] {
            let target = format!("nvme,size=32M,block=512,namespaces=2,queues=4{keys}");
            let served = Served::start(&target);
            nvme::data_of_every_shape(&machine(&release, &served), 1 << 20, sgls);
            let line = served.logged("Gone");
            assert!(!line.contains("maps: 0"), "{line}");
            nvme::resets(&machine(&release, &served), 512);
            assert_eq!(served.end().failure(), None);
        }
    }
}

#[test]
fn a_socket_that_nobody_serves_is_named() {
    for release in clients() {
        let options = QemuOptions {
            program: Some(release.program.clone()),
            socket: Some("/no/such/socket".into()),
            ..QemuOptions::default()
        };
        let text = Machine::start(&options).unwrap_err().to_string();
        assert!(text.contains("/no/such/socket: no device is served there"), "{text}");
    }
}
