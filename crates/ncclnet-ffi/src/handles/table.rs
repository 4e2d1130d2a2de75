//! A table of objects that one call at a time may use.
//!
//! Each slot has a word, the generation of its object and its state, and an owner: the mark of the
//! thread that used the object last ([`super::mark`]). Entering checks the word, that the owner is
//! this thread, and writes its mark: a handful of plain loads and a store. It never waits. Another
//! thread first takes the object over, which costs a system call. NCCL promises to use a
//! communicator's data path from one thread at a time; should it not, the second thread gets
//! [`HandleError::Busy`] instead of a data race.
//!
//! Beside the object a slot has a *shared part* behind a lock, for what other threads may do while
//! the data path is busy: registering memory. The data path never touches that lock.

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::mem;
use std::ops::{Deref, DerefMut};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering, fence};
use std::sync::{Mutex, PoisonError};
use std::thread;

use super::error::HandleError;
use super::mark::{Mark, NOBODY, Pause, SEIZED, heavy_barrier, make_barriers_light};
use super::regions::Owner;
use super::slots::Slots;
use super::token::{Kind, ObjectId, RequestToken};

/// Objects of one kind: `T` for one call at a time, `S` shared by all threads.
///
/// An empty one is all zeros, so that a static one takes no room in the library's file.
pub(crate) struct Table<T, S, const CHUNKS: usize> {
    slots: Slots<Slot<T, S>, CHUNKS>,
}

/// So often is tried to seize what somebody else has seized: for milliseconds, while who seizes a slot
/// to enter it has it for microseconds.
const ATTEMPTS: u32 = 2000;

/// What can be in a table.
pub(crate) trait Object: Send {
    /// The kind of its handles.
    const KIND: Kind;
}

impl<T: Object, S: Send, const CHUNKS: usize> Table<T, S, CHUNKS> {
    /// An empty table for at most `CHUNKS` times [`CHUNK`](super::CHUNK) objects.
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
    pub(crate) fn insert(&self, object: T, shared: S) -> Result<ObjectId, HandleError> {
        make_barriers_light();
        let (index, slot) = self.slots.take().ok_or(HandleError::Full(T::KIND))?;
        let word = Word(slot.word.load(Ordering::Acquire));
        // SAFETY: the slot is free, so its word lets nobody in, and `take` gave it to this thread alone.
        unsafe { *slot.object.get() = Some(object) };
        *slot.shared() = Some(shared);
        let id = ObjectId {
            kind: T::KIND,
            index,
            generation: word.generation(),
        };
        slot.name.store(Owner::of(id).0, Ordering::Relaxed);
        let open = Word::new(word.generation(), State::Open);
        slot.word.store(open.0, Ordering::Release);
        Ok(id)
    }

