//! Objects by handle: an index into storage that never moves, and a generation.
//!
//! A look-up is a load and a compare. A handle of an object that is closed is an error and not a dangling
//! pointer, because its slot stays and counts generations.
//!
//! What a table does not do is keep threads apart. That no call uses an object while another one closes it
//! is the contract of NCCL's interface, and the reason why [`Table::with`] is unsafe.

use std::cell::UnsafeCell;
use std::mem;
use std::sync::atomic::{AtomicU32, Ordering};

use super::error::HandleError;
use super::kind::Kind;
use super::slots::Slots;
use super::token::{ObjectId, RequestToken};

/// What can be in a table.
pub(crate) trait Object: Send + Sync {
    /// The kind of its handles.
    const KIND: Kind;
}

/// At most `CHUNKS` times [`CHUNK`](super::CHUNK) objects.
///
/// An empty one is all zeros, so that a static one takes no room in the library's file.
pub(crate) struct Table<T, const CHUNKS: usize> {
    slots: Slots<Slot<T>, CHUNKS>,
}

/// Aligned so that the communicators of two threads do not share a cache line.
#[repr(align(64))]
struct Slot<T> {
    /// The generation: odd while there is an object. Beside it [`POISONED`].
    word: AtomicU32,
    object: UnsafeCell<Option<T>>,
}

/// An object that a call has panicked with can only be closed.
const POISONED: u32 = 1 << 31;

// SAFETY: the object is written by the thread that has the slot to itself (fresh from `Slots::take`, or after it
// has ended the generation) and read as a shared reference in between, by the contract of `Table::with`.
unsafe impl<T: Send + Sync> Sync for Slot<T> {}

impl<T> Default for Slot<T> {
    fn default() -> Self {
        Self {
            word: AtomicU32::new(0),
            object: UnsafeCell::new(None),
        }
    }
}

impl<T: Object, const CHUNKS: usize> Table<T, CHUNKS> {
    /// No objects.
    pub(crate) const fn new() -> Self {
        Self {
            slots: Slots::new(),
        }
    }

    /// How many objects there are.
    pub(crate) fn len(&self) -> usize {
        self.slots.taken()
    }

    /// Adds an object.
    pub(crate) fn insert(&self, object: T) -> Result<ObjectId, HandleError> {
        let (index, slot) = self.slots.take().ok_or(HandleError::Full(T::KIND))?;
        // SAFETY: the slot is free, so no look-up gets at the object, and `take` gave it to this thread alone.
        unsafe { *slot.object.get() = Some(object) };
        let generation = slot.word.load(Ordering::Relaxed) + 1;
        slot.word.store(generation, Ordering::Release);
        Ok(ObjectId {
            kind: T::KIND,
            index,
            generation,
        })
    }

    /// Calls `call` with an object. If it panics, the object can only be closed from then on.
    ///
    /// # Safety
    /// The object is not closed during the call.
    #[inline]
    pub(crate) unsafe fn with<R>(
        &self,
        id: ObjectId,
        call: impl FnOnce(&T) -> R,
    ) -> Result<R, HandleError> {
        // SAFETY: handed on to the caller.
        unsafe { self.with_masked(id.index, id.generation, u32::MAX, call) }
    }

    /// The same for the communicator of a request, of whose generation the token has the low bits.
    ///
    /// # Safety
    /// As for [`with`](Self::with).
    #[inline]
    pub(crate) unsafe fn with_owner_of<R>(
        &self,
        token: RequestToken,
        call: impl FnOnce(&T) -> R,
    ) -> Result<R, HandleError> {
        let mask = RequestToken::GENERATION_MASK | POISONED;
        // SAFETY: handed on to the caller.
        unsafe { self.with_masked(token.index, token.generation, mask, call) }
    }

    #[inline]
    unsafe fn with_masked<R>(
        &self,
        index: u32,
        generation: u32,
        mask: u32,
        call: impl FnOnce(&T) -> R,
    ) -> Result<R, HandleError> {
        // SAFETY: handed on to the caller.
        let (slot, object) = unsafe { self.look_up(index, generation, mask) }?;
        let poison = PoisonIfDropped(slot);
        let result = call(object);
        mem::forget(poison);
        Ok(result)
    }

    /// An object for as long as the caller says. A panic of the caller does not poison it.
    ///
    /// # Safety
    /// The object is not closed as long as the reference lives.
    #[inline]
    pub(crate) unsafe fn get(&self, id: ObjectId) -> Result<&T, HandleError> {
        // SAFETY: handed on to the caller.
        let (_, object) = unsafe { self.look_up(id.index, id.generation, u32::MAX) }?;
        Ok(object)
    }

    /// # Safety
    /// As for [`get`](Self::get).
    #[inline]
    unsafe fn look_up(
        &self,
        index: u32,
        generation: u32,
        mask: u32,
    ) -> Result<(&Slot<T>, &T), HandleError> {
        let slot = self.slots.get(index).ok_or(HandleError::Foreign)?;
        let word = slot.word.load(Ordering::Acquire);
        if (word ^ generation) & mask != 0 || generation & 1 == 0 {
            return Err(refusal(word, generation, mask));
        }
        // SAFETY: the generation is that of a live object, which the caller says is not closed meanwhile.
        match unsafe { &*slot.object.get() } {
            Some(object) => Ok((slot, object)),
            None => Err(HandleError::Stale),
        }
    }

