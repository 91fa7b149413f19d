//! The drivers as used from C, on the models: `flysch_drivers.h` and what it declares.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::Path;
use std::ptr;
use std::sync::Mutex;

use flysch_api::machine::{Clock, DmaRegion, Identity, Instant, Registers};
use flysch_drivers::{
    ADMIN_BYTES, Admin, Answer, Board, Clocks, Completion, Controller, DESCRIPTOR_BYTES,
    DmeSetting, Error, Event, Link, NEVER, Operation, Options, Platform, Power, Query, QueryKind,
    Queue, Request, Status, TEXT_BYTES, Unit, flysch_attach, flysch_close, flysch_default_options,
    flysch_dma_alloc, flysch_dma_free, flysch_dma_needed, flysch_nvme_admin, flysch_nvme_feature,
    flysch_nvme_identify, flysch_nvme_log_page, flysch_nvme_open, flysch_nvme_set_feature,
    flysch_poll, flysch_poll_at, flysch_ring, flysch_run, flysch_shutdown, flysch_status_text,
    flysch_submit, flysch_ufs_link, flysch_ufs_open, flysch_ufs_query, flysch_ufs_set_link,
    flysch_ufs_set_power, flysch_units,
};
use flysch_models::machine::{Inline, Mode, Model};
use flysch_models::{nvme, ufs};

const MEMORY: usize = 8 << 20;
const ADDRESS: u64 = 0x4000_0000;

unsafe extern "C" fn read32<D: Model>(context: *mut c_void, offset: u32) -> u32 {
    // SAFETY: the context of `board` is a bus over a model of this kind.
    unsafe { &*context.cast::<Inline<D>>() }.read32(offset)
}

unsafe extern "C" fn write32<D: Model>(context: *mut c_void, offset: u32, value: u32) {
    // SAFETY: as in `read32`.
    unsafe { &*context.cast::<Inline<D>>() }.write32(offset, value);
}

unsafe extern "C" fn now<D: Model>(context: *mut c_void) -> u64 {
    // SAFETY: as in `read32`.
    unsafe { &*context.cast::<Inline<D>>() }.now().nanos()
}

fn deadline(until: u64) -> Option<Instant> {
    (until != NEVER).then(|| Instant::from_nanos(until))
}

unsafe extern "C" fn wait<D: Model>(context: *mut c_void, until: u64) -> c_int {
    // SAFETY: as in `read32`.
    let woken = unsafe { &*context.cast::<Inline<D>>() }.wait(deadline(until));
    i32::from(woken == flysch_api::machine::Wake::Deadline)
}

/// The bus as a board, with the memory that the model sees.
fn board<D: Model>(bus: &Inline<D>, memory: &DmaRegion) -> Board {
    Board {
        context: ptr::from_ref(bus).cast_mut().cast(),
        read32: Some(read32::<D>),
        write32: Some(write32::<D>),
        now: Some(now::<D>),
        wait: Some(wait::<D>),
        sync_for_device: None,
        sync_for_cpu: None,
        memory: memory.as_ptr().cast(),
        memory_len: memory.len(),
        memory_address: memory.address(),
        vendor: 0,
        device: 0,
    }
}

fn no_error() -> Error {
    Error { status: Status::Ok, text: [0; TEXT_BYTES] }
}

fn words(text: &[c_char]) -> String {
    // SAFETY: every text of the library ends with a zero.
    unsafe { CStr::from_ptr(text.as_ptr()) }.to_str().expect("UTF-8").to_owned()
}

fn units(controller: *const Controller) -> Vec<Unit> {
    let unit = Unit {
        number: 0,
        block_size: 0,
        blocks: 0,
        write_protected: false,
        can_delete: false,
        name: [0; 64],
    };
    // SAFETY: a controller returned by an open; there is room.
    let count = unsafe { flysch_units(controller, ptr::null_mut(), 0) };
    let mut units = vec![unit; count];
    // SAFETY: as above.
    assert_eq!(unsafe { flysch_units(controller, units.as_mut_ptr(), count) }, count);
    units
}

fn request(token: u64, operation: Operation, offset: u64, data: (*mut c_void, u64)) -> Request {
    Request {
        token,
        operation: operation as u8,
        force_unit_access: false,
        offset,
        length: data.1,
        data: data.0,
    }
}

