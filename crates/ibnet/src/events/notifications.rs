//! Being woken by completions: one completion channel for each device, whatever the number of
//! connections, and whom each completion queue belongs to.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ibnet_verbs::{CompletionChannel, Context, CqId};

use super::{DeviceToken, EventFlags, FATAL};
use crate::error::Error;

/// The completion channels, and who waits at them.
#[derive(Default)]
pub(super) struct CompletionChannels {
    channels: Mutex<Vec<(DeviceToken, CompletionChannel)>>,
    queues: Mutex<HashMap<CqId, (DeviceToken, Arc<EventFlags>)>>,
}

impl CompletionChannels {
    /// The channel of `device`, whose context is `context`; a new one is shown to `watch` first.
    pub(super) fn channel(
        &self,
        device: DeviceToken,
        context: &Context,
        watch: impl FnOnce(&CompletionChannel) -> Result<(), Error>,
    ) -> Result<CompletionChannel, Error> {
        let mut channels = lock(&self.channels);
        if let Some((_, channel)) = channels.iter().find(|(of, _)| *of == device) {
            return Ok(channel.clone());
        }
        let channel = context.create_channel()?;
        watch(&channel)?;
        channels.push((device, channel.clone()));
        Ok(channel)
    }

    /// Completions of `queue`, which is on `device`, are for `flags` from now on.
    pub(super) fn assign(&self, queue: CqId, device: DeviceToken, flags: &Arc<EventFlags>) {
        lock(&self.queues).insert(queue, (device, Arc::clone(flags)));
    }

    /// Undoes [`assign`](Self::assign) for `queues`. One may have been destroyed by now, and
    /// another one be in its place: that one stays.
    pub(super) fn withdraw(&self, queues: impl Iterator<Item = CqId>, flags: &Arc<EventFlags>) {
        let mut assigned = lock(&self.queues);
        for queue in queues {
            if let Entry::Occupied(entry) = assigned.entry(queue)
                && Arc::ptr_eq(&entry.get().1, flags)
            {
                entry.remove();
            }
        }
    }

    /// Wakes who waits for what has happened on `channel` of `device`. False if nothing will
    /// happen on it any more.
    pub(super) fn ring(&self, device: DeviceToken, channel: &CompletionChannel) -> bool {
        loop {
            match channel.next_event() {
                Ok(Some(event)) => {
                    let queue = event.cq_id();
                    // Acknowledged before anybody is told: who is told may destroy the queue,
                    // which waits for the acknowledgement.
                    drop(event);
                    let flags = lock(&self.queues).get(&queue).map(|(_, of)| Arc::clone(of));
                    if let Some(flags) = flags {
                        flags.wake();
                    }
                }
                Ok(None) => return true,
                Err(error) => {
                    tracing::warn!(%error, "no more completion events");
                    self.silence(device);
                    return false;
                }
            }
        }
    }

    /// Nobody on `device` will be woken again, as when it was removed: that ends its connections.
    fn silence(&self, device: DeviceToken) {
        let hit: Vec<_> = lock(&self.queues)
            .values()
            .filter(|(of, _)| *of == device)
            .map(|(_, flags)| Arc::clone(flags))
            .collect();
        for flags in hit {
            flags.raise(FATAL);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code under these locks leaves anything half changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
