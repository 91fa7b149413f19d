//! Members of a tar archive: ustar, GNU and pax, one after the other, from a seekable file.
//!
//! pax records are split by their lengths, so that values may contain any byte, as extended
//! attributes do.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use flysch_api::vfs::Timestamp;

const BLOCK: u64 = 512;
/// Longest extended header or long name, bytes.
const EXTENSION_MAX: u64 = 8 << 20;
/// Maximum number of stretches of a sparse file.
const STRETCHES_MAX: usize = 1 << 20;

/// A member, with the information of preceding extended headers applied.
#[derive(Clone, Debug, Default)]
pub(super) struct Member {
    pub(super) path: Vec<u8>,
    pub(super) link: Vec<u8>,
    /// Type flag: `0` a file, `1` a hard link, `2` a symbolic link, `3` and `4` devices, `5` a
    /// directory, `6` a FIFO; others cannot be in an image.
    pub(super) flag: u8,
    pub(super) mode: u32,
    pub(super) owner: u32,
    pub(super) group: u32,
    pub(super) device: (u32, u32),
    pub(super) modified: Timestamp,
    pub(super) accessed: Option<Timestamp>,
    pub(super) changed: Option<Timestamp>,
    pub(super) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// Bytes of the file.
    pub(super) size: u64,
    /// Offset of its content in the archive.
    pub(super) start: u64,
    /// A sparse file's stretches: offset in the file, length; in the archive they are adjacent.
    pub(super) stretches: Option<Vec<(u64, u64)>>,
}

/// Traverses an archive.
#[derive(Debug)]
pub(super) struct Members<'f> {
    file: &'f File,
    at: u64,
    end: u64,
    /// Records for all members that follow.
    global: Vec<(Vec<u8>, Vec<u8>)>,
}

fn broken(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the archive is broken: {what}"))
}

impl<'f> Members<'f> {
    pub(super) fn new(file: &'f File) -> io::Result<Self> {
        Ok(Self { file, at: 0, end: file.metadata()?.len(), global: Vec::new() })
    }