/// What a C program does with every disk: writes, a queue full of reads, a delete, invalid
/// requests.
fn use_disk(controller: *mut Controller, disk: u32, unit: &Unit, wait: &dyn Fn(u64)) {
    const LEN: usize = 64 << 10;
    // SAFETY: the functions are called as the header requires, on one controller by one thread.
    unsafe {
        let place = flysch_dma_alloc(controller, LEN);
        assert!(!place.is_null());
        let bytes = |place: *mut c_void| std::slice::from_raw_parts_mut(place.cast::<u8>(), LEN);
        for (n, byte) in bytes(place).iter_mut().enumerate() {
            *byte = (n * 7 + n / 251) as u8;
        }
        let written = bytes(place).to_vec();
        let offset = 3 * LEN as u64;
        let whole = |operation| request(1, operation, offset, (place, LEN as u64));
        assert_eq!(flysch_run(controller, disk, &whole(Operation::Write)), Status::Ok);
        let flush = request(2, Operation::Flush, 0, (ptr::null_mut(), 0));
        assert_eq!(flysch_run(controller, disk, &flush), Status::Ok);
        bytes(place).fill(0);
        assert_eq!(flysch_run(controller, disk, &whole(Operation::Read)), Status::Ok);
        assert_eq!(bytes(place), written);

        // As many as are accepted, in one batch, each reading a block to its own place.
        bytes(place).fill(0);
        let block = u64::from(unit.block_size);
        let mut taken = 0;
        while taken < LEN as u64 / block {
            let to = place.byte_add((taken * block) as usize);
            let one = request(taken, Operation::Read, offset + taken * block, (to, block));
            match flysch_submit(controller, disk, &one) {
                Status::Ok => taken += 1,
                Status::Full => break,
                other => panic!("{other:?}"),
            }
        }
        assert!(taken >= 16, "{taken}");
        flysch_ring(controller);
        assert!(flysch_poll_at(controller) < NEVER);
        let mut ended = vec![0; taken as usize];
        let mut done =
            Completion { token: 0, disk: 0, status: Status::Gone, accepted: 0, issued: 0, seen: 0 };
        while ended.iter().sum::<u32>() < taken as u32 {
            while flysch_poll(controller, &mut done) {
                assert_eq!((done.status, done.disk), (Status::Ok, disk));
                assert!(done.accepted <= done.issued && done.issued <= done.seen);
                ended[done.token as usize] += 1;
            }
            wait(flysch_poll_at(controller));
        }
        assert!(ended.iter().all(|times| *times == 1));
        let read = (taken * block) as usize;
        assert_eq!(bytes(place)[..read], written[..read]);

        let gone = Request {
            operation: Operation::Delete as u8,
            data: ptr::null_mut(),
            ..whole(Operation::Read)
        };
        let expected = if unit.can_delete { Status::Ok } else { Status::Unsupported };
        assert_eq!(flysch_run(controller, disk, &gone), expected);

        let end = unit.blocks * block;
        for (wrong, status) in [
            (request(0, Operation::Read, end, (place, block)), Status::OutOfRange),
            (request(0, Operation::Read, 1, (place, block)), Status::Misaligned),
            (request(0, Operation::Read, 0, (place, 1 << 40)), Status::OutOfRange),
            (request(0, Operation::Read, 0, (ptr::null_mut(), block)), Status::BadData),
            (request(0, Operation::Read, 0, (place, MEMORY as u64)), Status::BadData),
            (Request { operation: 9, ..whole(Operation::Read) }, Status::Argument),
        ] {
            assert_eq!(flysch_run(controller, disk, &wrong), status);
        }
        assert_eq!(flysch_run(controller, 7, &whole(Operation::Read)), Status::NotADisk);
        assert!(!flysch_dma_free(controller, place, LEN / 2));
        assert!(flysch_dma_free(controller, place, LEN));
        assert!(!flysch_dma_free(controller, place, LEN));
    }
}

fn memory() -> DmaRegion {
    DmaRegion::zeroed(MEMORY, ADDRESS)
}

