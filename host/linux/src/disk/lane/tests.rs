use std::fs;
use std::path::Path;
use std::time::Duration;

use flysch_api::machine::{DmaSlice, Wake};

use super::*;
use crate::disk::{Access, Settings, open};

/// The time of this machine; without an engine's wait it sleeps.
#[derive(Clone, Debug)]
struct Time(std::time::Instant);

impl Clock for Time {
    fn now(&self) -> Instant {
        Instant::START + self.0.elapsed()
    }

    fn wait(&self, until: Option<Instant>) -> Wake {
        let Some(until) = until else { return Wake::Idle };
        std::thread::sleep(Duration::from_nanos(until.nanos_since(self.now())));
        Wake::Deadline
    }
}

const SIZE: usize = 1 << 20;

/// Every engine, registered and not, bypassing the page cache if the file system of temporary files
/// allows it.
fn all(path: &Path) -> Vec<Settings> {
    let plain = Settings::default();
    let uring = [plain, Settings { fixed: false, ..plain }, Settings { sqpoll: true, ..plain }];
    let others = [Engine::Aio, Engine::Sync].map(|engine| Settings { engine, ..plain });
    let all = uring.into_iter().chain(others);
    let both = all.flat_map(|it| [it, Settings { direct: false, ..it }]);
    let is_possible = |it: &Settings| !matches!(open(path, *it), Err(DiskError::NoDirect { .. }));
    both.filter(is_possible).collect()
}

fn lane(path: &Path, settings: Settings, depth: u32) -> (Disk<Time>, Waiting<Time>) {
    let clock = Time(std::time::Instant::now());
    let object = open(path, settings).unwrap();
    let (mut lanes, clock) = object.lanes(1, depth, SIZE, &clock).unwrap();
    (lanes.remove(0), clock)
}

fn request(operation: Operation, offset: u64, data: Data, token: u64) -> Request {
    Request {
        operation,
        force_unit_access: false,
        offset,
        length: data.len().into(),
        data,
        crypto: None,
        token,
        accepted: Instant::START,
    }
}

/// Rings the doorbell, and takes this many completions.
fn finish(
    lane: &mut Disk<Time>,
    clock: &Waiting<Time>,
    count: usize,
) -> Vec<(u64, Result<(), BlockError>)> {
    lane.ring(clock.now());
    let mut all = Vec::new();
    while all.len() < count {
        match lane.poll(clock.now()) {
            Some(Completion { token, result, passage }) => {
                assert!(passage.issued <= passage.seen, "{passage:?}");
                all.push((token, result));
            }
            None => assert_ne!(clock.wait(None), Wake::Idle, "{} of {count}", all.len()),
        }
    }
    all.sort_by_key(|(token, _)| *token);
    all
}

fn file(folder: &tempfile::TempDir) -> std::path::PathBuf {
    let path = folder.path().join("disk");
    let bytes: Vec<u8> = (0..SIZE).map(|at| (at / 4096) as u8).collect();
    fs::write(&path, bytes).unwrap();
    path
}

