use std::collections::BTreeSet;

use super::exports::Exports;
use super::{broken, is_role, item, unreleased};

const ROOT: &str = r#"
    //! A crate.
    mod inner;
    pub mod shown { pub fn free(count: u32, name: &str) -> bool { true } fn hidden() {} }
    pub use inner::{Kept as Renamed, Shape, deep::*};
    pub use core::fmt::Error;
    pub(crate) struct NotMine;
    #[derive(Clone, Debug)]
    pub struct Pair<T> { pub first: T, #[allow(unused)] pub second: Vec<(u8, T)> }
    pub struct Opaque(pub u8, u16);
    impl Opaque {
        pub const MAX: u8 = 3;
        pub fn new(value: u8) -> Self { Self(value, 0) }
        fn private(&self) {}
    }
    impl<T: Clone> From<T> for Pair<T> { fn from(first: T) -> Self { todo!() } }
    code! { /// Docs, with a comma.
        pub enum Code: u8 { /// One.
            One = 1 => "one", Two = 2 => "two", } }
    #[cfg(test)] mod tests { pub struct Nothing; }
"#;
const INNER: &str = r"
    pub mod deep { pub const LIMIT: usize = 4; pub static NAME: &str = A; }
    pub struct Kept;
    impl super::Opaque { pub fn more(&self, other: &Self) -> u8 { 1 } }
    #[non_exhaustive] pub enum Shape { #[default] Round(f64), Square { side: u32 }, None = 4 }
    pub struct Unreachable;
";

fn lines(root: &str) -> BTreeSet<String> {
    let read = |file: &str| match file {
        "src/lib.rs" => Some(root.to_owned()),
        "src/inner.rs" => Some(INNER.to_owned()),
        _ => None,
    };
    Exports::read("src/lib.rs", read).unwrap().lines("flysch_x")
}

#[test]
fn what_can_be_reached_is_there_under_the_name_it_has() {
    let found: Vec<String> = lines(ROOT).into_iter().collect();
    let wanted = [
        "const flysch_x::LIMIT: usize",
        "const flysch_x::Opaque::MAX: u8",
        "enum flysch_x::Code",
        "enum flysch_x::Shape",
        "flysch_x::Code::One = 1",
        "flysch_x::Code::Two = 2",
        "flysch_x::Opaque.0: u8",
        "flysch_x::Pair.first: T",
        "flysch_x::Pair.second: Vec<(u8, T)>",
        "flysch_x::Shape::None = 4",
        "flysch_x::Shape::Round(f64)",
        "flysch_x::Shape::Square{side: u32}",
        "fn flysch_x::Opaque::more(&self, &Self) -> u8",
        "fn flysch_x::Opaque::new(u8) -> Self",
        "fn flysch_x::shown::free(u32, &str) -> bool",
        "impl Clone for flysch_x::Pair",
        "impl Debug for flysch_x::Pair",
        "impl<T: Clone> From<T> for flysch_x::Pair<T>",
        "static flysch_x::NAME: &str",
        "struct flysch_x::Opaque",
        "struct flysch_x::Pair<T> with 2 fields, all public",
        "struct flysch_x::Renamed with 0 fields, all public",
        "use flysch_x::Error = core::fmt::Error",
    ];
    assert_eq!(found, wanted);
}

#[test]
fn traits_tell_what_must_be_given() {
    let root = "pub trait Device { const MAX: u32; type Error; fn submit(&mut self, request: \
                &Request) -> Result<(), Self::Error>; fn ring(&mut self) {} }";
    let found: Vec<String> = lines(root).into_iter().collect();
    let wanted = [
        "const flysch_x::Device::MAX: u32",
        "fn flysch_x::Device::submit(&mut self, &Request) -> Result<(), Self::Error>",
        "provided fn flysch_x::Device::ring(&mut self)",
        "trait flysch_x::Device with 3 required",
        "type flysch_x::Device::Error",
    ];
    assert_eq!(found, wanted);
}

/// Changes that break users are found; others are not.
#[test]
fn what_is_gone_or_changed_must_be_told() {
    let record = lines(ROOT).into_iter().collect::<Vec<_>>().join("\n");
    let judge = |from: &str, to: &str, told: &str| {
        assert!(ROOT.contains(from), "{from}");
        broken(&record, &lines(&ROOT.replace(from, to)), told)
    };
    assert_eq!(judge("first: T", "first: T", ""), Vec::<String>::new());
    // Additions, other bodies, other parameter names.
    assert_eq!(judge("fn hidden()", "pub fn another()", ""), Vec::<String>::new());
    assert_eq!(judge("count: u32", "number: u32", ""), Vec::<String>::new());
    for (from, to) in [
        ("pub fn free", "fn free"),
        ("count: u32", "count: u64"),
        ("pub const MAX", "const MAX"),
        ("#[derive(Clone, Debug)]", "#[derive(Debug)]"),
        ("pub first: T,", "pub first: T, pub third: u8,"),
        ("One = 1", "One = 3"),
        ("Kept as Renamed", "Kept"),
        ("deep::*", "Unreachable"),
    ] {
        assert!(!judge(from, to, "").is_empty(), "{from} -> {to}");
    }
    let told = "- `flysch_x::shown::free` is gone: use another.";
    assert_eq!(judge("pub fn free", "fn free", told), Vec::<String>::new());
    assert!(!judge("pub fn free", "fn free", "`flysch_x` was changed").is_empty());
    let of_it = judge("pub const MAX", "const MAX", "`flysch_x::Opaque` has no limit.");
    assert_eq!(of_it, Vec::<String>::new());
}

#[test]
fn items_and_changes_are_cut_out() {
    assert_eq!(item("impl<T> From<T> for flysch_x::Pair<T>"), "flysch_x::Pair");
    assert_eq!(item("flysch_x::Pair.first: T"), "flysch_x::Pair");
    let changelog = "# Changelog\n\n## Unreleased\n\n- a\n\n## 0.1.0\n\n- b\n";
    assert_eq!(unreleased(changelog), Ok("\n\n- a\n"));
    assert!(unreleased("# Changelog\n").is_err());
}

#[test]
fn a_type_called_by_its_role_is_found() {
    for line in ["enum flysch_x::Error with 2 variants", "type flysch_x::y::Device = u8"] {
        assert!(is_role(line), "{line}");
    }
    for line in [
        "enum flysch_x::UfsError",
        "flysch_x::UfsError::Device(u8)",
        "impl Error for flysch_x::UfsError",
    ] {
        assert!(!is_role(line), "{line}");
    }
}
