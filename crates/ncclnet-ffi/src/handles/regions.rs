//! Registered memory, looked up by the data path and dropped by other threads.
//!
//! `isend` and `irecv` run on one thread while `regMr` and `deregMr` of the same communicator run on
//! another. A look-up must therefore never see a registration that is being dropped, and it must
//! not cost a lock or a counter. It need not, because a registration belongs to the communicator it
//! was made with, and calls of that communicator are already marked in its slot:
//!
//! - the data path enters the communicator (which writes the thread's mark), *then* reads the
//!   region's word;
//! - `deregMr` marks the region's word as retiring, *then* reads the mark of the communicator's
//!   owner, and waits for the call that it finds inside, if any.
//!
//! Between the two steps of the one lies a light barrier, between those of the other a heavy one
//! ([`super::mark`]). So at least one of the two sees the other: either the look-up finds the mark and
//! fails, or the dropping thread finds the call and waits until it is over. A communicator whose owner
//! is the dropping thread itself is in no call, and whoever takes it over later passes a heavy barrier.
//!
//! The region's word is `state (2 bits) | generation (24) | owner (38)`, so that one load tells
//! whether a memory handle is the one meant and belongs to the communicator at hand.

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};

use super::error::HandleError;
use super::slots::Slots;
use super::table::Inside;
use super::token::{Kind, MAX_COMMUNICATORS, ObjectId};

/// The registrations of all communicators, at most `CHUNKS` times [`CHUNK`](super::CHUNK); `R` is what
/// a registration is.
pub(crate) struct Regions<R, const CHUNKS: usize> {
    slots: Slots<Slot<R>, CHUNKS>,
}

impl<R: Send + Sync, const CHUNKS: usize> Regions<R, CHUNKS> {
    /// No registrations.
    pub(crate) const fn new() -> Self {
        Self {
            slots: Slots::new(),
        }
    }

    /// How many there are.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.slots.taken()
    }

    /// Adds a registration that belongs to communicator `owner`.
    pub(crate) fn insert(&self, region: R, owner: ObjectId) -> Result<ObjectId, HandleError> {
        let (index, slot) = self.slots.take().ok_or(HandleError::Full(Kind::Region))?;
        let generation = Word(slot.word.load(Ordering::Acquire)).generation();
        // SAFETY: the slot is free, so its word lets nobody look, and `take` gave it to this thread alone.
        unsafe { *slot.region.get() = Some(region) };
        slot.word
            .store(Word::live(generation, Owner::of(owner)).0, Ordering::SeqCst);
        Ok(ObjectId {
            kind: Kind::Region,
            index,
            generation,
        })
    }

    /// The registration that memory handle `value` stands for, for a call inside its owner. Lock-free.
    #[inline]
    pub(crate) fn get<'a>(
        &'a self,
        value: *mut c_void,
        inside: Inside<'a>,
    ) -> Result<&'a R, HandleError> {
        let id = ObjectId::from_pointer(value, Kind::Region)?;
        let slot = self.slots.get(id.index).ok_or(HandleError::Foreign)?;
        let word = slot.word.load(Ordering::Acquire);
        if word != Word::live(id.generation, inside.owner()).0 {
            return Err(Word(word).refusal(id.generation));
        }
        // SAFETY: the region is live and belongs to the communicator that `inside` proves this call
        // to be in, so `retire` waits for this call before it takes the region out (see above); until
        // then only shared references exist.
        match unsafe { &*slot.region.get() } {
            Some(region) => Ok(region),
            None => Err(HandleError::Stale),
        }
    }

    /// Takes a registration of communicator `owner` out. `wait` waits for the call inside the owner
    /// ([`Table::wait_for_call_inside`](super::Table::wait_for_call_inside)); if the caller is
    /// closing the owner, there is none.
    pub(crate) fn retire(
        &self,
        id: ObjectId,
        owner: ObjectId,
        wait: impl FnOnce(),
    ) -> Result<R, HandleError> {
        let slot = self.slots.get(id.index).ok_or(HandleError::Foreign)?;
        let live = Word::live(id.generation, Owner::of(owner));
        slot.word
            .compare_exchange(
                live.0,
                live.retiring().0,
                Ordering::SeqCst,
                Ordering::Relaxed,
            )
            .map_err(|now| Word(now).refusal(id.generation))?;
        wait();
        // SAFETY: this thread alone turned the word from live to retiring. Look-ups that saw it live
        // were part of a call inside the owner, which `wait` has seen leave; later ones fail.
        let region = unsafe { (*slot.region.get()).take() };
        slot.word.store(
            Word::free(id.generation.wrapping_add(1)).0,
            Ordering::Release,
        );
        self.slots.give_back(id.index);
        region.ok_or(HandleError::Stale)
    }
}

struct Slot<R> {
    word: AtomicU64,
    region: UnsafeCell<Option<R>>,
}

// SAFETY: `region` is written only by the thread that took the free slot or turned it to retiring,
// and read through shared references in between (`R: Sync`); it may be dropped by another thread than
// the one that made it (`R: Send`).
unsafe impl<R: Send + Sync> Sync for Slot<R> {}

