//! The Rust declarations, the C header and the C compiler agree on every size and offset.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeMap;
use std::mem::offset_of;
use std::process::Command;

use ncclnet_ffi::abi::*;

/// Lines as `layout.c` prints them, for one struct.
macro_rules! layout {
    ($lines:ident, $rust:ty, $c:literal, { $($($field:ident).+ = $name:literal),* $(,)? }) => {
        $lines.insert(format!("size {}", $c), size_of::<$rust>());
        $($lines.insert(format!("offset {} {}", $c, $name), offset_of!($rust, $($field).+));)*
    };
}

/// The fields that every table has, and the others of one table.
macro_rules! table {
    ($lines:ident, $rust:ty, $c:literal, { $($field:ident = $name:literal),* $(,)? }) => {
        layout!($lines, $rust, $c, {
            name = "name", init = "init", devices = "devices", listen = "listen",
            connect = "connect", accept = "accept", reg_mr = "regMr", dereg_mr = "deregMr",
            isend = "isend", irecv = "irecv", test = "test", close_send = "closeSend",
            close_recv = "closeRecv", close_listen = "closeListen", $($field = $name),*
        });
    };
}

/// In addition, what the tables since version 4 and since version 7 have.
macro_rules! table_since_v4 {
    ($lines:ident, $rust:ty, $c:literal, { $($field:ident = $name:literal),* $(,)? }) => {
        table!($lines, $rust, $c, {
            get_properties = "getProperties", iflush = "iflush", $($field = $name),*
        });
    };
}
macro_rules! table_since_v7 {
    ($lines:ident, $rust:ty, $c:literal, { $($field:ident = $name:literal),* $(,)? }) => {
        table_since_v4!($lines, $rust, $c, {
            reg_mr_dmabuf = "regMrDmaBuf", get_device_mr = "getDeviceMr",
            irecv_consumed = "irecvConsumed", $($field = $name),*
        });
    };
}

/// The fields that the properties of all versions have, and the others of one version.
macro_rules! properties {
    ($lines:ident, $rust:ty, $c:literal, { $($field:ident = $name:literal),* $(,)? }) => {
        layout!($lines, $rust, $c, {
            name = "name", pci_path = "pciPath", guid = "guid", pointer_support = "ptrSupport",
            speed = "speed", port = "port", max_comms = "maxComms", $($field = $name),*
        });
    };
}

/// In addition, what the properties since version 8 have.
macro_rules! properties_since_v8 {
    ($lines:ident, $rust:ty, $c:literal, { $($field:ident = $name:literal),* $(,)? }) => {
        properties!($lines, $rust, $c, {
            registration_is_global = "regIsGlobal", latency = "latency", max_receives = "maxRecvs",
            device_type = "netDeviceType", device_version = "netDeviceVersion",
            $($field = $name),*
        });
    };
}

