//! Messages of the NBD protocol (`doc/proto.md` of the NBD project): bytes and values, no state.
//!
//! All numbers are big endian.

/// First word of the handshake, `NBDMAGIC`.
pub const INIT_PASSWD: u64 = 0x4e42_444d_4147_4943;
/// Second word of the handshake and first of every option, `IHAVEOPT`.
pub const OPTS_MAGIC: u64 = 0x4948_4156_454f_5054;
/// First word of every answer to an option.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// First word of a request.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// First word of a request with a 64-bit length.
pub const EXTENDED_REQUEST_MAGIC: u32 = 0x21e4_1c71;
/// First word of a simple reply.
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// First word of a structured reply chunk.
pub const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;
/// First word of an extended reply chunk.
pub const EXTENDED_REPLY_MAGIC: u32 = 0x6e8a_278c;

/// Handshake flags of the server: fixed newstyle, and no 124 zeroes if the client agrees.
pub const HANDSHAKE_FLAGS: u16 = 3;
/// In [`HANDSHAKE_FLAGS`]: the server answers unknown options.
pub const FIXED_NEWSTYLE: u16 = 1;
/// Second word of the handshake of servers before options (`cliserv_magic`).
pub const OLDSTYLE_MAGIC: u64 = 0x0000_4202_8186_1253;
/// The client omits the zeroes after `EXPORT_NAME`.
pub const CLIENT_NO_ZEROES: u32 = 2;
/// The known client flags.
pub const CLIENT_FLAGS: u32 = 3;

/// Options of a client.
pub mod option {
    /// The export to use, without a way to refuse it.
    pub const EXPORT_NAME: u32 = 1;
    /// Abort the negotiation.
    pub const ABORT: u32 = 2;
    /// List the exports.
    pub const LIST: u32 = 3;
    /// Start TLS.
    pub const STARTTLS: u32 = 5;
    /// Describe an export.
    pub const INFO: u32 = 6;
    /// Describe it and use it.
    pub const GO: u32 = 7;
    /// Replies in chunks.
    pub const STRUCTURED_REPLY: u32 = 8;
    /// List the contexts that `BLOCK_STATUS` supports.
    pub const LIST_META_CONTEXT: u32 = 9;
    /// Select contexts.
    pub const SET_META_CONTEXT: u32 = 10;
    /// Requests and replies with lengths of 64 bits.
    pub const EXTENDED_HEADERS: u32 = 11;
}

/// Answers to options.
pub mod reply {
    /// Done.
    pub const ACK: u32 = 1;
    /// An export.
    pub const SERVER: u32 = 2;
    /// Information about the export.
    pub const INFO: u32 = 3;
    /// A context, with its number.
    pub const META_CONTEXT: u32 = 4;
    /// The server does not know this option.
    pub const ERR_UNSUP: u32 = 1 << 31 | 1;
    /// The data is invalid.
    pub const ERR_INVALID: u32 = 1 << 31 | 3;
    /// TLS is required first.
    pub const ERR_TLS_REQD: u32 = 1 << 31 | 5;
    /// There is no such export.
    pub const ERR_UNKNOWN: u32 = 1 << 31 | 6;
    /// The server is about to end.
    pub const ERR_SHUTDOWN: u32 = 1 << 31 | 7;
    /// The answer would be too large.
    pub const ERR_TOO_BIG: u32 = 1 << 31 | 9;
}

/// The kinds of information for `INFO` and `GO`.
pub mod info {
    /// Size and transmission flags; always sent.
    pub const EXPORT: u16 = 0;
    /// The export's own name.
    pub const NAME: u16 = 1;
    /// A line about it.
    pub const DESCRIPTION: u16 = 2;
    /// Block sizes: minimum, preferred, maximum.
    pub const BLOCK_SIZE: u16 = 3;
}

/// Transmission flags of an export.
pub mod transmission {
    /// The flags are valid.
    pub const HAS_FLAGS: u16 = 1 << 0;
    /// Writes are refused.
    pub const READ_ONLY: u16 = 1 << 1;
    /// `FLUSH` works.
    pub const SEND_FLUSH: u16 = 1 << 2;
    /// [`super::command::FUA`] works.
    pub const SEND_FUA: u16 = 1 << 3;
    /// `TRIM` works.
    pub const SEND_TRIM: u16 = 1 << 5;
    /// `WRITE_ZEROES` works.
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    /// [`super::command::DF`] works.
    pub const SEND_DF: u16 = 1 << 7;
    /// A flush on one connection covers everything answered on all of them.
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
    /// `CACHE` works.
    pub const SEND_CACHE: u16 = 1 << 10;
    /// [`super::command::FAST_ZERO`] is supported.
    pub const SEND_FAST_ZERO: u16 = 1 << 11;
}

