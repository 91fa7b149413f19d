//! Images.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use flysch_api::finding::{self, Severity};
use flysch_image::{
    EccScheme, Image as Opened, ImageOpenOptions, KeyFile, Part, in_fields, names, read_keys,
};
use flysch_mtd::detect::Content;
use flysch_ubifs::repair::{self, Level};
use pyo3::exceptions::{PyAttributeError, PyKeyError, PyOSError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyIterator, PyList, PyString};

use crate::border::{HostPath, Options, detached};
use crate::error::{OpenError, RepairError, of_open};
use crate::held::Held;
use crate::volume::Volume;

/// A flash image: UBI with its volumes, a bare UBIFS, JFFS2, a dump with out-of-band bytes, or
/// several of these one after the other.
#[pyclass(frozen, module = "flysch")]
pub(crate) struct Image {
    held: Arc<Held>,
    path: PathBuf,
}

/// One finding of a check.
#[pyclass(frozen, get_all, module = "flysch")]
pub(crate) struct Finding {
    /// "note": nothing is wrong; "inconsistent": nothing is lost; "lost".
    severity: &'static str,
    /// The structure, by the format's own name.
    structure: &'static str,
    /// What is wrong with it.
    problem: String,
    /// The volume; None for structures below volumes.
    volume: Option<String>,
    /// The physical and the logical erase block, and the offset in it.
    peb: Option<u32>,
    leb: Option<u32>,
    offset: Option<u32>,
    /// The inode it belongs to, and a path to it.
    inode: Option<u64>,
    path: Option<OsString>,
    text: String,
}

/// One change of a repair.
#[pyclass(frozen, get_all, module = "flysch")]
pub(crate) struct Change {
    /// The repair level required: "safe", "danger-default", "danger-rebuild".
    level: &'static str,
    /// The problem.
    finding: Py<Finding>,
    /// The action.
    action: String,
}

impl Finding {
    fn new(volume: Option<&str>, finding: &finding::Finding) -> Self {
        let severity = match finding.severity {
            Severity::Note => "note",
            Severity::Inconsistent => "inconsistent",
            Severity::Lost => "lost",
        };
        let path = finding.path.as_ref().map(|path| {
            let mut absolute = vec![b'/'];
            absolute.extend_from_slice(path);
            OsString::from_vec(absolute)
        });
        Self {
            severity,
            structure: finding.structure,
            problem: finding.problem.clone(),
            volume: volume.map(str::to_owned),
            peb: finding.place.peb,
            leb: finding.place.leb,
            offset: finding.place.offset,
            inode: finding.inode.map(|inode| inode.0),
            path,
            text: finding.to_string(),
        }
    }
}

#[pymethods]
impl Finding {
    fn __str__(&self) -> &str {
        &self.text
    }

    fn __repr__(&self) -> String {
        format!("<flysch.Finding {}: {}>", self.severity, self.text)
    }
}

#[pymethods]
impl Change {
    fn __repr__(&self) -> String {
        format!("<flysch.Change {}: {}>", self.level, self.action)
    }
}

/// A source to open: a path, bytes, or an object with a `read` that returns bytes.
enum Source {
    Path(PathBuf),
    Bytes(Vec<u8>),
}

impl Source {
    fn of(source: &Bound<'_, PyAny>) -> PyResult<Self> {
        if let Ok(bytes) = source.cast::<PyBytes>() {
            return Ok(Self::Bytes(bytes.as_bytes().to_vec()));
        }
        if source.is_instance_of::<PyString>() || source.hasattr("__fspath__")? {
            return Ok(Self::Path(source.extract::<HostPath>()?.0));
        }
        if source.hasattr("read")? {
            return Ok(Self::Bytes(content(source)?));
        }
        if let Ok(bytes) = source.call_method0("tobytes").and_then(|b| b.extract::<Vec<u8>>()) {
            return Ok(Self::Bytes(bytes));
        }
        if let Ok(bytes) = source.extract::<Vec<u8>>() {
            return Ok(Self::Bytes(bytes));
        }
        Err(PyTypeError::new_err("a path, bytes or a file opened in binary mode is wanted"))
    }
}

