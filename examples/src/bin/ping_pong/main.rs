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

use std::io::{BufRead, BufReader};
use std::process::{Command, ExitCode, Stdio};
use std::sync::mpsc;
use std::thread;

use ibnet::{Config, ConnectOptions, Handle, Transport, Wait};
use ibnet_examples::{
    Devices, Simulator, Wanted, check_name, check_real, conclude, die_with_parent, refuse, say,
    show_warnings,
};
use measure::{End, Outcome};
use options::{Options, Role};

fn main() -> ExitCode {
    show_warnings();
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(problem) => {
            return refuse("ping_pong", &problem, options::HELP);
        }
    };
    let outcome = match &options.role {
        Role::Help => {
            say!("{}", options::HELP);
            Ok(())
        }
        Role::Both => both(&options),
        Role::Listen => listen_alone(&options),
        Role::Connect(handle) => connect_alone(&options, handle),
    };
    conclude("ping_pong", outcome)
}

/// Both ends on this host: real devices are used by two processes, simulated ones by two threads.
fn both(options: &Options) -> Outcome<()> {
    let device = options.device.as_deref();
    let settings = Config::from_env()?;
    if options.wanted == Wanted::Real {
        for name in [device, options.device_of_peer()].into_iter().flatten() {
            check_real(&settings, name)?;
        }
    }
    let devices = Devices::open(options.wanted, only(device, settings.clone())?)?;
    say!("# ping-pong {devices}");
    match devices {
        Devices::Real(transport) => between_processes(options, &transport),
        Devices::Simulated(simulator) => between_threads(options, &simulator, settings),
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
            return Err("the peer did not start to listen, as it says above".into());
        }
        connect(options, transport, &line.parse()?)
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
fn between_threads(options: &Options, simulator: &Simulator, mut settings: Config) -> Outcome<()> {
    let library = simulator.library();
    for name in [&options.device, &options.peer_device]
        .into_iter()
        .flatten()
    {
        check_name(&library, name)?;
    }
    // Each end that is named a device takes that one, whatever the filter of the environment admits.
    simulator.adapt(&mut settings)?;
    let open = |device: Option<&str>| -> Outcome<Transport> {
        Ok(simulator.transport(only(device, settings.clone())?)?)
    };
    let transport = open(options.device.as_deref())?;
    let peer_transport = open(options.device_of_peer())?;
    let (tell, told) = mpsc::channel();
    let peer_options = options.clone();
    let peer = thread::Builder::new().name("peer".into()).spawn(move || {
        let tell = |handle: &Handle| Ok(tell.send(*handle)?);
        listen(&peer_options, &peer_transport, tell).map_err(|error| error.to_string())
    })?;
    // If the peer cannot listen, its error is the one to tell.
    let outcome = told
        .recv()
        .map_or(Ok(()), |handle| connect(options, &transport, &handle));
    if outcome.is_err() && !peer.is_finished() {
        return outcome;
    }
    let peer = peer.join().unwrap_or_else(|_| Err("it panicked".into()));
    peer.map_err(|error| format!("the peer: {error}"))?;
    outcome
}

/// The settings with one device of all, if one is named.
fn only(device: Option<&str>, mut config: Config) -> Outcome<Config> {
    if let Some(device) = device {
        config.hca = format!("={device}").parse()?;
    }
    Ok(config)
}

/// The real devices of this host that are to be used.
fn open_real(device: Option<&str>) -> Outcome<Transport> {
    let settings = Config::from_env()?;
    device.map_or(Ok(()), |name| check_real(&settings, name))?;
    Ok(Transport::open(only(device, settings)?)?)
}

/// The first of two hosts, or a process that the other end has started.
fn listen_alone(options: &Options) -> Outcome<()> {
    let transport = open_real(options.device.as_deref())?;
    listen(options, &transport, |handle| {
        say!("{handle}");
        Ok(())
    })
}

/// The second of two hosts.
fn connect_alone(options: &Options, handle: &str) -> Outcome<()> {
    let handle: Handle = handle.parse()?;
    let transport = open_real(options.device.as_deref())?;
    say!("# ping-pong on real devices");
    connect(options, &transport, &handle)
}

fn listen(
    options: &Options,
    transport: &Transport,
    tell: impl FnOnce(&Handle) -> Outcome<()>,
) -> Outcome<()> {
    let mut listener = transport.listen(0)?;
    tell(&listener.handle())?;
    let mut receiving = listener.accept().wait()?;
    // The peer's first message says where to connect back.
    let ticket = receiving
        .recv(receiving.registrar().buffer(Handle::SIZE)?, 0)
        .wait()?;
    let handle = Handle::from_bytes(&receiving.finish(ticket).wait()?)?;
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
    let ticket = sending.send(buffer, 0).wait()?;
    sending.finish(ticket).wait()?;
    let receiving = listener.accept().wait()?;
    say!("# {}", sending.description());
    End::new(sending, receiving, options)?.ask()
}