    fn block(&mut self) -> io::Result<[u8; BLOCK as usize]> {
        let mut block = [0; BLOCK as usize];
        self.file.read_exact_at(&mut block, self.at).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => broken("it ends in the middle"),
            _ => error,
        })?;
        self.at += BLOCK;
        Ok(block)
    }

    /// The data of an extension header.
    fn extension(&mut self, length: u64) -> io::Result<Vec<u8>> {
        if length > EXTENSION_MAX || length > self.end.saturating_sub(self.at) {
            return Err(broken("an extended header is too long"));
        }
        let mut data = vec![0; length as usize];
        self.file.read_exact_at(&mut data, self.at)?;
        self.at += length.next_multiple_of(BLOCK);
        Ok(data)
    }

    /// The next member; `None` at the end.
    pub(super) fn next(&mut self) -> io::Result<Option<Member>> {
        let (mut local, mut long_path, mut long_link) = (Vec::new(), None, None);
        loop {
            // Some writers leave the two empty blocks at the end out.
            if self.at >= self.end {
                return Ok(None);
            }
            let header = self.block()?;
            if header.iter().all(|&byte| byte == 0) {
                return Ok(None);
            }
            check(&header)?;
            let length = number(&header[124..136]).ok_or_else(|| broken("a size"))?;
            match header[156] {
                b'x' => local = records(&self.extension(length)?)?,
                b'g' => {
                    let more = records(&self.extension(length)?)?;
                    self.global.extend(more);
                }
                b'L' => long_path = Some(text(&self.extension(length)?).to_vec()),
                b'K' => long_link = Some(text(&self.extension(length)?).to_vec()),
                _ => {
                    let mut member = plain(&header, length)?;
                    member.path = long_path.unwrap_or(member.path);
                    member.link = long_link.unwrap_or(member.link);
                    return self.finish(member, &header, &local).map(Some);
                }
            }
        }
    }

    /// Applies records, locates the content and skips it.
    fn finish(
        &mut self,
        mut member: Member,
        header: &[u8; BLOCK as usize],
        local: &[(Vec<u8>, Vec<u8>)],
    ) -> io::Result<Member> {
        let mut stored = member.size;
        let mut real_size = None;
        let mut sparse_version = None;
        let mut map = SparseMap::default();
        for (key, value) in self.global.iter().chain(local) {
            match &key[..] {
                b"path" if sparse_version.is_none() && !map.is_named => {
                    member.path.clone_from(value);
                }
                b"linkpath" => member.link.clone_from(value),
                b"size" => stored = decimal(value).ok_or_else(|| broken("a size"))?,
                b"uid" => member.owner = id(value)?,
                b"gid" => member.group = id(value)?,
                b"mtime" => member.modified = time(value).ok_or_else(|| broken("a time"))?,
                b"atime" => member.accessed = time(value),
                b"ctime" => member.changed = time(value),
                b"GNU.sparse.major" => sparse_version = decimal(value),
                b"GNU.sparse.name" => {
                    map.is_named = true;
                    member.path.clone_from(value);
                }
                b"GNU.sparse.realsize" | b"GNU.sparse.size" => real_size = decimal(value),
                key if key.starts_with(b"GNU.sparse.") => {
                    map.add(key, value).ok_or_else(|| broken("a sparse file"))?;
                }
                key => {
                    if let Some(name) = key.strip_prefix(b"SCHILY.xattr.") {
                        member.xattrs.retain(|(other, _)| other != name);
                        member.xattrs.push((name.to_vec(), value.clone()));
                    }
                }
            }
        }
        member.size = stored;
        if matches!(header[156], b'2'..=b'6') {
            (member.size, stored) = (0, 0);
        }
        member.start = self.at;
        let end = self.at.checked_add(stored).filter(|end| *end <= self.end);
        let end = end.ok_or_else(|| broken("it ends in the middle of a file"))?;
        if header[156] == b'S' {
            self.gnu_sparse(&mut member, header)?;
            let end = self.at + stored;
            member.start = self.at;
            self.at = end.next_multiple_of(BLOCK);
            return Ok(member);
        }
        if sparse_version == Some(1) {
            self.pax_sparse(&mut member, real_size.ok_or_else(|| broken("a sparse file"))?)?;
        }
        if let (None, Some(size), false) = (sparse_version, real_size, map.numbers.is_empty()) {
            member.stretches = Some(map.stretches().ok_or_else(|| broken("a sparse file"))?);
            member.size = size;
        }
        self.at = end.next_multiple_of(BLOCK);
        Ok(member)
    }

    /// The map of a sparse file in GNU's own format: four stretches, then blocks of 21.
    fn gnu_sparse(&mut self, member: &mut Member, header: &[u8; BLOCK as usize]) -> io::Result<()> {
        let mut stretches = Vec::new();
        let mut take = |bytes: &[u8]| -> io::Result<()> {
            for entry in bytes.chunks_exact(24).filter(|entry| entry[0] != 0) {
                let part = |range: &[u8]| number(range).ok_or_else(|| broken("a sparse file"));
                stretches.push((part(&entry[..12])?, part(&entry[12..])?));
            }
            (stretches.len() < STRETCHES_MAX).then_some(()).ok_or_else(|| broken("a sparse file"))
        };
        take(&header[386..482])?;
        let mut more = header[482] != 0;
        while more {
            let block = self.block()?;
            take(&block[..504])?;
            more = block[504] != 0;
        }
        member.size = number(&header[483..495]).ok_or_else(|| broken("a sparse file"))?;
        member.flag = b'0';
        member.stretches = Some(stretches);
        Ok(())
    }

    /// The map of a sparse file in pax format 1.0: numbers in lines before the content.
    fn pax_sparse(&mut self, member: &mut Member, real_size: u64) -> io::Result<()> {
        let mut numbers = Vec::new();
        let mut wanted = None;
        let (mut digits, mut at) = (Vec::new(), self.at);
        let limit = self.at + member.size;
        while wanted.is_none_or(|wanted| numbers.len() < wanted) {
            if at >= limit || numbers.len() > 2 * STRETCHES_MAX {
                return Err(broken("a sparse file"));
            }
            let mut block = [0; BLOCK as usize];
            self.file.read_exact_at(&mut block, at)?;
            at += BLOCK;
            for byte in block {
                if byte != b'\n' {
                    digits.push(byte);
                    continue;
                }
                if digits.is_empty() || wanted.is_some_and(|wanted| numbers.len() == wanted) {
                    break;
                }
                let number = decimal(&digits).ok_or_else(|| broken("a sparse file"))?;
                digits.clear();
                match wanted {
                    None => wanted = Some(2 * usize::try_from(number).unwrap_or(usize::MAX / 2)),
                    Some(_) => numbers.push(number),
                }
                if wanted == Some(numbers.len()) {
                    break;
                }
            }
        }
        member.start = at;
        member.stretches = Some(numbers.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect());
        member.size = real_size;
        Ok(())
    }
}

/// The map of a sparse file in the records of pax formats 0.0 and 0.1.
#[derive(Debug, Default)]
struct SparseMap {
    /// Offset and length of each stretch.
    numbers: Vec<u64>,
    /// The records contain the name, too.
    is_named: bool,
}

impl SparseMap {
    fn add(&mut self, key: &[u8], value: &[u8]) -> Option<()> {
        match key {
            b"GNU.sparse.offset" | b"GNU.sparse.numbytes" => self.numbers.push(decimal(value)?),
            b"GNU.sparse.map" => {
                for number in value.split(|&byte| byte == b',') {
                    self.numbers.push(decimal(number)?);
                }
            }
            _ => {}
        }
        (self.numbers.len() <= 2 * STRETCHES_MAX).then_some(())
    }