    /// Takes an object out, also one that a call has panicked with. Of several threads that try, one gets it.
    pub(crate) fn take(&self, id: ObjectId) -> Result<T, HandleError> {
        let slot = self.slots.get(id.index).ok_or(HandleError::Foreign)?;
        let end = |word: u32| {
            let is_meant = word & !POISONED == id.generation && id.generation & 1 == 1;
            is_meant.then(|| (id.generation + 1) & !POISONED)
        };
        slot.word
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, end)
            .map_err(|_| HandleError::Stale)?;
        // SAFETY: this thread has ended the generation, so no later look-up gets at the object, and by the contract
        // of `with` and `get` no earlier one uses it.
        let object = unsafe { (*slot.object.get()).take() };
        self.slots.give_back(id.index);
        object.ok_or(HandleError::Stale)
    }
}

/// Why a word is not that of the generation which was asked for.
#[cold]
fn refusal(word: u32, generation: u32, mask: u32) -> HandleError {
    if (word ^ generation) & mask == POISONED && generation & 1 == 1 {
        HandleError::Poisoned
    } else {
        HandleError::Stale
    }
}

/// Dropped only by a panic.
struct PoisonIfDropped<'a, T>(&'a Slot<T>);

impl<T> Drop for PoisonIfDropped<'_, T> {
    fn drop(&mut self) {
        self.0.word.fetch_or(POISONED, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::AtomicUsize;
    use std::thread;

    use super::*;

    impl Object for u32 {
        const KIND: Kind = Kind::Sender;
    }

    type Numbers = Table<u32, 4>;

    fn value(table: &Numbers, id: ObjectId) -> Result<u32, HandleError> {
        // SAFETY: these tests close nothing that a call uses.
        unsafe { table.with(id, |number| *number) }
    }

    #[test]
    fn an_object_is_found_until_it_is_closed() {
        let table = Numbers::new();
        let (one, two) = (table.insert(1).unwrap(), table.insert(2).unwrap());
        assert_eq!((value(&table, one), value(&table, two)), (Ok(1), Ok(2)));
        assert_eq!(table.len(), 2);
        assert_eq!(table.take(one), Ok(1));
        assert_eq!(value(&table, one), Err(HandleError::Stale));
        assert_eq!(table.take(one), Err(HandleError::Stale));
        assert_eq!((value(&table, two), table.len()), (Ok(2), 1));
    }

    #[test]
    fn the_next_object_in_a_slot_is_not_the_one_before() {
        let table = Numbers::new();
        let of_request = |communicator| {
            let token = RequestToken::new(Kind::SendRequest, communicator, 7);
            // SAFETY: as in `value`.
            unsafe { table.with_owner_of(token, |number| *number) }
        };
        let first = table.insert(1).unwrap();
        table.take(first).unwrap();
        let mut next = table.insert(2).unwrap();
        while next.index != first.index {
            table.take(next).unwrap();
            next = table.insert(2).unwrap();
        }
        assert_eq!(value(&table, first), Err(HandleError::Stale));
        assert_eq!(of_request(first), Err(HandleError::Stale));
        assert_eq!((value(&table, next), of_request(next)), (Ok(2), Ok(2)));
    }

    #[test]
    fn made_up_handles_are_errors() {
        let table = Numbers::new();
        let id = table.insert(1).unwrap();
        for generation in [0, 2, id.generation | POISONED, id.generation + 2, u32::MAX] {
            let wrong = ObjectId { generation, ..id };
            assert!(value(&table, wrong).is_err(), "{generation:#x}");
            assert!(table.take(wrong).is_err(), "{generation:#x}");
        }
        for index in [64, (1 << 28) - 1] {
            let wrong = ObjectId { index, ..id };
            assert_eq!(value(&table, wrong), Err(HandleError::Foreign));
            assert_eq!(table.take(wrong), Err(HandleError::Foreign));
        }
        assert_eq!(value(&table, id), Ok(1));
    }

    #[test]
    fn a_panic_leaves_an_object_that_can_only_be_closed() {
        let table = Numbers::new();
        let id = table.insert(1).unwrap();
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            // SAFETY: as in `value`.
            let _ = unsafe { table.with(id, |_| panic!("part of the test")) };
        }));
        assert!(panicked.is_err());
        assert_eq!(value(&table, id), Err(HandleError::Poisoned));
        let token = RequestToken::new(Kind::SendRequest, id, 7);
        // SAFETY: as in `value`.
        let of_request = unsafe { table.with_owner_of(token, |number| *number) };
        assert_eq!(of_request, Err(HandleError::Poisoned));
        assert_eq!(table.take(id), Ok(1));
        assert_eq!(value(&table, id), Err(HandleError::Stale));
    }

    #[test]
    fn a_full_table_says_so() {
        let table = Table::<u32, 1>::new();
        let all: Vec<_> = (0..64)
            .map(|number| table.insert(number).unwrap())
            .collect();
        assert_eq!(table.insert(64), Err(HandleError::Full(Kind::Sender)));
        table.take(all[5]).unwrap();
        assert!(table.insert(65).is_ok());
    }

    #[test]
    fn of_threads_that_close_one_object_one_gets_it() {
        let table = Numbers::new();
        for round in 0..1000 {
            let id = table.insert(round).unwrap();
            let taken = AtomicUsize::new(0);
            thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| {
                        if table.take(id) == Ok(round) {
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
