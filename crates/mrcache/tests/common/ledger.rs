//! A registrar without a device that remembers what is registered.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use ibnet_mrcache::Registration;

/// What is registered with the device that is not there.
#[derive(Clone, Default)]
pub(crate) struct Ledger(Arc<Mutex<Book>>);

#[derive(Default)]
struct Book {
    next: u64,
    live: BTreeSet<u64>,
    stubborn: BTreeSet<u64>,
}

/// A registration. Its number is never used again.
pub(crate) struct Token {
    pub(crate) number: u64,
    ledger: Ledger,
}

/// Why a token could not be made or given back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refused(pub(crate) &'static str);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl Ledger {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap()
    }

    pub(crate) fn register(&self) -> Token {
        let mut book = self.book();
        let number = book.next;
        book.next += 1;
        book.live.insert(number);
        Token {
            number,
            ledger: self.clone(),
        }
    }

    /// A token whose deregistration will fail.
    #[allow(dead_code, reason = "not every test program uses it")]
    pub(crate) fn register_stubborn(&self) -> Token {
        let token = self.register();
        self.book().stubborn.insert(token.number);
        token
    }

    pub(crate) fn live(&self) -> BTreeSet<u64> {
        self.book().live.clone()
    }
}

impl Registration for Token {
    type Error = Refused;

    fn deregister(self) -> Result<(), Refused> {
        let mut book = self.ledger.book();
        assert!(book.live.remove(&self.number), "deregistered twice");
        if book.stubborn.contains(&self.number) {
            Err(Refused("the device is stubborn"))
        } else {
            Ok(())
        }
    }
}
