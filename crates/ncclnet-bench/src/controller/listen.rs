//! Serving a controller on another host.

use std::io::BufReader;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::time::Duration;

use super::Failure;
use super::peer::{Settings, worker};
use crate::net::Source;
use crate::protocol::{self, Answer, Start};

/// The longest that a client may take to say which network it wants.
const PATIENCE: Duration = Duration::from_secs(10);
const MOST_PATHS: u32 = 128;

/// Starts a worker for every client, until interrupted. Workers serve the client's connection
/// themselves. All that can connect can have this host's networks measured, so that the address should
/// be one of a network that is trusted.
pub(crate) fn listen(address: &str, sources: &[Source], yields: bool) -> Result<(), Failure> {
    let listener = TcpListener::bind(address)
        .map_err(|error| Failure(format!("cannot listen on {address}: {error}")))?;
    let labels: Vec<&str> = sources.iter().map(|source| source.label.as_str()).collect();
    // With the port that was chosen, if that was left open.
    let address = listener
        .local_addr()
        .map_err(|error| Failure(error.to_string()))?;
    eprintln!("listening on {address} for {}", labels.join(", "));
    for stream in listener.incoming() {
        let served = stream
            .map_err(|error| Failure(error.to_string()))
            .and_then(|stream| serve(stream, sources, yields));
        // One bad client is no reason to stop.
        if let Err(failure) = served {
            eprintln!("a client was turned away: {failure}");
        }
    }
    Ok(())
}

fn serve(stream: TcpStream, sources: &[Source], yields: bool) -> Result<(), Failure> {
    let system = |error: std::io::Error| Failure(error.to_string());
    stream.set_nodelay(true).map_err(system)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(system)?;
    // The client waits for an answer after the first line, so that nothing is read ahead.
    let mut reader = BufReader::new(&stream);
    let start: Start = protocol::read(&mut reader)
        .map_err(system)?
        .ok_or_else(|| Failure("nothing was said".to_owned()))?;
    let ahead = reader.buffer().to_vec();
    let source = sources.iter().find(|source| source.label == start.label);
    let (Some(source), 1..=MOST_PATHS) = (source, start.paths) else {
        let why = format!("there is no network {} here", start.label);
        protocol::write(&mut &stream, &Answer::Failed(why.clone())).map_err(system)?;
        return Err(Failure(why));
    };
    stream.set_read_timeout(None).map_err(system)?;
    let settings = Settings {
        paths: start.paths,
        yields,
    };
    let mut command = worker(source, settings)?;
    if !ahead.is_empty() {
        return Err(Failure("the client did not wait for its turn".to_owned()));
    }
    protocol::write(&mut &stream, &Answer::Done).map_err(system)?;
    let input = OwnedFd::from(stream.try_clone().map_err(system)?);
    command
        .stdin(Stdio::from(input))
        .stdout(Stdio::from(OwnedFd::from(stream)));
    let mut child = command.spawn().map_err(system)?;
    // Workers of one client at a time would do, but a second network's may come before the first has
    // gone; the thread only waits.
    std::thread::spawn(move || child.wait());
    Ok(())
}
