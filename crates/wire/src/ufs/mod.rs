//! UFS: host controller interface (JESD223), device (JESD220), link (UniPro).
//!
//! | Module | Contents |
//! |---|---|
//! | [`registers`] | UFSHCI registers and their bits |
//! | [`uic`] | UIC commands, their results, UniPro and M-PHY attributes |
//! | [`utrd`], [`prdt`], [`cqe`] | transfer requests: descriptor, data, completion |
//! | [`utmrd`] | task management requests |
//! | [`upiu`] | information units between host and device |
//! | [`query`] | queries: codes, attributes, flags |
//! | [`descriptor`] | descriptors |
//! | [`rpmb`] | messages of the replay protected memory block |

pub mod cqe;
pub mod descriptor;
pub mod prdt;
pub mod query;
pub mod registers;
pub mod rpmb;
pub mod uic;
pub mod upiu;
pub mod utmrd;
pub mod utrd;
