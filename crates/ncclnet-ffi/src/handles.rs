//! What C holds of contexts, communicators, memory and requests: numbers that are checked in place of pointers
//! that would have to be believed. A check costs a load and a compare.
//!
//! ```text
//! bits     63..60   59..28                27..0
//! object   kind     generation            index
//!
//! bits     63..60   59..42   41..32                    31..0
//! request  kind     index    generation (its low bits) RequestId
//!                   \ of its communicator            /
//! ```
//!
//! No kind is 0 and none is 15: no handle is null or 1 (NCCL's mark in `irecv`), and no address of a user
//! program and no memory full of ones looks like a handle.
//!
//! Nothing here keeps threads apart. That a communicator's data path belongs to one thread at a time, and that
//! nothing is closed while a call uses it, is the contract of NCCL's interface.

use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::fault::Fault;

/// Communicators of one direction that may exist at a time. Bounded by the bits of a request's handle.
pub(crate) const MAX_COMMUNICATORS: usize = 1 << REQUEST_INDEX_BITS;

const KIND_SHIFT: u32 = 60;
const INDEX_BITS: u32 = 28;
const REQUEST_ID_BITS: u32 = 32;
const REQUEST_GENERATION_BITS: u32 = 10;
const REQUEST_INDEX_BITS: u32 = 18;

const _: () = assert!(INDEX_BITS + 32 == KIND_SHIFT);
const _: () = assert!(REQUEST_ID_BITS + REQUEST_GENERATION_BITS + REQUEST_INDEX_BITS == KIND_SHIFT);

/// What a handle stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Kind {
    /// The context of one NCCL communicator (API version 11 and later).
    Context = 1,
    /// `listenComm`.
    Listener = 2,
    /// `sendComm`.
    Sender = 3,
    /// `recvComm`.
    Receiver = 4,
    /// `mhandle`.
    Region = 5,
    /// Request of `isend`.
    SendRequest = 6,
    /// Request of `irecv` or `iflush`.
    ReceiveRequest = 7,
}

/// The kinds in words, by their numbers.
const NAMES: [&str; 8] = [
    "",
    "context",
    "listening communicator",
    "sending communicator",
    "receiving communicator",
    "memory handle",
    "send request",
    "receive request",
];

/// A handle of an object in a [`Table`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Handle {
    pub(crate) kind: Kind,
    index: u32,
    /// Which of the objects that had the slot one after another.
    generation: u32,
}

impl Handle {
    /// The value for C.
    #[inline]
    pub(crate) fn to_pointer(self) -> *mut c_void {
        let bits = u64::from(self.generation) << INDEX_BITS | u64::from(self.index);
        to_pointer(self.kind, bits)
    }

    /// Reads a value from C that should be an object of `kind`.
    #[inline]
    pub(crate) fn of(kind: Kind, value: *mut c_void) -> Result<Self, Fault> {
        let bits = value.addr() as u64;
        if bits >> KIND_SHIFT != kind as u64 {
            return Err(refusal(value, NAMES[kind as usize]));
        }
        Ok(Self {
            kind,
            index: low_bits(bits, INDEX_BITS),
            generation: low_bits(bits >> INDEX_BITS, 32),
        })
    }

    /// Reads a value from C that should be a sending or receiving communicator.
    pub(crate) fn of_communicator(value: *mut c_void) -> Result<Self, Fault> {
        Self::of(Kind::Sender, value)
            .or_else(|_| Self::of(Kind::Receiver, value))
            .map_err(|_| refusal(value, "sending or receiving communicator"))
    }
}

/// A handle of a communicator's request. `test` gets nothing else, so this names the communicator too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) kind: Kind,
    index: u32,
    generation: u32,
    /// The transport's own id of the request, which has a generation too.
    pub(crate) id: u32,
}

impl Request {
    /// The bits of the communicator's generation that a request keeps.
    const GENERATION_MASK: u32 = (1 << REQUEST_GENERATION_BITS) - 1;

    /// Request `id` of a communicator.
    #[inline]
    pub(crate) fn new(kind: Kind, communicator: Handle, id: u32) -> Self {
        Self {
            kind,
            index: communicator.index,
            generation: communicator.generation & Self::GENERATION_MASK,
            id,
        }
    }

    /// The value for C.
    #[inline]
    pub(crate) fn to_pointer(self) -> *mut c_void {
        let communicator =
            u64::from(self.index) << REQUEST_GENERATION_BITS | u64::from(self.generation);
        to_pointer(
            self.kind,
            communicator << REQUEST_ID_BITS | u64::from(self.id),
        )
    }

