//! [`Access`]: what a registration allows, and when one allows enough for another.

/// What is wanted of a registration, or what it allows.
///
/// The bits are the caller's, for instance those of `enum ibv_access_flags`. They come in two kinds:
///
/// - *Rights*: more is enough. A registration that the device may write serves for reading.
/// - *Modes*: they change what the registration is, so that only the same will do. For verbs these
///   are `IBV_ACCESS_RELAXED_ORDERING`, `ZERO_BASED`, `ON_DEMAND` and `HUGETLB`.
///
/// A right that is in doubt is a mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Access {
    pub(crate) modes: u32,
    pub(crate) rights: u32,
}

impl Access {
    /// Access with `rights` and no modes.
    pub const fn new(rights: u32) -> Self {
        Self { modes: 0, rights }
    }

    /// The same rights with these modes.
    #[must_use]
    pub const fn with_modes(self, modes: u32) -> Self {
        Self { modes, ..self }
    }

    /// All bits that are set, of both kinds.
    pub const fn bits(self) -> u32 {
        self.modes | self.rights
    }

    /// Whether a registration with this access does for `wanted`.
    pub const fn serves(self, wanted: Self) -> bool {
        self.modes == wanted.modes && self.rights & wanted.rights == wanted.rights
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_rights_serve_and_other_modes_do_not() {
        let (read, both) = (Access::new(1), Access::new(3));
        assert!(both.serves(read));
        assert!(!read.serves(both));
        assert!(!both.serves(read.with_modes(8)));
        assert!(!both.with_modes(8).serves(read));
        assert_eq!(both.with_modes(8).bits(), 11);
    }
}
