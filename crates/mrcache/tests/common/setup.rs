//! A cache without a pool, with a registrar that keeps a ledger, and one domain.

use ibnet_mrcache::{Access, Cache, Domain, Lease, Request};

use crate::ledger::{Ledger, Token};

pub(crate) const PAGE: usize = 4096;
pub(crate) const READ: Access = Access::new(1);

pub(crate) struct Setup {
    pub(crate) cache: Cache<Token>,
    pub(crate) ledger: Ledger,
    pub(crate) domain: Domain,
}

impl Setup {
    pub(crate) fn new() -> Self {
        Self {
            cache: Cache::builder().page_size(PAGE).build(),
            ledger: Ledger::default(),
            domain: Domain::unique(),
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
