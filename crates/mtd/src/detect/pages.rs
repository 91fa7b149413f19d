//! Whether out-of-band bytes lie between the pages, and which error correction they hold.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use flysch_api::flash::FlashError;
use flysch_wire::jffs2::{self, ByteOrder, Inode, NodeType};
use flysch_wire::ubi::{EC_HEADER_SIZE, EcHeader};
use flysch_wire::ubifs;
use once_cell::race::OnceBox;

use super::Hints;
use crate::{Bch, Ecc, OobLayout, PageFormat, Scheme, Storage};

/// Pages and out-of-band bytes of real chips, the common ones first.
const CANDIDATES: [(u32, usize); 17] = [
    (2048, 64),
    (512, 16),
    (4096, 128),
    (4096, 224),
    (4096, 256),
    (2048, 128),
    (2048, 112),
    (2048, 96),
    (8192, 448),
    (8192, 640),
    (8192, 744),
    (8192, 256),
    (8192, 512),
    (4096, 218),
    (4096, 192),
    (1024, 32),
    (256, 8),
];
/// Bytes to examine.
const SAMPLE_MAX: usize = 4 << 20;
/// Erased bytes may have fewer zero bits than this.
const BLANK_BITS: u32 = 64;
/// Maximum bytes that the markers of erased blocks take in 64 KiB.
const MARKERS_MAX: usize = 512;
/// Pages on which an error-correction scheme is tried.
const PAGES_TRIED: usize = 64;

/// How pages and out-of-band bytes alternate in `storage`; `None` for an image without such bytes,
/// or if `hints` give sizes that do not fit it.
///
/// # Errors
/// If the storage cannot be read.
pub fn page_format<S: Storage>(
    storage: &S,
    hints: &Hints,
) -> Result<Option<PageFormat>, FlashError> {
    let hints = &hints.known();
    if hints.oob_size == Some(0) && hints.ecc.is_none() {
        return Ok(None);
    }
    let size = usize::try_from(storage.size()).unwrap_or(usize::MAX);
    let start = first_used(storage)?;
    let mut sample = vec![0; SAMPLE_MAX.min(size - start.min(size))];
    storage.read_at(start as u64, &mut sample)?;
    let plain = match hints.name_oob() {
        true => Score::default(),
        false if has_even_blocks(&sample) => return Ok(None),
        false => Score::of(&sample),
    };
    if plain.bad == 0 && plain.good > 0 {
        return Ok(None);
    }
    // Codes that are not to be used show the pages all the same.
    let named = hints.ecc.filter(|&scheme| scheme != Scheme::None);
    let named = named.map(|scheme| scheme.ecc().into_iter().collect::<Vec<_>>());
    let schemes = named.as_deref().unwrap_or_else(|| schemes());
    let mut best: Option<(usize, PageFormat)> = None;
    for (page_size, oob_size) in candidates(hints) {
        let stride = page_size as usize + oob_size;
        let Some(rest) = from_page(&sample, start, stride) else { continue };
        let Some(format) = find_ecc(rest, page_size, oob_size, schemes) else { continue };
        let score = Score::of(&strip(rest, page_size as usize, stride));
        // A code that fits is better evidence than any number of nodes.
        let weight = if format.ecc.step() != 0 { 1 << 20 } else { 0 };
        let value = weight + score.value();
        if value > plain.value() && best.as_ref().is_none_or(|(other, _)| value > *other) {
            best = Some((value, format));
        }
    }
    let found = best.map(|(_, format)| format);
    let mut format = match (hints.page_size, hints.oob_size, hints.ecc) {
        // Nothing is left to be found out.
        (Some(page), Some(oob), Some(scheme)) => named_format(page, oob as usize, scheme),
        (Some(page), Some(oob), None) => {
            found.or_else(|| named_format(page, oob as usize, Scheme::None))
        }
        (_, _, Some(Scheme::None)) => {
            found.and_then(|it| named_format(it.page_size, it.oob.size, Scheme::None))
        }
        (_, _, Some(_)) => found.filter(|it| it.ecc.step() != 0),
        _ => found,
    };
    if let Some(format) = &mut format
        && !has_marker(format, &sample, start)
    {
        format.oob.bad_marker = None;
    }
    Ok(format)
}