    /// Enters an object: it is this thread's until the guard goes. Lock-free, never waits.
    #[inline]
    pub(crate) fn enter(&self, id: ObjectId) -> Result<Entered<'_, T, S>, HandleError> {
        self.enter_masked(id.index, id.generation, u32::MAX)
    }

    /// Enters the communicator of a request, of whose generation the token has the low bits.
    #[inline]
    pub(crate) fn enter_for(&self, token: RequestToken) -> Result<Entered<'_, T, S>, HandleError> {
        self.enter_masked(token.index, token.generation, RequestToken::GENERATION_MASK)
    }

    #[inline]
    fn enter_masked(
        &self,
        index: u32,
        generation: u32,
        mask: u32,
    ) -> Result<Entered<'_, T, S>, HandleError> {
        let slot = self.slots.get(index).ok_or(HandleError::Foreign)?;
        let word = Word(slot.word.load(Ordering::Relaxed));
        if !word.lets_in(generation, mask) {
            return Err(word.refusal(generation, mask));
        }
        let owner = slot.owner();
        let mark = if owner.is_mine() && owner.enter(slot.address()) {
            // Whoever takes the object over says so before he looks at the mark, which is written.
            if slot.owner().is(owner) {
                owner
            } else {
                owner.leave();
                slot.take_over(generation, mask)?
            }
        } else {
            slot.take_over(generation, mask)?
        };
        Ok(Entered {
            slot,
            mark,
            not_send: PhantomData,
        })
    }

    /// Uses the shared part of an object, under its lock; a call may be inside the object meanwhile.
    pub(crate) fn with_shared<R>(
        &self,
        id: ObjectId,
        use_it: impl FnOnce(&mut S) -> R,
    ) -> Result<R, HandleError> {
        let slot = self.slots.get(id.index).ok_or(HandleError::Foreign)?;
        let mut shared = slot.shared();
        // The generation changes only after the shared part was taken out under this lock.
        let word = Word(slot.word.load(Ordering::Acquire));
        match shared.as_mut() {
            Some(shared) if word.generation() == id.generation => Ok(use_it(shared)),
            _ => Err(HandleError::Stale),
        }
    }

    /// Takes an object out and ends it with `end`. Until `end` returns nobody else gets the slot.
    ///
    /// Works for a poisoned object too. An object that another thread is in a call with stays.
    pub(crate) fn close<R>(
        &self,
        id: ObjectId,
        end: impl FnOnce(T, S) -> R,
    ) -> Result<R, HandleError> {
        let slot = self.slots.get(id.index).ok_or(HandleError::Foreign)?;
        let word = Word(slot.word.load(Ordering::Relaxed));
        if word.generation() != id.generation || word.state() == State::Free {
            return Err(HandleError::Stale);
        }
        let seized = slot.seize_soon()?;
        // As long as the slot is seized, this does not change.
        let word = Word(slot.word.load(Ordering::Acquire));
        if word.generation() != id.generation || word.state() == State::Free {
            return Err(HandleError::Stale);
        }
        // From here on the slot is this thread's, and it is given back even if `end` panics.
        let vacated = Vacating {
            table: self,
            seized: Some(seized),
            index: id.index,
            word,
        };
        // SAFETY: the slot is seized by this thread: nobody else uses the object.
        let object = unsafe { (*slot.object.get()).take() };
        let shared = slot.shared().take();
        let (Some(object), Some(shared)) = (object, shared) else {
            return Err(HandleError::Stale);
        };
        let result = end(object, shared);
        drop(vacated);
        Ok(result)
    }

    /// Whether this thread must not wait for a call inside object `id`, because it is in a call itself,
    /// from within which it asks: with this object, which it would never see the end of, or with
    /// another one, which somebody else may wait for the end of meanwhile.
    pub(crate) fn must_not_wait(&self, id: ObjectId) -> bool {
        self.slots.get(id.index).is_some_and(|slot| {
            let owner = slot.owner();
            if owner.is_mine() {
                owner.is_inside(slot.address())
            } else {
                Mark::mine().is_in_a_call()
            }
        })
    }

    /// Waits until the call that is inside object `id` at this moment, if there is one, has left it.
    /// See [`must_not_wait`](Self::must_not_wait).
    ///
    /// Calls are short and wait for nothing themselves; a call that enters later is not waited for.
    pub(crate) fn wait_for_call_inside(&self, id: ObjectId) {
        let Some(slot) = self.slots.get(id.index) else {
            return;
        };
        // After what the caller has marked, see `Regions`.
        fence(Ordering::SeqCst);
        let owner = slot.owner();
        // This thread itself is in no call. And whoever enters from here on passes a barrier, because
        // it takes the object over, and sees the mark.
        if owner.is_mine() || owner.is(&NOBODY) {
            return;
        }
        heavy_barrier();
        let mut pause = Pause::default();
        let owner = loop {
            let owner = slot.owner();
            if !owner.is(&SEIZED) {
                break owner;
            }
            // Whoever seized it leaves it soon, or closes the object.
            pause.once();
        };
        owner.wait_until_outside(slot.address());
    }
}

/// One slot. Aligned so that two communicators of two threads do not share a cache line (or the
/// pair of lines that some processors fetch together).
#[repr(align(128))]
struct Slot<T, S> {
    word: AtomicU64,
    /// The object as the owner of regions.
    name: AtomicU64,
    /// Never null: the mark of the thread that used the object last, [`NOBODY`] or [`SEIZED`].
    owner: AtomicPtr<Mark>,
    object: UnsafeCell<Option<T>>,
    shared: Mutex<Option<S>>,
}

