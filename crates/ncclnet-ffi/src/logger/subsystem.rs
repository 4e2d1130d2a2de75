//! Which of NCCL's subsystems an event belongs to, by the module it comes from.
//!
//! `NCCL_DEBUG=INFO` alone shows the subsystems INIT, BOOTSTRAP and ENV; the others must be asked for
//! with `NCCL_DEBUG_SUBSYS`. So what a user should see of a healthy start (devices, connections)
//! carries INIT, as it does for NCCL's own networks, and what happens later does not.

use std::ffi::c_ulong;

use crate::abi::{SUBSYS_ENV, SUBSYS_INIT, SUBSYS_NET, SUBSYS_REG};

/// The flags for the event target `target`, a module path.
pub(super) fn of(target: &str) -> c_ulong {
    let special = target.split("::").find_map(|module| match module {
        "config" => Some(SUBSYS_ENV),
        "memory" | "ibnet_mrcache" => Some(SUBSYS_REG),
        "library" | "loader" | "device" | "transport" | "lifecycle" | "connect" | "attempts" => {
            Some(SUBSYS_INIT)
        }
        _ => None,
    });
    SUBSYS_NET | special.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_have_their_subsystem() {
        assert_eq!(of("ibnet::config"), SUBSYS_NET | SUBSYS_ENV);
        assert_eq!(of("ibnet::config::environment"), SUBSYS_NET | SUBSYS_ENV);
        assert_eq!(of("ibnet::device::nic"), SUBSYS_NET | SUBSYS_INIT);
        // Both ends of a connection say of it what it is.
        assert_eq!(of("ibnet::transport::listener"), SUBSYS_NET | SUBSYS_INIT);
        assert_eq!(of("ibnet::connect::connector"), SUBSYS_NET | SUBSYS_INIT);
        assert_eq!(of("ncclnet_ffi::memory"), SUBSYS_NET | SUBSYS_REG);
        assert_eq!(of("ibnet_mrcache::tables"), SUBSYS_NET | SUBSYS_REG);
        assert_eq!(of("ibnet::connection::core"), SUBSYS_NET);
        assert_eq!(of(""), SUBSYS_NET);
        assert_eq!(of("ibnet::configuration"), SUBSYS_NET, "whole names only");
    }
}