#[test]
fn ufs_in_both_queue_designs_and_nvme_serve_a_c_program() {
    for queue in [Queue::Sdq, Queue::Mcq] {
        let memory = memory();
        let model = ufs::Ufs::new(ufs::Config::default(), memory.clone()).unwrap();
        let bus = Inline::new(model, memory.clone(), Identity::default(), Mode::Virtual);
        let options = Options { queue: queue as u8, ..flysch_default_options() };
        let mut error = no_error();
        // SAFETY: everything pointed to lives until the end of the block, and is as the header
        // requires.
        unsafe {
            assert!(flysch_dma_needed(&options) < MEMORY);
            let board = board(&bus, &memory);
            let controller = flysch_ufs_open(&board, &options, ptr::null(), &mut error);
            assert!(!controller.is_null(), "{}", words(&error.text));
            serve(controller, &|until| {
                bus.wait(deadline(until));
            });
        }
    }
    let memory = memory();
    let model = nvme::Nvme::new(nvme::Config::default(), memory.clone()).unwrap();
    let bus = Inline::new(model, memory.clone(), Identity::default(), Mode::Virtual);
    let mut error = no_error();
    // SAFETY: as above.
    unsafe {
        let board = board(&bus, &memory);
        let controller = flysch_nvme_open(&board, ptr::null(), &mut error);
        assert!(!controller.is_null(), "{}", words(&error.text));
        serve(controller, &|until| {
            bus.wait(deadline(until));
        });
    }
}

/// Uses a controller with one disk, and closes it.
fn serve(controller: *mut Controller, wait: &dyn Fn(u64)) {
    let units = units(controller);
    assert_eq!(units.len(), 1);
    assert_eq!(u64::from(units[0].block_size) * units[0].blocks, 4 << 30);
    assert!(words(&units[0].name).starts_with('<'), "{}", words(&units[0].name));
    let mut error = no_error();
    // SAFETY: a controller returned by an open, used by this thread, closed once at the end.
    unsafe {
        assert_eq!(flysch_attach(controller, 77, &mut error), Status::NotADisk as i32);
        assert_eq!(words(&error.text), "there is no unit 77 with a disk");
        assert_eq!(flysch_attach(controller, units[0].number, &mut error), 0);
        assert_eq!(flysch_attach(controller, units[0].number, &mut error), Status::NoLane as i32);
        use_disk(controller, 0, &units[0], wait);
        let mut link = no_link();
        match flysch_ufs_link(controller, &mut link, &mut error) {
            Status::Ok => manage_ufs(controller, link),
            other => {
                assert_eq!(other, Status::Unsupported);
                assert_eq!(words(&error.text), "the controller is not of the kind UFS");
                manage_nvme(controller);
            }
        }
        assert_eq!(flysch_shutdown(controller, &mut error), Status::Ok);
        let flush = request(0, Operation::Flush, 0, (ptr::null_mut(), 0));
        assert_eq!(flysch_run(controller, 0, &flush), Status::Gone);
        flysch_close(controller);
    }
}

fn no_link() -> Link {
    Link { high_speed: false, gear: 0, lanes: 0, series: 0, hibernating: false }
}

