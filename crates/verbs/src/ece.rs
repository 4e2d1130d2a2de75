//! [`Ece`]: enhanced connection establishment.

use ibverbs_sys::ibv_ece;

/// What the two ends of a connection agree on beyond the standard (`struct ibv_ece`,
/// ibv_query_ece(3)).
///
/// Each end queries its queue pair after making it, the ends exchange the results, and each sets
/// what it got from the other before moving to RTR.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ece {
    /// The vendor whose options these are: an IEEE OUI.
    pub vendor_id: u32,
    /// The vendor's own bits.
    pub options: u32,
    /// Which further fields count. Always 0 so far.
    pub comp_mask: u32,
}

impl Ece {
    pub(crate) fn to_raw(self) -> ibv_ece {
        ibv_ece {
            vendor_id: self.vendor_id,
            options: self.options,
            comp_mask: self.comp_mask,
        }
    }
}

impl From<ibv_ece> for Ece {
    fn from(raw: ibv_ece) -> Self {
        Self {
            vendor_id: raw.vendor_id,
            options: raw.options,
            comp_mask: raw.comp_mask,
        }
    }
}
