//! A process that has loaded one network and does as the controller says.

mod buffer;
mod connections;
mod counter;
mod lane;
mod moving;
mod patience;
mod pattern;
mod registering;
mod usage;
mod volley;

use std::fs::File;
use std::io::{BufReader, Error as IoError};
use std::os::fd::{FromRawFd, OwnedFd};

use crate::net::{Comm, Error, Listener, Network, Result, Source};
use crate::protocol::{self, Answer, Flow, Order, Volley};
use connections::Made;
use registering::Held;

/// Bounds of what may be asked for, because over TCP anybody may ask: bytes under way on all
/// connections, connections, registrations, messages.
const MOST_BYTES: usize = 4 << 30;
const MOST_CONNECTIONS: usize = 10_000;
const MOST_REGISTRATIONS: usize = 1_000_000;
const MOST_ROUNDS: u64 = 10_000_000;

/// Serves the controller at the other end of standard input and output, until it has gone.
///
/// # Errors
///
/// Only what makes going on impossible; what goes wrong with the network is an answer.
pub(crate) fn serve(source: &Source, yields: bool) -> std::io::Result<()> {
    usage::allow_descriptors();
    // Networks print to standard output; that is the controller's alone.
    let (input, output) = (duplicate(0)?, duplicate(1)?);
    // SAFETY: dup2 takes no pointers; both descriptors are open for the life of the process.
    if unsafe { libc::dup2(2, 1) } < 0 {
        return Err(IoError::last_os_error());
    }
    let (mut input, mut output) = (BufReader::new(File::from(input)), File::from(output));
    let mut worker = match Worker::new(source, yields) {
        Ok(worker) => worker,
        Err(error) => {
            // The answer to the first order, whatever it is: the worker must be there to give it.
            protocol::read::<Order>(&mut input)?;
            return protocol::write(&mut output, &Answer::Failed(error.to_string()));
        }
    };
    while let Some(order) = protocol::read::<Order>(&mut input)? {
        if order == Order::Quit {
            break;
        }
        let answer = worker.obey(order);
        let answer = answer.unwrap_or_else(|error| Answer::Failed(error.to_string()));
        protocol::write(&mut output, &answer)?;
    }
    Ok(())
}

fn duplicate(fd: i32) -> std::io::Result<OwnedFd> {
    // SAFETY: fcntl with these arguments takes no pointers.
    let copy = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 3) };
    if copy < 0 {
        return Err(IoError::last_os_error());
    }
    // SAFETY: a descriptor that was just made, and that has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

struct Worker {
    held: Held,
    // Before the network: connections are closed before it ends.
    sends: Vec<Comm>,
    receives: Vec<Comm>,
    listener: Option<Listener>,
    /// The device to send from, and that to receive on.
    devices: [i32; 2],
    network: Network,
    yields: bool,
}

impl Worker {
    fn new(source: &Source, yields: bool) -> Result<Self> {
        Ok(Self {
            held: Held::default(),
            sends: Vec::new(),
            receives: Vec::new(),
            listener: None,
            devices: [0, 0],
            network: Network::open(source)?,
            yields,
        })
    }

    fn obey(&mut self, order: Order) -> Result<Answer> {
        match order {
            Order::Describe => Ok(Answer::Network {
                name: self.network.name(),
                interface: self.network.version(),
                symbol: self.network.symbol().to_owned(),
                nccl: self.network.nccl().map(str::to_owned),
                devices: self.network.devices()?,
            }),
            Order::Use { devices } => self.use_devices(&devices),
            Order::Listen => {
                let listener = self.network.listen(self.devices[1])?;
                let handle = hexadecimal(&listener.handle);
                self.listener = Some(listener);
                Ok(Answer::Handle(handle))
            }
            Order::Accept { pause } => {
                let listener = self.listener.take();
                let listener =
                    listener.ok_or_else(|| refused("there is no listener".to_owned()))?;
                let made = connections::accept(&listener, pause)?;
                Ok(self.keep(made))
            }
            Order::Connect { handle, pause } => {
                let handle = from_hexadecimal(&handle)?;
                let made = connections::connect(&self.network, self.devices[0], handle, pause)?;
                Ok(self.keep(made))
            }
            Order::ConnectHere { count, pause } => self.connect_here(count, pause),
            Order::Close => {
                self.held.release();
                self.sends.clear();
                self.receives.clear();
                self.listener = None;
                Ok(Answer::Done)
            }
            Order::Usage => Ok(Answer::Usage {
                memory: usage::memory()?,
            }),
            Order::Loop(flow) => {
                let flow = self.checked(flow, self.sends.len().min(self.receives.len()))?;
                moving::both(&self.sends, &self.receives, flow, self.yields)
            }
            Order::Send(flow) => {
                let flow = self.checked(flow, self.sends.len())?;
                moving::send(&self.sends[..flow.connections], flow, self.yields)
            }
            Order::Receive(flow) => {
                let flow = self.checked(flow, self.receives.len())?;
                moving::receive(&self.receives[..flow.connections], flow, self.yields)
            }
            Order::Ping(volley) => {
                let (send, receive) = self.pair(volley)?;
                volley::ping(send, receive, volley, self.yields)
            }
            Order::Pong(volley) => {
                let (send, receive) = self.pair(volley)?;
                volley::pong(send, receive, volley, self.yields)
            }
            Order::Register {
                live,
                samples,
                processor,
            } => {
                if !(1..=MOST_REGISTRATIONS).contains(&live) {
                    return Err(refused(format!("{live} registrations")));
                }
                let comm = self.sends.first().or_else(|| self.receives.first());
                let comm = comm.ok_or_else(|| refused("no connection".to_owned()))?;
                self.held.measure(comm, live, samples, processor)
            }
            // Taken out before.
            Order::Quit => Ok(Answer::Done),
        }
    }

