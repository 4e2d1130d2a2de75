//! The types of the functions in the tables, each once.
//!
//! A function whose signature changed has one type per signature, named for the API version that
//! introduced it. All return at once, unless the text says otherwise: what is not ready yet is asked
//! for again by the caller.
//!
//! # Safety
//!
//! These are C functions. A caller passes pointers that are null only where the text says so, valid
//! for what is read and written through them, and keeps to NCCL's rules on threads: the data path of
//! a communicator (`isend`, `irecv`, `iflush`, `test`) belongs to one thread at a time.

use std::ffi::{c_char, c_int, c_void};

use super::callbacks::{DebugLogger, ProfilerCallback};
use super::result::NcclResult;
use super::structs::{CommConfig, DeviceHandle, NetAttributes};

/// `init` of API versions 2 to 9: `(logger)`. The logger may be null.
pub type InitV2 = unsafe extern "C" fn(Option<DebugLogger>) -> NcclResult;

/// `init` of API version 10: `(logger, profiler)`. Both may be null.
pub type InitV10 =
    unsafe extern "C" fn(Option<DebugLogger>, Option<ProfilerCallback>) -> NcclResult;

/// `init` of API versions 11 and 12, once per communicator: `(ctx, commId, config, logger,
/// profiler)`. All but `ctx` and `commId` may be null.
pub type InitV11 = unsafe extern "C" fn(
    *mut *mut c_void,
    u64,
    *mut CommConfig,
    Option<DebugLogger>,
    Option<ProfilerCallback>,
) -> NcclResult;

/// `devices`: `(ndev)`.
pub type Devices = unsafe extern "C" fn(*mut c_int) -> NcclResult;

/// `getProperties`: `(dev, props)`, with the properties of the table's version.
pub type GetProperties<P> = unsafe extern "C" fn(c_int, *mut P) -> NcclResult;

/// `pciPath` of API version 2: `(dev, path)`. The caller frees the string, with `free`.
pub type PciPath = unsafe extern "C" fn(c_int, *mut *mut c_char) -> NcclResult;

/// `ptrSupport` of API version 2: `(dev, supportedTypes)`, `PTR_*` bits.
pub type PtrSupport = unsafe extern "C" fn(c_int, *mut c_int) -> NcclResult;

/// `listen` of API versions 2 to 10: `(dev, handle, listenComm)`.
pub type ListenV2 = unsafe extern "C" fn(c_int, *mut c_void, *mut *mut c_void) -> NcclResult;

/// `listen` of API versions 11 and 12: `(ctx, dev, handle, listenComm)`.
pub type ListenV11 =
    unsafe extern "C" fn(*mut c_void, c_int, *mut c_void, *mut *mut c_void) -> NcclResult;

/// `connect` of API versions 2 to 6: `(dev, handle, sendComm)`. In versions 2 to 4 it may wait, and
/// must give a communicator.
pub type ConnectV2 = unsafe extern "C" fn(c_int, *mut c_void, *mut *mut c_void) -> NcclResult;

/// `connect` of API versions 7 to 9: `(dev, handle, sendComm, sendDevComm)`. The last may be null.
pub type ConnectV7 = unsafe extern "C" fn(
    c_int,
    *mut c_void,
    *mut *mut c_void,
    *mut *mut DeviceHandle,
) -> NcclResult;

/// `connect` of API version 10: `(dev, config, handle, sendComm, sendDevComm)`. `config` and the
/// last may be null.
pub type ConnectV10 = unsafe extern "C" fn(
    c_int,
    *mut CommConfig,
    *mut c_void,
    *mut *mut c_void,
    *mut *mut DeviceHandle,
) -> NcclResult;

/// `connect` of API versions 11 and 12: `(ctx, dev, handle, sendComm, sendDevComm)`.
pub type ConnectV11 = unsafe extern "C" fn(
    *mut c_void,
    c_int,
    *mut c_void,
    *mut *mut c_void,
    *mut *mut DeviceHandle,
) -> NcclResult;

/// `accept` of API versions 2 to 6: `(listenComm, recvComm)`. In versions 2 to 4 it may wait, and
/// must give a communicator.
pub type AcceptV2 = unsafe extern "C" fn(*mut c_void, *mut *mut c_void) -> NcclResult;

/// `accept` of API version 7 and later: `(listenComm, recvComm, recvDevComm)`. The last may be null.
pub type AcceptV7 =
    unsafe extern "C" fn(*mut c_void, *mut *mut c_void, *mut *mut DeviceHandle) -> NcclResult;

/// `regMr` of API versions 2 to 7: `(comm, data, size, type, mhandle)`.
pub type RegMrV2 =
    unsafe extern "C" fn(*mut c_void, *mut c_void, c_int, c_int, *mut *mut c_void) -> NcclResult;

/// `regMr` of API version 8 and later: the size is a `size_t`.
pub type RegMrV8 =
    unsafe extern "C" fn(*mut c_void, *mut c_void, usize, c_int, *mut *mut c_void) -> NcclResult;

