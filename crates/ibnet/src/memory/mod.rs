//! Memory that devices read and write.
//!
//! [`area`] has the small areas that the CPU and the NIC share, [`cts_ring`] those of the protocol, [`region`] the memory of users and its registration,
//! [`shortage`] which limit was hit when there is none left.

pub(crate) mod area;
pub(crate) mod cts_ring;
pub(crate) mod region;
mod shortage;

pub use region::{Region, Registrar};