/// Queries, link and power of UFS, including what is refused.
fn manage_ufs(controller: *mut Controller, link: Link) {
    const ACTIVE_ICC_LEVEL: u8 = 0x03;
    let mut error = no_error();
    let mut ask = |kind: QueryKind, id, value| {
        let kind = kind as u8;
        let query = Query { kind, id, index: 0, selector: 0, irreversible: false, value };
        let mut answer = Answer { value: 0, len: 0, bytes: [0; DESCRIPTOR_BYTES] };
        // SAFETY: a controller returned by an open, and room for the rest.
        let status = unsafe { flysch_ufs_query(controller, &query, &mut answer, &mut error) };
        (status, answer)
    };
    // bLength, bDescriptorIDN of the device descriptor; wSpecVersion 4.x.
    let (status, device) = ask(QueryKind::ReadDescriptor, 0x00, 0);
    assert_eq!(
        (status, usize::from(device.bytes[0]), device.bytes[1]),
        (Status::Ok, device.len.into(), 0)
    );
    assert_eq!(device.bytes[0x10], 4, "{device:?}");
    assert_eq!(ask(QueryKind::WriteAttribute, ACTIVE_ICC_LEVEL, 7).0, Status::Ok);
    assert_eq!(ask(QueryKind::ReadAttribute, ACTIVE_ICC_LEVEL, 0).1.value, 7);
    // fDeviceInit is 0 after bring-up, fBackgroundOpsEn (0x04) can be toggled.
    assert_eq!(ask(QueryKind::ReadFlag, 0x01, 0).1.value, 0);
    let before = ask(QueryKind::ReadFlag, 0x04, 0).1.value;
    assert_eq!(ask(QueryKind::ToggleFlag, 0x04, 0).0, Status::Ok);
    assert_eq!(ask(QueryKind::ReadFlag, 0x04, 0).1.value, 1 - before);
    assert_eq!(ask(QueryKind::ReadAttribute, 0xFE, 0).0, Status::Device);
    // bBootLunEn is writable, bConfigDescrLock can be written once.
    assert_eq!(ask(QueryKind::WriteAttribute, 0x0B, 1).0, Status::Device);
    assert!(!words(&error.text).is_empty());
    assert!(link.high_speed && link.gear > 1, "{link:?}");
    // SAFETY: as above.
    unsafe {
        let slow = Link { gear: 1, ..link };
        assert_eq!(flysch_ufs_set_link(controller, &slow, &mut error), Status::Ok);
        let mut now = no_link();
        assert_eq!(flysch_ufs_link(controller, &mut now, &mut error), Status::Ok);
        assert_eq!(now, slow);
        let wrong = Link { series: 3, ..link };
        assert_eq!(flysch_ufs_set_link(controller, &wrong, &mut error), Status::Argument);
        for power in [Power::Sleep, Power::Active] {
            let status = flysch_ufs_set_power(controller, power as u8, &mut error);
            assert_eq!(status, Status::Ok, "{}", words(&error.text));
        }
        assert_eq!(flysch_ufs_set_power(controller, 9, &mut error), Status::Argument);
        let (null, none) = (ptr::null_mut(), ptr::null_mut());
        assert_eq!(flysch_ufs_query(controller, none, null, &mut error), Status::Argument);
        let mut value = 0;
        let status = flysch_nvme_feature(controller, 4, &mut value, &mut error);
        assert_eq!(status, Status::Unsupported);
    }
}

/// Identify, features, log pages and other admin commands of NVMe.
fn manage_nvme(controller: *mut Controller) {
    let (mut error, mut page) = (no_error(), vec![0_u8; ADMIN_BYTES]);
    let data: *mut c_void = page.as_mut_ptr().cast();
    // SAFETY: a controller returned by an open, and room for the rest.
    unsafe {
        let status = flysch_nvme_identify(controller, 1, 0, data, &mut error);
        assert_eq!(status, Status::Ok, "{}", words(&error.text));
        // SQES and CQES: entries of 64 and 16 bytes, in every controller.
        let page = std::slice::from_raw_parts(data.cast::<u8>(), ADMIN_BYTES);
        assert_eq!((page[512] & 15, page[513] & 15), (6, 4));
        assert!(page[4..24].iter().any(u8::is_ascii_alphanumeric), "a serial number");
        assert_eq!(flysch_nvme_log_page(controller, 2, data, 512, &mut error), Status::Ok);
        assert!(page[1] != 0 || page[2] != 0, "a temperature in kelvin");
        assert_eq!(flysch_nvme_log_page(controller, 2, data, 3, &mut error), Status::Argument);
        assert_eq!(flysch_nvme_log_page(controller, 2, data, 8192, &mut error), Status::Argument);
        // Volatile write cache (06h).
        let mut value = 9;
        for set in [0, 1] {
            let status = flysch_nvme_set_feature(controller, 6, set, &mut error);
            assert_eq!(status, Status::Ok, "{}", words(&error.text));
            assert_eq!(flysch_nvme_feature(controller, 6, &mut value, &mut error), Status::Ok);
            assert_eq!(value & 1, set);
        }
        assert_eq!(flysch_nvme_feature(controller, 0x7F, &mut value, &mut error), Status::Device);
        let mut admin = Admin {
            opcode: 0x06,
            to_controller: false,
            nsid: 1,
            cdw10: [0; 6],
            data,
            len: ADMIN_BYTES as u32,
            timeout_ms: 0,
            result: 0,
        };
        assert_eq!(flysch_nvme_admin(controller, &mut admin, &mut error), Status::Ok);
        assert!(page[..8].iter().any(|byte| *byte != 0), "NSZE");
        // The driver's own queues are protected.
        admin.opcode = 0x04;
        assert_eq!(flysch_nvme_admin(controller, &mut admin, &mut error), Status::Device);
        admin.data = ptr::null_mut();
        assert_eq!(flysch_nvme_admin(controller, &mut admin, &mut error), Status::Argument);
        let status = flysch_nvme_identify(ptr::null_mut(), 1, 0, data, &mut error);
        assert_eq!(
            (status, words(&error.text)),
            (Status::Argument, "the controller is NULL".into())
        );
    }
}

