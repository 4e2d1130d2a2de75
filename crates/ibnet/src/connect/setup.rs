//! Making the own ends of a connection's paths: all queue pairs are created, then, when the peer's are known, all
//! are connected. A few at each poll, so that none takes long; what the driver refuses for a passing reason is
//! tried again later, and meanwhile no thread sleeps.

use std::sync::Arc;
use std::time::Instant;

use ibnet_verbs::Access;
use nix::libc;

use crate::config::Config;
use crate::connect::established::QueuePairs;
use crate::connect::queue_pair::{Depths, FLUSH_DEPTH, Join, NewQueuePair};
use crate::connect::recipe::{Demand, Recipe};
use crate::connect::shared::Shared;
use crate::connect::waits::{Budget, Waits};
use crate::device::nic::Nic;
use crate::device::{Device, LocalPort};
use crate::error::Error;
use crate::wire::message::{DeviceOffer, Endpoint, PathPlan, Side};
use crate::wire::service::Service;

/// Ends in the making.
pub(crate) struct Setup<'a> {
    queue_pairs: QueuePairs,
    devices: &'a [Arc<Device>],
    locals: &'a [LocalPort],
    config: &'a Config,
    budget: Budget,
}

/// The other end of a path, and how to reach it.
pub(crate) struct Remote<'a> {
    pub(crate) offers: &'a [DeviceOffer],
    pub(crate) endpoints: &'a [Endpoint],
    pub(crate) service: Service,
}