    fn stretches(&self) -> Option<Vec<(u64, u64)>> {
        let pairs = self.numbers.chunks_exact(2);
        let whole = pairs.remainder().is_empty();
        whole.then(|| pairs.map(|pair| (pair[0], pair[1])).collect())
    }
}

/// The header's own checksum: the sum of its bytes, with the checksum field taken as spaces.
fn check(header: &[u8; BLOCK as usize]) -> io::Result<()> {
    let sum = |header: &[u8]| header.iter().map(|&byte| u64::from(byte)).sum::<u64>();
    let computed = sum(header) - sum(&header[148..156]) + 8 * u64::from(b' ');
    match number(&header[148..156]) {
        Some(stored) if stored == computed => Ok(()),
        _ => Err(broken("a header's checksum is wrong, or it is not a tar archive")),
    }
}

/// The information in the header itself.
fn plain(header: &[u8; BLOCK as usize], size: u64) -> io::Result<Member> {
    let field = |range: std::ops::Range<usize>, what| {
        number(&header[range])
            .and_then(|number| u32::try_from(number).ok())
            .ok_or_else(|| broken(what))
    };
    let mut path = text(&header[..100]).to_vec();
    if &header[257..263] == b"ustar\0" && header[345] != 0 {
        path = [text(&header[345..500]), b"/", &path].concat();
    }
    let seconds = signed(&header[136..148]).ok_or_else(|| broken("a time"))?;
    let is_device = matches!(header[156], b'3' | b'4');
    let device = match is_device {
        true => (field(329..337, "a device number")?, field(337..345, "a device number")?),
        false => (0, 0),
    };
    let flag = match header[156] {
        // Before POSIX, directories were files with a '/' at the end.
        0 | b'0' | b'7' if path.ends_with(b"/") => b'5',
        0 | b'7' => b'0',
        flag => flag,
    };
    Ok(Member {
        path,
        link: text(&header[157..257]).to_vec(),
        flag,
        mode: field(100..108, "a mode")?,
        owner: field(108..116, "a user id")?,
        group: field(116..124, "a group id")?,
        device,
        modified: Timestamp { seconds, nanoseconds: 0 },
        size,
        ..Member::default()
    })
}

/// The bytes before the first NUL.
fn text(field: &[u8]) -> &[u8] {
    field.split(|&byte| byte == 0).next().unwrap_or_default()
}

/// A number in a header: octal digits, or base 256 if the first bit is set.
fn number(field: &[u8]) -> Option<u64> {
    signed(field).and_then(|number| u64::try_from(number).ok())
}

fn signed(field: &[u8]) -> Option<i64> {
    if field[0] & 0x80 != 0 {
        // Seven bits of the first byte, the highest of them the sign.
        let first = i64::from((field[0] << 1) as i8 >> 1);
        return field[1..]
            .iter()
            .try_fold(first, |sum, &byte| sum.checked_mul(256).map(|sum| sum | i64::from(byte)));
    }
    let digits = text(field);
    let digits = digits.trim_ascii();
    let octal = |sum: i64, &byte: &u8| match byte {
        b'0'..=b'7' => sum.checked_mul(8)?.checked_add(i64::from(byte - b'0')),
        _ => None,
    };
    digits.iter().try_fold(0, octal)
}

fn decimal(value: &[u8]) -> Option<u64> {
    std::str::from_utf8(value).ok()?.parse().ok()
}

fn id(value: &[u8]) -> io::Result<u32> {
    decimal(value).and_then(|id| u32::try_from(id).ok()).ok_or_else(|| broken("a user or group id"))
}

/// Records of an extended header: `LENGTH KEY=VALUE\n`.
fn records(mut data: &[u8]) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut records = Vec::new();
    while !data.is_empty() {
        let bad = || broken("an extended header");
        let space = data.iter().position(|&byte| byte == b' ').ok_or_else(bad)?;
        let length = decimal(&data[..space]).ok_or_else(bad)? as usize;
        let record = data.get(space + 1..length).and_then(|it| it.strip_suffix(b"\n"));
        let record = record.ok_or_else(bad)?;
        let equals = record.iter().position(|&byte| byte == b'=').ok_or_else(bad)?;
        records.push((record[..equals].to_vec(), record[equals + 1..].to_vec()));
        data = &data[length..];
    }
    Ok(records)
}

/// A time in pax format: seconds, optionally with a fraction.
fn time(value: &[u8]) -> Option<Timestamp> {
    let text = std::str::from_utf8(value).ok()?;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let seconds: i64 = whole.parse().ok()?;
    let digits: String = fraction.chars().chain("000000000".chars()).take(9).collect();
    let nanoseconds = digits.parse().ok()?;
    if whole.starts_with('-') && nanoseconds > 0 {
        return Some(Timestamp { seconds: seconds - 1, nanoseconds: 1_000_000_000 - nanoseconds });
    }
    Some(Timestamp { seconds, nanoseconds })
}

#[cfg(test)]
mod tests;
