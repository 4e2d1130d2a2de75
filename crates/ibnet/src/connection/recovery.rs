//! Recovery: a path that has failed gets another queue pair, and what did not arrive is sent again.
//!
//! A reliable queue pair delivers in order, and each part of a message uses up one receive: so the number of
//! parts that the receiver has taken from a path tells which of those posted have arrived, whatever the
//! sender's own completions say. When a path fails on one end, both
//!
//! 1. move their queue pair to ERR and wait until every work request has come back, so that nothing can land
//!    through it any more ([`PathEvent::Down`], [`PathEvent::Drained`]);
//! 2. compare what was posted with what was taken: what is missing goes over another path that is live, or
//!    over this one when it is live again; announcements that are outstanding are written once more;
//! 3. make a *new* queue pair, on the address that the port has now ([`PathEvent::Offer`]), connect it
//!    ([`PathEvent::Ready`]), and try again with a growing pause while that fails.
//!
//! All of it happens within the calls of the application. It sees a delay, and an error only if no path could be
//! made live for [`recovery_timeout`](crate::Config).

use std::time::{Duration, Instant};

use ibnet_verbs::{RemoteAddress, SendRequest, WcStatus, WorkCompletion};

use crate::connect::queue_pair::{Join, NewQueuePair};
use crate::connection::path::Path;
use crate::connection::path_recovery::{Attempt, FIRST_PAUSE, Offer, Stage};
use crate::connection::wr_id::WrId;
use crate::connection::{Connection, Side};
use crate::device::LocalPort;
use crate::error::{Error, Failed};
use crate::wire::message::{DeviceOffer, PathEvent, PathNews};

/// A queue pair that does not drain is moved to ERR once more after this time.
const DRAINS_WITHIN: Duration = Duration::from_millis(20);
/// One that never drains is done with, too, once it is destroyed.
const LONGEST_DRAIN: Duration = Duration::from_secs(2);
/// However soon a queue pair gives up, it is not taken for one that hangs before this time.
const LEAST_STALL: Duration = Duration::from_secs(10);
/// So many epochs that end at once are no passing trouble.
const MOST_FRUITLESS: u32 = 3;

/// Whether a new queue pair can help: not if the request was wrong.
fn may_pass(status: WcStatus) -> bool {
    matches!(
        status,
        WcStatus::RETRY_EXC_ERR
            | WcStatus::RNR_RETRY_EXC_ERR
            | WcStatus::LOC_QP_OP_ERR
            | WcStatus::WR_FLUSH_ERR
            | WcStatus::REM_ABORT_ERR
            | WcStatus::REM_OP_ERR
            | WcStatus::GENERAL_ERR
            | WcStatus::FATAL_ERR
            | WcStatus::RESP_TIMEOUT_ERR
    )
}

impl<S: Side> Connection<S> {
    /// A work request of device `device` has failed.
    #[cold]
    pub(super) fn work_failed(
        &mut self,
        device: usize,
        completion: &WorkCompletion,
    ) -> Result<(), Failed> {
        let Some(number) = self.core.path_of(device, completion) else {
            let number = completion.qp_num();
            let mut loops = self.core.loops.iter();
            if loops.any(|path| path.device == device && path.queue_pair.number() == number) {
                self.core.work_failed(device, completion);
            }
            // Else it is late, and of a queue pair that has been replaced.
            return Ok(());
        };
        let path = &mut self.core.paths[number];
        match WrId::decode(completion.wr_id()) {
            Some(work) => path.finished(work.number),
            None => path.receives = path.receives.saturating_sub(1),
        }
        let recovery = &self.core.recoveries[number];
        let is_live = recovery.stage == Stage::Live;
        let is_fruitless = is_live && recovery.fruitless >= MOST_FRUITLESS;
        let is_off = self.core.config().recovery_timeout.is_zero();
        if is_off || is_fruitless || !may_pass(completion.status()) {
            self.core.work_failed(device, completion);
            return Ok(());
        }
        if !is_live || self.core.is_ending() {
            return Ok(());
        }
        let reason = format!("a work request ended in {}", completion.status());
        self.path_down(number, reason)
    }

