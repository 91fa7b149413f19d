//! Where sockets are: `unix:PATH` and `tcp:HOST:PORT`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Where a server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Unix(PathBuf),
    Tcp(String),
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some(("unix", path)) if !path.is_empty() => Ok(Self::Unix(path.into())),
            Some(("tcp", address)) if address.contains(':') => Ok(Self::Tcp(address.into())),
            _ => Err(format!("`{text}` is neither unix:PATH nor tcp:HOST:PORT")),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(address) => write!(f, "tcp:{address}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_sockets_of_two_kinds() {
        assert_eq!("unix:a:b".parse(), Ok(Place::Unix("a:b".into())));
        assert_eq!("tcp:[::1]:10809".parse(), Ok(Place::Tcp("[::1]:10809".into())));
        for text in ["", "unix:", "tcp:10809", "disk.sock", "udp:a:1"] {
            assert!(text.parse::<Place>().is_err(), "{text}");
        }
    }
}
