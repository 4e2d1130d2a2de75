//! The numbers that stand for objects and requests, packed into the size of a pointer.
//!
//! ```text
//! bits    63..60   59..28                27..0
//! object  kind     generation            index
//!
//! bits    63..60   59..42   41..32                31..0
//! request kind     index    generation (low bits) RequestId
//!                  \ of the communicator /
//! ```
//!
//! No kind is 0 and none is 15. So no token is null, none equals 1 (which NCCL uses as a mark in
//! `irecv`), and no address of a user program, nor memory full of ones, looks like a token.

use std::ffi::c_void;
use std::ptr;

use super::error::{Expected, HandleError};
use super::kind::Kind;

/// Communicators of one direction that may exist at a time. Bounded by the bits of a request token.
pub(crate) const MAX_COMMUNICATORS: u32 = 1 << REQUEST_INDEX_BITS;

const KIND_SHIFT: u32 = 60;

const OBJECT_INDEX_BITS: u32 = 28;

const REQUEST_ID_BITS: u32 = 32;
const REQUEST_GENERATION_BITS: u32 = 10;
const REQUEST_INDEX_BITS: u32 = 18;

const _: () = assert!(OBJECT_INDEX_BITS + 32 == KIND_SHIFT);
const _: () = assert!(REQUEST_ID_BITS + REQUEST_GENERATION_BITS + REQUEST_INDEX_BITS == KIND_SHIFT);

/// An object in one of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ObjectId {
    pub(crate) kind: Kind,
    /// Slot in the table of its kind, below 2^28.
    pub(crate) index: u32,
    /// Which of the objects that used the slot one after another.
    pub(crate) generation: u32,
}

impl ObjectId {
    /// The value for C.
    #[inline]
    pub(crate) fn to_pointer(self) -> *mut c_void {
        to_pointer(
            self.kind,
            u64::from(self.generation) << OBJECT_INDEX_BITS | u64::from(self.index),
        )
    }

    /// Reads a value from C that should be an object of `kind`.
    #[inline]
    pub(crate) fn from_pointer(value: *mut c_void, kind: Kind) -> Result<Self, HandleError> {
        let bits = value.addr() as u64;
        if bits >> KIND_SHIFT == kind as u64 {
            Ok(Self::new(kind, bits))
        } else {
            Err(refusal(value, Expected::Kind(kind)))
        }
    }

    /// Reads a value from C that should be a sending or receiving communicator.
    pub(crate) fn communicator(value: *mut c_void) -> Result<Self, HandleError> {
        let bits = value.addr() as u64;
        match Kind::from_bits(bits >> KIND_SHIFT) {
            Some(kind @ (Kind::Sender | Kind::Receiver)) => Ok(Self::new(kind, bits)),
            _ => Err(refusal(value, Expected::Communicator)),
        }
    }

    #[inline]
    fn new(kind: Kind, bits: u64) -> Self {
        Self {
            kind,
            index: low_bits(bits, OBJECT_INDEX_BITS),
            generation: low_bits(bits >> OBJECT_INDEX_BITS, 32),
        }
    }
}

/// A request of a communicator. `test` gets nothing else, so this names the communicator too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequestToken {
    /// [`Kind::SendRequest`] or [`Kind::ReceiveRequest`].
    pub(crate) kind: Kind,
    /// Slot of the communicator.
    pub(crate) index: u32,
    /// The low bits of the communicator's generation: see [`Self::GENERATION_MASK`].
    pub(crate) generation: u32,
    /// The transport's own id of the request, which has a generation too.
    pub(crate) request: u32,
}

impl RequestToken {
    /// The bits of a generation that a request keeps.
    pub(crate) const GENERATION_MASK: u32 = (1 << REQUEST_GENERATION_BITS) - 1;

    /// The token of request `request` of communicator `communicator`.
    #[inline]
    pub(crate) fn new(kind: Kind, communicator: ObjectId, request: u32) -> Self {
        debug_assert!(communicator.index < MAX_COMMUNICATORS);
        Self {
            kind,
            index: communicator.index,
            generation: communicator.generation & Self::GENERATION_MASK,
            request,
        }
    }

    /// The value for C.
    #[inline]
    pub(crate) fn to_pointer(self) -> *mut c_void {
        let communicator = u64::from(self.index) << REQUEST_GENERATION_BITS
            | u64::from(self.generation & Self::GENERATION_MASK);
        to_pointer(
            self.kind,
            communicator << REQUEST_ID_BITS | u64::from(self.request),
        )
    }

