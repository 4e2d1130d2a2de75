//! A cache without a pool, with a registrar that keeps a ledger, and one domain.

use ibnet_mrcache::{Access, Cache, DomainId, Lease, Policy, Request};

use crate::ledger::{Ledger, Token};

pub(crate) const PAGE: usize = 4096;
pub(crate) const READ: Access = Access {
    rights: 1,
    modes: 0,
};

pub(crate) struct Setup {
    pub(crate) cache: Cache<Token>,
    pub(crate) ledger: Ledger,
    pub(crate) domain: DomainId,
}

impl Setup {
    pub(crate) fn new() -> Self {
        Self::with_policy(Policy::WhileLeased)
    }

    pub(crate) fn with_policy(policy: Policy) -> Self {
        Self {
            cache: Cache::with_page_size(policy, PAGE),
            ledger: Ledger::default(),
            domain: DomainId::allocate(),
        }
    }

    pub(crate) fn host(&self, address: usize, length: usize) -> Request {
        Request::host(self.domain, READ, address, length)
    }

    pub(crate) fn lease(&self, request: Request) -> Lease<Token> {
        self.cache
            .lease(&request, |_| Ok(self.ledger.register()))
            .unwrap()
    }
}