    /// Path `number` has failed for `reason`, on this end or the other.
    fn path_down(&mut self, number: usize, reason: String) -> Result<(), Failed> {
        if self.core.is_ending() {
            return Ok(());
        }
        S::path_down(self, number)?;
        let path = &mut self.core.paths[number];
        path.is_live = false;
        let recovery = &mut self.core.recoveries[number];
        recovery.stage = Stage::Draining;
        recovery.since = Instant::now();
        recovery.fruitless = if path.has_carried() {
            0
        } else {
            recovery.fruitless + 1
        };
        let epoch = recovery.epoch;
        let pair = self.core.names().paths[number];
        tracing::warn!(
            "path {number} is down, {}: {reason}; what did not arrive will be sent again",
            self.core.names().of(pair)
        );
        self.core.recoveries[number].reason = reason;
        self.core.fence(number);
        self.core.tell(number, epoch, PathEvent::Down);
        if self.core.paths.iter().all(|path| !path.is_live) {
            self.core.cut_off.get_or_insert_with(Instant::now);
        }
        self.core.keep_looking();
        Ok(())
    }

    /// The peer says what has become of a path.
    pub(super) fn path_news(&mut self, news: PathNews) -> Result<(), Failed> {
        let number = usize::from(news.path);
        let Some(recovery) = self.core.recoveries.get(number) else {
            let error = self
                .core
                .protocol_error("news of a path that does not exist");
            return Err(self.core.fail(error).into());
        };
        let is_current = news.epoch == recovery.epoch;
        let is_live = recovery.stage == Stage::Live;
        match news.event {
            PathEvent::Down if is_current && is_live => {
                self.path_down(number, "the peer's end has failed".to_owned())?;
            }
            PathEvent::Drained { taken } if is_current => {
                if is_live {
                    self.path_down(number, "the peer's end has failed".to_owned())?;
                }
                self.core.recoveries[number].peer_taken = Some(taken);
            }
            PathEvent::Offer { device, endpoint } if news.epoch > recovery.epoch => {
                let recovery = &mut self.core.recoveries[number];
                recovery.offer = Some(Offer {
                    epoch: news.epoch,
                    device,
                    endpoint,
                });
                // The peer can be reached again.
                recovery.next = Instant::now();
            }
            PathEvent::Ready if news.epoch > recovery.epoch => {
                self.core.recoveries[number].ready = Some(news.epoch);
            }
            // Of an epoch that is over.
            _ => {}
        }
        self.advance(number)
    }

    /// Goes on with the recovery of every path that is not live, and sends again what did not arrive.
    #[cold]
    pub(super) fn recover(&mut self) -> Result<(), Failed> {
        if self.core.is_ending() {
            return Ok(());
        }
        if self.core.take_port_event() {
            self.look_at_ports()?;
        }
        for number in 0..self.core.paths.len() {
            self.advance(number)?;
        }
        let is_whole = S::send_again(self)? && self.core.paths.iter().all(|path| path.is_live);
        if is_whole {
            self.core.look_no_more();
        } else if let Some(since) = self.core.cut_off
            && since.elapsed() > self.core.config().recovery_timeout
        {
            let error = self.core.not_recovered();
            return Err(self.core.fail(error).into());
        }
        Ok(())
    }

    /// A queue pair that completes nothing for longer than its own retries can last is done with: some hang for ever
    /// when their link goes down at the wrong moment, without a completion, an event or a timer.
    #[cold]
    pub(super) fn look_for_stalls(&mut self) -> Result<(), Failed> {
        if self.core.config().recovery_timeout.is_zero() {
            return Ok(());
        }
        let acknowledgement = Duration::from_nanos(4096 << self.core.config().ack_exponent());
        let longest = LEAST_STALL.max(acknowledgement * 5 / 2);
        for number in 0..self.core.paths.len() {
            let path = &self.core.paths[number];
            let recovery = &mut self.core.recoveries[number];
            let finished = path.last_finished();
            // Only what is signalled says anything.
            if !path.is_live || path.completions == 0 || recovery.seen.0 != finished {
                recovery.seen = (finished, Instant::now());
            } else if recovery.seen.1.elapsed() > longest {
                let reason = format!("nothing has completed for {} s", longest.as_secs());
                self.path_down(number, reason)?;
            }
        }
        Ok(())
    }

