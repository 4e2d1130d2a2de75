//! Entering, taking over and closing, by one thread and by many.
#![allow(clippy::unwrap_used)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
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
