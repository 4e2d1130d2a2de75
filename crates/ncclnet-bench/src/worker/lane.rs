//! One direction of a connection under load: the sending and the receiving end, each driven by
//! small steps, so that one thread can drive one end or both.

use std::collections::VecDeque;
use std::slice;

use super::buffer::Buffer;
use super::pattern;
use crate::net::{Comm, Error, Memory, Request, Result};
use crate::protocol::Flow;

/// Buffers of one end: as many slots as messages can be under way.
pub(super) struct Slots {
    memory: Memory,
    start: *mut u8,
    size: usize,
    count: u64,
}

impl Slots {
    /// Registers the slots with a connection. The buffer is there until the slots are dropped: the
    /// callers make it before them.
    pub(super) fn new(comm: &Comm, buffer: &Buffer, flow: &Flow) -> Result<Self> {
        let start = buffer.at(0);
        // SAFETY: the buffer outlives the slots, as the documentation demands.
        let memory = unsafe { comm.register(start, buffer.length()) }?;
        Ok(Self {
            memory,
            start,
            size: flow.size,
            count: (flow.window * flow.group) as u64,
        })
    }

    /// Bytes that the slots of a flow need.
    pub(super) fn bytes(flow: &Flow) -> usize {
        flow.size * flow.window * flow.group
    }

    #[inline]
    fn at(&self, message: u64) -> *mut u8 {
        // Below the buffer's length.
        self.start
            .wrapping_add((message % self.count) as usize * self.size)
    }
}

/// The sending end.
pub(super) struct Sender<'a> {
    comm: &'a Comm,
    slots: Slots,
    flow: Flow,
    requests: VecDeque<Request>,
    next: u64,
    /// Messages to be sent.
    pub(super) limit: u64,
    /// Messages that were sent.
    pub(super) done: u64,
}

impl<'a> Sender<'a> {
    pub(super) fn new(comm: &'a Comm, slots: Slots, flow: Flow) -> Self {
        Self {
            comm,
            slots,
            flow,
            requests: VecDeque::with_capacity(flow.window * flow.group),
            next: 0,
            limit: 0,
            done: 0,
        }
    }

    /// Posts what may be posted.
    #[inline]
    pub(super) fn post(&mut self) -> Result<()> {
        while self.next < self.limit && self.requests.len() < self.flow.window * self.flow.group {
            let address = self.slots.at(self.next);
            if self.flow.verify {
                // SAFETY: the slot's last message has been sent, or it would be among the requests.
                let bytes = unsafe { slice::from_raw_parts_mut(address, self.flow.size) };
                pattern::fill(bytes, self.next);
            }
            // A group has at most eight messages.
            let tag = (self.next % self.flow.group as u64) as i32;
            // SAFETY: the slot is in the registered memory, and is not written to before the request
            // is done.
            let request = unsafe {
                self.comm
                    .isend(address, self.flow.size, tag, &self.slots.memory)
            }?;
            let Some(request) = request else {
                break;
            };
            self.requests.push_back(request);
            self.next += 1;
        }
        Ok(())
    }

    /// Looks at the oldest requests until one is under way still.
    #[inline]
    pub(super) fn test(&mut self) -> Result<()> {
        let mut sizes = [0; 8];
        for _ in 0..self.flow.group {
            let Some(&request) = self.requests.front() else {
                break;
            };
            // SAFETY: the request is under way: it goes off the list once it is done.
            if !unsafe { self.comm.network().test(request, &mut sizes) }? {
                break;
            }
            self.requests.pop_front();
            self.done += 1;
        }
        Ok(())
    }
}

/// The receiving end.
pub(super) struct Receiver<'a> {
    comm: &'a Comm,
    slots: Slots,
    flow: Flow,
    requests: VecDeque<Request>,
    next: u64,
    /// Receives to be posted.
    pub(super) limit: u64,
    /// Receives that are done.
    pub(super) done: u64,
}

impl<'a> Receiver<'a> {
    pub(super) fn new(comm: &'a Comm, slots: Slots, flow: Flow) -> Self {
        Self {
            comm,
            slots,
            flow,
            requests: VecDeque::with_capacity(flow.window),
            next: 0,
            limit: 0,
            done: 0,
        }
    }

    /// Posts what may be posted.
    #[inline]
    pub(super) fn post(&mut self) -> Result<()> {
        while self.next < self.limit && self.requests.len() < self.flow.window {
            let address = self.slots.at(self.next * self.flow.group as u64);
            // SAFETY: the slots of the group lie one after the other in the registered memory, and
            // are not looked at before the request is done.
            let request = unsafe {
                let Flow { size, group, .. } = self.flow;
                self.comm.irecv(address, size, group, 0, &self.slots.memory)
            }?;
            let Some(request) = request else {
                break;
            };
            self.requests.push_back(request);
            self.next += 1;
        }
        Ok(())
    }

    /// Looks at the oldest request.
    #[inline]
    pub(super) fn test(&mut self) -> Result<()> {
        let Some(&request) = self.requests.front() else {
            return Ok(());
        };
        let mut sizes = [-1; 8];
        // SAFETY: the request is under way: it goes off the list once it is done.
        if unsafe { self.comm.network().test(request, &mut sizes) }? {
            self.requests.pop_front();
            if self.flow.verify {
                self.verify(&sizes)?;
            }
            self.done += 1;
        }
        Ok(())
    }

    #[cold]
    fn verify(&self, sizes: &[i32; 8]) -> Result<()> {
        for (index, &size) in sizes.iter().take(self.flow.group).enumerate() {
            let message = self.done * self.flow.group as u64 + index as u64;
            if usize::try_from(size) != Ok(self.flow.size) {
                return Err(Error::Corrupt(format!(
                    "message {message} is said to have {size} bytes, not {}",
                    self.flow.size
                )));
            }
            // SAFETY: the request is done, so that the slot is not written to before it is posted
            // again.
            let bytes = unsafe { slice::from_raw_parts(self.slots.at(message), self.flow.size) };
            if let Some(place) = pattern::difference(bytes, message) {
                return Err(Error::Corrupt(format!(
                    "message {message} of {} bytes differs at byte {place} from what was sent",
                    self.flow.size
                )));
            }
        }
        Ok(())
    }
}