#[test]
fn a_board_that_lacks_something_is_told_what() {
    let memory = memory();
    let model = ufs::Ufs::new(ufs::Config::default(), memory.clone()).unwrap();
    let bus = Inline::new(model, memory.clone(), Identity::default(), Mode::Virtual);
    let whole = board(&bus, &memory);
    let options = flysch_default_options();
    let cases = [
        (Board { read32: None, ..whole }, options, "the board has no read32"),
        (Board { wait: None, ..whole }, options, "the board has no wait"),
        (Board { memory: ptr::null_mut(), ..whole }, options, "the board has no memory"),
        (Board { memory_address: 12, ..whole }, options, "DMA memory is not aligned to 4096 bytes"),
        (
            Board { memory_address: !4095, ..whole },
            options,
            "memory_address: 8388608 bytes at 0xfffffffffffff000 end beyond the address space",
        ),
        (Board { memory_len: 0, ..whole }, options, "memory_len: DMA memory cannot have 0 bytes"),
        (whole, Options { queue: 9, ..options }, "queue: there is no 9"),
    ];
    for (board, options, text) in cases {
        let mut error = no_error();
        // SAFETY: everything pointed to exists; what is missing is the subject of the test.
        unsafe {
            let controller = flysch_ufs_open(&board, &options, ptr::null(), &mut error);
            assert!(controller.is_null());
            assert_eq!((error.status, words(&error.text).as_str()), (Status::Argument, text));
        }
    }
    let mut error = no_error();
    // SAFETY: as above.
    unsafe {
        let little = Board { memory_len: 8192, ..whole };
        assert!(flysch_ufs_open(&little, &options, ptr::null(), &mut error).is_null());
        assert_eq!(error.status, Status::Memory);
        assert!(words(&error.text).contains("8192 are left"), "{}", words(&error.text));
        assert!(flysch_ufs_open(ptr::null(), &options, ptr::null(), &mut error).is_null());
        // A caller that does not want the reason does not get it.
        assert!(flysch_ufs_open(&little, ptr::null(), ptr::null(), ptr::null_mut()).is_null());
        let none = Options { disks: 0, ..options };
        assert!(flysch_ufs_open(&whole, &none, ptr::null(), &mut error).is_null());
        assert_eq!(error.status, Status::Controller, "{}", words(&error.text));
        flysch_close(ptr::null_mut());
    }
}

/// The platform's notifications.
static TOLD: Mutex<Vec<String>> = Mutex::new(Vec::new());

unsafe extern "C" fn notice(
    _: *mut c_void,
    event: Event,
    name: *const c_char,
    value: u32,
    after: bool,
) -> c_int {
    // SAFETY: the name is a C string during the call.
    let name = unsafe { CStr::from_ptr(name) }.to_str().unwrap();
    TOLD.lock().unwrap().push(format!("{event:?} {name} {value:#x} {after}"));
    0
}

unsafe extern "C" fn refuses(
    _: *mut c_void,
    event: Event,
    _: *const c_char,
    _: u32,
    _: bool,
) -> c_int {
    if event == Event::LinkStartup { -7 } else { 0 }
}

unsafe extern "C" fn setting(
    _: *mut c_void,
    event: Event,
    after: bool,
    n: u32,
    setting: *mut DmeSetting,
) -> bool {
    if event != Event::LinkStartup || after || n > 0 {
        return false;
    }
    // SAFETY: there is room for one.
    unsafe { setting.write(DmeSetting { attribute: 0x2C, selector: 0, peer: false, value: 0 }) };
    TOLD.lock().unwrap().push("setting".to_owned());
    true
}

unsafe extern "C" fn clocks(_: *mut c_void, clocks: Clocks) {
    TOLD.lock().unwrap().push(format!("clocks {clocks:?}"));
}

