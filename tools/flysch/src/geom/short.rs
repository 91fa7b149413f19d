//! Short forms: `gpart show` is `geom part show`.

use std::ffi::{OsStr, OsString};

use crate::failure::Failure;

/// The short forms and their classes.
const FORMS: [(&str, &str); 10] = [
    ("gpart", "part"),
    ("glabel", "label"),
    ("gstripe", "stripe"),
    ("gconcat", "concat"),
    ("gmirror", "mirror"),
    ("gmultipath", "multipath"),
    ("graid", "raid"),
    ("gnop", "nop"),
    ("gcache", "cache"),
    ("zonectl", "zone"),
];

/// The names of the short forms.
pub(super) fn forms() -> impl Iterator<Item = &'static str> {
    FORMS.iter().map(|(form, _)| *form)
}

/// Options of `geom` that take a value, and that take none: they may precede the verb.
const VALUED: [&str; 5] = ["-f", "--on", "--rig", "--socket", "--script"];
const BARE: [&str; 3] = ["--force", "--json", "-v"];

/// The arguments of this program with `geom CLASS` for a short form.
pub(crate) fn long_form(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut all: Vec<OsString> = arguments.into_iter().collect();
    let Some(at) = (1..all.len()).find(|&at| !BARE.iter().any(|bare| all[at] == *bare)) else {
        return all;
    };
    let Some((_, class)) = FORMS.iter().find(|(form, _)| all[at] == *form) else { return all };
    all[at] = "geom".into();
    let mut verb = at + 1;
    while let Some(word) = all.get(verb).and_then(|word| word.to_str()) {
        let joined = |option: &&str| match option.starts_with("--") {
            true => word.strip_prefix(*option).is_some_and(|rest| rest.starts_with('=')),
            false => word.len() > option.len() && word.starts_with(*option),
        };
        match () {
            () if VALUED.contains(&word) => verb += 2,
            () if BARE.contains(&word) || VALUED.iter().any(joined) => verb += 1,
            () => break,
        }
    }
    all.insert(verb.min(all.len()), class.into());
    all
}

/// The words after `geom` on this program's command line.
pub(super) fn words() -> Result<Vec<String>, Failure> {
    let all = long_form(std::env::args_os());
    let behind = all.into_iter().skip_while(|word| word != OsStr::new("geom")).skip(1);
    let mut words = Vec::new();
    let mut is_socket = false;
    for word in behind {
        let text = word
            .into_string()
            .map_err(|word| Failure::usage(format!("`{}` is not text", word.to_string_lossy())))?;
        match &text[..] {
            _ if is_socket => is_socket = false,
            "--socket" => is_socket = true,
            text if text.starts_with("--socket=") => {}
            _ => words.push(text),
        }
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_forms_become_long_ones() {
        let long = |words: &str| {
            let all = long_form(words.split(' ').map(OsString::from));
            all.join(OsStr::new(" ")).into_string().unwrap()
        };
        for (short, expected) in [
            ("flysch gpart show", "flysch geom part show"),
            (
                "flysch --json gpart -f a,name=x --rig=r.toml show",
                "flysch --json geom -f a,name=x --rig=r.toml part show",
            ),
            (
                "flysch gmirror --socket /mnt status -s",
                "flysch geom --socket /mnt mirror status -s",
            ),
            ("flysch gnop -fa --force list", "flysch geom -fa --force nop list"),
            ("flysch gstripe", "flysch geom stripe"),
            (
                "flysch zonectl --on nvme,zones=4M -d nda0 -c rz",
                "flysch geom --on nvme,zones=4M zone -d nda0 -c rz",
            ),
            ("flysch gpart -f", "flysch geom -f part"),
            ("flysch bench gpart", "flysch bench gpart"),
        ] {
            assert_eq!(long(short), expected);
        }
    }
}
