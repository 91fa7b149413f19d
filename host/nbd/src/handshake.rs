//! Options: negotiated by client and server before the first request.

use std::time::{Duration, Instant};

use crate::Export;
use crate::wire::{
    CLIENT_FLAGS, CLIENT_NO_ZEROES, Fields, Form, HANDSHAKE_FLAGS, INIT_PASSWD, OPTION_REPLY_MAGIC,
    OPTS_MAGIC, info, option, reply,
};

/// Time limit for a client's handshake.
const PATIENCE: Duration = Duration::from_secs(10);
/// Maximum number of options of a client.
const OPTIONS_MAX: u32 = 64;
/// Longest data of an option, bytes.
const OPTION_MAX: u32 = 64 << 10;
/// The only context (`doc/proto.md`, "base:allocation").
const ALLOCATION: &str = "base:allocation";
/// Its number.
pub(crate) const ALLOCATION_ID: u32 = 1;

/// Why a client was dropped during the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It sets unknown flags.
    #[error("it sent client flags {0:#x}, which do not exist")]
    Flags(u32),
    /// Not an option where one must be.
    #[error("it sent no option where one must be")]
    NoOption,
    /// An option that is too long.
    #[error("it sent an option of {0} bytes")]
    TooLong(u32),
    /// Too many of them.
    #[error("it sent more than {most} options", most = OPTIONS_MAX)]
    TooMany,
    /// An export that does not exist, when there is no way to report that.
    #[error("it asked for an export that does not exist")]
    NoExport,
    /// Cleartext after the request for encryption.
    #[error("it sent something between asking for TLS and being answered")]
    Unencrypted,
    /// It took too long.
    #[error("it did not finish the handshake in {secs} s", secs = PATIENCE.as_secs())]
    Slow,
}

/// The progress of the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// More input is needed.
    More,
    /// Requests follow.
    Ready,
    /// The client aborted.
    Aborted,
    /// TLS follows, and then options again.
    Encrypts,
}

/// A handshake in progress, and its results.
#[derive(Debug)]
pub(crate) struct Handshake {
    began: Instant,
    options: u32,
    has_flags: bool,
    no_zeroes: bool,
    form: Form,
    allocation: bool,
    is_encrypted: bool,
}

/// An answer to an option.
struct Answer<'a> {
    option: u32,
    out: &'a mut Vec<u8>,
}

impl Answer<'_> {
    fn put(&mut self, kind: u32, parts: &[&[u8]]) {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        self.out.extend(OPTION_REPLY_MAGIC.to_be_bytes());
        self.out.extend(self.option.to_be_bytes());
        self.out.extend(kind.to_be_bytes());
        self.out.extend((length as u32).to_be_bytes());
        parts.iter().for_each(|part| self.out.extend(*part));
    }

    fn refuse(&mut self, kind: u32, why: &str) {
        self.put(kind, &[why.as_bytes()]);
    }
}

impl Handshake {
    /// Starts a handshake: `out` gets the server's greeting.
    pub(crate) fn new(out: &mut Vec<u8>) -> Self {
        out.extend(INIT_PASSWD.to_be_bytes());
        out.extend(OPTS_MAGIC.to_be_bytes());
        out.extend(HANDSHAKE_FLAGS.to_be_bytes());
        let (form, began) = (Form::Simple, Instant::now());
        Self {
            began,
            options: 0,
            has_flags: false,
            no_zeroes: false,
            form,
            allocation: false,
            is_encrypted: false,
        }
    }

    /// The client's deadline.
    pub(crate) fn deadline(&self) -> Instant {
        self.began + PATIENCE
    }

    /// The negotiated form of replies.
    pub(crate) fn form(&self) -> Form {
        self.form
    }

    /// Whether the client negotiated `base:allocation`.
    pub(crate) fn tells_allocation(&self) -> bool {
        self.allocation
    }