// SAFETY: `object` is touched only by the thread that has written its mark as the owner's, or that
// has seized (or freshly taken) the slot, so it moves between threads but is never shared: `T: Send`
// is enough. The shared part is behind a mutex.
unsafe impl<T: Send, S: Send> Sync for Slot<T, S> {}

impl<T, S> Slot<T, S> {
    fn shared(&self) -> std::sync::MutexGuard<'_, Option<S>> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    fn owner(&self) -> &'static Mark {
        // SAFETY: marks are never freed, and the pointer is that of one: see the field.
        unsafe { &*self.owner.load(Ordering::SeqCst) }
    }

    /// What a mark says of a call with this object.
    #[inline]
    fn address(&self) -> usize {
        ptr::from_ref(self).addr()
    }

    /// Enters an object that another thread used last, or none.
    #[cold]
    fn take_over(&self, generation: u32, mask: u32) -> Result<&'static Mark, HandleError> {
        let mine = Mark::mine();
        for _ in 0..ATTEMPTS {
            let seized = self.seize_soon()?;
            // As long as the slot is seized, this does not change.
            let word = Word(self.word.load(Ordering::Acquire));
            if !word.lets_in(generation, mask) {
                return Err(word.refusal(generation, mask));
            }
            seized.hand_to(mine);
            // A call from within another one of this thread.
            if !mine.enter(self.address()) {
                return Err(HandleError::Busy);
            }
            if self.owner().is(mine) {
                return Ok(mine);
            }
            // Somebody has seized it in between; who only wanted to is gone in a moment.
            mine.leave();
        }
        Err(HandleError::Busy)
    }

    /// As [`seize`](Self::seize), but tries again if somebody else has seized it: one who asks for the
    /// object that was here before finds that out soon, and is not to disturb who has a right to this
    /// one.
    fn seize_soon(&self) -> Result<Seized<'_, T, S>, HandleError> {
        let mut pause = Pause::default();
        for _ in 0..ATTEMPTS {
            if let Some(seized) = self.seize()? {
                return Ok(seized);
            }
            pause.once();
        }
        Err(HandleError::Busy)
    }

    /// Keeps every thread out that is not inside; an error if one is. Never waits; `None` if somebody
    /// else has seized it or does so now.
    fn seize(&self) -> Result<Option<Seized<'_, T, S>>, HandleError> {
        let before = self.owner();
        if before.is(&SEIZED) {
            return Ok(None);
        }
        let expected = ptr::from_ref(before).cast_mut();
        let seized = ptr::from_ref(&SEIZED).cast_mut();
        let exchanged =
            self.owner
                .compare_exchange(expected, seized, Ordering::SeqCst, Ordering::Relaxed);
        if exchanged.is_err() {
            return Ok(None);
        }
        let seized = Seized {
            slot: self,
            next: before,
        };
        if before.is_mine() || before.is(&NOBODY) {
            fence(Ordering::SeqCst);
        } else {
            heavy_barrier();
        }
        if before.is_inside(self.address()) {
            // It goes on as the owner.
            return Err(HandleError::Busy);
        }
        Ok(Some(seized))
    }
}

impl<T, S> Default for Slot<T, S> {
    fn default() -> Self {
        Self {
            word: AtomicU64::new(Word::new(0, State::Free).0),
            name: AtomicU64::new(0),
            owner: AtomicPtr::new(ptr::from_ref(&NOBODY).cast_mut()),
            object: UnsafeCell::new(None),
            shared: Mutex::new(None),
        }
    }
}

/// A slot that nobody can enter. When it goes, `next` is the owner.
struct Seized<'a, T, S> {
    slot: &'a Slot<T, S>,
    next: &'static Mark,
}

impl<T, S> Seized<'_, T, S> {
    fn hand_to(mut self, next: &'static Mark) {
        self.next = next;
    }
}

impl<T, S> Drop for Seized<'_, T, S> {
    fn drop(&mut self) {
        let next = ptr::from_ref(self.next).cast_mut();
        self.slot.owner.store(next, Ordering::SeqCst);
    }
}