fn rust_layout() -> BTreeMap<String, usize> {
    let mut lines = BTreeMap::new();
    layout!(lines, NcclResult, "ncclResult_t", {});
    layout!(lines, std::ffi::c_int, "ncclNetDeviceType", {});
    layout!(lines, CommConfig, "ncclNetCommConfig_t", {
        traffic_class = "trafficClass"
    });
    layout!(lines, CommAttributes, "ncclNetCommAttr_t", {
        max_concurrent_peers = "maxConcurrentPeers", min_concurrent_peers = "minConcurrentPeers",
        max_flows_per_peer = "maxFlowsPerPeer", min_flows_per_peer = "minFlowsPerPeer",
    });
    layout!(lines, NetAttributes, "ncclNetAttr_t", {
        send = "sendCommAttr", receive = "recvCommAttr", operations = "op", algorithms = "algo",
        protocols = "proto",
    });
    layout!(lines, DeviceHandle, "ncclNetDeviceHandle_t", {
        device_type = "netDeviceType", device_version = "netDeviceVersion", handle = "handle",
        size = "size", needs_proxy_progress = "needsProxyProgress",
    });
    layout!(lines, VirtualDeviceV9, "ncclNetVDeviceProps_v9_t", {
        count = "ndevs", devices = "devs",
    });
    layout!(lines, VirtualDeviceV12, "ncclNetVDeviceProps_v12_t", {
        count = "ndevs", devices = "devs",
    });
    layout!(lines, ProfilerDescriptor, "ncclProfilerNetIbDescr_v1_t", {
        kind = "type", qp = "qp", qp.device = "qp.device", qp.wr_id = "qp.wr_id",
        qp.opcode = "qp.opcode", qp.qp_number = "qp.qpNum", qp.length = "qp.length",
    });
    properties_since_v8!(lines, PropertiesV12, "ncclNetProperties_v12_t", {
        force_flush = "forceFlush", virtual_device = "vProps", max_p2p_bytes = "maxP2pBytes",
        max_collective_bytes = "maxCollBytes", max_multi_request_size = "maxMultiRequestSize",
        rail_id = "railId", plane_id = "planeId",
    });
    properties_since_v8!(lines, PropertiesV11, "ncclNetProperties_v11_t", {
        force_flush = "forceFlush", virtual_device = "vProps", max_p2p_bytes = "maxP2pBytes",
        max_collective_bytes = "maxCollBytes", max_multi_request_size = "maxMultiRequestSize",
    });
    properties_since_v8!(lines, PropertiesV9, "ncclNetProperties_v9_t", {
        force_flush = "forceFlush", virtual_device = "vProps", max_p2p_bytes = "maxP2pBytes",
        max_collective_bytes = "maxCollBytes",
    });
    properties_since_v8!(lines, PropertiesV8, "ncclNetProperties_v8_t", {});
    properties!(lines, PropertiesV7, "ncclNetProperties_v7_t", {
        latency = "latency", max_receives = "maxRecvs", device_type = "netDeviceType",
        device_version = "netDeviceVersion",
    });
    properties!(lines, PropertiesV5, "ncclNetProperties_v5_t", {
        latency = "latency", max_receives = "maxRecvs",
    });
    properties!(lines, PropertiesV3, "ncclNetProperties_v3_t", {});
    table_since_v7!(lines, NetV12, "ncclNet_v12_t", {
        make_vdevice = "makeVDevice", finalize = "finalize", set_net_attr = "setNetAttr",
    });
    table_since_v7!(lines, NetV11, "ncclNet_v11_t", {
        make_vdevice = "makeVDevice", finalize = "finalize", set_net_attr = "setNetAttr",
    });
    table_since_v7!(lines, NetV10, "ncclNet_v10_t", {
        make_vdevice = "makeVDevice"
    });
    table_since_v7!(lines, NetV9, "ncclNet_v9_t", {
        make_vdevice = "makeVDevice"
    });
    table_since_v7!(lines, NetV8, "ncclNet_v8_t", {});
    table_since_v7!(lines, NetV7, "ncclNet_v7_t", {});
    table_since_v4!(lines, NetV6, "ncclNet_v6_t", {
        reg_mr_dmabuf = "regMrDmaBuf"
    });
    table_since_v4!(lines, NetV5, "ncclNet_v5_t", {});
    table_since_v4!(lines, NetV4, "ncclNet_v4_t", {});
    table!(lines, NetV3, "ncclNet_v3_t", { get_properties = "getProperties", flush = "flush" });
    table!(lines, NetV2, "ncclNet_v2_t", {
        pci_path = "pciPath", ptr_support = "ptrSupport", flush = "flush",
    });
    lines
}

#[test]
fn rust_and_c_agree_on_every_size_and_offset() {
    let program = common::compile("layout", &["layout.c"]);
    let output = Command::new(program).output().unwrap();
    assert!(output.status.success());
    let c_layout: BTreeMap<String, usize> = common::text(&output)
        .lines()
        .map(|line| {
            let (what, bytes) = line.rsplit_once(' ').unwrap();
            (what.to_owned(), bytes.parse().unwrap())
        })
        .collect();
    let rust_layout = rust_layout();
    assert!(c_layout.len() > 340, "all structs were printed");
    for (what, bytes) in &c_layout {
        assert_eq!(rust_layout.get(what), Some(bytes), "{what}");
    }
    assert_eq!(
        rust_layout.len(),
        c_layout.len(),
        "each side has what the other has"
    );
}
