//! The tables that NCCL finds by their names, one for each version of its interface. Nothing is decided here.
//!
//! A function whose signature changed is named for the version that introduced it, as its type in
//! [`abi`](crate::abi) is.

use std::ffi::{c_char, c_int};

use crate::abi::*;
use crate::{connect, data, flush, lifecycle, memory, query};

/// The network's name: what `NCCL_NET` selects by. None of NCCL's or RCCL's own networks has it.
const NAME: *const c_char = c"IBNET".as_ptr();

/// A table: what is the same in all versions, and the rest. NCCL uses it in place: it is never written.
macro_rules! table {
    ($(#[$about:meta])* pub static $symbol:ident: $table:ident = {
        $($field:ident: $function:expr,)+
    }) => {
        $(#[$about])*
        #[allow(non_upper_case_globals, reason = "the name that NCCL asks for")]
        #[unsafe(no_mangle)]
        pub static $symbol: $table = $table {
            name: NAME,
            devices: Some(query::devices),
            dereg_mr: Some(memory::dereg_mr),
            test: Some(data::test),
            close_send: Some(connect::close_send),
            close_recv: Some(connect::close_recv),
            close_listen: Some(connect::close_listen),
            $($field: $function,)+
        };
    };
}

table! {
    /// API version 12, of NCCL 2.30: the newest.
    pub static ncclNetPlugin_v12: NetV12 = {
        init: Some(lifecycle::init_v11::<12>),
        get_properties: Some(query::get_properties::<PropertiesV12>),
        listen: Some(connect::listen_v11),
        connect: Some(connect::connect_v11),
        accept: Some(connect::accept_v7),
        reg_mr: Some(memory::reg_mr::<usize>),
        reg_mr_dmabuf: Some(memory::reg_mr_dmabuf),
        isend: Some(data::isend_v10::<usize>),
        irecv: Some(data::irecv_v10::<usize>),
        iflush: Some(flush::iflush),
        // For networks that a GPU drives, like the next one.
        get_device_mr: None,
        irecv_consumed: None,
        make_vdevice: Some(query::make_vdevice_v12),
        finalize: Some(lifecycle::finalize),
        // A hint that nothing here depends on: without it NCCL saves the call.
        set_net_attr: None,
    }
}

table! {
    /// API version 11, of NCCL 2.28 and 2.29: the first with a context per communicator.
    pub static ncclNetPlugin_v11: NetV11 = {
        init: Some(lifecycle::init_v11::<11>),
        get_properties: Some(query::get_properties::<PropertiesV11>),
        listen: Some(connect::listen_v11),
        connect: Some(connect::connect_v11),
        accept: Some(connect::accept_v7),
        reg_mr: Some(memory::reg_mr::<usize>),
        reg_mr_dmabuf: Some(memory::reg_mr_dmabuf),
        isend: Some(data::isend_v10::<usize>),
        irecv: Some(data::irecv_v10::<usize>),
        iflush: Some(flush::iflush),
        get_device_mr: None,
        irecv_consumed: None,
        make_vdevice: Some(query::make_vdevice_v9),
        finalize: Some(lifecycle::finalize),
        set_net_attr: None,
    }
}

table! {
    /// API version 10, of NCCL 2.26 and 2.27: no context; the configuration comes with `connect`.
    pub static ncclNetPlugin_v10: NetV10 = {
        init: Some(lifecycle::init_v10),
        get_properties: Some(query::get_properties::<PropertiesV9>),
        listen: Some(connect::listen_v2::<false>),
        connect: Some(connect::connect_v10),
        accept: Some(connect::accept_v7),
        reg_mr: Some(memory::reg_mr::<usize>),
        reg_mr_dmabuf: Some(memory::reg_mr_dmabuf),
        isend: Some(data::isend_v10::<usize>),
        irecv: Some(data::irecv_v10::<usize>),
        iflush: Some(flush::iflush),
        get_device_mr: None,
        irecv_consumed: None,
        make_vdevice: Some(query::make_vdevice_v9),
    }
}

table! {
    /// API version 9, of NCCL 2.24 and 2.25: no configuration, no profiler; virtual devices are new.
    pub static ncclNetPlugin_v9: NetV9 = {
        init: Some(lifecycle::init_v2::<9>),
        get_properties: Some(query::get_properties::<PropertiesV9>),
        listen: Some(connect::listen_v2::<false>),
        connect: Some(connect::connect_v7),
        accept: Some(connect::accept_v7),
        reg_mr: Some(memory::reg_mr::<usize>),
        reg_mr_dmabuf: Some(memory::reg_mr_dmabuf),
        isend: Some(data::isend_v5::<usize>),
        irecv: Some(data::irecv_v5::<usize>),
        iflush: Some(flush::iflush),
        get_device_mr: None,
        irecv_consumed: None,
        make_vdevice: Some(query::make_vdevice_v9),
    }
}

table! {
    /// API version 8, of NCCL 2.20 to 2.23: sizes of messages are `int`; no virtual devices.
    pub static ncclNetPlugin_v8: NetV8 = {
        init: Some(lifecycle::init_v2::<8>),
        get_properties: Some(query::get_properties::<PropertiesV8>),
        listen: Some(connect::listen_v2::<false>),
        connect: Some(connect::connect_v7),
        accept: Some(connect::accept_v7),
        reg_mr: Some(memory::reg_mr::<usize>),
        reg_mr_dmabuf: Some(memory::reg_mr_dmabuf),
        isend: Some(data::isend_v5::<c_int>),
        irecv: Some(data::irecv_v5::<c_int>),
        iflush: Some(flush::iflush),
        get_device_mr: None,
        irecv_consumed: None,
    }
}

table! {
    /// API version 7, of NCCL 2.19: registered memory has a size of `int`, too.
    pub static ncclNetPlugin_v7: NetV7 = {
        init: Some(lifecycle::init_v2::<7>),
        get_properties: Some(query::get_properties::<PropertiesV7>),
        listen: Some(connect::listen_v2::<false>),
        connect: Some(connect::connect_v7),
        accept: Some(connect::accept_v7),
        reg_mr: Some(memory::reg_mr::<c_int>),
        reg_mr_dmabuf: Some(memory::reg_mr_dmabuf),
        isend: Some(data::isend_v5::<c_int>),
        irecv: Some(data::irecv_v5::<c_int>),
        iflush: Some(flush::iflush),
        get_device_mr: None,
        irecv_consumed: None,
    }
}

table! {
    /// API version 6, of NCCL 2.13.4 to 2.18: no device handles.
    pub static ncclNetPlugin_v6: NetV6 = {
        init: Some(lifecycle::init_v2::<6>),
        get_properties: Some(query::get_properties::<PropertiesV5>),
        listen: Some(connect::listen_v2::<false>),
        connect: Some(connect::connect_v2::<false>),
        accept: Some(connect::accept_v2),
        reg_mr: Some(memory::reg_mr::<c_int>),
        reg_mr_dmabuf: Some(memory::reg_mr_dmabuf),
        isend: Some(data::isend_v5::<c_int>),
        irecv: Some(data::irecv_v5::<c_int>),
        iflush: Some(flush::iflush),
    }
}

table! {
    /// API version 5, of NCCL 2.12: no DMA-BUF, and no `ncclRemoteError`.
    pub static ncclNetPlugin_v5: NetV5 = {
        init: Some(lifecycle::init_v2::<5>),
        get_properties: Some(query::get_properties_v5),
        listen: Some(connect::listen_v2::<false>),
        connect: Some(connect::connect_v2::<false>),
        accept: Some(connect::accept_v2),
        reg_mr: Some(memory::reg_mr::<c_int>),
        isend: Some(data::isend_v5::<c_int>),
        irecv: Some(data::irecv_v5::<c_int>),
        iflush: Some(flush::iflush),
    }
}

table! {
    /// API version 4, of NCCL 2.8.3 to 2.11: no tags and no groups; `connect` and `accept` give a communicator,
    /// and wait for it; handles have 64 bytes.
    pub static ncclNetPlugin_v4: NetV4 = {
        init: Some(lifecycle::init_v2::<4>),
        get_properties: Some(query::get_properties_v3),
        listen: Some(connect::listen_v2::<true>),
        connect: Some(connect::connect_v2::<true>),
        accept: Some(connect::accept_v2),
        reg_mr: Some(memory::reg_mr::<c_int>),
        isend: Some(data::isend_v2),
        irecv: Some(data::irecv_v2),
        iflush: Some(flush::iflush_v4),
    }
}

table! {
    /// API version 3, of NCCL 2.6.4 and 2.7: `flush` waits.
    pub static ncclNetPlugin_v3: NetV3 = {
        init: Some(lifecycle::init_v2::<3>),
        get_properties: Some(query::get_properties_v3),
        listen: Some(connect::listen_v2::<true>),
        connect: Some(connect::connect_v2::<true>),
        accept: Some(connect::accept_v2),
        reg_mr: Some(memory::reg_mr::<c_int>),
        isend: Some(data::isend_v2),
        irecv: Some(data::irecv_v2),
        flush: Some(flush::flush_v2),
    }
}

table! {
    /// API version 2, of NCCL 2.4.2 to 2.5: two functions instead of properties.
    pub static ncclNetPlugin_v2: NetV2 = {
        init: Some(lifecycle::init_v2::<2>),
        pci_path: Some(query::pci_path),
        ptr_support: Some(query::ptr_support),
        listen: Some(connect::listen_v2::<true>),
        connect: Some(connect::connect_v2::<true>),
        accept: Some(connect::accept_v2),
        reg_mr: Some(memory::reg_mr::<c_int>),
        isend: Some(data::isend_v2),
        irecv: Some(data::irecv_v2),
        flush: Some(flush::flush_v2),
    }
}