/// Whether the byte for the bad-block marker can be one, in a sample that begins at byte `start`.
/// Controllers have layouts of their own, some with a code in its place: then most pages with data
/// have something there, while a chip has few bad blocks.
fn has_marker(format: &PageFormat, sample: &[u8], start: usize) -> bool {
    let page_size = format.page_size as usize;
    let Some(marker) = format.oob.bad_marker else { return false };
    let stride = format.stride();
    let pages = from_page(sample, start, stride).unwrap_or_default().chunks_exact(stride);
    let used = pages.filter(|page| !is_blank(&page[..page_size]));
    let (used, marked) = used.fold((0, 0), |(used, marked), page| {
        (used + 1, marked + usize::from(page[page_size + marker].count_ones() < 5))
    });
    2 * marked <= used
}

/// Sizes of pages and out-of-band bytes that agree with the hints.
fn candidates(hints: &Hints) -> Vec<(u32, usize)> {
    let oob_size = hints.oob_size.map(|size| size as usize);
    if let (Some(page), Some(oob)) = (hints.page_size, oob_size) {
        return vec![(page, oob)];
    }
    // A page size alone may be that of a plain image.
    let page_size = hints.page_size.filter(|_| hints.name_oob());
    let fits = |&(page, oob): &(u32, usize)| {
        page_size.is_none_or(|size| size == page) && oob_size.is_none_or(|size| size == oob)
    };
    CANDIDATES.into_iter().filter(fits).collect()
}

/// Pages that are fully described by hints; `None` if there is no room for the codes.
fn named_format(page_size: u32, oob_size: usize, scheme: Scheme) -> Option<PageFormat> {
    let ecc = scheme.ecc()?;
    if page_size == 0 || ecc.step() != 0 && !(page_size as usize).is_multiple_of(ecc.step()) {
        return None;
    }
    let oob = layout(page_size, oob_size, &ecc)?;
    Some(PageFormat { page_size, oob, ecc })
}

/// Where Linux puts the codes of `ecc`.
fn layout(page_size: u32, oob_size: usize, ecc: &Ecc) -> Option<OobLayout> {
    let code_len = (page_size as usize).checked_div(ecc.step()).unwrap_or(0) * ecc.code_len();
    match ecc {
        Ecc::Hamming { .. } => OobLayout::hamming(oob_size, code_len),
        Ecc::None if page_size <= 512 => OobLayout::small_page(oob_size, 0),
        _ => OobLayout::at_end(oob_size, code_len),
    }
}

/// Where the first bytes lie from which something can be learnt, rounded down. For many megabytes,
/// blocks may be erased except for markers in their out-of-band bytes.
fn first_used<S: Storage>(storage: &S) -> Result<usize, FlashError> {
    let mut window = vec![0; 64 << 10];
    let mut first = None;
    let mut at = 0;
    while at < storage.size() {
        let len = usize::try_from(storage.size() - at).unwrap_or(usize::MAX).min(window.len());
        storage.read_at(at, &mut window[..len])?;
        let used = window[..len].iter().filter(|&&byte| byte != 0xFF).count();
        if used != 0 {
            first.get_or_insert(at);
        }
        if used > MARKERS_MAX {
            first = Some(at);
            break;
        }
        at += len as u64;
    }
    Ok(usize::try_from(first.unwrap_or(at)).unwrap_or(usize::MAX))
}

/// Whether two consecutive erase counter headers of UBI are a power of two apart. If there are
/// out-of-band bytes between the pages, the size of a block never is: each stride of [`CANDIDATES`]
/// has an odd factor. Blocks may hold nothing else for megabytes, so that there are no nodes to
/// decide by.
fn has_even_blocks(sample: &[u8]) -> bool {
    let mut previous = None;
    for (index, bytes) in sample.chunks_exact(4).enumerate() {
        let at = 4 * index;
        let is_header = bytes == b"UBI#"
            && sample[at..].get(..EC_HEADER_SIZE).is_some_and(|b| EcHeader::parse(b).is_ok());
        if is_header {
            if previous.is_some_and(|before: usize| (at - before).is_power_of_two()) {
                return true;
            }
            previous = Some(at);
        }
    }
    false
}