#[test]
fn every_engine_moves_the_bytes_of_ranges_and_lists() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(&folder);
    for settings in all(&path) {
        let path = file(&folder);
        let (mut lane, clock) = lane(&path, settings, 8);
        assert_eq!(lane.geometry().block_size, 4096);
        let memory = lane.memory().clone();
        // Reads fill their places, eight at a time.
        for block in 0..8_usize {
            let data = Data::One(memory.slice(block * 4096, 4096));
            let read = request(Operation::Read, (block as u64 + 9) * 4096, data, block as u64);
            assert_eq!(lane.submit(&read, clock.now()), Ok(()));
        }
        let more = request(Operation::Flush, 0, Data::NONE, 9);
        assert_eq!(lane.submit(&more, clock.now()), Err(Refused::Full));
        assert!(lane.poll(clock.now()).is_none(), "nothing was rung for");
        let done = finish(&mut lane, &clock, 8);
        assert!(done.iter().enumerate().all(|(at, it)| *it == (at as u64, Ok(()))), "{done:?}");
        for block in 0..8_usize {
            let mut bytes = [0; 4096];
            memory.read(block * 4096, &mut bytes);
            assert!(bytes.iter().all(|byte| usize::from(*byte) == block + 9), "{settings:?}");
        }
        // A durable write of a list, a flush, a hole.
        memory.fill(0, 4096, 0xa5);
        memory.fill(65_536, 4096, 0x5a);
        let segments = [
            DmaSlice { address: memory.address() + 65_536, len: 4096 },
            DmaSlice { address: memory.address(), len: 4096 },
        ];
        let list = Data::list(&memory, 131_072, &segments).unwrap();
        let mut write = request(Operation::Write, 40_960, list, 1);
        write.force_unit_access = true;
        assert_eq!(lane.submit(&write, clock.now()), Ok(()));
        assert_eq!(finish(&mut lane, &clock, 1), [(1, Ok(()))], "{settings:?}");
        assert_eq!(lane.submit(&more, clock.now()), Ok(()));
        let mut hole = request(Operation::Delete, 0, Data::NONE, 2);
        hole.length = 8192;
        assert_eq!(lane.submit(&hole, clock.now()), Ok(()));
        assert_eq!(finish(&mut lane, &clock, 2), [(2, Ok(())), (9, Ok(()))], "{settings:?}");
        assert_eq!((lane.troubles(), lane.failure()), (&[][..], None));
        assert_eq!(clock.wait(None), Wake::Idle, "nothing is under way");
        drop(lane);
        let bytes = fs::read(&path).unwrap();
        assert_eq!(bytes.len(), SIZE);
        let at = |at: usize| (bytes[at], bytes[at + 4095]);
        assert_eq!([at(40_960), at(45_056)], [(0x5a, 0x5a), (0xa5, 0xa5)], "{settings:?}");
        assert_eq!([at(0), at(4096), at(8192)], [(0, 0), (0, 0), (2, 2)], "{settings:?}");
    }
}

#[test]
fn what_cannot_work_is_refused_and_what_fails_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(&folder);
    for settings in all(&path) {
        let path = file(&folder);
        let (mut lane, clock) = lane(&path, settings, 4);
        let data = Data::One(lane.memory().slice(0, 4096));
        let beyond = request(Operation::Read, SIZE as u64, data, 0);
        let refused = lane.submit(&beyond, clock.now());
        assert_eq!(refused, Err(Refused::Invalid(BlockError::OutOfRange)));
        let outside = Data::One(DmaSlice { address: SIZE as u64, len: 4096 });
        let outside = lane.submit(&request(Operation::Write, 0, outside, 0), clock.now());
        assert_eq!(outside, Err(Refused::Invalid(BlockError::BadData(BadData::Outside))));
        if lane.geometry().segments.alignment > 1 {
            let odd = Data::One(lane.memory().slice(1, 4096));
            let odd = lane.submit(&request(Operation::Read, 0, odd, 0), clock.now());
            assert_eq!(odd, Err(Refused::Invalid(BlockError::BadData(BadData::Misaligned))));
        }
        // The file shrinks: a request that begins inside and one that is beyond.
        let whole = Data::One(lane.memory().slice(0, 16_384));
        fs::File::options().write(true).open(&path).unwrap().set_len(8192).unwrap();
        lane.submit(&request(Operation::Read, 0, whole, 1), clock.now()).unwrap();
        lane.submit(&request(Operation::Read, 65_536, data, 2), clock.now()).unwrap();
        let done = finish(&mut lane, &clock, 2);
        assert_eq!(done, [(1, Err(BlockError::OutOfRange)), (2, Err(BlockError::OutOfRange))]);
        assert_eq!(lane.submit(&request(Operation::Read, 0, data, 3), clock.now()), Ok(()));
        assert_eq!(finish(&mut lane, &clock, 1), [(3, Ok(()))], "{settings:?}");
    }
}

