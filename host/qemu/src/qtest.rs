//! The client side of QEMU's qtest protocol: lines of text over a stream socket.
//!
//! Theory. A command is one line, answered by one line `OK [value]`; between answers QEMU may send
//! `IRQ raise n` and `IRQ lower n`. Answers come in the order of the commands, so a write need not
//! wait for its own: it is *posted*, and its answer is consumed together with the next awaited one.
//! The answer to a read is the last outstanding one. A register write therefore takes one system
//! call, a read two, and nothing allocates. A stream that ends, stalls or contains anything else
//! breaks the link for good: reads then return all ones, as on a bus without a responder.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::net::RecvFlags;

/// Posted writes with outstanding answers; limits what can accumulate in the socket.
const OWED_MAX: u32 = 64;
/// The longest line of the protocol subset used here is well below this.
const LINE_MAX: usize = 512;
/// QEMU answers in microseconds; one that is silent this long is stuck or stopped.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Why the link broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// QEMU closed the socket: it ended.
    Ended,
    /// No answer for [`ANSWER_TIMEOUT`].
    Silent,
    /// An answer that is not of this protocol.
    Garbled,
}

/// The content of one line from QEMU.
#[derive(Debug, PartialEq, Eq)]
enum Line {
    Answer(u64),
    Interrupt { number: u32, raised: bool },
    Unknown,
}

/// One connection to QEMU.
#[derive(Debug)]
pub(crate) struct Link {
    socket: UnixStream,
    input: [u8; LINE_MAX],
    filled: usize,
    owed: u32,
    answer: u64,
    /// Interrupt lines that are up, one bit each.
    raised: u64,
    broken: Option<Broken>,
}

impl Link {
    pub(crate) fn new(socket: UnixStream) -> io::Result<Self> {
        socket.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        socket.set_write_timeout(Some(ANSWER_TIMEOUT))?;
        Ok(Self {
            socket,
            input: [0; LINE_MAX],
            filled: 0,
            owed: 0,
            answer: 0,
            raised: 0,
            broken: None,
        })
    }

    pub(crate) fn broken(&self) -> Option<Broken> {
        self.broken
    }

    /// Whether any intercepted interrupt line is up.
    pub(crate) fn interrupt(&self) -> bool {
        self.raised != 0
    }

    /// Sends a command and waits for its answer.
    pub(crate) fn call(&mut self, command: std::fmt::Arguments<'_>) -> Result<u64, Broken> {
        self.post(command)?;
        self.settle()?;
        Ok(self.answer)
    }

    /// Sends a command whose answer is not needed.
    pub(crate) fn post(&mut self, command: std::fmt::Arguments<'_>) -> Result<(), Broken> {
        if let Some(broken) = self.broken {
            return Err(broken);
        }
        if self.owed >= OWED_MAX {
            self.settle()?;
        }
        let mut line = [0_u8; LINE_MAX];
        let mut rest = &mut line[..];
        writeln!(rest, "{command}").expect("a qtest command fits a line");
        let len = LINE_MAX - rest.len();
        if let Err(e) = self.socket.write_all(&line[..len]) {
            return Err(self.fail(&e));
        }
        self.owed += 1;
        Ok(())
    }

    /// Consumes all outstanding answers.
    fn settle(&mut self) -> Result<(), Broken> {
        while self.owed > 0 {
            match self.socket.read(&mut self.input[self.filled..]) {
                Ok(0) => return Err(self.fail_with(Broken::Ended)),
                Ok(n) => self.take_in(n)?,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(self.fail(&e)),
            }
        }
        Ok(())
    }

    /// Consumes available input, without waiting.
    pub(crate) fn drain(&mut self) -> Result<(), Broken> {
        if let Some(broken) = self.broken {
            return Err(broken);
        }
        loop {
            let free = &mut self.input[self.filled..];
            match rustix::net::recv(&self.socket, free, RecvFlags::DONTWAIT) {
                Ok((0, _)) => return Err(self.fail_with(Broken::Ended)),
                Ok((n, _)) => self.take_in(n)?,
                Err(rustix::io::Errno::AGAIN) => return Ok(()),
                Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(self.fail(&e.into())),
            }
        }
    }

    /// Processes complete lines after `n` more bytes have arrived.
    fn take_in(&mut self, n: usize) -> Result<(), Broken> {
        self.filled += n;
        let mut start = 0;
        while let Some(end) = self.input[start..self.filled].iter().position(|&b| b == b'\n') {
            match parse(&self.input[start..start + end]) {
                Line::Answer(value) if self.owed > 0 => {
                    self.owed -= 1;
                    self.answer = value;
                }
                Line::Interrupt { number, raised } => {
                    let bit = 1_u64.checked_shl(number).unwrap_or(0);
                    self.raised = if raised { self.raised | bit } else { self.raised & !bit };
                }
                Line::Answer(_) | Line::Unknown => return Err(self.fail_with(Broken::Garbled)),
            }
            start += end + 1;
        }
        self.input.copy_within(start..self.filled, 0);
        self.filled -= start;
        if self.filled == LINE_MAX { Err(self.fail_with(Broken::Garbled)) } else { Ok(()) }
    }

