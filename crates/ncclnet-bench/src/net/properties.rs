//! What a device is, the same for all versions of the interface.

use std::ffi::{CStr, c_char, c_int};

use ncclnet_ffi::abi::{
    PropertiesV5, PropertiesV7, PropertiesV8, PropertiesV9, PropertiesV11, PropertiesV12,
};

/// The properties that a benchmark needs.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Properties {
    /// The device's name.
    pub(crate) name: String,
    /// Mb/s.
    pub(crate) speed: i64,
    /// Largest number of buffers of one receive.
    pub(crate) max_receives: i64,
}

impl Properties {
    fn new(name: *const c_char, speed: c_int, max_receives: c_int) -> Self {
        let name = if name.is_null() {
            String::from("?")
        } else {
            // SAFETY: by the interface a C string that lives as long as the process.
            unsafe { CStr::from_ptr(name) }
                .to_string_lossy()
                .into_owned()
        };
        Self {
            name,
            speed: speed.into(),
            max_receives: max_receives.into(),
        }
    }
}

macro_rules! from_version {
    ($($type:ty),+) => {$(
        impl From<$type> for Properties {
            fn from(properties: $type) -> Self {
                Self::new(properties.name, properties.speed, properties.max_receives)
            }
        }
    )+};
}

from_version!(
    PropertiesV12,
    PropertiesV11,
    PropertiesV9,
    PropertiesV8,
    PropertiesV7,
    PropertiesV5
);