/// An object that this thread is in a call with.
pub(crate) struct Entered<'a, T, S> {
    slot: &'a Slot<T, S>,
    mark: &'static Mark,
    /// The mark is this thread's.
    not_send: PhantomData<*const ()>,
}

impl<T, S> Entered<'_, T, S> {
    /// Does `work` with the object, as the whole of the call; cheaper than letting the guard go.
    #[inline]
    pub(crate) fn run<R>(mut self, work: impl FnOnce(&mut T, Inside<'_>) -> R) -> R {
        let (object, inside) = self.parts();
        // Should it panic, the guard goes and finds that out.
        let result = work(object, inside);
        self.mark.leave();
        mem::forget(self);
        result
    }

    /// The object, and the proof that this thread is in a call with it.
    #[inline]
    pub(crate) fn parts(&mut self) -> (&mut T, Inside<'_>) {
        let inside = Inside {
            owner: Owner(self.slot.name.load(Ordering::Relaxed)),
            call: PhantomData,
        };
        // SAFETY: the object was put there before the word let anybody in, and this guard is the
        // only one for as long as the mark says so; `&mut self` makes this the only reference.
        let object = unsafe { &mut *self.slot.object.get() };
        match object {
            Some(object) => (object, inside),
            // `insert` fills the object before it lets anybody in, and only `close` empties it,
            // which no guard outlives.
            None => unreachable!("an entered slot has an object"),
        }
    }
}

impl<T, S> Deref for Entered<'_, T, S> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: as in `parts`; a shared reference from `&self`.
        match unsafe { &*self.slot.object.get() } {
            Some(object) => object,
            None => unreachable!("an entered slot has an object"),
        }
    }
}

impl<T, S> DerefMut for Entered<'_, T, S> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        self.parts().0
    }
}

impl<T, S> Drop for Entered<'_, T, S> {
    #[inline]
    fn drop(&mut self) {
        // A panic may have left the object half-changed.
        if thread::panicking() {
            let word = Word(self.slot.word.load(Ordering::Relaxed));
            let poisoned = Word::new(word.generation(), State::Poisoned);
            self.slot.word.store(poisoned.0, Ordering::Release);
        }
        self.mark.leave();
    }
}

/// The proof, for its lifetime, that a call is inside the communicator `id`.
#[derive(Clone, Copy)]
pub(crate) struct Inside<'a> {
    owner: Owner,
    call: PhantomData<&'a ()>,
}

impl Inside<'_> {
    #[inline]
    pub(super) fn owner(self) -> Owner {
        self.owner
    }
}

/// Frees a slot for the next generation, whatever happens.
struct Vacating<'a, T: Object, S: Send, const CHUNKS: usize> {
    table: &'a Table<T, S, CHUNKS>,
    seized: Option<Seized<'a, T, S>>,
    index: u32,
    word: Word,
}

impl<T: Object, S: Send, const CHUNKS: usize> Drop for Vacating<'_, T, S, CHUNKS> {
    fn drop(&mut self) {
        // Before anybody else gets the slot.
        if let Some(seized) = self.seized.take() {
            let next = Word::new(self.word.generation().wrapping_add(1), State::Free);
            seized.slot.word.store(next.0, Ordering::Release);
            seized.hand_to(&NOBODY);
        }
        self.table.slots.give_back(self.index);
    }
}

/// `generation (32 bits) | state (32)`.
#[derive(Clone, Copy)]
struct Word(u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free = 0,
    Open = 1,
    Poisoned = 2,
}

impl Word {
    const fn new(generation: u32, state: State) -> Self {
        Self((generation as u64) << 32 | state as u64)
    }

