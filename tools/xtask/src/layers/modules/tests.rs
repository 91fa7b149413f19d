use super::*;

fn read(files: &[(&str, &str)]) -> Modules {
    let file = |(name, text): &(&str, &str)| (format!("crates/x/src/{name}"), text.to_string());
    Modules::read("crates/x", &files.iter().map(file).collect::<Vec<_>>())
}

/// Each use, as `from to file:line`.
fn uses(files: &[(&str, &str)]) -> Vec<String> {
    let modules = read(files);
    let told = modules.uses.iter().flat_map(|(from, to)| {
        to.iter().map(move |(to, (file, line))| {
            format!("{from} {to} {}:{line}", file.strip_prefix("crates/x/src/").unwrap())
        })
    });
    told.collect()
}

/// A crate with modules `a` and `b` of these texts.
fn crate_of<'t>(a: &'t str, b: &'t str) -> [(&'static str, &'t str); 3] {
    [
        ("lib.rs", "mod a;\nmod b;\npub use b::{Thing, Other as Another};\n"),
        ("a.rs", a),
        ("b.rs", b),
    ]
}

#[test]
fn a_planted_cycle_is_found_with_both_places() {
    let cycle = crate_of("\nuse crate::b::Thing;\n", "fn f() {\n    super::a::g();\n}\n");
    let modules = read(&cycle);
    assert_eq!(modules.knots(), [["a", "b"]]);
    assert_eq!(
        modules.cycles(&["a", "b"]),
        ["`a` uses `b` (crates/x/src/a.rs:2), `b` uses `a` (crates/x/src/b.rs:2)"]
    );
    let no_cycle = crate_of("use crate::b::Thing;", "");
    assert_eq!(read(&no_cycle).knots(), [[""; 0]; 0]);
}

#[test]
fn every_way_to_name_another_module_is_seen() {
    for text in [
        "use crate::b::Thing;",
        "use crate::{b, std};",
        "use crate::{\n    c::{D, E},\n    b::{self, Thing},\n};",
        "use crate::b as other;",
        "pub(crate) use crate::b::Thing;",
        "use super::b::Thing;",
        "use super::{b::{Thing}};",
        "fn f() -> crate::b::Thing { g::<super::b::Thing>() }",
        "macro_rules! m { () => { $crate::b::f() } }",
        "mod inner { use super::super::b::Thing; }",
        // What the root re-exports counts as where it comes from.
        "use crate::Thing;",
        "fn f() { crate::Another::new() as u32 }",
        "use super::{Thing as That};",
    ] {
        let seen = uses(&crate_of(text, ""));
        assert_eq!(seen.len(), 1, "{text}: {seen:?}");
        assert!(seen[0].starts_with("a b a.rs:"), "{text}: {seen:?}");
    }
    // Nested files.
    let files = [
        ("lib.rs", "mod a;\nmod b;"),
        ("a.rs", "mod c;"),
        ("a/c.rs", "use super::super::b::X;"),
        ("b/mod.rs", "mod d;"),
        ("b/d.rs", "use super::super::a;\nuse crate::a::c;"),
    ];
    assert_eq!(uses(&files), ["a b a/c.rs:1", "b a b/d.rs:1"]);
}

#[test]
fn what_names_no_other_module_is_not_seen() {
    for text in [
        "// crate::b\n/* super::b */ const S: &str = \"crate::b\";",
        "use other::b::Thing;\nuse other::crate_name::b;",
        "use crate::a::Thing;\nuse super::a;\npub(in crate::a) struct S;",
        "mod b { pub fn f() {} }\nmod c { use super::b::f; }",
        "use crate::Item;\nuse crate::{self};\nuse super::*;",
        "#[cfg(test)]\nmod tests {\n    use crate::b::Thing;\n}",
        "#[cfg(test)]\nuse crate::b::{Thing, That};\nfn f() {}",
        "#[cfg(test)]\n#[allow(x)]\npub(crate) fn f<A, B>(a: A) -> B {\n    super::b::g()\n}",
        "struct S {\n    #[cfg(test)]\n    field: crate::b::Thing,\n    other: u8,\n}",
        "#[cfg(test)]\nconst C: [u8; 2] = { crate::b::f() };",
    ] {
        assert_eq!(uses(&crate_of(text, "")), [""; 0], "{text}");
    }
    // After an item for tests, the others are seen again.
    let after = "#[cfg(test)]\nfn f() { super::b::g() }\nuse crate::b;";
    assert_eq!(uses(&crate_of(after, "")), ["a b a.rs:3"]);
}

#[test]
fn files_of_tests_and_other_programs_count_for_nothing() {
    let uses_a = "use crate::a::X;";
    let files = [
        ("lib.rs", "mod a;\n#[cfg(test)]\nmod helpers;"),
        ("a.rs", "use crate::b::Y;\nuse crate::helpers;\n#[cfg(test)]\nmod checks;"),
        ("a/checks.rs", "use crate::c::Z;"),
        ("b.rs", ""),
        ("b/tests.rs", uses_a),
        ("b_tests.rs", uses_a),
        ("c.rs", ""),
        ("helpers.rs", uses_a),
        ("bin/b.rs", uses_a),
        ("main.rs", "use crate::a::X;"),
    ];
    assert_eq!(uses(&files), ["a b a.rs:1"]);
}

#[test]
fn longer_circles_are_told_by_their_shortest_ways() {
    let files = [
        ("lib.rs", ""),
        ("a.rs", "use crate::b;"),
        ("b.rs", "use crate::c;\nuse crate::d;"),
        ("c.rs", "use crate::a;\nuse crate::out;"),
        ("d.rs", "use crate::b;"),
        ("in_front.rs", "use crate::a;"),
        ("out.rs", ""),
    ];
    let modules = read(&files);
    assert_eq!(modules.knots(), [["a", "b", "c", "d"]]);
    let cycles = modules.cycles(&["a", "b", "c", "d"]);
    assert_eq!(cycles.len(), 2, "{cycles:?}");
    assert_eq!(cycles[0].matches(" uses ").count(), 3);
    assert_eq!(cycles[1], "`b` uses `d` (crates/x/src/b.rs:2), `d` uses `b` (crates/x/src/d.rs:1)");
}
