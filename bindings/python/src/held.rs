//! An open image, as it and its volumes share it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flysch_image::Image;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// The image until it is closed. Whoever works with it at that time finishes.
pub(crate) struct Held(Mutex<Option<Arc<Image>>>);

impl Held {
    pub(crate) fn new(image: Image) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Some(Arc::new(image)))))
    }

    fn state(&self) -> MutexGuard<'_, Option<Arc<Image>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The open image; ValueError if it is closed.
    pub(crate) fn get(&self) -> PyResult<Arc<Image>> {
        self.state().clone().ok_or_else(|| PyValueError::new_err("the image is closed"))
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.state().is_none()
    }

    pub(crate) fn close(&self) {
        let image = self.state().take();
        // Not while others wait for the state.
        drop(image);
    }
}