    /// Takes the complete messages at the start of `input` and answers into `out`; returns how many
    /// bytes were taken, and the progress.
    pub(crate) fn advance(
        &mut self,
        input: &[u8],
        export: &Export,
        out: &mut Vec<u8>,
    ) -> Result<(usize, Progress), Refusal> {
        if Instant::now() > self.deadline() {
            return Err(Refusal::Slow);
        }
        let mut at = 0;
        while let Some((used, progress)) = self.step(&input[at..], export, out)? {
            at += used;
            if progress != Progress::More {
                return Ok((at, progress));
            }
        }
        Ok((at, Progress::More))
    }

    /// One message, if it is complete: its length and its result.
    fn step(
        &mut self,
        input: &[u8],
        export: &Export,
        out: &mut Vec<u8>,
    ) -> Result<Option<(usize, Progress)>, Refusal> {
        let mut fields = Fields(input);
        if !self.has_flags {
            let Some(flags) = fields.u32() else { return Ok(None) };
            if flags & !CLIENT_FLAGS != 0 {
                return Err(Refusal::Flags(flags));
            }
            (self.has_flags, self.no_zeroes) = (true, flags & CLIENT_NO_ZEROES != 0);
            return Ok(Some((4, Progress::More)));
        }
        let Some(magic) = fields.u64() else { return Ok(None) };
        if magic != OPTS_MAGIC {
            return Err(Refusal::NoOption);
        }
        let (Some(option), Some(length)) = (fields.u32(), fields.u32()) else { return Ok(None) };
        if length > OPTION_MAX {
            return Err(Refusal::TooLong(length));
        }
        let Some(data) = fields.bytes(length as usize) else { return Ok(None) };
        self.options += 1;
        if self.options > OPTIONS_MAX {
            return Err(Refusal::TooMany);
        }
        let progress = self.option(data, export, &mut Answer { option, out })?;
        Ok(Some((16 + length as usize, progress)))
    }

    fn option(
        &mut self,
        data: &[u8],
        export: &Export,
        answer: &mut Answer<'_>,
    ) -> Result<Progress, Refusal> {
        let must_encrypt = export.tls.as_ref().is_some_and(|tls| tls.is_required);
        let may_plain = [option::STARTTLS, option::ABORT].contains(&answer.option);
        if must_encrypt && !self.is_encrypted && !may_plain {
            if answer.option == option::EXPORT_NAME {
                return Err(Refusal::NoExport);
            }
            answer.refuse(reply::ERR_TLS_REQD, "TLS is required: ask for it first");
            return Ok(Progress::More);
        }
        match answer.option {
            option::STARTTLS if export.tls.is_some() => {
                if self.is_encrypted || !data.is_empty() {
                    answer.refuse(
                        reply::ERR_INVALID,
                        "TLS can be asked for only once, and without data",
                    );
                    return Ok(Progress::More);
                }
                answer.put(reply::ACK, &[]);
                // What was agreed on before may have been somebody else's wish.
                (self.form, self.allocation, self.is_encrypted) = (Form::Simple, false, true);
                return Ok(Progress::Encrypts);
            }
            option::EXPORT_NAME => {
                if !std::str::from_utf8(data).is_ok_and(|name| export.is_named(name)) {
                    return Err(Refusal::NoExport);
                }
                answer.out.extend(export.size.to_be_bytes());
                answer.out.extend(export.flags(self.form).to_be_bytes());
                if !self.no_zeroes {
                    answer.out.extend([0; 124]);
                }
                return Ok(Progress::Ready);
            }
            option::ABORT => {
                answer.put(reply::ACK, &[]);
                return Ok(Progress::Aborted);
            }
            option::LIST if data.is_empty() => {
                let name = export.name.as_bytes();
                answer.put(reply::SERVER, &[&(name.len() as u32).to_be_bytes(), name]);
                answer.put(reply::ACK, &[]);
            }
            option::INFO => drop(self.info(data, export, answer)),
            option::GO => {
                if self.info(data, export, answer) {
                    return Ok(Progress::Ready);
                }
            }
            option::STRUCTURED_REPLY if data.is_empty() => self.agree(Form::Structured, answer),
            option::EXTENDED_HEADERS if data.is_empty() => self.agree(Form::Extended, answer),
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT => {
                self.contexts(data, export, answer);
            }
            option::LIST | option::STRUCTURED_REPLY | option::EXTENDED_HEADERS => {
                answer.refuse(reply::ERR_INVALID, "this option must have no data");
            }
            _ => answer.refuse(reply::ERR_UNSUP, "this option is not known"),
        }
        Ok(Progress::More)
    }