#[test]
fn the_kernels_errors_have_names_places_and_counts() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(&folder);
    let (mut lane, clock) = lane(&path, Settings { direct: false, ..Settings::default() }, 4);
    let data = Data::One(lane.memory().slice(0, 4096));
    for (token, errno) in [(1, libc::EIO), (2, libc::EIO), (3, libc::ENOSPC)] {
        lane.submit(&request(Operation::Write, 4096, data, token), clock.now()).unwrap();
        let slot = lane.batch.pop().unwrap();
        let done = lane.finish(slot, -errno, clock.now()).unwrap();
        assert_eq!(done.result.unwrap_err(), error_of(errno, Operation::Write));
    }
    let [eio, enospc] = lane.troubles() else { panic!("{:?}", lane.troubles()) };
    assert_eq!((eio.count, enospc.count), (2, 1));
    assert!(eio.what().starts_with("write: Input/output error"), "{}", eio.what());
    let failure = lane.failure().unwrap();
    let place = format!("{}: write of 4096 bytes at offset 4096: ", path.display());
    assert!(failure.starts_with(&place) && failure.ends_with("kernel's log"), "{failure}");
}

#[test]
fn lanes_are_waited_for_together_and_end_with_requests_under_way() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(&folder);
    for settings in all(&path) {
        let time = Time(std::time::Instant::now());
        let object = open(&path, settings).unwrap();
        let (mut lanes, clock) = object.lanes(3, 4, SIZE, &time).unwrap();
        for round in 0..50_u64 {
            for (at, lane) in lanes.iter_mut().enumerate() {
                assert_eq!(lane.memory().len(), 3 * SIZE, "all lanes have one memory");
                let data = Data::One(lane.memory().slice(at * SIZE, 4096));
                let read = request(Operation::Read, round * 4096, data, round);
                lane.submit(&read, clock.now()).unwrap();
                lane.ring(clock.now());
            }
            let mut done = 0;
            while done < lanes.len() {
                let count = lanes.iter_mut().filter_map(|lane| lane.poll(clock.now())).count();
                done += count;
                if count == 0 && done < lanes.len() {
                    assert_ne!(clock.wait(None), Wake::Idle, "{settings:?}");
                }
            }
        }
        assert_eq!(clock.wait(None), Wake::Idle);
        let until = clock.now().after_nanos(2_000_000);
        assert_eq!(clock.wait(Some(until)), Wake::Deadline);
        for lane in &mut lanes {
            for token in 0..4 {
                let data = Data::One(lane.memory().slice(0, 65_536));
                lane.submit(&request(Operation::Read, token * 65_536, data, token), until).unwrap();
            }
            lane.ring(clock.now());
        }
        drop(lanes);
    }
}

#[test]
fn objects_are_refused_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(&folder);
    let told = |path: &Path, settings: Settings| open(path, settings).unwrap_err().to_string();
    let plain = Settings { direct: false, ..Settings::default() };
    assert!(told(&folder.path().join("none"), plain).ends_with("give `size=` to make a file"));
    assert!(told(Path::new("/dev/nowhere"), plain).ends_with("lists the disks of this machine"));
    assert!(told(folder.path(), plain).contains("is a directory"));
    assert!(told(Path::new("/dev/null"), plain).contains("is a character device"));
    let small = folder.path().join("small");
    fs::write(&small, [0; 100]).unwrap();
    assert!(told(&small, plain).contains("100 bytes are less than one block of 512"));
    let polled = Settings { polled: true, ..Settings::default() };
    assert!(told(&path, Settings { engine: Engine::Aio, ..polled }).starts_with("polled: "));
    assert!(told(&path, Settings { direct: false, ..polled }).starts_with("polled: "));
    let sqpoll = Settings { sqpoll: true, engine: Engine::Sync, ..plain };
    assert!(told(&path, sqpoll).starts_with("sqpoll: "));
    // A file whose length is odd has the blocks it can have, and keeps its length.
    fs::write(&small, [1; 1536]).unwrap();
    assert_eq!(open(&small, plain).unwrap().facts().block, 512);
    // What may not be written is read, unless writing was asked for.
    let read = open(&path, Settings { access: Access::Read, ..plain }).unwrap();
    assert!(!read.facts().writable && !read.facts().can_delete);
}
