//! New images.

use std::io::Write as _;
use std::path::Path;

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
use pyo3::types::PyDict;

use crate::border::{HostPath, Options, Whole, detached};
use crate::error::{of_make, of_refused};

fn tree(source: &Path, squash_owners: bool) -> Result<Tree, CreateError> {
    let options = TreeOptions { squash_owners, ..TreeOptions::default() };
    Tree::from_directory(source, &options)
}

/// How far a JFFS2 is filled: to the end of its last block or not at all, or to a size.
fn padding(choice: Options<'_, '_>) -> PyResult<Padding> {
    // True is also a number.
    match choice.get::<bool>("pad") {
        Ok(true) => Ok(Padding::Block),
        Ok(false) => Ok(Padding::None),
        Err(_) => match choice.get::<Option<Whole>>("pad")? {
            None => Ok(Padding::None),
            Some(size) => Ok(Padding::To(size.within("pad", 1..=u64::MAX)?)),
        },
    }
}

/// Makes a UBIFS.
#[pyfunction]
pub(crate) fn create_ubifs(
    py: Python<'_>,
    source: HostPath,
    output: HostPath,
    options: &Bound<'_, PyDict>,
) -> PyResult<()> {
    let (options, source, output) = (Options(options), source.0, output.0);
    let min_io_size = options.number("min_io_size", 1..=u32::MAX)?;
    let leb_size = options.number("leb_size", 1..=u32::MAX)?;
    let max_lebs = options.number("max_lebs", 0..=u32::MAX)?;
    let compression: String = options.get("compression")?;
    let squash_owners: bool = options.get("squash_owners")?;
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
    detached(py, || {
        let tree = tree(&source, squash_owners).map_err(|error| of_make(&error, &output))?;
        let sink = Sink::open(&output).map_err(|error| of_refused(&error, &output))?;
        write_ubifs(&tree, &options, sink.file(), &Making::default())
            .map_err(|error| of_make(&error, &output))?;
        sink.finish().map_err(|error| of_refused(&error, &output))
    })?
}

/// Makes a JFFS2.
#[pyfunction]
pub(crate) fn create_jffs2(
    py: Python<'_>,
    source: HostPath,
    output: HostPath,
    options: &Bound<'_, PyDict>,
) -> PyResult<()> {
    let (choice, source, output) = (Options(options), source.0, output.0);
    let squash_owners: bool = choice.get("squash_owners")?;
    let mut options = Jffs2Options {
        erase_size: choice.number("erase_size", 1..=u32::MAX)?,
        summary: choice.get("summary")?,
        squash_owners,
        ..Jffs2Options::default()
    };
    if choice.get("big_endian")? {
        options.order = ByteOrder::Big;
    }
    if !choice.get::<bool>("cleanmarkers")? {
        options.cleanmarker_len = 0;
    }
    options.padding = padding(choice)?;
    detached(py, || {
        let tree = tree(&source, squash_owners).map_err(|error| of_make(&error, &output))?;
        let sink = Sink::open(&output).map_err(|error| of_refused(&error, &output))?;
        let mut out = std::io::BufWriter::new(sink.file());
        let xattrs = XattrChoice { all: true, selinux: false, posix_acl: false };
        write_jffs2(&tree, (options, xattrs), &mut out, &Making::default())
            .map_err(|error| of_make(&error, &output))?;
        out.flush().map_err(|error| of_refused(&error, &output))?;
        drop(out);
        sink.finish().map_err(|error| of_refused(&error, &output))
    })?
}
