//! One network in a comparison: its workers, with connections that stand.

use std::ops::RangeInclusive;

use super::Failure;
use super::peer::{Peer, Settings};
use crate::net::Source;
use crate::protocol::{Answer, Flow, Order, Start, Volley};

/// Where the two ends of connections are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Both in one thread of one process.
    OneThread,
    /// In two processes of this host.
    TwoProcesses,
    /// In a process here and one on another host, where a listening program is at this address.
    TwoHosts(String),
}

/// What a network says of itself.
#[derive(Clone, Debug)]
pub(crate) struct Description {
    /// The network's own name.
    pub(crate) name: String,
    /// The version of the interface.
    pub(crate) interface: u32,
    /// The table's symbol.
    pub(crate) symbol: String,
    /// The version of NCCL, if it is NCCL's.
    pub(crate) nccl: Option<String>,
    /// Names of devices.
    pub(crate) devices: Vec<String>,
}

/// What connections took to make.
#[derive(Clone, Debug, Default)]
pub(crate) struct Connecting {
    /// Seconds of each.
    pub(crate) seconds: Vec<f64>,
    /// Seconds of processor time of each, of both ends.
    pub(crate) processor: Vec<f64>,
}

/// What moving messages took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moving {
    /// Seconds, as the receiving end has it.
    pub(crate) seconds: f64,
    /// Seconds of processor time of both ends, if they are one thread. In two processes each end waits
    /// for the other by polling, which takes all the time there is.
    pub(crate) processor: Option<f64>,
    /// Instructions per message of both ends, if they are one thread and the processor tells.
    pub(crate) instructions: Option<f64>,
}

impl Moving {
    /// Seconds that count: of processor time if that is known, else of the clock.
    fn effort(&self) -> f64 {
        self.processor.unwrap_or(self.seconds)
    }
}

/// Workers of one network.
pub(crate) struct Contender {
    here: Peer,
    /// The other end, unless it is in the same thread.
    there: Option<Peer>,
    /// Connections from here to there.
    pub(crate) connections: usize,
}

impl Contender {
    /// Starts the workers. `devices` are what to use here and there, if anything is named.
    pub(crate) fn start(
        source: &Source,
        place: &Place,
        settings: Settings,
        devices: &[String],
    ) -> Result<Self, Failure> {
        let mut here = Peer::start(source, settings)?;
        let mut there = match place {
            Place::OneThread => None,
            Place::TwoProcesses => Some(Peer::start(source, settings)?),
            Place::TwoHosts(address) => Some(Peer::start_at(
                address,
                &Start {
                    label: source.label.clone(),
                    paths: settings.paths,
                },
            )?),
        };
        let (here_devices, there_devices) = match (&there, devices) {
            (Some(_), [first, rest @ ..]) => {
                let last = rest.first().unwrap_or(first);
                (vec![first.clone()], vec![last.clone()])
            }
            _ => (devices.to_vec(), Vec::new()),
        };
        here.ask(&Order::Use {
            devices: here_devices,
        })?;
        if let Some(there) = &mut there {
            there.ask(&Order::Use {
                devices: there_devices,
            })?;
        }
        Ok(Self {
            here,
            there,
            connections: 0,
        })
    }

    /// What the network is.
    pub(crate) fn describe(&mut self) -> Result<Description, Failure> {
        match self.here.ask(&Order::Describe)? {
            Answer::Network {
                name,
                interface,
                symbol,
                nccl,
                devices,
            } => Ok(Description {
                name,
                interface,
                symbol,
                nccl,
                devices: devices.into_iter().map(|device| device.name).collect(),
            }),
            other => Err(self.here.unexpected(&other)),
        }
    }

    /// Makes so many more connections from here to there. `pause`: microseconds between two polls.
    pub(crate) fn connect(&mut self, count: usize, pause: u64) -> Result<Connecting, Failure> {
        let Some(there) = &mut self.there else {
            let answer = self.here.ask(&Order::ConnectHere { count, pause })?;
            self.connections += count;
            return match answer {
                Answer::Connected { seconds, processor } => Ok(Connecting { seconds, processor }),
                other => Err(self.here.unexpected(&other)),
            };
        };
        let mut all = Connecting::default();
        for _ in 0..count {
            let (seconds, processor) = connect(&mut self.here, there, pause)?;
            all.seconds.push(seconds);
            all.processor.push(processor);
            self.connections += 1;
        }
        Ok(all)
    }

    /// Makes one connection in the other direction, for answers.
    pub(crate) fn connect_back(&mut self) -> Result<(), Failure> {
        if let Some(there) = &mut self.there {
            connect(there, &mut self.here, 0)?;
        }
        Ok(())
    }