/// Everything in a file, wherever it was read last; in a pipe, what is left.
fn content(file: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    let py = file.py();
    if let Err(error) = file.call_method1("seek", (0,)) {
        let cannot = error.is_instance_of::<PyOSError>(py);
        if !cannot && !error.is_instance_of::<PyAttributeError>(py) {
            return Err(error);
        }
    }
    let bytes = file.call_method0("read")?;
    // No cause: the type it has instead does not help.
    let bytes = bytes.cast::<PyBytes>().map_err(|_| {
        PyTypeError::new_err("its read() gives no bytes; open the file in binary mode")
    })?;
    Ok(bytes.as_bytes().to_vec())
}

/// What the caller knows better than detection; `flysch.open` has the names and defaults.
fn understood(given: Options<'_, '_>) -> PyResult<ImageOpenOptions> {
    let scheme = |name: String| {
        let scheme = name.parse::<EccScheme>();
        scheme.map_err(|error| PyValueError::new_err(format!("ecc: {error}")))
    };
    let masters: Vec<String> = given.get("master_keys")?;
    let masters = masters.iter().map(|name| name.parse().expect("any text names a file"));
    let masters: Vec<KeyFile> = masters.collect();
    let auth: Option<HostPath> = given.get("auth_key")?;
    let auth = auth.as_ref().map(|HostPath(path)| (&**path, None));
    Ok(ImageOpenOptions {
        erase_size: given.size("erase_size")?,
        page_size: given.size("page_size")?,
        oob_size: given.size("oob_size")?,
        ecc: given.get::<Option<String>>("ecc")?.map(scheme).transpose()?,
        no_oob: given.get("no_oob")?,
        offset: given.number("offset", 0..=u64::MAX)?,
        keys: read_keys(auth, &masters, None)
            .map_err(|error| OpenError::new_err(error.to_string()))?,
    })
}

/// Opens an image.
#[pyfunction]
pub(crate) fn open(
    py: Python<'_>,
    source: &Bound<'_, PyAny>,
    options: &Bound<'_, PyDict>,
) -> PyResult<Image> {
    let source = Source::of(source)?;
    let options = understood(Options(options))?;
    let name = match &source {
        Source::Path(path) => path.clone(),
        Source::Bytes(_) => "<bytes>".into(),
    };
    let opened = detached(py, || match source {
        Source::Path(path) => Opened::open(&path, &options),
        Source::Bytes(bytes) => Opened::in_storage(&name, Arc::new(bytes), &options),
    })?;
    let opened = opened.map_err(|error| of_open(&error, &name))?;
    Ok(Image { held: Held::new(opened), path: name })
}

impl Image {
    fn all(&self) -> PyResult<Vec<Volume>> {
        let count = self.held.get()?.volumes().count();
        Ok((0..count).map(|number| Volume::new(self.held.clone(), number)).collect())
    }

    fn names(&self) -> PyResult<Vec<String>> {
        Ok(names(&*self.held.get()?))
    }

    /// The number of the volume with this unique name, else of the first one with this name.
    fn position(&self, name: &str) -> PyResult<Option<usize>> {
        let image = self.held.get()?;
        let unique = names(&image).iter().position(|unique| unique == name);
        Ok(unique.or_else(|| image.volumes().position(|volume| volume.name == name)))
    }

    fn named(&self, name: &str) -> PyResult<Volume> {
        let number = self.position(name)?;
        let names = self.names()?.join(", ");
        let missing = || PyKeyError::new_err(format!("no volume `{name}`; there are {names}"));
        Ok(Volume::new(self.held.clone(), number.ok_or_else(missing)?))
    }
}

#[pymethods]
impl Image {
    /// Bytes of the image.
    #[getter]
    fn size(&self) -> PyResult<u64> {
        Ok(self.held.get()?.size)
    }

    /// All volumes, in the order of the image, also those with the same name.
    #[getter]
    fn volumes(&self) -> PyResult<Vec<Volume>> {
        self.all()
    }

    /// Whether it is closed.
    #[getter]
    fn closed(&self) -> bool {
        self.held.is_closed()
    }

    /// Closes the image and lets others change its file. After that, its methods and those of its
    /// volumes raise ValueError.
    fn close(&self) {
        self.held.close();
    }

