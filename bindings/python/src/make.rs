//! New images.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use flysch_files::Sink;
use flysch_image::create::{
    CreateError, Making, Tree, TreeOptions, UbifsOptions, XattrChoice, create_jffs2 as write_jffs2,
    create_ubifs as write_ubifs,
};
use flysch_jffs2::ByteOrder;
use flysch_jffs2::create::{Options, Padding};
use flysch_ubifs::create::{CreateOptions, LZO_THOROUGH, Packing};
use flysch_wire::ubifs::Compression;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::error::MakeError;

fn failed(output: &Path, error: impl std::fmt::Display) -> PyErr {
    MakeError::new_err(format!("{}: {error}", output.display()))
}

fn tree(source: &Path, squash_owners: bool) -> Result<Tree, CreateError> {
    let options = TreeOptions { squash_owners, ..TreeOptions::default() };
    Tree::from_directory(source, &options)
}

/// Makes a UBIFS of the files in `source`: the content of one UBI volume, as mkfs.ubifs makes it.
///
/// `min_io_size` and `leb_size` are mkfs.ubifs's -m and -e, `max_lebs` its -c (0: room for twice
/// what it holds). `output` is replaced in one step or stays as it was.
#[pyfunction]
#[pyo3(signature = (source, output, *, min_io_size, leb_size, max_lebs=0, compression="lzo",
    squash_owners=false))]
#[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
pub(crate) fn create_ubifs(
    py: Python<'_>,
    source: PathBuf,
    output: PathBuf,
    min_io_size: u32,
    leb_size: u32,
    max_lebs: u32,
    compression: &str,
    squash_owners: bool,
) -> PyResult<()> {
    let (compression, packing) = match compression {
        "none" => (Compression::None, Packing::new(Compression::None)),
        "lzo" => (Compression::Lzo, Packing::One(Compression::Lzo, LZO_THOROUGH)),
        "zlib" => (Compression::Zlib, Packing::new(Compression::Zlib)),
        "zstd" => (Compression::Zstd, Packing::new(Compression::Zstd)),
        other => {
            let why = format!("no compression `{other}`; there are none, lzo, zlib, zstd");
            return Err(PyValueError::new_err(why));
        }
    };
    let format =
        CreateOptions { compression, ..CreateOptions::new(min_io_size, leb_size, max_lebs) };
    let options =
        UbifsOptions { format, packing, threads: 0, keys: None, signer: None, policy: None };
    py.detach(|| {
        let tree = tree(&source, squash_owners).map_err(|error| failed(&source, error))?;
        let sink = Sink::open(&output).map_err(|error| failed(&output, error))?;
        write_ubifs(&tree, &options, sink.file(), &Making::default())
            .map_err(|error| failed(&output, error))?;
        sink.finish().map_err(|error| failed(&output, error))
    })
}

/// Makes a JFFS2 of the files in `source`, as mkfs.jffs2 makes it.
///
/// `erase_size` is mkfs.jffs2's -e; `cleanmarkers=False` its -n, for NAND; `pad` fills the image
/// with 0xFF up to so many bytes, True up to the end of the last erase block.
#[pyfunction]
#[pyo3(signature = (source, output, *, erase_size=65536, big_endian=false, cleanmarkers=true,
    summary=false, pad=None, squash_owners=false))]
#[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
pub(crate) fn create_jffs2(
    py: Python<'_>,
    source: PathBuf,
    output: PathBuf,
    erase_size: u32,
    big_endian: bool,
    cleanmarkers: bool,
    summary: bool,
    pad: Option<u64>,
    squash_owners: bool,
) -> PyResult<()> {
    let mut options = Options { erase_size, summary, squash_owners, ..Options::default() };
    if big_endian {
        options.order = ByteOrder::Big;
    }
    if !cleanmarkers {
        options.cleanmarker_len = 0;
    }
    options.padding = match pad {
        None => Padding::None,
        Some(size) => Padding::To(size),
    };
    py.detach(|| {
        let tree = tree(&source, squash_owners).map_err(|error| failed(&source, error))?;
        let sink = Sink::open(&output).map_err(|error| failed(&output, error))?;
        let mut out = std::io::BufWriter::new(sink.file());
        let xattrs = XattrChoice { all: true, selinux: false, posix_acl: false };
        write_jffs2(&tree, (options, xattrs), &mut out, &Making::default())
            .map_err(|error| failed(&output, error))?;
        out.flush().map_err(|error| failed(&output, error))?;
        drop(out);
        sink.finish().map_err(|error| failed(&output, error))
    })
}
