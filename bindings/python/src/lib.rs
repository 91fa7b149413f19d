//! Flash images for Python: the module `flysch._flysch`, which the package `flysch` wraps.
//!
//! | module | what |
//! |---|---|
//! | `image` | an image: opening, checking, repairing |
//! | `held` | what an image and its volumes share until it is closed |
//! | `volume` | its volumes: names, files, extraction |
//! | `make` | new images |
//! | `error` | exceptions |
//! | `border` | arguments, and panics |
//!
//! Long operations release the interpreter; nothing here keeps a reference to a Python object.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod border;
mod error;
mod held;
mod image;
mod make;
mod volume;

/// The native part of the package.
#[pyo3::pymodule]
mod _flysch {
    /// The package's version.
    #[expect(non_upper_case_globals, reason = "the name that Python looks for")]
    #[pymodule_export]
    const __version__: &str = env!("CARGO_PKG_VERSION");
    #[pymodule_export]
    use crate::error::{
        DamagedError, EncryptedError, Error, InternalError, MakeError, OpenError, RepairError,
        UnsupportedError,
    };
    #[pymodule_export]
    use crate::image::{Change, Finding, Image, open};
    #[pymodule_export]
    use crate::make::{create_jffs2, create_ubifs};
    #[pymodule_export]
    use crate::volume::{DirEntry, Extraction, Stat, Volume};
}