/// `regMrDmaBuf` of API version 6 and later: `(comm, data, size, type, offset, fd, mhandle)`.
pub type RegMrDmaBuf = unsafe extern "C" fn(
    *mut c_void,
    *mut c_void,
    usize,
    c_int,
    u64,
    c_int,
    *mut *mut c_void,
) -> NcclResult;

/// `deregMr`: `(comm, mhandle)`. A null `mhandle` is nothing to do.
pub type DeregMr = unsafe extern "C" fn(*mut c_void, *mut c_void) -> NcclResult;

/// `isend` of API versions 2 to 4: `(sendComm, data, size, mhandle, request)`.
pub type IsendV2 = unsafe extern "C" fn(
    *mut c_void,
    *mut c_void,
    c_int,
    *mut c_void,
    *mut *mut c_void,
) -> NcclResult;

/// `isend` of API versions 5 to 8: with a tag, `(sendComm, data, size, tag, mhandle, request)`.
pub type IsendV5 = unsafe extern "C" fn(
    *mut c_void,
    *mut c_void,
    c_int,
    c_int,
    *mut c_void,
    *mut *mut c_void,
) -> NcclResult;

/// `isend` of API version 9: the size is a `size_t`.
pub type IsendV9 = unsafe extern "C" fn(
    *mut c_void,
    *mut c_void,
    usize,
    c_int,
    *mut c_void,
    *mut *mut c_void,
) -> NcclResult;

/// `isend` of API versions 10 to 12: with the profiler's parent, which may be null, before the request.
pub type IsendV10 = unsafe extern "C" fn(
    *mut c_void,
    *mut c_void,
    usize,
    c_int,
    *mut c_void,
    *mut c_void,
    *mut *mut c_void,
) -> NcclResult;

/// `irecv` of API versions 2 to 4: one buffer, `(recvComm, data, size, mhandle, request)`.
pub type IrecvV2 = unsafe extern "C" fn(
    *mut c_void,
    *mut c_void,
    c_int,
    *mut c_void,
    *mut *mut c_void,
) -> NcclResult;

/// `irecv` of API versions 5 to 8: `(recvComm, n, data, sizes, tags, mhandles, request)`.
pub type IrecvV5 = unsafe extern "C" fn(
    *mut c_void,
    c_int,
    *mut *mut c_void,
    *mut c_int,
    *mut c_int,
    *mut *mut c_void,
    *mut *mut c_void,
) -> NcclResult;

/// `irecv` of API version 9: sizes are `size_t`.
pub type IrecvV9 = unsafe extern "C" fn(
    *mut c_void,
    c_int,
    *mut *mut c_void,
    *mut usize,
    *mut c_int,
    *mut *mut c_void,
    *mut *mut c_void,
) -> NcclResult;

/// `irecv` of API versions 10 to 12: with the profiler's parents before the request. The array and
/// each of its elements may be null.
pub type IrecvV10 = unsafe extern "C" fn(
    *mut c_void,
    c_int,
    *mut *mut c_void,
    *mut usize,
    *mut c_int,
    *mut *mut c_void,
    *mut *mut c_void,
    *mut *mut c_void,
) -> NcclResult;

/// `flush` of API versions 2 and 3: `(recvComm, data, size, mhandle)`. It returns when the data can be
/// seen.
pub type Flush = unsafe extern "C" fn(*mut c_void, *mut c_void, c_int, *mut c_void) -> NcclResult;

/// `iflush` of API version 4: `(recvComm, data, size, mhandle, request)`.
pub type IflushV4 = unsafe extern "C" fn(
    *mut c_void,
    *mut c_void,
    c_int,
    *mut c_void,
    *mut *mut c_void,
) -> NcclResult;

/// `iflush` of API version 5 and later: `(recvComm, n, data, sizes, mhandles, request)`. The sizes are
/// `int` in every version.
pub type IflushV5 = unsafe extern "C" fn(
    *mut c_void,
    c_int,
    *mut *mut c_void,
    *mut c_int,
    *mut *mut c_void,
    *mut *mut c_void,
) -> NcclResult;

/// `test`: `(request, done, sizes)`. `sizes` may be null.
pub type Test = unsafe extern "C" fn(*mut c_void, *mut c_int, *mut c_int) -> NcclResult;

/// `closeSend`, `closeRecv`, `closeListen`, `finalize`: `(what)`.
pub type Close = unsafe extern "C" fn(*mut c_void) -> NcclResult;

/// `getDeviceMr`: `(comm, mhandle, dptr_mhandle)`.
pub type GetDeviceMr =
    unsafe extern "C" fn(*mut c_void, *mut c_void, *mut *mut c_void) -> NcclResult;

/// `irecvConsumed`: `(recvComm, n, request)`.
pub type IrecvConsumed = unsafe extern "C" fn(*mut c_void, c_int, *mut c_void) -> NcclResult;

/// `makeVDevice`: `(d, props)`, with the virtual device of the table's version.
pub type MakeVDevice<V> = unsafe extern "C" fn(*mut c_int, *mut V) -> NcclResult;

/// `setNetAttr`: `(ctx, netAttr)`.
pub type SetNetAttr = unsafe extern "C" fn(*mut c_void, *mut NetAttributes) -> NcclResult;
