//! A disk as bytes: plain reads and writes of any length, for copying and for tests.
//!
//! Each call is split into pieces that are in flight together, so that copying runs at the disk's
//! own speed. Partial blocks are read, modified and written back.

use flysch_api::block::{BlockDevice, BlockError, BlockGeometry, Operation, Refused, Request};
use flysch_api::machine::{Clock, DmaSlice, Wake};

/// Longest piece, bytes.
const PIECE: u64 = 256 << 10;
/// Maximum number of pieces in flight.
const PIECES: usize = 32;

/// Bytes of buffer memory with which [`Blocks`] runs at full speed.
pub const MEMORY: usize = PIECE as usize * PIECES;

/// An error, and the bytes concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{operation} of {length} bytes at offset {offset}: {error}")]
pub struct BlocksError {
    /// The operation.
    pub operation: Operation,
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub length: u64,
    /// The device's error.
    pub error: BlockError,
}

/// A disk as bytes.
pub trait Blocks {
    /// The disk's properties.
    fn geometry(&self) -> BlockGeometry;

    /// Fills `to` with the bytes at `offset`.
    ///
    /// # Errors
    /// The first piece that failed.
    fn read(&mut self, offset: u64, to: &mut [u8]) -> Result<(), BlocksError>;

    /// Writes `from` at `offset`. The data is durable after the next [`flush`](Self::flush).
    ///
    /// # Errors
    /// The first piece that failed; others may have been written.
    fn write(&mut self, offset: u64, from: &[u8]) -> Result<(), BlocksError>;

    /// Makes all written data durable.
    ///
    /// # Errors
    /// The device's error.
    fn flush(&mut self) -> Result<(), BlocksError>;
}

/// [`Blocks`] on one lane of a stack.
#[derive(Debug)]
pub struct OnDevice<'a, D, C> {
    device: &'a mut D,
    clock: &'a C,
    piece: u64,
    pieces: usize,
}

/// Bytes to transfer: out of a slice or into it.
enum Data<'a> {
    Read(&'a mut [u8]),
    Write(&'a [u8]),
}

/// The progress of a transfer.
struct Flight {
    /// Bytes submitted so far.
    next: u64,
    /// Pieces in flight.
    in_flight: usize,
    /// Free slots of the buffer memory.
    free: Vec<usize>,
    /// Offset, length and cause of the first failure.
    failed: Option<(u64, u64, BlockError)>,
}

impl Flight {
    fn fail(&mut self, at: u64, length: u64, error: BlockError) {
        self.failed.get_or_insert((at, length, error));
    }
}

impl Data<'_> {
    fn operation(&self) -> Operation {
        match self {
            Data::Read(_) => Operation::Read,
            Data::Write(_) => Operation::Write,
        }
    }

    fn len(&self) -> u64 {
        match self {
            Data::Read(bytes) => bytes.len() as u64,
            Data::Write(bytes) => bytes.len() as u64,
        }
    }
}

impl<'a, D: BlockDevice, C: Clock> OnDevice<'a, D, C> {
    /// Uses `device` exclusively; its memory must hold two of its blocks.
    pub fn new(device: &'a mut D, clock: &'a C) -> Self {
        let geometry = device.geometry();
        let block = u64::from(geometry.block_size);
        let memory = device.memory().len() as u64;
        let longest = u64::from(geometry.transfer_max).min(PIECE).min(memory / 2);
        let piece = (longest / block * block).max(block);
        let most = PIECES.min(geometry.queue_depth as usize).max(1);
        let pieces = ((memory / piece) as usize).min(most);
        Self { device, clock, piece, pieces }
    }

    /// Whole blocks, with as many pieces in flight as fit.
    fn transfer(&mut self, offset: u64, data: &mut Data<'_>) -> Result<(), BlocksError> {
        let operation = data.operation();
        let mut flight =
            Flight { next: 0, in_flight: 0, free: (0..self.pieces).rev().collect(), failed: None };
        while flight.next < data.len() || flight.in_flight > 0 {
            self.submit_pieces(offset, data, &mut flight);
            if flight.in_flight == 0 {
                if flight.failed.is_none() && self.may_have_room() {
                    continue;
                }
                flight.fail(flight.next, data.len() - flight.next, BlockError::Gone);
                break;
            }
            let Some((token, result)) = self.wait() else {
                flight.fail(0, data.len(), BlockError::Gone);
                break;
            };
            let (at, place) = (token >> 8, (token & 0xFF) as usize);
            let length = self.piece.min(data.len() - at);
            match (result, &mut *data) {
                (Ok(()), Data::Read(to)) => {
                    let to = &mut to[at as usize..(at + length) as usize];
                    self.device.memory().read(place * self.piece as usize, to);
                }
                (Ok(()), Data::Write(_)) => {}
                (Err(error), _) => flight.fail(at, length, error),
            }
            flight.free.push(place);
            flight.in_flight -= 1;
        }
        match flight.failed {
            None => Ok(()),
            Some((at, length, error)) => {
                Err(BlocksError { operation, offset: offset + at, length, error })
            }
        }
    }