    /// Reads a value from C that should be a request.
    #[inline]
    pub(crate) fn of(value: *mut c_void) -> Result<Self, Fault> {
        let bits = value.addr() as u64;
        let kind = match bits >> KIND_SHIFT {
            6 => Kind::SendRequest,
            7 => Kind::ReceiveRequest,
            _ => return Err(refusal(value, "request")),
        };
        let communicator = bits >> REQUEST_ID_BITS;
        Ok(Self {
            kind,
            index: low_bits(communicator >> REQUEST_GENERATION_BITS, REQUEST_INDEX_BITS),
            generation: low_bits(communicator, REQUEST_GENERATION_BITS),
            id: low_bits(bits, REQUEST_ID_BITS),
        })
    }
}

#[inline]
fn to_pointer(kind: Kind, bits: u64) -> *mut c_void {
    // A pointer has 64 bits: `abi` does not compile elsewhere.
    ptr::without_provenance_mut(((kind as u64) << KIND_SHIFT | bits) as usize)
}

/// The low `count` bits, at most 32.
#[inline]
fn low_bits(value: u64, count: u32) -> u32 {
    (value & ((1 << count) - 1)) as u32
}

/// Why a value from C is not what was expected.
#[cold]
fn refusal(value: *mut c_void, expected: &str) -> Fault {
    if value.is_null() {
        return Fault::argument("the handle is null");
    }
    match NAMES.get((value.addr() as u64 >> KIND_SHIFT) as usize) {
        None | Some(&"") => foreign(),
        Some(found) => Fault::internal(format!(
            "the handle is that of a {found}, not of a {expected}"
        )),
    }
}

// The core passes only what it was given: anything else is a fault in there or here.
#[cold]
fn foreign() -> Fault {
    Fault::internal("the handle is not one that this plugin gave out")
}

#[cold]
fn stale() -> Fault {
    Fault::internal("the handle is out of date: its object is closed or done")
}

/// What can be in a table.
pub(crate) trait Object: Send + Sync {
    /// The kind of its handles.
    const KIND: Kind;
}

/// Objects by their handles, in slots that are made [`CHUNK`] at a time, at most `CHUNKS` times.
///
/// A slot, once made, keeps its address for as long as the process lives, so that a look-up needs no lock and
/// a handle of a closed object is an error and not a dangling pointer. An empty table is all zeros: a static
/// one takes no room in the library's file, and no memory where it is not used. All tables together are smaller than a
/// huge page (2 MiB on x86-64): the kernel would give them one, and clear it, at the first object.
pub(crate) struct Table<T, const CHUNKS: usize> {
    chunks: [AtomicPtr<[Slot<T>; CHUNK]>; CHUNKS],
    /// `None` until there is an object: an empty queue is not all zeros.
    free: Mutex<Option<Box<Free>>>,
}

/// Slots that are made at a time.
pub(crate) const CHUNK: usize = 16;

/// Aligned so that the communicators of two threads do not share a cache line.
#[repr(align(64))]
struct Slot<T> {
    /// Odd while there is an object.
    generation: AtomicU32,
    object: UnsafeCell<Option<T>>,
}

impl<T> Slot<T> {
    const fn empty() -> Self {
        Self {
            generation: AtomicU32::new(0),
            object: UnsafeCell::new(None),
        }
    }
}

#[derive(Default)]
struct Free {
    /// Slots given back. First in, first out, so that a generation lasts for as long as possible.
    given_back: VecDeque<u32>,
    /// Slots that were ever used.
    used: u32,
}

// SAFETY: the object is written by the thread that has the slot to itself (taken off the free list, or after it
// has ended the generation) and read as a shared reference in between, by the contract of `Table::get`.
unsafe impl<T: Send + Sync> Sync for Slot<T> {}

impl<T: Object, const CHUNKS: usize> Table<T, CHUNKS> {
    /// No objects.
    pub(crate) const fn new() -> Self {
        assert!(CHUNKS * CHUNK <= 1 << INDEX_BITS);
        Self {
            chunks: [const { AtomicPtr::new(ptr::null_mut()) }; CHUNKS],
            free: Mutex::new(None),
        }
    }

    /// How many objects there are.
    pub(crate) fn len(&self) -> usize {
        self.with_free(|free| free.used as usize - free.given_back.len())
    }

