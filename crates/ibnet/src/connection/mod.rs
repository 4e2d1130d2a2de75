//! A live connection: one end of it, with what its requests need.
//!
//! [`Connection`] is what sending and receiving ends share; what differs is in [`sender`] and
//! [`receiver`]. Nothing here waits: see [`raw`] for what each call promises.
#![allow(
    private_bounds,
    reason = "there are two sides, and no third can be added"
)]

pub(crate) mod core;
pub(crate) mod cts_queue;
pub(crate) mod in_flight;
pub(crate) mod observer;
mod path;
mod path_recovery;
mod path_selector;
pub mod raw;
pub(crate) mod receiver;
mod recovery;
pub(crate) mod recv_window;
mod replenish;
pub(crate) mod requests;
mod sender;
mod wr_id;

use std::fmt;
use std::mem::MaybeUninit;

use ibnet_verbs::{Access, WorkCompletion};

use crate::connection::core::Core;
use crate::connection::observer::{Observer, Watched};
use crate::connection::requests::{RequestId, Table};
use crate::error::{Error, Failed};
use crate::memory::region::Registrar;
use crate::wire::message::{Close, Message};

/// Completions to take from a queue at a time.
const POLL_BATCH: usize = 32;

/// One end of a connection: [`SendConnection`](raw::SendConnection) or
/// [`RecvConnection`](raw::RecvConnection).
///
/// The data path belongs to one thread at a time; memory may meanwhile be registered on another
/// through a [`Registrar`]. See [`raw`] for the contract.
///
/// [`close`](Self::close) tells the peer that this end is done. A connection that is dropped without
/// it is torn down just as completely, but to the peer it looks like a process that died.
pub struct Connection<S: Side> {
    // First, so that the queue pairs are gone before the memory that they reach.
    core: Core,
    side: S,
    requests: Table<S::Request>,
    watched: Option<Watched>,
}

/// What sending and receiving ends do differently.
pub(crate) trait Side: Sized {
    /// What is known of a request beside the parts that it waits for.
    type Request: Default;

    /// What the memory of requests must allow.
    const ACCESS: Access;

    /// The handles that `observer` gives out, of a connection over `paths` paths.
    fn watch(observer: Box<dyn Observer>, paths: usize) -> Watched;

    /// Posts the work requests that wait for others to be posted with.
    fn post_staged(_end: &mut Connection<Self>) -> Result<(), Failed> {
        Ok(())
    }

    /// Whether completions of device `device` may be expected.
    fn expects(&self, _device: usize) -> bool {
        true
    }

    /// Takes a completion of device `device`, which succeeded.
    fn complete(
        end: &mut Connection<Self>,
        device: usize,
        completion: &WorkCompletion,
    ) -> Result<(), Failed>;

    /// Called when path `path` has failed: nothing is posted to it any more.
    fn path_down(end: &mut Connection<Self>, path: usize) -> Result<(), Failed>;

    /// Called when neither end's queue pair of a path can do anything any more, and the peer has taken `taken`
    /// parts from it: what did not arrive has to be sent again.
    fn settle(end: &mut Connection<Self>, path: usize, taken: u64) -> Result<(), Failed>;

    /// Called when a path has a queue pair again.
    fn path_up(end: &mut Connection<Self>, path: usize);

    /// Sends again what did not arrive, as much as there is room for. Returns whether nothing is left.
    fn send_again(end: &mut Connection<Self>) -> Result<bool, Failed>;

    /// Parts of messages that were taken from a path.
    fn taken(&self, _path: usize) -> u64 {
        0
    }

    /// Called when the peer has closed in an orderly way.
    fn peer_closed(_end: &mut Connection<Self>, _closing: &Close) -> Result<(), Failed> {
        Ok(())
    }

    /// The parts of messages that were taken from each path, for the peer to know when this end closes.
    fn parts_taken(_end: &mut Connection<Self>) -> Vec<u64> {
        Vec::new()
    }
}

impl<S: Side> Connection<S> {
    fn with(core: Core, side: S) -> Self {
        Self {
            core,
            side,
            requests: Table::new(),
            watched: None,
        }
    }

