//! Rust source as trees of tokens: enough of the language to find where items begin and end.

use std::iter::Peekable;
use std::str::Chars;

/// A token, or the content of a pair of brackets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Tree {
    /// An identifier, a lifetime, a number, a string, or one character of punctuation.
    Word(String),
    /// The content between an opening bracket and its counterpart.
    Group(char, Vec<Tree>),
}

impl Tree {
    /// Whether it is this word.
    pub(super) fn is(&self, word: &str) -> bool {
        matches!(self, Self::Word(own) if own == word)
    }

    /// The identifier, if it is one.
    pub(super) fn name(&self) -> Option<&str> {
        match self {
            Self::Word(word) if word.starts_with(|c: char| c.is_alphabetic() || c == '_') => {
                Some(word)
            }
            _ => None,
        }
    }

    /// The content, if it is a group with this opening bracket.
    pub(super) fn group(&self, open: char) -> Option<&[Tree]> {
        match self {
            Self::Group(own, inner) if *own == open => Some(inner),
            _ => None,
        }
    }
}

/// The trees of a file, without comments. A bracket without a counterpart extends to the end: the
/// compiler has already checked the file.
pub(super) fn trees(text: &str) -> Vec<Tree> {
    Lexer { rest: text.chars().peekable() }.until(None)
}

struct Lexer<'t> {
    rest: Peekable<Chars<'t>>,
}

impl Lexer<'_> {
    fn until(&mut self, close: Option<char>) -> Vec<Tree> {
        let mut trees = Vec::new();
        while let Some(c) = self.rest.next() {
            match c {
                _ if Some(c) == close => break,
                _ if c.is_whitespace() => {}
                '/' if self.rest.peek() == Some(&'/') => {
                    self.rest.by_ref().find(|&c| c == '\n');
                }
                '/' if self.rest.peek() == Some(&'*') => self.skip_comment(),
                '(' => trees.push(Tree::Group(c, self.until(Some(')')))),
                '[' => trees.push(Tree::Group(c, self.until(Some(']')))),
                '{' => trees.push(Tree::Group(c, self.until(Some('}')))),
                '"' => trees.push(self.string()),
                '\'' => trees.push(self.quoted()),
                _ if c.is_alphanumeric() || c == '_' => trees.push(self.word(c)),
                _ => trees.push(Tree::Word(c.into())),
            }
        }
        trees
    }

    fn skip_comment(&mut self) {
        let (mut depth, mut last) = (0, '/');
        for c in self.rest.by_ref() {
            match (last, c) {
                ('/', '*') => depth += 1,
                ('*', '/') => depth -= 1,
                _ => {
                    last = c;
                    continue;
                }
            }
            if depth == 0 {
                return;
            }
            last = ' ';
        }
    }

    /// A string whose opening quote has been read.
    fn string(&mut self) -> Tree {
        let mut text = String::from('"');
        while let Some(c) = self.rest.next() {
            text.push(c);
            match c {
                '\\' => text.extend(self.rest.next()),
                '"' => break,
                _ => {}
            }
        }
        Tree::Word(text)
    }

    /// A raw string with this many hashes, whose opening quote has been read.
    fn raw_string(&mut self, hashes: usize) -> Tree {
        let end = format!("\"{}", "#".repeat(hashes));
        let mut text = String::from('"');
        while !(text.len() > end.len() && text.ends_with(&end)) {
            let Some(c) = self.rest.next() else { break };
            text.push(c);
        }
        Tree::Word(text)
    }

    /// A character or a lifetime whose quote has been read.
    fn quoted(&mut self) -> Tree {
        let mut text = String::from('\'');
        let first = self.rest.next();
        text.extend(first);
        if first == Some('\\') {
            text.extend(self.rest.next());
            for c in self.rest.by_ref() {
                text.push(c);
                if c == '\'' {
                    break;
                }
            }
        } else if self.rest.peek() == Some(&'\'') {
            text.extend(self.rest.next());
        } else {
            self.extend(&mut text);
        }
        Tree::Word(text)
    }

    fn extend(&mut self, word: &mut String) {
        while let Some(c) = self.rest.next_if(|&c| c.is_alphanumeric() || c == '_') {
            word.push(c);
        }
    }

    fn word(&mut self, first: char) -> Tree {
        let mut word = String::from(first);
        self.extend(&mut word);
        let is_prefix = matches!(word.as_str(), "r" | "b" | "br" | "c" | "cr");
        match self.rest.peek() {
            Some('"') if is_prefix && word.ends_with('r') => {
                self.rest.next();
                self.raw_string(0)
            }
            Some('"') if is_prefix => {
                self.rest.next();
                self.string()
            }
            Some('\'') if word == "b" => {
                self.rest.next();
                self.quoted()
            }
            Some('#') if is_prefix && word.ends_with('r') => {
                let mut hashes = 0;
                while self.rest.next_if_eq(&'#').is_some() {
                    hashes += 1;
                }
                if self.rest.next_if_eq(&'"').is_some() {
                    return self.raw_string(hashes);
                }
                // A raw identifier, which would otherwise be a keyword.
                word.clear();
                self.extend(&mut word);
                Tree::Word(word)
            }
            Some('.') if first.is_ascii_digit() => {
                let mut ahead = self.rest.clone();
                ahead.next();
                if ahead.peek().is_some_and(char::is_ascii_digit) {
                    word.extend(self.rest.next());
                    self.extend(&mut word);
                }
                Tree::Word(word)
            }
            _ => Tree::Word(word),
        }
    }
}

