//! C structures that the generated bindings lack.
//!
//! Both are part of the ABI between libibverbs and its users. They are public because code that
//! provides a [`Functions`](crate::Functions) table from inside the process (a simulator, a
//! test) has to hand out contexts and completions of exactly these shapes.

use std::mem::offset_of;
use std::os::raw::{c_int, c_void};

use ibverbs_sys::{ibv_context, ibv_port_attr, ibv_wc};

/// `abi_compat` of an [`ibv_context`] that lies at the end of a [`VerbsContext`].
pub const EXTENDED_ABI: usize = usize::MAX;

/// The extended operation `query_port` of [`VerbsContext`]. Returns 0 or an errno.
///
/// The last argument is the size of the caller's structure: only that many bytes are written.
pub type QueryPort = unsafe extern "C" fn(
    context: *mut ibv_context,
    port: u8,
    attributes: *mut ibv_port_attr,
    size: usize,
) -> c_int;

/// `struct verbs_context`: the table of extended operations around an `ibv_context`.
///
/// Users of libibverbs hold a pointer to the last field. The structure grows at the *front*, so
/// a library older than this definition has allocated less memory: nothing before
/// [`size`](Self::size) may be read unless `size` reaches it.
#[repr(C)]
pub struct VerbsContext {
    /// Queries a port with all fields that the library knows, unlike the exported function.
    pub query_port: Option<QueryPort>,
    /// The other extended operations, from `advise_mr` to `close_xrcd`, which this crate does
    /// not call.
    pub others: [*mut c_void; 37],
    /// A field whose meaning was retired.
    pub placeholder: u64,
    /// How many bytes the library allocated, counted from the end of the structure.
    pub size: usize,
    /// What users hold a pointer to.
    pub context: ibv_context,
}

impl VerbsContext {
    /// The extended `query_port` of a context, if the library provides it.
    ///
    /// This is `verbs_get_ctx_op(context, query_port)` of the C headers: the context must say
    /// that it is extended, its size must reach the operation, and the operation must be there.
    ///
    /// # Safety
    ///
    /// `context` points to a live context that `ibv_open_device` returned. If its `abi_compat`
    /// is [`EXTENDED_ABI`], it is the last field of a `VerbsContext` of at least `size` bytes.
    pub unsafe fn query_port_of(context: *mut ibv_context) -> Option<QueryPort> {
        // SAFETY: the caller guarantees a live context. The same holds below: `size` is read only
        // from an extended context, and `query_port` only if `size` says that it exists.
        // No reference is made to the structure, because part of it may not be allocated.
        unsafe {
            if (&raw const (*context).abi_compat).read() as usize != EXTENDED_ABI {
                return None;
            }
            let extended = context.byte_sub(offset_of!(Self, context)).cast::<Self>();
            let size = (&raw const (*extended).size).read();
            if size < size_of::<Self>() - offset_of!(Self, query_port) {
                return None;
            }
            (&raw const (*extended).query_port).read()
        }
    }
}

/// A writable `struct ibv_wc`, the form in which a driver reports a completion.
///
/// The generated binding of `ibv_wc` has private fields. A driver inside the process writes its
/// completions through this structure, which has the same layout.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct RawCompletion {
    /// The work request's identifier.
    pub wr_id: u64,
    /// An `IBV_WC_*` status.
    pub status: u32,
    /// An `IBV_WC_*` opcode.
    pub opcode: u32,
    /// The vendor's own error code.
    pub vendor_err: u32,
    /// Bytes received, or read.
    pub byte_len: u32,
    /// The immediate value, big-endian.
    pub imm_data: u32,
    /// The number of the queue pair that the request was posted to.
    pub qp_num: u32,
    /// The sender's queue pair (unreliable datagrams only).
    pub src_qp: u32,
    /// `IBV_WC_WITH_IMM` and others.
    pub wc_flags: u32,
    /// P_Key index (GSI queue pairs only).
    pub pkey_index: u16,
    /// The sender's LID (unreliable datagrams only).
    pub slid: u16,
    /// Service level (unreliable datagrams only).
    pub sl: u8,
    /// Path bits (unreliable datagrams only).
    pub dlid_path_bits: u8,
}

// `others` really spans what the C structure has there: 37 pointers, one 64-bit placeholder and
// the size lie between `query_port` and the context.
const _: () = {
    assert!(offset_of!(VerbsContext, query_port) == 0);
    assert!(offset_of!(VerbsContext, others) == 8);
    assert!(offset_of!(VerbsContext, placeholder) == 304);
    assert!(offset_of!(VerbsContext, size) == 312);
    assert!(offset_of!(VerbsContext, context) == 320);
    assert!(size_of::<VerbsContext>() == 320 + size_of::<ibv_context>());
    assert!(size_of::<ibv_context>() == 328);
};

const _: () = {
    assert!(size_of::<RawCompletion>() == size_of::<ibv_wc>());
    assert!(align_of::<RawCompletion>() == align_of::<ibv_wc>());
    assert!(size_of::<RawCompletion>() == 48);
    assert!(offset_of!(RawCompletion, wr_id) == 0);
    assert!(offset_of!(RawCompletion, status) == 8);
    assert!(offset_of!(RawCompletion, opcode) == 12);
    assert!(offset_of!(RawCompletion, vendor_err) == 16);
    assert!(offset_of!(RawCompletion, byte_len) == 20);
    assert!(offset_of!(RawCompletion, imm_data) == offset_of!(ibv_wc, imm_data));
    assert!(offset_of!(RawCompletion, qp_num) == offset_of!(ibv_wc, qp_num));
    assert!(offset_of!(RawCompletion, src_qp) == offset_of!(ibv_wc, src_qp));
    assert!(offset_of!(RawCompletion, wc_flags) == offset_of!(ibv_wc, wc_flags));
    assert!(offset_of!(RawCompletion, pkey_index) == offset_of!(ibv_wc, pkey_index));
    assert!(offset_of!(RawCompletion, slid) == offset_of!(ibv_wc, slid));
    assert!(offset_of!(RawCompletion, sl) == offset_of!(ibv_wc, sl));
    assert!(offset_of!(RawCompletion, dlid_path_bits) == offset_of!(ibv_wc, dlid_path_bits));
};
