//! Settings as a user writes them, `NAME=VALUE`, and the policy for a port that they make.

use std::error::Error;

use ibnet_gid::{IndexRules, Policy, Wish};

/// The names, with what they mean.
#[allow(dead_code, reason = "not everyone who reads settings explains them")]
pub(crate) const NAMES: &str = "\
NCCL_IB_GID_INDEX=3                  this index, or mlx5_0:1=3,mlx5_1=5
NCCL_IB_ADDR_FAMILY=AF_INET6         this family, others only if there is none (AF_INET, AF_INET6)
NCCL_IB_ADDR_RANGE=10.1.0.0/16       these networks alone
NCCL_IB_ROCE_VERSION_NUM=2           this version, the other only if there is none (1, 2)
NCCL_IB_ROUTABLE_FLID_GID_INDEX=1    InfiniBand: the GID to use if it can be routed; -1 for none
netdev=eth2.100,eth2                 these network interfaces alone
prefer-family=, prefer-version=, prefer-netdev=    the same, but as one wish among the others
require-family=, require-version=                  the same, but alone";

/// What was set.
#[derive(Default)]
pub(crate) struct Settings {
    index: IndexRules,
    policy: Policy,
}

impl Settings {
    /// Takes one setting.
    pub(crate) fn set(&mut self, setting: &str) -> Result<(), Box<dyn Error>> {
        let (name, value) = setting.split_once('=').ok_or("expected NAME=VALUE")?;
        let policy = &mut self.policy;
        match name {
            "NCCL_IB_GID_INDEX" => self.index = value.parse()?,
            "NCCL_IB_ADDR_FAMILY" => policy.family = Wish::Ask(value.parse()?),
            "NCCL_IB_ADDR_RANGE" => policy.ranges = value.parse()?,
            "NCCL_IB_ROCE_VERSION_NUM" => policy.roce_version = Wish::Ask(value.parse()?),
            "NCCL_IB_ROUTABLE_FLID_GID_INDEX" => {
                policy.flid_index = match value {
                    "-1" => None,
                    index => Some(index.parse()?),
                }
            }
            "require-family" => policy.family = Wish::Require(value.parse()?),
            "require-version" => policy.roce_version = Wish::Require(value.parse()?),
            "netdev" => policy.netdevs = Some(Wish::Require(value.parse()?)),
            "prefer-family" => policy.family = Wish::Prefer(value.parse()?),
            "prefer-version" => policy.roce_version = Wish::Prefer(value.parse()?),
            "prefer-netdev" => policy.netdevs = Some(Wish::Prefer(value.parse()?)),
            _ => return Err("no such setting".into()),
        }
        Ok(())
    }

    /// The policy for a port, whose name and number may not be known.
    pub(crate) fn policy(&self, port: Option<&(String, u8)>) -> Policy {
        let (name, number) = match port {
            Some((name, number)) => (name.as_str(), *number),
            // What is set for all ports holds for this one, too.
            None => ("", 0),
        };
        Policy {
            index: self.index.for_port(name, number),
            ..self.policy.clone()
        }
    }
}