    /// Adds an object.
    pub(crate) fn insert(&self, object: T) -> Result<Handle, Fault> {
        let full = || {
            let kind = NAMES[T::KIND as usize];
            Fault::system(format!("there is no room for another {kind}"))
        };
        let index = self.with_free(|free| {
            free.given_back.pop_front().or_else(|| {
                let place = self.chunks.get(free.used as usize / CHUNK)?;
                if free.used.is_multiple_of(CHUNK as u32) {
                    let chunk = Box::new([const { Slot::empty() }; CHUNK]);
                    place.store(Box::into_raw(chunk), Ordering::Release);
                }
                free.used += 1;
                Some(free.used - 1)
            })
        });
        let index = index.ok_or_else(full)?;
        let slot = self.slot(index)?;
        // SAFETY: the slot is free, so no look-up gets at the object, and it was given to this call alone.
        unsafe { *slot.object.get() = Some(object) };
        let generation = slot.generation.load(Ordering::Relaxed).wrapping_add(1);
        slot.generation.store(generation, Ordering::Release);
        Ok(Handle {
            kind: T::KIND,
            index,
            generation,
        })
    }

    /// The object of a handle.
    ///
    /// # Safety
    /// It is not closed for as long as the reference lives.
    #[inline]
    pub(crate) unsafe fn get(&self, handle: Handle) -> Result<&T, Fault> {
        // SAFETY: handed on to the caller.
        unsafe { self.look_up(handle.index, handle.generation, u32::MAX) }
    }

    /// The communicator of a request.
    ///
    /// # Safety
    /// As for [`get`](Self::get).
    #[inline]
    pub(crate) unsafe fn owner_of(&self, request: Request) -> Result<&T, Fault> {
        let mask = Request::GENERATION_MASK;
        // SAFETY: handed on to the caller.
        unsafe { self.look_up(request.index, request.generation, mask) }
    }

    /// # Safety
    /// As for [`get`](Self::get).
    #[inline(always)]
    unsafe fn look_up(&self, index: u32, generation: u32, mask: u32) -> Result<&T, Fault> {
        let slot = self.slot(index)?;
        let now = slot.generation.load(Ordering::Acquire);
        if (now ^ generation) & mask != 0 || generation & 1 == 0 {
            return Err(stale());
        }
        // SAFETY: an odd generation was published after the object was written, and by the caller's promise
        // it is not taken out as long as the reference lives.
        unsafe { (*slot.object.get()).as_ref() }.ok_or_else(stale)
    }

    /// Takes an object out.
    pub(crate) fn take(&self, handle: Handle) -> Result<T, Fault> {
        let slot = self.slot(handle.index)?;
        let generation = handle.generation;
        if generation & 1 == 0 {
            return Err(stale());
        }
        slot.generation
            .compare_exchange(
                generation,
                generation.wrapping_add(1),
                Ordering::AcqRel,
                Ordering::Relaxed,
            )
            .map_err(|_| stale())?;
        // SAFETY: this call has ended the generation, so no later look-up gets at the object, and by the contract
        // of `get` no earlier one uses it.
        let object = unsafe { (*slot.object.get()).take() };
        self.with_free(|free| free.given_back.push_back(handle.index));
        object.ok_or_else(stale)
    }

    #[inline(always)]
    fn slot(&self, index: u32) -> Result<&Slot<T>, Fault> {
        let index = index as usize;
        let place = self.chunks.get(index / CHUNK).ok_or_else(foreign)?;
        // SAFETY: null, or from `insert`, which made the slots before it stored the pointer; slots are not freed.
        let chunk = unsafe { place.load(Ordering::Acquire).as_ref() };
        chunk.map(|slots| &slots[index % CHUNK]).ok_or_else(foreign)
    }