    /// Reads a value from C that should be a request.
    #[inline]
    pub(crate) fn from_pointer(value: *mut c_void) -> Result<Self, HandleError> {
        let bits = value.addr() as u64;
        let Some(kind @ (Kind::SendRequest | Kind::ReceiveRequest)) =
            Kind::from_bits(bits >> KIND_SHIFT)
        else {
            return Err(refusal(value, Expected::Request));
        };
        let communicator = bits >> REQUEST_ID_BITS;
        Ok(Self {
            kind,
            index: low_bits(communicator >> REQUEST_GENERATION_BITS, REQUEST_INDEX_BITS),
            generation: low_bits(communicator, REQUEST_GENERATION_BITS),
            request: low_bits(bits, REQUEST_ID_BITS),
        })
    }
}

#[inline]
fn to_pointer(kind: Kind, bits: u64) -> *mut c_void {
    debug_assert!(bits >> KIND_SHIFT == 0);
    let value = (kind as u64) << KIND_SHIFT | bits;
    // A pointer has 64 bits: `abi` does not compile elsewhere.
    ptr::without_provenance_mut(value as usize)
}

/// Why a value from C is not what was expected.
#[cold]
fn refusal(value: *mut c_void, expected: Expected) -> HandleError {
    if value.is_null() {
        return HandleError::Null;
    }
    match Kind::from_bits(value.addr() as u64 >> KIND_SHIFT) {
        Some(found) => HandleError::WrongKind { expected, found },
        None => HandleError::Foreign,
    }
}

/// The low `count` bits, at most 32.
#[inline]
fn low_bits(value: u64, count: u32) -> u32 {
    (value & ((1 << count) - 1)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_survives_the_way_through_c() {
        for kind in [
            Kind::Context,
            Kind::Listener,
            Kind::Sender,
            Kind::Receiver,
            Kind::Region,
        ] {
            for (index, generation) in [(0, 0), (1, u32::MAX), ((1 << 28) - 1, 0x1234_5678)] {
                let id = ObjectId {
                    kind,
                    index,
                    generation,
                };
                assert_eq!(ObjectId::from_pointer(id.to_pointer(), kind), Ok(id));
            }
        }
    }

    #[test]
    fn a_request_survives_the_way_through_c() {
        let communicator = ObjectId {
            kind: Kind::Sender,
            index: MAX_COMMUNICATORS - 1,
            generation: u32::MAX,
        };
        for request in [0, 1, 0xffff_0000, u32::MAX] {
            let token = RequestToken::new(Kind::SendRequest, communicator, request);
            assert_eq!(RequestToken::from_pointer(token.to_pointer()), Ok(token));
            assert_eq!(token.generation, RequestToken::GENERATION_MASK);
        }
    }

    #[test]
    fn no_token_is_null_or_the_mark_of_an_optional_completion() {
        let least = ObjectId {
            kind: Kind::Context,
            index: 0,
            generation: 0,
        };
        assert!(least.to_pointer().addr() > 1);
        let request = RequestToken::new(Kind::SendRequest, least, 0);
        assert!(request.to_pointer().addr() > 1);
    }

    #[test]
    fn what_is_not_a_token_is_told_apart() {
        let on_the_stack = 0u64;
        let address = (&raw const on_the_stack).cast_mut().cast::<c_void>();
        for foreign in [
            address,
            ptr::without_provenance_mut(1),
            ptr::without_provenance_mut(!0),
        ] {
            let object = ObjectId::from_pointer(foreign, Kind::Sender);
            assert_eq!(object, Err(HandleError::Foreign));
            assert_eq!(
                RequestToken::from_pointer(foreign),
                Err(HandleError::Foreign)
            );
        }
        assert_eq!(
            ObjectId::from_pointer(ptr::null_mut(), Kind::Sender),
            Err(HandleError::Null)
        );
        assert_eq!(
            RequestToken::from_pointer(ptr::null_mut()),
            Err(HandleError::Null)
        );
    }

    #[test]
    fn kinds_do_not_pass_for_each_other() {
        let sender = ObjectId {
            kind: Kind::Sender,
            index: 3,
            generation: 4,
        };
        let request = RequestToken::new(Kind::SendRequest, sender, 5);
        assert_eq!(
            ObjectId::from_pointer(sender.to_pointer(), Kind::Receiver),
            Err(HandleError::WrongKind {
                expected: Expected::Kind(Kind::Receiver),
                found: Kind::Sender
            })
        );
        assert_eq!(
            ObjectId::from_pointer(request.to_pointer(), Kind::Sender),
            Err(HandleError::WrongKind {
                expected: Expected::Kind(Kind::Sender),
                found: Kind::SendRequest
            })
        );
        assert_eq!(
            RequestToken::from_pointer(sender.to_pointer()),
            Err(HandleError::WrongKind {
                expected: Expected::Request,
                found: Kind::Sender
            })
        );
    }
}
