//! Sends a file, shows how far it has come, and makes sure that what arrived is what was sent.
//!
//! On one host both ends are threads of this program:
//!
//! ```text
//! send_file FILE --output COPY
//! ```
//!
//! Between two hosts, the receiver prints what the sender needs:
//!
//! ```text
//! receiver$ send_file --listen --output COPY
//! sender$   send_file --connect HANDLE FILE
//! ```
//!
//! - [`transfer`]: what travels, in which order;
//! - [`checksum`]: how a damaged copy is noticed;
//! - [`progress`]: what is printed meanwhile.

mod checksum;
mod options;
mod progress;
mod transfer;

use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use ibnet::{ConnectOptions, Handle, ListenOptions, Transport, Wait};
use ibnet_examples::{Arguments, Scene, conclude, index_of, refuse, say, show_warnings};
use options::{Options, Role};
use transfer::Source;

/// By then a sender in the same process has connected, or never will.
const SOON: Duration = Duration::from_secs(10);

/// What may fail here fails for many reasons.
type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    show_warnings();
    let options = match Options::parse(Arguments::of_process()) {
        Ok(options) => options,
        Err(problem) => {
            return refuse("send_file", &problem, options::HELP);
        }
    };
    conclude("send_file", run(&options))
}

fn run(options: &Options) -> Outcome<()> {
    if options.role == Role::Help {
        say!("{}", options::HELP);
        return Ok(());
    }
    let names = [&options.device, &options.peer_device];
    let names: Vec<String> = names.into_iter().flatten().cloned().collect();
    let scene = Scene::open("sending a file", options.wanted, 2, &names)?;
    let transport = &scene.transport;
    let own = index_of(transport, options.device.as_deref(), 0)?;
    match &options.role {
        Role::Help => Ok(()),
        Role::Both { file, output } => {
            let source = Source::open(file)?;
            let peer = options.peer_device.as_deref().or(options.device.as_deref());
            let peer = index_of(transport, peer, 1)?;
            let (tell, told) = std::sync::mpsc::channel();
            thread::scope(|scope| {
                let receiver = scope.spawn(move || {
                    let tell = |handle: &Handle| Ok(tell.send(*handle)?);
                    receive(transport, peer, output, Some(SOON), tell)
                        .map_err(|error| error.to_string())
                });
                // If the receiver cannot listen, its error is the one to tell.
                let sent = told.recv().map_or(Ok(()), |handle| {
                    send(transport, own, &handle, source, options)
                });
                let received = receiver
                    .join()
                    .unwrap_or_else(|_| Err("it panicked".into()));
                // One of them is the cause, the other what came of it.
                match (sent, received) {
                    (Ok(()), Ok(())) => Ok(()),
                    (Err(sender), Ok(())) => Err(sender),
                    (Ok(()), Err(receiver)) => Err(format!("the receiver: {receiver}").into()),
                    (Err(sender), Err(receiver)) => {
                        Err(format!("the sender: {sender}\nthe receiver: {receiver}").into())
                    }
                }
            })
        }
        Role::Listen { output } => receive(transport, own, output, None, |handle| {
            say!("{handle}");
            Ok(())
        }),
        Role::Connect { handle, file } => {
            let source = Source::open(file)?;
            send(transport, own, &handle.parse()?, source, options)
        }
    }
}

/// Waiting costs nothing at either end: a disk may be slow.
fn send(
    transport: &Transport,
    device: usize,
    handle: &Handle,
    source: Source,
    options: &Options,
) -> Outcome<()> {
    let connect = ConnectOptions::default().notify(true);
    let mut sending = transport.connect(device, handle, connect)?.wait()?;
    say!("# {}", sending.description());
    transfer::send(&mut sending, source, options.chunk)?;
    Ok(sending.close()?)
}

fn receive(
    transport: &Transport,
    device: usize,
    output: &str,
    patience: Option<Duration>,
    tell: impl FnOnce(&Handle) -> Outcome<()>,
) -> Outcome<()> {
    let mut listener = transport.listen_with(device, ListenOptions::default().notify(true))?;
    tell(&listener.handle())?;
    let mut receiving = match patience {
        None => listener.accept().wait()?,
        Some(time) => listener
            .accept()
            .wait_for(time)?
            .ok_or("nobody has connected")?,
    };
    transfer::receive(&mut receiving, output)?;
    Ok(receiving.close()?)
}
