/// What happened to a block device as a whole: the layer that noticed says it to those above, which
/// orphan, spoil or resize what stands on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Change {
    /// It is there: whoever takes devices up may look at it.
    Arrived,
    /// It is gone for good. Requests to it end with [`Error::Gone`](super::Error::Gone).
    Gone,
    /// Its size is another; what it holds is the same.
    Resized {
        /// Bytes it has now.
        bytes: u64,
    },
    /// What it holds may be something else: another medium, another device in the same place.
    Medium,
    /// It was reset: what its volatile cache held is lost, what it holds is the same.
    Reset,
    /// An attribute has another value.
    Attribute(&'static str),
}
