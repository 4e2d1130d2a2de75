//! An end of a connection, and memory that is registered with it.
//!
//! What may be done with them when is the caller's business, as it is NCCL's. Two gates are unsafe for
//! that reason: memory must stay mapped while it is registered, and untouched while a request uses it.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::rc::Rc;

use ncclnet_ffi::abi::PTR_HOST;

use super::network::{Network, report};
use super::table::{Irecv, Isend, RegMr, check};
use super::{Error, Result};

/// Largest number of buffers in one receive that is dealt with here.
pub(crate) const MAX_GROUP: usize = 8;

/// A request under way.
pub(crate) type Request = *mut c_void;

/// Which end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The sending one.
    Send,
    /// The receiving one.
    Receive,
}

/// An end of a connection; closed once it and all that is registered with it are dropped.
pub(crate) struct Comm(Rc<Open>);

struct Open {
    network: Network,
    raw: *mut c_void,
    kind: Kind,
}

/// A registration; given back on drop.
pub(crate) struct Memory {
    comm: Rc<Open>,
    raw: *mut c_void,
}

impl Comm {
    /// An end that the network has just made.
    pub(super) fn new(network: Network, raw: *mut c_void, kind: Kind) -> Self {
        Self(Rc::new(Open { network, raw, kind }))
    }

    /// The network that it belongs to.
    pub(crate) fn network(&self) -> &Network {
        &self.0.network
    }

    /// Which end it is.
    pub(crate) fn kind(&self) -> Kind {
        self.0.kind
    }

    /// Registers host memory.
    ///
    /// # Safety
    ///
    /// The memory stays mapped until the registration is dropped.
    pub(crate) unsafe fn register(&self, address: *mut u8, length: usize) -> Result<Memory> {
        let mut raw = ptr::null_mut();
        let (data, place) = (address.cast(), &raw mut raw);
        let result = match self.0.network.0.cold.reg_mr {
            // SAFETY: the connection is open; the caller promises the memory.
            RegMr::V8(reg_mr) => unsafe { reg_mr(self.0.raw, data, length, PTR_HOST, place) },
            RegMr::V2(reg_mr) => {
                let length = c_int::try_from(length).map_err(|_| too_long(length))?;
                // SAFETY: as above.
                unsafe { reg_mr(self.0.raw, data, length, PTR_HOST, place) }
            }
        };
        check("regMr", result)?;
        Ok(Memory {
            comm: Rc::clone(&self.0),
            raw,
        })
    }

    /// Starts sending; `None` means: again.
    ///
    /// # Safety
    ///
    /// This is a sending end. The memory is within the registration, and not written to until the
    /// request is done.
    #[inline]
    pub(crate) unsafe fn isend(
        &self,
        address: *mut u8,
        length: usize,
        tag: c_int,
        memory: &Memory,
    ) -> Result<Option<Request>> {
        debug_assert_eq!(self.0.kind, Kind::Send);
        let mut request = ptr::null_mut();
        let place = &raw mut request;
        let data = address.cast();
        let result = match self.0.network.0.hot.isend {
            Isend::V10(isend) => {
                // SAFETY: the connection is open; the caller promises the memory.
                unsafe {
                    isend(
                        self.0.raw,
                        data,
                        length,
                        tag,
                        memory.raw,
                        ptr::null_mut(),
                        place,
                    )
                }
            }
            Isend::V9(isend) => {
                // SAFETY: as above.
                unsafe { isend(self.0.raw, data, length, tag, memory.raw, place) }
            }
            Isend::V5(isend) => {
                let length = c_int::try_from(length).map_err(|_| too_long(length))?;
                // SAFETY: as above.
                unsafe { isend(self.0.raw, data, length, tag, memory.raw, place) }
            }
        };
        check("isend", result)?;
        Ok((!request.is_null()).then_some(request))
    }

    /// Starts receiving into `count` buffers of one length, which lie one after the other and whose
    /// tags count from `first_tag`; `None` means: again.
    ///
    /// # Safety
    ///
    /// This is a receiving end. The memory is within the registration, and not touched until the
    /// request is done.
    #[inline]
    pub(crate) unsafe fn irecv(
        &self,
        address: *mut u8,
        length: usize,
        count: usize,
        first_tag: c_int,
        memory: &Memory,
    ) -> Result<Option<Request>> {
        debug_assert_eq!(self.0.kind, Kind::Receive);
        let mut data = [ptr::null_mut(); MAX_GROUP];
        let mut sizes = [length; MAX_GROUP];
        let mut tags = [first_tag; MAX_GROUP];
        let mut memories = [memory.raw; MAX_GROUP];
        for (index, (data, tag)) in data.iter_mut().zip(&mut tags).take(count).enumerate() {
            *data = address.wrapping_add(index * length).cast();
            // A group has at most eight buffers.
            *tag += index as c_int;
        }
        let mut request = ptr::null_mut();
        let place = &raw mut request;
        // A group has at most eight buffers.
        let number = count.min(MAX_GROUP) as c_int;
        let (data, tags) = (data.as_mut_ptr(), tags.as_mut_ptr());
        let memories = memories.as_mut_ptr();
        let result = match self.0.network.0.hot.irecv {
            Irecv::V10(irecv) => {
                let mut parents = [ptr::null_mut(); MAX_GROUP];
                let (sizes, parents) = (sizes.as_mut_ptr(), parents.as_mut_ptr());
                // SAFETY: the connection is open; the caller promises the memory; the arrays have
                // `number` entries and more.
                unsafe {
                    irecv(
                        self.0.raw, number, data, sizes, tags, memories, parents, place,
                    )
                }
            }
            Irecv::V9(irecv) => {
                // SAFETY: as above.
                unsafe {
                    irecv(
                        self.0.raw,
                        number,
                        data,
                        sizes.as_mut_ptr(),
                        tags,
                        memories,
                        place,
                    )
                }
            }
            Irecv::V5(irecv) => {
                let length = c_int::try_from(length).map_err(|_| too_long(length))?;
                let mut sizes = [length; MAX_GROUP];
                // SAFETY: as above.
                unsafe {
                    irecv(
                        self.0.raw,
                        number,
                        data,
                        sizes.as_mut_ptr(),
                        tags,
                        memories,
                        place,
                    )
                }
            }
        };
        check("irecv", result)?;
        Ok((!request.is_null()).then_some(request))
    }
}

fn too_long(length: usize) -> Error {
    Error::Refused(format!(
        "{length} bytes are more than this version of the interface takes at once"
    ))
}

impl Drop for Open {
    fn drop(&mut self) {
        let cold = &self.network.0.cold;
        match self.kind {
            // SAFETY: the connection is open, and used for the last time.
            Kind::Send => report("closeSend", unsafe { (cold.close_send)(self.raw) }),
            // SAFETY: as above.
            Kind::Receive => report("closeRecv", unsafe { (cold.close_recv)(self.raw) }),
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let dereg_mr = self.comm.network.0.cold.dereg_mr;
        // SAFETY: the connection is open, and the registration is used for the last time.
        report("deregMr", unsafe { dereg_mr(self.comm.raw, self.raw) });
    }
}
