//! [`Connecting`]: a connection in the making.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use crate::connect::Conversation;
use crate::connect::connector::{self, Call};
use crate::connect::established::NewSender;
use crate::connect::introduction::introduce;
use crate::connect::options::ConnectOptions;
use crate::connect::shared::Shared;
use crate::connect::waits::{Budget, polling};
use crate::connection::sender::SendConnection;
use crate::device::nic::Nic;
use crate::error::Error;
use crate::events::waiting::{block_on, block_until, later};
use crate::wire::handle::Handle;

/// A connection in the making. Poll it until it gives the connection, wait for it or await it;
/// drop it to give up.
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
        introduce(&nic, &shared.config)?;
        let route = shared.handshake_interface.to_call(&shared.config, handle)?;
        tracing::debug!("{} calls {route}", nic.info().name);
        let call = Call {
            handle: *handle,
            options,
            nic,
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

    /// Advances the handshake as far as possible without waiting. Gives the connection when both
    /// ends are ready, `None` before.
    ///
    /// # Errors
    /// Why there will be no connection. Everything has been undone by then, and every later call
    /// is an error, too.
    pub fn poll(&mut self) -> Result<Option<SendConnection>, Error> {
        match Pin::new(self).poll(&mut Context::from_waker(polling())) {
            Poll::Ready(outcome) => outcome.map(Some),
            Poll::Pending => Ok(None),
        }
    }

    /// Waits until there is a connection, or an error. Costs no processor time meanwhile.
    ///
    /// # Errors
    /// As for [`poll`](Self::poll).
    pub fn wait(mut self) -> Result<SendConnection, Error> {
        block_on(|context| Pin::new(&mut self).poll(context))
    }

    /// As [`wait`](Self::wait), but gives the attempt back when `deadline` comes first: it can be
    /// gone on with. Beside that each step of it has the time limit of
    /// [`Config::connect_timeout`](crate::Config::connect_timeout).
    ///
    /// # Errors
    /// As for [`poll`](Self::poll).
    pub fn wait_until(mut self, deadline: Instant) -> Result<Result<SendConnection, Self>, Error> {
        let waited = block_until(deadline, |context| Pin::new(&mut self).poll(context));
        Ok(waited.transpose()?.ok_or(self))
    }

    /// As [`wait_until`](Self::wait_until), `time` from now.
    ///
    /// # Errors
    /// As for [`poll`](Self::poll).
    pub fn wait_timeout(self, time: Duration) -> Result<Result<SendConnection, Self>, Error> {
        self.wait_until(later(Instant::now(), time))
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
        outcome.map(|agreed| SendConnection::new(agreed?))
    }
}
