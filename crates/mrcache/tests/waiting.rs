//! Several who want the same memory while it is being registered.
#![allow(clippy::unwrap_used)]

#[path = "common/ledger.rs"]
mod ledger;
#[path = "common/setup.rs"]
mod setup;

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use ibnet_mrcache::{Lease, LeaseError};
use ledger::Refused;
use setup::{PAGE, Setup};

/// Two threads that want the same new memory: one registers, both get it.
#[test]
fn waiting_is_counted_and_ends_with_the_one_registration() {
    let setup = Setup::new();
    let (began, begun) = mpsc::channel();
    let (go_on, wait) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let setup = &setup;
        let owner = scope.spawn(move || {
            setup.cache.lease(&setup.host(0x10000, 4 * PAGE), |_| {
                began.send(()).unwrap();
                wait.recv().unwrap();
                Ok(setup.ledger.register())
            })
        });
        begun.recv().unwrap();
        // One wants the same, one a part.
        let waiters = [4 * PAGE, 1]
            .map(|length| scope.spawn(move || setup.lease(setup.host(0x10000, length))));
        while setup.cache.statistics().waits < 2 {
            thread::sleep(Duration::from_millis(1));
        }
        go_on.send(()).unwrap();
        let owner = owner.join().unwrap().unwrap();
        for waiter in waiters {
            assert!(Lease::same_registration(&owner, &waiter.join().unwrap()));
        }
    });
    assert!(setup.ledger.live().is_empty());
    assert_eq!(setup.cache.statistics().registrations, 1);
}

/// A registration that fails: who wants the same gets the error, who wants a part tries itself.
#[test]
fn failing_wakes_those_who_wait() {
    let setup = Setup::new();
    for panics in [false, true] {
        let before = setup.cache.statistics().waits;
        let (began, begun) = mpsc::channel();
        let (go_on, wait) = mpsc::channel::<()>();
        thread::scope(|scope| {
            let setup = &setup;
            let owner = scope.spawn(move || {
                setup.cache.lease(&setup.host(0x10000, 4 * PAGE), |_| {
                    began.send(()).unwrap();
                    wait.recv().unwrap();
                    assert!(!panics, "as the test wants it");
                    Err(Refused("no memory"))
                })
            });
            begun.recv().unwrap();
            let same = scope.spawn(move || {
                let request = setup.host(0x10000, 4 * PAGE);
                setup.cache.lease(&request, |_| Ok(setup.ledger.register()))
            });
            let part = scope.spawn(move || setup.lease(setup.host(0x10000, 1)));
            while setup.cache.statistics().waits < before + 2 {
                thread::sleep(Duration::from_millis(1));
            }
            go_on.send(()).unwrap();
            let refused = Some(LeaseError::Register(Refused("no memory")));
            if panics {
                assert!(owner.join().is_err());
                // There is no error to hand on: everybody tries again.
                same.join().unwrap().unwrap();
            } else {
                assert_eq!(owner.join().unwrap().err(), refused);
                assert_eq!(same.join().unwrap().err(), refused);
            }
            part.join().unwrap();
        });
        assert!(setup.ledger.live().is_empty());
    }
    drop(setup.lease(setup.host(0x10000, 4 * PAGE)));
}

#[test]
fn a_registrar_that_wants_its_own_memory_is_told_so() {
    let setup = Setup::new();
    let request = setup.host(0x10000, PAGE);
    let lease = setup.cache.lease(&request, |_| {
        let inner = setup.cache.lease(&request, |_| Ok(setup.ledger.register()));
        assert!(matches!(inner, Err(LeaseError::Reentrant(_))));
        Ok(setup.ledger.register())
    });
    lease.unwrap();
}
