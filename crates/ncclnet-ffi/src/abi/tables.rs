//! One table struct per API version: what the symbol `ncclNetPlugin_vN` is.
//!
//! Every function is an `Option`, so that a table of a foreign plugin may be read without a promise
//! about its null pointers. "May be absent" marks those that NCCL accepts as null.

use std::ffi::c_char;

use super::functions::*;
use super::properties::{
    PropertiesV3, PropertiesV5, PropertiesV7, PropertiesV8, PropertiesV9, PropertiesV11,
    PropertiesV12,
};
use super::structs::{VirtualDeviceV9, VirtualDeviceV12};

/// Declares a table: the name, then functions in their order.
macro_rules! table {
    (
        $(#[$about:meta])*
        $table:ident {
            $($(#[$doc:meta])* $field:ident: $type:ty,)+
        }
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug)]
        #[repr(C)]
        pub struct $table {
            /// The network's name, which `NCCL_NET` selects by.
            pub name: *const c_char,
            $($(#[$doc])* pub $field: Option<$type>,)+
        }

        // SAFETY: the fields are plain values; whatever is done with a pointer in them is unsafe by
        // itself.
        unsafe impl Sync for $table {}
    };
}

table! {
    /// `ncclNet_v12_t`: NCCL 2.30 and later.
    NetV12 {
        /// Prepares the plugin; once per communicator.
        init: InitV11,
        /// Number of devices.
        devices: Devices,
        /// What a device is.
        get_properties: GetProperties<PropertiesV12>,
        /// Starts listening; fills the handle that the peer connects with.
        listen: ListenV11,
        /// Connects; null until the connection stands.
        connect: ConnectV11,
        /// Accepts; null until a connection stands.
        accept: AcceptV7,
        /// Registers memory.
        reg_mr: RegMrV8,
        /// Registers memory of a DMA-BUF. May be absent.
        reg_mr_dmabuf: RegMrDmaBuf,
        /// Deregisters memory.
        dereg_mr: DeregMr,
        /// Starts a send; a null request means: call again.
        isend: IsendV10,
        /// Starts a grouped receive; a null request means: call again.
        irecv: IrecvV10,
        /// Makes received GPU memory visible; a null request means: nothing to do.
        iflush: IflushV5,
        /// Whether a request is done, and the sizes.
        test: Test,
        /// Closes a sending communicator.
        close_send: Close,
        /// Closes a receiving communicator.
        close_recv: Close,
        /// Stops listening.
        close_listen: Close,
        /// For networks that a GPU drives. May be absent.
        get_device_mr: GetDeviceMr,
        /// For networks that a GPU drives. May be absent.
        irecv_consumed: IrecvConsumed,
        /// Makes a virtual device. May be absent.
        make_vdevice: MakeVDevice<VirtualDeviceV12>,
        /// Ends what `init` began, once per communicator.
        finalize: Close,
        /// A hint on how the network is going to be used. May be absent.
        set_net_attr: SetNetAttr,
    }
}

table! {
    /// `ncclNet_v11_t`: NCCL 2.28 and 2.29. As version 12, with other properties.
    #[allow(missing_docs, reason = "fields as in NetV12")]
    NetV11 {
        init: InitV11,
        devices: Devices,
        get_properties: GetProperties<PropertiesV11>,
        listen: ListenV11,
        connect: ConnectV11,
        accept: AcceptV7,
        reg_mr: RegMrV8,
        reg_mr_dmabuf: RegMrDmaBuf,
        dereg_mr: DeregMr,
        isend: IsendV10,
        irecv: IrecvV10,
        iflush: IflushV5,
        test: Test,
        close_send: Close,
        close_recv: Close,
        close_listen: Close,
        get_device_mr: GetDeviceMr,
        irecv_consumed: IrecvConsumed,
        make_vdevice: MakeVDevice<VirtualDeviceV9>,
        finalize: Close,
        set_net_attr: SetNetAttr,
    }
}

table! {
    /// `ncclNet_v10_t`: NCCL 2.26 and 2.27. No context, no `finalize`; `init` again is as `init` once.
    #[allow(missing_docs, reason = "fields as in NetV12")]
    NetV10 {
        init: InitV10,
        devices: Devices,
        get_properties: GetProperties<PropertiesV9>,
        listen: ListenV2,
        connect: ConnectV10,
        accept: AcceptV7,
        reg_mr: RegMrV8,
        reg_mr_dmabuf: RegMrDmaBuf,
        dereg_mr: DeregMr,
        isend: IsendV10,
        irecv: IrecvV10,
        iflush: IflushV5,
        test: Test,
        close_send: Close,
        close_recv: Close,
        close_listen: Close,
        get_device_mr: GetDeviceMr,
        irecv_consumed: IrecvConsumed,
        make_vdevice: MakeVDevice<VirtualDeviceV9>,
    }
}

table! {
    /// `ncclNet_v9_t`: NCCL 2.24 and 2.25. No traffic class, no profiler.
    #[allow(missing_docs, reason = "fields as in NetV12")]
    NetV9 {
        init: InitV2,
        devices: Devices,
        get_properties: GetProperties<PropertiesV9>,
        listen: ListenV2,
        connect: ConnectV7,
        accept: AcceptV7,
        reg_mr: RegMrV8,
        reg_mr_dmabuf: RegMrDmaBuf,
        dereg_mr: DeregMr,
        isend: IsendV9,
        irecv: IrecvV9,
        iflush: IflushV5,
        test: Test,
        close_send: Close,
        close_recv: Close,
        close_listen: Close,
        get_device_mr: GetDeviceMr,
        irecv_consumed: IrecvConsumed,
        make_vdevice: MakeVDevice<VirtualDeviceV9>,
    }
}

table! {
    /// `ncclNet_v8_t`: NCCL 2.20 to 2.23. Sizes are `int`; no virtual devices.
    #[allow(missing_docs, reason = "fields as in NetV12")]
    NetV8 {
        init: InitV2,
        devices: Devices,
        get_properties: GetProperties<PropertiesV8>,
        listen: ListenV2,
        connect: ConnectV7,
        accept: AcceptV7,
        reg_mr: RegMrV8,
        reg_mr_dmabuf: RegMrDmaBuf,
        dereg_mr: DeregMr,
        isend: IsendV5,
        irecv: IrecvV5,
        iflush: IflushV5,
        test: Test,
        close_send: Close,
        close_recv: Close,
        close_listen: Close,
        get_device_mr: GetDeviceMr,
        irecv_consumed: IrecvConsumed,
    }
}

table! {
    /// `ncclNet_v7_t`: NCCL 2.19. Memory is registered with an `int`, too.
    #[allow(missing_docs, reason = "fields as in NetV12")]
    NetV7 {
        init: InitV2,
        devices: Devices,
        get_properties: GetProperties<PropertiesV7>,
        listen: ListenV2,
        connect: ConnectV7,
        accept: AcceptV7,
        reg_mr: RegMrV2,
        reg_mr_dmabuf: RegMrDmaBuf,
        dereg_mr: DeregMr,
        isend: IsendV5,
        irecv: IrecvV5,
        iflush: IflushV5,
        test: Test,
        close_send: Close,
        close_recv: Close,
        close_listen: Close,
        get_device_mr: GetDeviceMr,
        irecv_consumed: IrecvConsumed,
    }
}

table! {
    /// `ncclNet_v6_t`: NCCL 2.13.4 to 2.18. Nothing for networks that a GPU drives.
    #[allow(missing_docs, reason = "fields as in NetV12")]
    NetV6 {
        init: InitV2,
        devices: Devices,
        get_properties: GetProperties<PropertiesV5>,
        listen: ListenV2,
        connect: ConnectV2,
        accept: AcceptV2,
        reg_mr: RegMrV2,
        reg_mr_dmabuf: RegMrDmaBuf,
        dereg_mr: DeregMr,
        isend: IsendV5,
        irecv: IrecvV5,
        iflush: IflushV5,
        test: Test,
        close_send: Close,
        close_recv: Close,
        close_listen: Close,
    }
}

table! {
    /// `ncclNet_v5_t`: NCCL 2.12. No DMA-BUF.
    #[allow(missing_docs, reason = "fields as in NetV12")]
    NetV5 {
        init: InitV2,
        devices: Devices,
        get_properties: GetProperties<PropertiesV5>,
        listen: ListenV2,
        connect: ConnectV2,
        accept: AcceptV2,
        reg_mr: RegMrV2,
        dereg_mr: DeregMr,
        isend: IsendV5,
        irecv: IrecvV5,
        iflush: IflushV5,
        test: Test,
        close_send: Close,
        close_recv: Close,
        close_listen: Close,
    }
}

table! {
    /// `ncclNet_v4_t`: NCCL 2.8.3 to 2.11. No tags, no groups; connecting and accepting may wait.
    #[allow(missing_docs, reason = "fields as in NetV12")]
    NetV4 {
        init: InitV2,
        devices: Devices,
        get_properties: GetProperties<PropertiesV3>,
        listen: ListenV2,
        connect: ConnectV2,
        accept: AcceptV2,
        reg_mr: RegMrV2,
        dereg_mr: DeregMr,
        isend: IsendV2,
        irecv: IrecvV2,
        iflush: IflushV4,
        test: Test,
        close_send: Close,
        close_recv: Close,
        close_listen: Close,
    }
}

table! {
    /// `ncclNet_v3_t`: NCCL 2.6.4 and 2.7. Flushing waits.
    #[allow(missing_docs, reason = "fields as in NetV12")]
    NetV3 {
        init: InitV2,
        devices: Devices,
        get_properties: GetProperties<PropertiesV3>,
        listen: ListenV2,
        connect: ConnectV2,
        accept: AcceptV2,
        reg_mr: RegMrV2,
        dereg_mr: DeregMr,
        isend: IsendV2,
        irecv: IrecvV2,
        flush: Flush,
        test: Test,
        close_send: Close,
        close_recv: Close,
        close_listen: Close,
    }
}

table! {
    /// `ncclNet_v2_t`: NCCL 2.4.2 to 2.5. Two functions instead of properties.
    #[allow(missing_docs, reason = "fields as in NetV12")]
    NetV2 {
        init: InitV2,
        devices: Devices,
        pci_path: PciPath,
        ptr_support: PtrSupport,
        listen: ListenV2,
        connect: ConnectV2,
        accept: AcceptV2,
        reg_mr: RegMrV2,
        dereg_mr: DeregMr,
        isend: IsendV2,
        irecv: IrecvV2,
        flush: Flush,
        test: Test,
        close_send: Close,
        close_recv: Close,
        close_listen: Close,
    }
}
