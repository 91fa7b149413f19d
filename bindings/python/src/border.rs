//! The border to Python: arguments are checked by name, and no panic crosses it.

use std::ffi::OsString;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::error::InternalError;

/// Executes `work` without holding the interpreter. If it panics, that is an exception like others.
pub(crate) fn detached<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> PyResult<T> {
    let done = py.detach(|| catch_unwind(AssertUnwindSafe(work)));
    done.map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("no more is known");
        InternalError::new_err(text.to_owned())
    })
}

/// A whole number from Python, of any size: its range is checked where its name is known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Whole(Option<i128>);

impl<'py> FromPyObject<'_, 'py> for Whole {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        match object.extract::<i128>() {
            Ok(value) => Ok(Self(Some(value))),
            Err(error) if error.is_instance_of::<PyOverflowError>(object.py()) => Ok(Self(None)),
            Err(error) => Err(error),
        }
    }
}

impl Whole {
    pub(crate) const ZERO: Self = Self(Some(0));

    /// The number, which messages call `what`, if it is in the range.
    pub(crate) fn within<T>(self, what: &str, range: RangeInclusive<T>) -> PyResult<T>
    where
        T: Copy + Display + PartialOrd + TryFrom<i128>,
    {
        let found = self.0.and_then(|value| T::try_from(value).ok());
        found.filter(|value| range.contains(value)).ok_or_else(|| {
            let given = self.0.map_or("so large a number".to_owned(), |value| value.to_string());
            let (first, last) = (range.start(), range.end());
            PyValueError::new_err(format!("{what} cannot be {given}, only {first} to {last}"))
        })
    }
}

/// A path of this machine: a str, bytes, or an object with `__fspath__`.
#[derive(Clone, Debug)]
pub(crate) struct HostPath(pub(crate) PathBuf);

impl<'py> FromPyObject<'_, 'py> for HostPath {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let decoded = object.py().import("os")?.call_method1("fsdecode", (object,))?;
        let path = decoded.extract::<OsString>()?;
        without_zero(&path)?;
        Ok(Self(path.into()))
    }
}

/// Refuses what no path can contain, as Python itself does.
pub(crate) fn without_zero(path: &std::ffi::OsStr) -> PyResult<()> {
    match path.as_bytes().contains(&0) {
        true => Err(PyValueError::new_err("embedded null byte")),
        false => Ok(()),
    }
}

/// The options of a function of the package, which has their names and defaults.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options<'a, 'py>(pub(crate) &'a Bound<'py, PyDict>);

impl<'py> Options<'_, 'py> {
    /// The option of this name; an error of its type names it.
    pub(crate) fn get<T>(&self, name: &str) -> PyResult<T>
    where
        T: for<'a> FromPyObject<'a, 'py, Error = PyErr>,
    {
        let missing = || PyTypeError::new_err(format!("{name} is missing"));
        let value = self.0.get_item(name)?.ok_or_else(missing)?;
        value.extract::<T>().map_err(|error| self.named(name, error))
    }

    /// A number in the range.
    pub(crate) fn number<T>(&self, name: &str, range: RangeInclusive<T>) -> PyResult<T>
    where
        T: Copy + Display + PartialOrd + TryFrom<i128>,
    {
        self.get::<Whole>(name)?.within(name, range)
    }

    /// A size from 1 on, or `None`.
    pub(crate) fn size(&self, name: &str) -> PyResult<Option<u32>> {
        let size = self.get::<Option<Whole>>(name)?;
        size.map(|size| size.within(name, 1..=u32::MAX)).transpose()
    }

    fn named(&self, name: &str, error: PyErr) -> PyErr {
        match error.is_instance_of::<PyTypeError>(self.0.py()) {
            // No cause: this is the same error with the name.
            true => PyTypeError::new_err(format!("{name}: {}", error.value(self.0.py()))),
            false => error,
        }
    }
}
