//! The table of functions that a fabric hands out.

use ibnet_verbs::{Functions, Mlx5Functions};

use crate::ffi::{context, cq, event, list, memory, mlx5, qp, query};
use crate::slots::Trampolines;

/// A function that older versions of libibverbs lack, and that a fabric can lack, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OptionalFunction {
    /// `ibv_get_pkey_index`, IBVERBS_1.5.
    GetPkeyIndex,
    /// `ibv_reg_mr_iova2`, IBVERBS_1.8.
    RegMrIova2,
    /// `ibv_get_device_index`, IBVERBS_1.9.
    GetDeviceIndex,
    /// `ibv_query_ece` and `ibv_set_ece`, IBVERBS_1.10.
    Ece,
    /// `_ibv_query_gid_ex`, IBVERBS_1.11.
    QueryGidEx,
    /// `_ibv_query_gid_table`, IBVERBS_1.11.
    QueryGidTable,
    /// `ibv_reg_dmabuf_mr`, IBVERBS_1.12.
    RegDmabufMr,
    /// `ibv_is_fork_initialized`, IBVERBS_1.13.
    IsForkInitialized,
    /// `ibv_query_port_speed`, IBVERBS_1.16.
    QueryPortSpeed,
}

impl OptionalFunction {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::GetPkeyIndex,
        Self::RegMrIova2,
        Self::GetDeviceIndex,
        Self::Ece,
        Self::QueryGidEx,
        Self::QueryGidTable,
        Self::RegDmabufMr,
        Self::IsForkInitialized,
        Self::QueryPortSpeed,
    ];
}

/// The complete table, for the fabric of one slot.
pub(crate) fn functions(slot: Trampolines) -> Functions {
    Functions {
        get_device_list: slot.get_device_list,
        free_device_list: list::free_device_list,
        get_device_name: list::get_device_name,
        get_device_guid: list::get_device_guid,
        get_device_index: Some(list::get_device_index),
        open_device: context::open_device,
        close_device: context::close_device,
        get_async_event: event::get_async_event,
        ack_async_event: event::ack_async_event,
        query_device: query::query_device,
        query_port: query::query_port,
        query_port_speed: Some(query::query_port_speed),
        query_gid: query::query_gid,
        query_gid_ex: Some(query::query_gid_ex),
        query_gid_table: Some(query::query_gid_table),
        query_pkey: query::query_pkey,
        get_pkey_index: Some(query::get_pkey_index),
        alloc_pd: context::alloc_pd,
        dealloc_pd: context::dealloc_pd,
        reg_mr: memory::reg_mr,
        reg_mr_iova2: Some(memory::reg_mr_iova2),
        reg_dmabuf_mr: Some(memory::reg_dmabuf_mr),
        dereg_mr: memory::dereg_mr,
        create_comp_channel: cq::create_comp_channel,
        destroy_comp_channel: cq::destroy_comp_channel,
        get_cq_event: cq::get_cq_event,
        ack_cq_events: cq::ack_cq_events,
        create_cq: cq::create_cq,
        destroy_cq: cq::destroy_cq,
        create_qp: qp::create_qp,
        modify_qp: qp::modify_qp,
        query_qp: qp::query_qp,
        destroy_qp: qp::destroy_qp,
        query_ece: Some(qp::query_ece),
        set_ece: Some(qp::set_ece),
        fork_init: slot.fork_init,
        is_fork_initialized: Some(slot.is_fork_initialized),
    }
}

/// The functions of libmlx5, for the devices that have Data Direct.
pub(crate) const MLX5: Mlx5Functions = Mlx5Functions {
    is_supported: mlx5::is_supported,
    get_data_direct_sysfs_path: mlx5::get_data_direct_sysfs_path,
    reg_dmabuf_mr: memory::mlx5_reg_dmabuf_mr,
};

/// Takes a function out of a table.
pub(crate) fn remove(functions: &mut Functions, function: OptionalFunction) {
    match function {
        OptionalFunction::GetPkeyIndex => functions.get_pkey_index = None,
        OptionalFunction::RegMrIova2 => functions.reg_mr_iova2 = None,
        OptionalFunction::GetDeviceIndex => functions.get_device_index = None,
        OptionalFunction::Ece => {
            functions.query_ece = None;
            functions.set_ece = None;
        }
        OptionalFunction::QueryGidEx => functions.query_gid_ex = None,
        OptionalFunction::QueryGidTable => functions.query_gid_table = None,
        OptionalFunction::RegDmabufMr => functions.reg_dmabuf_mr = None,
        OptionalFunction::IsForkInitialized => functions.is_fork_initialized = None,
        OptionalFunction::QueryPortSpeed => functions.query_port_speed = None,
    }
}
