//! Making the own ends of a connection's paths, a few at a time, so that no poll takes long.
//!
//! Both ends go the same way: all queue pairs are created, then, when the peer's are known, all
//! are connected. A step that the driver refuses for a passing reason is tried again at a later
//! poll; nobody sleeps.

use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::libc;
use verbs::{Access, CompletionQueue, QueuePair, RecvRequest};

use crate::config::Config;
use crate::device::{Device, LocalPort};
use crate::error::Error;
use crate::flush;
use crate::handshake::message::{DeviceOffer, QueuePairEnd};
use crate::path::{Depths, Join, Path, PathSpec};
use crate::service::Service;
use crate::transport::Inner;

/// Queue pairs that may still be created or connected in this poll.
pub(crate) struct Budget(usize);

impl Budget {
    /// For one poll: a queue pair takes up to a millisecond on real devices.
    pub(crate) fn of_a_poll() -> Self {
        Self(4)
    }

    fn take(&mut self) -> bool {
        let is_left = self.0 > 0;
        self.0 = self.0.saturating_sub(1);
        is_left
    }
}

/// Receives that are posted with one call.
pub(crate) const RECEIVE_CHAIN: usize = 32;

/// The own ends of the paths. The order of the fields is the order of teardown.
pub(crate) struct Ends {
    pub(crate) paths: Vec<Path>,
    /// One for each of the own devices.
    pub(crate) cqs: Vec<CompletionQueue>,
    /// Of a receiver, one for each of the own devices, which leads back to it: for flushing.
    pub(crate) loops: Vec<Path>,
    /// Receives that are posted on each path.
    pub(crate) receives: u32,
}

/// What an end wants of its queue pairs.
#[derive(Clone, Copy)]
pub(crate) struct Demand {
    pub(crate) depths: Depths,
    /// Completions of other queue pairs that a completion queue must have room for.
    pub(crate) reserve: u32,
    /// Whether the queues are filled with receives in advance. These have no buffers, and come back
    /// with this plus the number of their path.
    pub(crate) receives: Option<u64>,
    /// Queue pairs for flushing.
    pub(crate) loops: bool,
    /// Completions wake who waits for them.
    pub(crate) notify: bool,
    /// Ask the driver for its options of enhanced connection establishment first.
    pub(crate) offer_ece: bool,
}

impl Demand {
    /// Requests of a queue pair that can complete.
    fn completions(&self) -> u32 {
        self.depths.send + self.posted()
    }

    /// Receives of a queue pair that are posted in advance.
    fn posted(&self) -> u32 {
        self.receives.map_or(0, |_| self.depths.receive)
    }
}

/// Ends in the making.
pub(crate) struct Assembly {
    ends: Ends,
    specs: Vec<PathSpec>,
    demand: Demand,
    joined: usize,
    retry: Retry,
}

/// The other end of a path, and how to reach it.
pub(crate) struct Remote<'a> {
    pub(crate) offers: &'a [DeviceOffer],
    pub(crate) ends: &'a [QueuePairEnd],
    pub(crate) service: Service,
}

impl Assembly {
    /// Makes the completion queues on `devices`, large enough for the paths of `specs`.
    pub(crate) fn new(
        devices: &[Arc<Device>],
        specs: Vec<PathSpec>,
        mut demand: Demand,
        inner: &Inner,
    ) -> Result<Self, Error> {
        let paths_on = |device: usize| {
            let on_it = specs.iter().filter(|spec| spec.device == device);
            on_it.count() as u32
        };
        for (index, device) in devices.iter().enumerate() {
            let limits = Limits {
                max_qp_wr: device.attributes.max_qp_wr,
                max_cqe: device.attributes.max_cqe,
            };
            let fitting = fit(demand, paths_on(index), limits);
            demand.depths = fitting.ok_or_else(|| too_small(device, paths_on(index)))?;
        }
        let per_path = demand.completions();
        let cqs = devices
            .iter()
            .enumerate()
            .map(|(index, device)| {
                let context = device.pd.context();
                let depth = (paths_on(index) * per_path + demand.reserve).max(1);
                if demand.notify {
                    inner.monitor.create_cq(device.token, context, depth)
                } else {
                    Ok(context.create_cq(depth)?)
                }
            })
            .collect::<Result<_, Error>>()?;
        Ok(Self {
            ends: Ends {
                paths: Vec::with_capacity(specs.len()),
                cqs,
                loops: Vec::new(),
                receives: demand.posted(),
            },
            specs,
            demand,
            joined: 0,
            retry: Retry::new(&inner.config),
        })
    }