    /// Submits pieces while there is room and nothing has failed, and rings the doorbell.
    fn submit_pieces(&mut self, offset: u64, data: &Data<'_>, flight: &mut Flight) {
        let before = flight.in_flight;
        while flight.next < data.len() && flight.failed.is_none() {
            let Some(place) = flight.free.pop() else { break };
            let at = flight.next;
            let length = self.piece.min(data.len() - at);
            let buffer = self.buffer(place, length, at, data);
            let token = at << 8 | place as u64;
            let request = self.request(data.operation(), offset + at, buffer, token);
            match self.device.submit(&request, request.accepted) {
                Ok(()) => {
                    flight.next += length;
                    flight.in_flight += 1;
                    continue;
                }
                Err(Refused::Full) => {}
                Err(Refused::Invalid(error)) => flight.fail(at, length, error),
            }
            flight.free.push(place);
            break;
        }
        if flight.in_flight > before {
            self.device.ring(self.clock.now());
        }
    }

    /// The buffer of a piece, filled if it is to be written.
    fn buffer(&self, place: usize, piece: u64, at: u64, data: &Data<'_>) -> DmaSlice {
        let start = place * self.piece as usize;
        if let Data::Write(from) = data {
            self.device.memory().write(start, &from[at as usize..(at + piece) as usize]);
        }
        self.device.memory().slice(start, piece as u32)
    }

    fn request(&self, operation: Operation, offset: u64, buffer: DmaSlice, token: u64) -> Request {
        Request {
            operation,
            force_unit_access: false,
            offset,
            length: u64::from(buffer.len),
            data: flysch_api::data::Data::One(buffer),
            crypto: None,
            token,
            accepted: self.clock.now(),
        }
    }

    /// The next completion; none if the device has gone quiet for good.
    fn wait(&mut self) -> Option<(u64, Result<(), BlockError>)> {
        loop {
            if let Some(done) = self.device.poll(self.clock.now()) {
                return Some((done.token, done.result));
            }
            let until = self.device.poll_at();
            if self.clock.wait(until) == Wake::Idle && until.is_none() {
                return None;
            }
        }
    }

    /// Whether to retry after a device with nothing in flight had no room: not if it waits for
    /// nothing.
    fn may_have_room(&mut self) -> bool {
        let _ = self.device.poll(self.clock.now());
        let until = self.device.poll_at();
        self.clock.wait(until) != Wake::Idle || until.is_some()
    }

    /// The block around an edge: its offset, and its contents on the disk.
    fn block_around(&mut self, offset: u64) -> Result<(u64, Vec<u8>), BlocksError> {
        let size = u64::from(self.device.geometry().block_size);
        let start = offset / size * size;
        let mut block = vec![0; size as usize];
        self.transfer(start, &mut Data::Read(&mut block))?;
        Ok((start, block))
    }

    /// How many of `length` bytes at `offset` come before the first whole block, and how many
    /// whole blocks' bytes follow.
    fn cut(&self, offset: u64, length: usize) -> (usize, usize) {
        let size = u64::from(self.device.geometry().block_size);
        let head = (offset.next_multiple_of(size) - offset).min(length as u64);
        let middle = (length as u64 - head) / size * size;
        (head as usize, middle as usize)
    }
}

