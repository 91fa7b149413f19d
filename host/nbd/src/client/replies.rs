//! A server's replies, checked against its outstanding requests.

use std::collections::BTreeMap;

use flysch_api::count::counted;

use crate::wire::{
    Fields, Form, Request, SIMPLE_REPLY_MAGIC, STRUCTURED_REPLY_MAGIC, chunk, command,
};

/// Bytes of the header of a simple reply, and of a chunk.
const SIMPLE_BYTES: usize = 16;
const CHUNK_BYTES: usize = 20;
/// Longest chunk that describes an error, bytes: number, length, text, offset.
const ERROR_MAX: u32 = 4 + 2 + 4096 + 8;
/// Maximum number of chunks of a reply, in addition to one for each 512 bytes.
const CHUNKS: u64 = 64;

/// An invalid reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// No reply where one must be: its first word.
    #[error("it sent {0:#010x} where a reply must begin")]
    NoReply(u32),
    /// A reply to an unknown request, or one already answered.
    #[error("it answered the request {0:#x}, which is not under way")]
    NotOwed(u64),
    /// An invalid chunk: its type and length.
    #[error("it sent a chunk of type {0} and {1} bytes")]
    Chunk(u16, u32),
    /// Data that was not requested, or had already arrived.
    #[error("it sent data that was not asked for, or twice")]
    Misplaced,
    /// Some of the data is missing.
    #[error("it left out {} of what was read", counted(*.0, "byte", "bytes"))]
    Short(u64),
    /// A reply in too many pieces.
    #[error("it answered in more than {0} chunks")]
    TooMany(u64),
}

/// A reply: the data of a read, nothing for others; or the error, with NBD's number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The request's cookie.
    pub cookie: u64,
    /// Its result.
    pub result: Result<Vec<u8>, u32>,
}

/// A request that has not been completely answered.
#[derive(Debug)]
struct Owed {
    offset: u64,
    /// Bytes to be read; 0 if it is not a read.
    length: u64,
    data: Vec<u8>,
    /// The ranges received: starts and ends, not touching each other.
    filled: BTreeMap<u64, u64>,
    chunks: u64,
    error: Option<u32>,
}

impl Owed {
    /// This many bytes from there on arrive.
    fn fill(&mut self, offset: u64, length: u64) -> Result<&mut [u8], Violation> {
        let start = offset.checked_sub(self.offset).ok_or(Violation::Misplaced)?;
        let end = start.checked_add(length).filter(|&end| end <= self.length);
        let end = end.ok_or(Violation::Misplaced)?;
        let (mut from, mut to) = (start, end);
        if let Some((&before, &stop)) = self.filled.range(..end).next_back() {
            if stop > start {
                return Err(Violation::Misplaced);
            }
            if stop == start {
                from = before;
            }
        }
        if let Some(&stop) = self.filled.get(&end) {
            self.filled.remove(&end);
            to = stop;
        }
        self.filled.insert(from, to);
        // Memory for what was asked for is taken when the first of it comes.
        self.data.resize(self.length as usize, 0);
        Ok(&mut self.data[start as usize..end as usize])
    }

    fn end(self) -> Result<Result<Vec<u8>, u32>, Violation> {
        if let Some(error) = self.error {
            return Ok(Err(error));
        }
        let came: u64 = self.filled.iter().map(|(start, end)| end - start).sum();
        match self.length - came {
            0 => Ok(Ok(self.data)),
            missing => Err(Violation::Short(missing)),
        }
    }
}

/// Outstanding requests, and received bytes that have not been examined.
#[derive(Debug)]
pub(super) struct Replies {
    form: Form,
    owed: BTreeMap<u64, Owed>,
    input: Vec<u8>,
    /// The used part of `input`.
    used: std::ops::Range<usize>,
}

impl Replies {
    pub(super) fn new(form: Form) -> Self {
        Self { form, owed: BTreeMap::new(), input: Vec::new(), used: 0..0 }
    }

    /// A request is sent.
    pub(super) fn owe(&mut self, request: &Request) {
        let length = if request.command == command::READ { request.length } else { 0 };
        let owed = Owed {
            offset: request.offset,
            length,
            data: Vec::new(),
            filled: BTreeMap::new(),
            chunks: 0,
            error: None,
        };
        self.owed.insert(request.cookie, owed);
    }

    /// Room for `count` more bytes.
    pub(super) fn room(&mut self, count: usize) -> &mut [u8] {
        self.input.copy_within(self.used.clone(), 0);
        self.used = 0..self.used.len();
        self.input.resize(self.input.len().max(self.used.end + count), 0);
        &mut self.input[self.used.end..]
    }

