//! Just enough understanding of Rust to measure its functions.

/// What was found in one source file. Lines count from 1.
#[derive(Debug, Default)]
pub(crate) struct Source {
    /// Every function with a body.
    pub(crate) functions: Vec<Function>,
    /// Line, name and number of methods of every trait.
    pub(crate) traits: Vec<(usize, String, usize)>,
    /// Line and name of every type that can have methods.
    pub(crate) types: Vec<(usize, String)>,
    /// Type, line and number of methods with a `self` for every implementation without a trait.
    pub(crate) methods: Vec<(usize, String, usize)>,
    /// First and last line of every inline `#[cfg(test)]` module.
    pub(crate) tests: Vec<(usize, usize)>,
    /// First and last line of every implementation of a trait.
    trait_impls: Vec<(usize, usize)>,
    /// Lines with `use super::*`.
    pub(crate) glob_imports: Vec<usize>,
}

/// One function.
#[derive(Debug)]
pub(crate) struct Function {
    /// The line of its `fn`.
    pub(crate) line: usize,
    /// Its name.
    pub(crate) name: String,
    /// Lines from `fn` to the closing brace.
    pub(crate) lines: usize,
    /// Number of parameters, without `self`.
    pub(crate) parameters: usize,
}

impl Source {
    /// Reads a source file.
    pub(crate) fn scan(text: &str) -> Self {
        let code = code_of(text);
        let mut source = Self::default();
        let line_of = |place: usize| code[..place].matches('\n').count() + 1;
        for (place, word) in words(&code) {
            match word {
                "fn" => source.functions.extend(function(&code, place).map(|(end, mut f)| {
                    f.line = line_of(place);
                    f.lines = line_of(end) - f.line + 1;
                    f
                })),
                "trait" => source.traits.extend(
                    trait_methods(&code, place)
                        .map(|(name, methods)| (line_of(place), name, methods)),
                ),
                "impl" => {
                    let line = line_of(place);
                    source
                        .trait_impls
                        .extend(trait_impl(&code, place).map(|end| (line, line_of(end))));
                    source
                        .methods
                        .extend(own_methods(&code, place).map(|(name, count)| (line, name, count)));
                }
                "struct" | "enum" | "union" => {
                    let name = words(&code[place..]).nth(1).map(|(_, name)| name.to_owned());
                    source.types.extend(name.map(|name| (line_of(place), name)));
                }
                "mod" if code[..place].trim_end().ends_with("#[cfg(test)]") => {
                    source.tests.extend(block(&code, place).map(|(_, end)| {
                        // The line of the attribute belongs to the tests.
                        (line_of(place) - 1, line_of(end))
                    }));
                }
                "use" if code[place..].starts_with("use super::*") => {
                    source.glob_imports.push(line_of(place));
                }
                _ => {}
            }
        }
        source
    }

    /// Whether a line is in a test module.
    pub(crate) fn is_test(&self, line: usize) -> bool {
        self.tests.iter().any(|(first, last)| (*first..=*last).contains(&line))
    }

    /// Whether a line is in the implementation of a trait, where signatures are given.
    pub(crate) fn is_trait_impl(&self, line: usize) -> bool {
        self.trait_impls.iter().any(|(first, last)| (*first..=*last).contains(&line))
    }

    /// Number of lines in test modules.
    pub(crate) fn test_lines(&self) -> usize {
        self.tests.iter().map(|(first, last)| last - first + 1).sum()
    }
}

/// The text with the content of comments, strings and characters replaced by spaces, so that every
/// line and byte keeps its position.
pub(crate) fn code_of(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut code = Vec::with_capacity(bytes.len());
    while code.len() < bytes.len() {
        let at = code.len();
        let length = literal_or_comment(text, at);
        if length == 0 {
            code.push(bytes[at]);
        } else {
            let blanked = bytes[at..at + length].iter();
            code.extend(blanked.map(|&byte| if byte == b'\n' { b'\n' } else { b' ' }));
        }
    }
    String::from_utf8(code).expect("whole characters are copied or replaced by spaces")
}

