//! [`DeviceAttributes`]: what a device can do, and its limits.

use std::os::raw::c_int;

use ibverbs_sys::ibv_device_attr;

use crate::conv;

/// The attributes and limits of a device (`struct ibv_device_attr`, ibv_query_device(3)).
///
/// Limits are upper bounds: a particular combination of them may still be refused. A limit that
/// the driver reports as negative reads as 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceAttributes {
    /// The version of the firmware, as the driver writes it.
    pub firmware: String,
    /// The GUID of the device, in host byte order.
    pub node_guid: u64,
    /// The GUID of the adapter that the device is part of, in host byte order. The devices of
    /// one adapter share it.
    pub sys_image_guid: u64,
    /// The vendor's identifier: IEEE OUI, or PCI vendor for some drivers.
    pub vendor_id: u32,
    /// The largest memory region, in bytes.
    pub max_mr_size: u64,
    /// How many queue pairs there can be.
    pub max_qp: u32,
    /// How many work requests a queue of a queue pair can hold.
    pub max_qp_wr: u32,
    /// `IBV_DEVICE_*` capability bits.
    pub capability_flags: u32,
    /// How many scatter/gather elements a work request can have.
    pub max_sge: u32,
    /// How many completion queues there can be.
    pub max_cq: u32,
    /// How many entries a completion queue can have.
    pub max_cqe: u32,
    /// How many memory regions there can be.
    pub max_mr: u32,
    /// How many protection domains there can be.
    pub max_pd: u32,
    /// How many RDMA reads and atomics a queue pair can serve as their target at once.
    pub max_qp_rd_atom: u32,
    /// How many RDMA reads and atomics a queue pair can have under way as their initiator.
    pub max_qp_init_rd_atom: u32,
    /// How many physical ports there are. They count from 1.
    pub phys_port_count: u8,
}

impl From<&ibv_device_attr> for DeviceAttributes {
    fn from(raw: &ibv_device_attr) -> Self {
        Self {
            firmware: String::from_utf8_lossy(&conv::bytes_of(&raw.fw_ver)).into_owned(),
            node_guid: u64::from_be(raw.node_guid),
            sys_image_guid: u64::from_be(raw.sys_image_guid),
            vendor_id: raw.vendor_id,
            max_mr_size: raw.max_mr_size,
            max_qp: limit(raw.max_qp),
            max_qp_wr: limit(raw.max_qp_wr),
            capability_flags: raw.device_cap_flags,
            max_sge: limit(raw.max_sge),
            max_cq: limit(raw.max_cq),
            max_cqe: limit(raw.max_cqe),
            max_mr: limit(raw.max_mr),
            max_pd: limit(raw.max_pd),
            max_qp_rd_atom: limit(raw.max_qp_rd_atom),
            max_qp_init_rd_atom: limit(raw.max_qp_init_rd_atom),
            phys_port_count: raw.phys_port_cnt,
        }
    }
}

fn limit(value: c_int) -> u32 {
    u32::try_from(value).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn negative_limits_and_unterminated_texts_are_harmless() {
        let mut raw = ibv_device_attr {
            max_qp: -1,
            max_cqe: 4096,
            ..Default::default()
        };
        raw.fw_ver = [b'7'.cast_signed(); 64];
        raw.node_guid = 0x0002_c903_0012_3456_u64.to_be();
        let attributes = DeviceAttributes::from(&raw);
        assert_eq!(attributes.max_qp, 0);
        assert_eq!(attributes.max_cqe, 4096);
        assert_eq!(attributes.firmware, "7".repeat(64));
        assert_eq!(attributes.node_guid, 0x0002_c903_0012_3456);
    }
}
