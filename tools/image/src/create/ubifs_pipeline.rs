//! The path of content into UBIFS: read, compressed by several threads, written in a fixed order.
//!
//! One thread traverses the tree and divides the work into batches, each with the content it needs;
//! others compress the blocks of a batch; the caller's thread receives the batches in order. The
//! image therefore does not depend on the number of threads.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use flysch_api::vfs::FileKind;
use flysch_ubifs::create::{Packing, pack};
use flysch_wire::ubifs::{BLOCK_SIZE, Compression};

use super::{Content, CreateError, Entry, Tree};

/// Bytes of content in a batch.
const BATCH: usize = 1 << 18;
/// Steps in a batch.
const STEPS_MAX: usize = 1024;
const BLOCK: usize = BLOCK_SIZE as usize;

/// A step, in this order. Files are numbered as in the tree.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step<'t> {
    /// The writing of a file starts.
    Begin(usize),
    /// A block of its content, at an offset in the batch.
    Block { file: usize, block: u32, at: usize, length: usize },
    /// Flags found while reading it.
    Flags(usize, u32),
    /// Its inode can be written; for a directory, after everything in it.
    End(usize),
    /// A name of a file whose inode has been written.
    Name { directory: usize, name: &'t [u8], file: usize },
}

/// The result for a block.
#[derive(Clone, Copy, Debug)]
pub(super) enum Outcome<'b> {
    /// Only zeros.
    Hole,
    /// To be stored in this form.
    Stored(Compression, &'b [u8]),
}

/// A batch of work.
#[derive(Debug, Default)]
pub(super) struct Batch<'t> {
    number: u64,
    pub(super) steps: Vec<Step<'t>>,
    plain: Vec<u8>,
    filled: usize,
    /// For each block its compression and the bytes of `packed`; without either it is stored
    /// unchanged.
    packs: Vec<Option<(Compression, usize)>>,
    holes: Vec<bool>,
    packed: Vec<u8>,
}

impl<'t> Batch<'t> {
    /// The result for each block, in order, with its length.
    pub(super) fn outcomes(&self) -> impl Iterator<Item = (u32, Outcome<'_>)> {
        let blocks = self.steps.iter().filter_map(|step| match *step {
            Step::Block { at, length, .. } => Some(&self.plain[at..at + length]),
            _ => None,
        });
        let mut at = 0;
        blocks.zip(self.packs.iter().zip(&self.holes)).map(move |(plain, (packed, hole))| {
            let outcome = match *packed {
                _ if *hole => Outcome::Hole,
                None => Outcome::Stored(Compression::None, plain),
                Some((compression, length)) => {
                    at += length;
                    Outcome::Stored(compression, &self.packed[at - length..at])
                }
            };
            (plain.len() as u32, outcome)
        })
    }

    fn clear(&mut self) {
        self.steps.clear();
        self.packs.clear();
        self.holes.clear();
        self.packed.clear();
        self.filled = 0;
    }

    fn is_full(&self) -> bool {
        self.filled + BLOCK > BATCH || self.steps.len() >= STEPS_MAX
    }

    fn compress(&mut self, packing: Packing) {
        let mut scratch = [0; BLOCK];
        for step in &self.steps {
            let Step::Block { at, length, .. } = *step else { continue };
            let block = &self.plain[at..at + length];
            let hole = is_zero(block);
            self.holes.push(hole);
            if hole {
                self.packs.push(None);
                continue;
            }
            match pack(packing, block, &mut scratch) {
                (Compression::None, _) => self.packs.push(None),
                (compression, bytes) => {
                    self.packs.push(Some((compression, bytes.len())));
                    self.packed.extend_from_slice(bytes);
                }
            }
        }
    }
}

fn is_zero(block: &[u8]) -> bool {
    let (words, rest) = block.as_chunks::<8>();
    words.iter().all(|word| u64::from_ne_bytes(*word) == 0) && rest.iter().all(|&byte| byte == 0)
}

/// Takes finished batches, in order.
type Sink<'s> = dyn FnMut(&Batch<'_>) -> Result<(), CreateError> + 's;

/// Traverses `tree` and passes everything to `sink`.
pub(super) fn run(
    tree: &Tree,
    (packing, threads): (Packing, usize),
    sink: &mut Sink<'_>,
) -> Result<(), CreateError> {
    if threads <= 1 {
        let mut reader = Reader::new(tree, |mut batch: Batch<'_>| {
            batch.compress(packing);
            sink(&batch)?;
            batch.clear();
            Ok(Some(batch))
        });
        return reader.run();
    }
    let (to_workers, work) = sync_channel::<Batch<'_>>(2 * threads);
    let (to_sink, done) = sync_channel::<Batch<'_>>(2 * threads);
    let (recycle, used) = channel::<Batch<'_>>();
    let work = Arc::new(Mutex::new(work));
    std::thread::scope(|scope| {
        let reader = scope.spawn(move || {
            let mut reader = Reader::new(tree, |batch| {
                // Nobody takes it: the sink failed, and that is what counts.
                if to_workers.send(batch).is_err() {
                    return Ok(None);
                }
                Ok(Some(used.try_recv().unwrap_or_default()))
            });
            reader.run()
        });
        for _ in 0..threads {
            let (work, to_sink) = (work.clone(), to_sink.clone());
            scope.spawn(move || compress_all(&work, &to_sink, packing));
        }
        drop((work, to_sink));
        let result = in_order(done, |mut batch| {
            sink(&batch)?;
            batch.clear();
            let _ = recycle.send(batch);
            Ok(())
        });
        let read = reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        result.and(read)
    })
}