/// Bytes from `at` on that are a comment or a literal with text in it; 0 for code.
fn literal_or_comment(text: &str, at: usize) -> usize {
    let rest = &text[at..];
    let after_word = text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
    let raw = if after_word { None } else { raw_string(rest) };
    if rest.starts_with("//") {
        rest.find('\n').unwrap_or(rest.len())
    } else if rest.starts_with("/*") {
        block_comment(rest)
    } else if let Some(length) = raw {
        length
    } else if rest.starts_with('"') {
        quoted(rest, '"')
    } else if rest.starts_with('\'') {
        character(rest)
    } else {
        0
    }
}

fn block_comment(rest: &str) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < rest.len() {
        let here = &rest.as_bytes()[at..];
        if here.starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if here.starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

fn raw_string(rest: &str) -> Option<usize> {
    let prefix = ["r", "br", "cr"].into_iter().find(|prefix| {
        rest.strip_prefix(prefix).is_some_and(|r| r.trim_start_matches('#').starts_with('"'))
    })?;
    let hashes = rest[prefix.len()..].chars().take_while(|c| *c == '#').count();
    let start = prefix.len() + hashes + 1;
    let end = format!("\"{}", "#".repeat(hashes));
    Some(rest[start..].find(&end).map_or(rest.len(), |found| start + found + end.len()))
}

/// The length of a literal that starts and ends with `quote`, with escapes taken into account.
fn quoted(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == quote => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// The length of a character literal; 0 for a lifetime.
fn character(rest: &str) -> usize {
    let mut after = rest.chars().skip(1);
    match (after.next(), after.next()) {
        (Some('\\'), _) | (Some(_), Some('\'')) => quoted(rest, '\''),
        _ => 0,
    }
}

/// Every word of the code with its position.
pub(crate) fn words(code: &str) -> impl Iterator<Item = (usize, &str)> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    code.split(move |c| !is_word(c)).filter(|word| !word.is_empty()).map(|word| {
        let place = word.as_ptr() as usize - code.as_ptr() as usize;
        (place, word)
    })
}

/// The function whose `fn` is at `place`, and the position of its closing brace.
fn function(code: &str, place: usize) -> Option<(usize, Function)> {
    let after = code[place..].strip_prefix("fn ")?;
    let name: String = after.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    if name.is_empty() {
        return None;
    }
    let signature = place + "fn ".len() + name.len();
    let open = find_outside(code, signature, &['('])?;
    let close = closing(code, open)?;
    let (_, end) = block(code, close + 1)?;
    let parameters = count_parameters(&code[open + 1..close]);
    Some((end, Function { line: 0, name, lines: 0, parameters }))
}

/// The end of the trait implementation whose `impl` is at `place`.
fn trait_impl(code: &str, place: usize) -> Option<usize> {
    let (open, end) = block(code, place)?;
    let is_item = code[..place].trim_end().ends_with(['}', ';', ']']) || place == 0;
    (is_item && code[place..open].contains(" for ")).then_some(end)
}

/// The type and number of methods of the implementation whose `impl` is at `place`; `None` for a
/// trait's.
fn own_methods(code: &str, place: usize) -> Option<(String, usize)> {
    let (open, end) = block(code, place)?;
    let is_item = code[..place].trim_end().ends_with(['}', ';', ']']) || place == 0;
    if !is_item || trait_impl(code, place).is_some() {
        return None;
    }
    let header = code[place..open].strip_prefix("impl")?.trim_start();
    let header = match header.starts_with('<') {
        true => &header[find_outside(header, 1, &['>'])? + 1..],
        false => header,
    };
    let path = header.split(['<', '{']).next()?.split(" where").next()?.trim();
    let name = path.rsplit([':', ' ']).next()?.to_owned();
    let mut depth = 0_usize;
    let mut methods = 0;
    for (at, c) in code[open..end].char_indices() {
        depth = match c {
            '{' => depth + 1,
            '}' => depth - 1,
            _ => depth,
        };
        let at = open + at;
        let starts_word = !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
        methods += usize::from(depth == 1 && starts_word && has_self(code, at).unwrap_or(false));
    }
    Some((name, methods))
}

/// Whether the function whose `fn` is at `place` takes a `self`; `None` if there is no function.
fn has_self(code: &str, place: usize) -> Option<bool> {
    let name = place + code[place..].strip_prefix("fn ").map(|_| "fn ".len())?;
    let open = find_outside(code, name, &['('])?;
    let first = code[open + 1..closing(code, open)?].split(',').next()?;
    Some(is_self(first))
}

/// Name and number of methods of the trait whose `trait` is at `place`.
fn trait_methods(code: &str, place: usize) -> Option<(String, usize)> {
    let after = code[place..].strip_prefix("trait ")?;
    let name: String = after.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    let (open, end) = block(code, place)?;
    let mut methods = 0;
    let mut depth = 0_usize;
    for (at, c) in code[open..end].char_indices() {
        depth = match c {
            '{' => depth + 1,
            '}' => depth - 1,
            _ => depth,
        };
        let here = &code[open + at..];
        let starts_word = !code[..open + at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
        methods += usize::from(depth == 1 && starts_word && here.starts_with("fn "));
    }
    Some((name, methods))
}

/// Positions of the braces of the block after `from`; `None` if a `;` ends the item first.
fn block(code: &str, from: usize) -> Option<(usize, usize)> {
    let open = find_outside(code, from, &['{', ';'])?;
    if !code[open..].starts_with('{') {
        return None;
    }
    Some((open, closing(code, open)?))
}

/// The first of `wanted` after `from` that is outside every bracket opened after `from`.
pub(crate) fn find_outside(code: &str, from: usize, wanted: &[char]) -> Option<usize> {
    let mut depth = 0_i32;
    let mut before = ' ';
    for (at, c) in code[from..].char_indices() {
        if depth == 0 && wanted.contains(&c) {
            return Some(from + at);
        }
        depth += nesting(before, c);
        before = c;
    }
    None
}

/// The position of the bracket that closes the one at `open`.
pub(crate) fn closing(code: &str, open: usize) -> Option<usize> {
    let pair = match code[open..].chars().next()? {
        '(' => ('(', ')'),
        _ => ('{', '}'),
    };
    let mut depth = 0_usize;
    for (at, c) in code[open..].char_indices() {
        if c == pair.0 {
            depth += 1;
        } else if c == pair.1 {
            depth -= 1;
            if depth == 0 {
                return Some(open + at);
            }
        }
    }
    None
}

fn count_parameters(list: &str) -> usize {
    let mut pieces = vec![String::new()];
    let mut depth = 0;
    let mut before = ' ';
    for c in list.chars() {
        depth += nesting(before, c);
        before = c;
        if c == ',' && depth == 0 {
            pieces.push(String::new());
        } else if let Some(piece) = pieces.last_mut() {
            piece.push(c);
        }
    }
    pieces.iter().filter(|piece| !piece.trim().is_empty() && !is_self(piece)).count()
}

/// Whether a parameter is `self`.
fn is_self(piece: &str) -> bool {
    piece.split(':').next().is_some_and(|name| name.split([' ', '&', '\n']).any(|w| w == "self"))
}

/// The change in bracket depth of a signature at `c`, which follows `before`.
fn nesting(before: char, c: char) -> i32 {
    match c {
        '(' | '[' | '<' | '{' => 1,
        '>' if before == '-' || before == '=' => 0,
        ')' | ']' | '>' | '}' => -1,
        _ => 0,
    }
}

#[cfg(test)]
mod tests;
