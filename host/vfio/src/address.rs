//! The address of a PCI function.

use core::fmt;
use core::str::FromStr;

/// Domain, bus, device and function of a PCI function, written `0000:00:12.5`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    domain: u32,
    bus: u8,
    device: u8,
    function: u8,
}

/// The text is not an address of a PCI function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a PCI function is written DOMAIN:BUS:DEVICE.FUNCTION in hexadecimal, as 0000:00:12.5")]
pub struct AddressError;

impl FromStr for Address {
    type Err = AddressError;

    /// The domain may be omitted: it is then 0.
    fn from_str(text: &str) -> Result<Self, AddressError> {
        let (front, function) = text.rsplit_once('.').ok_or(AddressError)?;
        let (front, device) = front.rsplit_once(':').ok_or(AddressError)?;
        let (domain, bus) = front.rsplit_once(':').unwrap_or(("0", front));
        Ok(Self {
            domain: number(domain, 8, u32::MAX)?,
            bus: number(bus, 2, 0xFF)? as u8,
            device: number(device, 2, 31)? as u8,
            function: number(function, 1, 7)? as u8,
        })
    }
}

/// A number of at most `digits` hexadecimal digits and at most `limit`.
fn number(text: &str, digits: usize, limit: u32) -> Result<u32, AddressError> {
    let is_plain = text.len() <= digits && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let value = u32::from_str_radix(text, 16).ok().filter(|value| is_plain && *value <= limit);
    value.ok_or(AddressError)
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { domain, bus, device, function } = self;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function:x}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written() {
        for (text, whole) in [
            ("0000:00:12.5", "0000:00:12.5"),
            ("00:1f.2", "0000:00:1f.2"),
            ("10000:E1:00.0", "10000:e1:00.0"),
        ] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), whole);
        }
    }

    #[test]
    fn other_text_is_refused() {
        for text in [
            "",
            "12.5",
            ":12.5",
            "0000:00:20.0",
            "0000:00:12.8",
            "0000:00:12",
            "0:100:1.0",
            "0000:00:12.5.1",
            "+0:00:12.5",
            "g:00:12.5",
            "123456789:00:12.5",
            "0000:00:12.",
            "../../etc:00:1.0",
            "1:2:3:4.5",
        ] {
            assert_eq!(text.parse::<Address>(), Err(AddressError), "{text}");
        }
    }
}