    fn __enter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        slf.get().held.get()?;
        Ok(slf)
    }

    fn __exit__(
        &self,
        _kind: &Bound<'_, PyAny>,
        _value: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) {
        self.close();
    }

    /// Bytes of a page and of its out-of-band bytes; None if the image has none.
    #[getter]
    fn pages(&self) -> PyResult<Option<(u32, usize)>> {
        let image = self.held.get()?;
        let format = image.page_format.as_ref();
        Ok(format.map(|format| (format.page_size, format.oob.size)))
    }

    /// Regions of the image: "ubi", "ubifs" or "jffs2", the first byte, and the byte after the
    /// last, counted without out-of-band bytes.
    #[getter]
    fn parts(&self) -> PyResult<Vec<(&'static str, u64, u64)>> {
        let part = |part: &Part| {
            let content = match part.region.content {
                Content::Ubi { .. } => "ubi",
                Content::Ubifs { .. } => "ubifs",
                Content::Jffs2(_) => "jffs2",
            };
            (content, part.region.range.start, part.region.range.end)
        };
        Ok(self.held.get()?.parts.iter().map(part).collect())
    }

    /// What could not be opened, and why.
    #[getter]
    fn failures(&self) -> PyResult<Vec<String>> {
        let image = self.held.get()?;
        let parts = image.parts.iter().filter_map(|part| part.failure.as_deref().map(in_fields));
        let volumes = image.volumes().zip(names(&image)).filter_map(|(volume, name)| {
            volume.failure().map(|why| format!("volume {name}: {}", in_fields(why)))
        });
        Ok(parts.chain(volumes).collect())
    }

    /// Checks every checksum and rule; returns all findings, notes included.
    fn check(&self, py: Python<'_>) -> PyResult<Vec<Finding>> {
        let image = self.held.get()?;
        detached(py, || {
            let mut findings = Vec::new();
            flysch_image::check(&image, &mut |checked| {
                findings.push(Finding::new(checked.volume, &checked.finding));
            });
            findings
        })
    }

    /// Repairs the UBIFS of `volume` in place; keep a copy. `level` is how far it may go: "safe",
    /// "danger-default" (what cannot be kept is dropped), "danger-rebuild" (the index is rebuilt,
    /// and deleted files may come back). With `dry_run` nothing is written. Returns what was, or
    /// would be, changed. Open the image again after a repair.
    #[pyo3(signature = (volume, *, level="safe", dry_run=false))]
    fn repair(
        &self,
        py: Python<'_>,
        volume: &str,
        level: &str,
        dry_run: bool,
    ) -> PyResult<Vec<Change>> {
        let levels = [Level::Safe, Level::DangerDefault, Level::DangerRebuild];
        let known = levels.into_iter().find(|known| known.name() == level).ok_or_else(|| {
            let names = levels.map(Level::name).join(", ");
            PyValueError::new_err(format!("no level `{level}`; there are {names}"))
        })?;
        let volume = self.named(volume)?.found()?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        let report = detached(py, || match dry_run {
            true => volume.image().survey_whole(&volume),
            false => volume.image().repair_whole(&volume, known, now),
        });
        let report = report?.map_err(|error| RepairError::new_err(error.to_string()))?;
        let name = volume.name.clone();
        let change = |change: &repair::Change| {
            Ok(Change {
                level: change.level.name(),
                finding: Py::new(py, Finding::new(Some(&name), &change.finding))?,
                action: change.action.clone(),
            })
        };
        report.changes.iter().map(change).collect()
    }

    fn __getitem__(&self, name: &str) -> PyResult<Volume> {
        self.named(name)
    }

    fn __contains__(&self, name: &Bound<'_, PyAny>) -> PyResult<bool> {
        // What is no text is no name.
        let name = name.extract::<String>().ok();
        let position = name.map(|name| self.position(&name)).transpose()?;
        Ok(position.flatten().is_some())
    }

    /// The unique names of the volumes.
    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        PyList::new(py, self.names()?)?.try_iter()
    }

    fn __len__(&self) -> PyResult<usize> {
        Ok(self.held.get()?.volumes().count())
    }

    fn __repr__(&self) -> String {
        let names = self.names().map_or("closed".to_owned(), |names| names.join(", "));
        format!("<flysch.Image {:?}: {names}>", self.path.display())
    }
}
