//! Sockets at which disks are served, in the user's notation: `unix:PATH`, `tcp:HOST:PORT`.

#[cfg(test)]
mod tests;

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Where clients connect.
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
            Some(("tcp", address)) if address.contains(':') => match address.rsplit_once(':') {
                Some((_, port)) if port.parse::<u16>().is_err() => {
                    Err(format!("`{port}` is no port: a number up to 65535"))
                }
                _ => Ok(Self::Tcp(address.into())),
            },
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
