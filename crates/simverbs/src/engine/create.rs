//! Making and destroying objects, within the limits of the device.

use ibnet_verbs::sys::{ibv_cq, ibv_ece, ibv_qp, ibv_qp_attr, ibv_qp_cap};

use super::bell::Bell;
use super::cq::{Channel, Cq};
use super::handle::Handle;
use super::qp::{Qp, QpState, Requester, Responder};
use super::queue::Queue;
use super::regions::{Region, Registration, advise};
use super::slab::{ChannelId, ContextId, CqId, DeviceId, PdId, QpId, RegionId};
use super::{Context, Errno, Fork, Pd, State};

/// What a queue pair is to be made of.
pub(crate) struct NewQp {
    pub(crate) handle: Handle<ibv_qp>,
    pub(crate) pd: PdId,
    pub(crate) send_cq: CqId,
    pub(crate) recv_cq: CqId,
    pub(crate) capabilities: ibv_qp_cap,
    pub(crate) signal_all: bool,
}

impl State {
    pub(crate) fn open_context(&mut self, device: DeviceId) -> Result<ContextId, Errno> {
        Ok(self.contexts.insert(Context {
            device,
            events: Default::default(),
            bell: Bell::new()?,
        }))
    }

    /// # Errors
    ///
    /// `EBUSY` while something that was made from it exists. (libibverbs closes it all the same
    /// and leaks the rest: a mistake that should be noticed here.)
    pub(crate) fn close_context(&mut self, id: ContextId) -> Result<(), Errno> {
        let is_used = self.pds.iter().any(|(_, pd)| pd.context == id)
            || self.cqs.iter().any(|(_, cq)| cq.context == id)
            || self
                .channels
                .iter()
                .any(|(_, channel)| channel.context == id);
        if is_used {
            return Err(libc::EBUSY);
        }
        self.contexts.remove(id);
        Ok(())
    }

    fn count_on(&self, device: DeviceId, contexts: impl Iterator<Item = ContextId>) -> u32 {
        let of_device = |context: &ContextId| self.contexts[*context].device == device;
        u32::try_from(contexts.filter(of_device).count()).unwrap_or(u32::MAX)
    }

    pub(crate) fn allocate_pd(&mut self, context: ContextId) -> Result<PdId, Errno> {
        let device = self.contexts[context].device;
        let used = self.count_on(device, self.pds.iter().map(|(_, pd)| pd.context));
        if used >= self.devices[device].spec.limits.max_pd {
            return Err(libc::ENOMEM);
        }
        Ok(self.pds.insert(Pd { context }))
    }

    /// # Errors
    ///
    /// `EBUSY` while it has regions or queue pairs.
    pub(crate) fn deallocate_pd(&mut self, id: PdId) -> Result<(), Errno> {
        let device = self.device_of_pd(id);
        let is_used =
            self.devices[device].regions.uses(id) || self.qps.iter().any(|(_, qp)| qp.pd == id);
        if is_used {
            return Err(libc::EBUSY);
        }
        self.pds.remove(id);
        Ok(())
    }

    pub(crate) fn device_of_pd(&self, id: PdId) -> DeviceId {
        self.contexts[self.pds[id].context].device
    }

    /// Adds a region, whose memory and access flags were checked. Gives its keys.
    pub(crate) fn register(&mut self, new: Registration) -> Result<(RegionId, u32, u32), Errno> {
        let device = self.device_of_pd(new.pd);
        let device = &mut self.devices[device];
        let limits = &device.spec.limits;
        if new.length as u64 > limits.max_mr_size {
            return Err(libc::EINVAL);
        }
        if device.regions.len() >= limits.max_mr as usize {
            return Err(libc::ENOMEM);
        }
        self.has_registered = true;
        let is_kept = self.is_fork_initialized && new.mapping.is_none();
        let (memory, length) = (new.memory, new.length);
        let registered = device.regions.insert(new);
        if is_kept {
            advise(memory, length, libc::MADV_DONTFORK);
        }
        Ok(registered)
    }

