//! Ping-pong: latency and bandwidth of a connection, through the safe interface of `ibnet`.
//!
//! On one host it starts its own peer, as a process. Where there is no RDMA device it simulates two, and
//! the peer is a thread:
//!
//! ```text
//! ping_pong [--device NAME] [--peer-device NAME]
//! ```
//!
//! Between two hosts, the first prints what the second needs:
//!
//! ```text
//! first$  ping_pong --listen [--device NAME]
//! second$ ping_pong --connect HANDLE [--device NAME]
//! ```

mod measure;
mod options;

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, ExitCode, Stdio};
use std::sync::mpsc;
use std::thread;

use ibnet::{Config, ConnectOptions, Handle, HcaFilter, Transport};
use ibnet_examples::{Devices, Simulator, Wanted, check_name, die_with_parent, from_text, to_text};
use measure::{End, Outcome};
use options::{Options, Role};

fn main() -> ExitCode {
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(problem) => {
            eprintln!("{problem}\n{}", options::HELP);
            return ExitCode::from(2);
        }
    };
    let outcome = match &options.role {
        Role::Help => {
            println!("{}", options::HELP);
            Ok(())
        }
        Role::Both => both(&options),
        Role::Listen => listen_alone(&options),
        Role::Connect(handle) => connect_alone(&options, handle),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ping_pong: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Both ends on this host: real devices are used by two processes, simulated ones by two threads.
fn both(options: &Options) -> Outcome<()> {
    let device = options.device.as_deref();
    if options.wanted == Wanted::Real {
        check_real(device)?;
        check_real(options.device_of_peer())?;
    }
    let devices = Devices::open(options.wanted, config(device)?)?;
    println!("# ping-pong {devices}");
    match devices {
        Devices::Real(transport) => between_processes(options, &transport),
        Devices::Simulated(simulator) => {
            if let Some(reason) = simulator.reason() {
                println!("# because: {reason}");
            }
            between_threads(options, &simulator)
        }
    }
}

/// Starts the listening end as a process of its own, and connects to it.
fn between_processes(options: &Options, transport: &Transport) -> Outcome<()> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .arg("--listen")
        .args(options.for_peer())
        .stdout(Stdio::piped());
    // If this process is killed nobody is left to stop it.
    die_with_parent(&mut command);
    let mut peer = command.spawn()?;
    let outcome = (|| {
        let output = peer.stdout.take().ok_or("the peer has no output")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        if line.trim().is_empty() {
            return Err("the peer did not start to listen".into());
        }
        connect(options, transport, &from_text(&line)?)
    })();
    if outcome.is_err() {
        let _ = peer.kill();
    }
    let status = peer.wait()?;
    outcome?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("the peer ended with {status}").into())
    }
}

/// Starts the listening end as a thread, and connects to it. If this end fails, the other may wait
/// for ever; it ends with the program.
fn between_threads(options: &Options, simulator: &Simulator) -> Outcome<()> {
    let open = |device: Option<&str>| -> Outcome<Transport> {
        let library = simulator.library();
        device.map_or(Ok(()), |name| check_name(&library, name))?;
        Ok(Transport::with_library(library, config(device)?)?)
    };
    let transport = open(options.device.as_deref())?;
    let peer_transport = open(options.device_of_peer())?;
    let (tell, told) = mpsc::channel();
    let peer_options = options.clone();
    let peer = thread::Builder::new().name("peer".into()).spawn(move || {
        let tell = |handle: &Handle| Ok(tell.send(*handle)?);
        listen(&peer_options, &peer_transport, tell).map_err(|error| error.to_string())
    })?;
    let outcome = match told.recv() {
        Ok(handle) => connect(options, &transport, &handle),
        Err(_) => Err("the peer did not start to listen".into()),
    };
    if outcome.is_err() && !peer.is_finished() {
        return outcome;
    }
    let peer = peer.join().unwrap_or_else(|_| Err("it panicked".into()));
    peer.map_err(|error| format!("the peer: {error}"))?;
    outcome
}

/// The settings of the environment, and one device of all, if one is named.
fn config(device: Option<&str>) -> Outcome<Config> {
    let mut config = Config::from_env()?;
    if let Some(device) = device {
        config.hca = HcaFilter::parse(&format!("={device}")).map_err(|invalid| invalid.0)?;
    }
    Ok(config)
}

/// The real devices of this host that are to be used.
fn open_real(device: Option<&str>) -> Outcome<Transport> {
    check_real(device)?;
    Ok(Transport::open(config(device)?)?)
}

/// Says so if this host has devices, but not the one that is named.
fn check_real(device: Option<&str>) -> Outcome<()> {
    let Some(name) = device else { return Ok(()) };
    let library = match Config::from_env()?.library {
        Some(path) => verbs::Library::load_from(&path),
        None => verbs::Library::load(),
    };
    // That there is no library is told when the devices are opened.
    library.map_or(Ok(()), |library| Ok(check_name(&library, name)?))
}

/// The first of two hosts, or a process that the other end has started.
fn listen_alone(options: &Options) -> Outcome<()> {
    let transport = open_real(options.device.as_deref())?;
    listen(options, &transport, |handle| {
        println!("{}", to_text(handle));
        Ok(std::io::stdout().flush()?)
    })
}

/// The second of two hosts.
fn connect_alone(options: &Options, handle: &str) -> Outcome<()> {
    let handle = from_text(handle)?;
    let transport = open_real(options.device.as_deref())?;
    println!("# ping-pong on real devices");
    connect(options, &transport, &handle)
}

fn listen(
    options: &Options,
    transport: &Transport,
    tell: impl FnOnce(&Handle) -> Outcome<()>,
) -> Outcome<()> {
    let mut listener = transport.listen(0)?;
    tell(&listener.handle())?;
    let mut receiving = listener.accept()?;
    // The peer's first message says where to connect back.
    let ticket = receiving.recv(receiving.registrar().buffer(Handle::SIZE)?, 0)?;
    let handle = Handle::from_bytes(&receiving.wait(ticket)?)?;
    let sending = transport
        .connect(0, &handle, ConnectOptions::default())?
        .wait()?;
    End::new(sending, receiving, options)?.answer()
}

fn connect(options: &Options, transport: &Transport, handle: &Handle) -> Outcome<()> {
    let mut sending = transport
        .connect(0, handle, ConnectOptions::default())?
        .wait()?;
    let mut listener = transport.listen(0)?;
    let mut buffer = sending.registrar().buffer(Handle::SIZE)?;
    buffer.copy_from_slice(&listener.handle().to_bytes());
    let ticket = sending.send(buffer, 0)?;
    sending.wait(ticket)?;
    let receiving = listener.accept()?;
    println!("# {}", sending.description());
    End::new(sending, receiving, options)?.ask()
}
