//! PCI addresses, parsed.

use std::fmt;
use std::str::FromStr;

/// The address of a PCI function: `domain:bus:device.function`, in hexadecimal.
///
/// Ordered as the parts are written. Domains have up to 32 bits: those beyond 0xffff are made by
/// the Volume Management Device and by virtual machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PciAddress {
    /// The PCI domain (segment).
    pub domain: u32,
    /// The bus.
    pub bus: u8,
    /// The device on the bus, at most 31.
    pub device: u8,
    /// The function of the device, at most 7.
    pub function: u8,
}

/// A text that is no PCI address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotPciAddress;

impl FromStr for PciAddress {
    type Err = NotPciAddress;

    fn from_str(text: &str) -> Result<Self, NotPciAddress> {
        let (rest, function) = text.split_once('.').ok_or(NotPciAddress)?;
        let mut parts = rest.split(':');
        let mut next = |digits| hexadecimal(parts.next().unwrap_or_default(), digits);
        let address = Self {
            domain: next(4..=8)?,
            bus: next(2..=2)? as u8,
            device: next(2..=2)? as u8,
            function: hexadecimal(function, 1..=1)? as u8,
        };
        if parts.next().is_some() || address.device > 0x1f || address.function > 7 {
            return Err(NotPciAddress);
        }
        Ok(address)
    }
}

/// A number of so many digits. `u32::from_str_radix` alone would take a sign.
fn hexadecimal(text: &str, digits: std::ops::RangeInclusive<usize>) -> Result<u32, NotPciAddress> {
    if !digits.contains(&text.len()) || !text.bytes().all(|c| c.is_ascii_hexdigit()) {
        return Err(NotPciAddress);
    }
    u32::from_str_radix(text, 16).map_err(|_| NotPciAddress)
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            domain,
            bus,
            device,
            function,
        } = self;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function:x}")
    }
}

impl fmt::Display for NotPciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a PCI address (domain:bus:device.function)")
    }
}

impl std::error::Error for NotPciAddress {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed_not_guessed() {
        for text in [
            "0000:3b:00.0",
            "0000:3b:1f.7",
            "10000:01:00.1",
            "ffffffff:ff:1f.7",
        ] {
            let address = text
                .parse::<PciAddress>()
                .map(|address| address.to_string());
            assert_eq!(address, Ok(text.to_owned()));
        }
        // What is no PCI device has no address.
        for text in [
            "",
            "virtual",
            "rxe0",
            "0000:3b:00",
            "0000.3b.00.0",
            "0000:3g:00.0",
            "0000:3b:20.0",
            "0000:3b:00.8",
            "000:3b:00.0",
            "0000:3b:00:00.0",
            "+000:3b:00.0",
            "0000:3b:00.0.0",
            "123456789:3b:00.0",
        ] {
            assert_eq!(text.parse::<PciAddress>(), Err(NotPciAddress), "{text}");
        }
    }

    #[test]
    fn they_are_ordered_as_numbers() {
        let parse = |text: &str| text.parse::<PciAddress>().ok();
        assert!(parse("0000:ff:00.0") < parse("0001:00:00.0"));
        assert!(parse("ffff:00:00.0") < parse("10000:00:00.0"));
        assert!(parse("0000:3b:00.1") < parse("0000:3b:01.0"));
    }
}