    /// Closes all connections.
    pub(crate) fn close(&mut self) -> Result<(), Failure> {
        // The end that sends closes first, as NCCL's does.
        self.here.ask(&Order::Close)?;
        if let Some(there) = &mut self.there {
            there.ask(&Order::Close)?;
        }
        self.connections = 0;
        Ok(())
    }

    /// Bytes of memory of all ends' processes.
    pub(crate) fn memory(&mut self) -> Result<u64, Failure> {
        let mut sum = 0;
        for peer in std::iter::once(&mut self.here).chain(&mut self.there) {
            match peer.ask(&Order::Usage)? {
                Answer::Usage { memory } => sum += memory,
                other => return Err(peer.unexpected(&other)),
            }
        }
        Ok(sum)
    }

    /// Moves messages.
    pub(crate) fn flow(&mut self, flow: Flow) -> Result<Moving, Failure> {
        let (answer, is_all) = match &mut self.there {
            None => (self.here.ask(&Order::Loop(flow))?, true),
            Some(there) => {
                there.order(&Order::Receive(flow))?;
                self.here.order(&Order::Send(flow))?;
                let (sent, received) = (self.here.answer(), there.answer());
                // The sender's failure explains the receiver's.
                sent?;
                (received?, false)
            }
        };
        match answer {
            Answer::Moved {
                seconds,
                processor,
                messages,
                instructions,
            } => {
                let each = |count: u64| count as f64 / messages.max(1) as f64;
                Ok(Moving {
                    seconds,
                    processor: is_all.then_some(processor),
                    instructions: instructions.filter(|_| is_all).map(each),
                })
            }
            other => Err(self.here.unexpected(&other)),
        }
    }

    /// Half round trips in seconds: shortest, median, 99th of 100. `None` if both ends are in one
    /// thread, where nothing travels.
    pub(crate) fn volley(&mut self, volley: Volley) -> Result<Option<[f64; 3]>, Failure> {
        let Some(there) = &mut self.there else {
            return Ok(None);
        };
        there.order(&Order::Pong(volley))?;
        self.here.order(&Order::Ping(volley))?;
        let (answer, answered) = (self.here.answer(), there.answer());
        let answer = answer?;
        answered?;
        match answer {
            Answer::Latency { min, p50, p99 } => Ok(Some([min, p50, p99].map(|ns| ns * 1e-9))),
            other => Err(self.here.unexpected(&other)),
        }
    }

    /// Registrations in seconds: new, hit, release of a hit, release. In one thread it is processor
    /// time.
    pub(crate) fn register(&mut self, live: usize, samples: usize) -> Result<[f64; 4], Failure> {
        let processor = self.there.is_none();
        let order = Order::Register {
            live,
            samples,
            processor,
        };
        match self.here.ask(&order)? {
            Answer::Registered {
                new,
                hit,
                release_hit,
                release,
            } => Ok([new, hit, release_hit, release].map(|ns| ns * 1e-9)),
            other => Err(self.here.unexpected(&other)),
        }
    }
}

/// One connection: seconds at the connecting end, and processor time of both.
fn connect(from: &mut Peer, to: &mut Peer, pause: u64) -> Result<(f64, f64), Failure> {
    let handle = match to.ask(&Order::Listen)? {
        Answer::Handle(handle) => handle,
        other => return Err(to.unexpected(&other)),
    };
    to.order(&Order::Accept { pause })?;
    from.order(&Order::Connect { handle, pause })?;
    let (connected, accepted) = (from.answer(), to.answer());
    let (connected, accepted) = (connected?, accepted?);
    match (&connected, &accepted) {
        (
            Answer::Connected { seconds, processor },
            Answer::Connected {
                processor: there, ..
            },
        ) => {
            let sum = |values: &[f64]| values.iter().sum::<f64>();
            Ok((sum(seconds), sum(processor) + sum(there)))
        }
        _ => Err(from.unexpected(&connected)),
    }
}

/// How many receives of a flow take about so long, from a first try. Within the bounds.
pub(crate) fn calibrate(
    contender: &mut Contender,
    flow: Flow,
    seconds: f64,
    bounds: RangeInclusive<u64>,
) -> Result<u64, Failure> {
    let receives = (2 * flow.window as u64).max(*bounds.start());
    let trial = Flow { receives, ..flow };
    let mut each = contender.flow(trial)?.effort() / receives as f64;
    // Once more, with enough that the first try's surprises do not count.
    let again = ((seconds / 10.0 / each) as u64).clamp(*bounds.start(), *bounds.end());
    if again > receives {
        let trial = Flow {
            receives: again,
            ..flow
        };
        each = contender.flow(trial)?.effort() / again as f64;
    }
    Ok(((seconds / each) as u64).clamp(*bounds.start(), *bounds.end()))
}