impl<'a> Setup<'a> {
    /// Makes the completion queues on the devices of `nic`, large enough for the paths of `specs`. `locals` are
    /// their ports.
    pub(crate) fn new(
        nic: &'a Nic,
        locals: &'a [LocalPort],
        (plan, side): (Vec<PathPlan>, Side),
        mut demand: Demand,
        shared: &'a Shared,
        budget: Budget,
    ) -> Result<Self, Error> {
        let devices = nic.members();
        let paths_on = |device: usize| {
            let on_it = plan.iter().filter(|path| path.devices(side).0 == device);
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
                    shared.events.create_cq(device.token, context, depth)
                } else {
                    Ok(context.create_cq(depth)?)
                }
            })
            .collect::<Result<_, Error>>()?;
        Ok(Self {
            queue_pairs: QueuePairs {
                paths: Vec::with_capacity(plan.len()),
                cqs,
                loops: Vec::new(),
                recipe: Recipe {
                    plan,
                    side,
                    demand,
                    service: Service::default(),
                },
            },
            devices,
            locals,
            config: &shared.config,
            budget,
        })
    }

    /// Creates the queue pairs, in state INIT and with their receives.
    pub(crate) async fn create(&mut self, waits: &mut Waits) -> Result<(), Error> {
        for number in 0..self.queue_pairs.recipe.plan.len() {
            self.budget.take().await;
            let recipe = &self.queue_pairs.recipe;
            let own = recipe.devices(number).0;
            let (device, cq) = (&self.devices[own], &self.queue_pairs.cqs[own]);
            let mut path = recipe.create(number, device, cq)?;
            let local = &self.locals[own];
            self.retry(waits, || recipe.to_init(&path, device, local))
                .await?;
            recipe.fill(&mut path, number)?;
            self.queue_pairs.paths.push(path);
        }
        Ok(())
    }

    /// Connects the queue pairs to the peer's, ready to receive and to send.
    pub(crate) async fn connect(
        &mut self,
        remote: &Remote<'_>,
        waits: &mut Waits,
    ) -> Result<(), Error> {
        self.queue_pairs.recipe.service = remote.service;
        let mut paths = std::mem::take(&mut self.queue_pairs.paths);
        for (path, end) in paths.iter_mut().zip(remote.endpoints) {
            self.budget.take().await;
            self.queue_pairs.recipe.take_ece(path, end, self.config);
            let join = Join {
                config: self.config,
                device: &self.devices[path.device],
                local: &self.locals[path.device],
                offer: &remote.offers[path.peer_device],
                remote: *end,
                service: remote.service,
            };
            self.retry(waits, || path.to_rtr(&join)).await?;
            self.retry(waits, || path.to_rts(&join)).await?;
            path.settle_ece();
        }
        self.queue_pairs.paths = paths;
        if self.queue_pairs.recipe.demand.loops {
            self.connect_loops(remote.service, waits).await?;
        }
        Ok(())
    }

    /// Makes the queue pairs for flushing: each is connected to itself.
    async fn connect_loops(&mut self, service: Service, waits: &mut Waits) -> Result<(), Error> {
        for (index, (device, local)) in self.devices.iter().zip(self.locals).enumerate() {
            self.budget.take().await;
            let offer = device.offer(local);
            let plan = PathPlan {
                connector_device: index as u8,
                listener_device: index as u8,
                mtu: offer.mtu,
                reorders: false,
            };
            let depths = Depths {
                send: FLUSH_DEPTH.min(device.attributes.max_qp_wr),
                receive: 1,
                inline: 0,
            };
            let cq = &self.queue_pairs.cqs[index];
            let path =
                NewQueuePair::create(device, cq, &plan, self.queue_pairs.recipe.side, depths)?;
            let (pkey_index, access) = (local.pkey_index, Access::REMOTE_READ);
            self.retry(waits, || path.to_init(device, pkey_index, access))
                .await?;
            let join = Join {
                config: self.config,
                device,
                local,
                offer: &offer,
                remote: path.endpoint(),
                service,
            };
            self.retry(waits, || path.to_rtr(&join)).await?;
            self.retry(waits, || path.to_rts(&join)).await?;
            self.queue_pairs.loops.push(path);
        }
        Ok(())
    }

    /// Does a state change, again while it is refused for a passing reason (`retry_modify_always`, `modify_retries`,
    /// `_SLEEP_MSEC`), with a pause that grows by its first length each time.
    async fn retry(
        &self,
        waits: &mut Waits,
        mut change: impl FnMut() -> Result<(), Error>,
    ) -> Result<(), Error> {
        let most = self.config.modify_retries;
        for attempt in 1.. {
            let Err(error) = change() else { break };
            // The kernel's way of saying that the peer's address was not resolved yet.
            let may_pass = matches!(&error, Error::Verbs(verbs)
                if self.config.retry_modify_always || verbs.errno() == Some(libc::ETIMEDOUT));
            if !may_pass || attempt > most {
                return Err(error);
            }
            tracing::info!("{error}; trying again, {attempt} of {most} (`modify_retries`)");
            let pause = self.config.modify_retry_pause.saturating_mul(attempt);
            waits.sleep_until(Instant::now() + pause).await?;
        }
        Ok(())
    }

    /// Bytes that every path so far can send inline.
    pub(crate) fn least_inline(&self) -> u32 {
        let inline = self.queue_pairs.paths.iter().map(|path| path.max_inline);
        inline.min().unwrap_or(0)
    }

    /// This end's queue pairs, as the peer must know them.
    pub(crate) fn endpoints(&self) -> Vec<Endpoint> {
        self.queue_pairs
            .paths
            .iter()
            .map(NewQueuePair::endpoint)
            .collect()
    }

    pub(crate) fn into_queue_pairs(self) -> QueuePairs {
        self.queue_pairs
    }
}

/// What a device can do.
#[derive(Clone, Copy)]
struct Limits {
    max_qp_wr: u32,
    max_cqe: u32,
}

/// The depths that fit a device on which a completion queue serves `paths` queue pairs: every
/// request of every one may complete, so that it never overruns. `None` if even small
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
         and {} completions (max_cqe); fewer of them do (`queue_pairs`)",
        device.label(),
        device.attributes.max_qp_wr,
        device.attributes.max_cqe
    ))
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
        // With every count of paths and every limit.
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
}
