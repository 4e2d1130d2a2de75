//! What sysfs says of a GID: its type and its network interface.
//!
//! The files are `ports/N/gid_attrs/types/I` and `ports/N/gid_attrs/ndevs/I` in the device's
//! directory. They are the only source for libraries without `ibv_query_gid_ex`, and in containers
//! they are unreadable in every way there is.

use std::fs;
use std::io;
use std::path::PathBuf;

use crate::context::Context;
use crate::gid::GidType;
use crate::netdev::Netdev;
use crate::port::LinkLayer;
use crate::sysfs::Sysfs;

/// The directory `gid_attrs` of a port.
pub(crate) struct GidAttributes {
    port: PathBuf,
    link_layer: LinkLayer,
}

impl GidAttributes {
    pub(crate) fn of(context: &Context, port: u8, link_layer: LinkLayer, sysfs: &Sysfs) -> Self {
        let device = sysfs.locate(context.device().sysfs_path());
        Self {
            port: device.join("ports").join(port.to_string()),
            link_layer,
        }
    }

    /// The type of an entry, `Ok(None)` if it cannot be told.
    ///
    /// # Errors
    /// The kernel says that this process has no such entry.
    pub(crate) fn gid_type(&self, index: u32) -> io::Result<Option<GidType>> {
        let directory = self.port.join("gid_attrs");
        let text = fs::read_to_string(directory.join("types").join(index.to_string()));
        parse_type(text, self.link_layer, || {
            self.port.is_dir() && !directory.is_dir()
        })
    }

    /// The name of an entry's network interface. None if there is none, or it cannot be told.
    pub(crate) fn netdev(&self, index: u32) -> Option<String> {
        let file = self.port.join("gid_attrs/ndevs").join(index.to_string());
        let name = fs::read_to_string(file).ok()?;
        let name = name.trim_end();
        Netdev::is_name(name).then(|| name.to_owned())
    }
}

/// What the content of a type file, or the failure to read it, means.
///
/// The kernel answers `EINVAL` where there is no entry, and older kernels for every entry of
/// InfiniBand. A kernel without the directory (`is_old`) is older than RoCE version 2.
fn parse_type(
    text: io::Result<String>,
    link_layer: LinkLayer,
    is_old: impl FnOnce() -> bool,
) -> io::Result<Option<GidType>> {
    // A port without Ethernet has no other type, whether the file can be read or not.
    let first_version = match link_layer {
        LinkLayer::Ethernet => GidType::RoceV1,
        _ => return Ok(Some(GidType::InfiniBand)),
    };
    match text {
        Ok(text) => Ok(match text.trim_end() {
            "IB/RoCE v1" | "RoCE v1" => Some(first_version),
            "RoCE v2" => Some(GidType::RoceV2),
            _ => None,
        }),
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Err(error),
        Err(_) => Ok(is_old().then_some(first_version)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `Err` for an entry that is not there.
    fn on_ethernet(text: io::Result<&str>, is_old: bool) -> Result<Option<GidType>, Option<i32>> {
        let text = text.map(str::to_owned);
        parse_type(text, LinkLayer::Ethernet, || is_old).map_err(|error| error.raw_os_error())
    }

    fn errno(errno: i32) -> io::Result<&'static str> {
        Err(io::Error::from_raw_os_error(errno))
    }

    #[test]
    fn versions_name_themselves() {
        for text in ["IB/RoCE v1\n", "RoCE v1\n"] {
            assert_eq!(on_ethernet(Ok(text), false), Ok(Some(GidType::RoceV1)));
        }
        assert_eq!(
            on_ethernet(Ok("RoCE v2\n"), false),
            Ok(Some(GidType::RoceV2))
        );
    }

    #[test]
    fn what_cannot_be_read_or_understood_is_no_type() {
        // Never the garbage of an earlier reading.
        for text in ["", "\n", "RoCE v3\n", "RoCE v20"] {
            assert_eq!(on_ethernet(Ok(text), false), Ok(None), "{text:?}");
        }
        for number in [libc::ENOENT, libc::EACCES, libc::EIO] {
            assert_eq!(on_ethernet(errno(number), false), Ok(None), "{number}");
        }
    }

    #[test]
    fn invalid_means_that_there_is_no_such_entry() {
        // Said of entries that belong to another network namespace.
        let invalid = on_ethernet(errno(libc::EINVAL), false);
        assert_eq!(invalid, Err(Some(libc::EINVAL)));
    }

    #[test]
    fn a_kernel_from_before_there_were_types_has_the_first_version() {
        let old = on_ethernet(errno(libc::ENOENT), true);
        assert_eq!(old, Ok(Some(GidType::RoceV1)));
    }

    #[test]
    fn infiniband_has_one_type_whatever_the_file_says() {
        for link_layer in [LinkLayer::InfiniBand, LinkLayer::Unspecified] {
            for text in [Ok("IB/RoCE v1\n"), errno(libc::EINVAL), errno(libc::EACCES)] {
                let text = text.map(str::to_owned);
                let found = parse_type(text, link_layer, || false);
                assert_eq!(found.ok(), Some(Some(GidType::InfiniBand)));
            }
        }
    }
}
