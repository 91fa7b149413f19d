//! What volumes and options are called.

use std::collections::HashSet;

use super::Image;

/// A name for each volume of `image` that can be part of a path: unique, without '/'. A volume
/// whose own name can be one keeps it, and the second one with a name gets it with a number.
pub fn names(image: &Image) -> Vec<String> {
    unique(&image.volumes().map(|volume| volume.name.as_str()).collect::<Vec<_>>())
}

fn unique(own: &[&str]) -> Vec<String> {
    let mut taken: HashSet<String> = HashSet::new();
    let mut names: Vec<Option<String>> = vec![];
    for &name in own {
        let keeps = clean(name) == name && taken.insert(name.to_owned());
        names.push(keeps.then(|| name.to_owned()));
    }
    let others = own.iter().zip(names).map(|(own, name)| {
        name.unwrap_or_else(|| {
            let clean = clean(own);
            let numbered = (2..).map(|number: u32| format!("{clean}-{number}"));
            let mut free = std::iter::once(clean.clone()).chain(numbered);
            let name = free.find(|name| taken.insert(name.clone()));
            name.expect("numbers do not end before volumes do")
        })
    });
    others.collect()
}

/// The name as it can be part of a path.
fn clean(name: &str) -> String {
    let clean: String =
        name.chars().map(|c| if c == '/' || c.is_control() { '_' } else { c }).collect();
    match &clean[..] {
        "" | "." | ".." => format!("volume{clean}"),
        _ => clean,
    }
}

/// A text about an image as it is for programs: errors and failures name the options of the
/// command (`--erase-size`), and here they get the names of their fields in
/// [`ImageOpenOptions`](super::ImageOpenOptions) (`erase_size`), which are also those of C and
/// Python.
pub fn in_fields(text: &str) -> String {
    // Certificates are an affair of the command.
    let mut text = text
        .replace("name it (--auth-cert), or leave --auth-key out as well", "leave auth_key out")
        .replace("--auth-key and --auth-cert", "auth_key");
    for option in ["--erase-size", "--page-size", "--oob-size", "--ecc", "--offset", "--auth-key"] {
        text = text.replace(option, &option[2..].replace('-', "_"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::open::OpenError;

    #[test]
    fn names_are_unique_and_fit_for_paths() {
        let own = ["a", "a", "a-2", "x/y", "x_y", "..", "", "a", "volume"];
        let unique = unique(&own);
        let expected = ["a", "a-3", "a-2", "x_y-2", "x_y", "volume..", "volume-2", "a-4", "volume"];
        assert_eq!(unique, expected);
    }

    #[test]
    fn programs_read_the_names_of_fields() {
        let errors = [
            OpenError::Unknown,
            OpenError::Erased,
            OpenError::NoPages,
            OpenError::Apart { main: 1, oob: 2 },
            OpenError::Offset(3),
        ];
        for error in errors {
            let text = in_fields(&error.to_string());
            assert!(
                !text.contains("--") && text.contains('_') || text.contains("offset"),
                "{text}"
            );
        }
        let text = "X; name it (--auth-cert), or leave --auth-key out as well";
        assert_eq!(in_fields(text), "X; leave auth_key out");
    }
}