/// Commands and their flags.
pub mod command {
    /// Data from the export.
    pub const READ: u16 = 0;
    /// Data to the export.
    pub const WRITE: u16 = 1;
    /// Disconnect; there is no answer.
    pub const DISC: u16 = 2;
    /// Everything answered before is durable when this is answered.
    pub const FLUSH: u16 = 3;
    /// The content is no longer needed.
    pub const TRIM: u16 = 4;
    /// Will be read soon.
    pub const CACHE: u16 = 5;
    /// Zeroes to the export.
    pub const WRITE_ZEROES: u16 = 6;
    /// Which parts are data, which are holes.
    pub const BLOCK_STATUS: u16 = 7;

    /// Durable when answered.
    pub const FUA: u16 = 1 << 0;
    /// Zeroes must be allocated.
    pub const NO_HOLE: u16 = 1 << 1;
    /// Answer in one chunk.
    pub const DF: u16 = 1 << 2;
    /// One extent is enough.
    pub const REQ_ONE: u16 = 1 << 3;
    /// Zeroes only if that is faster than writing them.
    pub const FAST_ZERO: u16 = 1 << 4;
    /// The length is that of a payload; on every write with extended headers.
    pub const PAYLOAD_LEN: u16 = 1 << 5;
}

/// Errors of replies; they are named as Linux names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Errno {
    /// Operation not permitted: the export is read only.
    Perm = 1,
    /// Input/output error.
    Io = 5,
    /// Invalid argument.
    Inval = 22,
    /// No space left: a write beyond the end.
    NoSpc = 28,
    /// The length exceeds the maximum in the block sizes.
    Overflow = 75,
    /// Not supported, or not fast.
    NotSup = 95,
    /// The server is about to end.
    Shutdown = 108,
}

/// Bytes of a [`Request`]; with extended headers [`EXTENDED_REQUEST_BYTES`].
pub const REQUEST_BYTES: usize = 28;
/// Bytes of a [`Request`] with extended headers.
pub const EXTENDED_REQUEST_BYTES: usize = 32;

/// The header of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// [`command`] flags.
    pub flags: u16,
    /// A [`command`], or anything else.
    pub command: u16,
    /// The client's cookie for it.
    pub cookie: u64,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
}

impl Request {
    /// Parses one; none if the magic is wrong. `bytes` has the length of such a header.
    pub fn parse(bytes: &[u8], extended: bool) -> Option<Self> {
        let mut fields = Fields(bytes);
        let magic = if extended { EXTENDED_REQUEST_MAGIC } else { REQUEST_MAGIC };
        if fields.u32()? != magic {
            return None;
        }
        let (flags, command) = (fields.u16()?, fields.u16()?);
        let (cookie, offset) = (fields.u64()?, fields.u64()?);
        let length = if extended { fields.u64()? } else { u64::from(fields.u32()?) };
        Some(Self { flags, command, cookie, offset, length })
    }

    /// Writes one, for a client.
    pub fn emit(&self, extended: bool, out: &mut Vec<u8>) {
        let magic = if extended { EXTENDED_REQUEST_MAGIC } else { REQUEST_MAGIC };
        out.extend(magic.to_be_bytes());
        out.extend(self.flags.to_be_bytes());
        out.extend(self.command.to_be_bytes());
        out.extend(self.cookie.to_be_bytes());
        out.extend(self.offset.to_be_bytes());
        match extended {
            true => out.extend(self.length.to_be_bytes()),
            false => out.extend((self.length as u32).to_be_bytes()),
        }
    }
}

/// The negotiated form of replies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Form {
    /// An error and the data.
    #[default]
    Simple,
    /// Chunks.
    Structured,
    /// Chunks with lengths of 64 bits, and such requests.
    Extended,
}

/// Types of chunks.
pub mod chunk {
    /// No data.
    pub const NONE: u16 = 0;
    /// Data and its offset.
    pub const OFFSET_DATA: u16 = 1;
    /// The offset and length of zeroes.
    pub const OFFSET_HOLE: u16 = 2;
    /// Extents.
    pub const BLOCK_STATUS: u16 = 5;
    /// Extents with lengths of 64 bits.
    pub const BLOCK_STATUS_EXT: u16 = 6;
    /// An error with a message.
    pub const ERROR: u16 = 1 << 15 | 1;
    /// Bit of a type: it is an error, even if unknown.
    pub const IS_ERROR: u16 = 1 << 15;
    /// The last chunk of a reply.
    pub const DONE: u16 = 1;
}

