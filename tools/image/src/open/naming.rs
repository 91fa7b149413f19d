//! What volumes and options are called.

use std::collections::HashSet;

use super::{Image, ImageVolume};

/// A name for each volume of `image` that can be part of a path: unique, without '/'. A volume
/// whose own name can be one keeps it, and the second one with a name gets it with a number.
pub fn names(image: &Image) -> Vec<String> {
    unique(&image.volumes().map(|volume| volume.name.as_str()).collect::<Vec<_>>())
}

/// Whether `wanted` names the volume `volume` of `image`: by its name in [`names`], which is
/// nobody else's, or by its own name or its ID, which others may have as well.
pub fn is_named(image: &Image, volume: &ImageVolume, wanted: &str) -> bool {
    let unique = names(image);
    let mut named = unique.iter().zip(image.volumes());
    match named.find(|(name, _)| *name == wanted) {
        Some((_, one)) => std::ptr::eq(one, volume),
        None => wanted == volume.name || volume.id.is_some_and(|id| wanted == id.to_string()),
    }
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
    use crate::testing;

    #[test]
    fn names_are_unique_and_fit_for_paths() {
        let own = ["a", "a", "a-2", "x/y", "x_y", "..", "", "a", "volume"];
        let unique = unique(&own);
        let expected = ["a", "a-3", "a-2", "x_y-2", "x_y", "volume..", "volume-2", "a-4", "volume"];
        assert_eq!(unique, expected);
    }

    /// Two images behind each other have volumes of the same name, and the same ID.
    #[test]
    fn each_volume_can_be_named() {
        let one = testing::ubi(16 << 10, 512, &[("a", 1000, 50_000), ("b", 1000, 50_000)]);
        let mut two = testing::ubi(16 << 10, 512, &[("a", 1000, 50_000)]);
        for block in two.chunks_mut(16 << 10) {
            let header = flysch_wire::ubi::EcHeader::parse(block).unwrap();
            let other = flysch_wire::ubi::EcHeader { image_sequence: 8, ..header };
            block[..64].copy_from_slice(&other.emit());
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), [one, two].concat()).unwrap();
        let image = Image::open(file.path(), &crate::ImageOpenOptions::default()).unwrap();
        assert_eq!(names(&image), ["a", "b", "a-2"]);
        let chosen = |wanted| -> Vec<_> {
            image.volumes().map(|volume| is_named(&image, volume, wanted)).collect()
        };
        assert_eq!(chosen("a"), [true, false, false]);
        assert_eq!(chosen("a-2"), [false, false, true]);
        assert_eq!(chosen("b"), [false, true, false]);
        assert_eq!(chosen("0"), [true, false, true]);
        assert_eq!(chosen("a-3"), [false; 3]);
        let mut of = vec![];
        crate::check(&image, &mut |checked| of.extend(checked.volume.map(str::to_owned)));
        assert_eq!(of, Vec::<String>::new());
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
