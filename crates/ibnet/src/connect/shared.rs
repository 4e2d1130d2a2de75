//! [`Shared`]: what all listeners and connections of a transport share.

#[cfg(test)]
use std::sync::Arc;

use super::interface::HandshakeInterface;
use super::service::Complaints;
use crate::config::Config;
use crate::device::nic::Nics;
use crate::events::EventThread;

/// What connections share. The order of the fields is the order of teardown.
pub(crate) struct Shared {
    pub(crate) events: EventThread,
    pub(crate) nics: Nics,
    pub(crate) left_out: Vec<String>,
    pub(crate) complaints: Complaints,
    pub(crate) handshake_interface: HandshakeInterface,
    pub(crate) config: Config,
}

#[cfg(test)]
impl Shared {
    pub(crate) fn without_devices(config: Config) -> Arc<Self> {
        let events = EventThread::start(config.return_async_events);
        Arc::new(Self {
            events: events.expect("an events thread"),
            nics: Nics::new(&[], config.merge_nics),
            left_out: Vec::new(),
            complaints: Complaints::default(),
            handshake_interface: HandshakeInterface::default(),
            config,
        })
    }
}
