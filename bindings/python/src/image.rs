//! Images.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use flysch_api::finding::{self, Severity};
use flysch_image::{EccScheme, Image as Opened, ImageOpenOptions, KeyFile, Part, read_keys};
use flysch_mtd::detect::Content;
use flysch_ubifs::repair::{self, Level};
use pyo3::exceptions::{PyKeyError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::error::{OpenError, RepairError};
use crate::volume::Volume;

/// A flash image: UBI with its volumes, a bare UBIFS, JFFS2, a dump with out-of-band bytes, or
/// several of these one after the other.
#[pyclass(frozen, module = "flysch")]
pub(crate) struct Image {
    opened: Arc<Opened>,
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
        if let Ok(path) = source.extract::<PathBuf>() {
            return Ok(Self::Path(path));
        }
        if source.hasattr("read")? {
            let bytes = source.call_method0("read")?;
            // No cause: the type it has instead does not help.
            let bytes = bytes.cast::<PyBytes>().map_err(|_| {
                PyTypeError::new_err("its read() gives no bytes; open the file in binary mode")
            })?;
            return Ok(Self::Bytes(bytes.as_bytes().to_vec()));
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

/// What the caller knows better than detection; `flysch.open` has the names and defaults.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct OpenOptions {
    erase_size: Option<u32>,
    page_size: Option<u32>,
    oob_size: Option<u32>,
    ecc: Option<String>,
    no_oob: bool,
    offset: u64,
    auth_key: Option<PathBuf>,
    master_keys: Vec<String>,
}

impl OpenOptions {
    fn read(self) -> PyResult<ImageOpenOptions> {
        let scheme = |name: String| {
            let scheme = name.parse::<EccScheme>();
            scheme.map_err(|error| PyValueError::new_err(format!("ecc: {error}")))
        };
        let masters = self.master_keys.iter();
        let masters = masters.map(|name| name.parse().expect("any text names a file"));
        let masters: Vec<KeyFile> = masters.collect();
        let keys = read_keys(self.auth_key.as_deref().map(|path| (path, None)), &masters, None);
        Ok(ImageOpenOptions {
            erase_size: self.erase_size,
            page_size: self.page_size,
            oob_size: self.oob_size,
            ecc: self.ecc.map(scheme).transpose()?,
            no_oob: self.no_oob,
            offset: self.offset,
            keys: keys.map_err(|error| OpenError::new_err(error.to_string()))?,
        })
    }
}

/// Opens an image.
#[pyfunction]
pub(crate) fn open(
    py: Python<'_>,
    source: &Bound<'_, PyAny>,
    options: OpenOptions,
) -> PyResult<Image> {
    let source = Source::of(source)?;
    let options = options.read()?;
    let opened = py.detach(|| match source {
        Source::Path(path) => {
            Opened::open(&path, &options).map_err(|error| (path.display().to_string(), error))
        }
        Source::Bytes(bytes) => {
            let name = "<bytes>";
            Opened::in_storage(name.as_ref(), Arc::new(bytes), &options)
                .map_err(|error| (name.to_owned(), error))
        }
    });
    let failed = |(name, error)| OpenError::new_err(format!("{name}: {error}"));
    Ok(Image { opened: Arc::new(opened.map_err(failed)?) })
}

impl Image {
    fn all(&self) -> Vec<Volume> {
        let count = self.opened.volumes().count();
        (0..count).map(|number| Volume::new(self.opened.clone(), number)).collect()
    }

    fn named(&self, name: &str) -> PyResult<Volume> {
        let is_it = |volume: &Volume| volume.get().name == name;
        self.all().into_iter().find(is_it).ok_or_else(|| {
            let names: Vec<&str> = self.opened.volumes().map(|v| v.name.as_str()).collect();
            PyKeyError::new_err(format!("no volume `{name}`; there are {}", names.join(", ")))
        })
    }
}

#[pymethods]
impl Image {
    /// Bytes of the image.
    #[getter]
    fn size(&self) -> u64 {
        self.opened.size
    }

    /// All volumes, in the order of the image.
    #[getter]
    fn volumes(&self) -> Vec<Volume> {
        self.all()
    }

    /// Bytes of a page and of its out-of-band bytes; None if the image has none.
    #[getter]
    fn pages(&self) -> Option<(u32, usize)> {
        let format = self.opened.page_format.as_ref()?;
        Some((format.page_size, format.oob.size))
    }

    /// Regions of the image: "ubi", "ubifs" or "jffs2", the first byte, and the byte after the
    /// last, counted without out-of-band bytes.
    #[getter]
    fn parts(&self) -> Vec<(&'static str, u64, u64)> {
        let part = |part: &Part| {
            let content = match part.region.content {
                Content::Ubi { .. } => "ubi",
                Content::Ubifs { .. } => "ubifs",
                Content::Jffs2(_) => "jffs2",
            };
            (content, part.region.range.start, part.region.range.end)
        };
        self.opened.parts.iter().map(part).collect()
    }

    /// What could not be opened, and why.
    #[getter]
    fn failures(&self) -> Vec<String> {
        let parts = self.opened.parts.iter().filter_map(|part| part.failure.clone());
        let volumes = self.opened.volumes().filter_map(|volume| {
            volume.failure().map(|why| format!("volume {}: {why}", volume.name))
        });
        parts.chain(volumes).collect()
    }

    /// Checks every checksum and rule; returns all findings, notes included.
    fn check(&self, py: Python<'_>) -> Vec<Finding> {
        py.detach(|| {
            let mut findings = Vec::new();
            flysch_image::check(&self.opened, &mut |checked| {
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
        let volume = self.named(volume)?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        let report = py.detach(|| match dry_run {
            true => self.opened.survey_whole(volume.get()),
            false => self.opened.repair_whole(volume.get(), known, now),
        });
        let report = report.map_err(|error| RepairError::new_err(error.to_string()))?;
        let name = volume.get().name.clone();
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

    fn __len__(&self) -> usize {
        self.opened.volumes().count()
    }

    fn __repr__(&self) -> String {
        let names: Vec<&str> = self.opened.volumes().map(|volume| volume.name.as_str()).collect();
        format!("<flysch.Image {:?}: {}>", self.opened.path.display(), names.join(", "))
    }
}
