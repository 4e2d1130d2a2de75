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
        "memory" | "region" | "registrar" | "mr" | "ibnet_mrcache" => Some(SUBSYS_REG),
        "library" | "device" | "devices" | "nic" | "description" | "transport" | "lifecycle"
        | "gid" | "ibnet_gid" | "listening" | "listener" | "client" | "connect" | "connection"
        | "connecting" | "conversation" | "assembly" | "pending" | "handshake" => Some(SUBSYS_INIT),
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
        assert_eq!(of("ibnet::device"), SUBSYS_NET | SUBSYS_INIT);
        assert_eq!(of("ibnet::handshake::listener"), SUBSYS_NET | SUBSYS_INIT);
        // Both ends of a connection say of it what it is.
        assert_eq!(of("ibnet::connecting"), SUBSYS_NET | SUBSYS_INIT);
        assert_eq!(of("ibnet::client"), SUBSYS_NET | SUBSYS_INIT);
        assert_eq!(of("ncclnet_ffi::plugin::memory"), SUBSYS_NET | SUBSYS_REG);
        assert_eq!(of("ibnet_mrcache::table"), SUBSYS_NET | SUBSYS_REG);
        assert_eq!(of("ibnet::stripe"), SUBSYS_NET);
        assert_eq!(of(""), SUBSYS_NET);
        assert_eq!(of("ibnet::configuration"), SUBSYS_NET, "whole names only");
    }
}