impl<R> Default for Slot<R> {
    fn default() -> Self {
        Self {
            word: AtomicU64::new(Word::free(0).0),
            region: UnsafeCell::new(None),
        }
    }
}

#[derive(Clone, Copy)]
struct Word(u64);

const FREE: u64 = 0;
const LIVE: u64 = 1;
const RETIRING: u64 = 2;

impl Word {
    const GENERATION_BITS: u32 = 24;
    const GENERATION_MASK: u32 = (1 << Self::GENERATION_BITS) - 1;
    const OWNER_BITS: u32 = 38;
    const OWNER_MASK: u64 = (1 << Self::OWNER_BITS) - 1;
    const STATE_SHIFT: u32 = Self::GENERATION_BITS + Self::OWNER_BITS;

    const fn new(state: u64, generation: u32, owner: u64) -> Self {
        let generation = (generation & Self::GENERATION_MASK) as u64;
        Self(state << Self::STATE_SHIFT | generation << Self::OWNER_BITS | owner & Self::OWNER_MASK)
    }

    const fn free(generation: u32) -> Self {
        Self::new(FREE, generation, 0)
    }

    #[inline]
    fn live(generation: u32, owner: Owner) -> Self {
        Self::new(LIVE, generation, owner.0)
    }

    const fn retiring(self) -> Self {
        Self(self.0 & !(3 << Self::STATE_SHIFT) | RETIRING << Self::STATE_SHIFT)
    }

    const fn generation(self) -> u32 {
        (self.0 >> Self::OWNER_BITS) as u32 & Self::GENERATION_MASK
    }

    /// Why a region with this word is not the one asked for.
    #[cold]
    fn refusal(self, generation: u32) -> HandleError {
        if self.0 >> Self::STATE_SHIFT == LIVE && self.generation() == generation {
            HandleError::OtherOwner
        } else {
            HandleError::Stale
        }
    }
}

/// A communicator as regions name it, in 38 bits: direction, slot, and as much of its generation as
/// there is room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner(pub(super) u64);

