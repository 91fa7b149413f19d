//! The least time an extraction can take: the files of a tree, compressed in memory as a flash file
//! system holds them, are decompressed and written. No image is read and nothing is checked.
//!
//! ```console
//! $ cargo run --profile dist --package flysch-cost --example floor -- TREE OUT lzo
//! ```
//!
//! Prints wall-clock and processor seconds from the first file to the last; compressing them before
//! that does not count. Files go to as many threads as the machine has processors.
#![forbid(unsafe_code)]

use std::error::Error;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use flysch_compress::{Method, compress_at, decompress};
use rustix::time::{ClockId, clock_gettime};

const USAGE: &str = "usage: floor TREE OUT none|lzo|zlib|zstd";

/// What UBIFS puts into one data node.
const BLOCK: usize = 4096;

/// A file as the file system holds it.
struct Packed {
    path: PathBuf,
    blocks: Vec<Block>,
}

struct Block {
    bytes: Vec<u8>,
    /// Bytes of the file, and how they are compressed.
    len: usize,
    method: Option<Method>,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [tree, out, method] = &words[..] else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let method = match method.as_str() {
        "none" => None,
        "lzo" => Some(Method::Lzo),
        "zlib" => Some(Method::Deflate),
        "zstd" => Some(Method::Zstd),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match run(Path::new(tree), Path::new(out), method) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("floor: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(tree: &Path, out: &Path, method: Option<Method>) -> Result<(), Box<dyn Error>> {
    let (mut folders, mut files) = (vec![out.to_path_buf()], vec![]);
    pack(tree, out, method, &mut folders, &mut files)?;
    let (clock, processor) = (Instant::now(), processor());
    for folder in &folders {
        fs::create_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    let next = AtomicUsize::new(0);
    let worker = || -> Result<(), String> {
        let mut content = Vec::new();
        while let Some(file) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
            file.unpack(&mut content)
                .map_err(|error| format!("{}: {error}", file.path.display()))?;
        }
        Ok(())
    };
    thread::scope(|scope| {
        let count = thread::available_parallelism().map_or(1, Into::into);
        let workers: Vec<_> = (0..count).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().try_for_each(|one| one.join().unwrap_or_else(|_| Err("panic".into())))
    })?;
    println!("{:.3} {:.3}", clock.elapsed().as_secs_f64(), self::processor() - processor);
    Ok(())
}

/// Reads what is in `from`, which will be written to `to`.
fn pack(
    from: &Path,
    to: &Path,
    method: Option<Method>,
    folders: &mut Vec<PathBuf>,
    files: &mut Vec<Packed>,
) -> Result<(), Box<dyn Error>> {
    let entries = fs::read_dir(from).map_err(|error| format!("{}: {error}", from.display()))?;
    for entry in entries {
        let entry = entry?;
        let path = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            folders.push(path.clone());
            pack(&entry.path(), &path, method, folders, files)?;
            continue;
        }
        let content = fs::read(entry.path())?;
        let blocks = content.chunks(BLOCK).map(|block| Block::new(block, method)).collect();
        files.push(Packed { path, blocks });
    }
    Ok(())
}

impl Block {
    fn new(content: &[u8], method: Option<Method>) -> Self {
        let packed = method.and_then(|method| {
            let mut bytes = vec![0; content.len()];
            // mkfs.ubifs searches for matches where Linux does not.
            let level = if method == Method::Lzo { 9 } else { method.level() };
            let len = compress_at(method, level, content, &mut bytes)?;
            bytes.truncate(len);
            Some((bytes, method))
        });
        match packed {
            Some((bytes, method)) => Self { bytes, len: content.len(), method: Some(method) },
            None => Self { bytes: content.to_vec(), len: content.len(), method: None },
        }
    }
}

impl Packed {
    /// Writes the file; `content` is a buffer that is reused.
    fn unpack(&self, content: &mut Vec<u8>) -> Result<(), Box<dyn Error>> {
        content.resize(self.blocks.iter().map(|block| block.len).sum(), 0);
        let mut rest = &mut content[..];
        for block in &self.blocks {
            let (now, later) = rest.split_at_mut(block.len);
            match block.method {
                Some(method) => drop(decompress(method, &block.bytes, now)?),
                None => now.copy_from_slice(&block.bytes),
            }
            rest = later;
        }
        File::create_new(&self.path)?.write_all(content)?;
        Ok(())
    }
}

/// Seconds of processor time so far.
fn processor() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}
