//! What the simulated machine is made of, as the builder is told: devices, ports, addresses,
//! limits. Plain values; nothing here is alive.

pub(crate) mod check;
mod device;
mod gid;
mod limits;
mod port;

pub use device::{ContextKind, DeviceSpec};
pub use gid::GidSlot;
pub use limits::Limits;
pub use port::{LaneSpeed, PortSpec, Width};
