//! Macros for C enumerations that a driver may extend.
//!
//! A newer driver or kernel can report a value that did not exist when this crate was written. It
//! must not be undefined behaviour, and it must not get lost. Short lists that callers want to
//! match on as a whole are enumerations with a variant `Unknown`; long lists are new types with
//! constants. Both print the name that the verbs headers use.

/// Defines an enumeration with one variant per known constant and `Unknown(raw)` for the rest.
///
/// `Variant = CONSTANT` reads: this variant stands for that constant of the verbs headers.
macro_rules! open_enum {
    (
        $(#[$meta:meta])*
        pub enum $name:ident($raw:ty) {
            $( $(#[$doc:meta])* $variant:ident = $constant:ident, )*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name {
            $(
                $(#[$doc])*
                #[doc = concat!("(`", stringify!($constant), "`)")]
                $variant,
            )*
            /// A value that this crate does not know, kept as the driver gave it.
            Unknown($raw),
        }

        impl $name {
            /// Reads the value of the C interface. Never fails: see `Unknown`.
            pub const fn from_raw(raw: $raw) -> Self {
                $( if raw == $constant as $raw { return Self::$variant; } )*
                Self::Unknown(raw)
            }

            /// The value of the C interface.
            pub const fn raw(self) -> $raw {
                match self {
                    $( Self::$variant => $constant as $raw, )*
                    Self::Unknown(raw) => raw,
                }
            }
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                match self {
                    $( Self::$variant => f.pad(stringify!($constant)), )*
                    Self::Unknown(raw) => write!(f, "{}({raw})", stringify!($name)),
                }
            }
        }

        impl ::std::fmt::Debug for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                ::std::fmt::Display::fmt(self, f)
            }
        }
    };
}

/// Defines a new type with one constant per known value; any other value is kept as it is.
///
/// `NAME = CONSTANT` reads: this name stands for that constant of the verbs headers.
macro_rules! open_constants {
    (
        $(#[$meta:meta])*
        pub struct $name:ident($raw:ty) {
            $( $(#[$doc:meta])* $short:ident = $constant:ident, )*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash)]
        pub struct $name($raw);

        impl $name {
            $(
                $(#[$doc])*
                #[doc = concat!("(`", stringify!($constant), "`)")]
                pub const $short: Self = Self($constant);
            )*

            /// Reads the value of the C interface, known or not.
            #[inline]
            pub const fn from_raw(raw: $raw) -> Self {
                Self(raw)
            }

            /// The value of the C interface.
            #[inline]
            pub const fn raw(self) -> $raw {
                self.0
            }
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                match self.0 {
                    $( $constant => f.pad(stringify!($constant)), )*
                    raw => write!(f, "{}({raw})", stringify!($name)),
                }
            }
        }

        impl ::std::fmt::Debug for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                ::std::fmt::Display::fmt(self, f)
            }
        }
    };
}

pub(crate) use {open_constants, open_enum};
