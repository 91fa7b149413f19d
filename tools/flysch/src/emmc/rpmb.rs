//! `flysch emmc rpmb`: replay protected memory.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use clap::Subcommand;
use flysch_emmc::{Nonce, Operation, Output as Answer, RpmbKey, RpmbReply, RpmbRequest};
use serde_json::json;

use super::Session;
use crate::confirm::Consent;
use crate::failure::Failure;
use crate::file::Named;

/// Bytes of a block, and of a key.
const BLOCK: usize = 256;
const KEY: usize = 32;
/// Blocks read at once.
const BLOCKS: u16 = 32;

#[derive(Clone, Debug, Subcommand)]
pub(super) enum Verb {
    /// Program the key: possible only once.
    WriteKey {
        /// A file of 32 bytes; `-` is standard input.
        key: PathBuf,
        #[command(flatten)]
        consent: Consent,
    },
    /// Read the write counter.
    ReadCounter {
        /// The key that authenticates it.
        key: Option<PathBuf>,
    },
    /// Read blocks of 256 bytes.
    ReadBlock {
        /// First block.
        #[arg(value_parser = address)]
        address: u16,
        /// Blocks.
        #[arg(value_parser = clap::value_parser!(u16).range(1..))]
        blocks: u16,
        /// Output file; `-` is standard output.
        output: PathBuf,
        /// The key that authenticates them.
        key: Option<PathBuf>,
    },
    /// Write a block of 256 bytes.
    WriteBlock {
        /// The block.
        #[arg(value_parser = address)]
        address: u16,
        /// A file of 256 bytes; `-` is standard input.
        data: PathBuf,
        /// The key.
        key: PathBuf,
    },
}

impl Verb {
    /// The files that it reads.
    pub(super) fn inputs(&self) -> Vec<&Path> {
        match self {
            Self::WriteKey { key, .. } => vec![key.as_path()],
            Self::ReadCounter { key } | Self::ReadBlock { key, .. } => {
                key.iter().map(PathBuf::as_path).collect()
            }
            Self::WriteBlock { data, key, .. } => vec![data.as_path(), key.as_path()],
        }
    }
}

fn address(text: &str) -> Result<u16, String> {
    let number = crate::number::parse_number(text)?;
    number.try_into().map_err(|_| format!("`{text}` is not a block: RPMB has at most 65536"))
}

impl Session<'_> {
    pub(super) fn rpmb(&mut self, verb: &Verb) -> Result<(), Failure> {
        match verb {
            Verb::WriteKey { key, consent } => {
                let key = read_key(key)?;
                consent.ask("The key of the replay protected memory stays for ever.")?;
                self.ask(RpmbRequest::ProgramKey { key })?;
                self.done(&json!({ "key": "programmed" }), "the key is programmed, for ever")
            }
            Verb::ReadCounter { key } => {
                let key = key.as_deref().map(read_key).transpose()?;
                let reply = self.ask(RpmbRequest::ReadCounter { key, nonce: nonce()? })?;
                let counter = reply.counter;
                let told = json!({ "counter": counter, "proved": reply.proved });
                self.done(&told, &format!("Counter value: 0x{counter:08x}"))?;
                warn(&reply);
                Ok(())
            }
            Verb::ReadBlock { address, blocks, output, key } => {
                let key = key.as_deref().map(read_key).transpose()?;
                self.read_blocks((*address, *blocks), output, key)
            }
            Verb::WriteBlock { address, data, key } => {
                let key = read_key(key)?;
                let block = exactly(data, BLOCK)?;
                let read = RpmbRequest::ReadCounter { key: Some(key.clone()), nonce: nonce()? };
                let counter = self.ask(read)?.counter;
                let address = *address;
                let write = RpmbRequest::Write { key, counter, address, data: block };
                let counter = self.ask(write)?.counter;
                let told = json!({ "address": address, "counter": counter });
                self.done(&told, &format!("block {address} written, counter 0x{counter:08x}"))
            }
        }
    }

    fn read_blocks(
        &mut self,
        (address, blocks): (u16, u16),
        path: &Path,
        key: Option<RpmbKey>,
    ) -> Result<(), Failure> {
        if address.checked_add(blocks - 1).is_none() {
            return Err(Failure::usage("RPMB ends at block 65535 or earlier"));
        }
        let mut file = Named::open(path, self.output)?;
        let mut last = RpmbReply::default();
        for done in (0..blocks).step_by(BLOCKS.into()) {
            let (address, blocks) = (address + done, (blocks - done).min(BLOCKS));
            let (key, nonce) = (key.clone(), nonce()?);
            last = self.ask(RpmbRequest::Read { key, nonce, address, blocks })?;
            file.write(|to| to.write_all(&last.data))?;
        }
        file.finish()?;
        warn(&last);
        match self.output.json() {
            true => self.output.value(&json!({
                "bytes": usize::from(blocks) * BLOCK, "proved": last.proved,
            })),
            false => Ok(()),
        }
    }

    fn ask(&mut self, request: RpmbRequest) -> Result<RpmbReply, Failure> {
        match self.operate(Operation::Rpmb(Box::new(request)))? {
            Answer::Rpmb(reply) => Ok(reply),
            _ => Err(Failure::failed("the driver did not answer with an RPMB response")),
        }
    }
}

/// Reports that an answer is not authenticated.
fn warn(reply: &RpmbReply) {
    if !reply.proved {
        eprintln!("flysch: not proved: no key was given");
    }
}

fn read_key(path: &Path) -> Result<RpmbKey, Failure> {
    let bytes = exactly(path, KEY)?;
    let key = <[u8; KEY]>::try_from(bytes.as_slice());
    // No cause: `exactly` has said what is wrong with its length.
    key.map(RpmbKey::new).map_err(|_| Failure::of(path.display(), "no key"))
}

/// A file, or standard input, of exactly this many bytes.
fn exactly(path: &Path, bytes: usize) -> Result<Vec<u8>, Failure> {
    let failed = |error: std::io::Error| Failure::of(path.display(), error);
    let mut data = Vec::new();
    let limit = bytes as u64 + 1;
    match path.as_os_str() == "-" {
        true => std::io::stdin().take(limit).read_to_end(&mut data).map_err(failed)?,
        false => {
            let file = File::open(path).map_err(failed)?;
            file.take(limit).read_to_end(&mut data).map_err(failed)?
        }
    };
    match data.len() == bytes {
        true => Ok(data),
        false => Err(Failure::of(path.display(), format!("it must have {bytes} bytes"))),
    }
}

fn nonce() -> Result<Nonce, Failure> {
    let mut nonce = Nonce::default();
    let read = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut nonce));
    read.map_err(|error| Failure::of("/dev/urandom", error))?;
    Ok(nonce)
}