/// The trees as one line, spaced almost as rustfmt would.
pub(super) fn line(trees: &[Tree]) -> String {
    let mut text = String::new();
    write(trees, &mut text);
    text
}

fn write(trees: &[Tree], text: &mut String) {
    for tree in trees {
        if is_apart(text, tree) {
            text.push(' ');
        }
        match tree {
            Tree::Word(word) => text.push_str(word),
            Tree::Group(open, inner) => {
                text.push(*open);
                write(inner, text);
                text.push(match open {
                    '(' => ')',
                    '[' => ']',
                    _ => '}',
                });
            }
        }
    }
}

/// Whether a space belongs between the text so far and the next tree.
fn is_apart(text: &str, next: &Tree) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '"' | '\'');
    let starts_word = matches!(next, Tree::Word(word) if word.starts_with(is_word));
    if text.ends_with([',', ';', '+']) || text.ends_with("->") || text.ends_with("=>") {
        return true;
    }
    if text.ends_with(':') {
        return !text.ends_with("::") && !next.is(":");
    }
    if text.ends_with('=') {
        return !next.is("=") && !next.is(">");
    }
    let is_operator = next.is("=") || next.is("+") || next.is("-");
    let after = text.ends_with(|c: char| is_word(c) || matches!(c, ')' | ']' | '}' | '>'));
    (starts_word && after) || (is_operator && !text.ends_with([' ', '(', '<', '&', '[']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_strings_and_lifetimes_are_told_apart() {
        let text = r##"/* a /* b */ c */ fn f<'a>(x: &'a str) -> char { '}' } // }
            const S: &str = r#"a " { "#; const B: u8 = b'\''; 1.5 0..2"##;
        let trees = trees(text);
        let groups: Vec<char> = trees
            .iter()
            .filter_map(|tree| if let Tree::Group(open, _) = tree { Some(*open) } else { None })
            .collect();
        assert_eq!(groups, ['(', '{']);
        assert!(trees.iter().any(|tree| tree.is("'a")));
        assert!(trees.iter().any(|tree| tree.is("1.5")) && trees.iter().any(|tree| tree.is("0")));
    }

    #[test]
    fn a_line_reads_like_source() {
        let text = "pub fn f<T: Into<U>>(a: &'a [u8;  4],b:impl Fn(u8)->u8) -> Result<(), E>";
        let wanted = "pub fn f<T: Into<U>>(a: &'a[u8; 4], b: impl Fn(u8) -> u8) -> Result<(), E>";
        assert_eq!(line(&trees(text)), wanted);
    }
}
