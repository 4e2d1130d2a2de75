//! Which local address carries the handshake: where listeners listen, and where connectors call from.
//!
//! [`choice`] is pure; [`system`] reads what interfaces there are.
#![forbid(unsafe_code)]

mod choice;
mod near;
mod system;

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::config::Config;
use crate::config::{Family, InterfaceFilter};
use crate::connect::control::Channel;
use crate::error::Error;
use crate::wire::handle::Handle;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use choice::Address;
use choice::{Choice, Local, is_link_local};
pub(crate) use choice::{Interface, State, Wanted, choose};
use near::Near;

/// For how long a list of interfaces is good. They come and go, but a job makes hundreds of connections within
/// this time, and to list them costs as much as a third of a connection.
const LISTED: Duration = Duration::from_secs(1);

/// What is known of it for the time of a transport. The choice is made anew each time, as interfaces
/// come and go.
#[derive(Default)]
pub(crate) struct HandshakeInterface {
    /// The interfaces, and when they were listed.
    listed: Mutex<Option<(Instant, Arc<[Interface]>)>>,
    /// Of the address in [`Config::comm_id`], once it was looked up.
    communicator: OnceLock<Option<Near>>,
    /// The last line about it: it is told when it changes.
    told: Mutex<String>,
}

/// Where a listener is called, and from where.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    pub(crate) peer: SocketAddr,
    /// If an interface was asked for.
    pub(crate) source: Option<Local>,
    /// Further addresses of the listener's host.
    pub(crate) others: Vec<IpAddr>,
}

impl Route {
    /// Begins to connect.
    pub(crate) fn call(&self) -> io::Result<Channel> {
        let Some(source) = &self.source else {
            return Channel::connect(self.peer, None);
        };
        Channel::connect(self.peer, Some(source.address)).or_else(|error| {
            // Where the address that was asked for leads nowhere, the system's choice may.
            tracing::debug!(%error, "connecting to {self}, tried without it");
            Channel::connect(self.peer, None)
        })
    }
}

impl HandshakeInterface {
    /// The address to listen on, and further ones of this host at which a peer may reach it if not
    /// at that, the better first.
    ///
    /// # Errors
    /// Each interface with the reason why it cannot be used; or what the system said.
    pub(crate) fn to_listen_on(&self, config: &Config) -> Result<(Local, Vec<IpAddr>), Error> {
        let interfaces = self.interfaces()?;
        let near = self.communicator.get_or_init(|| communicator(config));
        let choice = choose(
            &interfaces,
            &Wanted {
                filter: &config.interfaces,
                family: config.socket_family,
                near: near.as_ref().filter(|_| !config.interfaces.names_any()),
            },
        )?;
        self.tell(&choice);
        let running = interfaces
            .iter()
            .filter(|interface| interface.state == State::Running);
        let any = choose(
            &running.cloned().collect::<Vec<_>>(),
            &Wanted {
                filter: &InterfaceFilter::default(),
                family: None,
                near: near.as_ref(),
            },
        );
        let all = any.map_or_else(|_| Vec::new(), |any| [vec![any.best], any.others].concat());
        let others = all
            .iter()
            .map(|local| local.address.ip())
            .filter(|ip| *ip != choice.best.address.ip())
            .filter(|ip| !ip.is_loopback() && !is_link_local(*ip))
            .collect();
        Ok((choice.best, others))
    }

    /// How to call the listener of `handle`: from the interface that is asked for, if one is. Of
    /// several, from one in the listener's network.
    ///
    /// It is the address that the socket is bound to. Bound to the device it could not call a
    /// listener of the same host, whose answers come over the loop-back device.
    pub(crate) fn to_call(&self, config: &Config, handle: &Handle) -> Result<Route, Error> {
        let mut peer = handle.address();
        let mut source = None;
        if config.interfaces.asks_for_some() {
            let near = Near {
                ip: peer.ip(),
                interface: None,
            };
            let wanted = Wanted {
                filter: &config.interfaces,
                family: Some(if peer.is_ipv4() {
                    Family::V4
                } else {
                    Family::V6
                }),
                near: Some(&near),
            };
            // Without an address of the peer's family, the system finds a way or there is none.
            source = choose(&self.interfaces()?, &wanted)
                .ok()
                .map(|choice| choice.best);
        }
        // The scope of a link-local address is a number of this host's, not of the listener's.
        if let (SocketAddr::V6(peer), Some(own)) = (&mut peer, &source)
            && is_link_local(IpAddr::V6(*peer.ip()))
        {
            match own.address {
                SocketAddr::V6(own) if own.scope_id() != 0 => peer.set_scope_id(own.scope_id()),
                _ => source = None,
            }
        }
        Ok(Route {
            peer,
            source,
            others: handle.other_addresses().collect(),
        })
    }

    /// The network interfaces of this host.
    fn interfaces(&self) -> Result<Arc<[Interface]>, Error> {
        let mut listed = self.listed.lock().unwrap_or_else(PoisonError::into_inner);
        match &*listed {
            Some((at, interfaces)) if at.elapsed() < LISTED => Ok(Arc::clone(interfaces)),
            _ => {
                let interfaces: Arc<[Interface]> = system::interfaces()?.into();
                *listed = Some((Instant::now(), Arc::clone(&interfaces)));
                Ok(interfaces)
            }
        }
    }

    /// Says what was chosen, unless that was said last.
    fn tell(&self, choice: &Choice) {
        let line = format!("handshakes over {}", choice.best);
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if *told == line {
            return;
        }
        if choice.lacks_carrier {
            tracing::warn!(
                "{line}, which has no carrier: only processes on this host can connect; passed over: {}",
                choice.passed_over
            );
        } else if choice.passed_over.is_empty() {
            tracing::info!("{line}");
        } else {
            tracing::info!("{line}; passed over: {}", choice.passed_over);
        }
        *told = line;
    }
}

/// The address in [`Config::comm_id`].
fn communicator(config: &Config) -> Option<Near> {
    let text = config.comm_id.as_ref()?;
    let near = Near::of_comm_id(text);
    if near.is_none() {
        tracing::info!("`comm_id`={text} has no address, and does not choose the interface");
    }
    near
}

/// The peer's address, where it is called from, and what else could be tried.
impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.peer)?;
        if let Some(source) = &self.source {
            write!(f, " from {source} (`interfaces`)")?;
        }
        if !self.others.is_empty() {
            let others: Vec<String> = self.others.iter().map(ToString::to_string).collect();
            write!(
                f,
                " (its host also has {}; `interfaces` there chooses)",
                others.join(", ")
            )?;
        }
        Ok(())
    }
}