    /// Removes a region, and gives its memory to forked children again unless another one is left
    /// there. (libibverbs counts for each page, to the same effect but for ranges that overlap in part.)
    pub(crate) fn deregister(&mut self, device: DeviceId, id: RegionId) {
        let Some(region) = self.devices[device].regions.remove(id) else {
            return;
        };
        if !self.is_fork_initialized || region.is_dmabuf() {
            return;
        }
        let pages = region.pages();
        let shares = |other: &Region| {
            let others = other.pages();
            others.start < pages.end && pages.start < others.end
        };
        let mut devices = self.devices.iter();
        if !devices.any(|(_, device)| device.regions.iter().any(shares)) {
            advise(pages.start, pages.len(), libc::MADV_DOFORK);
        }
    }

    pub(crate) fn create_channel(&mut self, context: ContextId) -> Result<ChannelId, Errno> {
        Ok(self.channels.insert(Channel {
            context,
            events: Default::default(),
            bell: Bell::new()?,
            users: 0,
        }))
    }

    /// # Errors
    ///
    /// `EBUSY` while completion queues use it.
    pub(crate) fn destroy_channel(&mut self, id: ChannelId) -> Result<(), Errno> {
        if self.channels[id].users > 0 {
            return Err(libc::EBUSY);
        }
        self.channels.remove(id);
        Ok(())
    }

    pub(crate) fn create_cq(
        &mut self,
        handle: Handle<ibv_cq>,
        context: ContextId,
        channel: Option<ChannelId>,
        depth: i32,
        vector: i32,
    ) -> Result<CqId, Errno> {
        let device = self.contexts[context].device;
        let limits = self.devices[device].spec.limits;
        let depth = u32::try_from(depth).map_err(|_| libc::EINVAL)?;
        let vector = u32::try_from(vector).map_err(|_| libc::EINVAL)?;
        if depth == 0 || depth > limits.max_cqe || vector >= limits.completion_vectors {
            return Err(libc::EINVAL);
        }
        if channel.is_some_and(|channel| self.channels[channel].context != context) {
            return Err(libc::EINVAL);
        }
        let used = self.count_on(device, self.cqs.iter().map(|(_, cq)| cq.context));
        if used >= limits.max_cq {
            return Err(libc::ENOMEM);
        }
        if let Some(channel) = channel {
            self.channels[channel].users += 1;
        }
        let cq = Cq::new(handle, context, channel, depth as usize);
        Ok(self.cqs.insert(cq))
    }

    /// Removes a completion queue that is not used, all of whose events are acknowledged.
    pub(crate) fn remove_cq(&mut self, id: CqId) {
        if let Some(Cq {
            channel: Some(channel),
            ..
        }) = self.cqs.remove(id)
        {
            self.channels[channel].users -= 1;
        }
    }

    pub(crate) fn create_qp(&mut self, new: NewQp) -> Result<QpId, Errno> {
        let context = self.pds[new.pd].context;
        let device = self.contexts[context].device;
        let limits = self.devices[device].spec.limits;
        let asked = new.capabilities;
        let fits = asked.max_send_wr.max(asked.max_recv_wr) <= limits.max_qp_wr
            && asked.max_send_sge.max(asked.max_recv_sge) <= limits.max_sge
            && asked.max_inline_data <= limits.max_inline;
        let of_context = |cq| self.cqs[cq].context == context;
        if !fits || !of_context(new.send_cq) || !of_context(new.recv_cq) {
            return Err(libc::EINVAL);
        }
        let used = self.qps.iter().filter(|(_, qp)| qp.device == device);
        if used.count() >= limits.max_qp as usize {
            return Err(libc::ENOMEM);
        }
        let number = self.new_number();
        let id = self.qps.insert(Qp {
            handle: new.handle,
            number,
            context,
            device,
            pd: new.pd,
            send_cq: new.send_cq,
            recv_cq: new.recv_cq,
            capabilities: asked,
            signal_all: new.signal_all,
            state: QpState::Reset,
            attributes: ibv_qp_attr::default(),
            source: None,
            ece: self.devices[device].spec.ece.map(|ece| ibv_ece {
                vendor_id: ece.vendor_id,
                options: ece.options,
                comp_mask: ece.comp_mask,
            }),
            epoch: 0,
            send: Queue::new(asked.max_send_wr),
            recv: Queue::new(asked.max_recv_wr),
            requester: Requester::default(),
            responder: Responder::default(),
            unacknowledged_events: 0,
            copies: 0,
            is_queued: false,
            released: [0; 2],
        });
        self.numbers.insert(number, id);
        self.cqs[new.send_cq].users += 1;
        self.cqs[new.recv_cq].users += 1;
        Ok(id)
    }

