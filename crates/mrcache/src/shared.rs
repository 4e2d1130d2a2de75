//! [`Shared`]: what the handles and the leases of a cache have in common.

use std::panic::{self, AssertUnwindSafe};

use crate::entry::Entry;
use crate::registration::{FailedDeregistration, LeaseError, Registration};
use crate::request::{Request, Target};
use crate::state::{Leased, State, Step};
use crate::sync::{Arc, Lock, into_inner};

/// Is told of each deregistration that failed.
pub(crate) type Report<E> = dyn Fn(&FailedDeregistration<'_, E>) + Send + Sync;

pub(crate) struct Shared<R: Registration> {
    /// Not locked while anything is registered, deregistered or reported.
    pub(crate) state: Lock<State<R>>,
    pub(crate) page_size: usize,
    pub(crate) report: Box<Report<R::Error>>,
}

impl<R: Registration> Shared<R> {
    /// A lease on what is live, or is being registered by another thread, or is registered here.
    pub(crate) fn lease(
        &self,
        request: &Request,
        register: impl FnOnce(&Target) -> Result<R, R::Error>,
    ) -> Result<Leased<R>, LeaseError<R::Error>> {
        let wanted = request.wanted(self.page_size)?;
        loop {
            let target = request.target(&wanted, self.page_size);
            match self.state.with(|state| state.lease(&wanted, &target))? {
                Step::Done(leased) => return Ok(leased),
                Step::Register(number, target) => {
                    return self.register(number, || register(&target));
                }
                Step::Wait {
                    number,
                    is_full,
                    is_same,
                } => {
                    match self.state.wait(|state| state.outcome(number)) {
                        Ok(entry) => return Ok((entry, is_full)),
                        Err(Some(error)) if is_same => {
                            return Err(LeaseError::Register((*error).clone()));
                        }
                        // What fails for a larger range, or panics, is tried here.
                        Err(_) => {}
                    }
                }
            }
        }
    }

    /// Registers what is pending under `number`.
    fn register(
        &self,
        number: u64,
        register: impl FnOnce() -> Result<R, R::Error>,
    ) -> Result<Leased<R>, LeaseError<R::Error>> {
        let fail = |error| {
            self.state.with(|state| state.fail(number, error));
            self.state.notify_all();
        };
        match panic::catch_unwind(AssertUnwindSafe(register)) {
            Ok(Ok(registration)) => {
                let entry = self.state.with(|state| state.succeed(number, registration));
                self.state.notify_all();
                Ok((entry, true))
            }
            Ok(Err(error)) => {
                let error = Arc::new(error);
                fail(Some(Arc::clone(&error)));
                Err(LeaseError::Register((*error).clone()))
            }
            Err(payload) => {
                fail(None);
                panic::resume_unwind(payload)
            }
        }
    }

    /// Deregisters what has ended, and reports a failure.
    pub(crate) fn deregister(&self, entry: Arc<Entry<R>>) -> Result<(), R::Error> {
        // All other references have been given up, under the lock.
        let Some(entry) = into_inner(entry) else {
            unreachable!("a reference to what has ended")
        };
        let (pages, access) = (entry.pages, entry.key.access);
        let result = entry.registration.deregister();
        self.state
            .with(|state| state.statistics.deregistered(pages, result.is_ok()));
        if let Err(error) = &result {
            (self.report)(&FailedDeregistration {
                pages,
                access,
                error,
            });
        }
        result
    }

    /// Deregisters all, and returns the first failure.
    pub(crate) fn deregister_all(&self, ended: Vec<Arc<Entry<R>>>) -> Result<(), R::Error> {
        let results = ended.into_iter().map(|entry| self.deregister(entry));
        results.fold(Ok(()), Result::and)
    }
}
