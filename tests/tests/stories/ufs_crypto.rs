//! Inline encryption: the medium contains what other implementations produce for the same key and
//! numbers, and nothing that should be encrypted passes in plain text.

use flysch_api::command::{Command, Ended, NotStarted, Port as _, Scsi};
use flysch_api::crypto::{CryptoContext, DataUnit};
use flysch_api::data::BadData;
use flysch_api::machine::{Clock, DmaSlice, Machine as _};
use flysch_models::ufs::Config;
use flysch_tests::ufs::{
    Model, buffer, data_holds, done, fill_data, finish, host, machine, segments, wait, whole, write,
};
use flysch_ufs::{
    CryptoKey, Host, Operation, Output, Port, Progress, QueueMode, UfsError, UfsOptions,
};

/// The keys of IEEE 1619-2007's vectors 10 to 14, and of vector 4.
const KEY_256: &str = "2718281828459045235360287471352662497757247093699959574966967627\
                       3141592653589793238462643383279502884197169399375105820974944592";
const KEY_128: &str = "2718281828459045235360287471352631415926535897932384626433832795";

fn hex(digits: &str) -> Vec<u8> {
    let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).expect("digits");
    (0..digits.len()).step_by(2).map(byte).collect()
}

fn unit(bytes: u32) -> DataUnit {
    DataUnit::of(bytes).expect("a size of data units")
}

fn key(digits: &str, bytes: u32) -> CryptoKey {
    CryptoKey::aes_xts(&hex(digits), unit(bytes)).expect("a key")
}

fn context(slot: u8, bytes: u32, number: u64) -> Option<CryptoContext> {
    Some(CryptoContext { number, unit: unit(bytes), slot })
}

fn read(block: u32, data: DmaSlice, crypto: Option<CryptoContext>) -> Command<Scsi> {
    Command { crypto, ..flysch_tests::ufs::read(block, data) }
}

fn modes() -> [UfsOptions; 2] {
    [QueueMode::Sdq, QueueMode::Mcq].map(|queue| UfsOptions { queue, ..UfsOptions::default() })
}

fn bytes(machine: &Model, slice: DmaSlice) -> Vec<u8> {
    let mut bytes = vec![0; slice.len as usize];
    let at = machine.memory().offset_of(slice.address, bytes.len()).expect("a buffer");
    machine.memory().read(at, &mut bytes);
    bytes
}

/// One port of a running host.
fn port(host: Host<Model>) -> Port<Model> {
    host.into_ports().remove(0)
}

fn operate(machine: &Model, port: &mut Port<Model>, operation: Operation) {
    let host = port.host_mut().expect("the first port");
    host.run(machine, operation).expect("an operation that works");
}

#[test]
fn the_medium_holds_what_ieee_1619_says() {
    // Vector, key, first number; the first and last bytes of the 512 bytes at `at`.
    let vectors = [
        (KEY_256, 0xFF, 0, "1c3b3a102f770386e4836c99e370cf9b", "c4f36ffda9fcea70b9c6e693e148c151"),
        // The number that follows, as computed by OpenSSL.
        (KEY_256, 0xFF, 1, "d2681225948d7b026a19c3d8ec02e686", "13e199108bd6b75193cdce85b67a53b0"),
        (
            KEY_256,
            0xFF_FFFF_FFFF,
            0,
            "64497e5a831e4a932c09be3e5393376d",
            "d609d273ad5b0d59631c531f6a0a57b9",
        ),
        (KEY_128, 0, 0, "27a7479befa1d476489f308cd4cfa6e2", "0a282df920147beabe421ee5319d0568"),
    ];
    for options in modes() {
        let machine = machine(Config::default());
        let mut host = host(&machine, options);
        for (slot, digits) in [(3, KEY_256), (15, KEY_128)] {
            host.program_key(&machine, slot, key(digits, 512)).expect("a slot");
        }
        let mut port = port(host);
        let (data, back) = (buffer(&machine, 0, 4096), buffer(&machine, 1, 4096));
        let plain: Vec<u8> = (0..4096).map(|n| n as u8).collect();
        let at = machine.memory().offset_of(data.address, 4096).expect("a buffer");
        machine.memory().write(at, &plain);
        for (digits, number, at, first, last) in vectors {
            let slot = if digits == KEY_256 { 3 } else { 15 };
            let crypto = context(slot, 512, number);
            done(&mut port, &machine, Command { crypto, ..write(7, data) });
            done(&mut port, &machine, read(7, back, None));
            let stored = bytes(&machine, back);
            let stored = &stored[at * 512..][..512];
            assert_eq!((&stored[..16], &stored[496..]), (&hex(first)[..], &hex(last)[..]));
            done(&mut port, &machine, read(7, back, crypto));
            assert!(bytes(&machine, back) == plain);
            done(&mut port, &machine, read(7, back, context(slot, 512, number + 1)));
            assert!(bytes(&machine, back) != plain, "another number is another text");
        }
    }
}

