//! [`Connecting`]: a connection in the making.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::connect::Conversation;
use crate::connect::connector::{self, Call};
use crate::connect::established::NewSender;
use crate::connect::introduction::introduce;
use crate::connect::options::ConnectOptions;
use crate::connect::shared::Shared;
use crate::connect::waits::Budget;
use crate::connection::raw;
use crate::device::nic::Nic;
use crate::error::Error;
use crate::ops::SendConnection;
use crate::wire::handle::Handle;

/// A connection in the making: a future with the methods of [`Wait`](crate::Wait). Drop it to give up.
///
/// Beside the limits of a wait, each step of it has that of
/// [`Config::connect_timeout`](crate::Config::connect_timeout). When it fails, everything has been undone.
pub struct Connecting {
    /// None once it has ended.
    under_way: Option<(Conversation<NewSender>, Arc<Shared>)>,
    budget: Budget,
}

impl Connecting {
    pub(crate) fn new(
        shared: Arc<Shared>,
        nic: Arc<Nic>,
        handle: &Handle,
        options: ConnectOptions,
    ) -> Result<Self, Error> {
        // A port that cannot be used is an error at once, and none for the listener.
        let own = introduce(&nic, &shared.config)?;
        let route = shared.handshake_interface.to_call(&shared.config, handle)?;
        tracing::debug!("{} calls {route}", nic.info().name);
        let call = Call {
            handle: *handle,
            options,
            nic,
            own,
            shared: Arc::clone(&shared),
        };
        let budget = Budget::default();
        // The listener hears of it now, whenever this is polled.
        let first = route.call();
        let conversation = Box::pin(connector::connect(first, route, call, budget.clone()));
        Ok(Self {
            under_way: Some((conversation, shared)),
            budget,
        })
    }
}

impl fmt::Debug for Connecting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connecting")
            .field("has_ended", &self.under_way.is_none())
            .finish_non_exhaustive()
    }
}

/// Gives the connection, or why there is none. Needs no runtime: the waker is woken by the events
/// thread of the transport. To be polled again after its end is an error.
impl Future for Connecting {
    type Output = Result<SendConnection, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let Some((conversation, shared)) = &mut this.under_way else {
            return Poll::Ready(Err(Error::InvalidArgument(
                "this connection attempt has ended already".to_owned(),
            )));
        };
        shared.events.check_process()?;
        this.budget.refill();
        let outcome = conversation.as_mut().poll(context);
        if outcome.is_ready() {
            this.under_way = None;
        }
        outcome.map(|agreed| raw::SendConnection::new(agreed?).map(SendConnection::new))
    }
}