    /// Registers memory for this connection, also from other threads.
    pub fn registrar(&self) -> Registrar {
        Registrar::new(&self.core.nic, S::ACCESS)
    }

    /// Lets `observer` hear of the pieces of the messages from now on whose requests are made with a
    /// parent. Does nothing while requests are outstanding.
    pub fn observe(&mut self, observer: Box<dyn Observer>) {
        if self.requests.outstanding() == 0 {
            self.watched = Some(S::watch(observer, self.core.paths.len()));
        }
    }

    /// Both ends, in words.
    pub fn description(&self) -> String {
        self.core.names().to_string()
    }

    /// Requests that are not done, or whose end has not been asked for.
    pub fn outstanding(&self) -> usize {
        self.requests.outstanding()
    }

    /// Closes the connection, whatever is outstanding, and tells the peer; never waits.
    ///
    /// # Errors
    /// The first thing that could not be torn down.
    pub fn close(mut self) -> Result<(), Error> {
        // In a forked child it is the parent's, to whom the peer goes on talking.
        if self.core.is_inherited() {
            return Ok(());
        }
        let taken = S::parts_taken(&mut self);
        self.core.close(taken)
    }

    /// Whether all requests that there can be are done and wait to be asked for.
    pub(crate) fn is_full_of_finished(&self) -> bool {
        self.requests.is_full_of_finished()
    }

    /// If the connection has failed, destroys its queue pairs: from then on nothing reaches the memory of its
    /// requests. Returns whether it has failed.
    pub(crate) fn stop_if_failed(&mut self) -> bool {
        let has_failed = self.core.has_failed();
        if has_failed {
            self.core.paths.clear();
            self.core.loops.clear();
        }
        has_failed
    }

    pub(crate) fn core(&mut self) -> &mut Core {
        &mut self.core
    }

    /// Whether `request` is done, after taking what there is if need be. Errors for an id that is not
    /// outstanding.
    #[inline]
    fn test_request(&mut self, request: RequestId) -> Result<bool, Failed> {
        if self.requests.is_done(request)? {
            return Ok(true);
        }
        // A failure raises the flags, too.
        if self.core.has_events() {
            return self.test_in_trouble(request);
        }
        if self.progress()? == 0 && self.core.is_time_to_look() {
            self.look_for_stalls()?;
        }
        self.requests.is_done(request)
    }

    #[cold]
    fn test_in_trouble(&mut self, request: RequestId) -> Result<bool, Failed> {
        self.handle_events()?;
        // What the peer completed before it left is in the queue, or about to be: the end may not
        // be declared while there is still news to be had.
        while self.progress()? > 0 {}
        if self.requests.is_done(request)? {
            return Ok(true);
        }
        self.core.fail_after_grace()?;
        Ok(false)
    }

    /// Takes a batch of completions from each device, whatever requests they are of. Returns how many
    /// there were.
    pub(crate) fn progress(&mut self) -> Result<usize, Failed> {
        S::post_staged(self)?;
        let mut batch = [const { MaybeUninit::uninit() }; POLL_BATCH];
        let mut total = 0;
        for device in 0..self.core.cqs.len() {
            if !self.side.expects(device) {
                continue;
            }
            // Looked at where the driver has put them: a copy of one that has just been written has to
            // wait for it.
            let completions = self.core.poll(device, &mut batch)?;
            for completion in completions {
                if completion.is_success() {
                    S::complete(self, device, completion)?;
                } else {
                    self.work_failed(device, completion)?;
                }
            }
            total += completions.len();
        }
        Ok(total)
    }

    /// Looks at what happened off the hot path. Errors if the connection has failed.
    #[cold]
    fn handle_events(&mut self) -> Result<(), Failed> {
        self.core.check()?;
        while let Some(message) = self.core.next_message() {
            match message {
                Message::Close(closing) => S::peer_closed(self, &closing)?,
                Message::Path(news) => self.path_news(news)?,
                // The others have ended the connection.
                _ => {}
            }
        }
        self.recover()?;
        Ok(self.core.check()?)
    }
}

impl<S: Side> fmt::Debug for Connection<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("between", &self.description())
            .field("outstanding", &self.outstanding())
            .field("paths", &self.core.path_states())
            .finish_non_exhaustive()
    }
}