    #[inline]
    const fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }

    const fn state(self) -> State {
        match self.0 as u32 {
            0 => State::Free,
            1 => State::Open,
            _ => State::Poisoned,
        }
    }

    /// Whether it lets in somebody who asks for the bits of `mask` of `generation`.
    #[inline]
    const fn lets_in(self, generation: u32, mask: u32) -> bool {
        let asked = (mask as u64) << 32 | u32::MAX as u64;
        self.0 & asked == Self::new(generation, State::Open).0
    }

    /// Why it does not.
    #[cold]
    fn refusal(self, generation: u32, mask: u32) -> HandleError {
        if self.generation() & mask != generation || self.state() == State::Free {
            HandleError::Stale
        } else {
            HandleError::Poisoned
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::AtomicUsize;
    use std::thread;

    use super::super::slots::CHUNK;
    use super::*;

    impl Object for Vec<u32> {
        const KIND: Kind = Kind::Sender;
    }

    impl Object for (u64, [u64; 16]) {
        const KIND: Kind = Kind::Sender;
    }

    impl Object for u32 {
        const KIND: Kind = Kind::Receiver;
    }

    fn table() -> Table<Vec<u32>, u32, 16> {
        Table::new()
    }

    #[test]
    fn an_object_is_found_until_it_is_closed() {
        let table = table();
        let id = table.insert(vec![1], 2).unwrap();
        table.enter(id).unwrap().push(3);
        assert_eq!(*table.enter(id).unwrap(), [1, 3]);
        assert_eq!(table.with_shared(id, |shared| *shared), Ok(2));
        assert_eq!(table.len(), 1);
        assert_eq!(
            table.close(id, |object, shared| (object, shared)),
            Ok((vec![1, 3], 2))
        );
        assert_eq!(table.len(), 0);

        assert_eq!(table.enter(id).err(), Some(HandleError::Stale));
        assert_eq!(table.with_shared(id, |_| ()), Err(HandleError::Stale));
        assert_eq!(table.close(id, |_, _| ()), Err(HandleError::Stale));
    }

    #[test]
    fn the_next_object_in_a_slot_is_not_the_one_before() {
        let table = table();
        let first = table.insert(vec![1], 0).unwrap();
        table.close(first, |_, _| ()).unwrap();
        let second = table.insert(vec![2], 0).unwrap();
        assert_eq!(second.index, first.index, "the slot is used again");
        assert_eq!(table.enter(first).err(), Some(HandleError::Stale));
        assert_eq!(*table.enter(second).unwrap(), [2]);

        let request = RequestToken::new(Kind::SendRequest, first, 9);
        assert_eq!(table.enter_for(request).err(), Some(HandleError::Stale));
        let request = RequestToken::new(Kind::SendRequest, second, 9);
        assert_eq!(
            table.enter_for(request).unwrap().parts().1.owner(),
            Owner::of(second)
        );
    }

    #[test]
    fn an_index_that_was_never_used_is_foreign() {
        let table = table();
        table.insert(vec![], 0).unwrap();
        let never = ObjectId {
            kind: Kind::Sender,
            index: 100_000,
            generation: 0,
        };
        assert_eq!(table.enter(never).err(), Some(HandleError::Foreign));
        let unused = ObjectId {
            kind: Kind::Sender,
            index: 5,
            generation: 0,
        };
        assert_eq!(table.enter(unused).err(), Some(HandleError::Stale));
    }

    #[test]
    fn a_second_call_is_refused_and_the_shared_part_is_not() {
        let table = table();
        let id = table.insert(vec![], 7).unwrap();
        let inside = table.enter(id).unwrap();
        assert_eq!(table.enter(id).err(), Some(HandleError::Busy));
        assert_eq!(table.close(id, |_, _| ()), Err(HandleError::Busy));
        assert_eq!(table.with_shared(id, |shared| *shared), Ok(7));
        drop(inside);
        assert!(table.enter(id).is_ok());
    }

    #[test]
    fn a_call_from_within_a_call_is_refused_and_does_no_harm() {
        let table = table();
        let (outer, inner) = (
            table.insert(vec![], 0).unwrap(),
            table.insert(vec![], 0).unwrap(),
        );
        for _ in 0..3 {
            let call = table.enter(outer).unwrap();
            assert_eq!(table.enter(inner).err(), Some(HandleError::Busy));
            // Neither would this thread ever wait for itself.
            table.wait_for_call_inside(outer);
            drop(call);
            drop(table.enter(inner).unwrap());
        }
        assert!(table.close(inner, |_, _| ()).is_ok());
    }

    /// Threads hand objects to each other: what one has written the next one sees.
    #[test]
    fn an_object_goes_from_thread_to_thread() {
        const THREADS: u64 = 4;
        const ROUNDS: u64 = 200;
        let table = Table::<(u64, [u64; 16]), (), 1>::new();
        let ids = [0; 3].map(|_| table.insert((0, [0; 16]), ()).unwrap());
        thread::scope(|scope| {
            for number in 0..THREADS {
                let (table, ids) = (&table, &ids);
                scope.spawn(move || {
                    let mut next = [number; 3];
                    while next.iter().any(|next| *next < ROUNDS) {
                        for (id, next) in ids.iter().zip(&mut next) {
                            // Busy: it is another one's turn, who may be inside.
                            let Ok(mut object) = table.enter(*id) else {
                                thread::yield_now();
                                continue;
                            };
                            if object.0 == *next && object.0 < ROUNDS {
                                assert!(object.1.iter().all(|word| *word == object.0));
                                object.1 = [*next + 1; 16];
                                object.0 = *next + 1;
                                *next += THREADS;
                            }
                        }
                    }
                });
            }
        });
        for id in ids {
            assert_eq!(table.enter(id).unwrap().0, ROUNDS);
        }
    }

    #[test]
    fn memory_may_not_go_from_within_a_call() {
        let table = table();
        let id = table.insert(vec![], 0).unwrap();
        let (others, own) = (
            table.insert(vec![], 0).unwrap(),
            table.insert(vec![], 0).unwrap(),
        );
        thread::scope(|scope| {
            scope.spawn(|| drop(table.enter(others).unwrap()));
        });
        drop(table.enter(own).unwrap());
        assert!(
            ![id, others, own]
                .map(|id| table.must_not_wait(id))
                .contains(&true)
        );
        let call = table.enter(id).unwrap();
        assert!(table.must_not_wait(id));
        assert!(table.must_not_wait(others), "two could wait for each other");
        assert!(
            !table.must_not_wait(own),
            "nobody is inside but this thread"
        );
        thread::scope(|scope| {
            let elsewhere = scope.spawn(|| table.must_not_wait(id));
            assert!(!elsewhere.join().unwrap(), "another thread can wait");
        });
        drop(call);
        assert!(!table.must_not_wait(id));
    }

    #[test]
    fn who_comes_late_to_a_closed_object_does_not_disturb_the_next_one() {
        let table = Table::<u32, (), 1>::new();
        for _ in 1..CHUNK {
            table.insert(0, ()).unwrap();
        }
        let old = table.insert(1, ()).unwrap();
        table.close(old, |_, ()| ()).unwrap();
        // Somebody has found the old object open, and goes on only now.
        let slot = table.slots.get(old.index).unwrap();
        let late = slot.seize().unwrap().unwrap();
        let new = table.insert(2, ()).unwrap();
        assert_eq!(new.index, old.index);
        let held = AtomicUsize::new(1);
        thread::scope(|scope| {
            let user = scope.spawn(|| {
                let entered = table.enter(new).map(|object| *object);
                (entered, held.load(Ordering::SeqCst))
            });
            thread::sleep(std::time::Duration::from_micros(200));
            held.store(0, Ordering::SeqCst);
            drop(late);
            assert_eq!(user.join().unwrap(), (Ok(2), 0));
        });
        table.close(new, |_, ()| ()).unwrap();
    }

    #[test]
    fn the_heir_of_a_dead_thread_s_place_sees_what_it_has_left() {
        let table = Table::<u32, (), 1>::new();
        let id = table.insert(0, ()).unwrap();
        // Threads one after the other have their control blocks in the same place, as a rule.
        for round in 0..50 {
            thread::scope(|scope| {
                scope.spawn(|| {
                    let mut object = table.enter(id).unwrap();
                    assert_eq!(*object, round);
                    *object += 1;
                });
            });
        }
        assert_eq!(*table.enter(id).unwrap(), 50);
    }

    #[test]
    fn whoever_waits_while_the_object_is_closed_waits_for_that() {
        let table = table();
        let id = table.insert(vec![7], 0).unwrap();
        drop(table.enter(id).unwrap());
        let (closing, has_closed) = (AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            scope.spawn(|| {
                while closing.load(Ordering::SeqCst) == 0 {
                    thread::yield_now();
                }
                table.wait_for_call_inside(id);
                assert_eq!(has_closed.load(Ordering::SeqCst), 1);
            });
            let closed = table.close(id, |_, _| {
                closing.store(1, Ordering::SeqCst);
                thread::sleep(std::time::Duration::from_millis(20));
                has_closed.store(1, Ordering::SeqCst);
            });
            closed.unwrap();
        });
    }

    /// Slots are used again by other threads while their first users still ask for what was there.
    #[test]
    fn nobody_enters_what_was_closed() {
        let table = Table::<u32, (), 1>::new();
        // All others are taken, so that each is followed by the next in the same slot.
        for _ in 1..CHUNK {
            table.insert(0, ()).unwrap();
        }
        let current = Mutex::new(table.insert(0, ()).unwrap());
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..2000 {
                        let id = *current.lock().unwrap();
                        if let Ok(mut object) = table.enter(id) {
                            assert_eq!(*object, id.generation);
                            *object = id.generation;
                        }
                    }
                });
            }
            scope.spawn(|| {
                let mut closed = 0;
                while closed < 500 {
                    let mut current = current.lock().unwrap();
                    if table.close(*current, |_, ()| ()).is_ok() {
                        closed += 1;
                        *current = table.insert(closed, ()).unwrap();
                    }
                }
            });
        });
        let id = *current.lock().unwrap();
        assert_eq!((id.generation, *table.enter(id).unwrap()), (500, 500));
    }

    #[test]
    fn a_panic_leaves_an_object_that_can_only_be_closed() {
        let table = table();
        let id = table.insert(vec![1], 0).unwrap();
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let _inside = table.enter(id).unwrap();
            panic!("in a call (this panic is part of the test)");
        }));
        assert!(panicked.is_err());
        assert_eq!(table.enter(id).err(), Some(HandleError::Poisoned));
        assert_eq!(table.close(id, |object, _| object), Ok(vec![1]));

        let id = table.insert(vec![2], 0).unwrap();
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let _ = table.close(id, |_, _| panic!("while closing (part of the test)"));
        }));
        assert!(panicked.is_err());
        assert_eq!(table.len(), 0, "the slot is free again");
    }

    #[test]
    fn a_full_table_says_so() {
        let table = Table::<u32, (), 1>::new();
        let second = table.insert(0, ()).unwrap();
        for _ in 1..CHUNK {
            table.insert(0, ()).unwrap();
        }
        assert_eq!(table.insert(0, ()), Err(HandleError::Full(Kind::Receiver)));
        table.close(second, |_, ()| ()).unwrap();
        assert!(table.insert(0, ()).is_ok());
    }

    /// Many threads enter, close and add; a counter that is not atomic would lose updates if two
    /// threads were ever inside the same object.
    #[test]
    fn threads_exclude_each_other() {
        struct Counter(u64);
        impl Object for Counter {
            const KIND: Kind = Kind::Receiver;
        }
        let table = Table::<Counter, (), 1>::new();
        let entered = AtomicUsize::new(0);
        let refused = AtomicUsize::new(0);
        let id = table.insert(Counter(0), ()).unwrap();
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for round in 0..20_000 {
                        match table.enter(id) {
                            Ok(mut counter) => {
                                let seen = counter.0;
                                if round % 64 == 0 {
                                    thread::yield_now();
                                }
                                counter.0 = seen + 1;
                                entered.fetch_add(1, Ordering::Relaxed);
                            }
                            Err(error) => {
                                assert_eq!(error, HandleError::Busy);
                                refused.fetch_add(1, Ordering::Relaxed);
                            }
                        }
                    }
                });
            }
            // Meanwhile others come and go in the neighbouring slots.
            scope.spawn(|| {
                for round in 0..5_000 {
                    let other = table.insert(Counter(round), ()).unwrap();
                    assert_eq!(table.enter(other).unwrap().0, round);
                    table
                        .close(other, |counter, ()| assert_eq!(counter.0, round))
                        .unwrap();
                    assert_eq!(table.enter(other).err(), Some(HandleError::Stale));
                }
            });
        });
        let entered = entered.into_inner();
        assert_eq!(entered + refused.into_inner(), 80_000);
        assert_eq!(table.enter(id).unwrap().0, entered as u64);
    }
}
