//! Waiting for something that polling brings about, but not for ever.

use std::time::{Duration, Instant};

use crate::net::{Error, Result};

/// Nothing that is measured here takes so long.
const LIMIT: Duration = Duration::from_secs(60);

/// How many fruitless tries there are between two looks at the clock.
const STRIDE: u32 = 1 << 10;

/// Counts fruitless tries.
pub(super) struct Patience {
    what: &'static str,
    last: Instant,
    tries: u32,
    yields: bool,
}

impl Patience {
    /// `yields`: whether other threads get the processor after a fruitless try.
    pub(super) fn new(what: &'static str, yields: bool) -> Self {
        Self {
            what,
            last: Instant::now(),
            tries: 0,
            yields,
        }
    }

    /// Something has happened.
    #[inline]
    pub(super) fn renew(&mut self) {
        self.tries = 0;
    }

    /// Nothing has happened. Fails after a minute of that.
    #[inline]
    pub(super) fn again(&mut self) -> Result<()> {
        if self.yields {
            std::thread::yield_now();
        } else {
            std::hint::spin_loop();
        }
        if self.tries == 0 {
            self.last = Instant::now();
        }
        self.tries += 1;
        if self.tries.is_multiple_of(STRIDE) && self.last.elapsed() > LIMIT {
            return Err(Error::Silence {
                what: self.what,
                seconds: LIMIT.as_secs(),
            });
        }
        Ok(())
    }

    /// Nothing has happened, and it will take a while.
    pub(super) fn pause(&mut self, pause: Duration) -> Result<()> {
        if pause.is_zero() {
            return self.again();
        }
        std::thread::sleep(pause);
        if self.tries == 0 {
            self.last = Instant::now();
        }
        self.tries += 1;
        if self.last.elapsed() > LIMIT {
            self.tries = STRIDE - 1;
            return self.again();
        }
        Ok(())
    }
}