    /// This many bytes were received into that room.
    pub(super) fn came(&mut self, count: usize) {
        self.used.end += count;
    }

    /// The next complete reply.
    pub(super) fn next(&mut self) -> Result<Option<Reply>, Violation> {
        loop {
            let mut fields = Fields(&self.input[self.used.clone()]);
            let Some(magic) = fields.u32() else { return Ok(None) };
            let done = match magic {
                SIMPLE_REPLY_MAGIC => self.simple()?,
                STRUCTURED_REPLY_MAGIC if self.form == Form::Structured => self.chunk()?,
                other => return Err(Violation::NoReply(other)),
            };
            match done {
                Step::More => return Ok(None),
                Step::Taken => {}
                Step::Done(reply) => return Ok(Some(reply)),
            }
        }
    }

    fn simple(&mut self) -> Result<Step, Violation> {
        let input = &self.input[self.used.clone()];
        let mut fields = Fields(input.get(4..).unwrap_or_default());
        let (Some(error), Some(cookie)) = (fields.u32(), fields.u64()) else {
            return Ok(Step::More);
        };
        let owed = self.owed.get_mut(&cookie).ok_or(Violation::NotOwed(cookie))?;
        let mut length = 0;
        if error != 0 {
            owed.error = Some(error);
        } else if owed.length > 0 {
            // Where replies have chunks, reads are answered in them.
            if self.form == Form::Structured {
                return Err(Violation::NoReply(SIMPLE_REPLY_MAGIC));
            }
            length = owed.length as usize;
            let Some(data) = fields.bytes(length) else { return Ok(Step::More) };
            owed.fill(owed.offset, owed.length)?.copy_from_slice(data);
        }
        self.used.start += SIMPLE_BYTES + length;
        self.done(cookie)
    }

    fn done(&mut self, cookie: u64) -> Result<Step, Violation> {
        let owed = self.owed.remove(&cookie).ok_or(Violation::NotOwed(cookie))?;
        Ok(Step::Done(Reply { cookie, result: owed.end()? }))
    }

    fn chunk(&mut self) -> Result<Step, Violation> {
        let input = &self.input[self.used.clone()];
        let mut fields = Fields(input.get(4..).unwrap_or_default());
        let head = (fields.u16(), fields.u16(), fields.u64(), fields.u32());
        let (Some(flags), Some(kind), Some(cookie), Some(length)) = head else {
            return Ok(Step::More);
        };
        let owed = self.owed.get_mut(&cookie).ok_or(Violation::NotOwed(cookie))?;
        let wrong = Violation::Chunk(kind, length);
        // Nothing longer is waited for than what can be right.
        let can_be = match kind {
            chunk::NONE => length == 0 && flags & chunk::DONE != 0,
            chunk::OFFSET_DATA => length > 8 && u64::from(length) <= owed.length + 8,
            chunk::OFFSET_HOLE => length == 12 && owed.length > 0,
            kind => kind & chunk::IS_ERROR != 0 && (6..=ERROR_MAX).contains(&length),
        };
        if !can_be {
            return Err(wrong);
        }
        let Some(body) = fields.bytes(length as usize) else { return Ok(Step::More) };
        let mut body = Fields(body);
        let most = CHUNKS + owed.length / 512;
        owed.chunks += 1;
        if owed.chunks > most {
            return Err(Violation::TooMany(most));
        }
        match kind {
            chunk::NONE => {}
            chunk::OFFSET_DATA => {
                let offset = body.u64().ok_or(wrong)?;
                owed.fill(offset, body.0.len() as u64)?.copy_from_slice(body.0);
            }
            chunk::OFFSET_HOLE => {
                let (offset, length) = body.u64().zip(body.u32()).ok_or(wrong)?;
                if length == 0 {
                    return Err(wrong);
                }
                owed.fill(offset, length.into())?.fill(0);
            }
            _ => {
                let error = body.u32().filter(|&error| error != 0).ok_or(wrong)?;
                owed.error.get_or_insert(error);
            }
        }
        self.used.start += CHUNK_BYTES + length as usize;
        if flags & chunk::DONE == 0 { Ok(Step::Taken) } else { self.done(cookie) }
    }
}

enum Step {
    /// Incomplete.
    More,
    /// A part of a reply.
    Taken,
    /// A reply.
    Done(Reply),
}
