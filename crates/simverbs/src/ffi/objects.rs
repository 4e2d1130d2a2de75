//! The objects behind the handles: C structures with what the simulator needs to know behind them.

use std::mem::{MaybeUninit, offset_of};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use ibnet_verbs::layout::VerbsContext;
use ibnet_verbs::sys::{ibv_comp_channel, ibv_context, ibv_cq, ibv_device, ibv_mr, ibv_pd, ibv_qp};

use crate::engine::slab::{ChannelId, ContextId, CqId, DeviceId, PdId, QpId, RegionId};
use crate::shared::Shared;

/// A device of a list, shared by the list and by the contexts that were opened from it.
#[repr(C)]
pub(crate) struct SimDevice {
    pub(crate) raw: ibv_device,
    pub(crate) shared: Arc<Shared>,
    pub(crate) id: DeviceId,
}

/// An open device. Users hold a pointer to the last field of `raw`.
#[repr(C)]
pub(crate) struct SimContext {
    pub(crate) raw: VerbsContext,
    pub(crate) shared: Arc<Shared>,
    pub(crate) id: ContextId,
    pub(crate) device: Arc<SimDevice>,
}

#[repr(C)]
pub(crate) struct SimPd {
    pub(crate) raw: ibv_pd,
    pub(crate) shared: Arc<Shared>,
    pub(crate) id: PdId,
}

#[repr(C)]
pub(crate) struct SimMr {
    pub(crate) raw: ibv_mr,
    pub(crate) shared: Arc<Shared>,
    pub(crate) id: RegionId,
    pub(crate) device: DeviceId,
}

#[repr(C)]
pub(crate) struct SimChannel {
    pub(crate) raw: ibv_comp_channel,
    pub(crate) shared: Arc<Shared>,
    pub(crate) id: ChannelId,
}

#[repr(C)]
pub(crate) struct SimCq {
    pub(crate) raw: ibv_cq,
    pub(crate) shared: Arc<Shared>,
    pub(crate) id: CqId,
    /// How many completions can be polled.
    pub(crate) available: Arc<AtomicUsize>,
}

#[repr(C)]
pub(crate) struct SimQp {
    pub(crate) raw: ibv_qp,
    pub(crate) shared: Arc<Shared>,
    pub(crate) id: QpId,
}

/// A C structure that all zeros are a valid value of.
///
/// # Safety
///
/// All zeros are a valid value.
pub(crate) unsafe trait Zeroed: Sized {
    fn zeroed() -> Self {
        // SAFETY: each implementation of the trait guarantees it.
        unsafe { MaybeUninit::zeroed().assume_init() }
    }
}

// SAFETY: these structures consist of numbers, pointers, optional function pointers, and pthread
// objects, of which glibc defines zeros as the initial value.
unsafe impl Zeroed for ibv_device {}
// SAFETY: as above.
unsafe impl Zeroed for VerbsContext {}
// SAFETY: as above.
unsafe impl Zeroed for ibv_cq {}
// SAFETY: as above.
unsafe impl Zeroed for ibv_qp {}

/// The object that a handle points to.
///
/// The reference is to what lies behind the C structure, never to that structure itself, parts of
/// which the program and other threads may change.
macro_rules! object {
    ($handle:expr => $object:ty { $($field:ident),+ $(,)? }) => {{
        let object = $handle.cast::<$object>();
        // SAFETY: the caller's handle, so that the object is alive. These fields do not change as
        // long as it is.
        unsafe { ($( &(*object).$field, )+) }
    }};
}
pub(crate) use object;

/// The whole context around the `ibv_context` that users hold.
pub(crate) fn context_of(handle: *mut ibv_context) -> *mut SimContext {
    handle
        .wrapping_byte_sub(offset_of!(SimContext, raw.context))
        .cast()
}
