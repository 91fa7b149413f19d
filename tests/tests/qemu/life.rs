//! The end of QEMU, and of our processes: nothing hangs, nothing is left behind.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use flysch_api::block::{BlockDevice as _, BlockError, Operation, Refused};
use flysch_api::machine::{Clock as _, Machine as _, Registers as _};
use flysch_tests::qemu::{machine, memory_unit, releases, request, stack};
use flysch_tests::wait::{PATIENCE, wait_until};
use rustix::process::{Pid, Signal, kill_process};

/// Determines how a child of this test is to end.
const STORY: &str = "FLYSCH_TEST_END";

pub(crate) fn pid(id: u32) -> Pid {
    Pid::from_raw(id.cast_signed()).expect("a process id")
}

#[test]
fn killed_in_the_middle_of_the_work() {
    for release in releases() {
        for queues in [0, 2] {
            let stack = stack(&release, queues, vec![memory_unit(0, 64 << 20)]);
            let (mut disk, machine, data) = stack.disk(0);
            let slice = data.slice(0, 1 << 20);
            let started = Instant::now();
            let (mut sent, mut ended, mut gone) = (0_u64, 0_u64, 0_u64);
            let mut killed = false;
            loop {
                let offset = (sent % 60) << 20;
                let write = request(Operation::Write, offset, 1 << 20, slice, &machine);
                match disk.submit(&write, machine.now()) {
                    Ok(()) => sent += 1,
                    Err(Refused::Full) => {}
                    Err(Refused::Invalid(error)) => {
                        assert_eq!(error, BlockError::Gone);
                        assert!(killed);
                        if sent == ended {
                            break;
                        }
                    }
                }
                disk.ring(machine.now());
                while let Some(completion) = disk.poll(machine.now()) {
                    ended += 1;
                    match completion.result {
                        Ok(()) => assert_eq!(gone, 0),
                        Err(error) => {
                            assert_eq!(error, BlockError::Gone);
                            gone += 1;
                        }
                    }
                }
                if ended > 40 && !killed {
                    kill_process(pid(machine.process_id()), Signal::KILL).unwrap();
                    killed = true;
                }
                if sent > ended {
                    machine.wait(disk.poll_at());
                }
                assert!(started.elapsed() < PATIENCE, "{sent} sent, {ended} ended");
            }
            assert!(gone > 0, "some were in flight");
            assert_eq!(machine.read32(0), u32::MAX);
            let why = machine.ended().expect("a reason");
            assert!(why.contains("signal: 9"), "{why}");
        }
    }
}

#[test]
fn stopped_and_not_answering() {
    let Some(release) = releases().pop() else { return };
    let machine = machine(&release, 0, vec![memory_unit(0, 1 << 20)]);
    kill_process(pid(machine.process_id()), Signal::STOP).unwrap();
    assert_eq!(machine.read32(0), u32::MAX);
    let why = machine.ended().expect("a reason");
    assert!(why.contains("no longer answers"), "{why}");
    assert_eq!(machine.read32(0), u32::MAX, "at once the second time");
    assert!(!machine.memory().is_empty() && machine.now() > flysch_api::machine::Instant::START);
}

/// Not a test of its own: the process that ends as [`STORY`] says, with a machine running.
#[test]
fn story() {
    let Ok(end) = std::env::var(STORY) else { return };
    let program = std::env::var_os("FLYSCH_TEST_PROGRAM").expect("the parent names it");
    let options =
        flysch_qemu::QemuOptions { program: Some(PathBuf::from(program)), ..Default::default() };
    let machine = flysch_qemu::Machine::start(&options).expect("a machine");
    println!("qemu {}", machine.process_id());
    match end.as_str() {
        "drop" => drop(machine),
        "exit" => std::process::exit(3),
        "abort" => std::process::abort(),
        "panic" => panic!("with a machine running"),
        "forget" => std::mem::forget(machine),
        "wait" => {
            machine.wait(None);
        }
        other => panic!("no such story: {other}"),
    }
}

/// Starts [`story`] and returns the child and the process id of its QEMU.
fn child(end: &str, program: &std::path::Path) -> (std::process::Child, u32) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "life::story", "--nocapture"])
        .env(STORY, end)
        .env("FLYSCH_TEST_PROGRAM", program)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = lines
        .map_while(Result::ok)
        .find_map(|line| line.split_once("qemu ").and_then(|(_, id)| id.trim().parse().ok()));
    (child, line.expect("the child tells its QEMU"))
}

/// Whether a process exists and is not just a zombie that has not been waited for.
fn lives(id: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{id}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(" Z")))
}

pub(crate) fn gone_soon(id: u32, how: &str) {
    wait_until(&format!("QEMU {id} ends after {how}"), || !lives(id));
}

#[test]
fn no_qemu_is_left_behind() {
    for release in releases() {
        for end in ["drop", "exit", "abort", "panic", "forget"] {
            let (mut child, qemu) = child(end, &release.program);
            child.wait().unwrap();
            gone_soon(qemu, end);
        }
        for signal in [Signal::INT, Signal::TERM, Signal::KILL, Signal::HUP] {
            let (mut child, qemu) = child("wait", &release.program);
            assert!(lives(qemu));
            kill_process(pid(child.id()), signal).unwrap();
            child.wait().unwrap();
            gone_soon(qemu, &format!("{signal:?}"));
        }
    }
}