    /// Two names that are joined by a `+` are one device. With two names, the first one sends and the
    /// second one receives.
    fn use_devices(&mut self, names: &[String]) -> Result<Answer> {
        let known = self.network.devices()?;
        let find = |name: &str| {
            let found = known.iter().position(|device| device.name == name);
            let names: Vec<_> = known.iter().map(|device| device.name.as_str()).collect();
            let index = found.and_then(|index| i32::try_from(index).ok());
            index
                .ok_or_else(|| refused(format!("no device {name}, there are: {}", names.join(" "))))
        };
        let mut numbers = Vec::new();
        for name in names {
            let members: Vec<i32> = name.split('+').map(find).collect::<Result<_>>()?;
            numbers.push(match members.as_slice() {
                [one] => *one,
                several => {
                    let number = self.network.merge(several)?;
                    self.network.properties(number)?;
                    number
                }
            });
        }
        self.devices = match numbers.as_slice() {
            [] if known.is_empty() => return Err(refused("the network has no device".to_owned())),
            [] => [0, 0],
            [one] => [*one, *one],
            [send, receive] => [*send, *receive],
            _ => return Err(refused("more than two devices".to_owned())),
        };
        Ok(Answer::Done)
    }

    fn keep(&mut self, made: Made) -> Answer {
        let answer = Answer::Connected {
            seconds: vec![made.seconds],
            processor: vec![made.processor],
        };
        for end in made.ends {
            match end.kind() {
                crate::net::Kind::Send => self.sends.push(end),
                crate::net::Kind::Receive => self.receives.push(end),
            }
        }
        answer
    }

    fn connect_here(&mut self, count: usize, pause: u64) -> Result<Answer> {
        if self.sends.len() + count > MOST_CONNECTIONS {
            return Err(refused(format!("{count} more connections")));
        }
        let (mut all_seconds, mut all_processor) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let made = connections::here(&self.network, self.devices, pause)?;
            if let Answer::Connected { seconds, processor } = self.keep(made) {
                all_seconds.extend(seconds);
                all_processor.extend(processor);
            }
        }
        Ok(Answer::Connected {
            seconds: all_seconds,
            processor: all_processor,
        })
    }

    /// The flow, if it is possible with so many connections.
    fn checked(&self, flow: Flow, connections: usize) -> Result<Flow> {
        let Flow {
            size,
            window,
            group,
            ..
        } = flow;
        let bytes = size
            .checked_mul(window)
            .and_then(|bytes| bytes.checked_mul(group));
        let bytes = bytes.and_then(|bytes| bytes.checked_mul(flow.connections));
        let is_possible = (1..=8).contains(&group)
            && (1..=32).contains(&window)
            && size > 0
            && (1..=connections).contains(&flow.connections)
            && bytes.is_some_and(|bytes| bytes <= MOST_BYTES)
            && flow.warm_up <= 1_000 * MOST_ROUNDS
            && flow.receives <= 1_000 * MOST_ROUNDS;
        if is_possible {
            Ok(flow)
        } else {
            Err(refused(format!("{flow:?} with {connections} connections")))
        }
    }

    fn pair(&self, volley: Volley) -> Result<(&Comm, &Comm)> {
        let is_possible = (1..=MOST_BYTES / 4).contains(&volley.size)
            && volley.warm_up <= MOST_ROUNDS
            && volley.rounds <= MOST_ROUNDS;
        match (self.sends.first(), self.receives.first()) {
            (Some(send), Some(receive)) if is_possible => Ok((send, receive)),
            _ => Err(refused(format!(
                "{volley:?}, connections in both directions"
            ))),
        }
    }
}

fn refused(what: String) -> Error {
    Error::Refused(format!("not possible: {what}"))
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hexadecimal(text: &str) -> Result<crate::net::Handle> {
    let mut handle = [0; size_of::<crate::net::Handle>()];
    let wrong = || refused("a handle that is none".to_owned());
    if text.len() != 2 * handle.len() || !text.is_ascii() {
        return Err(wrong());
    }
    for (byte, digits) in handle.iter_mut().zip(text.as_bytes().chunks(2)) {
        let digits = std::str::from_utf8(digits).map_err(|_| wrong())?;
        *byte = u8::from_str_radix(digits, 16).map_err(|_| wrong())?;
    }
    Ok(handle)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn handles_survive_as_text() {
        let mut handle = [0; 128];
        for (index, byte) in handle.iter_mut().enumerate() {
            *byte = (index * 37) as u8;
        }
        let text = hexadecimal(&handle);
        assert_eq!(from_hexadecimal(&text).unwrap(), handle);
        assert!(from_hexadecimal(&text[2..]).is_err());
        assert!(from_hexadecimal(&text.replace('a', "g")).is_err());
        assert!(from_hexadecimal(&"é".repeat(128)).is_err());
    }
}