impl<D: BlockDevice, C: Clock> Blocks for OnDevice<'_, D, C> {
    fn geometry(&self) -> BlockGeometry {
        *self.device.geometry()
    }

    fn read(&mut self, offset: u64, to: &mut [u8]) -> Result<(), BlocksError> {
        let (head, middle) = self.cut(offset, to.len());
        let (first, rest) = to.split_at_mut(head);
        let (whole, last) = rest.split_at_mut(middle);
        let whole_at = offset + head as u64;
        for (at, part) in [(offset, first), (whole_at + middle as u64, last)] {
            if !part.is_empty() {
                let (start, block) = self.block_around(at)?;
                let inside = (at - start) as usize;
                part.copy_from_slice(&block[inside..inside + part.len()]);
            }
        }
        self.transfer(whole_at, &mut Data::Read(whole))
    }

    fn write(&mut self, offset: u64, from: &[u8]) -> Result<(), BlocksError> {
        let (head, middle) = self.cut(offset, from.len());
        let (first, rest) = from.split_at(head);
        let (whole, last) = rest.split_at(middle);
        let whole_at = offset + head as u64;
        for (at, part) in [(offset, first), (whole_at + middle as u64, last)] {
            if !part.is_empty() {
                let (start, mut block) = self.block_around(at)?;
                let inside = (at - start) as usize;
                block[inside..inside + part.len()].copy_from_slice(part);
                self.transfer(start, &mut Data::Write(&block))?;
            }
        }
        self.transfer(whole_at, &mut Data::Write(whole))
    }

    fn flush(&mut self) -> Result<(), BlocksError> {
        let request = self.request(Operation::Flush, 0, DmaSlice::EMPTY, 0);
        let fail = |error| BlocksError { operation: Operation::Flush, offset: 0, length: 0, error };
        loop {
            match self.device.submit(&request, request.accepted) {
                Ok(()) => break,
                Err(Refused::Invalid(error)) => return Err(fail(error)),
                Err(Refused::Full) if self.may_have_room() => {}
                Err(Refused::Full) => return Err(fail(BlockError::Gone)),
            }
        }
        self.device.ring(self.clock.now());
        self.wait().map_or(Err(BlockError::Gone), |(_, result)| result).map_err(fail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flysch_bench::clock::RealClock;
    use flysch_bench::file::{File, FileOptions};
    use std::path::Path;

    fn disk(path: &Path, size: u64, clock: RealClock) -> File {
        let create_size = Some(size);
        let options = FileOptions { create_size, memory_len: 1 << 20, ..FileOptions::default() };
        File::open(path, options, clock).unwrap()
    }

    /// Writes and reads of every alignment, against the file's own bytes.
    #[test]
    fn bytes_of_any_alignment_come_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        let clock = RealClock::new();
        let mut disk = disk(&path, 3 << 20, clock.clone());
        let mut blocks = OnDevice::new(&mut disk, &clock);
        let mut mirror = vec![0_u8; 3 << 20];
        let cases = [
            (0, 1),
            (4095, 2),
            (1, 4095),
            (4096, 4096),
            (5000, 2 << 20),
            ((3 << 20) - 1, 1),
            (7, 0),
        ];
        for (number, (offset, length)) in cases.into_iter().enumerate() {
            let bytes: Vec<u8> = (0..length).map(|n| (n * 7 + number * 31 + 1) as u8).collect();
            blocks.write(offset as u64, &bytes).unwrap();
            mirror[offset..offset + length].copy_from_slice(&bytes);
            let mut back = vec![0; length];
            blocks.read(offset as u64, &mut back).unwrap();
            assert!(back == bytes, "{length} bytes at {offset}");
        }
        blocks.flush().unwrap();
        assert!(std::fs::read(&path).unwrap() == mirror);
    }

    #[test]
    fn a_device_without_room_is_an_error_and_no_silence() {
        use flysch_bench::null::Null;
        let clock = RealClock::new();
        // As many pieces as it takes, and more.
        let mut null = Null::new(64 << 20, 2, 1 << 20);
        let mut blocks = OnDevice::new(&mut null, &clock);
        blocks.write(0, &vec![1; 5 << 20]).unwrap();
        blocks.flush().unwrap();
        // One that never takes anything.
        let mut null = Null::new(64 << 20, 0, 1 << 20);
        let mut blocks = OnDevice::new(&mut null, &clock);
        assert_eq!(blocks.write(0, &[1; 4096]).unwrap_err().error, BlockError::Gone);
        assert_eq!(blocks.flush().unwrap_err().error, BlockError::Gone);
    }

    #[test]
    fn what_is_beyond_the_end_names_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let clock = RealClock::new();
        let mut disk = disk(&folder.path().join("disk"), 1 << 20, clock.clone());
        let mut blocks = OnDevice::new(&mut disk, &clock);
        let error = blocks.write((1 << 20) - 4096, &[1; 8192]).unwrap_err();
        assert_eq!(error.error, BlockError::OutOfRange);
        let error = blocks.read(1 << 20, &mut [0; 1]).unwrap_err().to_string();
        assert!(error.contains("read of 4096 bytes at offset 1048576"), "{error}");
    }
}