impl Form {
    /// Bytes before the data in the reply to a read.
    pub fn read_head(self) -> usize {
        match self {
            Self::Simple => 16,
            Self::Structured => 28,
            Self::Extended => 40,
        }
    }

    /// Writes the header of a successful reply to a read into the first bytes of `reply`, which are
    /// followed by the data.
    pub fn finish_read(self, request: &Request, reply: &mut [u8]) {
        let mut head = Vec::with_capacity(self.read_head());
        if self == Self::Simple {
            simple(0, request.cookie, &mut head);
        } else {
            let length = reply.len() - self.read_head() + 8;
            self.chunk(chunk::OFFSET_DATA, request, length, &mut head);
            head.extend(request.offset.to_be_bytes());
        }
        reply[..head.len()].copy_from_slice(&head);
    }

    /// The reply to a successful request without data.
    pub fn done(self, request: &Request) -> Vec<u8> {
        let mut out = Vec::with_capacity(32);
        match self {
            Self::Extended => self.chunk(chunk::NONE, request, 0, &mut out),
            // Only reads must be answered in chunks.
            Self::Simple | Self::Structured => simple(0, request.cookie, &mut out),
        }
        out
    }

    /// The reply to a failed request, with a message for the client's log.
    pub fn failed(self, request: &Request, error: Errno, line: &str) -> Vec<u8> {
        let mut out = Vec::with_capacity(128);
        if self == Self::Simple {
            simple(error as u32, request.cookie, &mut out);
            return out;
        }
        // Longest line, bytes: the protocol's for strings.
        let line = &line.as_bytes()[..line.len().min(4096)];
        self.chunk(chunk::ERROR, request, 6 + line.len(), &mut out);
        out.extend((error as u32).to_be_bytes());
        out.extend((line.len() as u16).to_be_bytes());
        out.extend(line);
        out
    }

    /// The reply that `length` bytes have the state `state` in the context `context`. Contexts have
    /// been negotiated, so it is never simple.
    pub fn extent(self, request: &Request, context: u32, length: u64, state: u32) -> Vec<u8> {
        let mut out = Vec::with_capacity(64);
        if self == Self::Extended {
            self.chunk(chunk::BLOCK_STATUS_EXT, request, 24, &mut out);
            out.extend(context.to_be_bytes());
            out.extend(1_u32.to_be_bytes());
            out.extend(length.to_be_bytes());
            out.extend(u64::from(state).to_be_bytes());
        } else {
            self.chunk(chunk::BLOCK_STATUS, request, 12, &mut out);
            out.extend(context.to_be_bytes());
            out.extend((length.min(u64::from(u32::MAX)) as u32).to_be_bytes());
            out.extend(state.to_be_bytes());
        }
        out
    }

    /// The header of the only chunk of a reply.
    fn chunk(self, kind: u16, request: &Request, length: usize, out: &mut Vec<u8>) {
        let magic = match self {
            Self::Extended => EXTENDED_REPLY_MAGIC,
            _ => STRUCTURED_REPLY_MAGIC,
        };
        out.extend(magic.to_be_bytes());
        out.extend(chunk::DONE.to_be_bytes());
        out.extend(kind.to_be_bytes());
        out.extend(request.cookie.to_be_bytes());
        match self {
            Self::Extended => {
                out.extend(request.offset.to_be_bytes());
                out.extend((length as u64).to_be_bytes());
            }
            _ => out.extend((length as u32).to_be_bytes()),
        }
    }
}

fn simple(error: u32, cookie: u64, out: &mut Vec<u8>) {
    out.extend(SIMPLE_REPLY_MAGIC.to_be_bytes());
    out.extend(error.to_be_bytes());
    out.extend(cookie.to_be_bytes());
}

/// Fields of a message, from its start on.
#[derive(Debug)]
pub struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    /// The next bytes, if there are that many.
    pub fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (first, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(first)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N).and_then(|bytes| bytes.try_into().ok())
    }

    /// The next 16 bits.
    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    /// The next 32 bits.
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    /// The next 64 bits.
    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// A string with its length of 32 bits in front.
    pub fn string(&mut self) -> Option<&'a str> {
        let length = self.u32()?;
        std::str::from_utf8(self.bytes(length as usize)?).ok()
    }
}