    /// A port has gained or lost its link, or its address.
    fn look_at_ports(&mut self) -> Result<(), Failed> {
        if self.core.config().recovery_timeout.is_zero() {
            return Ok(());
        }
        for number in 0..self.core.paths.len() {
            let device = self.core.paths[number].device;
            let recovery = &mut self.core.recoveries[number];
            recovery.next = Instant::now();
            recovery.pause = FIRST_PAUSE;
            if recovery.stage == Stage::Live
                && let Some(reason) = self.core.obstacle(device)
            {
                self.path_down(number, reason)?;
            }
        }
        Ok(())
    }

    /// Does what can be done for a path now.
    fn advance(&mut self, number: usize) -> Result<(), Failed> {
        loop {
            let before = self.core.recoveries[number].stage;
            match before {
                Stage::Live => return Ok(()),
                Stage::Draining => self.drain(number),
                Stage::Drained => self.settle(number)?,
                Stage::Rebuilding => self.rebuild(number)?,
            }
            if self.core.recoveries[number].stage == before {
                return Ok(());
            }
        }
    }

    fn drain(&mut self, number: usize) {
        let recovery = &mut self.core.recoveries[number];
        let waited = recovery.since.elapsed();
        if !self.core.paths[number].is_drained() && waited < LONGEST_DRAIN {
            if waited > DRAINS_WITHIN {
                self.core.fence(number);
            }
            return;
        }
        recovery.stage = Stage::Drained;
        let epoch = recovery.epoch;
        let taken = self.side.taken(number);
        self.core.tell(number, epoch, PathEvent::Drained { taken });
    }

    /// Once both ends have drained.
    fn settle(&mut self, number: usize) -> Result<(), Failed> {
        let recovery = &mut self.core.recoveries[number];
        let Some(taken) = recovery.peer_taken.take() else {
            return Ok(());
        };
        recovery.stage = Stage::Rebuilding;
        recovery.next = Instant::now();
        recovery.pause = FIRST_PAUSE;
        S::settle(self, number, taken)
    }

    fn rebuild(&mut self, number: usize) -> Result<(), Failed> {
        let recovery = &mut self.core.recoveries[number];
        let offered = recovery.offer.as_ref().map(|offer| offer.epoch);
        let attempted = recovery.attempt.as_ref().map(|attempt| attempt.epoch);
        if attempted.is_some() && offered > attempted {
            // The peer has given that one up.
            recovery.attempt = None;
        }
        if recovery.attempt.is_none() {
            if Instant::now() < recovery.next {
                return Ok(());
            }
            let least = recovery.epoch.saturating_add(1);
            let epoch = offered.map_or(least, |offered| offered.max(least));
            match self.core.new_queue_pair(number) {
                Ok((queue_pair, local, offer)) => {
                    let endpoint = queue_pair.endpoint();
                    self.core.recoveries[number].attempt = Some(Attempt {
                        epoch,
                        queue_pair,
                        local,
                        is_connected: false,
                    });
                    let event = PathEvent::Offer {
                        device: offer,
                        endpoint,
                    };
                    self.core.tell(number, epoch, event);
                }
                Err(error) => {
                    tracing::debug!("path {number}: {error}");
                    self.core.recoveries[number].try_later();
                    return Ok(());
                }
            }
        }
        let Some(mut attempt) = self.core.recoveries[number].attempt.take() else {
            return Ok(());
        };
        let recovery = &self.core.recoveries[number];
        if !attempt.is_connected
            && let Some(offer) = recovery.offer.as_ref()
            && offer.epoch == attempt.epoch
        {
            if let Err(error) = self
                .core
                .join(&mut attempt.queue_pair, &attempt.local, offer)
            {
                tracing::debug!("path {number}: {error}");
                // The peer hears of it by the next offer, of a later epoch.
                let recovery = &mut self.core.recoveries[number];
                recovery.epoch = attempt.epoch;
                recovery.try_later();
                return Ok(());
            }
            attempt.is_connected = true;
            self.core.tell(number, attempt.epoch, PathEvent::Ready);
        }
        if attempt.is_connected && self.core.recoveries[number].ready == Some(attempt.epoch) {
            self.path_up(number, attempt);
        } else {
            self.core.recoveries[number].attempt = Some(attempt);
        }
        Ok(())
    }