fn compress_all<'t>(
    work: &Mutex<Receiver<Batch<'t>>>,
    to_sink: &SyncSender<Batch<'t>>,
    packing: Packing,
) {
    loop {
        let next = work.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(mut batch) = next else { return };
        batch.compress(packing);
        if to_sink.send(batch).is_err() {
            return;
        }
    }
}

/// Puts batches back into order.
fn in_order<'t>(
    done: Receiver<Batch<'t>>,
    mut take: impl FnMut(Batch<'t>) -> Result<(), CreateError>,
) -> Result<(), CreateError> {
    let mut early = BTreeMap::new();
    let mut next = 0;
    for batch in done {
        early.insert(batch.number, batch);
        while let Some(batch) = early.remove(&next) {
            take(batch)?;
            next += 1;
        }
    }
    Ok(())
}

/// Traverses a tree and fills batches.
struct Reader<'t, F> {
    tree: &'t Tree,
    seen: Vec<bool>,
    batch: Batch<'t>,
    /// Takes a full batch and returns an empty one; `None` to stop.
    hand_over: F,
    stopped: bool,
}

/// A directory being traversed.
struct Level<'t> {
    directory: usize,
    names: std::collections::btree_map::Iter<'t, Vec<u8>, usize>,
    /// Its own name, to be written when it is complete.
    name: &'t [u8],
}

impl<'t, F: FnMut(Batch<'t>) -> Result<Option<Batch<'t>>, CreateError>> Reader<'t, F> {
    fn new(tree: &'t Tree, hand_over: F) -> Self {
        let seen = vec![false; tree.entries.len()];
        Self { tree, seen, batch: Batch::default(), hand_over, stopped: false }
    }

    /// Files before their names, the contents of a directory before the directory.
    fn run(&mut self) -> Result<(), CreateError> {
        let tree = self.tree;
        let enter = |directory: usize, name: &'t [u8]| {
            let names = tree.entries[directory].names.iter();
            Level { directory, names, name }
        };
        self.step(Step::Begin(0))?;
        let mut levels = vec![enter(0, b"")];
        while let Some(level) = levels.last_mut() {
            let directory = level.directory;
            match level.names.next() {
                Some((name, &file)) if tree.entries[file].kind == FileKind::Directory => {
                    self.step(Step::Begin(file))?;
                    levels.push(enter(file, name));
                }
                Some((name, &file)) => {
                    if !std::mem::replace(&mut self.seen[file], true) {
                        self.file(file)?;
                    }
                    self.step(Step::Name { directory, name, file })?;
                }
                None => {
                    let name = level.name;
                    levels.pop();
                    self.step(Step::End(directory))?;
                    if let Some(above) = levels.last() {
                        let (file, directory) = (directory, above.directory);
                        self.step(Step::Name { directory, name, file })?;
                    }
                }
            }
            if self.stopped {
                return Ok(());
            }
        }
        self.send()
    }

    fn step(&mut self, step: Step<'t>) -> Result<(), CreateError> {
        if self.batch.is_full() {
            self.send()?;
        }
        self.batch.steps.push(step);
        Ok(())
    }

    fn send(&mut self) -> Result<(), CreateError> {
        let number = self.batch.number + 1;
        match (self.hand_over)(std::mem::take(&mut self.batch))? {
            Some(empty) => self.batch = Batch { number, ..empty },
            None => self.stopped = true,
        }
        Ok(())
    }

    fn file(&mut self, file: usize) -> Result<(), CreateError> {
        let entry = &self.tree.entries[file];
        self.step(Step::Begin(file))?;
        match &entry.content {
            Content::None => {}
            Content::Path(path) => {
                let fail = |error| CreateError::source(path.display(), error);
                let content = File::open(path).map_err(fail)?;
                if let Ok(flags) = rustix::fs::ioctl_getflags(&content) {
                    self.step(Step::Flags(file, flags.bits()))?;
                }
                self.content(file, entry, (&content, 0)).map_err(|error| match error {
                    Trouble::Read(error) => fail(error),
                    Trouble::Create(error) => error,
                })?;
                let size = content.metadata().map_err(fail)?.len();
                if size != entry.size {
                    return Err(fail(io::Error::other("the file changed while it was read")));
                }
            }
            Content::Stretch(content, start) => {
                self.content(file, entry, (content, *start)).map_err(|error| match error {
                    Trouble::Read(error) => CreateError::source(self.tree.path_of(file), error),
                    Trouble::Create(error) => error,
                })?;
            }
        }
        self.step(Step::End(file))
    }

    /// Reads a file's content into batches.
    fn content(
        &mut self,
        file: usize,
        entry: &Entry,
        (content, start): (&File, u64),
    ) -> Result<(), Trouble> {
        let mut offset = 0;
        while offset < entry.size && !self.stopped {
            if self.batch.is_full() {
                self.send().map_err(Trouble::Create)?;
                continue;
            }
            let batch = &mut self.batch;
            batch.plain.resize(BATCH, 0);
            let steps = (STEPS_MAX - batch.steps.len()) * BLOCK;
            // Blocks begin at multiples of their size, so that none is cut by a batch's end.
            let room = (BATCH - batch.filled).min(steps) / BLOCK * BLOCK;
            let length = room.min((entry.size - offset).try_into().unwrap_or(usize::MAX));
            let place = batch.filled..batch.filled + length;
            content
                .read_exact_at(&mut batch.plain[place.clone()], start + offset)
                .map_err(Trouble::Read)?;
            for at in place.clone().step_by(BLOCK) {
                let block = (offset / BLOCK as u64) as u32 + ((at - place.start) / BLOCK) as u32;
                let length = BLOCK.min(place.end - at);
                batch.steps.push(Step::Block { file, block, at, length });
            }
            batch.filled += length;
            offset += length as u64;
        }
        Ok(())
    }
}

enum Trouble {
    Read(io::Error),
    Create(CreateError),
}
