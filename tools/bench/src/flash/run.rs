//! The measurements.

use flysch_api::flash::{Flash, FlashMut};
use flysch_api::vfs::{FileSystem, FileSystemMut, FileSystemMutExt, Inode};
use flysch_ubifs::IndexUse;

use super::buffer::PageCache;
use super::meter::{Layer, Reading};
use super::plan::{Content, Data, Plan, Test};
use super::stack::{FILE, FigureError, Mounted, NOW, Stacks, Subject};
use crate::random::Random;

/// The result of one test; the value is in the unit of the test.
pub type Outcome = Result<(f64, Reading), FigureError>;

/// Bytes per call of a read.
const READ_PIECE: usize = 64 << 10;
/// Bytes per call when creating files for a mount.
const FILL_PIECE: usize = 64 << 10;
/// Bytes in MiB.
const MEBI: f64 = 1_048_576.0;

/// Runs the tests of one subject.
#[derive(Debug)]
pub struct Runner<'t> {
    /// The amounts.
    pub plan: &'t Plan,
    /// The stacks.
    pub stacks: Stacks<'t>,
    /// The subject.
    pub subject: Subject,
}

impl Runner<'_> {
    /// Runs all tests that make sense for the subject. `tell` is called before each test.
    pub fn run(&self, tell: &mut dyn FnMut(Test)) -> Vec<(Test, Outcome)> {
        let mut outcomes = Vec::new();
        let plan = self.plan;
        for data in [Data::Random, Data::Zeros] {
            for &piece in &plan.pieces {
                let test = Test::Write { data, piece };
                tell(test);
                outcomes.push((test, self.write(data, piece)));
            }
        }
        tell(Test::Read { again: false });
        self.read(&mut outcomes);
        if self.subject == Subject::Raw {
            return outcomes;
        }
        for content in Content::ALL {
            tell(Test::Mount(content));
            if let Err(error) = self.mount(content, &mut outcomes) {
                outcomes.push((Test::Mount(content), Err(error)));
            }
        }
        for piece in plan.overhead_pieces {
            let tests = [Test::Overhead { piece }, Test::Programmed { piece }];
            tests.into_iter().for_each(&mut *tell);
            let [space, programmed] = match self.overhead(piece) {
                Ok((space, programmed, reading)) => [space, programmed].map(|it| Ok((it, reading))),
                Err(error) => [Err(error.clone()), Err(error)],
            };
            outcomes.extend([(tests[0], space), (tests[1], programmed)]);
        }
        outcomes
    }

    fn bytes(&self, data: Data, len: u32) -> Vec<u8> {
        let mut bytes = vec![0; len as usize];
        if data == Data::Random {
            fill(&mut bytes, self.stacks.target.seed);
        }
        bytes
    }

    /// The change of the meter while `layer` did `what`.
    fn measured<T>(
        &self,
        layer: Layer,
        what: impl FnOnce() -> Result<T, FigureError>,
    ) -> Result<(T, Reading), FigureError> {
        let meter = &self.stacks.meter;
        let before = meter.reading();
        let entered = meter.enter(layer);
        let result = what();
        drop(entered);
        Ok((result?, meter.reading() - before))
    }

    fn write(&self, data: Data, piece: u32) -> Outcome {
        let bytes = self.bytes(data, self.plan.file);
        let reading = match self.subject {
            Subject::Raw => {
                let mut mtd = self.stacks.mtd(self.stacks.target.chip())?;
                self.measured(Layer::Mtd, || program(&mut mtd, &bytes, piece))?.1
            }
            subject => {
                let mut mounted = self.stacks.fresh(subject)?;
                self.written(&mut mounted, &bytes, piece)?.1
            }
        };
        Ok((rate(bytes.len(), &reading), reading))
    }

    /// Creates a file, writes it and syncs it to the flash.
    fn written(
        &self,
        mounted: &mut Mounted,
        bytes: &[u8],
        piece: u32,
    ) -> Result<(Inode, Reading), FigureError> {
        self.measured(Layer::FileSystem, || {
            let fs = mounted.fs_mut();
            let inode = create(fs, b"file", bytes, piece as usize)?;
            fs.sync(None)?;
            Ok(inode)
        })
    }

    fn read(&self, outcomes: &mut Vec<(Test, Outcome)>) {
        let bytes = self.bytes(Data::Random, self.plan.file);
        let mut buffer = vec![0; bytes.len()];
        let mut note = |again, result: Result<Reading, FigureError>, buffer: &mut Vec<u8>| {
            let outcome = result.and_then(|reading| match *buffer == bytes {
                true => Ok((rate(bytes.len(), &reading), reading)),
                false => Err(FigureError::Differs),
            });
            buffer.fill(0xA5);
            outcomes.push((Test::Read { again }, outcome));
        };
        if self.subject == Subject::Raw {
            let result = self.read_raw(&bytes, &mut buffer);
            return note(false, result, &mut buffer);
        }
        let mounted = match self.file_mounted(&bytes) {
            Ok(mounted) => mounted,
            Err(error) => return note(false, Err(error), &mut buffer),
        };
        let mut cache = PageCache::default();
        let mut opened = None;
        for again in [false, true] {
            let result = self.measured(Layer::FileSystem, || {
                let fs = mounted.fs();
                let inode = match opened {
                    Some(inode) => inode,
                    None => fs.lookup(fs.statistics().root, b"file")?,
                };
                opened = Some(inode);
                for (number, piece) in buffer.chunks_mut(READ_PIECE).enumerate() {
                    cache.read(fs, inode, (number * READ_PIECE) as u64, piece)?;
                }
                Ok(())
            });
            note(again, result.map(|((), reading)| reading), &mut buffer);
        }
    }

    fn read_raw(&self, bytes: &[u8], buffer: &mut [u8]) -> Result<Reading, FigureError> {
        let mut mtd = self.stacks.mtd(self.stacks.target.chip())?;
        program(&mut mtd, bytes, 1 << 20)?;
        let read = self.measured(Layer::Mtd, || {
            for (number, piece) in buffer.chunks_mut(READ_PIECE).enumerate() {
                let _ = mtd.read((number * READ_PIECE) as u64, piece)?;
            }
            Ok(())
        });
        Ok(read?.1)
    }

    /// A file on flash, and the file system just mounted.
    fn file_mounted(&self, bytes: &[u8]) -> Result<Mounted, FigureError> {
        let mut mounted = self.stacks.fresh(self.subject)?;
        self.written(&mut mounted, bytes, 1 << 20)?;
        let chip = mounted.close()?;
        Ok(self.stacks.mount(self.subject, chip, IndexUse::Trust)?.0)
    }

    fn mount(
        &self,
        content: Content,
        outcomes: &mut Vec<(Test, Outcome)>,
    ) -> Result<(), FigureError> {
        let mut mounted = self.stacks.fresh(self.subject)?;
        let filled = self.measured(Layer::FileSystem, || self.fill(mounted.fs_mut(), content))?.1;
        if content != Content::Empty {
            outcomes.push((Test::Fill(content), Ok((seconds(&filled), filled))));
        }
        let chip = mounted.close()?;
        let (mounted, attach, mount) =
            self.stacks.mount(self.subject, chip.clone(), IndexUse::Trust)?;
        self.check(mounted.fs(), content)?;
        let total = attach + mount;
        outcomes.push((Test::Mount(content), Ok((seconds(&total), total))));
        if matches!(self.subject, Subject::Ubifs | Subject::UbifsFastmap) {
            outcomes.push((Test::Attach(content), Ok((seconds(&attach), attach))));
            let (_, attach, mount) = self.stacks.mount(self.subject, chip, IndexUse::Verify)?;
            let total = attach + mount;
            outcomes.push((Test::MountVerified(content), Ok((seconds(&total), total))));
        }
        Ok(())
    }

    /// Creates files of random bytes.
    fn fill(&self, fs: &mut dyn FileSystemMut, content: Content) -> Result<(), FigureError> {
        let (count, len) = self.plan.files(content);
        let mut bytes = vec![0; len as usize];
        for number in 0..count {
            fill(&mut bytes, self.stacks.target.seed ^ u64::from(number) << 32);
            create(fs, name(number).as_bytes(), &bytes, FILL_PIECE)?;
        }
        Ok(fs.sync(None)?)
    }

    /// The last file has the expected content.
    fn check(&self, fs: &dyn FileSystem, content: Content) -> Result<(), FigureError> {
        let (count, len) = self.plan.files(content);
        let Some(number) = count.checked_sub(1) else { return Ok(()) };
        let mut bytes = vec![0; len as usize];
        fill(&mut bytes, self.stacks.target.seed ^ u64::from(number) << 32);
        let inode = fs.lookup(fs.statistics().root, name(number).as_bytes())?;
        let mut read = vec![0; len as usize];
        let got = fs.read(inode, 0, &mut read)?;
        if got == read.len() && read == bytes { Ok(()) } else { Err(FigureError::Differs) }
    }

    /// Space and programmed bytes beyond the length of a file, in percent. UBIFS is queried after a
    /// commit, when nothing is estimated; JFFS2 while it still knows which nodes are obsolete.
    fn overhead(&self, piece: u32) -> Result<(f64, f64, Reading), FigureError> {
        let mount = |chip| self.stacks.mount(self.subject, chip, IndexUse::Trust).map(|it| it.0);
        let mut mounted = mount(self.stacks.fresh(self.subject)?.close()?)?;
        let before = mounted.used();
        let bytes = self.bytes(Data::Random, self.plan.overhead);
        let start = self.stacks.meter.reading();
        self.written(&mut mounted, &bytes, piece)?;
        let live = mounted.used();
        let is_jffs2 = matches!(mounted, Mounted::Jffs2(_));
        let chip = mounted.close()?;
        let reading = self.stacks.meter.reading() - start;
        let taken = if is_jffs2 { live } else { mount(chip)?.used() }.saturating_sub(before);
        let programmed = reading.operations.programs * u64::from(self.stacks.target.program_size());
        let beyond = |what: u64| (what as f64 / bytes.len() as f64 - 1.0) * 100.0;
        Ok((beyond(taken), beyond(programmed), reading))
    }
}