    /// A number that no queue pair of the fabric has had for as long as possible.
    fn new_number(&mut self) -> u32 {
        loop {
            // Gaps, so that programs do not compute one number from another.
            let gap = 1 + self.random.below(7) as u32;
            self.last_number = (self.last_number + gap) & 0xff_ffff;
            // 0 and 1 are the management queue pairs.
            if self.last_number > 1 && !self.numbers.contains_key(&self.last_number) {
                return self.last_number;
            }
        }
    }

    /// Takes a queue pair off the network; it neither sends nor receives any more.
    pub(crate) fn disconnect_qp(&mut self, id: QpId) {
        let qp = &mut self.qps[id];
        qp.state = QpState::Reset;
        let number = qp.number;
        self.numbers.remove(&number);
        self.network_changed();
    }

    /// Removes a queue pair that was disconnected, all of whose events are acknowledged.
    pub(crate) fn remove_qp(&mut self, id: QpId) {
        self.drop_completions(id);
        if let Some(qp) = self.qps.remove(id) {
            self.cqs[qp.send_cq].users -= 1;
            self.cqs[qp.recv_cq].users -= 1;
        }
    }

    /// Removes the completions of a queue pair that is reset or destroyed, if its device does so.
    pub(crate) fn drop_completions(&mut self, id: QpId) {
        let qp = &self.qps[id];
        if self.devices[qp.device].spec.keeps_stale_completions {
            return;
        }
        let (send_cq, recv_cq) = (qp.send_cq, qp.recv_cq);
        self.remove_completions(send_cq, id);
        self.remove_completions(recv_cq, id);
    }

    /// # Errors
    ///
    /// `EINVAL` when memory was registered before: as libibverbs 44 has it, even where the kernel
    /// copies pinned pages, so that nothing was to be done. Newer ones do not refuse there.
    pub(crate) fn init_fork(&mut self) -> Result<(), Errno> {
        if self.is_fork_initialized {
            return Ok(());
        }
        if self.has_registered {
            return Err(libc::EINVAL);
        }
        self.is_fork_initialized = true;
        if self.fork == Fork::Disabled {
            self.fork = Fork::Enabled;
        }
        Ok(())
    }

    /// The present attributes of a queue pair, and whether all its send requests report.
    pub(crate) fn describe_qp(&self, id: QpId) -> (ibv_qp_attr, bool) {
        let qp = &self.qps[id];
        let state = qp.state as u32;
        let attributes = ibv_qp_attr {
            qp_state: state,
            cur_qp_state: state,
            cap: qp.capabilities,
            rq_psn: qp.responder.psn,
            sq_psn: qp.requester.psn,
            sq_draining: (qp.state == QpState::Sqd && !qp.is_drained()).into(),
            ..qp.attributes
        };
        (attributes, qp.signal_all)
    }

    /// Sets the ECE options of a queue pair: those that it has and that are wanted.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` if the device has none; `EINVAL` for those of another vendor, or once the
    /// queue pair is connected.
    pub(crate) fn set_ece(&mut self, id: QpId, wanted: ibv_ece) -> Result<ibv_ece, Errno> {
        let qp = &mut self.qps[id];
        let own = qp.ece.as_mut().ok_or(libc::EOPNOTSUPP)?;
        let may_set = matches!(qp.state, QpState::Reset | QpState::Init);
        if !may_set || own.vendor_id != wanted.vendor_id {
            return Err(libc::EINVAL);
        }
        own.options &= wanted.options;
        Ok(*own)
    }
}
