//! One table struct per API version: what the symbol `ncclNetPlugin_vN` is.
//!
//! Every function is an `Option`, so that a table of a foreign plugin may be read without a promise
//! about its null pointers. "May be absent" marks those that NCCL accepts as null. The number behind
//! each field is its offset, which is asserted.

use std::ffi::c_char;
use std::mem::offset_of;

use super::functions::*;
use super::properties::{
    PropertiesV3, PropertiesV5, PropertiesV7, PropertiesV8, PropertiesV9, PropertiesV11,
    PropertiesV12,
};
use super::structs::{VirtualDeviceV9, VirtualDeviceV12};

/// Declares a table: the name, then functions in the order of their offsets.
macro_rules! table {
    (
        $(#[$about:meta])*
        $table:ident, size $size:literal {
            $($(#[$doc:meta])* $field:ident: $type:ty, @ $offset:literal;)+
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

        const _: () = {
            assert!(size_of::<$table>() == $size && align_of::<$table>() == 8);
            assert!(offset_of!($table, name) == 0);
            $(assert!(offset_of!($table, $field) == $offset);)+
        };
    };
}

table! {
    /// `ncclNet_v12_t`: NCCL 2.30 and later.
    NetV12, size 176 {
        /// Prepares the plugin; once per communicator.
        init: InitV11, @ 8;
        /// Number of devices.
        devices: Devices, @ 16;
        /// What a device is.
        get_properties: GetProperties<PropertiesV12>, @ 24;
        /// Starts listening; fills the handle that the peer connects with.
        listen: ListenV11, @ 32;
        /// Connects; null until the connection stands.
        connect: ConnectV11, @ 40;
        /// Accepts; null until a connection stands.
        accept: AcceptV7, @ 48;
        /// Registers memory.
        reg_mr: RegMrV8, @ 56;
        /// Registers memory of a DMA-BUF. May be absent.
        reg_mr_dmabuf: RegMrDmaBuf, @ 64;
        /// Deregisters memory.
        dereg_mr: DeregMr, @ 72;
        /// Starts a send; a null request means: call again.
        isend: IsendV10, @ 80;
        /// Starts a grouped receive; a null request means: call again.
        irecv: IrecvV10, @ 88;
        /// Makes received GPU memory visible; a null request means: nothing to do.
        iflush: IflushV5, @ 96;
        /// Whether a request is done, and the sizes.
        test: Test, @ 104;
        /// Closes a sending communicator.
        close_send: Close, @ 112;
        /// Closes a receiving communicator.
        close_recv: Close, @ 120;
        /// Stops listening.
        close_listen: Close, @ 128;
        /// For networks that a GPU drives. May be absent.
        get_device_mr: GetDeviceMr, @ 136;
        /// For networks that a GPU drives. May be absent.
        irecv_consumed: IrecvConsumed, @ 144;
        /// Makes a virtual device. May be absent.
        make_vdevice: MakeVDevice<VirtualDeviceV12>, @ 152;
        /// Ends what `init` began, once per communicator.
        finalize: Close, @ 160;
        /// A hint on how the network is going to be used. May be absent.
        set_net_attr: SetNetAttr, @ 168;
    }
}

table! {
    /// `ncclNet_v11_t`: NCCL 2.28 and 2.29. As version 12, with other properties.
    #[allow(missing_docs, reason = "fields as in NetV12")]
    NetV11, size 176 {
        init: InitV11, @ 8;
        devices: Devices, @ 16;
        get_properties: GetProperties<PropertiesV11>, @ 24;
        listen: ListenV11, @ 32;
        connect: ConnectV11, @ 40;
        accept: AcceptV7, @ 48;
        reg_mr: RegMrV8, @ 56;
        reg_mr_dmabuf: RegMrDmaBuf, @ 64;
        dereg_mr: DeregMr, @ 72;
        isend: IsendV10, @ 80;
        irecv: IrecvV10, @ 88;
        iflush: IflushV5, @ 96;
        test: Test, @ 104;
        close_send: Close, @ 112;
        close_recv: Close, @ 120;
        close_listen: Close, @ 128;
        get_device_mr: GetDeviceMr, @ 136;
        irecv_consumed: IrecvConsumed, @ 144;
        make_vdevice: MakeVDevice<VirtualDeviceV9>, @ 152;
        finalize: Close, @ 160;
        set_net_attr: SetNetAttr, @ 168;
    }
}

table! {
    /// `ncclNet_v10_t`: NCCL 2.26 and 2.27. No context, no `finalize`; `init` again is as `init` once.
    #[allow(missing_docs, reason = "fields as in NetV12")]
    NetV10, size 160 {
        init: InitV10, @ 8;
        devices: Devices, @ 16;
        get_properties: GetProperties<PropertiesV9>, @ 24;
        listen: ListenV2, @ 32;
        connect: ConnectV10, @ 40;
        accept: AcceptV7, @ 48;
        reg_mr: RegMrV8, @ 56;
        reg_mr_dmabuf: RegMrDmaBuf, @ 64;
        dereg_mr: DeregMr, @ 72;
        isend: IsendV10, @ 80;
        irecv: IrecvV10, @ 88;
        iflush: IflushV5, @ 96;
        test: Test, @ 104;
        close_send: Close, @ 112;
        close_recv: Close, @ 120;
        close_listen: Close, @ 128;
        get_device_mr: GetDeviceMr, @ 136;
        irecv_consumed: IrecvConsumed, @ 144;
        make_vdevice: MakeVDevice<VirtualDeviceV9>, @ 152;
    }
}

table! {
    /// `ncclNet_v9_t`: NCCL 2.24 and 2.25. No traffic class, no profiler.
    #[allow(missing_docs, reason = "fields as in NetV12")]
    NetV9, size 160 {
        init: InitV2, @ 8;
        devices: Devices, @ 16;
        get_properties: GetProperties<PropertiesV9>, @ 24;
        listen: ListenV2, @ 32;
        connect: ConnectV7, @ 40;
        accept: AcceptV7, @ 48;
        reg_mr: RegMrV8, @ 56;
        reg_mr_dmabuf: RegMrDmaBuf, @ 64;
        dereg_mr: DeregMr, @ 72;
        isend: IsendV9, @ 80;
        irecv: IrecvV9, @ 88;
        iflush: IflushV5, @ 96;
        test: Test, @ 104;
        close_send: Close, @ 112;
        close_recv: Close, @ 120;
        close_listen: Close, @ 128;
        get_device_mr: GetDeviceMr, @ 136;
        irecv_consumed: IrecvConsumed, @ 144;
        make_vdevice: MakeVDevice<VirtualDeviceV9>, @ 152;
    }
}

table! {
    /// `ncclNet_v8_t`: NCCL 2.20 to 2.23. Sizes are `int`; no virtual devices.
    #[allow(missing_docs, reason = "fields as in NetV12")]
    NetV8, size 152 {
        init: InitV2, @ 8;
        devices: Devices, @ 16;
        get_properties: GetProperties<PropertiesV8>, @ 24;
        listen: ListenV2, @ 32;
        connect: ConnectV7, @ 40;
        accept: AcceptV7, @ 48;
        reg_mr: RegMrV8, @ 56;
        reg_mr_dmabuf: RegMrDmaBuf, @ 64;
        dereg_mr: DeregMr, @ 72;
        isend: IsendV5, @ 80;
        irecv: IrecvV5, @ 88;
        iflush: IflushV5, @ 96;
        test: Test, @ 104;
        close_send: Close, @ 112;
        close_recv: Close, @ 120;
        close_listen: Close, @ 128;
        get_device_mr: GetDeviceMr, @ 136;
        irecv_consumed: IrecvConsumed, @ 144;
    }
}

table! {
    /// `ncclNet_v7_t`: NCCL 2.19. Memory is registered with an `int`, too.
    #[allow(missing_docs, reason = "fields as in NetV12")]
    NetV7, size 152 {
        init: InitV2, @ 8;
        devices: Devices, @ 16;
        get_properties: GetProperties<PropertiesV7>, @ 24;
        listen: ListenV2, @ 32;
        connect: ConnectV7, @ 40;
        accept: AcceptV7, @ 48;
        reg_mr: RegMrV2, @ 56;
        reg_mr_dmabuf: RegMrDmaBuf, @ 64;
        dereg_mr: DeregMr, @ 72;
        isend: IsendV5, @ 80;
        irecv: IrecvV5, @ 88;
        iflush: IflushV5, @ 96;
        test: Test, @ 104;
        close_send: Close, @ 112;
        close_recv: Close, @ 120;
        close_listen: Close, @ 128;
        get_device_mr: GetDeviceMr, @ 136;
        irecv_consumed: IrecvConsumed, @ 144;
    }
}

table! {
    /// `ncclNet_v6_t`: NCCL 2.13.4 to 2.18. Nothing for networks that a GPU drives.
    #[allow(missing_docs, reason = "fields as in NetV12")]
    NetV6, size 136 {
        init: InitV2, @ 8;
        devices: Devices, @ 16;
        get_properties: GetProperties<PropertiesV5>, @ 24;
        listen: ListenV2, @ 32;
        connect: ConnectV2, @ 40;
        accept: AcceptV2, @ 48;
        reg_mr: RegMrV2, @ 56;
        reg_mr_dmabuf: RegMrDmaBuf, @ 64;
        dereg_mr: DeregMr, @ 72;
        isend: IsendV5, @ 80;
        irecv: IrecvV5, @ 88;
        iflush: IflushV5, @ 96;
        test: Test, @ 104;
        close_send: Close, @ 112;
        close_recv: Close, @ 120;
        close_listen: Close, @ 128;
    }
}

table! {
    /// `ncclNet_v5_t`: NCCL 2.12. No DMA-BUF.
    #[allow(missing_docs, reason = "fields as in NetV12")]
    NetV5, size 128 {
        init: InitV2, @ 8;
        devices: Devices, @ 16;
        get_properties: GetProperties<PropertiesV5>, @ 24;
        listen: ListenV2, @ 32;
        connect: ConnectV2, @ 40;
        accept: AcceptV2, @ 48;
        reg_mr: RegMrV2, @ 56;
        dereg_mr: DeregMr, @ 64;
        isend: IsendV5, @ 72;
        irecv: IrecvV5, @ 80;
        iflush: IflushV5, @ 88;
        test: Test, @ 96;
        close_send: Close, @ 104;
        close_recv: Close, @ 112;
        close_listen: Close, @ 120;
    }
}

table! {
    /// `ncclNet_v4_t`: NCCL 2.8.3 to 2.11. No tags, no groups; connecting and accepting may wait.
    #[allow(missing_docs, reason = "fields as in NetV12")]
    NetV4, size 128 {
        init: InitV2, @ 8;
        devices: Devices, @ 16;
        get_properties: GetProperties<PropertiesV3>, @ 24;
        listen: ListenV2, @ 32;
        connect: ConnectV2, @ 40;
        accept: AcceptV2, @ 48;
        reg_mr: RegMrV2, @ 56;
        dereg_mr: DeregMr, @ 64;
        isend: IsendV2, @ 72;
        irecv: IrecvV2, @ 80;
        iflush: IflushV4, @ 88;
        test: Test, @ 96;
        close_send: Close, @ 104;
        close_recv: Close, @ 112;
        close_listen: Close, @ 120;
    }
}

table! {
    /// `ncclNet_v3_t`: NCCL 2.6.4 and 2.7. Flushing waits.
    #[allow(missing_docs, reason = "fields as in NetV12")]
    NetV3, size 128 {
        init: InitV2, @ 8;
        devices: Devices, @ 16;
        get_properties: GetProperties<PropertiesV3>, @ 24;
        listen: ListenV2, @ 32;
        connect: ConnectV2, @ 40;
        accept: AcceptV2, @ 48;
        reg_mr: RegMrV2, @ 56;
        dereg_mr: DeregMr, @ 64;
        isend: IsendV2, @ 72;
        irecv: IrecvV2, @ 80;
        flush: Flush, @ 88;
        test: Test, @ 96;
        close_send: Close, @ 104;
        close_recv: Close, @ 112;
        close_listen: Close, @ 120;
    }
}

table! {
    /// `ncclNet_v2_t`: NCCL 2.4.2 to 2.5. Two functions instead of properties.
    #[allow(missing_docs, reason = "fields as in NetV12")]
    NetV2, size 136 {
        init: InitV2, @ 8;
        devices: Devices, @ 16;
        pci_path: PciPath, @ 24;
        ptr_support: PtrSupport, @ 32;
        listen: ListenV2, @ 40;
        connect: ConnectV2, @ 48;
        accept: AcceptV2, @ 56;
        reg_mr: RegMrV2, @ 64;
        dereg_mr: DeregMr, @ 72;
        isend: IsendV2, @ 80;
        irecv: IrecvV2, @ 88;
        flush: Flush, @ 96;
        test: Test, @ 104;
        close_send: Close, @ 112;
        close_recv: Close, @ 120;
        close_listen: Close, @ 128;
    }
}
