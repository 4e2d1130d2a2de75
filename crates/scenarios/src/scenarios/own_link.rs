//! A network interface and a Soft-RoCE device of a scenario's own, which it may do anything to.

use std::process::Command;

use super::programs::run;
use crate::play::Failure;

/// A link with a Soft-RoCE device. Both are removed on drop.
///
/// Scenarios give it addresses of 198.18.0.0/15, which is set aside for tests of network devices (RFC 2544).
pub(super) struct OwnLink {
    pub(super) link: String,
    pub(super) device: String,
}

impl OwnLink {
    /// With names that say whose they are.
    pub(super) fn create(name: &str) -> Result<Self, Failure> {
        let (link, device) = (format!("ibnet{name}0"), format!("ibnet_{name}0"));
        ip(&["link", "add", &link, "type", "dummy"])?;
        // From here on it is taken away in every case.
        let link = Self { link, device };
        // Addresses by hand are usable at once if the kernel does not look for duplicates of them.
        let no_search = format!("/proc/sys/net/ipv6/conf/{}/accept_dad", link.link);
        std::fs::write(&no_search, "0").map_err(|error| format!("{no_search}: {error}"))?;
        ip(&["link", "set", &link.link, "up", "mtu", "4200"])?;
        let mut add = Command::new("rdma");
        add.args([
            "link",
            "add",
            &link.device,
            "type",
            "rxe",
            "netdev",
            &link.link,
        ]);
        run(&mut add)?;
        Ok(link)
    }

    pub(super) fn address(&self, action: &str, address: &str) -> Result<(), Failure> {
        ip(&["address", action, address, "dev", &self.link])
    }

    pub(super) fn set(&self, state: &str) -> Result<(), Failure> {
        ip(&["link", "set", &self.link, state])
    }
}

impl Drop for OwnLink {
    fn drop(&mut self) {
        // Without the link its device is gone, too.
        if let Err(error) = ip(&["link", "delete", &self.link]) {
            eprintln!("  {} stays: {error}", self.link);
        }
    }
}

fn ip(arguments: &[&str]) -> Result<(), Failure> {
    // By its full path, for a shell of busybox has an `ip` of its own.
    run(Command::new("/sbin/ip").args(arguments))
}
