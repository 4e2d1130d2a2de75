//! [`Object`]: a C object that is destroyed when its owner is gone.

use std::fmt;
use std::io;
use std::os::raw::c_int;
use std::ptr::{self, NonNull};

use ibverbs_sys::{ibv_comp_channel, ibv_cq, ibv_mr, ibv_pd, ibv_qp};

use crate::context::Context;
use crate::conv;
use crate::functions::Functions;

/// What a C object is destroyed by.
pub(crate) trait Destroy: Sized {
    /// The name of the function.
    const VERB: &'static str;
    /// The function.
    fn destroy(functions: &Functions) -> unsafe extern "C" fn(*mut Self) -> c_int;
}

macro_rules! destroyed_by {
    ($($object:ty: $function:ident, $verb:literal;)*) => {
        $(impl Destroy for $object {
            const VERB: &'static str = $verb;
            fn destroy(functions: &Functions) -> unsafe extern "C" fn(*mut Self) -> c_int {
                functions.$function
            }
        })*
    };
}

destroyed_by! {
    ibv_pd: dealloc_pd, "ibv_dealloc_pd";
    ibv_mr: dereg_mr, "ibv_dereg_mr";
    ibv_comp_channel: destroy_comp_channel, "ibv_destroy_comp_channel";
    ibv_cq: destroy_cq, "ibv_destroy_cq";
    ibv_qp: destroy_qp, "ibv_destroy_qp";
}

/// A C object, destroyed on drop. What holds it holds whatever the object needs in fields that are
/// dropped after it.
pub(crate) struct Object<T: Destroy> {
    /// None once it is destroyed.
    raw: Option<NonNull<T>>,
    context: Context,
}

// SAFETY: verbs may be called from any thread (`Library::from_functions` demands it of every
// table), and the object is destroyed once, by its last owner.
unsafe impl<T: Destroy> Send for Object<T> {}
// SAFETY: as above.
unsafe impl<T: Destroy> Sync for Object<T> {}

impl<T: Destroy> Object<T> {
    /// Takes what `create` makes on this device.
    pub(crate) fn create(context: &Context, create: impl FnOnce() -> *mut T) -> io::Result<Self> {
        Ok(Self {
            raw: Some(conv::pointer(create)?),
            context: context.clone(),
        })
    }

    #[inline]
    pub(crate) fn as_raw(&self) -> *mut T {
        self.raw.map_or(ptr::null_mut(), NonNull::as_ptr)
    }

    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    /// Destroys the object, and says if that failed. It is leaked then.
    pub(crate) fn destroy(&mut self) -> io::Result<()> {
        let Some(raw) = self.raw.take() else {
            return Ok(());
        };
        if self.context.is_inherited() {
            return Ok(());
        }
        let destroy = T::destroy(self.context.functions());
        // SAFETY: the object was made by this library and is destroyed once. Everything that was
        // made from it holds it, so this is its last use.
        conv::returned(|| unsafe { destroy(raw.as_ptr()) })
    }
}

impl<T: Destroy> fmt::Debug for Object<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Object").field(&self.context).finish()
    }
}

impl<T: Destroy> Drop for Object<T> {
    fn drop(&mut self) {
        if let Err(error) = self.destroy() {
            let device = self.context.device_name();
            tracing::warn!(device, %error, "{} failed; leaked", T::VERB);
        }
    }
}