    fn fail(&mut self, error: &io::Error) -> Broken {
        self.fail_with(match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Broken::Silent,
            _ => Broken::Ended,
        })
    }

    fn fail_with(&mut self, broken: Broken) -> Broken {
        *self.broken.get_or_insert(broken)
    }
}

fn parse(line: &[u8]) -> Line {
    let Ok(line) = str::from_utf8(line) else { return Line::Unknown };
    let mut words = line.split_ascii_whitespace();
    match (words.next(), words.next(), words.next()) {
        (Some("OK"), None, None) => Line::Answer(0),
        (Some("OK"), Some(value), None) => number(value).map_or(Line::Unknown, Line::Answer),
        (Some("IRQ"), Some(word @ ("raise" | "lower")), Some(line)) => match line.parse() {
            Ok(number) => Line::Interrupt { number, raised: word == "raise" },
            Err(_) => Line::Unknown,
        },
        _ => Line::Unknown,
    }
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    fn pair() -> (Link, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (Link::new(ours).unwrap(), theirs)
    }

    #[test]
    fn lines_of_the_protocol() {
        assert_eq!(parse(b"OK"), Line::Answer(0));
        assert_eq!(parse(b"OK 0x00000000e0000000"), Line::Answer(0xE000_0000));
        assert_eq!(parse(b"OK 17"), Line::Answer(17));
        assert_eq!(parse(b"IRQ raise 20"), Line::Interrupt { number: 20, raised: true });
        assert_eq!(parse(b"IRQ lower 20"), Line::Interrupt { number: 20, raised: false });
        for line in
            [&b""[..], b"FAIL Unknown command", b"OK zz", b"IRQ up 1", b"\xff\xfe", b"OK 1 2"]
        {
            assert_eq!(parse(line), Line::Unknown, "{line:?}");
        }
    }

    #[test]
    fn a_read_gets_its_own_answer_behind_posted_writes_and_interrupts() {
        let (mut link, mut qemu) = pair();
        link.post(format_args!("writel 0x10 0x1")).unwrap();
        link.post(format_args!("writel 0x14 0x2")).unwrap();
        qemu.write_all(b"OK\nIRQ raise 20\nOK\nOK 0x2a\nIRQ rai").unwrap();
        assert_eq!(link.call(format_args!("readl 0x10")), Ok(0x2A));
        assert!(link.interrupt());
        qemu.write_all(b"se 3\nIRQ lower 3\nIRQ lower 20\n").unwrap();
        link.drain().unwrap();
        assert!(!link.interrupt());
        let mut sent = [0; 64];
        let n = qemu.read(&mut sent).unwrap();
        assert_eq!(&sent[..n], b"writel 0x10 0x1\nwritel 0x14 0x2\nreadl 0x10\n");
    }

    #[test]
    fn a_link_that_breaks_stays_broken() {
        for (words, broken) in [
            (&b""[..], Broken::Ended),
            (b"OK 0x1", Broken::Ended),
            (b"FAIL no\n", Broken::Garbled),
            (b"OK\nOK\n", Broken::Garbled),
            (&[b'x'; LINE_MAX], Broken::Garbled),
        ] {
            let (mut link, mut qemu) = pair();
            let talker = thread::spawn(move || {
                let mut command = [0; 64];
                let _ = qemu.read(&mut command).unwrap();
                qemu.write_all(words).unwrap();
            });
            let first = link.call(format_args!("readl 0x0"));
            talker.join().unwrap();
            assert!(first == Err(broken) || link.drain() == Err(broken), "{words:?}: {first:?}");
            assert!(link.post(format_args!("writel 0x0 0x0")).is_err());
            assert_eq!(link.broken(), Some(broken));
        }
    }

    #[test]
    fn posted_writes_do_not_pile_up_without_bound() {
        let (mut link, mut qemu) = pair();
        let talker = thread::spawn(move || {
            let mut bytes = [0; 4096];
            let mut lines = 0;
            while let Ok(n @ 1..) = qemu.read(&mut bytes) {
                for _ in bytes[..n].iter().filter(|&&b| b == b'\n') {
                    lines += 1;
                    qemu.write_all(b"OK\n").unwrap();
                }
            }
            lines
        });
        for i in 0..10_000 {
            link.post(format_args!("writel 0x0 {i:#x}")).unwrap();
            assert!(link.owed <= OWED_MAX);
        }
        link.settle().unwrap();
        drop(link);
        assert_eq!(talker.join().unwrap(), 10_000);
    }
}
