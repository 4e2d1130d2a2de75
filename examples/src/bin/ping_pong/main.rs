//! Ping-pong: latency and bandwidth of a connection, through the safe interface of `ibnet`.
//!
//! On one host it starts its own peer:
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

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, ExitCode, Stdio};

use ibnet::{Config, ConnectOptions, Handle, HcaFilter, Transport};
use measure::End;
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
        Role::Listen => listen(&options),
        Role::Connect(handle) => connect(&options, handle),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ping_pong: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Starts the listening end as a process of its own, and connects to it.
fn both(options: &Options) -> Result<(), Box<dyn Error>> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .arg("--listen")
        .args(options.for_peer())
        .stdout(Stdio::piped());
    let mut peer = command.spawn()?;
    let outcome = (|| {
        let output = peer.stdout.take().ok_or("the peer has no output")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        if line.trim().is_empty() {
            return Err("the peer did not start to listen".into());
        }
        connect(options, line.trim())
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

fn open(options: &Options) -> Result<Transport, Box<dyn Error>> {
    let mut config = Config::from_env()?;
    if let Some(device) = &options.device {
        config.hca = HcaFilter::parse(&format!("={device}")).map_err(|invalid| invalid.0)?;
    }
    Ok(Transport::open(config)?)
}

fn listen(options: &Options) -> Result<(), Box<dyn Error>> {
    let transport = open(options)?;
    let mut listener = transport.listen(0)?;
    println!("{}", to_hex(&listener.handle().to_bytes()));
    std::io::stdout().flush()?;
    let mut receiving = listener.accept()?;
    // The peer's first message says where to connect back.
    let ticket = receiving.recv(receiving.registrar().buffer(Handle::SIZE)?, 0)?;
    let handle = Handle::from_bytes(&receiving.wait(ticket)?)?;
    let sending = transport
        .connect(0, &handle, ConnectOptions::default())?
        .wait()?;
    End::new(sending, receiving, options)?.answer()
}

fn connect(options: &Options, handle: &str) -> Result<(), Box<dyn Error>> {
    let handle = Handle::from_bytes(&from_hex(handle).ok_or("that is no handle")?)?;
    let transport = open(options)?;
    let mut sending = transport
        .connect(0, &handle, ConnectOptions::default())?
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

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |at: usize| u8::from_str_radix(text.get(at..at + 2)?, 16).ok();
    (0..text.len()).step_by(2).map(digit).collect()
}
