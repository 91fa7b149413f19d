//! UFS: host controller interface (JESD223), device (JESD220), link (UniPro).
//!
//! | Module | What |
//! |---|---|
//! | [`registers`] | UFSHCI registers and their bits |
//! | [`uic`] | UIC commands, their results, UniPro and M-PHY attributes |

pub mod registers;
pub mod uic;