    fn with_free<R>(&self, call: impl FnOnce(&mut Free) -> R) -> R {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        call(free.get_or_insert_default())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::atomic::AtomicUsize;
    use std::thread;

    use super::*;

    impl Object for u32 {
        const KIND: Kind = Kind::Sender;
    }

    type Numbers = Table<u32, { 256 / CHUNK }>;

    fn value(table: &Numbers, handle: Handle) -> Option<u32> {
        // SAFETY: these tests close nothing that is in use.
        unsafe { table.get(handle) }.ok().copied()
    }

    fn pointer(bits: u64) -> *mut c_void {
        ptr::without_provenance_mut(bits as usize)
    }

    #[test]
    fn handles_survive_the_way_through_c() {
        for kind in [Kind::Context, Kind::Sender, Kind::Region] {
            for (index, generation) in [(0, 0), (1, u32::MAX), ((1 << 28) - 1, 0x1234_5678)] {
                let handle = Handle {
                    kind,
                    index,
                    generation,
                };
                assert_eq!(Handle::of(kind, handle.to_pointer()), Ok(handle));
            }
        }
        let communicator = Handle {
            kind: Kind::Sender,
            index: MAX_COMMUNICATORS as u32 - 1,
            generation: u32::MAX,
        };
        for id in [0, 1, 0xffff_0000, u32::MAX] {
            let request = Request::new(Kind::SendRequest, communicator, id);
            assert_eq!(Request::of(request.to_pointer()), Ok(request));
        }
    }

    #[test]
    fn what_is_no_handle_of_the_kind_is_told_apart() {
        let text = |value, kind| Handle::of(kind, value).unwrap_err().text().to_owned();
        let on_the_stack = 0u64;
        let address = (&raw const on_the_stack).cast_mut().cast::<c_void>();
        for value in [address, pointer(1), pointer(!0), pointer(15 << 60)] {
            assert!(text(value, Kind::Sender).contains("not one that this plugin gave out"));
            assert!(Request::of(value).is_err());
        }
        assert_eq!(text(ptr::null_mut(), Kind::Sender), "the handle is null");
        let (sender, request) = (pointer(3 << 60 | 7), pointer(6 << 60 | 7));
        assert_eq!(
            text(sender, Kind::Receiver),
            "the handle is that of a sending communicator, not of a receiving communicator"
        );
        assert!(text(request, Kind::Sender).contains("that of a send request"));
        assert!(Request::of(sender).is_err());
        assert!(Handle::of_communicator(sender).is_ok());
        assert!(Handle::of_communicator(pointer(4 << 60 | 7)).is_ok());
        assert!(Handle::of_communicator(request).is_err());
    }

    #[test]
    fn an_object_is_found_until_it_is_closed() {
        let table = Numbers::new();
        let (one, two) = (table.insert(1).unwrap(), table.insert(2).unwrap());
        assert_eq!((value(&table, one), value(&table, two)), (Some(1), Some(2)));
        assert_eq!(table.len(), 2);
        assert_eq!(table.take(one), Ok(1));
        assert_eq!(value(&table, one), None);
        assert!(table.take(one).is_err());
        assert_eq!((value(&table, two), table.len()), (Some(2), 1));
    }

    #[test]
    fn the_next_object_in_a_slot_is_not_the_one_before() {
        let table = Numbers::new();
        let of_request = |communicator| {
            let request = Request::new(Kind::SendRequest, communicator, 7);
            // SAFETY: as in `value`.
            unsafe { table.owner_of(request) }.ok().copied()
        };
        let first = table.insert(1).unwrap();
        table.take(first).unwrap();
        let next = table.insert(2).unwrap();
        assert_eq!(next.index, first.index);
        assert_eq!((value(&table, first), of_request(first)), (None, None));
        assert_eq!((value(&table, next), of_request(next)), (Some(2), Some(2)));
    }

    #[test]
    fn made_up_handles_are_errors() {
        let table = Numbers::new();
        let handle = table.insert(1).unwrap();
        for generation in [0, 2, handle.generation + 2, u32::MAX] {
            let wrong = Handle {
                generation,
                ..handle
            };
            assert!(value(&table, wrong).is_none(), "{generation:#x}");
            assert!(table.take(wrong).is_err(), "{generation:#x}");
        }
        for index in [1, 255, 256, (1 << 28) - 1] {
            let wrong = Handle { index, ..handle };
            assert!(value(&table, wrong).is_none() && table.take(wrong).is_err());
        }
        assert_eq!(value(&table, handle), Some(1));
    }

    #[test]
    fn a_full_table_says_so() {
        let table = Numbers::new();
        let all: Vec<_> = (0..256).map(|number| table.insert(number)).collect();
        assert!(table.insert(256).is_err());
        table.take(all[5].clone().unwrap()).unwrap();
        assert!(table.insert(257).is_ok());
    }

    #[test]
    fn threads_get_slots_of_their_own() {
        let table = Numbers::new();
        thread::scope(|scope| {
            for thread in 0..4 {
                let table = &table;
                scope.spawn(move || {
                    for round in 0..200 {
                        let number = thread * 1000 + round;
                        let mine: Vec<_> = (0..16).map(|_| table.insert(number)).collect();
                        for handle in mine {
                            assert_eq!(table.take(handle.unwrap()), Ok(number));
                        }
                    }
                });
            }
        });
        assert_eq!(table.len(), 0);
    }

    #[test]
    fn of_threads_that_close_one_object_one_gets_it() {
        let table = Numbers::new();
        for round in 0..1000 {
            let handle = table.insert(round).unwrap();
            let taken = AtomicUsize::new(0);
            thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| {
                        if table.take(handle) == Ok(round) {
                            taken.fetch_add(1, Ordering::Relaxed);
                        }
                    });
                }
            });
            assert_eq!(taken.into_inner(), 1);
        }
        assert_eq!(table.len(), 0);
    }
}