/// Fills a buffer with random bytes.
fn fill(bytes: &mut [u8], seed: u64) {
    let mut random = Random::new(seed);
    for word in bytes.chunks_mut(8) {
        word.copy_from_slice(&random.bits().to_le_bytes()[..word.len()]);
    }
}

fn name(number: u32) -> String {
    format!("file-{number:05}")
}

fn rate(bytes: usize, reading: &Reading) -> f64 {
    bytes as f64 / MEBI / seconds(reading)
}

fn seconds(reading: &Reading) -> f64 {
    reading.split.total_ns() as f64 / 1e9
}

fn create(
    fs: &mut dyn FileSystemMut,
    name: &[u8],
    bytes: &[u8],
    piece: usize,
) -> Result<Inode, FigureError> {
    let root = fs.statistics().root;
    let inode = fs.create(root, name, &FILE, NOW)?;
    let mut offset = 0;
    for piece in bytes.chunks(piece) {
        fs.write_all(inode, offset, piece, NOW)?;
        offset += piece.len() as u64;
    }
    Ok(inode)
}

fn program(flash: &mut impl FlashMut, bytes: &[u8], piece: u32) -> Result<(), FigureError> {
    let page = flash.geometry().write_size as usize;
    // Smaller pieces than a page would be partial programs.
    let piece = (piece as usize).next_multiple_of(page);
    let mut offset = 0;
    for piece in bytes.chunks(piece) {
        flash.program(offset, piece)?;
        offset += piece.len() as u64;
    }
    Ok(())
}