    /// Creates some more queue pairs; true when all are there, in state INIT.
    pub(crate) fn create(
        &mut self,
        devices: &[Arc<Device>],
        locals: &[LocalPort],
        budget: &mut Budget,
        now: Instant,
    ) -> Result<bool, Error> {
        if !self.retry.is_due(now) {
            return Ok(false);
        }
        while budget.take() {
            if self.retry.is_under_way() {
                // The last one was created and not initialised.
            } else if let Some(spec) = self.specs.get(self.ends.paths.len()) {
                let (device, cq) = (&devices[spec.device], &self.ends.cqs[spec.device]);
                let path = Path::create(device, cq, spec, self.demand.depths)?;
                self.ends.paths.push(path);
            }
            let number = self.ends.paths.len().saturating_sub(1);
            let Some(path) = self.ends.paths.last_mut() else {
                break;
            };
            let device = &devices[path.device];
            let pkey_index = locals[path.device].pkey_index;
            let initialised = path.initialise(device, pkey_index, Access::REMOTE_WRITE);
            if !self.retry.settle(initialised.map_err(Into::into), now)? {
                return Ok(false);
            }
            if self.demand.offer_ece {
                path.offer_ece();
            }
            if let Some(first) = self.demand.receives {
                let id = first + number as u64;
                let posted = post_receives(&path.queue_pair, id, self.ends.receives);
                posted.map_err(|source| Error::Post {
                    connection: format!("queue pair {:#x}", path.queue_pair.number()),
                    source: Arc::new(source),
                })?;
            }
            if self.ends.paths.len() == self.specs.len() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// When the next step can be tried, if the last one failed for a passing reason.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.retry.due
    }

    /// Connects some more queue pairs to the peer's; true when all are.
    pub(crate) fn join(
        &mut self,
        devices: &[Arc<Device>],
        locals: &[LocalPort],
        remote: &Remote<'_>,
        config: &Config,
        budget: &mut Budget,
        now: Instant,
    ) -> Result<bool, Error> {
        if !self.retry.is_due(now) {
            return Ok(false);
        }
        while let Some(path) = self.ends.paths.get_mut(self.joined) {
            if !budget.take() {
                return Ok(false);
            }
            let end = remote.ends[self.joined];
            // The listener has offered its options, the connector has not: both must be willing
            // (pitfall 44).
            let is_willing = config.ece && (!self.demand.offer_ece || path.has_ece());
            if !self.retry.is_under_way() {
                path.take_ece(end.ece.filter(|_| is_willing));
            }
            let joined = path.join(&Join {
                config,
                device: &devices[path.device],
                local: &locals[path.device],
                offer: &remote.offers[path.peer_device],
                remote: end,
                mtu: self.specs[self.joined].mtu,
                service: remote.service,
            });
            if !self.retry.settle(joined, now)? {
                return Ok(false);
            }
            path.settle_ece();
            self.joined += 1;
        }
        self.close_loops(devices, locals, remote.service, config, budget, now)
    }

    /// Makes some more of the queue pairs for flushing; true when all are there.
    fn close_loops(
        &mut self,
        devices: &[Arc<Device>],
        locals: &[LocalPort],
        service: Service,
        config: &Config,
        budget: &mut Budget,
        now: Instant,
    ) -> Result<bool, Error> {
        let wanted = if self.demand.loops { devices.len() } else { 0 };
        while self.ends.loops.len() < wanted || self.retry.is_under_way() {
            if !budget.take() {
                return Ok(false);
            }
            if !self.retry.is_under_way() {
                let index = self.ends.loops.len();
                let (device, cq) = (&devices[index], &self.ends.cqs[index]);
                let path = flush::create_loop(index, device, &locals[index], cq)?;
                self.ends.loops.push(path);
            }
            let Some(path) = self.ends.loops.last_mut() else {
                break;
            };
            let (device, local) = (&devices[path.device], &locals[path.device]);
            let closed = flush::close_loop(path, device, local, service, config);
            if !self.retry.settle(closed, now)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Why the step that is to be tried again was refused, if one is.
    pub(crate) fn last_refusal(&self) -> Option<Error> {
        self.retry.refusal.clone()
    }

    /// Bytes that every path so far can send inline.
    pub(crate) fn least_inline(&self) -> u32 {
        let inline = self.ends.paths.iter().map(|path| path.max_inline);
        inline.min().unwrap_or(0)
    }

    /// This end's queue pairs, as the peer must know them.
    pub(crate) fn queue_pair_ends(&self) -> Vec<QueuePairEnd> {
        self.ends.paths.iter().map(Path::end).collect()
    }

    pub(crate) fn into_ends(self) -> Ends {
        self.ends
    }
}

/// Posts `count` receives without buffers, which come back with `id`; possible from state INIT on.
pub(crate) fn post_receives(
    queue_pair: &QueuePair,
    id: u64,
    count: u32,
) -> Result<(), verbs::PostError> {
    let mut chain = [RecvRequest::new(id); RECEIVE_CHAIN];
    let mut left = count as usize;
    while left > 0 {
        let count = left.min(RECEIVE_CHAIN);
        // SAFETY: these receives name no memory.
        unsafe { queue_pair.post_recv(&mut chain[..count]) }?;
        left -= count;
    }
    Ok(())
}

/// What a device can do.
#[derive(Clone, Copy)]
struct Limits {
    max_qp_wr: u32,
    max_cqe: u32,
}

/// The depths that fit a device on which a completion queue serves `paths` queue pairs: every
/// request of every one may complete, so that it never overruns (pitfall 46). `None` if even small
/// queues do not fit.
fn fit(demand: Demand, paths: u32, limits: Limits) -> Option<Depths> {
    /// Below this a queue pair is of no use: a group of announcements can take two requests, a
    /// message with a size record too.
    const LEAST_SEND: u32 = 8;
    let wanted = demand.depths;
    let mut send = wanted.send.min(limits.max_qp_wr);
    let mut receive = wanted.receive.min(limits.max_qp_wr);
    let share = limits
        .max_cqe
        .saturating_sub(demand.reserve)
        .checked_div(paths)
        .unwrap_or(u32::MAX);
    if demand.receives.is_none() {
        send = send.min(share);
    } else if send + receive > share {
        // Each gives up the same part of its depth.
        let whole = u64::from(send + receive);
        receive = (u64::from(receive) * u64::from(share) / whole) as u32;
        send = share - receive;
    }
    let is_enough = send >= LEAST_SEND.min(wanted.send) && receive >= wanted.receive.min(8);
    is_enough.then_some(Depths {
        send,
        receive,
        inline: wanted.inline,
    })
}

fn too_small(device: &Device, paths: u32) -> Error {
    Error::InvalidArgument(format!(
        "{}: {paths} queue pairs do not fit: the device allows {} requests in a queue (max_qp_wr) \
         and {} completions (max_cqe); fewer of them do (NCCL_IB_QPS_PER_CONNECTION)",
        device.label(),
        device.attributes.max_qp_wr,
        device.attributes.max_cqe
    ))
}

/// Trying a refused state change again (`NCCL_IB_MQP_RETRY_ALL`, `_CNT`, `_SLEEP_MSEC`), with a
/// pause that grows by its first length each time.
struct Retry {
    any_error: bool,
    most: u32,
    pause: Duration,
    attempts: u32,
    due: Option<Instant>,
    refusal: Option<Error>,
}

impl Retry {
    fn new(config: &Config) -> Self {
        Self {
            any_error: config.retry_modify_always,
            most: config.modify_retries,
            pause: config.modify_retry_pause,
            attempts: 0,
            due: None,
            refusal: None,
        }
    }

    fn is_due(&self, now: Instant) -> bool {
        self.due.is_none_or(|due| now >= due)
    }

    /// Whether the last attempt failed and another one is owed.
    fn is_under_way(&self) -> bool {
        self.attempts > 0
    }

    /// True after a success; false if the failure may pass and another attempt is due later.
    fn settle(&mut self, outcome: Result<(), Error>, now: Instant) -> Result<bool, Error> {
        let Err(error) = outcome else {
            (self.attempts, self.due, self.refusal) = (0, None, None);
            return Ok(true);
        };
        // The kernel's way of saying that the peer's address was not resolved yet.
        let may_pass = match &error {
            Error::Verbs(verbs) => self.any_error || verbs.errno() == Some(libc::ETIMEDOUT),
            _ => false,
        };
        if !may_pass || self.attempts >= self.most {
            return Err(error);
        }
        self.attempts += 1;
        self.due = Some(now + self.pause * self.attempts);
        tracing::info!(
            "{error}; trying again, {} of {} (NCCL_IB_MQP_RETRY_CNT)",
            self.attempts,
            self.most
        );
        self.refusal = Some(error);
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn demand(post_receives: bool) -> Demand {
        Demand {
            depths: Depths {
                send: 128,
                receive: if post_receives { 288 } else { 1 },
                inline: 48,
            },
            reserve: 9,
            receives: post_receives.then_some(0),
            loops: false,
            notify: false,
            offer_ece: false,
        }
    }

    fn limits(max_qp_wr: u32, max_cqe: u32) -> Limits {
        Limits { max_qp_wr, max_cqe }
    }

    #[test]
    fn depths_fit_the_device_and_the_completion_queue_never_overruns() {
        // Pitfalls 46 and 47: with every count of paths and every limit.
        for post_receives in [false, true] {
            let demand = demand(post_receives);
            for paths in 1..=128 {
                for max_qp_wr in [7, 8, 64, 256, 1 << 14] {
                    for max_cqe in [16, 255, 1000, 4096, 1 << 20] {
                        let Some(depths) = fit(demand, paths, limits(max_qp_wr, max_cqe)) else {
                            assert!(
                                max_qp_wr < 8 || max_cqe < 9 + 32 * paths,
                                "{paths} {max_cqe}"
                            );
                            continue;
                        };
                        let completions = Demand { depths, ..demand }.completions();
                        assert!(paths * completions + 9 <= max_cqe);
                        assert!(depths.send.max(depths.receive) <= max_qp_wr);
                        assert!(
                            depths.send >= 8 && depths.receive >= if post_receives { 8 } else { 1 }
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn no_queue_is_deeper_than_wanted() {
        let demand = demand(true);
        let roomy = limits(1 << 14, 1 << 20);
        assert_eq!(fit(demand, 2, roomy), Some(demand.depths));
        assert_eq!(fit(demand, 0, limits(1 << 14, 1)), Some(demand.depths));
    }

    fn timed_out() -> Error {
        let source = std::io::Error::from_raw_os_error(libc::ETIMEDOUT);
        Error::Verbs(Arc::new(verbs::Error::OpenDevice {
            device: "sim0".to_owned(),
            source,
        }))
    }

    #[test]
    fn a_refused_step_is_tried_again_later_and_not_for_ever() {
        // Pitfall 54: the caller is never made to sleep.
        let config = Config {
            modify_retries: 2,
            modify_retry_pause: Duration::from_millis(100),
            ..Config::default()
        };
        let mut retry = Retry::new(&config);
        let start = Instant::now();
        assert!(!retry.settle(Err(timed_out()), start).unwrap());
        assert!(!retry.is_due(start + Duration::from_millis(99)));
        let second = start + Duration::from_millis(100);
        assert!(retry.is_due(second) && retry.is_under_way());
        assert!(!retry.settle(Err(timed_out()), second).unwrap());
        assert!(!retry.is_due(second + Duration::from_millis(199)));
        let third = second + Duration::from_millis(200);
        assert!(retry.settle(Err(timed_out()), third).is_err());

        let mut retry = Retry::new(&config);
        assert!(!retry.settle(Err(timed_out()), start).unwrap());
        assert!(retry.settle(Ok(()), start).unwrap());
        assert!(!retry.is_under_way() && retry.is_due(start));
        let other = Error::InvalidArgument("other".to_owned());
        assert!(retry.settle(Err(other), start).is_err());
    }
}