/// A sample that begins at byte `start`, from the first page that begins in it on.
fn from_page(sample: &[u8], start: usize, stride: usize) -> Option<&[u8]> {
    sample.get((stride - start % stride) % stride..)
}

fn strip(bytes: &[u8], page_size: usize, stride: usize) -> Vec<u8> {
    bytes.chunks_exact(stride).flat_map(|page| &page[..page_size]).copied().collect()
}

/// How well bytes read as nodes of a file system. Only nodes longer than the smallest page count:
/// the others may well lie between two interruptions.
#[derive(Default)]
struct Score {
    good: usize,
    bad: usize,
}

impl Score {
    const NODE_LEN_MIN: usize = 600;

    fn value(&self) -> usize {
        (4 * self.good).saturating_sub(self.bad)
    }

    fn of(bytes: &[u8]) -> Self {
        let mut score = Self::default();
        let mut at = 0;
        while at + 24 <= bytes.len() {
            let (len, is_good) = node_at(&bytes[at..]).unwrap_or((4, None));
            match is_good {
                Some(true) => score.good += 1,
                Some(false) => score.bad += 1,
                None => {}
            }
            at += if is_good == Some(true) { len.next_multiple_of(4) } else { 4 };
        }
        score
    }
}

/// The length of the node at the start of `bytes` and, if it is long and complete, whether its
/// checksum is right.
fn node_at(bytes: &[u8]) -> Option<(usize, Option<bool>)> {
    let order = match *bytes.first_chunk::<4>()? {
        [0x31, 0x18, 0x10, 0x06] => {
            let header = ubifs::Header::parse(bytes).ok()?;
            let len = header.length as usize;
            let counts = (Score::NODE_LEN_MIN..=1 << 16).contains(&len) && len <= bytes.len();
            return Some((len, counts.then(|| ubifs::Header::check(bytes).is_ok())));
        }
        [0x85, 0x19, ..] => ByteOrder::Little,
        [0x19, 0x85, ..] => ByteOrder::Big,
        _ => return None,
    };
    let header = jffs2::Header::parse(bytes, order).ok()?;
    let len = header.total_len as usize;
    let counts = header.node_type == NodeType::INODE
        && (Score::NODE_LEN_MIN..=1 << 16).contains(&len)
        && len <= bytes.len();
    let check = || Inode::parse(bytes, order).is_ok_and(|inode| inode.data(bytes).is_ok());
    Some((len, counts.then(check)))
}

/// The scheme whose codes fit the pages in `bytes`; [`Ecc::None`] if none does. `None` if there are
/// no pages.
fn find_ecc(bytes: &[u8], page_size: u32, oob_size: usize, schemes: &[Ecc]) -> Option<PageFormat> {
    let stride = page_size as usize + oob_size;
    let pages: Vec<&[u8]> = bytes
        .chunks_exact(stride)
        .filter(|page| !is_blank(&page[..page_size as usize]))
        .take(PAGES_TRIED)
        .collect();
    if pages.is_empty() {
        return None;
    }
    let tried: Vec<(PageFormat, Fit)> = schemes
        .iter()
        .filter(|ecc| ecc.step() != 0 && (page_size as usize).is_multiple_of(ecc.step()))
        .filter_map(|ecc| {
            let oob = layout(page_size, oob_size, ecc)?;
            let format = PageFormat { page_size, oob, ecc: ecc.clone() };
            let fit = Fit::of(&format, &pages);
            Some((format, fit))
        })
        .collect();
    let exact = tried.iter().find(|(_, fit)| fit.is_exact());
    let fitting = exact.or_else(|| tried.iter().find(|(format, fit)| fit.is_near(format, &pages)));
    match fitting {
        Some((format, _)) => Some(format.clone()),
        None => {
            let oob = layout(page_size, oob_size, &Ecc::None)?;
            Some(PageFormat { page_size, oob, ecc: Ecc::None })
        }
    }
}

