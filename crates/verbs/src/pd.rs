//! [`ProtectionDomain`]: what keeps memory and queue pairs of one user together.

use std::sync::Arc;

use ibverbs_sys::ibv_pd;

use crate::context::Context;
use crate::error::Error;
use crate::object::Object;
use crate::operation::Operation;

/// A protection domain (`struct ibv_pd`): queue pairs can reach only memory of their own domain.
///
/// Clones are cheap and mean the same domain.
#[derive(Clone, Debug)]
pub struct ProtectionDomain(Arc<Object<ibv_pd>>);

impl Context {
    /// Makes a protection domain (ibv_alloc_pd(3)).
    pub fn allocate_pd(&self) -> Result<ProtectionDomain, Error> {
        let alloc_pd = self.functions().alloc_pd;
        // SAFETY: the context is open.
        Object::create(self, || unsafe { alloc_pd(self.as_raw()) })
            .map(|pd| ProtectionDomain(Arc::new(pd)))
            .map_err(|source| self.error(Operation::AllocatePd, source))
    }
}

impl ProtectionDomain {
    /// The open device that the domain is of.
    pub fn context(&self) -> &Context {
        self.0.context()
    }

    /// Whether both mean the same domain.
    pub fn ptr_eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The C object. It is valid for as long as this domain, a clone of it, or anything made from
    /// it.
    pub fn as_raw(&self) -> *mut ibv_pd {
        self.0.as_raw()
    }
}
