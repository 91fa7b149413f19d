//! A flash whose bytes lie one behind the other, without out-of-band bytes: most image files.

use flysch_api::flash::{Corrected, Error, Flash, Geometry};

use crate::Storage;

/// Flash over a storage that holds nothing but its main bytes.
#[derive(Clone, Debug)]
pub struct Image<S> {
    storage: S,
    geometry: Geometry,
}

impl<S: Storage> Image<S> {
    /// A flash of the shape `geometry`, whose size becomes that of `storage`.
    pub fn new(storage: S, geometry: Geometry) -> Self {
        let geometry = Geometry { size: storage.size(), ..geometry };
        Self { storage, geometry }
    }
}

impl<S: Storage> Flash for Image<S> {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<Corrected, Error> {
        self.storage.read_at(offset, buffer).map(|()| Corrected::NONE)
    }

    fn point(&self, offset: u64, len: usize) -> Option<&[u8]> {
        self.storage.slice(offset, len)
    }
}