    fn agree(&mut self, form: Form, answer: &mut Answer<'_>) {
        // What was agreed stays: who has extended headers has structured replies.
        self.form = self.form.max(form);
        answer.put(reply::ACK, &[]);
    }

    /// `INFO` and `GO`: whether the export is known.
    fn info(&self, data: &[u8], export: &Export, answer: &mut Answer<'_>) -> bool {
        let mut fields = Fields(data);
        let Some(wanted) = parse_info(&mut fields) else {
            answer.refuse(reply::ERR_INVALID, "the data must be a name and a list of information");
            return false;
        };
        let (name, kinds) = wanted;
        if !export.is_named(name) {
            answer.refuse(reply::ERR_UNKNOWN, "no export has this name");
            return false;
        }
        for kind in kinds.chunks_exact(2).map(|kind| u16::from_be_bytes([kind[0], kind[1]])) {
            let head = kind.to_be_bytes();
            match kind {
                info::NAME => answer.put(reply::INFO, &[&head, export.name.as_bytes()]),
                info::DESCRIPTION if !export.description.is_empty() => {
                    answer.put(reply::INFO, &[&head, export.description.as_bytes()]);
                }
                info::BLOCK_SIZE => {
                    // The server itself reads and writes back the rest of a block.
                    let sizes = [1, export.block_size.max(4096), Export::LONGEST];
                    let sizes = sizes.map(u32::to_be_bytes);
                    answer.put(reply::INFO, &[&head, sizes.as_flattened()]);
                }
                _ => {}
            }
        }
        let flags = export.flags(self.form).to_be_bytes();
        let size = export.size.to_be_bytes();
        answer.put(reply::INFO, &[&info::EXPORT.to_be_bytes(), &size, &flags]);
        answer.put(reply::ACK, &[]);
        true
    }

    /// `LIST_META_CONTEXT` and `SET_META_CONTEXT`.
    fn contexts(&mut self, data: &[u8], export: &Export, answer: &mut Answer<'_>) {
        let sets = answer.option == option::SET_META_CONTEXT;
        if sets {
            self.allocation = false;
        }
        if self.form == Form::Simple {
            let why = "contexts need structured replies";
            return answer.refuse(reply::ERR_INVALID, why);
        }
        let Some((name, wanted)) = parse_contexts(data, sets) else {
            return answer
                .refuse(reply::ERR_INVALID, "the data must be a name and a list of contexts");
        };
        if !export.is_named(name) {
            return answer.refuse(reply::ERR_UNKNOWN, "no export has this name");
        }
        if wanted {
            // Of a list the number means nothing.
            let number = if sets { ALLOCATION_ID } else { 0 };
            let number = number.to_be_bytes();
            answer.put(reply::META_CONTEXT, &[&number, ALLOCATION.as_bytes()]);
            self.allocation |= sets;
        }
        answer.put(reply::ACK, &[]);
    }
}

/// A name and the requested kinds of information, two bytes each.
fn parse_info<'a>(fields: &mut Fields<'a>) -> Option<(&'a str, &'a [u8])> {
    let name = fields.string()?;
    let count = fields.u16()?;
    let kinds = fields.bytes(usize::from(count) * 2)?;
    fields.0.is_empty().then_some((name, kinds))
}

/// A name, and whether `base:allocation` is among the queries.
fn parse_contexts(data: &[u8], sets: bool) -> Option<(&str, bool)> {
    let mut fields = Fields(data);
    let name = fields.string()?;
    let count = fields.u32()?;
    // To list without a question is to list all; to set nothing is to set nothing.
    let mut wanted = count == 0 && !sets;
    for _ in 0..count {
        let query = fields.string()?;
        wanted |= query == ALLOCATION || (!sets && query == "base:");
    }
    fields.0.is_empty().then_some((name, wanted))
}