/// How many steps of some pages have exactly the code they should have, among those that can
/// decide: erased or constant data has the same code as without error correction.
#[derive(Clone, Copy, Debug, Default)]
struct Fit {
    used: usize,
    exact: usize,
}

impl Fit {
    /// Minimum number of steps without a flipped bit that confirm a code for which random bytes can
    /// look like data with few errors. A match by accident is unlikely.
    const EXACT_MIN: usize = 4;
    /// Minimum number of steps with correctable errors that confirm a code.
    const NEAR_MIN: usize = 4;
    /// Steps to examine for errors.
    const NEAR_TRIED: usize = 32;

    fn of(format: &PageFormat, pages: &[&[u8]]) -> Self {
        let mut fit = Self::default();
        let mut computed = vec![0; format.ecc.code_len()];
        for page in pages {
            each_step(format, page, &mut |data, code| {
                format.ecc.compute(data, &mut computed);
                fit.used += 1;
                fit.exact += usize::from(computed == code);
            });
        }
        fit
    }

    /// Whether most steps have their code; by accident hardly any does.
    fn is_exact(&self) -> bool {
        self.exact * 2 > self.used
    }

    /// Whether most steps have their code once errors are corrected. An old chip may have a flipped
    /// bit in every step.
    fn is_near(&self, format: &PageFormat, pages: &[&[u8]]) -> bool {
        // One of two words of a code for one bit, one of eight for two, is a good one with errors;
        // of those for four bits and of Hamming codes less than one in 300.
        let is_loose = matches!(&format.ecc, Ecc::Bch(code) if code.strength() < 4);
        if is_loose && self.exact < Self::EXACT_MIN {
            return false;
        }
        let (mut used, mut near) = (0, 0);
        for page in pages {
            each_step(format, page, &mut |data, code| {
                if used < Self::NEAR_TRIED {
                    used += 1;
                    // Against a code of ones or zeros only, Hamming's sees one flipped bit in every
                    // other step.
                    let has_code = code.iter().any(|&byte| byte != code[0]);
                    let correct = || format.ecc.correct(&mut data.to_vec(), code).is_some();
                    near += usize::from(has_code && correct());
                }
            });
            // Nothing after so many: not worth the time.
            if used >= Self::NEAR_TRIED || used >= Self::NEAR_MIN && near == 0 {
                break;
            }
        }
        near >= Self::NEAR_MIN && near * 4 > used * 3
    }
}

/// Passes the steps of a page from which something can be learnt to `take`, with their codes.
fn each_step(format: &PageFormat, page: &[u8], take: &mut dyn FnMut(&[u8], &[u8])) {
    let (data, oob) = page.split_at(format.page_size as usize);
    let (step, code_len) = (format.ecc.step(), format.ecc.code_len());
    let mut codes = vec![0; data.len() / step * code_len];
    OobLayout::gather(&format.oob.ecc, oob, &mut codes);
    for (data, code) in data.chunks_exact(step).zip(codes.chunks_exact(code_len)) {
        if !is_blank(data) {
            take(data, code);
        }
    }
}

/// All schemes to try. Their tables are expensive, so they are made only once.
fn schemes() -> &'static [Ecc] {
    static SCHEMES: OnceBox<Vec<Ecc>> = OnceBox::new();
    SCHEMES.get_or_init(|| Box::new(make_schemes()))
}

fn make_schemes() -> Vec<Ecc> {
    let hamming = [(256, false), (256, true), (512, false), (512, true)]
        .map(|(step, smart_media)| Ecc::Hamming { step, smart_media });
    let bch =
        [(13, 4, 512), (13, 8, 512), (14, 8, 1024), (14, 4, 1024), (13, 1, 512), (13, 2, 512)]
            .into_iter()
            .filter_map(|(m, t, step)| Bch::new(m, t, step).map(Ecc::Bch));
    hamming.into_iter().chain(bch).collect()
}

/// Whether all bytes are the same, apart from bit errors in erased ones.
fn is_blank(bytes: &[u8]) -> bool {
    let zero_bits: u32 = bytes.iter().map(|byte| byte.count_zeros()).sum();
    zero_bits < BLANK_BITS || bytes.iter().all(|byte| *byte == bytes[0])
}