#[test]
fn lists_are_encrypted_by_data_unit_wherever_they_lie() {
    // Start and end of data units 0, 1 and 9 as produced by OpenSSL; the numbers wrap.
    let expected = [
        (0, "e5c8f87e3c39e256561b1fbe906edcf8", "77220839b6670a0fd4d2082f1df3cd83"),
        (1, "457ac24a5ec4ddad4ec31e092019fccf", "df5e4ba3dbffc58a950d42056cb797fe"),
        (9, "0f7ca7845b73b6708078fa84ba4e6ecc", "30851476a19be2cb7074503e72a59754"),
    ];
    for options in modes() {
        let machine = machine(Config::default());
        let mut host = host(&machine, options);
        host.program_key(&machine, 0, key(KEY_256, 4096)).expect("a slot");
        let mut port = port(host);
        let crypto = context(0, 4096, 9_u64.wrapping_neg());
        let scattered = segments(&machine, 0, 40960, 61);
        fill_data(&machine, &scattered, 9);
        done(&mut port, &machine, Command { data: scattered, crypto, ..write(100, whole(40960)) });
        let raw = buffer(&machine, 4, 40960);
        done(&mut port, &machine, read(100, raw, None));
        let stored = bytes(&machine, raw);
        for (n, first, last) in expected {
            let stored = &stored[n * 4096..][..4096];
            assert_eq!((&stored[..16], &stored[4080..]), (&hex(first)[..], &hex(last)[..]));
        }
        let back = segments(&machine, 8, 40960, 101);
        done(&mut port, &machine, Command { data: back, ..read(100, whole(40960), crypto) });
        assert!(data_holds(&machine, &back, 9));
    }
}

#[test]
fn a_command_without_its_key_is_refused_before_the_device_sees_it() {
    for options in modes() {
        let machine = machine(Config::default());
        let mut host = host(&machine, options.clone());
        host.program_key(&machine, 1, key(KEY_256, 8192)).expect("a slot");
        for (slot, key, wrong) in [
            (16, key(KEY_256, 512), UfsError::Value("the key slot")),
            (255, key(KEY_128, 512), UfsError::Value("the key slot")),
        ] {
            assert_eq!(host.program_key(&machine, slot, key), Err(wrong));
        }
        let mut port = port(host);
        let data = buffer(&machine, 0, 8192);
        done(&mut port, &machine, read(0, data, context(1, 8192, 0)));
        let half = DmaSlice { len: 4096, ..data };
        for (crypto, data, bad) in [
            (context(0, 8192, 0), data, BadData::Key),
            (context(1, 4096, 0), data, BadData::Key),
            (context(200, 8192, 0), data, BadData::Key),
            (context(1, 8192, 0), half, BadData::DataUnit),
        ] {
            let declined = port.start(read(0, data, crypto), machine.now()).expect_err("bad");
            assert_eq!(declined.why, NotStarted::BadData(bad), "{crypto:?}");
        }
        operate(&machine, &mut port, Operation::EvictKey { slot: 1 });
        let declined = port.start(read(0, data, context(1, 8192, 0)), machine.now());
        assert_eq!(declined.expect_err("evicted").why, NotStarted::BadData(BadData::Key));
        assert_eq!(port.limits().slots, 32, "no slot of the queue was lost");
    }
    // A controller without an engine.
    let machine = machine(Config { crypto_slots: 0, ..Config::default() });
    let mut host = host(&machine, UfsOptions::default());
    assert!(host.crypto().is_none());
    let refused = host.program_key(&machine, 0, key(KEY_256, 512));
    assert_eq!(refused, Err(UfsError::Unsupported("inline encryption")));
    let mut port = port(host);
    assert!(!port.limits().crypto);
    let command = read(0, buffer(&machine, 0, 4096), context(0, 512, 0));
    let declined = port.start(command, machine.now()).expect_err("it would be plain text");
    assert_eq!(declined.why, NotStarted::Unsupported);
}

