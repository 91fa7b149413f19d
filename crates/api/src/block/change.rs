/// Changes to a block device as a whole. The layer that notices a change reports it to the layers
/// above, which orphan, spoil or resize what is attached to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Change {
    /// The device is present: the layers above may taste it.
    Arrived,
    /// It is gone for good. Requests to it end with [`BlockError::Gone`](super::BlockError::Gone).
    Gone,
    /// Its size has changed; its content has not.
    Resized {
        /// New size, bytes.
        bytes: u64,
    },
    /// Its content may have changed: another medium, or another device in the same place.
    Medium,
    /// It was reset: the content of its volatile cache is lost, the rest is unchanged.
    Reset,
    /// An attribute has changed.
    Attribute(&'static str),
}
