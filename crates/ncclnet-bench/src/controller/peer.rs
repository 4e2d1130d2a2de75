//! A worker, as its controller sees it.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use super::Failure;
use crate::net::Source;
use crate::protocol::{self, Answer, Order, Start};

/// NCCL's variable, which ours follows, for the number of queue pairs per connection and device.
pub(crate) const PATHS: &str = "NCCL_IB_QPS_PER_CONNECTION";

/// How a worker is to be started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// Queue pairs per connection and device.
    pub(crate) paths: u32,
    /// Give the processor away after a fruitless poll.
    pub(crate) yields: bool,
}

/// A worker: a process on this host, or one that a listening program on another host has started.
pub(crate) struct Peer {
    input: Box<dyn BufRead>,
    output: Box<dyn Write>,
    child: Option<Child>,
    what: String,
}

/// The command that starts a worker; it serves its standard input and output.
pub(crate) fn worker(source: &Source, settings: Settings) -> Result<Command, Failure> {
    let program = std::env::current_exe()
        .map_err(|error| Failure(format!("cannot find this program: {error}")))?;
    let mut command = Command::new(program);
    command.arg("worker").arg("--net").arg(source.to_string());
    if settings.yields {
        command.arg("--yield");
    }
    if std::env::var_os("NCCL_DEBUG").is_none() {
        // NCCL warns of what is as it should be here: devices without a place in the machine.
        command.env("NCCL_DEBUG", "NONE");
    }
    if settings.paths > 1 {
        command.env(PATHS, settings.paths.to_string());
    }
    Ok(command)
}

impl Peer {
    /// Starts a worker on this host.
    pub(crate) fn start(source: &Source, settings: Settings) -> Result<Self, Failure> {
        let mut command = worker(source, settings)?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let what = source.label.clone();
        let mut child = command
            .spawn()
            .map_err(|error| Failure(format!("{what}: cannot start a worker: {error}")))?;
        let (Some(output), Some(input)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Failure(format!("{what}: the worker has no pipes")));
        };
        Ok(Self {
            input: Box::new(BufReader::new(input)),
            output: Box::new(output),
            child: Some(child),
            what,
        })
    }

    /// Has a worker started on another host.
    pub(crate) fn start_at(address: &str, start: &Start) -> Result<Self, Failure> {
        let what = format!("{} at {address}", start.label);
        let fail = |error: std::io::Error| Failure(format!("{what}: {error}"));
        let stream = TcpStream::connect(address).map_err(fail)?;
        stream.set_nodelay(true).map_err(fail)?;
        let mut output = stream.try_clone().map_err(fail)?;
        protocol::write(&mut output, start).map_err(fail)?;
        let mut peer = Self {
            input: Box::new(BufReader::new(stream)),
            output: Box::new(output),
            child: None,
            what,
        };
        // From then on it is the worker that listens.
        peer.answer()?;
        Ok(peer)
    }

    /// Gives an order without waiting for the answer.
    pub(crate) fn order(&mut self, order: &Order) -> Result<(), Failure> {
        let what = &self.what;
        protocol::write(&mut self.output, order)
            .map_err(|error| Failure(format!("{what}: the worker is gone: {error}")))
    }

    /// Waits for the answer to the oldest order.
    pub(crate) fn answer(&mut self) -> Result<Answer, Failure> {
        let what = &self.what;
        match protocol::read(&mut self.input) {
            Ok(Some(Answer::Failed(why))) => Err(Failure(format!("{what}: {why}"))),
            Ok(Some(answer)) => Ok(answer),
            Ok(None) => {
                // It has closed its end, so it is about to be gone.
                let how = match self.child.as_mut().map(Child::wait) {
                    Some(Ok(status)) if !status.success() => format!(": {status}"),
                    _ => String::new(),
                };
                Err(Failure(format!("{what}: the worker has ended{how}")))
            }
            Err(error) => Err(Failure(format!("{what}: {error}"))),
        }
    }

    /// Gives an order and waits for the answer.
    pub(crate) fn ask(&mut self, order: &Order) -> Result<Answer, Failure> {
        self.order(order)?;
        self.answer()
    }

    /// An answer that does not belong to the order.
    pub(crate) fn unexpected(&self, answer: &Answer) -> Failure {
        Failure(format!("{}: unexpected answer {answer:?}", self.what))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // One that is gone already needs no order.
        let _ = protocol::write(&mut self.output, &Order::Quit);
        if let Some(child) = &mut self.child {
            // It ends by itself, or because its input does.
            self.output = Box::new(std::io::sink());
            let _ = child.wait();
        }
    }
}