#[test]
fn keys_outlive_a_reset_of_the_host_and_end_with_a_shutdown() {
    for options in modes() {
        let machine = machine(Config::default());
        let mut host = host(&machine, options);
        host.program_key(&machine, 5, key(KEY_256, 4096)).expect("a slot");
        let mut port = port(host);
        let (out, back) = (buffer(&machine, 0, 4096), buffer(&machine, 1, 4096));
        flysch_tests::ufs::fill(&machine, out, 3);
        let crypto = context(5, 4096, 77);
        done(&mut port, &machine, Command { crypto, ..write(9, out) });
        operate(&machine, &mut port, Operation::Reset);
        done(&mut port, &machine, read(9, back, crypto));
        assert!(flysch_tests::ufs::holds(&machine, back, 3), "the reset cleared the slots");
        operate(&machine, &mut port, Operation::Shutdown);
        operate(&machine, &mut port, Operation::BringUp);
        let slots = port.host().expect("the first port").crypto().expect("an engine").slots();
        assert!(slots.iter().all(Option::is_none));
        let declined = port.start(read(9, back, crypto), machine.now()).expect_err("no key");
        assert_eq!(declined.why, NotStarted::BadData(BadData::Key));
        // With the same key again, the data is back.
        let key = key(KEY_256, 4096);
        operate(&machine, &mut port, Operation::ProgramKey { slot: 2, key });
        done(&mut port, &machine, read(9, back, context(2, 4096, 77)));
        assert!(flysch_tests::ufs::holds(&machine, back, 3));
    }
}

#[test]
fn a_key_changes_only_after_the_commands_that_name_it() {
    for options in modes() {
        let machine = machine(Config::default());
        let mut host = host(&machine, UfsOptions { lanes: 2, ..options });
        host.program_key(&machine, 0, key(KEY_256, 4096)).expect("a slot");
        let mut ports = host.into_ports();
        let out = buffer(&machine, 0, 4096);
        flysch_tests::ufs::fill(&machine, out, 8);
        let crypto = context(0, 4096, 0);
        done(&mut ports[0], &machine, Command { crypto, ..write(1, out) });
        for (n, port) in ports.iter_mut().enumerate() {
            let back = buffer(&machine, 1 + n, 4096);
            port.start(read(1, back, crypto), machine.now()).expect("room");
            port.ring(machine.now());
        }
        let key = CryptoKey::aes_xts(&hex(KEY_128), unit(4096)).expect("a key");
        let host = ports[0].host_mut().expect("the first port");
        host.begin(Operation::ProgramKey { slot: 0, key }).expect("nothing under way");
        for n in (0..2).rev() {
            assert_eq!(wait(&mut ports[n], &machine).ended, Ended::Good);
            assert!(flysch_tests::ufs::holds(&machine, buffer(&machine, 1 + n, 4096), 8));
        }
        loop {
            // A lane obeys the host when it is polled.
            assert!(ports[1].poll(machine.now()).is_none());
            let host = ports[0].host_mut().expect("the first port");
            match host.poll(machine.now()) {
                Progress::Done(done) => break assert_eq!(done, Ok(Output::None)),
                _ => machine.wait(host.poll_at()),
            };
        }
        let back = buffer(&machine, 3, 4096);
        let read = |port: &mut Port<Model>| finish(port, &machine, read(1, back, crypto)).ended;
        assert_eq!(read(&mut ports[1]), Ended::Good);
        assert!(!flysch_tests::ufs::holds(&machine, back, 8), "it is another key now");
    }
}
