//! New images.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use flysch_files::Sink;
use flysch_image::create::{
    CreateError, Making, Tree, TreeOptions, UbifsOptions, XattrChoice, create_jffs2 as write_jffs2,
    create_ubifs as write_ubifs,
};
use flysch_jffs2::ByteOrder;
use flysch_jffs2::create::{Jffs2Options, Padding};
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

/// Options of mkfs.ubifs; `flysch.create_ubifs` has the names and defaults.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct UbifsChoice {
    min_io_size: u32,
    leb_size: u32,
    max_lebs: u32,
    compression: String,
    squash_owners: bool,
}

/// Options of mkfs.jffs2; `flysch.create_jffs2` has the names and defaults.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Jffs2Choice {
    erase_size: u32,
    big_endian: bool,
    cleanmarkers: bool,
    summary: bool,
    pad: Option<u64>,
    squash_owners: bool,
}

/// Makes a UBIFS.
#[pyfunction]
pub(crate) fn create_ubifs(
    py: Python<'_>,
    source: PathBuf,
    output: PathBuf,
    choice: UbifsChoice,
) -> PyResult<()> {
    let UbifsChoice { min_io_size, leb_size, max_lebs, compression, squash_owners } = choice;
    let (compression, packing) = match compression.as_str() {
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

/// Makes a JFFS2.
#[pyfunction]
pub(crate) fn create_jffs2(
    py: Python<'_>,
    source: PathBuf,
    output: PathBuf,
    choice: Jffs2Choice,
) -> PyResult<()> {
    let Jffs2Choice { erase_size, summary, squash_owners, .. } = choice;
    let mut options =
        Jffs2Options { erase_size, summary, squash_owners, ..Jffs2Options::default() };
    if choice.big_endian {
        options.order = ByteOrder::Big;
    }
    if !choice.cleanmarkers {
        options.cleanmarker_len = 0;
    }
    options.padding = match choice.pad {
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