#[test]
fn a_platform_is_told_and_may_refuse() {
    let memory = memory();
    let model = ufs::Ufs::new(ufs::Config::default(), memory.clone()).unwrap();
    let bus = Inline::new(model, memory.clone(), Identity::default(), Mode::Virtual);
    let board = board(&bus, &memory);
    let platform = Platform {
        context: ptr::null_mut(),
        notice: Some(notice),
        setting: Some(setting),
        device_reset: None,
        clocks: Some(clocks),
        reference_clock: -1,
    };
    let mut error = no_error();
    // SAFETY: everything pointed to lives until the end.
    unsafe {
        let controller = flysch_ufs_open(&board, ptr::null(), &platform, &mut error);
        assert!(!controller.is_null(), "{}", words(&error.text));
        let told = std::mem::take(&mut *TOLD.lock().unwrap());
        let place = |line: &str| told.iter().position(|told| told.starts_with(line));
        let order = ["clocks On", "LinkStartup link start-up 0x0 false", "setting"];
        let order = order.map(|line| place(line).unwrap_or_else(|| panic!("{line}: {told:?}")));
        assert!(order.is_sorted(), "{told:?}");
        assert!(place("PowerMode power mode 0x10").is_some(), "high speed: {told:?}");
        flysch_close(controller);
        let refusing = Platform { notice: Some(refuses), ..platform };
        assert!(flysch_ufs_open(&board, ptr::null(), &refusing, &mut error).is_null());
        assert_eq!(error.status, Status::Controller);
        assert!(words(&error.text).contains('7'), "{}", words(&error.text));
    }
}

#[test]
fn every_status_has_words_of_its_own() {
    let text = |status: i32| {
        // SAFETY: a C string that lives forever.
        unsafe { CStr::from_ptr(flysch_status_text(status)) }.to_str().unwrap()
    };
    let all: std::collections::BTreeSet<&str> = (Status::Gone as i32..=0).map(text).collect();
    assert_eq!(all.len(), 18);
    assert!(!all.contains("unknown status"));
    assert_eq!((text(1), text(Status::Gone as i32 - 1)), ("unknown status", "unknown status"));
}

#[test]
fn the_header_is_what_the_crate_says() {
    assert_header("c-drivers", "flysch_drivers.h");
    assert_pkg_config("c-drivers", "flysch_drivers.pc");
}

/// The header of a crate in `bindings` must be what cbindgen generates; `FLYSCH_WRITE=1` writes it.
pub(crate) fn assert_header(name: &str, header: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bindings").join(name);
    let config = cbindgen::Config::from_file(folder.join("cbindgen.toml"));
    let mut config = config.expect("a file of it");
    let library = header.trim_end_matches(".h");
    let own = config.after_includes.map_or_else(String::new, |text| text + "\n");
    config.after_includes = Some(own + &version_in_c(library));
    let bindings = cbindgen::Builder::new().with_crate(&folder).with_config(config);
    let mut made = Vec::new();
    bindings.generate().expect("the crate can be read").write(&mut made);
    assert_file(&folder.join("include").join(header), &made);
}

/// A generated file must be what was `made`.
fn assert_file(place: &Path, made: &[u8]) {
    if std::env::var_os("FLYSCH_WRITE").is_some() {
        std::fs::write(place, made).expect("the file can be written");
    }
    let there = std::fs::read(place).unwrap_or_default();
    let remedy = "write it: FLYSCH_WRITE=1 cargo test --workspace --test stories header";
    assert!(there == made, "{} is not what the crate says; {remedy}", place.display());
}

/// The version of a library, for the preprocessor.
fn version_in_c(library: &str) -> String {
    let name = format!("{}_VERSION", library.to_uppercase());
    format!(
        "\n/* The version of this header. {library}_version() is that of the library. */\n\
         #define {name} \"{}\"\n#define {name}_MAJOR {}\n#define {name}_MINOR {}\n\
         #define {name}_PATCH {}",
        env!("CARGO_PKG_VERSION"),
        env!("CARGO_PKG_VERSION_MAJOR"),
        env!("CARGO_PKG_VERSION_MINOR"),
        env!("CARGO_PKG_VERSION_PATCH")
    )
}

/// What pkg-config knows of a library must have the version of its crate.
pub(crate) fn assert_pkg_config(name: &str, file: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bindings").join(name);
    let place = folder.join(file);
    let there = std::fs::read_to_string(&place).expect("it is in the repository");
    let version = concat!("Version: ", env!("CARGO_PKG_VERSION"));
    let renew = |line| if str::starts_with(line, "Version:") { version } else { line };
    let made: String = there.lines().flat_map(|line| [renew(line), "\n"]).collect();
    assert!(made.contains(version), "{}: no version", place.display());
    assert_file(&place, made.as_bytes());
}