impl Owner {
    pub(super) fn of(communicator: ObjectId) -> Self {
        const INDEX_BITS: u32 = MAX_COMMUNICATORS.ilog2();
        let direction = u64::from(communicator.kind == Kind::Sender);
        let generation = u64::from(communicator.generation);
        let place = u64::from(communicator.index) << 1 | direction;
        Self((generation << (INDEX_BITS + 1) | place) & Word::OWNER_MASK)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::ptr;
    use std::sync::Mutex;
    use std::sync::atomic::AtomicBool;
    use std::thread;

    use super::super::error::Expected;
    use super::super::table::{Object, Table};
    use super::*;

    /// Stands for a communicator.
    struct Nothing;

    impl Object for Nothing {
        const KIND: Kind = Kind::Sender;
    }

    type Communicators = Table<Nothing, (), 4>;

    fn communicators() -> Communicators {
        Table::new()
    }

    #[test]
    fn a_region_is_found_by_its_owner_until_it_is_retired() {
        let (table, regions) = (communicators(), Regions::<_, 4>::new());
        let owner = table.insert(Nothing, ()).unwrap();
        let other = table.insert(Nothing, ()).unwrap();
        let id = regions.insert(5u32, owner).unwrap();

        let mut call = table.enter(owner).unwrap();
        assert_eq!(regions.get(id.to_pointer(), call.parts().1), Ok(&5));
        drop(call);
        let mut call = table.enter(other).unwrap();
        let inside = call.parts().1;
        assert_eq!(
            regions.get(id.to_pointer(), inside),
            Err(HandleError::OtherOwner)
        );
        assert_eq!(regions.get(ptr::null_mut(), inside), Err(HandleError::Null));
        assert_eq!(
            regions.get(owner.to_pointer(), inside),
            Err(HandleError::WrongKind {
                expected: Expected::Kind(Kind::Region),
                found: Kind::Sender
            })
        );
        drop(call);

        assert_eq!(
            regions.retire(id, other, || ()),
            Err(HandleError::OtherOwner)
        );
        assert_eq!(regions.retire(id, owner, || ()), Ok(5));
        assert_eq!(regions.retire(id, owner, || ()), Err(HandleError::Stale));
        assert_eq!(regions.len(), 0);

        let next = regions.insert(6u32, owner).unwrap();
        assert_eq!(next.index, id.index, "the slot is used again");
        let mut call = table.enter(owner).unwrap();
        let inside = call.parts().1;
        assert_eq!(
            regions.get(id.to_pointer(), inside),
            Err(HandleError::Stale)
        );
        assert_eq!(regions.get(next.to_pointer(), inside), Ok(&6));
    }

    #[test]
    fn the_same_slot_of_the_other_direction_is_another_owner() {
        let regions = Regions::<_, 4>::new();
        let owner = ObjectId {
            kind: Kind::Sender,
            index: 1,
            generation: 2,
        };
        let twin = ObjectId {
            kind: Kind::Receiver,
            ..owner
        };
        let next = ObjectId {
            generation: 3,
            ..owner
        };
        let id = regions.insert((), owner).unwrap();
        assert_eq!(
            regions.retire(id, twin, || ()),
            Err(HandleError::OtherOwner)
        );
        assert_eq!(
            regions.retire(id, next, || ()),
            Err(HandleError::OtherOwner)
        );
        assert_eq!(regions.retire(id, owner, || ()), Ok(()));
    }

    #[test]
    fn generations_go_round() {
        let regions = Regions::<_, 4>::new();
        let owner = ObjectId {
            kind: Kind::Receiver,
            index: 0,
            generation: u32::MAX,
        };
        let id = regions.insert(1, owner).unwrap();
        let slot = regions.slots.get(id.index).unwrap();
        slot.word.store(
            Word::live(Word::GENERATION_MASK, Owner::of(owner)).0,
            Ordering::SeqCst,
        );
        let last = ObjectId {
            generation: Word::GENERATION_MASK,
            ..id
        };
        assert_eq!(regions.retire(last, owner, || ()), Ok(1));
        assert_eq!(regions.insert(2, owner).unwrap().generation, 0);
    }

    /// Two threads take the communicator from each other and look regions up, a third retires and
    /// adds them.
    #[test]
    fn nothing_is_dropped_while_owners_change() {
        struct Cell(AtomicBool);
        impl Drop for Cell {
            fn drop(&mut self) {
                self.0.store(false, Ordering::SeqCst);
            }
        }
        const ROUNDS: usize = 3000;
        let (table, regions) = (communicators(), Regions::<_, 4>::new());
        let owner = table.insert(Nothing, ()).unwrap();
        let alive = || Cell(AtomicBool::new(true));
        let current = Mutex::new(regions.insert(alive(), owner).unwrap());
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut found = 0_u32;
                    while !done.load(Ordering::SeqCst) || found == 0 {
                        let id = *current.lock().unwrap();
                        // Busy: it is the other one's turn.
                        let Ok(mut call) = table.enter(owner) else {
                            thread::yield_now();
                            continue;
                        };
                        if let Ok(region) = regions.get(id.to_pointer(), call.parts().1) {
                            found += 1;
                            if found.is_multiple_of(16) {
                                thread::yield_now();
                            }
                            assert!(region.0.load(Ordering::SeqCst), "dropped under a call");
                        }
                    }
                });
            }
            for _ in 0..ROUNDS {
                let next = regions.insert(alive(), owner).unwrap();
                let old = std::mem::replace(&mut *current.lock().unwrap(), next);
                let wait = || table.wait_for_call_inside(owner);
                drop(regions.retire(old, owner, wait).unwrap());
            }
            done.store(true, Ordering::SeqCst);
        });
        assert_eq!(regions.len(), 1);
    }

    /// One thread looks regions up in calls, another retires and adds them. A region that was
    /// retired while a call could still read it would be seen as dead by that call.
    #[test]
    fn nothing_is_dropped_under_a_call() {
        struct Watched {
            alive: &'static AtomicBool,
        }
        impl Drop for Watched {
            fn drop(&mut self) {
                self.alive.store(false, Ordering::SeqCst);
            }
        }
        fn watched() -> Watched {
            Watched {
                alive: Box::leak(Box::new(AtomicBool::new(true))),
            }
        }

        const ROUNDS: usize = 20_000;
        let (table, regions) = (communicators(), Regions::<_, 4>::new());
        let owner = table.insert(Nothing, ()).unwrap();
        let current = Mutex::new(regions.insert(watched(), owner).unwrap());
        let done = AtomicBool::new(false);
        let (mut found, mut missed) = (0u64, 0u64);
        thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    let next = regions.insert(watched(), owner).unwrap();
                    let old = std::mem::replace(&mut *current.lock().unwrap(), next);
                    drop(
                        regions
                            .retire(old, owner, || table.wait_for_call_inside(owner))
                            .unwrap(),
                    );
                }
                done.store(true, Ordering::SeqCst);
            });
            while !done.load(Ordering::SeqCst) {
                // Read before the call, as NCCL's thread does: it may be retired meanwhile.
                let id = *current.lock().unwrap();
                let mut call = table.enter(owner).unwrap();
                match regions.get(id.to_pointer(), call.parts().1) {
                    Ok(region) => {
                        // Now and then the other thread gets the processor in mid-call.
                        if found % 16 == 0 {
                            thread::yield_now();
                        }
                        for _ in 0..10 {
                            assert!(region.alive.load(Ordering::SeqCst), "dropped under a call");
                        }
                        found += 1;
                    }
                    Err(error) => {
                        assert_eq!(error, HandleError::Stale);
                        missed += 1;
                    }
                }
            }
        });
        assert!(
            found > 0,
            "the test must look at something ({missed} missed)"
        );
        assert_eq!(regions.len(), 1);
    }
}