    fn path_up(&mut self, number: usize, attempt: Attempt) {
        let receives = self.core.recipe.receives();
        self.core.paths[number] = Path::new(attempt.queue_pair, receives);
        self.core.cut_off = None;
        let recovery = &mut self.core.recoveries[number];
        recovery.epoch = attempt.epoch;
        recovery.stage = Stage::Live;
        (recovery.offer, recovery.ready) = (None, None);
        let (down, reason) = (recovery.since.elapsed(), recovery.reason.clone());
        let pair = self.core.names().paths[number];
        tracing::warn!(
            "path {number} is live again after {:.3} s, {} (it was down because {reason})",
            down.as_secs_f64(),
            self.core.names().of(pair)
        );
        self.core.watch_queue_pairs();
        S::path_up(self, number);
    }
}

impl crate::connection::core::Core {
    /// Has nothing land through a path any more, and its work requests come back.
    fn fence(&mut self, number: usize) {
        let path = &mut self.paths[number];
        if let Err(error) = path.queue_pair.to_error() {
            tracing::debug!("path {number}: {error}");
        }
        if path.in_flight() > 0 && path.in_flight() < path.depth() {
            // Requests that were not signalled and have succeeded say nothing: this one, which fails, does.
            let id = WrId {
                path: number,
                parts: 0,
                number: path.posted(),
            };
            let marker = SendRequest::write(id.encode(), None, RemoteAddress::default());
            // SAFETY: it names no memory.
            if unsafe { path.queue_pair.post_send(&mut [marker.signaled()]) }.is_err() {
                path.not_posted();
            }
        }
    }

    /// A queue pair for a path, its port, and that for the peer.
    fn new_queue_pair(
        &mut self,
        number: usize,
    ) -> Result<(NewQueuePair, LocalPort, DeviceOffer), Error> {
        let own = self.paths[number].device;
        let device = self.device(own);
        let local = device.local_port()?;
        let offer = device.offer(&local);
        let mut new = self.recipe.create(number, device, &self.cqs[own])?;
        self.recipe.to_init(&new, device, &local)?;
        self.recipe.fill(&mut new, number)?;
        self.rename(own, &offer);
        Ok((new, local, offer))
    }

    fn join(&self, new: &mut NewQueuePair, local: &LocalPort, offer: &Offer) -> Result<(), Error> {
        let config = self.config();
        self.recipe.take_ece(new, &offer.endpoint, config);
        let join = Join {
            config,
            device: self.device(new.device),
            local,
            offer: &offer.device,
            remote: offer.endpoint,
            service: self.recipe.service,
        };
        new.to_rtr(&join)?;
        new.to_rts(&join)?;
        new.settle_ece();
        Ok(())
    }

    /// Each path in words.
    pub(super) fn path_states(&self) -> Vec<String> {
        let paths = self.paths.iter().zip(&self.recoveries);
        paths
            .map(|(path, recovery)| {
                format!(
                    "{:?}, epoch {}, {} requests and {} receives posted",
                    recovery.stage,
                    recovery.epoch,
                    path.in_flight(),
                    path.receives
                )
            })
            .collect()
    }

    /// No path could be made live for too long.
    fn not_recovered(&self) -> Error {
        let reasons: Vec<String> = self
            .recoveries
            .iter()
            .enumerate()
            .map(|(number, recovery)| {
                format!("path {number} ({:?}): {}", recovery.stage, recovery.reason)
            })
            .collect();
        Error::NotRecovered {
            connection: self.names().to_string(),
            reasons: reasons.join("; "),
            seconds: self.config().recovery_timeout.as_secs(),
        }
    }
}
