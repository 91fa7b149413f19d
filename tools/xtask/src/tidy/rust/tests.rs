use super::*;

#[test]
fn comments_and_literals_are_blank_and_lifetimes_are_not() {
    for (text, code) in [
        ("a // b {\nc", "a c"),
        ("a /* { /* } */ { */ b", "a b"),
        ("x(\"{\\\"}\") + 'a'", "x( ) +"),
        ("r#\"{\"}\"# f<'a>(&'a str, '{', '\\'')", "f<'a>(&'a str, , )"),
        ("bar\"x\" 'é' b'\\'' c", "bar b c"),
    ] {
        let blanked = code_of(text);
        assert_eq!(blanked.len(), text.len(), "{text}");
        let left: Vec<&str> = blanked.split_whitespace().collect();
        assert_eq!(left.join(" "), code, "{text}");
    }
}

#[test]
fn functions_are_found_with_their_length_and_parameters() {
    let text = "\
impl A {
    pub(crate) const fn one(self: &Self, a: [u8; 4], b: impl Fn(u8, u8) -> bool) -> [u8; 2]
    where
        B: C<{ 1 }>,
    {
        let s = \"fn two() {\";
    }

    fn declared(&self);
}
fn three() {}
type F = fn(u8) -> u8;
impl T for A {
    fn given(a: A, b: B) {}
}
";
    let source = Source::scan(text);
    let found: Vec<_> =
        source.functions.iter().map(|f| (f.name.as_str(), f.line, f.lines, f.parameters)).collect();
    assert_eq!(found, [("one", 2, 6, 2), ("three", 11, 1, 0), ("given", 14, 1, 2)]);
    assert!(source.is_trait_impl(14) && !source.is_trait_impl(2));
}

#[test]
fn test_modules_and_trait_methods_are_counted() {
    let text = "\
trait Device {
    const fn_count: u8;
    fn geometry(&self);
    fn submit(&mut self) -> u8 {
        fn helper() {}
    }
}
#[cfg(test)]
mod tests {
    fn a() {}
}
#[cfg(test)]
mod elsewhere;
";
    let source = Source::scan(text);
    assert_eq!(source.traits, [(1, "Device".to_owned(), 2)]);
    assert_eq!(source.tests, [(8, 11)]);
    assert!(source.is_test(10) && !source.is_test(7));
    assert_eq!(source.test_lines(), 4);
}
