//! Receives without buffers, which the peer's writes with immediate use up: they are replaced in batches.

use ibnet_verbs::PostError;

use crate::connect::queue_pair::{RECEIVE_CHAIN, post_receives};
use crate::connection::path::Path;

/// The receives of all paths of a connection.
pub(crate) struct Replenisher {
    /// Receives that are replaced with one call.
    batch: u32,
    /// Used up and not yet replaced, for each path.
    used: Vec<u32>,
}

impl Replenisher {
    /// For `paths` paths, each of which has `posted` receives. A shallow queue is replenished more often,
    /// so that most of it is always posted.
    pub(crate) fn new(posted: u32, paths: usize) -> Self {
        Self {
            batch: (posted / 8).clamp(1, RECEIVE_CHAIN as u32),
            used: vec![0; paths],
        }
    }

    /// The most receives of a path that wait to be replaced.
    pub(crate) fn most_missing(&self) -> u32 {
        self.batch - 1
    }

    /// A receive of path `number`, which is `path`, was used up; it was posted with `id`.
    #[inline]
    pub(crate) fn used(
        &mut self,
        number: usize,
        path: &mut Path,
        id: u64,
    ) -> Result<(), PostError> {
        path.receives = path.receives.saturating_sub(1);
        self.used[number] += 1;
        // A queue pair that is done with gets none.
        if self.used[number] < self.batch || !path.is_live {
            return Ok(());
        }
        self.used[number] = 0;
        path.receives += self.batch;
        post_receives(&path.queue_pair, id, self.batch)
    }

    /// Path `number` has a new queue pair, with all its receives.
    pub(crate) fn renewed(&mut self, number: usize) {
        self.used[number] = 0;
    }
}
